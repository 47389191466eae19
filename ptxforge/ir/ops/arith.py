"""Integer and float arithmetic, comparison and selection.

All act on scalars and, element by element, on tensors of one shape and layout. Integers are signless: where
the sign matters there are two operations (``divsi``, ``divui``). Integer arithmetic wraps; division
truncates towards zero; a shift by the width or more gives 0 (``shrsi``: the sign).
"""

from __future__ import annotations

import numpy as np

from ptxforge.ir import facts
from ptxforge.ir import types as T
from ptxforge.ir.definition import (
    ADDRESSING,
    ALL,
    ANY_OF,
    BOOL,
    COMMUTATIVE,
    EXPENSIVE,
    FIRST,
    FLOAT,
    INT,
    NUMBER_OR_POINTER,
    Elementwise,
    attribute,
    define,
    gives_type_of,
    operand,
    same_operand_types,
)

_UNSIGNED = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def as_unsigned(x: np.ndarray) -> np.ndarray:
    """The same bits as unsigned integers (``i1`` stays boolean)."""
    return x if x.dtype == np.bool_ else x.view(_UNSIGNED[x.dtype.itemsize * 8])


def as_signed(x: np.ndarray) -> np.ndarray:
    """The values of signed integers: a set ``i1`` is -1."""
    return -x.astype(np.int8) if x.dtype == np.bool_ else x


