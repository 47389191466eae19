"""Dots get their layouts, those of the tensor cores where these can do them.

    %d = dot %a, %b, %c : (tensor<128x64xf16, #dot_op<{opIdx = 0, parent = #blocked}>>, …)          (before)
        -> tensor<128x128xf32, #blocked>

    %c1 = convert_layout %c : … -> tensor<128x128xf32, #mma>                                           (after)
    %a1 = convert_layout %a : … -> tensor<128x64xf16, #dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>>
    %b1 = convert_layout %b : … -> tensor<64x128xf16, #dot_op<{opIdx = 1, parent = #mma, kWidth = 2}>>
    %d1 = dot %a1, %b1, %c1
    %d = convert_layout %d1 : … -> tensor<128x128xf32, #blocked>

Rules
-----
WARPGROUPS  Where the target has ``wgmma`` and ``warpgroup_dots`` finds that it does a dot, it does. The rest
            of this list is about ``mma.sync``.
FORMS       f16, bf16, 8-bit floats (sm_89 on; upcast to f16 before), 8-bit integers, f32 as tf32, f64. What
            remains (``ieee`` f32, f16 accumulators of other types, 16-bit integers) is done on the FMA units,
            in the layout that ``layouts/product_steps.py`` chooses.
SPLIT       ``tf32x3``, ``bf16x3`` and ``bf16x6`` become several dots (``split_products.py``).
WARPS       Warps are spread so that each one's tile has as many 16-row as 16-column pieces as can be (ties go
            to rows): operand traffic from shared memory is least for square tiles. A dot whose result feeds
            another dot keeps whole rows in a warp, so that the result becomes an operand without leaving its
            warp.
K WIDTH     A thread holds ``32 / bits`` neighbours along k, where ``bits`` is the width of the narrowest tile
            that lies along k in memory and feeds an operand: what is widened in registers is read 32 bits at
            once. Both operands have the same.
INTERLEAVE  ``ldmatrix`` transposes 16-bit elements only. Of an operand of other elements that lies along m or
            n in memory, a lane takes neighbours: pairs of bytes, which travel like one 16-bit element; pairs
            of words of A, which one load puts side by side, as the instruction wants them. Neighbours of B go
            to different instructions: to read them at once would cost a move for each. Four words, where
            casts or sums move them anyway. Not for dots in chains, whose results become operands.
PANELS      Where 16-bit rows of B lie along n in memory, each warp's columns are neighbours: it reads one
            panel of B, and has whole lines of the result to store without waiting for other warps. (Where
            B's rows lie along k, this gains nothing.)
EXCHANGED   c = a b is also cᵀ = bᵀ aᵀ. An instruction wants the registers of its left operand in fours, two
            rows by two words along k, those of the right one in pairs along k. So words that lie across k
            are better on the left, where they come in pairs; and a wide operand along k, read in long words
            because its partner is narrow, is better on the right: else each of its registers must be moved.
SMALL       Tiles smaller than the instruction wrap: rows are repeated, and the copies of the result are
            dropped by the layout, so nothing is padded in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE
from ptxforge.ir.ops.cast import ExtF
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Trans
from ptxforge.layouts.encodings import Distributed, DotOperand, Mma
from ptxforge.layouts.mma_families import MMA_SYNC, Family, find_family
from ptxforge.layouts.product_steps import blocked_for_fma
from ptxforge.passes.analysis.reasons import why_no_tensor_core
from ptxforge.passes.conversions import converted
from ptxforge.passes.operand_tiles import comes_from_dot, has_transposed_left
from ptxforge.passes.split_products import parts_of, sum_of_terms
from ptxforge.passes.stored_operands import room_for_stores
from ptxforge.passes.warpgroup_dots import are_better_transposed, use_warpgroups, why_not
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def accelerate_matmul(function: Function, target: Target) -> bool:
    """Give every dot that tensor cores can do an ``mma`` layout, and every other one that of FMA units."""
    changed = False
    num_warps = function.attributes["num_warps"]
    dots = function.walk(Dot)
    dots = [op for op in dots if not isinstance(op.result.type.layout, Mma)]
    chains = {op for op in dots if _is_in_chain(op)} if target.has_wgmma else ()
    for op in dots:
        if target.has_wgmma and _by_warpgroups(function, op, op in chains, target):
            changed = True
        else:
            why = why_not(op, num_warps, op in chains) if target.has_wgmma else ""
            accelerated = _legalize(op, target)
            if accelerated and why:
                function.remarks.add("not-by-wgmma", f"mma.sync does this product: {why}", op.location)
            for dot in accelerated:
                placed = _transposed_product(dot) if _is_better_transposed(dot) else dot
                changed |= _accelerate(placed, num_warps)
            if not accelerated:
                function.remarks.add("no-tensor-core", "; ".join(why_no_tensor_core(op)), op.location)
                changed |= _arrange(op, num_warps)
    return changed


def _by_warpgroups(function: Function, dot: Dot, in_chain: bool, target: Target) -> bool:
    """See WARPGROUPS."""
    num_warps, room = function.attributes["num_warps"], room_for_stores(function, dot, target)
    if use_warpgroups(dot, num_warps, in_chain, room):
        return True
    if not in_chain and are_better_transposed(dot, num_warps, room):
        return use_warpgroups(_transposed_product(dot), num_warps, in_chain, room)
    return use_warpgroups(dot, num_warps, in_chain, room, stores=True)


# -- which dots, and in which form ------------------------------------------------------------------------


def _legalize(dot: Dot, target: Target) -> list[Dot]:
    """The dots that tensor cores do in place of ``dot`` (none: it stays as it is)."""
    a, b, family = dot.a.type.element, dot.b.type.element, family_of(dot)
    is_there = family is not None and family.is_on(target)
    if a.is_float and a.bits == 8 and b.bits == 8 and not is_there:
        return [_widen_operands(dot, T.F16)]
    if not is_there or (a is T.F32 and dot.input_precision == "ieee"):
        return []
    return [dot] if a is not T.F32 or dot.input_precision == "tf32" else _split(dot)


def family_of(dot: Dot) -> Family | None:
    """The instruction of ``mma.sync`` for the types of ``dot``."""
    return find_family(MMA_SYNC, *(str(v.type.element) for v in dot.operands))


def _widen_operands(dot: Dot, element: T.ScalarType) -> Dot:
    b = Builder.at(dot)
    for index in (0, 1):
        value = dot.operands[index]
        dot.set_operand(index, b.value(ExtF, value, type=T.like(value.type, element)))
    return dot


def _split(dot: Dot) -> list[Dot]:
    """See SPLIT."""
    b = Builder.at(dot)
    left, right = (parts_of(b, x, dot) for x in (dot.a, dot.b))
    dots = []

    def multiply(terms: tuple[tuple[int, int], ...], total: Value) -> Value:
        for i, j in terms:
            dots.append(b.create(Dot, left[i], right[j], total, input_precision="tf32"))
            total = dots[-1].result
        return total

    dot.replace_with([sum_of_terms(b, dot, dot.c, multiply)])
    return dots


# -- which operand is the left one -----------------------------------------------------------------------


def _is_better_transposed(dot: Dot) -> bool:
    """See EXCHANGED."""
    if len(dot.result.type.shape) != 2 or _feeds_another_dot(dot) or comes_from_dot(dot):
        return False
    bits = dot.a.type.element.bits
    left_lies_along_k = bits in _widths_along(dot.a, 1, dot.parent) and not _is_worked_on(dot.a)
    if not left_lies_along_k:
        return False
    if bits == 32:
        return 32 in _widths_along(dot.b, 1, dot.parent) and not _is_worked_on(dot.b)
    return _register_bits(dot, 1) < bits


def _transposed_product(dot: Dot) -> Dot:
    """The dot of the transposed operands in exchanged roles, in place of ``dot``;
    its result is transposed back."""
    b = Builder.at(dot)
    right, left, total = (b.value(Trans, v, order=(1, 0)) for v in (dot.a, dot.b, dot.c))
    exchanged = {"a_unsigned": dot.b_unsigned, "b_unsigned": dot.a_unsigned}
    new = b.create(Dot, left, right, total, **{**dot.attributes, **exchanged})
    dot.replace_with([b.value(Trans, new.result, type=dot.result.type, order=(1, 0))])
    return new


# -- layouts ----------------------------------------------------------------------------------------------


def _accelerate(dot: Dot, num_warps: int) -> bool:
    shape = dot.result.type.shape
    rows_columns = family_of(dot).instr_shape
    warps = _warps_per_cta(dot, shape, num_warps, rows_columns)
    interleave = _interleave(dot, shape, warps)
    instruction = (1,) * (len(shape) - 2) + rows_columns
    tiles = _tiles_per_warp(dot, warps, interleave)
    mma = Mma((2, 0), warps, instruction, interleave=interleave, tiles_per_warp=tiles)
    _give_layout(dot, mma, max(1, 32 // min(_register_bits(dot, 0), _register_bits(dot, 1))))
    return True


def _arrange(dot: Dot, num_warps: int) -> bool:
    """Give a dot on FMA units the layout in which it reads least."""
    layout = blocked_for_fma(dot.result.type.shape, num_warps)
    if layout is None or layout == dot.result.type.layout:
        return False
    _give_layout(dot, layout)
    return True


def _give_layout(dot: Dot, layout: Distributed, k_width: int = 0) -> None:
    """Do a dot in ``layout``, with conversions around it."""
    b = Builder.at(dot)
    old = dot.result.type
    left = converted(b, dot.a, DotOperand(0, layout, k_width))
    right = converted(b, dot.b, DotOperand(1, layout, k_width))
    new = b.create(Dot, left, right, converted(b, dot.c, layout), **dot.attributes)
    dot.replace_with([converted(b, new.result, old.layout)])


def _warps_per_cta(
    dot: Dot, shape: tuple[int, ...], num_warps: int, instruction: tuple[int, int]
) -> tuple[int, ...]:
    """See WARPS."""
    rank = len(shape)
    if rank == 3:
        batch = min(num_warps, shape[0])
        inner = _balance(shape[1:], num_warps // batch, instruction)
        return (batch, *inner)
    if _feeds_another_dot(dot) or comes_from_dot(dot):
        return (num_warps, 1) if shape[0] >= shape[1] or shape[0] >= 16 * num_warps else (1, num_warps)
    return _balance(shape, num_warps, instruction)


def _balance(shape: tuple[int, ...], num_warps: int, instruction: tuple[int, int]) -> tuple[int, int]:
    rows, columns = 1, 1
    while rows * columns < num_warps:
        left_rows = shape[0] // (instruction[0] * rows)
        left_columns = shape[1] // (2 * instruction[1] * columns)
        if left_rows >= left_columns and left_rows > 1:
            rows *= 2
        else:
            columns *= 2
    return rows, columns


def _is_in_chain(dot: Dot) -> bool:
    """Whether warps keep rows of the result, or of what was made of another dot's, for ``wgmma``."""
    return _feeds_another_dot(dot) or (comes_from_dot(dot) and not has_transposed_left(dot))


