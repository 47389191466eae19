"""What is cheap to compute again is not kept in registers across a loop of matrix products.

    %offsets = muli %rows, %strides                                         (before)
    %sum = for … { … dot … }
    store (addptr %out, %offsets), %sum

    %offsets = muli %rows, %strides                                         (after)
    %sum = for … { … dot … }
    recompute %rows, %offsets
    store (addptr %out, %offsets), %sum

Such a loop takes all registers that there are. Index arithmetic that is needed behind it but not in it is
therefore done a second time right behind it. Where the loop stands outside all control flow, so are the
thread's places in shared memory for what follows, also if there is nothing else to compute again.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ADDRESSING
from ptxforge.ir.ops.control import For, Recompute
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.partition import Partition
from ptxforge.support.target import Target


def recompute_indices(function: Function, target: Target) -> bool:
    """Put ``recompute`` behind loops of products, and behind what several groups of warps do of these."""
    loops = [op for op in function.walk((For, Partition)) if op.regions[0].block.has(Product)]
    for loop in loops:
        again = _needed_behind(loop)
        if again or loop.parent is function.body:
            Builder(loop.parent, loop.next).create(Recompute, *again)
    return bool(loops)


def _needed_behind(loop: Operation) -> list[Value]:
    """The indices that are used behind ``loop`` but not in it, in the order in which they were computed."""
    inside = {v for op in loop.walk() for v in op.operands}
    earlier = _operations_before(loop)
    again: set[Operation] = set()
    following = loop.next
    while following is not None:
        for op in following.walk():
            for value in op.operands:
                _collect(value, earlier, inside, again)
        following = following.next
    return [op.result for op in earlier if op in again]


def _operations_before(loop: Operation) -> dict[Operation, None]:
    """The operations of the same block that come before ``loop``, in order."""
    found = {}
    for op in loop.parent.operations:
        if op is loop:
            break
        found[op] = None
    return found


def _collect(value: Value, earlier: dict[Operation, None], inside: set[Value], again: set[Operation]) -> None:
    """Add the operation that defines ``value`` to ``again``, and what it needs, if it is to be done again."""
    op = value.defining_op
    if op is None or op in again or value in inside or ADDRESSING not in op.traits:
        return
    if not isinstance(value.type, T.TensorType) or op not in earlier:
        return
    again.add(op)
    for operand in op.operands:
        _collect(operand, earlier, inside, again)
