"""The kernels of the benchmarks that :mod:`tests.kernels.test_spine` has not, on every executor: products by
descriptors and shared along k, attention with one query."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
from benchmarks.configurations import products
from benchmarks.dialects import load
from ptxforge.compiler import compile_function
from ptxforge.runtime.tensor_descriptor import TensorDescriptor

kernels = load("ptxforge")
of = TensorDescriptor.from_tensor


def _small_integers(rng, *shape):
    return rng.integers(-4, 5, shape).astype(np.float16)


@pytest.mark.parametrize("shape", [(64, 128, 64), (200, 136, 96)], ids=str)
def test_product_by_descriptors(execute, shape):
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = _small_integers(rng, m, k), _small_integers(rng, n, k)
    descriptors = [of(a, [64, 32]), of(b, [64, 32]), of(np.zeros((m, n), np.float16), [64, 64])]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2}
    for (out,) in execute(kernels.matmul_descriptors, (3,), [*descriptors, m, n, k], constants, outputs=[2]):
        np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))


@pytest.mark.parametrize("split", [1, 2, 4])
def test_product_shared_along_k(execute, split):
    m, n, k = 16, 192, 256
    rng = np.random.default_rng(split)
    a, b = _small_integers(rng, m, k), _small_integers(rng, k, n)
    arguments = [a, b, np.zeros((m, n), np.float32), m, n, k, k, 1, n, 1, n, 1]
    constants = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 32, "SPLIT_K": split}
    for (out,) in execute(kernels.matmul_split_k, (3, split), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


def test_product_of_8_bit_floats(execute):
    m, n, k = 128, 64, 160
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((m, k), (n, k)))
    arguments = [a, b, np.zeros((m, n), np.float16), m, n, k, k, 1, 1, k, n, 1]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2, "EVEN_K": True}
    constants["PRECISION"] = "tf32"
    for (out,) in execute(kernels.matmul, (2,), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))


@pytest.mark.parametrize("programs", [1, 3])
def test_products_whose_operands_lie_anywhere(devices, programs):
    """Each with sizes of its own; programs that go from one to the next."""
    sizes = ((64, 128, 96), (128, 64, 32), (64, 64, 128))
    rng = np.random.default_rng(programs)
    a, b = ([_small_integers(rng, *(size[i] for i in dims)) for size in sizes] for dims in ((0, 2), (2, 1)))
    for device in devices:
        placed = [[ptxforge.to_device(x, device) for x in arrays] for arrays in (a, b)]
        placed.append([ptxforge.to_device(np.zeros(size[:2], np.float16), device) for size in sizes])
        tables = [np.array([x.data_ptr() for x in arrays], np.int64) for arrays in placed]
        tables += [np.array(sizes, np.int32), np.array([(k, n, n) for m, n, k in sizes], np.int32)]
        ptxforge.compile(kernels.grouped_matmul)[(programs,)](
            *(ptxforge.to_device(x, device) for x in tables), 3,
            PROGRAMS=programs, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4,
        )  # fmt: skip
        for x, y, out in zip(a, b, placed[2]):
            expected = (x.astype(np.float32) @ y.astype(np.float32)).astype(np.float16)
            np.testing.assert_array_equal(out.numpy(), expected)


def test_promises_about_carried_pointers_make_copies_wide(assemble):
    """``tl.multiple_of`` of what a loop carries is all that says how such pointers are aligned."""
    (one,) = [c for c in products() if c.name == "grouped-NN-128-128-64-w8-s3"]
    made = compile_function(kernels.grouped_matmul, one.signature, one.constants, "sm_90a", **one.options)
    assemble(made.ptx)
    assert made.ptx.count("wgmma.mma_async") == 4 and "ld.global.b16" not in made.ptx
    copies = [line for line in made.ptx.splitlines() if "cp.async.c" in line and "global" in line]
    assert len(copies) == 3 * 8 and all("cp.async.cg.shared.global" in line for line in copies)


@pytest.mark.parametrize("group", [3, 8])
@pytest.mark.parametrize("splits", [1, 4])
def test_attention_with_one_query(execute, group, splits):
    """Pages in any order; heads of k and v that several queries share."""
    batch, heads, depth, page, length = 2, 2, 64, 16, 256
    rng = np.random.default_rng(group)
    count = batch * length // page
    k, v = (rng.standard_normal((count, page, heads, depth)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((batch, heads, group, depth)).astype(np.float16)
    table = rng.permutation(count).reshape(batch, -1).astype(np.int32)
    scale = np.log2(np.e) / depth**0.5
    rows = batch * heads * splits * group
    strides = page * heads * depth, heads * depth, depth
    arguments = [q, k, v, table, np.zeros((rows, depth), np.float32), np.zeros(rows, np.float32)]
    arguments += [float(scale), length, heads, length // page, *strides]
    constants = {"GROUP": group, "BLOCK_G": 16, "BLOCK_N": 32, "D": depth, "PAGE": page, "SPLITS": splits}
    keys, values = (x[table].reshape(batch, length, heads, depth).swapaxes(1, 2) for x in (k, v))
    scores = q.astype(np.float64) @ keys.swapaxes(-1, -2).astype(np.float64) * scale
    p = np.exp2(scores - scores.max(-1, keepdims=True))
    expected = (p / p.sum(-1, keepdims=True)) @ values.astype(np.float64)
    parts = execute(kernels.paged_decode, (batch, heads, splits), arguments, constants, outputs=[4, 5])
    for partial, sums in parts:
        merging = {"GROUP": group, "D": depth, "SPLITS": splits}
        arrays = [partial, sums, np.zeros_like(q)]
        for (out,) in execute(kernels.merge_parts, (batch * heads, group), arrays, merging, outputs=[2]):
            np.testing.assert_allclose(out.astype(np.float64), expected, atol=3e-3)
