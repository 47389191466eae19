"""Structured control flow. Every region is one block and ends in ``yield``, ``condition`` or ``return``."""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.ir import definition as D
from ptxforge.ir.core import BlockArgument, Operation, Value
from ptxforge.ir.warps import SplitsWarps
from ptxforge.support.errors import VerificationError


@D.define("yield", traits=[D.TERMINATOR, D.ORDERLESS])
class Yield(Operation):
    """Ends a region and gives its values to the enclosing operation."""

    values = D.operands(D.ANY)

    infer = D.gives()

    def passes_to(self, index):
        parent = self.parent_op
        return parent.results[index] if isinstance(parent, (Structured, SplitsWarps)) else None


@D.define("condition", traits=[D.TERMINATOR, D.ORDERLESS])
class Condition(Operation):
    """Ends the first region of ``while``: go on with ``values`` while ``flag`` holds,
    else leave with them."""

    flag = D.operand(D.SCALAR_BOOL)
    values = D.operands(D.ANY)

    infer = D.gives()

    def passes_to(self, index):
        return self.parent_op.results[index - 1] if index else None


@D.define("return", traits=[D.TERMINATOR])
class Return(Operation):
    """Ends the kernel. Only at the end of a function's body."""

    infer = D.gives()


@D.define("recompute", effects=D.SIDE_EFFECT)
class Recompute(Operation):
    """From here on ``values``, tiles of indices that were computed in front of the loop before this, are
    computed again: they are not kept in registers across the loop (``recompute_indices``). Each is made of
    those named before it and of what is kept. Outside all control flow nothing else is kept that depends on
    the thread's number alone. No value changes."""

    values = D.operands(D.TENSOR)

    infer = D.gives()

    def check(self):
        for value in self.values:
            op = value.defining_op
            if op is None or op.parent is not self.parent or D.ADDRESSING not in op.traits:
                raise VerificationError("'recompute' of what is no index arithmetic of the same block")


class Structured(Operation):
    """Base of control flow: operations whose regions run in the program's course (unlike those that say how
    to combine two elements), and whose terminators give the results."""

    traits = frozenset((D.ORDERLESS,))


class Loop(Structured):
    """Base of ``for`` and ``while``: how values are carried, the same for both.

    With ``n`` carried values the last ``n`` operands are the initial ones, the last ``n`` arguments of each
    region what they are there, the last ``n`` operands of each region's terminator what is passed on, and the
    ``n`` results what they are in the end.
    """

    @property
    def first_initial(self) -> int:
        """How many operands come before the initial values."""
        return len(self.operands) - len(self.results)

    def passes_to(self, index):
        place = index - self.first_initial
        return self.results[place] if place >= 0 else None

    def carried_places(self, index: int) -> list[tuple[Operation, int]]:
        """Every (operation, operand index) that gives carried value ``index``: the loop's own, then each
        region's terminator's."""
        ends = [region.block.last for region in self.regions]
        return [(op, len(op.operands) - len(self.results) + index) for op in (self, *ends)]

    def carried_sources(self, index: int) -> list[Value]:
        """The values at :meth:`carried_places`."""
        place = index - len(self.results)
        return [self.operands[place], *[region.block.last.operands[place] for region in self.regions]]

    def carried_names(self, index: int) -> list[Value]:
        """What carried value ``index`` is called: an argument in each region, and the result."""
        place = index - len(self.results)
        return [*[region.block.arguments[place] for region in self.regions], self.results[index]]

    def first_of(self, argument: BlockArgument) -> Value:
        """What a carried ``argument`` is in the first iteration."""
        return self.carried_sources(self.carried_index(argument))[0]

    def next_of(self, argument: BlockArgument) -> Value:
        """What a carried ``argument`` becomes in the next iteration."""
        return self.carried_sources(self.carried_index(argument))[-1]

    def last_of(self, argument: BlockArgument) -> Value:
        """What a carried ``argument`` is behind the loop."""
        return self.results[self.carried_index(argument)]

    def carried_index(self, value: Value) -> int | None:
        """The inverse of :meth:`carried_names`; ``None`` for the induction variable."""
        if not isinstance(value, BlockArgument):
            return value.index
        index = value.index + len(self.results) - len(value.block.arguments)
        return index if index >= 0 else None

    def add_carried(self, initial: Value, hint: str = "") -> list[Value]:
        """Carry one more value, which every region passes on as it is; gives its names."""
        names: list[Value] = []
        for block in [part.block for part in self.regions]:
            argument = block.add_argument(initial.type, hint)
            block.last.set_operands((*block.last.operands, argument))
            names.append(argument)
        self.set_operands((*self.operands, initial))
        return [*names, self.add_result(initial.type)]

    def erase_carried(self, index: int) -> None:
        """Take out carried value ``index``. Its result must be unused, its arguments used at most by the
        terminators, in its place."""
        names, places = self.carried_names(index), self.carried_places(index)
        for op, place in places:
            op.erase_operand(place)
        for argument in names[:-1]:
            argument.block.erase_argument(argument.index)
        self.erase_result(index)


