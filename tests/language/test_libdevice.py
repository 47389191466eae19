"""The device library's functions against the exact ones: interpreted, and how accurate their PTX is."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.frontend import build
from ptxforge.language.extra import libdevice
from ptxforge.support import dtypes


def unary(out, x, FN: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(out + i, FN(tl.load(x + i)))


def binary(out, x, y, FN: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(out + i, FN(tl.load(x + i), tl.load(y + i)))


def run(kernel, function, out, *inputs):
    arrays = dict(zip(("out", "x", "y"), (out, *inputs)))
    signature = {name: f"*{dtypes.from_numpy(array.dtype).short}" for name, array in arrays.items()}
    interpreter.run(build(kernel, signature, {"FN": function}, target="sm_90a"), 1, arrays)
    return out


ANY = np.array(
    [0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 0.49999997, 1e-8, -3e-4, 7.25, -9.75, 0.9, 3, -4, 20], np.float32
)
POSITIVE = np.abs(ANY) + np.float32(1e-6)
INSIDE = np.clip(ANY, -0.95, 0.95)

UNARY = {
    "cosh": (np.cosh, ANY), "acosh": (np.arccosh, POSITIVE + 1), "asinh": (np.arcsinh, ANY),
    "atanh": (np.arctanh, INSIDE), "cbrt": (np.cbrt, ANY),
    "erfc": (np.vectorize(math.erfc), np.clip(ANY, -2, 8)), "exp10": (lambda x: 10**x, ANY),
    "log10": (np.log10, POSITIVE), "log1p": (np.log1p, POSITIVE),
    "atan": (np.arctan, ANY), "asin": (np.arcsin, INSIDE), "acos": (np.arccos, INSIDE),
    "round": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), ANY), "nearbyint": (np.rint, ANY),
    "rcp_rn": (lambda x: 1 / x, POSITIVE), "fast_expf": (np.exp, ANY), "fast_logf": (np.log, POSITIVE),
    "fast_sinf": (np.sin, ANY), "fast_cosf": (np.cos, ANY), "sinh": (np.sinh, ANY), "tanh": (np.tanh, ANY),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    exact, x = UNARY[name]
    out = run(unary, getattr(libdevice, name), np.zeros(16, np.float32), x)
    np.testing.assert_allclose(out, exact(x.astype(np.float64)), rtol=3e-6, atol=1e-30)


BINARY = {
    "copysign": np.copysign, "fdim": lambda x, y: np.maximum(x - y, 0), "fmax": np.fmax, "fmin": np.fmin,
    "atan2": np.arctan2, "fmod": np.fmod, "hypot": np.hypot, "fast_dividef": lambda x, y: x / y,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    y = np.roll(ANY, 3) + np.float32(0.125)
    out = run(binary, getattr(libdevice, name), np.zeros(16, np.float32), ANY, y)
    np.testing.assert_allclose(out, BINARY[name](ANY.astype(np.float64), y.astype(np.float64)), rtol=3e-6)


SPECIAL = np.resize(np.array([0, -0.0, np.nan, np.inf, -np.inf, 1, -2], np.float64), 16)


@pytest.mark.parametrize(
    "name, exact",
    [("isnan", np.isnan), ("isinf", np.isinf), ("isfinited", np.isfinite), ("signbit", np.signbit)],
)
def test_classification(name, exact):
    out = run(unary, getattr(libdevice, name), np.zeros(16, np.bool_), SPECIAL)
    assert (out == exact(SPECIAL)).all()


@pytest.mark.parametrize(
    "name, exact",
    [("float2int_rn", np.rint), ("float2int_rz", np.trunc), ("float2int_rd", np.floor),
     ("float2int_ru", np.ceil), ("llrint", np.rint)],
)  # fmt: skip
def test_to_integers(name, exact):
    out = run(unary, getattr(libdevice, name), np.zeros(16, np.int64), ANY)
    assert (out == exact(ANY)).all()


# -- special values, of the emulator and of the GPU --------------------------------------------------------

COUNT = 512


@ptxforge.jit
def map_unary(x, out, FN: tl.constexpr, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    tl.store(out + i, FN(tl.load(x + i)))


@ptxforge.jit
def map_binary(x, y, out, FN: tl.constexpr, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    tl.store(out + i, FN(tl.load(x + i), tl.load(y + i)))


@ptxforge.jit
def map_ternary(x, y, z, out, FN: tl.constexpr, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    tl.store(out + i, FN(tl.load(x + i), tl.load(y + i), tl.load(z + i)))


@ptxforge.jit
def map_quaternary(x, y, z, w, out, FN: tl.constexpr, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    tl.store(out + i, FN(tl.load(x + i), tl.load(y + i), tl.load(z + i), tl.load(w + i)))


MAPS = {1: map_unary, 2: map_binary, 3: map_ternary, 4: map_quaternary}


def compute(device, function, *inputs, dtype=None):
    """``function`` of arrays of ``COUNT`` elements; the result has ``dtype``, or the first one's."""
    out = np.zeros(COUNT, dtype or inputs[0].dtype)
    placed = [ptxforge.to_device(a, device) for a in (*inputs, out)]
    MAPS[len(inputs)][1, 1, 1](*placed, FN=function, COUNT=COUNT)
    return placed[-1].numpy()


