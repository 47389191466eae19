"""Elementwise functions of floats and integers.

Arguments are blocks, scalars or numbers; a result has the shape and the element type of the argument, and
several arguments take their common type and shape. Transcendental functions take float32 and float64: another
element type is a compile-time error (``TypeMismatchError``) that says how to cast.

Accuracies are maximal errors in units in the last place (ulp) of the result. Those of single instructions
(``ex2.approx``, ``sqrt.approx``, ``rsqrt.approx``, ``div.full``) are what the PTX ISA guarantees (section
*Floating-Point Instructions*); those of sequences are measured against exact values in the tests, on
arguments over the whole range. Subnormal arguments and results are kept. Special values are those of C's
``math.h``.
"""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import tensor


@builtin(member=True)
def exp(x: Any) -> tensor:
    """e to the power ``x`` (float32, float64).

    float32: ``ex2.approx`` of ``x * log2(e)``, whose rounding counts: within ``2 + 1.173 * abs(x)`` ulp (the
    bound of CUDA's ``__expf``, which is the same), so 2 ulp near 0 and 100 at the ends. float64: 2 ulp.
    exp(-inf) is 0, exp(inf) is inf; above 88.72 (709.78) the result is inf.

        p = tl.exp(x - tl.max(x, axis=0))
    """


@builtin(member=True)
def exp2(x: Any) -> tensor:
    """2 to the power ``x`` (float32, float64).

    float32: ``ex2.approx.ftz``, within 2 ulp of the rounded result; what is less than 2**-126 is 0, as in
    Triton, unless the launch has ``enable_reflect_ftz=False``. float64: 2 ulp. exp2(-inf) is 0, exp2(inf) is
    inf. Cheaper than :func:`exp`: denormals need no care, and the scale ``log2(e)`` can be folded into a
    factor that ``x`` has anyway.

        p = tl.exp2(scores * (scale * 1.4426950408889634))
    """


@builtin(member=True)
def log(x: Any) -> tensor:
    """Natural logarithm of ``x`` (float32, float64).

    Within 2 ulp, also near 1. log(0) is -inf, of negative numbers NaN, log(inf) is inf.
    """


@builtin(member=True)
def log2(x: Any) -> tensor:
    """Logarithm of ``x`` to base 2 (float32, float64).

    Within 2 ulp, also near 1. log2(0) is -inf, of negative numbers NaN, log2(inf) is inf.
    """


@builtin(member=True)
def sin(x: Any) -> tensor:
    """Sine of ``x`` in radians (float32, float64).

    Within 2 ulp for every finite argument: large ones are reduced with as many digits of 2/π as they need (M.
    Payne, R. Hanek, 1983). sin(-0.0) is -0.0, of infinities NaN.
    """


@builtin(member=True)
def cos(x: Any) -> tensor:
    """Cosine of ``x`` in radians (float32, float64).

    Within 2 ulp for every finite argument, as :func:`sin`. Of infinities NaN.
    """


@builtin
def tan(x: Any) -> tensor:
    """Tangent of ``x`` in radians (float32, float64).

    Within 2.5 ulp for every finite argument, as :func:`sin`. tan(-0.0) is -0.0, of infinities NaN.

        slope = tl.math.tan(angle)
    """


@builtin
def tanh(x: Any) -> tensor:
    """Hyperbolic tangent of ``x`` (float32, float64).

    Within 2 ulp. tanh(-0.0) is -0.0, tanh(±inf) is ±1.

        gate = tl.math.tanh(x)
    """


@builtin
def pow(x: Any, y: Any) -> tensor:
    """``x`` to the power ``y`` (float32, float64; both take their common type).

    float32: within 4 ulp (CUDA's bound). float64: within 2 ulp. Special values as C's ``pow``:
    ``pow(x, 0)`` and ``pow(1, y)`` are 1 even for a NaN; a negative ``x`` with a ``y`` that is no integer
    gives NaN.

        y = tl.math.pow(x, 1.5)
    """


