"""Every floating-point instruction and conversion as PTX, on every device, against `numerics` (whose own
tests use rationals, mpmath and ml_dtypes).

Exact instructions must agree bit for bit, but for the sign and payload of NaNs; approximate ones within twice
the error that the PTX ISA states (the emulator's own and the device's).
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.emulator.numerics import NATURAL, bf16_to_f32, compare, lookup

from .harness import lanes

COUNT = 512
REGISTERS = {"f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32",
             "tf32": "b32", "e4m3x2": "b16",
             "e5m2x2": "b16", "e2m3x2": "b16", "e3m2x2": "b16", "ue8m0x2": "b16",
             "e2m1x2": "b8", "u8": "b32", "s8": "b32", "u16": "b16", "s16": "b16", "u32": "b32",
             "s32": "b32", "u64": "b64",
             "s64": "b64"}  # fmt: skip
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    0.5,
    2.0,
    65504.0,
    1e-40,
    -1e-40,
    6e-8,
    3.4e38,
    1e300,
    1e-310,
    0.75,
    -2.5,
]


def values(kind: str, seed: int) -> np.ndarray:
    """Specials, ordinary numbers, and random bits, in the type's natural dtype."""
    rng = np.random.default_rng(seed)
    dtype = NATURAL[kind]
    bits = rng.integers(0, 256, COUNT * dtype.itemsize, dtype=np.uint8).view(dtype)
    if kind not in ("f16", "bf16", "f32", "f64"):
        return bits
    special = np.resize(np.array(SPECIAL), 200 + seed)[-200:]
    ordinary = rng.standard_normal(200) * 2.0 ** rng.integers(-6, 6, 200)
    with np.errstate(all="ignore"):
        made = np.concatenate([special, ordinary])
        made = made.astype(dtype) if kind != "bf16" else lookup("cvt.rn.bf16.f64").function(made)
    return np.concatenate([made, bits[400:]])


def as_float(x: np.ndarray, kind: str) -> np.ndarray:
    """(n,) or, for packed types, (n, 2) f64."""
    element = kind.removesuffix("x2")
    if kind in ("f16x2", "bf16x2"):
        x = np.ascontiguousarray(x).view(NATURAL[element]).reshape(-1, 2)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return (bf16_to_f32(x) if element == "bf16" else x).astype(np.float64)


def same(got: np.ndarray, want: np.ndarray, kind: str) -> np.ndarray:
    """Per lane: equal bits, or NaN and NaN."""
    if kind[0] in "us" or kind.startswith("e"):
        return got == want
    if kind == "tf32":  # PTX leaves the 13 low bits open
        got, want = (
            np.where(np.isnan(x), x, (x.view(np.uint32) >> 13 << 13).view(np.float32)) for x in (got, want)
        )
    a, b = as_float(got, kind), as_float(want, kind)
    equal = (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))
    return equal if equal.ndim == 1 else equal.all(axis=1)


def store(x: np.ndarray, kind: str) -> np.ndarray:
    """A natural array as the unsigned array of its register."""
    bits = int(REGISTERS[kind][1:])
    if kind in ("u8", "s8"):
        return x.astype(f"{'i' if kind == 's8' else 'u'}4").view(np.uint32)
    return x.view(f"u{bits // 8}")


