"""Tiles in shared memory and asynchronous copies into them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from ptxforge.codegen_ptx.lower.arith import bitwise, integer_compare
from ptxforge.codegen_ptx.lower.choices import choose
from ptxforge.codegen_ptx.lower.indices import owner
from ptxforge.codegen_ptx.lower.packing import fresh_words, unpack, words_of
from ptxforge.codegen_ptx.lower.shared_tile import (
    SharedTile,
    access_address,
    read_tile,
    swizzled_address,
    write_matrices,
    write_tile,
)
from ptxforge.codegen_ptx.lowering import Lowering, lowers, register_count
from ptxforge.codegen_ptx.ptx import pointers
from ptxforge.codegen_ptx.ptx.access import vector_load, vector_store
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.ir.ops import shared as ops
from ptxforge.ir.views import View, plan_of_store, view_of
from ptxforge.layouts.banks import Access, SharedAccess
from ptxforge.layouts.mma_atoms import LdMatrix, MatrixMove, StMatrix


def packed_pitch(type: T.MemDescType) -> int:
    """Bytes from one to the next of the buffers that the leading dimension numbers; 0 for a single one."""
    return 0 if type.rank == type.layout.rank else type.numel // type.shape[0] * type.element.bytes


# -- tiles -----------------------------------------------------------------------------------------------


@lowers(ops.LocalAlloc)
def local_alloc(ctx: Lowering, op: ops.LocalAlloc) -> None:
    tile = SharedTile(
        op.offset, None, view_of(op.result).layout, pitch=op.pitch or packed_pitch(op.result.type)
    )
    ctx.set(op, [tile])
    if op.value is not None:
        _write(ctx, tile, op.value)


@lowers(ops.LocalDealloc)
def local_dealloc(ctx: Lowering, op: ops.LocalDealloc) -> None:
    """The allocation pass has made use of it."""


@lowers(ops.LocalStore)
def local_store(ctx: Lowering, op: ops.LocalStore) -> None:
    tile = ctx.scalar(op.destination)
    if op.parts == 1:
        _write(ctx, tile, op.value)
        return
    tile = tile._replace(layout=op.destination.type.layout.linear(op.value.type.shape))
    _write(ctx, tile, op.value, op.part, op.destination.type.numel)


def _write(ctx: Lowering, tile: SharedTile, value: Value, part: int = 0, size: int = 1 << 62) -> None:
    """Store a tile, or the part of that number of ``size`` elements."""
    element, entries, plan = value.type.element, ctx.get(value), plan_of_store(value.type, tile, size)
    if isinstance(plan, StMatrix):
        write_matrices(ctx, tile, plan, entries, element, _part_of(plan.stores, part, size))
    else:
        write_tile(ctx, tile, plan, entries, element, _part_of(plan.accesses, part, size))


def _part_of(accesses: Sequence, part: int, size: int) -> list:
    """The accesses whose offsets lie in a part, from its beginning on."""
    return [evolve(one, offset=one.offset % size) for one in accesses if one.offset // size == part]


@lowers(ops.LocalLoad)
def local_load(ctx: Lowering, op: ops.LocalLoad) -> None:
    tile, type, plan = ctx.scalar(op.source), op.result.type, op.plan()
    entries: list = [None] * register_count(type)
    if isinstance(plan, LdMatrix):
        pieces = [_matrix_piece(ctx.b, tile, plan, one, type.element, entries) for one in plan.loads]
    else:
        copies = plan.copies()
        pieces = [_vector_piece(ctx, tile, plan, one, type.element, copies, entries) for one in plan.accesses]
    ctx.in_pieces(op, pieces)
    ctx.set(op, entries)


def _vector_piece(
    ctx: Lowering, tile: SharedTile, access: SharedAccess, one: Access, element: T.Type,
    copies: dict[int, list[int]], entries: list,
) -> Callable[[], None]:
    """One vector load, into ``entries``."""

    def load() -> None:
        found: dict[int, object] = {}
        read_tile(ctx, tile, access, found, element, (one,))
        for register in one.registers:
            for copy in copies[register]:
                entries[copy] = found[register]

    return load


def _matrix_piece(
    b: Builder, tile: SharedTile, plan: LdMatrix, one: MatrixMove, element: T.Type, entries: list
) -> Callable[[], None]:
    """One ``ldmatrix``, into ``entries``."""
    trans = ".trans" if plan.trans else ""
    slots = ", ".join(["%s"] * plan.count)
    template = f"ldmatrix.sync.aligned.m8n8.x{plan.count}{trans}.shared.b16 {{{slots}}}, [%s+%s];"
    kind = "f" if element is T.F32 else "r"

    def load() -> None:
        address = swizzled_address(b, tile, plan.address.columns, plan.thread_bits, one.offset, element.bytes)
        words = b.several(kind * len(one.registers))
        b.effect(template, *words, *b.split(address))
        for word, registers in zip(words, one.registers):
            for register, entry in zip(registers, unpack(b, word, element), strict=True):
                entries[register] = entry

    return load


@lowers(ops.MemDescIndex)
def memdesc_index(ctx: Lowering, op: ops.MemDescIndex) -> None:
    tile = ctx.scalar(op.source)
    stride = 1 if op.pitch else tile.pitch
    root, constant = ctx.b.split(ctx.scalar(op.index))
    moved = tile._replace(start=tile.start + constant * stride)
    if root is not None:
        offset = ctx.b.mul(root, stride)
        moved = moved._replace(dynamic=offset if tile.dynamic is None else ctx.b.add(offset, tile.dynamic))
    ctx.set(op, [moved._replace(pitch=packed_pitch(op.result.type))])


@lowers(ops.NextSlot)
def next_slot(ctx: Lowering, op: ops.NextSlot) -> None:
    following, is_first = _behind(ctx, op)
    ctx.set(op, [choose(ctx.b, is_first, 0, following, "r")])


@lowers(ops.NextPhase)
def next_phase(ctx: Lowering, op: ops.NextPhase) -> None:
    b, phase = ctx.b, ctx.scalar(op.phase)
    _, is_first = _behind(ctx, op)
    ctx.set(op, [choose(b, is_first, bitwise(b, "xor", phase, 1, 32), phase, "r")])


def _behind(ctx: Lowering, op: ops.InRing):
    """The slot behind the operation's, and whether the first one comes there instead."""
    following = ctx.b.add(ctx.scalar(op.slot), op.step)
    return following, integer_compare(ctx.b, "sge", following, op.count * op.step, 32)


