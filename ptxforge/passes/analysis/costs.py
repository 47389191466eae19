"""What operations, conversions and memory accesses cost, roughly: issue slots of one warp.

Only differences between alternatives matter: to compute a value again in another layout or to convert it, to
load in this layout or in that one. What happens in a loop counts ten times.
"""

from __future__ import annotations

from functools import lru_cache

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Operation
from ptxforge.ir.definition import EXPENSIVE, FREE
from ptxforge.ir.ops.control import loops_around
from ptxforge.ir.ops.reduce import Combining
from ptxforge.layouts.banks import register_run
from ptxforge.layouts.conversion import estimated_cost
from ptxforge.layouts.encodings import Distributed, elements_per_thread, unique_elements_per_thread
from ptxforge.layouts.linear import LANE
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis, vector_width
from ptxforge.support import machine


def loop_weight(block: Block) -> float:
    """How often, relative to the function's top level, what stands in ``block`` runs."""
    return machine.LOOP_WEIGHT ** len(loops_around(block.first))


def computation_cost(op: Operation, layout: Distributed) -> float:
    """Cost of a pure operation whose result has ``layout``."""
    if op.cost == FREE:
        return 0.1
    type = op.results[0].type
    if isinstance(op, Combining):
        source = op.inputs[0].type
        return (
            5.0 * elements_per_thread(source.layout, source.shape) * len(op.inputs)
            + machine.SHARED_ROUND_TRIP
        )
    registers = unique_elements_per_thread(layout, T.shape_of(type))
    is_pointer = isinstance(type.element if isinstance(type, T.TensorType) else type, T.PointerType)
    per_register = machine.EXPENSIVE_OPERATION if op.cost == EXPENSIVE else 2.0 if is_pointer else 1.0
    return registers * per_register


def conversion_cost(source: Distributed, result: Distributed, type: T.TensorType) -> float:
    """Cost of converting a tensor of ``type`` (its own layout does not matter)."""
    return estimated_cost(source, result, type.shape, type.element.bits)


def reading_cost(layout: Distributed, type: T.TensorType) -> float:
    """Cost of reading a tile of ``type`` in ``layout`` from shared memory, where it already is."""
    words = max(1.0, elements_per_thread(layout, type.shape) * type.element.bits / 32)
    return words * machine.WAVEFRONT


def access_cost(op: Operation, layout: Distributed, facts: AxisInfoAnalysis) -> float:
    """Cost of a load or store in ``layout``: its instructions and the sectors that each touches.

    A thread's vector and the lanes that continue it make runs of consecutive memory; every run takes its
    share of 32-byte sectors, at least one.
    """
    type = op.pointer.type
    size = type.element.pointee.bytes
    info = facts[op.pointer]
    dim = register_run(layout, type.shape)[0]
    vector = vector_width(op, layout, facts, machine.VECTOR_BYTES)
    instructions = elements_per_thread(layout, type.shape) // vector
    span, lanes = _lane_run(layout, type.shape, vector)
    span = min(span, info.contiguity[_lane_dim(layout, type.shape)] if vector == 1 else info.contiguity[dim])
    pieces = max(1, lanes * vector // span)
    sectors = pieces * max(1.0, span * size / 32)
    return instructions * (machine.ACCESS_ISSUE + machine.SECTOR * sectors)


def _lane_dim(layout: Distributed, shape: tuple[int, ...]) -> int:
    """The dimension in which the first lanes lie side by side."""
    linear = layout.linear(shape)
    for column in linear.columns_of(LANE):
        if column:
            return next(d for d, v in enumerate(linear.unflatten(column)) if v)
    return len(shape) - 1


@lru_cache(maxsize=4096)
def _lane_run(layout: Distributed, shape: tuple[int, ...], vector: int) -> tuple[int, int]:
    """(elements in a row that a warp's lanes hold together with ``vector`` each, lanes that hold different
    elements)."""
    linear = layout.linear(shape)
    dim = register_run(layout, shape)[0] if vector > 1 else _lane_dim(layout, shape)
    shift = 0
    for extent in shape[dim + 1 :]:
        shift += extent.bit_length() - 1
    columns = linear.columns_of(LANE)
    span = vector
    while (span << shift) in columns and span < shape[dim]:
        span *= 2
    return span, 1 << sum(1 for c in columns if c)
