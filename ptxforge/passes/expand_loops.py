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
a third time). An operation with ``beyond`` is done for that many more iterations, whose copies bring zeros.

Within a step operations stand by their ``turn``, those of one turn as in the text. A wait for a product
leaves running what the step starts between the product and it. What is ``ordered`` is so in the steady state.

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

import attrs

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Region, Value
from ptxforge.ir.definition import PRODUCTS, TENSORS
from ptxforge.ir.ops.arith import AddI, CmpI, MulI, SubI
from ptxforge.ir.ops.control import For, Yield
from ptxforge.ir.ops.warpgroup import DotWait
from ptxforge.passes.predication import copy_from_outside, predicate_access
from ptxforge.support.errors import IRError
from ptxforge.support.target import Target


def expand_loops(function: Function, target: Target) -> bool:
    """Write out every loop that has a schedule."""
    loops = [op for op in function.walk(For) if op.last_stage and not op.distance]
    for loop in loops:
        expand_loop(loop)
    return bool(loops)


@attrs.define(slots=True)
class Schedule:
    """``order``: the body's operations (without ``yield``) as the steady state has them; the ``stage`` of
    each, and ``beyond`` of those that have it; the ``last`` stage."""

    order: list[Operation]
    stage: dict[Operation, int]
    beyond: dict[Operation, int]
    last: int

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
        return cls(sorted(turn, key=turn.__getitem__), stage, beyond, loop.attributes.pop("last_stage"))


@attrs.frozen
class _Lagged:
    """What the loop's ``source`` (an operation's result, or carried value number ``index``) was ``lag`` steps
    ago."""

    source: Value | int
    lag: int


