"""Software pipelining, last part: a scheduled loop becomes prologue and steady state.

    for %k … iter_args(%p = %x) {last_stage = 1} {                             (before)
      %v = load %p {stage = 0, turn = 1}
      %q = addptr %p, %step {stage = 0, turn = 1}
      use %v {stage = 1, turn = 0}
      yield %q }

    %v0 = load %x, %exists                                                     (after)
    for %k … iter_args(%v = %v0, %p = addptr %x, %step) {
      use %v
      %v1 = load %p, %next_exists
      yield %v1, addptr %p, %step }

A schedule gives every operation of a loop body a *stage*. In step ``t`` of the new loop an operation of stage
``s`` works on iteration ``t - s``, so that stage 0 runs ahead of the last stage ``P`` by ``P`` iterations:

    step        0     1     2     3    …
    stage 0     i0    i1    i2    i3
    stage 1           i0    i1    i2
    stage 2                 i0    i1          ← the new loop's own induction variable
                └ prologue ┘└ steady state …

The prologue runs steps 0 … P-1. The loop then has as many steps as the original had iterations; what runs
ahead is predicated off when its iteration does not exist (there is no epilogue, so the code is not duplicated
a third time). An operation with ``beyond`` is done for that many more iterations: copies of true tiles, for a
loop that follows.

A loop that is ``peeled`` is entered by a branch, if it has an iteration, and its last step stands behind it:
there is nothing left to do but what the last stage has, and what goes ``beyond``. The copies of the prologue
stand in front of the branch.

Within a step operations stand by their ``turn``, those of one turn as in the text. What is ``ordered`` is so
in the steady state.

Values between stages
---------------------
A value ``y`` of stage ``d`` that is used in stage ``s`` is needed ``s - d`` steps after it was made: its
*lag*. A carried value of the original loop that is used in stage ``s`` is what the previous iteration
yielded, so its lag is ``s - d + 1``. Each (value, lag ≥ 1) becomes a carried value of the new loop; lag ``L``
is fed by lag ``L - 1``, lag 0 being the value just made: what one iteration carries may be used by the next
one a stage earlier, behind it in the same step. When the loop is entered (step ``P``) it holds what
the prologue made for iteration ``P - L - d``, or the original initial value for iteration -1. The same rule
gives the results: at the end the last existing iteration's value of a carried value of stage ``d`` has lag
``P - d``.

A schedule is legal when no use comes before its definition: ``stage(use) >= stage(def)``, equal stages in the
body's order; for carried values ``stage(use) >= stage(yielded value) - 1``, if less in the schedule's order;
and when all that writes global memory is in the last stage. As all index arithmetic, ``lower + n · step`` of
what runs ahead is taken not to wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import attrs

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Region, Value
from ptxforge.ir.definition import ALLOCATES, TENSORS
from ptxforge.ir.ops.arith import AddI, CmpI, DivSI, MulI, SubI
from ptxforge.ir.ops.control import For, If, Yield
from ptxforge.ir.ops.shared import LocalAlloc, LocalLoad
from ptxforge.layouts.encodings import DotOperand
from ptxforge.passes.predication import predicate_access
from ptxforge.support.errors import IRError
from ptxforge.support.target import Target


def expand_loops(function: Function, target: Target) -> bool:
    """Write out every loop that has a schedule."""
    loops = [op for op in function.walk(For) if op.last_stage and not op.distance]
    for loop in loops:
        peeled = loop.peeled
        expanded = expand_loop(loop)
        copies_tiles = any(op.effects.fills == TENSORS for op in expanded.body.operations)
        if copies_tiles:
            _store_late(expanded.parent_op if peeled else expanded)
    return bool(loops)


def _store_late(loop: Operation) -> None:
    """Tiles from outside of the loop are stored to shared memory, or become operands in registers, in front
    of what reads them there: the first copies by TMA start while the loads of those are under way."""
    block = loop.parent
    reads = filter(_is_operand_of_filled_tile, block.of(LocalLoad))
    tiles = (op for op in block.of(LocalAlloc) if op.value is not None)
    for op in [*reads, *tiles]:
        users = {block.ancestor_of(user) for user in op.result.users}
        if not users or None in users or not op.is_before_in_block(loop):
            continue
        op.move_before(next(other for other in block.operations if other in users))


def _is_operand_of_filled_tile(read: LocalLoad) -> bool:
    """Whether it reads an operand from a tile that nothing overwrites."""
    made = read.source.defining_op
    is_filled = made is not None and ALLOCATES in made.traits and made.value is not None
    return is_filled and isinstance(read.result.type.layout, DotOperand)


@attrs.define(slots=True)
class Schedule:
    """``order``: the body's operations (without ``yield``) as the steady state has them; the ``stage`` of
    each, and ``beyond`` of those that have it; the ``last`` stage; whether the loop is to be ``peeled``."""

    order: list[Operation]
    stage: dict[Operation, int]
    beyond: dict[Operation, int]
    last: int
    peeled: bool

    @classmethod
    def take(cls, loop: For) -> Schedule:
        """What is written on ``loop`` and its operations. The attributes go: what comes of the loop is not
        scheduled. Raises :class:`IRError` when one is missing."""
        stage, turn, beyond = {}, {}, {}
        for op in loop.body.operations:
            if op.is_terminator:
                continue
            written = op.attributes
            if "stage" not in written or "turn" not in written:
                raise IRError(f"'{op.name}' in a scheduled loop has no stage or no turn")
            stage[op], turn[op] = written.pop("stage"), written.pop("turn")
            if "beyond" in written:
                beyond[op] = written.pop("beyond")
        last, peeled = loop.attributes.pop("last_stage"), loop.attributes.pop("peeled", False)
        return cls(sorted(turn, key=turn.__getitem__), stage, beyond, last, peeled)


class _Lagged(NamedTuple):
    """What the loop's ``source`` (an operation's result, or carried value number ``index``) was ``lag`` steps
    ago."""

    source: Value | int
    lag: int


class LoopExpander:
    """Rewrites one loop by a schedule. :meth:`run` gives the new loop and erases the old one."""

    def __init__(self, loop: For, schedule: Schedule):
        self.loop, self.body, self.schedule = loop, loop.body, schedule
        self.last = schedule.last
        self.guard = _guard(loop) if schedule.peeled else None
        self.yielded = loop.body.terminator.values
        self.builder = Builder.at(loop)
        self.captured = {op: self._captured(op) for op in schedule.order}
        # iteration → {value of the old body: its clone in the prologue}
        self.made: dict[int, dict[Value, Value]] = {}
        self.ahead: dict[int, Value] = {}
        self.flags: dict[tuple[int, int], Value] = {}
        self.limits = {number: self._limit(number) for number in {0, *schedule.beyond.values()}}

    def run(self) -> For:
        self._check_legal()
        for step in range(self.last):
            self._emit_prologue_step(step)
        new = self._emit_loop()
        if self.guard is not None:
            _start_in_front(self.guard, new)
        return new

    # -- what the schedule says ----------------------------------------------------------------------

    def _stage_of(self, value: Value) -> int | None:
        """The stage in which a value of the body is made; ``None`` for one from outside the loop."""
        op, stage = value.defining_op, self.schedule.stage
        if op in stage:
            return stage[op]
        top = self.body.ancestor_of(op) if op is not None else None
        return None if top is None else stage[top]

    def _made_in(self, index: int) -> int:
        """The stage of what carried value ``index`` yields (0 when that comes from outside)."""
        return self._stage_of(self.yielded[index]) or 0

    def _captured(self, op: Operation) -> list[Value]:
        """Values of the body (arguments included) that ``op`` or its regions use."""
        found: dict[Value, None] = {}
        for nested in op.walk():
            for value in nested.operands:
                if self._is_of_body(value):
                    found[value] = None
        return list(found)

    def _is_of_body(self, value: Value) -> bool:
        return value.owner_block is self.body

    def _check_legal(self) -> None:
        position = {op: i for i, op in enumerate(self.schedule.order)}
        for op in self.schedule.order:
            stage = self.schedule.stage[op]
            if stage < self.last and any("global" in nested.get_effects().writes for nested in op.walk()):
                raise IRError(
                    f"'{op.name}' is in stage {stage} of {self.last}: it would write for iterations past the "
                    "end of the loop"
                )
            for value in self.captured[op]:
                if value is self.loop.induction:
                    continue
                if isinstance(value, BlockArgument):
                    index = self.loop.carried_index(value)
                    made, source = self._made_in(index) - 1, self.yielded[index]
                else:
                    made, source = self._stage_of(value), value
                is_before = position.get(source.defining_op, -1) < position[op]
                if made > stage or (made == stage and not is_before):
                    raise IRError(f"'{op.name}' is scheduled before what it uses")

    # -- prologue ------------------------------------------------------------------------------------

    def _induction(self, iteration: int) -> Value:
        """The induction variable of an iteration of the prologue."""
        if iteration not in self.ahead:
            loop, b = self.loop, self.builder
            distance = b.value(MulI, loop.step, b.constant(iteration, loop.step.type))
            self.ahead[iteration] = b.value(AddI, loop.lower, distance) if iteration else loop.lower
        return self.ahead[iteration]

    def _in_prologue(self, value: Value, iteration: int) -> Value:
        """What a value of the body is in an iteration of the prologue."""
        if not self._is_of_body(value):
            return value
        if not isinstance(value, BlockArgument):
            return self.made[iteration][value]
        if value is self.loop.induction:
            return self._induction(iteration)
        return self._carried_before(self.loop.carried_index(value), iteration)

    def _carried_before(self, index: int, iteration: int) -> Value:
        """Carried value ``index`` as iteration ``iteration`` sees it."""
        if iteration == 0:
            return self.loop.initial[index]
        return self._in_prologue(self.yielded[index], iteration - 1)

    def _emit_prologue_step(self, step: int) -> None:
        for op in self.schedule.order:
            stage = self.schedule.stage[op]
            if stage > step:
                continue
            iteration = step - stage
            mapping = {value: self._in_prologue(value, iteration) for value in self.captured[op]}
            beyond = self.schedule.beyond.get(op, 0)
            is_certain = iteration < beyond or (self.schedule.peeled and not iteration and not is_of_copy(op))
            if not is_certain and (iteration, beyond) not in self.flags:
                self.flags[iteration, beyond] = self._exists(
                    self._induction(iteration), beyond, self.builder
                )
            clone = self.builder.insert(op.clone(mapping))
            clone.attributes.pop("ordered", None)
            if not is_certain:
                predicate_access(clone, self.flags[iteration, beyond], Builder.at(clone))
            self.made.setdefault(iteration, {}).update(zip(op.results, clone.results))

    def _limit(self, beyond: int) -> Value:
        """The upper bound of a loop with that many more iterations."""
        b, step = self.builder, self.loop.step
        more = b.value(MulI, step, b.constant(beyond, step.type)) if beyond else None
        return b.value(AddI, self.loop.upper, more) if beyond else self.loop.upper

    def _exists(self, induction: Value, beyond: int, builder: Builder) -> Value:
        """Whether an iteration exists, or is one of those ``beyond`` the last one."""
        return builder.value(CmpI, induction, self.limits[beyond], predicate="slt")

    # -- steady state --------------------------------------------------------------------------------

    def _needed(self) -> list[_Lagged]:
        """Every lagged value that the steady state or the results use,
        and the shorter lags that feed them."""
        longest: dict[Value | int, int] = {}

        def need(source: Value | int, lag: int) -> None:
            if lag:
                longest[source] = max(longest.get(source, 0), lag)

        for op in self.schedule.order:
            stage = self.schedule.stage[op]
            for value in self.captured[op]:
                if not isinstance(value, BlockArgument):
                    need(value, stage - self._stage_of(value))
                elif value is not self.loop.induction:
                    index = self.loop.carried_index(value)
                    need(index, stage - self._made_in(index) + 1)
        for result in self.loop.results:
            if result.uses:
                need(result.index, self.last - self._made_in(result.index) + 1 - self.schedule.peeled)
        return [_Lagged(source, lag) for source, most in longest.items() for lag in range(1, most + 1)]

    def _initial(self, lagged: _Lagged) -> Value:
        """What a lagged value is when the new loop begins."""
        if isinstance(lagged.source, int):
            made = self._made_in(lagged.source)
            return self._carried_before(lagged.source, self.last - lagged.lag - made + 1)
        iteration = self.last - lagged.lag - self._stage_of(lagged.source)
        return self.made[iteration][lagged.source]

    def _emit_loop(self) -> For:
        old = self.loop
        needed = self._needed()
        initial = [self._initial(lagged) for lagged in needed]
        body = Block([old.lower.type] + [v.type for v in initial])
        upper = self.builder.value(SubI, old.upper, old.step) if self.schedule.peeled else old.upper
        new = For([old.lower, upper, old.step, *initial], [v.type for v in initial], dict(old.attributes),
                  [Region(body)], old.location)  # fmt: skip
        self.builder.insert(new)
        new.induction.hint = old.induction.hint
        carried = dict(zip(needed, new.carried))
        for lagged, argument in carried.items():
            source = lagged.source
            argument.hint = old.carried[source].hint if isinstance(source, int) else source.hint
        place = dict(zip(needed, new.results))
        ends = self._finish(place) if self.schedule.peeled else place
        self._fill(new, carried)
        self._replace_results(ends)
        old.erase()
        return new

    def _fill(self, new: For, carried: dict[_Lagged, Value]) -> None:
        """Move the operations of the old body to the new one, where they have other operands."""
        b = Builder(new.body, location=self.loop.location)
        now: dict[Value, Value] = {}
        ahead: dict[int, Value] = {self.last: new.induction}
        flags: dict[tuple[int, int], Value] = {}

        def induction(stage: int) -> Value:
            if stage not in ahead:
                distance = b.value(MulI, self.loop.step, b.constant(self.last - stage, self.loop.step.type))
                ahead[stage] = b.value(AddI, new.induction, distance)
            return ahead[stage]

        for op in self.schedule.order:
            stage, beyond = self.schedule.stage[op], self.schedule.beyond.get(op, 0)
            mapping = {
                value: self._look_up(value, stage, now, carried, induction) for value in self.captured[op]
            }
            is_certain = stage + beyond >= self.last - self.schedule.peeled
            if not is_certain and (stage, beyond) not in flags:
                flags[stage, beyond] = self._exists(induction(stage), beyond, b)
            for nested in op.walk():
                nested.set_operands(map(mapping.get, nested.operands, nested.operands))
            b.insert(op.remove())
            if not is_certain:
                predicate_access(op, flags[stage, beyond], Builder.at(op))
            now.update(zip(op.results, op.results))
        b.create(Yield, *(self._next(lagged, now, carried) for lagged in carried))

    def _look_up(
        self, value: Value, stage: int, now: dict[Value, Value], carried: dict[_Lagged, Value],
        induction: Callable[[int], Value],
    ) -> Value:  # fmt: skip
        """What a value of the old body is for an operation of ``stage`` in a step that has made ``now``."""
        if not isinstance(value, BlockArgument):
            lag = stage - self._stage_of(value)
            return now[value] if lag == 0 else carried[_Lagged(value, lag)]
        if value is self.loop.induction:
            return induction(stage)
        index = self.loop.carried_index(value)
        lag = stage - self._made_in(index) + 1
        return carried[_Lagged(index, lag)] if lag else now[self.yielded[index]]

    def _next(self, lagged: _Lagged, now: dict[Value, Value], carried: dict[_Lagged, Value]) -> Value:
        """What a lagged value becomes in the next step."""
        if lagged.lag > 1:
            return carried[_Lagged(lagged.source, lagged.lag - 1)]
        source = self.yielded[lagged.source] if isinstance(lagged.source, int) else lagged.source
        return now.get(source, source)

    # -- the last step -------------------------------------------------------------------------------

    def _finish(self, carried: dict[_Lagged, Value]) -> dict[_Lagged, Value]:
        """The last step of a peeled loop, behind it; what lagged values have become then."""
        now: dict[Value, Value] = {}
        left = self._left()
        for op in self.schedule.order:
            if op not in left:
                continue
            mapping = {
                value: self._look_up(value, self.schedule.stage[op], now, carried, self._in_last_step)
                for value in self.captured[op]
            }
            now.update(zip(op.results, self.builder.insert(op.clone(mapping)).results))
        ends = {}
        for result in self.loop.results:
            if result.uses:
                lagged = _Lagged(result.index, self.last - self._made_in(result.index) + 1)
                ends[lagged] = self._next(lagged, now, carried)
        return ends

    def _left(self) -> set[Operation]:
        """What the last step does: the last stage, what goes beyond, and what that needs of the same step."""
        stage, beyond = self.schedule.stage, self.schedule.beyond
        left: set[Operation] = set()
        for op in reversed(self.schedule.order):
            if op in left or stage[op] + beyond.get(op, 0) >= self.last:
                left.update([op, *self._made_for(op)])
        return left

    def _made_for(self, op: Operation) -> list[Operation]:
        """The operations of the body whose results ``op`` uses in the step that makes them."""
        found = []
        for value in self.captured[op]:
            at = self.schedule.stage[op]
            if isinstance(value, BlockArgument):
                if value is self.loop.induction:
                    continue
                value, at = self.yielded[self.loop.carried_index(value)], at + 1
            if self._stage_of(value) == at:
                found.append(self.body.ancestor_of(value.defining_op))
        return found

    def _in_last_step(self, stage: int) -> Value:
        """The induction variable of the iteration that ``stage`` works on in the last step."""
        loop, b = self.loop, self.builder
        most = b.value(SubI, b.value(SubI, loop.upper, b.constant(1, loop.step.type)), loop.lower)
        steps = b.value(AddI, b.value(DivSI, most, loop.step), b.constant(self.last - stage, loop.step.type))
        return b.value(AddI, loop.lower, b.value(MulI, steps, loop.step))

    def _replace_results(self, place: dict[_Lagged, Value]) -> None:
        for result in self.loop.results:
            if not result.uses:
                continue
            lagged = _Lagged(result.index, self.last - self._made_in(result.index) + 1)
            replacement = place[lagged]
            replacement.hint = result.hint
            result.replace_all_uses_with(replacement)


def is_of_copy(op: Operation) -> bool:
    """Whether ``op`` starts a copy by TMA, or waits for its buffer."""
    effects = op.get_effects()
    return effects.starts == TENSORS or (effects.finishes == TENSORS and op.for_copies)


def _guard(loop: For) -> If:
    """Put ``loop`` into a branch that is taken if it has an iteration."""
    b = Builder.at(loop)
    used = [result for result in loop.results if result.uses]
    condition = b.value(CmpI, loop.lower, loop.upper, predicate="slt")
    regions = [Region(Block()), Region(Block())]
    guard = b.create(If, condition, result_types=[r.type for r in used], regions=regions)
    for result, outer in zip(used, guard.results):
        outer.hint = result.hint
        result.replace_all_uses_with(outer)
    loop.remove()
    guard.then_block.append(loop)
    for block, values in (
        (guard.then_block, used), (guard.else_block, [loop.initial[r.index] for r in used])
    ):  # fmt: skip
        with b.inside(block):
            b.create(Yield, *values)
    return guard


def _start_in_front(guard: If, loop: For) -> None:
    """Start the copies of the prologue in front of the branch. (The first time round the ring, they wait for
    no buffer.)"""
    block = guard.then_block
    needed: set[Operation] = set()
    op = loop.previous
    while op is not None:
        if is_of_copy(op) or op in needed:
            needed.add(op)
            needed.update(v.defining_op for v in op.operands if v.owner_block is block)
        op = op.previous
    for op in [op for op in block.operations if op in needed]:
        if op.effects.finishes == TENSORS:
            op.erase()
        else:
            op.move_before(guard)


def expand_loop(loop: For) -> For:
    """Replace ``loop`` by the prologue and steady state of the schedule that is written on it; the new loop.

    Raises :class:`IRError` for a schedule in which a use precedes its definition, or a write its turn. The
    yielded values must not be arguments of the loop other than through an operation (``canonicalize`` removes
    invariant carried values).
    """
    return LoopExpander(loop, Schedule.take(loop)).run()
