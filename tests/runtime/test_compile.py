"""Compiling leaves the process as it was."""

from __future__ import annotations

import gc

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import frontend
from ptxforge.compiler import compile_function
from ptxforge.support.errors import ArgumentError, CompilationError


@ptxforge.jit
def fill(out, VALUE: tl.constexpr):
    tl.store(out, VALUE)


@pytest.fixture
def collector():
    yield
    gc.enable()


def compile_fill(**constants):
    return compile_function(fill, {"out": "*i32"}, constants)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_pauses_and_is_as_before(collector, monkeypatch, is_enabled):
    seen, build = [], frontend.build
    monkeypatch.setattr(frontend, "build", lambda *a, **k: seen.append(gc.isenabled()) or build(*a, **k))
    (gc.enable if is_enabled else gc.disable)()
    compile_fill(VALUE=3)
    assert seen == [False] and gc.isenabled() == is_enabled
    with pytest.raises(CompilationError):
        compile_fill(VALUE="three")
    assert seen == [False, False] and gc.isenabled() == is_enabled


@pytest.mark.parametrize("key", ["banana", "mlir", 3])
def test_a_text_that_there_is_not(key):
    made = compile_fill(VALUE=3)
    with pytest.raises(KeyError) as error:
        made.asm[key]
    assert str(error.value) == f"there is no text {key!r} of a kernel; there are 'tile', 'gpu', 'ptx'"
    assert made.asm.get(key) is None and key not in made.asm


def test_an_unknown_option_of_jit():
    with pytest.raises(ArgumentError, match="'foo': is no option of jit; there are do_not_specialize"):
        ptxforge.jit(foo=3)
    with pytest.raises(ArgumentError, match="did you mean 'debug'"):
        ptxforge.jit(debgu=True)
