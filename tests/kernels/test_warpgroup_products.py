"""Matrix products by ``wgmma``: types, orders in memory, tiles, warpgroups, stages, edges, on every executor
that is present; which tiles it does, and which it leaves to ``mma.sync``."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from tests.kernels.products import KINDS, compiled_artifact, every_pair, identify, problem, product

AXES = {
    "kind": ("f16", "f16-f16", "bf16", "tf32", "i8", "u8", "e4m3", "e5m2"),
    "block": ((64, 16, 32), (64, 64, 64), (128, 128, 32), (64, 256, 32), (256, 32, 32), (128, 64, 32)),
    "layout": ("row-row", "row-column", "column-row", "column-column"),
    "num_warps": (4, 8),
    "num_stages": (1, 2, 3, 4),
    "steps": (0, 1, 2, 5),
    "edges": ("none", "cut", "ragged"),
}
SAMPLE = every_pair(AXES, seed=3)


@pytest.mark.parametrize("point", SAMPLE, ids=map(identify, SAMPLE))
def test_product(execute, point):
    arguments, expected, grid, constants, options = problem(point)
    for (out,) in execute(product, grid, arguments, constants, outputs=[2], **options):
        np.testing.assert_array_equal(out, expected.astype(out.dtype))


def compiled(kind: str, *block, **options) -> str:
    """The PTX of :func:`compiled_artifact`."""
    return compiled_artifact(kind, *block, **options).ptx


FORMS = {
    "f16": "k16.f32.f16.f16", "f16-f16": "k16.f16.f16.f16", "bf16": "k16.f32.bf16.bf16",
    "tf32": "k8.f32.tf32.tf32", "i8": "k32.s32.s8.s8", "u8": "k32.s32.u8.u8", "e4m3": "k32.f32.e4m3.e4m3",
    "e5m2": "k32.f32.e5m2.e5m2",
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMS)
def test_each_kind_has_its_instruction(kind, assemble):
    ptx = compiled(kind, layout="row-column")
    assemble(ptx)
    depth = int(FORMS[kind][1:].split(".")[0])
    assert ptx.count(f"wgmma.mma_async.sync.aligned.m64n128{FORMS[kind]} ") == 2 * 64 // depth
    assert "mma.sync" not in ptx


@pytest.mark.parametrize(("kind", "layout"), [
    ("i8", "row-row"), ("e4m3", "row-row"), ("i8", "column-column"), ("e4m3", "column-column"),
    ("tf32", "column-row"),
])  # fmt: skip
def test_elements_that_lie_across_k_go_to_the_other_instruction(kind, layout):
    artifact = compiled_artifact(kind, layout=layout)
    assert "wgmma" not in artifact.ptx and "mma.sync" in artifact.ptx
    (remark,) = [remark for remark in artifact.remarks if remark.kind == "not-by-wgmma"]
    assert "across k" in remark.message


@pytest.mark.parametrize("layout", ["row-row", "column-column"])
def test_one_operand_of_words_across_k_comes_through_registers(layout, assemble):
    artifact = compiled_artifact("tf32", layout=layout)
    assemble(artifact.ptx)
    assert "wgmma" in artifact.ptx and "mma.sync" not in artifact.ptx
    assert not [remark for remark in artifact.remarks if remark.kind == "not-by-wgmma"]


@pytest.mark.parametrize(("block", "num_warps"), [
    ((32, 128, 64), 4), ((64, 8, 64), 4), ((64, 16, 64), 8), ((128, 128, 64), 2),
])  # fmt: skip
def test_small_tiles_go_to_the_other_instruction(block, num_warps):
    ptx = compiled("f16", block=block, num_warps=num_warps)
    assert "wgmma" not in ptx and "mma.sync" in ptx


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_other_targets_know_nothing_of_it(target):
    ptx = compiled("f16", target=target)
    assert "wgmma" not in ptx and "mma.sync" in ptx


def test_products_run_on_into_the_next_iteration():
    """All but the newest group are waited for in the loop, everything behind it."""
    ptx = compiled("f16", (128, 256, 64), num_warps=8)
    waits = [line.split()[1] for line in ptx.splitlines() if "wgmma.wait_group" in line]
    assert waits == ["1;", "0;"]


@ptxforge.jit
def two_sums(a, b, c, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """a @ b + 2 (a @ c): two accumulators in one loop."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    first = tl.zeros((BM, BN), tl.float32)
    second = tl.full((BM, BN), 1.0, tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + start + k[None, :])
        first = tl.dot(x, tl.load(b + (start + k)[:, None] * BN + j[None, :]), first)
        second = tl.dot(x, tl.load(c + (start + k)[:, None] * BN + j[None, :]), second)
    tl.store(out + i[:, None] * BN + j[None, :], first + 2 * second)


