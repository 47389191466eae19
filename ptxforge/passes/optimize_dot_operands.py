"""What is done to a loaded tile before a dot is done to the dot's fragments.

    %x = load %p : tensor<128x64xf8e4m3, #blocked>                     (before)
    %w = extf %x : tensor<128x64xf16, #blocked>
    %t = trans %w : tensor<64x128xf16, #blocked1>
    %b = convert_layout %t : tensor<64x128xf16, #dot_op>
    %d = dot %a, %b, %c

    %x = load %p : tensor<128x64xf8e4m3, #blocked>                     (after)
    %t = trans %x : tensor<64x128xf8e4m3, #blocked1>
    %r = convert_layout %t : tensor<64x128xf8e4m3, #dot_op>
    %b = extf %r : tensor<64x128xf16, #dot_op>
    %d = dot %a, %b, %c

``pipeline_loops`` makes of the load a copy to shared memory, of the transpose another view of it, and of the
conversion a read of fragments: the narrow element travels, and nothing goes to shared memory a second time.

Rules
-----
CHAIN       From an operand of a dot back through casts, other elementwise operations, transposes and
            conversions, within a loop's body, to loads of whole tiles. Other ends are what the loop does not
            compute, and splats and broadcasts (scales, masks); a chain with any other end (a product, a
            reduction) is left alone.
ORDER       Load, transpose, conversion, elementwise work. What a broadcast spreads is converted before that.
PAYS        Threads hold copies of each other's fragments, so that work on them is done more than once: it
            must cost less than the conversion of its result that it saves.
USES        What others than dots need, too, is not computed twice: it stays where it is.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import UNIFORM
from ptxforge.ir.ops.cast import TruncF
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Broadcast, Trans
from ptxforge.ir.rewriter import erase_dead
from ptxforge.layouts.encodings import Distributed, DotOperand, elements_per_thread
from ptxforge.passes.analysis.costs import computation_cost, conversion_cost
from ptxforge.passes.conversions import builder_after
from ptxforge.passes.rematerialization import rematerialize
from ptxforge.support.target import Target

Order = tuple[int, ...]
"""Of a transpose: dimension i of the result is dimension ``order[i]`` of the operand."""


def optimize_dot_operands(function: Function, target: Target) -> bool:
    """Rewrite the chains (see CHAIN) of every dot in a loop; dead code is erased."""
    conversions: list[Operation] = []
    for op in function.walk(Dot):
        loop = op.parent_op
        if loop is not None and loop.is_counted:
            for index in (0, 1):
                conversions += _optimize(op, index)
    if not conversions:
        return False
    rematerialize(function, conversions)
    erase_dead(function)
    return True


def _optimize(dot: Dot, index: int) -> list[Operation]:
    """Rewrite the chain of one operand; the conversions that this takes."""
    value = dot.operands[index]
    layout = value.type.layout
    if not isinstance(layout, DotOperand):
        return []
    chain = _Chain(dot.parent, layout)
    if not chain.follow(value) or not chain.has_loads or chain.is_in_order(value) or not chain.pays:
        return []
    dot.set_operand(index, chain.rebuild(value, None))
    return chain.conversions


class _Chain:
    """One CHAIN: what it consists of, what it costs, and its new form."""

    def __init__(self, block: Block, layout: DotOperand):
        self.block, self.layout = block, layout
        self.work: dict[Operation, None] = {}
        self.has_loads = False
        self.saved = 0.0
        self.made: dict[tuple[Value, Order | None], Value] = {}
        self.conversions: list[Operation] = []

    # -- looking ---------------------------------------------------------------------------------------

    def follow(self, value: Value) -> bool:
        """Collect the chain behind ``value``; whether all its ends are fit."""
        op = value.defining_op
        if op is None or op.parent is not self.block:
            return True
        if isinstance(op, Load):
            self.has_loads |= not op.volatile
            return not op.volatile
        if _is_spread(op) or op in self.work:
            return True
        if op.changes_layout:
            self._note_saved(op)
            return self.follow(op.x)
        if op.is_transpose:
            return self.follow(op.x)
        if not op.is_elementwise or not _only_feeds_dots(op.result):
            return False
        self.work[op] = None
        return all(map(self.follow, _tensors(op)))

    def _note_saved(self, op: ConvertLayout) -> None:
        """The conversion of a value that is more than loaded goes."""
        if not _is_raw(op.x):
            self.saved += conversion_cost(op.x.type.layout, op.result.type.layout, op.x.type)

    def is_in_order(self, value: Value) -> bool:
        """Whether ``value`` has its ORDER already."""
        op = value.defining_op
        if op is None or op.parent is not self.block or _is_spread(op):
            return True
        if op.changes_layout:
            return _is_raw(op.x)
        return op in self.work and all(map(self.is_in_order, _tensors(op)))

    @property
    def pays(self) -> bool:
        """See PAYS."""
        now = sum(_cost(op, op.result.type.layout) for op in self.work)
        then = sum(_cost(op, self.layout) for op in self.work)
        return then - now <= self.saved

    # -- rewriting -------------------------------------------------------------------------------------

    def rebuild(self, value: Value, order: Order | None) -> Value:
        """``value``, transposed if an ``order`` is given, in the operand's layout."""
        key = value, order
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = self._rebuild(value, order)
        return found

    def _rebuild(self, value: Value, order: Order | None) -> Value:
        op = value.defining_op
        if op is None or op.parent is not self.block:
            return self._converted(value, order)
        if op.changes_layout:
            return self.rebuild(op.x, order)
        if op.is_transpose:
            return self.rebuild(op.x, _composed(op.order, order))
        if op in self.work:
            return self._recomputed(op, order)
        return self._converted(value, order)

    def _converted(self, value: Value, order: Order | None) -> Value:
        b = builder_after(value)
        if order is not None:
            value = _transposed(b, value, order)
        if value.type.layout == self.layout:
            return value
        conversion = b.create(ConvertLayout, value, result_types=[value.type.with_layout(self.layout)])
        self.conversions.append(conversion)
        return conversion.result

    def _recomputed(self, op: Operation, order: Order | None) -> Value:
        operands = [self.rebuild(v, order) if isinstance(v.type, T.TensorType) else v for v in op.operands]
        copy = op.clone({})
        copy.set_operands(operands)
        copy.result.type = _fragments_of(op.result.type, order, self.layout)
        Builder.after(op).insert(copy)
        return copy.result