def load(raw: np.ndarray, kind: str) -> np.ndarray:
    dtype = NATURAL[kind]
    if dtype.itemsize < raw.itemsize:
        return raw.view(dtype)[:: raw.itemsize // dtype.itemsize].copy()
    return raw.view(dtype)


def execute(
    device, opcode: str, sources: tuple[str, ...], result: str, inputs: list[np.ndarray]
) -> np.ndarray:
    operands = ", ".join(f"%i{n}" for n in range(len(sources)))
    kinds = [REGISTERS[kind] for kind in sources]
    stored = [store(x, kind) for x, kind in zip(inputs, sources)]
    out = (REGISTERS[result], f"u{int(REGISTERS[result][1:]) // 8}")
    (raw,) = lanes(device, f"{opcode} %o0, {operands};", stored, kinds, [out], target="sm_90")
    return load(raw, result)


def assert_exact(device, opcode: str, count: int = 0) -> None:
    operation = lookup(opcode, count)
    inputs = [values(kind, seed) for seed, kind in enumerate(operation.sources)]
    got = execute(device, opcode, operation.sources, operation.result, inputs)
    with np.errstate(all="ignore"):
        want = operation.function(*inputs)
    good = same(got, np.asarray(want), operation.result)
    if not good.all():
        lane = int(np.flatnonzero(~good)[0])
        raise AssertionError(
            f"{opcode}{[x[lane] for x in inputs]}: {got[lane]!r}, not {want[lane]!r} ({(~good).sum()} lanes)"
        )


def forms(text: str) -> list[str]:
    """ "add{.rn,.rz}{,.ftz}.f32" -> all opcodes."""
    parts = [
        part.split(",") if index % 2 else [part]
        for index, part in enumerate(text.replace("}", "{").split("{"))
    ]
    return ["".join(choice) for choice in itertools.product(*parts)]


MODES = "{.rn,.rz,.rm,.rp}"
EXACT = [
    opcode
    for text in (
        "{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32", f"fma{MODES}{{,.ftz}}{{,.sat}}.f32",
        "mad{.rn,.rz}.f32",
        f"{{div,rcp,sqrt}}{MODES}{{,.ftz}}.f32", f"{{add,sub,mul,fma,div,rcp,sqrt}}{MODES}.f64", "mad.rn.f64",
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32", "{min,max}.f64", "{abs,neg}{,.ftz}.f32",
        "{abs,neg}.f64",
        "copysign{.f32,.f64}", "{add,sub,mul}{,.rn}{,.ftz}{,.sat}{.f16,.f16x2}",
        "fma.rn{,.ftz}{,.sat,.relu}{.f16,.f16x2}",
        "{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}{.f16,.f16x2}", "{abs,neg}{,.ftz}{.f16,.f16x2}",
        "{add,sub,mul}{,.rn}{.bf16,.bf16x2}",
        "fma.rn{,.relu}{.bf16,.bf16x2}", "{min,max}{,.NaN}{,.xorsign.abs}{.bf16,.bf16x2}",
        "{abs,neg}{.bf16,.bf16x2}",
    )
    for opcode in forms(text)
]  # fmt: skip


@pytest.mark.parametrize("opcode", EXACT)
def test_exact_arithmetic(machine, opcode):
    assert_exact(machine, opcode)


# ------------------------------------------------------------------------------------------------------------
# Approximate instructions: opcode -> inputs, stated error, of what
# ------------------------------------------------------------------------------------------------------------

APPROXIMATE = {
    "ex2.approx{,.ftz}.f32": ((-120, 120), 2.0**-22, "relative"),
    "lg2.approx{,.ftz}.f32": ((1e-3, 1e5), 2.0**-22, "either"),
    "sin.approx{,.ftz}.f32": ((-3.14, 3.14), 2.0**-20.5, "absolute"),
    "cos.approx{,.ftz}.f32": ((-3.14, 3.14), 2.0**-20.5, "absolute"),
    "tanh.approx.f32": ((-5, 5), 2.0**-11, "relative"),
    "rcp.approx{,.ftz}.f32": ((1e-30, 1e30), 2.0**-23, "relative"),
    "rsqrt.approx{,.ftz}.f32": ((1e-30, 1e30), 2.0**-22.4, "relative"),
    "sqrt.approx{,.ftz}.f32": ((1e-30, 1e30), 2.0**-22, "relative"),
    "ex2.approx.f16": ((-13, 14), 2.0**-9.9, "relative"),
    "tanh.approx.f16": ((-4, 4), 2.0**-10.987, "relative"),
    "ex2.approx.ftz.bf16": ((-100, 100), 2.0**-7, "relative"),
    "tanh.approx.bf16": ((-4, 4), 2.0**-8, "relative"),
    "rcp.approx.ftz.f64": ((1e-30, 1e30), 2.0**-20, "relative"),
    "rsqrt.approx{,.ftz}.f64": ((1e-30, 1e30), 2.0**-20, "relative"),
}  # fmt: skip


def assert_close(opcode: str, got: np.ndarray, want: np.ndarray, bound: float, measure: str) -> None:
    error = np.abs(got - want)
    allowed = {"relative": 2 * bound * np.abs(want), "absolute": 2 * bound + 0 * want,
               "either": 2 * bound * np.maximum(1, np.abs(want))}[measure]  # fmt: skip
    same_infinity = (got == want) | (np.isnan(got) & np.isnan(want))
    assert (same_infinity | (error <= allowed)).all(), (
        opcode,
        got[~(error <= allowed)][:4],
        want[~(error <= allowed)][:4],
    )


@pytest.mark.parametrize("opcode, text", [(opcode, text) for text in APPROXIMATE for opcode in forms(text)])
def test_approximate_functions(machine, opcode, text):
    (low, high), bound, measure = APPROXIMATE[text]
    operation = lookup(opcode)
    kind = operation.result
    x = np.random.default_rng(0).uniform(low, high, COUNT)
    x = x.astype(NATURAL[kind]) if kind != "bf16" else lookup("cvt.rn.bf16.f64").function(x)
    got = execute(machine, opcode, operation.sources, kind, [x])
    assert_close(opcode, as_float(got, kind), as_float(operation.function(x), kind), bound, measure)


@pytest.mark.parametrize("opcode", ["ex2.approx.f32", "lg2.approx.f32", "rsqrt.approx.f32", "rcp.approx.f32",
                                    "sqrt.approx.f32",
                                    "tanh.approx.f32", "ex2.approx.f16", "tanh.approx.f16"])  # fmt: skip
def test_special_values_of_approximate_functions(machine, opcode):
    operation = lookup(opcode)
    x = np.resize(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 4.0]), COUNT).astype(
        NATURAL[operation.result]
    )
    got = execute(machine, opcode, operation.sources, operation.result, [x])
    with np.errstate(all="ignore"):
        want = operation.function(x)
    exact = ~np.isin(x, [1, -1, 4])
    assert same(got, want, operation.result)[exact].all()


