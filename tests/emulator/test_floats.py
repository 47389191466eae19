"""Every floating-point form as an instruction: what the device computes is what :mod:`numerics` says, bit for bit.

``test_numerics`` holds the functions of :mod:`numerics` against exact rationals, mpmath and ml_dtypes. Here the same functions are the
reference for whole kernels: on the emulator that tests how instructions are wired, on a GPU whether its bits are the same.
Approximate instructions are compared within PTX's stated error; the bits of a NaN in f32 and f64 are left open.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import numerics
from ptxforge.emulator.numerics import NATURAL

from .harness import lanes

COUNT = 1024
REGISTER = {"u8": "b16", "s8": "b16", "u16": "b16", "s16": "b16", "f16": "b16", "bf16": "b16", "e4m3x2": "b16", "e5m2x2": "b16",
            "f32": "f32", "tf32": "b32", "f64": "f64", "u32": "b32", "s32": "b32", "f16x2": "b32", "bf16x2": "b32", "u64": "b64",
            "s64": "b64", "pred": "pred", "f32x2": "b64"}
FIELDS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 23)}


def float_bits(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Bit patterns: random ones, values near 1, small integers, halves, subnormals, zeros, infinities, NaNs."""
    exponent_bits, mantissa_bits = FIELDS[kind]
    bias = (1 << exponent_bits - 1) - 1
    mantissa = rng.integers(0, 1 << mantissa_bits, count, dtype=np.uint64)
    sign = rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(exponent_bits + mantissa_bits)
    spread = min(bias - 1, 12)
    exponent = rng.integers(bias - spread, bias + spread + 1, count, dtype=np.uint64)
    wild = rng.random(count) < 0.25
    exponent[wild] = rng.integers(0, 1 << exponent_bits, np.count_nonzero(wild), dtype=np.uint64)
    mantissa[rng.random(count) < 0.3] &= np.uint64(((1 << mantissa_bits) - 1) ^ ((1 << mantissa_bits - 3) - 1))
    bits = sign | exponent << np.uint64(mantissa_bits) | mantissa
    top = np.uint64((1 << exponent_bits) - 1 << mantissa_bits)
    corners = [0, 1, (1 << mantissa_bits) - 1, 1 << mantissa_bits, int(top), int(top) | 1 << mantissa_bits - 1, int(top) - 1,
               bias << mantissa_bits]
    where = rng.random(count) < 0.2
    chosen = np.array(corners, np.uint64)[rng.integers(0, len(corners), np.count_nonzero(where))]
    bits[where] = chosen | sign[where]
    return bits


def inputs_of(kind: str, seed: int) -> np.ndarray:
    """``COUNT`` values of a PTX type as the harness loads them."""
    rng = np.random.default_rng([seed, len(kind), ord(kind[0])])
    dtype = NATURAL[kind]
    if kind in FIELDS:
        return float_bits(kind, COUNT, rng).astype(f"u{dtype.itemsize}").view(dtype)
    if kind in numerics.PACKED:
        element = numerics.PACKED[kind]
        halves = float_bits(element, 2 * COUNT, rng).astype(f"u{dtype.itemsize // 2}")
        return halves.view(dtype)
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, COUNT, dtype=dtype, endpoint=True)
    small = rng.random(COUNT) < 0.3
    values[small] = rng.integers(0, 100, np.count_nonzero(small)).astype(dtype)
    values[:4] = [info.min, info.max, 0, 1]
    return values


EXACT = []
for kind in ("f32", "f64"):
    for mode in ("rn", "rz", "rm", "rp"):
        ftz = ("", ".ftz") if kind == "f32" else ("",)
        sat = ("", ".sat") if kind == "f32" else ("",)
        EXACT += [f"{op}.{mode}{f}{s}.{kind}" for op in ("add", "sub", "mul", "fma") for f in ftz for s in sat]
        EXACT += [f"{op}.{mode}{f}.{kind}" for op in ("div", "rcp", "sqrt") for f in ftz]
for kind in ("f16", "f16x2"):
    EXACT += [f"{op}.rn{f}{s}.{kind}" for op in ("add", "sub", "mul", "fma") for f in ("", ".ftz") for s in ("", ".sat")]
    EXACT += [f"fma.rn{f}.relu.{kind}" for f in ("", ".ftz")]
for kind in ("bf16", "bf16x2"):
    EXACT += [f"{op}.rn.{kind}" for op in ("add", "sub", "mul", "fma")] + [f"fma.rn.relu.{kind}"]
