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
"""

from __future__ import annotations

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Region, Value
from ptxforge.ir.ops.arith import AddI, DivSI, MaxSI, MulI, SubI
from ptxforge.ir.ops.control import For, Yield
from ptxforge.support.target import Target


def unroll_loops(function: Function, target: Target) -> bool:
    """Unroll every ``for`` that asks for it, inner loops first."""
    loops = [op for op in function.walk(For) if op.unroll > 1]
    for loop in reversed(loops):
        _unroll(loop)
    return bool(loops)


def _unroll(loop: For) -> None:
    factor = loop.attributes.pop("unroll")
    builder = Builder.at(loop)
    split, wide_step = _split(loop, factor, builder)
    main = builder.create(
        For, loop.lower, split, wide_step, *loop.initial,
        regions=[Region(_repeat(loop, factor))], **loop.attributes,
    )  # fmt: skip
    rest = Builder.at(loop).create(
        For, split, loop.upper, loop.step, *main.results,
        regions=[loop.regions[0].clone({})], **{**loop.attributes, "num_stages": 1},
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
