"""Atomic loads and stores, and waiting for a value."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import CompilationError

TYPES = [
    np.int8, np.uint8, ml_dtypes.float8_e4m3fn, np.int16, np.uint32, np.int64, np.float16,
    ml_dtypes.bfloat16, np.float32, np.float64,
]  # fmt: skip


@ptxforge.jit
def copy(x, out, n, BLOCK: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr, SCOPE: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.atomic_load(x + i, mask=i < n, sem=LOAD, scope=SCOPE)
    tl.atomic_store(out + i, value, mask=i < BLOCK - 2, sem=STORE, scope=SCOPE)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("load", "store", "scope"),
    [(None, None, None), ("relaxed", "relaxed", "cta"), ("acquire", "release", "sys")],
)
def test_loads_and_stores(execute, dtype, load, store, scope):
    x = np.arange(-20, 44).astype(dtype)
    out = np.full(64, 7, dtype)
    expected = np.where(np.arange(64) < 62, np.where(np.arange(64) < 40, x, 0), out).astype(dtype)
    constants = {"BLOCK": 64, "LOAD": load, "STORE": store, "SCOPE": scope}
    for (found,) in execute(copy, (1,), [x, out, 40], constants, outputs=[1]):
        np.testing.assert_array_equal(found, expected)


@ptxforge.jit
def scalars(x, out):
    tl.atomic_store(out, tl.atomic_load(x) + 1)
    tl.atomic_store(out + 1 + tl.arange(0, 4), 5)
    tl.atomic_load(x)


@pytest.mark.parametrize("num_warps", [1, 4])
def test_scalars(execute, num_warps):
    arguments = [np.array([4], np.int32), np.zeros(5, np.int32)]
    for (out,) in execute(scalars, (1,), arguments, {}, outputs=[1], num_warps=num_warps):
        assert out.tolist() == [5, 5, 5, 5, 5]


@pytest.mark.parametrize("element", ["i8", "fp8e5", "fp16", "i64"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_they_are_assembled(assemble, element, target):
    constants = {"BLOCK": 64, "LOAD": "acquire", "STORE": "release", "SCOPE": "sys"}
    signature = {"x": f"*{element}", "out": f"*{element}", "n": "i32"}
    assemble(copy.compile(signature, constants, target=target).asm["ptx"])


def test_the_instructions():
    ptx = scalars.compile({"x": "*i32", "out": "*i32"}, {}, target="sm_80", num_warps=1).asm["ptx"]
    assert "ld.acquire.gpu.global.b32" in ptx and "st.release.gpu.global.b32" in ptx


@ptxforge.jit
def producer_and_consumer(data, flags, out, n, BLOCK: tl.constexpr):
    """The first programs write a block each and set a flag; the last one waits for all flags."""
    pid = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    if pid < n:
        tl.store(data + pid * BLOCK + i, i + pid)
        tl.debug_barrier()
        tl.atomic_store(flags + pid, 3)
    else:
        done = tl.atomic_poll(flags + tl.arange(0, 4), 3)
        tl.store(out, tl.min(done.to(tl.int32), 0))
        total = tl.zeros((BLOCK,), tl.int32)
        for p in range(n):
            total += tl.load(data + p * BLOCK + i)
        tl.store(out + 1 + i, total)


def test_a_consumer_waits(devices):
    n, block = 4, 32
    expected = np.arange(block) * n + sum(range(n))
    for device in devices:
        data, flags, out = (
            ptxforge.to_device(np.zeros(size, np.int32), device) for size in (n * block, n, 1 + block)
        )
        producer_and_consumer[(n + 1,)](data, flags, out, n, BLOCK=block)
        assert out.numpy().tolist() == [1, *expected.tolist()]


@ptxforge.jit
def give_up(flag, out):
    tl.store(out, tl.atomic_poll(flag, 1, timeout_ns=1000).to(tl.int32) + 10)
    tl.store(out + 1, tl.atomic_poll(flag, 0, timeout_ns=1000).to(tl.int32) + 10)
    tl.store(out + 2, tl.atomic_poll(flag, 0).to(tl.int32) + 10)


def test_a_timeout(devices):
    for device in devices:
        flag, out = (ptxforge.to_device(np.zeros(size, np.int32), device) for size in (1, 3))
        give_up[(1,)](flag, out)
        assert out.numpy().tolist() == [10, 11, 11]


@ptxforge.jit
def each_by_itself(flags, out, N: tl.constexpr, DTYPE: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, (flags + i).atomic_poll(tl.full((1,), 3, DTYPE), "relaxed", "cta", 0).to(tl.int32))
    tl.store(out + N + i, (flags + i).atomic_load(i < 2, sem="relaxed").to(tl.int32))
    (flags + i).atomic_store(i, i >= 2)


@pytest.mark.parametrize("dtype", [np.int16, np.uint32, np.int64])
def test_elements_are_polled_each_by_itself(devices, dtype):
    for device in devices:
        flags = ptxforge.to_device(np.array([3, 0, 3, 6], dtype), device)
        out = ptxforge.to_device(np.zeros(8, np.int32), device)
        each_by_itself[(1,)](flags, out, N=4, DTYPE=tl.int64)
        assert out.numpy().tolist() == [1, 0, 1, 0, 3, 0, 0, 0]
        assert flags.numpy().tolist() == [3, 0, 2, 3]


@ptxforge.jit
def wrong_load(x):
    tl.store(x, tl.atomic_load(x, sem="release"))


@ptxforge.jit
def wrong_store(x):
    tl.atomic_store(x, 1, sem="acquire")


@ptxforge.jit
def a_byte(x):
    tl.atomic_store(x, 1)


@pytest.mark.parametrize(
    ("kernel", "element", "message"),
    [
        (wrong_load, "i32", "argument 'sem' of atomic_load\\(\\): must be one of 'relaxed', 'acquire'"),
        (wrong_store, "i32", "argument 'sem' of atomic_store\\(\\): must be one of 'relaxed', 'release'"),
        (a_byte, "i1", "must point at a type of whole bytes, points at int1"),
    ],
)
def test_mistakes(kernel, element, message):
    with pytest.raises(CompilationError, match=message):
        kernel.compile({"x": f"*{element}"}, {}, target="sm_90a")
