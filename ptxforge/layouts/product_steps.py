"""The instructions of a matrix product: how many a thread takes part in, in which order, and which registers
each of them uses.

``mma.sync``: the layouts of the operands say which registers make a fragment (``mma_atoms.py``): a word of A
in row m at k, the same 8 rows further down, and both again half a k-tile further on. With a larger
``k_width`` the words of one instruction are not neighbours in k, but A and B agree on it, so the sum is the
same. Order: k outermost, then columns of B, then rows of A back and forth (one operand pair stays while the
other walks).

FMA units: k outermost, too, so that each step needs one column of ``a`` and one row of ``b``; a step goes
through its rows to and fro, so that from one instruction to the next only one operand changes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.linear import LinearLayout, register_constants

Registers = tuple[int, ...] | None
"""The registers of one word (None: the tile does not have it)."""


class Step(NamedTuple):
    """One instruction: the words of A and B, the registers of C and D (None where the tile ends)."""

    a: tuple[Registers, ...]
    b: tuple[Registers, ...]
    c: tuple[int | None, ...]

    def operand(self, index: int) -> list[int]:
        """All registers of A (0) or B (1)."""
        return [register for word in self[index] if word is not None for register in word]


# -- tensor cores ----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def mma_steps(
    a: LinearLayout, b: LinearLayout, c: LinearLayout, k_width: int, bits: int, layout: Mma
) -> tuple[Step, ...]:
    """All instructions of one thread on tensor cores, in order."""
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


# -- FMA units -------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def fma_steps(a: LinearLayout, b: LinearLayout, c: LinearLayout) -> tuple[tuple[int, int, int], ...]:
    """The triples (register of the result, of a, of b) that one thread multiplies and adds, in order."""
    place_a, place_b = _places_of(a), _places_of(b)
    outputs = [(r, c.unflatten(flat)) for r, flat in enumerate(register_constants(c))]
    return tuple(
        (r, place_a[(*out[:-1], k)], place_b[(*out[:-2], k, out[-1])])
        for k in sorted({coordinates[-1] for coordinates in place_a})
        for r, out in _to_and_fro(outputs)
    )


def _to_and_fro(outputs: list[tuple[int, tuple[int, ...]]]) -> list[tuple[int, tuple[int, ...]]]:
    """Elements of the result in rows, every other row backwards."""
    rows: dict[tuple[int, ...], list] = {}
    for register, out in sorted(outputs, key=lambda item: item[1]):
        rows.setdefault(out[:-1], []).append((register, out))
    return [item for i, row in enumerate(rows.values()) for item in (reversed(row) if i % 2 else row)]


def _places_of(layout: LinearLayout) -> dict[tuple[int, ...], int]:
    """The first register of each element that thread 0 holds."""
    places: dict[tuple[int, ...], int] = {}
    for register, flat in enumerate(register_constants(layout)):
        places.setdefault(layout.unflatten(flat), register)
    return places
