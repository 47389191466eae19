"""Shapes: reshaping, broadcasting, joining and moving elements. Every dimension is a power of two."""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import tensor


@builtin
def broadcast(input: Any, other: Any) -> tuple[tensor, tensor]:
    """Both, broadcast to their common shape. Dimensions of size 1 stretch; a scalar fits any shape."""


@builtin(member=True)
def broadcast_to(input: Any, *shape: Any) -> tensor:
    """``input`` stretched to ``shape`` (a list, or the sizes one by one).

    column = tl.broadcast_to(x[:, None], [BLOCK_M, BLOCK_N])
    """


@builtin(member=True)
def expand_dims(input: Any, axis: Any) -> tensor:
    """Dimensions of size 1 inserted at ``axis`` (an index of the result, or several). ``x[:, None]`` does the same."""


@builtin(member=True)
def reshape(input: tensor, *shape: Any, can_reorder: bool = False) -> tensor:
    """The elements in row-major order under another shape; with ``can_reorder`` in any order.

    halves = tl.reshape(x, [BLOCK // 2, 2])
    """


@builtin(member=True)
def view(input: tensor, *shape: Any) -> tensor:
    """As :func:`reshape`, where the order of elements may change."""


@builtin(member=True)
def ravel(x: tensor, can_reorder: bool = False) -> tensor:
    """The elements in one dimension."""


@builtin(member=True)
def trans(input: tensor, *dims: int) -> tensor:
    """The dimensions in another order: the last two swapped, or as ``dims`` says. ``x.T`` does the first.

    scores = tl.dot(q, tl.trans(k))
    """


@builtin(member=True)
def permute(input: tensor, *dims: int) -> tensor:
    """Dimension ``i`` of the result is dimension ``dims[i]`` of ``input``."""


@builtin
def cat(input: tensor, other: tensor, can_reorder: bool = False, dim: int = 0) -> tensor:
    """Two blocks of one shape, one after the other along ``dim``. With ``can_reorder`` (1-D blocks) the elements may
    come in any order, which is cheaper."""


@builtin
def join(a: Any, b: Any) -> tensor:
    """Two blocks (broadcast to one shape) side by side along a new last dimension of size 2."""


@builtin(member=True)
def split(a: tensor) -> tuple[tensor, tensor]:
    """The two halves of a block whose last dimension is 2. The opposite of :func:`join`."""


@builtin
def interleave(a: Any, b: Any) -> tensor:
    """Two blocks with their elements alternating along the last dimension."""


@builtin(member=True)
def flip(x: tensor, dim: int | None = None) -> tensor:
    """The elements along ``dim`` (the last) in opposite order."""


@builtin(member=True)
def squeeze(x: tensor, dim: int) -> tensor:
    """Without the dimension ``dim``, whose size is 1."""


@builtin(member=True)
def unsqueeze(x: tensor, dim: int) -> tensor:
    """With a dimension of size 1 inserted at ``dim``."""


@builtin(member=True)
def gather(src: tensor, index: tensor, axis: int) -> tensor:
    """``src[…, index[…, i, …], …]`` along ``axis``. ``index`` has ``src``'s rank, its sizes except along ``axis``, and
    values inside.

        picked = tl.gather(table, which, axis=0)
    """


@builtin(member=True)
def histogram(input: tensor, num_bins: int, mask: Any = None) -> tensor:
    """Counts of the values 0 … num_bins-1 in a 1-D block of integers, as ``num_bins`` int32; where ``mask`` holds.

    counts = tl.histogram(values, 256)
    """
