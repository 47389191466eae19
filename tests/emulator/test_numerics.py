"""The emulator's arithmetic against independent references: exact rationals, mpmath, ml_dtypes and exhaustive
tables.
"""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
import pytest

from ptxforge.emulator.numerics import (
    MINIFLOAT_TABLES,
    UnknownOperation,
    bf16_to_f32,
    compare,
    f16_to_f32,
    f32_to_bf16,
    lookup,
    round_rational,
    to_minifloat,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

MODES = ("rn", "rz", "rm", "rp")
FORMATS = {  # precision, least and largest exponent, dtype
    "f16": (11, -14, 15, np.float16),
    "bf16": (8, -126, 127, np.uint16),
    "f32": (24, -126, 127, np.float32),
    "f64": (53, -1022, 1023, np.float64),
}
ALL16 = np.arange(65536, dtype=np.uint16)
EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
}


def rounded(value: Fraction, kind: str, mode: str) -> float:
    """The reference: a rational rounded to a binary format, by the definition."""
    precision, least, largest, _ = FORMATS[kind]
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (max(exponent, least) - precision + 1)
    steps, rest = divmod(size, unit)
    rest /= unit
    negative = value < 0
    outward = {"rz": False, "rm": negative, "rp": not negative}.get(mode)
    if outward is None:
        outward = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and steps % 2 == 1)
    result = (steps + (1 if rest and outward else 0)) * unit
    limit = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** largest
    if result > limit:
        result = float("inf") if mode == "rn" or outward_mode(mode, negative) else limit
    return -float(result) if negative else float(result)


def outward_mode(mode: str, negative: bool) -> bool:
    return (mode == "rm") == negative and mode != "rz"


def values(array: np.ndarray, kind: str) -> np.ndarray:
    return bf16_to_f32(array).astype(np.float64) if kind == "bf16" else array.astype(np.float64)


def operands(kind: str, count: int, size: int, seed: int) -> list[np.ndarray]:
    """Ordinary values, values of every exponent, small integers times powers of two (ties); all finite."""
    rng = np.random.default_rng(seed)
    _, least, largest, dtype = FORMATS[kind]
    result = []
    for _ in range(count):
        ordinary = rng.standard_normal(size) * 2.0 ** rng.integers(-3, 3, size)
        wide = np.ldexp(rng.standard_normal(size), rng.integers(least - 20, largest, size))
        ties = np.ldexp(rng.integers(-5, 6, size).astype(np.float64), rng.integers(-40, 40, size))
        x = np.choose(rng.integers(0, 3, size), [ordinary, wide, ties])
        x = f32_to_bf16(x.astype(np.float32)) if kind == "bf16" else x.astype(dtype)
        x[~np.isfinite(values(x, kind))] = 1
        result.append(x)
    return result


