"""Products by ``wgmma`` that run on into the next iteration although their tiles do not lie in a ring of
buffers: the left operand passes through registers, or threads store the tiles; on every executor that is
present."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from tests.kernels.assembly import schedule


@ptxforge.jit
def product(
    a, b, c, K, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    WIDEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """2 + a @ b, one operand perhaps narrow (WIDEN) and widened; one tile for each program."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.full((BM, BN), 2.0, tl.float32)
    for start in tl.range(0, K, BK, num_stages=STAGES):
        x = tl.load(a + i[:, None] * stride_a + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * stride_b + j[None, :])
        if WIDEN == "a":
            x = x.to(y.dtype)
        if WIDEN == "b":
            y = y.to(x.dtype)
        acc = tl.dot(x, y, acc, input_precision="tf32")
    tl.store(c + i[:, None] * stride_c + j[None, :], acc)


def draw(m: int, n: int, k: int, left, right, rows: int = 0) -> tuple[np.ndarray, ...]:
    """Small integers, which every type here holds; rows of ``a`` and ``b`` take ``rows`` elements more."""
    rng = np.random.default_rng(m + n + k)
    a = rng.integers(-4, 5, (m, k + rows)).astype(left)
    b = rng.integers(-4, 5, (k, n + rows)).astype(right)
    return a, b, np.zeros((m, n), np.float32)