def _wrapping(operation, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Apply an integer ufunc with wrap-around, ``i1`` included, and keep the dtype."""
    dtype = x.dtype
    if dtype == np.bool_:
        return (operation(x.astype(np.int8), y.astype(np.int8)) & 1).astype(np.bool_)
    with np.errstate(all="ignore"):
        return operation(x, y).astype(dtype)


class BinaryInt(Elementwise):
    """Base of integer operations ``(T, T) -> T``."""

    lhs = operand(INT)
    rhs = operand(INT)


class OneOfTwo(BinaryInt):
    """Base of integer operations whose result is made of what both operands are: what divides both divides
    it."""

    def axis_info(self, operands, nonnegative):
        return facts.pointwise(operands, facts.both_divide(*operands))


class BinaryFloat(Elementwise):
    """Base of float operations ``(T, T) -> T``. ``function`` is the numpy function."""

    lhs = operand(FLOAT)
    rhs = operand(FLOAT)
    function = None

    def evaluate(self, x, y):
        with np.errstate(all="ignore"):
            return type(self).function(x, y).astype(x.dtype, copy=False)


class Comparison(Elementwise):
    """Base of operations ``(T, T) -> i1``, a scalar or a tensor as ``T`` is."""

    @classmethod
    def infer(cls, operands, attributes):
        return [T.like(operands[0], T.I1)]


# -- integers --------------------------------------------------------------------------------------------


@define("addi", traits=[COMMUTATIVE, ADDRESSING], nonnegative_if=ALL)
class AddI(BinaryInt):
    """Integer sum, wrapping."""

    neutral = 0

    def evaluate(self, x, y):
        return _wrapping(np.add, x, y)

    def axis_info(self, operands, nonnegative):
        return facts.sum_of(*operands)

    @property
    def addends(self):
        return tuple((value, 1) for value in self.operands)


@define("subi", traits=[ADDRESSING])
class SubI(BinaryInt):
    """Integer difference, wrapping."""

    def evaluate(self, x, y):
        return _wrapping(np.subtract, x, y)

    def is_nonnegative(self, known):
        """``x - x / d * d`` has the sign of x."""
        taken = self.rhs.defining_op
        factors = (taken.operands, taken.operands[::-1]) if type(taken) is MulI else ()
        pairs = [(q.defining_op, d) for q, d in factors if type(q.defining_op) in (DivSI, DivUI)]
        return any(op.operands == (self.lhs, d) for op, d in pairs) and known(self.lhs)

    def axis_info(self, operands, nonnegative):
        return facts.sum_of(*operands, is_difference=True)

    @property
    def addends(self):
        return ((self.lhs, 1), (self.rhs, -1))


@define("muli", traits=[COMMUTATIVE, ADDRESSING], nonnegative_if=ALL)
class MulI(BinaryInt):
    """Integer product, wrapping."""

    neutral = 1

    def limits(self, known):
        left = known(self.lhs)
        right = known(self.rhs) if left is not None else None
        if left is None or right is None:
            return None
        products = [x * y for x in left for y in right]
        return min(products), max(products)

    def evaluate(self, x, y):
        return _wrapping(np.multiply, x, y)

    def axis_info(self, operands, nonnegative):
        x, y = operands
        if 1 in (x.constant, y.constant):
            return y if x.constant == 1 else x
        divisibility = [min(facts.HIGHEST, x.divides(d, 1) * y.divides(d, 1)) for d in range(x.rank)]
        return facts.pointwise(operands, divisibility)


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C's integer division (towards zero); by zero it gives all ones, as the hardware's sequence does."""
    zero = y == 0
    safe = np.where(zero, np.ones_like(y), y)
    with np.errstate(all="ignore"):
        quotient = x // safe
        inexact = quotient * safe != x
        quotient = quotient + (inexact & ((x < 0) != (safe < 0))).astype(x.dtype)
    return np.where(zero, ~np.zeros_like(x), quotient).astype(x.dtype)


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """C's remainder: the sign is the dividend's. By zero: the dividend."""
    with np.errstate(all="ignore"):
        return (x - _divide(x, y) * y).astype(x.dtype)


def _quotient(operands: list[facts.AxisInfo], by: int | None) -> facts.AxisInfo:
    """What is known of the first operand divided by ``by``, or by the second one; by 0 says nothing."""
    if by is None:
        return facts.quotient_by_value(*operands)
    return facts.pointwise(operands) if by <= 0 else facts.quotient(operands[0], by)


@define("divsi", cost=EXPENSIVE, nonnegative_if=FIRST)
class DivSI(BinaryInt):
    """Signed division, truncating."""

    def evaluate(self, x, y):
        return _divide(x, y)

    def axis_info(self, operands, nonnegative):
        # Truncation makes -4 / 4 differ from -3 / 4: a run that starts below 0 breaks.
        return _quotient(operands, operands[1].constant if nonnegative(self.lhs) else 0)


@define("divui", cost=EXPENSIVE, nonnegative_if=FIRST)
class DivUI(BinaryInt):
    """Unsigned division."""

    def evaluate(self, x, y):
        return _divide(as_unsigned(x), as_unsigned(y)).view(x.dtype)

    def axis_info(self, operands, nonnegative):
        return _quotient(operands, operands[1].constant)


class Remainder(BinaryInt):
    """Base of remainders. ``mostly_inside``: in most threads it is the dividend, dividing is rare code."""

    mostly_inside = attribute(bool, False)


@define("remsi", cost=EXPENSIVE, nonnegative_if=FIRST)
class RemSI(Remainder):
    """Signed remainder, with the dividend's sign."""

    def evaluate(self, x, y):
        return _remainder(x, y)

    def axis_info(self, operands, nonnegative):
        return facts.remainder(*operands, nonnegative(self.lhs))


@define("remui", cost=EXPENSIVE, nonnegative_if=FIRST)
class RemUI(Remainder):
    """Unsigned remainder."""

    def evaluate(self, x, y):
        return _remainder(as_unsigned(x), as_unsigned(y)).view(x.dtype)

    def axis_info(self, operands, nonnegative):
        return facts.remainder(*operands, True)


@define("andi", traits=[COMMUTATIVE, ADDRESSING], nonnegative_if=ANY_OF)
class AndI(BinaryInt):
    """Bitwise and."""

    neutral = -1

    def evaluate(self, x, y):
        return x & y

    def axis_info(self, operands, nonnegative):
        for x, mask in (operands, operands[::-1]):
            if mask.constant is not None and mask.constant > 0 and (mask.constant + 1) & mask.constant == 0:
                return facts.low_bits(x, mask.constant + 1)
        # The low zero bits of either operand are zero in the result.
        x, y = operands
        return facts.pointwise(operands, [max(x.divides(d, 1), y.divides(d, 1)) for d in range(x.rank)])


@define("ori", traits=[COMMUTATIVE], nonnegative_if=ALL)
class OrI(OneOfTwo):
    """Bitwise or."""

    neutral = 0

    def evaluate(self, x, y):
        return x | y


@define("xori", traits=[COMMUTATIVE])
class XorI(BinaryInt):
    """Bitwise exclusive or."""

    neutral = 0

    def evaluate(self, x, y):
        return x ^ y


def _shift(operation, x: np.ndarray, y: np.ndarray, beyond: np.ndarray) -> np.ndarray:
    """Shift by an unsigned amount; amounts of the width or more give ``beyond``."""
    bits = 1 if x.dtype == np.bool_ else x.dtype.itemsize * 8
    amount = as_unsigned(y)
    outside = amount >= bits
    inside = np.where(outside, np.zeros_like(amount), amount).astype(x.dtype)
    return np.where(outside, beyond, operation(x, inside)).astype(x.dtype)


@define("shli", nonnegative_if=ALL)
class ShlI(BinaryInt):
    """Shift left; 0 when the amount is the width or more."""

    def evaluate(self, x, y):
        return _shift(np.left_shift, x, y, np.zeros_like(x))

    def axis_info(self, operands, nonnegative):
        x, places = operands[0], operands[1].constant
        if places is None or not 0 <= places < 31:
            return facts.pointwise(operands)
        divisibility = [min(facts.HIGHEST, x.divides(d, 1) << places) for d in range(x.rank)]
        return facts.pointwise([x], divisibility) if places else x


@define("shrsi", nonnegative_if=ALL)
class ShrSI(BinaryInt):
    """Arithmetic shift right; the sign when the amount is the width or more."""

    def evaluate(self, x, y):
        return _shift(np.right_shift, x, y, np.where(as_signed(x) < 0, ~np.zeros_like(x), np.zeros_like(x)))

    def axis_info(self, operands, nonnegative):
        places = operands[1].constant
        return _quotient(operands, 1 << places if places is not None and 0 <= places < 31 else 0)


@define("shrui", nonnegative_if=FIRST)
class ShrUI(BinaryInt):
    """Logical shift right; 0 when the amount is the width or more."""

    def evaluate(self, x, y):
        return _shift(np.right_shift, as_unsigned(x), y, as_unsigned(np.zeros_like(x))).view(x.dtype)

    axis_info = ShrSI.axis_info


@define("minsi", traits=[COMMUTATIVE], nonnegative_if=ALL)
class MinSI(OneOfTwo):
    """Signed minimum."""

    def evaluate(self, x, y):
        return np.minimum(as_signed(x), as_signed(y)).astype(x.dtype)

    @property
    def neutral(self):
        return (1 << (T.element_type(self.result.type).bits - 1)) - 1


@define("maxsi", traits=[COMMUTATIVE], nonnegative_if=ANY_OF)
class MaxSI(OneOfTwo):
    """Signed maximum."""

    def evaluate(self, x, y):
        return np.maximum(as_signed(x), as_signed(y)).astype(x.dtype)

    @property
    def neutral(self):
        return -(1 << (T.element_type(self.result.type).bits - 1))


@define("minui", traits=[COMMUTATIVE])
class MinUI(OneOfTwo):
    """Unsigned minimum."""

    neutral = -1

    def evaluate(self, x, y):
        return np.minimum(as_unsigned(x), as_unsigned(y)).view(x.dtype)


@define("maxui", traits=[COMMUTATIVE])
class MaxUI(OneOfTwo):
    """Unsigned maximum."""

    neutral = 0

    def evaluate(self, x, y):
        return np.maximum(as_unsigned(x), as_unsigned(y)).view(x.dtype)


@define("mulhui", traits=[COMMUTATIVE])
class MulHiUI(BinaryInt):
    """The upper half of the unsigned product (``i32`` or ``i64``): ``tl.umulhi``."""

    def evaluate(self, x, y):
        a, b = as_unsigned(x), as_unsigned(y)
        if x.dtype.itemsize == 4:
            product = a.astype(np.uint64) * b.astype(np.uint64)
            return (product >> np.uint64(32)).astype(np.uint32).view(x.dtype)
        low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
        with np.errstate(all="ignore"):
            cross1 = (a >> shift) * (b & low) + (((a & low) * (b & low)) >> shift)
            cross2 = (a & low) * (b >> shift) + (cross1 & low)
            return ((a >> shift) * (b >> shift) + (cross1 >> shift) + (cross2 >> shift)).view(x.dtype)


_INTEGER_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal,
    "slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal,
    "ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal,
}  # fmt: skip


