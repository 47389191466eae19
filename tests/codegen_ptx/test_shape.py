"""Movement of elements: layout conversions, shape operations, gather, histogram."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops import cast, memory
from ptxforge.ir.ops import shape as ops
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.layouts.conversion import plan_conversion
from ptxforge.layouts.encodings import Blocked, DotOperand, Linear, Mma, Slice, infer_reshape
from ptxforge.layouts.linear import LinearLayout
from ptxforge.layouts.scratch import flip_scratch_bytes, gather_scratch_bytes, histogram_scratch_bytes
from ptxforge.support.errors import VerificationError
from tests.codegen_ptx.harness import Kernel, blocked, pointer

ROWS = blocked(1, 4, threads=(2, 16), warps=(4, 1))
COLUMNS = Blocked((4, 1), (16, 2), (1, 4), (0, 1))
TALL = blocked(2, 2, threads=(8, 4), warps=(2, 2))
MMA = Mma((2, 0), (2, 2), (16, 8))
LAYOUTS = {
    "rows": ROWS, "columns": COLUMNS, "tall": TALL, "mma": MMA, "a": DotOperand(0, MMA, 2),
    "b": DotOperand(1, MMA, 2),
}  # fmt: skip


def _numbers(element, shape):
    rng = np.random.default_rng(2)
    if element.is_int:
        return rng.integers(-100, 100, shape).astype(element.numpy)
    return rng.normal(size=shape).astype(element.numpy)


@pytest.mark.parametrize("element", [T.I8, T.F16, T.F32, T.F64], ids=str)
@pytest.mark.parametrize("source", LAYOUTS)
@pytest.mark.parametrize("result", LAYOUTS)
def test_conversion(source, result, element):
    shape = (32, 64)
    kernel = Kernel(pointer(element), pointer(element), shared_bytes=1 << 15)
    x = kernel.load(0, shape, LAYOUTS[source])
    plan = plan_conversion(LAYOUTS[source], LAYOUTS[result], shape, element.bits)
    assert getattr(plan, "scratch_bytes", 0) <= 1 << 15
    kernel.store(
        1, kernel.b.value(ConvertLayout, x, type=x.type.with_layout(LAYOUTS[result]), scratch_offset=0)
    )
    data = _numbers(element, shape)
    out = np.zeros_like(data)
    kernel.run(data, out, everywhere=element is T.I8)
    np.testing.assert_array_equal(out.view(np.uint8), data.view(np.uint8))


def _linear(*lanes: int) -> Linear:
    """256 elements, two in a thread, from these on in the lanes."""
    bases = {"register": [[1]], "lane": [[x] for x in lanes], "warp": [[64], [128]], "block": []}
    return Linear(LinearLayout(bases, {"dim0": 256}))


def test_registers_that_several_bits_of_the_lane_tell():
    """Two registers change places where the lane's bits 0 and 1 differ."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    x = kernel.load(0, (256,), _linear(2, 4, 8, 16, 32))
    kernel.store(1, kernel.b.value(ConvertLayout, x, type=x.type.with_layout(_linear(3, 5, 8, 16, 32))))
    data, out = _numbers(T.F32, 256), np.zeros(256, np.float32)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, data)
    assert "popc" in kernel.ptx()


@pytest.mark.parametrize("result", ["columns", "tall"])
def test_conversion_of_predicates(result):
    shape = (32, 64)
    kernel = Kernel(pointer(T.I8), pointer(T.I8), shared_bytes=1 << 15)
    x = kernel.load(0, shape, ROWS)
    flags = kernel.b.value(cast.TruncI, x, type=x.type.with_element(T.I1))
    moved = kernel.b.value(
        ConvertLayout, flags, type=flags.type.with_layout(LAYOUTS[result]), scratch_offset=0
    )
    kernel.store(1, kernel.b.value(cast.ExtUI, moved, type=moved.type.with_element(T.I8)))
    data = _numbers(T.I8, shape)
    out = np.zeros_like(data)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, data & 1)


def test_conversion_of_pointers():
    shape = (32, 64)
    kernel = Kernel(pointer(T.F32), pointer(T.F32), shared_bytes=1 << 15)
    places = kernel.pointers(0, shape, ROWS)
    moved = kernel.b.value(ConvertLayout, places, type=places.type.with_layout(COLUMNS), scratch_offset=0)
    kernel.store(1, kernel.b.value(memory.Load, moved))
    data = _numbers(T.F32, shape)
    out = np.zeros_like(data)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, data)


def test_small_tensor_with_copies():
    shape = (4, 4)
    kernel = Kernel(pointer(T.I32), pointer(T.I32), shared_bytes=1 << 12)
    x = kernel.load(0, shape, ROWS)
    kernel.store(1, kernel.b.value(ConvertLayout, x, type=x.type.with_layout(COLUMNS), scratch_offset=0))
    data = np.arange(16, dtype=np.int32).reshape(shape)
    out = np.zeros_like(data)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, data)


# -- renaming --------------------------------------------------------------------------------------------


def _unary(shape, layout, build, element=T.I32):
    kernel = Kernel(pointer(element), pointer(element))
    value = build(kernel.b, kernel.load(0, shape, layout))
    kernel.store(1, value)
    data = _numbers(element, shape)
    out = np.zeros(value.type.shape, element.numpy)
    kernel.run(data, out)
    return data, out


def test_transpose():
    data, out = _unary((16, 32), ROWS, lambda b, x: b.value(ops.Trans, x, order=(1, 0)))
    np.testing.assert_array_equal(out, data.T)


