"""Backward rematerialisation: the second half of remove_layout_conversions.

A conversion says: I need this value in that layout. Instead of converting, the value can be computed in that
layout in the first place, and so can its operands, and theirs. For every value on the way there are two
possibilities, and a search takes the cheaper one:

CUT         convert the value here (a smaller or narrower one than the first, or outside of a loop, or before
            it was broadcast);
COMPUTE     compute the value (again) in the wanted layout, from operands in the layouts that this needs.

Computing costs nothing more when nobody needs the value in its old layout any longer: then it is not
duplicated but moved (where it stands, if all that read it move, too). Loads are moved when their access is as
good in the new layout, and duplicated only when they are small. A loop carries a second value in the new
layout, with its initial and yielded values made likewise; the old one goes when it has no other use. Costs:
``analysis/costs.py``.

A reduction of a converted tensor reduces the tensor as it is instead, and its result is converted.
A store whose value needs a conversion may instead store in the value's layout, if its pointers and mask are
cheap to make and the access is not worse by more than the conversion costs.

RUNS AHEAD  A load in a loop of asynchronous products is copied to shared memory and read there in any layout,
            so it is not moved to where it costs more, and its conversion is no exchange but that read.
FRAGMENTS   Memory is never accessed in the layout of a dot's operand or a tensor core's accumulator: operands
            come by way of shared memory, where asynchronous copies put them, and results are stored 16 bytes
            at a time after an exchange: within each warp if it has lines of it (``layouts/banks.py``), else
            in rows that all warps share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, FREE, PRODUCTS, READS_GLOBAL, RELAYOUT
from ptxforge.ir.ops.control import Loop, Structured
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.layouts.banks import lines_in_warp
from ptxforge.layouts.encodings import Blocked, Distributed, DotOperand, Mma
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.costs import (
    access_cost,
    computation_cost,
    conversion_cost,
    loop_weight,
    reading_cost,
)
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.conversions import (
    builder_after,
    convert_at_definition,
    converted,
    operand_layout,
    retype,
)
from ptxforge.passes.layout_propagation import is_whole_tile
from ptxforge.support import machine

_MAX_DEPTH = 200

Wanted = tuple[Value, Distributed]


def rematerialize(function: Function, conversions: Iterable[ConvertLayout] | None = None) -> bool:
    """Try to get rid of every conversion (or of ``conversions`` alone); whether anything changed. Leaves dead
    code behind."""
    search = _Rematerializer(function)
    if conversions is None:
        return search.run()
    return any([search.conversion(op) for op in conversions])


class _Plan:
    """Decisions: what is computed (``True``) or converted (``False``), in the order in which they were taken,
    so that the last ones can be taken back. ``rejected`` holds what was found cheaper to convert: it is not
    tried again, which keeps the search from taking exponential time."""

    def __init__(self) -> None:
        self.rejected: set[Wanted] = set()
        self.computed: dict[Wanted, bool] = {}
        self.layouts_of: dict[Value, list[Distributed]] = {}

    def decide(self, value: Value, layout: Distributed, compute: bool) -> None:
        self.computed[value, layout] = compute
        if compute:
            self.layouts_of.setdefault(value, []).append(layout)

    def undo_to(self, size: int) -> None:
        while len(self.computed) > size:
            (value, _), compute = self.computed.popitem()
            if compute:
                self.layouts_of[value].pop()

    def computes(self, value: Value) -> bool:
        """Whether ``value`` is computed in some new layout."""
        return bool(self.layouts_of.get(value))


class _Rematerializer:
    def __init__(self, function: Function):
        self.function = function
        self.num_warps = function.attributes["num_warps"]
        self.facts = kept(AxisInfoAnalysis, function)
        self.made: dict[Wanted, Value] = {}
        self.weights: dict[object, float] = {}
        self.plan = _Plan()
        self.root: Operation | None = None
        self.moved: set[Operation] = set()
        self.repeated: set[Operation] = set()

    def run(self) -> bool:
        changed = False
        for op in self.function.walk():
            rule = _RULES.get(type(op)) if op.parent is not None else None
            changed |= rule is not None and rule(self, op)
        return changed

    def weight(self, value: Value) -> float:
        block = value.owner_block
        found = self.weights.get(block)
        if found is None:
            found = self.weights[block] = loop_weight(block)
        return found

    # -- the two users ---------------------------------------------------------------------------------

    def conversion(self, op: ConvertLayout) -> bool:
        """Replace one conversion if there is something cheaper."""
        value, layout = op.x, op.result.type.layout
        if not op.result.uses:
            op.discard()
            return True
        self.plan, self.root = _Plan(), op
        now = self.cut_cost(value, layout) * self.weight(op.result)
        if self.visit(value, layout) >= now:
            return False
        self.moved = self.find_moved()
        op.result.replace_all_uses_with(self.make(value, layout))
        op.discard()
        return True

    def store(self, op: Store) -> bool:
        """Store in the layout that the value has before its conversion; see FRAGMENTS."""
        source = op.value.defining_op
        if not isinstance(source, ConvertLayout) or not isinstance(op.pointer.type, T.TensorType):
            return False
        value, old = source.x, op.pointer.type.layout
        held = value.type.layout
        new = _stored_fragment(held, op) if _is_fragment(held) else held
        if new is None:
            return False
        self.plan, self.root = _Plan(), op
        weight = self.weight(op.value)
        now = conversion_cost(held, old, value.type) * weight + access_cost(op, old, self.facts) * weight
        then = conversion_cost(held, new, value.type) * weight + access_cost(op, new, self.facts) * weight
        others = [v for v in op.operands if v is not op.value and isinstance(v.type, T.TensorType)]
        then += sum(self.visit(v, new) for v in others)
        if then >= now:
            return False
        self.moved = self.find_moved()
        stored = converted(Builder.at(op), value, new)
        for index, operand in enumerate(op.operands):
            op.set_operand(index, stored if operand is op.value else self.make(operand, new))
        return True

    def reduction(self, op: Reduce) -> bool:
        """Reduce what is to be converted as it is, and convert the result, which is smaller."""
        sources = [v.defining_op for v in op.inputs]
        if (
            not all(isinstance(s, ConvertLayout) for s in sources)
            or len({s.x.type.layout for s in sources}) > 1
        ):
            return False
        new = sources[0].x.type.layout
        types = Reduce.infer([s.x.type for s in sources], op.attributes)
        now = sum(conversion_cost(new, v.type.layout, v.type) for v in op.inputs)
        then = sum(
            conversion_cost(t.layout, r.type.layout, t)
            for t, r in zip(types, op.results)
            if isinstance(t, T.TensorType)
        )
        if then >= now:
            return False
        op.set_operands([s.x for s in sources])
        for result, type in zip(op.results, types):
            if type != result.type:
                retype(result, type)
        return True

    # -- the search ------------------------------------------------------------------------------------

    def visit(self, value: Value, layout: Distributed, depth: int = 0) -> float:
        """The cost of having ``value`` in ``layout``; the decisions go into the plan."""
        wanted, plan = (value, layout), self.plan
        if value.type.layout == layout or wanted in plan.computed or self.known(wanted) is not None:
            return 0.0
        cut = self.cut_cost(value, layout) * self.weight(value)
        mark = len(plan.computed)
        if cut > 0 and depth < _MAX_DEPTH and wanted not in plan.rejected:
            plan.decide(value, layout, True)
            compute = self.compute(value, layout, depth + 1)
            if compute is not None and compute <= cut:
                return compute
            plan.undo_to(mark)
            plan.rejected.add(wanted)
        plan.decide(value, layout, False)
        return cut

    def cut_cost(self, value: Value, layout: Distributed) -> float:
        """The cost of converting ``value`` where it is."""
        op = value.defining_op
        is_load = op is not None and op.get_effects() == READS_GLOBAL
        if is_load and _feeds_warpgroups(op) and is_whole_tile(op, self.num_warps):
            return reading_cost(layout, value.type)
        return conversion_cost(value.type.layout, layout, value.type)

    def compute(self, value: Value, layout: Distributed, depth: int) -> float | None:
        """The cost of computing ``value`` in ``layout``; ``None`` when it cannot be."""
        op = value.defining_op
        if op is None or isinstance(op, Loop):
            return self.compute_carried(value, layout, depth)
        if isinstance(op, Structured):
            ends = [region.block.terminator.operands[value.index] for region in op.regions]
            return sum(self.visit(v, layout, depth) for v in ends)
        if op.changes_layout:
            return self.compute_conversion(op, layout, depth)
        own = self.own_cost(op, value, layout)
        if own is None:
            return None
        total = own * self.weight(value)
        for index, operand in enumerate(op.operands):
            if not isinstance(operand.type, T.TensorType):
                continue
            needed = operand_layout(op, index, layout)
            if needed is not None:
                total += self.visit(operand, needed, depth)
            elif not op.takes_any_layout(index):
                return None
        return total

    def compute_conversion(self, op: ConvertLayout, layout: Distributed, depth: int) -> float:
        """What a conversion converts can be had in any layout;
        if the conversion is needed no more, it is a gain."""
        cost = self.visit(op.x, layout, depth)
        if self.dies(op):
            type = op.x.type
            cost -= conversion_cost(type.layout, op.result.type.layout, type) * self.weight(op.result)
        return cost

    def compute_carried(self, value: Value, layout: Distributed, depth: int) -> float | None:
        """A loop carries one more value; its arguments and its result have ``layout`` then."""
        place = carried_place(value)
        if place is None:
            return None
        loop, index = place
        for member in loop.carried_names(index):
            if (member, layout) not in self.plan.computed:
                self.plan.decide(member, layout, True)
        return sum(self.visit(source, layout, depth) for source in loop.carried_sources(index))

    def own_cost(self, op: Operation, value: Value, layout: Distributed) -> float | None:
        """What computing in ``layout`` costs more than now, without operands;
        ``None`` when it cannot be moved."""
        if isinstance(op, Load):
            return self.load_cost(op, layout)
        if RELAYOUT not in op.traits and not (ELEMENTWISE in op.traits and op.is_pure):
            return None
        dies = self.dies(op)
        if ELEMENTWISE not in op.traits and op.cost != FREE and not dies:
            return None  # threads exchange elements: once is enough
        cost = computation_cost(op, layout)
        return max(0.0, cost - computation_cost(op, value.type.layout)) if dies else cost

    def load_cost(self, op: Load, layout: Distributed) -> float | None:
        if op.volatile or _is_fragment(layout):
            return None
        now, then = (access_cost(op, where, self.facts) for where in (op.result.type.layout, layout))
        if then > now and _feeds_warpgroups(op):
            return None
        if self.dies(op):
            return then - now
        return None if is_whole_tile(op, self.num_warps) else then * machine.REPEATED_LOAD

    def dies(self, op: Operation) -> bool:
        """Whether nobody needs the operation's results as they are now, once the plan is carried out."""
        return all(self.is_served(user, index) for result in op.results for user, index in result.uses)

    def is_served(self, user: Operation, index: int) -> bool:
        """Whether the plan does without operand ``index`` of ``user`` as it is now."""
        if user is self.root:
            return True
        if user.changes_layout and self.plan.computed.get((user.x, user.result.type.layout)):
            return True
        if isinstance(user, Loop):
            return index >= user.first_initial and self.carried_dies(user, index - user.first_initial)
        if user.is_terminator:
            return self.is_passed_on_for_nothing(user, index)
        return any(map(self.plan.computes, user.results))

    def is_passed_on_for_nothing(self, end: Operation, index: int) -> bool:
        """Whether nobody needs what the end of a region passes on as operand ``index``."""
        parent = end.parent_op
        if isinstance(parent, Loop):
            index += len(parent.results) - len(end.operands)
            return index >= 0 and self.carried_dies(parent, index)
        return isinstance(parent, Structured) and self.plan.computes(parent.results[index])

    def carried_dies(self, loop: Loop, index: int) -> bool:
        """Whether the loop need not carry this value as it is now: all who use it, but its own way around,
        are served."""
        names, places = loop.carried_names(index), loop.carried_places(index)
        if not any(map(self.plan.computes, names)):
            return False
        users = [use[0] for name in names for use in name.uses if use not in places]
        return all(user is self.root or any(map(self.plan.computes, user.results)) for user in users)

    # -- carrying out ----------------------------------------------------------------------------------

    def find_moved(self) -> set[Operation]:
        """The operations that are computed in one new layout where they stand, for whoever reads their
        result is one of them, or the root, and wants it so."""
        layouts = {
            value.defining_op: found[0]
            for value, found in self.plan.layouts_of.items()
            if len(found) == 1 and _may_move(value) and value.defining_op not in self.repeated
        }
        waiting = [*layouts]
        while waiting:
            op = waiting.pop()
            if op in layouts and not all(
                user is self.root
                or (user in layouts and operand_layout(user, index, layouts[user]) == layouts[op])
                for user, index in op.result.uses
            ):
                del layouts[op]
                waiting += [v.defining_op for v in op.operands]
        return {*layouts}

    def known(self, wanted: Wanted) -> Value | None:
        """What was made before, and has not moved since."""
        found = self.made.get(wanted)
        return found if found is not None and found.type.layout == wanted[1] else None

    def make(self, value: Value, layout: Distributed) -> Value:
        """``value`` in ``layout``, as planned; made at most once."""
        if not isinstance(value.type, T.TensorType) or value.type.layout == layout:
            return value
        wanted = value, layout
        found = self.known(wanted)
        if found is not None:
            return found
        if self.plan.computed.get(wanted):
            return self.make_computed(value, layout)
        found = self.made[wanted] = convert_at_definition(value, layout)
        return found

    def make_computed(self, value: Value, layout: Distributed) -> Value:
        op = value.defining_op
        if op is None or isinstance(op, Loop):
            return self.make_carried(value, layout)
        if isinstance(op, Structured):
            return self.make_branches(op, value, layout)
        if op.changes_layout:
            found = self.made[value, layout] = self.make(op.x, layout)
            return found
        return self.make_clone(op, value, layout)

    def make_clone(self, op: Operation, value: Value, layout: Distributed) -> Value:
        operands = []
        for index, operand in enumerate(op.operands):
            needed = operand_layout(op, index, layout) if isinstance(operand.type, T.TensorType) else None
            operands.append(operand if needed is None else self.make(operand, needed))
        if op in self.moved:
            return self.move(op, operands, layout)
        mapping = dict(zip(op.operands, operands))
        copy = op.clone(mapping)
        if copy.operands != tuple(operands):  # one that stands twice may be wanted in two layouts
            copy.set_operands(operands)
        for old, new in zip(op.results, copy.results):
            if isinstance(new.type, T.TensorType):
                new.type = new.type.with_layout(layout)
                self.made[old, layout] = new
        builder_after(value).insert(copy)
        self.repeated |= {op, copy}
        return self.made[value, layout]

    def move(self, op: Operation, operands: list[Value], layout: Distributed) -> Value:
        """The result of ``op``, which is computed in ``layout`` from now on."""
        for index, operand in enumerate(operands):
            op.set_operand(index, operand)
        op.result.type = op.result.type.with_layout(layout)
        return op.result

    def make_carried(self, value: Value, layout: Distributed) -> Value:
        loop, index = carried_place(value)
        old = loop.carried_names(index)
        initial, *passed_on = loop.carried_sources(index)
        new = loop.add_carried(self.make(initial, layout), old[0].hint)
        new[-1].hint = old[-1].hint
        self.made.update(((name, layout), now) for name, now in zip(old, new))
        # Until that is made, a region passes on what it gets; making it may add further carried values.
        _, *places = loop.carried_places(len(loop.results) - 1)
        for (end, place), source in zip(places, passed_on):
            end.set_operand(place, self.make(source, layout))
        return self.made[value, layout]

    def make_branches(self, op: Structured, value: Value, layout: Distributed) -> Value:
        result = op.add_result(value.type.with_layout(layout))
        result.hint = value.hint
        self.made[value, layout] = result
        # As in a loop: making one side may make further results of this operation.
        ends = [region.block.terminator for region in op.regions]
        for end in ends:
            end.set_operands((*end.operands, end.operands[value.index]))
        for end in ends:
            end.set_operand(result.index, self.make(end.operands[value.index], layout))
        return result


