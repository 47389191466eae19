"""Matrix products: every element type, layout, number of warps, stages and iterations, on every executor.

Two kinds of data. Small integers, of which all products and sums are exact in every accumulator: results must
equal those of float64, so that one misplaced element is seen. And random reals, whose error is bounded by the
roundings of operands and sums.

The matrix of :data:`AXES` has some ten thousand points. Without a GPU a sample runs in which every pair of
values of two axes meets at least once; ``--device cuda`` adds the whole matrix, on the GPU alone.
"""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from ptxforge.driver.cuda import cuda_device
from ptxforge.support import dtypes
from tests.kernels.conftest import specialized
from tests.kernels.products import KINDS, every_pair, identify, integers, problem, product

kernels = load("ptxforge")

# -- the matrix -------------------------------------------------------------------------------------------

AXES = {
    "kind": tuple(KINDS),
    "block": ((16, 16, 32), (32, 64, 32), (64, 32, 64), (128, 64, 32)),
    "layout": ("row-row", "row-column", "column-row", "column-column"),
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1, 2, 3, 4),
    "steps": (0, 1, 2, 5),
    "edges": ("none", "cut", "ragged"),
}
"""``edges``: sizes are multiples of the blocks; of 16, so that masked copies may be wide; of nothing."""

SAMPLE = every_pair(AXES)


def test_the_sample_has_every_pair():
    for one, other in itertools.combinations(AXES, 2):
        met = {(point[one], point[other]) for point in SAMPLE}
        assert met == set(itertools.product(AXES[one], AXES[other]))


@pytest.mark.parametrize("point", SAMPLE, ids=map(identify, SAMPLE))
def test_product(execute, point):
    arguments, expected, grid, constants, options = problem(point)
    for (out,) in execute(product, grid, arguments, constants, outputs=[2], **options):
        np.testing.assert_array_equal(out, expected.astype(out.dtype))


@pytest.mark.parametrize("point", SAMPLE, ids=map(identify, SAMPLE))
def test_product_on_ampere(emulator, assemble, point):
    """By ``mma.sync`` and ``cp.async``, which sm_90a seldom needs; with less shared memory. Instructions that
    are those for sm_90a have been run by the test above: ``ptxas`` alone sees them here."""
    most = 3 if point["kind"] == "f64" else 4
    smaller = point | {"num_stages": min(point["num_stages"], most)}
    arguments, expected, grid, constants, options = problem(smaller)
    _, signature, fixed = specialized(product, arguments, constants)
    ampere, hopper = (
        compile_function(product, signature, fixed, target, **options).ptx for target in ("sm_80", "sm_90a")
    )
    assert ".target sm_80" in ampere
    if smaller == point and instructions(ampere) == instructions(hopper):
        assemble(ampere)
        return
    emulator.target = "sm_80"
    x, y, out = (ptxforge.to_device(v, emulator) for v in arguments[:3])
    compiled = product[grid](x, y, out, *arguments[3:], **constants, **options)
    assert compiled.asm["ptx"] == ampere
    np.testing.assert_array_equal(out.numpy(), expected.astype(arguments[2].dtype))


