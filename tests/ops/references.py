"""Independent meanings: integers by Python's, floats by exact rationals rounded once."""

from __future__ import annotations

import math
from fractions import Fraction

import attrs
import numpy as np

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value


@attrs.frozen
class Format:
    """A binary float format: ``precision`` significant bits, smallest normal 2**``min_exponent``, largest
    ``max``."""

    precision: int
    min_exponent: int
    max: float
    saturates: bool = False


FORMATS = {
    T.F8E4M3: Format(4, -6, 448.0, saturates=True),
    T.F8E5M2: Format(3, -14, 57344.0, saturates=True),
    T.F16: Format(11, -14, 65504.0),
    T.BF16: Format(8, -126, float(np.float32(3.3895313892515355e38))),
    T.F32: Format(24, -126, float(np.finfo(np.float32).max)),
    T.F64: Format(53, -1022, float(np.finfo(np.float64).max)),
}


def round_float(value: float | Fraction, type: T.ScalarType, towards_zero: bool = False) -> float:
    """``value`` in a format, to nearest even or towards zero."""
    form = FORMATS[type]
    if isinstance(value, float):
        if math.isnan(value) or (math.isinf(value) and not form.saturates):
            return value
        if math.isinf(value):
            return math.copysign(form.max, value)
        if value == 0:
            return value
        value = Fraction(value)
    if value == 0:
        return 0.0
    sign, value = (-1 if value < 0 else 1), abs(value)
    exponent = max(_floor_log2(value), form.min_exponent)
    unit = Fraction(2) ** (exponent - form.precision + 1)
    quotient = value / unit
    whole = quotient.numerator // quotient.denominator
    rest = quotient - whole
    if not towards_zero and (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2)):
        whole += 1
    rounded = whole * unit
    if rounded > Fraction(form.max):
        return sign * (form.max if form.saturates or towards_zero else math.inf)
    return sign * float(rounded)


def _floor_log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def make(
    kind: type[Operation], *types: T.Type, results: list[T.Type] | None = None, **attributes
) -> Operation:
    """An operation on operands of these types."""
    values = [Value(type) for type in types]
    if results is None:
        results = kind.infer(list(types), attributes)
    return kind(values, results, attributes)


def evaluate(
    kind: type[Operation], *arrays: np.ndarray, result: T.Type | None = None, **attributes
) -> np.ndarray:
    """The operation's numpy meaning on 1-D arrays, as tensors and, element by element, as scalars: they
    agree."""
    types = [BY_NUMPY[a.dtype] for a in arrays]
    op = make(kind, *types, results=None if result is None else [result], **attributes)
    with np.errstate(all="ignore"):
        whole = np.asarray(op.evaluate(*arrays))
        single = [op.evaluate(*[a[i] for a in arrays]) for i in range(min(3, len(arrays[0])))]
    for i, value in enumerate(single):
        assert np.asarray(value).dtype == whole.dtype
        assert np.asarray(value).tobytes() == whole[i].tobytes()
    assert whole.dtype == T.element_type(op.result.type).numpy
    return whole


BY_NUMPY = {t.numpy: t for t in T.SCALARS.values()}
INTEGERS = [T.I8, T.I16, T.I32, T.I64]
FLOATS = [T.F16, T.BF16, T.F32, T.F64]


def integers(type: T.ScalarType, seed: int = 0, count: int = 200) -> np.ndarray:
    """Random values of all magnitudes and the corner cases."""
    rng = np.random.default_rng(seed)
    bits = type.bits
    wide = rng.integers(0, 2**63, count, dtype=np.uint64) >> rng.integers(0, 64, count, dtype=np.uint64)
    corners = [0, 1, -1, 2, -2, 7, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), -(2 ** (bits - 1)) + 1]
    values = [wrap(int(v) * (-1) ** i, bits) for i, v in enumerate(wide)]
    pool = np.array(corners + values, type.numpy)
    return rng.permutation(np.concatenate([pool, np.tile(np.array(corners, type.numpy), 8)]))


def wrap(value: int, bits: int) -> int:
    """Two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def floats(type: T.ScalarType, seed: int = 0, count: int = 300) -> np.ndarray:
    """Random values of all magnitudes, subnormals, and the special ones."""
    rng = np.random.default_rng(seed)
    size = np.dtype(f"u{type.bytes}")
    any_bits = (
        rng.integers(0, 1 << type.bits, count, dtype=np.uint64, endpoint=False)
        if type.bits < 64
        else rng.integers(0, 2**64, count, dtype=np.uint64, endpoint=False)
    )
    pattern = any_bits.astype(size).view(type.numpy)
    near_one = (rng.standard_normal(count) * 4).astype(np.float32).astype(type.numpy)
    special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, np.nan, np.inf, -np.inf], np.float64).astype(
        type.numpy
    )
    return rng.permutation(np.concatenate([pattern, near_one, np.tile(special, 5)]))
