"""The device library's functions are as accurate as CUDA's documentation says of CUDA's: against mpmath, over
the whole range of arguments, on the emulator (and the GPU); the interpreter gives the same."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.frontend import build
from ptxforge.language.extra import libdevice
from ptxforge.support import dtypes
from tests.language.libdevice_ulps import ABSOLUTE, ULPS, exact

COUNT = 128
Draw = Callable[[np.random.Generator, bool], np.ndarray]


@ptxforge.jit
def map_all(x, y, z, w, out, FN: tl.constexpr, ARGUMENTS: tl.constexpr, COUNT: tl.constexpr):
    i = tl.program_id(0) * COUNT + tl.arange(0, COUNT)
    arguments = (tl.load(x + i), tl.load(y + i), tl.load(z + i), tl.load(w + i))
    tl.store(out + i, FN(*arguments[:ARGUMENTS]))


def compute(devices, name: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The function of this name of arrays with a multiple of ``COUNT`` elements, on each device."""
    given = (arguments * 4)[:4]
    constants = dict(FN=getattr(libdevice, name), ARGUMENTS=len(arguments), COUNT=COUNT)
    found = []
    for device in devices:
        placed = [ptxforge.to_device(a, device) for a in (*given, np.zeros_like(arguments[-1]))]
        map_all[len(arguments[0]) // COUNT, 1, 1](*placed, **constants)
        found.append(placed[-1].numpy())
    return found


# -- arguments -------------------------------------------------------------------------------------------


def spread(low: float, high: float) -> Draw:
    return lambda rng, wide: rng.uniform(low, high, COUNT)


def scales(low: float, high: float, wide_low: float = 0, wide_high: float = 0, sign: bool = True) -> Draw:
    """Powers of ten from ``low`` to ``high``, for float64 to other limits."""

    def draw(rng, wide):
        exponents = rng.uniform(*((wide_low, wide_high) if wide and (wide_low or wide_high) else (low, high)),
                                COUNT)  # fmt: skip
        return 10.0**exponents * (rng.choice([-1, 1], COUNT) if sign else 1)

    return draw


def beside(place: float, low: float, high: float, sign: int = 0) -> Draw:
    """As near to a place as ``10**low`` to ``10**high``, on both sides or one."""

    def draw(rng, wide):
        return place + 10.0 ** rng.uniform(low, high, COUNT) * (sign or rng.choice([-1, 1], COUNT))

    return draw


ANY = scales(-44, 38, -323, 308)
POSITIVE = scales(-44, 38, -323, 308, sign=False)
SMALL = scales(-44, -1, -323, -1)
ANGLES = [spread(-10, 10), scales(2, 37), SMALL]
LENGTHS = [spread(-3, 3), scales(-37, 38, -300, 300)]
EXPONENTS = {"exp": (-103.9, 88.72, -745, 709.7), "exp2": (-126, 127.9, -1074, 1023.9),
             "exp10": (-44.8, 38.5, -323, 308.2)}  # fmt: skip
ARGUMENTS: dict[str, list[Draw]] = {
    "rsqrt": [POSITIVE], "cbrt": [ANY], "rcbrt": [ANY], "hypot": LENGTHS, "rhypot": LENGTHS,
    "norm3d": LENGTHS, "rnorm3d": LENGTHS, "norm4d": LENGTHS, "rnorm4d": LENGTHS,
    **{name: [lambda rng, wide, e=e: rng.uniform(*(e[2:] if wide else e[:2]), COUNT), spread(-1, 1)]
       for name, e in EXPONENTS.items()},
    "expm1": [spread(-40, 80), spread(-1, 1.5), SMALL], "log": [POSITIVE, spread(0.5, 2)],
    "log2": [POSITIVE, spread(0.5, 2)], "log10": [POSITIVE, spread(0.5, 2)],
    "log1p": [POSITIVE, spread(-1, 3), spread(-0.4, 0.6), SMALL], "sin": ANGLES, "cos": ANGLES,
    "tan": ANGLES, "sinpi": [spread(-3, 3), spread(-1e5, 1e5), SMALL], "cospi": [spread(-3, 3), SMALL],
    "asin": [spread(-1, 1), SMALL, beside(1, -7, -1, -1)], "acos": [spread(-1, 1), beside(1, -7, -1, -1)],
    "atan": [spread(-10, 10), spread(-1, 1), ANY], "atan2": [spread(-3, 3), ANY, scales(-18, 18)],
    "sinh": [spread(-88, 88), spread(-2, 2), SMALL], "cosh": [spread(-88, 88), spread(-2, 2)],
    "tanh": [spread(-10, 10), spread(-1, 1), SMALL], "asinh": [ANY, spread(-3, 3)],
    "acosh": [beside(1, -6, 1, 1), scales(0, 38, 0, 300, sign=False)], "atanh": [spread(-1, 1), SMALL],
    "pow": [scales(-6, 6, sign=False)], "erf": [spread(-6, 6), spread(-1, 1), SMALL],
    "erfc": [spread(-3, 9), spread(0.3, 1.5), SMALL], "erfcx": [spread(-4, 9), spread(-0.5, 0.5), SMALL,
                                                                spread(9, 40)],
    "erfinv": [spread(-1, 1), beside(1, -7, -1, -1), SMALL],
    "erfcinv": [spread(0, 2), scales(-44, -1, -320, -1, sign=False), beside(1, -6, -1)],
    "normcdf": [spread(-5, 5), spread(-13, -5)],
    "normcdfinv": [spread(0, 1), scales(-44, -1, -320, -1, sign=False), beside(0.5, -6, -1)],
    "lgamma": [spread(-2.2, 4), spread(2, 30), beside(1, -6, -1), beside(2, -6, -1), POSITIVE],
    "tgamma": [spread(-5, 5), lambda rng, wide: rng.uniform(0, 171.6 if wide else 35, COUNT),
               lambda rng, wide: rng.uniform(-170 if wide else -36, 0, COUNT), scales(-37, -1, -307, -1)],
    **{name: [spread(0, 8), beside(zero, -6, -1), scales(-30, 0, sign=False)] for name, zero in
       (("j0", 2.404825557695773), ("j1", 3.8317059702075125), ("y0", 0.8935769662791675),
        ("y1", 2.197141326031017))},
    "cyl_bessel_i0": [spread(-9, 9), lambda rng, wide: rng.uniform(8, 713 if wide else 91, COUNT)],
    "cyl_bessel_i1": [spread(-9, 9), lambda rng, wide: rng.uniform(8, 713 if wide else 91, COUNT), SMALL],
}  # fmt: skip
COUNTS = {"hypot": 2, "rhypot": 2, "atan2": 2, "pow": 2, "norm3d": 3, "rnorm3d": 3, "norm4d": 4, "rnorm4d": 4}


def drawn(name: str, dtype) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    count = COUNTS.get(name, 1)
    with np.errstate(over="ignore"):
        rows = [[draw(rng, dtype is np.float64) for _ in range(count)] for draw in ARGUMENTS[name]]
    if name == "pow":
        rows[0][1] = rng.uniform(-6, 6, COUNT)
    columns = [np.concatenate([row[i] for row in rows]) for i in range(count)]
    with np.errstate(over="ignore"):
        return [column.astype(dtype) for column in columns]


def assert_within(got: np.ndarray, function, ulps: float, arguments: list[np.ndarray]) -> None:
    """``got`` is within ``ulps`` of the correctly rounded result, so half a unit more from the exact one.
    Where that is beyond the largest float, infinity will do."""
    info = np.finfo(got.dtype)
    checked = 0
    for value, *at in zip(got, *arguments):
        if not all(map(np.isfinite, at)):
            continue
        wanted = function(*[mpmath.mpf(float(x)) for x in at])
        if mpmath.isinf(wanted) or mpmath.isnan(wanted) or abs(wanted) > info.max:
            assert not np.isfinite(value) or abs(value) > info.max * (1 - 2 * info.eps), (at, value, wanted)
            continue
        unit = mpmath.mpf(float(np.spacing(got.dtype.type(abs(float(wanted))))))
        error = abs(mpmath.mpf(float(value)) - wanted) / unit if np.isfinite(value) else mpmath.inf
        assert error <= ulps + 0.5, f"{at}: {value!r}, not {wanted}, {float(error)} ulp"
        checked += 1
    assert checked > COUNT // 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(ULPS))
def test_accuracy(devices, name, dtype):
    """As CUDA's. What tl has itself may flush subnormal results or take a fast instruction: exp2 does."""
    arguments = drawn(name, dtype)
    with mpmath.workprec(160):
        for got in compute(devices, name, arguments):
            assert_within(got, exact(name), ULPS[name][dtype is np.float64], arguments)


def test_every_function_that_cuda_promises_is_tested():
    assert set(ARGUMENTS) == set(ULPS) <= set(libdevice.__all__)


# -- functions with zeros, integers, orders --------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["j0", "j1", "y0", "y1"])
def test_bessel_functions_far_out(devices, name, dtype):
    rng = np.random.default_rng(1)
    x = (10.0 ** rng.uniform(np.log10(8), 6, COUNT)).astype(dtype)
    with mpmath.workprec(160):
        wanted = [float(exact(name)(mpmath.mpf(float(v)))) for v in x]
    for got in compute(devices, name, [x]):
        assert np.abs(got - wanted).max() <= ABSOLUTE[dtype is np.float64]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["jn", "yn"])
