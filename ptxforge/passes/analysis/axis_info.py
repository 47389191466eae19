"""What is known of the values of an integer or pointer tensor along each of its dimensions.

For every dimension ``d`` of a tensor (a scalar counts as one element in one dimension):

contiguity    the tensor falls into aligned runs of this length along ``d`` in which each value is one more
              than the value before it (a pointer: one element further);
divisibility  the largest known power of two that divides the first value of each of those runs (a pointer's
              value is its address in bytes);
constancy     the tensor falls into aligned runs of this length in which all values are equal.

    make_range 0 … 128           contiguity 128   divisibility 2**30   constancy 1
    splat of an i32 argument:16  contiguity 1     divisibility 16      constancy 128
    their sum                    contiguity 128   divisibility 16      constancy 1

All are powers of two, and 1 is always true. ``constant`` is the value when every element has the same known
one. The facts about loop-carried values are a fixpoint: what holds before the loop is assumed and weakened by
what the body yields until nothing changes. Hints of the user (``tl.multiple_of`` and its like) are attributes
of operations and parameters, and are believed, as is what ``tl.assume`` promises (``assumptions.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.ops.arith import (
    AddI,
    AndI,
    CmpI,
    DivSI,
    DivUI,
    MaxSI,
    MaxUI,
    MinSI,
    MinUI,
    MulI,
    OrI,
    RemSI,
    RemUI,
    Select,
    ShlI,
    ShrSI,
    ShrUI,
    SubI,
)
from ptxforge.ir.ops.cast import Bitcast, ExtSI, ExtUI, IntToPtr, PtrToInt, TruncI
from ptxforge.ir.ops.control import For, If, While
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.debug import Assume
from ptxforge.ir.ops.memory import AddPtr
from ptxforge.ir.ops.shape import Broadcast, Constant, ExpandDims, MakeRange, Reshape, Splat, Trans
from ptxforge.passes.analysis.assumptions import promised_constant, promised_divisor
from ptxforge.passes.analysis.sign import is_nonnegative

HIGHEST = 1 << 30
"""Stands for the divisibility of 0."""

_MAX_ROUNDS = 8


def power_of_two_in(value: int) -> int:
    """The largest power of two that divides ``value`` (at most ``HIGHEST``)."""
    return HIGHEST if value == 0 else min(HIGHEST, value & -value)


class AxisInfo:
    """Contiguity, divisibility and constancy per dimension, and the one value if it is known."""

    __slots__ = ("contiguity", "divisibility", "constancy", "constant")

    def __init__(
        self,
        contiguity: Sequence[int],
        divisibility: Sequence[int],
        constancy: Sequence[int],
        constant: int | None = None,
    ):
        self.contiguity = tuple(contiguity)
        self.divisibility = tuple(divisibility)
        self.constancy = tuple(constancy)
        self.constant = constant

    @property
    def rank(self) -> int:
        return len(self.contiguity)

    def divides(self, d: int, step: int) -> int:
        """What divides every ``step``-th value along ``d`` (``step`` a power of two),
        beginning with the first."""
        if self.contiguity[d] <= step:
            return self.divisibility[d]
        return min(self.divisibility[d], step)

    def join(self, other: AxisInfo) -> AxisInfo:
        """What holds of a value that is one of the two."""
        contiguity = tuple(map(min, self.contiguity, other.contiguity))
        return AxisInfo(
            contiguity,
            [min(self.divides(d, c), other.divides(d, c)) for d, c in enumerate(contiguity)],
            map(min, self.constancy, other.constancy),
            self.constant if self.constant == other.constant else None,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AxisInfo):
            return NotImplemented
        return (self.contiguity, self.divisibility, self.constancy, self.constant) == (
            other.contiguity, other.divisibility, other.constancy, other.constant)  # fmt: skip

    __hash__ = None

    def __repr__(self) -> str:
        text = f"contiguity {self.contiguity}, divisibility {self.divisibility}, constancy {self.constancy}"
        return text if self.constant is None else f"{text}, constant {self.constant}"


def unknown(type: T.Type) -> AxisInfo:
    """What is true of any value."""
    ones = (1,) * max(1, len(T.shape_of(type)))
    return AxisInfo(ones, ones, ones)


def constant_info(value: int, shape: tuple[int, ...]) -> AxisInfo:
    """A constant: runs of equal values as long as the dimensions."""
    ones = (1,) * max(1, len(shape))
    return AxisInfo(ones, (power_of_two_in(value),) * len(ones), shape or (1,), value)


class AxisInfoAnalysis:
    """Facts about all integer, pointer and ``i1`` values of a function. Ask with ``analysis[value]``.

    Values that appear after the analysis was made are analysed when asked for, if their operands are known.
    """

    def __init__(self, function: Function):
        self._info: dict[Value, AxisInfo] = {}
        self._has_promises = any(isinstance(op, Assume) for op in function.walk())
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
        rule = _RULES.get(type(op))
        info = rule(op, [self[v] for v in op.operands]) if rule is not None else unknown(result.type)
        if op.attributes:
            info = _with_hints(info, op.attributes, result.type)
        self._info[result] = self._with_promises(info, result)

    def derived(self, op: Operation) -> AxisInfo:
        """What follows of the operands for the only result of ``op``, whatever the user promised of that."""
        rule = _RULES.get(type(op))
        return rule(op, [self[v] for v in op.operands]) if rule is not None else unknown(op.result.type)

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


# -- rules: (operation, facts about its operands) -> facts about its result ----------------------------

Rule = Callable[[Operation, list[AxisInfo]], AxisInfo]
_RULES: dict[type[Operation], Rule] = {}


def _rule(*kinds: type[Operation]) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for kind in kinds:
            _RULES[kind] = rule
        return rule

    return register


def _both_constant(x: AxisInfo, y: AxisInfo) -> bool:
    return x.constant is not None and y.constant is not None


def _wrapped(value: int, type: T.Type) -> int:
    """``value`` as a signed integer of ``type``'s width."""
    bits = T.element_type(type).bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def _known(op: Operation, value: int) -> AxisInfo:
    type = op.result.type
    return constant_info(_wrapped(value, type), T.shape_of(type))