@define("cmpi", traits=[ADDRESSING])
class CmpI(Comparison):
    """Integer (or pointer) comparison to ``i1``. ``predicate``:
    eq ne, signed slt sle sgt sge, unsigned ult ule ugt uge. ``differences_from`` so many sums of one value
    and constants on that a thread compares with one bound, ``value + constant < bound`` is
    ``constant < bound - value`` (``choose_sequences``); 0: never."""

    lhs = operand(NUMBER_OR_POINTER)
    rhs = operand(NUMBER_OR_POINTER)
    predicate = attribute(tuple(_INTEGER_COMPARISONS))
    differences_from = attribute(int, 0)

    def evaluate(self, x, y):
        of_sign = as_unsigned if self.predicate.startswith("u") else as_signed
        x, y = of_sign(x), of_sign(y)
        return _INTEGER_COMPARISONS[self.predicate](x, y)

    def axis_info(self, operands, nonnegative):
        same = facts.pointwise(operands)
        if self.predicate in ("eq", "ne"):
            return same
        run, bound = operands if self.predicate[1:] in ("lt", "ge") else operands[::-1]
        constancy = map(max, same.constancy, facts.constant_up_to(run, bound))
        return facts.AxisInfo(same.contiguity, same.divisibility, constancy)


# -- floats ----------------------------------------------------------------------------------------------


