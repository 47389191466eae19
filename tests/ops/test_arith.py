"""Integer and float arithmetic against Python's integers and exact rationals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import arith as A
from tests.ops.floats import exact, same_floats
from tests.ops.references import FLOATS, INTEGERS, evaluate, floats, integers, wrap


def unsigned(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


def c_divide(x: int, y: int) -> int:
    if y == 0:
        return -1
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def c_remainder(x: int, y: int) -> int:
    return -1 if y == 0 else x - c_divide(x, y) * y


SIGNED = {
    A.AddI: lambda x, y, b: x + y, A.SubI: lambda x, y, b: x - y, A.MulI: lambda x, y, b: x * y,
    A.DivSI: lambda x, y, b: c_divide(x, y), A.RemSI: lambda x, y, b: c_remainder(x, y),
    A.DivUI: lambda x, y, b: c_divide(unsigned(x, b), unsigned(y, b)),
    A.RemUI: lambda x, y, b: c_remainder(unsigned(x, b), unsigned(y, b)),
    A.AndI: lambda x, y, b: x & y, A.OrI: lambda x, y, b: x | y, A.XorI: lambda x, y, b: x ^ y,
    A.MinSI: lambda x, y, b: min(x, y), A.MaxSI: lambda x, y, b: max(x, y),
    A.MinUI: lambda x, y, b: min(unsigned(x, b), unsigned(y, b)),
    A.MaxUI: lambda x, y, b: max(unsigned(x, b), unsigned(y, b)),
}  # fmt: skip


@pytest.mark.parametrize("type", INTEGERS, ids=str)
@pytest.mark.parametrize("kind", SIGNED, ids=lambda k: k.name)
def test_integers(kind, type):
    x, y = integers(type, 1), integers(type, 2)
    expected = [wrap(SIGNED[kind](int(a), int(b), type.bits), type.bits) for a, b in zip(x, y)]
    np.testing.assert_array_equal(evaluate(kind, x, y), np.array(expected, type.numpy))


@pytest.mark.parametrize("type", INTEGERS, ids=str)
@pytest.mark.parametrize("kind", [A.ShlI, A.ShrSI, A.ShrUI], ids=lambda k: k.name)
def test_shifts(kind, type):
    x, bits = integers(type, 3), type.bits
    amount = np.resize(np.array([0, 1, 3, bits - 1, bits, bits + 1, -1], type.numpy), len(x))
    expected = []
    for a, n in zip(map(int, x), (unsigned(int(n), bits) for n in amount)):
        n = min(n, 2 * bits)
        value = {A.ShlI: a << n, A.ShrSI: a >> n, A.ShrUI: unsigned(a, bits) >> n}[kind]
        expected.append(wrap(value, bits))
    np.testing.assert_array_equal(evaluate(kind, x, amount), np.array(expected, type.numpy))


@pytest.mark.parametrize("type", [T.I32, T.I64], ids=str)
def test_upper_half_of_the_product(type):
    x, y = integers(type, 4), integers(type, 5)
    expected = [
        wrap(unsigned(int(a), type.bits) * unsigned(int(b), type.bits) >> type.bits, type.bits)
        for a, b in zip(x, y)
    ]
    np.testing.assert_array_equal(evaluate(A.MulHiUI, x, y), np.array(expected, type.numpy))


BITS = np.array([(a, b) for a in (False, True) for b in (False, True)]).T
ONE_BIT = {
    A.AddI: lambda a, b: (a + b) & 1, A.SubI: lambda a, b: (a - b) & 1, A.MulI: lambda a, b: a & b,
    A.AndI: lambda a, b: a & b, A.OrI: lambda a, b: a | b, A.XorI: lambda a, b: a ^ b,
    A.ShlI: lambda a, b: a and not b, A.ShrUI: lambda a, b: a and not b, A.ShrSI: lambda a, b: a,
    A.MinUI: lambda a, b: a & b, A.MaxUI: lambda a, b: a | b, A.MinSI: lambda a, b: a | b, A.MaxSI: lambda a,
    b: a & b,
}  # fmt: skip


@pytest.mark.parametrize("kind", ONE_BIT, ids=lambda k: k.name)
def test_one_bit_integers(kind):
    """Signed, an i1 is 0 or -1."""
    expected = [bool(ONE_BIT[kind](int(a), int(b))) for a, b in BITS.T]
    np.testing.assert_array_equal(evaluate(kind, *BITS), expected)


@pytest.mark.parametrize("type", [T.I1, *INTEGERS], ids=str)
@pytest.mark.parametrize("predicate", A.CmpI.definition.attribute_fields["predicate"].kind)
def test_integer_comparisons(type, predicate):
    x, y = BITS if type is T.I1 else (integers(type, 6), integers(type, 7))
    compare = {"eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}
    name = predicate if predicate in compare else predicate[1:]
    expected = []
    for a, b in zip(map(int, x), map(int, y)):
        a, b = (unsigned(a, type.bits), unsigned(b, type.bits)) if predicate[0] == "u" else \
            (wrap(a, type.bits), wrap(b, type.bits))  # fmt: skip
        expected.append(getattr(a, compare[name])(b))
    np.testing.assert_array_equal(evaluate(A.CmpI, x, y, predicate=predicate), expected)


@pytest.mark.parametrize("type", FLOATS, ids=str)
@pytest.mark.parametrize("kind, sign", [(A.AddF, "+"), (A.SubF, "-"), (A.MulF, "*"), (A.DivF, "/")], ids=str)
def test_floats_are_rounded_once(kind, sign, type):
    x, y = floats(type, 8), floats(type, 9)
    expected = np.array([exact(sign, float(a), float(b), type) for a, b in zip(x, y)])
    same_floats(evaluate(kind, x, y), expected)


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_remainder_has_the_sign_of_the_dividend(type):
    x, y = floats(type, 10), floats(type, 11)
    expected = []
    for a, b in zip(map(float, x), map(float, y)):
        bad = math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0
        expected.append(math.nan if bad else math.fmod(a, b))
    same_floats(evaluate(A.RemF, x, y), np.array(expected))


@pytest.mark.parametrize("type", FLOATS, ids=str)
@pytest.mark.parametrize("kind", [A.MinNumF, A.MaxNumF, A.MinimumF, A.MaximumF], ids=lambda k: k.name)
def test_minimum_and_maximum(kind, type):
    x, y = floats(type, 12), floats(type, 13)
    choose = min if kind in (A.MinNumF, A.MinimumF) else max
    expected = []
    for a, b in zip(map(float, x), map(float, y)):
        if math.isnan(a) or math.isnan(b):
            number = b if math.isnan(a) else a
            expected.append(math.nan if kind in (A.MinimumF, A.MaximumF) else number)
        else:
            expected.append(choose(a, b))
    result = evaluate(kind, x, y)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result.astype(np.float64), expected)


@pytest.mark.parametrize("type", FLOATS, ids=str)
@pytest.mark.parametrize("kind", [A.MinNumF, A.MaxNumF, A.MinimumF, A.MaximumF], ids=lambda k: k.name)
def test_of_two_zeros_the_negative_one_is_smaller(kind, type):
    x, y = (np.array(zeros).astype(type.numpy) for zeros in ([0.0, -0.0, 0.0, -0.0], [0.0, 0.0, -0.0, -0.0]))
    negative = [False, True, True, True] if kind in (A.MinNumF, A.MinimumF) else [False, False, False, True]
    assert np.signbit(evaluate(kind, x, y)).tolist() == negative


@pytest.mark.parametrize("type", FLOATS, ids=str)
@pytest.mark.parametrize("predicate", A.FLOAT_PREDICATES)
def test_float_comparisons(predicate, type):
    x, y = floats(type, 14), floats(type, 15)
    expected = []
    for a, b in zip(map(float, x), map(float, y)):
        unordered = math.isnan(a) or math.isnan(b)
        if predicate in ("ord", "uno"):
            expected.append(unordered == (predicate == "uno"))
            continue
        test = {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[
            predicate[1:]
        ]
        expected.append(predicate[0] == "u" if unordered else test)
    np.testing.assert_array_equal(evaluate(A.CmpF, x, y, predicate=predicate), expected)


@pytest.mark.parametrize("type", [T.I1, T.I8, T.BF16, T.F64], ids=str)
def test_select(type):
    if type is T.I1:
        x, y = BITS
    else:
        x, y = (integers(type, 1), integers(type, 2)) if type.is_int else (floats(type, 1), floats(type, 2))
    flags = np.resize([True, False, False], len(x))
    expected = np.array([a if f else b for f, a, b in zip(flags, x, y)], type.numpy)
    for kind in (A.Select, A.SelectRarely):
        assert evaluate(kind, flags, x, y).tobytes() == expected.tobytes()