@lowers(ops.MemDescSubslice)
def memdesc_subslice(ctx: Lowering, op: ops.MemDescSubslice) -> None:
    tile, source = ctx.scalar(op.source), op.source.type
    offsets = op.offsets
    buffers = source.rank - source.layout.rank
    if buffers:
        # Leading dimensions number whole buffers.
        pitch = tile.pitch
        for offset, extent in zip(offsets[:buffers], source.shape[1 : buffers + 1]):
            tile = tile._replace(start=tile.start + offset * pitch)
            pitch //= extent
    layout, origin = op.view(View(tile.layout, tile.origin))
    ctx.set(op, [tile._replace(layout=layout, origin=origin)])


@lowers(ops.MemDescTrans)
def memdesc_trans(ctx: Lowering, op: ops.MemDescTrans) -> None:
    tile = ctx.scalar(op.source)
    layout, origin = op.view(View(tile.layout, tile.origin))
    ctx.set(op, [tile._replace(layout=layout, origin=origin)])


# -- asynchronous copies ---------------------------------------------------------------------------------


@lowers(ops.AsyncCommitGroup)
def commit(ctx: Lowering, op: ops.AsyncCommitGroup) -> None:
    ctx.in_pieces(op, [lambda: ctx.b.effect("cp.async.commit_group;")])
    ctx.set(op, [])


@lowers(ops.AsyncWait)
def wait(ctx: Lowering, op: ops.AsyncWait) -> None:
    ctx.b.effect(f"cp.async.wait_group {op.num};")
    ctx.set(op, [])


