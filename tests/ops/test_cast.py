"""Casts against exact rationals rounded once, and Python's integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import cast as C
from tests.ops.floats import same_floats
from tests.ops.references import FORMATS, INTEGERS, evaluate, floats, integers, round_float, wrap

ALL_FLOATS = list(FORMATS)


def pairs(sources: list[T.ScalarType], targets: list[T.ScalarType], fits):
    """Parametrises over the (source, target) for which ``fits(source, target)`` holds."""
    chosen = [(one, other) for one in sources for other in targets if fits(one, other)]
    return pytest.mark.parametrize("source, target", chosen, ids=[f"{one}-{other}" for one, other in chosen])


def widens(source: T.ScalarType, target: T.ScalarType) -> bool:
    return target.bits > source.bits


def narrows(source: T.ScalarType, target: T.ScalarType) -> bool:
    return target.bits < source.bits


@pairs([T.I1, *INTEGERS], INTEGERS, widens)
def test_widening_integers(source, target):
    x = np.array([False, True]) if source is T.I1 else integers(source)
    mask = (1 << source.bits) - 1
    np.testing.assert_array_equal(
        evaluate(C.ExtUI, x, result=target), [wrap(int(v) & mask, target.bits) for v in x]
    )
    np.testing.assert_array_equal(evaluate(C.ExtSI, x, result=target), [wrap(int(v), source.bits) for v in x])


@pairs(INTEGERS, [T.I1, *INTEGERS], narrows)
def test_narrowing_integers(source, target):
    x = integers(source)
    expected = [wrap(int(v), target.bits) for v in x]
    np.testing.assert_array_equal(
        evaluate(C.TruncI, x, result=target), np.array(expected).astype(target.numpy)
    )


@pairs(ALL_FLOATS, ALL_FLOATS, lambda source, target: target is not source and not widens(source, target))
@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
def test_narrowing_floats(source, target, rounding):
    x = floats(source)
    x = np.concatenate([x, _halfway(source, target)])
    expected = [round_float(float(v), target, rounding == "rtz") for v in x]
    same_floats(evaluate(C.TruncF, x, result=target, rounding=rounding), np.array(expected))


def _halfway(source: T.ScalarType, target: T.ScalarType) -> np.ndarray:
    """Values in the middle between two of the target, and their neighbours: what rounding twice gets
    wrong."""
    step = 2.0 ** (1 - FORMATS[target].precision)
    middle = np.array([1 + step / 2, 1 + 3 * step / 2, -1 - step / 2, FORMATS[target].max * (1 + step / 8)])
    with np.errstate(over="ignore"):
        values = middle.astype(source.numpy)
    if source.bits < 32:
        return values
    return np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)]).astype(
        source.numpy
    )


@pairs(ALL_FLOATS, ALL_FLOATS, widens)
def test_widening_floats_is_exact(source, target):
    x = floats(source)
    same_floats(evaluate(C.ExtF, x, result=target), x.astype(np.float64))


@pytest.mark.parametrize("source", INTEGERS, ids=str)
@pytest.mark.parametrize("target", ALL_FLOATS, ids=str)
def test_integers_to_floats(source, target):
    x = integers(source)
    if source is T.I64:
        # Just beside the middle between two bf16 or f16 values, by less than f64 can tell.
        x = np.concatenate(
            [x, np.array([(257 << 47) + 1, (257 << 47) - 1, -(257 << 47) - 1, (2049 << 40) + 1], np.int64)]
        )
    mask = (1 << source.bits) - 1
    signed = [round_float(Fraction(int(v)), target) for v in x]
    unsigned = [round_float(Fraction(int(v) & mask), target) for v in x]
    same_floats(evaluate(C.SIToFP, x, result=target), np.array(signed))
    same_floats(evaluate(C.UIToFP, x, result=target), np.array(unsigned))


@pytest.mark.parametrize("source", ALL_FLOATS, ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_floats_to_integers_saturate(source, target):
    x = floats(source)
    top, bits = 1 << (target.bits - 1), target.bits
    signed = [_clamp(float(v), -top, top - 1) for v in x]
    unsigned = [wrap(_clamp(float(v), 0, 2 * top - 1), bits) for v in x]
    np.testing.assert_array_equal(evaluate(C.FPToSI, x, result=target), np.array(signed, target.numpy))
    np.testing.assert_array_equal(evaluate(C.FPToUI, x, result=target), np.array(unsigned, target.numpy))


def _clamp(value: float, low: int, high: int) -> int:
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(math.trunc(value), low), high)


@pytest.mark.parametrize(
    "one, other", [(T.I8, T.F8E4M3), (T.I16, T.BF16), (T.I32, T.F32), (T.I64, T.F64), (T.F16, T.BF16)]
)
def test_bitcast(one, other):
    x = integers(one) if one.is_int else floats(one)
    result = evaluate(C.Bitcast, x, result=other)
    assert result.tobytes() == x.tobytes()
    assert evaluate(C.Bitcast, result, result=one).tobytes() == x.tobytes()
