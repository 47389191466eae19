"""Give every tensor a layout: the step from the tile stage to the gpu stage.

    %x = make_range {start = 0, end = 128} : tensor<128xi32>                                  (before)
    %y = expand_dims %x {axis = 1} : (tensor<128xi32>) -> tensor<128x1xi32>

    %x = make_range {start = 0, end = 128} : tensor<128xi32, #b1>                             (after)
    %c = convert_layout %x : (tensor<128xi32, #b1>) -> tensor<128xi32, #slice<{dim = 1, parent = #b2}>>
    %y = expand_dims %c {axis = 1} : (…) -> tensor<128x1xi32, #b2>

Rules (those of seed 002)
-------------------------
DEFAULT     A tensor gets the default blocked layout of its shape (``encodings.default_blocked``). Where an
            operand has another one, a ``convert_layout`` goes before its user.
DERIVED     broadcast, trans, join, cat, reshape, reduce, scan, gather and casts derive their result's layout
            from their (default) operands'.
EXPAND      ``expand_dims`` has the operand's layout with a 1 inserted; the operand is converted to its slice.
SPLIT       The result is the default; the operand gets what ``join`` would make of it.
DOT         4x4 (2x2) elements per thread where there are 16 (4) for each; a and b become ``dot_op`` of that.
CONTROL     Loop-carried values and results of ``if`` have the default.

Everything here is provisional: coalesce, accelerate_matmul and remove_layout_conversions choose better.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Value
from ptxforge.ir.ops.control import For, If, While
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.shape import (
    ExpandDims,
    Split,
)
from ptxforge.layouts.encodings import (
    Blocked,
    Distributed,
    DotOperand,
    Slice,
    blocked_for_dot,
    blocked_for_expand_dims,
    default_blocked,
    infer_join,
)
from ptxforge.support.target import Target


def assign_layouts(function: Function, target: Target) -> bool:
    """Every tensor type gets a layout by the rules above; conversions are inserted where they disagree."""
    _Assigner(function.attributes["num_warps"]).block(function.body)
    return True


class _Assigner:
    def __init__(self, num_warps: int):
        self.num_warps = num_warps
        self.converted: dict[tuple[Value, Distributed, Block], Value] = {}

    def default(self, type: T.TensorType) -> Blocked:
        return default_blocked(type.shape, self.num_warps)

    def give_default(self, value: Value) -> None:
        if isinstance(value.type, T.TensorType):
            value.type = value.type.with_layout(self.default(value.type))

    def require(self, op: Operation, index: int, layout: Distributed | None = None) -> None:
        """Make operand ``index`` of ``op`` have ``layout`` (the default one of its shape)."""
        value = op.operands[index]
        if not isinstance(value.type, T.TensorType):
            return
        layout = layout or self.default(value.type)
        if value.type.layout == layout:
            return
        key = (value, layout, op.parent)
        if key not in self.converted:
            type = value.type.with_layout(layout)
            self.converted[key] = Builder.at(op).value(ConvertLayout, value, type=type)
        op.set_operand(index, self.converted[key])

    def require_defaults(self, op: Operation) -> None:
        for index in range(len(op.operands)):
            self.require(op, index)

    def block(self, block: Block) -> None:
        for op in block.operations:
            _RULES.get(type(op), _derived)(self, op)


def _derived(self: _Assigner, op: Operation) -> None:
    """Operands have their defaults, results what follows from them, or else theirs."""
    self.require_defaults(op)
    results = [r for r in op.results if isinstance(r.type, T.TensorType)]
    if results and hasattr(op, "infer"):
        layouts = map(T.layout_of, op.infer([v.type for v in op.operands], op.attributes))
    else:
        source = T.layout_of(op.operands[0].type) if op.operands else None
        layouts = [op.result_layout(source, 0) if source is not None else None] * len(results)
    for result, layout in zip(op.results, layouts):
        if isinstance(result.type, T.TensorType):
            result.type = result.type.with_layout(layout or self.default(result.type))


def _expand_dims(self: _Assigner, op: ExpandDims) -> None:
    layout = blocked_for_expand_dims(self.default(op.x.type), op.axis)
    self.require(op, 0, Slice(op.axis, layout))
    op.result.type = op.result.type.with_layout(layout)


def _split(self: _Assigner, op: Split) -> None:
    half = op.results[0].type
    self.require(op, 0, infer_join(self.default(half), half.shape))
    for result in op.results:
        self.give_default(result)


def _dot(self: _Assigner, op: Dot) -> None:
    layout = blocked_for_dot(op.result.type.shape, self.num_warps)
    self.require(op, 0, DotOperand(0, layout))
    self.require(op, 1, DotOperand(1, layout))
    self.require(op, 2, layout)
    op.result.type = op.result.type.with_layout(layout)


def _control(self: _Assigner, op: Operation) -> None:
    self.require_defaults(op)
    for region in op.regions:
        for argument in region.block.arguments:
            self.give_default(argument)
        self.block(region.block)
    for result in op.results:
        self.give_default(result)


_RULES: dict[type[Operation], Callable[[_Assigner, Operation], None]] = {
    ExpandDims: _expand_dims,
    Split: _split,
    Dot: _dot,
    For: _control,
    While: _control,
    If: _control,
}
