"""Compiling leaves the process as it was."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import frontend
from ptxforge.compiler import compile_function
from ptxforge.support.errors import ArgumentError, CompilationError, PtxforgeError


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


def copy(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))


SIGNATURE, CONSTANTS = {"x": "*fp32", "out": "*fp32"}, {"B": 16}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"signature": "*fp32"}, "argument 'signature': is a dictionary by parameter, not '*fp32'"),
        ({"signature": {0: "*fp32"}}, "argument '0': 'copy' has no such parameter"),
        ({"signature": SIGNATURE | {"x": 5}}, "argument 'x': its type is a text such as '*fp32:16', not 5"),
        ({"signature": SIGNATURE | {"x": None}}, "argument 'x': its type is a text"),
        ({"constants": [16]}, "argument 'constants': is a dictionary by parameter, not [16]"),
        ({"constants": 16}, "argument 'constants': is a dictionary by parameter, not 16"),
        ({"target": 90}, "unknown target '90'"),
        ({"target": ("cuda", 90)}, "unknown target '('cuda', 90)'"),
        ({"target": ""}, "unknown target ''"),
        ({"target": []}, "unknown target '[]'"),
    ],
    ids=str,
)
def test_arguments_of_another_kind(given, message):
    with pytest.raises(PtxforgeError, match=re.escape(message)):
        ptxforge.compile(copy, **{"signature": SIGNATURE, "constants": CONSTANTS, "target": "sm_80"} | given)


def test_nothing_is_no_kernel():
    with pytest.raises(ArgumentError, match="a kernel is a Python function, not None"):
        ptxforge.compile(None, {})


def test_a_constant_of_numpy_is_a_number():
    """As at a launch."""
    given = (16, np.int64(16), tl.constexpr(16))
    made = [ptxforge.compile(copy, SIGNATURE, {"B": value}, "sm_80") for value in given]
    assert {artifact.ptx for artifact in made} == {made[0].ptx}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"debug": "no"}, "argument 'debug': must be True or False, is 'no'"),
        ({"noinline": "no"}, "argument 'noinline': must be True or False, is 'no'"),
        ({"repr": 5}, "argument 'repr': is a function, not 5"),
        ({"launch_metadata": 5}, "argument 'launch_metadata': is a function, not 5"),
        ({"do_not_specialize": 5}, "argument 'do_not_specialize': is a list of parameters, not 5"),
        ({"do_not_specialize": "out"}, "argument 'do_not_specialize': is a list of parameters, not 'out'"),
    ],
    ids=str,
)
def test_options_of_jit_of_another_kind(given, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        ptxforge.jit(**given)(copy)
