"""Pointers as values of a thread.

A pointer is ``base + Σ root · scale + offset`` bytes: a 64-bit register that all elements of a tensor share
where possible, 32-bit (or 64-bit) registers, and a constant that goes into the instruction. A memory
instruction that needs an address says of which terms it is the sum; value numbering finds equal sums again,
the pass ``share_terms`` what several have in common, and ``select_addresses`` makes instructions of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import Instruction
from ptxforge.codegen_ptx.ptx.registers import Register


@cache
def sum_of(terms: int) -> str:
    """What an address is until it is selected: ``sum`` of a 64-bit base and so many terms. A term is an index
    and the bytes that one unit of it counts. An index of 32 bits is sign-extended; one of 64 bits counts
    bytes: 1 or -1 at a time."""
    return "sum %s, %s" + ", %s, %s" * terms + ";"


SUM = "sum"
"""The opcode of such a sum."""

Term = tuple[Register, int]
"""A register and the bytes that one unit of it counts."""


def terms_of(instruction: Instruction) -> Iterator[Term]:
    """The terms of a sum."""
    operands = instruction.operands
    return zip(operands[2::2], operands[3::2], strict=True)


class Pointer(NamedTuple):
    """``base`` is a 64-bit register; ``offset`` bytes."""

    base: Register
    terms: tuple[Term, ...] = ()
    offset: int = 0


def as_pointer(x) -> Pointer:
    """A pointer value (a plain 64-bit register or constant address is one, too)."""
    return x if isinstance(x, Pointer) else Pointer(x)


def advance(b: Builder, pointers: Sequence, offsets: list, size: int) -> Sequence:
    """Pointers plus offsets counted in elements of ``size`` bytes: so that the fewest sums are made, an
    offset that all share moves their bases."""
    if all(offset == offsets[0] for offset in offsets):
        return _advance_all(b, pointers, offsets[0], size)
    return WithTerms(pointers, offsets, size)


class WithTerms(Sequence):
    """Pointers plus offsets counted in elements of ``size`` bytes: a term more of each. Each is made when it
    is asked for, because accesses ask for one of a vector."""

    __slots__ = ("_moved", "_offsets", "_pointers", "_size")

    def __init__(self, pointers: Sequence, offsets: list, size: int):
        self._pointers, self._offsets, self._size = pointers, offsets, size
        self._moved: dict[tuple, tuple[Term, ...]] = {}  # most elements have the same terms

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [*map(self._at, self._pointers[index], self._offsets[index])]
        return self._at(self._pointers[index], self._offsets[index])

    def __iter__(self) -> Iterator[Pointer]:
        return map(self._at, self._pointers, self._offsets)

    def _at(self, pointer, offset) -> Pointer:
        base, terms, start = as_pointer(pointer)
        root, constant = Builder.split(offset)
        more = self._moved.get((terms, root))
        if more is None:
            more = self._moved[terms, root] = _with_term(terms, root, self._size)
        return Pointer(base, more, start + constant * self._size)


def _advance_all(b: Builder, pointers: Sequence, offset, size: int) -> list:
    """All elements advance alike: the bases do."""
    root, constant = b.split(offset)
    moved = {}
    result = []
    for base, terms, start in map(as_pointer, pointers):
        if root is not None:
            if base not in moved:
                moved[base] = scaled_sum(b, base, root, size)
            base = moved[base]
        result.append(Pointer(base, terms, start + constant * size))
    return result


def _with_term(terms: tuple[Term, ...], root: Register | None, size: int) -> tuple[Term, ...]:
    """The terms with ``size`` bytes for each unit of ``root`` (None: nothing) added."""
    return terms if root is None else tuple(sorted((*terms, (root, size))))


def scaled_sum(b: Builder, base, root: Register, size: int) -> Register:
    """``base + root · size`` with 64 bits; ``root`` is sign-extended."""
    return _sum(b, base, ((root, size),))


def _sum(b: Builder, base, terms: tuple[Term, ...]) -> Register:
    """The base plus terms, as one instruction until addresses are selected."""
    operands: list = []
    for root, size in terms:
        operands += (root, size) if root.kind == "r" else (b.mul(root, size, 64), 1)
    return b.pure(sum_of(len(terms)), "q", b.register(base, "q"), *operands)


def address(b: Builder, pointer) -> tuple[Register, int]:
    """(64-bit register, constant bytes) of one pointer."""
    base, terms, offset = as_pointer(pointer)
    if terms:
        return _sum(b, base, terms), offset
    if isinstance(base, int):
        base, offset = b.register(b.add(base, offset, 64), "q"), 0
    return base, offset


def addresses(b: Builder, pointers: list) -> list[tuple[Register, int]]:
    """The addresses of all elements of a tensor of pointers."""
    return [address(b, p) for p in pointers]


def whole(b: Builder, pointer) -> Register:
    """The address in one 64-bit register."""
    base, offset = address(b, pointer)
    return b.register(b.add(base, offset, 64), "q")