def run(execute, a, b, c, k: int, block: tuple[int, int, int], widen="", stages=3, num_warps=4) -> None:
    bm, bn, bk = block
    (m, n) = c.shape
    arguments = (a, b, c, k, a.shape[1], b.shape[1], c.shape[1])
    constants = {"BM": bm, "BN": bn, "BK": bk, "WIDEN": widen, "STAGES": stages}
    expected = 2 + a[:, :k].astype(np.float32) @ b[:, :n].astype(np.float32)
    grid = (m // bm, n // bn)
    for (out,) in execute(product, grid, arguments, constants, outputs=[2], num_warps=num_warps):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_words_across_k(execute, steps, stages, num_warps):
    """The roles are exchanged: b passes through registers, and the sum is carried transposed."""
    a, b, c = draw(128, 128, 32 * steps, np.float32, np.float32)
    run(execute, a, b, c, 32 * steps, (128, 128, 32), stages=stages, num_warps=num_warps)


@pytest.mark.parametrize("block", [(64, 64, 16), (64, 128, 64), (128, 256, 32), (256, 128, 32)], ids=str)
def test_tiles(execute, block):
    a, b, c = draw(256, 256, 192, np.float32, np.float32)
    run(execute, a, b, c, 192, block, num_warps=8 if 256 in block else 4)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(("left", "right", "m", "num_warps"), [
    (np.int8, np.float16, 64, 4),
    (np.float16, np.int8, 64, 4),
    (ml_dtypes.bfloat16, np.int8, 256, 8),
])  # fmt: skip
def test_what_is_widened_in_registers(execute, left, right, m, num_warps, steps):
    a, b, c = draw(m, 128, 64 * steps, left, right)
    widen = "a" if left is np.int8 else "b"
    run(execute, a, b, c, 64 * steps, (m, 128, 64), widen=widen, num_warps=num_warps)


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_tiles_that_threads_store(execute, steps, stages):
    """Rows of an odd number of elements are copied by neither TMA nor cp.async."""
    k = 64 * steps
    a, b, c = draw(128, 128, k, np.float16, np.float16, rows=1)
    run(execute, a, b, c, k, (64, 128, 64), stages=stages)


def compiled(
    left: str, right: str, integer: str, block, widen="", stages=3, num_warps=8
) -> ptxforge.Artifact:
    signature = {"a": f"*{left}:16", "b": f"*{right}:16", "c": "*fp32:16", "K": integer}
    signature |= {name: integer for name in ("stride_a", "stride_b")} | {"stride_c": "i32:16"}
    constants = dict(zip(("BM", "BN", "BK"), block)) | {"WIDEN": widen, "STAGES": stages}
    return ptxforge.compile(
        product, signature=signature, constants=constants, target="sm_90a", num_warps=num_warps
    )


@pytest.mark.parametrize(("left", "right", "block", "widen"), [
    ("fp32", "fp32", (128, 256, 32), ""),
    ("i8", "fp16", (128, 128, 64), "a"),
    ("fp16", "i8", (128, 128, 64), "b"),
])  # fmt: skip
def test_parts_follow_each_other(left, right, block, widen, assemble):
    """One part multiplies while the registers of the other are filled, across iterations."""
    artifact = compiled(left, right, "i32:16", block, widen)
    assemble(artifact.ptx)
    assert schedule(artifact.ptx) == ["wait 1", "start", "wait 1", "start", "wait 0"]
    (remark,) = [r.message for r in artifact.remarks if r.kind == "product"]
    assert "through registers" in remark and "in flight across iterations" in remark


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_programs_that_walk_over_tiles(few, execute, steps):
    a, b, c = draw(512, 256, 64 * steps, ml_dtypes.bfloat16, np.int8)
    run(execute, a, b, c, 64 * steps, (256, 128, 64), widen="b", num_warps=8)


def test_copies_of_the_next_tile(assemble):
    """They start while the last parts of this one multiply."""
    artifact = compiled("bf16", "i8", "i32:16", (256, 128, 64), "b", num_warps=8)
    assemble(artifact.ptx)
    assert any(r.kind == "persistent" for r in artifact.remarks)
    inner = artifact.ptx[artifact.ptx.rindex("wgmma.commit_group") :]
    assert inner.index("cp.async.bulk.tensor") < inner.index("wgmma.wait_group.sync.aligned 0")


@pytest.mark.parametrize(("block", "num_warps", "stages"), [
    ((128, 256, 64), 8, 1),  # no stages
    ((128, 128, 64), 4, 3),  # no registers
])  # fmt: skip
def test_loads_are_under_way_while_the_last_product_is(block, num_warps, stages, assemble):
    artifact = compiled("fp16", "fp16", "i32", block, stages=stages, num_warps=num_warps)
    assemble(artifact.ptx)
    assert schedule(artifact.ptx) == ["wait 0", "store", "start", "wait 0"]
    body = artifact.ptx[artifact.ptx.index("wgmma.wait_group") :]
    assert "ld.global" not in body[: body.index("wgmma.commit_group")]


KINDS = "ld.global", "st.shared", "bar.sync", "wgmma.wait"


def loads_and_stores(ptx: str) -> list[str]:
    """Which the loop has before its product begins, runs of one kind as one, and its barriers."""
    body = ptx[: ptx.index("wgmma.commit_group")]
    found = []
    for line in body[body.rindex("$for_") :].splitlines():
        kind = next((name for name in KINDS if name in line), None)
        found += [kind] if kind and found[-1:] != [kind] else []
    return found


@pytest.mark.parametrize("block", [(128, 256, 64), (256, 128, 32), (128, 128, 32)], ids=str)
def test_loads_of_the_next_tile_are_under_way_while_threads_meet(block, assemble):
    """Of two tiles that threads store, one is loaded an iteration ahead, between the stores of both."""
    artifact = compiled("fp16", "fp16", "i32", block, num_warps=8 if 256 in block else 4)
    assemble(artifact.ptx)
    assert loads_and_stores(artifact.ptx) == [
        "ld.global", "st.shared", "ld.global", "st.shared", "wgmma.wait", "bar.sync"
    ]  # fmt: skip
    late = [r.message for r in artifact.remarks if r.kind == "not-pipelined"]
    assert [named in late[0] for named in ("'a'", "'b'")] == [block[0] >= block[1], block[0] < block[1]]
    assert len(late) == 1


@ptxforge.jit
def masked_product(a, b, c, K, stride_a, stride_b, BM: tl.constexpr, BK: tl.constexpr, MARK: tl.constexpr):
    """a @ b, both masked along k, and b by ones; MARK overwrites b, which the next iteration loads."""
    i = tl.arange(0, BM)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        x = tl.load(a + i[:, None] * stride_a + (start + k)[None, :], mask=inside[None, :], other=0)
        y = tl.load(b + (start + k)[:, None] * stride_b + i[None, :], mask=inside[:, None], other=1)
        if MARK:
            tl.store(b + (start + BK + k)[:, None] * stride_b + i[None, :], y)
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * BM + i[None, :], acc)


@pytest.mark.parametrize("k", [1, 32, 100])
def test_masks_of_what_runs_ahead(execute, k):
    a, b, c = draw(128, 128, k, np.float16, np.float16, rows=1)
    expected = a[:, :k].astype(np.float32) @ b[:, :128].astype(np.float32)
    arguments, constants = (a, b, c, k, a.shape[1], b.shape[1]), {"BM": 128, "BK": 32, "MARK": False}
    for (out,) in execute(masked_product, (1,), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("mark", [False, True])
def test_what_the_loop_writes_is_not_loaded_ahead(mark):
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16"}
    signature |= dict.fromkeys(("K", "stride_a", "stride_b"), "i32")
    constants = {"BM": 128, "BK": 32, "MARK": mark}
    artifact = ptxforge.compile(masked_product, signature=signature, constants=constants, target="sm_90a")
    assert ("2 stages" in next(r.message for r in artifact.remarks if r.kind == "product")) is not mark
