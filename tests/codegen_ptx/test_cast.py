"""Casts against the operations' numpy meaning, with the target's own instructions and without."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import arith, cast
from tests.codegen_ptx.elements import COUNT, FLOATS, FP8, INTEGERS, assert_same, compute, values
from tests.codegen_ptx.harness import Kernel, blocked

TARGETS = ("sm_80", "sm_90a")
ALL_FLOATS = (*FLOATS, *FP8)


def _check(kind, source, result, target="sm_90a", x=None, **attributes):
    x = values(source, 3) if x is None else x
    got, expected = compute(kind, [(source, x)], result, target, everywhere=target == "sm_80", **attributes)
    assert_same(got, expected, arguments=[x])


def _pairs(sources, results, keep):
    return [pytest.param(s, r, id=f"{s}-{r}") for s, r in itertools.product(sources, results) if keep(s, r)]


@pytest.mark.parametrize("source, result", _pairs((T.I1, *INTEGERS), INTEGERS, lambda s, r: s.bits < r.bits))
def test_extend_integer(source, result):
    _check(cast.ExtSI, source, result)
    _check(cast.ExtUI, source, result)


@pytest.mark.parametrize("source, result", _pairs(INTEGERS, (T.I1, *INTEGERS), lambda s, r: s.bits > r.bits))
def test_truncate_integer(source, result):
    _check(cast.TruncI, source, result)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source, result", _pairs(ALL_FLOATS, ALL_FLOATS, lambda s, r: s.bits < r.bits))
def test_extend_float(source, result, target):
    x = None
    if source in FP8:
        x = np.resize(np.arange(256), COUNT).astype(np.uint8).view(source.numpy)
    _check(cast.ExtF, source, result, target, x)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("source, result", _pairs(
    FLOATS, ALL_FLOATS, lambda s, r: s.bits > r.bits or (s is not r and s.bits == r.bits == 16)))
def test_truncate_float(source, result, rounding, target):
    _check(cast.TruncF, source, result, target, rounding=rounding)
    # Numbers around every rounding boundary of the narrow type.
    if result.bits == 8:
        near = np.arange(256).astype(np.uint8).view(result.numpy).astype(np.float64)
        near = np.where(np.isfinite(near), near, 1.0)
        middle = (near + np.roll(near, 1)) / 2
        x = np.resize(np.concatenate([near, middle]), COUNT)
        with np.errstate(all="ignore"):
            _check(cast.TruncF, source, result, target, x.astype(source.numpy), rounding=rounding)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source, result", _pairs((T.I1, *INTEGERS), ALL_FLOATS, lambda s, r: True))
def test_integer_to_float(source, result, target):
    _check(cast.SIToFP, source, result, target)
    _check(cast.UIToFP, source, result, target)


@pytest.mark.parametrize("source, result", _pairs(ALL_FLOATS, (T.I1, *INTEGERS), lambda s, r: True))
def test_float_to_integer(source, result):
    _check(cast.FPToSI, source, result)
    _check(cast.FPToUI, source, result)


@pytest.mark.parametrize("source, result", _pairs(
    (*INTEGERS, *ALL_FLOATS), (*INTEGERS, *ALL_FLOATS), lambda s, r: s is not r and s.bits == r.bits))
def test_bitcast(source, result):
    x = values(source, 5)
    got, expected = compute(cast.Bitcast, [(source, x)], result)
    size = np.dtype(f"u{source.bytes}")
    assert_same(got.view(size), expected.view(size), arguments=[x])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("result", [T.F16, T.BF16, T.F32, *FP8])
@pytest.mark.parametrize("kind", [cast.SIToFP, cast.UIToFP])
def test_bytes_of_words_become_floats_without_conversions(kind, result, target):
    """Every byte, loaded four at a time."""
    x = np.resize(np.arange(256, dtype=np.uint8).view(np.int8), COUNT)
    _check(kind, T.I8, result, target, x, vector=4)


@pytest.mark.parametrize("element", INTEGERS)
@pytest.mark.parametrize("predicate", ["eq", "ne", "slt", "sge", "ule", "ugt"])
def test_a_comparison_with_a_sign_is_a_mask(predicate, element):
    """-1 where it holds, by an instruction of its own: the predicate need not live as long as the mask."""
    kernel = Kernel(T.PointerType(element), T.PointerType(element), T.PointerType(T.I32))
    x, y = (kernel.load(i, (COUNT,), blocked(4)) for i in (0, 1))
    holds = kernel.b.value(arith.CmpI, x, y, predicate=predicate)
    kernel.store(2, kernel.b.value(cast.ExtSI, holds, type=holds.type.with_element(T.I32)))
    numbers, others = values(element, 1), values(element, 2)
    others[::3] = numbers[::3]
    out = np.zeros(COUNT, np.int32)
    kernel.run(numbers, others, out, check="off")
    np.testing.assert_array_equal(out, -holds.defining_op.evaluate(numbers, others).astype(np.int32))
    text = kernel.ptx()
    assert f"set.{predicate[-2:]}.s32." in text and "selp" not in text
