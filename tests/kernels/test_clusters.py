"""Programs of several CTAs (``num_ctas``): what each computes, on every executor; results as with one."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import ArgumentError, DeviceError
from tests.kernels.attentions import softmax_product
from tests.kernels.products import KINDS, every_pair, identify, problem, product

kernels = load("ptxforge")
CTAS = [2, 4]


def compiled(
    kernel, signature: dict, constants: dict, target: str = "sm_90a", **options
) -> ptxforge.Artifact:
    return ptxforge.compile(kernel, signature=signature, constants=constants, target=target, **options)


def complaints(artifact: ptxforge.Artifact) -> list[str]:
    return [remark.message for remark in artifact.remarks if remark.kind == "one-cta-works"]


# -- elementwise ------------------------------------------------------------------------------------------


@ptxforge.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@pytest.mark.parametrize("num_ctas", [2, 4, 8])
@pytest.mark.parametrize("n", [1, 700, 3000])
def test_addition(execute, n, num_ctas):
    rng = np.random.default_rng(n)
    x, y = rng.random(n, np.float32), rng.random(n, np.float32)
    arguments = [x, y, np.zeros(n, np.float32), n]
    for (out,) in execute(add, (-(-n // 256),), arguments, {"BLOCK": 256}, outputs=[2], num_ctas=num_ctas):
        assert np.array_equal(out, x + y)


def test_each_cta_takes_a_part(assemble):
    signature = {"x": "*fp32:16", "y": "*fp32:16", "out": "*fp32:16", "n": "i32:16"}
    artifact = compiled(add, signature, {"BLOCK": 1024}, num_ctas=2)
    assemble(artifact.ptx)
    assert "make_range {start = 0, end = 512}" in artifact.asm["tile"]
    assert ".explicitcluster\n.reqnctapercluster 2, 1, 1" in artifact.ptx
    assert "%clusterid.x" in artifact.ptx and "%ctaid" not in artifact.ptx
    assert artifact.ptx.count("ld.global.v4") == 2
    assert not complaints(artifact)


@ptxforge.jit
def scaled_in_place(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 3 * tl.load(x + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_in_place(execute, num_ctas):
    x = np.arange(1000, dtype=np.float32)
    for (out,) in execute(scaled_in_place, (4,), [x, 1000], {"BLOCK": 256}, outputs=[0], num_ctas=num_ctas):
        assert np.array_equal(out, 3 * x)
    artifact = compiled(scaled_in_place, {"x": "*fp32:16", "n": "i32"}, {"BLOCK": 256}, num_ctas=num_ctas)
    assert not complaints(artifact)


@ptxforge.jit
def grid_of(out, n):
    """The grid counts programs."""
    place = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(out + place, tl.program_id(0) * 100 + tl.program_id(1) * 10 + tl.num_programs(0))


@pytest.mark.parametrize("num_ctas", CTAS)
def test_programs_are_counted_not_ctas(execute, num_ctas):
    for (out,) in execute(grid_of, (3, 2), [np.zeros(6, np.int32), 6], {}, outputs=[0], num_ctas=num_ctas):
        assert out.tolist() == [3, 13, 103, 113, 203, 213]


# -- rows -------------------------------------------------------------------------------------------------


@ptxforge.jit
def row_facts(x, y, sums, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows less their maximum, and their sums; several rows a program."""
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * columns + j[None, :], mask=j[None, :] < columns, other=-1e30)
    tile -= tl.max(tile, 1)[:, None]
    tl.store(y + i[:, None] * columns + j[None, :], tile, mask=j[None, :] < columns)
    tl.store(sums + i, tl.sum(tl.where(j[None, :] < columns, tile, 0.0), 1))


