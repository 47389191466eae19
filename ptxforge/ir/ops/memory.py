"""Pointers, loads and stores.

A pointer operand is a scalar pointer or a tensor of pointers; the other operands have its shape and layout.
Offsets of ``addptr`` are counted in elements. Offset arithmetic on ``i32`` that feeds an ``addptr`` must not
overflow: like other compilers for this language we fold constants through it.
"""

from __future__ import annotations

import numpy as np

from ptxforge.ir import definition as D
from ptxforge.ir import facts
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.support.errors import VerificationError
from ptxforge.support.machine import MAX_GRID

LOAD_CACHE = ("", ".ca", ".cg", ".cs", ".cv")
STORE_CACHE = ("", ".wb", ".cg", ".cs", ".wt")
EVICTION = ("", "evict_first", "evict_last")

_VOLATILE_READ = D.Effects(reads=frozenset({"global"}), other=True, may_wait=True)


@D.define("get_program_id", nonnegative_if=D.ALWAYS)
class GetProgramId(Operation):
    """This program's index along grid ``axis`` (0, 1, 2), as ``i32``."""

    axis = D.attribute(int)

    infer = D.gives(T.I32)

    def is_below(self, bound):
        op = bound.defining_op
        return isinstance(op, GetNumPrograms) and op.axis == self.axis

    def limits_in_grid(self, programs):
        return 0, min(programs, MAX_GRID[self.axis]) - 1


@D.define("get_num_programs", nonnegative_if=D.ALWAYS)
class GetNumPrograms(Operation):
    """The grid's size along ``axis`` (0, 1, 2), as ``i32``."""

    axis = D.attribute(int)

    infer = D.gives(T.I32)

    def limits_in_grid(self, programs):
        return 1, min(programs, MAX_GRID[self.axis])


@D.define("get_cta_rank", nonnegative_if=D.ALWAYS)
class GetCtaRank(Operation):
    """Which of its program's CTAs this one is, as ``i32``: of its rank 0, 1, … ``num_ctas`` - 1 the bits from
    number ``first`` on that count up to ``parts``, a power of two."""

    parts = D.attribute(int)
    first = D.attribute(int, 0)

    infer = D.gives(T.I32)

    @property
    def rank_bits(self):
        return self.parts - 1 << self.first


@D.define("addptr", traits=[D.SAME_MEMORY, D.ELEMENTWISE, D.ADDRESSING])
class AddPtr(Operation):
    """``pointer + offset`` elements. ``offset`` is signed, ``i32`` or ``i64``. ``deferred``
    (``choose_sequences``): of a scalar, the sum is computed where the region ends that gives it away."""

    pointer = D.operand(D.POINTER)
    offset = D.operand(D.INT)
    deferred = D.attribute(bool, False)

    infer = D.gives_type_of(0)

    def evaluate(self, pointer, offset):
        size = T.element_type(self.pointer.type).pointee.bytes
        return pointer + offset.astype("int64") * size

    def axis_info(self, operands, nonnegative):
        return facts.element_of(*operands, T.element_type(self.pointer.type).pointee.bytes)

    @property
    def addends(self):
        return tuple((value, 1) for value in self.operands)


@D.define("in_bounds", removed_by="lower_bounds", shows_operand_types=True)
class InBounds(Operation):
    """Which of the indices ``offset, offset + 1, …`` lie in a dimension of ``size`` elements: the 1-D ``i1``
    tensor of ``0 <= offset + i < size``, also where the sum overflows. Both operands are ``i32`` or ``i64``;
    ``size`` is not negative, and ``size - offset`` fits in 32 bits where both of them do."""

    offset = D.operand(D.SCALAR_INT)
    size = D.operand(D.SCALAR_INT)

    def evaluate(self, offset, size):
        index = int(offset) + np.arange(self.result.type.shape[0], dtype=object)
        return ((index >= 0) & (index < int(size))).astype(bool)

    def check(self):
        type = self.result.type
        if not isinstance(type, T.TensorType) or type.rank != 1 or type.element is not T.I1:
            raise VerificationError(f"'in_bounds' gives a 1-D tensor of i1, not {type}")


@D.define("load", effects=D.READS_GLOBAL, traits=[D.ELEMENTWISE, D.ANCHOR], shows_operand_types=True)
class Load(D.MemoryAccess):
    """Read memory where ``mask`` holds; elsewhere the result is ``other`` (undefined without one).
    A pointer to ``i1`` is loaded as ``i8``. ``boxed``: it was a load through a descriptor. ``owned``: of the
    threads that hold an element only its owner loads it; the others have 0, which nobody asks for."""

    mask = D.operand(D.BOOL, optional=True)
    other = D.operand(D.NUMBER_OR_POINTER, optional=True)
    cache = D.attribute(LOAD_CACHE, "")
    eviction = D.attribute(EVICTION, "")
    volatile = D.attribute(bool, False)
    boxed = D.attribute(bool, False)
    owned = D.attribute(bool, False)

    @classmethod
    def infer(cls, operands, attributes):
        return [T.like(operands[0], T.element_type(operands[0]).pointee)]

    def check(self):
        super().check()
        if self.other is not None and self.other.type is not self.result.type:
            raise VerificationError(f"'load' of {self.result.type} has 'other' of {self.other.type}")

    def get_effects(self):
        return _VOLATILE_READ if self.volatile else D.READS_GLOBAL

    def axis_info(self, operands, nonnegative):
        """Of equal addresses equal values."""
        return facts.unknown(self.result.type) if self.volatile else facts.pointwise(operands)


@D.define("store", effects=D.WRITES_GLOBAL, traits=[D.ELEMENTWISE, D.ANCHOR], shows_operand_types=True)
class Store(D.MemoryAccess):
    """Write ``value`` to memory, where ``mask`` holds."""

    value = D.operand(D.NUMBER_OR_POINTER)
    mask = D.operand(D.BOOL, optional=True)
    cache = D.attribute(STORE_CACHE, "")
    eviction = D.attribute(EVICTION, "")

    infer = D.gives()

    @property
    def stored(self):
        return self.value

    def check(self):
        super().check()
        pointee = T.element_type(self.pointer.type).pointee
        if T.element_type(self.value.type) is not pointee:
            raise VerificationError(f"'store' of {self.value.type} through {self.pointer.type}")


@D.define("barrier", effects=D.SIDE_EFFECT, traits=[D.MEETING])
class Barrier(Operation):
    """All threads of the program meet (``bar.sync``); writes before it are seen after it.
    ``tl.debug_barrier``, and what the barrier pass inserts between a write of shared memory and a read by
    other threads. With ``of_cluster`` those of all CTAs of the program meet (``barrier.cluster``)."""

    of_cluster = D.attribute(bool, False)

    infer = D.gives()