def _cost(op: Operation, layout: Distributed) -> float:
    """Of elementwise work in ``layout``; a cast to a narrower type takes an instruction at most."""
    if isinstance(op, TruncF):
        return float(elements_per_thread(layout, op.result.type.shape))
    return computation_cost(op, layout)


def _fragments_of(type: T.TensorType, order: Order | None, layout: Distributed) -> T.TensorType:
    shape = type.shape if order is None else tuple(type.shape[d] for d in order)
    return T.TensorType(shape, type.element, layout)


def _composed(first: Order, then: Order | None) -> Order | None:
    """The order of two transposes; ``None`` when together they are none."""
    order = first if then is None else tuple(first[d] for d in then)
    return None if order == tuple(range(len(order))) else order


def _transposed(b: Builder, value: Value, order: Order) -> Value:
    """``value`` transposed; what is broadcast is transposed before."""
    op = value.defining_op
    if not isinstance(op, Broadcast):
        return b.value(Trans, value, order=order)
    narrow = b.value(Trans, op.x, order=order)
    shape = tuple(value.type.shape[d] for d in order)
    return b.value(Broadcast, narrow, type=T.TensorType(shape, value.type.element, narrow.type.layout))


def _is_spread(op: Operation) -> bool:
    """Whether every element of the result is a copy of one of fewer."""
    return UNIFORM in op.traits or isinstance(op, Broadcast)


def _is_raw(value: Value) -> bool:
    """Whether ``value`` is what was loaded, or its transpose."""
    op = value.defining_op
    return isinstance(op.x.defining_op if op is not None and op.is_transpose else op, Load)


def _only_feeds_dots(value: Value) -> bool:
    """Whether dots alone use ``value``, through elementwise operations, transposes and conversions."""
    for user, index in value.uses:
        if isinstance(user, Dot):
            if index > 1:
                return False
            continue
        passes_on = user.is_transpose or user.changes_layout or user.is_elementwise
        if not passes_on or not _only_feeds_dots(user.result):
            return False
    return True


def _tensors(op: Operation) -> list[Value]:
    return [v for v in op.operands if isinstance(v.type, T.TensorType)]
