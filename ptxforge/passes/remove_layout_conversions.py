"""Choose layouts so that little has to be converted.

    %p = addptr %s, %o : tensor<…, #blocked>                           (before: what coalesce leaves)
    %c = convert_layout %p : #blocked → #blocked1
    %v = load %c : #blocked1
    %d = convert_layout %v : #blocked1 → #blocked
    %e = exp %d : #blocked

    %p = addptr %s, %o : tensor<…, #blocked1>                          (after)
    %v = load %p : #blocked1
    %e = exp %v : #blocked1

1. WIDTHS      Accesses whose values meet (a load of f16 and a store of f32) and whose layouts differ in width
               only take the smaller width: half-wide accesses cost less than a conversion.
2. FORWARD     Anchors keep their layouts, and what is computed from them follows (``layout_propagation.py``).
3. BACKWARD    Each conversion left is avoided by computing its operand in the other layout where that is
               cheaper, or moved to where it costs less (``rematerialization.py``).
"""

from __future__ import annotations

from collections import defaultdict

from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.rewriter import erase_dead
from ptxforge.layouts.encodings import Blocked
from ptxforge.passes.analysis.components import Components
from ptxforge.passes.conversions import do_in_layout
from ptxforge.passes.layout_propagation import propagate_layouts
from ptxforge.passes.properties import memory_accesses
from ptxforge.passes.rematerialization import rematerialize
from ptxforge.support.target import Target


def remove_layout_conversions(function: Function, target: Target) -> bool:
    """Apply the three steps; dead code is erased."""
    if not function.walk(ConvertLayout):
        return False
    _agree_on_widths(function)
    propagate_layouts(function)
    erase_dead(function)
    rematerialize(function)
    erase_dead(function)
    return True


# -- widths ------------------------------------------------------------------------------------------------


def _agree_on_widths(function: Function) -> None:
    alike: dict[tuple, list[Operation]] = defaultdict(list)
    for op in memory_accesses(function):
        layout = op.pointer.type.layout
        if isinstance(layout, Blocked):
            alike[op.pointer.type.shape, layout.order].append(op)
    uneven = [group for group in alike.values() if len(set(map(_width, group))) > 1]
    components = Components(function, data_only=True) if uneven else None
    for group in uneven:
        connected: dict[Value, list[Operation]] = defaultdict(list)
        for op in group:
            connected[components.find(op.results[0] if op.results else op.value)].append(op)
        for accesses in connected.values():
            _agree(accesses)


def _width(op: Operation) -> int:
    """How many neighbours a thread has in the layout of an access."""
    layout = op.pointer.type.layout
    return layout.size_per_thread[layout.order[0]]


def _agree(group: list[Operation]) -> None:
    """Give all accesses of the group the smallest width."""
    smallest = min(group, key=_width)
    layout, width = smallest.pointer.type.layout, _width(smallest)
    for op in group if max(map(_width, group)) > width else ():
        if op.pointer.type.layout != layout:
            do_in_layout(op, layout)
