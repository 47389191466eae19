"""Choose among the sequences of instructions that an operation can be made of.

    %w:3 = reduce %x, %y, %z {axis = 0} …                                   (before)
    %v, %j = reduce %x, %i {axis = 0} …
    %s = scan %x {axis = 0} …
    %e = exp %x : tensor<1024xf32, #blocked>
    %q = divf %x, %y : tensor<1024xf32, #blocked>
    %r = remsi %i, %n : tensor<1024xi32, #blocked>
    %s = remsi %j, %d : i32;  %t = divsi %j, %d : i32
    %m = cmpi %i, %n {predicate = "slt"} : …
    %t = extui %b : (tensor<1024xi1, #blocked>) -> tensor<1024xi8, #blocked>
    %q = addptr %p, %step : ptr<f32>;  yield %q

    %w:3 = reduce %x, %y, %z {axis = 0, by_lanes = true} …                  (after)
    %v, %j = reduce %x, %i {agreed = true, axis = 0} …
    %s = scan %x {axis = 0, by_lanes = true, lanes_at_once = 5} …
    %e = exp %x {together = [8, 128, 4]} : tensor<1024xf32, #blocked>
    %q = divf %x, %y {reciprocal_from = 4} : tensor<1024xf32, #blocked>
    %r = remsi %i, %n {mostly_inside = true} : tensor<1024xi32, #blocked>
    %s = remsi %j, %d {by_quotient = true} : i32;  …
    %t = tan %x {reduced_together = 8} : tensor<1024xf32, #blocked>
    %m = cmpi %i, %n {differences_from = 3, predicate = "slt"} : …
    %t = extui %b {in_words = true} : (tensor<1024xi1, #blocked>) -> tensor<1024xi8, #blocked>
    %q = addptr %p, %step {deferred = true} : ptr<f32>

What each attribute says stands in the operation's definition. All sequences of an operation mean the same;
without an attribute it is made of the plainest one. How many values of a tensor are equal in a thread shows
only in its instructions: so a number says *from how many on*, and the code generator counts.

A remainder of 32 bits is what a quotient leaves (``by_quotient``) only in functions without products of
matrices: other instructions in front of their loops make the assembler schedule those otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import EXPENSIVE, PRODUCTS, UNIFORM
from ptxforge.ir.ops.arith import (
    AndI,
    CmpI,
    DivF,
    DivSI,
    DivUI,
    OrI,
    RemSI,
    RemUI,
    XorI,
)
from ptxforge.ir.ops.cast import ExtUI
from ptxforge.ir.ops.control import Yield, ancestors, loops_around
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.math import Cos, Exp, Periodic, Sin, Tan
from ptxforge.ir.ops.memory import AddPtr
from ptxforge.ir.ops.reduce import Associative, Reduce, Scan
from ptxforge.ir.pressure import holders_at_the_peak, room, streams_much
from ptxforge.ir.rewriter import constant_of
from ptxforge.layouts.encodings import elements_per_thread
from ptxforge.layouts.linear import LANE, WARP, LinearLayout
from ptxforge.layouts.scratch import axis_bits, deal_out, first_lane_run, warp_runs
from ptxforge.passes.own_loads import is_only_stored
from ptxforge.support import machine
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def choose_sequences(function: Function, target: Target) -> bool:
    """Write the choice on every operation that has one."""
    choices = {op: _CHOICES[type(op)](op) for op in function.walk(tuple(_CHOICES))}
    with_branch = [choice for choice in choices.values() if choice.get("together")]
    if with_branch and (_is_crowded(function) or streams_much(function)):
        # A branch would keep all values of a tile: without one the assembler computes a few at a time.
        for choice in with_branch:
            choice["together"] = ()
    if function.has(Product):
        for op, choice in choices.items():
            if choice.get("by_quotient"):
                choice["by_quotient"] = T.element_type(op.result.type).bits > 32
    changes = [(op, name, value) for op, choice in choices.items() for name, value in choice.items()
               if getattr(op, name) != value]
    for change in changes:
        setattr(*change)
    return bool(changes)


# -- reductions and scans ----------------------------------------------------------------------------------


def _reduce(op: Reduce) -> dict[str, object]:
    source, result = op.inputs[0].type, op.results[0].type
    linear = source.layout.linear(source.shape)
    warp_bits = len(axis_bits(linear, op.axis, WARP))
    if not warp_bits:
        return {"agreed": bool(axis_bits(linear, op.axis, LANE)) and _may_disagree(op)}
    is_single = not isinstance(result, T.TensorType) or result.numel == 1
    by_lanes = is_single and _is_butterfly_shorter(op, warp_bits)
    dealt_out = not is_single and _is_dealing_out_shorter(op, linear, warp_bits)
    has_neighbours = not is_single and result.layout.linear(result.shape).num_consecutive_in_out() > 1
    return {
        "by_lanes": by_lanes, "agreed": by_lanes and _may_disagree(op), "dealt_out": dealt_out,
        "rows_of_warps": dealt_out or has_neighbours,
    }  # fmt: skip


def _may_disagree(op: Reduce) -> bool:
    """Whether two lanes that combine each other's values may get different ones, and others than their owner
    need them."""
    return op.leaves_ties and not all(map(is_only_stored, op.results))


def _is_butterfly_shorter(op: Reduce, bits: int) -> bool:
    """Whether a butterfly of ``bits`` rounds takes fewer instructions than to read all partial results, four
    at a time, and to combine them, which takes one instruction mostly."""
    operands, warps = len(op.inputs), 1 << bits
    once = _length(op)
    butterfly = operands + bits * (operands * machine.SHUFFLE + once)
    return op.combine_name == "" and butterfly < operands * -(-warps // 4) + (warps - 1) * once


def _is_dealing_out_shorter(op: Reduce, linear: LinearLayout, bits: int) -> bool:
    """Whether threads that combine a share of the partial results each, and meet once more, take fewer
    instructions than threads that combine all that they need. (Where a step is one instruction, they do
    not.) There must be work for all: else some would read where others write."""
    result = op.results[0].type
    operands, once = len(op.inputs), _length(op)
    each = elements_per_thread(result.layout, result.shape)
    share = deal_out(result.numel, 1 << bits, linear)
    rows, lanes = len(share.rows), share.lane_bits
    steps = rows * (share.partials - 1) + lanes
    moved = rows * share.partials + lanes * machine.SHUFFLE + rows
    shared = steps * once + operands * moved + machine.SHARED_ROUND_TRIP
    is_shorter = shared < each * ((1 << bits) - 1) * once
    return op.combine_name == "" and share.serves_all and is_shorter


def _scan(op: Scan) -> dict[str, object]:
    source = op.inputs[0].type
    linear = source.layout.linear(source.shape)
    lanes = first_lane_run(linear, op.axis)
    lanes = lanes if lanes >= machine.LANES_SCANNED_AT_ONCE else 0
    warps = max((count for _, count in warp_runs(linear, op.axis)), default=0)
    return {"lanes_at_once": lanes, "by_lanes": 0 < warps <= lanes and _is_scan_by_lanes_shorter(op, warps)}


def _is_scan_by_lanes_shorter(op: Scan, bits: int) -> bool:
    """Whether a scan of the warps' totals by lanes, in ``bits`` steps, takes fewer instructions than to read
    all totals and to combine them, each step choosing by a warp's place. (Where a step is one instruction,
    shuffles take longer than their number says.)"""
    words, warps = sum(-(-v.type.element.bits // 32) for v in op.inputs), 1 << bits
    step = _length(op)
    by_lanes = words + bits * (words * (machine.SHUFFLE + 1) + step) + 2 * words * machine.SHUFFLE
    one_by_one = words * warps + (warps - 1) * step + (warps - 2) * words
    return op.combine_name == "" and by_lanes < one_by_one


def _length(op: Associative) -> int:
    """About how many instructions a combination takes."""
    steps = [inner for inner in op.combine.operations if not inner.is_terminator]
    return sum(machine.EXPENSIVE_OPERATION if inner.cost == EXPENSIVE else 1 for inner in steps)


# -- exponentials and quotients ----------------------------------------------------------------------------


def _exponential(op: Exp) -> dict[str, object]:
    fewest, most = machine.EXPONENTIALS_WORTH_A_BRANCH, machine.EXPONENTIALS_TOGETHER
    together = (fewest, most, machine.MINIMA_SIDE_BY_SIDE)
    if T.element_type(op.result.type) is T.F64:
        return {}
    flushes = _hides_denormals(op)
    has_branch = not flushes and _may_have(op, fewest) and not _feeds_a_product_beside_another(op)
    return {"flushes": flushes, "together": together if has_branch else ()}


_LARGE = 2.0**-100


def _hides_denormals(op: Exp) -> bool:
    """Whether denormal numbers, of f32, may as well be 0 in the result: they are in its type, or it is only
    added to what is large enough to hide them (half a unit in the last place below 2^-100 is 2^-125)."""
    return T.element_type(op.result.type) not in (T.F32, T.BF16) or all(
        any(abs(constant_of(x) or 0) >= _LARGE for x, _ in user.addends) for user in op.result.users
    )


def _feeds_a_product_beside_another(op: Operation) -> bool:
    """Whether the left operand of a product of warpgroups is computed from the result while another product
    is under way. Behind a branch there the assembler lets each wait for the one before (note C7514)."""
    if not _is_beside_a_product(op):
        return False
    work = [op]
    for user in each_once(work):
        if user.effects.reads_by == PRODUCTS:
            return True
        work += [x for result in user.results for x in result.users if x.parent is op.parent]
    return False


def _is_beside_a_product(op: Operation) -> bool:
    """Whether a product of warpgroups may be under way where ``op`` is done."""
    before = op.previous
    while before is not None and before.effects.finishes != PRODUCTS:
        if before.effects.reads_by == PRODUCTS:
            return True
        before = before.previous
    if before is not None:
        return before.pending > 0
    return any(isinstance(argument.type, T.FlightType) for argument in op.parent.arguments)


def _quotient(op: DivF) -> dict[str, object]:
    fewest = machine.QUOTIENTS_WORTH_A_BRANCH
    is_shared = T.element_type(op.result.type) is T.F32 and _may_have(op, fewest)
    return {"reciprocal_from": fewest if is_shared and constant_of(op.rhs) is None else 0}


def _angle(op: Periodic) -> dict[str, object]:
    is_shared = T.element_type(op.result.type) is not T.F64 and _may_have(op, 2)
    return {"reduced_together": machine.ANGLES_TOGETHER if is_shared else 1}


def _may_have(op: Operation, count: int) -> bool:
    """Whether a thread may compute the operation for so many different elements: always where it combines
    elements of tensors."""
    type = op.result.type
    if isinstance(type, T.TensorType):
        return elements_per_thread(type.layout, type.shape) >= count
    return any(isinstance(around, Associative) for around in ancestors(op))


def _is_crowded(function: Function) -> bool:
    """Whether the tensors that are live at once are more than a thread has registers for."""
    threads = machine.WARP_SIZE * function.attributes["num_warps"]
    return sum(holder.registers for holder in holders_at_the_peak(function)) > room(threads)


# -- remainders --------------------------------------------------------------------------------------------


def _remainder(op: RemSI | RemUI) -> dict[str, object]:
    """Indices are taken modulo a size, one for all, to keep them inside, where most are anyway: but not where
    the quotient is used as well. And not in loops, whose schedule a branch would cut in two.

    Of divisions of narrow numbers, or without signs, that are single instructions the assembler shares all
    that there is to share."""
    type_, bits = op.result.type, T.element_type(op.result.type).bits
    is_index = isinstance(type_, T.TensorType) and bits >= 32
    has_size = is_index and UNIFORM in getattr(op.rhs.defining_op, "traits", ())
    is_apart = has_size and not any(isinstance(user, (DivSI, DivUI)) for user in op.lhs.users)
    is_long = bits >= (32 if type(op) is RemSI else 64)
    return {
        "mostly_inside": is_apart and not loops_around(op),
        "by_quotient": is_long and constant_of(op.rhs) is None and _has_quotient(op),
    }


def _has_quotient(op: RemSI | RemUI) -> bool:
    """Whether the quotient of the same numbers is computed wherever the remainder is."""
    return any(_is_done_with(quotient, op) for quotient in op.quotients)


def _is_done_with(earlier: Operation, op: Operation) -> bool:
    """Whether an operation is in the same block, or in front of what ``op`` is in."""
    if earlier.parent is op.parent:
        return True
    around = next((x for x in ancestors(op) if x.parent is earlier.parent), None)
    return around is not None and earlier.is_before_in_block(around)


# -- comparisons -------------------------------------------------------------------------------------------


def _comparison(op: CmpI) -> dict[str, object]:
    """What is compared with a bound is mostly a range: a value and constants."""
    fewest = machine.COMPARED_SUMS
    is_bounded = op.predicate == "slt" and T.element_type(op.lhs.type) is T.I32
    is_shared = is_bounded and constant_of(op.rhs) is None and _may_have(op, fewest)
    return {"differences_from": fewest if is_shared else 0}


# -- pointers ----------------------------------------------------------------------------------------------


def _pointer(op: AddPtr) -> dict[str, object]:
    """Where a loop or a branch ends, the sum may take the place of the old pointer."""
    is_scalar = isinstance(op.result.type, T.PointerType)
    return {"deferred": is_scalar and all(isinstance(user, Yield) for user in op.result.users)}


def _bytes(op: ExtUI) -> dict[str, object]:
    """Truth values of bytes that become bytes in memory."""
    type_ = op.result.type
    if not isinstance(type_, T.TensorType) or type_.element is not T.I8:
        return {}
    are_stored = all(user.get_effects().writes for user in op.result.users)
    fill_words = elements_per_thread(type_.layout, type_.shape) >= 4
    return {"in_words": are_stored and fill_words and _is_of_bytes(op.x)}


def _is_of_bytes(value: Value) -> bool:
    """Whether comparisons of bytes with zero, and constants, make all of ``value`` by logic alone."""
    work = [value]
    for found in each_once(work):
        if constant_of(found) is not None:
            continue
        op = found.defining_op
        makers = _OF_BYTES[type(op)](op) if type(op) in _OF_BYTES else None
        if makers is None:
            return False
        work += makers
    return True


def _operands(op: Operation) -> tuple[Value, ...]:
    return tuple(op.operands)


def _nothing_else(op: CmpI) -> tuple[Value, ...] | None:
    is_of_byte = T.element_type(op.lhs.type) is T.I8 and constant_of(op.rhs) == 0
    return () if is_of_byte and op.predicate in ("eq", "ne") else None


_OF_BYTES: dict[type[Operation], Callable[..., tuple[Value, ...] | None]] = {
    AndI: _operands, OrI: _operands, XorI: _operands, CmpI: _nothing_else,
}  # fmt: skip
"""Which truth values an operation makes its own of; ``None`` where it is not of bytes."""

_CHOICES: dict[type[Operation], Callable[..., dict[str, object]]] = {
    Reduce: _reduce, Scan: _scan, Exp: _exponential, DivF: _quotient, RemSI: _remainder, RemUI: _remainder,
    CmpI: _comparison, ExtUI: _bytes, Sin: _angle, Cos: _angle, Tan: _angle, AddPtr: _pointer,
}  # fmt: skip
