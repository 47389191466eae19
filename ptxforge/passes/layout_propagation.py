"""Forward propagation of layouts: the first half of remove_layout_conversions.

ANCHORS     What has a layout for a reason keeps it: loads and atomics of whole tiles (their layout makes the
            memory access wide), stores, dots and their operands.
FORWARD     An anchor's layout is a candidate for every value computed from it, through elementwise and shape
            operations, reductions, loops, branches and conversions (which then convert nothing).
CONFLICTS   A value with several candidates takes that of the weightiest anchor: a tensor core's accumulator,
            then the bigger one, then the one deeper in loops (what comes from outside is converted
            once, in front of the loop), then the earlier one.
REWRITE     Values change their types in place; conversions go where an operation's operand now has another
            layout than the operation needs.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ANCHOR, ANY_LAYOUT, RELAYOUT
from ptxforge.ir.ops.control import Loop
from ptxforge.layouts.encodings import WARP_SIZE, Distributed, Mma
from ptxforge.passes.analysis.costs import loop_weight
from ptxforge.passes.conversions import convert_at_definition, operand_layout, result_layout
from ptxforge.passes.properties import is_memory_access

Weight = tuple[int, int, float, int]



def propagate_layouts(function: Function) -> bool:
    """Choose layouts forward from the anchors and rewrite; whether anything changed."""
    propagation = _Propagation(function)
    chosen = propagation.run()
    if not chosen:
        return False
    _Rewriting(function, chosen).run()
    return True


def is_whole_tile(op: Operation, num_warps: int) -> bool:
    """Whether a memory access moves at least one element per thread: its layout then decides its speed."""
    return op.pointer.type.numel >= num_warps * WARP_SIZE


class _Propagation:
    def __init__(self, function: Function):
        self.function = function
        self.num_warps = function.attributes["num_warps"]
        self.candidates: dict[Value, dict[Distributed, Weight]] = {}
        self.worklist: list[tuple[Value, Distributed, Weight]] = []
        # The names of one carried value always have one layout.
        self.group_of: dict[Value, list[Value]] = {}
        for op in function.walk():
            if isinstance(op, Loop):
                for index in range(len(op.results)):
                    names = op.carried_names(index)
                    self.group_of.update(dict.fromkeys(names, names))

    def run(self) -> dict[Value, Distributed]:
        for place, op in enumerate(self.function.walk()):
            for result in op.results:
                if isinstance(result.type, T.TensorType) and self._is_anchor(op):
                    layout = result.type.layout
                    weight = (isinstance(layout, Mma), result.type.numel, loop_weight(op.parent), -place)
                    self._add(result, layout, weight)
        while self.worklist:
            self._step(*self.worklist.pop())
        return {
            value: max(layouts.items(), key=lambda item: item[1])[0]
            for value, layouts in self.candidates.items()
        }

    def _is_anchor(self, op: Operation) -> bool:
        if is_memory_access(op):
            return is_whole_tile(op, self.num_warps)
        return ANCHOR in op.traits

    def _add(self, value: Value, layout: Distributed, weight: Weight) -> None:
        for member in self.group_of.get(value, (value,)):
            layouts = self.candidates.setdefault(member, {})
            if layouts.get(layout, (-1, 0, 0, 0)) < weight:
                layouts[layout] = weight
                self.worklist.append((member, layout, weight))

    def _step(self, value: Value, layout: Distributed, weight: Weight) -> None:
        for user, index in value.uses:
            for result in self._reached(user, index, layout):
                self._add(*result, weight)

    def _reached(self, user: Operation, index: int, layout: Distributed):
        """(value, layout) pairs that operand ``index`` of ``user`` determines when it has ``layout``."""
        target = user.passes_to(index)
        if target is not None:
            return [(target, layout)]
        new = result_layout(user, index, layout)
        return [] if new is None else [(r, new) for r in user.results if isinstance(r.type, T.TensorType)]


class _Rewriting:
    """Gives the chosen layouts to values and repairs every operation whose operands changed."""

    def __init__(self, function: Function, chosen: dict[Value, Distributed]):
        self.function = function
        self.chosen = chosen
        self.needed: dict[tuple[Operation, int], Distributed] = {}
        self.converted: dict[tuple[Value, Distributed], Value] = {}

    def run(self) -> None:
        ops = self.function.walk()
        for op in ops:
            self._note_needs(op)
        for value, layout in self.chosen.items():
            value.type = value.type.with_layout(layout)
        for op in ops:
            self._repair(op)

    def _note_needs(self, op: Operation) -> None:
        """What the operands must be when all chosen layouts are in force."""
        if ANY_LAYOUT in op.traits:
            return
        for index, value in enumerate(op.operands):
            if isinstance(value.type, T.TensorType):
                self.needed[op, index] = self._need(op, index, value)

    def _need(self, op: Operation, index: int, value: Value) -> Distributed:
        target = op.passes_to(index)
        if target is not None:
            return self._layout(target)
        kept = value.type.layout
        if ANCHOR in op.traits or not op.results or op.results[0] not in self.chosen:
            return kept
        return operand_layout(op, index, self._layout(op.results[0])) or kept

    def _layout(self, value: Value) -> Distributed:
        return self.chosen.get(value) or value.type.layout

    def _repair(self, op: Operation) -> None:
        if op.changes_layout:
            if op.x.type == op.result.type:
                op.result.replace_all_uses_with(op.x)
                op.discard()
            return
        for index, value in enumerate(op.operands):
            if (op, index) not in self.needed:
                continue
            layout = self.needed[op, index]
            # A reduction to a scalar takes its operands in any layout, as long as it is one for all.
            if RELAYOUT in op.traits and not isinstance(op.results[0].type, T.TensorType):
                layout = op.operands[0].type.layout
            if value.type.layout != layout:
                op.set_operand(index, self._convert(value, layout))

    def _convert(self, value: Value, layout: Distributed) -> Value:
        """``value`` in ``layout``: a conversion right where it is defined, shared by all who ask."""
        found = self.converted.get((value, layout))
        if found is None:
            found = convert_at_definition(value, layout)
            self.converted[value, layout] = found
        return found
