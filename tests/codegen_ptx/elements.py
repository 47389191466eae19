"""Test values of every element type, and the comparison of results with an operation's numpy meaning."""

from __future__ import annotations

import numpy as np

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops import cast
from tests.codegen_ptx.harness import Kernel, blocked, pointer

COUNT = 512
INTEGERS = (T.I8, T.I16, T.I32, T.I64)
FLOATS = (T.F16, T.BF16, T.F32, T.F64)
FP8 = (T.F8E4M3, T.F8E5M2)


def values(element: T.ScalarType, seed: int, count: int = COUNT) -> np.ndarray:
    """Random values with the special ones of the type among them."""
    rng = np.random.default_rng(seed)
    if element is T.I1:
        return rng.integers(0, 2, count).astype(np.bool_)
    if element.is_int:
        info = np.iinfo(element.numpy)
        found = rng.integers(info.min, info.max, count, dtype=element.numpy, endpoint=True)
        small = rng.integers(-9, 10, count).astype(element.numpy)
        found = np.where(rng.integers(0, 2, count) == 1, found, small)
        edges = [0, 1, -1, 2, 3, 7, 8, info.min, info.max, info.min + 1]
        found[rng.permutation(count)[: len(edges) * 6]] = edges * 6
        return found
    spread = {16: 8, 8: 6, 32: 40, 64: 300}[element.bits]
    wide = rng.normal(size=count) * 2.0 ** rng.integers(-spread, spread, count)
    wide[: count // 2] = rng.normal(size=count // 2)
    edges = [
        0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, 3.5, 65504.0, 448.0, 2.0**-14, 1e-7,
        127.5, -128.5,
    ]  # fmt: skip
    wide[rng.permutation(count)[: len(edges) * 2]] = edges * 2
    with np.errstate(all="ignore"):
        return wide.astype(element.numpy)


def compute(kind: type[Operation], arguments: list[tuple[T.Type, np.ndarray]], result: T.Type | None = None,
            target: str = "sm_90a", everywhere: bool = False, vector: int = 1,
            **attributes) -> tuple[np.ndarray, np.ndarray]:
    """(what the emulator computes, what ``evaluate`` says) for one elementwise operation on what is loaded
    ``vector`` elements at a time."""
    stored = [T.I8 if e is T.I1 else e for e, _ in arguments]
    kernel = Kernel(*(pointer(e) for e in stored), pointer(T.I8))
    layout = blocked(4)
    loaded = [_load(kernel, i, e, layout, vector) for i, (e, _) in enumerate(arguments)]
    type = None if result is None else loaded[0].type.with_element(result)
    value = kernel.b.value(kind, *loaded, type=type, **attributes)
    op = value.defining_op
    element = value.type.element
    if element is T.I1:
        value = kernel.b.value(cast.ExtUI, value, type=value.type.with_element(T.I8))
    _retype(kernel, len(arguments), pointer(value.type.element))
    kernel.store(len(arguments), value)
    arrays = [x.astype(np.int8) if e is T.I1 else x.copy() for e, x in arguments]
    out = np.zeros(COUNT, value.type.element.numpy)
    kernel.run(*arrays, out, target=target, check="off", everywhere=everywhere)
    expected = op.evaluate(*(x for _, x in arguments))
    return (out.astype(np.bool_) if element is T.I1 else out), expected


def _load(kernel: Kernel, index: int, element: T.Type, layout, vector: int):
    value = kernel.load(index, (COUNT,), layout, vector)
    return (
        kernel.b.value(cast.TruncI, value, type=value.type.with_element(T.I1)) if element is T.I1 else value
    )


def _retype(kernel: Kernel, index: int, type: T.Type) -> None:
    kernel.function.arguments[index].type = type


def assert_same(got: np.ndarray, expected: np.ndarray, ulp: float = 0, arguments=()) -> None:
    """Equal bits (any NaN equals any NaN), or within ``ulp`` units in the last place."""
    assert got.dtype == expected.dtype
    if got.dtype.kind in "biu":
        wrong = got != expected
    else:
        wide, right = got.astype(np.float64), expected.astype(np.float64)
        both_nan = np.isnan(wide) & np.isnan(right)
        wrong = ~(both_nan | (wide == right))
        if ulp:
            with np.errstate(invalid="ignore"):  # infinities
                distance = np.abs(wide - right)
            wrong &= ~(distance <= ulp * _unit(expected))
    places = np.flatnonzero(wrong)[:5]
    assert not places.size, [(tuple(x[i] for x in arguments), got[i], expected[i]) for i in places]


def _unit(x: np.ndarray) -> np.ndarray:
    """The distance from each number to the next."""
    size = x.dtype.itemsize
    unsigned = np.dtype(f"u{size}")
    with np.errstate(all="ignore"):
        bits = np.abs(x.astype(np.float64)).astype(x.dtype).view(unsigned)
        return np.abs(
            (bits + unsigned.type(1)).view(x.dtype).astype(np.float64) - bits.view(x.dtype).astype(np.float64)
        )
