"""Block pointers: a tensor in memory, and a block of it that moves.

    tile = tl.make_block_ptr(a, (M, K), (stride_m, stride_k), (row, 0), (BLOCK_M, BLOCK_K), (1, 0))
    for k in range(0, K, BLOCK_K):
        x = tl.load(tile, boundary_check=(0, 1), padding_option="zero")
        tile = tl.advance(tile, (0, BLOCK_K))

A block pointer is a value: it is carried by loops, passed to functions, put into tuples, and a branch may
choose between two of one type. ``tl.load`` and ``tl.store`` take it in the place of a block of pointers, and
compile to the very instructions that those would. Addresses are computed with 64 bits.
"""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import tensor


@builtin
def make_block_ptr(
    base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> tensor:
    """A pointer to a block of ``block_shape`` that begins at ``offsets`` of the tensor at ``base``.

    ``base`` is a scalar pointer. ``shape`` and ``strides`` (integers; in elements) describe the tensor;
    ``offsets`` (integers, which may be negative or beyond the end) say where the block begins; where they and
    the ``shape`` have 32 bits, their difference fits in 32 bits, too;
    ``block_shape`` is a list of compile-time powers of two; ``order`` lists the dimensions from the fastest
    in memory to the slowest, which may speed nothing up: the strides say it already. All five have one
    length.

    Errors: a ``base`` that is no scalar pointer, lists of different lengths, floats, an ``order`` that is no
    permutation.

        tile = tl.make_block_ptr(a, (M, K), (K, 1), (pid * 128, 0), (128, 64), (1, 0))
    """


@builtin(member=True)
def advance(base: tensor, offsets: Any) -> tensor:
    """The block pointer ``base`` moved by ``offsets``, an integer for each dimension.

    Errors: a ``base`` that is no block pointer, a wrong number of ``offsets``, floats.

        tile = tl.advance(tile, (0, BLOCK_K))
    """
