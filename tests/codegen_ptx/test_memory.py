"""Loads, stores, atomics, shared memory, asynchronous copies."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.codegen_ptx import emit
from ptxforge.codegen_ptx.lower.indices import linear_of
from ptxforge.ir import types as T
from ptxforge.ir.ops import arith, atomic, cast, memory, shape
from ptxforge.ir.ops import shared as ops
from ptxforge.layouts.encodings import Blocked, DotOperand, Mma
from ptxforge.layouts.panels import Panels
from ptxforge.layouts.scratch import atomic_scratch_bytes
from ptxforge.layouts.shared import Shared
from ptxforge.support.target import parse_target
from tests.codegen_ptx.harness import Kernel, assemble, blocked, pointer

ELEMENTS = (T.I8, T.I16, T.I32, T.I64, T.F8E4M3, T.F16, T.BF16, T.F32, T.F64)


def _numbers(element, shape_):
    rng = np.random.default_rng(2)
    if element.is_int:
        return rng.integers(-100, 100, shape_).astype(element.numpy)
    return rng.normal(size=shape_).astype(element.numpy)


def _bytes(x):
    return np.ascontiguousarray(x).view(np.uint8)


# -- global memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_copy_by_vectors(element, vector):
    layout = blocked(min(vector, 16))
    kernel = Kernel(pointer(element), pointer(element))
    kernel.store(1, kernel.load(0, (4096,), layout, vector=vector), vector=vector)
    data = _numbers(element, 4096)
    out = np.zeros_like(data)
    kernel.run(data, out)
    np.testing.assert_array_equal(_bytes(out), _bytes(data))
    bits = min(vector * element.bits, 128)
    wanted = {
        128: (".v4.b32", ".v2.b64"), 64: (".v2.b32", ".b64"), 32: (".b32",), 16: (".b16", ".v2.b8"),
        8: (".b8",),
    }[bits]
    assert any(f"ld.global{w} " in kernel.ptx() for w in wanted), kernel.ptx()


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("element", [T.I8, T.F16, T.F32, T.I64], ids=str)
def test_masked_load_and_store(element, other):
    kernel = Kernel(pointer(element), pointer(element), T.I32)
    b, layout, count = kernel.b, blocked(4), 512
    index = kernel.coordinate((count,), 0, layout)
    limit = kernel.splat(kernel.function.arguments[2], (count,), layout)
    mask = b.value(arith.CmpI, index, limit, predicate="slt")
    operands = [kernel.pointers(0, (count,), layout), mask]
    if other:
        operands.append(b.constant(7, T.TensorType((count,), element, layout)))
    kernel.store(1, b.value(memory.Load, *operands, vector=4), vector=4)
    data = _numbers(element, count)
    out = np.ones_like(data)
    kernel.run(data[:300].copy(), out, 300)
    np.testing.assert_array_equal(out[:300], data[:300])
    np.testing.assert_array_equal(out[300:], np.full(212, 7 if other else 0, element.numpy))


def test_masked_store_leaves_the_rest():
    kernel = Kernel(pointer(T.F32), T.I32)
    b, layout = kernel.b, blocked(2)
    mask = b.value(
        arith.CmpI,
        kernel.coordinate((512,), 0, layout),
        kernel.splat(kernel.function.arguments[1], (512,), layout),
        predicate="slt",
    )
    b.create(
        memory.Store,
        kernel.pointers(0, (512,), layout),
        b.constant(3.0, T.TensorType((512,), T.F32, layout)),
        mask,
    )
    out = np.zeros(512, np.float32)
    kernel.run(out, 101)
    np.testing.assert_array_equal(out, np.where(np.arange(512) < 101, 3, 0))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"cache": ".cg"},
        {"cache": ".ca", "eviction": "evict_last"},
        {"eviction": "evict_first"},
        {"volatile": True},
    ],
    ids=lambda a: "-".join(map(str, a.values())),
)
def test_cache_operands(attributes, target):
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    places = kernel.pointers(0, (512,), blocked(4))
    value = kernel.b.value(memory.Load, places, vector=4, **attributes)
    stored = {k: v for k, v in attributes.items() if k == "eviction"}
    kernel.b.create(
        memory.Store, kernel.pointers(1, (512,), blocked(4)), value, vector=4, cache=".cs", **stored
    )
    assemble(kernel.ptx(target))
    data, out = _numbers(T.F32, 512), np.zeros(512, np.float32)
    kernel.run(data, out, everywhere=False)
    np.testing.assert_array_equal(out, data)


def test_copies_store_once():
    """16 elements on 128 threads: each is written by one."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    kernel.store(1, kernel.load(0, (16,), blocked(4)))
    data, out = _numbers(T.F32, 16), np.zeros(16, np.float32)
    kernel.run(data, out)
    np.testing.assert_array_equal(out, data)
    assert kernel.ptx().count("@%p0 st.global") == 4