@pytest.mark.parametrize("num_stages", [2, 3])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_two_sums_in_one_loop(execute, steps, num_stages):
    rng = np.random.default_rng(0)
    m, n, k = 64, 64, 32 * steps
    a = rng.integers(-3, 4, (m, max(k, 1))).astype(np.float16)
    b, c = (rng.integers(-3, 4, (max(k, 1), n)).astype(np.float16) for _ in range(2))
    expected = a[:, :k].astype(np.float32) @ b[:k] + 2 * (a[:, :k].astype(np.float32) @ c[:k] + 1)
    arguments = [a, b, c, np.zeros((m, n), np.float32), k]
    for (out,) in execute(two_sums, (1,), arguments, {"BM": m, "BN": n, "BK": 32}, outputs=[3],
                          num_warps=4, num_stages=num_stages):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def along_k(a, b, c, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr):
    """a @ bᵀ, one tile, both operands along k."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + j[:, None] * K + k[None, :])
    tl.store(c + i[:, None] * BN + j[None, :], tl.dot(x, y.T, out_dtype=c.dtype.element_ty))


@pytest.mark.parametrize("n", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("kind", FORMS)
def test_every_width_of_every_kind(execute, kind, n):
    """Each form of the instruction on every executor."""
    inputs, output, _ = KINDS[kind]
    rng = np.random.default_rng(n)
    depth = 64 // np.dtype(inputs).itemsize
    low = 0 if kind == "u8" else -3
    a, b = (rng.integers(low, 4, (rows, depth)).astype(inputs) for rows in (64, n))
    expected = a.astype(output) @ b.astype(output).T
    blocks = {"BM": 64, "BN": n, "K": depth}
    for (out,) in execute(along_k, (1,), [a, b, np.zeros((64, n), output)], blocks, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(out, expected)
    assert "wgmma" in along_k.variants[-1].artifact.ptx


@ptxforge.jit
def chained(a, b, c, out, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    """(a @ b) @ c: the first result is the second one's operand in registers."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * K + k[None, :])
    z = tl.load(c + k[:, None] * N + j[None, :])
    tl.store(out + i[:, None] * N + j[None, :], tl.dot(tl.dot(x, y).to(tl.float16), z))


@pytest.mark.parametrize(("m", "num_warps"), [(64, 4), (128, 8), (128, 4)])
def test_result_is_the_next_operand(execute, m, num_warps):
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, 32), (32, 32), (32, 64)))
    expected = a.astype(np.float32) @ b @ c
    for (out,) in execute(chained, (1,), [a, b, c, np.zeros((m, 64), np.float32)],
                          {"M": m, "K": 32, "N": 64}, outputs=[3], num_warps=num_warps):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


# -- tiles copied by TMA ----------------------------------------------------------------------------------


