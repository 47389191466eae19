"""Ragged tensors through one descriptor: subarrays of any length, behind each other along one dimension.

    x_desc = create_ragged_descriptor(x, [32, 64])          # on the host; x has the rows of all experts
    tile = load_ragged(x_desc, first, count, [i, j])        # in a kernel: of rows first … first + count

A box that reaches beyond a subarray reads nothing of the next one, although the descriptor knows no
subarrays. Along the ragged dimension, of stride s bytes, there are three dimensions in the place of one, with
the strides (2**34 - s, s, s) and the sizes (many, many, W), where W = 2**30. Row r of the subarray that
begins at row f and has n rows is the element (W, f + n, W - n + r): it lies at

    W (2**34 - s) + (f + n) s + (W - n + r) s = 2**64 + (f + r) s,

and addresses have 64 bits; and its last index is inside of the tensor where W - n + r < W, for rows r < n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ptxforge.language as tl
from ptxforge.runtime.jit import jit
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from ptxforge.support.descriptor import MAX_RANK
from ptxforge.support.errors import ArgumentError

WRAP = tl.constexpr(1 << 30)
MANY = 0x7FFF0000
_PERIOD = 1 << 34  # bytes: WRAP of them are 2**64


def create_ragged_descriptor(T: Any, block_shape: Sequence[int], ragged_dim: int = 0) -> TensorDescriptor:
    """The descriptor for :func:`load_ragged` and its like, of an array ``T`` of two or three dimensions.

    ``block_shape`` is the shape of a box; ``ragged_dim``, not the last one, is where subarrays lie behind
    each other. Raises :class:`ArgumentError` for other arrays and dimensions.
    """
    plain = TensorDescriptor.from_tensor(T, block_shape)
    rank = len(plain.shape)
    axis = ragged_dim + rank if ragged_dim < 0 else ragged_dim
    if rank + 2 > MAX_RANK:
        raise ArgumentError(f"must have at most {MAX_RANK - 2} dimensions, has {rank}", "T")
    if not 0 <= axis < rank - 1:
        raise ArgumentError(f"must be a dimension but the last one, is {ragged_dim}", "ragged_dim")
    if plain.shape[axis] > WRAP.value:
        raise ArgumentError(f"must have at most {WRAP.value} rows, has {plain.shape[axis]}", "T")
    stride = plain.strides[axis]
    shape = [MANY, MANY, *plain.shape]
    shape[axis + 2] = WRAP.value
    strides = [_PERIOD // plain.dtype.bytes - stride, stride, *plain.strides]
    return TensorDescriptor(T, shape, strides, [1, 1, *plain.block_shape])


@jit
def to_ragged_indices(slice_off, slice_size, row):
    """The three indices of row ``row`` of the subarray of ``slice_size`` rows from row ``slice_off`` on."""
    return WRAP, slice_off + slice_size, WRAP - slice_size + row


@jit
def _indices(slice_off, slice_size, coords, ragged_dim):
    first, second, row = to_ragged_indices(slice_off, slice_size, coords[ragged_dim])
    return [first, second] + coords[:ragged_dim] + [row] + coords[ragged_dim + 1 :]


@jit
def load_ragged(TMA, slice_off, slice_size, coords, ragged_dim: tl.constexpr = 0):
    """The box at ``coords`` of the subarray; zeros beyond its end."""
    tl.static_assert(len(TMA.shape) == len(coords) + 2, "TMA is no ragged descriptor of that rank")
    tile = TMA.load(_indices(slice_off, slice_size, coords, ragged_dim))
    return tl.reshape(tile, TMA.block_shape[2:])


@jit
def store_ragged(TMA, slice_off, slice_size, coords, data, ragged_dim: tl.constexpr = 0):
    """Write the box at ``coords`` of the subarray; nothing beyond its end."""
    tl.static_assert(len(TMA.shape) == len(coords) + 2, "TMA is no ragged descriptor of that rank")
    TMA.store(_indices(slice_off, slice_size, coords, ragged_dim), tl.reshape(data, TMA.block_shape))


@jit
def atomic_add_ragged(TMA, slice_off, slice_size, coords, data, ragged_dim: tl.constexpr = 0):
    """Add to the box at ``coords`` of the subarray; nothing beyond its end."""
    tl.static_assert(len(TMA.shape) == len(coords) + 2, "TMA is no ragged descriptor of that rank")
    TMA.atomic_add(_indices(slice_off, slice_size, coords, ragged_dim), tl.reshape(data, TMA.block_shape))
