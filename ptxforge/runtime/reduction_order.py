"""In which order a compiled kernel adds: read from its IR, to tell configurations apart that may round
differently.

Two configurations of one kernel give the same bits on the same input when every product and reduction
combines the same numbers in the same order. That is decided by

* each product's share of K (the extent of its operands), the family of instructions that makes it (``fma``,
  ``mma``, ``wgmma``) with the K of one of them, element types and precision;
* each reduction's and scan's extent and the tree in which registers, lanes and warps combine, which is the
  layout along the axis, as a linear map;
* atomic additions of floats, whose order nobody decides.

Where two orders are equal here, so are the results; the reverse need not hold.
"""

from __future__ import annotations

from typing import Any

from ptxforge.compiler import Artifact
from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry that the parser reads
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.parser import parse_function
from ptxforge.layouts.encodings import Mma

Order = tuple[tuple[Any, ...], ...]


def reduction_order(artifact: Artifact) -> Order:
    """What decides the bits of a kernel's results, as a value to compare."""
    function = parse_function(artifact.asm["gpu"])
    return tuple(fact for operation in function.walk() if (fact := _fact(operation)) is not None)


def _fact(operation: Operation) -> tuple[Any, ...] | None:
    if operation.name == "dot":
        return _product(operation, operation.c.type, operation.input_precision)
    if operation.name == "dot_async":
        return _product(operation, operation.c.type.tensor, "")  # a bound of imprecise sums has cut K
    if operation.name in ("reduce", "scan"):
        return _tree(operation)
    if operation.name == "atomic_rmw" and operation.kind == "fadd":
        return "atomic", str(T.element_type(operation.value.type))
    return None


def _product(operation: Operation, result: Any, precision: Any) -> tuple[Any, ...]:
    """Family and its K, element types, and how much of K one product takes."""
    layout = result.layout
    family = ("mma", layout.version[0], layout.instr_shape[2:]) if isinstance(layout, Mma) else ("fma",)
    a, b = operation.a.type, operation.b.type
    return "product", family, str(a.element), str(b.element), str(result.element), a.shape[-1], precision


def _tree(operation: Operation) -> tuple[Any, ...]:
    """Extent and element types, what is combined, and which coordinate along the axis each bit of register,
    lane and warp moves."""
    kind, axis = operation.inputs[0].type, operation.axis
    linear = kind.layout.linear(kind.shape)
    bits = tuple(
        (name, tuple(step for bit in range(linear.in_bits(name)) if (step := _step(linear, name, bit, axis))))
        for name, _ in linear.in_items()
    )
    elements = tuple(str(value.type.element) for value in operation.inputs)
    return operation.name, elements, operation.combine_name, kind.shape[axis], bits


def _step(linear: Any, name: str, bit: int, axis: int) -> int:
    others = {other: 0 for other, _ in linear.in_items()}
    return linear.apply(**others | {name: 1 << bit})[axis]