@ptxforge.jit
def wrapped_rows(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr):
    """a @ b, where tiles beyond the edges read rows from the beginning again. SUM: the column sums, which
    such rows would enter."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x = a + (i % M)[:, None] * K + k[None, :]
    y = b + k[:, None] * N + (j % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, tl.cdiv(K, BK)):
        inside = k < K - start * BK
        left = tl.load(x, mask=inside[None, :], other=0.0)
        right = tl.load(y, mask=inside[:, None], other=0.0)
        acc = tl.dot(left, right, acc)
        x += BK
        y += BK * N
    if SUM:
        tl.store(c + j, tl.sum(acc, 0), mask=j < N)
    else:
        tl.store(c + i[:, None] * N + j[None, :], acc, mask=(i < M)[:, None] & (j < N)[None, :])


def maps_of(kernel) -> list[str]:
    """Of the operands."""
    return [recipe.base for recipe in kernel.variants[-1].artifact.tensor_maps if recipe.base != "c"]


@pytest.mark.parametrize("shape", [(64, 64, 64), (80, 112, 48), (16, 16, 16), (128, 208, 176)], ids=str)
def test_rows_that_wrap_are_not_stored(execute, shape):
    m, n, k = shape
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    grid = (-(-m // 64), -(-n // 64))
    blocks = {"BM": 64, "BN": 64, "BK": 32, "SUM": False}
    for (out,) in execute(wrapped_rows, grid, [a, b, np.zeros((m, n), np.float32), m, n, k], blocks,
                          outputs=[2], num_warps=4, num_stages=3):  # fmt: skip
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b)
    assert sorted(maps_of(wrapped_rows)) == ["a", "b"]


@ptxforge.jit
def wrapped_and_added(a, b, c, M, BM: tl.constexpr, K: tl.constexpr, HOW: tl.constexpr):
    """a @ b, added to c; rows beyond the end are those from the beginning again."""
    i, j, k = tl.arange(0, BM), tl.arange(0, 64), tl.arange(0, 32)
    acc = tl.zeros((BM, 64), tl.float32)
    for start in range(0, K, 32):
        left = tl.load(a + (i % M)[:, None] * K + (start + k)[None, :])
        acc = tl.dot(left, tl.load(b + (start + k)[:, None] * 64 + j[None, :]), acc)
    if HOW == "assembly":
        acc = tl.inline_asm_elementwise("mov.f32 $0, $1;", "=f,f", [acc], tl.float32, False, 1)
    rows = BM if HOW == "everywhere" else M
    old = tl.atomic_add(c + i[:, None] * 64 + j[None, :], acc, mask=(i < rows)[:, None])
    if HOW == "old":
        tl.store(c + (BM + i)[:, None] * 64 + j[None, :], old)


@pytest.mark.parametrize(("how", "maps"), [
    ("masked", ["a", "b"]), ("old", ["a", "b"]), ("everywhere", ["b"]), ("assembly", ["b"])
])  # fmt: skip
def test_rows_that_wrap_and_are_added_to_memory(execute, how, maps):
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((48, 64), (64, 64)))
    c = rng.integers(-3, 4, (128, 64)).astype(np.float32)
    rows = np.arange(64 if how == "everywhere" else 48)
    expected = c.copy()
    expected[rows] += a[rows % 48].astype(np.float32) @ b
    if how == "old":
        expected[64:112], expected[112:] = c[:48], 0
    kernel = ptxforge.jit(wrapped_and_added.fn)
    for (out,) in execute(kernel, (1,), [a, b, c, 48], {"BM": 64, "K": 64, "HOW": how}, outputs=[2]):
        np.testing.assert_array_equal(out, expected)
    assert sorted(maps_of(kernel)) == maps


@ptxforge.jit
def padded_rows(a, b, c, M, N, K, stride_a, stride_b, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """a @ b of any size, whose rows are apart by more than they hold."""
    i, j, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x = a + (i % M)[:, None] * stride_a + k[None, :]
    y = b + k[:, None] * stride_b + (j % N)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inside = k < K - start
        left = tl.load(x, mask=inside[None, :], other=0.0)
        right = tl.load(y, mask=inside[:, None], other=0.0)
        acc = tl.dot(left, right, acc)
        x += BK
        y += BK * stride_b
    tl.store(c + i[:, None] * N + j[None, :], acc, mask=(i < M)[:, None] & (j < N)[None, :])


@pytest.mark.parametrize("shape", [(65, 33, 77), (127, 51, 64), (2, 2, 2)], ids=str)
def test_rows_need_be_aligned_only_where_they_begin(execute, shape):
    """The tiles run ahead, although no thread could copy more than an element of them at once."""
    m, n, k = shape
    rng = np.random.default_rng(8)
    a = rng.integers(-3, 4, (m, 80)).astype(np.float16)
    b = rng.integers(-3, 4, (k, 64)).astype(np.float16)
    arguments = [a, b, np.zeros((m, n), np.float32), m, n, k, 80, 64]
    for (out,) in execute(padded_rows, (-(-m // 64),), arguments, {"BM": 64, "BN": 64, "BK": 32},
                          outputs=[2], num_warps=4, num_stages=3):  # fmt: skip
        np.testing.assert_array_equal(out, a[:, :k].astype(np.float32) @ b[:, :n])
    assert sorted(maps_of(padded_rows)) == ["a", "b"]
    remarks = [remark.explain() for remark in padded_rows.variants[-1].artifact.remarks]
    assert not [remark for remark in remarks if "tl.load" in remark]


def test_rows_that_wrap_into_a_sum_are_read_by_pointers(execute):
    m, n, k = 48, 64, 32
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    wrapped = np.concatenate([a, a[: 64 - m]]).astype(np.float32)
    for (out,) in execute(wrapped_rows, (1, 1), [a, b, np.zeros(n, np.float32), m, n, k],
                          {"BM": 64, "BN": 64, "BK": 32, "SUM": True}, outputs=[2], num_warps=4,
                          num_stages=3):  # fmt: skip
        np.testing.assert_array_equal(out, (wrapped @ b).sum(0))
    assert maps_of(wrapped_rows) == ["b"]


def test_arguments_that_make_no_tensor_are_read_by_pointers(emulator):
    """K = 0: no tensor map has a size of 0, and there is nothing to read."""
    a, b = (ptxforge.to_device(np.ones((64, 64), np.float16), emulator) for _ in range(2))
    c = ptxforge.to_device(np.ones((64, 64), np.float32), emulator)
    blocks = {"BM": 64, "BN": 64, "BK": 32, "SUM": False}
    kernel = ptxforge.compile(wrapped_rows.fn)
    for k, expected in ((64, 64.0), (0, 0.0), (64, 64.0)):
        kernel[(1, 1)](a, b, c, 64, 64, k, **blocks, num_warps=4, num_stages=3)
        np.testing.assert_array_equal(c.numpy(), np.full((64, 64), expected))
    feeds = [bool(variant.artifact.tensor_maps) for variant in kernel.variants]
    assert feeds == [True, False]


def test_both_variants_are_compiled_beforehand(emulator):
    """The one for arguments that make no tensor map is there when compiling is forbidden."""
    a, b = (ptxforge.to_device(np.ones((64, 64), np.float16), emulator) for _ in range(2))
    c = ptxforge.to_device(np.ones((64, 64), np.float32), emulator)
    kernel = ptxforge.compile(wrapped_rows.fn)
    declared = {"a": a, "b": b, "c": c, "M": 64, "N": 64, "K": 64, "BM": 64, "BN": 64, "BK": 32, "SUM": False}
    with ptxforge.use_device(emulator):
        (made,) = kernel.precompile([declared | {"num_warps": 4}])
    assert made.artifact.tensor_maps and len(kernel.variants) == 2
    assert kernel.variants.why(1) == "as 0, but option 'tensor_maps': False instead of True"
    with ptxforge.forbid_jit():
        for k in (64, 0):
            sizes = {name: declared[name] for name in ("BM", "BN", "BK", "SUM")}
            kernel[(1, 1)](a, b, c, 64, 64, k, **sizes, num_warps=4)
            np.testing.assert_array_equal(c.numpy(), np.full((64, 64), k))
    assert len(kernel.variants) == 2


def test_a_bound_launch_makes_maps_of_what_it_is_given(emulator):
    a, b, other = (ptxforge.to_device(np.full((64, 64), x, np.float16), emulator) for x in (1, 2, 3))
    c = ptxforge.to_device(np.ones((64, 64), np.float32), emulator)
    kernel = ptxforge.compile(wrapped_rows.fn)
    bound = kernel.bind((1, 1), a, b, c, 64, 64, 64, BM=64, BN=64, BK=32, SUM=False, num_warps=4)
    steps = (({}, 128), ({"a": other}, 384), ({"K": 32}, 192), ({"K": 0}, 0), ({"K": 64}, 384))
    for changed, expected in steps:
        bound.update(**changed)
        bound()
        np.testing.assert_array_equal(c.numpy(), np.full((64, 64), expected))
    assert [bool(variant.artifact.tensor_maps) for variant in kernel.variants] == [True, False]


def test_without_tensor_maps_when_they_are_refused(execute):
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, (64, 64)).astype(np.float16) for _ in range(2))
    blocks = {"BM": 64, "BN": 64, "BK": 32, "SUM": False}
    for (out,) in execute(wrapped_rows, (1, 1), [a, b, np.zeros((64, 64), np.float32), 64, 64, 64], blocks,
                          outputs=[2], num_warps=4, tensor_maps=False):  # fmt: skip
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b)
    assert maps_of(wrapped_rows) == []


@ptxforge.jit
def batched(a, b, c, heads, stride_b, stride_h, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product for each batch and head, the tiles of the second operand from two loops, one behind the
    other."""
    start = tl.program_id(1) * BM
    batch, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    offset = batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h
    i, j, k = start + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x = a + offset + i[:, None] * K + k[None, :]
    y = b + offset + j[:, None] * K + k[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, start, BK):
        acc = tl.dot(tl.load(x), tl.trans(tl.load(y)), acc)
        x += BK
        y += BK
    for _ in range(start, K, BK):
        acc = tl.dot(tl.load(x), tl.trans(tl.load(y)), acc)
        x += BK
        y += BK
    at = c + tl.program_id(0) * K * BN + i[:, None] * BN + j[None, :]
    tl.store(at, acc)


