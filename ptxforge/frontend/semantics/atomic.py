"""Atomic read-modify-write.

PTX has no atomic maximum of floats. Non-negative floats are ordered as their bits are as signed integers,
negative ones the other way round as unsigned integers: a maximum is an integer maximum where the value is not
negative, and an unsigned minimum where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import bitcast, broadcast_to, cast, common_shape
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.arith import bitand, compare, invert, where
from ptxforge.frontend.semantics.memory import mask_argument, pointer_argument, value_argument
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import TensorValue, dtype_name
from ptxforge.ir.ops import atomic as A
from ptxforge.language import atomic as language
from ptxforge.language import types as L

_ADDABLE_FLOATS = (L.float16, L.bfloat16, L.float32, L.float64)


def _order(sem: Any, scope: Any) -> dict[str, str]:
    return {
        "sem": arguments.choice(sem, "sem", A.SEMANTICS, default="acq_rel"),
        "scope": arguments.choice(scope, "scope", A.SCOPES, default="gpu"),
    }


def _target(ctx: Context, pointer: Any, val: Any, mask: Any = None) -> TensorValue:
    """The pointers, stretched to the shape of value and mask when they are a scalar."""
    p = pointer_argument(pointer)
    if p.dtype.const:
        raise ArgumentProblem("pointer", "is a tl.const pointer, which must not be written through")
    shape = p.shape
    for given in (val, mask):
        if isinstance(given, TensorValue):
            shape = common_shape(shape, given.shape, "atomic")
    return broadcast_to(ctx, p, shape)


def _is_wide_integer(dtype: Any) -> bool:
    return isinstance(dtype, L.dtype) and dtype.is_int() and dtype.int_bitwidth in (32, 64)


def _update(
    ctx: Context,
    pointer: TensorValue,
    value: TensorValue,
    mask: TensorValue | None,
    kind: str,
    order: dict[str, str],
) -> TensorValue:
    operands = [pointer, value] if mask is None else [pointer, value, mask]
    return ctx.op(A.AtomicRMW, *operands, dtype=value.dtype, kind=kind, **order)


def _is_comparable(dtype: Any) -> bool:
    return _is_wide_integer(dtype) or dtype in (L.float32, L.float64)


_MOVABLE = "a 16-, 32- or 64-bit type"


def _is_movable(dtype: Any) -> bool:
    return dtype.primitive_bitwidth in (16, 32, 64)


_WHOLE = "a type of whole bytes"


def _has_bytes(dtype: Any) -> bool:
    return dtype.primitive_bitwidth >= 8


def _refuse(dtype: Any, what: str) -> ArgumentProblem:
    return ArgumentProblem("pointer", f"must point at {what}, points at {dtype_name(dtype)}")


def _operands(
    ctx: Context, pointer: Any, val: Any, mask: Any, holds: Callable[[Any], bool], what: str
) -> tuple[TensorValue, TensorValue, TensorValue | None]:
    """Pointers, values and mask of an atomic on the types that ``holds`` allows and ``what`` names."""
    p = _target(ctx, pointer, val, mask)
    dtype = p.dtype.element_ty
    if not holds(dtype):
        raise _refuse(dtype, what)
    return p, value_argument(ctx, val, dtype, p.shape, "val"), mask_argument(ctx, mask, p.shape)


def _extremum(which: str) -> Callable:
    """The meaning of ``atomic_max`` or ``atomic_min``."""

    def meaning(ctx, pointer, val, mask=None, sem=None, scope=None):
        types = "32- or 64-bit integers, float32 or float64"
        p, value, held = _operands(ctx, pointer, val, mask, _is_comparable, types)
        dtype, order = value.dtype, _order(sem, scope)
        if dtype.is_floating():
            return _float_extremum(ctx, p, value, held, which, order)
        return _update(ctx, p, value, held, which if dtype.is_int_signed() else f"u{which}", order)

    return meaning


def _float_extremum(
    ctx: Context,
    p: TensorValue,
    value: TensorValue,
    mask: TensorValue | None,
    which: str,
    order: dict[str, str],
) -> TensorValue:
    """Two atomics, of which each element takes one: see the head of this file."""
    bits = L.get_int_dtype(value.dtype.primitive_bitwidth, signed=True)
    pointer = cast(ctx, p, L.pointer_type(bits))
    number = bitcast(ctx, value, bits)
    is_negative = compare(ctx, number, 0, "<")
    upwards = _both(ctx, mask, invert(ctx, is_negative))
    downwards = _both(ctx, mask, is_negative)
    opposite = "umin" if which == "max" else "umax"
    above = _update(ctx, pointer, number, upwards, which, order)
    below = _update(ctx, pointer, number, downwards, opposite, order)
    return bitcast(ctx, where(ctx, is_negative, below, above), value.dtype)


def _both(ctx: Context, mask: TensorValue | None, condition: TensorValue) -> TensorValue:
    return condition if mask is None else bitand(ctx, mask, condition)


implements(language.atomic_max)(_extremum("max"))
implements(language.atomic_min)(_extremum("min"))


def _updating(kind: str, holds: Callable[[Any], bool], what: str, of_floats: str = "") -> Callable:
    """The meaning of an atomic that does ``kind`` (or ``of_floats``); types as for :func:`_operands`."""

    def meaning(ctx, pointer, val, mask=None, sem=None, scope=None):
        p, value, held = _operands(ctx, pointer, val, mask, holds, what)
        done = of_floats if of_floats and value.dtype.is_floating() else kind
        return _update(ctx, p, value, held, done, _order(sem, scope))

    return meaning


def _is_addable(dtype: Any) -> bool:
    return dtype in _ADDABLE_FLOATS or _is_wide_integer(dtype)


_ADDABLE = "32- or 64-bit integers, float16, bfloat16, float32 or float64"
implements(language.atomic_add)(_updating("add", _is_addable, _ADDABLE, of_floats="fadd"))
for _stub, _kind in ((language.atomic_and, "and"), (language.atomic_or, "or"), (language.atomic_xor, "xor")):
    implements(_stub)(_updating(_kind, _is_wide_integer, "32- or 64-bit integers"))
implements(language.atomic_xchg)(
    _updating("xchg", lambda dtype: dtype.primitive_bitwidth in (32, 64), "a 32- or 64-bit type")
)


@implements(language.atomic_cas)
def atomic_cas(ctx, pointer, cmp, val, sem=None, scope=None):
    p = _target(ctx, pointer, val, cmp)
    dtype = p.dtype.element_ty
    if not _is_movable(dtype):
        raise _refuse(dtype, _MOVABLE)
    compare_with = value_argument(ctx, cmp, dtype, p.shape, "cmp")
    value = value_argument(ctx, val, dtype, p.shape, "val")
    return ctx.op(A.AtomicCAS, p, compare_with, value, dtype=dtype, **_order(sem, scope))


def _one_way_order(sem: Any, scope: Any, which: str) -> dict[str, str]:
    """A load can acquire and a store can release; that is what each does unless told otherwise."""
    return {
        "sem": arguments.choice(sem, "sem", ("relaxed", which), default=which),
        "scope": arguments.choice(scope, "scope", A.SCOPES, default="gpu"),
    }


def _nothing(ctx: Context, dtype: Any, shape: tuple[int, ...]) -> TensorValue:
    """A value that says only what type it has."""
    if not isinstance(dtype, L.pointer_type):
        return ctx.constant(0, dtype, shape)
    return cast(ctx, ctx.constant(0, L.int64, shape), dtype)


@implements(language.atomic_load)
def atomic_load(ctx, pointer, mask=None, sem=None, scope=None):
    p = pointer_argument(pointer)
    shape = common_shape(p.shape, mask.shape, "atomic") if isinstance(mask, TensorValue) else p.shape
    p, dtype = broadcast_to(ctx, p, shape), p.dtype.element_ty
    if not _has_bytes(dtype):
        raise _refuse(dtype, _WHOLE)
    held, order = mask_argument(ctx, mask, shape), _one_way_order(sem, scope, "acquire")
    return _update(ctx, p, _nothing(ctx, dtype, shape), held, "load", order)


@implements(language.atomic_store)
def atomic_store(ctx, pointer, val, mask=None, sem=None, scope=None):
    p, value, held = _operands(ctx, pointer, val, mask, _has_bytes, _WHOLE)
    _update(ctx, p, value, held, "store", _one_way_order(sem, scope, "release"))