def test_transpose_of_three_dimensions():
    layout = blocked(1, 2, 2, threads=(2, 2, 8), warps=(2, 1, 2))
    data, out = _unary((4, 8, 32), layout, lambda b, x: b.value(ops.Trans, x, order=(2, 0, 1)))
    np.testing.assert_array_equal(out, data.transpose(2, 0, 1))


def test_expand_and_broadcast():
    parent = TALL

    def build(b, x):
        wide = b.value(ops.ExpandDims, x, axis=1)
        return b.value(ops.Broadcast, wide, type=wide.type.with_shape((64, 32), parent))

    data, out = _unary((64,), Slice(1, parent), build)
    np.testing.assert_array_equal(out, np.broadcast_to(data[:, None], (64, 32)))


@pytest.mark.parametrize("shape", [(8, 64), (512,), (4, 8, 16)])
def test_reshape(shape):
    def build(b, x):
        return b.value(
            ops.Reshape, x, type=x.type.with_shape(shape, infer_reshape(x.type.layout, (16, 32), shape))
        )

    data, out = _unary((16, 32), ROWS, build)
    np.testing.assert_array_equal(out, data.reshape(shape))


def test_join_and_split():
    def build(b, x):
        both = b.value(ops.Join, x, x)
        return b.create(ops.Split, both).results[1]

    data, out = _unary((256,), blocked(2), build)
    np.testing.assert_array_equal(out, data)
    data, out = _unary((256,), blocked(2), lambda b, x: b.value(ops.Join, x, x))
    np.testing.assert_array_equal(out, np.stack([data, data], -1))


@pytest.mark.parametrize(("layout", "shape", "offsets"), [
    ("rows", (8, 64), (24, 0)), ("mma", (32, 32), (0, 32)), ("a", (32, 32), (0, 32)),
    ("b", (16, 64), (16, 0)),
])  # fmt: skip
def test_slices_are_what_threads_hold(layout, shape, offsets):
    part = T.TensorType(shape, T.I32, LAYOUTS[layout])

    def build(b, x):
        return b.value(ops.ExtractSlice, x, type=part, offsets=offsets)

    data, out = _unary((32, 64), LAYOUTS[layout], build)
    rows, columns = (slice(first, first + size) for first, size in zip(offsets, shape))
    np.testing.assert_array_equal(out, data[rows, columns])


def test_a_slice_of_other_threads_is_refused():
    """Each row of 64 lies in 16 threads: half of them would have nothing."""
    kernel = Kernel(pointer(T.I32))
    part = T.TensorType((32, 32), T.I32, ROWS)
    found = kernel.b.value(ops.ExtractSlice, kernel.load(0, (32, 64), ROWS), type=part, offsets=(0, 32))
    with pytest.raises(VerificationError, match="threads do not hold"):
        found.defining_op.check()


def test_cat_keeps_all_elements():
    kernel = Kernel(pointer(T.I32), pointer(T.I32), pointer(T.I32))
    x, y = (kernel.load(i, (256,), blocked(2)) for i in (0, 1))
    kernel.store(2, kernel.b.value(ops.Cat, x, y))
    left, right = np.arange(256, dtype=np.int32), np.arange(1000, 1256, dtype=np.int32)
    out = np.zeros(512, np.int32)
    kernel.run(left, right, out)
    np.testing.assert_array_equal(np.sort(out), np.concatenate([left, right]))


# -- scratch memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("element", [T.I8, T.F32, T.F64], ids=str)
def test_gather(axis, element):
    source_shape, index_shape = (16, 32), ((64, 32) if axis == 0 else (16, 8))
    kernel = Kernel(pointer(element), pointer(T.I32), pointer(element),
                    shared_bytes=gather_scratch_bytes(source_shape, element.bits) + 64)
    source = kernel.load(0, source_shape, ROWS)
    index = kernel.load(1, index_shape, TALL)
    kernel.store(2, kernel.b.value(ops.Gather, source, index, axis=axis, scratch_offset=64))
    data = _numbers(element, source_shape)
    places = np.random.default_rng(0).integers(0, source_shape[axis], index_shape).astype(np.int32)
    out = np.zeros(index_shape, element.numpy)
    kernel.run(data, places, out)
    np.testing.assert_array_equal(out, np.take_along_axis(data, places.astype(np.int64), axis))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("layout", [ROWS, TALL], ids=["rows", "tall"])
@pytest.mark.parametrize("element", [T.I8, T.F16, T.F32, T.F64], ids=str)
def test_flip(axis, layout, element):
    shape = (32, 64)
    needed = flip_scratch_bytes(layout.linear(shape), axis, element.bits)
    kernel = Kernel(pointer(element), pointer(element), shared_bytes=needed + 64)
    x = kernel.load(0, shape, layout)
    kernel.store(1, kernel.b.value(ops.Flip, x, axis=axis, scratch_offset=64))
    data = _numbers(element, shape)
    out = np.zeros(shape, element.numpy)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, np.flip(data, axis))
    assert ("st.shared" in kernel.ptx()) == (needed > 0)


@pytest.mark.parametrize(
    ("bins", "element"),
    [
        *((bins, T.I8) for bins in (16, 128, 256, 512)),
        *((bins, wide) for bins in (16, 128, 512) for wide in (T.I32, T.I64)),
    ],
    ids=str,
)
def test_histogram(bins, element):
    kernel = Kernel(pointer(element), pointer(T.I32), shared_bytes=histogram_scratch_bytes(bins))
    x = kernel.load(0, (1024,), blocked(4))
    kernel.store(
        1, kernel.b.value(ops.Histogram, x, type=T.TensorType((bins,), T.I32, blocked(1)), scratch_offset=0)
    )
    data = np.random.default_rng(0).integers(0, min(bins, 127), 1024).astype(element.numpy)
    out = np.zeros(bins, np.int32)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, np.bincount(data, minlength=bins))
