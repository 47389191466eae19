"""The functions of CUDA's device library, under its names.

Arguments are blocks, scalars or numbers of float32 or float64 (integers where it says so), and results have
their type and shape; other types are compile-time errors. Functions that the language
has are the language's own (:mod:`ptxforge.language.math`); the ``fast_`` ones are CUDA's intrinsics.

Accuracies are maximal errors in units in the last place (ulp) over the whole range of arguments, measured
against exact values in the tests for float32 and for float64, and never larger than CUDA's own (*CUDA C++
Programming Guide*, *Mathematical Functions*). Special values are those of C's ``math.h``.

    from ptxforge.language.extra import libdevice

    angle = libdevice.atan2(y, x)

The functions stand in the files of this package, which are read when a kernel (or anybody) asks for the first
name in them: importing the language does not.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODES = ("rn", "rz", "rd", "ru")
_ROUNDED = ("add", "sub", "mul", "div", "fma", "rcp", "sqrt")
_WHOLE = ("int", "uint", "ll", "ull")
_FILES = {
    "ptxforge.language.math": (
        "abs ceil cos erf exp2 floor fma log log2 rint rsqrt sin sqrt tan tanh trunc umulhi"
    ),
    "._instructions": (
        "brev byte_perm clz ffs mul24 mulhi popc rcp64h sad fast_cosf fast_dividef fast_exp10f fast_expf"
        " fast_log10f fast_log2f fast_logf fast_powf fast_sinf fast_tanf fast_tanhf "
        + " ".join(
            [f"{name}_{mode}" for name in _ROUNDED for mode in _MODES]
            + [f"{x}2{i}_{mode}" for x in ("float", "double") for i in _WHOLE for mode in _MODES]
            + [f"{i}2float_{mode}" for i in _WHOLE for mode in _MODES]
            + [f"{i}2double_{mode}" for i in ("ll", "ull") for mode in _MODES]
            + ["int2double_rn", "uint2double_rn", *[f"double2float_{mode}" for mode in _MODES]]
        )
    ),
    "._floats": (
        "copysign double2hiint double2loint double_as_longlong fdim finitef float_as_int float_as_uint fmax"
        " fmin fmod hadd hiloint2double ilogb int_as_float isfinited isinf isnan ldexp llrint llround logb"
        " longlong_as_double nearbyint nextafter remainder rhadd round saturatef scalbn signbit uint_as_float"
    ),
    "._exponentials": (
        "acosh asinh atanh cosh exp exp10 expm1 log10 log1p pow sinh"
        " cbrt hypot norm3d norm4d rcbrt rhypot rnorm3d rnorm4d rsqrt_rn"
    ),
    "._trigonometry": "acos asin atan atan2 cospi sinpi",
    "._bessel": "cyl_bessel_i0 cyl_bessel_i1 j0 j1 jn y0 y1 yn",
    "._special": "erfc erfcinv erfcx erfinv lgamma normcdf normcdfinv tgamma",
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names.split()}

__all__ = sorted(_FILE_OF)


def __getattr__(name: str) -> Any:
    file = _FILE_OF.get(name)
    if file is None:
        raise AttributeError(f"the device library has no '{name}'")
    value = globals()[name] = getattr(importlib.import_module(file, __name__), name)
    return value


def __dir__() -> list[str]:
    return __all__
