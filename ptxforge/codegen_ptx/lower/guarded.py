"""Loads and stores that are wide where that turns out to be right.

``guarded = 8`` on an access says: it is worth trying to move 8 elements at a time. Whether a vector may be
moved as a whole is tested when the kernel runs:

    contiguous   the pointers run on from the first element to the last. (They do, or they jump once within
                 the vector to a lower address: what a ``rotated_range`` does where it ends.)
    aligned      the first address is a multiple of the vector's bytes. (Not tested with ``aligned`` on the
                 access.)
    whole        the mask holds for the last element. (The mask of a contiguous vector is a prefix: where it
                 holds for an element, it holds for those before.)

A vector for which all three hold is moved by one instruction under a predicate. Of the others, those of
which any element is wanted are moved element by element in rare code; only these look at single masks and
addresses, and nothing is ever touched for which the mask does not hold.

Loads: all wide loads are issued first, then those of single elements, and only then these are put together,
so that every load is under way before anything waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.packing import fresh_words, pack, plain_operand
from ptxforge.codegen_ptx.ptx import pointers
from ptxforge.codegen_ptx.ptx.access import vector_load, vector_store
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import as_pointer
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T


class Vector(NamedTuple):
    """Consecutive elements of an access: their pointers and masks, whether they may be moved as a whole
    (``whole``) or must be moved one by one (``single``), each a predicate, 0, 1 or None (always), and the
    address ``base + offset`` that counts when they are moved as a whole."""

    places: Sequence
    masks: Sequence
    whole: object
    single: object
    base: Register
    offset: int


def guarded_vector(
    b: Builder, places: Sequence, masks: Sequence, size: int, aligned: bool, owner_predicate=None
) -> Vector:
    """A vector of elements of ``size`` bytes. ``masks`` has an entry per element; ``owner_predicate`` is one
    for all of them."""
    base, offset = pointers.address(b, places[0])
    contiguous = _contiguous(b, places, size)
    fits = contiguous if aligned else b.both(contiguous, _aligned(b, base, offset, len(places) * size))
    whole = b.both(fits, masks[-1])
    wanted = _either(b, masks[0], _opposite(b, contiguous))
    single = b.both(wanted, _opposite(b, whole))
    whole, single = (b.both(each, owner_predicate) for each in (whole, single))
    return Vector(places, masks, whole, single, base, offset)


def _contiguous(b: Builder, places: tuple, size: int):
    """Whether the last address is as far from the first as it should be; None when that is certain."""
    first, last = as_pointer(places[0]), as_pointer(places[-1])
    distance = (len(places) - 1) * size
    missing = distance - (last.offset - first.offset)
    if first.base == last.base and first.terms == last.terms:
        return None if missing == 0 else 0
    if first.base == last.base:
        one, other = (set(p.terms) - set(q.terms) for p, q in ((first, last), (last, first)))
        if len(one) == len(other) == 1:
            (start, scale), (end, same) = *one, *other
            if scale == same and start.kind == end.kind == "r" and missing % scale == 0:
                return b.pure("setp.eq.s32 %s, %s, %s;", "p", end, b.plain(b.add(start, missing // scale)))
    start, end = (pointers.address(b, p) for p in (first, last))
    difference = b.register(b.sub(end, start, 64), "q")
    return b.pure("setp.eq.s64 %s, %s, %s;", "p", difference, distance)


def _aligned(b: Builder, base: Register, offset: int, nbytes: int) -> Register:
    """Whether an address is a multiple of ``nbytes``, a power of two of at most 16."""
    low = b.add(b.pure("cvt.u32.u64 %s, %s;", "r", base), offset & (nbytes - 1))
    return b.pure("setp.eq.b32 %s, %s, 0;", "p", b.pure("and.b32 %s, %s, %s;", "r", b.plain(low), nbytes - 1))


def _opposite(b: Builder, p):
    """The negation of a predicate, which may be None (always)."""
    return 0 if p is None else b.negate(p)


def _either(b: Builder, p, q):
    """The disjunction of two predicates, each a register, 0, 1 or None (always)."""
    if p is None or q is None or p == 1 or q == 1:
        return None
    if p == 0 or q == 0:
        return q if p == 0 else p
    return b.either_way("or.pred %s, %s, %s;", "p", p, q)


# -- element by element ------------------------------------------------------------------------------------


def _any_single(b: Builder, found: Sequence[Vector]):
    """Whether the thread has to move any vector element by element: a register, or 0 when none ever is."""
    needed = 0
    for predicate in dict.fromkeys(vector.single for vector in found):
        needed = _either(b, needed, predicate)
    return needed if needed == 0 else b.register(1 if needed is None else needed, "p")


def _skip_unless_needed(b: Builder, vector: Vector, is_only_one: bool) -> AbstractContextManager:
    """Skip what stands inside where the vector was moved as a whole. With a single vector the test around has
    said so already."""
    return nullcontext() if is_only_one or vector.single in (None, 1) else b.rare(vector.single)


def load_singly(
    b: Builder,
    found: Sequence[Vector],
    words: Sequence[list[Register]],
    others: Sequence[Sequence],
    element: T.Type,
    head: str,
    policy: tuple,
) -> None:
    """Fill in the vectors that no wide load has read. ``words`` are their registers by vector, ``others``
    the values of masked-off elements by vector; ``head`` is the instruction up to its modifiers."""
    needed = _any_single(b, found)
    if needed == 0:
        return
    wanted = [entry for entry in zip(found, words, others, strict=True) if entry[0].single != 0]
    alone = len(wanted) == 1
    with b.rare(needed):
        read = []
        for vector, registers, other in wanted:
            with _skip_unless_needed(b, vector, alone):
                read.append(_read_elements(b, vector, registers, other, element, head, policy))
        if len(wanted[0][1]) == len(wanted[0][0].places):
            return
        per_word = 32 // element.bits
        for (vector, registers, _), elements in zip(wanted, read):
            with _skip_unless_needed(b, vector, alone):
                for at, word in enumerate(registers):
                    b.copy(word, pack(b, elements[at * per_word : (at + 1) * per_word], element))


def _read_elements(
    b: Builder, vector: Vector, words: list[Register], other: Sequence, element: T.Type, head: str,
    policy: tuple,
) -> list[Register]:
    """Load the elements of a vector that its masks allow. Those that are not packed go to the vector's
    registers."""
    registers = []
    for at, (place, mask) in enumerate(zip(vector.places, vector.masks)):
        if len(words) == len(vector.places):
            register, type = words[at], f"b{element.bits}"
        else:
            (register,), type = fresh_words(b, 1, element)
            if mask is not None:
                b.copy(register, other[at])
        vector_load(b, head, [register], type, pointers.address(b, place), policy, mask)
        registers.append(register)
    return registers


def store_singly(
    b: Builder, found: Sequence[Vector], values: list[list], element: T.Type, head: str, policy: tuple
) -> None:
    """Write the elements of vectors that no wide store has written; ``values`` by vector."""
    needed = _any_single(b, found)
    if needed == 0:
        return
    wanted = [entry for entry in zip(found, values, strict=True) if entry[0].single != 0]
    with b.rare(needed):
        for vector, elements in wanted:
            with _skip_unless_needed(b, vector, len(wanted) == 1):
                for place, mask, value in zip(vector.places, vector.masks, elements):
                    address, word = pointers.address(b, place), plain_operand(b, value, element)
                    vector_store(b, head, address, [word], f"b{element.bits}", policy, mask)
