"""Tiles that TMA stores: types, dimensions, edges, reductions, loops; what it must leave to threads."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.codegen_ptx.ptx.builder import Builder

REDUCE = "cp.reduce.async.bulk.tensor"


def into_memory(ptx: str) -> int:
    """Instructions of TMA that write global memory."""
    return ptx.count(".bulk_group [")


# -- descriptors -----------------------------------------------------------------------------------------


def filled(shape: tuple[int, ...], sides: tuple[int, ...], corner: tuple[int, ...], out: np.ndarray) -> None:
    """numpy's version of one program."""
    numbers = np.arange(np.prod(sides)).reshape(sides)
    for at in np.ndindex(*sides):
        place = tuple(c + i for c, i in zip(corner, at))
        if all(0 <= p < n for p, n in zip(place, shape)):
            out[place] = numbers[at] % 100


BOXES = {
    1: ((208,), (128,), lambda shift: (128 - 144 * shift,)),
    2: ((37, 80), (16, 64), lambda shift: (30 - 31 * shift, 32)),
    3: ((3, 17, 48), (2, 8, 32), lambda shift: (0, 10 - 12 * shift, 32)),
    4: ((2, 3, 9, 48), (1, 2, 8, 32), lambda shift: (0, 1, 2 - 4 * shift, 32)),
    5: ((2, 2, 3, 5, 32), (1, 2, 2, 4, 32), lambda shift: (0, 0, 1, 1, 16 - 32 * shift)),
}
"""Shapes, tiles, and where a program's tile begins: at multiples of 16 bytes in its row; with ``shift``, in
front of the tensor."""


@ptxforge.jit
def numbered(y, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
             R: tl.constexpr, SIDES: tl.constexpr, COUNT: tl.constexpr, SHIFT: tl.constexpr):  # fmt: skip
    """A box of a tensor of R dimensions, partly outside, gets the numbers 0, 1, …, 99, 0, …"""
    sizes: tl.constexpr = (A, B, C, D, E)[5 - R :]
    steps: tl.constexpr = (B * C * D * E, C * D * E, D * E, E, 1)[5 - R :]
    desc = tl.make_tensor_descriptor(y, sizes, steps, SIDES)
    value = tl.reshape((tl.arange(0, COUNT) % 100).to(y.dtype.element_ty), SIDES)
    pid = tl.program_id(0)
    if R == 1:
        desc.store([pid * 128 + 128 - 144 * SHIFT], value)
    elif R == 2:
        desc.store([pid * 4 + 30 - 31 * SHIFT, 32], value)
    elif R == 3:
        desc.store([pid, 10 - 12 * SHIFT, 32], value)
    elif R == 4:
        desc.store([pid, 1, 2 - 4 * SHIFT, 32], value)
    else:
        desc.store([pid, 0, 1, 1, 16 - 32 * SHIFT], value)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("rank", BOXES)
@pytest.mark.parametrize("dtype", [
    "int8", "float8_e4m3fn", "float16", "bfloat16", "int16", "int32", "float32", "int64", "float64",
])  # fmt: skip
def test_boxes_of_every_rank_and_type(execute, rank, dtype, shift):
    """TMA stores no box that begins in front of the tensor: threads do."""
    shape, sides, corner = BOXES[rank]
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    expected = np.full(shape, 7).astype(kind)
    filled(shape, sides, corner(shift), expected)
    sizes = dict(zip("ABCDE", (1,) * (5 - rank) + shape))
    constants = sizes | {"R": rank, "SIDES": sides, "COUNT": int(np.prod(sides)), "SHIFT": shift}
    for (out,) in execute(numbered, (1,), [np.full(shape, 7).astype(kind)], constants, outputs=[0]):
        np.testing.assert_array_equal(out.astype(np.float64), expected.astype(np.float64))
    artifact = numbered.variants[-1].artifact
    by_tma = np.prod(sides) * kind.itemsize >= 512 and not shift
    assert (into_memory(artifact.ptx) > 0) == by_tma and len(artifact.tensor_maps) == by_tma


