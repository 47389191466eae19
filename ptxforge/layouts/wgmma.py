"""Tiles for ``wgmma``: where its operands lie in shared memory, and how their descriptors say so.

One instruction multiplies 64 rows of A by n columns of B, 32 bytes of each along k, for a *warpgroup*: four
warps of 16 rows each. B, and A unless it is in registers, are read from shared memory through a *matrix
descriptor*: 64 bits with an address, two strides and a swizzle (PTX ISA 9.0, "Asynchronous Warpgroup Level
Matrix Shared Memory Layout"; what the sections leave open was measured on an H200).

A tile lies in :class:`~ptxforge.layouts.panels.Panels`. Two cases:

K-major    k is fastest. The rows of a panel are rows of A (columns of B); ``stride`` is the distance of eight
           of them. An instruction's 32 bytes along k are a part of the panel's width: ``leading`` is not
           read.
MN-major   m (n) is fastest, only for 16-bit elements. The rows of a panel are indices along k; ``stride`` is
           the distance of eight of them, ``leading`` that of one panel to the next along m (n).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from attrs import evolve, frozen

from ptxforge.layouts.boxes import CHUNK_BYTES
from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.panels import ATOM_ROWS, SWIZZLES, Panels

WARPS = 4
ROWS = 64
"""Rows of A of one instruction."""
K_BYTES = 32
"""Bytes along k of one instruction, in each row of A and column of B."""
MAX_COLUMNS = 256


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


def with_rows_apart(layout: Mma) -> Mma:
    """The accumulators of a product whose left operand threads read from panels of 32-bit elements that lie
    along m: see ``interleave`` of :class:`~ptxforge.layouts.encodings.Mma`."""
    return evolve(layout, interleave=(4, 1))


def columns_of_instruction(layout: Mma) -> int:
    """n of the instructions whose accumulators ``layout`` describes."""
    return layout.instr_shape[1]


@lru_cache(maxsize=256)
def panels_for_operand(
    shape: Sequence[int], order: tuple[int, ...], bits: int, k_dim: int, columns: int
) -> Panels | None:
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
    return Panels(min(width, SWIZZLES[0]), bits, order)


@frozen
class Operand:
    """How descriptors name the parts of one operand's tile, in bytes."""

    layout: Panels
    rows: int
    """Of a panel."""
    is_transposed: bool
    """MN-major."""

    def offset(self, index: int, k: int) -> int:
        """Where the part begins that an instruction reads from row of A (column of B) ``index`` and ``k`` on;
        both are multiples of what an instruction takes."""
        along, row = (index, k) if self.is_transposed else (k, index)
        panel, within = divmod(along, self.layout.width)
        return (panel * self.rows + row) * self.layout.swizzle + within * self.layout.element_bits // 8

    @property
    def upper_bits(self) -> int:
        """The upper 32 bits of the descriptor: the stride, that of an atom, and the swizzle."""
        return self.layout.alignment >> 4 | (SWIZZLES.index(self.layout.swizzle) + 1) << 30

    @property
    def leading_bits(self) -> int:
        """What the lower 32 bits have beside the address."""
        leading = self.rows * self.layout.swizzle if self.is_transposed else CHUNK_BYTES
        return (leading >> 4) << 16


@lru_cache(maxsize=256)
def operand(layout: Panels, shape: tuple[int, ...], k_dim: int) -> Operand:
    """The descriptors of a tile under one of the layouts of :func:`panels_for_operand`."""
    return Operand(layout, shape[layout.order[1]], layout.order[0] != k_dim)