@pytest.mark.parametrize("num_ctas", CTAS)
def test_rows_are_shared_out(execute, num_ctas):
    x = np.random.default_rng(0).integers(-50, 50, (32, 60)).astype(np.float32)
    arguments = [x, np.zeros_like(x), np.zeros(32, np.float32), 60]
    want = x - x.max(1, keepdims=True)
    for y, sums in execute(
        row_facts, (2,), arguments, {"ROWS": 16, "BLOCK": 64}, outputs=[1, 2], num_ctas=num_ctas
    ):
        assert np.array_equal(y, want) and np.array_equal(sums, want.sum(1))
    artifact = compiled(
        row_facts, {"x": "*fp32:16", "y": "*fp32:16", "sums": "*fp32:16", "columns": "i32"},
        {"ROWS": 16, "BLOCK": 64}, num_ctas=num_ctas,
    )  # fmt: skip
    assert f"tensor<{16 // num_ctas}x64xf32>" in artifact.asm["tile"] and not complaints(artifact)


@ptxforge.jit
def column_sums(x, y, total, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A scalar and a tensor that all CTAs hold, stored once."""
    i, j = tl.arange(0, ROWS), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * columns + j[None, :])
    tl.store(y + j, tl.sum(tile, 0))
    tl.store(total + tl.program_id(0), columns * 2)
    tl.store(total + 8 + tl.program_id(0) * ROWS + i, i * 5)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_what_all_ctas_hold_is_stored_once(execute, num_ctas):
    x = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)
    arguments = [x, np.zeros(64, np.float32), np.zeros(24, np.int32), 64]
    for y, total in execute(
        column_sums, (2,), arguments, {"ROWS": 8, "BLOCK": 32}, outputs=[1, 2], num_ctas=num_ctas
    ):
        assert np.array_equal(y, x.sum(0))
        assert total.tolist() == [128, 128, *[0] * 6, *range(0, 40, 5), *range(0, 40, 5)]


@ptxforge.jit
def square(x, out, BLOCK: tl.constexpr):
    """Rows and columns by one range; a transposition, a scan, a reshape and a join."""
    i = tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * BLOCK + i[None, :])
    scanned = tl.cumsum(tl.trans(tile), 1)
    doubled = tl.reshape(tl.join(scanned, -scanned), (BLOCK, 2 * BLOCK))
    tl.store(out + i[:, None] * 2 * BLOCK + tl.arange(0, 2 * BLOCK)[None, :], doubled)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_shapes(execute, num_ctas):
    x = np.random.default_rng(1).integers(-9, 9, (32, 32)).astype(np.int32)
    scanned = np.cumsum(x.T, 1)
    want = np.stack([scanned, -scanned], -1).reshape(32, 64)
    arguments = [x, np.zeros((32, 64), np.int32)]
    for (out,) in execute(square, (1,), arguments, {"BLOCK": 32}, outputs=[1], num_ctas=num_ctas):
        assert np.array_equal(out, want)
    artifact = compiled(square, {"x": "*i32:16", "out": "*i32:16"}, {"BLOCK": 32}, num_ctas=num_ctas)
    assert f"tensor<{32 // num_ctas}x64xi32>" in artifact.asm["tile"] and not complaints(artifact)


@ptxforge.jit
def loops(x, out, n, steps, BLOCK: tl.constexpr):
    """Carried tensors and branches that choose between them."""
    i = tl.arange(0, BLOCK)
    total, pointers = tl.zeros((BLOCK,), tl.float32), x + i
    for step in range(steps):
        if step % 2 == 0:
            value = tl.load(pointers)
        else:
            value = -tl.load(pointers)
        total += value
        pointers += BLOCK
    while n > 0:
        total = total * 2
        n -= 1
    tl.store(out + i, total)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_loops_and_branches(execute, num_ctas):
    x = np.arange(5 * 64, dtype=np.float32).reshape(5, 64)
    want = 8 * (x[0] - x[1] + x[2] - x[3] + x[4])
    arguments = [x, np.zeros(64, np.float32), 3, 5]
    for (out,) in execute(loops, (1,), arguments, {"BLOCK": 64}, outputs=[1], num_ctas=num_ctas):
        assert np.array_equal(out, want)


# -- products ---------------------------------------------------------------------------------------------

AXES = {
    "kind": ("f16", "bf16", "tf32", "i8"),
    "block": ((64, 64, 64), (128, 128, 32), (128, 256, 64), (256, 64, 32)),
    "layout": ("row-row", "row-column", "column-row"),
    "num_warps": (4, 8),
    "num_stages": (2, 3),
    "steps": (1, 3),
    "edges": ("none", "cut", "ragged"),
    "num_ctas": (2, 4),
}
SAMPLE = every_pair(AXES, seed=5)


@pytest.mark.parametrize("point", SAMPLE, ids=lambda p: f"{identify(p)}-{p['num_ctas']}ctas")
def test_product(execute, point):
    arguments, expected, grid, constants, options = problem(point)
    options["num_ctas"] = point["num_ctas"]
    for (out,) in execute(product, grid, arguments, constants, outputs=[2], **options):
        np.testing.assert_array_equal(out, expected.astype(out.dtype))


@pytest.mark.parametrize(
    "block, num_ctas, tile",
    [
        ((128, 256), 2, "128x128"),
        ((256, 128), 2, "128x128"),
        ((128, 256), 4, "64x128"),
        ((256, 256), 4, "128x128"),
    ],
)
def test_the_longest_side_of_a_product_is_cut_first(block, num_ctas, tile, assemble):
    inputs, output, precision = KINDS["f16"]
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "M": "i32", "N": "i32:16", "K": "i32:16",
                 "stride_am": "i32:16", "stride_bk": "i32:16"}  # fmt: skip
    constants = {"stride_ak": 1, "stride_bn": 1, "BLOCK_M": block[0], "BLOCK_N": block[1], "BLOCK_K": 64,
                 "PRECISION": precision, "MASKED": False}  # fmt: skip
    artifact = compiled(product, signature, constants, num_ctas=num_ctas, num_warps=4)
    assemble(artifact.ptx)
    assert (
        f"tensor<{tile}xf32>" in artifact.asm["tile"]
        and f"tensor<{block[0]}x{block[1]}xf32>" not in artifact.asm["tile"]
    )
    assert "wgmma" in artifact.ptx and not complaints(artifact)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("num_ctas", [2])
def test_attention(execute, num_ctas, causal):
    length, dim = 256, 64
    rng = np.random.default_rng(3)
    shape = (1, 2, length, dim)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for _ in range(3))
    scale = dim**-0.5 * 1.4426950408889634
    strides = (2 * length * dim, length * dim, dim)
    arguments = [q, k, v, np.zeros(shape, np.float16), scale, 2, length, *strides]
    constants = {"BLOCK_M": 128, "BLOCK_N": 64, "D": dim, "CAUSAL": causal}
    expected = softmax_product(q, k, v, scale, causal)
    for (out,) in execute(kernels.attention, (length // 128, 2), arguments, constants, outputs=[3],
                          num_warps=4, num_stages=2, num_ctas=num_ctas):  # fmt: skip
        assert np.abs(out.astype(np.float64) - expected).max() < 4e-3


# -- what one CTA does alone ------------------------------------------------------------------------------


@ptxforge.jit
def next_place(counter, out):
    place = tl.atomic_add(counter, 1)
    tl.store(out + place, tl.program_id(0) + 1)


@ptxforge.jit
def whole_sum(x, out, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0), tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0))


@ptxforge.jit
def reversed_in_place(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + (BLOCK - 1 - i))
    tl.debug_barrier()
    tl.store(x + i, value)


@ptxforge.jit
def shifted_in_place(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i + BLOCK))


@pytest.mark.parametrize("num_ctas", CTAS)
def test_atomics_whose_result_counts(execute, num_ctas):
    arguments = [np.zeros(1, np.int32), np.zeros(8, np.int32)]
    for counter, out in execute(next_place, (5,), arguments, {}, outputs=[0, 1], num_ctas=num_ctas):
        assert counter[0] == 5 and sorted(out.tolist()) == [0, 0, 0, 1, 2, 3, 4, 5]
    artifact = compiled(next_place, {"counter": "*i32", "out": "*i32"}, {}, num_ctas=num_ctas)
    assert "no dimension" in complaints(artifact)[0]


@pytest.mark.parametrize("num_ctas", CTAS)
def test_a_sum_of_everything(execute, num_ctas):
    x = np.arange(256, dtype=np.float32)
    arguments = [x, np.zeros(2, np.float32)]
    for (out,) in execute(whole_sum, (2,), arguments, {"BLOCK": 128}, outputs=[1], num_ctas=num_ctas):
        assert np.array_equal(out, x.reshape(2, 128).sum(1))


@pytest.mark.parametrize("kernel", [reversed_in_place, shifted_in_place])
def test_programs_whose_ctas_wait_for_each_other(execute, kernel):
    x = np.arange(128, dtype=np.int32)
    want = (
        np.concatenate([x[63::-1], x[64:]]) if kernel is reversed_in_place else np.concatenate([x[64:]] * 2)
    )
    for (out,) in execute(kernel, (1,), [x], {"BLOCK": 64}, outputs=[0], num_ctas=2):
        assert np.array_equal(out, want)
    artifact = compiled(kernel, {"x": "*i32:16"}, {"BLOCK": 64}, num_ctas=2)
    assert artifact.asm["tile"].count("barrier {of_cluster = true}") == 1 and not complaints(artifact)


@ptxforge.jit
def histogram(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_atomics_of_every_part(execute, num_ctas):
    x = np.random.default_rng(5).integers(0, 10, 600).astype(np.int32)
    arguments = [x, np.zeros(10, np.int32), 600]
    for (out,) in execute(histogram, (3,), arguments, {"BLOCK": 256}, outputs=[1], num_ctas=num_ctas):
        assert np.array_equal(out, np.bincount(x, minlength=10))


# -- launches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_ctas, target, message", [
    (3, "sm_90a", "must be 1, 2, 4 or 8, is 3"), (16, "sm_90a", "must be 1, 2, 4 or 8, is 16"),
    (2, "sm_80", "sm_80 has no clusters"),
])  # fmt: skip
def test_numbers_that_cannot_be(num_ctas, target, message):
    with pytest.raises(ArgumentError, match=message):
        compiled(grid_of, {"out": "*i32", "n": "i32"}, {}, target=target, num_ctas=num_ctas)


def test_an_artifact_is_launched_in_whole_clusters():
    """Who launches the PTX by other means counts CTAs."""
    artifact = compiled(grid_of, {"out": "*i32", "n": "i32"}, {}, num_ctas=2)
    function = EmulatorDevice().load_module(artifact.ptx).function("grid_of")
    with pytest.raises(DeviceError, match=r"the grid \(3, 1, 1\) is no multiple of the cluster"):
        function.launch((3, 1, 1), (128, 1, 1), artifact.shared_bytes, 0, bytes(12))


@ptxforge.jit
def stored_again(x, out, N: tl.constexpr, HALF: tl.constexpr):
    """Rows of out are stored over, by tiles that nothing else connects; with HALF by one of another shape."""
    i = tl.arange(0, N)
    for row in range(4):
        tl.store(out + row * N + i, tl.load(x + row * N + i))
        for other in range(row):
            j = tl.arange(0, N // 2 if HALF else N)
            tl.store(out + other * N + j, tl.load(x + (row + other) % 4 * N + j) + 1)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("num_ctas", CTAS)
def test_what_is_stored_twice(execute, num_ctas, half):
    """Each element by one CTA, so in order; or all meet in between."""
    x = np.arange(256, dtype=np.float32).reshape(4, 64)
    expected = x.copy()
    for row in range(4):
        upto = 32 if half else 64
        expected[:row, :upto] = (x[(row + np.arange(row)) % 4] + 1).reshape(row, 64)[:, :upto]
    constants = {"N": 64, "HALF": half}
    for (out,) in execute(stored_again, (1,), [x, np.zeros_like(x)], constants, outputs=[1],
                          num_ctas=num_ctas, num_warps=1):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("half", [False, True])
def test_ctas_meet_for_tiles_of_different_shapes(half):
    signature = {"x": "*fp32:16", "out": "*fp32:16"}
    made = compile_function(stored_again, signature, {"N": 64, "HALF": half}, num_ctas=2)
    assert made.asm["tile"].count("barrier {of_cluster = true}") == 2 * half and not complaints(made)