@ptxforge.jit
def combined(y, M, N, COLUMN: tl.constexpr, KIND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Every program combines the same box with its own numbers."""
    desc = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    value = (tl.arange(0, BM)[:, None] * 5 + tl.arange(0, BN)[None, :]) % 7 + tl.program_id(0)
    value = value.to(y.dtype.element_ty)
    if KIND == "add":
        desc.atomic_add([2, COLUMN], value)
    elif KIND == "max":
        desc.atomic_max([2, COLUMN], value)
    elif KIND == "min":
        desc.atomic_min([2, COLUMN], value)
    elif KIND == "and":
        desc.atomic_and([2, COLUMN], value)
    elif KIND == "or":
        desc.atomic_or([2, COLUMN], value)
    else:
        desc.atomic_xor([2, COLUMN], value)


UFUNCS = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
          "xor": np.bitwise_xor}  # fmt: skip
REDUCTIONS = [
    *(("add", d) for d in ("int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32")),
    *((k, d) for k in ("max", "min", "and", "or", "xor") for d in ("int32", "uint32", "int64", "uint64")),
]


@pytest.mark.parametrize("column", [16, 5])
@pytest.mark.parametrize(("kind", "dtype"), REDUCTIONS)
def test_reductions(execute, kind, dtype, column):
    """By TMA where the box begins at a multiple of 16 bytes, else by the threads' atomic operations."""
    kind_of = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    start = (np.arange(24 * 48).reshape(24, 48) % 11).astype(kind_of)
    if kind_of.kind == "i":
        start -= 5
    if kind_of.kind == "u" and kind in ("max", "min"):
        start[::2] += kind_of.type(1 << 8 * kind_of.itemsize - 1)
    expected = start.copy()
    for program in range(3):
        value = (np.arange(16)[:, None] * 5 + np.arange(32)[None, :]) % 7 + program
        part = expected[2:18, column : column + 32]
        part[...] = UFUNCS[kind](part, value[: part.shape[0], : part.shape[1]].astype(kind_of))
    constants = {"COLUMN": column, "KIND": kind, "BM": 16, "BN": 32}
    for (out,) in execute(combined, (3,), [start, 24, 48], constants, outputs=[0]):
        np.testing.assert_array_equal(out.astype(np.float64), expected.astype(np.float64))
    assert (REDUCE in combined.variants[-1].artifact.ptx) == (column == 16)


@ptxforge.jit
def at_column(y, column, columns, N: tl.constexpr, ASSUME: tl.constexpr):
    if ASSUME:
        tl.assume(column >= 0)
    desc = tl.make_tensor_descriptor(y, [16, columns], [N, 1], [16, 32])
    value = tl.arange(0, 16)[:, None] + tl.arange(0, 32)[None, :] + 1
    desc.store([0, column], value.to(tl.float32))


@pytest.mark.parametrize(("column", "columns", "assume", "why"), [
    (16, 64, True, ""), (0, 64, True, ""), (48, 64, True, ""), (12, 64, True, "first column may be at any"),
    (-3, 64, False, "first column may be at any"), (16, 64, False, "may begin in front of the tensor"),
    (-16, 64, False, "may begin in front of the tensor"), (16, 37, True, "may end at any address"),
])  # fmt: skip
def test_where_tiles_begin_and_rows_end(execute, column, columns, assume, why):
    """TMA stores tiles that begin inside of the tensor at multiples of 16 bytes, and whole chunks of 16
    bytes; what is not known to be so is left to threads, with a remark."""
    expected = np.zeros((16, 64), np.float32)
    value = (np.arange(16)[:, None] + np.arange(32)[None, :] + 1).astype(np.float32)
    first, last = max(column, 0), min(column + 32, columns)
    expected[:, first:last] = value[:, first - column : last - column]
    arguments = [np.zeros((16, 64), np.float32), column, columns]
    for (out,) in execute(at_column, (1,), arguments, {"N": 64, "ASSUME": assume}, outputs=[0]):
        np.testing.assert_array_equal(out, expected)
    artifact = at_column.variants[-1].artifact
    assert (into_memory(artifact.ptx) > 0) == (not why)
    reasons = [remark.message for remark in artifact.remarks if remark.kind == "not-by-tma"]
    assert len(reasons) == bool(why) and all(why in reason for reason in reasons)


@ptxforge.jit
def counted_twice(a, b, c, M, N, K, FROM: tl.constexpr, PROGRAMS: tl.constexpr):
    """What is stored has a counter of its own, which begins one step (and FROM) in front."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [64, 32])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [64, 32])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [64, 64])
    across = tl.cdiv(N, 64)
    stored = tl.program_id(0) - PROGRAMS + FROM
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, 64) * across, PROGRAMS, flatten=True):
        row, column = tile // across * 64, tile % across * 64
        acc = tl.zeros((64, 64), tl.float32)
        for k in range(0, tl.cdiv(K, 32)):
            acc = tl.dot(left.load([row, k * 32]), right.load([column, k * 32]).T, acc)
        stored += PROGRAMS
        out.store([stored // across * 64, stored % across * 64], acc.to(c.dtype.element_ty))


@pytest.mark.parametrize("start", [0, -1])
def test_a_counter_that_only_grows(execute, start):
    """It is not negative where something is added that its first value needs; one step less may be."""
    m, n, k = 160, 136, 96
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-2, 3, s).astype(np.float16) for s in ((m, k), (n, k)))
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16)
    arguments = [a, b, np.zeros((m, n), np.float16), m, n, k]
    for (out,) in execute(counted_twice, (4,), arguments, {"FROM": start, "PROGRAMS": 4}, outputs=[2]):
        if start == 0:
            np.testing.assert_array_equal(out, expected)
    assert (into_memory(counted_twice.variants[-1].artifact.ptx) > 0) == (start == 0)


@ptxforge.jit
def many_tiles(x, y, rows, N: tl.constexpr, STEP: tl.constexpr, BM: tl.constexpr):
    """Tiles of a loop; with STEP below BM each overlaps the one before, and the later one counts."""
    i, j = tl.arange(0, BM), tl.arange(0, N)
    out = tl.make_tensor_descriptor(y, [rows, N], [N, 1], [BM, N])
    for tile in range(0, tl.cdiv(rows, STEP)):
        row = tile * STEP + i
        v = tl.load(x + row[:, None] * N + j[None, :], mask=(row < rows)[:, None], other=0.0)
        out.store([tile * STEP, 0], v + tile)


@pytest.mark.parametrize("step", [8, 16])
def test_tiles_of_a_loop_land_in_its_order(execute, step):
    x = np.arange(40 * 64, dtype=np.float32).reshape(40, 64) % 50
    expected = x + (np.arange(40) // step)[:, None]
    constants = {"N": 64, "STEP": step, "BM": 16}
    for (out,) in execute(many_tiles, (1,), [x, np.zeros_like(x), 40], constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected.astype(np.float32))
    ptx = many_tiles.variants[-1].artifact.ptx
    assert "cp.async.bulk.wait_group 0;" in ptx and "cp.async.bulk.wait_group.read 0;" in ptx


@ptxforge.jit
def halves(y, N: tl.constexpr, APART: tl.constexpr):
    """Two tiles, side by side or one over the other."""
    out = tl.make_tensor_descriptor(y, [16, 2 * N], [2 * N, 1], [16, N])
    value = tl.arange(0, 16)[:, None] + tl.arange(0, N)[None, :]
    out.store([0, 0], value.to(tl.float32))
    out.store([0, N if APART else 0], (value + 1).to(tl.float32))


@pytest.mark.parametrize("apart", [False, True])
def test_only_tiles_that_may_meet_wait_for_each_other(execute, apart):
    value = np.arange(16)[:, None] + np.arange(32)[None, :]
    expected = np.zeros((16, 64), np.float32)
    expected[:, :32] = value
    expected[:, 32 * apart : 32 * apart + 32] = value + 1
    for (out,) in execute(halves, (1,), [np.zeros((16, 64), np.float32)], {"N": 32, "APART": apart}, [0]):
        np.testing.assert_array_equal(out, expected)
    ptx = halves.variants[-1].artifact.ptx
    assert into_memory(ptx) == 2 and ("cp.async.bulk.wait_group 0;" in ptx) != apart


@ptxforge.jit
def not_alone(x, y, flag, HOW: tl.constexpr):
    i, j = tl.arange(0, 16), tl.arange(0, 64)
    at = i[:, None] * 64 + j[None, :]
    out = tl.make_tensor_descriptor(y, [16, 64], [64, 1], [16, 64])
    value = tl.load(x + at)
    if HOW == "reads first":
        value += tl.load(y + at)
    out.store([0, 0], value)
    if HOW == "reads":
        tl.debug_barrier()
        tl.store(x + at, tl.load(y + at) + 1)
    if HOW == "writes":
        tl.debug_barrier()
        tl.store(y + j, tl.zeros((64,), tl.float32))
    if HOW == "tells":
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1)
    if HOW == "counts":
        tl.atomic_add(flag, 1, sem="relaxed")


@pytest.mark.parametrize("how", ["", "counts", "reads first", "reads", "writes", "tells"])
def test_what_else_touches_the_tensor_or_tells_of_it(execute, how):
    x, y = np.ones((16, 64), np.float32), np.full((16, 64), 2, np.float32)
    expected = x + y if how == "reads first" else x.copy()
    if how == "writes":
        expected[0] = 0
    for (out,) in execute(not_alone, (1,), [x, y, np.zeros(4, np.int32)], {"HOW": how}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)
    assert (into_memory(not_alone.variants[-1].artifact.ptx) > 0) == (how in ("", "counts"))


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_other_targets_store_by_pointers(target):
    constants = dict(zip("ABCDE", (1, 1, 1, 37, 80))) | {"R": 2, "SIDES": (16, 64), "COUNT": 1024, "SHIFT": 0}
    artifact = ptxforge.compile(numbered, signature={"y": "*fp16:16"}, constants=constants, target=target)
    assert not artifact.tensor_maps and into_memory(artifact.ptx) == 0


def test_clusters_store_their_parts_by_pointers(execute):
    value = np.arange(16)[:, None] + np.arange(32)[None, :]
    expected = np.concatenate([value, value + 1], 1).astype(np.float32)
    for (out,) in execute(halves, (1,), [np.zeros((16, 64), np.float32)], {"N": 32, "APART": True}, [0],
                          num_ctas=2):  # fmt: skip
        np.testing.assert_array_equal(out, expected)
    assert into_memory(halves.variants[-1].artifact.ptx) == 0


# -- pointers --------------------------------------------------------------------------------------------


@ptxforge.jit
def product(a, b, c, first, M, N, row, column, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr):
    j, k = tl.arange(0, BN), tl.arange(0, 32)
    y = tl.load(b + k[:, None] * BN + j[None, :])
    for tile in range(tl.program_id(0), tl.cdiv(M, BM), tl.num_programs(0)):
        i = tile * BM + tl.arange(0, BM)
        x = tl.load(a + i[:, None] * 32 + k[None, :], mask=(i < M)[:, None], other=0.0)
        if HOW == "anywhere":
            i += tl.load(first)
        mask = (i < M)[:, None] & (j < N)[None, :]
        if HOW == "diagonal":
            mask = mask & (i[:, None] >= j[None, :])
        at = c + i[:, None] * row + j[None, :] * column
        tl.store(at, tl.dot(x, y).to(c.dtype.element_ty), mask=mask)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize(("m", "n", "how"), [
    (128, 64, ""), (100, 48, ""), (128, 64, "diagonal"), (128, 64, "anywhere"),
])  # fmt: skip
def test_accumulators_by_pointers(execute, dtype, order, m, n, how):
    rng = np.random.default_rng(m)
    a, b = (rng.integers(0, 2, s).astype(np.float16) for s in ((m, 32), (32, 64)))
    expected, first = np.zeros((m + 28, 64), dtype), 9 if how == "anywhere" else 0
    expected[first:m, :n] = (a.astype(np.float32) @ b.astype(np.float32))[: m - first, :n]
    if how == "diagonal":
        expected[:m] *= np.arange(m)[:, None] >= np.arange(64)[None, :]
    out = np.zeros((m + 28, 64) if order == "rows" else (64, m + 28), dtype)
    arguments = [a, b, out, np.array([first], np.int32), m, n]
    arguments += [64, 1] if order == "rows" else [1, m + 28]
    for (found,) in execute(product, (1,), arguments, {"BM": 64, "BN": 64, "HOW": how}, outputs=[2]):
        np.testing.assert_array_equal(found if order == "rows" else found.T, expected)


def test_arguments_that_make_no_tensor_store_by_pointers(emulator):
    """Without rows there is nothing to store, and no tensor map."""
    x, y = (ptxforge.to_device(np.ones((64, 64), np.float32), emulator) for _ in range(2))
    kernel = ptxforge.compile(many_tiles.fn)
    for rows in (64, 0):
        kernel[(1,)](x, y, rows, N=64, STEP=16, BM=16)
        np.testing.assert_array_equal(y.numpy(), 1 + np.arange(64)[:, None] // 16 + np.zeros((64, 64)))
    assert [bool(variant.artifact.tensor_maps) for variant in kernel.variants] == [True, False]


@ptxforge.jit
def of_products(x, y, out, M, K: tl.constexpr, N: tl.constexpr):
    """out = (xᵢ yᵀ) y of all blocks of rows."""
    i, k, n = tl.arange(0, 64), tl.arange(0, K), tl.arange(0, N)
    right = tl.load(y + n[:, None] * K + k[None, :])
    desc = tl.make_tensor_descriptor(out, [M, K], [K, 1], [64, K])
    tl.assume(M >= 0)
    for first in range(0, M, 64):
        left = tl.load(x + (first + i)[:, None] * K + k[None, :])
        desc.store([first, 0], tl.dot(tl.dot(left, right.T).to(x.dtype.element_ty), right))


@ptxforge.jit
def around_a_barrier(x, y, out, M, K: tl.constexpr, N: tl.constexpr):
    """One tile over the other, without a loop."""
    i, k = tl.arange(0, 64), tl.arange(0, K)
    at = i[:, None] * K + k[None, :]
    desc = tl.make_tensor_descriptor(out, [M, K], [K, 1], [64, K])
    desc.store([0, 0], tl.load(x + at).to(tl.float32))
    tl.debug_barrier()
    desc.store([0, 0], tl.load(x + at).to(tl.float32) + 1)


@pytest.mark.parametrize(("kernel", "num_warps", "stages"), [
    (of_products, 4, 2), (of_products, 4, 3), (of_products, 8, 1), (around_a_barrier, 4, 3),
])  # fmt: skip
def test_waits_in_front_of_buffers_do_not_name_them(execute, monkeypatch, kernel, num_warps, stages):
    """Where the buffer of a tile is taken for its store alone, a tile that is stored for products, or a
    barrier, may stand in front of that, and the wait for other copies there."""
    monkeypatch.setenv("PTXFORGE_VERIFY", "1")
    rng = np.random.default_rng(num_warps)
    x, y = (rng.integers(-1, 2, shape).astype(np.float16) for shape in ((192, 64), (128, 64)))
    expected = x.astype(np.float32) @ y.T @ y if kernel is of_products else np.zeros((192, 64))
    if kernel is around_a_barrier:
        expected[:64] = x[:64] + 1
    arguments = [x, y, np.zeros((192, 64), np.float32), 192]
    for (out,) in execute(kernel, (1,), arguments, {"K": 64, "N": 128}, outputs=[2], num_warps=num_warps,
                          num_stages=stages):  # fmt: skip
        np.testing.assert_array_equal(out, expected)
    assert into_memory(kernel.variants[-1].artifact.ptx) > 0


@ptxforge.jit
def here_and_there(w, x, y, z, rows, N: tl.constexpr, BM: tl.constexpr):
    """Two stores in a loop, one in a branch of it, one in a loop that need not run."""
    i, j = tl.arange(0, BM), tl.arange(0, N)
    tl.assume(rows >= 0)
    descs = [tl.make_tensor_descriptor(p, [rows, N], [N, 1], [BM, N]) for p in (w, x, y, z)]
    for first in range(0, rows, BM):
        tile = (first + i)[:, None] * N + j[None, :]
        descs[0].store([first, 0], tile)
        descs[1].store([first, 0], tile + 1)
        if first % (2 * BM) == 0:
            descs[2].store([first, 0], tile + 2)
        left = first
        while left > 0:
            descs[3].store([first, 0], tile + left)
            left -= BM


def test_tokens_go_through_loops_and_branches(execute, monkeypatch):
    """To the next iteration's wait, and to the end."""
    monkeypatch.setenv("PTXFORGE_VERIFY", "1")
    arguments = [*(np.full((64, 32), -1, np.int32) for _ in range(4)), 64]
    numbers = np.arange(64 * 32, dtype=np.int32).reshape(64, 32)
    block = np.arange(64)[:, None] // 16
    results = execute(here_and_there, (1,), arguments, {"N": 32, "BM": 16}, outputs=[0, 1, 2, 3])
    for w, x, y, z in results:
        np.testing.assert_array_equal(w, numbers)
        np.testing.assert_array_equal(x, numbers + 1)
        np.testing.assert_array_equal(y, np.where(block % 2 == 0, numbers + 2, -1))
        np.testing.assert_array_equal(z, np.where(block > 0, numbers + 16, -1))
    staged = dict(here_and_there.variants[-1].artifact.stages)["stage_boxes"]
    assert staged.count("no_work") == 1
    waits = [len(names.split(", ")) for names in re.findall(r"store_wait (%[^\n{]*)", staged)]
    assert sorted(waits) == [1, 1, 2, 4]  # of the branch, of the inner loop, of the outer one, of the kernel


# -- what must be there ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("left_out", "found"), [
    ("fence.proxy.async", "fence.proxy.async"), ("cp.async.bulk.wait_group", "async"), ("bar.sync", "race"),
])  # fmt: skip
def test_the_emulator_finds_what_is_left_out(emulator, monkeypatch, left_out, found):
    effect = Builder.effect

    def without(self, template, *operands, **options):
        if left_out not in template:
            return effect(self, template, *operands, **options)

    monkeypatch.setattr(Builder, "effect", without)
    x, y = (ptxforge.to_device(np.ones((40, 64), np.float32), emulator) for _ in range(2))
    with pytest.raises(AssertionError, match=found):
        ptxforge.compile(many_tiles.fn)[(1,)](x, y, 40, N=64, STEP=16, BM=16)