def test_heads_and_batches_are_dimensions(execute):
    rng = np.random.default_rng(4)
    a = rng.integers(-3, 4, (2, 3, 128, 128)).astype(np.float16)
    b = rng.integers(-3, 4, (2, 3, 128, 128)).astype(np.float16)
    expected = a.astype(np.float32) @ b[:, :, :64].swapaxes(-1, -2).astype(np.float32)
    arguments = [a, b, np.zeros((6, 128, 64), np.float32), 3, 3 * 128 * 128, 128 * 128, 128]
    for (out,) in execute(batched, (6, 2), arguments, {"BM": 64, "BN": 64, "BK": 32}, outputs=[2],
                          num_warps=4, num_stages=3):  # fmt: skip
        np.testing.assert_array_equal(out, expected.reshape(6, 128, 64))
    artifact = batched.variants[-1].artifact
    recipes = artifact.tensor_maps
    assert {recipe.base for recipe in recipes} == {"a", "b"}
    assert not [remark for remark in artifact.remarks if remark.kind == "not-by-tma"]
    assert all(len(recipe.shape) == 4 for recipe in recipes)


@ptxforge.jit
def backwards(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of a @ bᵀ, the last block first; two loops multiply what stands before the block's number along
    k, and the rest."""
    start = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM
    i, j, k = start + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x = a + i[:, None] * K + k[None, :]
    y = b + j[:, None] * K + k[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, start, BK):
        acc = tl.dot(tl.load(x), tl.trans(tl.load(y)), acc)
        x += BK
        y += BK
    for _ in range(start, K, BK):
        acc = tl.dot(tl.load(x), tl.trans(tl.load(y)), acc)
        x += BK
        y += BK
    tl.store(c + i[:, None] * BN + j[None, :], acc)


def test_programs_that_count_backwards_are_fed_by_tma(execute):
    """``num_programs - 1 - program_id`` is not negative, so the first loop ends where the second begins."""
    rng = np.random.default_rng(6)
    a = rng.integers(-3, 4, (128, 128)).astype(np.float16)
    b = rng.integers(-3, 4, (64, 128)).astype(np.float16)
    arguments, blocks = [a, b, np.zeros((128, 64), np.float32), 128], {"BM": 64, "BN": 64, "BK": 32}
    for (out,) in execute(backwards, (2,), arguments, blocks, outputs=[2], num_warps=4, num_stages=3):
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.T)
    assert sorted(maps_of(backwards)) == ["a", "b"]
    remarks = backwards.variants[-1].artifact.remarks
    assert not [remark for remark in remarks if remark.kind == "not-by-tma"]


@ptxforge.jit
def twice(q, k, v, out, n, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """q @ (k[0] + k[1] + …)ᵀ + q @ (v[0] + v[1] + …)ᵀ, a loop for each."""
    i, j, d = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    rows = tl.load(q + i[:, None] * D + d[None, :])
    acc = tl.zeros((BM, BN), tl.float32)
    for block in range(n):
        acc = tl.dot(rows, tl.load(k + (block * BN + j)[None, :] * D + d[:, None]), acc)
    for block in range(n):
        acc = tl.dot(rows, tl.load(v + (block * BN + j)[None, :] * D + d[:, None]), acc)
    tl.store(out + i[:, None] * BN + j[None, :], acc)


def test_two_products_share_an_operand_in_shared_memory(execute):
    rng = np.random.default_rng(7)
    q = rng.integers(-3, 4, (64, 64)).astype(np.float16)
    k, v = (rng.integers(-3, 4, (3 * 64, 64)).astype(np.float16) for _ in range(2))
    expected = q.astype(np.float32) @ (k + v).reshape(3, 64, 64).sum(0).astype(np.float32).T
    for (out,) in execute(twice, (1,), [q, k, v, np.zeros((64, 64), np.float32), 3],
                          {"BM": 64, "BN": 64, "D": 64}, outputs=[3], num_warps=4, num_stages=3):  # fmt: skip
        np.testing.assert_array_equal(out, expected)
    tile = 64 * 64 * 2
    shared = twice.variants[-1].artifact.shared_bytes
    assert shared < (1 + 3 + 1) * tile, "the left operand once, a ring of three"


@ptxforge.jit
def by_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """a @ bᵀ through tensor descriptors."""
    x = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    y = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    z = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(x.load([i, k]), y.load([j, k]).T, acc)
    z.store([i, j], acc)


@pytest.mark.parametrize("shape", [(64, 64, 64), (80, 112, 48), (144, 16, 16)], ids=str)
def test_descriptors_are_tensor_maps(execute, shape):
    m, n, k = shape
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (n, k)))
    grid, arguments = (-(-m // 64), -(-n // 64)), [a, b, np.zeros((m, n), np.float32), m, n, k]
    for (out,) in execute(by_descriptors, grid, arguments, {"BM": 64, "BN": 64, "BK": 32}, outputs=[2],
                          num_warps=4, num_stages=3):  # fmt: skip
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.T)
    assert sorted(maps_of(by_descriptors)) == ["a", "b"]


@ptxforge.jit
def hinted(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile of a @ b, whose loads say what caches shall keep."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + start + k[None, :], eviction_policy="evict_first")
        y = tl.load(b + (start + k)[:, None] * BN + j[None, :], eviction_policy="evict_last")
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * BN + j[None, :], acc)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_copies_have_no_hint_for_the_cache(target, assemble):
    """Assemblers for sm_90 drop the policy and keep the copy that reads it."""
    artifact = ptxforge.compile(
        hinted, signature={"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "K": "i32:16"},
        constants={"BM": 64, "BN": 64, "BK": 32}, target=target, tensor_maps=False,
    )  # fmt: skip
    assemble(artifact.ptx)
    copies = [line for line in artifact.ptx.splitlines() if "cp.async.c" in line]
    assert copies and not any("cache_hint" in line for line in copies)


@ptxforge.jit
def scaled_first(a, b, c, done, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WRITE: tl.constexpr):
    """One tile of a @ bᵀ. WRITE: "a": its rows are doubled in memory before; else what the program asks
    before it reads: an atomic, a volatile load, assembly, the kernel before this one."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    scale = 1
    if WRITE == "a":
        for start in range(0, K, BK):
            at = a + i[:, None] * K + start + k[None, :]
            tl.store(at, tl.load(at) * 2)
        tl.debug_barrier()
    if WRITE == "flag":
        scale = tl.atomic_add(done, 1) + 1
    if WRITE == "volatile":
        while tl.load(done, volatile=True) > 0:
            scale = 0
    if WRITE == "assembly":
        tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [scale], dtype=tl.int32, is_pure=False, pack=1)
    if WRITE == "kernel":
        tl.extra.cuda.gdc_wait()
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + start + k[None, :])
        y = tl.load(b + j[:, None] * K + start + k[None, :])
        acc = tl.dot(x, y.T, acc)
    tl.store(c + i[:, None] * BN + j[None, :], acc * scale)


