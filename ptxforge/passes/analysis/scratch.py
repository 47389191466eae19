"""How much shared memory an operation needs for itself while it runs (rules: ``ptxforge.layouts``)."""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops.atomic import AtomicCAS, AtomicRMW
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.reduce import Reduce, Scan
from ptxforge.ir.ops.shape import Gather, Histogram
from ptxforge.ir.ops.tensor_store import StoreBox
from ptxforge.layouts.conversion import Plan, SharedMemory, plan_conversion
from ptxforge.layouts.scratch import (
    atomic_scratch_bytes,
    gather_scratch_bytes,
    histogram_scratch_bytes,
    reduce_scratch_bytes,
    scan_scratch_bytes,
)
from ptxforge.support.target import Target


def scratch_bytes(op: Operation, num_warps: int) -> int:
    """Bytes of shared memory that ``op`` uses between its beginning and its end; 0 for most."""
    rule = _RULES.get(type(op))
    return rule(op, num_warps) if rule is not None else 0


def bytes_for_as_many_blocks(total: int, target: Target) -> int:
    """How many bytes cost no block: all that there are where ``total`` leaves no room for a second one."""
    return target.max_shared_bytes if 2 * total > target.max_shared_bytes else total


def conversion_plan(op: ConvertLayout) -> Plan:
    """How the conversion will be done."""
    type = op.x.type
    return plan_conversion(type.layout, op.result.type.layout, type.shape, type.element.bits)


def is_warp_local(op: Operation) -> bool:
    """Whether each warp reads only that scratch which it wrote itself,
    so that no other warp is waited for."""
    if not isinstance(op, ConvertLayout):
        return False
    plan = conversion_plan(op)
    return isinstance(plan, SharedMemory) and plan.warp_local


def _convert_layout(op: ConvertLayout, num_warps: int) -> int:
    plan = conversion_plan(op)
    if not isinstance(plan, SharedMemory):
        return 0
    return plan.scratch_bytes + op.scratch_pitch * (conversion_parts(op) - 1)


def conversion_parts(op: ConvertLayout) -> int:
    """In how many parts a conversion passes through shared memory."""
    plan = conversion_plan(op)
    return 1 << plan.repetition_bits if isinstance(plan, SharedMemory) else 1


def _reduce(op: Reduce, num_warps: int) -> int:
    return reduce_scratch_bytes(_linear(op.inputs[0]), op.axis, [v.type.element.bits for v in op.inputs])


def _scan(op: Scan, num_warps: int) -> int:
    return scan_scratch_bytes(_linear(op.inputs[0]), op.axis, [v.type.element.bits for v in op.inputs])


def _gather(op: Gather, num_warps: int) -> int:
    return gather_scratch_bytes(op.source.type.shape, op.source.type.element.bits)


def _histogram(op: Histogram, num_warps: int) -> int:
    return histogram_scratch_bytes(op.result.type.numel)


def _atomic(op: Operation, num_warps: int) -> int:
    if not op.is_used:
        return 0
    type = op.result.type
    layout = _linear(op.result) if isinstance(type, T.TensorType) else None
    return atomic_scratch_bytes(layout, T.element_type(type).bits, num_warps)


def _store_box(op: StoreBox, num_warps: int) -> int:
    """Parts of the tile, at least (``stage_boxes.py``)."""
    type = op.value.type
    columns = type.shape[1 - op.is_transposed]
    parts = min(2, columns // op.map.attributes["box"][-1])
    return type.numel // columns * op.map.attributes["box"][-1] * parts * type.element.bytes


def _linear(value):
    return value.type.layout.linear(value.type.shape)


_RULES: dict[type[Operation], Callable[[Operation, int], int]] = {
    ConvertLayout: _convert_layout,
    Reduce: _reduce,
    Scan: _scan,
    Gather: _gather,
    Histogram: _histogram,
    AtomicRMW: _atomic,
    AtomicCAS: _atomic,
    StoreBox: _store_box,
}
