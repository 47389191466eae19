"""Element indices of a layout as values of a thread.

A layout is linear over GF(2): L(register, lane, warp) = L(register, 0, 0) ^ L(0, lane, warp). The second part
is computed once per thread from ``%tid.x`` (lane and warp are its bits), the first is a constant. Where the
two share no bits, ^ is +, and an index is an affine value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import or_

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.layouts.linear import LANE, REGISTER, WARP, LinearLayout, register_constants


def linear_of(type: T.TensorType) -> LinearLayout:
    """The linear layout of a tensor type."""
    return type.layout.linear(type.shape)


def thread_id(b: Builder) -> Register:
    """The number of the thread in its group: ``%tid.x`` where that is the whole block."""
    tid = b.thread_values.get("tid")
    if tid is None:
        with b.at_entry():
            tid = b.pure("mov.u32 %s, %%tid.x;", "r")
            if b.group.first:
                tid = b.pure("sub.u32 %s, %s, %s;", "r", tid, b.group.first_thread)
            if b.group.groups > 1:
                tid = b.pure("and.b32 %s, %s, %s;", "r", tid, b.group.threads - 1)
            tid = b.thread_values["tid"] = tid.within(0, b.group.threads - 1)
    return tid


def group_number(b: Builder) -> Register:
    """Which of several groups that run the same this one is. It comes through a shuffle, so that the
    assembler knows it to be the same in all threads of a warp."""
    with b.at_entry():
        tid = b.pure("mov.u32 %s, %%tid.x;", "r")
        own = b.pure("shr.u32 %s, %s, %s;", "r", tid, b.group.threads.bit_length() - 1)
        found = b.pure("shfl.sync.idx.b32 %s, %s, 0, 31, -1;", "r", own)
    return found.within(0, b.group.groups - 1)


def is_in_first_group(b: Builder) -> Register:
    """The predicate of the threads of the first of such groups."""
    with b.at_entry():
        return b.pure("setp.eq.s32 %s, %s, 0;", "p", group_number(b))


def lane_id(b: Builder) -> Register:
    """The lane within the warp (thread blocks are one-dimensional)."""
    with b.at_entry():
        return masked(b, thread_id(b), 31)


def masked(b: Builder, x: Register, mask: int) -> Register:
    """``x & mask``; ``x`` itself when its range says that nothing is cut off."""
    known = x.range
    if known is not None and known[0] >= 0 and known[1] <= mask and mask & (mask + 1) == 0:
        return x
    return b.pure("and.b32 %s, %s, %s;", "r", x, mask).within(0, mask)


def thread_xor(b: Builder, columns: Sequence[int]):
    """The XOR of ``columns[i]`` over the set bits i of ``%tid.x``: a register, or 0.

    Runs of columns that are shifted copies of each other (1, 2, 4 …) are one shift and mask.
    """
    columns = tuple(columns)
    while columns and columns[-1] == 0:
        columns = columns[:-1]
    if not columns:
        return 0
    found = b.thread_values.get(columns)
    if found is None:
        with b.at_entry():
            found = b.thread_values[columns] = _thread_xor(b, columns)
    return found


def _thread_xor(b: Builder, columns: tuple[int, ...]) -> Register:
    result = None
    reach = 0
    for start, length, column in _runs(columns):
        piece = _bits(b, start, length)
        for position in range(column.bit_length()):
            if column >> position & 1:
                term = b.mul(piece, 1 << position) if position >= 0 else piece
                bits = ((1 << length) - 1) << position
                result = term if result is None else _merge(b, result, term, reach & bits == 0)
                reach |= bits
    return result.within(0, (1 << reach.bit_length()) - 1)


def _merge(b: Builder, x: Register, y: Register, disjoint: bool) -> Register:
    return b.pure("or.b32 %s, %s, %s;" if disjoint else "xor.b32 %s, %s, %s;", "r", x, y)


def _bits(b: Builder, start: int, length: int) -> Register:
    """Bits start … start+length of ``%tid.x``, shifted down."""
    tid = thread_id(b)
    if start == 0:
        return masked(b, tid, (1 << length) - 1)
    if b.group.threads <= 1 << start + length:
        found = b.pure("shr.u32 %s, %s, %s;", "r", tid, start)
    else:
        found = b.pure("bfe.u32 %s, %s, %s, %s;", "r", tid, start, length)
    return found.within(0, (1 << length) - 1)


@lru_cache(maxsize=4096)
def _runs(columns: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """(first bit, number of bits, first column) of maximal runs with columns[i + 1] == 2 · columns[i]."""
    runs = []
    i = 0
    while i < len(columns):
        if columns[i] == 0:
            i += 1
            continue
        stop = i + 1
        while stop < len(columns) and columns[stop] == 2 * columns[stop - 1]:
            stop += 1
        runs.append((i, stop - i, columns[i]))
        i = stop
    return tuple(runs)


def combine(b: Builder, thread, columns: Sequence[int], constant: int):
    """``thread ^ constant`` where ``thread`` ranges over the span of ``columns``."""
    if isinstance(thread, int):
        return thread ^ constant
    reach = reduce(or_, columns, 0)
    mixed = constant & reach
    if mixed:
        with b.at_entry():
            thread = b.pure("xor.b32 %s, %s, %s;", "r", thread, mixed)
        thread.within(0, (1 << reach.bit_length()) - 1)
    return b.add(thread, constant & ~reach)


def thread_columns(layout: LinearLayout) -> tuple[int, ...]:
    """The flat columns of the bits of ``%tid.x``: lanes, then warps."""
    return layout.columns_of(LANE) + layout.columns_of(WARP)


@lru_cache(maxsize=4096)
def run_starts(layout: LinearLayout, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """For every register, the first one whose element lies in the same run of ``lengths`` elements (powers of
    two, by dimension). Threads move whole runs by an exclusive or, so that this holds in all of them."""
    first: dict[tuple[int, ...], int] = {}
    found = []
    for register, flat in enumerate(register_constants(layout)):
        run = tuple(x // length for x, length in zip(layout.unflatten(flat), lengths, strict=True))
        found.append(first.setdefault(run, register))
    return tuple(found)


def flat_indices(b: Builder, layout: LinearLayout) -> list:
    """The flat index of each register's element, as affine values."""
    columns = thread_columns(layout)
    thread = thread_xor(b, columns)
    return [combine(b, thread, columns, c) for c in register_constants(layout)]