def instructions(ptx: str) -> list[str]:
    """All lines but those that name the target."""
    return [line for line in ptx.splitlines() if not line.startswith((".version", ".target"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "whole" in metafunc.fixturenames:
        parts = [pytest.param(None, marks=pytest.mark.skip("needs --device cuda"), id="all")]
        if metafunc.config.getoption("--device") == "cuda":
            parts = list(itertools.product(AXES["kind"], AXES["block"], AXES["num_warps"]))
        metafunc.parametrize("whole", parts, ids=str)


def test_the_whole_matrix_on_the_gpu(whole):
    kind, block, num_warps = whole
    device, kernel, wrong = cuda_device(0), ptxforge.compile(product), []
    rest = {name: values for name, values in AXES.items() if name not in ("kind", "block", "num_warps")}
    for values in itertools.product(*rest.values()):
        point = {"kind": kind, "block": block, "num_warps": num_warps} | dict(zip(rest, values, strict=True))
        arguments, expected, grid, constants, options = problem(point)
        on_device = [ptxforge.to_device(v, device) if isinstance(v, np.ndarray) else v for v in arguments]
        kernel[grid](*on_device, **constants, **options)
        if not np.array_equal(on_device[2].numpy(), expected.astype(arguments[2].dtype)):
            wrong.append(identify(point))
    assert not wrong


# -- precision --------------------------------------------------------------------------------------------

BITS = {  # rounding of one operand, of one sum: relative errors as powers of two
    "f16": (None, 22), "f16-f16": (None, 10), "bf16": (None, 22), "e4m3": (None, 12), "e5m2": (None, 12),
    "tf32": (10, 22), "tf32x3": (20, 22), "bf16x3": (15, 22), "bf16x6": (21, 22), "ieee": (None, 23),
    "f64": (None, 52), "i8": (None, None), "u8": (None, None),
}  # fmt: skip
"""Tensor cores truncate operands to tf32, and summands where they align them (22 bits of f32, 12 of f8)."""


@pytest.mark.parametrize("kind", KINDS)
def test_reals_are_rounded_as_promised(execute, kind):
    inputs, output, precision = KINDS[kind]
    m, n, k = 32, 32, 96
    rng = np.random.default_rng(8)
    if np.dtype(inputs).kind in "iu":
        limits = np.iinfo(inputs)
        a, b = (rng.integers(limits.min, limits.max + 1, shape).astype(inputs) for shape in ((m, k), (k, n)))
    else:
        a, b = (rng.standard_normal(shape).astype(inputs) for shape in ((m, k), (k, n)))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    operand, total = (0 if bits is None else 2.0**-bits for bits in BITS[kind])
    bound = (2 * operand + k / 8 * total) * (abs(wide_a) @ abs(wide_b))
    arguments = [a, b, np.zeros((m, n), output), m, n, k, k, 1, n, 1]
    constants = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "PRECISION": precision, "MASKED": False}
    for (out,) in execute(product, (1, 1), arguments, constants, outputs=[2]):
        assert (abs(out.astype(np.float64) - wide_a @ wide_b) <= bound).all()


FORMS = {
    "f16": "m16n8k16.row.col.f32.f16.f16.f32", "f16-f16": "m16n8k16.row.col.f16.f16.f16.f16",
    "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32", "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "tf32x3": "m16n8k8.row.col.f32.tf32.tf32.f32", "bf16x3": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "bf16x6": "m16n8k16.row.col.f32.bf16.bf16.f32", "i8": "m16n8k32.row.col.s32.s8.s8.s32",
    "u8": "m16n8k32.row.col.s32.u8.u8.s32", "e4m3": "m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "e5m2": "m16n8k32.row.col.f32.e5m2.e5m2.f32", "f64": "m8n8k4.row.col.f64.f64.f64.f64", "ieee": None,
}  # fmt: skip
PRODUCTS = {"tf32x3": 3, "bf16x3": 3, "bf16x6": 6}


def ptx_of(kind: str, target: str) -> str:
    inputs, output, precision = KINDS[kind]
    element, sums = (dtypes.from_numpy(d).short for d in (inputs, output))
    signature = {"a": f"*{element}:16", "b": f"*{element}:16", "c": f"*{sums}:16"}
    signature |= dict.fromkeys(("M", "N", "K", "stride_am", "stride_bk"), "i32:16")
    constants = {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32, "PRECISION": precision, "MASKED": False}
    constants |= {"stride_ak": 1, "stride_bn": 1}
    artifact = ptxforge.compile(product, signature=signature, constants=constants, target=target, num_warps=1)
    return artifact.asm["ptx"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_instruction(kind, assemble):
    ptx = ptx_of(kind, "sm_90a")
    assemble(ptx)
    form = FORMS[kind]
    if form is None:
        assert "mma.sync" not in ptx and "fma.rn.f32" in ptx
        return
    rows, columns, depth = map(int, re.match(r"m(\d+)n(\d+)k(\d+)", form).groups())
    expected = 32 // rows * (16 // columns) * (32 // depth) * PRODUCTS.get(kind, 1)
    assert ptx.count("mma.sync.aligned." + form) == ptx.count("mma.sync") == expected


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_small_floats_are_widened_where_there_is_no_instruction(kind, assemble, emulator):
    ptx = ptx_of(kind, "sm_80")
    assemble(ptx)
    assert ptx.count("mma.sync.aligned." + FORMS["f16"]) == ptx.count("mma.sync") == 2 * 2 * 2
    emulator.target = "sm_80"
    point = {
        "kind": kind, "block": (32, 32, 64), "layout": "row-column", "num_warps": 4, "num_stages": 3,
        "steps": 3, "edges": "none",
    }  # fmt: skip
    arguments, expected, grid, constants, options = problem(point)
    x, y, out = (ptxforge.to_device(v, emulator) for v in arguments[:3])
    compiled = product[grid](x, y, out, *arguments[3:], **constants, **options)
    assert ".target sm_80" in compiled.asm["ptx"]
    np.testing.assert_array_equal(out.numpy(), expected)


# -- shapes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("kind", ["f16", "i8", "tf32", "f64", "ieee"])
@pytest.mark.parametrize("block", [(1, 16, 32), (16, 1, 32), (4, 8, 32), (8, 4, 32), (2, 2, 64)], ids=str)
def test_tiles_smaller_than_an_instruction(execute, block, kind, num_warps):
    point = {
        "kind": kind, "block": block, "layout": "row-row", "num_warps": num_warps, "num_stages": 2,
        "steps": 2, "edges": "none",
    }  # fmt: skip
    arguments, expected, grid, constants, options = problem(point)
    for (out,) in execute(product, grid, arguments, constants, outputs=[2], **options):
        np.testing.assert_array_equal(out, expected.astype(out.dtype))


@ptxforge.jit
def batched_product(
    a, b, c, K,
    B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """c[B, M, N] = a[B, M, K] @ b[B, K, N]."""
    g = tl.arange(0, B)[:, None, None]
    i = tl.arange(0, M)[None, :, None]
    j = tl.arange(0, N)[None, None, :]
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((B, M, N), c.dtype.element_ty)
    for step in range(0, K, BLOCK_K):
        x = tl.load(a + g * M * K + i * K + (step + k)[None, None, :])
        y = tl.load(b + g * K * N + (step + k)[None, :, None] * N + j)
        acc = tl.dot(x, y, acc, input_precision=PRECISION, out_dtype=c.dtype.element_ty)
    tl.store(c + g * M * N + i * N + j, acc)


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("shape", [(2, 16, 16), (4, 32, 16), (1, 16, 32)], ids=str)
@pytest.mark.parametrize("kind", ["f16", "tf32", "i8", "ieee"])
def test_batches(execute, kind, shape, num_warps):
    inputs, output, precision = KINDS[kind]
    batch, m, n = shape
    rng = np.random.default_rng(9)
    a, b = integers(rng, (batch, m, 64), inputs), integers(rng, (batch, 64, n), inputs)
    constants = {"B": batch, "M": m, "N": n, "BLOCK_K": 32, "PRECISION": precision}
    arguments = [a, b, np.zeros((batch, m, n), output), 64]
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for (out,) in execute(batched_product, (1,), arguments, constants, outputs=[2], num_warps=num_warps):
        np.testing.assert_array_equal(out, expected.astype(output))


# -- loops ------------------------------------------------------------------------------------------------


@ptxforge.jit
def gathered_product(
    a, rows, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr
):
    """c = a @ b[rows]: what a load brings is the address of another load, of the same iteration."""
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((M, N), tl.float32)
    for step in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        row = tl.load(rows + step + k)
        x = tl.load(a + i[:, None] * K + (step + k)[None, :])
        y = tl.load(b + row[:, None] * N + j[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * N + j[None, :], acc)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("steps", [0, 1, 2, 6])
def test_loads_at_two_distances(execute, stages, steps):
    k = 16 * steps
    rng = np.random.default_rng(10)
    a, b = integers(rng, (32, max(k, 1)), np.float16), integers(rng, (50, 32), np.float16)
    rows = rng.integers(0, 50, max(k, 1)).astype(np.int32)
    arguments = [a, rows, b, np.full((32, 32), 9, np.float32), k]
    constants = {"M": 32, "N": 32, "BLOCK_K": 16, "STAGES": stages}
    expected = a[:, :k].astype(np.float32) @ b[rows[:k]].astype(np.float32)
    for (out,) in execute(gathered_product, (1,), arguments, constants, outputs=[3]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def nested_products(
    a, b, c, N, K, M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, OUTER: tl.constexpr
):
    """c[M, N] = a[M, K] @ b[K, N], the columns in an outer loop; c[M, N] + the number of tiles before it."""
    i = tl.arange(0, M)
    k = tl.arange(0, BLOCK_K)
    count = 0
    for start in tl.range(0, N, BLOCK_N, num_stages=OUTER):
        j = start + tl.arange(0, BLOCK_N)
        acc = tl.zeros((M, BLOCK_N), tl.float32)
        for step in range(0, K, BLOCK_K):
            x = tl.load(a + i[:, None] * K + (step + k)[None, :])
            y = tl.load(b + (step + k)[:, None] * N + j[None, :])
            acc = tl.dot(x, y, acc)
        tl.store(c + i[:, None] * N + j[None, :], acc + count)
        count += 1


@pytest.mark.parametrize("outer", [1, 3])
@pytest.mark.parametrize("num_stages", [1, 2, 4])
@pytest.mark.parametrize(("tiles", "steps"), [(0, 2), (1, 0), (3, 1), (2, 5)])
def test_nested_loops(execute, tiles, steps, num_stages, outer):
    n, k = 32 * tiles, 32 * steps
    rng = np.random.default_rng(11)
    a, b = integers(rng, (32, max(k, 1)), np.float16), integers(rng, (max(k, 1), max(n, 1)), np.float16)
    expected = a[:, :k].astype(np.float32) @ b[:k, :n].astype(np.float32) + np.arange(n) // 32
    arguments = [a, b, np.zeros((32, max(n, 1)), np.float32), n, k]
    constants = {"M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "OUTER": outer}
    for (out,) in execute(nested_products, (1,), arguments, constants, outputs=[2], num_stages=num_stages):
        np.testing.assert_array_equal(out[:, :n], expected)


@ptxforge.jit
def busy_product(a, b, c, d, K, flag, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    """A loop under an ``if`` with other carried values: a count, two that change places, each row's largest
    element; a mask with another value than zero; two products with one shared operand."""
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    k = tl.arange(0, BLOCK_K)
    one = tl.zeros((M, N), tl.float32)
    two = tl.zeros((M, N), tl.float32)
    left, right, count = 1, 2, 0
    top = tl.full((M,), -100.0, tl.float32)
    if flag > 0:
        for step in range(0, K, BLOCK_K):
            inside = step + k < K
            x = tl.load(a + i[:, None] * K + (step + k)[None, :], mask=inside[None, :], other=0.0)
            y = tl.load(b + (step + k)[:, None] * N + j[None, :], mask=inside[:, None], other=1.0)
            one = tl.dot(x, y, one)
            two = tl.dot(x, y * 2, two)
            top = tl.maximum(top, tl.max(x, 1).to(tl.float32))
            left, right = right, left
            count += 1
    tl.store(c + i[:, None] * N + j[None, :], one + two * left)
    tl.store(d + i, top + count + 10 * right)


@pytest.mark.parametrize("num_stages", [1, 2, 3, 5])
@pytest.mark.parametrize(("k", "flag"), [(0, 1), (16, 1), (40, 1), (72, 1), (64, 0)])
def test_other_carried_values(execute, k, flag, num_stages):
    rng = np.random.default_rng(12)
    a, b = integers(rng, (32, max(k, 1)), np.float16), integers(rng, (max(k, 1), 32), np.float16)
    steps = -(-k // 16) if flag else 0
    used = k if flag else 0
    once = a[:, :used].astype(np.float32) @ b[:used].astype(np.float32)
    left, right = (1, 2) if steps % 2 == 0 else (2, 1)
    padded = np.pad(a[:, :used].astype(np.float32), ((0, 0), (0, 16 * steps - used)))
    top = padded.max(1, initial=-100)
    arguments = [a, b, np.zeros((32, 32), np.float32), np.zeros(32, np.float32), k, flag]
    constants = {"M": 32, "N": 32, "BLOCK_K": 16}
    runs = execute(busy_product, (1,), arguments, constants, outputs=[2, 3], num_stages=num_stages)
    for out, extra in runs:
        np.testing.assert_array_equal(out, once + 2 * once * left)
        np.testing.assert_array_equal(extra, top + steps + 10 * right)


@ptxforge.jit
def overwriting_product(a, b, steps, N: tl.constexpr):
    """b = a @ b, ``steps`` times, in place: no load may run ahead of the store before it."""
    i = tl.arange(0, N)
    where = i[:, None] * N + i[None, :]
    for _ in range(steps):
        x = tl.load(a + where)
        y = tl.load(b + where)
        result = tl.dot(x, y).to(tl.float16)
        tl.debug_barrier()
        tl.store(b + where, result)
        tl.debug_barrier()


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_loop_that_overwrites_what_it_reads(execute, steps):
    rng = np.random.default_rng(14)
    a = rng.permutation(np.eye(32, dtype=np.float16)) * rng.choice([-1, 1], 32).astype(np.float16)
    b = integers(rng, (32, 32), np.float16)
    expected = np.linalg.matrix_power(a.astype(np.float64), steps) @ b.astype(np.float64)
    for (out,) in execute(overwriting_product, (1,), [a, b, steps], {"N": 32}, outputs=[1], num_stages=3):
        np.testing.assert_array_equal(out, expected)


# -- operands ---------------------------------------------------------------------------------------------


@ptxforge.jit
def chain(a, b, w, out, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, SIDE: tl.constexpr):
    """out = (a @ bᵀ) @ w or w @ (a @ bᵀ): a product is an operand of the next, on either side."""
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    acc = tl.zeros((M, N), tl.float32)
    k = tl.arange(0, BLOCK_K)
    for step in range(0, K, BLOCK_K):
        x = tl.load(a + i[:, None] * K + (step + k)[None, :])
        y = tl.load(b + j[:, None] * K + (step + k)[None, :])
        inner = tl.dot(x, tl.trans(y)).to(a.dtype.element_ty)
        if SIDE == "left":
            acc = tl.dot(inner, tl.load(w + j[:, None] * N + j[None, :]), acc)
        else:
            acc = tl.dot(tl.load(w + i[:, None] * M + i[None, :]), inner, acc)
    tl.store(out + i[:, None] * N + j[None, :], acc)


@pytest.mark.parametrize("num_warps", [1, 2, 4, 8])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_a_product_of_a_product(execute, dtype, side, num_warps):
    rng = np.random.default_rng(15)
    m, n, k = 64, 32, 64
    size = n if side == "left" else m
    # Entries of 0 and ±1, few of them, keep the inner products exact in bf16.
    a, b = (rng.choice([0, 0, 0, 1, -1], shape).astype(dtype) for shape in ((m, k), (n, k)))
    w = integers(rng, (size, size), dtype)
    inner = a.astype(np.float64) @ b.astype(np.float64).T
    expected = inner @ w.astype(np.float64) if side == "left" else w.astype(np.float64) @ inner
    arguments = [a, b, w, np.zeros((m, n), np.float32), k]
    constants = {"M": m, "N": n, "BLOCK_K": 32, "SIDE": side}
    for (out,) in execute(chain, (1,), arguments, constants, outputs=[3], num_warps=num_warps):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def transposed_product(
    a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr
):
    """c = aᵀ @ bᵀ of a[K, M] and b[N, K], transposed as tiles."""
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((M, N), c.dtype.element_ty)
    for step in range(0, K, BLOCK_K):
        x = tl.load(a + (step + k)[:, None] * M + i[None, :])
        y = tl.load(b + j[:, None] * K + (step + k)[None, :])
        acc = tl.dot(x.T, tl.trans(y), acc, input_precision=PRECISION, out_dtype=c.dtype.element_ty)
    tl.store(c + i[:, None] * N + j[None, :], acc)


@pytest.mark.parametrize("num_stages", [1, 3])
@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "i8", "e4m3", "f64", "ieee"])
def test_transposed_operands(execute, kind, num_stages):
    inputs, output, precision = KINDS[kind]
    rng = np.random.default_rng(16)
    a, b = integers(rng, (96, 64), inputs), integers(rng, (32, 96), inputs)
    arguments = [a, b, np.zeros((64, 32), output), 96]
    constants = {"M": 64, "N": 32, "BLOCK_K": 32, "PRECISION": precision}
    expected = a.astype(np.float64).T @ b.astype(np.float64).T
    for (out,) in execute(transposed_product, (1,), arguments, constants, outputs=[2], num_stages=num_stages):
        np.testing.assert_array_equal(out, expected.astype(output))


@ptxforge.jit
def mixed_product(a, b, scale, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c = a @ (b · scale) of f16 a and b of one byte an element, a scale for each column."""
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    k = tl.arange(0, BLOCK_K)
    factor = tl.load(scale + j)
    acc = tl.zeros((M, N), tl.float32)
    for step in range(0, K, BLOCK_K):
        x = tl.load(a + i[:, None] * K + (step + k)[None, :])
        y = tl.load(b + (step + k)[:, None] * N + j[None, :]).to(tl.float16)
        acc = tl.dot(x, y * factor[None, :], acc)
    tl.store(c + i[:, None] * N + j[None, :], acc)


@pytest.mark.parametrize("num_stages", [1, 3])
@pytest.mark.parametrize("narrow", [np.int8, np.uint8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_operands_are_widened(execute, narrow, num_stages):
    rng = np.random.default_rng(17)
    a, b = integers(rng, (32, 96), np.float16), integers(rng, (96, 64), narrow)
    scale = rng.choice([0.5, 1, 2], 64).astype(np.float16)
    arguments = [a, b, scale, np.zeros((32, 64), np.float32), 96]
    constants = {"M": 32, "N": 64, "BLOCK_K": 32}
    expected = a.astype(np.float64) @ (b.astype(np.float64) * scale)
    for (out,) in execute(mixed_product, (1,), arguments, constants, outputs=[3], num_stages=num_stages):
        np.testing.assert_array_equal(out, expected)


# -- attention --------------------------------------------------------------------------------------------

ATTENTION = {
    "head": (32, 64),
    "dtype": (np.float16, ml_dtypes.bfloat16),
    "causal": (False, True),
    "blocks": ((16, 16), (64, 32), (128, 64)),
    "num_warps": (1, 4, 8),
    "num_stages": (1, 2, 3),
}
ATTENTION_SAMPLE = every_pair(ATTENTION, seed=1)


@pytest.mark.parametrize("point", ATTENTION_SAMPLE, ids=lambda p: "-".join(map(str, p.values())))
def test_attention(execute, point):
    depth, dtype, causal, (rows, columns) = (point[n] for n in ("head", "dtype", "causal", "blocks"))
    length = 2 * rows
    rng = np.random.default_rng(18)
    q, k, v = (rng.standard_normal((1, 2, length, depth)).astype(dtype) for _ in range(3))
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) / np.sqrt(depth)
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(3, keepdims=True))
    expected = p / p.sum(3, keepdims=True) @ v.astype(np.float64)
    strides = (2 * length * depth, length * depth, depth)
    arguments = [q, k, v, np.zeros_like(q), float(np.log2(np.e) / np.sqrt(depth)), 2, length, *strides]
    constants = {"BLOCK_M": rows, "BLOCK_N": columns, "D": depth, "CAUSAL": causal}
    options = {"num_warps": point["num_warps"], "num_stages": point["num_stages"]}
    tolerance = {np.float16: 2e-3, ml_dtypes.bfloat16: 1.6e-2}[dtype]
    for (out,) in execute(kernels.attention, (2, 2), arguments, constants, outputs=[3], **options):
        np.testing.assert_allclose(out.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