def assert_rounded(op: str, kind: str, mode: str, sources: list[np.ndarray]) -> None:
    got = values(lookup(f"{op}.{mode}.{kind}").function(*sources), kind)
    for lane, sample in enumerate(zip(*[values(s, kind) for s in sources])):
        exact = [Fraction(float(v)) for v in sample]
        if op in ("div", "rcp") and exact[-1] == 0:
            continue
        want = rounded(EXACT[op](*exact), kind, mode)
        assert got[lane] == want, (
            op,
            kind,
            mode,
            [float(v).hex() for v in sample],
            got[lane].hex(),
            want.hex(),
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", sorted(EXACT))
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_arithmetic_rounds_correctly_in_every_mode(kind, op, mode):
    sources = operands(kind, EXACT[op].__code__.co_argcount, 400, seed=1)
    if op == "fma":
        product = (sources[0][:150] * sources[1][:150]).astype(sources[0].dtype)
        sources[2][:150] = np.where(np.isfinite(product), -product, 1)
    assert_rounded(op, kind, mode, sources)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_sixteen_bit_arithmetic_rounds_once(kind, op):
    assert_rounded(op, kind, "rn", operands(kind, EXACT[op].__code__.co_argcount, 1500, seed=2))


def test_fma_f32_does_not_round_twice():
    # 1 + 2**-24 is a tie; a term far below f64's last bit decides it. Plain f64 arithmetic loses that term.
    a = np.array([1 + 2.0**-12, 2.0**-75, 2.0**-75], np.float32)
    b = np.array([1 + 2.0**-12, 2.0**-75 * (1 + 2.0**-20), -(2.0**-75)], np.float32)
    c = np.array([2.0**-80, 1.0, 1.0], np.float32)
    got = lookup("fma.rn.f32").function(a, b, c)
    for lane in range(3):
        want = rounded(
            Fraction(float(a[lane])) * Fraction(float(b[lane])) + Fraction(float(c[lane])), "f32", "rn"
        )
        assert float(got[lane]) == want


def test_fma_f32_of_constants():
    """Operands that are the same for all threads are scalars: here a product that is subnormal."""
    fma = lookup("fma.rn.f32").function
    tiny = np.float32(1e-40)
    assert fma(np.float32(1.0), tiny, np.float32(0.0)) == tiny
    assert fma(np.float32(-9999.0), np.float32(0.0), np.float32(-0.0)) == 0.0


@pytest.mark.parametrize("sign", [1, -1])
def test_fma_f32_ties_are_broken_by_the_tiny_term(sign):
    # a * b = (1 + 2**-12)(2**-12) has 24 bits and lies below c's last bit; sums that are ties in f64's first
    # 25 bits.
    rng = np.random.default_rng(3)
    c = np.float32(1) + rng.integers(0, 2**23, 2000).astype(np.float32) * np.float32(2.0**-23)
    a = np.full(2000, np.float32(2.0**-12))
    b = np.float32(2.0**-12) * (1 + sign * rng.integers(1, 3, 2000).astype(np.float32) * np.float32(2.0**-23))
    assert_rounded("fma", "f32", "rn", [a, b, c])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_sqrt_rounds_correctly(kind, mode):
    x = np.abs(operands(kind, 1, 400, seed=4)[0])
    got = lookup(f"sqrt.{mode}.{kind}").function(x)
    with mpmath.workprec(400):
        for lane in range(x.size):
            root = mpmath.sqrt(mpmath.mpf(float(x[lane])))
            sign, mantissa, exponent, _ = root._mpf_
            assert float(got[lane]) == rounded(Fraction(mantissa) * Fraction(2) ** exponent, kind, mode)


@pytest.mark.parametrize("mode", MODES)
def test_zero_sums_take_the_sign_of_the_mode(mode):
    for kind, dtype in (("f32", np.float32), ("f64", np.float64)):
        a = np.array([1, 0, -0.0, -0.0], dtype)
        b = np.array([-1, -0.0, -0.0, 0], dtype)
        negative = [mode == "rm", mode == "rm", True, mode == "rm"]
        assert np.signbit(lookup(f"add.{mode}.{kind}").function(a, b)).tolist() == negative
        assert np.signbit(lookup(f"fma.{mode}.{kind}").function(a, np.ones_like(a), b)).tolist() == negative


def test_round_rational_agrees_with_pythons_division():
    rng = np.random.default_rng(5)
    for _ in range(300):
        n, d = int(rng.integers(1, 2**62)), int(rng.integers(1, 2**62))
        shift = int(rng.integers(-1150, 1100))
        n, d = (n << shift, d) if shift > 0 else (n, d << -shift)
        try:
            want = n / d
        except OverflowError:
            want = float("inf")
        assert round_rational(n, d, "rn") == want
        assert round_rational(-n, d, "rn") == -want


@pytest.mark.parametrize("op", ["add", "mul", "fma"])
@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_packed_operations_work_on_both_halves(kind, op):
    element = kind[:-2]
    count = 3 if op == "fma" else 2
    low, high = operands(element, count, 64, seed=6), operands(element, count, 64, seed=7)
    packed = [h.view(np.uint16).astype(np.uint32) << 16 | lo.view(np.uint16) for lo, h in zip(low, high)]
    got = lookup(f"{op}.rn.{kind}").function(*packed)
    single = lookup(f"{op}.rn.{element}").function
    assert np.array_equal(got & 0xFFFF, single(*low).view(np.uint16))
    assert np.array_equal(got >> 16, single(*high).view(np.uint16))


# ------------------------------------------------------------------------------------------------------------
# Conversions
# ------------------------------------------------------------------------------------------------------------


def some_f32(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    scaled = rng.standard_normal(20000) * rng.choice([1e-40, 1e-7, 1e-3, 1, 50, 500, 7e4], 20000)
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 448, 464, 480, 57344, 61440], np.float32
    )
    return np.concatenate([bits, scaled.astype(np.float32), special])


