"""A part along one dimension of what is computed from tiles in shared memory: the same work on parts.

    %p = local_load %tile                                    (whole)
    %x = andi %p, 15;  %y = shrui %p, 4
    %q = reshape (join %x, %y)                               two neighbours along k from each byte
    %w = mulf (uitofp %q), (broadcast (expand_dims %scales))

    %p = local_load (first half of %tile along k)            (a half along k)
    %x = andi %p, 15;  %y = shrui %p, 4
    %q = reshape (join %x, %y)
    %w = mulf (uitofp %q), (broadcast (expand_dims %scales))

Each operation says which parts of its operands a part of its result needs. Where that is a whole operand, the
operand's value serves all parts; where it is a tile, a part of the tile is read. Parts of what a loop does
not change (shifts that differ along k) are computed in front of it.

What has no parts that could be computed by themselves (elements that are loaded to registers, sums along k)
is computed as a whole, and each part takes the registers that hold it: of the operands of an operation, or of
its result, whichever are fewer.

Operands are cut so for ``products_in_parts.py``, where a part is computed as its product starts, and for
``sliced_products.py``, which has read it before.

    %s = load %scales                                        (whole)
    %w = mulf %x, (broadcast (expand_dims %s))

    %s = convert_layout (load %scales)                       (a half along k)
    %h = extract_slice %s {offsets = [0]}
    %w = mulf (half of %x), (broadcast (expand_dims %h))
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Operation, Value
from ptxforge.ir.definition import COPIES, ELEMENTWISE, PRODUCTS, READS_SHARED, UNIFORM
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, ExtractSlice, Join, MakeRange, Reshape
from ptxforge.ir.ops.shared import LocalLoad, MemDescSubslice
from ptxforge.ir.pressure import registers_of
from ptxforge.layouts import encodings
from ptxforge.layouts.encodings import Distributed
from ptxforge.layouts.linear import LayoutError
from ptxforge.layouts.parts import registers_of_part


@attrs.frozen
class Part:
    """``size`` elements of ``value`` from ``first`` on, in each dimension."""

    value: Value
    first: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether these are all of its elements."""
        return self.size == self.value.type.shape


def _at_the_top(block: Block) -> Builder:
    """Where what a block begins with is converted: behind the first wait for copies of threads, if no product
    is in front of it. Threads meet there anyway."""
    for op in block.operations:
        if op.effects.finishes == COPIES:
            return Builder.after(op)
        if op.get_effects().queue == PRODUCTS:
            break
    return Builder.at(block.first)


