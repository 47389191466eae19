"""What kernels mean where releases of Triton differ, and what the later ones added to functions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import compiler_state
from ptxforge.support.errors import CompilationError

RELEASES = ["3.6.0", "3.8.2", "3.9.0", "3.10.1"]
SINCE_3_9 = {"3.6.0": False, "3.8.2": False, "3.9.0": True, "3.10.1": True}


@ptxforge.jit
def types(x, out, NEW: tl.constexpr, RELEASE: tl.constexpr):
    """``NEW``: since 3.9 numbers follow what stands beside them, and bfloat16 stays what it is."""
    value = tl.load(x + tl.arange(0, 16))
    half, brain, byte = value.to(tl.float16), value.to(tl.bfloat16), value.to(tl.int8)
    tl.static_assert(tl.maximum(half, 0.5).dtype == (tl.float16 if NEW else tl.float32))
    tl.static_assert(tl.minimum(brain, brain).dtype == (tl.bfloat16 if NEW else tl.float32))
    tl.static_assert(tl.clamp(brain, -1, 1.0).dtype == (tl.bfloat16 if NEW else tl.float32))
    tl.static_assert(tl.fma(half, 2.0, half).dtype == (tl.float16 if NEW else tl.float32))
    tl.static_assert(tl.maximum(byte, 3).dtype == (tl.int8 if NEW else tl.int32))
    tl.static_assert(min(brain, 2).dtype == (tl.bfloat16 if NEW else tl.float32))
    tl.static_assert(tl.cumsum(brain, 0).dtype == (tl.bfloat16 if NEW else tl.float32))
    tl.static_assert(tl.cumprod(brain, 0).dtype == (tl.bfloat16 if NEW else tl.float32))
    tl.static_assert(tl.cumprod(byte, 0).dtype == (tl.int32 if NEW else tl.int8))
    tl.static_assert(tl.cumprod(byte.to(tl.uint16), 0).dtype == (tl.uint32 if NEW else tl.uint16))
    tl.static_assert(tl.cumprod(byte, 0, dtype=tl.int64).dtype == tl.int64)
    tl.static_assert(tl.fdiv(half, half).dtype == tl.fdiv(half, 2.0).dtype)
    tl.static_assert(tl.fdiv(half, half).dtype == (tl.float32 if NEW else tl.float16))
    tl.static_assert(tl.max(brain, 0, return_indices=True)[0].dtype == (tl.bfloat16 if NEW else tl.float32))
    tl.static_assert(tl.max(brain, 0).dtype == tl.float32 and tl.sum(brain, 0).dtype == tl.bfloat16)
    tl.store(out + tl.arange(0, 16), tl.minimum(brain, 0.1))


@pytest.mark.parametrize("release", RELEASES)
def test_types(execute, monkeypatch, release):
    monkeypatch.setenv("PTXFORGE_TRITON_VERSION", release)
    x = np.linspace(-1, 1, 16, dtype=np.float32)
    brain = x.astype(ml_dtypes.bfloat16)
    bound = ml_dtypes.bfloat16(0.1) if SINCE_3_9[release] else np.float32(0.1)
    constants = {"NEW": SINCE_3_9[release], "RELEASE": release}
    for (out,) in execute(types, (1,), [x, np.zeros(16, np.float32)], constants, outputs=[1]):
        np.testing.assert_array_equal(out, np.minimum(brain.astype(np.float32), np.float32(bound)))


@ptxforge.jit
def compared(x, out, NUMBER: tl.constexpr, RELEASE: tl.constexpr):
    i = tl.arange(0, 4)
    value = tl.load(x + i)
    tl.store(out + i, (value >= NUMBER).to(tl.int32) + 2 * (NUMBER == value).to(tl.int32))


FLOATS = [np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", [0.1, 0.5, -0.3, float("inf"), 65520.0, 1])
def test_floats_beside_numbers_in_comparisons(execute, monkeypatch, release, dtype, number):
    """A number that the type does not hold is rounded since 3.9 only."""
    monkeypatch.setenv("PTXFORGE_TRITON_VERSION", release)
    near = dtype(number)
    x = np.array([near, np.nextafter(near, dtype(-np.inf)), dtype(np.nan), dtype(0.5)], dtype)
    right = np.float32(near) if SINCE_3_9[release] else np.float32(number)
    wide = x.astype(np.float32)
    expected = (wide >= right).astype(np.int32) + 2 * (wide == right)
    constants = {"NUMBER": number, "RELEASE": release}
    for (out,) in execute(compared, (1,), [x, np.zeros(4, np.int32)], constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        (np.int8, 300, [0, 0, 0, 0]), (np.int8, -300, [1, 1, 1, 1]), (np.uint8, 255, [0, 3, 0, 0]),
        (np.uint8, -1, [1, 1, 1, 1]), (np.int16, 2**30, [0, 0, 0, 0]), (np.int32, -(2**40), [1, 1, 1, 1]),
        (np.int32, 2**40, [0, 0, 0, 0]), (np.int16, 2**31, None), (np.int32, 2**31, None),
        (np.uint32, -1, None),
    ],
)  # fmt: skip
def test_integers_beside_numbers_out_of_range(execute, monkeypatch, dtype, number, expected):
    """They are compared as numbers (``None``: refused, as C would compare others); refused since 3.9."""
    x = np.array([0, -1, 100, 5]).astype(dtype)
    constants = {"NUMBER": number, "RELEASE": "3.6"}
    if expected is not None:
        for (out,) in execute(compared, (1,), [x, np.zeros(4, np.int32)], constants, outputs=[1]):
            assert out.tolist() == expected
    for release in ("3.6", "3.9") if expected is None else ("3.9",) if number != 255 else ():
        monkeypatch.setenv("PTXFORGE_TRITON_VERSION", release)
        with pytest.raises(CompilationError, match="out of range|negative number"):
            compared.compile(
                {"x": f"*{'ui'[x.dtype.kind == 'i']}{8 * x.itemsize}", "out": "*i32"},
                {"NUMBER": number, "RELEASE": release}, target="sm_90a",
            )  # fmt: skip


def test_what_is_on_disk_is_of_one_release(monkeypatch):
    digests = []
    for release in RELEASES:
        monkeypatch.setenv("PTXFORGE_TRITON_VERSION", release)
        digests.append(compiler_state.digest())
    old, same_old, new, same_new = digests
    assert old == same_old != new == same_new and len(old) == len(new) == 64


# -- what functions take since later releases --------------------------------------------------------------


@ptxforge.jit
def clamped(x, out, LOW: tl.constexpr, HIGH: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(out + i, tl.clamp(tl.load(x + i), LOW, HIGH))


@pytest.mark.parametrize("release", ["3.6.0", "3.9.0"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64])
def test_clamp_of_integers(execute, monkeypatch, release, dtype):
    monkeypatch.setenv("PTXFORGE_TRITON_VERSION", release)
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, *range(14)], dtype)
    constants = {"LOW": 3, "HIGH": 9}
    for (out,) in execute(clamped, (1,), [x, np.zeros(16, dtype)], constants, outputs=[1]):
        np.testing.assert_array_equal(out, np.clip(x, dtype(3), dtype(9)))


@ptxforge.jit
def products(x, out, N: tl.constexpr, DTYPE: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.cumprod(tl.load(x + i), 0, dtype=DTYPE))
    tl.store(out + N + i, tl.load(x + i).cumprod(0, True, DTYPE))


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        (np.int8, np.int64), (np.uint8, np.uint64), (np.int32, np.float32), (np.float16, np.float64),
        (ml_dtypes.bfloat16, np.float32), (np.float32, np.float16),
    ],
)  # fmt: skip
def test_products_in_another_type(execute, dtype, wanted):
    x = np.array([1, 2, 1, 2, 2, 3, 1, 1], dtype)
    forward = np.cumprod(x.astype(wanted))
    backward = np.cumprod(x.astype(wanted)[::-1])[::-1]
    constants = {"N": 8, "DTYPE": getattr(tl, np.dtype(wanted).name)}
    for (out,) in execute(products, (1,), [x, np.zeros((2, 8), wanted)], constants, outputs=[1]):
        np.testing.assert_array_equal(out, [forward, backward])


@ptxforge.jit
def half_products(a, b, c, OUT: tl.constexpr):
    i = tl.arange(0, 16)
    places = i[:, None] * 16 + i[None, :]
    acc = tl.load(c + places)
    tl.store(c + places, tl.dot(tl.load(a + places), tl.load(b + places), acc, out_dtype=OUT))


@pytest.mark.parametrize("out", [None, tl.float16])
def test_the_accumulator_says_what_a_product_is(execute, out):
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-3, 4, (16, 16)).astype(np.float16) for _ in range(3))
    for (found,) in execute(half_products, (1,), [a, b, c], {"OUT": out}, outputs=[2]):
        np.testing.assert_array_equal(found, a @ b + c)


@ptxforge.jit
def quotients(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.fdiv(tl.load(x + i), tl.load(y + i), approx=True))


def test_approximate_quotients(execute):
    x = np.array([1, -3, 0, 1e-38, 5e30, np.inf, np.nan, 7], np.float32)
    y = np.array([3, 7, 5, 1e-3, 2e35, 2, 1, 2.0**-126], np.float32)
    for (out,) in execute(quotients, (1,), [x, y, np.zeros(8, np.float32)], {"N": 8}, outputs=[2]):
        np.testing.assert_allclose(out, x / y, rtol=2.0**-22, atol=2.0**-148)


@ptxforge.jit
def too_exact(x):
    tl.store(x, tl.fdiv(tl.load(x), tl.load(x), ieee_rounding=True, approx=True))


@ptxforge.jit
def too_wide(x):
    tl.store(x, tl.fdiv(tl.load(x).to(tl.float64), 3.0, approx=True))


@pytest.mark.parametrize("kernel", [too_exact, too_wide])
def test_approximate_quotients_of_others(kernel):
    with pytest.raises(CompilationError, match="argument 'approx' of fdiv\\(\\): is for float32"):
        kernel.compile({"x": "*fp32"}, {}, target="sm_90a")


@ptxforge.jit
def annotated_before(out):
    a: tl.constexpr
    b: tl.constexpr
    a = 5
    c, (b, d) = 1, (6, 2)
    tl.static_assert(a == 5 and b == 6)
    a = a + 1
    tl.store(out, a.to(tl.int32) + c.to(tl.int32) + d)


def test_a_type_may_be_said_before_the_value(execute):
    """Since 3.9: for the next assignment."""
    for (out,) in execute(annotated_before, (1,), [np.zeros(1, np.int32)], {}, outputs=[0]):
        assert out.tolist() == [9]
