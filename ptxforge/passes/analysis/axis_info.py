"""What is known of the values of an integer or pointer tensor, throughout a function.

The facts, and how operations make new ones of them, are those of ``ptxforge/ir/facts.py``. Those about
loop-carried values are a fixpoint: what holds before the loop is assumed and weakened by what the body yields
until nothing changes. Hints of the user (``tl.multiple_of`` and its like) are attributes of operations and
parameters, and are believed, as is what ``tl.assume`` promises (``assumptions.py``).

:class:`FactsWithinVectors` hold inside a vector which turns out, when the kernel runs, to be contiguous in
memory. An access with ``guarded`` (see ``vectorize_memory``) tests that for each of its vectors. Under that
condition a ``rotated_range`` is as good as a range, and a mask ``i < n`` is a prefix of the vector: whether
all of it may be accessed is said by its last element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import REARRANGING
from ptxforge.ir.facts import AxisInfo, constant_info, power_of_two_in, unknown
from ptxforge.ir.ops.arith import AndI, CmpI
from ptxforge.ir.ops.control import For, If, While
from ptxforge.ir.rewriter import evaluate_constants
from ptxforge.layouts.banks import register_run
from ptxforge.layouts.encodings import Distributed
from ptxforge.passes.analysis.assumptions import promised_constant, promised_divisor
from ptxforge.passes.analysis.sign import is_nonnegative

_MAX_ROUNDS = 8


class AxisInfoAnalysis:
    """Facts about all integer, pointer and ``i1`` values of a function. Ask with ``analysis[value]``.

    Values that appear after the analysis was made are analysed when asked for, if their operands are known.
    """

    def __init__(self, function: Function):
        self._info: dict[Value, AxisInfo] = {}
        self._has_promises = any("promises" in op.effects.writes for op in function.walk())
        for argument in function.arguments:
            info = _with_hints(unknown(argument.type), argument.attributes, argument.type)
            self._info[argument] = self._with_promises(info, argument)
        self._block(function.body)

    def __getitem__(self, value: Value) -> AxisInfo:
        found = self._info.get(value)
        if found is None:
            op = value.block.parent_op if isinstance(value, BlockArgument) else value.defining_op
            if op is not None:
                self._op(op)
            found = self._info.setdefault(value, unknown(value.type))
        return found

    def _get(self, value: Value) -> AxisInfo:
        return self._info.get(value) or unknown(value.type)

    def _block(self, block: Block) -> None:
        for op in block.operations:
            self._op(op)

    def _op(self, op: Operation) -> None:
        if op.regions:
            _REGIONS.get(type(op), AxisInfoAnalysis._other)(self, op)
            return
        if len(op.results) != 1:
            return
        result = op.results[0]
        element = T.element_type(result.type)
        if element.is_float if isinstance(element, T.ScalarType) else not isinstance(element, T.PointerType):
            return
        info = self.derived(op)
        if op.attributes:
            info = _with_hints(info, op.attributes, result.type)
        self._info[result] = self._with_promises(info, result)

    def derived(self, op: Operation) -> AxisInfo:
        """What follows of the operands for the only result of ``op``, whatever the user promised of that."""
        operands = [self[v] for v in op.operands]
        constants = [x.constant for x in operands]
        if operands and None not in constants:
            value = evaluate_constants(op, constants)
            if value is not None:
                return constant_info(int(value), T.shape_of(op.result.type))
        return self._follows(op, operands)

    def _follows(self, op: Operation, operands: list[AxisInfo]) -> AxisInfo:
        return op.axis_info(operands, is_nonnegative)

    def _with_promises(self, info: AxisInfo, value: Value) -> AxisInfo:
        """``info``, strengthened by what is assumed of ``value``."""
        if not self._has_promises or info.constant is not None:
            return info
        constant = promised_constant(value)
        if constant is not None:
            return constant_info(constant, T.shape_of(value.type))
        divisor = promised_divisor(value)
        if divisor == 1:
            return info
        # Neighbours that 2 divides do not form a run, and what divides all elements divides the first of any
        # run.
        ones = (1,) * info.rank
        return AxisInfo(ones, [max(known, divisor) for known in info.divisibility], info.constancy)

    # -- regions -------------------------------------------------------------------------------------

    def _other(self, op: Operation) -> None:
        """reduce and scan: nothing is known of the results; their regions hold scalars only."""

    def _for(self, op: For) -> None:
        lower, step = self[op.lower], self[op.step]
        start = min(lower.divisibility[0], step.divisibility[0])
        induction = _with_hints(AxisInfo((1,), (start,), (1,)), op.induction.attributes, T.I32)
        self._info[op.induction] = self._with_promises(induction, op.induction)
        self._loop(op.initial, lambda carried: self._for_once(op, carried))
        self._info.update((result, self._get(v)) for result, v in zip(op.results, op.carried))

    def _for_once(self, op: For, carried: list[AxisInfo]) -> Sequence[Value]:
        self._carry(op.carried, carried)
        self._block(op.body)
        return op.body.terminator.operands

    def _while(self, op: While) -> None:
        self._loop(op.initial, lambda carried: self._while_once(op, carried))
        ends = zip(op.results, op.before.terminator.values)
        self._info.update((result, self._get(v)) for result, v in ends)

    def _while_once(self, op: While, carried: list[AxisInfo]) -> Sequence[Value]:
        self._carry(op.before.arguments, carried)
        self._block(op.before)
        self._carry(op.body.arguments, map(self._get, op.before.terminator.values))
        self._block(op.body)
        return op.body.terminator.operands

    def _carry(self, arguments: Iterable[BlockArgument], infos: Iterable[AxisInfo]) -> None:
        """What the arguments of a loop's region hold, and what the user promised of that."""
        self._info.update((a, _with_hints(info, a.attributes, a.type)) for a, info in zip(arguments, infos))

    def _loop(self, initial: Sequence[Value], once: Callable[[list[AxisInfo]], Sequence[Value]]) -> None:
        """Assume what holds before the loop, and weaken it until what the body yields agrees.

        ``once`` analyses the body under facts about the carried values and returns their next values.
        """
        carried = [self._get(v) for v in initial]
        for _ in range(_MAX_ROUNDS):
            following = once(carried)
            weaker = [info.join(self._get(v)) for info, v in zip(carried, following)]
            if weaker == carried:
                return
            carried = weaker
        once([unknown(v.type) for v in initial])

    def _if(self, op: If) -> None:
        for region in op.regions:
            self._block(region.block)
        ends = [region.block.terminator.operands for region in op.regions]
        for result, one, other in zip(op.results, *ends):
            self._info[result] = self._get(one).join(self._get(other))


