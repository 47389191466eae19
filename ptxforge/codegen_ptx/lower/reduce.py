"""Reductions: a tree in each thread, butterfly shuffles within the warp, one exchange between warps.

Afterwards every thread holds the results that the slice layout gives it: all lanes and warps along the axis
the same. Between warps each writes its partial results to scratch memory, and after one barrier each thread
reads the partial results that it needs. To combine them all is quick where that is an addition. Where it is
many instructions (Welford's mean and variance) and there is one result, each lane takes the partial result of
one warp, and a second butterfly combines them: log2(warps) times instead of warps - 1 (``by_lanes``). Where
there are more results, of which a thread needs several, and the others need the same ones, threads share the
work (``dealt_out``): each combines a few partial results, and after a second barrier reads what others did.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ptxforge.codegen_ptx.lower.combining import Columns, Combiner
from ptxforge.codegen_ptx.lower.exchange import (
    FULL_WARP,
    barrier,
    butterfly,
    from_word,
    load_words,
    shared_address,
    shuffle_entries,
    store_words,
    to_word,
    word_class,
)
from ptxforge.codegen_ptx.lower.indices import (
    lane_id,
    linear_of,
    masked,
    owner,
    register_constants,
    replication,
    thread_columns,
    thread_xor,
)
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.layouts.linear import LANE, WARP, LinearLayout
from ptxforge.layouts.scratch import axis_bits, container_bytes, deal_out


@lowers(Reduce)
def reduce(ctx: Lowering, op: Reduce) -> None:
    layout = linear_of(op.inputs[0].type)
    result = op.results[0].type
    slices = linear_of(result) if isinstance(result, T.TensorType) else None
    combine = Combiner(ctx, op)
    columns = _within_thread([ctx.get(v) for v in op.inputs], layout, op.axis, slices, combine)
    columns = _within_warp(ctx, op, columns, layout, combine)
    warp_bits = axis_bits(layout, op.axis, WARP)
    if warp_bits:
        columns = _between_warps(ctx, op, columns, layout, slices, warp_bits, combine)
    ctx.set(op, *columns)


# -- in a thread -----------------------------------------------------------------------------------------


def _within_thread(
    inputs: Columns, layout: LinearLayout, axis: int, slices: LinearLayout | None, combine: Combiner
) -> Columns:
    """Per result register the combination of the thread's elements."""
    steps = _registers_by_step(layout, axis, slices)
    return combine.tree([[[entries[r] for r in registers] for entries in inputs] for registers in steps])


@lru_cache(maxsize=1024)
def _registers_by_step(
    layout: LinearLayout, axis: int, slices: LinearLayout | None
) -> tuple[tuple[int, ...], ...]:
    """For each coordinate along the axis that a thread holds, the register per result register."""
    wanted = register_constants(slices) if slices is not None else (0,)
    by_result: dict[int, dict[int, int]] = {}
    for register, flat in enumerate(register_constants(layout)):
        coordinates = layout.unflatten(flat)
        rest = coordinates[:axis] + coordinates[axis + 1 :]
        key = slices.flatten(rest) if slices is not None else 0
        by_result.setdefault(key, {}).setdefault(coordinates[axis], register)
    along = sorted(by_result[wanted[0]])
    return tuple(tuple(by_result[element][coordinate] for element in wanted) for coordinate in along)


# -- in a warp -------------------------------------------------------------------------------------------

_REDUX = {"addi": "add.s32", "minsi": "min.s32", "maxsi": "max.s32", "minui": "min.u32", "maxui": "max.u32",
          "andi": "and.b32", "ori": "or.b32", "xori": "xor.b32"}  # fmt: skip
_REDUX_FLOAT = {
    "minnumf": "min.f32",
    "maxnumf": "max.f32",
    "minimumf": "min.NaN.f32",
    "maximumf": "max.NaN.f32",
}


def _within_warp(
    ctx: Lowering, op: Reduce, columns: Columns, layout: LinearLayout, combine: Combiner
) -> Columns:
    b = ctx.b
    bits = axis_bits(layout, op.axis, LANE)
    redux = _redux_name(ctx, combine) if len(bits) == 5 else None
    if redux is not None:
        kind = word_class(combine.elements[0])
        template = f"redux.sync.{redux} %s, %s, {FULL_WARP};"
        return [[b.pure(template, kind, b.register(x, kind)) for x in columns[0]]]
    return _butterflies(b, columns, bits, combine, op.agreed and not axis_bits(layout, op.axis, WARP))


