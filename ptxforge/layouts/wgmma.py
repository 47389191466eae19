"""Tiles for ``wgmma``: where its operands lie in shared memory, and how their descriptors say so.

One instruction multiplies 64 rows of A by n columns of B, 32 bytes of each along k, for a *warpgroup*: four
warps of 16 rows each. B, and A unless it is in registers, are read from shared memory through a *matrix
descriptor*: 64 bits with an address, two strides and a swizzle (PTX ISA 9.0, "Asynchronous Warpgroup Level
Matrix Shared Memory Layout"; what the sections leave open was measured on an H200).

A tile lies in panels. A panel is ``swizzle`` bytes wide (32, 64 or 128) along the tile's fastest dimension
and has all of its rows, one after the other; eight rows make a swizzle atom, inside of which 16-byte chunks
are permuted. Two cases:

K-major    k is fastest. The rows of a panel are rows of A (columns of B); ``stride`` is the distance of eight
           of them. An instruction's 32 bytes along k are a part of the panel's width: ``leading`` is not
           read.
MN-major   m (n) is fastest, only for 16-bit elements. The rows of a panel are indices along k; ``stride`` is
           the distance of eight of them, ``leading`` that of one panel to the next along m (n).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from attrs import frozen

from ptxforge.layouts.encodings import Mma, Shared

WARPS = 4
ROWS = 64
"""Rows of A of one instruction."""
K_BYTES = 32
"""Bytes along k of one instruction, in each row of A and column of B."""
MAX_COLUMNS = 256
ATOM_ROWS = 8
CHUNK_BYTES = 16
SWIZZLES = (128, 64, 32)
"""Widths of panels in bytes, best first."""
MAX_ALIGNMENT = ATOM_ROWS * SWIZZLES[0]


@lru_cache(maxsize=256)
def accumulators(shape: tuple[int, int], num_warps: int, keeps_rows: bool) -> Mma | None:
    """The layout of the accumulators of an [M, N] product by ``num_warps`` warps; ``None`` if there are no
    64 rows and 16 columns for each warpgroup. ``keeps_rows``: all warpgroups lie along m, so that rows do not
    leave their warp."""
    if num_warps % WARPS:
        return None
    groups = num_warps // WARPS
    along_m = groups if keeps_rows else min(groups, max(1, shape[0] // ROWS))
    along_n = groups // along_m
    columns = shape[1] // along_n
    if shape[0] < ROWS * along_m or columns < 2 * ATOM_ROWS:
        return None
    return Mma((3, 0), (WARPS * along_m, along_n), (16, min(columns, MAX_COLUMNS), 16))


def columns_of_instruction(layout: Mma) -> int:
    """n of the instructions whose accumulators ``layout`` describes."""
    return layout.instr_shape[1]


@lru_cache(maxsize=256)
def shared_for_operand(
    shape: Sequence[int], order: tuple[int, ...], bits: int, k_dim: int, columns: int
) -> Shared | None:
    """The layout of an operand of ``shape`` whose elements have ``bits`` bits and lie in ``order``, so that
    ``wgmma`` reads it; ``None`` if it cannot. ``columns`` is the instruction's extent along the other
    dimension than ``k_dim``."""
    size = bits // 8
    is_k_major = order[0] == k_dim
    if not is_k_major and bits != 16:
        return None
    width = shape[order[0]] * size if is_k_major else min(shape[order[0]], columns) * size
    if width < K_BYTES or shape[order[1]] < ATOM_ROWS or shape[k_dim] * size < K_BYTES:
        return None
    return swizzled(min(width, SWIZZLES[0]), bits, order)


def swizzled(width: int, bits: int, order: tuple[int, ...]) -> Shared:
    """Panels of ``width`` bytes under the swizzle of that width.

    >>> print(swizzled(128, 16, (1, 0)))
    #shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0], hasLeadingOffset = true}>
    """
    vec = CHUNK_BYTES * 8 // bits
    return Shared(vec, SWIZZLES[0] // width, width // CHUNK_BYTES, order, has_leading_offset=True)


@frozen
class Operand:
    """How descriptors name the parts of one operand's tile; all in bytes."""

    swizzle: int
    leading: int
    stride: int
    is_transposed: bool
    """MN-major."""
    element: int
    """Bytes of an element."""
    rows: int
    """Of a panel."""

    def offset(self, index: int, k: int) -> int:
        """Where the part begins that an instruction reads from row of A (column of B) ``index`` and ``k`` on;
        both are multiples of what an instruction takes."""
        along, row = (index, k) if self.is_transposed else (k, index)
        panel, within = divmod(along * self.element, self.swizzle)
        return panel * self.rows * self.swizzle + row * self.swizzle + within

    @property
    def upper_bits(self) -> int:
        """The upper 32 bits of the descriptor."""
        return self.stride >> 4 | (SWIZZLES.index(self.swizzle) + 1) << 30

    @property
    def leading_bits(self) -> int:
        """What the lower 32 bits have beside the address."""
        return (self.leading >> 4) << 16


def alignment(layout: Shared, bits: int) -> int:
    """Bytes: the hardware permutes by the bits of the address, so tiles begin where an atom does."""
    return max(128, ATOM_ROWS * layout.vec * layout.max_phase * bits // 8)


@lru_cache(maxsize=256)
def operand(layout: Shared, shape: tuple[int, ...], bits: int, k_dim: int) -> Operand:
    """The descriptors of a tile under one of the layouts of :func:`shared_for_operand`."""
    swizzle = layout.vec * layout.max_phase * bits // 8
    is_transposed = layout.order[0] != k_dim
    rows = shape[layout.order[1]]
    leading = rows * swizzle if is_transposed else CHUNK_BYTES
    return Operand(swizzle, leading, ATOM_ROWS * swizzle, is_transposed, bits // 8, rows)


def is_for_wgmma(layout: Shared) -> bool:
    """Whether a tile lies in swizzled panels."""
    return layout.has_leading_offset and layout.rank > 1
