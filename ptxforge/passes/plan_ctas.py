"""With ``num_ctas`` a program is a cluster of CTAs: what each of them computes.

    %i = make_range {start = 0, end = 128} : tensor<128xi32>                   (before; num_ctas = 2)
    %p = addptr %pointers, %i : tensor<128xptr<f32>>
    store %p, %x : (tensor<128xptr<f32>>, tensor<128xf32>)

    %rank = get_cta_rank {parts = 2} : i32                                      (after)
    %start = muli %rank, 64 : i32
    %i = addi (make_range {start = 0, end = 64}), (splat %start) : tensor<64xi32>
    %p = addptr %pointers, %i : tensor<64xptr<f32>>
    store %p, %x : (tensor<64xptr<f32>>, tensor<64xf32>)

Tensors are cut along some of their dimensions, and each CTA holds its part of every tensor that has such a
dimension; what has none is the same in all CTAs. (In the words of the layouts, ``CTASplitNum`` is the number
of parts along a cut dimension and 1 along others.) From here on a function describes one CTA: layouts, shared
memory and barriers are a CTA's own.

DIMENSIONS  Operations tie dimensions of operands and results together: those of an elementwise operation one
            by one, a product's rows and columns to those of its operands. Dimensions that are tied together
            are cut together. Those along which values meet (the inner dimension of a product, the axis of a
            scan) are not cut, nor are those of an operation that this pass does not know.
CHOICE      The cluster is given out in factors of 2, each to the dimension that most of what is stored has
            (of what is loaded, where that has none), then to the longest; to one that is reduced only where
            there is no other. A part of a product keeps 16 rows and columns.
REDUCED     Along the axis of a reduction each CTA combines its part, and then they combine what they have
            (``reduce_ctas``). So do counts of a histogram.
ONCE        What lacks a cut dimension is stored by the first CTA along it alone; so are relaxed atomics whose
            results nobody needs.
ALONE       Where no dimension can be cut, or where CTAs would have to wait for each other (atomics whose
            results all of them need, memory that another CTA has written before, barriers), the first CTA
            runs the program and the others have nothing to do: a remark says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, product

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Region, Value
from ptxforge.ir.definition import ADDRESSING, ELEMENTWISE, MemoryAccess
from ptxforge.ir.ops.arith import AddI, AndI, CmpI, MulI
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.control import If, Loop, Yield
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import GetCtaRank, Store
from ptxforge.ir.ops.reduce import Combining, Reduce, ReduceCtas, Scan
from ptxforge.ir.ops.shape import (
    Broadcast,
    Constant,
    ExpandDims,
    Flip,
    Gather,
    Histogram,
    Join,
    MakeRange,
    Reshape,
    Splat,
    Split,
    Trans,
)
from ptxforge.passes.analysis.assumptions import weaken_hints
from ptxforge.passes.analysis.roots import root_of
from ptxforge.support.target import Target

Dimension = tuple[Value, int]

_LEAST_OF_A_PRODUCT = 16
_MOST_TWINS = 2000


def plan_ctas(function: Function, target: Target) -> bool:
    """Give the CTAs of a cluster their parts."""
    ctas = function.attributes.get("num_ctas", 1)
    if ctas == 1 or "planned_ctas" in function.attributes:
        return False
    function.attributes["planned_ctas"] = ctas
    places = {op: op.pointer for op in function.walk(MemoryAccess)}
    _separate_indices(function)
    dimensions = _Dimensions(function, places)
    reason = _why_alone(function)
    cuts = {} if reason else dimensions.choose(ctas)
    reason = reason or _why_not_cut(places, dimensions, cuts)
    if reason:
        text = f"the first of the {ctas} CTAs of a cluster does all the work: {reason}"
        function.remarks.add("one-cta-works", text, function.location)
        _leave_to_the_first(function, ctas)
    else:
        _Cutter(function, dimensions, cuts).cut()
    return True


def _separate_indices(function: Function) -> None:
    """Indices and constants of its own for every use: rows and columns may be counted alike and yet be cut
    differently. (What stays alike is merged again.)"""
    left, indices = _MOST_TWINS, set()
    for op in function.walk():
        if _is_index(op) and indices.issuperset(v for v in op.operands if isinstance(v.type, T.TensorType)):
            indices.add(op.result)
    for op in reversed(function.walk()):
        if indices.isdisjoint(op.results):
            continue
        for user, index in list(op.result.uses)[1:]:
            if not left:
                return
            left -= 1
            twin = Builder.at(op).create(
                type(op), *op.operands, result_types=[op.result.type], **dict(op.attributes)
            )
            user.set_operand(index, twin.result)


def _is_index(op: Operation) -> bool:
    """Whether it makes a tensor out of ranges and scalars, if its operands are such tensors."""
    if len(op.results) != 1 or not isinstance(op.result.type, T.TensorType) or op.regions:
        return False
    return type(op) in (MakeRange, Constant, Splat) or (ADDRESSING in op.traits and op.get_effects().is_pure)


# ---- whether ---------------------------------------------------------------------------------------------
def _why_alone(function: Function) -> str:
    """What forbids that CTAs share the program, whatever is cut; empty if nothing does."""
    for op in function.walk():
        effects = op.get_effects()
        if isinstance(op, MemoryAccess):
            if effects.other and not effects.writes:
                return f"a volatile '{op.name}' waits for others"
        elif effects.other or "global" in effects.reads | effects.writes:
            return f"'{op.name}' is for a whole program"
    return ""


def _writes(op: Operation) -> bool:
    return isinstance(op, MemoryAccess) and bool(op.get_effects().writes)


def _why_not_cut(
    places: dict[Operation, Value], dimensions: _Dimensions, cuts: dict[Dimension, int]
) -> str:
    """What forbids these cuts; empty if nothing does. ``places`` has the pointers of all accesses, as the
    program computes them."""
    if not cuts:
        return "no dimension of what it stores can be cut"
    for op in places:
        if _is_whole_atomic(op) and dimensions.missing(op.pointer, cuts):
            return f"'{op.name}' is done once for the whole program"
    for one, other in combinations(filter(_writes, places), 2):
        one_cut, other_cut = (dimensions.cuts_of(op.pointer, cuts) for op in (one, other))
        if _in_order(one, other) and one_cut != other_cut:
            return "it may write what another CTA writes"
    for load, write in product(places, places):
        if _writes(load) or not _writes(write) or not _may_meet(load, write):
            continue
        in_place = places[load] is places[write]
        if not in_place or not dimensions.are_cut_alike(load.pointer, write.pointer, cuts):
            return "it may read what another CTA writes"
    return ""


def _is_whole_atomic(op: Operation) -> bool:
    """Whether all CTAs wait for what an atomic finds, or others learn by it what the program has done."""
    return op.get_effects().is_atomic and not op.is_silent


def _in_order(one: Operation, other: Operation) -> bool:
    """Whether it may matter which of two stores comes first."""
    return _may_meet(one, other) and not any("global" in op.get_effects().reads for op in (one, other))


def _may_meet(load: Operation, write: Operation) -> bool:
    roots = root_of(load.pointer), root_of(write.pointer)
    return None in roots or roots[0] is roots[1]


def _leave_to_the_first(function: Function, ctas: int) -> None:
    """Run the program where the rank is 0."""
    end = function.body.last
    work = [op for op in function.body.operations if op is not end]
    builder = Builder.at(end)
    builder.location = function.location
    rank = builder.value(GetCtaRank, parts=ctas)
    first = builder.value(CmpI, rank, builder.constant(0, T.I32), predicate="eq")
    regions = [Region(Block()), Region(Block())]
    builder.create(If, first, result_types=[], regions=regions)
    for op in work:
        op.remove()
        regions[0].block.append(op)
    for region in regions:
        with builder.inside(region.block):
            builder.create(Yield)


# ---- dimensions ------------------------------------------------------------------------------------------
def _tensors(function: Function) -> Iterator[Value]:
    for op in function.walk():
        for block in [region.block for region in op.regions]:
            yield from (v for v in block.arguments if isinstance(v.type, T.TensorType))
        yield from (v for v in op.results if isinstance(v.type, T.TensorType))


class _Dimensions:
    """Which dimensions of a function's tensors are cut together, and which cannot be."""

    def __init__(self, function: Function, places: dict[Operation, Value]):
        """``places``: where accesses are. Those of one place that is written are for one CTA."""
        self.function = function
        self._parent: dict[Dimension, Dimension] = {}
        self._fixed: set[Dimension] = set()
        self._least: dict[Dimension, int] = {}
        self._reduced: list[Dimension] = []
        for op in function.walk():
            self._visit(op)
        for one, other in combinations(places, 2):
            shape = T.shape_of(one.pointer.type)
            written = _writes(one) + _writes(other)
            in_place = written and places[one] is places[other] or written == 2 and _in_order(one, other)
            if in_place and shape and shape == T.shape_of(other.pointer.type):
                self._tie_all(one.pointer, other.pointer)
        for value in _tensors(function):
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
        mine = [name for _, name in self.cuts_of(value, cuts)]
        return [cut for cut in cuts if cut not in mine]

    def cuts_of(self, value: Value, cuts: dict[Dimension, int]) -> list[tuple[int, Dimension]]:
        """Which dimensions of a value are cut, and as what."""
        rank = len(T.shape_of(value.type))
        return [(d, name) for d in range(rank) if (name := self.of((value, d))) in cuts]

    def are_cut_alike(self, one: Value, other: Value, cuts: dict[Dimension, int]) -> bool:
        """Whether each CTA holds the same part of two values, and no other CTA holds any of it."""
        return not self.missing(one, cuts) and self.cuts_of(one, cuts) == self.cuts_of(other, cuts)

    def choose(self, ctas: int) -> dict[Dimension, int]:
        """In how many parts dimensions are cut; empty if there are not enough of them. See CHOICE."""
        accesses = self.function.walk(MemoryAccess)
        return self._choose(ctas, filter(_writes, accesses)) or self._choose(ctas, accesses)

    def _choose(self, ctas: int, accesses: Iterable[MemoryAccess]) -> dict[Dimension, int]:
        weights: dict[Dimension, int] = {}
        extents: dict[Dimension, int] = {}
        for op in accesses:
            for d, extent in enumerate(T.shape_of(op.pointer.type)):
                name = self.of((op.pointer, d))
                weights[name] = weights.get(name, 0) + op.pointer.type.numel
                extents[name] = extent
        least = {self.of(name): most for name, most in self._least.items()}
        reduced = set(map(self.of, self._reduced))
        cuts: dict[Dimension, int] = {}
        while ctas > 1:
            left = {name: extent // cuts.get(name, 1) for name, extent in extents.items()}
            able = [n for n in left if n not in self._fixed and left[n] >= 2 * least.get(n, 1)]
            if not able:
                return {}
            best = max(able, key=lambda name: (name not in reduced, weights[name], left[name]))
            cuts[best] = 2 * cuts.get(best, 1)
            ctas //= 2
        return cuts

    def _tie(self, one: Dimension, other: Dimension) -> None:
        self._parent[self.of(one)] = self.of(other)

    def _tie_all(self, one: Value, other: Value, but: int | None = None) -> None:
        """Tie two values of one shape, dimension by dimension."""
        for d in range(one.type.rank):
            if d != but:
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

    def _scan(self, op: Scan) -> None:
        self._fix(op.inputs[0], op.axis)
        self._combining(op)

    def _reduce(self, op: Reduce) -> None:
        self._reduced.append((op.inputs[0], op.axis))
        self._combining(op)

    def _histogram(self, op: Histogram) -> None:
        self._reduced.append((op.x, 0))
        self._fix(op.result, 0)
        if op.mask is not None:
            self._tie_all(op.mask, op.x)

    def _flip(self, op: Flip) -> None:
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
        self._least[result, rank - 1] = self._least[result, rank - 2] = _LEAST_OF_A_PRODUCT

    def _expand_dims(self, op: ExpandDims) -> None:
        self._fix(op.result, op.axis)
        for d in range(op.x.type.rank):
            self._tie((op.x, d), (op.result, d + (d >= op.axis)))

    def _broadcast(self, op: Broadcast) -> None:
        for d, (before, after) in enumerate(zip(op.x.type.shape, op.result.type.shape)):
            if before == after:
                self._tie((op.x, d), (op.result, d))
            else:
                self._fix(op.x, d)

    def _trans(self, op: Trans) -> None:
        for d, source in enumerate(op.order):
            self._tie((op.result, d), (op.x, source))

    def _reshape(self, op: Reshape) -> None:
        """Dimensions in front and at the end that stay as they are; the others are not cut."""
        before, after = op.x.type.shape, op.result.type.shape
        front = 0
        while front < min(len(before), len(after)) and before[front] == after[front]:
            self._tie((op.x, front), (op.result, front))
            front += 1
        end = 0
        while end < min(len(before), len(after)) - front and before[-1 - end] == after[-1 - end]:
            end += 1
            self._tie((op.x, len(before) - end), (op.result, len(after) - end))
        self._fix(op.x, *range(front, len(before) - end))
        self._fix(op.result, *range(front, len(after) - end))

    def _join(self, op: Join) -> None:
        self._tie_all(op.lhs, op.rhs)
        self._tie_all(op.lhs, op.result)
        self._fix(op.result, op.result.type.rank - 1)

    def _split(self, op: Split) -> None:
        for result in op.results:
            self._tie_all(result, op.x)
        self._fix(op.x, op.x.type.rank - 1)

    def _gather(self, op: Gather) -> None:
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
    Dot: _Dimensions._dot, ExpandDims: _Dimensions._expand_dims, Broadcast: _Dimensions._broadcast,
    Trans: _Dimensions._trans, Reshape: _Dimensions._reshape, Join: _Dimensions._join,
    Split: _Dimensions._split, Gather: _Dimensions._gather, If: _Dimensions._if,
    Reduce: _Dimensions._reduce, Scan: _Dimensions._scan, Flip: _Dimensions._flip,
    Histogram: _Dimensions._histogram,
    Constant: _Dimensions._free, Splat: _Dimensions._free, MakeRange: _Dimensions._free,
}  # fmt: skip


