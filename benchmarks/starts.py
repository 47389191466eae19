"""Kernels whose first launch is measured: what they need, their launch, and whether their result is right."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import torch

TILES = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}
ATTENTION = {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 8, "num_stages": 2}


@attrs.frozen
class Start:
    """``launch(kernels, data)`` after ``make()``; ``check(data)`` gives the result and the expected one.
    Sizes are small, so that the GPU's own time does not count."""

    make: Callable[[], dict[str, Any]]
    launch: Callable[[Any, dict[str, Any]], None]
    check: Callable[[dict[str, Any]], tuple[Any, Any]]
    tolerance: float


def _random(*shape: int, dtype: Any = torch.float16) -> Any:
    return torch.randn(*shape, device="cuda").to(dtype)


def _add() -> Start:
    n = 1 << 16

    def make() -> dict[str, Any]:
        return {"x": _random(n, dtype=torch.float32), "y": _random(n, dtype=torch.float32),
                "out": torch.zeros(n, device="cuda")}  # fmt: skip

    def launch(kernels: Any, d: dict[str, Any]) -> None:
        kernels.add[(n // 1024,)](d["x"], d["y"], d["out"], n, BLOCK=1024, num_warps=4)

    return Start(make, launch, lambda d: (d["out"], d["x"] + d["y"]), 0.0)


def _softmax() -> Start:
    rows, columns = 512, 1024

    def make() -> dict[str, Any]:
        x = _random(rows, columns, dtype=torch.float32)
        return {"x": x, "out": torch.zeros_like(x)}

    def launch(kernels: Any, d: dict[str, Any]) -> None:
        kernels.softmax[(rows,)](d["out"], d["x"], columns, columns, BLOCK=1024, num_warps=4)

    return Start(make, launch, lambda d: (d["out"], torch.softmax(d["x"], 1)), 1e-5)


def _gemm() -> Start:
    size = 1024

    def make() -> dict[str, Any]:
        a, b = _random(size, size), _random(size, size)
        return {"a": a, "b": b, "c": torch.zeros_like(a)}

    def launch(kernels: Any, d: dict[str, Any]) -> None:
        programs = (size // TILES["BLOCK_M"]) * (size // TILES["BLOCK_N"])
        a, b, c = d["a"], d["b"], d["c"]
        kernels.matmul[(programs,)](
            a, b, c, size, size, size, *a.stride(), *b.stride(), *c.stride(),
            PRECISION="tf32", GROUP_M=8, EVEN_K=True, **TILES,
        )  # fmt: skip

    return Start(make, launch, lambda d: (d["c"].float() / 32, torch.mm(d["a"].float(), d["b"].float()) / 32),
                 2e-3)  # fmt: skip


def _attention() -> Start:
    heads, length, dim = 4, 1024, 128

    def make() -> dict[str, Any]:
        data = {name: _random(1, heads, length, dim) for name in "qkv"}
        return data | {"out": torch.zeros_like(data["q"])}

    def launch(kernels: Any, d: dict[str, Any]) -> None:
        q = d["q"]
        kernels.attention[(length // ATTENTION["BLOCK_M"], heads)](
            q, d["k"], d["v"], d["out"], dim**-0.5 * math.log2(math.e), heads, length, *q.stride()[:3],
            D=dim, CAUSAL=False, **ATTENTION,
        )  # fmt: skip

    def check(d: dict[str, Any]) -> tuple[Any, Any]:
        q, k, v = (d[name].float() for name in "qkv")
        return d["out"].float(), torch.softmax(q @ k.mT * dim**-0.5, -1) @ v

    return Start(make, launch, check, 1e-2)


STARTS: dict[str, Callable[[], Start]] = {
    "add": _add, "softmax": _softmax, "gemm": _gemm, "attention": _attention,
}  # fmt: skip