class Cutter:
    """Computes parts of values of ``body`` anew; ``made`` are the operations that it has repeated.
    ``held_for`` says of a read of shared memory how many registers of a thread hold what fills the tile in
    the same iteration; ``None`` if it may not be done later."""

    def __init__(self, body: Block, held_for: Callable[[LocalLoad], int | None]):
        self.body, self.held_for = body, held_for
        self.made: dict[Operation, None] = {}
        self._converted: dict[tuple[Value, Distributed], Value] = {}
        self._held: dict[tuple[Part, Distributed], int | None] = {}

    def held(self, part: Part, layout: Distributed) -> int | None:
        """How many registers of a thread hold what is computed as a whole for ``part`` in ``layout``;
        ``None`` if it cannot be made."""
        key = part, layout
        if key not in self._held:
            ways = self._held_in_slices(part, layout), self._held_below(part, layout)
            self._held[key] = min((way for way in ways if way is not None), default=None)
        return self._held[key]

    def _held_in_slices(self, part: Part, layout: Distributed) -> int | None:
        """As :meth:`held`, if the value itself is computed as a whole; ``None`` also where it is read, which
        is done in parts if it can be."""
        op = self._source(part)
        is_read = op is not None and op.get_effects() == READS_SHARED and self.held_for(op) is not None
        is_taken = not is_read and _may_be_taken(part, layout)
        return registers_of(part.value.type.with_layout(layout)) if is_taken else None

    def _held_below(self, part: Part, layout: Distributed) -> int | None:
        """As :meth:`held`, if the value is computed in parts."""
        op = self._source(part)
        if op is None:
            return 0 if part.is_whole else None
        if op.get_effects() == READS_SHARED:
            return self.held_for(op)
        needed = _needed(op, part, layout)
        found = [None] if needed is None else [self.held(*one) for one in needed]
        return None if None in found else sum(found)

    def _is_taken(self, part: Part, layout: Distributed) -> bool:
        """Whether ``part`` is taken from the whole value."""
        taken, below = self._held_in_slices(part, layout), self._held_below(part, layout)
        return taken is not None and (below is None or taken < below)

    def make(self, b: Builder, part: Part, layout: Distributed, known: dict | None = None) -> Value:
        """The value of ``part`` in ``layout``; ``known`` are those that are there, to which it is added."""
        known = {} if known is None else known
        if (part, layout) not in known:
            known[part, layout] = self._make(b, part, layout, known)
        return known[part, layout]

    def _make(self, b: Builder, part: Part, layout: Distributed, known: dict) -> Value:
        op, cut = self._source(part), T.TensorType(part.size, part.value.type.element, layout)
        if self._is_taken(part, layout):
            return b.value(ExtractSlice, self._in_layout(part, layout), type=cut, offsets=part.first)
        if op is None:
            return part.value if part.value.type is cut else b.value(ConvertLayout, part.value, type=cut)
        if op.parent is not self.body:
            b = Builder.at(self.body.parent_op)
        if (made := _MADE.get(type(op))) is not None:
            return made(b, op, part, cut)
        self.made[op] = None
        if op.get_effects() == READS_SHARED:
            return read_part(b, part, layout, *op.operands)
        needed = {one.value: self.make(b, one, before, known) for one, before in _needed(op, part, layout)}
        if op.changes_layout:
            return needed[op.operands[0]]
        copy = op.clone(needed)
        for fact in ("constancy", "contiguity"):
            copy.attributes.pop(fact, None)
        copy.result.type = cut
        return b.insert(copy).result

    def _in_layout(self, part: Part, layout: Distributed) -> Value:
        """The whole value in ``layout``, converted where it is made."""
        value, key = part.value, (part.value, layout)
        if value.type.layout == layout:
            return value
        if key not in self._converted:
            op = value.defining_op
            b = _at_the_top(value.owner_block) if op is None else Builder.after(op)
            self._converted[key] = b.value(ConvertLayout, value, type=value.type.with_layout(layout))
        return self._converted[key]

    def _source(self, part: Part) -> Operation | None:
        """What makes the value again; ``None``: it is used as it is."""
        op = part.value.defining_op
        if op is not None and UNIFORM in op.traits:
            return op
        if op is None or part.is_whole or len(op.results) != 1:
            return None
        return op if op.parent is self.body or op.is_speculatable else None

    def erase_unused(self) -> None:
        """What was made anew and is not needed as a whole any more goes."""
        while unused := [op for op in self.made if op.parent is self.body and not op.result.uses]:
            for op in unused:
                op.erase()


def read_part(b: Builder, part: Part, layout: Distributed, tile: Value, *token: Value) -> Value:
    """The value of ``part`` in ``layout``, read from the ``tile`` in shared memory that has all of it."""
    view = part_of_tile(b, tile, part.first, part.size)
    return b.value(LocalLoad, view, *token, type=T.TensorType(part.size, view.type.element, layout))


def part_of_tile(b: Builder, tile: Value, first: tuple[int, ...], size: tuple[int, ...]) -> Value:
    """A view of ``size`` elements of a tile in shared memory from ``first`` on, in each dimension."""
    part = T.MemDescType(size, tile.type.element, tile.type.layout, tile.type.mutable)
    return b.value(MemDescSubslice, tile, type=part, offsets=first)