def _butterflies(
    b: Builder, columns: Columns, bits: Sequence[int], combine: Combiner, agreed: bool
) -> Columns:
    """Combined with those of the lane that differs in each of ``bits``; ``agreed``: the first lane's."""
    for bit in bits:
        others = [butterfly(b, entries, e, 1 << bit) for entries, e in zip(columns, combine.elements)]
        columns = combine(columns, others)
    if not agreed:
        return columns
    first = masked(b, lane_id(b), ~sum(1 << bit for bit in bits) & 31)
    return [shuffle_entries(b, "idx", entries, e, first) for entries, e in zip(columns, combine.elements)]


def _redux_name(ctx: Lowering, combine: Combiner) -> str | None:
    """The ``redux.sync`` operation that does the whole butterfly, if the target has one: one instruction in
    place of ten, and no choice therefore."""
    if combine.elements[0] is T.I32:
        return _REDUX.get(combine.name)
    if combine.elements[0] is not T.F32 or not ctx.target.has_redux_f32:
        return None
    found = _REDUX_FLOAT.get(combine.name)
    if found is not None:
        ctx.b.require(8, 6)
    return found


# -- between warps ---------------------------------------------------------------------------------------


def _between_warps(
    ctx: Lowering, op: Reduce, columns: Columns, layout: LinearLayout, slices: LinearLayout | None,
    warp_bits: tuple[int, ...], combine: Combiner,
) -> Columns:
    """Partial results go to ``scratch[warp along the axis, result element]`` with ``rows_of_warps``, else
    transposed."""
    place = Scratch(ctx, slices, warp_bits, op.rows_of_warps)
    writers = _writer_mask(layout, op.axis)
    starts = _starts(op.scratch_offset, place.results * place.warps, combine.elements)
    for start, entries, element in zip(starts, columns, combine.elements):
        place.write(start, [to_word(ctx.b, x, element) for x in entries], owner(ctx.b, writers))
    barrier(ctx.b)
    if op.by_lanes:
        return _by_lanes(ctx, op, starts, len(warp_bits), combine)
    rows = place.warps
    if op.dealt_out:
        _combine_shares(ctx.b, place, starts, layout, combine)
        barrier(ctx.b)
        rows = 1
    partials = [
        [
            [from_word(ctx.b, word, element) for word in words]
            for words in place.read(at, word_class(element), rows)
        ]
        for at, element in zip(starts, combine.elements)
    ]
    return combine.tree([[per_warp[w] for per_warp in partials] for w in range(rows)])


def _combine_shares(
    b: Builder, place: Scratch, starts: list[int], layout: LinearLayout, combine: Combiner
) -> None:
    """Each thread combines its share of the partial results, in the order in which one thread would combine
    them all; the results take the places of the first warp's, which only who writes them has read."""
    share = deal_out(place.results, place.warps, layout)
    addresses, items = [], [[] for _ in range(share.partials)]
    for start, element in zip(starts, combine.elements):
        kind = word_class(element)
        size = 8 if kind in "qd" else 4
        thread = thread_xor(b, [column * size for column in share.columns])
        addresses.append([(thread, start + row * size) for row in share.rows])
        for warp, entries in enumerate(items):
            at = warp * place.results * size
            words = [place.load(thread, offset + at, 1, kind)[0] for thread, offset in addresses[-1]]
            entries.append([from_word(b, word, element) for word in words])
    columns = _butterflies(b, combine.tree(items), range(share.lane_bits), combine, False)
    writers = owner(b, (1 << share.lane_bits) - 1)
    for places, entries, element in zip(addresses, columns, combine.elements):
        for (thread, offset), entry in zip(places, entries):
            store_words(b, shared_address(b, thread, offset), [to_word(b, entry, element)], writers)


def _starts(start: int, count: int, elements: Sequence[T.Type]) -> list[int]:
    """Where ``count`` partial results of each operand begin: the widest come first, so that vectors of all
    are aligned."""
    sizes = [container_bytes(element.bits) for element in elements]
    starts = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        starts[index] = start
        start += count * sizes[index]
    return starts


