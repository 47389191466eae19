"""Runs one pass on IR text and checks what every pass owes: verified IR, unchanged meaning, honest
``changed``.

``transform(pass, text)`` gives the text after the pass. Before and after are interpreted on the same random
inputs: a pointer parameter gets an array of 4096 elements, an integer 3.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np

from ptxforge.interpreter import run
from ptxforge.ir import types as T
from ptxforge.ir.core import Function
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.support.target import parse_target

TARGET = parse_target("sm_90a")
ELEMENTS = 4096


def function(body: str, parameters: str = "%x: i32, %y: i32, %p: ptr<i32>, %flag: i1") -> Function:
    """A function with this body; ``return`` is appended."""
    return parse_function(f"func @f({parameters}) attributes {{num_warps = 4}} {{\n{body}\nreturn\n}}")


def random_arguments(function: Function, seed: int) -> list:
    rng = np.random.default_rng(seed)
    return [_random(argument.type, rng) for argument in function.arguments]


def _random(type: T.Type, rng: np.random.Generator):
    if isinstance(type, T.PointerType):
        if type.pointee.is_float:
            return rng.standard_normal(ELEMENTS).astype(type.pointee.numpy)
        return rng.integers(-8, 8, ELEMENTS).astype(type.pointee.numpy)
    if type is T.I1:
        return bool(rng.integers(2))
    return float(rng.standard_normal()) if type.is_float else int(rng.integers(1, 8))


def meaning(function: Function, seed: int, grid: int = 2) -> list[np.ndarray]:
    """What the function leaves in its arrays."""
    arguments = random_arguments(function, seed)
    run(function, grid, arguments)
    return [a for a in arguments if isinstance(a, np.ndarray)]


def check_same_meaning(before: Function, after: Function, rtol: float = 0.0) -> None:
    for seed in range(4):
        for one, other in zip(meaning(before, seed), meaning(after, seed), strict=True):
            np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=rtol, atol=rtol)


def transform(apply: Callable, before: Function, rtol: float = 0.0) -> Function:
    """The function after the pass, checked; ``before`` stays as it is."""
    verify(before)
    after = before.clone()
    changed = apply(after, TARGET)
    verify(after)
    assert changed == (print_function(after) != print_function(before)), (
        "the pass misreports whether it changed anything"
    )
    check_same_meaning(before, after, rtol)
    again = after.clone()
    assert not apply(again, TARGET), "a second run finds more to do"
    return after


def body(function: Function) -> str:
    """The text between the function's head and its ``return``, dedented."""
    lines = [line for line in print_function(function).splitlines() if not line.startswith("#")]
    return textwrap.dedent("\n".join(lines[1:-2]))


def check(apply: Callable, before: str, after: str, rtol: float = 0.0, **options) -> None:
    """The body ``before`` becomes the body ``after``, exactly."""
    assert body(transform(apply, function(before, **options), rtol)) == textwrap.dedent(after).strip()
