"""Values that control flow carries: which registers hold them.

A carried tensor takes one register per component of its entries, not per entry: offsets that all advance
alike are one register and constants, a tensor of pointers that advances alike is one 64-bit base. Entries
are copies of each other in the layout share. Which it is follows from how the loop changes the value: there
are never more components than entries.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.indices import linear_of, replication
from ptxforge.codegen_ptx.lower.packing import pack, unpack
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import Pointer, address, as_pointer, whole
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.ir.definition import COMMUTATIVE, ELEMENTWISE, UNIFORM
from ptxforge.layouts.encodings import DotOperand, Mma


class Slot(NamedTuple):
    """How an entry is made from components: component ``index`` plus what stays constant. Of ``packed``
    elements (their type), it is number ``offset`` in the 32-bit component."""

    index: int
    terms: tuple = ()
    offset: int = 0
    is_pointer: bool = False
    packed: T.Type | None = None


class Shape(NamedTuple):
    """The components of a carried value: their register class, initial operands, and a slot per entry."""

    kind: str
    initial: tuple
    slots: tuple[Slot, ...]

    def entries(self, b: Builder, registers: list[Register]) -> list:
        """The entries when the components are in ``registers``."""
        if self.slots and self.slots[0].packed is not None:
            return [x for register in registers for x in unpack(b, register, self.slots[0].packed)]
        return [_entry(registers[slot.index], slot) for slot in self.slots]

    def components(self, b: Builder, entries: list) -> list:
        """The operands for the components that make ``entries``."""
        if self.slots and self.slots[0].packed is not None:
            return _packed_words(b, entries, self.slots[0].packed)
        found: list = [None] * len(self.initial)
        for slot, entry in zip(self.slots, entries, strict=True):
            if found[slot.index] is None:
                found[slot.index] = _component(b, entry, slot, self.kind)
        return found


def _packed_words(b: Builder, entries: list, element: T.Type) -> list:
    """The 32-bit words of neighbouring registers."""
    size = 32 // element.bits
    return [b.register(pack(b, entries[i : i + size], element), "r") for i in range(0, len(entries), size)]


def _entry(register: Register, slot: Slot):
    if slot.is_pointer:
        return Pointer(register, slot.terms, slot.offset)
    return (register, slot.offset) if slot.offset else register


def _component(b: Builder, entry, slot: Slot, kind: str):
    bits = 64 if kind == "q" else 32
    if slot.is_pointer and slot.terms:
        return _advanced(b, as_pointer(entry), slot)
    if slot.is_pointer or isinstance(entry, Pointer):
        p = as_pointer(entry)
        return b.plain(
            b.add(p.base if not p.terms else whole(b, p._replace(offset=0)), p.offset - slot.offset, 64)
        )
    if kind in "rq":
        return b.plain(b.add(entry, -slot.offset, bits) if slot.offset else entry)
    return entry


def _advanced(b: Builder, p: Pointer, slot: Slot):
    """The pointer's base moved by as much as it is ahead of the slot's terms and offset."""
    extra = Counter(p.terms) - Counter(slot.terms)
    base, offset = address(b, Pointer(p.base, tuple(extra.elements()), p.offset - slot.offset))
    return b.plain(b.add(base, offset, 64))


def uniform_shape(entries: list, type: T.Type) -> Shape:
    """Components of a value to all of whose entries the same is added in every iteration."""
    kind = register_class(T.element_type(type))
    components: dict = {}
    slots = []
    for entry in entries:
        if isinstance(entry, Pointer):
            index = components.setdefault(entry.base, len(components))
            slots.append(Slot(index, entry.terms, entry.offset, True))
            continue
        root, offset = Builder.split(entry)
        if root is None:
            # Constants differ from the first one by a constant.
            first = next((key for key in components if isinstance(key, int)), entry)
            slots.append(Slot(components.setdefault(first, len(components)), (), entry - first))
        else:
            slots.append(Slot(components.setdefault(root, len(components)), (), offset))
    return Shape(kind, tuple(components), tuple(slots))


def general_shape(b: Builder, entries: list, type: T.Type) -> Shape:
    """One component per entry, copies within the layout aside."""
    if isinstance(type, T.FlightType):
        return _accumulators(entries, type.tensor.element)
    if isinstance(type, T.TokenType):
        return Shape("r", (), ())
    element = T.element_type(type)
    kind = register_class(element)
    if _is_fragment(type):
        size = 32 // element.bits
        slots = tuple(Slot(i // size, (), i % size, False, element) for i in range(len(entries)))
        return Shape("r", tuple(_packed_words(b, entries, element)), slots)
    is_pointer = isinstance(element, T.PointerType)
    copies = replication(linear_of(type))[0] if isinstance(type, T.TensorType) else 0
    initial, slots, index_of = [], [], {}
    for register, entry in enumerate(entries):
        canonical = register & ~copies
        if canonical not in index_of:
            index_of[canonical] = len(initial)
            initial.append(whole(b, entry) if is_pointer else entry if kind not in "rq" else b.plain(entry))
        slots.append(Slot(index_of[canonical], (), 0, is_pointer))
    return Shape(kind, tuple(initial), tuple(slots))


def _accumulators(words: list, element: T.Type) -> Shape:
    """A register for each word of a flight, which products change in place."""
    kind = "r" if element is T.F16 else register_class(element)
    return Shape(kind, tuple(words), _slots_of(len(words)))


@lru_cache(maxsize=64)
def _slots_of(count: int) -> tuple[Slot, ...]:
    """One for each component."""
    return tuple(map(Slot, range(count)))


def _is_fragment(type: T.Type) -> bool:
    """Whether a tensor's registers are the packed words of tensor core operands."""
    layout = T.layout_of(type)
    return isinstance(layout, DotOperand) and isinstance(layout.parent, Mma) and 8 <= type.element.bits < 32


def carried_shape(b: Builder, argument: Value, entries: list, following: Value) -> Shape:
    """Components of a loop's carried ``argument`` that starts as ``entries`` and becomes ``following``."""
    if isinstance(argument.type, (T.FlightType, T.TokenType)):
        return general_shape(b, entries, argument.type)
    element = T.element_type(argument.type)
    if register_class(element) in "rq" and element.bits >= 32 and advances_uniformly(argument, following):
        return uniform_shape(entries, argument.type)
    return general_shape(b, entries, argument.type)


def advances_uniformly(argument: Value, following: Value) -> bool:
    """Whether ``following`` is ``argument`` plus values that are the same for all elements."""
    while following is not argument:
        op = following.defining_op
        if op is None or not op.addends:
            return False
        first, second = op.operands
        if COMMUTATIVE in op.traits and _is_uniform(first):
            first, second = second, first
        if not _is_uniform(second):
            return False
        following = first
    return True


def _is_uniform(value: Value) -> bool:
    """Whether all elements surely are one value of the thread."""
    if not isinstance(value.type, T.TensorType):
        return True
    op = value.defining_op
    if op is not None and UNIFORM in op.traits:
        return True
    return op is not None and ELEMENTWISE in op.traits and op.is_pure and all(map(_is_uniform, op.operands))
