"""conch-triton-kernels 1.3: activations, norms, caches, quantisation, attention over pages, and what vision
needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.packages.case import Case, Data, Lazy

functional = torch.nn.functional
activation = Lazy("conch.ops.activation.silu_and_mul")
norm = Lazy("conch.ops.normalization.rms_norm")
gemma = Lazy("conch.ops.normalization.gemma_rms_norm")
rotary = Lazy("conch.ops.embedding.rotary_embedding")
int8 = Lazy("conch.ops.quantization.int8")
fp8 = Lazy("conch.ops.quantization.fp8")
blockwise = Lazy("conch.ops.quantization.bitsandbytes.functional")
caches = Lazy("conch.ops.vllm.reshape_and_cache")
copies = Lazy("conch.ops.vllm.copy_blocks")
paged = Lazy("conch.ops.attention.paged_attention")
pooling = Lazy("conch.ops.vision.bev_pool")
suppression = Lazy("conch.ops.vision.nms")
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
PAGE = 16


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def _rotate(
    positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor, table: torch.Tensor
) -> list[torch.Tensor]:
    cos, sin = table[positions][:, None].chunk(2, -1)
    results = []
    for x in (q, k):
        low, high = x.reshape(len(positions), -1, table.shape[1]).chunk(2, -1)
        results.append(torch.cat((low * cos - high * sin, high * cos + low * sin), -1).reshape(x.shape))
    return results


def _cached(
    key: torch.Tensor, value: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, slots: torch.Tensor
) -> tuple:
    results = []
    for new, pages in ((key, k_pages), (value, v_pages)):
        flat = pages.clone().reshape(-1, *pages.shape[2:])
        flat[slots] = new
        results.append(flat.reshape(pages.shape))
    return tuple(results)


def _cache(key: Any, value: Any, k_pages: Any, v_pages: Any, slots: Any) -> tuple:
    caches.reshape_and_cache(key, value, k_pages, v_pages, slots)
    return k_pages, v_pages


def _copy(k: Any, v: Any, pairs: Any) -> list:
    copies.copy_blocks([k], [v], pairs)
    return [k, v]


def _copied(k: torch.Tensor, v: torch.Tensor, pairs: torch.Tensor) -> list:
    results = [k.clone(), v.clone()]
    for pages in results:
        pages[pairs[:, 1]] = pages[pairs[:, 0]]
    return results


def _attention(q: Any, k_pages: Any, v_pages: Any, table: Any, lengths: Any) -> torch.Tensor:
    """One query a sequence, whose keys and values stand in the pages of ``table``."""
    k = k_pages[table].flatten(1, 2)
    v = v_pages[table].flatten(1, 2)
    group = q.shape[1] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scores = torch.einsum("bhd,blhd->bhl", q, k) / q.shape[-1] ** 0.5
    beyond = torch.arange(k.shape[1], device=q.device) >= lengths[:, None]
    return torch.einsum("bhl,blhd->bhd", scores.masked_fill(beyond[:, None], float("-inf")).softmax(-1), v)


def _attend(q: Any, k: Any, v: Any, table: Any, lengths: Any) -> torch.Tensor:
    return paged.paged_attention(q, k, v, table, lengths, scale=q.shape[-1] ** -0.5)


def _pages(d: Data, dtype: torch.dtype) -> tuple:
    batch, pages, heads, size = d.size(32, 2), d.size(128, 4), d.size(8, 2), 64
    table = torch.randperm(batch * pages, device=d.device).reshape(batch, pages).int()
    caches_ = (d.normal(batch * pages, PAGE, heads, size, dtype=dtype) for _ in range(2))
    return (
        d.normal(batch, heads * 4, size, dtype=dtype),
        *caches_,
        table,
        d.integers(1, pages * PAGE, batch, dtype=torch.int32),
    )


def _slots(d: Data, dtype: torch.dtype) -> tuple:
    tokens, pages, heads, size = d.size(4096, 12), d.size(1024, 4), d.size(8, 2), 64
    slots = torch.randperm(pages * PAGE, device=d.device)[:tokens]
    shapes = [(tokens, heads, size)] * 2 + [(pages, PAGE, heads, size)] * 2
    return (*(d.normal(*shape, dtype=dtype) for shape in shapes), slots)


def _turns(d: Data, dtype: torch.dtype) -> tuple:
    tokens, heads = d.size(4096, 8), d.size(32, 2)
    angles = d.uniform(0, 6, d.size(8192, 16), 32)
    table = torch.cat((angles.cos(), angles.sin()), -1).to(dtype)
    shape = (tokens, heads * 64)
    return (
        d.integers(0, len(table), tokens),
        d.normal(*shape, dtype=dtype),
        d.normal(*shape, dtype=dtype),
        table,
    )


def _blocks(d: Data, dtype: torch.dtype) -> tuple:
    count, size = d.size(1024, 8), d.size(16384, 64)
    order = torch.randperm(count, device=d.device)[: count // 2 * 2].reshape(-1, 2)
    return d.normal(count, size, dtype=dtype), d.normal(count, size, dtype=dtype), order


def _unquantised(x: torch.Tensor, kind: str) -> torch.Tensor:
    packed, state = blockwise.quantize_blockwise(x, quant_type=kind)
    return blockwise.dequantize_blockwise(packed, state, quant_type=kind)


def _near(x: torch.Tensor) -> torch.Tensor:
    """Four bits a number: only its size is known, to about a sixth of the block's largest."""
    return x


