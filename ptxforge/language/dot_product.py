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
    out_dtype: dtype | None = None,
) -> tensor:
    """``input @ other + acc`` of blocks ``[M, K]`` and ``[K, N]``, or of batches of them, on tensor cores.

    Operands have one type: float16, bfloat16, float32, float64, int8, uint8, or 8-bit floats (which may
    differ). The result is ``[M, N]`` of ``out_dtype``: float32, or float16 for float16 and 8-bit float
    operands (``None``: the type of ``acc``); it is int32 for 8-bit integers and float64 for float64 whatever
    ``out_dtype`` says. ``acc`` has its type and shape; ``None`` is zeros of float32. Sums are in the
    result's type, in an order that the tensor cores choose.

    ``input_precision`` says how float32 operands may be rounded for tensor cores:

    * ``"tf32"``: to 10 mantissa bits (the default); ``allow_tf32=True`` is its older spelling.
    * ``"tf32x3"``: split into two tf32 numbers, three products; close to float32.
    * ``"bf16x3"``: split into two bfloat16 numbers, three products; 16 mantissa bits.
    * ``"bf16x6"``: split into three bfloat16 numbers, six products; close to float32.
      (These three add to ``acc`` in float32, outside of tensor cores, which cut off what they add.)
    * ``"ieee"``: not at all, without tensor cores; ``allow_tf32=False`` is its older spelling.

    ``max_num_imprecise_acc=n``, of 8-bit floats: where the hardware adds products in less than float32
    (``wgmma``), it adds no more than ``n``, and at least 32, before their sum goes to ``acc`` in float32.
    Operands of different types or batches, sizes of K that differ, an ``acc`` of another type or shape, and
    ``out_dtype=tl.bfloat16`` are compile-time errors. Meanings: Triton's ``tl.dot``.

        acc = tl.dot(a, b, acc)
    """


@builtin
def dot_scaled(
    lhs: tensor,
    lhs_scale: tensor | None,
    lhs_format: str,
    rhs: tensor,
    rhs_scale: tensor | None,
    rhs_format: str,
    acc: tensor | None = None,
    fast_math: bool = False,
    lhs_k_pack: bool = True,
    rhs_k_pack: bool = True,
    out_dtype: dtype = float32,
) -> tensor:
    """``lhs @ rhs + acc`` of blocks in microscaling (MX) formats: 32 elements along K share a scale.

    ``lhs`` is ``[M, K]`` and ``rhs`` is ``[K, N]``, or batches of them. ``lhs_format`` and ``rhs_format``
    name the types of their elements, at compile time:

    * ``"e2m1"``: 4-bit floats (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives), two to a ``uint8``, the first
      in the low bits. Packed along K: ``[M, K/2]`` and ``[K/2, N]``; with ``lhs_k_pack=False`` along M:
      ``[M/2, K]``; with ``rhs_k_pack=False`` along N: ``[K, N/2]``.
    * ``"e4m3"``: ``float8e4nv``, or their bits as ``uint8``. ``"e5m2"``: ``float8e5``, or ``uint8``.
    * ``"bf16"``: ``bfloat16``, or their bits as ``uint16``. ``"fp16"``: ``float16``, or ``uint16``.

    A scale belongs to a row of ``lhs`` or a column of ``rhs``: ``lhs_scale`` is ``[M, K/32]``, ``rhs_scale``
    is ``[N, K/32]`` (not transposed). It is ``uint8`` in format e8m0, the power of two ``2 ** (scale - 127)``
    with 255 for NaN, or ``float8e4nv``; one for 16 elements (NVFP4: ``[M, K/16]``) is allowed too. ``None``
    means 1. ``fast_math`` promises that no scale is NaN.

    The result is ``[M, N]`` of ``out_dtype``, which is float32, as ``acc`` must be. Elements are widened to
    bfloat16 and multiplied by their scale there, rounding to nearest even; then :func:`dot` does the rest on
    tensor cores. When one format is ``"fp16"``, both sides take float16 instead, where scales of 2**-25 and
    less become 0 and those of 2**16 and more infinite. A format, element type or shape that does not fit is a
    compile-time error. Formats: OCP Microscaling Formats (MX) Specification, version 1.0.

        acc = tl.dot_scaled(a, a_scale, "e4m3", b, b_scale, "e2m1", acc)
    """
