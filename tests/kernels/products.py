"""Matrix products of every kind: the kernel, points of a matrix of cases, their data and exact results."""

from __future__ import annotations

import itertools
import random

import ml_dtypes
import numpy as np

import ptxforge
import ptxforge.language as tl
from ptxforge.support import dtypes


@ptxforge.jit
def product(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """c = a @ b in c's element type; one tile a program. MASKED: sizes need not fit the blocks."""
    i = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + i[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + j[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), c.dtype.element_ty)
    for step in range(0, K, BLOCK_K):
        if MASKED:
            inside = k < K - step
            x = tl.load(a_tile, mask=(i[:, None] < M) & inside[None, :], other=0)
            y = tl.load(b_tile, mask=inside[:, None] & (j[None, :] < N), other=0)
        else:
            x = tl.load(a_tile)
            y = tl.load(b_tile)
        acc = tl.dot(x, y, acc, input_precision=PRECISION, out_dtype=c.dtype.element_ty)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    out = c + i[:, None] * N + j[None, :]
    if MASKED:
        tl.store(out, acc, mask=(i[:, None] < M) & (j[None, :] < N))
    else:
        tl.store(out, acc)


KINDS = {  # name: element type of a and b, of c, input_precision
    "f16": (np.float16, np.float32, "tf32"),
    "f16-f16": (np.float16, np.float16, "tf32"),
    "bf16": (ml_dtypes.bfloat16, np.float32, "tf32"),
    "tf32": (np.float32, np.float32, "tf32"),
    "tf32x3": (np.float32, np.float32, "tf32x3"),
    "bf16x3": (np.float32, np.float32, "bf16x3"),
    "bf16x6": (np.float32, np.float32, "bf16x6"),
    "ieee": (np.float32, np.float32, "ieee"),
    "i8": (np.int8, np.int32, "tf32"),
    "u8": (np.uint8, np.int32, "tf32"),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.float32, "tf32"),
    "e5m2": (ml_dtypes.float8_e5m2, np.float32, "tf32"),
    "f64": (np.float64, np.float64, "tf32"),
}


def every_pair(axes: dict[str, tuple], seed: int = 0) -> list[dict]:
    """Few points such that any two values of two axes stand together in one of them; greedy."""
    rng = random.Random(seed)
    names = list(axes)
    missing = {
        ((one, x), (other, y))
        for one, other in itertools.combinations(names, 2)
        for x, y in itertools.product(axes[one], axes[other])
    }

    def pairs(point: dict) -> set:
        return set(itertools.combinations(point.items(), 2))

    chosen = []
    while missing:
        start = dict(min(missing, key=repr))
        candidates = [{n: start.get(n, rng.choice(axes[n])) for n in names} for _ in range(40)]
        best = max(candidates, key=lambda point: len(pairs(point) & missing))
        missing -= pairs(best)
        chosen.append(best)
    return chosen


def identify(point: dict) -> str:
    block = "x".join(map(str, point["block"]))
    counts = f"{point['num_warps']}warps-{point['num_stages']}stages-{point['steps']}steps"
    return f"{point['kind']}-{block}-{point['layout']}-{counts}-{point['edges']}"


def integers(rng, shape, dtype) -> np.ndarray:
    """Integers that every element type holds, and whose sums every accumulator holds."""
    low = 0 if np.dtype(dtype) == np.uint8 else -3
    return rng.integers(low, 4, shape).astype(dtype)


def placed(matrix: np.ndarray, order: str) -> tuple[np.ndarray, int, int]:
    """The matrix in memory, row- or column-major: the array, and the strides of its two dimensions."""
    rows, columns = matrix.shape
    if order == "row":
        return np.ascontiguousarray(matrix), columns, 1
    return np.ascontiguousarray(matrix.T), 1, rows


def problem(point: dict) -> tuple[list, np.ndarray, tuple[int, int], dict, dict]:
    """(arguments, the exact product, grid, constants, options) of a point, with integers as data."""
    inputs, output, precision = KINDS[point["kind"]]
    block_m, block_n, block_k = point["block"]
    m, n, k = block_m, block_n, block_k * point["steps"]
    if point["edges"] == "cut":
        m, n, k = m + 16, n + 16, max(k - 16, 0)
    if point["edges"] == "ragged":
        m, n, k = m - 3, n + 5, max(k - 7, 0)
    rng = np.random.default_rng(7)
    a, b = integers(rng, (m, max(k, 1)), inputs), integers(rng, (max(k, 1), n), inputs)
    expected = a[:, :k].astype(np.float64) @ b[:k].astype(np.float64)
    order_a, order_b = point["layout"].split("-")
    (x, am, ak), (y, bk, bn) = placed(a, order_a), placed(b, order_b)
    arguments = [x, y, np.full((m, n), 99, output), m, n, k, am, ak, bk, bn]
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    constants = blocks | {"PRECISION": precision, "MASKED": point["edges"] != "none"}
    options = {"num_warps": point["num_warps"], "num_stages": point["num_stages"]}
    return arguments, expected, (-(-m // block_m), -(-n // block_n)), constants, options


def compiled_artifact(
    kind: str, block=(128, 128, 64), layout="row-row", num_warps=4, target="sm_90a"
) -> ptxforge.Artifact:
    """``product``, compiled; rows are multiples of 16 elements."""
    inputs, output, precision = KINDS[kind]
    element, sums = (dtypes.from_numpy(d).short for d in (inputs, output))
    signature = {"a": f"*{element}:16", "b": f"*{element}:16", "c": f"*{sums}:16", "M": "i32", "N": "i32"}
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block)) | {"PRECISION": precision}
    constants["MASKED"] = False
    a, b = layout.split("-")
    strides = {"stride_am": a == "row", "stride_ak": a == "column", "stride_bk": b == "row",
               "stride_bn": b == "column"}  # fmt: skip
    for name, is_wide in strides.items():
        if is_wide:
            signature[name] = "i32:16"
        else:
            constants[name] = 1
    signature["K"] = "i32:16"
    return ptxforge.compile(
        product, signature=signature, constants=constants, target=target, num_warps=num_warps
    )
