"""A kernel from the disk cache names the file and the lines where it stands now."""

from __future__ import annotations

import importlib.util
import textwrap

import numpy as np
import pytest

import ptxforge
from ptxforge.runtime import cache
from ptxforge.runtime.cache import FunctionPlace, moved

KERNELS = """\
import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def twice(v):
    return v * 2


@ptxforge.jit(
    do_not_specialize=["n"]
)
def scale(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, twice(tl.load(x + i)), mask=i < n)
"""
SIGNATURE = {"x": "*fp32:16", "out": "*fp32:16", "n": "i32"}


@pytest.fixture
def cached(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "cache"))


def module_of(folder, text, name="kernels_that_move"):
    """A module of that text. It always has the same name, as the script that is run has."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled_freshly(kernel, monkeypatch, **constants):
    with monkeypatch.context() as without:
        without.setenv("PTXFORGE_CACHE_DIR", "off")
        return kernel.compile(SIGNATURE, constants).ptx


FURTHER_IN = "if True:\n" + textwrap.indent(KERNELS, "    ")
LINES_BETWEEN = KERNELS.replace("    return v * 2\n", "    return v * 2\n\n\nELSEWHERE = 1\nMORE = 2\n")


SHORTER_DECORATOR = KERNELS.replace("(\n ", "(").replace("]\n)", "])")


@pytest.mark.parametrize(
    "text", [KERNELS, f'"""Three\nmore\nlines."""\n{KERNELS}', LINES_BETWEEN, SHORTER_DECORATOR, FURTHER_IN],
    ids=["another folder", "lines above", "lines between", "shorter decorator", "further in"],
)  # fmt: skip
def test_the_same_text_elsewhere(text, tmp_path, cached, monkeypatch):
    first = module_of(tmp_path / "one", KERNELS).scale.compile(SIGNATURE, {"BLOCK": 128})
    kernel = module_of(tmp_path / 'an "odd" one', text).scale
    before = cache.counters.compiled
    second = kernel.compile(SIGNATURE, {"BLOCK": 128})
    assert cache.counters.compiled == before  # it was found, and it is what compiling makes
    assert second.ptx == compiled_freshly(kernel, monkeypatch, BLOCK=128) != first.ptx
    assert second.asm["ptx"] == second.ptx


def test_findings_of_a_kernel_that_moved(tmp_path, cached):
    def place_of_the_finding(folder, text):
        kernel = module_of(folder, text).scale
        x, out = np.zeros(100, np.float32), np.zeros(128, np.float32)
        with ptxforge.check(fail_on="never", tiles=False) as report:
            kernel[(1,)](x, out, 128, BLOCK=128)
        (issue,) = report.issues
        return issue.place.file, issue.place.line, issue.place.shown().splitlines()[0].split()[-1]

    for folder, text, line in (("one", KERNELS, 15), ("two", "# a note\n" * 7 + KERNELS, 22)):
        found = place_of_the_finding(tmp_path / folder, text)
        assert found == (str(tmp_path / folder / "kernels_that_move.py"), line, "n)")


def test_a_function_that_is_a_constant_moved(tmp_path, cached, monkeypatch):
    text = KERNELS.replace("n, BLOCK", "n, F: tl.constexpr, BLOCK").replace("twice(tl", "F(tl")
    found = []
    for folder, lines in (("one", ""), ("two", "\n\n")):
        module = module_of(tmp_path / folder, lines + text)
        before = cache.counters.compiled
        made = module.scale.compile(SIGNATURE, {"F": module.twice, "BLOCK": 64}).ptx
        found.append(cache.counters.compiled - before)
        assert made == compiled_freshly(module.scale, monkeypatch, F=module.twice, BLOCK=64)
    assert found == [1, 0]


def test_an_assertion_that_moved_is_compiled_again(tmp_path, cached, emulator):
    """Its message, with file and line, is data of the program."""
    text = KERNELS.replace("    tl.store", '    tl.device_assert(n < 0, "negative")\n    tl.store')
    for folder, lines in (("one", 0), ("two", 3), ("one", 0)):
        kernel = module_of(tmp_path / folder, "\n" * lines + text).scale
        x = np.zeros(128, np.float32)
        with ptxforge.use_device(emulator), pytest.raises(ptxforge.PtxforgeError) as error:
            kernel[(1,)](x, x, 128, BLOCK=128, debug=True)
        assert f"{folder}/kernels_that_move.py:{lines + 15}" in str(error.value)


PTX = """.version 8.0
.target sm_80

.file 1 "/old/a.py"
.file 2 "/lib/core.py"
.visible .entry k()
{
	.loc 1 12 5
	ret;
	.loc 2 12 5
	.loc 1 40 9
}
"""


def test_functions_of_one_file_that_are_in_two_now():
    before = [FunctionPlace("/old/a.py", 10, 5, 0), FunctionPlace("/old/a.py", 38, 5, 4)]
    now = [FunctionPlace("/new/a.py", 3, 5, 0), FunctionPlace("/new/b.py", 1, 5, 0)]
    found = moved(PTX, before, now)
    assert '.file 1 "/new/a.py"\n.file 2 "/new/b.py"\n.file 3 "/lib/core.py"\n.visible' in found
    assert [line.strip() for line in found.splitlines() if ".loc" in line] == [
        ".loc 1 5 5", ".loc 3 12 5", ".loc 2 3 5",
    ]  # fmt: skip


def test_what_cannot_be_moved():
    place = FunctionPlace("/old/a.py", 10, 5, 0)
    assert moved(PTX, [place], []) is None
    assert moved(PTX + "call __assertfail", [place], [attr_moved(place)]) is None
    assert moved(PTX, [place], [place]) == PTX
    assert moved("no places", [place], [attr_moved(place)]) == "no places"


def attr_moved(place):
    return FunctionPlace("/new/a.py", place.line, place.lines, place.indent)