SPECIAL_UNARY = {
    "erfc": np.vectorize(math.erfc), "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "cbrt": np.cbrt, "log1p": np.log1p, "log10": np.log10,
    "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos, "expm1": np.expm1,
    "rcbrt": lambda x: 1 / np.cbrt(x), "saturatef": lambda x: np.fmin(np.fmax(x, 0.0) + 0.0, 1.0),
}  # fmt: skip
SPECIAL_VALUES = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -1e10, 1e30])


def _remainder(x, y):
    """As C has it; Python raises where that gives NaN."""
    is_nan = np.isnan(x) | np.isnan(y) | np.isinf(x) | (y == 0)
    with np.errstate(all="ignore"):
        held = np.where(is_nan, 0.0, x), np.where(is_nan, 1.0, y)
    return np.where(is_nan, np.nan, np.vectorize(math.remainder, otypes=[np.float64])(*held))


SPECIAL_BINARY = {
    "atan2": np.arctan2, "hypot": np.hypot, "fmod": np.fmod, "remainder": _remainder,
    "nextafter": np.nextafter,
}  # fmt: skip


def assert_same_specials(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SPECIAL_UNARY)
def test_special_values(devices, name, dtype):
    x = np.resize(SPECIAL_VALUES, COUNT).astype(dtype)
    with np.errstate(all="ignore"):
        expected = SPECIAL_UNARY[name](x.astype(np.float64)).astype(dtype)
    for device in devices:
        assert_same_specials(compute(device, getattr(libdevice, name), x), expected)


