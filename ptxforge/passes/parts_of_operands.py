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
"""

from __future__ import annotations

import math

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, READS_SHARED, UNIFORM
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Join, MakeRange, Reshape
from ptxforge.ir.ops.shared import LocalLoad, MemDescSubslice
from ptxforge.layouts import encodings
from ptxforge.layouts.encodings import Distributed
from ptxforge.layouts.linear import LayoutError


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


class Cutter:
    """Computes parts of values of ``body`` anew; ``made`` are the operations that it has repeated."""

    def __init__(self, body: Block):
        self.body = body
        self.made: dict[Operation, None] = {}

    def can_make(self, part: Part, layout: Distributed) -> bool:
        """Whether ``part`` can be computed in ``layout`` by itself."""
        op = self._source(part)
        if op is None:
            return part.is_whole
        if op.get_effects() == READS_SHARED:
            return True
        needed = _needed(op, part, layout)
        return needed is not None and all(self.can_make(*one) for one in needed)

    def reads(self, part: Part) -> list[LocalLoad]:
        """The reads of shared memory of which :meth:`make` reads parts."""
        op = self._source(part)
        if op is None:
            return []
        if op.get_effects() == READS_SHARED:
            return [op]
        return [read for one, _ in _needed(op, part, None) or () for read in self.reads(one)]

    def make(self, b: Builder, part: Part, layout: Distributed, known: dict | None = None) -> Value:
        """The value of ``part`` in ``layout``."""
        known = {} if known is None else known
        if (part, layout) not in known:
            known[part, layout] = self._make(b, part, layout, known)
        return known[part, layout]

    def _make(self, b: Builder, part: Part, layout: Distributed, known: dict) -> Value:
        op, cut = self._source(part), T.TensorType(part.size, part.value.type.element, layout)
        if op is None:
            return part.value if part.value.type is cut else b.value(ConvertLayout, part.value, type=cut)
        if op.parent is not self.body:
            b = Builder.at(self.body.parent_op)
        if (made := _MADE.get(type(op))) is not None:
            return made(b, op, part, cut)
        self.made[op] = None
        if op.get_effects() == READS_SHARED:
            tile = op.source
            described = T.MemDescType(part.size, cut.element, tile.type.layout, tile.type.mutable)
            view = b.value(MemDescSubslice, tile, type=described, offsets=part.first)
            return b.value(LocalLoad, view, *op.operands[1:], type=cut)
        operands = [self.make(b, *one, known) for one in _needed(op, part, layout)]
        if op.changes_layout:
            return operands[0]
        copy = op.clone({})
        copy.set_operands(operands or op.operands)
        for fact in ("constancy", "contiguity"):
            copy.attributes.pop(fact, None)
        copy.result.type = cut
        return b.insert(copy).result

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


def _needed(op: Operation, part: Part, layout: Distributed | None) -> list[tuple[Part, Distributed]] | None:
    """Which parts of the operands ``part``, a part of the result of ``op``, is made of, and their layouts if
    it is in ``layout``; ``None`` where ``op`` is none that acts on parts."""
    if UNIFORM in op.traits or type(op) in _MADE:
        return []
    if ELEMENTWISE in op.traits and op.is_pure:
        tensors = all(isinstance(v.type, T.TensorType) for v in op.operands)
        return [(Part(v, part.first, part.size), layout) for v in op.operands] if tensors else None
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
    before = None if layout is None else encodings.infer_trans(layout, back, part.size)
    return [(Part(op.operands[0], first, size), before)]


def _broadcast(op: Broadcast, part: Part, layout) -> list:
    shape = op.x.type.shape
    first = tuple(0 if n == 1 else f for n, f in zip(shape, part.first))
    return [(Part(op.x, first, tuple(min(n, s) for n, s in zip(shape, part.size))), layout)]


def _expanded(op: ExpandDims, part: Part, layout) -> list:
    first, size = (x[: op.axis] + x[op.axis + 1 :] for x in (part.first, part.size))
    return [(Part(op.x, first, size), None if layout is None else encodings.Slice(op.axis, layout))]


def _joined(op: Join, part: Part, layout) -> list | None:
    if part.size[-1] != 2:
        return None
    half = None
    if layout is not None:
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
    before = None if layout is None else encodings.infer_reshape(layout, part.size, size)
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
