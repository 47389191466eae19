"""Products: which instruction makes them, and how much work they are for what they load."""

from __future__ import annotations

import math

import attrs

from ptxforge.ir.core import Function
from ptxforge.ir.ops import dot as ops
from ptxforge.layouts.encodings import Mma
from ptxforge.passes.analysis.dot_reasons import why_no_tensor_core
from ptxforge.support.location import Location
from ptxforge.support.target import Target


@attrs.frozen(slots=True)
class Product:
    """A ``dot`` of [``m``, ``k``] and [``k``, ``n``], ``batch`` times. ``unit`` is ``mma.sync``, ``wgmma`` or
    ``fma``; ``why`` and ``cure`` are empty for tensor cores."""

    location: Location | None
    m: int
    n: int
    k: int
    batch: int
    element: str
    accumulator: str
    unit: str
    why: str
    cure: str

    @property
    def flops(self) -> int:
        """Additions and multiplications of one execution by one program."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def intensity(self) -> float:
        """Operations per byte of both operands."""
        size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}.get(self.element, 1)
        return self.flops / (self.batch * size * self.k * (self.m + self.n))


def products_of(function: Function, target: Target) -> list[Product]:
    """The products, after tensor cores were given what they can do."""
    return [_product(op) for op in function.walk(ops.Product)]


def _product(op: ops.Product) -> Product:
    a, c = op.a.type, op.sums
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    unit = _unit(c.layout)
    why, cure = why_no_tensor_core(op) if unit == "fma" else ("", "")
    return Product(
        op.location, m, n, k, math.prod(c.shape[:-2]), str(a.element), str(c.element), unit, why, cure
    )


def _unit(layout: object) -> str:
    if not isinstance(layout, Mma):
        return "fma"
    return "wgmma" if layout.version[0] == 3 else "mma.sync"
