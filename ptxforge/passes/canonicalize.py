"""One spelling per idea: constants folded, identities removed, known branches and loops resolved.

    %c = constant {value = 0} : i32                       (before)
    %a = addi %c, %x : i32
    %t = splat %a : (i32) -> tensor<4xi32>
    %u = expand_dims %t {axis = 0} : (tensor<4xi32>) -> tensor<1x4xi32>
    %r = for %i = %c to %n step %one iter_args(%k = %u) : tensor<1x4xi32> {
      yield %k
    }

    %u = splat %x : (i32) -> tensor<1x4xi32>              (after; uses of %r use %u)

The rules stand in ``ptxforge.passes.rules``, by family; each is a few lines and begins with what it does.
Operations on constants (uniform tensors included) are evaluated, dead ones erased.
"""

from __future__ import annotations

from ptxforge.ir.core import Function
from ptxforge.ir.rewriter import PatternSet, rewrite
from ptxforge.passes.rules import arith, control, memory, shape
from ptxforge.support.target import Target

RULES = PatternSet.union(arith.RULES, shape.RULES, memory.RULES, control.RULES)


def canonicalize(function: Function, target: Target) -> bool:
    """Apply all rules until none matches."""
    return rewrite(function, RULES)
