"""Layout conversions, as :mod:`ptxforge.layouts.conversion` plans them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptxforge.codegen_ptx.lower.choices import choose
from ptxforge.codegen_ptx.lower.exchange import barrier, from_word, shuffle, to_word
from ptxforge.codegen_ptx.lower.indices import group_number, thread_bit, thread_columns, thread_xor
from ptxforge.codegen_ptx.lower.packing import pack, unpack
from ptxforge.codegen_ptx.lower.shared_tile import SharedTile, read_tile, write_matrices, write_tile
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import Pointer, whole
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.layouts.conversion import Exchange, Nothing, Registers, Select, SharedMemory, Shuffle


@lowers(ConvertLayout)
def convert_layout(ctx: Lowering, op: ConvertLayout) -> None:
    source = op.x.type
    entries = ctx.get(op.x)
    plan = op.plan
    if isinstance(plan, Registers):
        entries = [entries[i] for i in plan.source_of]
    elif isinstance(plan, Shuffle):
        entries = _shuffle(ctx.b, entries, plan, source.element)
    elif isinstance(plan, SharedMemory):
        parts = _through_shared(ctx, op, entries, plan)
        entries = [None] * len(plan.load.representative)
        if op.with_store:
            ctx.parts[op.result] = parts
        else:
            for _, fill in parts:
                fill(entries)
    else:
        assert isinstance(plan, Nothing)
    ctx.set(op, entries)


# -- shuffles --------------------------------------------------------------------------------------------


def _shuffle(b: Builder, entries: list, plan: Shuffle, element: T.Type) -> list:
    element, entries, restore = _as_bits(b, entries, element)
    words = [_to_word(b, [entries[i] for i in group], element) for group in plan.words_in]
    words = exchange(b, words, plan.exchange)
    result: list = [None] * sum(map(len, plan.words_out))
    for word, group in zip(words, plan.words_out, strict=True):
        for register, entry in zip(group, _from_word(b, word, element, len(group)), strict=True):
            result[register] = restore(entry)
    return result


def _as_bits(b: Builder, entries: list, element: T.Type):
    """Predicates become bytes and pointers integers on the way."""
    if element is T.I1:
        def restore(x):
            return b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 1;", "r", x))

        return T.I8, [to_word(b, x, T.I1) for x in entries], restore
    if isinstance(element, T.PointerType):
        return T.I64, [whole(b, x) for x in entries], lambda x: x
    return element, entries, lambda x: x


def _to_word(b: Builder, group: list, element: T.Type) -> Register:
    if len(group) == 1:
        return to_word(b, group[0], element)
    return b.register(pack(b, group + [0] * (32 // element.bits - len(group)), element), "r")


def _from_word(b: Builder, word: Register, element: T.Type, count: int) -> Sequence:
    return [from_word(b, word, element)] if count == 1 else unpack(b, word, element)[:count]


def exchange(b: Builder, words: list[Register], plan: Exchange) -> list[Register]:
    """The words after an exchange within each warp."""
    for step in plan.before:
        words = _select(b, words, step)
    lane = None
    if plan.source_lane is not None:
        lane = thread_xor(b, thread_columns(plan.source_lane))
    moved = [_round(b, words[r.source], r.lane_xor, lane) for r in plan.rounds]
    for step in plan.after:
        moved = _select(b, moved, step)
    return [moved[i] for i in plan.destination]


def _round(b: Builder, word: Register, lane_xor: int, lane) -> Register:
    if lane is None:
        return shuffle(b, "bfly", word, lane_xor) if lane_xor else word
    if isinstance(lane, int):
        return shuffle(b, "idx", word, lane ^ lane_xor)
    if lane_xor:
        with b.at_entry():
            lane = b.pure("xor.b32 %s, %s, %s;", "r", lane, lane_xor)
    return shuffle(b, "idx", word, lane)


def _select(b: Builder, words: Sequence[Register], step: Select) -> list[Register]:
    swap = thread_bit(b, step.lane_mask | step.warp_mask << 5)
    return [choose(b, swap, words[r ^ step.register_xor], word, word.kind) for r, word in enumerate(words)]


# -- shared memory ---------------------------------------------------------------------------------------


Part = tuple[tuple[int, ...], Callable[[list], None]]
"""Registers of the result, and what fills these places of a list of its entries."""


def _through_shared(ctx: Lowering, op: ConvertLayout, entries: list, plan: SharedMemory) -> list[Part]:
    """The parts of the conversion, to be done in order."""
    b, element = ctx.b, op.x.type.element
    if isinstance(element, T.PointerType):
        entries, element = [whole(b, x) if isinstance(x, Pointer) else x for x in entries], T.I64
    copies = plan.load.copies()
    parts = []
    for number, (stores, loads) in enumerate(plan.parts):
        def fill(result: list, number=number, stores=stores, loads=loads) -> None:
            if op.meets_before if number == 0 else not op.scratch_pitch:
                _meet(b, plan)
            tile = SharedTile(op.scratch_offset + number * op.scratch_pitch, _scratch_of_group(ctx, op))
            if plan.matrices is None:
                write_tile(ctx, tile, plan.store, entries, element, stores)
            else:
                write_matrices(ctx, tile, plan.matrices, entries, element, stores)
            _meet(b, plan)
            found: dict[int, object] = {}
            read_tile(ctx, tile, plan.load, found, element, loads)
            for source, entry in found.items():
                for register in copies[source]:
                    result[register] = entry

        parts.append((tuple(r for one in loads for source in one.registers for r in copies[source]), fill))
    return parts


def _scratch_of_group(ctx: Lowering, op: ConvertLayout) -> Register | None:
    """How far the scratch of this group lies behind that of the first one, where several run the same."""
    b = ctx.b
    if b.group.groups == 1:
        return None
    with b.at_entry():
        return b.pure("mul.lo.u32 %s, %s, %s;", "r", group_number(b), op.scratch_bytes(b.group.count))


def _meet(b: Builder, plan: SharedMemory) -> None:
    if plan.warp_local:
        b.effect("bar.warp.sync -1;")
    else:
        barrier(b)