def test_offsets_become_immediates():
    kernel = Kernel(pointer(T.F32), pointer(T.F32), T.I32)
    b, layout = kernel.b, blocked(1, 4, threads=(2, 16), warps=(4, 1))
    rows, columns = kernel.coordinate((16, 64), 0, layout), kernel.coordinate((16, 64), 1, layout)
    stride = kernel.splat(kernel.function.arguments[2], (16, 64), layout)
    base = kernel.splat(kernel.function.arguments[0], (16, 64), layout)
    places = b.value(memory.AddPtr, b.value(memory.AddPtr, base, b.value(arith.MulI, rows, stride)), columns)
    kernel.store(1, b.value(memory.Load, places, vector=4), vector=4)
    data, out = _numbers(T.F32, (16, 80)), np.zeros((16, 64), np.float32)
    kernel.run(data, out, 80)
    np.testing.assert_array_equal(out, data[:, :64])
    # Two rows per thread: the column term is added to the base once.
    assert kernel.ptx().count("mad.wide") == 4


def test_general_pointers():
    """Pointers that share no base: chosen element by element."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), pointer(T.F32))
    b, layout = kernel.b, blocked(4)
    odd = b.value(cast.TruncI, kernel.coordinate((512,), 0, layout), type=T.TensorType((512,), T.I1, layout))
    places = b.value(
        arith.Select, odd, kernel.pointers(0, (512,), layout), kernel.pointers(1, (512,), layout)
    )
    kernel.store(2, b.value(memory.Load, places))
    x, y, out = _numbers(T.F32, 512), np.arange(512, dtype=np.float32), np.zeros(512, np.float32)
    kernel.run(x, y, out)
    np.testing.assert_array_equal(out, np.where(np.arange(512) % 2, x, y))


def test_wide_offsets():
    kernel = Kernel(pointer(T.F32), pointer(T.F32), T.I64)
    b, layout = kernel.b, blocked(4)
    index = kernel.coordinate((512,), 0, layout)
    wide = b.value(cast.ExtSI, index, type=index.type.with_element(T.I64))
    offsets = b.value(arith.AddI, wide, kernel.splat(kernel.function.arguments[2], (512,), layout))
    kernel.store(
        1,
        b.value(
            memory.Load,
            b.value(memory.AddPtr, kernel.splat(kernel.function.arguments[0], (512,), layout), offsets),
        ),
    )
    data, out = _numbers(T.F32, 600), np.zeros(512, np.float32)
    kernel.run(data, out, 88)
    np.testing.assert_array_equal(out, data[88:])


# -- atomics ---------------------------------------------------------------------------------------------

RMW = [("add", T.I32), ("add", T.I64), ("fadd", T.F32), ("fadd", T.F64), ("fadd", T.F16), ("fadd", T.BF16),
       ("max", T.I32),
       ("min", T.I64), ("umax", T.I32), ("umin", T.I32), ("and", T.I32), ("or", T.I32), ("xor", T.I64),
       ("xchg", T.F32)]
REFERENCE = {
    "add": np.add,
    "fadd": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda a, c: c,
    "umax": lambda a, c: np.maximum(a.view(np.uint32), c.view(np.uint32)).view(np.int32),
    "umin": lambda a, c: np.minimum(a.view(np.uint32), c.view(np.uint32)).view(np.int32),
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("kind, element", RMW, ids=lambda v: str(v))
def test_read_modify_write(kind, element, used, target):
    kernel = Kernel(pointer(element), pointer(element), pointer(element))
    b, layout = kernel.b, blocked(4)
    value = kernel.load(1, (512,), layout)
    index = kernel.coordinate((512,), 0, layout)
    mask = b.value(arith.CmpI, index, b.constant(500, index.type), predicate="slt")
    old = b.value(atomic.AtomicRMW, kernel.pointers(0, (512,), layout), value, mask, kind=kind)
    if used:
        kernel.store(2, old)
    x, y = _numbers(element, 512), _numbers(element, 512)[::-1].copy()
    before, out = x.copy(), np.zeros_like(x)
    kernel.run(x, y, out, target=target)
    inside = np.arange(512) < 500
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(x, np.where(inside, REFERENCE[kind](before, y), before))
    if used:
        np.testing.assert_array_equal(out, np.where(inside, before, np.zeros_like(before)))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("element", [T.F32, T.F16, T.BF16], ids=str)
@pytest.mark.parametrize("used", [False, True])
def test_vector_atomics(element, used, target):
    kernel = Kernel(pointer(element), pointer(element), pointer(element))
    value = kernel.load(1, (1024,), blocked(4), vector=4)
    old = kernel.b.value(
        atomic.AtomicRMW, kernel.pointers(0, (1024,), blocked(4)), value, kind="fadd", vector=4, sem="relaxed"
    )
    if used:
        kernel.store(2, old, vector=4)
    assemble(kernel.ptx(target))
    if target == "sm_90a":
        assert ".v4.f32" in kernel.ptx(target) or ".v2." in kernel.ptx(target)
    x, y = _numbers(element, 1024), np.ones(1024, element.numpy)
    before, out = x.copy(), np.zeros_like(x)
    kernel.run(x, y, out, target=target, everywhere=False)
    np.testing.assert_array_equal(x, before + y)
    if used:
        np.testing.assert_array_equal(out, before)


@pytest.mark.parametrize("count", [8, 64, 128])
def test_copies_update_once_and_all_see_the_result(count):
    layout = blocked(1)
    type = T.TensorType((count,), T.I32, layout)
    scratch = atomic_scratch_bytes(linear_of(type), 32, 4)
    kernel = Kernel(pointer(T.I32), pointer(T.I32), shared_bytes=scratch)
    b = kernel.b
    one = b.constant(1, type)
    old = b.value(atomic.AtomicRMW, kernel.pointers(0, (count,), layout), one, kind="add", scratch_offset=0)
    # The copies come together in a sum over a broadcast: each column must be the same.
    kernel.store(1, old)
    x, out = np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
    kernel.run(x, out)
    np.testing.assert_array_equal(x, np.arange(count) + 1)
    np.testing.assert_array_equal(out, np.arange(count))


@pytest.mark.parametrize("warps", [1, 4])
def test_scalar_atomic_gives_all_threads_the_result(warps):
    layout = blocked(4, warps=(warps,))
    kernel = Kernel(pointer(T.I32), pointer(T.I32), num_warps=warps, shared_bytes=64)
    b = kernel.b
    old = b.value(
        atomic.AtomicRMW, kernel.function.arguments[0], b.constant(5, T.I32), kind="add", scratch_offset=0
    )
    kernel.store(1, kernel.splat(old, (256,), layout))
    x, out = np.array([37], np.int32), np.zeros(256, np.int32)
    kernel.run(x, out)
    assert x[0] == 42 and (out == 37).all()


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("sem", atomic.SEMANTICS)
def test_one_access_carries_its_order_and_several_have_fences(sem, used, target):
    fences = {}
    for each in (1, 4):
        kernel = Kernel(pointer(T.I32), pointer(T.I32), pointer(T.I32))
        value = kernel.load(1, (128 * each,), blocked(each))
        where = kernel.pointers(0, (128 * each,), blocked(each))
        old = kernel.b.value(atomic.AtomicRMW, where, value, kind="add", sem=sem)
        if used:
            kernel.store(2, old)
        x, y = np.arange(128 * each, dtype=np.int32), np.full(128 * each, 3, np.int32)
        out = np.zeros_like(x)
        kernel.run(x, y, out, target=target)
        np.testing.assert_array_equal(x, np.arange(128 * each) + 3)
        assert not used or (out == np.arange(128 * each)).all()
        text = kernel.ptx(target)
        fences[each] = text.count("fence.acq_rel.gpu;")
        several = "atom.global.gpu.relaxed.add" if used else "red.relaxed.gpu.global.add"
        assert text.count(f"atom.global.gpu.{sem}.add.u32" if each == 1 else several) == each
    assert fences == {1: 0, 4: {"relaxed": 0, "acq_rel": 2}.get(sem, 1)}


@pytest.mark.parametrize("sem", atomic.SEMANTICS)
def test_a_scalar_swap_carries_its_order(sem):
    kernel = Kernel(pointer(T.I32), num_warps=1, shared_bytes=64)
    b = kernel.b
    zero, one = b.constant(0, T.I32), b.constant(1, T.I32)
    b.value(atomic.AtomicCAS, kernel.function.arguments[0], zero, one, sem=sem)
    x = np.zeros(1, np.int32)
    kernel.run(x)
    assert x[0] == 1 and f"atom.global.{sem}.gpu.cas.b32" in kernel.ptx() and "fence" not in kernel.ptx()


@pytest.mark.parametrize("element", [T.I32, T.I64, T.F32, T.F16], ids=str)
def test_compare_and_swap(element):
    kernel = Kernel(pointer(element), pointer(element), pointer(element), pointer(element))
    compare, value = kernel.load(1, (512,), blocked(4)), kernel.load(2, (512,), blocked(4))
    kernel.store(3, kernel.b.value(atomic.AtomicCAS, kernel.pointers(0, (512,), blocked(4)), compare, value))
    x = _numbers(element, 512)
    before, expected = x.copy(), x.copy()
    expected[::2] += 1
    new, out = np.full(512, 9, element.numpy), np.zeros_like(x)
    kernel.run(x, expected, new, out)
    np.testing.assert_array_equal(out, before)
    np.testing.assert_array_equal(x, np.where(before == expected, new, before))


# -- shared memory ---------------------------------------------------------------------------------------

SHARED = {
    "rows": lambda bits: Shared(1, 1, 1, (1, 0)),
    "swizzled rows": lambda bits: Shared(8, 1, 8, (1, 0)),
    "swizzled columns": lambda bits: Shared(8, 2, 4, (0, 1)),
    "panels": lambda bits: Panels(64, bits, (1, 0)),
    "panels of columns": lambda bits: Panels(128, bits, (0, 1)),
}
MMA = Mma((2, 0), (2, 2), (16, 8))
DISTRIBUTED = [blocked(1, 8, threads=(8, 4), warps=(4, 1)), Blocked((4, 1), (16, 2), (1, 4), (0, 1)), MMA,
               DotOperand(0, MMA, 2), DotOperand(1, MMA, 2)]


@pytest.mark.parametrize("element", [T.I8, T.F16, T.F32, T.F64], ids=str)
@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("reader", range(len(DISTRIBUTED)))
def test_store_then_load(shared, reader, element):
    size, shared = (64, 64), SHARED[shared](element.bits)
    kernel = Kernel(pointer(element), pointer(element), shared_bytes=1 << 16)
    b = kernel.b
    x = kernel.load(0, size, DISTRIBUTED[0])
    tile = b.value(ops.LocalAlloc, x, type=T.MemDescType(size, element, shared), offset=512)
    b.create(memory.Barrier)
    kernel.store(1, b.value(ops.LocalLoad, tile, type=T.TensorType(size, element, DISTRIBUTED[reader])))
    data = _numbers(element, size)
    out = np.zeros_like(data)
    kernel.run(data, out, everywhere=reader == 3)
    np.testing.assert_array_equal(_bytes(out), _bytes(data))


@pytest.mark.parametrize("shared", SHARED)
def test_buffers_slices_and_transposes(shared):
    size, element, layout, shared = (64, 64), T.F16, DISTRIBUTED[0], SHARED[shared](16)
    kernel = Kernel(pointer(element), pointer(element), pointer(element), T.I32, shared_bytes=1 << 16)
    b = kernel.b
    buffers = b.value(ops.LocalAlloc, type=T.MemDescType((3, *size), element, shared, True), offset=0)
    tile = b.value(ops.MemDescIndex, buffers, kernel.function.arguments[3])
    b.create(ops.LocalStore, kernel.load(0, size, layout), tile)
    b.create(memory.Barrier)
    part = b.value(
        ops.MemDescSubslice, tile, type=T.MemDescType((16, 32), element, shared, True), offsets=(48, 32)
    )
    kernel.store(1, b.value(ops.LocalLoad, part, type=T.TensorType((16, 32), element, layout)))
    turned = b.value(ops.MemDescTrans, tile, order=(1, 0),
                     type=T.MemDescType(size, element, shared.permuted((1, 0)), True))
    kernel.store(2, b.value(ops.LocalLoad, turned, type=T.TensorType(size, element, layout)))
    data = _numbers(element, size)
    cut, flipped = np.zeros((16, 32), np.float16), np.zeros(size, np.float16)
    kernel.run(data, cut, flipped, 2)
    np.testing.assert_array_equal(cut, data[48:64, 32:64])
    np.testing.assert_array_equal(flipped, data.T)


@pytest.mark.parametrize("vector", [1, 2, 4, 8])
@pytest.mark.parametrize("masked", [False, True])
def test_asynchronous_copy(vector, masked):
    size, element = (64, 64), T.F16
    layout = blocked(1, vector, threads=(4, 8), warps=(4, 1))
    shared = Shared(8, 1, 8, (1, 0))
    kernel = Kernel(pointer(element), pointer(element), T.I32, shared_bytes=1 << 14)
    b = kernel.b
    tile = b.value(ops.LocalAlloc, type=T.MemDescType(size, element, shared, True), offset=0)
    places = kernel.pointers(0, size, layout)
    operands = [places, tile]
    if masked:
        rows = kernel.coordinate(size, 0, layout)
        operands.append(
            b.value(
                arith.CmpI, rows, kernel.splat(kernel.function.arguments[2], size, layout), predicate="slt"
            )
        )
    token = b.value(ops.AsyncCopyGlobalToLocal, *operands, vector=vector)
    token = b.value(ops.AsyncCommitGroup, token)
    b.value(ops.AsyncWait, token, num=0)
    b.create(memory.Barrier)
    kernel.store(1, b.value(ops.LocalLoad, tile, type=T.TensorType(size, element, layout)))
    data = _numbers(element, size)
    out = np.ones_like(data)
    kernel.run(data, out, 37)
    expected = data.copy()
    if masked:
        expected[37:] = 0
    np.testing.assert_array_equal(out, expected)
    assert ("cp.async.cg" in kernel.ptx()) == (vector == 8)


@pytest.mark.parametrize("vector", [1, 2, 8])
def test_async_copy_of_other_values(vector):
    """Where the mask does not hold, ``other`` is stored, whatever it is."""
    element, size = T.F16, (64, 64)
    layout, shared = Blocked((1, 8), (4, 8), (4, 1), (1, 0)), Shared(8, 1, 8, (1, 0))
    kernel = Kernel(pointer(element), pointer(element), T.I32, shared_bytes=1 << 14)
    b = kernel.b
    tile = b.value(ops.LocalAlloc, type=T.MemDescType(size, element, shared, True), offset=0)
    limit = kernel.splat(kernel.function.arguments[2], size, layout)
    mask = b.value(arith.CmpI, kernel.coordinate(size, 0, layout), limit, predicate="slt")
    other = b.value(cast.SIToFP, kernel.coordinate(size, 1, layout), type=T.TensorType(size, element, layout))
    b.value(ops.AsyncCopyGlobalToLocal, kernel.pointers(0, size, layout), tile, mask, other, vector=vector)
    b.value(ops.AsyncCommitGroup)
    b.value(ops.AsyncWait, num=0)
    b.create(memory.Barrier)
    kernel.store(1, b.value(ops.LocalLoad, tile, type=T.TensorType(size, element, layout)))
    data = _numbers(element, size)
    out = np.zeros_like(data)
    kernel.run(data[:37].copy(), out, 37)
    np.testing.assert_array_equal(out[:37], data[:37])
    np.testing.assert_array_equal(out[37:], np.broadcast_to(np.arange(64), (27, 64)))


def _aligned_to(nbytes: int, count: int, dtype) -> np.ndarray:
    """Zeros, the first at a multiple of ``nbytes``."""
    room = np.zeros(count * np.dtype(dtype).itemsize + nbytes, np.uint8)
    start = -room.ctypes.data % nbytes
    return room[start : start + count * np.dtype(dtype).itemsize].view(dtype)


@pytest.mark.parametrize("element", [T.F16, T.F32, T.I64], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_accesses_of_256_bits(element, masked):
    vector = 256 // element.bits
    layout, count = blocked(vector), 128 * vector
    kernel = Kernel(pointer(element), pointer(element), T.I32)
    index = kernel.coordinate((count,), 0, layout)
    limit = kernel.splat(kernel.function.arguments[2], (count,), layout)
    mask = [kernel.b.value(arith.CmpI, index, limit, predicate="slt")] if masked else []
    value = kernel.b.value(memory.Load, kernel.pointers(0, (count,), layout), *mask, vector=vector)
    kernel.b.create(memory.Store, kernel.pointers(1, (count,), layout), value, *mask, vector=vector)
    limit = 40 * vector if masked else count
    data, out = (_aligned_to(32, limit, element.numpy) for _ in range(2))
    data[:] = _numbers(element, limit)
    kernel.run(data, out, limit, target="sm_100", targets=("sm_100", "sm_120"))
    np.testing.assert_array_equal(out, data)
    wide = ".v4.b64" if element is T.I64 else ".v8.b32"
    assert f"ld.global{wide}" in kernel.ptx("sm_100") and f"st.global{wide}" in kernel.ptx("sm_120")
    assert ".version 8.8" in kernel.ptx("sm_100") and wide not in kernel.ptx("sm_90a")


@pytest.mark.parametrize("first", [0, 256, 130, 512])
def test_vectors_whose_pointers_are_chosen(first):
    """Moved as a whole where all elements lie in one array, one by one where the choice changes within."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), pointer(T.F32), T.I32)
    layout = blocked(4)
    limit = kernel.splat(kernel.function.arguments[3], (512,), layout)
    is_first = kernel.b.value(arith.CmpI, kernel.indices((512,), layout), limit, predicate="slt")
    places = [kernel.pointers(i, (512,), layout) for i in (0, 1)]
    chosen = kernel.b.value(arith.Select, is_first, *places)
    kernel.store(2, kernel.b.value(memory.Load, chosen, guarded=4))
    one, other, out = _numbers(T.F32, 512), -_numbers(T.F32, 512), np.zeros(512, np.float32)
    kernel.run(one, other, out, first)
    np.testing.assert_array_equal(out, np.where(np.arange(512) < first, one, other))
    assert "setp.eq.s64" in kernel.ptx()


