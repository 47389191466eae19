"""Inline assembly."""

from __future__ import annotations

import functools
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.promote import broadcast_to, common_shape
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import TensorValue, describe, ir_type
from ptxforge.ir import types as T
from ptxforge.ir.ops import inline_asm as A
from ptxforge.language import inline_asm as language
from ptxforge.language.constexpr import unwrap


@implements(language.inline_asm_elementwise)
def inline_asm_elementwise(ctx, asm, constraints, args, dtype, is_pure, pack):
    text, letters = _string(asm, "asm"), _string(constraints, "constraints")
    size = arguments.static_int(pack, "pack")
    if size < 1 or size & (size - 1):
        raise ArgumentProblem("pack", f"must be a power of two, is {size}")
    inputs = _inputs(ctx, args)
    is_many = isinstance(unwrap(dtype), tuple)
    dtypes = [arguments.element_type(d) for d in (unwrap(dtype) if is_many else (dtype,))]
    elements = [ir_type(d) for d in dtypes]
    given = [T.element_type(v.value.type) for v in inputs]
    problem = A.problem_of(letters, text, given, elements, size)
    if problem:
        raise ArgumentProblem("constraints", problem)
    op = ctx.builder.create(
        A.InlineAsm,
        *[v.value for v in inputs],
        text=text,
        constraints=letters,
        elements=tuple(map(str, elements)),
        pack=size,
        pure=arguments.static_bool(is_pure, "is_pure"),
    )
    results = tuple(TensorValue(value, d) for value, d in zip(op.results, dtypes, strict=True))
    return results if is_many else results[0]


def _string(value: Any, name: str) -> str:
    text = arguments.static(value, name)
    if not isinstance(text, str):
        raise ArgumentProblem(name, f"must be a string, is {describe(text)}")
    return text


def _inputs(ctx: Context, args: Any) -> list[TensorValue]:
    """The operands in their common shape."""
    args = unwrap(args)
    if not isinstance(args, tuple):
        raise ArgumentProblem("args", f"must be a list of blocks and scalars, is {describe(args)}")
    values = [arguments.tensor(ctx, value, "args") for value in args]
    shape = functools.reduce(
        lambda x, y: common_shape(x, y, "inline_asm_elementwise"), [v.shape for v in values], ()
    )
    return [broadcast_to(ctx, value, shape) for value in values]
