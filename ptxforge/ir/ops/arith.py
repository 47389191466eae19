"""Integer and float arithmetic, comparison and selection.

All act on scalars and, element by element, on tensors of one shape and layout. Integers are signless: where
the sign matters there are two operations (``divsi``, ``divui``). Integer arithmetic wraps; division
truncates towards zero; a shift by the width or more gives 0 (``shrsi``: the sign).
"""

from __future__ import annotations

import numpy as np

from ptxforge.ir import definition as D
from ptxforge.ir import facts
from ptxforge.ir import limits as between
from ptxforge.ir import types as T
from ptxforge.ir.ops.extrema import extremum
from ptxforge.ir.ops.integer_division import quotient, remainder

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


class BinaryInt(D.Elementwise):
    """Base of integer operations ``(T, T) -> T``."""

    lhs = D.operand(D.INT)
    rhs = D.operand(D.INT)


class OneOfTwo(BinaryInt):
    """Base of integer operations whose result is divided by whatever divides both operands."""

    def axis_info(self, operands, nonnegative):
        return facts.pointwise(operands, facts.both_divide(*operands))


class BinaryFloat(D.Elementwise):
    """Base of float operations ``(T, T) -> T``. ``function`` is the numpy function."""

    lhs = D.operand(D.FLOAT)
    rhs = D.operand(D.FLOAT)
    function = None

    def limits(self, known):
        return between.rounded(super().limits(known), self.result.type)

    def evaluate(self, x, y):
        with np.errstate(all="ignore"):
            return type(self).function(x, y).astype(x.dtype, copy=False)


class Comparison(D.Elementwise):
    """Base of operations ``(T, T) -> i1``, a scalar or a tensor as ``T`` is."""

    @classmethod
    def infer(cls, operands, attributes):
        return [T.like(operands[0], T.I1)]


# -- integers --------------------------------------------------------------------------------------------


@D.define("addi", traits=[D.COMMUTATIVE, D.ADDRESSING, D.ANY_WIDTH], nonnegative_if=D.ALL, neutral=0)
class AddI(BinaryInt):
    """Integer sum, wrapping."""

    def evaluate(self, x, y):
        return _wrapping(np.add, x, y)

    def axis_info(self, operands, nonnegative):
        return facts.sum_of(*operands)

    @property
    def addends(self):
        return tuple((value, 1) for value in self.operands)


@D.define("subi", traits=[D.ADDRESSING, D.ANY_WIDTH])
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


@D.define(
    "muli", traits=[D.COMMUTATIVE, D.ADDRESSING, D.ANY_WIDTH], nonnegative_if=D.ALL, neutral=1,
    limits=between.product,
)  # fmt: skip
class MulI(BinaryInt):
    """Integer product, wrapping."""

    def evaluate(self, x, y):
        return _wrapping(np.multiply, x, y)

    def axis_info(self, operands, nonnegative):
        x, y = operands
        if 1 in (x.constant, y.constant):
            return y if x.constant == 1 else x
        divisibility = [min(facts.HIGHEST, x.divides(d, 1) * y.divides(d, 1)) for d in range(x.rank)]
        return facts.pointwise(operands, divisibility)


class SignedDivision(BinaryInt):
    """Base of quotients and remainders of signed integers. ``natural``: the dividend is known not to be
    negative (``use_limits``)."""

    natural = D.attribute(bool, False)


@D.define("divsi", cost=D.EXPENSIVE, traits=[D.ANY_WIDTH], nonnegative_if=D.FIRST, limits=between.quotient)
class DivSI(SignedDivision):
    """Signed division, truncating."""

    def evaluate(self, x, y):
        return quotient(x, y)

    def axis_info(self, operands, nonnegative):
        # Truncation makes -4 / 4 differ from -3 / 4: a run that starts below 0 breaks.
        return facts.divided(operands, operands[1].constant if nonnegative(self.lhs) else 0)


@D.define("divui", cost=D.EXPENSIVE, nonnegative_if=D.FIRST)
class DivUI(BinaryInt):
    """Unsigned division."""

    def evaluate(self, x, y):
        return quotient(as_unsigned(x), as_unsigned(y)).view(x.dtype)

    def axis_info(self, operands, nonnegative):
        return facts.divided(operands, operands[1].constant)


class Remainder(BinaryInt):
    """Base of remainders. ``mostly_inside``: in most threads it is the dividend, dividing is rare code.
    ``by_quotient``: it is what the quotient of the same numbers leaves, which is computed anyway."""

    mostly_inside = D.attribute(bool, False)
    by_quotient = D.attribute(bool, False)

    @property
    def quotients(self) -> list[D.Operation]:
        """What divides the same numbers in the same way."""
        kind = DivSI if type(self) is RemSI else DivUI
        return [user for user in self.lhs.users if type(user) is kind and user.rhs is self.rhs]