def _may_be_taken(part: Part, layout: Distributed) -> bool:
    """Whether threads that have the whole value in ``layout`` hold ``part`` in it."""
    if part.is_whole:
        return False
    whole, size = (layout.linear(shape) for shape in (part.value.type.shape, part.size))
    return registers_of_part(whole, size, part.first) is not None


def _needed(op: Operation, part: Part, layout: Distributed) -> list[tuple[Part, Distributed]] | None:
    """Which parts of the operands ``part``, a part of the result of ``op``, is made of, and their layouts if
    it is in ``layout``; ``None`` where ``op`` is none that acts on parts."""
    if UNIFORM in op.traits or type(op) in _MADE:
        return []
    if ELEMENTWISE in op.traits and op.is_pure:
        tensors = (v for v in op.operands if isinstance(v.type, T.TensorType))
        return [(Part(v, part.first, part.size), layout) for v in tensors]
    cut = _CUTS.get(type(op), _transposed if op.is_transpose else None)
    try:
        return None if cut is None else cut(op, part, layout)
    except LayoutError:
        return None


def _as_it_is(op: Operation, part: Part, layout) -> list:
    return [(Part(op.operands[0], part.first, part.size), layout)]


def _transposed(op: Operation, part: Part, layout) -> list:
    back = tuple(op.order.index(d) for d in range(len(op.order)))
    first, size = (tuple(x[d] for d in back) for x in (part.first, part.size))
    before = encodings.infer_trans(layout, back, part.size)
    return [(Part(op.operands[0], first, size), before)]


def _broadcast(op: Broadcast, part: Part, layout) -> list:
    shape = op.x.type.shape
    first = tuple(0 if n == 1 else f for n, f in zip(shape, part.first))
    return [(Part(op.x, first, tuple(min(n, s) for n, s in zip(shape, part.size))), layout)]


def _expanded(op: ExpandDims, part: Part, layout) -> list:
    first, size = (x[: op.axis] + x[op.axis + 1 :] for x in (part.first, part.size))
    return [(Part(op.x, first, size), encodings.Slice(op.axis, layout))]


def _joined(op: Join, part: Part, layout) -> list | None:
    if part.size[-1] != 2:
        return None
    half = encodings.infer_split(layout, part.size)
    if encodings.infer_join(half, part.size[:-1]) != layout:
        return None
    return [(Part(v, part.first[:-1], part.size[:-1]), half) for v in op.operands]


def _reshaped(op: Reshape, part: Part, layout) -> list | None:
    """The dimension of which a part is wanted is several of the operand's: a part of the first of them."""
    source, result = op.x.type.shape, part.value.type.shape
    cut = [d for d, n in enumerate(result) if part.size[d] != n]
    if op.allow_reorder or len(cut) != 1:
        return None
    (d,) = cut
    inner = math.prod(source[d + 1 : len(source) - len(result) + d + 1])
    if len(source) < len(result) or source[:d] != result[:d] or source[d] * inner != result[d]:
        return None
    if source[len(source) - len(result) + d + 1 :] != result[d + 1 :] or part.size[d] % inner:
        return None
    first = (*(0 for _ in source[:d]), part.first[d] // inner, *(0 for _ in source[d + 1 :]))
    size = (*source[:d], part.size[d] // inner, *source[d + 1 :])
    before = encodings.infer_reshape(layout, part.size, size)
    return [(Part(op.x, first, size), before)]


def _range(b: Builder, op: MakeRange, part: Part, described: T.TensorType) -> Value:
    start = op.start + part.first[0]
    return b.value(MakeRange, type=described, start=start, end=start + part.size[0])


_MADE = {MakeRange: _range}
_CUTS = {
    ConvertLayout: _as_it_is,
    Broadcast: _broadcast,
    ExpandDims: _expanded,
    Join: _joined,
    Reshape: _reshaped,
}