# -- buffers ---------------------------------------------------------------------------------------------


@ptxforge.jit
def persistent(a, b, c, M, N, K, columns, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
               APART: tl.constexpr = False):  # fmt: skip
    across = tl.cdiv(N, BN)
    out = tl.make_tensor_descriptor(c, [M, columns], [N, 1], [BM, BN])
    first, count = tl.program_id(0), tl.cdiv(M, BM) * across
    for tile in tl.range(first, count, tl.num_programs(0), warp_specialize=APART):
        i, j = tile // across * BM + tl.arange(0, BM), tile % across * BN + tl.arange(0, BN)
        k = tl.arange(0, BK)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(0, tl.cdiv(K, BK)):
            at = step * BK + k
            left, right = (i < M)[:, None] & (at < K)[None, :], (at < K)[:, None] & (j < N)[None, :]
            x = tl.load(a + i[:, None] * K + at[None, :], mask=left, other=0.0)
            y = tl.load(b + at[:, None] * N + j[None, :], mask=right, other=0.0)
            acc = tl.dot(x, y, acc)
        out.store([tile // across * BM, tile % across * BN], acc.to(c.dtype.element_ty))


@pytest.mark.parametrize(("block", "stages", "dtype", "copies"), [
    ((64, 128, 32), 2, "float16", 2), ((128, 256, 64), 3, "float16", 4), ((128, 256, 64), 4, "float16", 4),
    ((128, 256, 64), 3, "float32", 8), ((64, 64, 64), 3, "float32", 2),
])  # fmt: skip
def test_tiles_go_whole_or_in_parts(execute, block, stages, dtype, copies, assemble):
    """Beside the operands' ring there is room for the tile, or for two panels of it, or one."""
    m, n, k = block[0] + 40, block[1] + 32, 2 * block[2] + 16
    rng = np.random.default_rng(9)
    a, b = (rng.integers(-2, 3, s).astype(np.float16) for s in ((m, k), (k, n)))
    arguments = [a, b, np.zeros((m, n), dtype), m, n, k, n - 16]
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype)
    expected[:, n - 16 :] = 0
    constants = dict(zip(("BM", "BN", "BK"), block))
    options = {"num_stages": stages, "num_warps": block[0] // 16}
    for (out,) in execute(persistent, (3,), arguments, constants, outputs=[2], **options):
        np.testing.assert_array_equal(out, expected)
    ptx = persistent.variants[-1].artifact.ptx
    assemble(ptx)
    assert into_memory(ptx) == copies
    in_parts = stages == 4 or dtype == "float32" and block[0] == 128
    assert ("cp.async.bulk.wait_group.read 1;" in ptx) == in_parts


@pytest.mark.parametrize("num_warps", [4, 8])
def test_tokens_leave_warps_that_compute(execute, monkeypatch, num_warps):
    """A partition gives the tokens of the last copies, which are waited for behind it."""
    monkeypatch.setenv("PTXFORGE_VERIFY", "1")
    rng = np.random.default_rng(num_warps)
    a, b = (rng.integers(-2, 3, s).astype(np.float16) for s in ((272, 80), (80, 128)))
    arguments = [a, b, np.zeros((272, 128), np.float16), 272, 128, 80, 128]
    constants = {"BM": 128, "BN": 128, "BK": 32, "APART": True}
    options = {"num_warps": num_warps, "num_stages": 2}
    for (out,) in execute(persistent, (2,), arguments, constants, outputs=[2], **options):
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))
    gpu = persistent.variants[-1].artifact.asm["gpu"]
    assert re.search(r"(%\w+) = partition : token<bulk> .*store_wait \1\n", gpu, re.DOTALL)