@D.define("remsi", cost=D.EXPENSIVE, traits=[D.ANY_WIDTH], nonnegative_if=D.FIRST, limits=between.remainder)
class RemSI(SignedDivision, Remainder):
    """Signed remainder, with the dividend's sign."""

    def evaluate(self, x, y):
        return remainder(x, y)

    def axis_info(self, operands, nonnegative):
        return facts.remainder(*operands, nonnegative(self.lhs))


@D.define("remui", cost=D.EXPENSIVE, nonnegative_if=D.FIRST)
class RemUI(Remainder):
    """Unsigned remainder."""

    def evaluate(self, x, y):
        return remainder(as_unsigned(x), as_unsigned(y)).view(x.dtype)

    def axis_info(self, operands, nonnegative):
        return facts.remainder(*operands, True)


@D.define(
    "andi", traits=[D.COMMUTATIVE, D.ADDRESSING, D.ANY_WIDTH], nonnegative_if=D.ANY_OF, neutral=-1,
    limits=between.conjunction,
)  # fmt: skip
class AndI(BinaryInt):
    """Bitwise and."""

    def evaluate(self, x, y):
        return x & y

    def axis_info(self, operands, nonnegative):
        for x, mask in (operands, operands[::-1]):
            if mask.constant is not None and mask.constant > 0 and (mask.constant + 1) & mask.constant == 0:
                return facts.low_bits(x, mask.constant + 1)
        # The low zero bits of either operand are zero in the result.
        x, y = operands
        return facts.pointwise(operands, [max(x.divides(d, 1), y.divides(d, 1)) for d in range(x.rank)])


@D.define("ori", traits=[D.COMMUTATIVE, D.ANY_WIDTH], nonnegative_if=D.ALL, neutral=0, limits=between.either)
class OrI(OneOfTwo):
    """Bitwise or."""

    def evaluate(self, x, y):
        return x | y


@D.define("xori", traits=[D.COMMUTATIVE, D.ANY_WIDTH], neutral=0, limits=between.either)
class XorI(BinaryInt):
    """Bitwise exclusive or."""

    def evaluate(self, x, y):
        return x ^ y


def _shift(operation, x: np.ndarray, y: np.ndarray, beyond: np.ndarray) -> np.ndarray:
    """Shift by an unsigned amount; amounts of the width or more give ``beyond``."""
    bits = 1 if x.dtype == np.bool_ else x.dtype.itemsize * 8
    amount = as_unsigned(y)
    outside = amount >= bits
    inside = np.where(outside, np.zeros_like(amount), amount).astype(x.dtype)
    return np.where(outside, beyond, operation(x, inside)).astype(x.dtype)


@D.define("shli", traits=[D.ANY_WIDTH], nonnegative_if=D.ALL, limits=between.shifted_left)
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


@D.define("shrsi", traits=[D.ANY_WIDTH], nonnegative_if=D.ALL, limits=between.shifted_right)
class ShrSI(BinaryInt):
    """Arithmetic shift right; the sign when the amount is the width or more."""

    def evaluate(self, x, y):
        return _shift(np.right_shift, x, y, np.where(as_signed(x) < 0, ~np.zeros_like(x), np.zeros_like(x)))

    def axis_info(self, operands, nonnegative):
        places = operands[1].constant
        return facts.divided(operands, 1 << places if places is not None and 0 <= places < 31 else 0)


@D.define("shrui", nonnegative_if=D.FIRST)
class ShrUI(BinaryInt):
    """Logical shift right; 0 when the amount is the width or more."""

    def evaluate(self, x, y):
        return _shift(np.right_shift, as_unsigned(x), y, as_unsigned(np.zeros_like(x))).view(x.dtype)

    axis_info = ShrSI.axis_info


@D.define("minsi", traits=[D.COMMUTATIVE, D.ANY_WIDTH], nonnegative_if=D.ALL, limits=between.least)
class MinSI(OneOfTwo):
    """Signed minimum."""

    def evaluate(self, x, y):
        return np.minimum(as_signed(x), as_signed(y)).astype(x.dtype)

    @property
    def neutral(self):
        return (1 << (T.element_type(self.result.type).bits - 1)) - 1


@D.define("maxsi", traits=[D.COMMUTATIVE, D.ANY_WIDTH], nonnegative_if=D.ANY_OF, limits=between.greatest)
class MaxSI(OneOfTwo):
    """Signed maximum."""

    def evaluate(self, x, y):
        return np.maximum(as_signed(x), as_signed(y)).astype(x.dtype)

    @property
    def neutral(self):
        return -(1 << (T.element_type(self.result.type).bits - 1))


@D.define("minui", traits=[D.COMMUTATIVE], neutral=-1)
class MinUI(OneOfTwo):
    """Unsigned minimum."""

    def evaluate(self, x, y):
        return np.minimum(as_unsigned(x), as_unsigned(y)).view(x.dtype)


@D.define("maxui", traits=[D.COMMUTATIVE], neutral=0)
class MaxUI(OneOfTwo):
    """Unsigned maximum."""

    def evaluate(self, x, y):
        return np.maximum(as_unsigned(x), as_unsigned(y)).view(x.dtype)


@D.define("mulhui", traits=[D.COMMUTATIVE])
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