def _scale(d: Data, dtype: torch.dtype) -> tuple:
    return d.normal(dtype=dtype), torch.tensor([0.05], device=d.device)


def _quantised(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (x / scale).round().clamp(-128, 127).to(torch.int8)


Row = tuple[str, Callable[[Data, torch.dtype], tuple], Callable[..., Any], Callable[..., Any]]
ROWS: list[Row] = [
    (
        "silu_and_mul",
        lambda d, t: (d.normal(dtype=t),),
        lambda x: activation.silu_and_mul(x),
        lambda x: functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    ),
    (
        "rms_norm",
        lambda d, t: (d.normal(dtype=t), d.normal(d.columns, dtype=t)),
        lambda x, w: norm.rms_norm(x, w, 1e-6),
        lambda x, w: _rms(x) * w,
    ),
    (
        "fused_add_rms_norm",
        lambda d, t: (d.normal(dtype=t), d.normal(dtype=t), d.normal(d.columns, dtype=t)),
        lambda x, r, w: norm.fused_add_rms_norm(x, r, w, 1e-6),
        lambda x, r, w: (_rms(x + r) * w, x + r),
    ),
    (
        "gemma_rms_norm",
        lambda d, t: (d.normal(dtype=t), d.normal(d.columns, dtype=t)),
        lambda x, w: gemma.gemma_rms_norm(x.clone(), w, 1e-6),
        lambda x, w: _rms(x) * (1 + w),
    ),
    ("rotary_embedding", _turns, lambda p, q, k, c: rotary.rotary_embedding(p, q, k, 64, c), _rotate),
    ("reshape_and_cache", _slots, _cache, _cached),
    ("copy_blocks", _blocks, _copy, _copied),
    ("paged_attention", _pages, _attend, _attention),
]
LOOSE = {"paged_attention": 2e-2}


def cases() -> list[Case]:
    """All cases."""
    made = [
        Case(
            "conch",
            f"{name}, {kind}",
            lambda d, make=make, kind=kind: make(d, TYPES[kind]),
            run,
            reference,
            tolerance=LOOSE.get(name),
            products=name == "paged_attention",
        )
        for name, make, run, reference in ROWS
        for kind in ("f16", "bf16") + (() if "paged" in name else ("f32",))
    ]
    made += [
        Case(
            "conch",
            f"scaled_int8_quant, {kind}",
            lambda d, kind=kind: _scale(d, TYPES[kind]),
            lambda x, s: int8.scaled_int8_quant(x, s)[0].float(),
            _quantised,
            tolerance=0.2,
        )
        for kind in ("f16", "bf16")
    ]
    return made
