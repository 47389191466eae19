"""The matrix product."""

from __future__ import annotations

import numpy as np

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.product_steps import fma_steps, mma_steps
from ptxforge.support.errors import VerificationError

PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


class Product(Operation):
    """Base of matrix products: ``a @ b`` is added to ``c``, which may be a flight of accumulators."""

    input_precision = ""
    is_later_part = False
    """Whether it goes on with a sum that another part of the same product has begun."""

    @property
    def sums(self) -> T.TensorType:
        """The type of the accumulators as a tensor."""
        return self.c.type.tensor if isinstance(self.c.type, T.FlightType) else self.c.type

    @property
    def element(self) -> T.Type:
        """The element type of the accumulators."""
        return self.sums.element

    def order_of_sums(self):
        """Family and its K, element types, and how much of K one product takes."""
        layout, a, b = self.sums.layout, self.a.type, self.b.type
        family = ("mma", layout.version[0], layout.instr_shape[2:]) if isinstance(layout, Mma) else ("fma",)
        elements = str(a.element), str(b.element), str(self.element)
        return "product", family, *elements, a.shape[-1], self.input_precision


@D.define("dot", traits=[D.ANCHOR], shows_operand_types=True)
class Dot(Product):
    """``a @ b + c`` for ``[M, K] @ [K, N]``, or the same for each leading index of 3-D operands.

    Products of floats are summed in f32 (f64 for f64; f16 when ``c`` is f16), of 8-bit integers in i32.
    ``input_precision`` says how f32 operands may be rounded for tensor cores; ``ieee`` means not at all.
    In the gpu stage ``a`` and ``b`` have ``dot_op`` layouts whose parent is the layout of ``c`` and the
    result. ``a_unsigned``/``b_unsigned`` say that integer operands are u8.
    """

    a = D.operand(D.TENSOR)
    b = D.operand(D.TENSOR)
    c = D.operand(D.TENSOR)
    input_precision = D.attribute(PRECISIONS, "tf32")
    max_num_imprecise_acc = D.attribute(int, 0)
    a_unsigned = D.attribute(bool, False)
    b_unsigned = D.attribute(bool, False)

    infer = D.gives_type_of(2)

    def check(self):
        a, b, c = self.a.type, self.b.type, self.c.type
        fits = a.shape[:-2] == b.shape[:-2] == c.shape[:-2] and a.shape[-1] == b.shape[-2]
        if not fits or c.shape[-2:] != (a.shape[-2], b.shape[-1]):
            raise VerificationError(f"'dot' of {a}, {b} and {c}: shapes do not fit")

    def evaluate(self, a, b, c):
        return c + multiply_matrices(
            self.as_held(a, self.a_unsigned), self.as_held(b, self.b_unsigned), c.dtype
        )

    @property
    def steps(self) -> tuple:
        """The instructions of one thread, in order: see ``layouts/product_steps.py``."""
        a, b, c = (v.type.layout.linear(v.type.shape) for v in self.operands)
        layout = self.c.type.layout
        if isinstance(layout, Mma):
            return mma_steps(a, b, c, max(self.a.type.layout.k_width, 1), self.a.type.element.bits, layout)
        return fma_steps(a, b, c)

    @staticmethod
    def as_held(x: np.ndarray, unsigned: bool) -> np.ndarray:
        return x.view(np.uint8) if unsigned else x


def multiply_matrices(a: np.ndarray, b: np.ndarray, accumulator: np.dtype) -> np.ndarray:
    """``a @ b`` with products summed in f64 (exact for integers) and one rounding to ``accumulator``."""
    with np.errstate(all="ignore"):
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(accumulator)
