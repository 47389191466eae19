"""Elementwise functions of floats and integers.

Transcendental functions take float32 and float64; cast other types first. Accuracies are those of the IR's
operations (``ptxforge.ir.ops.math``): 2 ulp unless said otherwise.
"""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import tensor


@builtin(member=True)
def exp(x: Any) -> tensor:
    """e**x. For float32 ``ex2.approx`` of x·log2(e).

    p = tl.exp(x - tl.max(x, axis=0))
    """


@builtin(member=True)
def exp2(x: Any) -> tensor:
    """2**x."""


@builtin(member=True)
def log(x: Any) -> tensor:
    """Natural logarithm."""


@builtin(member=True)
def log2(x: Any) -> tensor:
    """Logarithm to base 2."""


@builtin(member=True)
def sin(x: Any) -> tensor:
    """Sine, for any argument."""


@builtin(member=True)
def cos(x: Any) -> tensor:
    """Cosine, for any argument."""


@builtin
def tan(x: Any) -> tensor:
    """Tangent, for any argument."""


@builtin
def tanh(x: Any) -> tensor:
    """Hyperbolic tangent."""


@builtin
def pow(x: Any, y: Any) -> tensor:
    """x**y of floats, with C's rules for special values; both take their common type."""


@builtin(member=True)
def erf(x: Any) -> tensor:
    """The error function."""


@builtin(member=True)
def sqrt(x: Any) -> tensor:
    """Square root; for float32 within 1 ulp."""


@builtin(member=True)
def sqrt_rn(x: Any) -> tensor:
    """Square root, rounded to nearest even."""


@builtin(member=True)
def rsqrt(x: Any) -> tensor:
    """1/sqrt(x)."""


@builtin(member=True)
def floor(x: Any) -> tensor:
    """The largest integer not above x, as a float."""


@builtin(member=True)
def ceil(x: Any) -> tensor:
    """The smallest integer not below x, as a float."""


@builtin
def trunc(x: Any) -> tensor:
    """x without its fraction, as a float."""


@builtin
def rint(x: Any) -> tensor:
    """The nearest integer, ties to even, as a float."""


@builtin(member=True)
def abs(x: Any) -> tensor:
    """|x| of any number; unsigned integers stay themselves."""


@builtin
def fma(x: Any, y: Any, z: Any) -> tensor:
    """x·y + z of floats with one rounding; all three take their common type."""


@builtin
def umulhi(x: Any, y: Any) -> tensor:
    """The upper half of the product of unsigned 32- or 64-bit integers (also int32 and int64, seen as unsigned)."""


@builtin
def fdiv(x: Any, y: Any, ieee_rounding: bool = False) -> tensor:
    """x/y of floats; with ``ieee_rounding`` rounded to nearest even."""


@builtin
def div_rn(x: Any, y: Any) -> tensor:
    """x/y of floats, rounded to nearest even."""
