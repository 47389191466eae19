"""Scans: inclusive prefixes along an axis, level by level.

A coordinate along the axis is a string of bits, each of which is a register, lane or warp bit
(``axis_levels``). From the lowest bit up, neighbouring blocks of elements merge: the elements of the upper
block get the total of the lower one in front. Merging costs one combination per *cell* (a set of registers
that always get the same prefix), not per element: the prefix of a cell is applied to its elements at the
very end.

- The lowest register bits are scanned one after the other; each run of registers is a cell.
- A run of lane bits right behind them may be scanned at once (Hillis and Steele; ``lanes_at_once``): in step
  i each lane combines with the one 2**i before it. What all lanes of the run get in front from higher levels
  is put in front of a lane's inclusive result; one shuffle more then gives its successor what stands before
  it. So a cell takes one combination for each bit, and its last element none.
- Any other lane bit fetches the neighbour's total by a butterfly shuffle.
- A run of warp bits exchanges totals through scratch memory, with one barrier. They are scanned as such a
  run of lanes (``by_lanes``), or each thread combines all of them one by one.
- Later register bits merge cells of the same thread, one after the other.
- The CTAs of a program that hold parts of the axis (``ranks``) exchange the totals of these in the end,
  through each other's shared memory.

With ``reverse`` the upper block is the one with the lower coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

from ptxforge.codegen_ptx.lower import exchange
from ptxforge.codegen_ptx.lower.choices import choose
from ptxforge.codegen_ptx.lower.combining import Columns, Combiner
from ptxforge.codegen_ptx.lower.indices import (
    lane_id,
    linear_of,
    masked,
    owner,
    register_constants,
    replication,
    thread_bit,
    thread_xor,
)  # fmt: skip
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.registers import MOVES, Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.ops.reduce import Scan
from ptxforge.layouts.linear import LANE, REGISTER, WARP, LinearLayout
from ptxforge.layouts.scratch import axis_levels, container_bytes, scan_scratch_bytes, warp_runs


@lowers(Scan)
def scan(ctx: Lowering, op: Scan) -> None:
    _Scanner(ctx, op).run()


class _Cell(NamedTuple):
    """Registers that get the same prefix, in scanning order; ``key`` is their lowest element index
    (flat)."""

    registers: tuple[int, ...]
    key: int


class _LaneScan(NamedTuple):
    """A run of lanes that was scanned at once: the ``inclusive`` result of each cell (one list per operand),
    the lanes from one of the run to the next, and the predicate of all but the first of them."""

    inclusive: Columns
    step: int
    follows: Register


class _Scanner:
    """State of one scan. ``prefix[c]`` is the combination of what stands before cell c in its block (a
    tuple, one entry per operand), valid where ``valid[c]`` (a predicate, 0 or 1) holds; ``blocks`` are lists
    of cells and ``totals`` (one list per operand) their combinations."""

    def __init__(self, ctx: Lowering, op: Scan):
        self.ctx, self.b, self.op = ctx, ctx.b, op
        self.layout: LinearLayout = linear_of(op.inputs[0].type)
        self.combine = Combiner(ctx, op)
        self.elements = self.combine.elements
        self.reverse = op.reverse
        self.levels = axis_levels(self.layout, op.axis)
        self.columns: Columns = [list(ctx.get(v)) for v in op.inputs]
        shift, self.bits = self.layout._position_of(f"dim{op.axis}")
        self.shift = shift
        self.lane_scan: _LaneScan | None = None

    def run(self) -> None:
        first = level = self._scan_registers()
        while level < len(self.levels):
            name, bit = self.levels[level]
            if name == REGISTER:
                level = self._merge_cells(level)
            elif level == first and self.op.lanes_at_once:
                level = self._scan_lanes(level)
            elif name == LANE:
                self._merge_lanes(bit)
                level += 1
            else:
                level = self._merge_warps(level)
        if self.op.ranks:
            self._merge_ctas()
        self._apply_prefixes()
        copies = replication(self.layout)[0]
        self.ctx.set(self.op, *([x[r & ~copies] for r in range(len(x))] for x in self.columns))

    # -- the lowest levels ---------------------------------------------------------------------------------

    def _scan_registers(self) -> int:
        """Scan runs of registers; returns the first level that is not done."""
        level = 0
        while level < len(self.levels) and self.levels[level][0] == REGISTER:
            level += 1
        size = 1 << level
        runs = self._runs(size)
        for i in range(1, size):
            left = [[x[run[i - 1]] for run in runs] for x in self.columns]
            right = [[x[run[i]] for run in runs] for x in self.columns]
            for column, values in zip(self.columns, self.combine(left, right)):
                for run, value in zip(runs, values):
                    column[run[i]] = value
        flat = register_constants(self.layout)
        self.cells = [_Cell(run, min(flat[r] for r in run)) for run in runs]
        self.blocks = [[c] for c in range(len(runs))]
        self.totals = [[x[run[-1]] for run in runs] for x in self.columns]
        self.prefix: list[tuple | None] = [None] * len(runs)
        self.valid: list = [0] * len(runs)
        return level

    def _runs(self, size: int) -> list[tuple[int, ...]]:
        """Groups of ``size`` registers along the axis in scanning order; copies are left out."""
        by_block: dict[int, list[int]] = {}
        register_of: dict[int, int] = {}
        for register, flat in enumerate(register_constants(self.layout)):
            if flat not in register_of:
                register_of[flat] = register
                by_block.setdefault(flat & ~((size - 1) << self.shift), []).append(flat)
        ordered = [sorted(flats, reverse=self.reverse) for flats in by_block.values()]
        return [tuple(register_of[flat] for flat in flats) for flats in ordered]

    # -- prefixes ------------------------------------------------------------------------------------------

    def _prepend(self, cells: list[int], values: Columns, condition) -> None:
        """Put ``values`` (one per cell) in front of the cells' prefixes where ``condition`` holds."""
        known = [i for i, c in enumerate(cells) if self.prefix[c] is not None]
        combined = {}
        if known:
            left = [[x[i] for i in known] for x in values]
            right = [[self.prefix[cells[i]][k] for i in known] for k in range(len(values))]
            results = self.combine(left, right)
            combined = {i: tuple(x[j] for x in results) for j, i in enumerate(known)}
        for i, cell in enumerate(cells):
            value = tuple(x[i] for x in values)
            self._set_prefix(cell, value, combined.get(i), condition)

    def _set_prefix(self, cell: int, value: tuple, combined: tuple | None, condition) -> None:
        old, valid = self.prefix[cell], self.valid[cell]
        if old is None:
            self.prefix[cell], self.valid[cell] = value, condition
            return
        new = combined if valid == 1 else self._chosen(valid, combined, value)
        self.prefix[cell] = new if condition == 1 else self._chosen(condition, new, old)
        self.valid[cell] = self._either(valid, condition)

    def _where(self, condition, new: tuple, old: tuple) -> tuple:
        """As :meth:`_chosen`, for a ``new`` that was just computed: under a predicate instead of
        selected."""
        if isinstance(condition, int):
            return new if condition else old
        b, kinds = self.b, [register_class(e) for e in self.elements]
        if "p" in kinds:
            return self._chosen(condition, new, old)
        results = tuple(b.several(kinds))
        for result, x, y, kind in zip(results, new, old, kinds):
            b.copy(result, b.plain(y))
            b.effect(MOVES[kind], result, b.plain(x), guard=condition)
        return results

    def _either(self, p, q):
        if p == 1 or q == 1:
            return 1
        if p == 0 or p == q:
            return q
        return self.b.pure("or.pred %s, %s, %s;", "p", p, q)

    def _chosen(self, condition, x: tuple, y: tuple) -> tuple:
        return tuple(choose(self.b, condition, u, v, register_class(e)) if register_class(e) != "p"
                     else self._chosen_predicate(condition, u, v) for u, v, e in zip(x, y, self.elements))

    def _chosen_predicate(self, condition, x, y):
        b = self.b
        words = [exchange.to_word(b, value, T.I1) for value in (x, y)]
        return b.pure("setp.ne.b32 %s, %s, 0;", "p", choose(b, condition, *words, "r"))

    def _apply_prefixes(self) -> None:
        done = self._finish_lanes() if self.lane_scan is not None else {}
        todo = [
            (c, r)
            for c, cell in enumerate(self.cells)
            if self.prefix[c] is not None
            for r in cell.registers
            if r not in done
        ]
        if todo:
            left = [[self.prefix[c][k] for c, _ in todo] for k in range(len(self.columns))]
            results = self.combine(left, [[x[r] for _, r in todo] for x in self.columns])
            for j, (c, r) in enumerate(todo):
                new, old = tuple(x[j] for x in results), tuple(x[r] for x in self.columns)
                done[r] = self._where(self.valid[c], new, old)
        for register, values in done.items():
            for column, value in zip(self.columns, values):
                column[register] = value

    # -- levels --------------------------------------------------------------------------------------------

    def _merge_cells(self, level: int) -> int:
        """Register bits: blocks of this thread become one, each getting the sum of those before it in front.
        Returns the next level that is none."""
        end = level
        while end < len(self.levels) and self.levels[end][0] == REGISTER:
            end += 1
        along = (1 << (end + self.shift)) - (1 << (level + self.shift))
        by_key: dict[int, list[tuple[int, int]]] = {}
        for index, block in enumerate(self.blocks):
            key = self._key(block)
            by_key.setdefault(key & ~along, []).append((key, index))
        groups = [[i for _, i in sorted(found, reverse=self.reverse)] for found in by_key.values()]
        running = [[t[group[0]] for group in groups] for t in self.totals]
        for place in range(1, len(groups[0])):
            for index, group in enumerate(groups):
                cells = self.blocks[group[place]]
                self._prepend(cells, [[x[index]] * len(cells) for x in running], 1)
            running = self.combine(running, [[t[group[place]] for group in groups] for t in self.totals])
        self.totals = running
        self.blocks = [[c for i in group for c in self.blocks[i]] for group in groups]
        return end

    # -- a run of lanes ------------------------------------------------------------------------------------

    def _scan_lanes(self, level: int) -> int:
        """Scan the totals of all cells along a run of lanes. Returns the level after the run."""
        count = self.op.lanes_at_once
        running, reached = self._inclusive(self.totals, self.levels[level][1], count)
        self.lane_scan = _LaneScan(running, 1 << self.levels[level][1], reached)
        self.totals = self._of_last_lane(running, self.levels[level][1], count)
        return level + count

    def _inclusive(self, running: Columns, first: int, count: int) -> tuple[Columns, Register]:
        """Scan values along ``count`` lane bits from ``first`` on; the results, and the predicate of all but
        the first lane of a run."""
        b = self.b
        step, last = 1 << first, (1 << count) - 1 << first
        with b.at_entry():
            place = masked(b, lane_id(b), last)
            rank = b.pure("xor.b32 %s, %s, %s;", "r", place, last) if self.reverse else place
            reached = [b.pure("setp.ge.u32 %s, %s, %s;", "p", rank, step << i) for i in range(count)]
        for i in range(count):
            combined = self.combine(self._from_lane(running, step << i), running)
            pairs = [self._where(reached[i], new, old) for new, old in zip(zip(*combined), zip(*running))]
            running = [list(x) for x in zip(*pairs)]
        return running, reached[0]

    def _of_last_lane(self, values: Columns, first: int, count: int) -> Columns:
        """What the lane has that comes last of ``count`` bits from ``first`` on."""
        b, last = self.b, (1 << count) - 1 << first
        with b.at_entry():
            end = b.pure(f"{'and' if self.reverse else 'or'}.b32 %s, %s, %s;", "r", lane_id(b),
                         31 & ~last if self.reverse else last)  # fmt: skip
        return self._of_lane(values, end)

    def _of_lane(self, values: Columns, lane) -> Columns:
        return [exchange.shuffle_entries(self.b, "idx", x, e, lane) for x, e in zip(values, self.elements)]

    def _from_lane(self, values: Columns, distance: int) -> Columns:
        """What the lane that stands ``distance`` lanes before this one has."""
        mode = "down" if self.reverse else "up"
        return [exchange.shuffle_entries(self.b, mode, x, e, distance) for x, e in zip(values, self.elements)]

    def _finish_lanes(self) -> dict[int, tuple]:
        """Turn inclusive results into prefixes of the lanes; the results of the cells' last registers, by
        register."""
        inclusive, step, follows = self.lane_scan
        per_cell = list(zip(*inclusive))
        known = [c for c, p in enumerate(self.prefix) if p is not None]
        if known:
            left = [[self.prefix[c][k] for c in known] for k in range(len(inclusive))]
            combined = self.combine(left, [[x[c] for c in known] for x in inclusive])
            for c, new in zip(known, zip(*combined)):
                per_cell[c] = self._where(self.valid[c], new, per_cell[c])
        before = self._from_lane([list(x) for x in zip(*per_cell)], step)
        for c, value in enumerate(zip(*before)):
            outer, valid = self.prefix[c], self.valid[c]
            self.prefix[c] = value if outer is None else self._chosen(follows, value, outer)
            self.valid[c] = follows if outer is None else self._either(valid, follows)
        return {cell.registers[-1]: values for cell, values in zip(self.cells, per_cell)}

    # -- other levels --------------------------------------------------------------------------------------

    def _merge_lanes(self, bit: int) -> None:
        """A lane bit: each block merges with that of the neighbour lane."""
        others = [exchange.butterfly(self.b, t, e, 1 << bit) for t, e in zip(self.totals, self.elements)]
        upper = thread_bit(self.b, 1 << bit)
        if self.reverse:
            upper = self.b.negate(upper)
        self._prepend_blocks(others, upper)
        if self.combine.commutes:
            self.totals = self.combine(self.totals, others)
            return
        pairs = [[self._chosen(upper, o, t) for o, t in zip(zip(*others), zip(*self.totals))],
                 [self._chosen(upper, t, o) for o, t in zip(zip(*others), zip(*self.totals))]]
        self.totals = self.combine(*([list(x) for x in zip(*side)] for side in pairs))

    def _prepend_blocks(self, values: Columns, condition) -> None:
        """Put one value per block in front of all its cells."""
        cells = [c for block in self.blocks for c in block]
        spread = [[x[i] for i, block in enumerate(self.blocks) for _ in block] for x in values]
        self._prepend(cells, spread, condition)

    # -- between warps -------------------------------------------------------------------------------------

    def _merge_warps(self, level: int) -> int:
        """A run of warp bits: totals go through scratch memory. Returns the level after the run."""
        count = next(n for first, n in warp_runs(self.layout, self.op.axis) if first == level)
        if any(first < level for first, _ in warp_runs(self.layout, self.op.axis)):
            exchange.barrier(self.b)
        # Lanes of lower levels hold the same totals by now; those of higher levels have their own.
        merged = sum(1 << bit for name, bit in self.levels[:level] if name == LANE)
        starts = self._write_totals(self.op.scratch_offset, level, merged)
        exchange.barrier(self.b)
        if self.op.by_lanes:
            self._scan_totals(starts, level, count)
        else:
            self._put_in_front(self._read_totals(starts, level, count), self._rank(level, count))
        return level + count

    def _scan_totals(self, starts: list[int], level: int, count: int) -> None:
        """Lanes of the run that was scanned at once scan the totals of ``2**count`` blocks in a row; each
        takes those of one block."""
        b, first = self.b, self.lane_scan.step.bit_length() - 1
        along = ((1 << count) - 1) << (level + self.shift)
        slots = [self._slot(c & ~along, level) for c in self._thread_columns()]
        slots[first : first + count] = [1 << i for i in range(count)]
        taken: Columns = []
        for start, element in zip(starts, self.elements):
            size = container_bytes(element.bits)
            thread = thread_xor(b, [slot * size for slot in slots])
            places = [start + self._slot(self._key(block) & ~along, level) * size for block in self.blocks]
            taken.append([self._read_total(thread, place, element) for place in places])
        running, _ = self._inclusive(taken, first, count)
        before = self._of_lane(running, self._lane_before(level, count, first))
        self.totals = self._of_last_lane(running, first, count)
        rank = self._rank(level, count)
        self._prepend_blocks(before, b.pure("setp.ne.s32 %s, %s, 0;", "p", rank))

    def _lane_before(self, level: int, count: int, first: int) -> Register:
        """The lane that took the totals of the block before this warp's; any for the first warp."""
        b, last = self.b, (1 << count) - 1 << first
        place = self._place(level, count)
        with b.at_entry():
            moved = b.pure("add.s32 %s, %s, %s;", "r", place, 1 if self.reverse else -1)
            moved = b.pure("shl.b32 %s, %s, %s;", "r", moved, first) if first else moved
            others = masked(b, lane_id(b), 31 & ~last)
            return b.pure("or.b32 %s, %s, %s;", "r", masked(b, moved, last), others)

    def _put_in_front(self, totals: list[Columns], rank: Register) -> None:
        """Of parts that follow each other along the axis, each gets the combination of those before it in
        front, by their ``totals``. This is number ``rank`` of them in scanning order."""
        if self.reverse:
            totals = totals[::-1]
        running = totals[0]
        before = running
        for i in range(1, len(totals)):
            if i > 1:
                here = self.b.pure("setp.ge.s32 %s, %s, %s;", "p", rank, i)
                picked = [self._chosen(here, new, old) for new, old in zip(zip(*running), zip(*before))]
                before = [list(x) for x in zip(*picked)]
            running = self.combine(running, totals[i])
        self._prepend_blocks(before, self.b.pure("setp.ne.s32 %s, %s, 0;", "p", rank))
        self.totals = running

    def _place(self, level: int, count: int) -> Register:
        """Which of the blocks of the run, by their coordinates, this warp has."""
        columns = [0] * (5 + self.layout.in_bits(WARP))
        for i in range(count):
            columns[5 + self.levels[level + i][1]] = 1 << i
        return thread_xor(self.b, columns)

    def _rank(self, level: int, count: int) -> Register:
        """How many warps of the run stand before this one."""
        rank = self._place(level, count)
        if self.reverse:
            rank = self.b.pure("xor.b32 %s, %s, %s;", "r", rank, (1 << count) - 1)
        return rank

    def _write_totals(self, start: int, level: int, merged: int) -> list[int]:
        """Write the totals of blocks of 2**level elements, which the threads that differ in the bits
        ``merged`` all have. Returns where those of each operand begin."""
        b = self.b
        owns = owner(b, merged | replication(self.layout)[1])
        starts = []
        for total, element in zip(self.totals, self.elements):
            size = container_bytes(element.bits)
            thread = thread_xor(b, [self._slot(c, level) * size for c in self._thread_columns()])
            for block, x in zip(self.blocks, total):
                place = start + self._slot(self._key(block), level) * size
                address = exchange.shared_address(b, thread, place)
                exchange.store_words(b, address, [exchange.to_word(b, x, element)], owns)
            starts.append(start)
            start += max(size << (self.layout.out_bits_total - level), 8)
        return starts

    def _read_totals(self, starts: list[int], level: int, count: int, base=None) -> list[Columns]:
        """Those of each of ``2**count`` blocks in a row, by operands; from the shared memory that begins at
        ``base``, another CTA's."""
        b = self.b
        along = ((1 << count) - 1) << (level + self.shift)
        result: list[Columns] = [[[] for _ in starts] for _ in range(1 << count)]
        for k, (start, element) in enumerate(zip(starts, self.elements)):
            size = container_bytes(element.bits)
            thread = thread_xor(b, [self._slot(c & ~along, level) * size for c in self._thread_columns()])
            for block in self.blocks:
                for warp in range(1 << count):
                    flat = self._key(block) & ~along | warp << (level + self.shift)
                    place = start + self._slot(flat, level) * size
                    result[warp][k].append(self._read_total(thread, place, element, base))
        return result

    def _read_total(self, thread, place: int, element, base=None):
        b, head = self.b, "ld.shared" if base is None else "ld.shared::cluster"
        address = exchange.shared_address(b, thread, place, base)
        (word,) = exchange.load_words(b, address, 1, exchange.word_class(element), head)
        return exchange.from_word(b, word, element)

    # -- between CTAs --------------------------------------------------------------------------------------

    def _merge_ctas(self) -> None:
        """The CTAs that hold parts of the axis, all of whose threads know the totals of their own part. They
        meet when these are written, and when they have been read."""
        b, op, level = self.b, self.op, len(self.levels)
        threads = {LANE: 0, WARP: 5}
        merged = sum(1 << threads[name] + bit for name, bit in self.levels if name in threads)
        own = scan_scratch_bytes(self.layout, op.axis, [element.bits for element in self.elements])
        starts = self._write_totals(op.scratch_offset + own, level, merged)
        exchange.cluster_barrier(b)
        bases = exchange.shared_bases(b, self.ctx.function.attributes["num_ctas"], op.ranks)
        totals = [self._read_totals(starts, level, 0, base)[0] for base in bases]
        exchange.cluster_barrier(b)
        lowest = op.ranks & -op.ranks
        with b.at_entry():
            rank = masked(b, exchange.cta_rank(b), op.ranks)
            rank = b.pure("shr.u32 %s, %s, %s;", "r", rank, lowest.bit_length() - 1)
            if self.reverse:
                rank = b.pure("xor.b32 %s, %s, %s;", "r", rank, len(bases) - 1)
        self._put_in_front(totals, rank)

    def _key(self, block: list[int]) -> int:
        return min(self.cells[c].key for c in block)

    def _slot(self, flat: int, level: int) -> int:
        """The number of a block of 2**level elements along the axis, from the flat index of an element of
        it: the axis goes to the low bits, so that the totals that a thread reads are neighbours."""
        below = flat & ((1 << self.shift) - 1)
        along = flat >> self.shift & ((1 << self.bits) - 1)
        above = flat >> (self.shift + self.bits)
        rest = above << self.shift | below
        return rest << (self.bits - level) | along >> level

    def _thread_columns(self) -> tuple[int, ...]:
        return self.layout.columns_of(LANE) + self.layout.columns_of(WARP)
