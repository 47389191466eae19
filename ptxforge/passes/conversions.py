"""Layouts of values and operations changed by conversions: what all passes about layouts insert."""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Operation, Value
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.layouts.encodings import Distributed
from ptxforge.layouts.linear import LayoutError


def converted(builder: Builder, value: Value, layout: Distributed) -> Value:
    """``value`` in ``layout``: itself, if it has that already."""
    if value.type.layout == layout:
        return value
    return builder.value(ConvertLayout, value, type=value.type.with_layout(layout))


def builder_after(value: Value) -> Builder:
    """A builder at the first place where ``value`` is known."""
    op = value.defining_op
    if op is not None:
        return Builder.after(op)
    block: Block = value.owner_block
    return Builder(block, block.first, block.first.location if block.first is not None else None)


def convert_at_definition(value: Value, layout: Distributed) -> Value:
    """Insert a conversion of ``value`` right after it is defined."""
    return builder_after(value).value(ConvertLayout, value, type=value.type.with_layout(layout))


def do_in_layout(op: Operation, layout: Distributed) -> None:
    """Convert the tensors that ``op`` takes to ``layout``, and its results back to what they had."""
    before = Builder.at(op)
    for index, value in enumerate(op.operands):
        if isinstance(value.type, T.TensorType):
            op.set_operand(index, before.value(ConvertLayout, value, type=value.type.with_layout(layout)))
    for result in op.results:
        retype(result, result.type.with_layout(layout))


def retype(result: Value, type: T.TensorType) -> None:
    """Give a result another layout, and its users a conversion back."""
    old, result.type = result.type, type
    back = convert_at_definition(result, old.layout)
    result.replace_all_uses_with(back, unless=lambda user: user is back.defining_op)


def result_layout(op: Operation, index: int, layout: Distributed) -> Distributed | None:
    """The layout of the results when operand ``index`` has ``layout``;
    ``None`` when the operation does not pass it on."""
    try:
        return op.result_layout(layout, index)
    except LayoutError:
        return None


def operand_layout(op: Operation, index: int, layout: Distributed) -> Distributed | None:
    """The layout that operand ``index`` must have for the results to have ``layout``;
    ``None`` when none will do."""
    try:
        return op.operand_layout(layout, index)
    except LayoutError:
        return None
