"""Shared memory that an operation needs for itself while it runs, and what encodings are built from: counting
through a tile, fragments, and fitting a tile to a tensor.

Reductions and scans exchange one value per warp, gathers and histograms a whole tile. The allocation pass
asks here how many bytes, and the code generator lays them out by the same rules. What a layout conversion
needs is part of its plan (``conversion.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import dropwhile
from math import prod
from typing import NamedTuple

from ptxforge.layouts import f2
from ptxforge.layouts.cta import CTALayout, Shape, names_in_order
from ptxforge.layouts.linear import BLOCK, LANE, OFFSET, REGISTER, WARP, LayoutError, LinearLayout, log2_exact


def container_bytes(element_bits: int) -> int:
    """Bytes that a value takes in scratch memory: 4, or 8 for a 64-bit one."""
    return 8 if element_bits == 64 else 4


def exchange_bytes(count: int, element_bits: Sequence[int]) -> int:
    """Bytes for ``count`` values of each of several operands, one behind the other; each begins at a multiple
    of 16."""
    return sum(-(-count * container_bytes(bits) // 16) * 16 for bits in element_bits)


@lru_cache(maxsize=4096)
def axis_levels(layout: LinearLayout, axis: int) -> tuple[tuple[str, int], ...]:
    """For every bit of the coordinate along ``axis``, lowest first, who holds it: (input dimension, bit).

    Raises:
        LayoutError: when a bit of the layout moves along ``axis`` and another dimension at once (a swizzle),
            or some coordinate bit belongs to nobody.
    """
    size = layout.out_dims[axis][1]
    levels: list[tuple[str, int] | None] = [None] * (size.bit_length() - 1)
    for name, vectors in layout.bases:
        for bit, vector in enumerate(vectors):
            along = vector[axis]
            if not along:
                continue
            if along & (along - 1) or any(v for d, v in enumerate(vector) if d != axis):
                raise LayoutError(f"cannot reduce along dimension {axis} of the swizzled layout {layout}")
            position = along.bit_length() - 1
            if levels[position] is None:
                levels[position] = (name, bit)
    if None in levels:
        raise LayoutError(f"some elements have no place in {layout}")
    return tuple(levels)


def axis_bits(layout: LinearLayout, axis: int, name: str) -> tuple[int, ...]:
    """The bits of input dimension ``name`` that move along ``axis``, by increasing step."""
    return tuple(bit for in_dim, bit in axis_levels(layout, axis) if in_dim == name)


def reduce_scratch_bytes(layout: LinearLayout, axis: int, element_bits: Sequence[int]) -> int:
    """Bytes for a reduction along ``axis`` of operands with elements of ``element_bits``: for each operand
    one value per result element and warp along the axis; 0 when the axis lies within warps."""
    warps = 1 << len(axis_bits(layout, axis, WARP))
    if warps == 1:
        return 0
    results = prod(size for d, (_, size) in enumerate(layout.out_dims) if d != axis)
    return sum(results * warps * container_bytes(bits) for bits in element_bits)


class Share(NamedTuple):
    """Which of all partial results of a reduction, ``results`` of them side by side for each warp, a thread
    combines: ``partials`` warps' of each of the ``rows``, beginning where ``columns`` (for each bit of the
    thread's number) leads; 2**``lane_bits`` neighbouring lanes combine one result. ``serves_all``: no partial
    result is read by two threads."""

    partials: int
    rows: range
    columns: tuple[int, ...]
    lane_bits: int
    serves_all: bool


@lru_cache(maxsize=1024)
def deal_out(results: int, warps: int, layout: LinearLayout) -> Share:
    """Deal the partial results of ``warps`` warps for ``results`` results out to all threads of ``layout``.

    >>> from ptxforge.layouts.encodings import Blocked
    >>> deal_out(64, 4, Blocked((4, 1), (16, 2), (1, 4), (0, 1)).linear((64, 8)))
    Share(partials=2, rows=range(0, 64, 64), columns=(128, 1, 2, 4, 8, 16, 32), lane_bits=1, serves_all=True)
    """
    threads, row_bits = layout.in_bits(LANE) + layout.in_bits(WARP), log2_exact(results)
    own = max(0, row_bits + log2_exact(warps) - threads)  # bits of the partial results of one thread
    partials = min(1 << own, warps)
    lane_bits = log2_exact(warps // partials)
    told_apart = min(threads - lane_bits, row_bits)  # bits of the results that threads tell apart
    columns = [results * partials << bit for bit in range(lane_bits)]
    columns += [1 << bit for bit in range(told_apart)]
    rows = range(0, results, 1 << told_apart)
    return Share(partials, rows, tuple(columns), lane_bits, lane_bits + told_apart == threads)


@lru_cache(maxsize=4096)
def first_lane_run(layout: LinearLayout, axis: int) -> int:
    """How many levels right above the lowest register bits along ``axis`` are neighbouring lane bits in
    order."""
    above = tuple(dropwhile(lambda level: level[0] == REGISTER, axis_levels(layout, axis)))
    count = 0
    while count < len(above) and above[count] == (LANE, above[0][1] + count):
        count += 1
    return count


@lru_cache(maxsize=4096)
def warp_runs(layout: LinearLayout, axis: int) -> tuple[tuple[int, int], ...]:
    """(first level, number of levels) of each run of consecutive coordinate bits along ``axis`` that are warp
    bits."""
    runs: list[list[int]] = []
    for level, (name, _) in enumerate(axis_levels(layout, axis)):
        if name != WARP:
            continue
        if runs and sum(runs[-1]) == level:
            runs[-1][1] += 1
        else:
            runs.append([level, 1])
    return tuple((first, count) for first, count in runs)


def scan_scratch_bytes(layout: LinearLayout, axis: int, element_bits: Sequence[int]) -> int:
    """Bytes for a scan along ``axis``: the totals of the blocks of elements that one warp holds in a row."""
    elements = prod(size for _, size in layout.out_dims)
    per_run = [sum((elements >> first) * container_bytes(bits) for bits in element_bits)
               for first, _ in warp_runs(layout, axis)]
    return max(per_run, default=0)


def totals_bytes(layout: LinearLayout, axis: int, element_bits: Sequence[int]) -> int:
    """Bytes for the totals of whole rows along ``axis``, which a scan over several CTAs exchanges;
    those of an operand begin at a multiple of 8."""
    rows = prod(size for d, (_, size) in enumerate(layout.out_dims) if d != axis)
    return sum(max(rows * container_bytes(bits), 8) for bits in element_bits)


def gather_scratch_bytes(source_shape: Sequence[int], element_bits: int) -> int:
    """Bytes for a gather: the whole source tile."""
    return prod(source_shape) * container_bytes(element_bits)


def mirror(layout: LinearLayout, axis: int) -> dict[str, int]:
    """The bits of each input dimension of a surjective layout in which the places of an element and of its
    mirror image along ``axis`` differ: the same everywhere."""
    last = layout.flatten([size - 1 if d == axis else 0 for d, size in enumerate(layout.out_shape)])
    bits, found = f2.Span(layout.columns).express(last), {}
    for name, count in layout.in_items():
        found[name] = bits & ((1 << count) - 1)
        bits >>= count
    return found


def flip_scratch_bytes(layout: LinearLayout, axis: int, element_bits: int) -> int:
    """Bytes for a flip: a container for each register of each thread; 0 when the axis lies within warps."""
    is_within_warps = not mirror(layout, axis)[WARP]
    return 0 if is_within_warps else container_bytes(element_bits) << layout.in_bits_total


def histogram_scratch_bytes(bins: int) -> int:
    """Bytes for a histogram: one 32-bit counter per bin."""
    return bins * 4


def atomic_scratch_bytes(layout: LinearLayout | None, element_bits: int, num_warps: int) -> int:
    """Bytes for an atomic operation whose result is used: one of several copies executes it and hands the
    result to the others. Within a warp that takes shuffles; between warps the whole tile (``layout`` None: a
    scalar) goes through shared memory."""
    if layout is None:
        return container_bytes(element_bits) if num_warps > 1 else 0
    if not layout.free_variables().get(WARP, 0):
        return 0
    return prod(size for _, size in layout.out_dims) * container_bytes(element_bits)


def identity_nd(in_dim: str, shape: Sequence[int], order: Sequence[int]) -> LinearLayout:
    """``in_dim`` counts through ``shape``, fastest dimension of ``order`` first."""
    layout = LinearLayout.empty([in_dim], names_in_order(order))
    for d in order:
        layout *= LinearLayout.identity(shape[d], in_dim, f"dim{d}")
    return layout


def broadcast_nd(in_dim: str, shape: Sequence[int], order: Sequence[int], flat_dim: int) -> LinearLayout:
    """As :func:`identity_nd`, but the bits that count along ``flat_dim`` map to zero."""
    layout = LinearLayout.empty([in_dim], names_in_order(order))
    for d in order:
        make = LinearLayout.zeros if d == flat_dim else LinearLayout.identity
        layout *= make(shape[d], in_dim, f"dim{d}")
    return layout


def mma_tile(
    shape: Sequence[int], k_width: int, order: Sequence[int], repeat_order: Sequence[int]
) -> LinearLayout:
    """The fragment of one instruction: the pattern that accumulators and operands of every ``mma`` share.

    Along the fast dimension a lane holds ``k_width`` consecutive elements and 4 lanes stand side by side;
    along the slow one stand 8 rows of lanes. That 8 x (4 · k_width) piece repeats in registers, slow
    dimension first, up to ``shape``. (PTX ISA 9.0, figures of section 9.7.14.5: groupID = lane / 4,
    threadID_in_group = lane mod 4.)
    """
    inner, outer = f"dim{order[0]}", f"dim{order[1]}"
    layout = LinearLayout.empty([REGISTER, LANE], names_in_order(repeat_order))
    layout *= LinearLayout.identity(k_width, REGISTER, inner) * LinearLayout.identity(4, LANE, inner)
    layout *= LinearLayout.identity(8, LANE, outer)
    layout *= LinearLayout.identity(shape[order[1]] // 8, REGISTER, outer)
    return layout * LinearLayout.identity(shape[order[0]] // (k_width * 4), REGISTER, inner)


def permute_bits(layout: LinearLayout, name: str, places: Sequence[int]) -> LinearLayout:
    """Bit i of output ``name`` becomes its bit ``places[i]``; there are as many places as it has bits."""
    shift = sum(size.bit_length() - 1 for _, size in layout.out_dims[layout.out_names.index(name) + 1:])
    mask = (1 << len(places)) - 1 << shift

    def moved(column: int) -> int:
        bits = sum((column >> shift + i & 1) << shift + place for i, place in enumerate(places))
        return column & ~mask | bits

    return LinearLayout.of_columns(layout.in_items(), layout.out_dims, [moved(c) for c in layout.columns])


def fit(tile: LinearLayout, cta: CTALayout, shape: Shape, register: str) -> LinearLayout:
    """Make the tile of one CTA cover the CTA's part of ``shape``, then add the CTAs."""
    names = tile.out_names
    per_cta = cta.shape_per_cta(shape)
    layout = repeat(clip(tile, per_cta), per_cta, register) * cta.linear(shape)
    ins = [d for d in (REGISTER, OFFSET, LANE, WARP, BLOCK) if d in layout.in_dims]
    return layout.sublayout(ins, sorted(names, key=lambda n: int(n[3:])))


def clip(layout: LinearLayout, shape: Shape) -> LinearLayout:
    """Cut the outputs down to ``shape``: bits beyond it become zero, which wraps the tile."""
    outs = tuple((name, min(size, shape[int(name[3:])])) for name, size in layout.out_dims)
    if outs == layout.out_dims:
        return layout
    bases = [(name, [tuple(v & (size - 1) for v, (_, size) in zip(vector, outs)) for vector in vectors])
             for name, vectors in layout.bases]
    return LinearLayout(bases, outs)


def repeat(layout: LinearLayout, shape: Shape, register: str) -> LinearLayout:
    """Repeat along ``register`` until the outputs cover ``shape``, first output dimension first."""
    for name, size in layout.out_dims:
        layout *= LinearLayout.identity(shape[int(name[3:])] // size, register, name)
    return layout