@pytest.mark.parametrize("name", ["atan2", "hypot", "fmod", "remainder", "nextafter"])
def test_special_pairs(devices, name):
    pairs = np.meshgrid(SPECIAL_VALUES, SPECIAL_VALUES)
    x, y = (np.resize(v.ravel(), COUNT).astype(np.float32) for v in pairs)
    with np.errstate(all="ignore"):
        expected = SPECIAL_BINARY[name](x, y).astype(np.float32)
    for device in devices:
        assert_same_specials(compute(device, getattr(libdevice, name), x, y), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainder_is_exact(emulator, dtype):
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-40, 41, COUNT) / 4 for _ in range(2))  # halves of y occur: ties go to even
    x[::2] = rng.uniform(-1e6, 1e6, COUNT // 2)
    y[y == 0] = 0.25
    x, y = x.astype(dtype), y.astype(dtype)
    expected = [math.remainder(float(a), float(b)) for a, b in zip(x, y)]
    np.testing.assert_array_equal(compute(emulator, libdevice.remainder, x, y), np.array(expected, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_next_float(emulator, dtype):
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=COUNT).astype(dtype) for _ in range(2))
    x[:4], y[:4] = [0, -0.0, 1, np.finfo(dtype).max], [1, -1, 1, np.inf]
    with np.errstate(over="ignore"):
        expected = np.nextafter(x, y)
    np.testing.assert_array_equal(compute(emulator, libdevice.nextafter, x, y), expected)


def test_multiples_of_pi_are_exact_where_that_is_simple(emulator):
    x = np.resize(np.array([0, -0.0, 1, -1, 2, 0.5, -0.5, 1.5, 2.5, 1e20, -3, np.inf], np.float32), COUNT)
    sine = np.array([0, -0.0, 0, -0.0, 0, 1, -1, -1, 1, 0, -0.0, np.nan])
    cosine = np.array([1, 1, -1, -1, 1, 0, 0, 0, 0, 1, -1, np.nan])
    assert_same_specials(compute(emulator, libdevice.sinpi, x)[:12], sine.astype(np.float32))
    assert_same_specials(compute(emulator, libdevice.cospi, x)[:12], cosine.astype(np.float32))


def test_llround(emulator):
    got = compute(emulator, libdevice.llround, np.resize(ANY * 3, COUNT), dtype=np.int64)
    exact = np.resize(ANY * 3, COUNT).astype(np.float64)
    assert got.tolist() == np.copysign(np.floor(np.abs(exact) + 0.5), exact).astype(np.int64).tolist()


def test_other_element_types_are_refused():
    with pytest.raises(ptxforge.errors.CompilationError, match="takes float32 and float64"):
        run(unary, libdevice.atan, np.zeros(16, np.float16), np.zeros(16, np.float16))


def beside_a_number(out, x, FN: tl.constexpr, NUMBER: tl.constexpr, FIRST: tl.constexpr):
    i = tl.arange(0, 16)
    loaded = tl.load(x + i)
    kind: tl.constexpr = loaded.dtype if isinstance(NUMBER, float) else tl.int32
    number = tl.full([16], NUMBER, kind)
    if FIRST is None:
        tl.store(out + i, FN(NUMBER) + tl.zeros([16], tl.int32))
        tl.store(out + 16 + i, FN(number))
    elif FIRST:
        tl.store(out + i, FN(NUMBER, loaded))
        tl.store(out + 16 + i, FN(number, loaded))
    else:
        tl.store(out + i, FN(loaded, NUMBER))
        tl.store(out + 16 + i, FN(loaded, number))


PAIRS = ["atan2", "copysign", "fdim", "fmod", "hypot", "nextafter", "remainder", "rhypot", "pow"]
ALONE = """
    acos acosh asin asinh atan atanh cbrt cosh cospi cyl_bessel_i0 cyl_bessel_i1 erfc erfcinv erfcx erfinv exp
    exp10 expm1 float_as_int ilogb j0 j1 lgamma log10 log1p logb nearbyint normcdf normcdfinv rcbrt round
    rsqrt_rn sinh sinpi tgamma y0 y1
"""
NUMBERS = [
    *[(name, 0.7, None) for name in ALONE.split()],
    *[(name, 0.7, first) for name in PAIRS for first in (True, False)],
    *[(name, 3, False) for name in ("ldexp", "scalbn", "pow", "hypot")],
    ("jn", 3, True),
    ("yn", 2, True),
]


@pytest.mark.parametrize(
    "name, number, first, dtype",
    [(*case, dtype) for case in NUMBERS for dtype in (np.float32, np.float64)[: 1 + (case[2] is not None)]],
)
def test_numbers_are_scalars(name, number, first, dtype):
    out = np.zeros(32, dtype)
    x = np.linspace(0.5, 8, 16).astype(dtype)
    signature = dict.fromkeys(("out", "x"), f"*{dtypes.from_numpy(out.dtype).short}")
    constants = {"FN": getattr(libdevice, name), "NUMBER": number, "FIRST": first}
    kernel = build(beside_a_number, signature, constants, target="sm_90a")
    interpreter.run(kernel, 1, {"out": out, "x": x})
    np.testing.assert_array_equal(out[:16], out[16:])
    assert np.any(out != 0)