for kind in ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64"):
    ftz = ("",) if kind[0] == "b" or kind == "f64" else ("", ".ftz")
    EXACT += [f"{op}{f}.{kind}" for op in ("abs", "neg") for f in ftz]
    EXACT += [f"{op}{f}.{kind}" for op in ("min", "max") for f in ftz]
    if kind != "f64":
        EXACT += [f"{op}{f}{n}{x}.{kind}" for op in ("min", "max") for f in ftz for n in ("", ".NaN") for x in ("", ".xorsign.abs")
                  if n or x]
EXACT += ["mad.rn.f32", "mad.rz.ftz.f32", "mad.rn.f64", "copysign.f32", "copysign.f64"]
EXACT += [f"testp.{p}.{kind}" for p in ("finite", "infinite", "number", "notanumber", "normal", "subnormal") for kind in ("f32", "f64")]
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
EXACT += [f"cvt.{mode}.{to}.{source}" for to in INTEGERS for source in ("f16", "f32", "f64") for mode in ("rni", "rzi", "rmi", "rpi")]
EXACT += [f"cvt.{mode}.{to}.{source}" for source in INTEGERS for to in ("f16", "f32", "f64") for mode in ("rn", "rz", "rm", "rp")]
EXACT += [f"cvt.{mode}.{to}.{source}" for to, source in (("f16", "f32"), ("f16", "f64"), ("f32", "f64"))
          for mode in ("rn", "rz", "rm", "rp")]
EXACT += [f"cvt.{mode}.bf16.f32" for mode in ("rn", "rz")] + ["cvt.rn.relu.bf16.f32", "cvt.rn.relu.f16.f32", "cvt.f32.bf16"]
EXACT += ["cvt.f32.f16", "cvt.f64.f16", "cvt.f64.f32", "cvt.ftz.f64.f32", "cvt.rn.ftz.f32.f64", "cvt.sat.f32.f32", "cvt.ftz.f32.f16"]
EXACT += [f"cvt.{mode}.{kind}.{kind}" for mode in ("rni", "rzi", "rmi", "rpi") for kind in ("f16", "f32", "f64")]
EXACT += [f"cvt.{mode}{r}.{kind}.f32" for mode in ("rn", "rz") for r in ("", ".relu") for kind in ("f16x2", "bf16x2")]
EXACT += [f"cvt.rn.satfinite{r}.{kind}.f32" for r in ("", ".relu") for kind in ("e4m3x2", "e5m2x2")]
EXACT += [f"cvt.rn.satfinite{r}.{kind}.f16x2" for r in ("", ".relu") for kind in ("e4m3x2", "e5m2x2")]
EXACT += [f"cvt.rn{r}.f16x2.{kind}" for r in ("", ".relu") for kind in ("e4m3x2", "e5m2x2")]
EXACT += ["cvt.rna.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.tf32.f32"]

APPROXIMATE = {  # opcode: (largest error relative to the value, smallest result that is compared)
    "ex2.approx.f32": 2**-22, "ex2.approx.ftz.f32": 2**-22, "sqrt.approx.f32": 2**-22, "rsqrt.approx.f32": 2**-22.4,
    "rcp.approx.f32": 2**-23, "div.approx.f32": 2**-22, "div.full.f32": 2**-22, "tanh.approx.f32": 2**-10.9,
    "rcp.approx.ftz.f64": 2**-20, "rsqrt.approx.ftz.f64": 2**-20, "ex2.approx.f16": 2**-9.9, "tanh.approx.f16": 2**-10,
    "ex2.approx.ftz.bf16": 2**-7, "tanh.approx.bf16": 2**-8,
}


def launch(machine, opcode: str) -> tuple[np.ndarray, np.ndarray]:
    """(what the device gives, what `numerics` gives) over the inputs of an opcode."""
    arity = 3 if opcode.startswith(("fma", "mad")) else 2 if opcode.startswith(("add", "sub", "mul", "div", "min", "max", "copys")) else 1
    if opcode.startswith("cvt"):
        operation = numerics.lookup(opcode)
        arity = len(operation.sources)
    else:
        operation = numerics.lookup(opcode, arity)
    sources = [inputs_of(kind, seed) for seed, kind in enumerate(operation.sources)]
    loaded = [array.astype("i2" if kind == "s8" else "u2") if kind in ("u8", "s8") else array
              for kind, array in zip(operation.sources, sources)]
    result = operation.result
    dtype = {"pred": "u1", "u8": "u2", "s8": "i2"}.get(result) or NATURAL[result].str
    operands = ", ".join(["%o0"] + [f"%i{n}" for n in range(arity)])
    found, = lanes(machine, f"{opcode} {operands};", loaded, [REGISTER[kind] for kind in operation.sources],
                   [(REGISTER[result], dtype)], target="sm_90")
    with np.errstate(all="ignore"):
        expected = np.asarray(operation.function(*sources))
    return found, expected


