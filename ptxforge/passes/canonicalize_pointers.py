"""Let loops (``for`` and ``while``) advance one scalar instead of a tensor of pointers or offsets.

    %p = addptr (splat %base), %o : tensor<64x32xptr<f16>>                           (before)
    for … iter_args(%q = %p) {
      %x = load %q
      %r = addptr %q, (splat %step)
      yield %r }

    for … iter_args(%b = %base) : ptr<f16> {                                         (after)
      %q = addptr (splat %b), %o : tensor<64x32xptr<f16>>
      %x = load %q
      %c = addptr %b, %step : ptr<f16>
      yield %c }

A thread then carries one 64-bit register, not one for every pointer it has, and sees its addresses as that
base plus offsets known before the loop.

POINTERS    A carried tensor of pointers that only ever advances by the same offset everywhere, and begins as
            a scalar pointer plus offsets. The offsets stay separate additions of their own widths: adding two
            32-bit ones first could wrap.
INTEGERS    A carried tensor of integers that only ever advances by uniform values is its initial value plus a
            scalar that begins at 0. (Exact, since both wrap alike.)

Nested loops that pass such a value on are followed; whatever else happens to it is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import COMMUTATIVE, UNIFORM
from ptxforge.ir.ops.arith import AddI
from ptxforge.ir.ops.control import Loop
from ptxforge.ir.ops.memory import AddPtr
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Splat
from ptxforge.ir.rewriter import constant_of
from ptxforge.passes.dce import dce
from ptxforge.support.target import Target

Parts = tuple[Value, list[Value]]
Tensor = Callable[[Builder, Value], Value]
"""Makes, from a scalar, the tensor that it stands for."""


def canonicalize_pointers(function: Function, target: Target) -> bool:
    """Apply the rewriting above to every carried value of every loop, outer loops first."""
    rewriter = _Rewriter()
    changed = False
    for loop in function.walk(Loop):
        for index in range(len(loop.results)):
            changed |= rewriter.loop(loop, index)
    if changed:
        dce(function, target)
    return changed


class _Rewriter:
    """``scalars`` maps a carried tensor (argument or result) to the scalar that advances in its place."""

    def __init__(self) -> None:
        self.scalars: dict[Value, Value] = {}

    def loop(self, loop: Loop, index: int) -> bool:
        result, initial = loop.results[index], loop.carried_sources(index)[0]
        if result in self.scalars or not _is_index_tensor(result.type):
            return False
        if not _is_used_inside(loop, index) or not _only_advances(loop, index):
            return False
        before = Builder.at(loop)
        if isinstance(result.type.element, T.PointerType):
            parts = _decompose(before, initial)
            if parts is None:
                return False
            base, offsets = parts
            self.carry(loop, index, base, lambda at, scalar: _pointer(at, scalar, offsets, result.type))
            return True
        zero = before.constant(0, result.type.element)
        self.carry(loop, index, zero, lambda at, scalar: _sum(at, initial, scalar))
        return True

    def carry(self, loop: Loop, index: int, start: Value, tensor: Tensor) -> None:
        """Carry a scalar from ``start`` on; ``tensor(builder, scalar)`` is what the old value was at any
        time."""
        old = loop.carried_names(index)
        _, *passed_on = loop.carried_sources(index)
        new = loop.add_carried(start, old[0].hint)
        self.scalars.update(zip(old, new))
        _, *places = loop.carried_places(len(loop.results) - 1)
        for (terminator, place), value in zip(places, passed_on):
            terminator.set_operand(place, self.scalar_of(value, tensor))
        *regions_old, result_old = zip(old, new)
        for (argument, scalar), region in zip(regions_old, loop.regions):
            inside = Builder(region.block, region.block.first, loop.location)
            made = tensor(inside, scalar)
            made.defining_op.attributes.update(argument.attributes)
            argument.replace_all_uses_with(made)
        argument, scalar = result_old
        if argument.uses:
            argument.replace_all_uses_with(tensor(Builder.after(loop), scalar))

    def scalar_of(self, value: Value, tensor: Tensor) -> Value:
        """The scalar that stands for ``value``, which came from a carried value by uniform steps."""
        if value in self.scalars:
            return self.scalars[value]
        op = value.defining_op
        if isinstance(op, Loop):
            self.carry(op, value.index, self.scalar_of(op.carried_sources(value.index)[0], tensor), tensor)
            return self.scalars[value]
        at = Builder.at(op)
        before, step = _step(op)
        found = at.value(type(op), self.scalar_of(before, tensor), _uniform(at, step))
        self.scalars[value] = found
        return found


def _is_used_inside(loop: Loop, index: int) -> bool:
    """Whether the loop does more with a carried value than pass it on."""
    places = loop.carried_places(index)
    *arguments, _ = loop.carried_names(index)
    return any(use not in places for argument in arguments for use in argument.uses)


def _is_index_tensor(type: T.Type) -> bool:
    if not isinstance(type, T.TensorType):
        return False
    return isinstance(type.element, T.PointerType) or type.element in (T.I32, T.I64)


def _is_uniform(value: Value) -> bool:
    return value.defining_op is not None and UNIFORM in value.defining_op.traits


def _uniform(builder: Builder, value: Value) -> Value:
    """The scalar that a uniform tensor holds everywhere."""
    op = value.defining_op
    return op.operands[0] if op.operands else builder.constant(constant_of(value), value.type.element)


def _step(op: Operation | None) -> tuple[Value, Value] | None:
    """(value, uniform offset) when ``op`` adds one to the other."""
    if op is None or [sign for _, sign in op.addends] != [1, 1]:
        return None
    orders = (op.operands, op.operands[::-1]) if COMMUTATIVE in op.traits else (op.operands,)
    return next(((value, offset) for value, offset in orders if _is_uniform(offset)), None)


def _only_advances(loop: Loop, index: int) -> bool:
    """Whether every region passes on what it gets as carried value ``index`` plus uniform offsets."""
    _, *passed_on = loop.carried_sources(index)
    return all(map(_advances_uniformly, passed_on, loop.carried_names(index)))


def _advances_uniformly(value: Value, start: Value) -> bool:
    """Whether ``value`` is ``start`` plus uniform offsets, through nested loops, too."""
    while value is not start:
        op = value.defining_op
        if isinstance(op, Loop):
            if not _only_advances(op, value.index):
                return False
            value = op.carried_sources(value.index)[0]
            continue
        step = _step(op)
        if step is None:
            return False
        value = step[0]
    return True


def _decompose(builder: Builder, pointer: Value) -> Parts | None:
    """A tensor of pointers as (scalar pointer, offsets of the tensor's shape to be added one after the
    other)."""
    rule = _PARTS.get(type(pointer.defining_op))
    return None if rule is None else rule(builder, pointer.defining_op)


def _of_splat(builder: Builder, op: Splat) -> Parts:
    return op.value, []


def _of_shaped(builder: Builder, op: Operation) -> Parts | None:
    inner = _decompose(builder, op.x)
    return None if inner is None else (inner[0], [_shaped(builder, op, offset) for offset in inner[1]])


def _of_sum(builder: Builder, op: AddPtr) -> Parts | None:
    inner = _decompose(builder, op.pointer)
    if inner is None:
        return None
    base, offsets = inner
    if _is_uniform(op.offset):
        return builder.value(AddPtr, base, _uniform(builder, op.offset)), offsets
    return base, [*offsets, op.offset]


_PARTS: dict[type[Operation], Callable[[Builder, Operation], Parts | None]] = {
    Splat: _of_splat, Broadcast: _of_shaped, ExpandDims: _of_shaped, AddPtr: _of_sum,
}  # fmt: skip


def _shaped(builder: Builder, op: Operation, offset: Value) -> Value:
    """``offset`` broadcast or expanded as ``op`` does with pointers."""
    shaped = op.result.type.with_element(offset.type.element)
    return builder.value(type(op), offset, type=shaped, **op.attributes)


def _pointer(builder: Builder, base: Value, offsets: Sequence[Value], type: T.TensorType) -> Value:
    pointer = builder.value(Splat, base, type=type)
    for offset in offsets:
        pointer = builder.value(AddPtr, pointer, offset)
    return pointer


def _sum(builder: Builder, initial: Value, scalar: Value) -> Value:
    return builder.value(AddI, initial, builder.value(Splat, scalar, type=initial.type))