@pytest.mark.parametrize(("write", "feeds"), [
    ("", ["a", "b"]), ("a", []), ("flag", []), ("volatile", []), ("assembly", []),
    ("kernel", ["a", "b"])])  # fmt: skip
def test_what_the_kernel_has_written_is_read_by_pointers(execute, write, feeds):
    """Of both: b may be the same tensor as a."""
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-3, 4, (64, 64)).astype(np.float16) for _ in range(2))
    expected = a.astype(np.float32) @ b.T * (2 if write == "a" else 1)
    arguments = [a, b, np.zeros((64, 64), np.float32), np.zeros(1, np.int32), 64]
    constants = {"BM": 64, "BN": 64, "BK": 32, "WRITE": write}
    for (out,) in execute(scaled_first, (1,), arguments, constants, outputs=[2], num_warps=4,
                          num_stages=3):  # fmt: skip
        np.testing.assert_array_equal(out, expected)
    assert sorted(maps_of(scaled_first)) == feeds


@ptxforge.jit
def from_the_last(
    a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """a @ b[::-1], by blocks, from the last one on."""
    i, j, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        rows = K - BK - start + k
        x = tl.load(a + i[:, None] * K + (start + k)[None, :])
        if MASKED:
            y = tl.load(b + rows[:, None] * N + j[None, :], mask=rows[:, None] < K, other=0.0)
        else:
            y = tl.load(b + rows[:, None] * N + j[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * N + j[None, :], acc)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("columns", [64, 1])
def test_rows_from_the_last_to_the_first(execute, masked, columns):
    """Their distance is a parameter, or a number."""
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 128), (128, 64)))
    constants = {"BM": 64, "BN": 64, "BK": 32, "MASKED": masked} | ({"N": 64} if columns == 1 else {})
    arguments = [a, b, np.zeros((64, 64), np.float32), 128, *([64] if columns > 1 else [])]
    want = a.astype(float) @ b.reshape(4, 32, 64)[::-1].reshape(128, 64).astype(float)
    for (out,) in execute(from_the_last, (1,), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, want)


