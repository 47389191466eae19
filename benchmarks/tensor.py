"""Benchmarks of kernels that run on tensor cores: matrix products and attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from benchmarks.spine import Case, matmul_case, random_tensor
from benchmarks.tiles import (
    ATTENTION_TILES,
    F16_TILES,
    INT8_TILES,
    ODD_TILES,
    PERSISTENT_TILES,
    SKINNY_TILES,
    TF32_TILES,
)


def _attention(length: int, dim: int, causal: bool) -> Case:
    batch, heads = 4, 16
    scale = dim**-0.5

    def make() -> dict[str, Any]:
        shape = (batch, heads, length, dim)
        data = {name: random_tensor(*shape, dtype=torch.float16) for name in "qkv"}
        return data | {"out": torch.empty(shape, device="cuda", dtype=torch.float16)}

    def launch(kernels, data, config):
        options = dict(config)
        grid = (length // options["BLOCK_M"], batch * heads)
        q = data["q"]
        kernels.attention[grid](
            q, data["k"], data["v"], data["out"], scale * math.log2(math.e), heads, length, *q.stride()[:3],
            D=dim, CAUSAL=causal,
            **options,
        )  # fmt: skip

    def reference(data):
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(data["q"], data["k"], data["v"], is_causal=causal, scale=scale)

    work = 4.0 * batch * heads * length * length * dim * (0.5 if causal else 1.0)
    return Case(
        f"attention f16 L={length} D={dim}{' causal' if causal else ''}", "TFLOP/s", work, make, launch,
        ATTENTION_TILES[dim], reference,
        lambda d: (d["out"].float(), reference(d).float()), 1e-2,
    )  # fmt: skip


def _int8() -> Case:
    size = 8192

    def make() -> dict[str, Any]:
        def draw():
            return torch.randint(-64, 64, (size, size), device="cuda", dtype=torch.int8)

        return {"a": draw(), "b": draw().t(), "c": torch.empty(size, size, device="cuda", dtype=torch.int32)}

    base = matmul_case("", size, size, size, torch.int8, "tf32", INT8_TILES, 0.0)
    return Case(
        "gemm int8 NT 8192^3", "TFLOP/s", base.work, make, int8_launch(size), INT8_TILES,
        lambda d: torch._int_mm(d["a"], d["b"]), lambda d: (d["c"], torch._int_mm(d["a"], d["b"])), 0.0,
    )  # fmt: skip


def int8_launch(size: int):
    """The launch of the integer kernel (the float one accumulates in f32)."""

    def launch(kernels, data, config):
        a, b, c = data["a"], data["b"], data["c"]
        grid = (-(-size // config["BLOCK_M"]) * -(-size // config["BLOCK_N"]),)
        kernels.matmul_int8[grid](
            a, b, c, size, size, size, *a.stride(), *b.stride(), *c.stride(), GROUP_M=8, **config
        )

    return launch


def half_products() -> list[Case]:
    """f16 and bf16 products, B row-major (NN) and column-major (NT)."""
    tiles = [*F16_TILES, *PERSISTENT_TILES]
    return [
        matmul_case(f"gemm {name} {layout} {size}^3", size, size, size, dtype, "tf32", tiles, tolerance,
                    transposed_b=layout == "NT")
        for name, dtype, tolerance in (("f16", torch.float16, 1e-3), ("bf16", torch.bfloat16, 8e-3))
        for size in (8192, 4096)
        for layout in ("NN", "NT")
    ]  # fmt: skip


def cases() -> list[Case]:
    """Every case, in the order of the report."""
    f16, f32 = torch.float16, torch.float32
    return [
        *half_products(),
        matmul_case("gemm tf32 NN 4096^3", 4096, 4096, 4096, f32, "tf32", TF32_TILES, 1e-2),
        _int8(),
        matmul_case("gemm f16 NN 4095x4093x4091", 4095, 4093, 4091, f16, "tf32", ODD_TILES, 1e-3),
        matmul_case("gemm f16 NN 16x8192x8192", 16, 8192, 8192, f16, "tf32", SKINNY_TILES, 1e-3),
        _attention(8192, 128, False),
        _attention(8192, 128, True),
        _attention(8192, 64, False),
    ]
