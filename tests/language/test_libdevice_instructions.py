"""The device library's names and types, and the functions of it that are exact: every rounding mode, every
conversion, bits, exponents; on all executors, against exact rationals."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.frontend import build
from ptxforge.language.extra import cuda, libdevice
from ptxforge.support import dtypes
from ptxforge.support.errors import CompilationError
from tests.language.libdevice_names import EXTRA, SIGNATURES

FLOATS = (np.float32, np.float64)
MODES = ("rn", "rz", "rd", "ru")


# -- names and types -------------------------------------------------------------------------------------


def test_every_name_of_triton_is_there_and_no_other():
    assert set(libdevice.__all__) == set(SIGNATURES) | EXTRA
    assert all(callable(getattr(libdevice, name)) for name in libdevice.__all__)
    assert dir(libdevice) == sorted(libdevice.__all__)
    assert cuda.libdevice is tl.extra.libdevice is libdevice
    with pytest.raises(AttributeError, match="has no 'sine'"):
        _ = libdevice.sine


def types_kernel(CALLS: tl.constexpr):
    for k in tl.static_range(len(CALLS)):
        arguments = [tl.full([4], 1, t) for t in CALLS[k][1]]
        result = CALLS[k][0](*arguments)
        tl.static_assert(result.dtype == CALLS[k][2], CALLS[k][3])
        tl.static_assert(result.shape[0] == 4)


def test_every_signature_gives_its_type():
    for name, signatures in SIGNATURES.items():
        calls = tuple(
            (getattr(libdevice, name), tuple(map(tl.dtype, given)), tl.dtype(result), f"{name}: {given}")
            for given, result in signatures
        )
        build(types_kernel, {}, {"CALLS": calls}, target="sm_90a")


def test_numbers_and_mixed_types_take_the_common_type():
    def kernel(x):
        tl.static_assert(libdevice.add_rd(x, 1).dtype == tl.float64)
        tl.static_assert(libdevice.fma_ru(1.0, x.to(tl.float32), x).dtype == tl.float64)
        tl.static_assert(libdevice.add_rd(1, 0.5).dtype == tl.float32)
        tl.static_assert(libdevice.mulhi(x.to(tl.int32), 3).dtype == tl.int32)

    build(kernel, {"x": "fp64"}, {}, target="sm_90a")


@pytest.mark.parametrize(
    "name, type, message",
    [("add_rd", "fp16", "takes float32, float32 or float64, float64, not float16, float16"),
     ("popc", "fp32", "takes int32 or uint32 or int64 or uint64, not float32"),
     ("fast_sinf", "fp64", "takes float32, not float64")],
)  # fmt: skip
def test_other_types_are_refused(name, type, message):
    def kernel(x, FN: tl.constexpr, TWO: tl.constexpr):
        FN(x, x) if TWO else FN(x)

    with pytest.raises(CompilationError, match=message):
        build(kernel, {"x": type}, {"FN": getattr(libdevice, name), "TWO": name == "add_rd"}, target="sm_90a")


# -- many functions of the same arguments on every executor ----------------------------------------------


@ptxforge.jit
def call_all(x, y, z, out, CALLS: tl.constexpr, COUNT: tl.constexpr, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    arguments = (tl.load(x + i), tl.load(y + i), tl.load(z + i))
    for k in tl.static_range(len(CALLS)):
        tl.store(out + k * SIZE + i, CALLS[k](*arguments[:COUNT]))


def results(devices, names: list[str], arguments: list[np.ndarray], dtype: np.dtype):
    """The results of each executor, a row per function. All arrays have one size, a power of two."""
    size = len(arguments[0])
    constants = dict(CALLS=tuple(getattr(libdevice, n) for n in names), COUNT=len(arguments), SIZE=size)
    given = (arguments * 3)[:3]
    arrays = dict(zip("xyz", (a.copy() for a in given)), out=np.zeros((len(names), size), dtype))
    signature = {name: f"*{dtypes.from_numpy(array.dtype).short}" for name, array in arrays.items()}
    interpreter.run(build(call_all.fn, signature, constants, target="sm_90a"), 1, arrays)
    found = [arrays["out"]]
    for device in devices:
        placed = [ptxforge.to_device(a, device) for a in (*given, np.zeros_like(arrays["out"]))]
        call_all[1, 1, 1](*placed, **constants)
        found.append(placed[-1].numpy())
    return found


def any_floats(dtype, size=256, seed=0) -> np.ndarray:
    """Every order of magnitude, subnormals, simple numbers, limits, infinities, NaN."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(seed)
    low, high = int(np.log2(float(info.tiny))) - info.nmant, info.maxexp
    with np.errstate(over="ignore", under="ignore"):
        x = np.ldexp(rng.uniform(1, 2, size).astype(dtype), rng.integers(low, high, size)).astype(dtype)
    x[: size // 2] = rng.normal(size=size // 2).astype(dtype) * 4
    x *= rng.choice([-1, 1], size).astype(dtype)
    special = [0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny,
               info.smallest_subnormal, -info.smallest_subnormal, 3, 1 / 3]  # fmt: skip
    x[rng.permutation(size)[: len(special)]] = np.array(special, dtype)
    return x


def rounded(value: Fraction, dtype, mode: str):
    """An exact value rounded to a float type; overflow as IEEE 754 has it."""
    info = np.finfo(dtype)
    if value == 0:
        return dtype(0)
    exponent = math.floor(mpmath.log(abs(mpmath.mpf(value.numerator)) / value.denominator, 2))
    below, above = Fraction(2) ** exponent, Fraction(2) ** (exponent + 1)
    exponent += int(abs(value) >= above) - int(abs(value) < below)
    unit = Fraction(2) ** (max(exponent, info.minexp) - info.nmant)
    down, up = math.floor(value / unit), math.ceil(value / unit)
    towards_zero, away = (down, up) if value > 0 else (up, down)
    middle = value / unit - Fraction(down + up, 2)
    nearest = up if middle > 0 else down if middle < 0 else down if down % 2 == 0 else up
    whole = {"rd": down, "ru": up, "rz": towards_zero, "rn": nearest}[mode] * unit
    if abs(whole) > Fraction(float(info.max)):
        stays = mode == "rz" or (mode == "rd" and value > 0) or (mode == "ru" and value < 0)
        return dtype(np.copysign(info.max if stays else np.inf, float(np.sign(whole.numerator))))
    return dtype(float(whole))


def root(x: Fraction) -> Fraction:
    with mpmath.workprec(400):
        value = mpmath.sqrt(mpmath.mpf(x.numerator) / x.denominator)
        mantissa, exponent = value.man_exp
        return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


EXACT: dict[str, tuple[int, Callable, Callable]] = {  # arguments, of rationals, of numpy's floats
    "add": (2, lambda x, y: x + y, np.add), "sub": (2, lambda x, y: x - y, np.subtract),
    "mul": (2, lambda x, y: x * y, np.multiply), "div": (2, lambda x, y: x / y, np.divide),
    "fma": (3, lambda x, y, z: x * y + z, lambda x, y, z: x * y + z),
    "rcp": (1, lambda x: 1 / x, np.reciprocal), "sqrt": (1, root, np.sqrt),
}  # fmt: skip


def expected(name: str, mode: str, arguments: list[np.ndarray]) -> np.ndarray:
    """What ``name_mode`` gives: by rationals where all is finite, else by numpy (no rounding there)."""
    _, exact, of_floats = EXACT[name]
    dtype = arguments[0].dtype.type
    found = []
    for row in zip(*arguments):
        divisor = row[-1] if name in ("div", "rcp") else 1
        is_plain = all(map(np.isfinite, row)) and divisor != 0 and not (name == "sqrt" and row[0] < 0)
        with np.errstate(all="ignore"):
            found.append(
                rounded(exact(*[Fraction(float(x)) for x in row]), dtype, mode)
                if is_plain
                else of_floats(*[np.float64(x) for x in row])
            )
    return np.array(found, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_arithmetic_in_every_rounding_mode(devices, count, dtype):
    arguments = [any_floats(dtype, seed=seed) for seed in range(count)]
    names = [f"{name}_{mode}" for name in EXACT for mode in MODES if EXACT[name][0] == count]
    wanted = [expected(*name.split("_"), arguments) for name in names]
    for found in results(devices, names, arguments, np.dtype(dtype)):
        for name, got, exact in zip(names, found, wanted):
            np.testing.assert_array_equal(got, exact, name)


def test_multiplication_is_not_fused():
    def kernel(out, x, y, z):
        tl.store(out, libdevice.mul_rn(x, y) + z)

    signature = {"out": "*fp32", "x": "fp32", "y": "fp32", "z": "fp32"}
    text = ptxforge.jit(kernel).compile(signature, {}, target="sm_80").asm["ptx"]
    assert "mul.rn.f32" in text and "fma" not in text and text.startswith(".version 7.0")


# -- conversions -----------------------------------------------------------------------------------------

WHOLE = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
TO_WHOLE = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


@pytest.mark.parametrize("source, dtype", [("float", np.float32), ("double", np.float64)])
@pytest.mark.parametrize("width", [32, 64])
def test_floats_to_integers(devices, source, dtype, width):
    kinds = [kind for kind in WHOLE if np.dtype(WHOLE[kind]).itemsize * 8 == width]
    names = [f"{source}2{kind}_{mode}" for kind in kinds for mode in MODES]
    x = any_floats(dtype)
    x[:64] = np.random.default_rng(1).uniform(-1e4, 1e4, 64)
    of_nan = 0 if dtype is np.float32 and width == 32 else 1 << (width - 1)
    wanted = []
    for kind in kinds:
        info = np.iinfo(WHOLE[kind])
        for mode in MODES:
            whole = TO_WHOLE[mode](x.astype(np.float64))
            held = [of_nan if np.isnan(v) else int(min(max(v, info.min), info.max)) if np.isfinite(v)
                    else (info.max if v > 0 else info.min) for v in whole]  # fmt: skip
            wanted.append(np.array([min(v, info.max) % 2**width if not np.isnan(w) else of_nan
                                    for v, w in zip(held, whole)], f"u{width // 8}"))  # fmt: skip
    for found in results(devices, names, [x], np.dtype(f"i{width // 8}")):
        for name, got, exact in zip(names, found, wanted):
            np.testing.assert_array_equal(got.view(exact.dtype), exact, name)


def any_integers(dtype, size=256, seed=3) -> np.ndarray:
    info = np.iinfo(dtype)
    drawn = np.random.default_rng(seed).integers(info.min, info.max, size, dtype=dtype, endpoint=True)
    drawn >>= (np.arange(size) % info.bits).astype(dtype)
    drawn[:6] = [0, 1, info.max, info.min, 2, 3]
    return drawn


@pytest.mark.parametrize("kind", WHOLE)
def test_integers_to_floats(devices, kind):
    x = any_integers(WHOLE[kind])
    for target, dtype in (("float", np.float32), ("double", np.float64)):
        names = [f"{kind}2{target}_{mode}" for mode in MODES if f"{kind}2{target}_{mode}" in SIGNATURES]
        wanted = [[rounded(Fraction(int(v)), dtype, name[-2:]) for v in x] for name in names]
        assert len(names) == (1 if dtype is np.float64 and x.itemsize == 4 else 4)
        for found in results(devices, names, [x], np.dtype(dtype)):
            np.testing.assert_array_equal(found, np.array(wanted, dtype))


def test_floats_that_narrow(devices):
    x = np.concatenate([any_floats(np.float64, 128), any_floats(np.float32, 128).astype(np.float64)])
    x[::3] *= 1 + 1e-9
    names = [f"double2float_{mode}" for mode in MODES]
    wanted = [
        [rounded(Fraction(v), np.float32, name[-2:]) if np.isfinite(v) else v for v in x] for name in names
    ]
    for found in results(devices, names, [x], np.dtype(np.float32)):
        np.testing.assert_array_equal(found, np.array(wanted, np.float32))


def test_bits_of_floats(devices):
    x = any_floats(np.float32)
    wide = any_floats(np.float64)
    bits = wide.view(np.int64)
    for name, given, wanted in (
        ("float_as_int", [x], x.view(np.int32)), ("float_as_uint", [x], x.view(np.int32)),
        ("int_as_float", [x.view(np.int32)], x), ("uint_as_float", [x.view(np.uint32)], x),
        ("double_as_longlong", [wide], bits), ("longlong_as_double", [bits], wide),
        ("double2hiint", [wide], (bits >> 32).astype(np.int32)),
        ("double2loint", [wide], bits.astype(np.int32)),
        ("hiloint2double", [(bits >> 32).astype(np.int32), bits.astype(np.int32)], wide),
    ):  # fmt: skip
        for found in results(devices, [name], given, wanted.dtype):
            np.testing.assert_array_equal(found[0].view(f"u{wanted.itemsize}"),
                                          wanted.view(f"u{wanted.itemsize}"), name)  # fmt: skip


# -- integers --------------------------------------------------------------------------------------------


def bits_of(value: int, width: int) -> str:
    return format(int(value) & (1 << width) - 1, f"0{width}b")


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_bits(devices, dtype):
    x = any_integers(dtype)
    width = 8 * x.itemsize
    words = [bits_of(v, width) for v in x]
    wanted = {
        "clz": [len(w) - len(w.lstrip("0")) for w in words],
        "ffs": [w[::-1].find("1") + 1 for w in words],
        "popc": [w.count("1") for w in words],
    }
    for found in results(devices, list(wanted), [x], np.dtype(np.int32)):
        np.testing.assert_array_equal(found, list(wanted.values()))
    for found in results(devices, ["brev"], [x], x.dtype):
        assert [bits_of(v, width)[::-1] for v in found[0]] == words


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_integers(devices, dtype):
    x, y = any_integers(dtype), any_integers(dtype, seed=4)[::-1].copy()
    x[-16:] = y[-16:]
    width, exact = 8 * x.itemsize, [(int(a), int(b)) for a, b in zip(x, y)]
    wanted = {"mulhi": [a * b >> width for a, b in exact]}
    if width == 32:
        low = 1 << 24
        signed = -low // 2 if dtype is np.int32 else 0
        parts = [[(v - signed) % low + signed for v in pair] for pair in exact]
        wanted["mul24"] = [a * b for a, b in parts]
        wanted["hadd"] = [(a + b) // 2 for a, b in exact]
        wanted["rhadd"] = [-((-a - b) // 2) for a, b in exact]
    for found in results(devices, list(wanted), [x, y], x.dtype):
        for name, got in zip(wanted, found):
            assert [int(v) % 2**width for v in got] == [v % 2**width for v in wanted[name]], name


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_distances_and_bytes(devices, dtype):
    x, y, z = any_integers(dtype), any_integers(dtype, seed=4), any_integers(np.uint32, seed=5)
    wanted = np.array([(abs(int(a) - int(b)) + int(c)) % 2**32 for a, b, c in zip(x, y, z)], np.uint32)
    for found in results(devices, ["sad"], [x, y, z], x.dtype):
        np.testing.assert_array_equal(found[0].view(np.uint32), wanted)
    both = [int(a) % 2**32 | int(b) % 2**32 << 32 for a, b in zip(x, y)]
    picked = [sum((v >> 8 * (int(s) >> 4 * i & 7) & 255) << 8 * i for i in range(4)) for v, s in zip(both, z)]
    for found in results(devices, ["byte_perm"], [x, y, z.view(dtype)], x.dtype):
        np.testing.assert_array_equal(found[0].view(np.uint32), np.array(picked, np.uint32))


# -- exponents, classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_exponents(devices, dtype):
    x = any_floats(dtype)
    size = np.abs(x)
    is_usual = (size > 0) & np.isfinite(x)
    exponent = np.where(is_usual, np.frexp(np.where(is_usual, x, 1))[1] - 1, -(2**31))
    wanted = np.where(np.isinf(x), 2**31 - 1, exponent)
    for found in results(devices, ["ilogb"], [x], np.dtype(np.int32)):
        np.testing.assert_array_equal(found[0], wanted)
    for found in results(devices, ["logb"], [x], np.dtype(dtype)):
        np.testing.assert_array_equal(found[0], np.where(is_usual, exponent, np.where(x == 0, -np.inf, size)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_scaling_rounds_once(devices, dtype):
    @ptxforge.jit
    def kernel(x, n, out, SIZE: tl.constexpr):
        i = tl.arange(0, SIZE)
        tl.store(out + i, libdevice.ldexp(tl.load(x + i), tl.load(n + i)))
        tl.store(out + SIZE + i, libdevice.scalbn(tl.load(x + i), tl.load(n + i)))

    x = any_floats(dtype, 512)
    rng = np.random.default_rng(2)
    reach = 2400 if dtype is np.float64 else 320
    n = rng.integers(-reach, reach, 512).astype(np.int32)
    n[::4] = rng.integers(-60, 60, 128)
    n[:4] = [2**31 - 1, -(2**31), 0, -1]
    info = np.finfo(dtype)
    # Half of the results at the border of the subnormal numbers, where a second rounding would show.
    usual = np.isfinite(x) & (x != 0)
    border = info.minexp - rng.integers(0, info.nmant + 3, 512) - np.frexp(np.where(usual, x, 1))[1]
    n[1::2] = np.where(usual, border, n)[1::2]
    wanted = [v if not np.isfinite(v) or v == 0 else rounded(Fraction(float(v)) * Fraction(2) ** min(max(
        int(k), -9999), 9999), dtype, "rn") for v, k in zip(x, n)]  # fmt: skip
    arrays = {"x": x, "n": n, "out": np.zeros((2, 512), dtype)}
    signature = {name: f"*{dtypes.from_numpy(array.dtype).short}" for name, array in arrays.items()}
    held = {name: array.copy() for name, array in arrays.items()}
    interpreter.run(build(kernel.fn, signature, {"SIZE": 512}, target="sm_90a"), 1, held)
    found = [held["out"]]
    for device in devices:
        placed = [ptxforge.to_device(a, device) for a in arrays.values()]
        kernel[1, 1, 1](*placed, SIZE=512)
        found.append(placed[-1].numpy())
    for out in found:
        np.testing.assert_array_equal(out[0], np.array(wanted, dtype))
        np.testing.assert_array_equal(out[1], out[0])


@pytest.mark.parametrize("dtype", FLOATS)
def test_classes(devices, dtype):
    x = any_floats(dtype)
    wanted = {"isnan": np.isnan(x), "isinf": np.isinf(x), "finitef": np.isfinite(x),
              "isfinited": np.isfinite(x), "signbit": np.signbit(x)}  # fmt: skip
    for found in results(devices, list(wanted), [x], np.dtype(np.int32)):
        for name, got in zip(wanted, found):
            ours = ~np.isnan(x) if name == "signbit" else slice(None)
            np.testing.assert_array_equal(got[ours], wanted[name][ours].astype(np.int32), name)


# -- CUDA's intrinsics -----------------------------------------------------------------------------------

FAST = {  # name: exact function, arguments, relative and absolute error
    "fast_sinf": (np.sin, (-math.pi, math.pi), 0, 2**-20.5),
    "fast_cosf": (np.cos, (-math.pi, math.pi), 0, 2**-20.5),
    "fast_tanf": (np.tan, (-1.2, 1.2), 2**-18, 2**-19),
    "fast_tanhf": (np.tanh, (-8, 8), 2**-10.9, 0),
    "fast_log2f": (np.log2, (0.01, 100), 2**-22, 2**-21.5),
    "fast_logf": (np.log, (0.01, 100), 2**-21, 2**-21),
    "fast_log10f": (np.log10, (0.01, 100), 2**-21, 2**-21),
    "fast_expf": (np.exp, (-20, 20), 2**-19, 0),
    "fast_exp10f": (lambda x: 10.0**x, (-10, 10), 2**-18, 0),
}


@pytest.mark.parametrize("name", FAST)
def test_intrinsics(devices, name):
    exact, limits, relative, absolute = FAST[name]
    x = np.random.default_rng(6).uniform(*limits, 256).astype(np.float32)
    for found in results(devices, [name], [x], np.dtype(np.float32)):
        np.testing.assert_allclose(found[0], exact(x.astype(np.float64)), relative, absolute)


def test_intrinsics_of_two(devices):
    rng = np.random.default_rng(7)
    x, y = rng.uniform(0.01, 50, 256).astype(np.float32), rng.uniform(-3, 3, 256).astype(np.float32)
    wide = x.astype(np.float64), y.astype(np.float64)
    for found in results(devices, ["fast_powf", "fast_dividef"], [x, y], np.dtype(np.float32)):
        np.testing.assert_allclose(found[0], wide[0] ** wide[1], 2**-17)
        np.testing.assert_allclose(found[1], wide[0] / wide[1], 2**-22)
    for found in results(devices, ["rcp64h"], [wide[0]], np.dtype(np.float64)):
        np.testing.assert_allclose(found[0], 1 / wide[0], 2**-19)
        assert (found[0].view(np.int64) & 0xFFFFFFFF == 0).all()


def test_intrinsics_flush_subnormal_numbers():
    """The interpreter runs the very instructions."""
    x = np.full(4, 1e-39, np.float32)
    (found,) = results([], ["fast_log2f", "fast_sinf"], [x], np.dtype(np.float32))
    assert (found[0] == -np.inf).all() and (found[1] == 0).all()
