"""Why a product is done without tensor cores, and what helps: asked when it is."""

from __future__ import annotations

from ptxforge.ir.ops.dot import Dot


def why_no_tensor_core(op: Dot) -> tuple[str, str]:
    """(why, cure) of a product that is done on the FMA units."""
    m, n, k = *op.c.type.shape[-2:], op.a.type.shape[-1]
    element = str(op.a.type.element)
    if element == "f32" and op.input_precision == "ieee":
        return (
            "f32 operands with input_precision 'ieee' are multiplied without tensor cores",
            "'tf32' or 'tf32x3' uses them, where that is exact enough",
        )
    if min(m, n, k) < 8:
        return f"a product of {m}x{n}x{k} is too small for tensor cores", "let each extent be 16 or more"
    return (
        f"tensor cores do not take {element} with {op.c.type.element} here",
        "use f16, bf16 or int8 operands",
    )
