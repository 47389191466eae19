"""Fragments of tensor core instructions, and how ``ldmatrix`` fills them.

*Fragments.* Each lane of a warp holds some elements of A (m x k), B (k x n) and of the accumulator C (m x n).
PTX ISA 9.0, section 9.7.14.5 "Matrix multiply-accumulate operation using mma instruction", gives a figure per
shape and type. All those of ``mma.sync`` follow one pattern, with g = lane / 4 and t = lane mod 4:

    a 32-bit register (64-bit for f64) holds ``w`` neighbours along the fast dimension, starting at w * t,
    in row g of the slow one; further registers lie 8 further on along the slow dimension, then 4 w along the
    fast one.

The fast dimension is k for A and B and n for C. For A and B, w is 32 bits' worth of elements (1 for f64); for
C it is 2, whatever the type (f32 and s32 take a register each). ``encodings.Mma`` and
``encodings.DotOperand`` build their linear layouts from this pattern, and the tests compare them with the
figures' formulas.

*ldmatrix* (PTX ISA, "Warp-level matrix load instruction: ldmatrix") reads 8 x 8 matrices of 16-bit elements:
lane i points at a 16-byte row, (matrix i / 8, row i mod 8), and gets from each matrix the 32 bits at
row g, column 2 t; with ``.trans`` the two elements at rows 2 t and 2 t + 1, column g. In terms of offsets:

    plain    register bytes and lane bits 0, 1 count through a row's 16 bytes; lane bits 2..4 select the row
    trans    lane bits 2..4 count through a row's 8 elements; register pair and lane bits 0, 1 select the row.
             Of 8-bit elements two neighbours in a row count as one: the register holds both, of two rows

Whether a layout in registers and a layout in shared memory admit it is read off the columns of one
matrix, (register, lane, warp) -> offset; so are the addresses that the lanes must give.

*stmatrix* (PTX ISA, "Warp-level matrix store instruction: stmatrix") is ``ldmatrix`` backwards: each lane
gives of each matrix the 32 bits that ``ldmatrix`` would bring it. So what can be loaded by ``ldmatrix`` can
be stored by ``stmatrix``, and the same columns of (register, lane, warp) -> offset prove it.

A store by lanes of two accumulators each (4 bytes of f16) takes four times as many instructions for as many
bytes; one of the vectors that a thread holds in several tiles needs rows that no reader wants. The rows of
``stmatrix`` are 16 bytes of one row of the tile, which readers and copies by TMA take as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache, reduce

from attrs import frozen

from ptxforge.layouts.banks import conflict_degree, offsets_of
from ptxforge.layouts.f2 import deposit
from ptxforge.layouts.linear import LANE, REGISTER, WARP, LinearLayout

ROW_BYTES = 16


# -- ldmatrix ------------------------------------------------------------------------------------------


@frozen
class MatrixMove:
    """One ``ldmatrix`` or ``stmatrix``: ``registers[i]`` are a thread's registers for matrix i, lowest bits
    first.

    ``offset`` (elements) is XORed into the thread's address, or added where that is the same: in the bits
    outside of :attr:`MatrixMoves.thread_bits`.
    """

    offset: int
    registers: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1024)
def _union(columns: tuple[int, ...]) -> int:
    """The bits that any of the columns has."""
    return reduce(operator.or_, columns, 0)


@frozen
class MatrixMoves:
    """What ``ldmatrix.xCOUNT[.trans]`` and ``stmatrix.xCOUNT[.trans]`` have in common: ``address`` maps
    (lane, warp) to the offset, in elements, of the row that the lane points at."""

    count: int
    trans: bool
    address: LinearLayout

    @property
    def thread_bits(self) -> int:
        """The offset bits that the address takes from lanes and warps."""
        return _union(self.address.columns)

@frozen
class LdMatrix(MatrixMoves):
    """How a distributed layout is loaded: ``loads`` are the instructions of one thread. ``degree`` counts
    bank conflicts (1: none)."""

    loads: tuple[MatrixMove, ...]
    degree: int


def plan_ldmatrix(
    distributed: LinearLayout, shared: LinearLayout, element_bits: int, late: Sequence[int] = ()
) -> LdMatrix | None:
    """The widest ``ldmatrix`` that brings ``shared`` into ``distributed``, plain or transposed, or None.

    Args:
        distributed, shared: linear layouts of the same tensor (one CTA).
        late: bits of the register number that should not tell the matrices of one instruction apart, if
            others can: registers that differ in them are needed at different times.
        element_bits: 8, 16 or 32; transposing works for 16, and for 8 where a lane holds pairs of neighbours.

    >>> from ptxforge.layouts.encodings import DotOperand, Mma
    >>> from ptxforge.layouts.shared import Shared
    >>> a = DotOperand(0, Mma((2, 0), (2, 2)), 2).linear((64, 64))
    >>> rows, columns = Shared(8, 1, 8, (1, 0)).linear((64, 64)), Shared(8, 1, 8, (0, 1)).linear((64, 64))
    >>> for memory in (rows, columns):
    ...     plan = plan_ldmatrix(a, memory, 16)
    ...     print(f"x{plan.count}", plan.trans, len(plan.loads), plan.degree, plan.loads[0].registers)
    x4 False 8 1 ((0, 1), (2, 3), (4, 5), (6, 7))
    x4 True 8 1 ((0, 1), (2, 3), (4, 5), (6, 7))
    """
    return _plan_ldmatrix(distributed, shared, element_bits, tuple(late))


@lru_cache(maxsize=1024)
def _plan_ldmatrix(distributed, shared, element_bits: int, late: tuple[int, ...]) -> LdMatrix | None:
    if element_bits not in (8, 16, 32) or distributed.in_bits(LANE) != 5:
        return None
    return plan_matrices(offsets_of(distributed, shared), element_bits, late=late)


def plan_matrices(
    offsets: LinearLayout, element_bits: int, max_count: int = 4, late: Sequence[int] = ()
) -> LdMatrix | None:
    """:func:`plan_ldmatrix` for (register, lane, warp) -> offset."""
    return _plain(offsets, element_bits, max_count, late) or _transposed(
        offsets, element_bits, max_count, late
    )


def _plain(
    offsets: LinearLayout, element_bits: int, max_count: int, late: Sequence[int]
) -> LdMatrix | None:
    packed = (32 // element_bits).bit_length() - 1  # register bits inside 32 bits
    registers, lanes = offsets.columns_of(REGISTER), offsets.columns_of(LANE)
    low = [1 << i for i in range(packed + 2)]
    if any(column not in registers for column in low[:packed]) or list(lanes[:2]) != low[packed:]:
        return None
    inside = [registers.index(column) for column in low[:packed]]
    return _loads(offsets, inside, lanes[2:5], False, element_bits, max_count, late)


def _transposed(
    offsets: LinearLayout, element_bits: int, max_count: int, late: Sequence[int]
) -> LdMatrix | None:
    registers, lanes = offsets.columns_of(REGISTER), offsets.columns_of(LANE)
    unit = 16 // element_bits  # elements that move together: two bytes are neighbours in memory and register
    if not unit or list(lanes[2:5]) != [unit, 2 * unit, 4 * unit]:
        return None
    inside = [registers.index(1)] if unit == 2 and 1 in registers else []
    if len(inside) != unit.bit_length() - 1:
        return None
    # The two halves of a register come from any two rows that a lane holds, the lowest without bank
    # conflicts.
    pairs = [bit for bit, column in enumerate(registers) if column and bit not in inside]
    plans = (
        _loads(offsets, [*inside, pair], (registers[pair], *lanes[:2]), True, element_bits, max_count, late)
        for pair in pairs[:3]
    )
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.degree, default=None)


def _loads(
    offsets: LinearLayout, inside: Sequence[int], row_columns: Sequence[int], trans: bool, element_bits: int,
    max_count: int, late: Sequence[int],
) -> LdMatrix | None:
    """The instructions, once it is known which register bits lie inside a matrix element pair and which
    columns select the row."""
    row = ROW_BYTES * 8 // element_bits
    registers, warps = offsets.columns_of(REGISTER), offsets.columns_of(WARP)
    outer = [bit for bit in range(len(registers)) if bit not in inside]
    if any(column % row for column in (*row_columns, *warps, *(registers[bit] for bit in outer))):
        return None
    told_apart = sorted((bit for bit in outer if registers[bit]), key=lambda bit: bit in late)
    matrices = told_apart[:max_count.bit_length() - 1]
    address = LinearLayout.of_columns(
        [(LANE, 5), (WARP, len(warps))], offsets.out_dims,
        [*row_columns, *_padded([registers[bit] for bit in matrices], 2), *warps])
    rest = [bit for bit in outer if bit not in matrices]
    loads = tuple(_load(registers, inside, matrices, rest, i) for i in range(1 << len(rest)))
    degree = conflict_degree(row_columns, row, element_bits // 8)
    return LdMatrix(1 << len(matrices), trans, address, loads, degree)


def _padded(columns: list[int], size: int) -> list[int]:
    """Lanes beyond those whose addresses count repeat the others' addresses."""
    return columns + [0] * (size - len(columns))