def equal_floats(got: np.ndarray, want: np.ndarray) -> bool:
    """Equal bits, or both NaN."""
    nan = np.isnan(got) & np.isnan(want)
    same = got.view(f"u{got.itemsize}") == want.view(f"u{want.itemsize}")
    return bool((nan | same).all())


def test_f16_and_bf16_widen_exactly_for_every_code():
    half = ALL16.view(np.float16)
    assert equal_floats(f16_to_f32(half), half.astype(np.float32))
    assert equal_floats(bf16_to_f32(ALL16), ALL16.view(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_narrowing_to_sixteen_bits_matches_numpy_and_ml_dtypes(kind):
    x = some_f32(8)
    got = lookup(f"cvt.rn.{kind}.f32").function(x).view(np.uint16)
    want = x.astype(np.float16 if kind == "f16" else ml_dtypes.bfloat16).view(np.uint16)
    nan = np.isnan(x)
    assert np.array_equal(got[~nan], want[~nan])
    assert (got[nan] == 0x7FFF).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "target, source", [("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64"), ("f32", "f64")]
)
def test_narrowing_rounds_correctly_in_every_mode(target, source, mode):
    rng = np.random.default_rng(9)
    least, largest = FORMATS[target][1], FORMATS[target][2]
    x = np.ldexp(rng.uniform(-2, 2, 800), rng.integers(least - 14, largest + 2, 800))
    x[:200] = values(operands(target, 1, 200, seed=10)[0], target) * (1 + 2.0 ** -FORMATS[target][0])
    x = x.astype(FORMATS[source][3])
    x = x[np.isfinite(x)]
    got = values(lookup(f"cvt.{mode}.{target}.{source}").function(x), target)
    for lane in range(x.size):
        assert got[lane] == rounded(Fraction(float(x[lane])), target, mode)


MINIFLOATS = [
    ("e4m3", ml_dtypes.float8_e4m3fn, 8),
    ("e5m2", ml_dtypes.float8_e5m2, 8),
    ("e2m3", ml_dtypes.float6_e2m3fn, 6),
    ("e3m2", ml_dtypes.float6_e3m2fn, 6),
    ("e2m1", ml_dtypes.float4_e2m1fn, 4),
]


def beside_ties(dtype, bits: int) -> np.ndarray:
    """All values of a minifloat, the points half-way between them, and the f32 next to each of those."""
    known = np.unique(np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float32))
    known = known[np.isfinite(known)]
    points = np.concatenate([known, (known[1:] + known[:-1]) / 2, known * np.float32(1.5)])
    return np.concatenate([np.nextafter(points, np.float32(side)) for side in (-np.inf, np.inf)] + [points])


@pytest.mark.parametrize("name, dtype, bits", MINIFLOATS)
def test_minifloat_conversions(name, dtype, bits):
    codes = np.arange(1 << bits, dtype=np.uint8)
    assert equal_floats(MINIFLOAT_TABLES[name], codes.view(dtype).astype(np.float32))
    x = np.concatenate([some_f32(11), beside_ties(dtype, bits), ALL16.view(np.float16).astype(np.float32)])
    nan = np.isnan(x)
    largest = float(ml_dtypes.finfo(dtype).max)
    want = np.clip(x, -largest, largest).astype(dtype).view(np.uint8)
    assert np.array_equal(to_minifloat(x, name)[~nan], want[~nan])
    assert (to_minifloat(x, name)[nan] == (0x7F if bits == 8 else (1 << bits - 1) - 1)).all()
    up = 4 if bits == 4 else 8
    pairs = lookup(f"cvt.rn.satfinite.{name}x2.f32").function(x, -x)
    assert np.array_equal(pairs >> up, to_minifloat(x, name))
    assert np.array_equal(pairs & ((1 << up) - 1), to_minifloat(-x, name))