@D.define("cmpi", traits=[D.ADDRESSING])
class CmpI(Comparison):
    """Integer (or pointer) comparison to ``i1``. ``predicate``:
    eq ne, signed slt sle sgt sge, unsigned ult ule ugt uge. ``differences_from`` so many sums of one value
    and constants on that a thread compares with one bound, ``value + constant < bound`` is
    ``constant < bound - value`` (``choose_sequences``); 0: never."""

    lhs = D.operand(D.NUMBER_OR_POINTER)
    rhs = D.operand(D.NUMBER_OR_POINTER)
    predicate = D.attribute(tuple(_INTEGER_COMPARISONS))
    differences_from = D.attribute(int, 0)

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


@D.define("addf", traits=[D.COMMUTATIVE], neutral=-0.0)
class AddF(BinaryFloat):
    """Float sum, round to nearest even."""

    function = np.add
    addends = AddI.addends


@D.define("subf")
class SubF(BinaryFloat):
    """Float difference, round to nearest even."""

    function = np.subtract
    addends = SubI.addends


@D.define("mulf", traits=[D.COMMUTATIVE], neutral=1.0)
class MulF(BinaryFloat):
    """Float product, round to nearest even."""

    function = np.multiply

    def limits(self, known):
        return between.rounded(between.product(*map(known, self.operands)), self.result.type)


@D.define("divf", cost=D.EXPENSIVE)
class DivF(BinaryFloat):
    """Float quotient: for f32 within 2 ulp (``div.full.f32``), for f64 exact. ``div_rn`` is the IEEE one.
    From ``reciprocal_from`` dividends of a thread on (0: never) a divisor's reciprocal is computed once."""

    reciprocal_from = D.attribute(int, 0)
    function = np.divide


@D.define("remf", cost=D.EXPENSIVE)
class RemF(BinaryFloat):
    """C's ``fmod``: exact, with the dividend's sign."""

    function = np.fmod


@D.define("minnumf", traits=[D.COMMUTATIVE], neutral=np.nan, limits=between.least)
class MinNumF(BinaryFloat):
    """Minimum; a NaN loses against a number."""

    function = extremum(np.fmin)


@D.define("maxnumf", traits=[D.COMMUTATIVE], neutral=np.nan, limits=between.greatest)
class MaxNumF(BinaryFloat):
    """Maximum; a NaN loses against a number."""

    function = extremum(np.fmax)


@D.define("minimumf", traits=[D.COMMUTATIVE], neutral=np.inf, limits=between.least)
class MinimumF(BinaryFloat):
    """Minimum; a NaN wins."""

    function = extremum(np.minimum)


@D.define("maximumf", traits=[D.COMMUTATIVE], neutral=-np.inf, limits=between.greatest)
class MaximumF(BinaryFloat):
    """Maximum; a NaN wins."""

    function = extremum(np.maximum)


_FLOAT_COMPARISONS = {
    "eq": np.equal, "ne": lambda x, y: (x < y) | (x > y), "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
FLOAT_PREDICATES = tuple(order + test for order in "ou" for test in _FLOAT_COMPARISONS) + ("ord", "uno")


@D.define("cmpf")
class CmpF(Comparison):
    """Float comparison to ``i1``. ``predicate``: ordered (false with a NaN) oeq one olt ole ogt oge,
    unordered (true with a NaN) ueq une ult ule ugt uge, and ord / uno (no / some NaN)."""

    lhs = D.operand(D.FLOAT)
    rhs = D.operand(D.FLOAT)
    predicate = D.attribute(FLOAT_PREDICATES)

    def evaluate(self, x, y):
        unordered = np.isnan(x) | np.isnan(y)
        if self.predicate in ("ord", "uno"):
            return unordered if self.predicate == "uno" else ~unordered
        with np.errstate(invalid="ignore"):
            holds = _FLOAT_COMPARISONS[self.predicate[1:]](x, y)
        return holds | unordered if self.predicate[0] == "u" else holds & ~unordered


@D.define("select", traits=[D.ANY_WIDTH])
class Select(D.Elementwise):
    """``condition ? true_value : false_value``, element by element."""

    condition = D.operand(D.BOOL)
    true_value = D.operand(D.NUMBER_OR_POINTER)
    false_value = D.operand(D.NUMBER_OR_POINTER)

    infer = D.gives_type_of(1)
    alternatives = property(lambda self: (self.true_value, self.false_value))

    def check(self):
        D.same_operand_types(self, 1)

    def evaluate(self, condition, x, y):
        return np.where(condition, x, y).astype(x.dtype)

    def is_nonnegative(self, known):
        return known(self.true_value) and known(self.false_value)

    def axis_info(self, operands, nonnegative):
        return facts.one_of(*operands, T.shape_of(self.result.type))

    def limits(self, known):
        return between.hull(known(self.true_value), known(self.false_value))


@D.define("select_rarely")
class SelectRarely(Select):
    """``condition ? true_value : false_value``: what only ``true_value`` needs may be computed in a branch,
    which threads skip for whose elements the condition, which hardly ever does, does not hold."""
