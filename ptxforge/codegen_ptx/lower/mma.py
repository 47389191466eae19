"""Matrix products on tensor cores by ``mma.sync``.

The layouts of the operands say which registers make a fragment (``layouts/mma_atoms.py``): a word of A in row
m at k, the same 8 rows further down, and both again half a k-tile further on. With a larger ``k_width`` the
words of one instruction are not neighbours in k, but A and B agree on it, so the sum is the same.

Order: k outermost, then columns of B, then rows of A back and forth (one operand pair stays while the other
walks). Loads of fragments and asynchronous copies are done in between (``operands.py``). Parts of a fragment
that a small tile does not have are zeros, and their results are dropped.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.indices import linear_of, register_constants
from ptxforge.codegen_ptx.lower.packing import pack, unpack
from ptxforge.codegen_ptx.lowering import Lowering
from ptxforge.codegen_ptx.operands import entries_of, timetable
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.ops.dot import Dot
from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.linear import LinearLayout
from ptxforge.layouts.mma_families import MMA_SYNC, find_family
from ptxforge.support import machine
from ptxforge.support.errors import InternalCompilerError

Registers = tuple[int, ...] | None
"""The registers of one word (None: the tile does not have it)."""


class Step(NamedTuple):
    """One instruction: the words of A and B, the registers of C and D (None where the tile ends)."""

    a: tuple[Registers, ...]
    b: tuple[Registers, ...]
    c: tuple[int | None, ...]


def multiply(ctx: Lowering, op: Dot) -> None:
    """Lower a dot whose result has an ``mma`` layout."""
    b = ctx.b
    element, total = op.a.type.element, op.c.type.element
    layouts = [linear_of(v.type) for v in (op.a, op.b, op.c)]
    k_width = max(op.a.type.layout.k_width, 1)
    steps = _steps(*layouts, k_width, element.bits, op.c.type.layout)
    old_sums = ctx.get(op.c)
    parts = (op.a, op.b) if ctx.deferred else ()
    left = _Words(b, entries_of(ctx, op.a), element)
    right = _Words(b, entries_of(ctx, op.b), op.b.type.element)
    needs = [(v, [_flat(step[i]) for step in steps]) for i, v in enumerate(parts)]
    places = timetable(ctx, op, needs, len(steps), machine.FRAGMENT_LEAD) if parts else {}
    sums = _Accumulator(b, old_sums, total)
    template = _template(b, op, steps[0])
    b.locate(op.location)
    for index, step in enumerate(steps):
        if index in places:
            for work in places[index]:
                ctx.do(work)
            b.locate(op.location)
        old = sums.operands(step.c)
        new = tuple(b.new(word.kind) for word in old)
        b.effect(template, *new, *map(left, step.a), *map(right, step.b), *old)
        sums.assign(step.c, new)
    ctx.set(op, sums.entries)


def _flat(words: tuple[Registers, ...]) -> list[int]:
    return [register for word in words if word is not None for register in word]


def _template(b: Builder, op: Dot, step: Step) -> str:
    """The instruction with a slot per register."""
    types = [str(v.type.element) for v in op.operands]
    family = find_family(MMA_SYNC, *types)
    b.require(*family.ptx)
    first, second, sums = family.kinds(*types, op.a_unsigned, op.b_unsigned)
    words_c = len(step.c) // (2 if op.element is T.F16 else 1)
    slots = ["{" + ", ".join(["%s"] * n) + "}" for n in (words_c, len(step.a), len(step.b), words_c)]
    shape = f"m{family.m}n{family.n}k{family.k}"
    return f"mma.sync.aligned.{shape}.row.col.{sums}.{first}.{second}.{sums} {', '.join(slots)};"


class _Words:
    """The 32-bit registers of an operand (64-bit for f64)."""

    def __init__(self, b: Builder, entries: list, element: T.Type):
        self.b, self.entries, self.element = b, entries, element
        self.found: dict[tuple, Register] = {}

    def __call__(self, registers: Registers) -> Register:
        if registers is None:
            return self.b.register(0, "d" if self.element is T.F64 else "r")
        word = self.found.get(registers)
        if word is None:
            word = self.found[registers] = self._word(registers)
        return word

    def _word(self, registers: tuple[int, ...]) -> Register:
        b = self.b
        if self.element.bits >= 32:
            return b.register(self.entries[registers[0]], register_class(self.element))
        return b.register(pack(b, [self.entries[r] for r in registers], self.element), "r")


class _Accumulator:
    """The registers of C, and of D as the instructions give them. f16 is packed in pairs."""

    def __init__(self, b: Builder, entries: list, element: T.Type):
        self.b, self.element = b, element
        self.entries = list(entries)
        self.kind = register_class(element)

    def operands(self, registers: tuple[int | None, ...]) -> tuple[Register, ...]:
        b = self.b
        values = [0 if r is None else self.entries[r] for r in registers]
        if self.element is T.F16:
            return tuple(b.register(pack(b, values[i : i + 2], T.F16), "r") for i in range(0, len(values), 2))
        zero = "0f00000000" if self.element is T.F32 else "0d0000000000000000" if self.element is T.F64 else 0
        return tuple(b.register(zero if r is None else x, self.kind) for r, x in zip(registers, values))

    def assign(self, registers: tuple[int | None, ...], words: tuple[Register, ...]) -> None:
        if self.element is T.F16:
            words = tuple(x for word in words for x in unpack(self.b, word, T.F16))
        for register, word in zip(registers, words, strict=True):
            if register is not None:
                self.entries[register] = word


# -- which registers -------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _steps(
    a: LinearLayout, b: LinearLayout, c: LinearLayout, k_width: int, bits: int, layout: Mma
) -> tuple[Step, ...]:
    """All instructions of one thread, in order."""
    if layout.version[0] != 2:
        raise InternalCompilerError(f"there is no mma.sync for {layout}")
    dims = layout.rank - 2, layout.rank - 1
    place_a, place_b = _places(a, layout, dims[:1]), _places(b, layout, dims[1:])
    place_c = _places(c, layout, dims)
    rows = layout.instr_shape[-2]
    per_word = max(1, 32 // bits)
    k_starts = _k_starts(a.out_shape[-1], k_width, per_word, halves=rows == 16)
    tiles = _tiles(place_c, rows)
    steps = []
    for ks in k_starts:
        for batch, by_column in tiles.items():
            for index, (n, ms) in enumerate(by_column.items()):
                for m in ms if index % 2 == 0 else reversed(ms):
                    steps.append(
                        Step(
                            _words_a(place_a, batch, m, ks, rows, per_word),
                            tuple(_word(place_b, [(*batch, k + i, n) for i in range(per_word)]) for k in ks),
                            _words_c(place_c, batch, m, n, rows),
                        )
                    )
    return tuple(steps)


def _places(tensor: LinearLayout, layout: Mma, dims: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    """The first register of each element that thread 0 holds, by coordinates; rows and columns, ``dims``, as
    instructions count."""
    places: dict[tuple[int, ...], int] = {}
    for register, flat in enumerate(register_constants(tensor)):
        at = tensor.unflatten(flat)
        counted = tuple(layout.as_counted(d, x) if d in dims else x for d, x in enumerate(at))
        places.setdefault(counted, register)
    return places


def _k_starts(size: int, k_width: int, per_word: int, halves: bool) -> list[tuple[int, ...]]:
    """For each instruction the k (of lane 0) at which its words begin: two that a lane holds side by side, if
    it does, so that one load brings both."""
    tile = k_width * (8 if halves else 4)
    words = [base + half + word for base in range(0, max(size, tile), tile)
             for half in ((0, tile // 2) if halves else (0,)) for word in range(0, k_width, per_word)]
    count = 2 if halves else 1
    return [tuple(words[i : i + count]) for i in range(0, len(words), count)]


def _tiles(place_c: dict, rows: int) -> dict[tuple, dict[int, list[int]]]:
    """Per batch index and first column, the first rows of the result's tiles."""
    tiles: dict[tuple, dict[int, list[int]]] = {}
    for *batch, m, n in sorted(place_c):
        if m % rows == 0 and n % 8 == 0:
            tiles.setdefault(tuple(batch), {}).setdefault(n, []).append(m)
    return tiles


def _word(places: dict, coordinates: list[tuple]) -> Registers:
    registers = tuple(places.get(at) for at in coordinates)
    return None if None in registers else registers


def _words_a(
    places: dict, batch: tuple, m: int, ks: tuple, rows: int, per_word: int
) -> tuple[Registers, ...]:
    down = (m, m + 8) if rows == 16 else (m,)
    return tuple(_word(places, [(*batch, row, k + i) for i in range(per_word)]) for k in ks for row in down)


def _words_c(places: dict, batch: tuple, m: int, n: int, rows: int) -> tuple[int | None, ...]:
    down = (m, m + 8) if rows == 16 else (m,)
    return tuple(places.get((*batch, row, n + i)) for row in down for i in (0, 1))
