"""Promotion, signedness, casts and the types of numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge.language as tl
from ptxforge.frontend.convert import common_dtype
from ptxforge.support.errors import CompilationError, TypeMismatchError

RNG = np.random.default_rng(0)

# (left, right, is the right one a number of Python, is it a division) -> result; from Triton's rules
PROMOTIONS = [
    ("float16", "float32", True, False, "float16"),
    ("float16", "float32", False, False, "float32"),
    ("bfloat16", "float16", False, False, "float16"),
    ("bfloat16", "int64", False, False, "float32"),
    ("bfloat16", "int32", True, False, "bfloat16"),
    ("float16", "int32", True, True, "float32"),
    ("bfloat16", "bfloat16", False, True, "float32"),
    ("float8e5", "float8e4nv", False, False, "float16"),
    ("float8e5", "float8e5", False, False, "float8e5"),
    ("float64", "float8e5", False, True, "float64"),
    ("int8", "int32", True, False, "int8"),
    ("int8", "int32", False, False, "int32"),
    ("int32", "float32", True, False, "float32"),
    ("int1", "int32", True, False, "int32"),
    ("int32", "uint32", False, False, "uint32"),
    ("int64", "uint32", False, False, "int64"),
    ("uint8", "int32", False, False, "int32"),
    ("int16", "int1", False, False, "int16"),
]


@pytest.mark.parametrize("left, right, is_number, division, result", PROMOTIONS)
def test_promotion(left, right, is_number, division, result):
    a, b = getattr(tl, left), getattr(tl, right)
    assert common_dtype(a, False, b, is_number, division) is getattr(tl, result)
    assert common_dtype(b, is_number, a, False, division) is getattr(tl, result)


@pytest.mark.parametrize("left, right", [("int32", "uint32"), ("uint8", "int64"), ("int1", "int32")])
def test_division_of_mixed_signs_is_refused(left, right):
    with pytest.raises(TypeMismatchError, match="different signedness"):
        common_dtype(getattr(tl, left), False, getattr(tl, right), False, division=True)


def test_fp8_and_integers_have_no_common_type():
    with pytest.raises(TypeMismatchError, match="no common type"):
        common_dtype(tl.float8e5, False, tl.int32, False)


def result_types(x, y, n):
    tl.static_assert((x + 1).dtype == tl.int8)
    tl.static_assert((x + 1.5).dtype == tl.float32)
    tl.static_assert((y * 2.0).dtype == tl.float16)
    tl.static_assert((y * n).dtype == tl.float16)
    tl.static_assert((y / y).dtype == tl.float32)
    tl.static_assert((n / n).dtype == tl.float32)
    tl.static_assert((n // 2).dtype == tl.int32)
    tl.static_assert((n < 2).dtype == tl.int1)
    tl.static_assert((-y).dtype == tl.float16)
    tl.static_assert(tl.to_tensor(1 << 31).dtype == tl.uint32)
    tl.static_assert(tl.to_tensor(1 << 40).dtype == tl.int64)
    tl.static_assert(tl.to_tensor(1 << 63).dtype == tl.uint64)
    tl.static_assert(tl.to_tensor(True).dtype == tl.int1)
    tl.static_assert(tl.to_tensor(1.0).dtype == tl.float32)
    tl.static_assert(tl.to_tensor(1e300).dtype == tl.float64)
    tl.static_assert(tl.sum(tl.full([4], 1, tl.int8)).dtype == tl.int32)
    tl.static_assert(tl.sum(tl.full([4], 1, tl.uint8)).dtype == tl.uint32)
    tl.static_assert(tl.sum(tl.full([4], 1, tl.bfloat16)).dtype == tl.bfloat16)
    tl.static_assert(tl.max(tl.full([4], 1, tl.float16)).dtype == tl.float32)
    tl.static_assert(tl.min(tl.full([4], 1, tl.uint8)).dtype == tl.int32)
    tl.static_assert(tl.cumsum(tl.full([4], 1, tl.bfloat16)).dtype == tl.float32)
    tl.static_assert(tl.argmax(tl.full([4], 1, tl.float16), 0).dtype == tl.int32)
    tl.static_assert(tl.where(n > 1, y, 1.0).dtype == tl.float16)
    tl.static_assert(tl.minimum(n, 3).dtype == tl.int32)


def test_types_of_results(ir):
    ir(result_types, {"x": "i8", "y": "fp16", "n": "i32"})


def introspection(x, n):
    block = tl.load(x + tl.arange(0, 8))
    tl.static_assert(x.dtype.is_ptr() and x.dtype.element_ty == tl.float16)
    tl.static_assert(x.type.element_ty.primitive_bitwidth == 16)
    tl.static_assert(block.type.is_block() and block.type.shape[0] == 8)
    tl.static_assert(block.type.scalar.is_fp16() and block.dtype.is_floating())
    tl.static_assert(block.type.element_ty == tl.float16)
    tl.static_assert(not n.type.is_block() and n.dtype.is_int_signed())
    tl.static_assert(n.dtype.int_bitwidth == 32 and str(n.dtype) == "int32")
    tl.static_assert(isinstance(block, tl.tensor) and isinstance(3, tl.constexpr))
    tl.static_assert(len(block.shape) == 1 and block.numel == 8)
    tl.static_assert(tl.uint8.is_int_unsigned() and not tl.int1.is_int_signed())
    tl.static_assert(hasattr(block, "sum") and not hasattr(block, "fly"))
    tl.static_assert(getattr(n, "dtype") == tl.int32 and getattr(n, "fly", 5) == 5)


def test_introspection(ir):
    ir(introspection, {"x": "*fp16", "n": "i32"})


# -- arithmetic --------------------------------------------------------------------------------------------


def arithmetic(out, x, y, N: tl.constexpr, OP: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    if OP == "add":
        c = a + b
    elif OP == "sub":
        c = a - b
    elif OP == "mul":
        c = a * b
    elif OP == "div":
        c = a / b
    elif OP == "floordiv":
        c = a // b
    elif OP == "mod":
        c = a % b
    elif OP == "and":
        c = a & b
    elif OP == "or":
        c = a | b
    elif OP == "xor":
        c = a ^ b
    elif OP == "shl":
        c = a << (b & 7)
    elif OP == "shr":
        c = a >> (b & 7)
    elif OP == "lt":
        c = (a < b).to(tl.int32)
    elif OP == "ne":
        c = (a != b).to(tl.int32)
    elif OP == "neg":
        c = -a
    elif OP == "inv":
        c = ~a
    else:
        c = not a
    tl.store(out + i, c)


def truncating(x, y):
    quotient = np.abs(x.astype(np.int64)) // np.abs(y.astype(np.int64))
    return np.where((x < 0) != (y < 0), -quotient, quotient).astype(x.dtype)


EXPECTED = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b if a.dtype.kind == "f" else a.astype(np.float32) / b.astype(np.float32),
    "floordiv": truncating,
    "mod": np.fmod,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << (b & 7),
    "shr": lambda a, b: a >> (b & 7),
    "lt": lambda a, b: (a < b).astype(np.int32),
    "ne": lambda a, b: (a != b).astype(np.int32),
    "neg": lambda a, b: -a,
    "inv": lambda a, b: ~a,
    "not": lambda a, b: (a == 0).astype(np.int32),
}
INTEGER_ONLY = {"floordiv", "and", "or", "xor", "shl", "shr", "inv"}


def sample(dtype, n=32):
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = RNG.integers(max(info.min + 1, -90), min(info.max, 90), n, dtype=dtype)
        return np.where(values == 0, dtype.type(3), values)
    return RNG.normal(size=n).astype(dtype)


OPERATIONS = [
    (operator, dtype)
    for operator in EXPECTED
    for dtype in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64")
    if not (operator in INTEGER_ONLY and dtype.startswith("f"))
]


@pytest.mark.parametrize("operator, dtype", OPERATIONS)
def test_operators(interpret, operator, dtype):
    x, y = sample(dtype), sample(dtype)
    with np.errstate(all="ignore"):
        expected = EXPECTED[operator](x, y)
    out = np.zeros(32, expected.dtype)
    interpret(arithmetic, out, x, y, N=32, OP=operator)
    np.testing.assert_array_equal(out, expected)


def negative_zero(out, x):
    tl.store(out, -tl.load(x))


def test_negation_turns_the_sign_of_zero(interpret):
    out = np.ones(1, np.float32)
    interpret(negative_zero, out, np.zeros(1, np.float32))
    assert np.signbit(out[0])


# -- casts -------------------------------------------------------------------------------------------------

HOST = {
    "int1": np.bool_, "int8": np.int8, "uint8": np.uint8, "int16": np.int16, "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64, "uint64": np.uint64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32, "float64": np.float64, "float8e5": ml_dtypes.float8_e5m2,
    "float8e4nv": ml_dtypes.float8_e4m3fn,
}  # fmt: skip


def cast_kernel(out, x, DTYPE: tl.constexpr):
    i = tl.arange(0, 8)
    tl.store(out + i, tl.load(x + i).to(DTYPE))


def expected_cast(x, name):
    """Floats go to integers towards zero; all other pairs as numpy converts them; to int1, != 0."""
    if name == "int1":
        return x != 0
    wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    if np.dtype(HOST[name]).kind in "iu" and wide.dtype.kind == "f":
        info = np.iinfo(HOST[name])
        return np.clip(np.trunc(wide), info.min, info.max).astype(HOST[name])
    return wide.astype(HOST[name])


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("source", HOST)
def test_casts(interpret, source, target):
    values = np.array([0, 1, 2, 3, 7, 16, 24, 100]) / (1 if source.startswith(("int", "uint")) else 2)
    if source.startswith(("int", "float", "bfloat")) and source != "int1":
        values[2:5] *= -1
    x = values.astype(HOST[source])
    out = np.zeros(8, HOST[target])
    interpret(cast_kernel, out, x, DTYPE=getattr(tl, target))
    np.testing.assert_array_equal(out, expected_cast(x, target))


def bitcasts(out, x):
    i = tl.arange(0, 4)
    bits = tl.load(x + i).to(tl.int32, bitcast=True)
    tl.store(out + i, (bits ^ 0x80000000).to(tl.float32, bitcast=True))


def test_bitcast(interpret):
    out, x = np.zeros(4, np.float32), np.array([1, -2, 0.5, 3], np.float32)
    with pytest.raises(TypeMismatchError, match="out of range for int32"):
        interpret(bitcasts, out, x)


def flip_sign(out, x):
    i = tl.arange(0, 4)
    bits = tl.load(x + i).to(tl.uint32, bitcast=True)
    tl.store(out + i, (bits ^ 0x80000000).to(tl.float32, bitcast=True))


def test_bitcast_and_large_literal(interpret):
    out, x = np.zeros(4, np.float32), np.array([1, -2, 0.5, 3], np.float32)
    interpret(flip_sign, out, x)
    assert out.tolist() == (-x).tolist()


def rounding(out, x, MODE: tl.constexpr):
    tl.store(out, tl.load(x).to(tl.float16, fp_downcast_rounding=MODE))


def test_rounding_modes(interpret, ir):
    x, out = np.array([1 + 3 * 2.0**-12], np.float32), np.zeros(1, np.float16)
    interpret(rounding, out, x, MODE="rtne")
    assert out[0] == np.float16(1 + 2.0**-10)
    interpret(rounding, out, x, MODE="rtz")
    assert out[0] == np.float16(1)
    with pytest.raises(CompilationError, match="only for floats that get narrower"):
        ir(rounding, {"out": "*fp16", "x": "*i16"}, MODE="rtz")


def pointers(table, out):
    address = tl.load(table)
    base = address.to(tl.pointer_type(tl.float32))
    tl.store(base + 1, 5.0)
    tl.store(out, (base + 1).to(tl.int64) - address)
    tl.store(out + 1, base.to(tl.int1))


def test_pointers_from_integers(ir):
    text = ir(pointers, {"table": "*i64", "out": "*i64"})
    assert "int_to_ptr" in text and "ptr_to_int" in text


def unsigned_offset(out, n):
    tl.store(out + n, 1)


def test_unsigned_offsets_are_widened_with_zeros(ir):
    assert "extui" in ir(unsigned_offset, {"out": "*i32", "n": "u32"})


def bools(out, x):
    i = tl.arange(0, 4)
    flags = tl.load(x + i)
    tl.static_assert(flags.dtype == tl.int1)
    tl.store(out + i, ~flags)


def test_bool_arrays(interpret):
    x, out = np.array([True, False, True, True]), np.zeros(4, np.bool_)
    interpret(bools, out, x)
    assert out.tolist() == [False, True, False, False]