_RULES: dict[type[Operation], Callable[[_Rematerializer, Operation], bool]] = {
    ConvertLayout: _Rematerializer.conversion,
    Store: _Rematerializer.store,
    Reduce: _Rematerializer.reduction,
}


def _may_move(value: Value) -> bool:
    """Whether it is the only result of an operation without regions, and no conversion's."""
    op = value.defining_op
    return op is not None and not op.regions and not op.changes_layout and len(op.results) == 1


def _is_fragment(layout: Distributed) -> bool:
    """Whether a layout is that of a dot's operand or a tensor core's accumulator: memory is not accessed in
    it (see FRAGMENTS)."""
    return isinstance(layout, (Mma, DotOperand))


def _feeds_warpgroups(op: Load) -> bool:
    """Whether a load stands in a loop of asynchronous products: it runs ahead through shared memory, and is
    read there in any layout."""
    loop = op.parent_op
    return loop is not None and loop.is_counted and any(
        x.effects.starts == PRODUCTS for x in loop.body.operations
    )


def _stored_fragment(layout: Distributed, op: Store) -> Distributed | None:
    """A layout without exchange between warps in which a store of an accumulator is as wide as it is now."""
    now = op.pointer.type.layout
    if not isinstance(layout, Mma) or not isinstance(now, Blocked) or now.order[0] != now.rank - 1:
        return None
    size = op.value.type.element.bytes
    return lines_in_warp(layout, op.pointer.type.shape, now.size_per_thread[-1], size)


def carried_place(value: Value) -> tuple[Loop, int] | None:
    """(loop, index) of a value that a loop carries: an argument of a region or a result."""
    loop = value.block.parent_op if isinstance(value, BlockArgument) else value.defining_op
    index = loop.carried_index(value) if isinstance(loop, Loop) else None
    return None if index is None else (loop, index)