@pytest.mark.parametrize("name, dtype, bits", MINIFLOATS)
def test_every_minifloat_pair_widens(name, dtype, bits):
    packed = np.arange(256, dtype=np.uint8) if bits == 4 else ALL16
    low, high = (packed & 15, packed >> 4) if bits == 4 else (packed & 0xFF, packed >> 8)
    low, high = low & ((1 << bits) - 1), high & ((1 << bits) - 1)
    value = np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float16)
    got = lookup(f"cvt.rn.f16x2.{name}x2").function(packed)
    assert equal_floats((got & 0xFFFF).astype(np.uint16).view(np.float16), value[low])
    assert equal_floats((got >> 16).astype(np.uint16).view(np.float16), value[high])
    positive = lookup(f"cvt.rn.relu.f16x2.{name}x2").function(packed)
    want = np.where(value[low] <= 0, np.float16(0), value[low])
    assert equal_floats((positive & 0xFFFF).astype(np.uint16).view(np.float16), want)
    back = lookup(f"cvt.rn.satfinite.{name}x2.f16x2").function(got)
    finite = np.isfinite(value[low]) & np.isfinite(value[high])
    assert np.array_equal(back[finite], (high << (4 if bits == 4 else 8) | low)[finite])


@pytest.mark.parametrize("name, zero, one, nan", [("e4m3", 0, 0x38, 0x7F), ("e2m1", 0, 2, 7)])
def test_minifloat_relu_makes_negative_values_zero(name, zero, one, nan):
    x = np.array([-1, 1, -np.inf, np.nan, -0.0], np.float32)
    got = lookup(f"cvt.rn.satfinite.relu.{name}x2.f32").function(x, x)
    assert (got & (15 if name == "e2m1" else 0xFF)).tolist() == [zero, one, zero, nan, zero]


@pytest.mark.parametrize("opcode", ["cvt.rn.e2m1x2.f32", "cvt.rz.satfinite.e4m3x2.f32", "cvt.rn.f32.e2m1x2"])
def test_no_such_minifloat_conversion(opcode):
    with pytest.raises(UnknownOperation):
        lookup(opcode)


@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("satfinite", [False, True])
def test_scales_are_powers_of_two(mode, satfinite):
    """Against exact logarithms: the power of two below or above the magnitude, within 2^-127 ... 2^127."""
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    x = np.concatenate([some_f32(21), powers, np.nextafter(powers, np.float32(0)), powers * np.float32(1.25)])
    x = np.resize(np.concatenate([x, np.array([np.inf, -np.inf, np.nan, 0.0], np.float32)]), x.size + 4)
    round_up = mode == "rp"

    def scale(value: float) -> int:
        magnitude = abs(value)
        if math.isnan(magnitude):
            return 255
        if math.isinf(magnitude):
            return 254 if satfinite else 255
        if magnitude <= 2.0**-127:
            return 0
        fraction, exponent = math.frexp(magnitude)
        code = exponent - 1 + 127 + (round_up and fraction != 0.5)
        return min(code, 254) if satfinite else code

    want = np.array([scale(float(value)) for value in x])
    flags = f"{mode}{'.satfinite' if satfinite else ''}"
    pairs = lookup(f"cvt.{flags}.ue8m0x2.f32").function(x, -x)
    assert np.array_equal(pairs >> 8, want) and np.array_equal(pairs & 0xFF, want)
    halves = ALL16.astype(np.uint32)
    want = [scale(float(value)) for value in (halves << 16).view(np.float32)]
    pairs = lookup(f"cvt.{flags}.ue8m0x2.bf16x2").function(halves << 16 | np.roll(halves, 1))
    assert np.array_equal(pairs >> 8, want) and np.array_equal(pairs & 0xFF, np.roll(want, 1))


