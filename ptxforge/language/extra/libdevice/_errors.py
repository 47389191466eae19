"""The error function and its relatives."""

from __future__ import annotations

from ptxforge.language import arith, core, math
from ptxforge.language.constexpr import constexpr
from ptxforge.language.extra.libdevice._exponentials import _exp
from ptxforge.language.registry import constexpr_function, library
from ptxforge.language.types import PropagateNan

_ERFC = {
    32: (
        9.055371e-05, 0.005455713, -0.01649127, 0.03694717, -0.06630044, 0.09376863, -0.10103969, 0.06809487,
        0.015379637, -0.13962108, 1.2329952,
    ),
    64: (
        -1.0476718674668371e-08, -1.2224048303152388e-08, 1.0568025135820959e-07, 6.702452833728971e-08,
        -8.22559563206072e-07, 2.9955790685567077e-07, 5.7086428044048145e-06, -1.12247322473501e-05,
        -2.4398983809134553e-05, 0.00015062249512264785, -0.00019925671345040716, -0.0007577734486762808,
        0.0050319699756138135, -0.01619773403826592, 0.03716751553818893, -0.06633036581360713,
        0.09373283499828751, -0.10103906603625375, 0.0680970542546948, 0.015379652102619027,
        -0.13962111684056253, 1.2329951186255526,
    ),
}  # fmt: skip
"""exp(x²)·erfc(x)·(1 + 2x) as a polynomial in (x - 4)/(x + 4) for x from 0.5, of highest degree first: fitted
at Chebyshev's points in 300 bits, to 2e-9 for x up to 10.1 (float32) and 4e-18 for x up to 28 (float64)."""


@constexpr_function
def _erfc_coefficients(bits):
    return _ERFC[bits]


@library
def erfc(x):
    """1 - erf(``x``) without cancellation: within 6 ulp. erfc(inf) is 0, erfc(-inf) is 2.

    Below 0.5 from :func:`erf`, above as exp(-x²) times a polynomial (M. M. Shepherd, J. G. Laframboise,
    *Chebyshev Approximation of (1 + 2x) exp(x²) erfc x*, 1981).
    """
    coefficients: constexpr = _erfc_coefficients(x.dtype.primitive_bitwidth)
    far = arith.clamp(x, 0.5, 30.0, PropagateNan.ALL)
    t = math.div_rn(far - 4.0, far + 4.0)
    series = core.full(x.shape, coefficients[0], x.dtype)
    for i in core.static_range(1, len(coefficients)):
        series = math.fma(series, t, coefficients[i])
    square = far * far
    power = _exp(-square, 0, -math.fma(far, far, -square))
    return arith.where(x < 0.5, 1.0 - math.erf(x), power * math.div_rn(series, math.fma(far, 2.0, 1.0)))
