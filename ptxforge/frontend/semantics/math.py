"""Elementwise functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import operands
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.arith import common_floats, own_types, same_integers
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import TensorValue, dtype_name, is_number
from ptxforge.ir.core import Operation
from ptxforge.ir.ops import arith as A
from ptxforge.ir.ops import math as M
from ptxforge.language import math as language
from ptxforge.language import types as L
from ptxforge.support import settings


def _float(what: str, fits: Callable[[L.dtype], bool]) -> Callable[[Context, Any], TensorValue]:
    """What makes the argument ``x`` a tensor of a type that ``fits``, which is ``what``."""

    def check(ctx: Context, x: Any) -> TensorValue:
        value = arguments.number(arguments.tensor(ctx, float(x) if isinstance(x, int) else x, "x"), "x")
        if not fits(value.dtype):
            text = f"must be {what}, is {dtype_name(value.dtype)}"
            raise ArgumentProblem("x", text, "cast it with .to(tl.float32)")
        return value

    return check


_wide_float = _float("float32 or float64", (L.float32, L.float64).__contains__)
_any_float = _float("a float", lambda dtype: dtype.is_floating())


def _unary(stub: Callable, kind: type[Operation], check: Callable = _wide_float) -> None:
    """Register ``stub(x)`` as the operation ``kind``."""

    def meaning(ctx, x):
        return ctx.op(kind, check(ctx, x))

    implements(stub)(meaning)


@implements(language.exp2)
def exp2(ctx, x):
    return ctx.op(M.Exp2, _wide_float(ctx, x), denormals=ctx.keeps_denormals)


_unary(language.exp, M.Exp)
_unary(language.log, M.Log)
_unary(language.log2, M.Log2)
_unary(language.sin, M.Sin)
_unary(language.cos, M.Cos)
_unary(language.tan, M.Tan)
_unary(language.tanh, M.Tanh)
_unary(language.erf, M.Erf)
_unary(language.sqrt, M.Sqrt)
_unary(language.sqrt_rn, M.SqrtRn)
_unary(language.rsqrt, M.Rsqrt)
_unary(language.floor, M.Floor, _any_float)
_unary(language.ceil, M.Ceil, _any_float)
_unary(language.trunc, M.Trunc, _any_float)
_unary(language.rint, M.Rint, _any_float)


@implements(language.abs)
def abs(ctx, x):
    value = arguments.number(arguments.tensor(ctx, x, "x"), "x")
    if value.dtype.is_floating():
        return ctx.op(M.AbsF, value)
    return ctx.op(M.AbsI, value) if value.dtype.is_int_signed() else value


@implements(language.pow)
def pow(ctx, x, y):
    whole = arguments.unwrap(y)
    x, y = common_floats(ctx, "pow", x=x, y=y)
    x = _wide_float(ctx, x)
    if not is_number(whole) or whole not in _POWERS_BY_PRODUCTS[x.dtype]:
        return ctx.op(M.Pow, x, y)
    square = x if whole == 1 else ctx.op(A.MulF, x, x)
    return square if whole < 3 else ctx.op(A.MulF, square, {3: x, 4: square}[whole])


_POWERS_BY_PRODUCTS = {L.float32: (1, 2, 3, 4), L.float64: (1, 2, 3)}
"""Numbers known at compile time to which a float is raised by products alone: so accurately as ``pow`` is."""


@implements(language.fma)
def fma(ctx, x, y, z):
    return ctx.op(M.Fma, *common_floats(ctx, "fma", **own_types(ctx, False, x=x, y=y, z=z)))


@implements(language.umulhi)
def umulhi(ctx, x, y):
    x, y = same_integers(ctx, x, y, "umulhi")
    if x.dtype.int_bitwidth < 32:
        raise ArgumentProblem("x", f"must be a 32- or 64-bit integer, is {dtype_name(x.dtype)}")
    return ctx.op(A.MulHiUI, x, y)


@implements(language.fdiv)
def fdiv(ctx, x, y, ieee_rounding=False, approx=False):
    if settings.follows(3, 9):  # floats narrower than 32 bits have float32 quotients, as of /
        x, y = operands(ctx, x, y, "fdiv", division=True)
    x, y = common_floats(ctx, "fdiv", x=x, y=y)
    exact = arguments.static_bool(ieee_rounding, "ieee_rounding")
    if arguments.static_bool(approx, "approx") and (exact or x.dtype is not L.float32):
        raise ArgumentProblem("approx", "is for float32 without ieee_rounding")
    return ctx.op(M.DivRn if exact else A.DivF, x, y)


@implements(language.div_rn)
def div_rn(ctx, x, y):
    return ctx.op(M.DivRn, *common_floats(ctx, "div_rn", x=x, y=y))