@_rule(Constant)
def _constant(op: Constant, operands: list[AxisInfo]) -> AxisInfo:
    return constant_info(int(op.value), T.shape_of(op.result.type))


@_rule(MakeRange)
def _make_range(op: MakeRange, operands: list[AxisInfo]) -> AxisInfo:
    return AxisInfo((op.end - op.start,), (power_of_two_in(op.start),), (1,))


@_rule(Splat)
def _splat(op: Splat, operands: list[AxisInfo]) -> AxisInfo:
    (x,), shape = operands, op.result.type.shape
    return AxisInfo((1,) * len(shape), x.divisibility * len(shape), shape, x.constant)


@_rule(ExpandDims)
def _expand_dims(op: ExpandDims, operands: list[AxisInfo]) -> AxisInfo:
    (x,), axis = operands, op.axis
    # Along the new dimension every element is a run of its own, so only what divides all elements counts.
    everywhere = max(x.divides(d, 1) for d in range(x.rank))
    divisibility = x.divisibility[:axis] + (everywhere,) + x.divisibility[axis:]
    contiguity = x.contiguity[:axis] + (1,) + x.contiguity[axis:]
    return AxisInfo(contiguity, divisibility, x.constancy[:axis] + (1,) + x.constancy[axis:], x.constant)


@_rule(Broadcast)
def _broadcast(op: Broadcast, operands: list[AxisInfo]) -> AxisInfo:
    (x,), source, shape = operands, op.x.type.shape, op.result.type.shape
    constancy = [new if old == 1 else c for old, new, c in zip(source, shape, x.constancy)]
    return AxisInfo(x.contiguity, x.divisibility, constancy, x.constant)


@_rule(Trans)
def _trans(op: Trans, operands: list[AxisInfo]) -> AxisInfo:
    (x,) = operands
    fields = [[field[d] for d in op.order] for field in (x.contiguity, x.divisibility, x.constancy)]
    return AxisInfo(*fields, x.constant)


@_rule(Reshape)
def _reshape(op: Reshape, operands: list[AxisInfo]) -> AxisInfo:
    """Only the last dimension keeps its facts, as far as it is not cut; the others keep nothing."""
    (x,), source, shape = operands, op.x.type.shape, op.result.type.shape
    info = unknown(op.result.type)
    if x.constant is not None:
        return constant_info(x.constant, shape)
    if op.allow_reorder or not source:
        return info
    last = min(source[-1], shape[-1])
    contiguity = min(x.contiguity[-1], last)
    return AxisInfo(
        info.contiguity[:-1] + (contiguity,),
        info.divisibility[:-1] + (x.divides(-1, contiguity),),
        info.constancy[:-1] + (min(x.constancy[-1], last),),
    )


