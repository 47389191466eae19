"""What the tests of the gpu passes share: kernels brought up to a pass, and their meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ptxforge.interpreter import run
from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.parser import parse_function
from ptxforge.ir.state import State
from ptxforge.ir.verifier import verify
from ptxforge.passes.manager import Pass
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.support.target import parse_target

TARGET = parse_target("sm_90")
ELEMENTS = 1 << 16


def parse(
    body: str, parameters: str = "%x: ptr<f32>, %out: ptr<f32>, %n: i32", num_warps: int = 4
) -> Function:
    """A function with this body; ``return`` is appended."""
    return parse_function(
        f"func @f({parameters}) attributes {{num_warps = {num_warps}}} {{\n{body}\nreturn\n}}"
    )


def apply(function: Function, *passes: Callable) -> Function:
    """A copy of the function after ``passes``, verified after each that changed anything of it."""
    function, verified = function.clone(), None
    for step in passes:
        step(function, TARGET)
        state = State(function)
        if verified is None or not verified.agrees(state):
            verify(function)
        verified = state
    return function


def up_to(function: Function, last: Callable) -> Function:
    """A copy of the function after all passes of the pipeline up to the first row of ``last``."""
    rows: list[Pass] = list(PIPELINE)
    index = next(i for i, row in enumerate(rows) if row.function is last)
    return apply(function, *(row.function for row in rows[: index + 1]))


def operations(function: Function, *kinds: type[Operation]) -> list:
    return [op for op in function.walk() if isinstance(op, kinds)]


def meaning(function: Function, integers: dict[str, int], grid: int, seed: int = 0) -> list[np.ndarray]:
    """What the function leaves in its arrays, from random contents."""
    rng = np.random.default_rng(seed)
    arguments = []
    for argument in function.arguments:
        if isinstance(argument.type, T.PointerType):
            numbers = (
                rng.standard_normal(ELEMENTS)
                if argument.type.pointee.is_float
                else rng.integers(-8, 8, ELEMENTS)
            )
            arguments.append(numbers.astype(argument.type.pointee.numpy))
        else:
            arguments.append(integers.get(argument.name, 64))
    run(function, grid, arguments)
    return [a for a in arguments if isinstance(a, np.ndarray)]


def same_meaning(
    one: Function,
    other: Function,
    integers: dict[str, int],
    grid: int = 1,
    seeds: Iterable[int] = range(2),
    rtol: float = 1e-5,
) -> None:
    """Both leave the same, up to the order of sums."""
    for seed in seeds:
        assert_close(meaning(one, integers, grid, seed), meaning(other, integers, grid, seed), rtol)


def assert_close(one: list[np.ndarray], other: list[np.ndarray], rtol: float) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=rtol)
