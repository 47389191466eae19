"""What encodings are built from: counting through a tile, fragments, and fitting a tile to a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.layouts.cta import CTALayout, Shape, names_in_order
from ptxforge.layouts.linear import BLOCK, LANE, OFFSET, REGISTER, WARP, LinearLayout


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
