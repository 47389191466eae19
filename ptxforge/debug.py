"""Which pass is wrong? Runs a kernel's IR in the interpreter before and after every pass.

    from ptxforge.debug import check_passes
    check_passes(softmax, {"x": x, "out": out, "n": 1000}, grid=(64,), constants={"BLOCK": 1024})

raises :class:`InternalCompilerError` at the first pass that changes what the kernel does to its arrays: with
the pass's name, the first element that differs, and the IR before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from ptxforge import frontend, interpreter
from ptxforge.ir.core import Function
from ptxforge.ir.printer import print_function
from ptxforge.passes import pipeline
from ptxforge.support import dtypes
from ptxforge.support.errors import InternalCompilerError, InterpreterError
from ptxforge.support.target import DEFAULT_TARGET, parse_target

# Passes may sum floats in another order: how far results may part, by the width of the element type.
_TOLERANCE = {8: 0.25, 16: 2e-2, 32: 1e-4, 64: 1e-10}


@attrs.frozen
class CheckedPass:
    """A pass that kept the meaning. ``changed``: it changed the IR; ``difference``: the largest seen,
    absolute."""

    name: str
    changed: bool
    difference: float


def check_passes(
    fn: Callable,
    arguments: Mapping[str, Any],
    grid: int | Sequence[int] = 1,
    *,
    constants: Mapping[str, Any] | None = None,
    signature: Mapping[str, str] | None = None,
    target: str = DEFAULT_TARGET,
    **options: Any,
) -> list[CheckedPass]:
    """Interpret ``fn`` after every pass on copies of ``arguments`` and compare the arrays it leaves.

    ``arguments`` has numpy arrays and numbers by parameter, ``constants`` the constexpr parameters;
    ``signature`` defaults to what the arguments are. ``options`` are compile options (``num_warps`` …).
    Integers must agree exactly, floats up to the rounding of sums in another order.

    Raises:
        InternalCompilerError: names the first pass that changes the meaning.
    """
    types = dict(signature) if signature is not None else {k: signature_of(v) for k, v in arguments.items()}
    settings = {"num_warps": 4, "num_stages": 3, **options}
    function = frontend.build(fn, types, dict(constants or {}), target=target, **settings)
    checker = _Checker(function, arguments, grid)
    pipeline.run(function, parse_target(target), verify=True, on_pass=checker.after)
    return checker.passes


def signature_of(value: Any) -> str:
    """What a numpy array or a number is in a signature: ``*fp32:16``, ``i32``, ``fp32``."""
    if isinstance(value, np.ndarray):
        aligned = ":16" if value.ctypes.data % 16 == 0 else ""
        return f"*{dtypes.from_numpy(value.dtype).short}{aligned}"
    if isinstance(value, (bool, np.bool_)):
        return "u1"
    if isinstance(value, (int, np.integer)):
        width = "i32" if -(2**31) <= value < 2**31 else "i64"
        return f"{width}:16" if value % 16 == 0 else width
    return "fp32"


class _Checker:
    """Called after each pass; knows the arrays that the kernel left before it."""

    def __init__(self, function: Function, arguments: Mapping[str, Any], grid: int | Sequence[int]):
        self.arguments, self.grid = arguments, grid
        self.before = self.execute(function)
        self.text = print_function(function)
        self.passes: list[CheckedPass] = []

    def execute(self, function: Function) -> dict[str, np.ndarray]:
        arguments = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self.arguments.items()}
        interpreter.run(function, self.grid, arguments, output=lambda line: None)
        return {k: v for k, v in arguments.items() if isinstance(v, np.ndarray)}

    def after(self, row: Any, function: Function, changed: bool) -> None:
        text = print_function(function)
        if text == self.text:
            self.passes.append(CheckedPass(row.name, changed, 0.0))
            return
        try:
            now = self.execute(function)
        except InterpreterError as fault:
            self.fail(row.name, f"the kernel fails: {fault}", text)
        for name, array in now.items():
            problem = _first_difference(self.before[name], array)
            if problem:
                self.fail(row.name, f"array '{name}': {problem}", text)
        difference = max((_distance(self.before[k], v) for k, v in now.items()), default=0.0)
        self.passes.append(CheckedPass(row.name, changed, difference))
        self.text = text

    def fail(self, name: str, problem: str, text: str) -> None:
        raise InternalCompilerError(
            f"pass '{name}' changes the meaning of the kernel: {problem}\n"
            f"--- before '{name}'\n{self.text}\n--- after '{name}'\n{text}"
        )


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def _first_difference(expected: np.ndarray, actual: np.ndarray) -> str:
    """Where two arrays part by more than rounding, in words; empty when they do not."""
    if expected.dtype.kind in "iub":
        agree = expected == actual
    else:
        tolerance = _TOLERANCE[8 * expected.dtype.itemsize]
        agree = np.isclose(_wide(actual), _wide(expected), rtol=tolerance, atol=tolerance, equal_nan=True)
    if agree.all():
        return ""
    place = tuple(map(int, np.argwhere(~agree)[0]))
    count = int((~agree).sum())
    return f"{count} of {agree.size} elements differ; at {place} {expected[place]} became {actual[place]}"


def _distance(expected: np.ndarray, actual: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):
        distance = np.abs(_wide(actual).astype(np.float64) - _wide(expected).astype(np.float64))
    return float(np.nan_to_num(distance, posinf=0.0).max(initial=0.0))
