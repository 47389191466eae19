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
one. Operations say what follows for their results (``Operation.axis_info``), by the functions here;
``passes/analysis/axis_info.py`` carries the facts through a function.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.ir import types as T

HIGHEST = 1 << 30
"""Stands for the divisibility of 0."""


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


def without_runs(x: AxisInfo) -> AxisInfo:
    """Facts that hold of each single element."""
    return AxisInfo((1,) * x.rank, [x.divides(d, 1) for d in range(x.rank)], x.constancy)


def pointwise(operands: Sequence[AxisInfo], divisibility: Sequence[int] | None = None) -> AxisInfo:
    """Equal operands give equal results; what ``divisibility`` says divides each of them."""
    ones = (1,) * operands[0].rank
    constancy = operands[0].constancy
    for x in operands[1:]:
        constancy = map(min, constancy, x.constancy)
    return AxisInfo(ones, divisibility or ones, constancy)


def both_divide(x: AxisInfo, y: AxisInfo) -> list[int]:
    """What divides every value of both, along each dimension."""
    return [min(x.divides(d, 1), y.divides(d, 1)) for d in range(x.rank)]


def sum_of(x: AxisInfo, y: AxisInfo, is_difference: bool = False) -> AxisInfo:
    """x + y (or x - y). Runs survive where the other operand is constant over them."""
    contiguity, divisibility, constancy = [], [], []
    for d in range(x.rank):
        run = min(x.contiguity[d], y.constancy[d])
        if not is_difference:
            run = max(run, min(y.contiguity[d], x.constancy[d]))
        contiguity.append(run)
        divisibility.append(min(x.divides(d, run), y.divides(d, run)))
        constancy.append(min(x.constancy[d], y.constancy[d]))
    return AxisInfo(contiguity, divisibility, constancy)


def element_of(pointer: AxisInfo, offset: AxisInfo, size: int) -> AxisInfo:
    """``pointer + offset`` elements of ``size`` bytes: a pointer's runs are counted in elements but its
    divisibility in bytes."""
    unit = power_of_two_in(size)
    contiguity, divisibility, constancy = [], [], []
    for d in range(pointer.rank):
        run = max(
            min(pointer.contiguity[d], offset.constancy[d]), min(offset.contiguity[d], pointer.constancy[d])
        )
        contiguity.append(run)
        base = pointer.divisibility[d]
        if pointer.contiguity[d] > run:
            base = min(base, run * unit)
        divisibility.append(min(base, offset.divides(d, run) * unit, HIGHEST))
        constancy.append(min(pointer.constancy[d], offset.constancy[d]))
    return AxisInfo(contiguity, divisibility, constancy)


def addresses(x: AxisInfo, size: int) -> AxisInfo:
    """Pointers to ``size`` bytes as integers: a run of addresses ``size`` bytes apart is no run of integers,
    but each of them is divisible by ``size`` too."""
    if size == 1:
        return x
    divisibility = [
        x.divisibility[d] if x.contiguity[d] == 1 else min(x.divisibility[d], size) for d in range(x.rank)
    ]
    return AxisInfo((1,) * x.rank, divisibility, x.constancy)


