"""The first iteration of a loop by itself, where a branch in the loop asks for it.

    %r = for %i = 0 to 512 step 8 iter_args(%a = %x) : f32 {                          (before)
      %v = load …
      %first = cmpi %i, 0 {predicate = "eq"} : i1
      %n = if %first : f32 { yield %v } else { %s = mulf %a, %v : f32; yield %s }
      yield %n
    }

    %v0 = load …                                                                      (after)
    %r = for %i = 8 to 512 step 8 iter_args(%a = %v0) : f32 {
      %v = load …
      %s = mulf %a, %v : f32
      yield %s
    }

Welford's update is written so: the first value is the mean, and its weight 1. What is carried through a
branch the assembler does not follow when it unrolls the loop; without it all weights are constants to it, and
quotients by them products. Branches that nobody takes any more are left to canonicalization.

Only loops whose bounds are constants, without products or loops in them, whose bodies are short.
"""

from __future__ import annotations

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.ops.arith import CmpI
from ptxforge.ir.ops.control import For, If, Loop
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.rewriter import constant_of, evaluate_constants
from ptxforge.ir.warps import warps_of
from ptxforge.passes.unroll_loops import elements_of
from ptxforge.support import machine
from ptxforge.support.target import Target


def peel_loops(function: Function, target: Target) -> bool:
    """Put the first iteration in front of every loop that tells it from the others."""
    threads = warps_of(function).threads
    found = [(loop, questions) for loop in function.walk(For) if (questions := _questions(loop, threads))]
    for loop, questions in found:
        _peel(loop, questions)
    return bool(found)


def _questions(loop: For, threads: int) -> dict[Operation, tuple[bool, bool]]:
    """Comparisons on which branches of the body depend, with their results in the first iteration and in all
    others; none where the loop stays as it is."""
    bounds = [constant_of(v) for v in (loop.lower, loop.upper, loop.step)]
    if None in bounds or bounds[2] <= 0 or loop.num_stages > 1 or loop.warp_specialize or loop.flatten:
        return {}
    iterations = range(*bounds)
    if len(iterations) < 2 or loop.body.walk((Product, Loop)):
        return {}
    if sum(elements_of(op, threads) for op in loop.body.walk()) > machine.WRITTEN_OUT_INSTRUCTIONS:
        return {}
    asked = dict.fromkeys(branch.condition.defining_op for branch in loop.body.walk(If))
    answers = {op: _answers(op, loop, iterations) for op in asked if isinstance(op, CmpI)}
    return {op: answer for op, answer in answers.items() if answer is not None}


def _answers(question: CmpI, loop: For, iterations: range) -> tuple[bool, bool] | None:
    """Of a comparison of the loop's counter with a constant: in the first iteration, and in all others."""
    if question.parent is not loop.body or loop.induction not in question.operands:
        return None
    bound = constant_of(question.rhs if question.lhs is loop.induction else question.lhs)
    if bound is None:
        return None
    first, second, last = (_answer(question, loop, iterations[n], bound) for n in (0, 1, -1))
    changes_later = question.predicate in ("eq", "ne") and bound in iterations[1:]
    return (first, second) if first != second == last and not changes_later else None


def _answer(question: CmpI, loop: For, counter: int, bound: int) -> bool:
    values = [counter if v is loop.induction else bound for v in question.operands]
    return bool(evaluate_constants(question, values))


def _peel(loop: For, questions: dict[Operation, tuple[bool, bool]]) -> None:
    builder = Builder.at(loop)
    mapping = dict(zip(loop.body.arguments, [loop.lower, *loop.initial]))
    for op in loop.body.operations:
        if op in questions:
            mapping[op.result] = builder.constant(questions[op][0], op.result.type)
        elif op is not loop.body.last:
            loop.parent.insert_before(loop, op.clone(mapping))
    carried = [mapping.get(v, v) for v in loop.body.last.operands]
    second = builder.constant(constant_of(loop.lower) + constant_of(loop.step), loop.lower.type)
    loop.set_operands((second, loop.upper, loop.step, *carried))
    for op, (_, later) in questions.items():
        op.result.replace_all_uses_with(builder.constant(later, op.result.type))