def test_bessel_functions_of_any_order(devices, name, dtype):
    @ptxforge.jit
    def kernel(n, x, out, FN: tl.constexpr, COUNT: tl.constexpr):
        i = tl.arange(0, COUNT)
        tl.store(out + i, FN(tl.load(n + i), tl.load(x + i)))

    rng = np.random.default_rng(2)
    n = np.concatenate([rng.integers(0, 9, COUNT // 2), rng.integers(0, 129, COUNT // 2)]).astype(np.int32)
    x = np.concatenate([rng.uniform(0.1, 12, COUNT // 2), rng.uniform(0.1, 250, COUNT // 2)]).astype(dtype)
    if name == "yn":  # CUDA promises no more
        x = np.maximum(x, (1.5 * n + 0.1).astype(dtype))
    n[:4], x[:4] = -1, [1, 2, 3, 4]
    with mpmath.workprec(160):
        wanted = [float(exact(name)(int(k), mpmath.mpf(float(v)))) for k, v in zip(n, x)]
    for device in devices:
        placed = [ptxforge.to_device(a, device) for a in (n, x, np.zeros_like(x))]
        kernel[1, 1, 1](*placed, FN=getattr(libdevice, name), COUNT=COUNT)
        got = placed[-1].numpy()
        assert np.isnan(got[:4]).all()
        assert np.abs(got - wanted)[4:].max() <= ABSOLUTE[dtype is np.float64]


def test_lgamma_between_its_zeros(devices):
    """What cancels counts."""
    for dtype in (np.float32, np.float64):
        x = np.random.default_rng(3).uniform(-30, -2.3, COUNT).astype(dtype)
        with mpmath.workprec(160):
            wanted = [float(exact("lgamma")(mpmath.mpf(float(v)))) for v in x]
            largest = np.array([float(mpmath.loggamma(-float(v))) + 1 for v in x], dtype)
        for got in compute(devices, "lgamma", [x]):
            assert (np.abs(got - wanted) <= 4 * np.spacing(largest)).all()


def test_powers_with_integers(devices):
    @ptxforge.jit
    def kernel(x, n, out, COUNT: tl.constexpr):
        i = tl.arange(0, COUNT)
        tl.store(out + i, libdevice.pow(tl.load(x + i), tl.load(n + i)))

    rng = np.random.default_rng(4)
    n = rng.integers(-9, 10, COUNT).astype(np.int32)
    n[:2] = [2**24 + 1, -(2**24) - 1]
    for dtype in (np.float32, np.float64):
        x = rng.uniform(-3, 3, COUNT).astype(dtype)
        x[:2] = -1
        for device in devices:
            placed = [ptxforge.to_device(a, device) for a in (x, n, np.zeros_like(x))]
            kernel[1, 1, 1](*placed, COUNT=COUNT)
            got = placed[-1].numpy()
            with mpmath.workprec(160):
                assert_within(got, lambda a, k: a ** int(k), 2, [x, n])
            assert got[:2].tolist() == [-1, -1]  # an odd exponent, though float32 has not all of them


@pytest.mark.parametrize("power", [1, 2, 2.0, 3, 4, 5, -1, 0.5])
def test_powers_known_at_compile_time(devices, power):
    @ptxforge.jit
    def kernel(x, out, COUNT: tl.constexpr, POWER: tl.constexpr):
        i = tl.arange(0, COUNT)
        tl.store(out + i, libdevice.pow(tl.load(x + i), POWER))

    rng = np.random.default_rng(4)
    for dtype in (np.float32, np.float64):
        signs = 1 if power == 0.5 else rng.choice([-1, 1], COUNT)
        x = (signs * 10.0 ** rng.uniform(-6, 6, COUNT)).astype(dtype)
        x[:4] = 0.0, float("inf"), float("nan"), 1.0
        for device in devices:
            placed = [ptxforge.to_device(a, device) for a in (x, np.zeros_like(x))]
            kernel[1, 1, 1](*placed, COUNT=COUNT, POWER=power)
            got = placed[-1].numpy()
            assert got[:4].tolist()[:2] == ([float("inf"), 0] if power < 0 else [0, float("inf")])
            assert np.isnan(got[2]) and got[3] == 1
            with mpmath.workprec(160):
                ulps = ULPS["pow"][dtype is np.float64]
                assert_within(got[3:], lambda a: mpmath.power(a, power), ulps, [x[3:]])


def test_squares_and_cubes_known_at_compile_time_are_products():
    def kernel(x, out, COUNT: tl.constexpr):
        i = tl.arange(0, COUNT)
        value = tl.load(x + i)
        tl.store(out + i, libdevice.pow(value, 2) + libdevice.pow(value, 3.0))

    signature = {"x": "*fp32", "out": "*fp32"}
    tile = ptxforge.compile(kernel, signature=signature, constants={"COUNT": 64}, target="sm_80").asm["tile"]
    assert "pow" not in tile and tile.count("mulf") == 2


def test_reciprocal_root_is_rounded_exactly(devices):
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.uniform(0.5, 4, 7 * COUNT), 10.0 ** rng.uniform(-44, 38, COUNT)])
    x = x.astype(np.float32)
    with mpmath.workprec(160):
        precise = [1 / mpmath.sqrt(mpmath.mpf(float(v))) for v in x]
    with mpmath.workprec(24):
        wanted = np.array([float(+v) for v in precise], np.float32)
    for got in compute(devices, "rsqrt_rn", [x]):
        np.testing.assert_array_equal(got, wanted)


# -- special values --------------------------------------------------------------------------------------

INF, NAN = np.inf, np.nan
SPECIAL = np.array([0, -0.0, INF, -INF, NAN, 1, -1, 2, -2, 0.5, -3])
VALUES = {  # of the arguments above; None: not a simple one
    "erfinv": [0, -0.0, NAN, NAN, NAN, INF, -INF, NAN, NAN, None, NAN],
    "erfcinv": [INF, INF, NAN, NAN, NAN, 0, NAN, -INF, NAN, None, NAN],
    "erfcx": [1, 1, 0, INF, NAN, None, None, None, None, None, None],
    "normcdf": [0.5, 0.5, 1, 0, NAN, None, None, None, None, None, None],
    "normcdfinv": [-INF, -INF, NAN, NAN, NAN, INF, NAN, NAN, NAN, 0, NAN],
    "lgamma": [INF, INF, INF, INF, NAN, 0, INF, 0, INF, None, INF],
    "tgamma": [INF, -INF, INF, NAN, NAN, 1, NAN, 1, NAN, None, NAN],
    "j0": [1, 1, 0, 0, NAN, None, None, None, None, None, None],
    "j1": [0, -0.0, 0, -0.0, NAN, None, None, None, None, None, None],
    "y0": [-INF, -INF, 0, NAN, NAN, None, NAN, None, NAN, None, NAN],
    "y1": [-INF, -INF, 0, NAN, NAN, None, NAN, None, NAN, None, NAN],
    "cyl_bessel_i0": [1, 1, INF, INF, NAN, None, None, None, None, None, None],
    "cyl_bessel_i1": [0, -0.0, INF, -INF, NAN, None, None, None, None, None, None],
    "exp": [1, 1, INF, 0, NAN, None, None, None, None, None, None],
    "exp10": [1, 1, INF, 0, NAN, 10, None, 100, 0.01, None, 0.001],
    "rsqrt_rn": [INF, -INF, 0, NAN, NAN, 1, NAN, None, NAN, None, NAN],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(VALUES))
def test_special_values(devices, name, dtype):
    if name == "rsqrt_rn" and dtype is np.float64:
        return
    x = np.resize(SPECIAL, COUNT).astype(dtype)
    chosen = [i for i, value in enumerate(VALUES[name]) if value is not None]
    wanted = np.array([VALUES[name][i] for i in chosen], dtype)
    for got in compute(devices, name, [x]):
        np.testing.assert_allclose(got[chosen], wanted, rtol=2 * np.finfo(dtype).eps)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got[chosen][numbers]), np.signbit(wanted[numbers]))


def test_the_exponential_of_a_float32_is_eight_instructions():
    signature = {name: "*fp32" for name in ("x", "y", "z", "w", "out")}
    constants = dict(FN=libdevice.exp, ARGUMENTS=1, COUNT=COUNT)
    ptx = map_all.compile(signature, constants, target="sm_90a", num_warps=4).asm["ptx"]
    after = ptx[ptx.index("ld.global") : ptx.index("st.global")]
    opcodes = [line.split()[0] for line in after.splitlines()[1:] if line.strip()[-1:] == ";"]
    work = [opcode for opcode in opcodes if not opcode.startswith(("mov.", "mad.wide", "ld.param", "."))]
    assert sorted(work) == sorted(
        ["fma.rn.sat.f32", *["fma.rn.f32"] * 3, "sub.rn.f32", "shl.b32", "ex2.approx.ftz.f32", "mul.rn.f32"]
    )


TEXTS = ["erfinv", "tgamma", "j1", "cyl_bessel_i0", "atan", "cbrt", "expm1", "normcdf"]


@pytest.mark.parametrize("name", TEXTS)
def test_the_interpreter_agrees(emulator, name):
    """Library text means the same to both, within what their square roots and logarithms differ."""
    x = np.random.default_rng(8).uniform(0.1, 0.9, COUNT)
    arrays = {"x": x, "y": x, "z": x, "w": x, "out": np.zeros_like(x)}
    signature = {key: f"*{dtypes.from_numpy(array.dtype).short}" for key, array in arrays.items()}
    constants = dict(FN=getattr(libdevice, name), ARGUMENTS=1, COUNT=COUNT)
    interpreter.run(build(map_all.fn, signature, constants, target="sm_90a"), 1, arrays)
    (got,) = compute([emulator], name, [x])
    np.testing.assert_allclose(arrays["out"], got, rtol=1e-14)
