"""Shared memory and asynchronous copies into it.

A ``memdesc`` names a tile in shared memory. ``allocate_shared`` gives every ``local_alloc`` its ``offset`` in
bytes and ``insert_barriers`` puts a ``barrier`` wherever one thread reads what another wrote.
"""

from __future__ import annotations

import numpy as np

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.views import View, access_of, matrices_of, plan_of_copy, view_of
from ptxforge.layouts.banks import SharedAccess
from ptxforge.layouts.encodings import DotOperand
from ptxforge.layouts.mma_atoms import LdMatrix
from ptxforge.support.errors import VerificationError

_COPY = D.Effects(reads=frozenset({"global"}), writes=frozenset({"shared"}), other=True, starts=D.COPIES)


@D.define("local_alloc", effects=D.WRITES_SHARED, traits=[D.ALLOCATES], shows_operand_types=True)
class LocalAlloc(Operation):
    """Shared memory for a tile, holding ``value`` if given. The memory lives from here to its last use. The
    allocation pass sets ``offset`` (bytes) and, for several buffers that do not lie next to each other,
    ``pitch``: the bytes from the beginning of one to that of the next. A loop's tile with ``buffers`` is to
    be stored to so many in front of the loop, in turn (``passes/running_products.py``)."""

    value = D.operand(D.TENSOR, optional=True)
    buffers = D.attribute(int, 0)
    offset = D.attribute(int, -1)
    pitch = D.attribute(int, 0)

    def check(self):
        type = self.result.type
        if self.value is None and not type.mutable:
            raise VerificationError("'local_alloc' without a value must be mutable")
        value = self.value.type if self.value is not None else type
        if (value.shape, value.element) != (type.shape, type.element):
            raise VerificationError(f"'local_alloc' of {self.value.type} as {type}")

    def result_dim(self, index, dim):
        return dim


@D.define("local_load", effects=D.READS_SHARED, traits=[D.ANCHOR], shows_operand_types=True)
class LocalLoad(D.Piecewise):
    """Read a tile from shared memory into registers (``ldmatrix`` where the layouts admit it)."""

    source = D.operand(D.MEMDESC)
    token = D.operand(D.COPY_TOKEN, optional=True)

    @property
    def may_wait(self):
        """What a product takes is read when it takes it."""
        return isinstance(self.result.type.layout, DotOperand)

    def plan(self) -> LdMatrix | SharedAccess:
        """How threads read."""
        type, view = self.result.type, view_of(self.source)
        return matrices_of(type, view) or access_of(type, view)

    def pieces(self):
        plan = self.plan()
        if isinstance(plan, LdMatrix):
            return [tuple(r for word in one.registers for r in word) for one in plan.loads]
        copies = plan.copies()
        return [tuple(r for source in one.registers for r in copies[source]) for one in plan.accesses]

    def check(self):
        source, result = self.source.type, self.result.type
        if (source.shape, source.element) != (result.shape, result.element):
            raise VerificationError(f"'local_load' of {source} as {result}")


@D.define("local_store", effects=D.WRITES_SHARED, traits=[D.ANCHOR], shows_operand_types=True)
class LocalStore(Operation):
    """Write a tile from registers to shared memory. A smaller ``destination`` takes the ``part`` of that
    number: of as many columns (rows, if these are the fastest dimension of its layout) as it has."""

    value = D.operand(D.TENSOR)
    destination = D.operand(D.MEMDESC)
    part = D.attribute(int, 0)

    infer = D.gives()

    @property
    def parts(self) -> int:
        """How many parts the value has."""
        return self.value.type.numel // self.destination.type.numel

    def check(self):
        value, destination = self.value.type, self.destination.type
        fastest = destination.layout.order[0]
        whole = tuple(n * self.parts if d == fastest else n for d, n in enumerate(destination.shape))
        fits = value.shape == whole and value.element == destination.element
        if not fits or not 0 <= self.part < self.parts:
            raise VerificationError(f"'local_store' of part {self.part} of {value} to {destination}")


@D.define("local_dealloc", effects=D.Effects(other=True, follows=D.COPIES))
class LocalDealloc(Operation):
    """The memory is free from here on (for buffers whose last use is asynchronous)."""

    source = D.operand(D.MEMDESC)

    infer = D.gives()


@D.define("memdesc_index", shows_operand_types=True, traits=[D.SAME_MEMORY])
class MemDescIndex(Operation):
    """Buffer ``index`` of a multi-buffered tile: drops the leading dimension. With ``pitch`` the index is in
    bytes, and buffers are that many apart. With the ``token`` of a ``barrier_wait`` it shows what copies by
    TMA have brought until then."""

    source = D.operand(D.MEMDESC)
    index = D.operand(D.SCALAR_INT)
    token = D.operand(D.PHASE, optional=True)
    pitch = D.attribute(int, 0)

    def view(self, source: View) -> View:
        """What is seen, given what the source shows: see ``view_of``."""
        return source

    @classmethod
    def infer(cls, operands, attributes):
        source = operands[0]
        return [T.MemDescType(source.shape[1:], source.element, source.layout, source.mutable)]