def test_every_pair_of_scales_widens():
    value = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    got = lookup("cvt.rn.bf16x2.ue8m0x2").function(ALL16)
    assert equal_floats((got << 16).view(np.float32), value[ALL16 & 0xFF])
    assert equal_floats((got & 0xFFFF0000).astype(np.uint32).view(np.float32), value[ALL16 >> 8])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_mixed_operands_are_widened_first(kind, mode):
    rng = np.random.default_rng(5)
    a, b = (ALL16[rng.integers(0, 65536, 2000)] for _ in range(2))
    wide = [
        bf16_to_f32(x) if kind == "bf16" else x.view(np.float16).astype(np.float32) for x in (a, b)
    ]
    natural = [x if kind == "bf16" else x.view(np.float16) for x in (a, b)]
    c = (rng.standard_normal(2000) * 2.0 ** rng.integers(-20, 20, 2000)).astype(np.float32)
    for name in ("add", "sub"):
        want = lookup(f"{name}.{mode}.f32").function(wide[0], c)
        assert equal_floats(lookup(f"{name}.{mode}.f32.{kind}").function(natural[0], c), want)
    want = lookup(f"fma.{mode}.f32").function(*wide, c)
    assert equal_floats(lookup(f"fma.{mode}.f32.{kind}").function(*natural, c), want)
    want = lookup(f"fma.{mode}.sat.f32").function(*wide, c)
    assert equal_floats(lookup(f"fma.{mode}.sat.f32.{kind}").function(*natural, c), want)


def test_tf32_rounds_to_nearest_away():
    x = np.concatenate([some_f32(12), np.float32(1) + np.arange(64, dtype=np.float32) * np.float32(2.0**-12)])
    got = lookup("cvt.rna.tf32.f32").function(x).view(np.uint32)
    finite = np.isfinite(x) & (np.abs(x) < 3.3e38)
    unit = 2.0 ** (np.maximum(np.frexp(x[finite].astype(np.float64))[1] - 1, -126) - 10)
    scaled = np.abs(x[finite].astype(np.float64)) / unit
    want = np.copysign(np.floor(scaled + 0.5) * unit, x[finite]).astype(np.float32)
    assert np.array_equal(got[finite], want.view(np.uint32))
    assert (got[np.isnan(x)] == 0x7FFFFFFF).all()
    assert np.array_equal(got[np.isinf(x)], x[np.isinf(x)].view(np.uint32))


def test_packing_two_f32_puts_the_first_operand_high():
    a, b = some_f32(13), some_f32(14)
    for kind in ("f16", "bf16"):
        one = lookup(f"cvt.rn.{kind}.f32").function
        got = lookup(f"cvt.rn.{kind}x2.f32").function(a, b)
        assert np.array_equal(got >> 16, one(a).view(np.uint16))
        assert np.array_equal(got & 0xFFFF, one(b).view(np.uint16))
        positive = lookup(f"cvt.rn.relu.{kind}x2.f32").function(a, b) & 0xFFFF
        assert np.array_equal(positive, np.where((b > 0) | np.isnan(b), one(b).view(np.uint16), 0))


INTEGERS = {"u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "u32": np.uint32,
            "s32": np.int32,
            "u64": np.uint64, "s64": np.int64}  # fmt: skip


