"""Linear encodings from their bases, and linear layouts on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ptxforge.layouts.encodings import Linear
from ptxforge.layouts.linear import LinearLayout


def linear(shape: Sequence[int], bases: Mapping[str, Sequence[Sequence[int]]]) -> Linear:
    """The encoding of a tensor of ``shape`` with the given bases; missing input dimensions are empty."""
    full = {name: bases.get(name, ()) for name in ("register", "lane", "warp", "block")}
    return Linear(LinearLayout(full, [(f"dim{d}", size) for d, size in enumerate(shape)]))


def flat(layout: LinearLayout, **ins) -> np.ndarray:
    """The flat outputs of integers, or arrays of them that broadcast together."""
    result = np.zeros(np.broadcast_shapes(*(np.shape(v) for v in ins.values())), np.int64)
    for name, values in ins.items():
        for bit, column in enumerate(layout.columns_of(name)):
            result = result ^ (((np.asarray(values) >> bit) & 1) * column)
    return result