@pytest.mark.parametrize("element", (T.I8, T.I16, T.I32, T.I64, T.F16, T.F32, T.F64), ids=str)
def test_scalar_parameter(element):
    kernel = Kernel(pointer(element), element)
    kernel.store_scalar(0, kernel.function.arguments[1])
    out = np.zeros(1, element.numpy)
    kernel.run(out, -3)
    assert out[0] == -3


def test_scalar_access():
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    kernel.store_scalar(1, kernel.b.value(memory.Load, kernel.function.arguments[0]))
    data, out = np.array([3.5], np.float32), np.zeros(1, np.float32)
    kernel.run(data, out)
    assert out[0] == 3.5


def test_text_is_deterministic():
    def make():
        kernel = Kernel(pointer(T.F32), pointer(T.F32))
        kernel.store(1, kernel.load(0, (512,), blocked(4)))
        return kernel.ptx()

    assert make() == make()
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    kernel.store(1, kernel.load(0, (512,), blocked(4)))
    assert kernel.ptx() == emit(kernel.function, parse_target("sm_90a"))


def test_splat_pointer_is_read_once():
    kernel = Kernel(pointer(T.F32), pointer(T.F32))
    type = T.TensorType((512,), pointer(T.F32), blocked(4))
    value = kernel.b.value(memory.Load, kernel.b.value(shape.Splat, kernel.function.arguments[0], type=type))
    kernel.store(1, value)
    assert kernel.ptx().count("ld.global") == 1
    out = np.zeros(512, np.float32)
    kernel.run(np.array([2.5], np.float32), out)
    assert (out == 2.5).all()