@lowers(ops.AsyncCopyGlobalToLocal)
def async_copy(ctx: Lowering, op: ops.AsyncCopyGlobalToLocal) -> None:
    ctx.set(op, [])
    tile = ctx.scalar(op.destination)
    access = op.plan()
    copier = _Copier(ctx, op, op.elements.element, access)
    pieces = [
        lambda one=one: copier.copy(one.registers, access_address(ctx.b, tile, access, one.offset))
        for one in access.accesses
    ]
    ctx.in_pieces(op, pieces)


_ZEROS = (0, "0f00000000", "0d0000000000000000")


class _Copier:
    """Emits the copies of one operation: ``cp.async`` for 4, 8 and 16 bytes, a load and a store for less.

    There is no hint for the L2 cache: for sm_90 the assemblers of CUDA 13.0 to 13.3 (and 12.8) drop the
    ``createpolicy`` and keep the copy that reads its result, which ends in an illegal instruction.
    """

    def __init__(self, ctx: Lowering, op: ops.AsyncCopyGlobalToLocal, element: T.Type, access: SharedAccess):
        self.b: Builder = ctx.b
        self.element, self.access = element, access
        self.pointers = ctx.get(op.pointer)
        self.masks = ctx.get(op.mask) if op.mask is not None else None
        self.others = ctx.get(op.other) if op.other is not None else None
        self.bytes = access.vec * access.bytes_per_element
        self.owner = owner(self.b, access.free_lanes | access.free_warps << 5)

    def copy(self, registers: tuple[int, ...], target) -> None:
        """Copy the elements of ``registers``, which are neighbours, to the shared address ``target``."""
        base, offset = pointers.address(self.b, self.pointers[registers[0]])
        mask = None if self.masks is None else self.masks[registers[0]]
        others = None if self.others is None else [self.others[register] for register in registers]
        if others is not None and all(x in _ZEROS for x in others):
            others = None
        if self.bytes < 4:
            self._at_once(target, base, offset, mask, others or [0] * len(registers))
        elif others is None or mask is None or mask == 1:
            self._asynchronously(target, base, offset, mask)
        else:
            self._copy_or_store(target, base, offset, mask, others)

    def _asynchronously(self, target, base: Register, offset: int, mask, fills: bool = True) -> None:
        """``cp.async``. Where the mask does not hold it fills with zeros or, unless it ``fills``, does
        nothing."""
        root, displacement = self.b.split(target)
        cache = "cg" if self.bytes == 16 else "ca"
        template = f"cp.async.{cache}.shared.global [%s+%s], [%s+%s], {self.bytes}"
        operands: tuple = (root, displacement, base, offset)
        if fills and mask is not None and mask != 1:
            count = 0 if mask == 0 else self.b.pure("selp.b32 %s, %s, 0, %s;", "r", self.bytes, mask)
            template, operands = template + ", %s", (*operands, count)
        wanted = self.owner if fills else self.b.both(mask, self.owner)
        self.b.effect(template + ";", *operands, guard=wanted)

    def _copy_or_store(self, target, base: Register, offset: int, mask, others: list) -> None:
        """Copy where the mask holds; elsewhere the thread itself stores the values, which are seen after
        the same barrier."""
        b = self.b
        self._asynchronously(target, base, offset, mask, fills=False)
        words, type = words_of(b, others, self.element)
        words = [b.register(word, {"b64": "q"}.get(type, "r")) for word in words]
        vector_store(b, "st.shared", target, words, type, guard=b.both(b.negate(mask), self.owner))

    def _at_once(self, target, base: Register, offset: int, mask, others: list) -> None:
        b = self.b
        words, type = fresh_words(b, len(others), self.element)
        if mask is not None and mask != 1:
            for word, value in zip(words, words_of(b, others, self.element)[0], strict=True):
                b.copy(word, value)
        vector_load(b, "ld.global", words, type, (base, offset), guard=mask)
        vector_store(b, "st.shared", target, words, type, guard=self.owner)