class LoopExpander:
    """Rewrites one loop by a schedule. :meth:`run` gives the new loop and erases the old one."""

    def __init__(self, loop: For, schedule: Schedule):
        self.loop, self.schedule = loop, schedule
        self.last = schedule.last
        self.yielded = loop.body.terminator.values
        self.builder = Builder.at(loop)
        # iteration → {value of the old body: its clone in the prologue}
        self.made: dict[int, dict[Value, Value]] = {}
        self.ahead: dict[int, Value] = {}
        self.flags: dict[int, Value] = {}

    def run(self) -> For:
        self._check_legal()
        for step in range(self.last):
            self._emit_prologue_step(step)
        return self._emit_loop()

    # -- what the schedule says ----------------------------------------------------------------------

    def _stage_of(self, value: Value) -> int | None:
        """The stage in which a value of the body is made; ``None`` for one from outside the loop."""
        op = value.defining_op
        top = self.loop.body.ancestor_of(op) if op is not None else None
        return None if top is None else self.schedule.stage[top]

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
        if isinstance(value, BlockArgument):
            return value.block is self.loop.body
        return value.owner_block is self.loop.body

    def _check_legal(self) -> None:
        position = {op: i for i, op in enumerate(self.schedule.order)}
        for op in self.schedule.order:
            stage = self.schedule.stage[op]
            if stage < self.last and any("global" in nested.get_effects().writes for nested in op.walk()):
                raise IRError(
                    f"'{op.name}' is in stage {stage} of {self.last}: it would write for iterations past the "
                    "end of the loop"
                )
            for value in self._captured(op):
                if isinstance(value, BlockArgument) and not value.index:
                    continue
                if isinstance(value, BlockArgument):
                    made, source = self._made_in(value.index - 1) - 1, self.yielded[value.index - 1]
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
        if value.index == 0:
            return self._induction(iteration)
        return self._carried_before(value.index - 1, iteration)

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
            mapping = {value: self._in_prologue(value, iteration) for value in self._captured(op)}
            flag = self._flag(iteration)
            clone = self.builder.insert(op.clone(mapping))
            if "ordered" in clone.attributes:
                del clone.attributes["ordered"]
            beyond = self.schedule.beyond.get(op, 0)
            self._predicate(clone, flag, beyond, is_certain=iteration < beyond)
            self.made.setdefault(iteration, {}).update(zip(op.results, clone.results))

    def _flag(self, iteration: int) -> Value:
        """Whether an iteration of the prologue exists."""
        if iteration not in self.flags:
            self.flags[iteration] = self._exists(self._induction(iteration), self.builder)
        return self.flags[iteration]

    def _exists(self, induction: Value, builder: Builder) -> Value:
        return builder.value(CmpI, induction, self.loop.upper, predicate="slt")

    def _predicate(self, clone: Operation, flag: Value, beyond: int, is_certain: bool) -> None:
        """Let ``clone`` do nothing behind the last iteration for which it is done (``beyond`` the loop's last
        one), unless it is certain to be one of these. ``flag`` says whether its iteration exists."""
        b = Builder.at(clone)
        if beyond and clone.effects.fills == TENSORS:
            copy_from_outside(clone, flag, b)
        if is_certain:
            return
        if beyond:
            step = self.loop.step
            distance = step if beyond == 1 else b.value(MulI, step, b.constant(beyond, step.type))
            flag = self._exists(b.value(SubI, flag.defining_op.lhs, distance), b)
        predicate_access(clone, flag, b)

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
            for value in self._captured(op):
                if not isinstance(value, BlockArgument):
                    need(value, stage - self._stage_of(value))
                elif value.index:
                    need(value.index - 1, stage - self._made_in(value.index - 1) + 1)
        for result in self.loop.results:
            if result.uses:
                need(result.index, self.last - self._made_in(result.index) + 1)
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
        new = For([old.lower, old.upper, old.step, *initial], [v.type for v in initial], dict(old.attributes),
                  [Region(body)], old.location)  # fmt: skip
        self.builder.insert(new)
        body.arguments[0].hint = old.induction.hint
        carried = dict(zip(needed, body.arguments[1:]))
        for lagged, argument in carried.items():
            source = lagged.source
            argument.hint = old.carried[source].hint if isinstance(source, int) else source.hint
        self._fill(new, carried)
        self._replace_results(new, needed)
        return new

    def _fill(self, new: For, carried: dict[_Lagged, Value]) -> None:
        b = Builder(new.body, location=self.loop.location)
        now: dict[Value, Value] = {}
        ahead: dict[int, Value] = {self.last: new.induction}
        flags: dict[int, Value] = {}

        def induction(stage: int) -> Value:
            if stage not in ahead:
                distance = b.value(MulI, self.loop.step, b.constant(self.last - stage, self.loop.step.type))
                ahead[stage] = b.value(AddI, new.induction, distance)
            return ahead[stage]

        def look_up(value: Value, stage: int) -> Value:
            if not isinstance(value, BlockArgument):
                lag = stage - self._stage_of(value)
                return now[value] if lag == 0 else carried[_Lagged(value, lag)]
            if value.index == 0:
                return induction(stage)
            lag = stage - self._made_in(value.index - 1) + 1
            return carried[_Lagged(value.index - 1, lag)] if lag else now[self.yielded[value.index - 1]]

        for op in self.schedule.order:
            stage = self.schedule.stage[op]
            mapping = {value: look_up(value, stage) for value in self._captured(op)}
            if stage < self.last and stage not in flags:
                flags[stage] = self._exists(induction(stage), b)
            clone = b.insert(op.clone(mapping))
            if stage < self.last:
                beyond = self.schedule.beyond.get(op, 0)
                self._predicate(clone, flags[stage], beyond, is_certain=stage + beyond >= self.last)
            now.update(zip(op.results, clone.results))
        b.create(Yield, *(self._next(lagged, now, carried) for lagged in carried))

    def _next(self, lagged: _Lagged, now: dict[Value, Value], carried: dict[_Lagged, Value]) -> Value:
        """What a lagged value becomes in the next step."""
        if lagged.lag > 1:
            return carried[_Lagged(lagged.source, lagged.lag - 1)]
        source = self.yielded[lagged.source] if isinstance(lagged.source, int) else lagged.source
        return now.get(source, source)

    def _replace_results(self, new: For, needed: list[_Lagged]) -> None:
        place = {lagged: result for lagged, result in zip(needed, new.results)}
        old = self.loop
        for result in old.results:
            if not result.uses:
                continue
            lagged = _Lagged(result.index, self.last - self._made_in(result.index) + 1)
            replacement = place[lagged]
            replacement.hint = result.hint
            result.replace_all_uses_with(replacement)
        old.erase()


def expand_loop(loop: For) -> For:
    """Replace ``loop`` by the prologue and steady state of the schedule that is written on it; the new loop.

    Raises :class:`IRError` for a schedule in which a use precedes its definition, or a write its turn. The
    yielded values must not be arguments of the loop other than through an operation (``canonicalize`` removes
    invariant carried values).
    """
    expanded = LoopExpander(loop, Schedule.take(loop)).run()
    for wait in expanded.body.of(DotWait):
        _let_later_products_run(wait)
    return expanded


def _let_later_products_run(wait: DotWait) -> None:
    """What was started between the products that ``wait`` names and itself need not be finished."""
    op, later = wait.previous, 0
    while op is not None and not any(result in wait.flights for result in op.results):
        later += op.effects.reads_by == PRODUCTS
        op = op.previous
    if op is not None and later:
        wait.pending = later