@pytest.mark.parametrize("opcode", EXACT)
def test_bits(machine, opcode):
    found, expected = launch(machine, opcode)
    if expected.dtype.kind == "f" and expected.dtype.itemsize > 2:
        assert np.array_equal(np.isnan(found), np.isnan(expected))
        found, expected = (np.where(np.isnan(x), 0, x).view(f"u{x.itemsize}") for x in (found, expected.astype(found.dtype)))
    elif expected.dtype.kind == "f":
        found, expected = found.view("u2"), expected.view("u2")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("opcode", APPROXIMATE)
def test_approximations(machine, opcode):
    found, expected = launch(machine, opcode)
    if "bf16" in opcode:
        found, expected = numerics.bf16_to_f32(found), numerics.bf16_to_f32(expected)
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    normal = np.isfinite(expected) & np.isfinite(found) & (np.abs(expected) > 2.0**-120) | (expected == 0)
    tolerance = 2 * APPROXIMATE[opcode]  # of the device, and of the emulator
    np.testing.assert_allclose(found[normal], expected[normal], rtol=tolerance, atol=2.0**-120)
    np.testing.assert_array_equal(found[np.isinf(expected)], expected[np.isinf(expected)])


@pytest.mark.parametrize("opcode, low, high", [("sin.approx.f32", -3.14, 3.14), ("cos.approx.f32", -3.14, 3.14),
                                               ("lg2.approx.f32", 2.0**-100, 2.0**100)])
def test_approximations_with_an_absolute_bound(machine, opcode, low, high):
    x = np.random.default_rng(1).uniform(low, high, COUNT).astype(np.float32)
    found, = lanes(machine, f"{opcode} %o0, %i0;", [x], ["f32"], [("f32", "f4")])
    true = {"sin": np.sin, "cos": np.cos, "lg2": np.log2}[opcode[:3]](x.astype(np.float64))
    np.testing.assert_allclose(found, true, rtol=2**-22, atol=2**-20.9)


RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_comparisons(machine, kind, relation):
    a, b = inputs_of(kind, 1), inputs_of(kind, 2)
    b[::3] = a[::3]
    for ftz in ("", ".ftz") if kind in ("f32", "f16") else ("",):
        found, = lanes(machine, f"setp.{relation}{ftz}.{kind} %o0, %i0, %i1;", [a, b], [REGISTER[kind]] * 2, [("pred", "u1")])
        with np.errstate(all="ignore"):
            expected = numerics.compare(relation, kind, bool(ftz))(a, b)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_packed_comparisons(machine, kind):
    a, b = inputs_of(kind, 1), inputs_of(kind, 2)
    text = f"setp.lt.{kind} %o0|%o1, %i0, %i1; set.gt.{kind}.{kind} %o2, %i0, %i1;"
    low, high, both = lanes(machine, text, [a, b], ["b32"] * 2, [("pred", "u1"), ("pred", "u1"), ("b32", "u4")])
    element = kind[:-2]
    x, y = (array.view("u2").reshape(-1, 2).copy().view(NATURAL[element]) for array in (a, b))
    less, more = (np.asarray(numerics.compare(relation, element)(x, y)) for relation in ("lt", "gt"))
    np.testing.assert_array_equal(np.stack([low, high], axis=1), less)
    one = 0x3C00 if element == "f16" else 0x3F80
    np.testing.assert_array_equal(both.view("u2").reshape(-1, 2), more * one)


def test_float_set_and_select(machine):
    a, b = inputs_of("f32", 3), inputs_of("f32", 4)
    text = "set.lt.f32.f32 %o0, %i0, %i1; slct.f32.f32 %o1, %i0, %i1, %i0; set.ge.u32.f32 %o2, %i0, %i1;"
    ones, chosen, mask = lanes(machine, text, [a, b], ["f32"] * 2, [("f32", "f4"), ("f32", "f4"), ("b32", "u4")])
    np.testing.assert_array_equal(ones, (a < b).astype(np.float32))
    np.testing.assert_array_equal(chosen.view("u4"), np.where(a >= 0, a, b).view("u4"))
    np.testing.assert_array_equal(mask, np.where(a >= b, 0xFFFFFFFF, 0))
