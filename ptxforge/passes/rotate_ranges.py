"""Move the elements of a tile round until whole vectors of them are aligned in memory.

    %p = addptr %x, %row_offset                              (before)
    %i = make_range {start = 0, end = 1024}
    %q = addptr (splat %p), %i
    %v = load %q, %i < %n                                    one by one: what divides %row_offset is unknown

    %p = addptr %x, %row_offset                              (after)
    %s = andi (subi 0, %row_offset), 7                       elements before the first multiple of 16 bytes
    %i = rotated_range %s {start = 0, end = 1024, granule = 8}
    %q = addptr (splat %p), %i
    %v = load %q, %i < %n {guarded = 8}                      8 elements of one thread are 16 aligned bytes

Rows whose length nothing divides begin anywhere. Element ``p`` of the tile becomes element ``p + s`` of the
row, which is the ``p``-th after the row's first multiple of 16 bytes; the row's first ``s`` elements come
last, where most rows have ended. The last vector of the tile and the one in which the row ends are
incomplete: the accesses test for that (``vectorize_memory``); as a rule both belong to the last warp.

WHERE       A one-dimensional tile of which nobody sees the order: elementwise operations, reductions, loads
            and stores. (A reduction may take elements in any order; so its rounding depends on where the row
            lies.)
WHICH SHIFT Addresses are a sum of uniform terms and the range. Terms that the vector's size divides do not
            matter; all contiguous accesses of the tile must agree in what is left, which is then the shift.
MASKS       hold for the first few elements of a vector, if not for all or none.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, ORDERLESS, MemoryAccess
from ptxforge.ir.ops.arith import AndI, MulI, ShrUI, SubI
from ptxforge.ir.ops.cast import ExtSI, PtrToInt, TruncI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shape import MakeRange, RotatedRange, Splat
from ptxforge.ir.rewriter import constant_of
from ptxforge.layouts.encodings import WARP_SIZE
from ptxforge.passes.analysis.axis_info import FactsWithinVectors, is_prefix
from ptxforge.passes.analysis.components import Components
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.properties import is_memory_access
from ptxforge.passes.vectorize_memory import may_be_guarded
from ptxforge.support import machine
from ptxforge.support.target import Target


def rotate_ranges(function: Function, target: Target) -> bool:
    """Apply the rewriting above to every tile that qualifies."""
    if not function.has(MakeRange) or not any(map(_is_of_rows, function.walk(MemoryAccess))):
        return False
    components = Components(function)
    tiles: dict[Value, list[Operation]] = {}
    for op in function.walk():
        tensors = [v for v in (*op.operands, *op.results) if isinstance(v.type, T.TensorType)]
        if tensors:
            tiles.setdefault(components.find(tensors[0]), []).append(op)
    facts = functools.cache(lambda: kept(FactsWithinVectors, function))
    return any([_rotate(function, operations, facts) for operations in tiles.values()])


def _is_of_rows(op: MemoryAccess) -> bool:
    """Whether it is an access to elements in one dimension: only tiles that have one may qualify."""
    return is_memory_access(op) and len(op.pointer.type.shape) == 1


def _rotate(
    function: Function, operations: list[Operation], within: Callable[[], FactsWithinVectors]
) -> bool:
    """Rotate the tile that consists of these operations, if it can be."""
    ranges = [op for op in operations if isinstance(op, MakeRange)]
    if not ranges or any(op.parent is not function.body for op in ranges):
        return False
    size = ranges[0].result.type.shape[0]
    if not all(_ignores_order(op, size) for op in operations):
        return False
    accesses = [op for op in operations if is_memory_access(op)]
    share = size // (WARP_SIZE * function.attributes["num_warps"])
    unit = _elements_per_vector(accesses, share)
    if unit < 2 or share > unit * machine.GUARDED_VECTORS:
        return False
    facts = within()
    wide = [op for op in accesses if facts[op.pointer].contiguity[0] > 1]
    if all(facts[op.pointer].divisibility[0] >= machine.VECTOR_BYTES for op in wide):
        return False
    if not all(may_be_guarded(op) and _has_prefix(op, unit, facts) for op in wide):
        return False
    misalignments = {_misalignment(op, unit, facts) for op in wide}
    if len(misalignments) != 1 or None in misalignments:
        return False
    (misalignment,) = misalignments
    first = next(op for op in function.body.of(MakeRange) if op in ranges)
    if not misalignment.matters or not all(
        _hoistable(term.value, function.body) for term in misalignment.terms
    ):
        return False
    for term in misalignment.terms:
        _hoist(term.value, first)
    shift = _shift(Builder.at(first), misalignment, unit)
    for op in ranges:
        rotated = Builder.at(op).value(
            RotatedRange, shift, type=op.result.type, start=op.start, end=op.end, granule=unit
        )
        op.replace_with([rotated])
    for op in operations:
        _drop_hints(op)
    for op in wide:
        op.guarded = min(unit, machine.VECTOR_BYTES // _bytes(op))
    return True


def _drop_hints(op: Operation) -> None:
    """Forget what the user promised of a tensor's runs: its elements stand elsewhere now."""
    if any(isinstance(v.type, T.TensorType) for v in op.results):
        for name in ("divisibility", "contiguity", "constancy"):
            op.attributes.pop(name, None)


def _ignores_order(op: Operation, size: int) -> bool:
    """Whether an operation means the same when the elements of all its tensors are moved alike."""
    if not op.traits & {ORDERLESS, ELEMENTWISE}:
        return False
    if op.get_effects().is_atomic:
        return False
    return all(
        v.type.shape == (size,) for v in (*op.operands, *op.results) if isinstance(v.type, T.TensorType)
    )


