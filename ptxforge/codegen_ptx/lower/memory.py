"""Loads, stores, pointers, program ids.

A tensor access is cut into vectors of ``vector`` elements, as ``vectorize_memory`` says. With ``guarded``,
wider ones are tried when the kernel runs (``guarded.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.codegen_ptx.lower import exchange
from ptxforge.codegen_ptx.lower.guarded import Vector, guarded_vector, load_singly, store_singly
from ptxforge.codegen_ptx.lower.indices import first_thread, linear_of, owner, replication
from ptxforge.codegen_ptx.lower.packing import elements_of, fresh_words, words_of
from ptxforge.codegen_ptx.lowering import Lowering, Part, lowers
from ptxforge.codegen_ptx.ptx import pointers
from ptxforge.codegen_ptx.ptx.access import vector_load, vector_store
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.ir.ops import memory as ops


@lowers(ops.GetProgramId)
def program_id(ctx: Lowering, op: ops.GetProgramId) -> None:
    found = ctx.b.pure(f"mov.u32 %s, {ctx.program_register(op.axis)};", "r")
    ctx.set(op, [found.within(0, (1 << 31) - 1 if op.axis == 0 else 65535)])


@lowers(ops.GetNumPrograms)
def num_programs(ctx: Lowering, op: ops.GetNumPrograms) -> None:
    found = ctx.b.pure(f"mov.u32 %s, {ctx.program_register(op.axis, 'n')};", "r")
    ctx.set(op, [found.within(1, (1 << 31) - 1 if op.axis == 0 else 65535)])


@lowers(ops.GetCtaRank)
def cta_rank(ctx: Lowering, op: ops.GetCtaRank) -> None:
    found = ctx.b.pure("mov.u32 %s, %%cluster_ctarank;", "r")
    if op.parts < ctx.function.attributes["num_ctas"]:
        found = ctx.b.pure("bfe.u32 %s, %s, %s, %s;", "r", found, op.first, op.parts.bit_length() - 1)
    ctx.set(op, [found.within(0, op.parts - 1)])


@lowers(ops.AddPtr)
def addptr(ctx: Lowering, op: ops.AddPtr) -> None:
    """A pointer has a base and terms: what all elements add moves their base, anything else, and what is
    ``deferred``, is a term more of each."""
    size = T.element_type(op.pointer.type).pointee.bytes
    starts, offsets = ctx.get(op.pointer), ctx.get(op.offset)
    if op.deferred:
        ctx.set(op, pointers.WithTerms(starts, offsets, size))
    else:
        ctx.set(op, pointers.advance(ctx.b, starts, offsets, size))


@lowers(ops.Barrier)
def barrier(ctx: Lowering, op: ops.Barrier) -> None:
    meet = exchange.cluster_barrier if op.of_cluster else exchange.barrier
    meet(ctx.b)


# -- vectors ---------------------------------------------------------------------------------------------


def cache_policy(ctx: Lowering, eviction: str) -> Register | None:
    """The L2 policy operand for an eviction priority, or None for the normal one."""
    if not eviction:
        return None
    ctx.b.require(7, 4)
    with ctx.b.at_entry():
        return ctx.b.pure(f"createpolicy.fractional.L2::{eviction}.b64 %s, 0f3F800000;", "q")


def _modifiers(cache: str, eviction: str) -> str:
    """What stands between the space and the vector: cache operator or L1 priority, and the L2 hint."""
    first = cache or (f".L1::{eviction}" if eviction else "")
    return first + (".L2::cache_hint" if eviction else "")


# -- loads -----------------------------------------------------------------------------------------------


@lowers(ops.Load)
def load(ctx: Lowering, op: ops.Load) -> None:
    element = T.element_type(op.result.type)
    width = op.width
    if op.guarded > width:
        _load_guarded(ctx, op, element)
        return
    places = pointers.addresses(ctx.b, ctx.get(op.pointer)[::width])
    masks = _every(ctx, op.mask, width)
    if op.owned:
        _, owners = thread_owner(ctx, op.result.type)
        masks = [ctx.b.both(masks[i], owners) for i in range(len(places))]
    others = ctx.get(op.other) if op.other is not None else None
    policy = None if op.volatile else cache_policy(ctx, op.eviction)
    reader = _Reader(ctx, op, element, width, policy)
    done: dict[tuple, list] = {}
    result: list = []
    for i, (base, offset) in enumerate(places):
        mask = masks[i]
        other = tuple(others[i * width : (i + 1) * width]) if others is not None else None
        key = (base, offset, mask, other)
        found = done.get(key)
        if found is None:
            found = done[key] = reader.read(base, offset, mask, other)
        result += found
    ctx.set(op, result)


def _load_guarded(ctx: Lowering, op: ops.Load, element: T.Type) -> None:
    """A load that tests when it runs which vectors it may load as a whole."""
    b, width = ctx.b, op.guarded
    policy = cache_policy(ctx, op.eviction)
    reader = _Reader(ctx, op, element, width, policy)
    places = ctx.get(op.pointer)
    masks = ctx.get(op.mask) if op.mask is not None else [None] * len(places)
    others = ctx.get(op.other) if op.other is not None else [_zero(element)] * len(places)
    keys = [
        tuple(tuple(entries[i : i + width]) for entries in (places, masks, others))
        for i in range(0, len(places), width)
    ]
    loaded = {}
    for place, mask, other in dict.fromkeys(keys):
        vector = guarded_vector(b, place, mask, element.bytes, op.aligned)
        loaded[place, mask, other] = vector, reader.read_whole(vector, other)
    found, words = zip(*loaded.values())
    load_singly(b, found, words, [other for _, _, other in loaded], element, reader.head, reader.policy)
    ctx.set(op, [x for key in keys for x in elements_of(b, loaded[key][1], width, element)])


def _every(ctx: Lowering, mask: Value | None, width: int) -> list:
    """The predicate of each vector (a mask is constant over a vector); None where there is no mask."""
    if mask is None:
        return _Always()
    return ctx.get(mask)[::width]


class _Always:
    """A list of as many ``None`` as are asked for."""

    def __getitem__(self, index: int) -> None:
        return None


class _Reader:
    """Emits the vector loads of one operation."""

    def __init__(self, ctx: Lowering, op: ops.Load, element: T.Type, width: int, policy: Register | None):
        self.b, self.element, self.width = ctx.b, element, width
        self.policy = () if policy is None else (policy,)
        self.head = "ld.volatile.global" if op.volatile else "ld.global" + _modifiers(op.cache, op.eviction)

    def read(self, base: Register, offset: int, mask, other: tuple | None) -> list:
        """The elements at ``base + offset``."""
        b, width, element = self.b, self.width, self.element
        if mask == 0:
            return list(other) if other is not None else [_zero(element)] * width
        words, type = fresh_words(b, width, element)
        if mask is not None and mask != 1:
            self._initialise(words, other)
        vector_load(b, self.head, words, type, (base, offset), self.policy, mask)
        return elements_of(b, words, width, element)

    def read_whole(self, vector: Vector, other: tuple) -> list[Register]:
        """The registers of a guarded vector, loaded if it may be as a whole."""
        b = self.b
        words, type = fresh_words(b, self.width, self.element)
        if vector.masks[0] is not None:
            self._initialise(words, other)
        vector_load(b, self.head, words, type, (vector.base, vector.offset), self.policy, vector.whole)
        return words

    def _initialise(self, words: list[Register], other: tuple | None) -> None:
        """Give the destination the values for when the mask does not hold (without ``other``: 0, so that
        every executor computes the same)."""
        values = [0] * len(words) if other is None else words_of(self.b, other, self.element)[0]
        for word, value in zip(words, values, strict=True):
            self.b.copy(word, value)


def _zero(element: T.Type):
    return {T.F32: "0f00000000", T.F64: "0d0000000000000000"}.get(element, 0)


# -- stores ----------------------------------------------------------------------------------------------


def thread_owner(ctx: Lowering, type: T.Type) -> tuple[int, object]:
    """(mask of register bits that are copies, predicate of the threads that own what they hold)."""
    if not isinstance(type, T.TensorType):
        return 0, first_thread(ctx.b)
    registers, threads = replication(linear_of(type))
    return registers, owner(ctx.b, threads)


@lowers(ops.Store)
def store(ctx: Lowering, op: ops.Store) -> None:
    b = ctx.b
    element = T.element_type(op.value.type)
    width = op.width
    values, parts = ctx.get(op.value), ctx.parts.pop(op.value, [])
    arriving = _as_they_come(ctx, op.value, parts, width)
    if op.guarded > width or isinstance(element, T.PointerType):
        arriving = list(arriving)
    if isinstance(element, T.PointerType):
        values = [pointers.whole(b, x) for x in values]
    copies, owner_predicate = thread_owner(ctx, op.value.type)
    writer = _Writer(ctx, op, element)
    if op.guarded > width:
        _store_guarded(ctx, op, writer, values, copies, owner_predicate)
        return
    places = ctx.get(op.pointer)[::width]
    masks = _every(ctx, op.mask, width)
    for i in arriving:
        predicate = b.both(masks[i], owner_predicate)
        if not (i * width) & copies and predicate != 0:
            base, offset = pointers.address(b, places[i])
            writer.write(base, offset, predicate, values[i * width : (i + 1) * width])


def _as_they_come(ctx: Lowering, value: Value, parts: list[Part], width: int) -> Iterator[int]:
    """The numbers of a value's vectors; of one that is made in parts, each as soon as it is known."""
    values = ctx.get(value)
    missing = [width] * (len(values) // width)
    if not parts:
        yield from range(len(missing))
    for registers, fill in parts:
        ctx.b.locate(value.defining_op.location)
        fill(values)
        for register in registers:
            missing[register // width] -= 1
            if not missing[register // width]:
                yield register // width


def _store_guarded(
    ctx: Lowering, op: ops.Store, writer: _Writer, values: list, copies: int, owner_predicate
) -> None:
    """A store that tests when it runs which vectors it may write as a whole."""
    b, element, width = ctx.b, writer.element, op.guarded
    places = ctx.get(op.pointer)
    masks = ctx.get(op.mask) if op.mask is not None else [None] * len(places)
    starts = [i for i in range(0, len(places), width) if not i & copies]
    aligned = op.aligned
    found, parts = [], [values[i : i + width] for i in starts]
    for i in starts:
        these = slice(i, i + width)
        found.append(guarded_vector(b, places[these], masks[these], element.bytes, aligned, owner_predicate))
    # Wide stores come last: the assembler would copy words that are still needed after one.
    store_singly(b, found, parts, element, writer.head, writer.policy)
    for vector, part in zip(found, parts):
        if vector.whole != 0:
            writer.write(vector.base, vector.offset, vector.whole, part)


class _Writer:
    """Emits the vector stores of one operation."""

    def __init__(self, ctx: Lowering, op: ops.Store, element: T.Type):
        self.b, self.element = ctx.b, element
        policy = cache_policy(ctx, op.eviction)
        self.policy = () if policy is None else (policy,)
        self.head = "st.global" + _modifiers(op.cache, op.eviction)

    def write(self, base: Register, offset: int, predicate, elements: list) -> None:
        """Write elements to ``base + offset`` where the predicate holds."""
        b = self.b
        words, type = words_of(b, elements, self.element)
        if len(words) > 1:
            words = [_in_register(b, word, type) for word in words]
        vector_store(b, self.head, (base, offset), words, type, self.policy, predicate)


def _in_register(b, word, type: str) -> Register:
    """A vector's elements must be registers."""
    return b.register(word, {"b64": "q", "b16": "h"}.get(type, "r"))