@ptxforge.jit
def from_indices(x, y, out, STEPS: tl.constexpr):
    i, k = tl.arange(0, 64), tl.arange(0, 32)
    acc = i[:, None] - i[None, :]
    s = 0
    while s < STEPS * 32:
        a = tl.load(x + i[:, None] * 128 + s + k[None, :])
        b = tl.load(y + i[None, :] * 128 + s + k[:, None])
        acc = tl.dot(a, b, acc * -1)
        s += 32
    tl.store(out + i[:, None] * 64 + i[None, :], acc)


@pytest.mark.parametrize("steps", [1, 4])
def test_sums_that_begin_as_sums_of_indices(execute, steps):
    """What is not in registers yet is computed before the products add to it."""
    x, y = np.random.default_rng(1).integers(-8, 8, (2, 64, 128)).astype(np.int8)
    index = np.arange(64, dtype=np.int32)
    expected = index[:, None] - index
    for s in range(0, steps * 32, 32):
        expected = x[:, s : s + 32].astype(np.int32) @ y[:, s : s + 32].T - expected
    out = np.zeros((64, 64), np.int32)
    for (found,) in execute(from_indices, (1,), [x, y, out], {"STEPS": steps}, outputs=[2]):
        np.testing.assert_array_equal(found, expected)