class InRing(D.Elementwise):
    """Base of what loops do to find their way in a ring of ``count`` buffers. A slot is a buffer's number or,
    with the ``step`` from one to the next, its bytes: of slots that the ring does not have, and of phases but
    0 and 1, nothing is said."""

    count = D.attribute(int)
    step = D.attribute(int, 1)

    def check(self):
        D.same_operand_types(self)
        if self.count < 1 or self.step < 1:
            raise VerificationError(f"'{self.name}' in a ring of {self.count} buffers, {self.step} apart")

    def is_last(self, slot):
        """Whether the ring begins anew behind ``slot``."""
        return slot + slot.dtype.type(self.step) >= self.count * self.step


@D.define("next_slot", nonnegative_if=D.ALWAYS)
class NextSlot(InRing):
    """The slot behind ``slot``: the first one behind the last."""

    slot = D.operand(D.SCALAR_INT)

    def limits(self, known):
        return 0, (self.count - 1) * self.step

    @property
    def choices(self) -> list[MemDescIndex]:
        """The views of buffers that ``slot`` and the next one choose, if those are their only uses, but for
        the loop's that carries the next one on; else none."""
        users = [user for value in (self.slot, self.result) for user, _ in value.uses if user is not self]
        views = [user for user in users if isinstance(user, MemDescIndex)]
        return views if [user for user in users if user not in views] == [self.parent.terminator] else []

    def evaluate(self, slot):
        return np.where(self.is_last(slot), 0, slot + self.step).astype(slot.dtype)


@D.define("next_phase", nonnegative_if=D.ALWAYS)
class NextPhase(InRing):
    """The ``phase`` that belongs to the slot behind ``slot``: 0 the first time round the ring, 1 the second
    time, and so on in turn."""

    phase = D.operand(D.SCALAR_INT)
    slot = D.operand(D.SCALAR_INT)

    def limits(self, known):
        return 0, 1

    def evaluate(self, phase, slot):
        return np.where(self.is_last(slot), phase ^ 1, phase).astype(phase.dtype)


@D.define("memdesc_subslice", shows_operand_types=True, traits=[D.SAME_MEMORY])
class MemDescSubslice(Operation):
    """The part of a tile that begins at constant ``offsets`` and has the result's shape."""

    source = D.operand(D.MEMDESC)
    offsets = D.attribute(tuple)

    def view(self, source: View) -> View:
        return source.cut(self.offsets[-self.result.type.layout.rank :])

    def check(self):
        source, result = self.source.type, self.result.type
        fits = all(o + r <= s for o, r, s in zip(self.offsets, result.shape, source.shape, strict=True))
        if not fits or source.layout != result.layout or source.element is not result.element:
            raise VerificationError(f"'memdesc_subslice' cannot cut {result} from {source}")


def _in_tile(order: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """An order of dimensions without those in front that count buffers."""
    buffers = len(order) - rank
    return tuple(d - buffers for d in order[buffers:])


@D.define("memdesc_trans", shows_operand_types=True, traits=[D.SAME_MEMORY])
class MemDescTrans(Operation):
    """The same memory seen with its dimensions permuted; the result's layout has the permuted order."""

    is_transpose = True

    source = D.operand(D.MEMDESC)
    order = D.attribute(tuple)

    @classmethod
    def infer(cls, operands, attributes):
        (source,), order = operands, attributes["order"]
        layout = source.layout.permuted(_in_tile(order, source.layout.rank))
        shape = tuple(source.shape[d] for d in order)
        return [T.MemDescType(shape, source.element, layout, source.mutable)]

    def view(self, source: View) -> View:
        return source.transposed(_in_tile(self.order, self.result.type.layout.rank))

    def result_dim(self, index, dim):
        return self.order.index(dim)


@D.define("async_copy_global_to_local", effects=_COPY, traits=[D.ANCHOR], shows_operand_types=True)
class AsyncCopyGlobalToLocal(D.MemoryAccess, D.Piecewise):
    """Start a copy of a tile from global to shared memory (``cp.async``); where ``mask`` does not hold,
    ``other`` (zeros without one) is stored. Done only when its group was waited for. ``ordered`` is the
    pipeliner's promise that no thread reads the destination after the last barrier before this operation: no
    other barrier is needed."""

    destination = D.operand(D.MEMDESC)
    mask = D.operand(D.BOOL, optional=True)
    other = D.operand(D.NUMBER_OR_POINTER, optional=True)
    cache = D.attribute(("", ".ca", ".cg"), "")
    ordered = D.attribute(bool, False)

    infer = D.gives(T.TokenType(D.COPIES))

    def plan(self) -> SharedAccess:
        """How threads copy."""
        return plan_of_copy(self.elements, view_of(self.destination), self.width)

    def pieces(self):
        return [()] * len(self.plan().accesses)


@D.define("async_commit_group", effects=D.Effects(other=True, starts=D.COPIES))
class AsyncCommitGroup(D.Piecewise):
    """Close the group of asynchronous copies started since the last one. ``tokens`` are those of copies which
    are waited for as this group, though an earlier one may have taken some of them."""

    tokens = D.operands(D.COPY_TOKEN)

    infer = D.gives(T.TokenType(D.COPIES))


@D.define("async_wait", effects=D.Effects(other=True, finishes=D.COPIES))
class AsyncWait(Operation):
    """Wait for the groups of ``tokens``, which are those of groups or of copies, and leave at most ``num`` of
    the newest groups of this thread unfinished. Of a wait that names some, ``count_groups`` derives the
    number; without tokens the number alone says what is waited for."""

    tokens = D.operands(D.COPY_TOKEN)
    num = D.attribute(int, 0)

    infer = D.gives(T.TokenType(D.COPIES))
