"""liger-kernel 0.8.5: losses, norms and activations of language models, each with its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.packages.case import Case, Data, Lazy

ops = Lazy("liger_kernel.ops")
functional = torch.nn.functional
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def _divergence(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (y.exp() * (y - x)).sum()


def _jsd(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    middle = ((x.exp() + y.exp()) / 2).log()
    return (_divergence(middle, y) + _divergence(middle, x)) / 2 / x.shape[0]


def _sparsemax(x: torch.Tensor) -> torch.Tensor:
    ordered = x.sort(-1, descending=True)[0]
    sums = ordered.cumsum(-1) - 1
    count = torch.arange(1, x.shape[-1] + 1, device=x.device)
    support = (count * ordered > sums).sum(-1, keepdim=True)
    return (x - sums.gather(-1, support - 1) / support).clamp(min=0)


def _poly_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    parts = [x**power for power in (3, 2, 1)]
    scaled = [p * (p.square().mean(-1, keepdim=True) + 1e-6).rsqrt() for p in parts]
    return sum(weight[i] * part for i, part in enumerate(scaled)) + bias


def _turned(x: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat((-high, low), -1)


def _rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple:
    return tuple(t * cos[:, None] + _turned(t) * sin[:, None] for t in (q, k))


def _group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.group_norm(x, 4, weight, bias, 1e-5)


def _probabilities(d: Data, dtype: torch.dtype) -> torch.Tensor:
    return d.normal(d.rows // 2, d.columns).softmax(-1).to(dtype)


def _logarithms(d: Data, dtype: torch.dtype) -> torch.Tensor:
    return d.normal(d.rows // 2, d.columns).log_softmax(-1).to(dtype)


def _angles(d: Data, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    angles = d.uniform(0, 6, 1, d.size(2048, 8), 32)
    return tuple(torch.cat((f, f), -1).to(dtype) for f in (angles.cos(), angles.sin()))


def _heads(d: Data, dtype: torch.dtype) -> tuple:
    length = d.size(2048, 8)
    q = d.normal(2, length, d.size(32, 4), 64, dtype=dtype).transpose(1, 2)
    k = d.normal(2, length, d.size(8, 2), 64, dtype=dtype).transpose(1, 2)
    return (q, k, *_angles(d, dtype))


def _labels(d: Data, dtype: torch.dtype) -> tuple:
    words = d.size(32000, 100)
    return d.normal(d.rows // 4, words, dtype=dtype), d.integers(0, words, d.rows // 4)


def _linear(d: Data, dtype: torch.dtype) -> tuple:
    words, wide = d.size(32000, 64), d.size(1024, 32)
    rows = d.rows // 4
    return (
        d.normal(rows, wide, dtype=dtype),
        d.normal(words, wide, dtype=dtype, scale=0.03),
        d.integers(0, words, rows),
    )


Row = tuple[
    str, Callable[[Data, torch.dtype], tuple], Callable[..., Any], Callable[..., Any], tuple[int, ...]
]
ROWS: list[Row] = [
    (
        "rms_norm",
        lambda d, t: (d.normal(dtype=t), d.normal(d.columns, dtype=t)),
        lambda x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False, None),
        _rms_norm,
        (0, 1),
    ),
    (
        "layer_norm",
        lambda d, t: (d.normal(dtype=t), d.normal(d.columns, dtype=t), d.normal(d.columns, dtype=t)),
        lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-5),
        lambda x, w, b: functional.layer_norm(x, x.shape[1:], w, b, 1e-5),
        (0, 1, 2),
    ),
    (
        "fused_add_rms_norm",
        lambda d, t: (d.normal(dtype=t), d.normal(dtype=t), d.normal(d.columns, dtype=t)),
        lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6, 0.0, "llama", False),
        lambda x, r, w: (_rms_norm(x + r, w), x + r),
        (0, 1, 2),
    ),
    (
        "group_norm",
        lambda d, t: (
            d.normal(8, d.size(64, 8), d.size(4096, 64), dtype=t),
            d.normal(d.size(64, 8), dtype=t),
            d.normal(d.size(64, 8), dtype=t),
        ),
        lambda x, w, b: ops.LigerGroupNormFunction.apply(x, w, b, x.shape[1], 4, 1e-5),
        _group_norm,
        (0, 1, 2),
    ),
    (
        "poly_norm",
        lambda d, t: (d.normal(dtype=t), d.uniform(0.2, 0.5, 3, dtype=t), d.normal(1, dtype=t)[0]),
        lambda x, w, b: ops.LigerPolyNormFunction.apply(x, w, b, 1e-6, False),
        _poly_norm,
        (0, 1, 2),
    ),
    (
        "dyt",
        lambda d, t: (
            d.normal(dtype=t),
            d.uniform(0.4, 0.6, 1, dtype=t),
            d.normal(d.columns, dtype=t),
            d.normal(d.columns, dtype=t),
        ),
        lambda x, a, g, b: ops.LigerDyTFunction.apply(x, a, g, b),
        lambda x, a, g, b: g * torch.tanh(a * x) + b,
        (0, 2, 3),
    ),
    (
        "swiglu",
        lambda d, t: (d.normal(dtype=t), d.normal(dtype=t)),
        lambda a, b: ops.LigerSiLUMulFunction.apply(a, b),
        lambda a, b: functional.silu(a) * b,
        (0, 1),
    ),
    (
        "geglu",
        lambda d, t: (d.normal(dtype=t), d.normal(dtype=t)),
        lambda a, b: ops.LigerGELUMulFunction.apply(a, b),
        lambda a, b: functional.gelu(a, approximate="tanh") * b,
        (0, 1),
    ),
    (
        "relu_squared",
        lambda d, t: (d.normal(dtype=t),),
        lambda x: ops.LigerReLUSquaredFunction.apply(x),
        lambda x: functional.relu(x).square(),
        (0,),
    ),
    (
        "softmax",
        lambda d, t: (d.normal(dtype=t),),
        lambda x: ops.LigerSoftmaxFunction.apply(x),
        lambda x: x.softmax(-1),
        (0,),
    ),
    (
        "rope",
        _heads,
        lambda q, k, c, s: ops.LigerRopeFunction.apply(q.clone(), k.clone(), c, s),
        _rope,
        (0, 1),
    ),
    (
        "cross_entropy",
        _labels,
        lambda x, c: ops.LigerCrossEntropyFunction.apply(x.clone(), c, None)[0],
        lambda x, c: functional.cross_entropy(x, c),
        (0,),
    ),
    (
        "cross_entropy, smoothed",
        _labels,
        lambda x, c: ops.LigerCrossEntropyFunction.apply(x.clone(), c, None, -100, 1e-3, 0.1)[0],
        lambda x, c: (
            functional.cross_entropy(x, c, label_smoothing=0.1) + 1e-3 * x.logsumexp(-1).square().mean()
        ),
        (0,),
    ),
    (
        "jsd",
        lambda d, t: (_logarithms(d, t), _logarithms(d, t)),
        lambda x, y: ops.LigerJSDFunction.apply(x, y),
        _jsd,
        (0,),
    ),
    (
        "kl_div",
        lambda d, t: (_logarithms(d, t), _probabilities(d, t)),
        lambda x, y: ops.LigerKLDivLossFunction.apply(x, y, "batchmean"),
        lambda x, y: functional.kl_div(x, y, reduction="batchmean"),
        (0,),
    ),
    (
        "tvd",
        lambda d, t: (_probabilities(d, t), _probabilities(d, t)),
        lambda x, y: ops.LigerTVDLossFunction.apply(x, y, None, "batchmean"),
        lambda x, y: (x - y).abs().sum() / 2 / x.shape[0],
        (0,),
    ),
]
ONE_TYPE: list[Row] = [
    (
        "sparsemax",
        lambda d, t: (d.normal(d.rows // 4, d.columns // 4, dtype=t),),
        lambda x: ops.LigerSparsemaxFunction.apply(x, -1),
        _sparsemax,
        (0,),
    ),
    (
        "fused_linear_cross_entropy",
        _linear,
        lambda x, w, c: ops.LigerFusedLinearCrossEntropyFunction.apply(x, w, c)[0],
        lambda x, w, c: functional.cross_entropy(x @ w.t(), c),
        (0, 1),
    ),
]
LOOSE = {"group_norm": 1e-3, "jsd": 1e-3, "poly_norm": 1e-3, "fused_linear_cross_entropy": 5e-2}


def cases() -> list[Case]:
    """All cases."""
    chosen = [(row, name) for row in ROWS for name in TYPES] + [(row, "f32") for row in ONE_TYPE]
    return [
        Case(
            "liger",
            f"{name}, {kind}",
            lambda d, make=make, kind=kind: make(d, TYPES[kind]),
            run,
            reference,
            gradients,
            tolerance=LOOSE.get(name) if kind == "f32" else 3e-2,
        )
        for (name, make, run, reference, gradients), kind in chosen
    ]
