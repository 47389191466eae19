"""Creation and movement of elements, dot products: evaluation and the types that are inferred."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import shape as S
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import AddPtr
from tests.ops.references import make

RNG = np.random.default_rng(0)


def tensor(*shape: int, element: T.Type = T.I32) -> T.TensorType:
    return T.TensorType(shape, element)


X = RNG.integers(0, 100, (4, 8)).astype(np.int32)
CASES = {
    "splat": (S.Splat, [T.I32], {}, [tensor(2, 4)], [np.int32(7)], np.full((2, 4), 7)),
    "make_range": (S.MakeRange, [], {"start": 4, "end": 8}, [tensor(4)], [], np.arange(4, 8)),
    "expand_dims": (S.ExpandDims, [tensor(4, 8)], {"axis": 1}, None, [X], X[:, None, :]),
    "broadcast": (S.Broadcast, [tensor(4, 1)], {}, [tensor(4, 8)], [X[:, :1]], np.repeat(X[:, :1], 8, 1)),
    "reshape": (S.Reshape, [tensor(4, 8)], {}, [tensor(2, 16)], [X], X.reshape(2, 16)),
    "trans": (S.Trans, [tensor(4, 8)], {"order": (1, 0)}, None, [X], X.T),
    "join": (S.Join, [tensor(4, 8)] * 2, {}, None, [X, -X], np.stack([X, -X], -1)),
    "extract_slice": (S.ExtractSlice, [tensor(4, 8)], {"offsets": (2, 4)}, [tensor(2, 4)], [X], X[2:4, 4:]),
    "cat": (S.Cat, [tensor(8)] * 2, {}, None, [X[0], X[1]], np.concatenate([X[0], X[1]])),
    "convert_layout": (ConvertLayout, [tensor(4, 8)], {}, [tensor(4, 8)], [X], X),
    "flip": (S.Flip, [tensor(4, 8)], {"axis": 1}, None, [X], X[:, ::-1]),
    "gather": (S.Gather, [tensor(4, 8), tensor(4, 2)], {"axis": 1}, None, [X, X[:, :2] % 8],
               np.array([[X[i, X[i, j] % 8] for j in range(2)] for i in range(4)])),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_movement(name):
    kind, types, attributes, results, arrays, expected = CASES[name]
    op = make(kind, *types, results=results, **attributes)
    result = op.evaluate(*arrays)
    np.testing.assert_array_equal(result, expected)
    assert T.shape_of(op.result.type) == result.shape == expected.shape and result.dtype == np.int32
    op.check() if hasattr(op, "check") else None


def test_trans_in_three_dimensions():
    x = RNG.integers(0, 9, (2, 4, 8)).astype(np.int32)
    op = make(S.Trans, tensor(2, 4, 8), order=(2, 0, 1))
    assert op.result.type.shape == (8, 2, 4)
    np.testing.assert_array_equal(op.evaluate(x)[5, 1, 3], x[1, 3, 5])


def test_split_undoes_join():
    op = make(S.Split, tensor(4, 8, 2))
    one, other = op.evaluate(np.stack([X, -X], -1))
    np.testing.assert_array_equal(one, X)
    np.testing.assert_array_equal(other, -X)
    assert [r.type for r in op.results] == [tensor(4, 8)] * 2


@pytest.mark.parametrize("type, value", [
    (T.I1, True), (T.I8, -128), (T.I64, 2**63 - 1), (T.BF16, 0.5), (T.F8E4M3, 448.0), (T.F32, float("inf")),
])  # fmt: skip
def test_constants(type, value):
    scalar = make(S.Constant, results=[type], value=value)
    scalar.check()
    assert scalar.evaluate() == value and scalar.evaluate().dtype == type.numpy
    uniform = make(S.Constant, results=[tensor(2, 2, element=type)], value=value).evaluate()
    assert uniform.shape == (2, 2) and (uniform == value).all()


def test_histogram_counts_what_is_inside():
    x = np.array([0, 1, 1, 3, 4, -1, 2, 1], np.int32)
    op = make(S.Histogram, tensor(8), results=[tensor(4)])
    np.testing.assert_array_equal(op.evaluate(x), [1, 3, 1, 1])
    masked = make(S.Histogram, tensor(8), tensor(8, element=T.I1), results=[tensor(4)])
    np.testing.assert_array_equal(masked.evaluate(x, x != 1), [1, 0, 1, 1])


@pytest.mark.parametrize("pointee, size", [(T.I1, 1), (T.F16, 2), (T.PointerType(T.F32), 8), (T.F64, 8)])
def test_addptr_counts_elements(pointee, size):
    op = make(AddPtr, T.PointerType(pointee), T.I32)
    assert op.evaluate(np.int64(4096), np.int32(-3)) == 4096 - 3 * size


DOTS = [
    (T.F16, np.float16, T.F32), (T.BF16, ml_dtypes.bfloat16, T.F32), (T.F32, np.float32, T.F32),
    (T.F64, np.float64, T.F64),
    (T.F8E4M3, ml_dtypes.float8_e4m3fn, T.F32), (T.F16, np.float16, T.F16),
]  # fmt: skip


@pytest.mark.parametrize("element, dtype, accumulator", DOTS, ids=str)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_dot(element, dtype, accumulator, batch):
    a, b = (RNG.integers(-4, 5, (*batch, *shape)).astype(dtype) for shape in ((16, 32), (32, 8)))
    c = RNG.integers(-4, 5, (*batch, 16, 8)).astype(accumulator.numpy)
    types = [tensor(*x.shape, element=e) for x, e in ((a, element), (b, element), (c, accumulator))]
    op = make(Dot, *types)
    op.check()
    expected = np.einsum("...ik,...kj->...ij", a.astype(np.int64), b.astype(np.int64)) + c.astype(np.int64)
    np.testing.assert_array_equal(op.evaluate(a, b, c).astype(np.int64), expected)
    assert op.evaluate(a, b, c).dtype == accumulator.numpy


@pytest.mark.parametrize("a_unsigned", [False, True])
@pytest.mark.parametrize("b_unsigned", [False, True])
def test_integer_dot(a_unsigned, b_unsigned):
    a, b = RNG.integers(-128, 128, (16, 32)).astype(np.int8), RNG.integers(-128, 128, (32, 8)).astype(np.int8)
    types = [tensor(16, 32, element=T.I8), tensor(32, 8, element=T.I8), tensor(16, 8)]
    op = make(Dot, *types, a_unsigned=a_unsigned, b_unsigned=b_unsigned)
    left = a.astype(np.int64) & 0xFF if a_unsigned else a.astype(np.int64)
    right = b.astype(np.int64) & 0xFF if b_unsigned else b.astype(np.int64)
    np.testing.assert_array_equal(op.evaluate(a, b, np.zeros((16, 8), np.int32)), left @ right)
