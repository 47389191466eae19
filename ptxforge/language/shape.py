"""Shapes: reshaping, broadcasting, joining and moving elements.

Every dimension is a power of two, and a block has at most 2**20 elements. Shapes, axes and permutations are
compile-time values. Elements of any type, pointers too, keep their type. What does not fit (another number of
elements, an axis out of range, a dimension named twice) is a compile-time error (``TypeMismatchError``).
"""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import tensor


@builtin
def broadcast(input: Any, other: Any) -> tuple[tensor, tensor]:
    """``input`` and ``other`` broadcast to their common shape: ``(input, other)``.

    Shapes are aligned at their last dimensions, dimensions of size 1 stretch, a scalar fits any shape. Types
    stay as they are.

        rows, columns = tl.broadcast(i[:, None], j[None, :])
    """


@builtin(member=True)
def broadcast_to(input: Any, *shape: Any) -> tensor:
    """``input`` stretched to ``shape`` (a list, or the sizes one by one).

    Dimensions of size 1 stretch, missing ones are added in front, a scalar fills the block.

        column = tl.broadcast_to(x[:, None], [BLOCK_M, BLOCK_N])
    """


@builtin(member=True)
def expand_dims(input: Any, axis: Any) -> tensor:
    """``input`` with dimensions of size 1 inserted at ``axis``: an index of the result's dimensions, or a
    tuple of them, negative ones from the end. A scalar becomes a block. ``x[:, None]`` does the same.

        column = tl.expand_dims(x, 1)
    """


@builtin(member=True)
def reshape(input: tensor, *shape: Any, can_reorder: bool = False) -> tensor:
    """The elements of ``input`` in row-major order at another ``shape`` (a list, or the sizes one by one).

    ``can_reorder`` allows any order of the elements, which is cheaper.

        halves = tl.reshape(x, [BLOCK // 2, 2])
    """


@builtin(member=True)
def view(input: tensor, *shape: Any) -> tensor:
    """The elements of ``input`` at another ``shape``, perhaps in another order: :func:`reshape` with
    ``can_reorder``."""


@builtin(member=True)
def ravel(x: tensor, can_reorder: bool = False) -> tensor:
    """The elements of ``x`` in one dimension, in row-major order; with ``can_reorder`` in any order, which is
    cheaper."""


@builtin(member=True)
def trans(input: tensor, *dims: int) -> tensor:
    """``input`` with its dimensions in another order: the last two swapped, or as ``dims`` says (see
    :func:`permute`).

    A block of one dimension needs ``dims``. ``x.T`` swaps the last two as well.

        scores = tl.dot(q, tl.trans(k))
    """


@builtin(member=True)
def permute(input: tensor, *dims: int) -> tensor:
    """``input`` with its dimensions in another order: dimension ``i`` of the result is dimension ``dims[i]``
    of ``input``.

    ``dims`` is a list, or the dimensions one by one, and names each dimension once.

        channels_first = tl.permute(x, 2, 0, 1)
    """


@builtin
def cat(input: tensor, other: tensor, can_reorder: bool = False, dim: int = 0) -> tensor:
    """``input`` and ``other``, two blocks of one shape and type, one after the other along ``dim``.

    The result is twice as large along ``dim``. With ``can_reorder`` (blocks of one dimension) the elements
    may come in any order, which is cheaper.

        both = tl.cat(low, high, dim=0)
    """


@builtin
def join(a: Any, b: Any) -> tensor:
    """``a`` and ``b`` side by side along a new last dimension of size 2.

    They broadcast to one shape and have one element type; two scalars give a block of two.

        pairs = tl.join(even, odd)          # [N] and [N] give [N, 2]
    """


@builtin(member=True)
def split(a: tensor) -> tuple[tensor, tensor]:
    """The two halves of ``a``, a block whose last dimension is 2: ``(a[..., 0], a[..., 1])``. Undoes
    :func:`join`.

    Of a block of two elements both are scalars. Another last dimension is a compile-time error.

        low, high = tl.split(tl.reshape(x, [BLOCK // 2, 2]))
    """


@builtin
def interleave(a: Any, b: Any) -> tensor:
    """``a`` and ``b`` with their elements alternating along the last dimension, which is twice as large.

    They broadcast to one shape and have one element type.

        packed = tl.interleave(even, odd)
    """


@builtin(member=True)
def flip(x: tensor, dim: int | None = None) -> tensor:
    """``x`` with the elements along ``dim`` in opposite order; ``None`` is the last dimension."""


@builtin(member=True)
def squeeze(x: tensor, dim: int) -> tensor:
    """``x`` without the dimension ``dim``, whose size is 1; a scalar when it was the only one.

    A dimension of another size is a compile-time error.
    """


@builtin(member=True)
def unsqueeze(x: tensor, dim: int) -> tensor:
    """``x`` with a dimension of size 1 inserted at ``dim``, an index of the result's dimensions."""


@builtin(member=True)
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    """Elements of ``src`` chosen by ``index`` along ``axis``: ``result[i, j] = src[index[i, j], j]`` for
    ``axis=0``.

    ``index`` is a block of integers with the rank of ``src`` and its sizes except along ``axis``; the result
    has its shape. Indices must lie inside ``src``: what others give is undefined.

        picked = tl.gather(table, which, axis=0)
    """


@builtin(member=True)
def histogram(input: tensor, num_bins: int, mask: Any = None) -> tensor:
    """How often each value 0 … ``num_bins - 1`` occurs in ``input``, a 1-D block of integers, where ``mask``
    holds.

    The result is ``[num_bins]`` of int32; ``num_bins`` is a compile-time power of two. Other values count
    nowhere.

        counts = tl.histogram(values, 256)
    """


@builtin
def map_elementwise(scalar_fn: Any, *args: Any, pack: int = 1) -> Any:
    """``scalar_fn(x, y, …)`` for the elements of ``args``, which broadcast: a jitted function that is written
    for scalars and may have ``if``, conditional expressions, loops and ``return`` on what it is given.

    With ``pack`` (a power of two) it takes and gives that many elements of each block at once, those of one
    block together: ``f(x0, x1, y0, y1)`` returns ``a0, a1, b0, b1`` for two results. It returns one value, or
    a tuple of them, and so does this.

    Both sides of a condition are computed, and each element chooses; a loop whose end an element decides runs
    until no element of the block goes on. ``load`` and ``store`` are compile-time errors there.

        order = tl.map_elementwise(compare, x, y)
    """