# ---- cutting ---------------------------------------------------------------------------------------------
class _Cutter:
    """Makes every tensor the part of one CTA."""

    def __init__(self, function: Function, dimensions: _Dimensions, cuts: dict[Dimension, int]):
        self.function, self.dimensions, self.cuts = function, dimensions, cuts
        builder = Builder.at(function.body.first)
        self.places: dict[Dimension, Value] = {}
        """Per cut dimension: which part is this CTA's."""
        first = 0
        for name, parts in cuts.items():
            self.places[name] = builder.value(GetCtaRank, parts=parts, first=first)
            first += parts.bit_length() - 1

    def cut(self) -> None:
        parts = {value: self._parts(value) for value in _tensors(self.function)}
        ranges = self.function.walk(MakeRange)
        # Looked up while operands are those whose dimensions are known.
        reduced = [(op, self._place(op.inputs[0], op.axis)) for op in self.function.walk(Reduce)]
        reduced += [(op, self._place(op.x, 0)) for op in self.function.walk(Histogram)]
        for value, cut in parts.items():
            if max(cut) > 1:
                value.type = value.type.with_shape(
                    tuple(extent // part for extent, part in zip(value.type.shape, cut)), None
                )
                weaken_hints(value, cut)
        for op in ranges:
            if parts[op.result] != (1,):
                self._move_range(op)
        for op, place in reduced:
            if place is not None:
                self._reduce_on(op, place)
        for op in self.function.walk((Store, AtomicRMW)):
            self._store_once(op)

    def _parts(self, value: Value) -> tuple[int, ...]:
        return tuple(self.cuts.get(self.dimensions.of((value, d)), 1) for d in range(value.type.rank))

    def _place(self, value: Value, axis: int) -> Value | None:
        return self.places.get(self.dimensions.of((value, axis)))

    def _move_range(self, op: MakeRange) -> None:
        """The CTA's part of a range."""
        length, place = op.result.type.shape[0], self._place(op.result, 0)
        builder = Builder.at(op)
        part = builder.value(MakeRange, type=op.result.type, start=op.start, end=op.start + length)
        offset = builder.value(MulI, place, builder.constant(length, T.I32))
        moved = builder.value(AddI, part, builder.value(Splat, offset, type=op.result.type))
        moved.hint = op.result.hint
        op.result.replace_all_uses_with(moved)
        op.erase()

    def _reduce_on(self, op: Reduce | Histogram, place: Value) -> None:
        """See REDUCED."""
        region = Region(op.regions[0].block.clone({}) if op.regions else _addition())
        made = Builder.after(op).create(
            ReduceCtas, *op.results, result_types=[result.type for result in op.results], regions=[region],
            ranks=place.defining_op.rank_bits, location=op.location,
        )  # fmt: skip
        for own, result in zip(op.results, made.results):
            result.hint = own.hint
            own.replace_all_uses_with(result, unless=lambda user: user is made)

    def _store_once(self, op: Store | AtomicRMW) -> None:
        """See ONCE."""
        for name in self.dimensions.missing(op.pointer, self.cuts):
            builder = Builder.at(op)
            only = builder.value(CmpI, self.places[name], builder.constant(0, T.I32), predicate="eq")
            if isinstance(op.pointer.type, T.TensorType):
                only = builder.value(Splat, only, type=op.pointer.type.with_element(T.I1))
            mask = only if op.mask is None else builder.value(AndI, op.mask, only)
            op.set_operands((op.pointer, op.value, mask))


def _addition() -> Block:
    """The region of a reduction that adds integers."""
    block = Block((T.I32, T.I32))
    builder = Builder(block)
    builder.create(Yield, builder.value(AddI, *block.arguments))
    return block