@builtin(member=True)
def erf(x: Any) -> tensor:
    """The error function of ``x`` (float32, float64): 2/sqrt(π) · ∫ exp(-t²) dt from 0 to ``x``.

    Within 2 ulp. erf(-0.0) is -0.0, erf(±inf) is ±1.

        gelu = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    """


@builtin(member=True)
def sqrt(x: Any) -> tensor:
    """Square root of ``x`` (float32, float64).

    float32: ``sqrt.approx``, relative error up to 2**-23 (1 ulp). float64: rounded to nearest even.
    sqrt(-0.0) is -0.0, of negative numbers NaN, sqrt(inf) is inf.
    """


@builtin(member=True)
def sqrt_rn(x: Any) -> tensor:
    """Square root of ``x`` (float32, float64), rounded to nearest even as IEEE 754 wants it (0.5 ulp).

    Slower than :func:`sqrt` for float32; special values are the same.
    """


@builtin(member=True)
def rsqrt(x: Any) -> tensor:
    """``1 / sqrt(x)`` of ``x`` (float32, float64).

    float32: ``rsqrt.approx``, relative error up to 2**-22.9 (1.1 ulp). float64: 2 ulp. rsqrt(±0.0) is ±inf,
    of negative numbers NaN, rsqrt(inf) is 0.

        y = x * tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)
    """


@builtin(member=True)
def floor(x: Any) -> tensor:
    """The largest integer not above ``x``, as a float of ``x``'s type (any float). Exact; infinities and NaN
    stay."""


@builtin(member=True)
def ceil(x: Any) -> tensor:
    """The smallest integer not below ``x``, as a float of ``x``'s type (any float). Exact; infinities and NaN
    stay."""


@builtin
def trunc(x: Any) -> tensor:
    """``x`` without its fraction, as a float of ``x``'s type (any float). Exact; infinities and NaN stay.

    fraction = x - tl.math.trunc(x)
    """


@builtin
def rint(x: Any) -> tensor:
    """The integer nearest to ``x``, ties to even, as a float of ``x``'s type (any float). Exact; infinities
    and NaN stay.

        code = tl.math.rint(x / scale).to(tl.int8)
    """


@builtin(member=True)
def abs(x: Any) -> tensor:
    """The magnitude of ``x``: any float or integer; the result has its type.

    Exact: of a float the sign bit is cleared, also of -0.0 and NaN. The most negative integer stays itself;
    unsigned integers do.
    """


@builtin
def fma(x: Any, y: Any, z: Any) -> tensor:
    """``x * y + z`` of floats, with one rounding (0.5 ulp); all three take their common type and shape, in
    which a number is a float32 (an integer: an int32).

    The operators ``*`` and ``+`` may be fused as well; this one always is. Integers are a compile-time error.

        acc = tl.fma(a, b, acc)
    """


@builtin
def umulhi(x: Any, y: Any) -> tensor:
    """The upper half of the product of ``x`` and ``y``, both 32- or both 64-bit integers, taken as unsigned.

    The result has their common type. Narrower integers and floats are a compile-time error.

        high, low = tl.umulhi(a, b), a * b
    """


@builtin
def fdiv(x: Any, y: Any, ieee_rounding: bool = False, approx: bool = False) -> tensor:
    """``x / y`` of floats, in their common type and shape.

    float32: ``div.full``, 2 ulp; with the compile-time ``ieee_rounding``, and for float64 always, rounded to
    nearest even. float16 and bfloat16 divide in float32. x/0 is ±inf, 0/0 and inf/inf are NaN. Integers are a
    compile-time error (``/`` accepts them). ``approx`` (float32 only) has no effect.
    """


@builtin
def div_rn(x: Any, y: Any) -> tensor:
    """``x / y`` of floats in their common type and shape, rounded to nearest even as IEEE 754 wants it (0.5
    ulp).

    The same as :func:`fdiv` with ``ieee_rounding=True``.
    """