def _by_lanes(ctx: Lowering, op: Reduce, starts: list[int], bits: int, combine: Combiner) -> Columns:
    """Lane ``l`` reads the partial result of warp ``l`` modulo the number of warps."""
    b, columns = ctx.b, []
    for start, element in zip(starts, combine.elements):
        kind = word_class(element)
        size = 8 if kind in "qd" else 4
        lane = thread_xor(b, [size << bit for bit in range(bits)])
        (word,) = load_words(b, shared_address(b, lane, start), 1, kind)
        columns.append([from_word(b, word, element)])
    return _butterflies(b, columns, range(bits), combine, op.agreed)


def _writer_mask(layout: LinearLayout, axis: int) -> int:
    """Thread bits that must be 0 in the threads that write: lanes along the axis, and copies."""
    lanes = sum(1 << bit for bit in axis_bits(layout, axis, LANE))
    return lanes | replication(layout)[1]


class Scratch:
    """Where partial results lie, those of each warp along the axis (that ``warp_bits`` number).

    With ``rows_of_warps`` those of one warp lie side by side, and a thread reads its ``neighbours`` among the
    results at once; else those of one result by all warps do."""

    def __init__(
        self, ctx: Lowering, slices: LinearLayout | None, warp_bits: tuple[int, ...] = (),
        rows_of_warps: bool = True,
    ):  # fmt: skip
        self.b = ctx.b
        self.warps = 1 << len(warp_bits)
        self.results = 1
        self.constants: tuple[int, ...] = (0,)
        columns: list[int] = []
        self.neighbours = 1
        if slices is not None:
            self.results = 1 << slices.out_bits_total
            self.constants = register_constants(slices)
            columns = list(thread_columns(slices))
            self.neighbours = slices.num_consecutive_in_out()
        self.rows_of_warps = rows_of_warps
        self.result_unit, self.warp_unit = (1, self.results) if rows_of_warps else (self.warps, 1)
        self.read_columns = [column * self.result_unit for column in columns]
        self.write_columns = self.read_columns + [0] * (5 + max(warp_bits, default=-1) + 1 - len(columns))
        for index, bit in enumerate(warp_bits):
            self.write_columns[5 + bit] ^= self.warp_unit << index

    def _thread(self, columns: list[int], size: int):
        return thread_xor(self.b, [column * size for column in columns])

    def write(self, start: int, words: list[Register], predicate) -> None:
        """Store this warp's partial results."""
        size = 8 if words[0].kind in "qd" else 4
        thread = self._thread(self.write_columns, size)
        width = min(self.neighbours, 16 // size) if self.rows_of_warps else 1
        done = set()
        for i in range(0, len(words), width):
            if self.constants[i] not in done:
                done.add(self.constants[i])
                address = shared_address(self.b, thread, start + self.constants[i] * self.result_unit * size)
                store_words(self.b, address, words[i : i + width], predicate)

    def load(self, thread, offset: int, count: int, kind: str) -> list[Register]:
        """Words that lie side by side."""
        return load_words(self.b, shared_address(self.b, thread, offset), count, kind)

    def read(self, start: int, kind: str, warps: int) -> list[list[Register]]:
        """Per warp along the axis, of the first so many with ``rows_of_warps``, the partial result for each
        of the thread's results."""
        size = 8 if kind in "qd" else 4
        thread = self._thread(self.read_columns, size)
        found: dict[tuple[int, int], Register] = {}
        if self.rows_of_warps:
            width = min(self.neighbours, 16 // size)
            places = [
                (warp, i, width, 1)
                for warp in range(warps)
                for i in range(0, len(self.constants), width)
            ]
        else:
            width = min(self.warps, 16 // size)
            places = [
                (warp, i, 1, width)
                for i in range(len(self.constants))
                for warp in range(0, warps, width)
            ]
        seen: dict[int, list[Register]] = {}
        for warp, i, results, together in places:
            offset = (self.constants[i] * self.result_unit + warp * self.warp_unit) * size
            words = seen.get(offset)
            if words is None:
                words = self.load(thread, start + offset, results * together, kind)
                seen[offset] = words
            for k, word in enumerate(words):
                found[(warp, i + k) if self.rows_of_warps else (warp + k, i)] = word
        return [[found[warp, i] for i in range(len(self.constants))] for warp in range(warps)]
