"""Elementwise operations done before their operands are spread out: less work, fewer registers.

    %a = splat %x : (f32) -> tensor<256xf32>                              (before)
    %b = splat %y : (f32) -> tensor<256xf32>
    %c = addf %a, %b : tensor<256xf32>
    %d = broadcast %p : (tensor<64x1xi32>) -> tensor<64x64xi32>
    %e = muli %d, %four : tensor<64x64xi32>

    %s = addf %x, %y : f32                                                (after)
    %c = splat %s : (f32) -> tensor<256xf32>
    %m = muli %p, %four_ : tensor<64x1xi32>
    %e = broadcast %m : (tensor<64x1xi32>) -> tensor<64x64xi32>

SPLAT       All operands are splats (or uniform constants): compute once as a scalar.
BROADCAST   All operands are broadcasts from one type, or splats, or uniform constants: compute at that type.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, HINTS, REGISTRY, UNIFORM
from ptxforge.ir.ops.shape import Broadcast, Splat
from ptxforge.ir.rewriter import PatternSet, Rewriter, rewrite
from ptxforge.support.target import Target

RULES = PatternSet()


def reorder_broadcast(function: Function, target: Target) -> bool:
    """Apply SPLAT and BROADCAST until neither matches."""
    return rewrite(function, RULES)


@RULES.on(*[kind for kind in REGISTRY.values() if ELEMENTWISE in kind.traits])
def move_up(op: Operation, rewriter: Rewriter) -> bool:
    """f(broadcast x, broadcast y) → broadcast f(x, y)"""
    if len(op.results) != 1 or not op.is_pure or not isinstance(op.result.type, T.TensorType):
        return False
    narrow = _common_source(op.operands)
    if narrow is None:
        return False
    operands = [_narrowed(v, narrow, rewriter) for v in op.operands]
    # Hints speak of the spread tensor and go to it.
    attributes = {key: value for key, value in op.attributes.items() if key not in HINTS}
    small = rewriter.value(
        type(op), *operands, type=T.like(narrow, T.element_type(op.result.type)), **attributes
    )
    spread = Broadcast if isinstance(narrow, T.TensorType) else Splat
    return rewriter.replace(op, rewriter.value(spread, small, type=op.result.type))


def _common_source(operands: tuple[Value, ...]) -> T.Type | None:
    """The shape at which the operation can be done, as a type: that of the broadcasts' operands, or a scalar.

    ``None`` when it cannot be moved, or when all operands are constants (which folding deals with).
    """
    sources: set[T.Type] = set()
    splats = 0
    for value in operands:
        op = value.defining_op
        if isinstance(op, Broadcast):
            sources.add(op.x.type.with_element(T.I1))
        elif op is None or UNIFORM not in op.traits:
            return None
        else:
            splats += len(op.operands)  # of a constant none
    if len(sources) > 1 or not (sources or splats):
        return None
    return sources.pop() if sources else T.I1


def _narrowed(value: Value, narrow: T.Type, rewriter: Rewriter) -> Value:
    """The operand before it was spread: as a scalar, or as a tensor like ``narrow``."""
    op = value.defining_op
    if isinstance(op, Broadcast):
        return op.x
    like = T.like(narrow, T.element_type(value.type))
    if not op.operands:
        return rewriter.constant(op.value, like)
    return rewriter.value(Splat, op.value, type=like) if isinstance(narrow, T.TensorType) else op.value
