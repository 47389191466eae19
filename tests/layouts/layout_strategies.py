"""Random layouts for hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from ptxforge.layouts.encodings import Blocked, DotOperand, Linear, Mma, Slice
from ptxforge.layouts.linear import LinearLayout
from ptxforge.layouts.panels import SWIZZLES, Panels
from ptxforge.layouts.shared import Shared


@st.composite
def matrices(draw, in_dims=("a", "b"), out_dims=("x", "y"), max_bits=4):
    """Any linear layout, singular ones included."""
    outs = [(name, 1 << draw(st.integers(0, max_bits))) for name in out_dims]
    bases = {name: [tuple(draw(st.integers(0, size - 1)) for _, size in outs)
                    for _ in range(draw(st.integers(0, max_bits)))] for name in in_dims}
    return LinearLayout(bases, outs)


@st.composite
def invertible(draw, in_dim="a", out_dim="x", bits=5):
    """A bijective layout: unit columns, then random row operations that keep the rank."""
    columns = list(draw(st.permutations([1 << i for i in range(bits)])))
    for _ in range(draw(st.integers(0, 8))):
        i, j = draw(st.integers(0, bits - 1)), draw(st.integers(0, bits - 1))
        if i != j:
            columns[i] ^= columns[j]
    return LinearLayout.of_columns([(in_dim, bits)], [(out_dim, 1 << bits)], columns)


def split(draw, bits, rank):
    """2**bits as a product over ``rank`` dimensions."""
    sizes = [1] * rank
    for _ in range(bits):
        sizes[draw(st.integers(0, rank - 1))] *= 2
    return tuple(sizes)


@st.composite
def blocked(draw, rank=2, warp_bits=None):
    warp_bits = draw(st.integers(0, 3)) if warp_bits is None else warp_bits
    return Blocked(split(draw, draw(st.integers(0, 4)), rank), split(draw, 5, rank),
                   split(draw, warp_bits, rank), draw(st.permutations(range(rank))))


@st.composite
def mma(draw, warp_bits):
    tiles = draw(st.sampled_from([(1, 1), (1, 1), (1, 4), (2, 1)]))
    warps, shape = split(draw, warp_bits, 2), draw(st.sampled_from([(16, 8), (8, 8)]))
    return Mma((2, 0), warps, shape, tiles_per_warp=tiles)


@st.composite
def linear(draw, shape, warp_bits):
    """A distributed layout with XORs and copies: a blocked one with columns mixed."""
    base = draw(blocked(2, warp_bits)).linear(shape)
    columns = list(base.columns)
    for _ in range(draw(st.integers(0, 6))):
        i, j = (draw(st.integers(0, len(columns) - 1)) for _ in range(2))
        if i != j:
            columns[i] ^= columns[j]
    return Linear(LinearLayout.of_columns(base.in_items(), base.out_dims, columns))


@st.composite
def distributed(draw, shape, warp_bits):
    """Any encoding for a 2-D tensor of ``shape`` with 2**warp_bits warps."""
    kind = draw(st.sampled_from(["blocked", "blocked", "mma", "dot", "fma", "slice", "linear"]))
    if kind == "mma":
        return draw(mma(warp_bits))
    if kind == "dot":
        return DotOperand(draw(st.integers(0, 1)), draw(mma(warp_bits)), draw(st.sampled_from([1, 2, 4])))
    if kind == "fma":
        return DotOperand(draw(st.integers(0, 1)), draw(blocked(2, warp_bits)))
    if kind == "slice":
        return Slice(draw(st.integers(0, 2)), draw(blocked(3, warp_bits)))
    if kind == "linear":
        return draw(linear(shape, warp_bits))
    return draw(blocked(2, warp_bits))


@st.composite
def shared(draw, rank=2):
    power = st.sampled_from([1, 2, 4, 8])
    order = draw(st.permutations(range(rank)))
    return Shared(draw(power), draw(power), draw(power), order)


@st.composite
def panels(draw, rank=2):
    bits = draw(st.sampled_from([8, 16, 32, 64]))
    return Panels(draw(st.sampled_from(SWIZZLES)), bits, draw(st.permutations(range(rank))))


def in_shared_memory(rank=2):
    return st.one_of(shared(rank), panels(rank))


def elements(layout: LinearLayout) -> np.ndarray:
    """Flat tensor index held by every [warp, lane, register] of a distributed linear layout."""
    return layout.sublayout(("register", "lane", "warp"), layout.out_names).table()
