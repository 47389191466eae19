"""Operators: arithmetic, comparisons, ``and`` and ``or``, of run-time and compile-time values and objects."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import not_zero
from ptxforge.frontend.expressions import static_result
from ptxforge.frontend.semantics import arith
from ptxforge.frontend.values import TensorValue, is_static, operator_of, unary_of
from ptxforge.frontend.visitor import Invoke, Visitor, handles
from ptxforge.language import types as L
from ptxforge.language.core import Aggregate
from ptxforge.support.errors import TypeMismatchError, UnsupportedSyntaxError

_BINARY: dict[type[ast.operator], tuple[Callable, Callable]] = {
    ast.Add: (arith.checked_add, operator.add),
    ast.Sub: (arith.checked_sub, operator.sub),
    ast.Mult: (arith.checked_mul, operator.mul),
    ast.Div: (arith.truediv, operator.truediv),
    ast.FloorDiv: (arith.floordiv, operator.floordiv),
    ast.Mod: (arith.mod, operator.mod),
    ast.Pow: (arith.power, operator.pow),
    ast.LShift: (arith.lshift, operator.lshift),
    ast.RShift: (arith.rshift, operator.rshift),
    ast.BitAnd: (arith.bitand, operator.and_),
    ast.BitOr: (arith.bitor, operator.or_),
    ast.BitXor: (arith.bitxor, operator.xor),
    ast.MatMult: (arith.matmul, operator.matmul),
}


@handles(ast.BinOp)
def binary(v: Visitor, node: ast.BinOp) -> Any:
    """``x + y`` and its like."""
    left, right = v.visit(node.left), v.visit(node.right)
    return apply_binary(v, node, type(node.op), left, right)


def apply_binary(v: Visitor, node: ast.AST, kind: type[ast.operator], left: Any, right: Any) -> Any:
    """An operator on two values: at compile time when both are static."""
    own = operator_of(kind, left, right)
    if own is not None:
        return v.visit(Invoke(node, *own))
    dynamic, static = _BINARY[kind]
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        v.at(node)
        if v.is_library:  # random numbers and their like wrap around
            dynamic = getattr(dynamic, "unchecked", dynamic)
        return dynamic(v.ctx, left, right)
    return static_result(static, left, right)


_UNARY: dict[type[ast.unaryop], tuple[Callable, Callable]] = {
    ast.USub: (arith.negate, operator.neg),
    ast.UAdd: (arith.plus, operator.pos),
    ast.Invert: (arith.invert, operator.invert),
    ast.Not: (arith.logical_not, operator.not_),
}


@handles(ast.UnaryOp)
def unary(v: Visitor, node: ast.UnaryOp) -> Any:
    """``-x``, ``+x``, ``~x``, ``not x``."""
    value = v.visit(node.operand)
    if isinstance(value, Aggregate):
        return v.visit(Invoke(node, unary_of(type(node.op), value), [value]))
    dynamic, static = _UNARY[type(node.op)]
    if isinstance(value, TensorValue):
        v.at(node)
        return dynamic(v.ctx, value)
    return static_result(static, value)


_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


@handles(ast.Compare)
def compare(v: Visitor, node: ast.Compare) -> Any:
    """``x < y``; a chain ``a < b < c`` is ``a < b and b < c``."""
    left, result = v.visit(node.left), True
    for kind, side in zip(node.ops, node.comparators):
        right = v.visit(side)
        v.at(node)
        link = _compare_one(v, side, type(kind), left, right)
        result = link if result is True else _joined(v.ctx, True, result, link)
        left = right
    return result


def _compare_one(v: Visitor, node: ast.AST, kind: type[ast.cmpop], left: Any, right: Any) -> Any:
    if kind in (ast.Is, ast.IsNot):
        same = _is_same(left, right)
        return same if kind is ast.Is else not same
    if kind in (ast.In, ast.NotIn):
        if not (is_static(left) and is_static(right)):
            raise UnsupportedSyntaxError("'in' needs compile-time values")
        found = static_result(operator.contains, right, left)
        return found if kind is ast.In else not found
    own = operator_of(kind, left, right)
    if own is not None:
        return v.visit(Invoke(node, *own))
    word, static = _COMPARISONS[kind]
    if isinstance(left, tuple) and isinstance(right, tuple) and not is_static((left, right)):
        return _compare_tuples(v, node, kind, left, right)
    if not (isinstance(left, TensorValue) or isinstance(right, TensorValue)):
        return static_result(static, left, right)
    comparable = all(isinstance(side, (TensorValue, int, float)) for side in (left, right))
    if not comparable and word in ("==", "!="):
        return word == "!="  # a runtime value never equals None, a string or a type
    return arith.compare(v.ctx, left, right, word)


def _compare_tuples(v: Visitor, node: ast.AST, kind: type[ast.cmpop], left: tuple, right: tuple) -> Any:
    """``==`` and ``!=`` of tuples that hold runtime values: part by part."""
    if kind not in (ast.Eq, ast.NotEq):
        raise TypeMismatchError("tuples of runtime values can be compared by '==' and '!=' only")
    if len(left) != len(right):
        return kind is ast.NotEq
    return functools.reduce(
        lambda result, link: _joined(v.ctx, kind is ast.Eq, result, link),
        [_compare_one(v, node, kind, x, y) for x, y in zip(left, right)],
    )


def _is_same(left: Any, right: Any) -> bool:
    if isinstance(left, TensorValue) and isinstance(right, TensorValue):
        return left.value is right.value
    if isinstance(left, (int, float, str, L.pointer_type)):
        return type(left) is type(right) and left == right
    return left is right


@handles(ast.BoolOp)
def boolean(v: Visitor, node: ast.BoolOp) -> Any:
    """``and`` and ``or``: short-circuit on static values, element by element on runtime ones.

    What stands before a static value that decides is computed for its effects."""
    is_and = isinstance(node.op, ast.And)
    result = v.visit(node.values[0])
    for side in node.values[1:]:
        if not isinstance(result, TensorValue):
            if bool(result) != is_and:
                return result
            result = v.visit(side)
            continue
        right = v.visit(side)
        if not isinstance(right, TensorValue):  # it decides nothing, or all
            result = result if bool(right) == is_and else right
            continue
        v.at(node)
        result = _joined(v.ctx, is_and, result, right)
    return result


def _truth(ctx: Context, value: Any) -> TensorValue:
    if isinstance(value, TensorValue):
        return not_zero(ctx, value)
    return ctx.constant(bool(value), L.int1)


def _joined(ctx: Context, is_and: bool, x: Any, y: Any) -> Any:
    """``x and y``, or ``x or y``."""
    if not isinstance(x, TensorValue) and not isinstance(y, TensorValue):
        return (x and y) if is_and else (x or y)
    return (arith.bitand if is_and else arith.bitor)(ctx, _truth(ctx, x), _truth(ctx, y))
