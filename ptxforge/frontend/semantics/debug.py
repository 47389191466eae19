"""Printing and assertions."""

from __future__ import annotations

from typing import Any

from ptxforge.frontend.convert import broadcast, not_zero
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.arith import bitor, logical_not
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import TensorValue, describe, map_leaves
from ptxforge.ir.ops import debug as D
from ptxforge.language import debug as language
from ptxforge.support.errors import CompileTimeAssertionError


def _shown(value: Any) -> Any:
    return map_leaves(lambda leaf: _type_text(leaf) if isinstance(leaf, TensorValue) else leaf, value)


def _type_text(value: TensorValue) -> str:
    """The text that Triton gives to a tensor: ``fp32[constexpr[128]]``, ``int32[]``."""
    return f"{value.dtype}[{', '.join(f'constexpr[{size}]' for size in value.shape)}]"


def _prefix(text: str, has_values: bool) -> str:
    """As it stands in the line: behind a space, and before values with a colon."""
    if has_values:
        text = f"{text.removesuffix(' ').removesuffix(':')}: "
    return f" {text}" if len(text) > 2 and not text.startswith(" ") else text


@implements(language.static_print)
def static_print(ctx, *values, sep=" ", end="\n", file=None, flush=False):
    print(*map(_shown, values), sep=sep, end=end, file=file, flush=flush)


@implements(language.static_assert)
def static_assert(ctx, cond, msg=""):
    if not arguments.static(cond, "cond"):
        text = arguments.static(msg, "msg")
        raise CompileTimeAssertionError(f"static assertion failed{f': {text}' if text else ''}")


@implements(language.device_print)
def device_print(ctx, prefix, *args, hex=False):
    text = arguments.static(prefix, "prefix")
    if not isinstance(text, str):
        raise ArgumentProblem("prefix", f"must be a string, is {describe(text)}")
    values = [arguments.tensor(ctx, value, "args") for value in args]
    ctx.builder.create(
        D.Print,
        *[v.value for v in values],
        prefix=_prefix(text, bool(values)),
        hex=arguments.static_bool(hex, "hex"),
        signed=tuple(bool(v.dtype.is_int_signed()) for v in values),
    )


@implements(language.device_assert)
def device_assert(ctx, cond, msg="", mask=None):
    text = arguments.static(msg, "msg")
    if not isinstance(text, str):
        raise ArgumentProblem("msg", f"must be a string, is {describe(text)}")
    if not ctx.debug:
        return
    holds = not_zero(ctx, arguments.tensor(ctx, cond, "cond"))
    if mask is not None:
        outside = logical_not(ctx, arguments.tensor(ctx, mask, "mask"))
        holds = bitor(ctx, *broadcast(ctx, holds, outside))
    ctx.builder.create(D.Assert, holds.value, message=text)
