"""CUDA's promises: the largest error of each function in ulp of the correctly rounded result, for float32 and
float64 (*CUDA C++ Programming Guide*, *Mathematical Functions*, tables of standard functions)."""

from __future__ import annotations

import mpmath

ULPS = {
    "rsqrt": (2, 1), "cbrt": (1, 1), "rcbrt": (1, 1), "hypot": (3, 2), "rhypot": (2, 1), "norm3d": (3, 2),
    "rnorm3d": (2, 1), "norm4d": (3, 2), "rnorm4d": (2, 1), "exp": (2, 1), "exp2": (2, 1), "exp10": (2, 1),
    "expm1": (1, 1), "log": (1, 1), "log2": (1, 1), "log10": (2, 1), "log1p": (1, 1), "sin": (2, 2),
    "cos": (2, 2), "sinpi": (1, 2), "cospi": (1, 2), "tan": (4, 2), "asin": (2, 2), "acos": (2, 2),
    "atan": (2, 2), "atan2": (3, 2), "sinh": (3, 2), "cosh": (2, 1), "tanh": (2, 1), "asinh": (3, 3),
    "acosh": (4, 3), "atanh": (3, 2), "pow": (4, 2), "erf": (2, 2), "erfc": (4, 5), "erfinv": (2, 5),
    "erfcinv": (4, 6), "erfcx": (4, 4), "normcdf": (5, 5), "normcdfinv": (5, 8), "lgamma": (6, 4),
    "tgamma": (5, 10), "j0": (9, 7), "j1": (9, 7), "y0": (9, 7), "y1": (9, 7), "cyl_bessel_i0": (6, 6),
    "cyl_bessel_i1": (6, 6),
}  # fmt: skip
"""lgamma outside of (-11.0001, -2.2637), Bessel's functions of the first and second kind below 8."""

ABSOLUTE = (2.2e-6, 5e-12)
"""The error of Bessel's functions of the first and second kind from 8 on."""


def _inverse_complementary(x):
    if x > 1e-5:
        return mpmath.erfinv(1 - x)
    y = mpmath.sqrt(-mpmath.log(x))
    for _ in range(8):  # Newton's method on the logarithm
        e = mpmath.erfc(y)
        y += mpmath.log(e / x) * e * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
    return y


def _length(*x):
    return mpmath.sqrt(sum(v * v for v in x))


EXACT = {
    "rsqrt": lambda x: 1 / mpmath.sqrt(x), "hypot": _length, "norm3d": _length, "norm4d": _length,
    "rhypot": lambda *x: 1 / _length(*x), "rnorm3d": lambda *x: 1 / _length(*x),
    "rnorm4d": lambda *x: 1 / _length(*x), "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "rcbrt": lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)), "exp2": lambda x: mpmath.power(2, x),
    "exp10": lambda x: mpmath.power(10, x), "log2": lambda x: mpmath.log(x, 2), "erfc": mpmath.erfc,
    "pow": lambda x, y: mpmath.power(x, y), "erfcinv": _inverse_complementary,
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "normcdf": lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "normcdfinv": lambda p: -mpmath.sqrt(2) * _inverse_complementary(2 * p),
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))), "tgamma": mpmath.gamma,
    "j0": lambda x: mpmath.besselj(0, x), "j1": lambda x: mpmath.besselj(1, x),
    "y0": lambda x: mpmath.bessely(0, x), "y1": lambda x: mpmath.bessely(1, x),
    "jn": mpmath.besselj, "yn": mpmath.bessely,
    "cyl_bessel_i0": lambda x: mpmath.besseli(0, x), "cyl_bessel_i1": lambda x: mpmath.besseli(1, x),
}  # fmt: skip
"""Where mpmath has not the very function under the very name."""


def exact(name: str):
    """The exact function of this name, of mpmath's numbers."""
    return EXACT.get(name) or getattr(mpmath, name)