@_rule(ConvertLayout)
def _same(op: Operation, operands: list[AxisInfo]) -> AxisInfo:
    return operands[0]


@_rule(Bitcast)
def _bitcast(op: Bitcast, operands: list[AxisInfo]) -> AxisInfo:
    """Addresses and integers keep their values; the runs of a pointer are counted in its elements."""
    (x,) = operands
    source, target = T.element_type(op.x.type), op.target
    if isinstance(source, T.PointerType) and isinstance(target, T.PointerType):
        return x if source.pointee.bytes == target.pointee.bytes else _without_runs(x)
    is_integer = isinstance(source, T.ScalarType) and source.is_int and target.is_int
    return x if is_integer else unknown(op.result.type)


def _without_runs(x: AxisInfo) -> AxisInfo:
    """Facts that hold of each single element."""
    return AxisInfo((1,) * x.rank, [x.divides(d, 1) for d in range(x.rank)], x.constancy)


@_rule(ExtSI, ExtUI, TruncI)
def _extend(op: Operation, operands: list[AxisInfo]) -> AxisInfo:
    """Index arithmetic is taken not to wrap (see ``ir.ops.memory``), so runs stay runs."""
    (x,) = operands
    if x.constant is None:
        return x
    value = x.constant
    if isinstance(op, ExtUI):
        value &= (1 << T.element_type(op.x.type).bits) - 1
    elif isinstance(op, ExtSI) and T.element_type(op.x.type) is T.I1:
        value = -value
    return _known(op, value)


@_rule(PtrToInt)
def _ptr_to_int(op: PtrToInt, operands: list[AxisInfo]) -> AxisInfo:
    (x,) = operands
    size = T.element_type(op.x.type).pointee.bytes
    return x if size == 1 else _bytes_apart(x, size)


def _bytes_apart(x: AxisInfo, size: int) -> AxisInfo:
    """A run of addresses ``size`` bytes apart is no run of integers:
    each address is divisible by ``size`` too."""
    divisibility = [
        x.divisibility[d] if x.contiguity[d] == 1 else min(x.divisibility[d], size) for d in range(x.rank)
    ]
    return AxisInfo((1,) * x.rank, divisibility, x.constancy)


@_rule(IntToPtr)
def _int_to_ptr(op: IntToPtr, operands: list[AxisInfo]) -> AxisInfo:
    (x,) = operands
    return x if op.target.pointee.bytes == 1 else _without_runs(x)


def _sum(x: AxisInfo, y: AxisInfo, scale: int, is_difference: bool) -> AxisInfo:
    """x + scale·y (or x - y). Runs survive where the other operand is constant over them."""
    contiguity, divisibility, constancy = [], [], []
    for d in range(x.rank):
        run = min(x.contiguity[d], y.constancy[d])
        if not is_difference:
            run = max(run, min(y.contiguity[d], x.constancy[d]))
        contiguity.append(run)
        divisibility.append(min(x.divides(d, run), y.divides(d, run) * scale, HIGHEST))
        constancy.append(min(x.constancy[d], y.constancy[d]))
    return AxisInfo(contiguity, divisibility, constancy)


@_rule(AddI, SubI)
def _add(op: Operation, operands: list[AxisInfo]) -> AxisInfo:
    x, y = operands
    is_difference = isinstance(op, SubI)
    if _both_constant(x, y):
        return _known(op, x.constant - y.constant if is_difference else x.constant + y.constant)
    return _sum(x, y, 1, is_difference)


@_rule(AddPtr)
def _addptr(op: AddPtr, operands: list[AxisInfo]) -> AxisInfo:
    """A pointer's runs are counted in elements but its divisibility in bytes."""
    pointer, offset = operands
    size = T.element_type(op.pointer.type).pointee.bytes
    contiguity, divisibility, constancy = [], [], []
    for d in range(pointer.rank):
        run = max(
            min(pointer.contiguity[d], offset.constancy[d]), min(offset.contiguity[d], pointer.constancy[d])
        )
        contiguity.append(run)
        base = pointer.divisibility[d]
        if pointer.contiguity[d] > run:
            base = min(base, run * power_of_two_in(size))
        divisibility.append(min(base, offset.divides(d, run) * power_of_two_in(size), HIGHEST))
        constancy.append(min(pointer.constancy[d], offset.constancy[d]))
    return AxisInfo(contiguity, divisibility, constancy)


