"""What does not change in a loop is computed before it.

    for %i = %lo to %hi step %c {                                         (before)
      %s = muli %stride, %c : i32
      %t = splat %s : (i32) -> tensor<16x8xi32>
      …
    }

    %s = muli %stride, %c : i32                                           (after)
    %t = splat %s : (i32) -> tensor<16x8xi32>
    for %i = %lo to %hi step %c {
      …
    }

Only operations without effects move (loads stay: the loop may run no time, and something may write), and of
them only those that do no harm when the loop does not run. Inner loops come first, so that an operation
rises through all loops that it does not depend on. ``disable_licm`` on a ``for`` keeps its body as it is.
"""

from __future__ import annotations

from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.ops.control import Loop
from ptxforge.support.target import Target


def licm(function: Function, target: Target) -> bool:
    """Hoist invariant operations out of every loop, inner loops first."""
    loops = function.walk(Loop)
    changed = False
    for loop in reversed(loops):
        if not (loop.is_counted and loop.disable_licm):
            changed |= _hoist(loop)
    return changed


def _hoist(loop: Operation) -> bool:
    changed = False
    for region in loop.regions:
        for op in region.block.operations:
            if not op.is_terminator and op.is_speculatable and _is_invariant(op, region.block):
                op.move_before(loop)
                changed = True
    return changed


def _is_invariant(op: Operation, body: Block) -> bool:
    """Whether nothing that ``op``, or an operation nested in it, uses is defined in ``body`` (outside
    ``op``)."""
    return all(_is_from_outside(v, op, body) for inner in op.walk() for v in inner.operands)


def _is_from_outside(value: Value, op: Operation, body: Block) -> bool:
    owner = value.owner_block
    while owner is not None:
        if owner is body:
            return False
        around = owner.parent_op
        if around is op:
            return True  # defined within ``op`` itself
        owner = around.parent if around is not None else None
    return True