def quotient(x: AxisInfo, by: int) -> AxisInfo:
    """``x`` (not negative, or rounded down) divided by the positive ``by``: runs become runs of equal values,
    as long as the largest power of two that divides their starts and the divisor, because no multiple of the
    divisor lies inside one."""
    if by == 1:
        return x
    constancy, divisibility = [], []
    step = power_of_two_in(by)
    for d in range(x.rank):
        stays = x.constancy[d]
        if x.contiguity[d] > 1:
            stays = max(stays, min(x.contiguity[d], x.divisibility[d], step))
        constancy.append(stays)
        # Of a run that is not longer than the divisor, all quotients are that of its first value.
        divides = x.divisibility[d] if x.contiguity[d] <= by else x.divides(d, 1)
        divisibility.append(max(1, divides // by) if by == step else 1)
    return AxisInfo((1,) * x.rank, divisibility, constancy)


def quotient_by_value(x: AxisInfo, y: AxisInfo) -> AxisInfo:
    """``x`` (not negative) divided by ``y``: equal as long as the remainder runs on."""
    runs = remainder(x, y, True).contiguity
    return AxisInfo((1,) * x.rank, (1,) * x.rank, map(max, runs, map(min, x.constancy, y.constancy)))


def remainder(x: AxisInfo, y: AxisInfo, is_nonnegative: bool) -> AxisInfo:
    """``x`` modulo ``y``: runs shorter than what divides both start and divisor stay runs."""
    contiguity, divisibility = [], []
    for d in range(x.rank):
        run = 1
        if y.constancy[d] >= x.contiguity[d] and is_nonnegative:
            run = min(x.contiguity[d], x.divisibility[d], y.divides(d, 1))
        contiguity.append(run)
        divisibility.append(min(x.divides(d, run), y.divides(d, 1)))
    return AxisInfo(contiguity, divisibility, map(min, x.constancy, y.constancy))


def low_bits(x: AxisInfo, modulus: int) -> AxisInfo:
    """``x`` modulo a power of two, never negative."""
    contiguity = [min(x.contiguity[d], x.divisibility[d], modulus) for d in range(x.rank)]
    divisibility = [x.divides(d, run) for d, run in enumerate(contiguity)]
    return AxisInfo(contiguity, divisibility, x.constancy)


def one_of(condition: AxisInfo, x: AxisInfo, y: AxisInfo, shape: tuple[int, ...]) -> AxisInfo:
    """``x`` where the condition holds, else ``y``: where the condition is constant over a run, the run is one
    of the two."""
    if condition.constant is not None:
        return x if condition.constant else y
    either = x.join(y)
    over = condition.constancy if condition.rank == x.rank else shape or (1,)
    contiguity = tuple(map(min, either.contiguity, over))
    divisibility = [min(x.divides(d, run), y.divides(d, run)) for d, run in enumerate(contiguity)]
    return AxisInfo(contiguity, divisibility, map(min, either.constancy, over), either.constant)


def constant_up_to(run: AxisInfo, bound: AxisInfo) -> list[int]:
    """Over how many elements ``run < bound`` does not change, along each dimension: it does at the bound
    only, so that with run starts and bound divisible by ``g`` it is constant over runs of ``g``. (``<=``
    changes one further, of which nothing is known.)"""
    lengths = []
    for d in range(run.rank):
        length = min(run.contiguity[d], bound.constancy[d])
        lengths.append(min(length, run.divisibility[d], bound.divides(d, 1)))
    return lengths


def reshaped(x: AxisInfo, source: tuple[int, ...], result: T.TensorType) -> AxisInfo:
    """Of a reshape only the last dimension keeps its facts, as far as it is not cut."""
    info, last = unknown(result), min(source[-1], result.shape[-1])
    contiguity = min(x.contiguity[-1], last)
    return AxisInfo(
        info.contiguity[:-1] + (contiguity,),
        info.divisibility[:-1] + (x.divides(-1, contiguity),),
        info.constancy[:-1] + (min(x.constancy[-1], last),),
    )


def expanded(x: AxisInfo, axis: int) -> AxisInfo:
    """With a new dimension of one element. Along it every element is a run of its own, so only what divides
    all elements counts."""
    everywhere = max(x.divides(d, 1) for d in range(x.rank))
    fields = ((x.contiguity, 1), (x.divisibility, everywhere), (x.constancy, 1))
    return AxisInfo(*(field[:axis] + (new,) + field[axis:] for field, new in fields), x.constant)


def divided(operands: list[AxisInfo], by: int | None) -> AxisInfo:
    """What is known of the first operand divided by ``by``, or by the second one; by 0 says nothing."""
    if by is None:
        return quotient_by_value(*operands)
    return pointwise(operands) if by <= 0 else quotient(operands[0], by)
