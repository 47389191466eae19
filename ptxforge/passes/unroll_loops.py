"""Loops with ``unroll = n`` do n iterations at a time.

    %r = for %i = %lo to %hi step %c iter_args(%a = %x) {unroll = 2} : i32 {         (before)
      %b = addi %a, %i : i32
      yield %b
    }

    %m = for %i = %lo to %split step %c2 iter_args(%a = %x) : i32 {                  (after; c2 = 2·c)
      %b = addi %a, %i : i32
      %j = addi %i, %c : i32
      %d = addi %b, %j : i32
      yield %d
    }
    %r = for %i = %split to %hi step %c iter_args(%a = %m) {num_stages = 1} : i32 {
      %b = addi %a, %i : i32
      yield %b
    }

The second loop does the rest, fewer than n iterations, and is not pipelined. Where the bounds are constants,
folding removes what is not needed: a rest of no iteration, a main loop of one.

A short ``while`` whose condition follows from constants (a binary search's) is written out; so is a ``for``
of few iterations without products, whose loads are in flight together then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Region, Value
from ptxforge.ir.ops.arith import AddI, DivSI, MaxSI, MulI, SubI
from ptxforge.ir.ops.control import For, Loop, While, Yield
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.rewriter import constant_of, evaluate_constants
from ptxforge.ir.warps import warps_of
from ptxforge.support import machine
from ptxforge.support.target import Target


def unroll_loops(function: Function, target: Target) -> bool:
    """Unroll every ``for`` that asks for it or is short, inner loops first, and write out short ``while``."""
    threads = warps_of(function).threads
    loops = [(op, op.unroll if op.unroll > 1 else _short(op, threads)) for op in function.walk(For)]
    loops = [(loop, factor) for loop, factor in loops if factor > 1]
    for loop, factor in reversed(loops):
        _unroll(loop, factor)
    short = [(op, count) for op in function.walk(While) if (count := _iterations(op, threads)) is not None]
    for loop, count in reversed(short):
        _write_out(loop, count)
    return bool(loops or short)


# -- while -------------------------------------------------------------------------------------------------


def _iterations(loop: While, threads: int) -> int | None:
    """How often a short ``while`` runs, if that follows from constants."""
    size = sum(elements_of(op, threads) for region in loop.regions for op in region.block.walk())
    carried = [constant_of(v) if isinstance(v.type, T.ScalarType) else None for v in loop.initial]
    for count in range(machine.WRITTEN_OUT_INSTRUCTIONS // size + 1):
        known = dict(zip(loop.before.arguments, carried))
        last = loop.before.terminator
        goes_on = _evaluated(last.operands[0], known)
        if goes_on is None:
            return None
        if not goes_on:
            return count
        known |= dict(zip(loop.body.arguments, [_evaluated(v, known) for v in last.values]))
        carried = [_evaluated(v, known) for v in loop.body.terminator.operands]
    return None


def elements_of(op: Operation, threads: int) -> int:
    """How many elements of its results a thread computes."""
    return max([max(1, math.prod(T.shape_of(v.type)) // threads) for v in op.results], default=1)


def _evaluated(value: Value, known: Mapping[Value, int | float | bool | None]) -> int | float | bool | None:
    """The value of a scalar, from those of arguments."""
    if value in known or not isinstance(value.type, T.ScalarType):
        return known.get(value)
    op = value.defining_op
    if op is None or constant_of(value) is not None:
        return constant_of(value)
    if op.regions or len(op.results) != 1 or not op.operands:
        return None
    operands = [_evaluated(v, known) for v in op.operands]
    return None if None in operands else evaluate_constants(op, operands)


def _write_out(loop: While, count: int) -> None:
    """``count`` iterations in place of the loop, and the test that ends it, of which the results are left."""
    carried = list(loop.initial)
    for iteration in range(count + 1):
        mapping = dict(zip(loop.before.arguments, carried))
        carried = _copied(loop, loop.before, mapping, loop.before.terminator.values)
        if iteration < count:
            mapping = dict(zip(loop.body.arguments, carried))
            carried = _copied(loop, loop.body, mapping, loop.body.terminator.operands)
    loop.replace_with(carried)


def _copied(loop: While, block: Block, mapping: dict, results) -> list[Value]:
    """Copies of a block's operations in front of the loop; what has become of ``results``."""
    for op in block.operations:
        if op is not block.last:
            loop.parent.insert_before(loop, op.clone(mapping))
    return [mapping.get(v, v) for v in results]


# -- for ---------------------------------------------------------------------------------------------------


def _short(loop: For, threads: int) -> int:
    """The iterations of a short loop, else 1."""
    bounds = [constant_of(v) for v in (loop.lower, loop.upper, loop.step)]
    if None in bounds or bounds[2] <= 0 or loop.num_stages > 1 or loop.warp_specialize or loop.flatten:
        return 1
    count = len(range(*bounds))
    if count > machine.ITERATIONS_AT_ONCE or loop.body.walk((Product, Loop)):
        return 1
    work = sum(elements_of(op, threads) for op in loop.body.walk())
    return count if count * work <= machine.WRITTEN_OUT_INSTRUCTIONS else 1


def _unroll(loop: For, factor: int) -> None:
    loop.attributes.pop("unroll", None)
    builder = Builder.at(loop)
    split, wide_step = _split(loop, factor, builder)
    main = builder.create(
        For, loop.lower, split, wide_step, *loop.initial,
        regions=[Region(_repeat(loop, factor))], **loop.attributes,
    )  # fmt: skip
    rest = Builder.at(loop).create(
        For, split, loop.upper, loop.step, *main.results,
        regions=[Region(loop.body.clone({}))], **{**loop.attributes, "num_stages": 1},
    )  # fmt: skip
    loop.replace_with(rest.results)


def _split(loop: For, factor: int, builder: Builder) -> tuple[Value, Value]:
    """Where the rest begins, and the step of the main loop:
    lower + ⌊⌈max(upper - lower, 0) / step⌉ / factor⌋ · (factor · step)."""
    type = loop.lower.type
    one, zero, times = (builder.constant(n, type) for n in (1, 0, factor))
    span = builder.value(MaxSI, builder.value(SubI, loop.upper, loop.lower), zero)
    rounded = builder.value(AddI, span, builder.value(SubI, loop.step, one))
    rounds = builder.value(DivSI, builder.value(DivSI, rounded, loop.step), times)
    wide_step = builder.value(MulI, loop.step, times)
    return builder.value(AddI, loop.lower, builder.value(MulI, rounds, wide_step)), wide_step


def _repeat(loop: For, factor: int) -> Block:
    """The body ``factor`` times in a row, each copy fed with what the one before yielded."""
    body = Block([a.type for a in loop.body.arguments])
    for old, new in zip(loop.body.arguments, body.arguments):
        new.hint, new.attributes = old.hint, dict(old.attributes)
    builder = Builder(body, location=loop.location)
    counter, *carried = body.arguments
    for copy in range(factor):
        if copy:
            counter = builder.value(AddI, counter, loop.step)
        mapping = dict(zip(loop.body.arguments, [counter, *carried]))
        for op in loop.body.operations:
            if op is not loop.body.last:
                body.append(op.clone(mapping))
        carried = [mapping.get(v, v) for v in loop.body.last.operands]
    builder.create(Yield, *carried)
    return body