def _has_prefix(access: Operation, unit: int, facts: FactsWithinVectors) -> bool:
    """Whether the mask, if there is one, holds for the first few elements of every vector."""
    return access.mask is None or is_prefix(access.mask, 0, unit, facts)


def _bytes(access: Operation) -> int:
    return access.pointer.type.element.pointee.bytes


def _elements_per_vector(accesses: list[Operation], share: int) -> int:
    """Elements in the vectors of the narrowest type, as far as a thread has them."""
    return min(max((machine.VECTOR_BYTES // _bytes(op) for op in accesses), default=1), share)


# -- where a tile lies -----------------------------------------------------------------------------------


class Term(NamedTuple):
    """``factor`` times an integer, or the address of a pointer, in elements of ``size`` bytes."""

    value: Value
    factor: int
    size: int


class Misalignment(NamedTuple):
    """Terms whose sum, plus a constant, is congruent to the place of a tile's first element modulo a
    vector's."""

    terms: frozenset[Term]
    constant: int

    @property
    def matters(self) -> bool:
        return bool(self.terms) or self.constant != 0


def _misalignment(access: Operation, unit: int, facts: FactsWithinVectors) -> Misalignment | None:
    """How far above a multiple of ``unit`` elements an access begins;
    None when that is no sum of uniform terms."""
    sum = _Sum(unit, _bytes(access), facts)
    if not sum.add(access.pointer, 1) or sum.ranges != 1:
        return None
    terms = frozenset(Term(v, factor, sum.size_of(v)) for v, factor in sum.factors.items() if factor % unit)
    return Misalignment(terms, sum.constant % unit)


class _Sum:
    """Collects the terms of an address, in elements."""

    def __init__(self, unit: int, size: int, facts: FactsWithinVectors):
        self.unit, self.size, self.facts = unit, size, facts
        self.factors: Counter[Value] = Counter()
        self.constant = 0
        self.ranges = 0

    def size_of(self, value: Value) -> int:
        return self.size if isinstance(value.type, T.PointerType) else 1

    def add(self, value: Value, factor: int) -> bool:
        """Add ``factor`` times a value; False when it is neither uniform nor a range."""
        value = _before_loop(value, self)
        op = value.defining_op
        number = constant_of(value)
        if number is not None:
            self.constant += factor * int(number)
            return True
        addends = op.addends if op is not None else ()
        if addends:
            return all(self.add(v, sign * factor) for v, sign in addends)
        if isinstance(op, (ExtSI, Splat)):
            return self.add(op.operands[0], factor)
        if isinstance(op, MakeRange):
            self.ranges += factor
            self.constant += factor * op.start
            return factor == 1
        return self._add_scalar(value, factor)

    def _add_scalar(self, value: Value, factor: int) -> bool:
        if isinstance(value.type, T.TensorType):
            return False
        if isinstance(value.type, T.PointerType):
            if self.facts[value].divisibility[0] % min(machine.VECTOR_BYTES, self.unit * self.size):
                self.factors[value] += factor
            return True
        if self.facts[value].divisibility[0] * factor % self.unit:
            self.factors[value] += factor
        return value.type in (T.I32, T.I64)


def _before_loop(value: Value, sum: _Sum) -> Value:
    """The initial value of a scalar that a ``for`` only ever advances by multiples of a vector."""
    while isinstance(value, BlockArgument) and isinstance(value.block.parent_op, For):
        loop = value.block.parent_op
        index = loop.carried_index(value)
        if index is None:
            return value
        initial, following = loop.carried_sources(index)
        step = following.defining_op
        addends = step.addends if step is not None else ()
        if len(addends) != 2 or addends[0][0] is not value or addends[1][1] < 0:
            return value
        if sum.facts[step.operands[1]].divisibility[0] % sum.unit:
            return value
        value = initial
    return value


# -- the shift -------------------------------------------------------------------------------------------


def _hoistable(value: Value, body: Block) -> bool:
    """Whether a scalar is a parameter or computed at the function's top level from parameters alone."""
    if value.owner_block is not body:
        return False
    op = value.defining_op
    if op is None:
        return True
    return op.is_speculatable and not op.regions and all(_hoistable(v, body) for v in op.operands)


def _hoist(value: Value, place: Operation) -> None:
    """Move what computes ``value`` before ``place``, unless it is there already."""
    op = value.defining_op
    if op is None or op.is_before_in_block(place):
        return
    for operand in op.operands:
        _hoist(operand, place)
    op.move_before(place)


def _shift(at: Builder, misalignment: Misalignment, unit: int) -> Value:
    """Minus the sum of the terms, modulo ``unit``, as ``i32``."""
    total = at.constant(-misalignment.constant, T.I32)
    for term in sorted(misalignment.terms, key=_position):
        value = _low_word(at, term)
        if term.factor != 1:
            value = at.value(MulI, value, at.constant(term.factor % unit, T.I32))
        total = at.value(SubI, total, value)
    return at.value(AndI, total, at.constant(unit - 1, T.I32))


def _position(term: Term) -> tuple[int, int]:
    """A place in the function: parameters, then results in textual order."""
    op = term.value.defining_op
    if op is None:
        return 0, term.value.index
    earlier = 0
    while (op := op.previous) is not None:
        earlier += 1
    return 1, earlier


def _low_word(at: Builder, term: Term) -> Value:
    """The low 32 bits of a term, in elements."""
    value = term.value
    if isinstance(value.type, T.PointerType):
        value = at.value(PtrToInt, value, type=T.I64)
        if term.size > 1:
            value = at.value(ShrUI, value, at.constant(term.size.bit_length() - 1, T.I64))
    return value if value.type is T.I32 else at.value(TruncI, value, type=T.I32)