def coordinate(b: Builder, layout: LinearLayout, dim: int) -> list:
    """Coordinate ``dim`` of each register's element, as affine values."""
    part = layout.sublayout(layout.in_dims, [f"dim{dim}"])
    return flat_indices(b, part)


@lru_cache(maxsize=4096)
def replication(layout: LinearLayout) -> tuple[int, int]:
    """(mask of register bits, mask of ``%tid.x`` bits) that are free: copies of what the others hold."""
    free = layout.free_variables()
    lanes = layout.in_bits(LANE)
    return free.get(REGISTER, 0), free.get(LANE, 0) | free.get(WARP, 0) << lanes


def owner(b: Builder, thread_mask: int):
    """The predicate of the threads whose bits in ``thread_mask`` are all zero: one of each set of copies."""
    if not thread_mask:
        return None
    with b.at_entry():
        return b.pure("setp.eq.b32 %s, %s, 0;", "p", masked(b, thread_id(b), thread_mask))


def first_thread(b: Builder):
    """The predicate of the group's first thread, the owner of what all of them hold."""
    return owner(b, b.group.threads - 1)


def thread_bit(b: Builder, mask: int) -> Register:
    """The predicate that the parity of ``%tid.x & mask`` is odd."""
    with b.at_entry():
        bits = masked(b, thread_id(b), mask)
        if mask & (mask - 1):
            bits = b.pure("and.b32 %s, %s, 1;", "r", b.pure("popc.b32 %s, %s;", "r", bits))
        return b.pure("setp.ne.b32 %s, %s, 0;", "p", bits)
