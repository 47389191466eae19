"""Decide what the assembler is told beside the instructions.

    func @f(…) attributes {num_warps = 8} {                                 (before)
      %sum = for %k = … { … dot … }

    func @f(…) attributes {min_blocks = 1, num_warps = 8} {                 (after)
      %sum = for %k = … {rolled = true} { … dot … }

MIN_BLOCKS  For how many blocks on a multiprocessor it is to leave registers. Left to itself, it aims at many,
            which costs loads ahead of their use, and spills, where threads hold much: fragments of matrix
            products (shared memory has no room for a second block), or rows of 32 or more words in each
            thread (two blocks keep enough bytes in flight, and each word is allowed two registers; not with
            about 128 words, which just fit: it would load more ahead). Several such tiles that a loop
            carries, and the one that it loads, get as many blocks as these leave room for, and all registers
            where they leave none. Where elements are computed late, the assembler chooses
            how many a thread has under way. Loops that accumulate booleans need no predicate for
            longer than a load takes to start, so that those of all iterations written out side by side can
            be on their way together: half of the warps that a multiprocessor has room for get registers for
            them, where these are enough. Products on FMA units are left alone: two blocks of 64 sums a thread
            need exactly what there is. Nor is anything decided where the user did (``maxnreg``).
ROLLED      Loops with products are pipelined by us and stay as they are. Others it may unroll, and so have
            the loads of several iterations in flight instead of one's.
LATE        Where each element goes its own way from load to store, and all at once are more than half of a
            multiprocessor's threads have registers for, each is computed when it is stored
            (``ptx/compute_late.py``).
BRANCHES    Copies by TMA stand behind branches (``ptx/branch_to_copies.py``) where a kernel has one product
            (in parts, it may be), whose threads copy beside multiplying. Of kernels with several, some are
            faster with it and others slower.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.mbarrier import TensorLoad
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.tensor_store import TensorStore
from ptxforge.ir.pressure import (
    blocks_with,
    carried_by_loops,
    largest_tile,
    registers_of,
    room,
    streams_much,
)
from ptxforge.ir.warps import warps_of
from ptxforge.layouts.encodings import Mma
from ptxforge.support import machine
from ptxforge.support.target import Target


def advise_assembler(function: Function, target: Target) -> bool:
    """Set ``min_blocks``, ``compute_late`` and ``branch_to_copies`` of the function, and ``rolled`` of its
    loops."""
    products, attributes, before = function.walk(Product), function.attributes, dict(function.attributes)
    loops = [loop for loop in function.walk(For) if products and not loop.rolled and loop.walk(Product)]
    for loop in loops:
        loop.rolled = True
    if not products and streams_much(function):
        attributes["compute_late"] = True
    blocks = None if attributes.get("maxnreg") else _blocks(function, products)
    if blocks is not None:
        attributes["min_blocks"] = blocks
    whole = [product for product in products if not product.is_later_part]
    if len(whole) == 1 and function.walk((TensorLoad, TensorStore)):
        attributes["branch_to_copies"] = True
    return bool(loops) or attributes != before


def _blocks(function: Function, products: tuple[Product, ...]) -> int | None:
    """See MIN_BLOCKS; None where the assembler is left to itself."""
    if products:
        return 1 if any(isinstance(product.sums.layout, Mma) for product in products) else None
    words = largest_tile(function)
    ranges, threads = machine.WORDS_FOR_TWO_BLOCKS, warps_of(function).threads
    live = words + carried_by_loops(function)
    if "compute_late" in function.attributes:
        return None
    if words >= ranges[0][0] and live > 2 * words:
        return max(1, min(2, blocks_with(live, threads)))
    if not any(low <= words <= high for low, high in ranges):
        return _blocks_that_load_ahead(function, threads)
    return min(2, blocks_with(2 * words, threads)) or None


def _blocks_that_load_ahead(function: Function, threads: int) -> int | None:
    """How many blocks half of a multiprocessor's warps are, if a loop that accumulates booleans can do with
    the registers that each thread then has."""
    together = machine.WARPS_PER_MULTIPROCESSOR * machine.WARP_SIZE // 2
    most = room(together) - machine.REGISTERS_BESIDE_LOADS
    for loop in function.walk(For):
        if loop.accumulates_booleans:
            carried = [v.type for v in loop.carried if isinstance(v.type, T.TensorType)]
            loaded = [op.result.type for op in loop.body.of(Load) if isinstance(op.result.type, T.TensorType)]
            tiles = carried + machine.ITERATIONS_SIDE_BY_SIDE * loaded
            if loaded and sum(map(registers_of, tiles)) <= most:
                return max(1, together // threads)
    return None
