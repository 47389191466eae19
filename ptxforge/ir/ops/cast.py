"""Conversions between element types, element by element."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from ptxforge.ir import definition as D
from ptxforge.ir import facts, limits
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops.arith import as_unsigned
from ptxforge.support.errors import VerificationError


class Cast(Operation):
    """Base of conversions: the result's element type is given, shape and layout are the operand's.
    ``widens`` says whether it is wider than the operand's (or narrower), where the operation asks for it."""

    traits = frozenset((D.ELEMENTWISE,))
    widens: bool | None = None

    def check(self):
        source, result = self.operands[0].type, self.result.type
        if T.shape_of(source) != T.shape_of(result) or T.layout_of(source) != T.layout_of(result):
            raise VerificationError(f"'{self.name}' must keep shape and layout: {source} -> {result}")
        source, target = T.element_type(source), self.target
        changes = target.bits > source.bits if self.widens else target.bits < source.bits
        if self.widens is not None and not changes:
            verb = "widen" if self.widens else "narrow"
            raise VerificationError(f"'{self.name}' must {verb}: {source} -> {target}")

    @property
    def target(self) -> T.Type:
        """The element type of the result."""
        return T.element_type(self.result.type)


class IntegerCast(Cast):
    """Base of conversions between widths of integers. Index arithmetic is taken not to wrap (see
    ``ir.ops.memory``), so runs stay runs."""

    def axis_info(self, operands, nonnegative):
        return operands[0]


@D.define("extsi", shows_operand_types=True, traits=[D.ADDRESSING], nonnegative_if=D.ALL)
class ExtSI(IntegerCast):
    """Widen an integer with its sign."""

    x = D.operand(D.INT)
    widens = True

    def evaluate(self, x):
        if x.dtype == np.bool_:
            return -x.astype(self.target.numpy)
        return x.astype(self.target.numpy)

    def limits(self, known):
        return known(self.x) or limits.of_type(self.x.type)


@D.define("extui", shows_operand_types=True, nonnegative_if=D.ALWAYS)
class ExtUI(IntegerCast):
    """Widen an integer with zeros. ``in_words`` (``choose_sequences``): of truth values of bytes, four at a
    time, without predicates."""

    x = D.operand(D.INT)
    in_words = D.attribute(bool, False)
    widens = True

    def evaluate(self, x):
        return as_unsigned(x).astype(self.target.numpy)

    def limits(self, known):
        found = known(self.x)
        is_natural = found is not None and found[0] >= 0
        return found if is_natural else (0, (1 << T.element_type(self.x.type).bits) - 1)


@D.define("trunci", shows_operand_types=True)
class TruncI(IntegerCast):
    """Keep an integer's low bits."""

    x = D.operand(D.INT)
    widens = False

    def evaluate(self, x):
        if self.target is T.I1:
            return (x & 1).astype(np.bool_)
        return x.astype(self.target.numpy)

    def limits(self, known):
        return known(self.x)


@D.define("extf", shows_operand_types=True)
class ExtF(Cast):
    """Widen a float (exact)."""

    x = D.operand(D.FLOAT)
    widens = True

    def evaluate(self, x):
        return (
            x.astype(np.float32).astype(self.target.numpy)
            if x.dtype.itemsize < 4
            else x.astype(self.target.numpy)
        )


@D.define("truncf", shows_operand_types=True, cost=D.EXPENSIVE)
class TruncF(Cast):
    """Narrow a float (or change between 16-bit or between 8-bit formats), rounding to nearest even (``rtne``)
    or towards zero (``rtz``). To an 8-bit float: values too large become the largest finite one, NaN stays
    NaN."""

    x = D.operand(D.FLOAT)
    rounding = D.attribute(("rtne", "rtz"), "rtne")

    def evaluate(self, x):
        return convert_float(x, self.target, self.rounding)


def convert_float(x: np.ndarray, target: T.ScalarType, rounding: str = "rtne") -> np.ndarray:
    """``x`` in a narrower (or equally wide) float format, rounded once."""
    with np.errstate(all="ignore"):
        nearest = _saturate(x, target).astype(target.numpy) if target.bits == 8 else _narrow(x, target)
    if rounding == "rtne":
        return nearest
    wide, back = x.astype(np.float64), nearest.astype(np.float64)
    too_far = np.atleast_1d(np.isfinite(wide) & (np.abs(back) > np.abs(wide)))
    bits = np.atleast_1d(nearest).view(np.dtype(f"u{nearest.dtype.itemsize}"))
    return np.where(too_far, bits - 1, bits).astype(bits.dtype).view(target.numpy).reshape(np.shape(x))


def _narrow(x: np.ndarray, target: T.ScalarType) -> np.ndarray:
    """Round to nearest even, once: ml_dtypes converts f64 through f32,
    so f64 first goes to f32 rounded to odd."""
    if x.dtype == np.float64 and target is T.BF16:
        return _f64_to_f32_odd(x).astype(ml_dtypes.bfloat16)
    return x.astype(target.numpy)


def _saturate(x: np.ndarray, target: T.ScalarType) -> np.ndarray:
    limit = float(ml_dtypes.finfo(target.numpy).max)
    wide = _f64_to_f32_odd(x) if x.dtype == np.float64 else x.astype(np.float32)
    return np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit)).astype(np.float32)


