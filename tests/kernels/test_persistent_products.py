"""Programs that walk over tiles whose products TMA feeds: one ring of buffers for all tiles, and the first
copies of the next tile under way while this one is stored. On every executor that is present, and in the
interpreter after the passes."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.compiler import compile_function
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.mbarrier import BarrierInit, TensorLoad
from ptxforge.ir.ops.memory import Barrier, Store
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.ops.warpgroup import DotWait
from ptxforge.ir.parser import parse_function
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from tests.passes import gpu

of = TensorDescriptor.from_tensor


@ptxforge.jit
def walking(
    a, b, c, done, M, N, K, tiles, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    PROGRAMS: tl.constexpr, FLATTEN: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """c = a @ b; variants are told by KIND."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    tiles_n = tl.cdiv(N, BN)
    last = tl.zeros((BM, BN), tl.float32)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN):
        first, columns = tile // tiles_n * BM, tile % tiles_n * BN
        depth = K
        if KIND == "triangle":
            depth = tl.minimum(K, first)
        if KIND == "named":
            first = tl.load(done + tile) * BM
            tl.assume(first >= 0)
        if KIND == "queued":
            first += tl.minimum(tl.atomic_add(done, 1), 0)
        rows = first + i
        x = a + (rows % M)[:, None] * K + k[None, :]
        y = b + k[:, None] * N + (columns + j)[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, depth, BK):
            inside = k < K - start
            right = tl.load(y, mask=inside[:, None] & ((columns + j)[None, :] < N), other=0.0)
            acc = tl.dot(tl.load(x, mask=inside[None, :], other=0.0), right, acc)
            x += BK
            y += BK * N
        if KIND == "carried":
            acc += last
            last = acc
        if KIND == "barrier":
            tl.debug_barrier()
        inside = (rows[:, None] < M) & ((columns + j)[None, :] < N)
        tl.store(c + rows[:, None] * N + (columns + j)[None, :], acc, mask=inside)


BLOCKS = {"BM": 64, "BN": 64, "BK": 32}


def problem(m: int, n: int, k: int, kind: str = "", programs: int = 3) -> tuple[list, np.ndarray, int]:
    """The arguments of ``walking``, what it leaves in c, and how many tiles there are."""
    rng = np.random.default_rng(m + k)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, max(k, 1)), (max(k, 1), n)))
    wide = a[:, :k].astype(np.float32)
    if kind == "triangle":
        wide *= np.arange(k) < np.arange(m)[:, None] // 64 * 64
    tiles_m, tiles_n = -(-m // 64), -(-n // 64)
    done = np.arange(tiles_m * tiles_n, dtype=np.int32) // tiles_n
    expected = wide @ b[:k]
    if kind == "carried":
        assert programs == 1 and m % 64 == n % 64 == 0
        blocks = expected.reshape(tiles_m, 64, tiles_n, 64).swapaxes(1, 2).reshape(-1, 64, 64).cumsum(0)
        expected = blocks.reshape(tiles_m, tiles_n, 64, 64).swapaxes(1, 2).reshape(m, n)
    return [a, b, np.zeros((m, n), np.float32), done, m, n, k, len(done)], expected, len(done)


def compiled(kind: str = "", flatten: bool = True, blocks: dict = BLOCKS, **options):
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "done": "*i32:16", "tiles": "i32"}
    signature |= dict.fromkeys("MNK", "i32:16")
    constants = blocks | {"PROGRAMS": 3, "FLATTEN": flatten, "KIND": kind}
    order = list(inspect.signature(walking.fn).parameters)
    ordered = {name: signature[name] for name in order if name in signature}
    return compile_function(walking, ordered, constants, target="sm_90a", **{"num_warps": 4} | options)


def function_of(artifact) -> Function:
    return parse_function(artifact.asm["gpu"])


def runs_ahead(function: Function) -> bool:
    """Whether the next tile's copies start between the inner loop and the store."""
    outer, inner = gpu.operations(function, For)
    copies = [op for op in outer.body.operations if isinstance(op, TensorLoad)]
    assert copies
    behind = [inner.is_before_in_block(op) for op in copies]
    assert all(behind) or not any(behind)
    return all(behind)


