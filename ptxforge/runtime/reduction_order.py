"""In which order a compiled kernel adds: read from its IR, to tell configurations apart that may round
differently.

Two configurations of one kernel give the same bits on the same input when every product and reduction
combines the same numbers in the same order. That is decided by

* each product's share of K (the extent of its operands), the family of instructions that makes it (``fma``,
  ``mma``, ``wgmma``) with the K of one of them, element types and precision;
* each reduction's and scan's extent and the tree in which registers, lanes, warps and CTAs combine, which is
  the layout along the axis, as a linear map, and what passes chose for it;
* atomic additions of floats, whose order nobody decides.

Each operation says it of itself (``order_of_sums``). Where two orders are equal here, so are the results; the
reverse need not hold.
"""

from __future__ import annotations

from typing import Any

from ptxforge.compiler import Artifact
from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry that the parser reads
from ptxforge.ir.parser import parse_function

Order = tuple[tuple[Any, ...], ...]


def reduction_order(artifact: Artifact) -> Order:
    """What decides the bits of a kernel's results, as a value to compare."""
    function = parse_function(artifact.asm["gpu"])
    return tuple(order for operation in function.walk() if (order := operation.order_of_sums()) is not None)