@_rule(MulI)
def _multiply(op: MulI, operands: list[AxisInfo]) -> AxisInfo:
    x, y = operands
    if _both_constant(x, y):
        return _known(op, x.constant * y.constant)
    if y.constant == 1:
        return x
    if x.constant == 1:
        return y
    divisibility = [min(HIGHEST, x.divides(d, 1) * y.divides(d, 1)) for d in range(x.rank)]
    return AxisInfo((1,) * x.rank, divisibility, map(min, x.constancy, y.constancy))


@_rule(ShlI)
def _shift_left(op: ShlI, operands: list[AxisInfo]) -> AxisInfo:
    x, y = operands
    if y.constant is None or not 0 <= y.constant < 31:
        return _pointwise(op, operands)
    if x.constant is not None:
        return _known(op, x.constant << y.constant)
    if y.constant == 0:
        return x
    divisibility = [min(HIGHEST, x.divides(d, 1) << y.constant) for d in range(x.rank)]
    return AxisInfo((1,) * x.rank, divisibility, x.constancy)


@_rule(DivSI, DivUI, ShrSI, ShrUI)
def _divide(op: Operation, operands: list[AxisInfo]) -> AxisInfo:
    """Runs become runs of equal values: as long as the largest power of two that divides their starts and the
    divisor, because no multiple of the divisor lies inside one."""
    x, y = operands
    by = _divisor(op, y)
    if by is None or (isinstance(op, DivSI) and not is_nonnegative(op.lhs)):
        # Truncation makes -4 / 4 differ from -3 / 4: a run that starts below 0 breaks.
        return _pointwise(op, operands)
    if by == 1:
        return x
    if x.constant is not None and (x.constant >= 0 or isinstance(op, ShrSI)):
        return _known(op, x.constant // by)
    constancy, divisibility = [], []
    step = power_of_two_in(by)
    for d in range(x.rank):
        stays = x.constancy[d]
        if x.contiguity[d] > 1:
            stays = max(stays, min(x.contiguity[d], x.divisibility[d], step))
        constancy.append(stays)
        divisibility.append(_quotient_divisibility(x, d, by) if by == step else 1)
    return AxisInfo((1,) * x.rank, divisibility, constancy)


def _quotient_divisibility(x: AxisInfo, d: int, by: int) -> int:
    """What divides every quotient by a power of two: of a run that is not longer, that of its first value."""
    divides = x.divisibility[d] if x.contiguity[d] <= by else x.divides(d, 1)
    return max(1, divides // by)


def _divisor(op: Operation, y: AxisInfo) -> int | None:
    """The positive constant that the operation divides by."""
    if y.constant is None:
        return None
    if isinstance(op, (ShrSI, ShrUI)):
        return 1 << y.constant if 0 <= y.constant < 31 else None
    return y.constant if y.constant > 0 else None


@_rule(RemSI, RemUI)
def _remainder(op: Operation, operands: list[AxisInfo]) -> AxisInfo:
    """Runs shorter than what divides both start and divisor stay runs."""
    x, y = operands
    if _both_constant(x, y) and x.constant >= 0 and y.constant > 0:
        return _known(op, x.constant % y.constant)
    known_sign = isinstance(op, RemUI) or is_nonnegative(op.lhs)
    contiguity, divisibility = [], []
    for d in range(x.rank):
        run = 1
        if y.constancy[d] >= x.contiguity[d] and known_sign:
            run = min(x.contiguity[d], x.divisibility[d], y.divides(d, 1))
        contiguity.append(run)
        divisibility.append(min(x.divides(d, run), y.divides(d, 1)))
    return AxisInfo(contiguity, divisibility, map(min, x.constancy, y.constancy))


@_rule(AndI)
def _and(op: AndI, operands: list[AxisInfo]) -> AxisInfo:
    x, y = operands
    if _both_constant(x, y):
        return _known(op, x.constant & y.constant)
    for value, mask in ((x, y), (y, x)):
        if mask.constant is not None and mask.constant > 0 and (mask.constant + 1) & mask.constant == 0:
            return _low_bits(value, mask.constant + 1)
    # The low zero bits of either operand are zero in the result.
    divisibility = [max(x.divides(d, 1), y.divides(d, 1)) for d in range(x.rank)]
    return AxisInfo((1,) * x.rank, divisibility, map(min, x.constancy, y.constancy))


def _low_bits(x: AxisInfo, modulus: int) -> AxisInfo:
    contiguity = [min(x.contiguity[d], x.divisibility[d], modulus) for d in range(x.rank)]
    divisibility = [x.divides(d, run) for d, run in enumerate(contiguity)]
    return AxisInfo(contiguity, divisibility, x.constancy)


@_rule(OrI)
def _or(op: OrI, operands: list[AxisInfo]) -> AxisInfo:
    x, y = operands
    if _both_constant(x, y):
        return _known(op, x.constant | y.constant)
    divisibility = [min(x.divides(d, 1), y.divides(d, 1)) for d in range(x.rank)]
    return AxisInfo((1,) * x.rank, divisibility, map(min, x.constancy, y.constancy))


@_rule(MaxSI, MaxUI, MinSI, MinUI)
def _extreme(op: Operation, operands: list[AxisInfo]) -> AxisInfo:
    x, y = operands
    if _both_constant(x, y) and x.constant >= 0 and y.constant >= 0:
        choose = max if isinstance(op, (MaxSI, MaxUI)) else min
        return _known(op, choose(x.constant, y.constant))
    divisibility = [min(x.divides(d, 1), y.divides(d, 1)) for d in range(x.rank)]
    return AxisInfo((1,) * x.rank, divisibility, map(min, x.constancy, y.constancy))


@_rule(Select)
def _select(op: Select, operands: list[AxisInfo]) -> AxisInfo:
    """Where the condition is constant over a run, the run is one of the two."""
    condition, x, y = operands
    if condition.constant is not None:
        return x if condition.constant else y
    either = x.join(y)
    over = condition.constancy if condition.rank == x.rank else T.shape_of(op.result.type) or (1,)
    contiguity = tuple(map(min, either.contiguity, over))
    divisibility = [min(x.divides(d, run), y.divides(d, run)) for d, run in enumerate(contiguity)]
    return AxisInfo(contiguity, divisibility, map(min, either.constancy, over), either.constant)


_TESTS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
    "slt": lambda x, y: x < y, "sle": lambda x, y: x <= y, "sgt": lambda x, y: x > y,
    "sge": lambda x, y: x >= y,
}  # fmt: skip
_FLIPS_BELOW = ("slt", "sge", "ult", "uge")
_FLIPS_ABOVE = ("sgt", "sle", "ugt", "ule")


@_rule(CmpI)
def _compare(op: CmpI, operands: list[AxisInfo]) -> AxisInfo:
    """``i < n`` over a run of ``i`` changes at ``n`` only: with run starts and ``n`` divisible by ``g``, it
    is constant over runs of ``g``. (``i <= n`` changes at ``n + 1``, of which nothing is known.)"""
    x, y = operands
    if _both_constant(x, y) and op.predicate in _TESTS:
        return constant_info(int(_TESTS[op.predicate](x.constant, y.constant)), T.shape_of(op.result.type))
    constancy = []
    for d in range(x.rank):
        same = min(x.constancy[d], y.constancy[d])
        if op.predicate in _FLIPS_BELOW:
            same = max(same, _constant_up_to(x, y, d))
        elif op.predicate in _FLIPS_ABOVE:
            same = max(same, _constant_up_to(y, x, d))
        constancy.append(same)
    ones = (1,) * x.rank
    return AxisInfo(ones, ones, constancy)


def _constant_up_to(run: AxisInfo, bound: AxisInfo, d: int) -> int:
    """Over how many elements ``run < bound`` does not change."""
    length = min(run.contiguity[d], bound.constancy[d])
    return min(length, run.divisibility[d], bound.divides(d, 1))


def _pointwise(op: Operation, operands: list[AxisInfo]) -> AxisInfo:
    """An operation of which only this is known: equal operands give equal results."""
    constancy = [math.gcd(*(x.constancy[d] for x in operands)) for d in range(operands[0].rank)]
    ones = (1,) * operands[0].rank
    return AxisInfo(ones, ones, constancy)