# -- meaning ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("num_stages", [2, 3, 4])
@pytest.mark.parametrize(("shape", "kind", "programs"), [
    ((128, 192, 160), "", 3), ((80, 112, 48), "", 1), ((200, 64, 32), "", 2), ((64, 64, 96), "", 3),
    ((128, 128, 0), "", 2), ((192, 192, 128), "triangle", 1), ((192, 128, 96), "named", 2),
    ((128, 128, 64), "carried", 1), ((128, 64, 64), "queued", 2), ((128, 64, 64), "barrier", 1),
], ids=str)  # fmt: skip
def test_product(execute, shape, kind, programs, num_stages, flatten):
    """Several tiles for a program, one, none; steps fewer than stages, none; a number of steps that differs
    from tile to tile and is 0 for some; tiles beyond the edges."""
    arguments, expected, _ = problem(*shape, kind, programs)
    constants = BLOCKS | {"PROGRAMS": programs, "FLATTEN": flatten, "KIND": kind}
    for (out,) in execute(walking, (programs,), arguments, constants, outputs=[2], num_warps=4,
                          num_stages=num_stages):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("kind", ["", "triangle", "named"])
def test_interpreter_after_the_passes(kind, flatten):
    """It finds copies without a place, waits that never end, and tiles that products still read."""
    arguments, expected, _ = problem(192, 128, 160, kind)
    arguments = [np.copy(x) if isinstance(x, np.ndarray) else x for x in arguments]
    interpreter.run(function_of(compiled(kind, flatten)), 3, arguments)
    np.testing.assert_array_equal(arguments[2], expected)


@ptxforge.jit
def by_descriptors(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr, ON_DEVICE: tl.constexpr,
):  # fmt: skip
    """c = a @ bᵀ through descriptors, which the kernel makes or the host."""
    x, y, z = a, b, c
    if ON_DEVICE:
        x = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
        y = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
        z = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, PROGRAMS, flatten=FLATTEN):
        i, j = tile // tiles_n * BM, tile % tiles_n * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(K, BK)):
            acc = tl.dot(x.load([i, step * BK]), y.load([j, step * BK]).T, acc)
        z.store([i, j], acc)


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("shape", [(200, 136, 96), (64, 64, 32), (128, 192, 48)], ids=str)
def test_descriptors(execute, shape, on_device, flatten):
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((m, k), (n, k)))
    arrays = [a, b, np.zeros((m, n), np.float32)]
    if not on_device:
        arrays = [of(x, box) for x, box in zip(arrays, ([64, 32], [64, 32], [64, 64]), strict=True)]
    constants = BLOCKS | {"PROGRAMS": 2, "FLATTEN": flatten, "ON_DEVICE": on_device}
    for (out,) in execute(by_descriptors, (2,), [*arrays, m, n, k], constants, outputs=[2]):
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.T)


