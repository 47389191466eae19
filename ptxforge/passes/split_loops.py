"""A loop of which a mask holds for all elements of most iterations' tiles does these in a loop without it.

    for %j = %zero to (%start + 128) step 128 {                             (before: causal attention)
      %s = dot …
      %c = cmpi sge, (%start + 0 … 127), (%j + 0 … 127)
      %m = select %c, %s, -inf … }

    for %j = %zero to %start step 128 { %s = dot … }                        (after: below the diagonal)
    for %j = %start to (%start + 128) step 128 {                            (… and on it)
      %s = dot …; %c = cmpi …; %m = select %c, %s, -inf … }

Both loops then go the way of two that were written so: the second's copies continue those of the first
(``continued_rings.py``). Where the mask holds from a point on (the gradients of keys, whose rows begin on the
diagonal), the first loop is the one that has it.

Rules
-----
WANTED    Innermost loops with products. A thread has at least ``SELECTIONS_WORTH_A_LOOP`` elements of what a
          loop of its own saves in each iteration: comparisons, and selections if nothing is left of their
          condition. Loops of few iterations (``SHORT_CHAIN``, if it is known) stay.
CROSSING  A condition is a comparison of indices that the loop's counter moves (``analysis/crossings.py``), or
          a conjunction of some (where it is to hold), or a disjunction (where it is not to). One point
          serves all that are crossed in one direction; of two directions, that one counts which saves more.
          Masks of loads are left as they are.
KNOWN     Where the point is a multiple of the step away from the loop's beginning as its terms say, and
          surely between beginning and end, it is a scalar that is there already, or one plus a constant. That
          nothing wraps is proven by limits: of program numbers for so many programs as ``use_limits``
          assumes, too (``most_programs``).
GUARDED   Else the point is computed in 64 bits, whole steps behind the beginning. No iteration goes without
          its mask if a side of a comparison might wrap. Pointers that the loop carries are then unknown to
          the second loop; what TMA would copy by them keeps the loop whole.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import REARRANGING
from ptxforge.ir.ops.arith import AndI, CmpI, OrI, Select
from ptxforge.ir.ops.control import For, Loop
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.rewriter import constant_everywhere, constant_of
from ptxforge.ir.warps import warps_of
from ptxforge.passes.analysis.crossings import Crossing, crossing_of
from ptxforge.passes.points import Bounds, point_of
from ptxforge.support.machine import SELECTIONS_WORTH_A_LOOP, SHORT_CHAIN
from ptxforge.support.target import Target


def split_loops(function: Function, target: Target) -> bool:
    """Split every loop for which that is worth it."""
    changed = False
    for loop in function.walk(For):
        if _is_wanted(loop):
            changed |= _split(function, loop, target)
    return changed


def _is_wanted(loop: For) -> bool:
    body = loop.body
    return not loop.is_part and any(body.of(Select)) and any(body.of(Product)) and not body.walk(Loop)


def _split(function: Function, loop: For, target: Target) -> bool:
    masks = _masks(loop)
    if not masks or _is_short(loop):
        return False
    is_early, masks = _better_direction(masks)
    threads = warps_of(function).threads * function.attributes.get("num_ctas", 1)
    if _saved(masks) < SELECTIONS_WORTH_A_LOOP * threads:
        return False
    crossings = [crossing for mask in masks for crossing in mask.crossings]
    place = crossings[0].compare.location
    why = _why_whole(loop)
    point = None if why else point_of(function, loop, crossings)
    if point is not None and not point.is_exact and target.has_tma and _carries_pointers(loop):
        why, point = "it carries pointers, whose value behind the first part is known to no tensor map", None
    if why:
        function.remarks.add("not-split", f"{_what(crossings[0])}, but its loop stays whole: {why}", place)
    if point is None or point.is_outside:
        return False
    _make_two(loop, masks, is_early, point.build(Builder.at(loop)))
    point.note(function)
    loops = "a loop of its own does its other iterations without that"
    function.remarks.add("split", f"{_what(crossings[0])}; {loops}", place)
    return True


def _what(crossing: Crossing) -> str:
    where = "last" if crossing.is_early else "first"
    return f"only the {where} iterations have elements for which this comparison differs"


def _is_short(loop: For) -> bool:
    bounds = [constant_of(v) for v in (loop.lower, loop.upper, loop.step)]
    return None not in bounds and bounds[2] > 0 and len(range(*bounds)) <= SHORT_CHAIN


def _why_whole(loop: For) -> str:
    """What an author asked for that two loops would not give."""
    step = constant_of(loop.step)
    if step is None or step <= 0 or loop.lower.type is not T.I32:
        return "its step is not known, or its counter has 64 bits"
    if loop.warp_specialize or loop.unroll > 1:
        return "it asks for warps that copy, or to be unrolled"
    around = loop.parent_op
    while around is not None:
        if around.is_counted and around.flatten:
            return "the loop around asks to be flattened"
        around = around.parent_op
    return ""


def _carries_pointers(loop: For) -> bool:
    return any(isinstance(T.element_type(value.type), T.PointerType) for value in loop.carried)


# -- masks -------------------------------------------------------------------------------------------------


@attrs.frozen
class _Mask:
    """A selection of which the condition's ``leaves`` are comparisons, to be what ``holds`` says; some of
    them are crossed."""

    select: Select
    holds: bool
    leaves: tuple[Value, ...]
    crossings: tuple[Crossing, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left of the condition behind the crossings."""
        return len(self.crossings) == len(self.leaves)


