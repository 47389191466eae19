"""float8e4b15: conversions bit by bit against the format's definition, moves, products, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.frontend import build
from ptxforge.support.errors import CompilationError

BYTES = np.arange(256, dtype=np.uint8)


def value_of(byte: int) -> float:
    """One bit of sign, four of exponent (bias 15), three of mantissa; no infinities, no NaN."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    size = mantissa / 8 * 2.0**-14 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 15)
    return -size if byte & 128 else size


VALUES = np.array([value_of(byte) for byte in range(256)])


def byte_of(x: np.float16) -> int:
    """The nearest value up to 1.75, of two the one further from zero; a NaN's is 1.75, too."""
    sign = 128 if np.signbit(x) else 0
    size = 1.75 if np.isnan(x) else min(abs(float(x)), 1.75)
    distances = np.abs(VALUES[:127] - size)
    nearest = np.flatnonzero(distances == distances.min())[-1]
    return sign | int(nearest)


def on_all(devices, kernel, arrays: dict[str, np.ndarray], signature: dict[str, str], **constants):
    """What every executor writes to ``out``."""
    held = {name: array.copy() for name, array in arrays.items()}
    interpreter.run(build(kernel.fn, signature, constants, target="sm_90a"), 1, held)
    found = [held["out"]]
    art = kernel.compile(signature, constants, target="sm_90a")
    for device in devices:
        placed = {name: ptxforge.to_device(array, device) for name, array in arrays.items()}
        function = device.load_module(art.asm["ptx"]).function(kernel.fn.__name__)
        addresses = np.array([placed[name].data_ptr() for name in arrays], np.uint64).tobytes()
        function.launch((1, 1, 1), (128, 1, 1), art.shared_bytes, 0, addresses)
        found.append(placed["out"].numpy())
    return found


@ptxforge.jit
def convert(x, out, TYPE: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i, tl.load(x + i).to(TYPE))


@pytest.mark.parametrize("short, dtype", [("fp16", np.float16), ("fp32", np.float32), ("fp64", np.float64)])
def test_every_byte_widens_exactly(devices, short, dtype):
    arrays = {"x": BYTES, "out": np.zeros(256, dtype)}
    signature = {"x": "*fp8e4b15", "out": f"*{short}"}
    for got in on_all(devices, convert, arrays, signature, TYPE=tl.dtype(short), SIZE=256):
        np.testing.assert_array_equal(got, VALUES.astype(dtype))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(VALUES))


def test_every_half_narrows(devices):
    """All of the positive ones up to 2, and some of the others."""
    rng = np.random.default_rng(0)
    bits = np.concatenate([np.arange(0, 0x4000, 17), rng.integers(0, 1 << 16, 4096)])[:4096]
    bits = np.concatenate([bits[:4088], [0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x8000, 0x3F00, 0x3F80, 0x7BFF]])
    x = bits.astype(np.uint16).view(np.float16)
    wanted = np.array([byte_of(v) for v in x], np.uint8)
    arrays = {"x": x, "out": np.zeros(4096, np.uint8)}
    signature = {"x": "*fp16", "out": "*fp8e4b15"}
    for got in on_all(devices, convert, arrays, signature, TYPE=tl.float8e4b15, SIZE=4096):
        np.testing.assert_array_equal(got, wanted)


def test_from_float32_by_way_of_a_cut_off_half(devices):
    x = np.random.default_rng(1).normal(size=1024).astype(np.float32)
    x[:6] = [np.nan, np.inf, -np.inf, 1e-30, -1e30, -0.0]
    with np.errstate(over="ignore"):
        half = x.astype(np.float16)
    half = np.where(np.abs(half.astype(np.float32)) > np.abs(x), np.nextafter(half, np.float16(0)), half)
    wanted = np.array([byte_of(v) for v in half], np.uint8)
    arrays = {"x": x, "out": np.zeros(1024, np.uint8)}
    signature = {"x": "*fp32", "out": "*fp8e4b15"}
    for got in on_all(devices, convert, arrays, signature, TYPE=tl.float8e4b15, SIZE=1024):
        np.testing.assert_array_equal(got, wanted)


def test_moves_selections_and_constants(devices):
    @ptxforge.jit
    def kernel(x, out):
        i = tl.arange(0, 256)
        y = tl.load(x + i, mask=i < 200, other=0.5)
        y = tl.where(i < 10, tl.full([256], -1.1, tl.float8e4b15), y)
        y = tl.reshape(tl.trans(tl.reshape(y, (16, 16))), (256,))
        tl.store(out + i, tl.extra.cuda.convert_custom_float8(y, tl.float16).to(tl.float8e4b15))

    wanted = BYTES.copy()
    wanted[wanted == 0x7F] = 0x7E  # conversions make nothing above 1.75
    wanted[200:], wanted[:10] = byte_of(np.float16(0.5)), byte_of(np.float16(-1.1))
    wanted = wanted.reshape(16, 16).T.ravel()
    arrays = {"x": BYTES, "out": np.zeros(256, np.uint8)}
    for got in on_all(devices, kernel, arrays, {"x": "*fp8e4b15", "out": "*fp8e4b15"}):
        np.testing.assert_array_equal(got, wanted)


def test_products_are_of_halves(devices):
    @ptxforge.jit
    def kernel(x, out):
        i, j = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
        y = tl.load(x + i * 16 + j)
        tl.store(out + i * 16 + j, tl.dot(y, y))

    x = np.random.default_rng(2).integers(0, 256, 256).astype(np.uint8)
    exact = VALUES[x].reshape(16, 16) @ VALUES[x].reshape(16, 16)
    arrays = {"x": x, "out": np.zeros((16, 16), np.float32)}
    for got in on_all(devices, kernel, arrays, {"x": "*fp8e4b15", "out": "*fp32"}):
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sum", "add", "less", "abs"])
def test_arithmetic_is_refused(name):
    @ptxforge.jit
    def kernel(x, out, NAME: tl.constexpr):
        y = tl.load(x + tl.arange(0, 16))
        if NAME == "sum":
            y = tl.sum(y, 0)
        elif NAME == "add":
            y = y + y
        elif NAME == "less":
            y = y < y
        else:
            y = tl.abs(y)
        tl.store(out, y)

    with pytest.raises(CompilationError, match="float8e4b15 is a type of memory"):
        kernel.compile({"x": "*fp8e4b15", "out": "*fp8e4b15"}, {"NAME": name}, target="sm_80")
