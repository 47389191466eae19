"""Pointers as values of a thread.

A pointer is ``base + Σ root · scale + offset`` bytes: a 64-bit register that all elements of a tensor share
where possible, 32-bit (or 64-bit) registers, and a constant that goes into the instruction. A memory
instruction that needs an address says of which terms it is the sum (``SUM``), those that most elements share
first; value numbering finds sums again, and the pass ``select_addresses`` makes instructions of them.
"""

from __future__ import annotations

from typing import NamedTuple

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register

SUM = "sum %s, %s, %s, %s;"
"""What a sum of addresses is until it is selected: its register, a 64-bit base, an index, and the bytes that
one unit of the index counts. An index of 32 bits is sign-extended; one of 64 bits counts bytes already."""

Term = tuple[Register, int]
"""A register and the bytes that one unit of it counts."""


class Pointer(NamedTuple):
    """``base`` is a 64-bit register; ``offset`` bytes."""

    base: Register
    terms: tuple[Term, ...] = ()
    offset: int = 0


def as_pointer(x) -> Pointer:
    """A pointer value (a plain 64-bit register or constant address is one, too)."""
    return x if isinstance(x, Pointer) else Pointer(x)


def advance(b: Builder, pointers: list, offsets: list, size: int) -> list:
    """Pointers plus offsets counted in elements of ``size`` bytes."""
    first = offsets[0]
    if all(offset == first for offset in offsets):
        return _advance_all(b, pointers, first, size)
    moved: dict[tuple, tuple[Term, ...]] = {}  # most elements have the same terms
    result = []
    for pointer, offset in zip(pointers, offsets, strict=True):
        base, terms, start = as_pointer(pointer)
        root, constant = b.split(offset)
        more = moved.get((terms, root))
        if more is None:
            more = moved[terms, root] = _with_term(terms, root, size)
        result.append(Pointer(base, more, start + constant * size))
    return result


def _advance_all(b: Builder, pointers: list, offset, size: int) -> list:
    """All elements advance alike: the bases do."""
    root, constant = b.split(offset)
    moved = {}
    result = []
    for p in map(as_pointer, pointers):
        if root is None or (root, -size) in p.terms:
            result.append(moved_by(b, p, offset, size))
            continue
        base = moved.get(p.base)
        if base is None:
            base = moved[p.base] = scaled_sum(b, p.base, root, size)
        result.append(Pointer(base, p.terms, p.offset + constant * size))
    return result


def moved_by(b: Builder, p: Pointer, offset, size: int) -> Pointer:
    """A pointer plus ``offset`` elements of ``size`` bytes: one more term, or one less where they cancel."""
    root, constant = b.split(offset)
    return Pointer(p.base, _with_term(p.terms, root, size), p.offset + constant * size)


def _with_term(terms: tuple[Term, ...], root: Register | None, size: int) -> tuple[Term, ...]:
    """The terms with ``size`` bytes for each unit of ``root`` (None: nothing) added."""
    if root is None:
        return terms
    if (root, -size) in terms:
        at = terms.index((root, -size))
        return terms[:at] + terms[at + 1 :]
    return tuple(sorted((*terms, (root, size))))


def scaled_sum(b: Builder, base, root: Register, size: int) -> Register:
    """``base + root · size`` with 64 bits; ``root`` is sign-extended."""
    if root.kind == "q":
        root, size = b.mul(root, size, 64), 1
    return b.pure(SUM, "q", b.register(base, "q"), root, size)


def address(b: Builder, pointer, shared_terms: dict | None = None) -> tuple[Register, int]:
    """(64-bit register, constant bytes) of one pointer."""
    base, terms, offset = as_pointer(pointer)
    if (base, terms) in b.loop_pointers:
        base, terms = b.loop_pointers[base, terms], ()
    if len(terms) > 1 and shared_terms and "share_terms" not in b.without:
        terms = sorted(terms, key=lambda term: (-shared_terms.get(term, 0), term))
    for root, size in terms:
        base = scaled_sum(b, base, root, size)
    if isinstance(base, int):
        base, offset = b.register(b.add(base, offset, 64), "q"), 0
    return base, offset


def shared_terms(pointers: list) -> dict:
    """How many elements have each term, where there are several terms to order."""
    counts: dict = {}
    for p in pointers:
        if isinstance(p, Pointer) and len(p.terms) > 1:
            for term in p.terms:
                counts[term] = counts.get(term, 0) + 1
    return counts


def addresses(b: Builder, pointers: list) -> list[tuple[Register, int]]:
    """The addresses of all elements of a tensor of pointers; terms that more elements share are added
    first."""
    counts = shared_terms(pointers)
    return [address(b, p, counts) for p in pointers]


def whole(b: Builder, pointer) -> Register:
    """The address in one 64-bit register."""
    base, offset = address(b, pointer)
    return b.register(b.add(base, offset, 64), "q")
