"""Which dimensions of a function's tensors are cut together for the CTAs of a cluster, and which cannot be.

Operations tie dimensions of their operands and results: those of an elementwise operation one by one, a
product's rows and columns to those of its operands. What stands for all that are tied together is a
:data:`Dimension`, the value and the number of one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, MemoryAccess
from ptxforge.ir.ops import shape as ops
from ptxforge.ir.ops.control import If, Loop
from ptxforge.ir.ops.debug import Assert
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.reduce import Combining, Reduce, Scan
from ptxforge.passes.analysis.roots import root_of

Dimension = tuple[Value, int]

_LEAST_OF_A_PRODUCT = 16


def writes(op: Operation) -> bool:
    """Whether an operation is an access that writes."""
    return isinstance(op, MemoryAccess) and bool(op.get_effects().writes)


def in_order(one: MemoryAccess, other: MemoryAccess) -> bool:
    """Whether it may matter which of two writes comes first."""
    return may_meet(one, other) and not any("global" in op.get_effects().reads for op in (one, other))


def may_meet(one: MemoryAccess, other: MemoryAccess) -> bool:
    """Whether two accesses may be to the same memory."""
    roots = root_of(one.pointer), root_of(other.pointer)
    return None in roots or roots[0] is roots[1]


def tensors(function: Function) -> Iterator[Value]:
    """All tensors of a function, results and arguments of blocks."""
    for op in function.walk():
        for block in [region.block for region in op.regions]:
            yield from (v for v in block.arguments if isinstance(v.type, T.TensorType))
        yield from (v for v in op.results if isinstance(v.type, T.TensorType))


class Dimensions:
    """Which dimensions of a function's tensors are cut together, and which cannot be."""

    def __init__(self, function: Function, places: dict[Operation, Value]):
        """``places``: where accesses are. Those of one place that is written are for one CTA."""
        self.function = function
        self._parent: dict[Dimension, Dimension] = {}
        self._fixed: set[Dimension] = set()
        self._most: list[tuple[Dimension, int]] = []
        self._reduced: list[Dimension] = []
        for op in function.walk():
            self._visit(op)
        for one, other in combinations(places, 2):
            shape = T.shape_of(one.pointer.type)
            written = writes(one) + writes(other)
            in_place = written and places[one] is places[other] or written == 2 and in_order(one, other)
            if in_place and shape and shape == T.shape_of(other.pointer.type):
                self._tie_all(one.pointer, other.pointer)
        for value in tensors(function):
            names = [self.of((value, d)) for d in range(value.type.rank)]
            self._fixed.update(name for name in names if names.count(name) > 1)
        self._fixed = {self.of(name) for name in self._fixed}

    def of(self, dimension: Dimension) -> Dimension:
        """The one that stands for all that are tied to it."""
        found = dimension
        while (above := self._parent.get(found, found)) != found:
            found = above
        if found != dimension:
            self._parent[dimension] = found
        return found

    def missing(self, value: Value, cuts: dict[Dimension, int]) -> list[Dimension]:
        """The cut dimensions that a value lacks: all its CTAs along these have the same."""
        taken = [name for _, name in self.cuts_of(value, cuts)]
        return [cut for cut in cuts if cut not in taken]

    def cuts_of(self, value: Value, cuts: dict[Dimension, int]) -> list[tuple[int, Dimension]]:
        """Which dimensions of a value are cut, and as what."""
        rank = len(T.shape_of(value.type))
        return [(d, name) for d in range(rank) if (name := self.of((value, d))) in cuts]

    def choose(self, ctas: int) -> dict[Dimension, int]:
        """In how many parts dimensions are cut; empty if there are not enough of them. See CHOICE
        in ``plan_ctas.py``."""
        accesses = self.function.walk(MemoryAccess)
        return self._choose(ctas, filter(writes, accesses)) or self._choose(ctas, accesses)

    def _choose(self, ctas: int, accesses: Iterable[MemoryAccess]) -> dict[Dimension, int]:
        weights: dict[Dimension, int] = {}
        extents: dict[Dimension, int] = {}
        for op in accesses:
            for d, extent in enumerate(T.shape_of(op.pointer.type)):
                name = self.of((op.pointer, d))
                weights[name] = weights.get(name, 0) + op.pointer.type.numel
                extents[name] = min(extent, extents.get(name, extent))
        most: dict[Dimension, int] = {}
        for dimension, parts in self._most:
            name = self.of(dimension)
            most[name] = min(parts, most.get(name, parts))
        reduced = set(map(self.of, self._reduced))
        cuts: dict[Dimension, int] = {}
        while ctas > 1:
            left = {name: extent // cuts.get(name, 1) for name, extent in extents.items()}
            able = [n for n in left if n not in self._fixed and left[n] > 1]
            able = [n for n in able if cuts.get(n, 1) < most.get(n, extents[n])]
            if not able:
                return {}
            best = max(able, key=lambda name: (name not in reduced, weights[name], left[name]))
            cuts[best] = 2 * cuts.get(best, 1)
            ctas //= 2
        return cuts

    def _tie(self, one: Dimension, other: Dimension) -> None:
        self._parent[self.of(one)] = self.of(other)

    def _tie_all(self, one: Value, other: Value) -> None:
        """Tie two values of one shape, dimension by dimension."""
        for d in range(one.type.rank):
            self._tie((one, d), (other, d))

    def _fix(self, value: Value, *dimensions: int) -> None:
        self._fixed.update((value, d) for d in dimensions)

    def _visit(self, op: Operation) -> None:
        rule = _RULES.get(type(op))
        values = [v for v in (*op.operands, *op.results) if isinstance(v.type, T.TensorType)]
        if rule is not None:
            rule(self, op)
        elif isinstance(op, Loop):
            self._loop(op)
        elif ELEMENTWISE in op.traits:
            for value in values[1:]:
                self._tie_all(values[0], value)
        elif not op.is_terminator:
            for value in values:
                self._fix(value, *range(value.type.rank))

    def _loop(self, op: Loop) -> None:
        for index, result in enumerate(op.results):
            if isinstance(result.type, T.TensorType):
                for value in (*op.carried_names(index), *op.carried_sources(index)):
                    self._tie_all(value, result)

    def _if(self, op: If) -> None:
        for index, result in enumerate(op.results):
            if isinstance(result.type, T.TensorType):
                for block in (op.then_block, op.else_block):
                    self._tie_all(block.last.operands[index], result)

    def _free(self, op: Operation) -> None:
        """Cut as its uses are."""

    def _reduce(self, op: Reduce | Scan) -> None:
        self._reduced.append((op.inputs[0], op.axis))
        self._combining(op)

    def _histogram(self, op: ops.Histogram) -> None:
        self._reduced.append((op.x, 0))
        self._fix(op.result, 0)
        if op.mask is not None:
            self._tie_all(op.mask, op.x)

    def _flip(self, op: ops.Flip) -> None:
        self._tie_all(op.x, op.result)
        self._fix(op.x, op.axis)

    def _combining(self, op: Combining) -> None:
        first = op.inputs[0]
        for value in op.inputs:
            self._tie_all(value, first)
        for result in op.results:
            for d in range(first.type.rank):
                there = op.result_dim(0, d)
                if there is not None and isinstance(result.type, T.TensorType):
                    self._tie((result, there), (first, d))

    def _dot(self, op: Dot) -> None:
        result, rank = op.result, op.result.type.rank
        self._tie_all(op.c, result)
        for d in range(rank - 1):
            self._tie((op.a, d), (result, d))
        for d in [*range(rank - 2), rank - 1]:
            self._tie((op.b, d), (result, d))
        self._fix(op.a, rank - 1)
        self._fix(op.b, rank - 2)
        for d in (rank - 2, rank - 1):
            self._most.append(((result, d), result.type.shape[d] // _LEAST_OF_A_PRODUCT))

    def _expand_dims(self, op: ops.ExpandDims) -> None:
        self._fix(op.result, op.axis)
        for d in range(op.x.type.rank):
            self._tie((op.x, d), (op.result, d + (d >= op.axis)))

    def _broadcast(self, op: ops.Broadcast) -> None:
        for d, (before, after) in enumerate(zip(op.x.type.shape, op.result.type.shape)):
            if before == after:
                self._tie((op.x, d), (op.result, d))
            else:
                self._fix(op.x, d)

    def _trans(self, op: ops.Trans) -> None:
        for d, source in enumerate(op.order):
            self._tie((op.result, d), (op.x, source))

    def _reshape(self, op: ops.Reshape) -> None:
        """Of dimensions that become others, the outermost on either side: in as many parts as both have."""
        before, after = op.x.type.shape, op.result.type.shape
        for sources, others in _regrouped(before, after):
            self._tie((op.x, sources[0]), (op.result, others[0]))
            self._most.append(((op.x, sources[0]), min(before[sources[0]], after[others[0]])))
            self._fix(op.x, *sources[1:])
            self._fix(op.result, *others[1:])

    def _join(self, op: ops.Join) -> None:
        self._tie_all(op.lhs, op.rhs)
        self._tie_all(op.lhs, op.result)
        self._fix(op.result, op.result.type.rank - 1)

    def _split(self, op: ops.Split) -> None:
        for result in op.results:
            self._tie_all(result, op.x)
        self._fix(op.x, op.x.type.rank - 1)

    def _gather(self, op: ops.Gather) -> None:
        self._tie_all(op.index, op.result)
        for d, (source, index) in enumerate(zip(op.source.type.shape, op.index.type.shape)):
            if d == op.axis or source != index:
                self._fix(op.source, d)
            if d != op.axis and source == index:
                self._tie((op.source, d), (op.index, d))
        for d in range(op.index.type.rank):
            if d != op.axis and op.source.type.shape[d] != op.index.type.shape[d]:
                self._fix(op.index, d)


_RULES = {
    Dot: Dimensions._dot, ops.ExpandDims: Dimensions._expand_dims, ops.Broadcast: Dimensions._broadcast,
    ops.Trans: Dimensions._trans, ops.Reshape: Dimensions._reshape, ops.Join: Dimensions._join,
    ops.Split: Dimensions._split, ops.Gather: Dimensions._gather, If: Dimensions._if,
    Reduce: Dimensions._reduce, Scan: Dimensions._reduce, ops.Flip: Dimensions._flip,
    ops.Histogram: Dimensions._histogram,
    ops.Constant: Dimensions._free, ops.Splat: Dimensions._free, ops.MakeRange: Dimensions._free,
    Assert: Dimensions._free,
}  # fmt: skip


def _regrouped(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Which dimensions of a shape become which of another one, outermost first: the fewest that have as many
    elements. Dimensions of one element are left out."""
    left = [d for d, extent in enumerate(before) if extent > 1]
    right = [d for d, extent in enumerate(after) if extent > 1]
    while left:
        sources, others = [left.pop(0)], [right.pop(0)]
        sizes = before[sources[0]], after[others[0]]
        while sizes[0] != sizes[1]:
            if sizes[0] < sizes[1]:
                sources.append(left.pop(0))
                sizes = sizes[0] * before[sources[-1]], sizes[1]
            else:
                others.append(right.pop(0))
                sizes = sizes[0], sizes[1] * after[others[-1]]
        yield sources, others
