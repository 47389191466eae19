"""Every benchmark of a matrix product or of attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from benchmarks.products import (
    by_descriptors,
    fp8,
    grouped,
    int8,
    kept,
    matmul_case,
    padded,
    scaled,
    small,
    split_k,
    weights,
)
from benchmarks.spine import Case, empty_tensor, random_tensor
from benchmarks.tiles import (
    BACKWARD_TILES,
    DECODE_TILES,
    F16_TILES,
    FEW_ROWS,
    INT4_TILES,
    ODD_TILES,
    PERSISTENT_TILES,
    SGEMM_TILES,
    SKINNY_TILES,
    TF32_TILES,
    TF32X3_TILES,
    attention_tiles,
    backward_in_one_tiles,
)


def _attention(length: int, dim: int, causal: bool, in_one_loop: bool = False) -> Case:
    """Causal attention by two loops, or by a mask ``in_one_loop``."""
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
        if not in_one_loop:
            options["CAUSAL"] = causal
        kernel = kernels.attention_one_loop if in_one_loop else kernels.attention
        kernel[grid](
            q, data["k"], data["v"], data["out"], scale * math.log2(math.e), heads, length, *q.stride()[:3],
            D=dim, **options,
        )  # fmt: skip

    def reference(data):
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(data["q"], data["k"], data["v"], is_causal=causal, scale=scale)

    work = 4.0 * batch * heads * length * length * dim * (0.5 if causal else 1.0)
    form = " causal" * causal + " in one loop" * in_one_loop
    return Case(
        f"attention f16 L={length} D={dim}{form}", "TFLOP/s", work, make, launch,
        attention_tiles(dim, causal), reference, lambda d: _scaled(d["out"], reference(d)), 2e-2,
    )  # fmt: skip


def _attention_gradients(length: int, dim: int, causal: bool, in_one: bool = False) -> Case:
    """By two kernels, of columns and of rows, with seven products for each pair of blocks; or ``in_one`` with
    five, which adds to an f32 gradient of q that is zeroed before, and scaled and rounded after."""
    batch, heads = 4, 16
    scale = dim**-0.5

    def make() -> dict[str, Any]:
        shape = (batch, heads, length, dim)
        data = {name: random_tensor(*shape, dtype=torch.float16) for name in ("q", "k", "v", "d_out")}
        inputs = [data[name].clone().requires_grad_() for name in "qkv"]
        attend = torch.nn.functional.scaled_dot_product_attention
        data["graph"] = attend(*inputs, is_causal=causal, scale=scale), inputs
        data["lse"] = _row_logarithms(data["q"], data["k"], scale, causal)
        data["delta"] = torch.empty_like(data["lse"])
        if in_one:
            data["sums"] = empty_tensor(batch * heads * length, dim)
        return data | {name: torch.empty_like(data["q"]) for name in ("d_q", "d_k", "d_v")}

    def launch(kernels, data, config):
        options = dict(config) | {"D": dim, "CAUSAL": causal}
        inputs = [data[name] for name in ("q", "k", "v", "d_out", "lse", "delta")]
        sizes = (heads, length, *data["q"].stride()[:3])
        out = data["graph"][0].detach()
        kernels.attention_deltas[length // 64, batch * heads](
            out, data["d_out"], data["delta"], *sizes, BLOCK_M=64, D=dim
        )
        scales = scale, scale * math.log2(math.e)
        if in_one:
            sums = data["sums"].zero_()
            kernels.attention_gradients[length // config["BLOCK_N"], batch * heads](
                *inputs, kernels.TensorDescriptor.from_tensor(sums, [config["STEP_M"], dim]), data["d_k"],
                data["d_v"], *scales, *sizes, **options,
            )  # fmt: skip
            kernels.scaled_gradients[batch * heads * length // 64,](
                data["d_q"], sums, scale, dim, BLOCK_M=64, D=dim
            )
            return
        rows = {name: options.pop(name) for name in ("BLOCK_M", "STEP_N")}
        columns = {name: options.pop(name) for name in ("BLOCK_N", "STEP_M")}
        kernels.attention_columns[length // columns["BLOCK_N"], batch * heads](
            *inputs, data["d_k"], data["d_v"], *scales, *sizes, **columns, **options
        )
        kernels.attention_rows[length // rows["BLOCK_M"], batch * heads](
            *inputs, data["d_q"], *scales, *sizes, **rows, **options
        )

    def reference(data):
        result, inputs = data["graph"]
        return torch.autograd.grad(result, inputs, data["d_out"], retain_graph=True)

    def check(data):
        pairs = [_scaled(data[name], x) for name, x in zip(("d_q", "d_k", "d_v"), reference(data))]
        return tuple(torch.stack(found) for found in zip(*pairs))

    work = 10.0 * batch * heads * length * length * dim * (0.5 if causal else 1.0)
    name = f"attention backward f16 L={length} D={dim}{' causal' if causal else ''}"
    return Case(
        name + " in one kernel" * in_one, "TFLOP/s", work, make, launch,
        backward_in_one_tiles(causal) if in_one else BACKWARD_TILES[dim], reference, check, 3e-2,
    )  # fmt: skip


def _scaled(actual: Any, expected: Any) -> tuple[Any, Any]:
    """Both in f32, divided so that what is expected is about 1: averages over many keys are small."""
    scale = expected.float().std()
    return actual.float() / scale, expected.float() / scale


def _row_logarithms(q: Any, k: Any, scale: float, causal: bool) -> Any:
    """The logarithm (base 2) of each row's sum of exponentials, in f32, a head at a time."""
    found = torch.empty(q.shape[:3], device="cuda")
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = q[b, h].float() @ k[b, h].float().t() * scale
            if causal:
                above = torch.ones_like(scores, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(above, -math.inf)
            found[b, h] = torch.logsumexp(scores, 1) * math.log2(math.e)
    return found


def _paged_decode(batch: int, length: int) -> Case:
    """One query for each of 64 heads of ``batch`` sequences; 8 of them share a head of k and v, whose tokens
    lie in pages of 16, in any order. torch reads keys and values that lie in order."""
    heads, group, dim, page = 8, 8, 128, 16
    pages, scale = length // page, dim**-0.5

    def make() -> dict[str, Any]:
        cache = batch * pages, page, heads, dim
        data = {name: random_tensor(*cache, dtype=torch.float16) for name in "kv"}
        data["table"] = torch.randperm(batch * pages, device="cuda").reshape(batch, pages).int()
        data["q"] = random_tensor(batch, heads * group, 1, dim, dtype=torch.float16)
        for name in "kv":
            dense = data[name][data["table"].flatten().long()].reshape(batch, length, heads, dim)
            data["dense_" + name] = dense.transpose(1, 2).contiguous()
        parts = data["q"].numel() // dim * max(tile["SPLITS"] for tile in DECODE_TILES)
        data |= {"partial": empty_tensor(parts, dim), "sums": empty_tensor(parts)}
        return data | {"out": torch.empty_like(data["q"])}

    def launch(kernels, data, config):
        options = dict(config)
        splits = options["SPLITS"]
        partial, sums = data["partial"], data["sums"]
        kernels.paged_decode[(batch, heads, splits)](
            data["q"], data["k"], data["v"], data["table"], partial, sums, scale * math.log2(math.e), length,
            heads, pages, *data["k"].stride()[:3], GROUP=group, BLOCK_G=16, D=dim, PAGE=page, **options,
        )  # fmt: skip
        grid = (batch * heads, group)
        kernels.merge_parts[grid](partial, sums, data["out"], GROUP=group, D=dim, SPLITS=splits, num_warps=1)

    def reference(data):
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(data["q"], data["dense_k"], data["dense_v"], scale=scale, enable_gqa=True)

    return Case(
        f"paged decode f16 {batch}x{length} D={dim}", "GB/s", 2 * 2.0 * batch * length * heads * dim, make,
        launch, DECODE_TILES, reference,
        lambda d: _scaled(d["out"], reference(d)), 2e-2,
    )  # fmt: skip


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
        matmul_case("sgemm ieee 4096^3", 4096, 4096, 4096, f32, "ieee", SGEMM_TILES, 1e-4),
        *half_products(),
        *(by_descriptors(size, "NT") for size in (8192, 4096)),
        *(by_descriptors(size, "NN") for size in (8192, 4096)),
        by_descriptors(8192, "NT", "bf16"),
        *(small(size, layout) for size in (2048, 1024) for layout in ("NN", "NT")),
        fp8(8192),
        matmul_case("gemm tf32 NN 4096^3", 4096, 4096, 4096, f32, "tf32", TF32_TILES, 1e-2),
        matmul_case("gemm tf32 NT 4096^3", 4096, 4096, 4096, f32, "tf32", TF32_TILES, 1e-2, True),
        matmul_case("gemm tf32x3 NN 4096^3", 4096, 4096, 4096, f32, "tf32x3", TF32X3_TILES, 1e-4),
        matmul_case("gemm tf32x3 NT 4096^3", 4096, 4096, 4096, f32, "tf32x3", TF32X3_TILES, 1e-4, True),
        scaled(4096),
        int8(8192),
        matmul_case("gemm f16 NN 4095x4093x4091", 4095, 4093, 4091, f16, "tf32", ODD_TILES, 1e-3),
        padded(4095, 4093, 4091),
        matmul_case("gemm f16 NN 16x8192x8192", 16, 8192, 8192, f16, "tf32", SKINNY_TILES, 1e-3),
        split_k(16, 8192, 8192),
        split_k(16, 8192, 8192, clean_cache=True),
        split_k(16, 8192, 8192, clean_cache=True, ahead=True),
        grouped(4, 512, 8192, 8192),
        kept(4096),
        weights("int8", 4096, 4096, 4096),
        weights("fp8 e4m3", 4096, 4096, 4096),
        weights("int4", 4096, 8192, 8192, INT4_TILES),
        *(weights(element, 16, 8192, 8192, FEW_ROWS) for element in ("int8", "fp8 e4m3", "int4")),
        *(_attention(8192, dim, causal) for dim in (128, 64) for causal in (False, True)),
        _attention(8192, 128, True, in_one_loop=True),
        _attention(1024, 128, True),
        _attention_gradients(8192, 128, False),
        _attention_gradients(8192, 128, True),
        _attention_gradients(8192, 64, False),
        *(_attention_gradients(8192, dim, causal, True)
          for dim, causal in ((128, False), (128, True), (64, False))),
        _paged_decode(16, 8192),
    ]
