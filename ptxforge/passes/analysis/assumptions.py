"""What the kernel's author promised by ``tl.assume``.

    %c = cmpi %n, 0 {predicate = "sgt"}           n is positive
    %d = cmpi (remsi %n, 16), 0 {"eq"}            16 divides n; so says (andi %n, 15) == 0
    assume (andi %c, %d)

A promise is found by walking the uses of a value: comparisons with a constant on the right (where
``canonicalize`` puts it), whose result, alone or by ``andi``, is assumed. It is a fact about the value when
it stands in the very block in which the value is defined: then it holds whenever the value exists, and not in
one branch only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.definition import HINTS
from ptxforge.ir.ops.arith import AndI, CmpI, MulI, RemSI, RemUI
from ptxforge.ir.ops.cast import ExtSI
from ptxforge.ir.rewriter import constant_of

_BELOW_NONNEGATIVE = {"sgt": -1, "sge": 0, "eq": 0}
"""The least constant ``c`` for which ``x predicate c`` says that x is not negative."""


NONNEGATIVE = "nonnegative"
"""The hint that keeps what :func:`promised_nonnegative` says where promises are gone."""


def promised_nonnegative(value: Value) -> bool:
    """Whether every element of ``value`` was promised to be at least 0."""
    return NONNEGATIVE in _hints_of(value) or any(
        predicate in _BELOW_NONNEGATIVE and bound >= _BELOW_NONNEGATIVE[predicate]
        for predicate, bound in _promises(value, value.owner_block)
    )


def keep_signs(function: Function) -> None:
    """Note on the scalars of ``function`` what its promises, which will be erased, say of their signs; also
    on what they are multiples of, as addresses are sums of products of such."""
    for compare in function.walk(CmpI):
        value: Value | None = compare.lhs
        block = value.owner_block
        if not promised_nonnegative(value):
            continue
        while value is not None and _is_noted_of(value) and value.owner_block is block:
            _hints_of(value)[NONNEGATIVE] = True
            part = _MULTIPLE_OF.get(type(value.defining_op))
            value = part(value.defining_op) if part is not None else None


_MULTIPLE_OF: dict[type[Operation], Callable[[Operation], Value | None]] = {
    ExtSI: lambda op: op.x,
    MulI: lambda op: op.lhs if (constant_of(op.rhs) or 0) > 0 else None,
}
"""What an integer is not a negative multiple of."""


def _is_noted_of(value: Value) -> bool:
    """Whether hints can be noted of ``value``: a scalar that is a parameter, or all that an operation
    gives."""
    if not isinstance(value.type, T.ScalarType):
        return False
    op = value.defining_op
    return value.block.parent_op is None if op is None else len(op.results) == 1


def _hints_of(value: Value) -> dict:
    """What is noted of a value where it is defined: of the argument of a block, or of the operation."""
    return value.attributes if value.defining_op is None else value.defining_op.attributes


def promised_constant(value: Value) -> int | None:
    """The number that every element of ``value`` was promised to equal."""
    return next(
        (bound for predicate, bound in _promises(value, value.owner_block) if predicate == "eq"), None
    )


def promised_divisor(value: Value) -> int:
    """The largest power of two that was promised to divide every element of ``value``;
    1 without a promise."""
    found = 1
    for user, index in value.uses:
        if index == 0 and type(user) in _MODULI and user.results[0].uses:
            divisor = _modulus(user)
            if divisor > found and ("eq", 0) in _promises(user.result, value.owner_block):
                found = divisor
    return found


_MODULI: dict[type[Operation], Callable[[int], int]] = {
    AndI: lambda mask: mask + 1,  # of low bits; of any other mask, the bits up to its first gap
    RemSI: lambda divisor: divisor,
    RemUI: lambda divisor: divisor,
}
"""Whose powers of two divide ``op.lhs`` where ``op`` gives 0, by its constant right operand."""


def _modulus(op: Operation) -> int:
    """The power of two that divides ``op.lhs`` where ``op`` gives 0."""
    constant = constant_of(op.rhs)
    if constant is None or isinstance(constant, bool) or constant <= 0:
        return 1
    constant = _MODULI[type(op)](constant)
    return constant & -constant


def _promises(value: Value, block: Block) -> Iterator[tuple[str, int]]:
    """(predicate, constant) of each comparison of ``value`` with a constant that is assumed in ``block``."""
    for user, index in value.uses:
        if index == 0 and isinstance(user, CmpI) and _is_assumed(user.result, block):
            bound = constant_of(user.rhs)
            if bound is not None:
                yield user.predicate, int(bound)


def _is_assumed(condition: Value, block: Block) -> bool:
    for user, _ in condition.uses:
        if "promises" in user.effects.writes and user.parent is block:
            return True
        if isinstance(user, AndI) and _is_assumed(user.result, block):
            return True
    return False


def weaken_hints(value: Value, cut: tuple[int, ...]) -> None:
    """What the user promised of a whole tensor, as it is true of a part."""
    op = value.defining_op
    if op is None or not HINTS & op.attributes.keys():
        return
    shape = value.type.shape
    for key in ("contiguity", "constancy"):
        if isinstance(known := op.attributes.get(key), tuple):
            op.attributes[key] = tuple(min(n, extent) for n, extent in zip(known, shape))
    known = op.attributes.get("divisibility")
    if isinstance(known, tuple):
        op.attributes["divisibility"] = tuple(
            gcd(n, extent) if part > 1 else n for n, extent, part in zip(known, shape, cut)
        )
    elif known is not None:
        del op.attributes["divisibility"]
