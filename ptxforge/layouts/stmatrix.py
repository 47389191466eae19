"""``stmatrix``: fragments of tensor cores to shared memory, in rows of 16 bytes.

The instruction (PTX ISA, "Warp-level matrix store instruction: stmatrix") is ``ldmatrix`` backwards: lane i
points at a 16-byte row, (matrix i / 8, row i mod 8), and each lane gives of each matrix the 32 bits that
``ldmatrix`` would bring it. So what can be loaded by ``ldmatrix`` can be stored by ``stmatrix``, and the
same columns of (register, lane, warp) -> offset prove it (``mma_atoms.py``).

A store by lanes of two accumulators each (4 bytes of f16) takes four times as many instructions for as many
bytes; one of the vectors that a thread holds in several tiles needs rows that no reader wants. The rows of
``stmatrix`` are 16 bytes of one row of the tile, which readers and copies by TMA take as they are.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from ptxforge.layouts.linear import LANE, WARP, LinearLayout
from ptxforge.layouts.mma_atoms import MatrixMove, MatrixMoves, plan_matrices

COUNTS = (4, 2, 1)


@frozen
class StMatrix(MatrixMoves):
    """How a distributed layout is stored: ``stores`` are the instructions of one thread. ``degree`` counts
    bank conflicts (1: none)."""

    stores: tuple[MatrixMove, ...]
    degree: int

    @property
    def wavefronts(self) -> int:
        """Steps that the shared memory needs for all of a warp's stores."""
        return len(self.stores) * self.count * self.degree


@lru_cache(maxsize=1024)
def plan_stmatrix(offsets: LinearLayout, element_bits: int, part: int = 1 << 62) -> StMatrix | None:
    """The widest ``stmatrix`` for a tensor whose elements go to ``offsets``, or None where it cannot.

    Args:
        offsets: (register, lane, warp) to offset in elements (``banks.offsets_of``).
        element_bits: 8, 16 or 32.
        part: offsets that differ in this bit or higher ones do not go into one instruction.

    >>> from ptxforge.layouts.banks import offsets_of
    >>> from ptxforge.layouts.encodings import Mma
    >>> from ptxforge.layouts.wgmma import swizzled
    >>> tile = Mma((3, 0), (4, 1), (16, 64, 16)).linear((64, 64))
    >>> for order in ((1, 0), (0, 1)):
    ...     plan = plan_stmatrix(offsets_of(tile, swizzled(128, 16, order).linear((64, 64))), 16)
    ...     print(f"x{plan.count}", plan.trans, len(plan.stores), plan.degree, plan.stores[0].registers)
    x4 False 4 1 ((0, 1), (2, 3), (4, 5), (6, 7))
    x4 True 4 1 ((0, 1), (2, 3), (4, 5), (6, 7))
    """
    if element_bits not in (8, 16, 32) or offsets.in_bits(LANE) != 5:
        return None
    if 0 in offsets.columns_of(LANE) or 0 in offsets.columns_of(WARP):
        return None  # several lanes would store one element
    for count in COUNTS:
        plan = plan_matrices(offsets, element_bits, count)
        if plan is None:
            return None
        if all(column < part for column in plan.address.columns_of(LANE)):
            distinct = {one.offset: one for one in reversed(plan.loads)}
            stores = tuple(reversed(distinct.values()))
            return StMatrix(plan.count, plan.trans, plan.address, stores, plan.degree)
    return None