def test_the_ring_of_descriptors_walks_on():
    for signature in (
        {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16"},
        {"a": "tensordesc<fp16[64,32]>:16", "b": "tensordesc<fp16[64,32]>:16",
         "c": "tensordesc<fp32[64,64]>:16"},
    ):  # fmt: skip
        constants = BLOCKS | {"PROGRAMS": 2, "FLATTEN": True, "ON_DEVICE": signature["a"][0] == "*"}
        artifact = by_descriptors.compile(
            signature | dict.fromkeys("MNK", "i32:16"), constants, target="sm_90a")
        assert runs_ahead(function_of(artifact))


@ptxforge.jit
def rounds(
    a, b, c, count, tiles, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TWICE: tl.constexpr,
    ALONE: tl.constexpr,
):  # fmt: skip
    """c[r] = a[r] @ bᵀ, in a loop around that over tiles. TWICE: plus the same once more, by another loop.
    ALONE: that one stands in a branch."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    for r in range(count):
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
            rows = tile * BM + i
            x = a + r * (tiles * BM * K) + rows[:, None] * K + k[None, :]
            y = b + j[:, None] * K + k[None, :]
            acc = tl.zeros((BM, BN), tl.float32)
            for start in range(0, K, BK):
                acc = tl.dot(tl.load(x + start), tl.load(y + start).T, acc)
            if TWICE:
                if tile % 2 == 0 or not ALONE:
                    for start in range(0, K, BK):
                        acc = tl.dot(tl.load(x + start), tl.load(y + start).T, acc)
            tl.store(c + (r * tiles * BM + rows)[:, None] * BN + j[None, :], acc)


@pytest.mark.parametrize(("twice", "alone"), [(False, False), (True, False), (True, True)])
def test_loops_around_and_beside(execute, twice, alone):
    """A ring ends with the loop that carries it, and is made anew in the next round."""
    count, tiles, k = 2, 3, 96
    rng = np.random.default_rng(7)
    a = rng.integers(-4, 5, (count, tiles * 64, k)).astype(np.float16)
    b = rng.integers(-4, 5, (64, k)).astype(np.float16)
    expected = a.astype(np.float32) @ b.T
    times = np.where(np.arange(tiles * 64)[:, None] // 64 % 2 * alone, 1, 2) if twice else 1
    constants = BLOCKS | {"TWICE": twice, "ALONE": alone}
    arguments = [a, b, np.zeros_like(expected), count, tiles, k]
    for (out,) in execute(rounds, (2,), arguments, constants, outputs=[2], num_warps=4, num_stages=3):
        np.testing.assert_array_equal(out, expected * times)
    assert len(rounds.variants[-1].artifact.tensor_maps) == 2


# -- form -------------------------------------------------------------------------------------------------


def test_one_ring_for_all_tiles():
    function = function_of(compiled())
    outer, inner = gpu.operations(function, For)
    for op in gpu.operations(function, BarrierInit, LocalAlloc):
        assert op.is_before_in_block(outer)
    assert len(gpu.operations(function, BarrierInit)) == 2
    assert inner.results[0] in outer.body.terminator.values


def test_copies_start_while_the_last_product_is_under_way():
    function = function_of(compiled())
    outer, inner = gpu.operations(function, For)
    copies = [op for op in outer.body.operations if isinstance(op, TensorLoad)]
    (end,) = [op for op in outer.body.operations if isinstance(op, DotWait)]
    (store,) = gpu.operations(function, Store)
    assert len(copies) == 4
    assert inner.is_before_in_block(copies[0]) and copies[-1].is_before_in_block(end)
    assert end.is_before_in_block(store)
    between, op = [], inner.next
    while op is not end:
        between.append(op.name)
        op = op.next
    assert "barrier" not in between


def test_warps_store_a_tile_without_waiting_for_others():
    """Each exchanges its own rows; before the next tile's its threads meet, not those of the block."""
    function = function_of(compiled(blocks=WIDE, num_warps=8))
    outer, inner = gpu.operations(function, For)
    behind = [op for op in outer.body.operations if inner.is_before_in_block(op)]
    (conversion,) = [op for op in behind if isinstance(op, ConvertLayout)]
    assert conversion.meets_before
    assert not [op for op in behind if isinstance(op, Barrier)]


def test_barriers_are_made_once(assemble):
    ptx = compiled().ptx
    assemble(ptx)
    assert "mbarrier.inval" not in ptx
    first_loop = re.search(r"^\$\w+:$", ptx[ptx.rindex("mbarrier.init"):], re.MULTILINE)
    assert first_loop and ptx.count("mbarrier.init") == 2 * 3


WIDE = {"BM": 128, "BN": 256, "BK": 64}
"""Of which one block has room in a multiprocessor."""


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("kind", ["", "triangle", "named", "carried"])
def test_may(kind, flatten):
    assert runs_ahead(function_of(compiled(kind, flatten, WIDE, num_warps=8)))


@pytest.mark.parametrize("flatten", [False, True])
def test_may_not(flatten):
    """A barrier that the author wrote orders memory: what may be stored before it does not come by TMA."""
    assert not gpu.operations(function_of(compiled("barrier", flatten, WIDE, num_warps=8)), TensorLoad)


def test_an_atomic_queue_is_read_by_pointers():
    """What it says may be that others have written the tensor."""
    assert not compiled("queued").tensor_maps


def test_no_room_for_the_ring_beside_the_scratch():
    """Then the tiles start one by one, in the ring's barriers as before; who asked is told."""
    options = {"blocks": WIDE | {"BK": 32}, "num_warps": 8, "num_stages": 9}
    artifact = compiled(**options)
    function = function_of(artifact)
    assert not runs_ahead(function)
    outer, _ = gpu.operations(function, For)
    assert all(op.is_before_in_block(outer) for op in gpu.operations(function, BarrierInit))
    (remark,) = [r for r in artifact.remarks if r.kind == "not-flattened"]
    assert "bytes of buffers" in remark.message
    assert not [r for r in compiled(flatten=False, **options).remarks if r.kind == "not-flattened"]


def test_two_blocks_are_not_given_up_unasked():
    """128 KiB of ring and scratch where 96 do: there two blocks have room."""
    options = {"blocks": {"BM": 128, "BN": 128, "BK": 64}, "num_warps": 4, "num_stages": 3}
    function = function_of(compiled(flatten=False, **options))
    assert gpu.operations(function, ConvertLayout)
    assert not runs_ahead(function)
    assert runs_ahead(function_of(compiled(flatten=True, **options)))