def _f64_to_f32_odd(x: np.ndarray) -> np.ndarray:
    """f64 → f32 rounded to odd, so that a second rounding to a narrower format is right."""
    rounded = np.atleast_1d(x).astype(np.float32)
    back = rounded.astype(np.float64)
    source = np.atleast_1d(x)
    bits = rounded.view(np.int32)
    inexact = np.isfinite(source) & (back != source) & ((bits & 1) == 0)
    away = np.abs(back) < np.abs(source)
    return (
        np.where(inexact, bits + np.where(away, 1, -1), bits)
        .astype(np.int32)
        .view(np.float32)
        .reshape(np.shape(x))
    )


@D.define("sitofp", shows_operand_types=True)
class SIToFP(Cast):
    """Signed integer to float, round to nearest even."""

    x = D.operand(D.INT)

    def evaluate(self, x):
        return _integer_to_float(x, self.target)

    def limits(self, known):
        return limits.rounded(known(self.x), self.result.type)


@D.define("uitofp", shows_operand_types=True)
class UIToFP(Cast):
    """Unsigned integer to float, round to nearest even."""

    x = D.operand(D.INT)

    def evaluate(self, x):
        return _integer_to_float(as_unsigned(x), self.target)


def _integer_to_float(x: np.ndarray, target: T.ScalarType) -> np.ndarray:
    if target in (T.F64, T.F32):
        return x.astype(target.numpy)
    # 64-bit integers do not fit f64: rounding to odd there keeps the second rounding right.
    exact = x.astype(np.float64)
    if x.dtype.itemsize == 8:
        exact = _int64_to_f64_odd(x)
    return convert_float(exact, target)


def _int64_to_f64_odd(x: np.ndarray) -> np.ndarray:
    """The top 53 bits or so of |x| with a sticky last bit."""
    negative = x < 0
    magnitude = np.where(negative, -x, x).astype(np.uint64)
    sticky = ((magnitude & np.uint64(0xFFF)) != 0).astype(np.uint64) << np.uint64(12)
    short = np.where(magnitude >> np.uint64(53) != 0, (magnitude & ~np.uint64(0xFFF)) | sticky, magnitude)
    return np.where(negative, -short.astype(np.float64), short.astype(np.float64))


@D.define("fptosi", shows_operand_types=True, traits=[D.ANY_WIDTH])
class FPToSI(Cast):
    """Float to signed integer, towards zero; saturates, NaN gives 0 (``cvt.rzi``)."""

    x = D.operand(D.FLOAT)

    def evaluate(self, x):
        return _float_to_integer(
            x, np.dtype(self.target.numpy) if self.target is not T.I1 else np.dtype(np.int8)
        ).astype(self.target.numpy)

    def limits(self, known):
        found = known(self.x)
        return None if found is None else (math.trunc(found[0]), math.trunc(found[1]))


@D.define("fptoui", shows_operand_types=True)
class FPToUI(Cast):
    """Float to unsigned integer, towards zero; saturates, NaN gives 0 (``cvt.rzi``)."""

    x = D.operand(D.FLOAT)

    def evaluate(self, x):
        unsigned = as_unsigned(np.zeros(1, self.target.numpy)).dtype
        if unsigned == np.bool_:
            unsigned = np.dtype(np.uint8)
        return (
            _float_to_integer(x, unsigned)
            .astype(unsigned)
            .view(np.dtype(f"i{unsigned.itemsize}"))
            .astype(self.target.numpy)
        )


def _float_to_integer(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    wide = np.trunc(np.where(np.isnan(x), np.zeros_like(x), x).astype(np.float64))
    with np.errstate(all="ignore"):
        # float(info.max) of a 64-bit type is one too many, hence >=.
        inside = np.where((wide >= float(info.max)) | (wide <= float(info.min)), 0.0, wide).astype(dtype)
    result = np.where(wide >= float(info.max), dtype.type(info.max), inside)
    return np.where(wide <= float(info.min), dtype.type(info.min), result).astype(dtype)


@D.define("bitcast", shows_operand_types=True, traits=[D.SAME_MEMORY])
class Bitcast(Cast):
    """The same bits as another type of the same width (also between pointer types)."""

    x = D.operand(D.NUMBER_OR_POINTER)

    def check(self):
        super().check()
        source = T.element_type(self.operands[0].type)
        if source.bits != self.target.bits:
            raise VerificationError(f"'bitcast' must keep the width: {source} -> {self.target}")

    def evaluate(self, x):
        return x.view(self.target.numpy) if x.ndim else np.atleast_1d(x).view(self.target.numpy)[0]

    def says_all(self, values):
        return values[0] == values[0]

    def axis_info(self, operands, nonnegative):
        """Addresses and integers keep their values; the runs of a pointer are counted in its elements."""
        (x,), source, target = operands, T.element_type(self.x.type), self.target
        if isinstance(source, T.PointerType) and isinstance(target, T.PointerType):
            return x if source.pointee.bytes == target.pointee.bytes else facts.without_runs(x)
        is_integer = isinstance(source, T.ScalarType) and source.is_int and target.is_int
        return x if is_integer else facts.unknown(self.result.type)


@D.define("ptr_to_int", shows_operand_types=True)
class PtrToInt(Cast):
    """A pointer's address as ``i64``."""

    x = D.operand(D.POINTER)

    def evaluate(self, x):
        return x

    def axis_info(self, operands, nonnegative):
        return facts.addresses(operands[0], T.element_type(self.x.type).pointee.bytes)


@D.define("int_to_ptr", shows_operand_types=True)
class IntToPtr(Cast):
    """An ``i64`` address as a pointer."""

    x = D.operand(D.INT)

    def evaluate(self, x):
        return x

    def axis_info(self, operands, nonnegative):
        return operands[0] if self.target.pointee.bytes == 1 else facts.without_runs(operands[0])