def _feeds_another_dot(dot: Dot) -> bool:
    """Whether the result reaches an operand (not the accumulator) of a dot,
    within the same block or its loops."""
    work = [dot.result]
    for value in each_once(work):
        for user, index in value.uses:
            if isinstance(user, Dot):
                if index < 2 and user is not dot:
                    return True
                continue
            work.extend(_flows_to(user, index))
    return False


def _flows_to(user: Operation, index: int) -> list[Value]:
    if user.is_terminator:
        return []
    if user.is_counted:
        target = user.passes_to(index)
        return [] if target is None else user.carried_names(target.index)[:1]
    return [r for r in user.results if isinstance(r.type, T.TensorType)]


def _interleave(dot: Dot, shape: tuple[int, ...], warps: tuple[int, ...]) -> tuple[int, int]:
    """See INTERLEAVE."""
    if _feeds_another_dot(dot) or comes_from_dot(dot) or dot.a.type.element.bits == 64:
        return 1, 1
    return tuple(_interleave_run(dot, index, shape[index - 2] // (8 * warps[index - 2])) for index in (0, 1))


def _tiles_per_warp(dot: Dot, warps: tuple[int, ...], interleave: tuple[int, int]) -> tuple[int, int]:
    """See PANELS."""
    shape = dot.result.type.shape
    rows_along_n = {*_widths_along(dot.b, len(shape) - 1, dot.parent)} == {16}
    if dot.b.type.element.bits != 16 or not rows_along_n or interleave != (1, 1) or warps[-1] == 1:
        return 1, 1
    return 1, max(1, shape[-1] // (8 * warps[-1]))


def _interleave_run(dot: Dot, index: int, most: int) -> int:
    """How many neighbours along m (or n) a lane should hold of operand ``index``, at most ``most``."""
    operand = dot.operands[index]
    along = len(operand.type.shape) - 2 + index
    bits = {*_widths_along(operand, along, dot.parent)} - {16}
    if not bits:
        return 1
    wanted = 2 if min(bits) == 8 else 4 if _is_worked_on(operand) else 2 - index
    return max(1, min(wanted, most))


def _is_worked_on(value: Value) -> bool:
    """Whether ``value`` is computed from what was loaded, which puts it into any registers."""
    op = value.defining_op
    while op is not None and (op.is_transpose or op.changes_layout):
        op = op.operands[0].defining_op
    return not isinstance(op, Load)


def _register_bits(dot: Dot, index: int) -> int:
    """The width of the elements that an operand brings to a thread's registers: see K WIDTH."""
    operand = dot.operands[index]
    k = len(operand.type.shape) - 1 - index
    return min([operand.type.element.bits, *_widths_along(operand, k, dot.parent)])


def _widths_along(value: Value, dim: int, block: Block) -> Iterator[int]:
    """Bits of the elements of the tiles behind ``value`` that ``block`` loads and that lie along ``dim`` in
    memory."""
    op = value.defining_op
    if op is None or op.parent is not block:
        return
    if isinstance(op, Load):
        if value.type.layout.order[0] == dim:
            yield value.type.element.bits
    elif op.is_transpose:
        yield from _widths_along(op.x, op.order[dim], block)
    elif op.changes_layout or ELEMENTWISE in op.traits:
        for operand in op.operands:
            if isinstance(operand.type, T.TensorType):
                yield from _widths_along(operand, dim, block)
