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

from ptxforge.ir.core import Function, Operation
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
    accesses = [op for op in memory_accesses(function) if isinstance(op.pointer.type.layout, Blocked)]
    if len({op.pointer.type.layout for op in accesses}) < 2:
        return
    components = Components(function, data_only=True)
    groups: dict[tuple, list[Operation]] = defaultdict(list)
    for op in accesses:
        layout = op.pointer.type.layout
        value = op.results[0] if op.results else op.value
        groups[components.find(value), op.pointer.type.shape, layout.order].append(op)
    for group in groups.values():
        _agree(group)


def _agree(group: list[Operation]) -> None:
    """Give all accesses of the group the smallest width."""
    layouts = [op.pointer.type.layout for op in group]
    fastest = layouts[0].order[0]
    widths = [layout.size_per_thread[fastest] for layout in layouts]
    width = min(widths)
    if width == max(widths):
        return
    smallest = layouts[widths.index(width)]
    for op, layout in zip(group, layouts):
        if layout != smallest:
            do_in_layout(op, smallest)