@D.define("for")
class For(Loop):
    """A counted loop:
    ``induction = lower; induction < upper (signed; unsigned never occurs); induction += step``.

    The body's arguments are the induction variable and the carried values; ``yield`` gives their next values;
    results are the last ones. ``step`` must be positive. Attributes say what the user asked for:
    ``num_stages`` (-1: the kernel's own), ``unroll`` (1: none), ``flatten``, ``disable_licm``,
    ``disallow_acc_multi_buffer``, ``warp_specialize``. Its iterations are dealt out to ``consumer_groups`` of
    warps where the compiler can (``alternate_tiles``).

    A scheduled loop has a ``last_stage`` other than 0: in step ``t`` of the pipeline that it becomes,
    operations of stage ``s`` (an attribute of those in its body) work on iteration ``t - s``. With a
    ``distance``, only loads that run ahead have stages yet: what one of stage ``s`` reads is used in stage
    ``s + distance``; those of one ``group`` (another attribute) arrive together, and a product with a
    ``slice`` takes so much of its operands at once; what else has a stage, or a turn, keeps it. A loop that
    is ``peeled`` gets its last step behind it: only what says so is in its last stage. One that ``reads_on``
    takes its tiles out of the ring of the one before (``continued_rings``). A ``rolled`` loop is none that
    the assembler unrolls (``advise_assembler``). What ``accumulates_booleans`` carries them as words
    (``widen_booleans``). One that ``is_part`` has some of the iterations of a loop that was split
    (``split_loops``).
    """

    is_counted = True

    lower = D.operand(D.SCALAR_INT)
    upper = D.operand(D.SCALAR_INT)
    step = D.operand(D.SCALAR_INT)
    initial = D.operands(D.ANY)
    num_stages = D.attribute(int, -1)
    unroll = D.attribute(int, 1)
    flatten = D.attribute(bool, False)
    disable_licm = D.attribute(bool, False)
    disallow_acc_multi_buffer = D.attribute(bool, False)
    warp_specialize = D.attribute(bool, False)
    rolled = D.attribute(bool, False)
    accumulates_booleans = D.attribute(bool, False)
    consumer_groups = D.attribute(int, 1)
    last_stage = D.attribute(int, 0)
    distance = D.attribute(int, 0)
    peeled = D.attribute(bool, False)
    is_part = D.attribute(bool, False)
    reads_on = D.attribute(bool, False)
    body = D.region()

    @classmethod
    def infer(cls, operands, attributes):
        return list(operands[3:])

    @property
    def induction(self):
        """The induction variable."""
        return self.body.arguments[0]

    @property
    def carried(self):
        """The body's arguments that carry values from one iteration to the next."""
        return self.body.arguments[1:]

    @property
    def hands_on(self):
        """Whether an iteration gives the next one what it got itself, unchanged."""
        return any(value in self.body.arguments for value in self.body.last.operands)

    def check(self):
        wanted = [self.lower.type] + [v.type for v in self.initial]
        if [a.type for a in self.body.arguments] != wanted:
            raise VerificationError(
                "arguments of a 'for' body must be the induction variable and the carried values"
            )
        _check_yield(self, self.body, [r.type for r in self.results])


@D.define("if")
class If(Structured):
    """Run the ``then`` region if ``condition`` holds, else the ``else`` region; both yield the results.
    The else region is always there (it may hold only ``yield``)."""

    condition = D.operand(D.SCALAR_BOOL)
    then_block = D.region()
    else_block = D.region()

    def check(self):
        for block in (self.then_block, self.else_block):
            _check_yield(self, block, [r.type for r in self.results])


@D.define("while", traits=[D.PARTIAL])
class While(Loop):
    """A loop on a condition. Both regions take the carried values; ``before`` ends in
    ``condition flag, values…``, whose values go to ``body`` (or become the results), and ``body`` yields the
    next carried values."""

    initial = D.operands(D.ANY)
    before = D.region("condition")
    body = D.region()

    @classmethod
    def infer(cls, operands, attributes):
        return list(operands)

    def check(self):
        types = [v.type for v in self.initial]
        for block in (self.before, self.body):
            if [a.type for a in block.arguments] != types:
                raise VerificationError("arguments of the regions of 'while' must be the carried values")
        last = self.before.terminator
        if not isinstance(last, Condition) or [v.type for v in last.values] != types:
            raise VerificationError(
                "the first region of 'while' must end in 'condition' with the carried values"
            )
        _check_yield(self, self.body, types)


def _check_yield(op: Operation, block, types) -> None:
    last = block.terminator
    if not isinstance(last, Yield) or [v.type for v in last.values] != types:
        raise VerificationError(
            f"a region of '{op.name}' must yield {', '.join(map(str, types)) or 'nothing'}"
        )


def ancestors(op: Operation) -> Iterator[Operation]:
    """The operations in whose regions ``op`` is, innermost first."""
    while (op := op.parent_op) is not None:
        yield op


def loops_around(op: Operation) -> list[Loop]:
    """The loops in which ``op`` is, innermost first."""
    return [around for around in ancestors(op) if isinstance(around, Loop)]