@define("addf", traits=[COMMUTATIVE])
class AddF(BinaryFloat):
    """Float sum, round to nearest even."""

    function = np.add
    neutral = -0.0
    addends = AddI.addends


@define("subf")
class SubF(BinaryFloat):
    """Float difference, round to nearest even."""

    function = np.subtract
    addends = SubI.addends


@define("mulf", traits=[COMMUTATIVE])
class MulF(BinaryFloat):
    """Float product, round to nearest even."""

    function = np.multiply
    neutral = 1.0


@define("divf", cost=EXPENSIVE)
class DivF(BinaryFloat):
    """Float quotient: for f32 within 2 ulp (``div.full.f32``), for f64 exact. ``div_rn`` is the IEEE one.
    From ``reciprocal_from`` dividends of a thread on (0: never) a divisor's reciprocal is computed once."""

    reciprocal_from = attribute(int, 0)
    function = np.divide


@define("remf", cost=EXPENSIVE)
class RemF(BinaryFloat):
    """C's ``fmod``: exact, with the dividend's sign."""

    function = np.fmod


@define("minnumf", traits=[COMMUTATIVE])
class MinNumF(BinaryFloat):
    """Minimum; a NaN loses against a number."""

    function = np.fmin
    neutral = np.inf


@define("maxnumf", traits=[COMMUTATIVE])
class MaxNumF(BinaryFloat):
    """Maximum; a NaN loses against a number."""

    function = np.fmax
    neutral = -np.inf


@define("minimumf", traits=[COMMUTATIVE])
class MinimumF(BinaryFloat):
    """Minimum; a NaN wins."""

    function = np.minimum
    neutral = np.inf


@define("maximumf", traits=[COMMUTATIVE])
class MaximumF(BinaryFloat):
    """Maximum; a NaN wins."""

    function = np.maximum
    neutral = -np.inf


_FLOAT_COMPARISONS = {
    "eq": np.equal, "ne": lambda x, y: (x < y) | (x > y), "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
FLOAT_PREDICATES = tuple(order + test for order in "ou" for test in _FLOAT_COMPARISONS) + ("ord", "uno")


@define("cmpf")
class CmpF(Comparison):
    """Float comparison to ``i1``. ``predicate``: ordered (false with a NaN) oeq one olt ole ogt oge,
    unordered (true with a NaN) ueq une ult ule ugt uge, and ord / uno (no / some NaN)."""

    lhs = operand(FLOAT)
    rhs = operand(FLOAT)
    predicate = attribute(FLOAT_PREDICATES)

    def evaluate(self, x, y):
        unordered = np.isnan(x) | np.isnan(y)
        if self.predicate in ("ord", "uno"):
            return unordered if self.predicate == "uno" else ~unordered
        with np.errstate(invalid="ignore"):
            holds = _FLOAT_COMPARISONS[self.predicate[1:]](x, y)
        return holds | unordered if self.predicate[0] == "u" else holds & ~unordered


@define("select")
class Select(Elementwise):
    """``condition ? true_value : false_value``, element by element."""

    condition = operand(BOOL)
    true_value = operand(NUMBER_OR_POINTER)
    false_value = operand(NUMBER_OR_POINTER)

    infer = gives_type_of(1)

    def check(self):
        same_operand_types(self, 1)

    def evaluate(self, condition, x, y):
        return np.where(condition, x, y).astype(x.dtype)

    def is_nonnegative(self, known):
        return known(self.true_value) and known(self.false_value)

    def axis_info(self, operands, nonnegative):
        return facts.one_of(*operands, T.shape_of(self.result.type))


@define("select_rarely")
class SelectRarely(Select):
    """``condition ? true_value : false_value``: what only ``true_value`` needs may be computed in a branch,
    which threads skip for whose elements the condition, which hardly ever does, does not hold."""
