"""The device library's functions, interpreted, against the exact ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

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
    "atanh": (np.arctanh, INSIDE), "cbrt": (np.cbrt, ANY), "erfc": (np.vectorize(math.erfc), np.clip(ANY, -2, 2)),
    "exp10": (lambda x: 10**x, ANY), "log10": (np.log10, POSITIVE), "log1p": (np.log1p, POSITIVE),
    "atan": (np.arctan, ANY), "asin": (np.arcsin, INSIDE), "acos": (np.arccos, INSIDE),
    "round": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), ANY), "nearbyint": (np.rint, ANY),
    "rcp_rn": (lambda x: 1 / x, POSITIVE), "fast_expf": (np.exp, ANY), "fast_logf": (np.log, POSITIVE),
    "fast_sinf": (np.sin, ANY), "fast_cosf": (np.cos, ANY), "sinh": (np.sinh, ANY + 4), "tanh": (np.tanh, ANY),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    exact, x = UNARY[name]
    out = run(unary, getattr(libdevice, name), np.zeros(16, np.float32), x)
    np.testing.assert_allclose(
        out, exact(x.astype(np.float64)), rtol=3e-6, atol=1e-7 if name == "erfc" else 1e-30
    )


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
    [("float2int_rn", np.rint), ("float2int_rz", np.trunc), ("float2int_rd", np.floor), ("float2int_ru", np.ceil),
     ("llrint", np.rint)],
)  # fmt: skip
def test_to_integers(name, exact):
    out = run(unary, getattr(libdevice, name), np.zeros(16, np.int64), ANY)
    assert (out == exact(ANY)).all()


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_popc(dtype):
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, 16, dtype=dtype, endpoint=True)
    out = run(unary, libdevice.popc, np.zeros(16, np.int32), x)
    assert out.tolist() == [bin(int(v) & (2**info.bits - 1)).count("1") for v in x]


def test_every_listed_name_exists():
    assert all(hasattr(libdevice, name) for name in libdevice.__all__)
