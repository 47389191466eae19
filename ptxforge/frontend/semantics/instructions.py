"""Functions that are PTX instructions, which form of one a call means; and inline assembly."""

from __future__ import annotations

import functools
from typing import Any

from ptxforge.frontend.context import Context, default_dtype
from ptxforge.frontend.convert import broadcast_to, common_dtype, common_shape, converted
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements, implements_kind
from ptxforge.frontend.values import TensorValue, describe, dtype_name, ir_type, is_number
from ptxforge.ir import types as T
from ptxforge.ir.ops import inline_asm as A
from ptxforge.ir.ops.inline_asm import InlineAsm
from ptxforge.language import instructions as language
from ptxforge.language import types as L
from ptxforge.language.constexpr import unwrap
from ptxforge.language.instructions import Form, Instruction

_OLDEST = (7, 0)
"""Every instruction in the library is in PTX ISA 7.0."""


@implements_kind(Instruction)
def instruction(ctx: Context, stub: Instruction, *args: Any, **kwargs: Any) -> TensorValue:
    given = stub.__signature__.bind(*args, **kwargs).arguments
    for name, value in given.items():
        if not is_number(value):
            arguments.number(arguments.tensor(ctx, value, name), name)
    form = _form(stub, given)
    shape: tuple[int, ...] = ()
    for value in given.values():
        if isinstance(value, TensorValue):
            shape = common_shape(shape, value.shape, stub.__name__)
    operands = [
        broadcast_to(ctx, converted(ctx, value, dtype), shape)
        for value, dtype in zip(given.values(), form.arguments, strict=True)
    ]
    op = ctx.builder.create(
        InlineAsm,
        *[x.value for x in operands],
        text=form.text,
        constraints=form.constraints,
        elements=(str(ir_type(form.result)),),
        ptx_version=_OLDEST,
    )
    return TensorValue(op.result, form.result)


def _form(stub: Instruction, given: dict[str, Any]) -> Form:
    """The form that fits the arguments as they are; else the one for their common type."""
    values = list(given.values())
    for form in stub.forms:
        if all(map(_fits, values, form.arguments)):
            return form
    dtype, is_number_dtype = None, True
    for value in values:
        own, mine = (default_dtype(value), True) if is_number(value) else (value.dtype, False)
        dtype = own if dtype is None else common_dtype(dtype, is_number_dtype, own, mine)
        is_number_dtype = is_number_dtype and mine
    for form in stub.forms:
        if all(argument is dtype for argument in form.arguments):
            return form
    known = " or ".join(", ".join(map(dtype_name, form.arguments)) for form in stub.forms)
    types = ", ".join("a number" if is_number(x) else dtype_name(x.dtype) for x in values)
    raise ArgumentProblem(next(iter(given)), f"the function takes {known}, not {types}")


def _fits(value: Any, dtype: L.dtype) -> bool:
    """Whether an argument has this type; a number, whether it can have it."""
    if isinstance(value, TensorValue):
        return value.dtype is dtype
    return dtype.is_floating() or (isinstance(value, int) and not dtype.is_floating())


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
