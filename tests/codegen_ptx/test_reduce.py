"""Reductions and scans over many layouts."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Region
from ptxforge.ir.ops import arith, cast, control
from ptxforge.ir.ops import reduce as ops
from ptxforge.layouts.encodings import Mma, Slice
from tests.codegen_ptx.harness import Kernel, blocked, pointer
from tests.layouts.linear_maps import linear

LAYOUTS = {
    "rows": ((16, 256), blocked(1, 4, threads=(1, 32), warps=(2, 2))),
    "columns": ((64, 64), blocked(2, 4, threads=(8, 4), warps=(4, 1))),
    "across": ((64, 64), blocked(2, 4, threads=(8, 4), warps=(1, 4))),
    "small": ((4, 8), blocked(1, 4, threads=(4, 8), warps=(2, 2))),
    "flat": ((1024,), blocked(4)),
    "flat small": ((32,), blocked(4)),
    "chunks": ((2048,), blocked(2, warps=(2,))),
    "one each": ((512,), blocked(1, warps=(4,))),
    "one warp": ((1024,), blocked(4, warps=(1,))),
    "lanes across": ((32, 8), blocked(2, 2, threads=(8, 4), warps=(2, 1))),
    "three": ((4, 8, 32), blocked(1, 2, 2, threads=(2, 2, 8), warps=(2, 1, 2))),
    "mma": ((64, 32), Mma((2, 0), (2, 2), (16, 8))),
    "scattered": ((8, 8, 16), linear((8, 8, 16), {
        "register": [(1, 0, 0), (0, 0, 0), (0, 0, 8), (0, 4, 0), (0, 0, 4), (0, 0, 1)],
        "lane": [(0, 1, 0), (4, 0, 0), (0, 0, 0), (0, 0, 0), (0, 2, 0)], "warp": [(2, 0, 0), (0, 0, 2)]})),
    "slice": ((64,), Slice(1, blocked(2, 4, threads=(8, 4), warps=(2, 2)))),
}


def region(b, kinds, elements):
    """A combining region that applies one operation per operand."""
    block = Block(list(elements) * 2)
    count = len(elements)
    with b.inside(block):
        results = [
            b.value(kind, block.arguments[i], block.arguments[count + i]) for i, kind in enumerate(kinds)
        ]
        b.create(control.Yield, *results)
    return Region(block)


def _run(op_class, kind, element, name, axis, x, **attributes):
    shape, layout = LAYOUTS[name]
    warps = layout.num_warps
    kernel = Kernel(pointer(element), pointer(element), num_warps=warps, shared_bytes=32768)
    value = kernel.load(0, shape, layout)
    op = kernel.b.create(op_class, value, regions=[region(kernel.b, [kind], [element])], axis=axis,
                         scratch_offset=256, **attributes)
    result = op.results[0]
    if isinstance(result.type, T.TensorType):
        kernel.store(1, result)
        out = np.zeros(result.type.shape, element.numpy)
    else:
        kernel.store_scalar(1, result)
        out = np.zeros((1,), element.numpy)
    kernel.run(x, out)
    return out


def _data(element, shape):
    rng = np.random.default_rng(1)
    if element.is_int:
        return rng.integers(-100, 100, shape).astype(element.numpy)
    return rng.normal(size=shape).astype(element.numpy)


CASES = [(name, axis) for name, (shape, _) in LAYOUTS.items() for axis in range(len(shape))]


@pytest.mark.parametrize("name, axis", CASES)
def test_sum(name, axis):
    x = _data(T.F32, LAYOUTS[name][0])
    out = _run(ops.Reduce, arith.AddF, T.F32, name, axis, x)
    np.testing.assert_allclose(
        out.reshape(-1), x.astype(np.float64).sum(axis).reshape(-1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("element, kind, reference", [
    (T.I32, arith.AddI, np.add), (T.I32, arith.MaxSI, np.maximum), (T.I64, arith.AddI, np.add),
    (T.I8, arith.MinSI, np.minimum), (T.F16, arith.MaxNumF, np.maximum), (T.F64, arith.AddF, np.add),
    (T.BF16, arith.MinimumF, np.minimum), (T.I16, arith.XorI, np.bitwise_xor),
], ids=lambda v: getattr(v, "name", str(v)))
@pytest.mark.parametrize("name, axis", [("flat", 0), ("across", 1), ("columns", 0), ("mma", 1)])
def test_kinds(element, kind, reference, name, axis):
    x = _data(element, LAYOUTS[name][0])
    out = _run(ops.Reduce, kind, element, name, axis, x)
    with np.errstate(all="ignore"):
        expected = reference.reduce(x, axis=axis, dtype=None if element is T.BF16 else x.dtype)
    np.testing.assert_allclose(
        out.reshape(-1).astype(np.float64), np.asarray(expected).reshape(-1).astype(np.float64), rtol=1e-6
    )


def test_argmax_by_two_operands():
    shape, layout = LAYOUTS["across"]
    kernel = Kernel(pointer(T.F32), pointer(T.I32), shared_bytes=8192)
    x, index = kernel.load(0, shape, layout), kernel.coordinate(shape, 1, layout)
    block = Block([T.F32, T.I32] * 2)
    with kernel.b.inside(block):
        a, i, c, j = block.arguments
        b = kernel.b
        greater = b.value(arith.CmpF, a, c, predicate="ogt")
        equal = b.value(
            arith.AndI, b.value(arith.CmpF, a, c, predicate="oeq"), b.value(arith.CmpI, i, j, predicate="slt")
        )
        first = b.value(arith.OrI, greater, equal)
        b.create(control.Yield, b.value(arith.Select, first, a, c), b.value(arith.Select, first, i, j))
    op = kernel.b.create(ops.Reduce, x, index, regions=[Region(block)], axis=1, scratch_offset=0)
    kernel.store(1, op.results[1])
    data = np.random.default_rng(0).integers(0, 9, shape).astype(np.float32)
    out = np.zeros(shape[0], np.int32)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, data.argmax(1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name, axis", CASES)
def test_cumulative_sum(name, axis, reverse):
    x = _data(T.I32, LAYOUTS[name][0])
    out = _run(ops.Scan, arith.AddI, T.I32, name, axis, x, reverse=reverse)
    expected = np.flip(np.cumsum(np.flip(x, axis), axis), axis) if reverse else np.cumsum(x, axis)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name, axis", [
    ("flat", 0), ("across", 1), ("across", 0), ("columns", 0), ("three", 2),
])
def test_scan_of_a_recurrence(name, axis, reverse):
    """h[i] = a[i] h[i-1] + x[i], composed as (a, x) · (b, y) = (a b, b x + y): not commutative, two
    operands."""
    shape, layout = LAYOUTS[name]
    kernel = Kernel(pointer(T.F32), pointer(T.F32), pointer(T.F32), shared_bytes=32768)
    a, x = kernel.load(0, shape, layout), kernel.load(1, shape, layout)
    block = Block([T.F32] * 4)
    with kernel.b.inside(block):
        a0, x0, a1, x1 = block.arguments
        b = kernel.b
        b.create(
            control.Yield, b.value(arith.MulF, a0, a1), b.value(arith.AddF, b.value(arith.MulF, a1, x0), x1)
        )
    op = kernel.b.create(
        ops.Scan, a, x, regions=[Region(block)], axis=axis, scratch_offset=0, reverse=reverse
    )
    kernel.store(2, op.results[1])
    rng = np.random.default_rng(5)
    av, xv = rng.uniform(0.2, 1, shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)
    out = np.zeros(shape, np.float32)
    kernel.run(av, xv, out)
    ma, mx = (np.moveaxis(np.flip(v, axis) if reverse else v, axis, 0).astype(np.float64) for v in (av, xv))
    state, rows = np.zeros(ma.shape[1:]), []
    for i in range(ma.shape[0]):
        state = ma[i] * state + mx[i]
        rows.append(state)
    expected = np.moveaxis(np.array(rows), 0, axis)
    np.testing.assert_allclose(out, np.flip(expected, axis) if reverse else expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("element, kind, reference", [
    (T.I64, arith.AddI, np.add), (T.I8, arith.MaxSI, np.maximum), (T.F16, arith.MinNumF, np.minimum),
    (T.F64, arith.AddF, np.add), (T.I1, arith.OrI, np.logical_or),
], ids=lambda v: getattr(v, "name", str(v)))  # fmt: skip
@pytest.mark.parametrize("name", ["one warp", "chunks", "one each"])
def test_scans_of_all_widths(element, kind, reference, name, reverse):
    shape, layout = LAYOUTS[name]
    x = np.random.default_rng(6).integers(-100, 100, shape)
    x = (x == 3) if element is T.I1 else x.astype(element.numpy)
    ordered = x[::-1] if reverse else x
    expected = reference.accumulate(ordered)
    stored = T.I8 if element is T.I1 else element
    kernel = Kernel(pointer(stored), pointer(stored), num_warps=layout.num_warps, shared_bytes=32768)
    value = kernel.load(0, shape, layout)
    if element is T.I1:
        zero = kernel.b.constant(0, value.type)
        value = kernel.b.value(arith.CmpI, value, zero, predicate="ne")
    combine = region(kernel.b, [kind], [element])
    op = kernel.b.create(ops.Scan, value, regions=[combine], axis=0, scratch_offset=0, reverse=reverse)
    result = op.results[0]
    if element is T.I1:
        result = kernel.b.value(cast.ExtUI, result, type=result.type.with_element(T.I8))
    kernel.store(1, result)
    out = np.zeros(shape, stored.numpy)
    kernel.run(x.astype(stored.numpy), out)
    np.testing.assert_array_equal(out, (expected[::-1] if reverse else expected).astype(stored.numpy))


def test_instructions_of_a_row():
    """8 chunks of 4 elements for each of 32 lanes: 3 additions in a chunk, 5 between lanes, 1 for its place
    in the row, 1 for each element but the last, and the running total; 5 shuffles, one for the total, one to
    pass it on."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), num_warps=1)
    x = kernel.load(0, (1024,), LAYOUTS["one warp"][1], vector=4)
    op = kernel.b.create(ops.Scan, x, regions=[region(kernel.b, [arith.AddF], [T.F32])], axis=0)
    kernel.store(1, op.results[0], vector=4)
    ptx = kernel.ptx()
    assert ptx.count("add.rn.f32") == 8 * (3 + 5 + 3) + 7 + 6
    assert ptx.count("shfl.sync.up") == 8 * 6 and ptx.count("shfl.sync.idx") == 7