@pytest.mark.parametrize("opcode", forms("div{.approx,.full}{,.ftz}.f32"))
def test_approximate_division(machine, opcode):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((2, COUNT)) * 2.0 ** rng.integers(-30, 30, (2, COUNT))).astype(np.float32)
    got = execute(machine, opcode, ("f32", "f32"), "f32", [a, b])
    assert_close(opcode, got.astype(float), a.astype(float) / b.astype(float), 2.0**-22, "relative")


@pytest.mark.parametrize(
    "opcode", ["ex2.approx.f16x2", "tanh.approx.f16x2", "ex2.approx.ftz.bf16x2", "tanh.approx.bf16x2"]
)
def test_packed_approximate_functions(machine, opcode):
    operation = lookup(opcode)
    element = operation.result.removesuffix("x2")
    x = np.random.default_rng(2).uniform(-4, 4, 2 * COUNT)
    x = x.astype(np.float16) if element == "f16" else lookup("cvt.rn.bf16.f64").function(x)
    packed = np.ascontiguousarray(x).view(np.uint32)
    got = execute(machine, opcode, operation.sources, operation.result, [packed])
    bound = {"ex2.approx.f16x2": 2.0**-9.9, "tanh.approx.f16x2": 2.0**-10.987}.get(opcode, 2.0**-7)
    assert_close(
        opcode,
        as_float(got, operation.result),
        as_float(operation.function(packed), operation.result),
        bound,
        "relative",
    )


# ------------------------------------------------------------------------------------------------------------
# Comparisons and properties
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "relation", ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
)
@pytest.mark.parametrize("kind", ["f32", "ftz.f32", "f64", "f16", "bf16"])
def test_setp(machine, kind, relation):
    ftz, element = kind.startswith("ftz"), kind.removeprefix("ftz.")
    a, b = values(element, 0), values(element, 1)
    b[::5] = a[::5]
    text = f"setp.{relation}.{kind} %p, %i0, %i1; selp.b32 %o0, 1, 0, %p;"
    register = REGISTERS[element]
    (got,) = lanes(
        machine,
        text,
        [store(a, element), store(b, element)],
        [register] * 2,
        [("b32", np.uint32)],
        ".reg .pred %p;",
        "sm_90",
    )
    with np.errstate(all="ignore"):
        want = compare(relation, element, ftz)(a, b)
    assert np.array_equal(got.astype(bool), want)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("prop", ["finite", "infinite", "number", "notanumber", "normal", "subnormal"])
