"""Operations merged into the one they feed.

    %d = dot %a, %b, %zero : (…) -> tensor<16x16xf32>                     (before)
    %e = addf %d, %c : tensor<16x16xf32>
    %v = load %p, %mask : (…) -> tensor<64xf32>
    %w = select %mask, %v, %other : tensor<64xf32>

    %e = dot %a, %b, %c : (…) -> tensor<16x16xf32>                        (after)
    %w = load %p, %mask, %other : (…) -> tensor<64xf32>

A sum along a dimension of size 2 of a tensor times (1, 0) or (0, 1), spread over that dimension again, is
one element of each pair: an element itself, or its mirror image (generated sorting networks write it so).

Two ``addptr`` in a row become one where the sum of their offsets is sure to be the offset of the sum: ``i64``
offsets, or constants whose sum fits.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.ops.arith import AddF, AddI, CmpI, MulI, Select, SubI, XorI
from ptxforge.ir.ops.cast import Cast, ExtSI, ExtUI, TruncI
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import AddPtr, Load
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.ir.ops.shape import Broadcast, Constant, ExpandDims, Flip, MakeRange
from ptxforge.ir.rewriter import PatternSet, Rewriter, constant_of, rewrite
from ptxforge.passes.analysis.sign import limits
from ptxforge.support.target import Target

RULES = PatternSet()


def combine(function: Function, target: Target) -> bool:
    """Apply the rules below until none matches."""
    return rewrite(function, RULES)


@RULES.on(AddF, AddI)
def add_to_dot(op: Operation, rewriter: Rewriter) -> bool:
    """dot(a, b, 0) + c → dot(a, b, c)"""
    for value, addend in (op.operands, op.operands[::-1]):
        dot = value.defining_op
        if type(dot) is Dot and value.has_one_use and _is_zero(dot.c):
            combined = rewriter.create(
                Dot,
                dot.a,
                dot.b,
                addend,
                result_types=[op.result.type],
                location=dot.location,
                **dot.attributes,
            )
            return rewriter.replace(op, combined.result)
    return False


def _is_zero(value: Value) -> bool:
    # As an addend -0.0 is as good as 0.0: the sum differs at most where all products are -0.0.
    return constant_of(value) == 0


@RULES.on(Broadcast)
def element_of_pair(op: Broadcast, rewriter: Rewriter) -> bool:
    """broadcast(expand_dims(Σ x · (0, 1))) → select((0, 1) != 0, x, flip(x)), along a dimension of size 2"""
    expanded = op.x.defining_op
    total = expanded.x.defining_op if type(expanded) is ExpandDims else None
    if type(total) is not Reduce or total.combine_name != "addi" or total.axis != expanded.axis:
        return False
    addend, axis = total.inputs[0], total.axis
    if addend.type.shape != op.result.type.shape or addend.type.shape[axis] != 2:
        return False
    extension = addend.defining_op
    is_extended = type(extension) in (ExtSI, ExtUI)
    product = extension.x.defining_op if is_extended else extension
    if type(product) is not MulI:
        return False
    for x, mask in (product.operands, product.operands[::-1]):
        which = {(1, 0): 0, (0, 1): 1}.get(_along(mask, axis))
        if which is not None:
            x = rewriter.value(type(extension), x, type=addend.type) if is_extended else x
            return rewriter.replace(op, _element(rewriter, x, axis, which))
    return False


def _element(rewriter: Rewriter, x: Value, axis: int, which: int) -> Value:
    """The first or the second element of each pair of ``x`` along ``axis``, at the places of both."""
    slots = rewriter.value(MakeRange, start=0, end=2, type=T.TensorType((2,), T.I32))
    for d in range(x.type.rank):
        slots = slots if d == axis else rewriter.value(ExpandDims, slots, axis=d)
    zero = rewriter.constant(0, slots.type)
    is_second = rewriter.value(CmpI, slots, zero, predicate="ne")
    is_second = rewriter.value(Broadcast, is_second, type=x.type.with_element(T.I1))
    other = rewriter.value(Flip, x, axis=axis)
    return rewriter.value(Select, is_second, *((x, other) if which else (other, x)))


Pair = tuple[int, int]


def _along(value: Value, axis: int) -> Pair | None:
    """The two numbers that an integer tensor has along ``axis``, where they depend on nothing else."""
    op, constant = value.defining_op, constant_of(value)
    if T.element_type(value.type) is T.I1:
        return None
    if constant is not None:
        return constant, constant
    rule = _PAIRS.get(type(op))
    return None if rule is None else rule(op, axis)


def _of_range(op: MakeRange, axis: int) -> Pair | None:
    return (op.start, op.start + 1) if op.end == op.start + 2 else None


def _of_expanded(op: ExpandDims, axis: int) -> Pair | None:
    return None if op.axis == axis else _along(op.x, axis - (op.axis < axis))


def _of_broadcast(op: Broadcast, axis: int) -> Pair | None:
    others = [size for d, size in enumerate(op.x.type.shape) if d != axis]
    return _along(op.x, axis) if set(others) <= {1} else None


def _of_cast(op: Cast, axis: int) -> Pair | None:
    return _along(op.x, axis)


def _of_difference(op: SubI, axis: int) -> Pair | None:
    left, right = _along(op.lhs, axis), _along(op.rhs, axis)
    return None if left is None or right is None else (left[0] - right[0], left[1] - right[1])


_PAIRS: dict[type[Operation], Callable[..., Pair | None]] = {
    MakeRange: _of_range, ExpandDims: _of_expanded, Broadcast: _of_broadcast, TruncI: _of_cast,
    ExtSI: _of_cast, SubI: _of_difference,
}  # fmt: skip


@RULES.on(CmpI)
def difference_of_truths(op: CmpI, rewriter: Rewriter) -> bool:
    """(zext c ^ x) != 0 → c ^ (x != 0), when x is 0 or 1"""
    both = op.lhs.defining_op
    if type(both) is not XorI or op.predicate != "ne" or constant_of(op.rhs) != 0:
        return False
    for truth, x in (both.operands, both.operands[::-1]):
        extension = truth.defining_op
        if type(extension) is ExtUI and T.element_type(extension.x.type) is T.I1 and limits(x) == (0, 1):
            test = rewriter.value(CmpI, x, op.rhs, predicate="ne")
            return rewriter.replace(op, rewriter.value(XorI, extension.x, test))
    return False


@RULES.on(Select)
def select_of_masked_load(op: Select, rewriter: Rewriter) -> bool:
    """select(mask, load(p, mask), other) → load(p, mask, other), when the load is for this select alone"""
    load = op.true_value.defining_op
    if type(load) is not Load or load.mask is not op.condition or load.volatile:
        return False
    if not load.result.has_one_use or load.parent is None:
        return False
    other = op.false_value
    if type(other.defining_op) is Constant:
        other = rewriter.create(
            Constant, before=load, result_types=[other.type], value=constant_of(other)
        ).result
    elif not _is_visible_at(other, load):
        return False
    rewriter.set_operands(load, (load.pointer, load.mask, other))
    return rewriter.replace(op, load.result)


def _is_visible_at(value: Value, op: Operation) -> bool:
    """Whether ``value`` is defined before ``op``, in its block or in an enclosing one."""
    definer = value.defining_op
    block = definer.parent if definer is not None else value.owner_block
    here = block.ancestor_of(op)
    if here is None:
        return False
    return definer is None or (definer is not here and definer.is_before_in_block(here))


@RULES.on(AddPtr)
def offset_twice(op: AddPtr, rewriter: Rewriter) -> bool:
    """addptr(addptr(p, a), b) → addptr(p, a + b), when a + b cannot overflow"""
    inner = op.pointer.defining_op
    if (
        type(inner) is not AddPtr
        or inner.offset.type is not op.offset.type
        or not _sum_is_exact(inner.offset, op.offset)
    ):
        return False
    return rewriter.replace(
        op, rewriter.value(AddPtr, inner.pointer, rewriter.value(AddI, inner.offset, op.offset))
    )


def _sum_is_exact(a: Value, b: Value) -> bool:
    element = T.element_type(a.type)
    if element is T.I64:
        return True
    x, y = constant_of(a), constant_of(b)
    if x is None or y is None:
        return False
    return -(1 << (element.bits - 1)) <= x + y < 1 << (element.bits - 1)
