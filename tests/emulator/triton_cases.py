"""Launching the kernels of ``fixtures/triton_kernels.py`` from their PTX, against numpy."""

from __future__ import annotations

import re

import numpy as np

from . import tma
from .foreign import _with_arrays
from .harness import pack, run

NULL = np.uint64(0)  # Triton appends pointers to global and profiling scratch memory


def shared_bytes(ptx: str) -> int:
    return int(re.match(r"// shared bytes: (\d+)", ptx)[1])


def softmax(device, ptx: str) -> None:
    rows, n = 3, 1000
    x = np.random.default_rng(0).standard_normal((rows, 1008)).astype(np.float32)
    y = np.zeros_like(x)
    run(
        device,
        ptx,
        "softmax",
        rows,
        128,
        x,
        y,
        np.int32(1008),
        np.int32(n),
        NULL,
        NULL,
        shared=shared_bytes(ptx),
    )
    e = np.exp(x[:, :n].astype(np.float64) - x[:, :n].max(axis=1, keepdims=True))
    np.testing.assert_allclose(y[:, :n], e / e.sum(axis=1, keepdims=True), rtol=2e-5)
    assert not y[:, n:].any()


def layer_norm(device, ptx: str) -> None:
    rows, n = 3, 1500
    rng = np.random.default_rng(1)
    x = rng.standard_normal((rows, 1504)).astype(np.float16)
    w, b = rng.standard_normal(1504).astype(np.float32), rng.standard_normal(1504).astype(np.float32)
    y = np.zeros_like(x)
    run(device, ptx, "layer_norm", rows, 128, x, w, b, y, np.int32(1504), np.int32(n), np.float32(1e-5),
        NULL, NULL,
        shared=shared_bytes(ptx))  # fmt: skip
    v = x[:, :n].astype(np.float64)
    want = (v - v.mean(axis=1, keepdims=True)) / np.sqrt(v.var(axis=1, keepdims=True) + 1e-5) * w[:n] + b[:n]
    np.testing.assert_allclose(y[:, :n], want, rtol=2e-3, atol=2e-3)


def matmul(device, ptx: str) -> None:
    m, n, k = 256, 128, 160
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)
    sizes = [np.int32(v) for v in (m, n, k, k, n, n)]
    run(
        device,
        ptx,
        "matmul",
        (m // 128, n // 128),
        128,
        a,
        b,
        c,
        *sizes,
        NULL,
        NULL,
        shared=shared_bytes(ptx),
    )
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=2e-3, atol=2e-2)


def matmul_tma(device, ptx: str) -> None:
    m, n, k = 256, 128, 320
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.zeros((m, n), np.float16)

    def launch(at: list[int]) -> None:
        params: list = []
        for address, array, box in zip(at, (a, b, c), ((64, 128), (64, 64), (64, 128))):
            rows, columns = array.shape
            params += [tma.encode(device, "f16", address, (columns, rows), (2 * columns,), box, swizzle=128),
                       np.int32(rows), np.int32(columns), np.int64(columns), np.int64(1)]  # fmt: skip
        function = device.load_module(ptx).function("matmul_tma")
        function.launch(
            (m // 128, n // 128, 1),
            (128, 1, 1),
            shared_bytes(ptx),
            0,
            pack([*params, np.int32(k), NULL, NULL]),
        )

    _with_arrays(device, [a, b, c], launch)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=2e-3, atol=2e-2)


def attention(device, ptx: str, causal: bool = False, heads: int = 2) -> None:
    length, depth = 256, 64
    rng = np.random.default_rng(4)
    q, k, v = (rng.standard_normal((heads, length, depth)).astype(np.float16) for _ in range(3))
    o = np.zeros_like(q)
    scale = np.float32(0.125 * 1.44269504)
    run(device, ptx, "attention", (length // 128, heads), 128, q, k, v, o, scale, np.int32(length), NULL,
        NULL,
        shared=shared_bytes(ptx))  # fmt: skip
    s = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * 0.125
    if causal:
        s = np.where(np.tril(np.ones((length, length), bool)), s, -np.inf)
    p = np.exp(s - s.max(axis=2, keepdims=True))
    np.testing.assert_allclose(
        o, p / p.sum(axis=2, keepdims=True) @ v.astype(np.float64), rtol=5e-3, atol=5e-3
    )


def attention_causal(device, ptx: str, heads: int = 2) -> None:
    attention(device, ptx, causal=True, heads=heads)


CASES = {"softmax": softmax, "layer_norm": layer_norm, "matmul": matmul, "attention": attention,
         "attention_causal": attention_causal, "matmul_tma": matmul_tma}  # fmt: skip
VARIANTS = [
    (name, capability)
    for capability in (80, 90)
    for name in CASES
    if (name, capability) != ("matmul_tma", 80)
]
