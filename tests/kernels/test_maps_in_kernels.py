"""Tensor maps that kernels make themselves, of pointers, sizes and strides that no parameter has: the same
results as by pointers, on every executor that is present."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.support import errors, machine

LOAD = re.compile(r"cp\.async\.bulk\.tensor\.\dd\.shared::cluster")


def makes_maps(kernel) -> bool:
    """Whether the newest variant makes tensor maps, and TMA reads through them."""
    ptx = kernel.variants[-1].artifact.ptx
    assert ("tensormap.cp_fenceproxy" in ptx) == bool(LOAD.search(ptx))
    return "tensormap.cp_fenceproxy" in ptx


def reasons(kernel, kind: str = "not-by-tma") -> list[str]:
    return [r.message for r in kernel.variants[-1].artifact.remarks if r.kind == kind]


# -- sizes and places that are loaded ----------------------------------------------------------------------


@ptxforge.jit
def ragged(x, y, out, starts, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows starts[g] to starts[g + 1] of x times matrix g of y; a program for each group and column. One
    tile more than there is is read, which is all zeros."""
    g, column = tl.program_id(0), tl.program_id(1) * BN
    begin, end, depth = tl.load(starts + g), tl.load(starts + g + 1), tl.load(starts + 5)
    rows = end - begin
    left = tl.make_tensor_descriptor(x + begin * K, [rows, depth], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(y + g * N * K, [N, depth], [K, 1], [BN, BK])
    i, j = tl.arange(0, BM), column + tl.arange(0, BN)
    for row in range(0, rows + 1, BM):
        acc = tl.zeros((BM, BN), out.dtype.element_ty)
        for k in range(0, tl.cdiv(K, BK)):
            acc = tl.dot(left.load([row, k * BK]), right.load([column, k * BK]).T, acc)
        at = out + (begin + row + i)[:, None] * N + j[None, :]
        tl.store(at, acc, mask=(row + i < rows)[:, None] & (j < N)[None, :])


def groups(seed: int, dtype: str) -> tuple[list, np.ndarray]:
    """The arguments of ``ragged``, and what it leaves in out."""
    rng = np.random.default_rng(seed)
    lengths = [0, *rng.choice([1, 30, 64, 100, 131], 3)]
    rng.shuffle(lengths)
    unit = 16 // np.dtype(dtype).itemsize
    n, k = int(rng.integers(3, 20)) * 8, int(rng.integers(1, 12)) * unit
    depth = int(rng.integers(1, k + 1))
    starts = np.concatenate([[0], np.cumsum(lengths), [depth]]).astype(np.int32)
    x = rng.integers(-3, 4, (starts[4] + 1, k)).astype(dtype)
    y = rng.integers(-3, 4, (4, n, k)).astype(dtype)
    out = np.zeros((len(x), n), np.int32 if dtype == "int8" else np.float32)
    expected = out.copy()
    for g in range(4):
        part = slice(starts[g], starts[g + 1])
        expected[part] = x[part, :depth].astype(np.float32) @ y[g, :, :depth].astype(np.float32).T
    return [x, y, out, starts, n, k], expected


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_rows_of_groups(execute, assemble, seed, dtype):
    arguments, expected = groups(seed, getattr(ml_dtypes, dtype, dtype))
    constants = {"BM": 64, "BN": 64, "BK": 64 if dtype == "int8" else 32}
    grid = (4, -(-expected.shape[1] // 64))
    for by_tma in (True, False):
        kernel = ptxforge.jit(ragged.fn)
        for (out,) in execute(kernel, grid, arguments, constants, outputs=[2], tensor_maps=by_tma):
            np.testing.assert_array_equal(out, expected)
        assert makes_maps(kernel) == by_tma
        assemble(kernel.variants[-1].artifact.ptx)


def test_more_blocks_than_memory(emulator, monkeypatch):
    """Blocks wait until another has given its memory back."""
    monkeypatch.setattr(machine, "MOST_MULTIPROCESSORS", 1)
    arguments, expected = groups(1, "float16")
    placed = [ptxforge.to_device(a, emulator) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel = ptxforge.compile(ragged.fn)
    for _ in range(2):
        kernel[(4, -(-expected.shape[1] // 16))](*placed, BM=64, BN=16, BK=32)
        np.testing.assert_array_equal(placed[2].numpy(), expected)


@ptxforge.jit(do_not_specialize=["depth", "far"])
def of_parameters(x, y, out, rows, depth, far, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows are ``far`` elements apart, of which nothing outside of the loop says that these are a multiple of
    16 bytes."""
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, depth, BK):
        left = tl.make_tensor_descriptor(x, [rows, depth], [far, 1], [BM, BK])
        right = tl.make_tensor_descriptor(y, [BN, depth], [far, 1], [BN, BK])
        acc = tl.dot(left.load([0, k]), right.load([0, k]).T, acc)
    tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)


@pytest.mark.parametrize("depth", [17, 65])
def test_parameters_that_promise_nothing(execute, assemble, depth):
    """Several maps of what is there from the beginning."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, (rows, 72)).astype(np.float16) for rows in (60, 64))
    expected = np.zeros((64, 64), np.float32)
    expected[:60] = x[:, :depth].astype(np.float32) @ y[:, :depth].astype(np.float32).T
    arguments, constants = [x, y, np.zeros_like(expected), 60, depth, 72], {"BM": 64, "BN": 64, "BK": 32}
    for (out,) in execute(of_parameters, (1,), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, expected)
    assert makes_maps(of_parameters)
    assemble(of_parameters.variants[-1].artifact.ptx)


# -- addresses that are loaded -----------------------------------------------------------------------------


@ptxforge.jit
def grouped(table, sizes, count, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr,
            HOW: tl.constexpr):  # fmt: skip
    """Products of several sizes, whose addresses, sizes and strides lie in memory."""
    tile, first = tl.program_id(0), 0
    for g in range(count):
        m, n, k = tl.load(sizes + g * 6), tl.load(sizes + g * 6 + 1), tl.load(sizes + g * 6 + 2)
        across = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * across
        if tile >= first and tile < first + tiles:
            rows_a, rows_b, rows_c = (tl.load(sizes + g * 6 + 3), tl.load(sizes + g * 6 + 4),
                                      tl.load(sizes + g * 6 + 5))  # fmt: skip
            a = tl.load(table + g * 3).to(tl.pointer_type(tl.float16))
            b = tl.load(table + g * 3 + 1).to(tl.pointer_type(tl.float16))
            c = tl.load(table + g * 3 + 2).to(tl.pointer_type(tl.float16))
            if HOW == "dense":
                rows_a, rows_b, rows_c = k, k, n
            if HOW != "pointers":
                left = tl.make_tensor_descriptor(a, [m, k], [rows_a, 1], [BM, BK])
                right = tl.make_tensor_descriptor(b, [n, k], [rows_b, 1], [BN, BK])
                result = tl.make_tensor_descriptor(c, [m, n], [rows_c, 1], [BM, BN])
            while tile >= first and tile < first + tiles:
                row, column = (tile - first) // across * BM, (tile - first) % across * BN
                acc = tl.zeros((BM, BN), tl.float32)
                i, j = row + tl.arange(0, BM), column + tl.arange(0, BN)
                for step in range(0, tl.cdiv(k, BK)):
                    at = step * BK + tl.arange(0, BK)
                    if HOW != "pointers":
                        x, y = left.load([row, step * BK]), right.load([column, step * BK])
                    else:
                        x = tl.load(a + i[:, None] * rows_a + at[None, :],
                                    mask=(i < m)[:, None] & (at < k)[None, :], other=0.0)
                        y = tl.load(b + j[:, None] * rows_b + at[None, :],
                                    mask=(j < n)[:, None] & (at < k)[None, :], other=0.0)
                    acc = tl.dot(x, y.T, acc)
                if HOW != "pointers":
                    result.store([row, column], acc.to(tl.float16))
                else:
                    inside = (i < m)[:, None] & (j < n)[None, :]
                    tl.store(c + i[:, None] * rows_c + j[None, :], acc.to(tl.float16), mask=inside)
                if HOW == "descriptors barrier":
                    tl.debug_barrier()
                tile += PROGRAMS
        first += tiles


def products(device, seed: int, spread: int = 3) -> tuple[list, list]:
    """The arguments of ``grouped`` on a device, and (array on it, what it is to become) for each group. Rows
    are up to 8 * spread elements further apart than they are long."""
    rng, rows, addresses, results, kept = np.random.default_rng(seed), [], [], [], []
    for m, n, k in rng.integers(0, [150, 20, 16], (4, 3)) * [1, 8, 8] + [0, 8, 8]:
        padded = [int(size + 8 * rng.integers(0, spread)) for size in (k, k, n)]
        a, b, c = (np.zeros((count, width), np.float16) for count, width in zip((m + 1, n, m + 1), padded))
        a[:m, :k], b[:, :k] = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (n, k))
        expected = c.copy()
        expected[:m, :n] = a[:m].astype(np.float32) @ np.pad(b, [(0, 0), (0, padded[0])])[:, : padded[0]].T
        placed = [ptxforge.to_device(array, device) for array in (a, b, c)]
        kept.append(placed)
        rows.append([m, n, k, *padded])
        addresses += [array.data_ptr() for array in placed]
        results.append((placed[2], expected))
    table = ptxforge.to_device(np.array(addresses, np.int64), device)
    sizes = ptxforge.to_device(np.array(rows, np.int32), device)
    return [table, sizes, 4, kept], results


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", ["descriptors", "dense", "pointers", "descriptors barrier"])
def test_addresses_in_memory(devices, seed, how):
    """TMA reads through descriptors, unless a barrier may order what threads write and it reads."""
    kernel = ptxforge.compile(grouped.fn)
    for device in devices:
        (*arguments, _), results = products(device, seed, 1 if how == "dense" else 3)
        kernel[(3,)](*arguments, BM=64, BN=64, BK=32, PROGRAMS=3, HOW=how)
        for out, expected in results:
            np.testing.assert_array_equal(out.numpy(), expected)
        assert makes_maps(kernel) == (how in ("descriptors", "dense"))


@ptxforge.jit
def one_product(x, y, out, facts, BM: tl.constexpr, BK: tl.constexpr):
    rows, stride, first = tl.load(facts), tl.load(facts + 1), tl.load(facts + 2)
    left = tl.make_tensor_descriptor(x + first, [rows, tl.load(facts + 3)], [stride, 1], [BM, BK])
    acc = tl.zeros((BM, BK), tl.float32)
    i, j = tl.arange(0, BM), tl.arange(0, BK)
    for k in range(0, 2 * BK, BK):
        acc = tl.dot(left.load([0, k]), tl.load(y + (k + j)[:, None] * BK + j[None, :]), acc)
    tl.store(out + i[:, None] * BK + j[None, :], acc)


@pytest.mark.parametrize(("facts", "why"), [
    ((60, 72, 8), ""), ((0, 72, 8), ""), ((60, 68, 8), "strides are multiples of 16"),
    ((60, 72, 4), "address must be a multiple of 16"),
])  # fmt: skip
def test_broken_promises(emulator, facts, why):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, shape).astype(np.float16) for shape in (64 * 72 + 16, (64, 32)))
    rows, stride, first = facts
    left = x[first : first + 64 * stride].reshape(64, stride)[:, :64].astype(np.float32).copy()
    left[rows:] = 0
    arrays = x, y, np.zeros((64, 32), np.float32), np.array([*facts, 64], np.int32)
    placed = [ptxforge.to_device(a, emulator) for a in arrays]
    kernel = ptxforge.compile(one_product.fn)
    if why:
        with pytest.raises(errors.EmulatorError, match=why):
            kernel[(1,)](*placed, BM=64, BK=32)
        return
    kernel[(1,)](*placed, BM=64, BK=32)
    np.testing.assert_array_equal(placed[2].numpy(), left @ y.astype(np.float32))
    assert makes_maps(kernel)


# -- attention ---------------------------------------------------------------------------------------------


@ptxforge.jit
def attention(q, k, v, out, starts, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Of sequences of several lengths, one behind the other."""
    g, row = tl.program_id(0), tl.program_id(1) * BM
    begin, end = tl.load(starts + g), tl.load(starts + g + 1)
    length = end - begin
    keys = tl.make_tensor_descriptor(k + begin * D, [length, D], [D, 1], [BN, D])
    values = tl.make_tensor_descriptor(v + begin * D, [length, D], [D, 1], [BN, D])
    i, d = row + tl.arange(0, BM), tl.arange(0, D)
    x = tl.load(q + (begin + i)[:, None] * D + d[None, :], mask=(i < length)[:, None], other=0.0)
    top, total = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for j in range(0, length, BN):
        s = tl.dot(x, keys.load([j, 0]).T)
        s = tl.where((j + tl.arange(0, BN) < length)[None, :], s, -1e30)
        new = tl.maximum(top, tl.max(s, 1))
        p, alpha = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype.element_ty), values.load([j, 0]), acc * alpha[:, None])
        top = new
    at = out + (begin + i)[:, None] * D + d[None, :]
    tl.store(at, acc / total[:, None], mask=(i < length)[:, None])


def test_attention_of_several_lengths(execute, assemble):
    starts = np.array([0, 70, 71, 330], np.int32)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((330, 64)).astype(np.float16) for _ in range(3))
    expected = np.zeros((330, 64))
    for first, last in zip(starts, starts[1:]):
        x, y, z = (a[first:last].astype(np.float64) for a in (q, k, v))
        p = np.exp2(x @ y.T - (x @ y.T).max(1, keepdims=True))
        expected[first:last] = p @ z / p.sum(1, keepdims=True)
    arguments = [q, k, v, np.zeros((330, 64), np.float32), starts]
    for (out,) in execute(attention, (3, 5), arguments, {"D": 64, "BM": 64, "BN": 64}, outputs=[3]):
        np.testing.assert_allclose(out, expected, rtol=1e-2, atol=1e-2)
    assert not makes_maps(attention)  # threads copy 16 bytes at once, which is faster
    assemble(attention.variants[-1].artifact.ptx)


# -- what stays by pointers, and why ------------------------------------------------------------------------


@ptxforge.jit
def paged(x, y, pages, out, count, S: tl.constexpr, HOW: tl.constexpr):
    """Products of 64x32 tiles, one behind the other or each in a page of its own, with one matrix."""
    i, j = tl.arange(0, 64), tl.arange(0, 32)
    acc = tl.zeros((64, 32), tl.float32)
    right = tl.load(y + j[:, None] * 32 + j[None, :])
    start = tl.load(pages)
    width = tl.load(pages + 3)
    if HOW != "each":
        whole = tl.make_tensor_descriptor(x + start * S, [64 * count, width], [32, 1], [64, 32])
    for n in tl.range(count, warp_specialize=HOW == "specialized"):
        if HOW == "each":
            page = tl.make_tensor_descriptor(x + tl.load(pages + n) * S, [64, width], [32, 1], [64, 32])
            acc += tl.dot(page.load([0, 0]), right)
        else:
            acc += tl.dot(whole.load([n * 64, 0]), right)
    if HOW == "written":
        tl.store(x + start * S + i[:, None] * 32 + j[None, :], acc.to(tl.float16))
    tl.store(out + i[:, None] * 32 + j[None, :], acc)


@pytest.mark.parametrize(("how", "kind", "why"), [
    ("once", "", ""), ("each", "not-by-tma", "its loop computes"),
    ("written", "not-by-tma", "writes through"),
    ("specialized", "not-specialized", "makes a tensor map itself"),
])  # fmt: skip
def test_remarks(execute, how, kind, why):
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (4, 64, 32)).astype(np.float16)
    pages = np.array([1, 2, 3, 32], np.int32)
    y = rng.integers(-3, 4, (32, 32)).astype(np.float16)
    expected = x[1:].astype(np.float32).sum(0) @ y.astype(np.float32)
    arguments, constants = [x, y, pages, np.zeros((64, 32), np.float32), 3], {"S": 64 * 32, "HOW": how}
    kernel = ptxforge.jit(paged.fn)
    for (out,) in execute(kernel, (1,), arguments, constants, outputs=[3]):
        np.testing.assert_array_equal(out, expected)
    assert makes_maps(kernel) == (kind != "not-by-tma")
    found = reasons(kernel, kind) if kind else reasons(kernel)
    assert [why in reason for reason in found] == [True] * bool(kind)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_other_targets_read_by_pointers(target, assemble):
    signature = {"x": "*fp16:16", "y": "*fp16:16", "pages": "*i32:16", "out": "*fp32:16", "count": "i32"}
    constants = {"S": 2048, "HOW": "once"}
    artifact = ptxforge.compile(paged, signature=signature, constants=constants, target=target)
    assemble(artifact.ptx)
    assert "tensormap" not in artifact.ptx and "cp.async.bulk" not in artifact.ptx


# -- what must be there --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left_out", "found"), [
    ("acquire.gpu [", "generic.acquire"), ("bar.warp.sync", "race|wrote|barrier"),
    ("box_dim", "tensor map"),
])  # fmt: skip
def test_the_emulator_finds_what_is_left_out(emulator, monkeypatch, left_out, found):
    effect = Builder.effect

    def without(self, template, *operands, **options):
        if left_out not in template:
            return effect(self, template, *operands, **options)

    monkeypatch.setattr(Builder, "effect", without)
    arguments, _ = groups(1, "float16")
    placed = [ptxforge.to_device(a, emulator) if isinstance(a, np.ndarray) else a for a in arguments]
    with pytest.raises((AssertionError, errors.EmulatorError), match=found):
        ptxforge.compile(ragged.fn)[(4, 2)](*placed, BM=64, BN=64, BK=32)