_REGIONS: dict[type[Operation], Callable] = {
    For: AxisInfoAnalysis._for,
    While: AxisInfoAnalysis._while,
    If: AxisInfoAnalysis._if,
}


def _with_hints(info: AxisInfo, attributes: dict, type: T.Type) -> AxisInfo:
    """``info``, strengthened by what the user promised (see the IR's discardable attributes)."""
    if not ("divisibility" in attributes or "contiguity" in attributes or "constancy" in attributes):
        return info
    rank = info.rank

    def stronger(known: tuple[int, ...], name: str) -> list[int]:
        hint = attributes.get(name, 1)
        hints = hint if isinstance(hint, tuple) else (hint,) * rank
        if len(hints) < rank:
            hints = (1,) * (rank - len(hints)) + hints
        return [max(k, power_of_two_in(h)) for k, h in zip(known, hints)]

    shape = T.shape_of(type) or (1,)
    return AxisInfo(
        map(min, stronger(info.contiguity, "contiguity"), shape),
        stronger(info.divisibility, "divisibility"),
        map(min, stronger(info.constancy, "constancy"), shape),
        info.constant,
    )


# -- within vectors ---------------------------------------------------------------------------------------

_FALLING = ("slt", "sle")
_RISING = ("sgt", "sge")


class FactsWithinVectors(AxisInfoAnalysis):
    """As :class:`AxisInfoAnalysis`, for the vectors in which the values of each range do not jump."""

    def _follows(self, op: Operation, operands: list[AxisInfo]) -> AxisInfo:
        return op.axis_info_within_vectors(operands, is_nonnegative)


def is_prefix(mask: Value, dim: int, length: int, facts: FactsWithinVectors) -> bool:
    """Whether in each aligned run of ``length`` elements along ``dim`` that are contiguous in memory the mask
    holds for the first few elements, none, or all.

    (As index arithmetic is taken not to wrap: ``i + k < n`` could hold again behind the largest integer.)"""
    if facts[mask].constancy[dim] >= length:
        return True
    op = mask.defining_op
    if op is not None and REARRANGING in op.traits:
        source = op.operands[0]
        dims = [d for d in range(len(T.shape_of(source.type))) if op.result_dim(0, d) == dim]
        return bool(dims) and is_prefix(source, dims[0], length, facts)
    rule = _PREFIXES.get(type(op))
    return rule is not None and rule(op, dim, length, facts)


def _and(op: AndI, dim: int, length: int, facts: FactsWithinVectors) -> bool:
    return all(is_prefix(v, dim, length, facts) for v in op.operands)


def _compare(op: CmpI, dim: int, length: int, facts: FactsWithinVectors) -> bool:
    if op.predicate not in _FALLING + _RISING:
        return False
    run, bound = op.operands if op.predicate in _FALLING else op.operands[::-1]
    return facts[run].contiguity[dim] >= length and facts[bound].constancy[dim] >= length


_PREFIXES: dict[type[Operation], Callable[..., bool]] = {AndI: _and, CmpI: _compare}


def vector_width(op: Operation, layout: Distributed, facts: AxisInfoAnalysis, limit_bytes: int) -> int:
    """How many elements one instruction of a memory access can move, at most ``limit_bytes``, when the access
    is in ``layout``."""
    type = op.pointer.type
    size = type.element.pointee.bytes
    dim, run = register_run(layout, type.shape)
    info = facts[op.pointer]
    aligned = max(1, info.divisibility[dim] // size)
    width = min(run, info.contiguity[dim], aligned, max(1, limit_bytes // size))
    if op.mask is not None:
        width = min(width, facts[op.mask].constancy[dim])
    return width
