"""Arithmetic against the operations' numpy meaning."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import arith, cast, math
from tests.codegen_ptx.elements import FLOATS, FP8, INTEGERS, assert_same, compute, values
from tests.codegen_ptx.harness import Kernel, blocked, pointer

BINARY_INTEGER = (
    arith.AddI, arith.SubI, arith.MulI, arith.DivSI, arith.DivUI, arith.RemSI, arith.RemUI, arith.AndI,
    arith.OrI, arith.XorI, arith.ShlI, arith.ShrSI, arith.ShrUI, arith.MinSI, arith.MaxSI, arith.MinUI,
    arith.MaxUI,
)  # fmt: skip
BINARY_FLOAT = (
    arith.AddF, arith.SubF, arith.MulF, arith.MinNumF, arith.MaxNumF, arith.MinimumF, arith.MaximumF,
)  # fmt: skip


def _check(kind, elements, ulp=0, target="sm_90a", everywhere=False, seed=0, **attributes):
    arguments = [(e, values(e, seed + i)) for i, e in enumerate(elements)]
    got, expected = compute(kind, arguments, target=target, everywhere=everywhere, **attributes)
    assert_same(got, expected, ulp, [x for _, x in arguments])


@pytest.mark.parametrize("element", INTEGERS, ids=str)
@pytest.mark.parametrize("kind", BINARY_INTEGER, ids=lambda k: k.name)
def test_binary_integers(kind, element):
    _check(kind, (element, element), everywhere=element is T.I16)


@pytest.mark.parametrize("kind", [
    arith.AddI, arith.MulI, arith.AndI, arith.OrI, arith.XorI, arith.MinUI, arith.MaxUI,
],
                         ids=lambda k: k.name)
def test_binary_predicates(kind):
    _check(kind, (T.I1, T.I1))


@pytest.mark.parametrize("element", (T.I32, T.I64), ids=str)
def test_multiply_high(element):
    _check(arith.MulHiUI, (element, element))


UNSIGNED_PREDICATES = ["eq", "ne", "ult", "ule", "ugt", "uge"]
SIGNED_PREDICATES = ["slt", "sle", "sgt", "sge"]  # not of booleans, which the frontend compares as unsigned


@pytest.mark.parametrize(
    ("predicate", "element"),
    [
        *itertools.product(UNSIGNED_PREDICATES, (T.I1, *INTEGERS)),
        *itertools.product(SIGNED_PREDICATES, INTEGERS),
    ],
    ids=str,
)
def test_integer_comparison(predicate, element):
    _check(arith.CmpI, (element, element), predicate=predicate)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("element", (*FLOATS, *FP8), ids=str)
@pytest.mark.parametrize("kind", BINARY_FLOAT, ids=lambda k: k.name)
def test_binary_floats(kind, element, target):
    if element in FP8 and kind in (arith.AddF, arith.SubF, arith.MulF):
        # ml_dtypes overflows to NaN or infinity, ours saturates: compare where the result is moderate.
        arguments = [
            (element, np.clip(values(element, i).astype(np.float32), -4, 4).astype(element.numpy))
            for i in (0, 1)
        ]
        got, expected = compute(kind, arguments, target=target)
        assert_same(got, expected, arguments=[x for _, x in arguments])
        return
    _check(kind, (element, element), target=target, everywhere=target == "sm_80")


@pytest.mark.parametrize("predicate", arith.FLOAT_PREDICATES)
@pytest.mark.parametrize("element", (*FLOATS, T.F8E4M3), ids=str)
def test_float_comparison(predicate, element):
    _check(arith.CmpF, (element, element), predicate=predicate)


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_quotient(element):
    _check(arith.DivF, (element, element), ulp=2)
    _check(math.DivRn, (element, element), ulp=0 if element in (T.F32, T.F64) else 1)


@pytest.mark.parametrize("element", (T.F32, T.F64, T.F16), ids=str)
def test_remainder(element):
    _check(arith.RemF, (element, element), everywhere=True)


@pytest.mark.parametrize("negated", ("", "product", "addend"))
@pytest.mark.parametrize("element", (T.F16, T.F32, T.F64), ids=str)
def test_fma(element, negated):
    _check(math.Fma, (element, element, element), negated=negated)


@pytest.mark.parametrize("element", (T.I1, *INTEGERS, *FLOATS, T.F8E4M3), ids=str)
def test_select(element):
    _check(arith.Select, (T.I1, element, element))


@pytest.mark.parametrize("element", (*FLOATS, T.F8E5M2), ids=str)
def test_absolute_value(element):
    _check(math.AbsF, (element,))


@pytest.mark.parametrize("element", INTEGERS, ids=str)
def test_absolute_integer(element):
    _check(math.AbsI, (element,))


@pytest.mark.parametrize("propagate", [False, True])
@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_clamp(element, propagate):
    _check(math.ClampF, (element, element, element), propagate_nan=propagate)


@pytest.mark.parametrize("bound", [
    -(1 << 31), -(1 << 30) - 1, -(1 << 30), -5, 0, 1, 3, 130, 511, 512, (1 << 31) - 1,
])
def test_many_sums_against_one_bound(bound):
    """``i < n`` for all elements of a thread takes one comparison each, whatever the bound."""
    kernel = Kernel(pointer(T.I8), T.I32)
    b, layout = kernel.b, blocked(4)
    index = kernel.coordinate((512,), 0, layout)
    limit = kernel.splat(kernel.function.arguments[1], (512,), layout)
    mask = b.value(arith.CmpI, index, limit, predicate="slt")
    kernel.store(0, b.value(cast.ExtUI, mask, type=mask.type.with_element(T.I8)), vector=4)
    out = np.full(512, 7, np.int8)
    kernel.run(out, bound)
    np.testing.assert_array_equal(out, np.arange(512) < bound)
    ptx = kernel.ptx()
    assert ptx.count("setp.gt.s32") == 4 and "setp.lt.s32" not in ptx and ptx.count("sub.s32") == 1


def test_comparisons_that_agree_are_made_once():
    kernel = Kernel(pointer(T.I8), T.I32)
    b, layout = kernel.b, blocked(8, warps=(1,))
    index = kernel.coordinate((512,), 0, layout)
    limit = kernel.splat(kernel.function.arguments[1], (512,), layout)
    mask = b.value(arith.CmpI, index, limit, predicate="slt", constancy=(4,))
    kernel.store(0, b.value(cast.ExtUI, mask, type=mask.type.with_element(T.I8)), vector=8)
    kernel.function.attributes["num_warps"] = kernel.num_warps = 1
    out = np.full(512, 7, np.int8)
    kernel.run(out, 300)
    np.testing.assert_array_equal(out, np.arange(512) < 300)
    assert kernel.ptx().count("setp.") == 4