def _masks(loop: For) -> list[_Mask]:
    return [mask for select in loop.body.of(Select) if (mask := _mask(select, loop)) is not None]


def _mask(select: Select, loop: For) -> _Mask | None:
    if not isinstance(select.condition.type, T.TensorType):
        return None
    holds = _is_kept_if_true(select)
    leaves = tuple(dict.fromkeys(_leaves(select.condition, holds)))
    compares = [v.defining_op for v in leaves if isinstance(v.defining_op, CmpI)]
    found = [crossing_of(compare, holds, loop) for compare in compares]
    crossings = tuple(crossing for crossing in found if crossing is not None)
    return _Mask(select, holds, leaves, crossings) if crossings else None


def _is_kept_if_true(select: Select) -> bool:
    """Which condition leaves what is computed, rather than putting a constant in its place."""
    is_constant = [constant_everywhere(v) is not None for v in (select.true_value, select.false_value)]
    if is_constant[0] == is_constant[1]:
        return not isinstance(select.condition.defining_op, OrI)
    return not is_constant[0]


def _leaves(condition: Value, holds: bool) -> Iterator[Value]:
    """The values that all have to be what ``holds`` says for the condition to be."""
    op = condition.defining_op
    if isinstance(op, AndI if holds else OrI):
        for operand in op.operands:
            yield from _leaves(operand, holds)
    elif op is not None and REARRANGING in op.traits:
        yield from _leaves(op.operands[0], holds)
    else:
        yield condition


def _better_direction(masks: list[_Mask]) -> tuple[bool, list[_Mask]]:
    """Whether the early crossings of ``masks`` save more than the late ones, and the masks with these."""
    early, late = ([_only(mask, is_early) for mask in masks] for is_early in (True, False))
    early, late = ([mask for mask in found if mask.crossings] for found in (early, late))
    is_early = _saved(early) >= _saved(late)
    return is_early, early if is_early else late


def _only(mask: _Mask, is_early: bool) -> _Mask:
    return attrs.evolve(mask, crossings=tuple(c for c in mask.crossings if c.is_early == is_early))


def _saved(masks: list[_Mask]) -> int:
    """How many elements are compared and selected for these masks."""
    compares = {crossing.compare.result for mask in masks for crossing in mask.crossings}
    selects = {mask.select.result for mask in masks if mask.is_whole}
    return sum(math.prod(T.shape_of(value.type)) for value in compares | selects)


# -- two loops ---------------------------------------------------------------------------------------------


def _make_two(loop: For, masks: list[_Mask], is_early: bool, bounds: Bounds) -> None:
    """``loop`` becomes the second one; ``bounds`` are where the first one ends, and the second one begins and
    ends."""
    mapping: dict[Value, Value] = {}
    loop.is_part = True
    first = loop.clone(mapping)
    loop.parent.insert_before(loop, first)
    first.set_operand(1, bounds[0])
    loop.set_operands((bounds[1], bounds[2], loop.step, *first.results))
    for mask in masks:
        _drop(mask, mapping if is_early else {})


def _drop(mask: _Mask, mapping: dict[Value, Value]) -> None:
    """Take the comparisons that are crossed out of a selection, of the copy of its loop that ``mapping``
    leads to."""
    select = mapping.get(mask.select.result, mask.select.result).defining_op
    crossed = {crossing.compare.result for crossing in mask.crossings}
    gone = {mapping.get(value, value) for value in crossed}
    condition = _without(select.condition, gone, AndI if mask.holds else OrI, Builder.at(select))
    if condition is None:
        select.replace_with([select.true_value if mask.holds else select.false_value])
    else:
        select.set_operand(0, condition)


def _without(condition: Value, gone: set[Value], joining: type[Operation], builder: Builder) -> Value | None:
    """A condition that is joined of fewer, None if of no more."""
    op = condition.defining_op
    if condition in gone:
        return None
    if isinstance(op, joining):
        left = [found for v in op.operands if (found := _without(v, gone, joining, builder)) is not None]
        return functools.reduce(functools.partial(builder.value, joining), left) if left else None
    if op is None or REARRANGING not in op.traits:
        return condition
    inner = _without(op.operands[0], gone, joining, builder)
    if inner is None or inner is op.operands[0]:
        return None if inner is None else condition
    return builder.value(type(op), inner, type=condition.type, **op.attributes)