def test_testp(machine, prop, kind):
    x = values(kind, 3)
    text = f"testp.{prop}.{kind} %p, %i0; selp.b32 %o0, 1, 0, %p;"
    (got,) = lanes(
        machine, text, [store(x, kind)], [REGISTERS[kind]], [("b32", np.uint32)], ".reg .pred %p;", "sm_90"
    )
    with np.errstate(all="ignore"):
        want = lookup(f"testp.{prop}.{kind}").function(x)
    assert np.array_equal(got.astype(bool), want)


# ------------------------------------------------------------------------------------------------------------
# Conversions
# ------------------------------------------------------------------------------------------------------------

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


def _saturates(target: str, source: str) -> bool:
    """Whether cvt.sat between integers is allowed: the target does not hold every source value."""
    low, high = np.iinfo(NATURAL[target]).min, np.iinfo(NATURAL[target]).max
    return np.iinfo(NATURAL[source]).min < low or np.iinfo(NATURAL[source]).max > high


def _exists(target: str, source: str) -> bool:
    """The assembler knows no conversion between bf16 and integers of 8 bits."""
    return "bf16" not in (target, source) or not {"u8", "s8"} & {target, source}


CONVERSIONS = [
    *[f"cvt.{t}.{s}" for t in INTEGERS for s in INTEGERS],
    *[f"cvt.sat.{t}.{s}" for t in INTEGERS for s in INTEGERS if _saturates(t, s)],
    *[f"cvt.{m}.{t}.{s}" for m in ("rn", "rz", "rm", "rp") for t in ("f16", "f32", "f64",
    "bf16") for s in INTEGERS if _exists(t, s)],
    *[f"cvt.{m}.{t}.{s}" for m in ("rni", "rzi", "rmi", "rpi") for t in INTEGERS for s in ("f16", "f32",
    "f64", "bf16") if _exists(t, s)],
    *[f"cvt.{m}.ftz.s32.f32" for m in ("rni", "rzi", "rmi", "rpi")],
    *forms("cvt{.rn,.rz,.rm,.rp}{,.sat}.f16{.f32,.f64}"), *forms("cvt{.rn,.rz}.relu.f16.f32"),
    *forms("cvt{.rn,.rz,.rm,.rp}.bf16{.f32,.f64,.f16}"), *forms("cvt{.rn,.rz}.relu.bf16.f32"),
    *forms("cvt{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32.f64"), *forms("cvt{.f32,.f64}{.f16,.bf16}"),
    "cvt.f64.f32", "cvt.ftz.f64.f32",
    *forms("cvt{.rni,.rzi,.rmi,.rpi}{.f16.f16,.f32.f32,.ftz.f32.f32,.f64.f64}"),
    *forms("cvt{,.ftz}.sat.f32.f32"),
    "cvt.rna.tf32.f32", *forms("cvt{.rn,.rz}{,.relu}{.f16x2,.bf16x2}.f32"),
    *forms("cvt.rn.satfinite{,.relu}{.e4m3x2,.e5m2x2}{.f32,.f16x2}"),
    *forms("cvt.rn{,.relu}.f16x2{.e4m3x2,.e5m2x2}"),
]  # fmt: skip


@pytest.mark.parametrize("opcode", CONVERSIONS)
def test_cvt(machine, opcode):
    assert_exact(machine, opcode)


NARROW = [
    *forms("cvt.rn.satfinite{,.relu}{.e2m3x2,.e3m2x2,.e2m1x2}.f32"),
    *forms("cvt.rn.satfinite{,.relu}.e2m1x2.f16x2"),
    *forms("cvt.rn{,.relu}.f16x2{.e2m3x2,.e3m2x2,.e2m1x2}"),
    *forms("cvt{.rz,.rp}{,.satfinite}.ue8m0x2{.f32,.bf16x2}"),
    "cvt.rn.bf16x2.ue8m0x2",
    *forms("{add,sub}{,.rn,.rz,.rm,.rp}{,.sat}.f32{.f16,.bf16}"),
    *forms("fma{.rn,.rz,.rm,.rp}{,.sat}.f32{.f16,.bf16}"),
]


@pytest.mark.parametrize("opcode", NARROW)
def test_forms_of_newer_devices(opcode):
    """What only sm_100 and later have: the emulator's PTX against `numerics`."""
    assert_exact(EmulatorDevice(), opcode)
