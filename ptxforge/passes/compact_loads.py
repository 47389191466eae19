"""What a loop loads for its product several times over is loaded once, and then repeated.

    %i = divsi %range, 8 : tensor<64x1xi32>                                (before; range = 0 … 63)
    %p = addptr (splat %b), (broadcast (muli %i, %stride)) + … : tensor<64x128xptr<i32>>
    for … {
      %x = load %p : tensor<64x128xi32>
      … dot … }

    %j = make_range {start = 0, end = 8} : tensor<8xi32>                   (after)
    %q = addptr (splat %b), (broadcast (muli %j, %stride)) + … : tensor<8x128xptr<i32>>
    for … {
      %y = load %q : tensor<8x128xi32>
      %x = reshape (broadcast (expand_dims %y {axis = 1}) : tensor<8x8x128xi32>) : tensor<64x128xi32>
      … dot … }

Weights of a few bits lie packed in words, and a kernel that unpacks them loads a word for each weight. The
tile of words is what goes through shared memory: eight times as many bytes as there are would be copied, and
kept for each stage.

WHICH       Loads in a counted loop of which a product of the same loop uses nothing but what is computed
            element by element.
REPEATED    Along a dimension addresses and masks are equal in runs (``constancy``): they are computed anew
            for the first of each run. Ranges, splats, broadcasts and elementwise operations can be.
SINGLE      Nor are dimensions of size 1 loaded that ``expand_dims`` made (``x[None, :]``): scales are
            vectors, which TMA copies beside tiles, and one matrix of several is a tile of rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import HINTS, REARRANGING, UNIFORM
from ptxforge.ir.ops.arith import AddI, DivSI, DivUI, MulI, ShrSI, ShrUI
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, MakeRange, Reshape
from ptxforge.ir.rewriter import erase_dead
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.kept import kept
from ptxforge.support.target import Target


def compact_loads(function: Function, target: Target) -> bool:
    """Apply the rewriting above to every load that qualifies."""
    if function.attributes.get("num_ctas", 1) > 1:
        return False
    changed = False
    loads = [op for op in function.walk(Load) if _feeds_a_product(op)]
    divided = function.walk((DivSI, DivUI, ShrSI, ShrUI)) if loads else []
    if any(isinstance(op.result.type, T.TensorType) for op in divided):
        facts = kept(AxisInfoAnalysis, function)
        found = [(load, run) for load in loads if (run := _run(load, facts)) is not None]
        changed = any([_shorten(load, _EveryNth(*run)) is not None for load, run in found])
    for load in [load for load in function.walk(Load) if _feeds_a_product(load)]:
        while load is not None and (dim := _single(load)) is not None:
            load = _shorten(load, _Without(dim))
            changed |= load is not None
    if changed:
        erase_dead(function)
    return changed


def _feeds_a_product(load: Load) -> bool:
    """See WHICH."""
    loop = load.parent_op
    if loop is None or not loop.is_counted or load.volatile or not isinstance(load.result.type, T.TensorType):
        return False
    return _only_feeds_products(load.result, load)


def _only_feeds_products(value: Value, load: Load) -> bool:
    users = [user for user, _ in value.uses]
    return bool(users) and all(
        user.parent is load.parent
        and (isinstance(user, Product) or (_passes_on(user) and _only_feeds_products(user.result, load)))
        for user in users
    )


def _passes_on(op: Operation) -> bool:
    return len(op.results) == 1 and (op.is_elementwise or REARRANGING in op.traits)


def _run(load: Load, facts: AxisInfoAnalysis) -> tuple[int, int] | None:
    """The dimension along which ``load`` repeats what it loads, and how often; part of a dimension only."""
    tensors = [v for v in (load.pointer, load.mask) if v is not None]
    for dim, size in enumerate(load.result.type.shape):
        times = min(facts[v].constancy[dim] for v in tensors)
        if 1 < times < size:
            return dim, times
    return None


def _single(load: Load) -> int | None:
    """A dimension of size 1 of a tile of several; also of a load that is no more."""
    shape = load.result.type.shape
    return shape.index(1) if len(shape) > 1 and 1 in shape else None


def _shorten(load: Load, fewer: _Fewer) -> Load | None:
    """Load what ``fewer`` leaves of the tile, and make the tile of it: the new load, if that could be
    done."""
    operands = [fewer.of(v, fewer.dim) for v in load.operands]
    if None in operands:
        for op in reversed(fewer.made):
            op.erase()
        return None
    copy = load.clone({})
    copy.set_operands(operands)
    copy.result.type = fewer.type(load.result.type, fewer.dim)
    b = Builder.at(load)
    load.replace_with([fewer.spread(b, b.insert(copy).result, load.result.type)])
    return copy


class _Fewer:
    """Values at some of the places of a tile, computed for these alone, if they can be. ``dim`` is the
    dimension of which there are fewer, counted in the value that is asked for."""

    rules: dict[type[Operation], Callable[..., Value | None]]

    def __init__(self, dim: int):
        self.dim = dim
        self.made: list[Operation] = []

    def of(self, value: Value, dim: int) -> Value | None:
        """``value`` at these places; what is new stands beside what it replaces."""
        op = value.defining_op
        if not isinstance(value.type, T.TensorType):
            return value
        if op is None:
            return None
        if (rule := self.rules.get(type(op))) is not None:
            return rule(self, op, dim)
        operands = [self.of(v, dim) for v in op.operands]
        if None in operands or not (op.is_elementwise or UNIFORM in op.traits):
            return None
        copy = op.clone({})
        for key in HINTS & copy.attributes.keys():
            del copy.attributes[key]
        copy.set_operands(operands)
        copy.result.type = self.type(value.type, dim)
        return self.insert(op, copy)

    def insert(self, place: Operation, op: Operation) -> Value:
        """Put a new operation in front of ``place``."""
        self.made.append(Builder.at(place).insert(op))
        return op.result

    def value(self, place: Operation, kind: type[Operation], *operands: Value | None, **more) -> Value | None:
        """A new operation there, if it has all its operands."""
        if None in operands:
            return None
        self.made.append(Builder.at(place).value(kind, *operands, **more).defining_op)
        return self.made[-1].result


class _EveryNth(_Fewer):
    """See REPEATED."""

    def __init__(self, dim: int, times: int):
        super().__init__(dim)
        self.times = times

    def type(self, wide: T.TensorType, dim: int) -> T.TensorType:
        """``wide`` with these places alone."""
        shape = list(wide.shape)
        shape[dim] //= self.times
        return wide.with_shape(tuple(shape))

    def spread(self, b: Builder, value: Value, wide: T.TensorType) -> Value:
        """``value`` at all places."""
        row = b.value(ExpandDims, value, axis=self.dim + 1)
        shape = (*row.type.shape[: self.dim + 1], self.times, *row.type.shape[self.dim + 2 :])
        return b.value(Reshape, b.value(Broadcast, row, type=row.type.with_shape(shape)), type=wide)

    def _range(self, op: MakeRange, dim: int) -> Value:
        """``start``, ``start + times``, …"""
        type = self.type(op.result.type, dim)
        count = self.value(op, MakeRange, type=type, start=0, end=type.shape[0])
        scaled = self.value(op, MulI, count, Builder.at(op).constant(self.times, type))
        return self.value(op, AddI, scaled, Builder.at(op).constant(op.start, type))

    def _broadcast(self, op: Broadcast, dim: int) -> Value | None:
        x = op.x if op.x.type.shape[dim] == 1 else self.of(op.x, dim)
        return self.value(op, Broadcast, x, type=self.type(op.result.type, dim))

    def _expanded(self, op: ExpandDims, dim: int) -> Value | None:
        return self.value(op, ExpandDims, self.of(op.x, dim - (dim > op.axis)), axis=op.axis)

    rules = {MakeRange: _range, Broadcast: _broadcast, ExpandDims: _expanded}


class _Without(_Fewer):
    """See SINGLE."""

    def type(self, wide: T.TensorType, dim: int) -> T.TensorType:
        """``wide`` without the dimension."""
        return wide.with_shape(wide.shape[:dim] + wide.shape[dim + 1 :])

    def spread(self, b: Builder, value: Value, wide: T.TensorType) -> Value:
        """``value`` with the dimension."""
        return b.value(ExpandDims, value, axis=self.dim)

    def _range(self, op: MakeRange, dim: int) -> None:
        """A range of one has no other dimension."""

    def _broadcast(self, op: Broadcast, dim: int) -> Value | None:
        return self.value(op, Broadcast, self.of(op.x, dim), type=self.type(op.result.type, dim))

    def _expanded(self, op: ExpandDims, dim: int) -> Value | None:
        if op.axis == dim or set(op.x.type.shape) == {1}:  # of one element, whichever dimension goes
            return op.x
        axis = op.axis - (op.axis > dim)
        return self.value(op, ExpandDims, self.of(op.x, dim - (dim > op.axis)), axis=axis)

    rules = {MakeRange: _range, Broadcast: _broadcast, ExpandDims: _expanded}
