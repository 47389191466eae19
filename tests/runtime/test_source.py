"""The text of a kernel is the one that it had when it became one, wherever Python still has it."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import ptxforge
from ptxforge.support import source_text
from ptxforge.support.errors import CompilationError

KERNEL = """
import ptxforge
import ptxforge.language as tl

@ptxforge.jit
def fill(out):
    tl.store(out, {value})
"""
LAUNCH = """
import numpy as np
out = np.zeros(1, np.float32)
fill[(1,)](out)
print(out[0])
"""


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def filled(kernel) -> float:
    out = np.zeros(1, np.float32)
    kernel[(1,)](out)
    return out[0]


def rewrite(path, text):
    """Change a file so that its date differs, whatever the file system's clock."""
    path.write_text(text)
    os.utime(path, ns=(1, os.stat(path).st_mtime_ns + 1))


def test_a_file_edited_before_the_first_launch(tmp_path):
    path = tmp_path / "edited.py"
    path.write_text(KERNEL.format(value=1.0))
    module = loaded(path)
    rewrite(path, KERNEL.format(value=2.0))
    linecache.checkcache()
    assert filled(module.fill) == 1.0
    assert filled(loaded(path).fill) == 2.0


def test_a_file_whose_lines_moved(tmp_path):
    path = tmp_path / "moved.py"
    path.write_text(KERNEL.format(value=1.0))
    module = loaded(path)
    rewrite(path, "")
    linecache.checkcache()
    assert filled(module.fill) == 1.0


def test_an_error_quotes_the_text_that_was_compiled(tmp_path):
    path = tmp_path / "quoted.py"
    path.write_text(KERNEL.format(value="out + missing"))
    module = loaded(path)
    rewrite(path, "# another\n" * 20)
    linecache.checkcache()
    with pytest.raises(CompilationError, match=r"tl\.store\(out, out \+ missing\)"):
        filled(module.fill)


def test_exec_with_its_text():
    text = KERNEL.format(value=3.0)
    scope = {"__name__": "made", "__source__": text}
    exec(compile(text, "<made>", "exec"), scope)
    assert filled(scope["fill"]) == 3.0


def test_exec_with_another_text():
    scope = {"__name__": "made", "__source__": KERNEL.format(value="out + 4")}
    exec(compile(KERNEL.format(value=3.0), "<made>", "exec"), scope)
    with pytest.raises(CompilationError, match="is not available"):
        filled(scope["fill"])


def test_a_text_that_linecache_has():
    """As notebooks and Python 3.13's prompt leave it."""
    text = KERNEL.format(value=5.0)
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(keepends=True), "<cell 1>")
    scope = {"__name__": "__main__"}
    exec(compile(text, "<cell 1>", "exec"), scope)
    assert filled(scope["fill"]) == 5.0


@pytest.mark.parametrize("arguments", [["-c"], ["-W", "ignore", "-X", "utf8", "-Bc"]])
def test_the_command_line(arguments):
    script = KERNEL.format(value=6.0) + LAUNCH
    assert _output([*arguments, script]) == "6.0\n"


def test_standard_input(tmp_path):
    script = tmp_path / "script"
    script.write_text(KERNEL.format(value=7.0) + LAUNCH)
    with script.open() as file:
        assert _output([], stdin=file) == "7.0\n"


def test_a_pipe_is_gone():
    command = [sys.executable, "-"]
    done = subprocess.run(
        command, input=KERNEL.format(value=7.0) + LAUNCH, env=_environment(), capture_output=True, text=True
    )
    assert "the source of 'fill' is not available (<stdin>)" in done.stderr
    assert "leave the executed text in its namespace as '__source__'" in done.stderr


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))}


def _output(arguments: list[str], **streams) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, **streams)
    assert not done.stderr, done.stderr
    return done.stdout


def test_a_string_further_left_than_the_code():
    def fill(out):
        text = """
left
"""  # noqa: F841
        ptxforge.language.store(out, 8.0)

    assert filled(ptxforge.jit(fill)) == 8.0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = LIMIT\nLIMIT = 3", "LIMIT"),
        ("LIMIT = 3\na = LIMIT", ""),
        ("LIMIT = LIMIT + 1", "LIMIT"),
        ("LIMIT += 1", "LIMIT"),
        ("x += LIMIT", "LIMIT"),
        ("LIMIT: tl.constexpr = LIMIT", "LIMIT tl.constexpr tl"),
        ("a = (\n    LIMIT)\nLIMIT = (\n    1)", "LIMIT"),
        ("LIMIT = (\n    1)\na = LIMIT", ""),
        ("for LIMIT in range(4):\n    a = LIMIT", "range"),
        ("for i in range(LIMIT):\n    LIMIT = i", "range LIMIT"),
        ("if x:\n    LIMIT = 1\na = LIMIT", ""),
        ("a = [LIMIT for LIMIT in x]", ""),
        ("a = (LIMIT := 3) + LIMIT", ""),
        ("global LIMIT\nLIMIT = LIMIT + 1", ""),
        ("f = lambda y: LIMIT + y\nLIMIT = 3", ""),
        ("def f(y=tl.one):\n    return y.two + tl.two.three", "tl.two.three tl.two tl"),
        ("return x.shape, tl.load(x)", "tl.load tl"),
    ],
)
def test_what_a_function_reads_from_outside(body, expected):
    text = "def kernel(x, n=LIMIT):\n" + textwrap.indent(body, "    ")
    found = source_text.chains_of(ast.parse(text).body[0])
    assert found == {tuple(chain.split(".")) for chain in expected.split()}