def _load(registers, inside, matrices, rest, index: int) -> MatrixMove:
    base = deposit(index, rest)
    offset = 0
    for i, bit in enumerate(rest):
        offset ^= registers[bit] if index >> i & 1 else 0
    groups = []
    for matrix in range(1 << len(matrices)):
        first = base | deposit(matrix, matrices)
        groups.append(tuple(first | deposit(j, inside) for j in range(1 << len(inside))))
    return MatrixMove(offset, tuple(groups))


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
    >>> from ptxforge.layouts.panels import Panels
    >>> tile = Mma((3, 0), (4, 1), (16, 64, 16)).linear((64, 64))
    >>> for order in ((1, 0), (0, 1)):
    ...     plan = plan_stmatrix(offsets_of(tile, Panels(128, 16, order).linear((64, 64))), 16)
    ...     print(f"x{plan.count}", plan.trans, len(plan.stores), plan.degree, plan.stores[0].registers)
    x4 False 4 1 ((0, 1), (2, 3), (4, 5), (6, 7))
    x4 True 4 1 ((0, 1), (2, 3), (4, 5), (6, 7))
    """
    if element_bits not in (8, 16, 32) or offsets.in_bits(LANE) != 5:
        return None
    if 0 in offsets.columns_of(LANE) or 0 in offsets.columns_of(WARP):
        return None  # several lanes would store one element
    late = [bit for bit, column in enumerate(offsets.columns_of(REGISTER)) if column >= part]
    for count in COUNTS:
        plan = plan_matrices(offsets, element_bits, count, late)
        if plan is None:
            return None
        if all(column < part for column in plan.address.columns_of(LANE)):
            distinct = {one.offset: one for one in reversed(plan.loads)}
            stores = tuple(reversed(distinct.values()))
            return StMatrix(plan.count, plan.trans, plan.address, stores, plan.degree)
    return None
