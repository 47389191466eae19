"""What follows from the numbers between which values lie.

    %a = extsi %i : (tensor<64xi32>) -> tensor<64xi64>    of %i within 0 … 127              (before)
    %b = addi %a, %one : tensor<64xi64>
    %c = minsi %b, %last : tensor<64xi64>
    %p = addptr %base, %c
    %m = cmpi slt, %c, %many
    %w = maximumf %f, %zero : tensor<64xf32>              of %f within -0.25 … 63.25

    %b = addi %i, %one : tensor<64xi32>                                                     (after)
    %c = minsi %b, %last : tensor<64xi32>
    %p = addptr %base, %c
    %m = constant {value = true}
    %w = maxnumf %f, %zero : tensor<64xf32>

NARROW   64-bit integers that fit 32 bits are computed in 32: an operation on 64 bits takes two instructions
         or more, and two registers. Where they come from, and whoever needs 64 bits, converts.
COMBINED What reductions and scans choose among such integers, or add up, is one as well: it is combined in 32
         bits, which takes one word in place of two between threads.
DECIDED  Comparisons of numbers that do not overlap.
NATURAL  Quotients and remainders of indices that are not negative need no correction for a sign. An index is
         a program's place times 2048 at most, and something: it wraps where there are more elements than it
         can count. For how many programs none does, the function says: ``most_programs = 2097152``. Launches
         of more take a variant with ``any_grid``, for which only what never wraps is natural.
NUMBERS  A minimum or maximum of floats that are no NaN is the one that does not ask: between 0 and 1 it is
         part of another instruction.

Limits are followed through as many operations as there are: a search in a table of 2**k entries, written out,
computes with 64-bit indices k times. What becomes constant by it is folded (``canonicalize``). Kernels with
products stay as they are: they have little to gain outside of their loops, and registers to lose in them.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ANY_WIDTH, REARRANGING
from ptxforge.ir.limits import Limits, fit, of_type
from ptxforge.ir.ops.arith import CmpI, MaximumF, MaxNumF, MinimumF, MinNumF, SignedDivision
from ptxforge.ir.ops.cast import ExtSI, IntegerCast, SIToFP, TruncI
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import AddPtr
from ptxforge.ir.ops.reduce import Combining, Reduce, Scan
from ptxforge.ir.rewriter import constant_of
from ptxforge.passes.analysis.sign import KnownLimits
from ptxforge.passes.canonicalize import canonicalize
from ptxforge.passes.rules.arith import decided
from ptxforge.support.machine import MAX_GRID
from ptxforge.support.target import Target

PROGRAMS = 1 << 20
"""Programs for which an index does not wrap. (What wraps for fewer may be a hash.)"""
_COUNTS = (MAX_GRID[0], *(1 << bits for bits in range(30, 20, -1)), PROGRAMS)
"""For how many programs it is asked, the most that there can be first."""


def use_limits(function: Function, target: Target) -> bool:
    """Do NARROW, DECIDED and NUMBERS, each operation once, in the order of the text; then NATURAL."""
    if function.has(Product):
        return False
    changed = False
    if any(map(_may_gain, function.walk())):
        rewriter = _Rewriter()
        for op in function.walk():
            rewriter.visit(op)
        changed = rewriter.changed and (canonicalize(function, target) or True)
    return _mark_natural(function) or changed


def _mark_natural(function: Function) -> bool:
    """Do NATURAL."""
    of_tensors = [op for op in function.walk(SignedDivision) if isinstance(op.result.type, T.TensorType)]
    divisions = [op for op in of_tensors if not op.natural]
    if not divisions:
        return False
    is_for_any = function.attributes.get("any_grid", False)
    found = _natural(function, divisions, MAX_GRID[0] if is_for_any else PROGRAMS)
    if not found:
        return False
    for op in found:
        op.natural = True
    most = next(most for most in _COUNTS if len(_natural(function, found, most)) == len(found))
    if most < MAX_GRID[0]:
        function.attributes["most_programs"] = most
    return True


def _natural(function: Function, divisions: list[Operation], programs: int) -> list[Operation]:
    """Those of the ``divisions`` whose dividend is not negative where there are so many ``programs``."""
    known = KnownLimits(programs)
    for op in function.walk():
        known.passed(op)
    return [op for op in divisions if (found := known.of(op.lhs)) is not None and found[0] >= 0]


def _may_gain(op: Operation) -> bool:
    is_wide = ANY_WIDTH in op.traits and T.element_type(op.result.type) is T.I64
    return is_wide or _EXTREMA.get(type(op)) is not None


class _Rewriter:
    """``narrow`` has 32-bit values that are equal to 64-bit ones; ``computed`` those of the latter that are
    now made from them."""

    def __init__(self) -> None:
        self.known = KnownLimits()
        self.narrow: dict[Value, Value] = {}
        self.computed: set[Value] = set()
        self.changed = False

    def visit(self, op: Operation) -> None:
        self.known.passed(op)
        rule = _RULES.get(type(op)) or _EXTREMA.get(type(op))
        if rule is not None:
            rule(self, op)
        elif len(op.results) == 1 and T.element_type(op.result.type) is T.I64:
            self.in_32_bits(op)

    def replace(self, op: Operation, value: Value) -> None:
        """Let ``value`` stand for the result of ``op``."""
        self.known.found[value] = self.known.of(op.result)
        op.result.replace_all_uses_with(value)
        op.erase()
        self.changed = True

    # -- NARROW --------------------------------------------------------------------------------------------

    def in_32_bits(self, op: Operation) -> None:
        """Where all 32-bit numbers are possible, nothing shows that none wrapped: such a result stays."""
        if not self._fits(op.result) or self.known.of(op.result) == of_type(T.I32):
            return
        narrow = self._again(op) if ANY_WIDTH in op.traits or REARRANGING in op.traits else None
        if narrow is None:
            return
        wide = Builder.after(narrow.defining_op).value(ExtSI, narrow, type=op.result.type)
        narrow.hint = op.result.hint
        self.narrow[wide] = narrow
        self.computed.add(wide)
        self.replace(op, wide)

    def _again(self, op: Operation) -> Value | None:
        """What ``op`` makes, in 32 bits; None where that is not worth while."""
        wide = [v for v in op.operands if T.element_type(v.type) is T.I64]
        if wide and not (all(map(self._fits, wide)) and any(v in self.narrow or _is_short(v) for v in wide)):
            return None
        operands = [self._narrowed(v) if v in wide else v for v in op.operands]
        type_ = T.like(op.result.type, T.I32)
        return Builder.at(op).value(type(op), *operands, type=type_, **op.attributes)

    def _fits(self, value: Value) -> bool:
        found = self.known.of(value)
        return found is not None and fit(found, T.I32)

    def _narrowed(self, value: Value) -> Value:
        if value not in self.narrow:
            self.narrow[value] = self._converted(value)
        return self.narrow[value]

    def _converted(self, value: Value) -> Value:
        """``value`` in 32 bits: a constant, what was extended, or what is cut off."""
        op, number, type_ = value.defining_op, constant_of(value), T.like(value.type, T.I32)
        at = Builder.after(op) if op is not None else Builder.at(value.owner_block.first)
        if number is not None:
            return at.constant(number, type_)
        if not _is_extended(value):
            return at.value(TruncI, value, type=type_)
        return op.x if op.x.type is type_ else at.value(type(op), op.x, type=type_)

    def use(self, op: Operation) -> None:
        """An offset, and what becomes a float, means the same in 32 bits."""
        for index, value in enumerate(op.operands):
            if value in self.computed:
                op.set_operand(index, self.narrow[value])
                self.changed = True

    # -- COMBINED ------------------------------------------------------------------------------------------

    def combine(self, op: Combining) -> None:
        """In 32 bits, where all that comes up fits. (Of a sum the region adds two at most.)"""
        for index, value in enumerate(op.inputs):
            if T.element_type(value.type) is not T.I64 or not (value in self.narrow or _is_short(value)):
                continue
            found = op.limits_of(index, self.known.of)
            if found is not None and fit((2 * min(found[0], 0), 2 * max(found[1], 0)), T.I32):
                self._combine_in_32_bits(op, index, found)

    def _combine_in_32_bits(self, op: Combining, index: int, found: Limits) -> None:
        op.set_operand(index, self._narrowed(op.inputs[index]))
        block, count = op.combine, len(op.inputs)
        first, last = block.first, block.last
        for argument in (block.arguments[index], block.arguments[index + count]):
            self._widen(argument, Builder.at(first), found)
        last.set_operand(index, Builder.at(last).value(TruncI, last.operands[index], type=T.I32))
        self._widen(op.results[index], Builder.after(op), found)
        self.changed = True

    def _widen(self, value: Value, at: Builder, found: Limits) -> None:
        """Let ``value`` have 32 bits; who used it gets it extended."""
        type_ = value.type
        value.type = T.like(type_, T.I32)
        wide = at.value(ExtSI, value, type=type_)
        value.replace_all_uses_with(wide)
        wide.defining_op.set_operand(0, value)
        self.narrow[wide] = value
        self.computed.add(wide)
        self.known.found |= {wide: found, value: found}

    # -- DECIDED, NUMBERS ----------------------------------------------------------------------------------

    def compare(self, op: CmpI) -> None:
        """True or false, where it is known."""
        holds = decided(op.predicate, *map(self.known.of, op.operands))
        if holds is not None:
            self.replace(op, Builder.at(op).constant(holds, op.result.type))

    def greater(self, op: MaximumF) -> None:
        """A maximum that does not ask for NaN."""
        self._of_numbers(op, MaxNumF)

    def less(self, op: MinimumF) -> None:
        """A minimum that does not ask for NaN."""
        self._of_numbers(op, MinNumF)

    def _of_numbers(self, op: Operation, kind: type[Operation]) -> None:
        if all(self.known.of(v) is not None for v in op.operands):
            number = Builder.at(op).value(kind, *op.operands)
            number.hint = op.result.hint
            self.replace(op, number)


def _is_short(value: Value) -> bool:
    return _is_extended(value) or constant_of(value) is not None


def _is_extended(value: Value) -> bool:
    op = value.defining_op
    return isinstance(op, IntegerCast) and bool(op.widens)


_RULES: dict[type[Operation], Callable[[_Rewriter, Operation], None]] = {
    CmpI: _Rewriter.compare, AddPtr: _Rewriter.use, SIToFP: _Rewriter.use,
    Reduce: _Rewriter.combine, Scan: _Rewriter.combine,
}  # fmt: skip
_EXTREMA: dict[type[Operation], Callable[[_Rewriter, Operation], None]] = {
    MaximumF: _Rewriter.greater, MinimumF: _Rewriter.less,
}  # fmt: skip
