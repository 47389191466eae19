"""The disk cache, and what its keys depend on."""

from __future__ import annotations

import enum
import os
import pickle
import subprocess
import sys

import pytest

import ptxforge.language as tl
from ptxforge.runtime import cache, compiler_state, source, store
from ptxforge.runtime.jit import jit
from ptxforge.support.errors import CompilationError, LaunchError

from .conftest import ADD_PTX, add

SIGNATURE = {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kernels_in(where):
    return [entry for entry in store.entries(where) if store.read(entry.name, "kernel")]


def test_the_second_process_compiles_nothing(folder, compiled):
    first = jit(add).compile(SIGNATURE)
    second = jit(add).compile(SIGNATURE)  # another object, as in another process
    assert len(compiled) == 1
    assert second.ptx == first.ptx == ADD_PTX and second.parameters == first.parameters
    assert (second.num_warps, second.shared_bytes, second.target) == (4, 0, "sm_90a")
    assert len(compiled) == 1
    assert second.asm["gpu"] == "gpu" and second.stages == [("frontend", "tile")]  # made again when asked for
    assert len(compiled) == 2


def test_a_process_that_finds_its_kernels_does_not_load_the_compiler(folder):
    script = (
        "import sys, numpy as np\n"
        "from ptxforge.cli.demo_kernels import add\n"
        "x = np.arange(16, dtype=np.float32)\n"
        "add[(1,)](x, x, x, 16, BLOCK=16)\n"
        "print(x.sum(), 'ptxforge.frontend' in sys.modules)\n"
    )
    environment = os.environ | {
        "PTXFORGE_CACHE_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert runs == ["240.0 True\n", "240.0 False\n"]


def test_what_makes_another_entry(folder, compiled):
    kernel = jit(add)
    kernel.compile(SIGNATURE)
    kernel.compile(SIGNATURE, num_warps=8)
    kernel.compile(SIGNATURE, target="sm_80")
    kernel.compile(SIGNATURE | {"n": "i32:16"})
    kernel.compile({name: kind for name, kind in SIGNATURE.items() if name != "n"}, {"n": 5})
    kernel.compile({name: kind for name, kind in SIGNATURE.items() if name != "n"}, {"n": 5.0})
    assert len(compiled) == 6 == len(kernels_in(folder))


def test_an_artifact_from_the_cache_is_pickled(folder, compiled):
    jit(add).compile(SIGNATURE)
    artifact = jit(add).compile(SIGNATURE)
    again = pickle.loads(pickle.dumps(artifact))
    assert again.ptx == ADD_PTX and again.asm["gpu"] == "gpu" and again.stages == [("frontend", "tile")]


def test_off(compiled, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", "off")
    assert cache.folder() is None
    jit(add).compile(SIGNATURE)
    jit(add).compile(SIGNATURE)
    assert len(compiled) == 2


def test_a_folder_that_cannot_be_made_costs_no_correctness(tmp_path, monkeypatch, compiled, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert jit(add).compile(SIGNATURE).ptx == ADD_PTX
    assert "cannot write the cache entry" in caplog.text


# What a kernel depends on

SCALE = tl.constexpr(2)
LIMIT = 7
ELEMENT = tl.int8


@jit
def inner(x):
    return x * SCALE


@jit
def outer(x, n):
    y = inner(x) + LIMIT
    return y


def test_callees_and_globals_are_in_the_text():
    text = outer.dependencies.text
    assert "def inner(x):" in text and "# SCALE = 2" in text and "# LIMIT = 7" in text
    assert {name for _, name, _ in outer.dependencies.values} == {"SCALE", "LIMIT"}


def test_names_are_found_once_for_a_text(folder, monkeypatch):
    """The next process reads them, and looks their values up anew."""
    source.outline.cache_clear()
    first = source.dependencies(outer.fn)
    source.outline.cache_clear()
    monkeypatch.setattr(source, "_made", None)  # nothing is parsed
    assert source.dependencies(outer.fn) == first
    source.outline.cache_clear()
    monkeypatch.setitem(outer.fn.__globals__, "SCALE", tl.constexpr(3))
    assert "# SCALE = 3" in source.dependencies(outer.fn).text


@pytest.mark.parametrize("sections", [{}, {"source": b"x", "chains": b"{"}, {"source": b"", "chains": b"1"}])
def test_an_outline_that_cannot_be_understood(folder, sections):
    source.outline.cache_clear()
    before = source.dependencies(outer.fn)
    for entry in list(store.entries(folder)):
        if store.read(entry.name, "outline"):
            store.write(entry.name, "outline", {}, sections)
    source.outline.cache_clear()
    assert source.dependencies(outer.fn) == before


def test_another_value_is_another_key(monkeypatch):
    before = source.dependencies(outer.fn).digest()
    monkeypatch.setitem(outer.fn.__globals__, "SCALE", tl.constexpr(3))
    assert source.dependencies(outer.fn).digest() != before


def test_closures():
    def make(factor):
        def kernel(x):
            return x * factor

        return kernel

    assert source.dependencies(make(2)).digest() != source.dependencies(make(3)).digest()


class Mode(enum.Enum):
    FAST = 11


n = 5  # has the name of a parameter


def test_members_of_classes():
    def kernel(x):
        return x + Mode.FAST.value

    assert "# Mode.FAST.value = 11" in source.dependencies(kernel).text


def test_what_the_function_calls_its_own_is_no_global():
    def kernel(n):
        LIMIT = n
        return LIMIT

    assert source.dependencies(kernel).values == ()


def test_recursion_ends():
    text = source.dependencies(recursive.fn).text
    assert text.count("def recursive") == 1


@jit
def recursive(x):
    return recursive(x)


def test_a_function_without_a_file():
    scope = {}
    exec("def kernel(x): pass", scope)
    with pytest.raises(
        CompilationError,
        match="the source of 'kernel' is not available(.|\n)*define kernels in a Python file",
    ):
        jit(scope["kernel"]).src  # noqa: B018


def test_a_global_that_changed_after_compilation(compiled, emulator, monkeypatch):
    import numpy as np

    def add(x, y, out, n):
        return LIMIT

    kernel = jit(add)
    arrays = [np.zeros(4, np.float32) for _ in range(3)]
    kernel[(1,)](*arrays, 4)
    monkeypatch.setitem(globals(), "LIMIT", 8)
    with pytest.raises(RuntimeError, match="'LIMIT' was 7 when 'add' was compiled and is 8 now"):
        kernel[(1,)](*arrays, 4)
    with pytest.raises(LaunchError):
        kernel[(1,)](*arrays, 4)


def test_a_global_that_was_a_default_value_may_change(compiled, emulator, monkeypatch):
    import numpy as np

    def add(x, y, out, n: int = LIMIT, *, m: tl.constexpr = LIMIT):
        return x

    kernel = jit(add)
    arrays = [np.zeros(128, np.float32) for _ in range(3)]
    kernel[(1,)](*arrays)
    monkeypatch.setitem(globals(), "LIMIT", 8)
    kernel[(1,)](*arrays)
    assert len(compiled) == 1
    assert "# default 7" in kernel.dependencies.text and "LIMIT = " not in kernel.dependencies.text


def test_a_global_element_type_that_changes_is_an_error(emulator, monkeypatch):
    import numpy as np

    import ptxforge

    def narrow(x, out):
        tl.store(out, tl.load(x).to(ELEMENT).to(tl.int32))

    kernel = jit(narrow)
    x, out = np.array([0x12345], np.int32), np.zeros(1, np.int32)
    with ptxforge.use_device(emulator):
        for element in (tl.int8, tl.int16, tl.int8):
            monkeypatch.setitem(globals(), "ELEMENT", element)
            if element is tl.int16:
                with pytest.raises(RuntimeError, match="'ELEMENT' was tl.int8 .* is tl.int16 now"):
                    kernel[(1,)](x, out)
            else:
                kernel[(1,)](x, out)
                assert out[0] == 0x45


def test_globals_of_a_namespace_without_a_name(emulator, monkeypatch):
    """What ``exec`` runs in may have no ``__name__``."""
    import linecache

    import numpy as np

    import ptxforge

    text = "def stores(x):\n    tl.store(x, LIMIT)\n"
    monkeypatch.setitem(linecache.cache, "<stores>", (len(text), None, text.splitlines(True), "<stores>"))
    scope = {"tl": tl, "LIMIT": tl.constexpr(3)}
    exec(compile(text, "<stores>", "exec"), scope)
    x = np.zeros(1, np.int32)
    with ptxforge.use_device(emulator):
        jit(scope["stores"])[(1,)](x)
        assert x[0] == 3
        scope["LIMIT"] = 4
        with pytest.raises(CompilationError, match="'LIMIT' cannot be read in a kernel"):
            jit(scope["stores"])[(1,)](x)


def test_the_compilers_own_source_is_in_every_key():
    assert len(compiler_state.digest()) == 64
    assert cache.key("text", {}, {}, "sm_80", {}) != cache.key("text", {}, {}, "sm_90a", {})
