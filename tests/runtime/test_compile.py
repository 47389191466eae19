"""Compiling leaves the process as it was."""

from __future__ import annotations

import gc

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import frontend
from ptxforge.compiler import compile_function
from ptxforge.support.errors import CompilationError


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
