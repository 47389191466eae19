"""The matrix product."""

from __future__ import annotations

from ptxforge.language.registry import builtin
from ptxforge.language.types import dtype, float32, tensor


@builtin
def dot(
    input: tensor,
    other: tensor,
    acc: tensor | None = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: dtype = float32,
) -> tensor:
    """``input @ other + acc`` of blocks ``[M, K]`` and ``[K, N]``, or of batches of them.

    Operands have one type: float16, bfloat16, float32, float64, int8, uint8, or 8-bit floats (which may differ).
    The result is ``out_dtype`` (float32 or float16), int32 for 8-bit integers, float64 for float64; ``acc`` has its
    type and shape. ``input_precision`` says how float32 operands may be rounded for tensor cores: ``"tf32"`` (the
    default), ``"tf32x3"``, ``"bf16x3"``, ``"bf16x6"`` or ``"ieee"`` (not at all); ``allow_tf32`` is its older spelling.

        acc = tl.dot(a, b, acc)
    """