@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("target", sorted(INTEGERS))
def test_floats_become_integers_with_saturation(target, source):
    limits = np.iinfo(INTEGERS[target])
    if source in ("f16", "bf16"):
        x = ALL16.view(np.float16) if source == "f16" else ALL16
        x = x[::7]
    else:
        rng = np.random.default_rng(15)
        x = np.ldexp(rng.uniform(-2, 2, 3000), rng.integers(-4, 70, 3000))
        edges = [
            limits.max,
            limits.min,
            limits.max + 0.5,
            limits.min - 0.5,
            0.5,
            1.5,
            2.5,
            -0.5,
            -1.5,
            np.inf,
            -np.inf,
        ]
        x = np.concatenate([x, np.array(edges, np.float64)]).astype(FORMATS[source][3])
    wide = values(x, source)
    integral = {"rni": round, "rzi": int, "rmi": lambda v: v.__floor__(), "rpi": lambda v: v.__ceil__()}
    for mode, function in integral.items():
        got = lookup(f"cvt.{mode}.{target}.{source}").function(x)
        assert got.dtype == INTEGERS[target]
        for lane in range(x.size):
            value = float(wide[lane])
            if np.isnan(value):
                bits = limits.bits
                want = 1 << (bits - 1) if source == "f64" or bits == 64 else 0
                want = want - (1 << bits) if want > limits.max else want
            elif np.isinf(value):
                want = limits.max if value > 0 else limits.min
            else:
                want = min(max(function(value), limits.min), limits.max)
            assert int(got[lane]) == want, (mode, value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", sorted(INTEGERS))
def test_integers_become_floats_rounded_once(source, mode):
    rng = np.random.default_rng(16)
    dtype = INTEGERS[source]
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, 300, dtype=dtype, endpoint=True)
    x = np.concatenate([x, x >> dtype(limits.bits // 2), np.array([limits.min, limits.max, 0, 1], dtype)])
    # Halfway cases of each target, one off to either side.
    if limits.bits >= 32:
        ties = [
            (1 << k) + (1 << (k - p)) + d
            for k in (24, 30)
            for p in (8, 11, 24)
            for d in (-1, 0, 1)
            if k - p >= 0
        ]
        x = np.concatenate([x, np.array(ties, dtype)])
    for target in ("f16", "bf16", "f32", "f64"):
        got = values(lookup(f"cvt.{mode}.{target}.{source}").function(x), target)
        for lane in range(x.size):
            assert got[lane] == rounded(Fraction(int(x[lane])), target, mode), (target, int(x[lane]))


@pytest.mark.parametrize("target", sorted(INTEGERS))
@pytest.mark.parametrize("source", sorted(INTEGERS))
def test_integers_to_integers(target, source):
    rng = np.random.default_rng(17)
    low, high = np.iinfo(INTEGERS[source]).min, np.iinfo(INTEGERS[source]).max
    x = rng.integers(low, high, 200, dtype=INTEGERS[source], endpoint=True)
    x = np.concatenate([x, np.array([low, high, 0, 1, 127, 100], INTEGERS[source])])
    limits = np.iinfo(INTEGERS[target])
    chopped = lookup(f"cvt.{target}.{source}").function(x)
    clamped = lookup(f"cvt.sat.{target}.{source}").function(x)
    for lane in range(x.size):
        value = int(x[lane])
        wrapped = value & ((1 << limits.bits) - 1)
        assert int(chopped[lane]) == (wrapped - (1 << limits.bits) if wrapped > limits.max else wrapped)
        assert int(clamped[lane]) == min(max(value, limits.min), limits.max)


@pytest.mark.parametrize(
    "mode, function", [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)]
)
def test_rounding_to_an_integral_float(mode, function):
    x = some_f32(18)
    assert equal_floats(lookup(f"cvt.{mode}.f32.f32").function(x), function(x))
    half = ALL16.view(np.float16)
    assert equal_floats(
        lookup(f"cvt.{mode}.f16.f16").function(half), function(half.astype(np.float32)).astype(np.float16)
    )


# ------------------------------------------------------------------------------------------------------------
# Modifiers, extremes, comparisons
# ------------------------------------------------------------------------------------------------------------


def test_ftz_flushes_operands_and_result():
    tiny, least = np.float32(1e-40), np.float32(2.0**-126)
    a = np.array([tiny, -tiny, least, 1], np.float32)
    b = np.array([1, 1, 0.5, tiny], np.float32)
    got = lookup("mul.ftz.f32").function(a, b)
    assert got.tolist() == [0, 0, 0, 0]
    assert np.signbit(got).tolist() == [False, True, False, False]
    assert lookup("add.ftz.f32").function(a, b).tolist() == [1, 1, 0.5, 1]
    assert lookup("mul.f32").function(a, b)[2] == least / 2


def test_sat_clamps_and_maps_nan_to_zero():
    x = np.array([-1, -0.0, 0.25, 1, 7, np.inf, -np.inf, np.nan], np.float32)
    got = lookup("add.sat.f32").function(x, np.zeros_like(x))
    assert got.tolist() == [0, 0, 0.25, 1, 1, 1, 0, 0]
    assert not np.signbit(got).any()


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_min_and_max_order_zeros_and_drop_nans(name, kind):
    raw = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.0]
    a, b = (g.ravel() for g in np.meshgrid(np.array(raw), np.array(raw)))
    if kind == "bf16":
        a_in, b_in = f32_to_bf16(a.astype(np.float32)), f32_to_bf16(b.astype(np.float32))
    else:
        a_in, b_in = a.astype(FORMATS[kind][3]), b.astype(FORMATS[kind][3])
    pick = min if name == "min" else max
    got = values(lookup(f"{name}.{kind}").function(a_in, b_in), kind)
    strict = values(lookup(f"{name}.NaN.{kind}").function(a_in, b_in), kind)
    for lane in range(a.size):
        x, y = a[lane], b[lane]
        if np.isnan(x) or np.isnan(y):
            want = y if np.isnan(x) else x
            assert np.isnan(strict[lane])
        else:
            want = pick((x, y), key=lambda v: (v, not np.signbit(v)))
            assert strict[lane] == want and np.signbit(strict[lane]) == np.signbit(want)
        assert np.isnan(want) == np.isnan(got[lane])
        assert np.isnan(want) or (got[lane] == want and np.signbit(got[lane]) == np.signbit(want))


def test_xorsign_abs():
    a, b = np.array([1, -2, -3, 4], np.float32), np.array([-2, -1, 2, 5], np.float32)
    assert lookup("min.xorsign.abs.f32").function(a, b).tolist() == [-1, 1, -2, 4]
    assert lookup("max.xorsign.abs.f32").function(a, b).tolist() == [-2, 2, -3, 5]


@pytest.mark.parametrize("kind, dtype", [("f16", np.float16), ("f32", np.float32)])
def test_xorsign_abs_counts_the_sign_of_a_nan(kind, dtype):
    a, b = np.array([3, 3, -3], dtype), np.array([np.nan, -np.nan, -np.nan], dtype)
    for name in ("min", "max"):
        assert lookup(f"{name}.xorsign.abs.{kind}").function(a, b).tolist() == [3, -3, 3]


def test_fma_rounds_a_small_positive_sum_down_to_positive_zero():
    a, b = np.array([1e-30, 1e-30, 0], np.float32), np.array([1e-30, -1e-30, 1], np.float32)
    c = np.array([-0.0, 0, -0.0], np.float32)
    got = lookup("fma.rm.f32").function(a, b, c)
    assert np.signbit(got).tolist() == [False, True, True] and (got == 0).tolist() == [True, False, True]


RELATIONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("relation", [*RELATIONS, *[r + "u" for r in RELATIONS], "num", "nan"])
def test_comparisons_with_nan(relation, kind):
    raw = np.array([0.0, -0.0, 1.0, -1.0, np.inf, np.nan])
    a, b = (g.ravel() for g in np.meshgrid(raw, raw))
    convert = (
        (lambda v: f32_to_bf16(v.astype(np.float32)))
        if kind == "bf16"
        else lambda v: v.astype(FORMATS[kind][3])
    )
    got = compare(relation, kind)(convert(a), convert(b))
    for lane in range(a.size):
        x, y = float(a[lane]), float(b[lane])
        unordered = np.isnan(x) or np.isnan(y)
        if relation in ("num", "nan"):
            want = unordered == (relation == "nan")
        elif relation in RELATIONS:
            want = not unordered and RELATIONS[relation](x, y)
        else:
            want = unordered or RELATIONS[relation[:-1]](x, y)
        assert bool(got[lane]) == want


def test_copysign_takes_the_sign_of_its_first_operand():
    got = lookup("copysign.f32").function(np.array([-1, 1], np.float32), np.array([2, -3], np.float32))
    assert got.tolist() == [-2, 3]


def test_properties():
    x = np.array([0, 1e-40, 1, np.inf, np.nan], np.float32)
    expected = {"finite": [1, 1, 1, 0, 0], "infinite": [0, 0, 0, 1, 0], "number": [1, 1, 1, 1, 0],
                "notanumber": [0, 0, 0, 0, 1], "normal": [1, 0, 1, 0, 0], "subnormal": [0, 1, 0, 0,
                0]}  # fmt: skip
    for name, want in expected.items():
        assert lookup(f"testp.{name}.f32").function(x).astype(int).tolist() == want


def test_canonical_nans():
    x = np.array([0xFFC12345, 0x7F800001], np.uint32).view(np.float32)
    assert lookup("cvt.rn.f16.f32").function(x).view(np.uint16).tolist() == [0x7FFF, 0x7FFF]
    assert lookup("cvt.f32.f16").function(np.array([0xFE01, 0x7C01], np.uint16).view(np.float16)).view(
        np.uint32
    ).tolist() == [0x7FFFFFFF, 0x7FFFFFFF]
    half = np.array([0xFE01], np.uint16).view(np.float16)
    assert lookup("add.f16").function(half, half).view(np.uint16).tolist() == [0x7FFF]


# ------------------------------------------------------------------------------------------------------------
# Approximate functions: within the bounds that the PTX ISA states
# ------------------------------------------------------------------------------------------------------------

APPROXIMATE = {  # opcode: function, inputs, bound on the relative (or "abs": absolute) error
    "ex2.approx.f32": (lambda v: mpmath.power(2, v), (-120, 120), "rel", 2.0**-22),
    "lg2.approx.f32": (lambda v: mpmath.log(v, 2), (2.0, 1e30), "rel", 2.0**-22),
    "sin.approx.f32": (mpmath.sin, (-3.14, 3.14), "abs", 2.0**-20.5),
    "cos.approx.f32": (mpmath.cos, (-3.14, 3.14), "abs", 2.0**-20.5),
    "tanh.approx.f32": (mpmath.tanh, (-5, 5), "rel", 2.0**-11),
    "rcp.approx.f32": (lambda v: 1 / v, (0.1, 1e30), "rel", 2.0**-23),
    "rsqrt.approx.f32": (lambda v: 1 / mpmath.sqrt(v), (1e-30, 1e30), "rel", 2.0**-22.9),
    "sqrt.approx.f32": (mpmath.sqrt, (1e-30, 1e30), "rel", 2.0**-23),
    "ex2.approx.f16": (lambda v: mpmath.power(2, v), (-14, 15), "rel", 2.0**-9.9),
    "tanh.approx.f16": (mpmath.tanh, (-4, 4), "rel", 2.0**-10.987),
    "rcp.approx.ftz.f64": (lambda v: 1 / v, (1e-30, 1e30), "rel", 2.0**-20),
    "rsqrt.approx.f64": (lambda v: 1 / mpmath.sqrt(v), (1e-30, 1e30), "rel", 2.0**-20),
}


@pytest.mark.parametrize("opcode", APPROXIMATE)
def test_approximate_functions_keep_their_bound(opcode):
    function, (low, high), measure, bound = APPROXIMATE[opcode]
    rng = np.random.default_rng(19)
    operation = lookup(opcode)
    x = rng.uniform(low, high, 500).astype(FORMATS[operation.result][3])
    got = operation.function(x)
    for lane in range(x.size):
        want = function(mpmath.mpf(float(x[lane])))
        error = abs(mpmath.mpf(float(got[lane])) - want)
        assert error <= bound * (abs(want) if measure == "rel" else 1), (float(x[lane]), float(got[lane]))


def test_special_values_of_approximate_functions():
    inf, nan = np.inf, np.nan
    cases = {
        "ex2.approx.f32": ([-inf, inf, 0, nan], [0, inf, 1, nan]),
        "lg2.approx.f32": ([0, -0.0, inf, -1, 1], [-inf, -inf, inf, nan, 0]),
        "rsqrt.approx.f32": ([0, -0.0, inf, -1], [inf, -inf, 0, nan]),
        "rcp.approx.f32": ([0, -0.0, inf, -inf], [inf, -inf, 0, 0]),
        "sin.approx.f32": ([0, inf], [0, nan]),
        "cos.approx.f32": ([0, -inf], [1, nan]),
        "tanh.approx.f32": ([inf, -inf, 0], [1, -1, 0]),
    }
    for opcode, (x, want) in cases.items():
        got = lookup(opcode).function(np.array(x, np.float32))
        assert np.array_equal(got, np.array(want, np.float32), equal_nan=True), opcode


def test_div_approx_flushes_quotients_by_huge_divisors():
    got = lookup("div.approx.f32").function(
        np.array([1, np.inf, 6], np.float32), np.array([2e38, 2e38, 3], np.float32)
    )
    assert got[0] == 0 and np.isnan(got[1]) and got[2] == 2


@pytest.mark.parametrize(
    "opcode",
    ["add.rz.f16", "fma.rm.bf16", "frob.f32", "cvt.f32", "sin.approx.u32", "add.f32.f64", "cvt.rn.tf32.s32"],
)
def test_unknown_operations_are_refused(opcode):
    with pytest.raises(UnknownOperation):
        lookup(opcode)


def test_out_receives_the_result():
    a, b = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    for opcode in ("add.f32", "max.f32", "add.rz.f32", "mul.ftz.sat.f32"):
        out = np.zeros(4, np.float32)
        assert np.array_equal(lookup(opcode).function(a, b, out=out), out)
        assert out.any()
