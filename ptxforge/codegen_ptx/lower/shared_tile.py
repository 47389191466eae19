"""Tiles in shared memory and vector accesses to them.

An element's offset is linear over GF(2) like everything else: the thread's part is computed once at the
kernel's entry, an access's constant is XORed into the bits that the threads touch (a swizzle) and added
otherwise, in the instruction's immediate.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.exchange import shared_base, to_word
from ptxforge.codegen_ptx.lower.indices import owner, thread_xor
from ptxforge.codegen_ptx.lower.packing import elements_of, fresh_words, two_bytes, words_of
from ptxforge.codegen_ptx.lowering import Lowering
from ptxforge.codegen_ptx.ptx.access import vector_load, vector_store
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.layouts.banks import Access, SharedAccess
from ptxforge.layouts.linear import LANE, WARP, LinearLayout
from ptxforge.layouts.mma_atoms import MatrixMove, StMatrix


class SharedTile(NamedTuple):
    """A tile: ``start`` bytes from ``smem``, plus the register ``dynamic`` (bytes) for a buffer chosen at run
    time. ``layout`` maps offsets to the coordinates of the whole allocation; ``origin`` is the offset, in
    elements, of the tile's first element in it (XORed: cuts are aligned). ``pitch`` is the distance of
    several buffers in bytes."""

    start: int
    dynamic: Register | None = None
    layout: LinearLayout | None = None
    origin: int = 0
    pitch: int = 0


def access_address(b: Builder, tile: SharedTile, access: SharedAccess, offset: int):
    """The affine address of the element ``offset`` (in elements, of lane 0 of warp 0) for this thread."""
    columns, thread_bits = _thread_part(access)
    return swizzled_address(b, tile, columns, thread_bits, offset, access.bytes_per_element)


@lru_cache(maxsize=1024)
def _thread_part(access: SharedAccess) -> tuple[tuple[int, ...], int]:
    """The offsets that the bits of lanes and warps add, and all bits of these."""
    return access.layout.columns_of(LANE) + access.layout.columns_of(WARP), access.thread_bits


def swizzled_address(
    b: Builder, tile: SharedTile, columns: tuple[int, ...], thread_bits: int, offset: int, size: int
):
    """The affine address of element ``offset`` ^ (the thread's ``columns``), whose bits are ``thread_bits``;
    all in elements of ``size`` bytes."""
    offset ^= tile.origin
    mixed = offset & thread_bits
    key = ("swizzled", columns, mixed, size)
    base = b.thread_values.get(key)
    if base is None:
        base = b.thread_values[key] = _base(b, columns, mixed * size, size)
    if tile.dynamic is not None:
        base = b.add(base, tile.dynamic)
    return b.add(base, tile.start + (offset & ~thread_bits) * size)


def _base(b: Builder, columns: tuple[int, ...], mixed: int, size: int):
    """``smem`` + ((the thread's columns) ^ ``mixed``), in bytes."""
    thread = thread_xor(b, [c * size for c in columns])
    with b.at_entry():
        if mixed and not isinstance(thread, int):
            thread = b.pure("xor.b32 %s, %s, %s;", "r", thread, mixed)
        elif mixed:
            thread ^= mixed
        return b.add(shared_base(b), thread)


def write_tile(
    ctx: Lowering, tile: SharedTile, access: SharedAccess, entries: list, element: T.Type,
    accesses: Iterable[Access] | None = None,
) -> None:
    """Store the entries of a distributed tensor (or those of some of its ``accesses``)."""
    b = ctx.b
    predicate = owner(b, access.free_lanes | access.free_warps << 5)
    if element is T.I1:
        entries, element = [to_word(b, x, T.I1) for x in entries], T.I8
    for one in access.accesses if accesses is None else accesses:
        words, type = words_of(b, [entries[r] for r in one.registers], element)
        words = [b.register(word, "r" if type == "b32" and element.bits < 32 else register_class(element))
                 for word in words]
        address = access_address(b, tile, access, one.offset)
        vector_store(b, "st.shared", address, words, type, guard=predicate)


def write_matrices(
    ctx: Lowering, tile: SharedTile, plan: StMatrix, entries: list, element: T.Type,
    stores: Iterable[MatrixMove] | None = None,
) -> None:
    """:func:`write_tile` by ``stmatrix``."""
    b = ctx.b
    trans = ".trans" if plan.trans else ""
    slots = ", ".join(["%s"] * plan.count)
    template = f"stmatrix.sync.aligned.m8n8.x{plan.count}{trans}.shared.b16 [%s+%s], {{{slots}}};"
    for one in plan.stores if stores is None else stores:
        address = swizzled_address(
            b, tile, plan.address.columns, plan.thread_bits, one.offset, element.bytes
        )
        words = [words_of(b, [entries[r] for r in registers], element)[0][0] for registers in one.registers]
        words = [b.register(word, "f" if element is T.F32 else "r") for word in words]
        b.effect(template, *b.split(address), *words)


def read_tile(
    ctx: Lowering, tile: SharedTile, access: SharedAccess, result: list, element: T.Type,
    accesses: Iterable[Access] | None = None,
) -> None:
    """Load the elements of a distributed tensor into ``result``, one entry per representative register."""
    b = ctx.b
    for one in access.accesses if accesses is None else accesses:
        address = access_address(b, tile, access, one.offset)
        if element.bits == 8 and len(one.registers) == 2:
            word = b.new("r")
            vector_load(b, "ld.shared", [word], "b16", address)
            for register, entry in zip(one.registers, two_bytes(b, word), strict=True):
                result[register] = entry
            continue
        words, type = fresh_words(b, len(one.registers), T.I8 if element is T.I1 else element)
        vector_load(b, "ld.shared", words, type, address)
        entries = elements_of(b, words, len(one.registers), T.I8 if element is T.I1 else element)
        if element is T.I1:
            entries = [
                b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, 1;", "r", x)) for x in entries
            ]
        for register, entry in zip(one.registers, entries):
            result[register] = entry
