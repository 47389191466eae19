"""fla-core 0.6.0: linear attention and what its models need, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.packages.case import Case, Data, Lazy

functional = torch.nn.functional
ops = {
    name: Lazy(f"fla.ops.{name}")
    for name in (
        "linear_attn",
        "retention",
        "simple_gla",
        "gla",
        "delta_rule",
        "gated_delta_rule",
        "hgrn",
        "attn",
        "forgetting_attn",
        "lightning_attn",
        "kda",
    )
}
utils = Lazy("fla.ops.utils")
naive = {
    name: Lazy(f"fla.ops.{name}.naive")
    for name in ("gla", "delta_rule", "gated_delta_rule", "hgrn", "kda", "attn")
}
activations = Lazy("fla.modules.activations")
layer = Lazy("fla.modules.norm.layernorm")
gated = Lazy("fla.modules.norm.fused_norm_gate")
unit = Lazy("fla.modules.norm.l2norm")
losses = Lazy("fla.modules.fused_cross_entropy.ops")
turning = Lazy("fla.modules.rotary.ops")
convolution = Lazy("fla.modules.causal_conv1d.ops")
shifting = Lazy("fla.modules.token_shift")
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
Make = Callable[[Data, torch.dtype], tuple]
Row = tuple[str, Make, Callable[..., Any], Callable[..., Any], tuple[int, ...]]


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def _wide(*more: str) -> Make:
    """``x``, and weights of a row (``w``) or other tensors like it (``x``)."""

    def make(d: Data, dtype: torch.dtype) -> tuple:
        return d.normal(dtype=dtype), *(
            d.normal(d.columns, dtype=dtype) if what == "w" else d.normal(dtype=dtype) for what in more
        )

    return make


def _sequence(d: Data, dtype: torch.dtype) -> tuple:
    return (d.normal(d.size(4, 2), d.size(2048, 32), d.size(2048, 64), dtype=dtype),)


def _convolved(d: Data, dtype: torch.dtype) -> tuple:
    wide = d.size(2048, 64)
    return (*_sequence(d, dtype), d.normal(wide, 4, dtype=dtype), d.normal(wide, dtype=dtype))


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    padded = functional.pad(x.transpose(1, 2), (3, 0))
    return functional.silu(
        functional.conv1d(padded, weight[:, None], bias, groups=len(weight)).transpose(1, 2)
    )


def _shifted(x: torch.Tensor) -> torch.Tensor:
    return functional.pad(x, (0, 0, 1, -1)) - x


def _angles(d: Data, dtype: torch.dtype) -> tuple:
    length = d.size(2048, 16)
    angles = d.uniform(0, 6, length, 32)
    return (
        d.normal(d.size(4, 1), length, d.size(16, 2), 64, dtype=dtype),
        angles.cos().to(dtype),
        angles.sin().to(dtype),
    )


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((low * cos - high * sin, low * sin + high * cos), -1)


def _labels(d: Data, dtype: torch.dtype) -> tuple:
    words = d.size(32000, 100)
    return d.normal(d.rows // 4, words, dtype=dtype), d.integers(0, words, d.rows // 4)


def _gates(d: Data, dtype: torch.dtype) -> tuple:
    shape = (d.size(4, 1), d.size(512, 64), d.size(1024, 32))
    return d.normal(*shape, dtype=dtype), functional.logsigmoid(d.normal(*shape)).to(dtype)


def _qkv(d: Data, dtype: torch.dtype, length: int = 2048, size: int = 64) -> tuple:
    shape = (d.size(2, 1), d.size(length, 64), d.size(8, 1), size)
    return tuple(d.normal(*shape, dtype=dtype, scale=0.5) for _ in range(3))


def _normal_keys(d: Data, dtype: torch.dtype) -> tuple:
    q, k, v = _qkv(d, torch.float32, 512)
    return q.to(dtype), functional.normalize(k, dim=-1).to(dtype), v.to(dtype)


def _per_head(d: Data, dtype: torch.dtype, low: float = 0.0) -> torch.Tensor:
    return (functional.logsigmoid(d.normal(d.size(2, 1), d.size(2048, 64), d.size(8, 1)) + 3) + low).to(dtype)


def _short(d: Data, kind: str, dtype: torch.dtype) -> torch.Tensor:
    x = d.normal(d.size(2, 1), d.size(512, 64), d.size(8, 1), *((64,) if kind == "wide" else ()))
    return (x.sigmoid() if kind == "beta" else functional.logsigmoid(x + 2)).to(dtype)


def _weighted(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, logs: torch.Tensor | None = None
) -> torch.Tensor:
    """Causal attention without a softmax, each score times the exponential of what ``logs`` add up to since
    its key."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    causal = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).tril()
    if logs is not None:
        sums = logs.to(q.dtype).cumsum(1).transpose(1, 2)
        scores = scores * (sums[..., :, None] - sums[..., None, :]).masked_fill(~causal, 0).exp()
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(~causal, 0), v)


def _decays(q: torch.Tensor) -> torch.Tensor:
    heads = torch.arange(q.shape[2], device=q.device, dtype=torch.float64)
    return (1 - 2 ** (-5 - heads)).log().to(q.dtype).expand(q.shape[:3])


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, logs: torch.Tensor | None = None
) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if logs is not None:
        sums = logs.to(q.dtype).cumsum(1).transpose(1, 2)
        scores = scores + sums[..., :, None] - sums[..., None, :]
    beyond = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    return (scores.masked_fill(beyond, float("-inf")).softmax(-1) @ v).transpose(1, 2)


def _delta(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    turned = (x.transpose(1, 2) for x in (q, k, v, beta))
    return naive["delta_rule"].delta_rule_recurrence(*turned)[0].transpose(1, 2)


MODULES: list[Row] = [
    (
        "layer_norm",
        _wide("w", "w"),
        lambda x, w, b: layer.layer_norm(x, w, b),
        lambda x, w, b: functional.layer_norm(x, x.shape[1:], w, b),
        (0, 1, 2),
    ),
    (
        "rms_norm",
        _wide("w", "w"),
        lambda x, w, b: layer.rms_norm(x, w, b),
        lambda x, w, b: _rms(x) * w + b,
        (0, 1, 2),
    ),
    (
        "rms_norm_gated",
        _wide("x", "w"),
        lambda x, g, w: gated.rms_norm_gated(x, g, w, None),
        lambda x, g, w: _rms(x) * w * functional.silu(g),
        (0, 1, 2),
    ),
    (
        "l2norm",
        _sequence,
        lambda x: unit.l2norm(x.reshape(*x.shape[:2], -1, 64)),
        lambda x: functional.normalize(x.reshape(*x.shape[:2], -1, 64), dim=-1),
        (0,),
    ),
    ("swish", _wide(), lambda x: activations.swish(x), functional.silu, (0,)),
    ("sigmoid", _wide(), lambda x: activations.sigmoid(x), torch.sigmoid, (0,)),
    ("logsigmoid", _wide(), lambda x: activations.logsigmoid(x), functional.logsigmoid, (0,)),
    (
        "swiglu",
        _wide("x"),
        lambda x, y: activations.swiglu(x, y),
        lambda x, y: functional.silu(x) * y,
        (0, 1),
    ),
    (
        "sigmoidglu",
        _wide("x"),
        lambda x, y: activations.sigmoidglu(x, y),
        lambda x, y: x.sigmoid() * y,
        (0, 1),
    ),
    (
        "cross_entropy",
        _labels,
        lambda x, c: losses.cross_entropy_loss(x, c)[0],
        lambda x, c: functional.cross_entropy(x, c, reduction="none"),
        (0,),
    ),
    ("rotary_embedding", _angles, lambda x, c, s: turning.rotary_embedding(x, c, s), _turned, (0,)),
    (
        "causal_conv1d",
        _convolved,
        lambda x, w, b: convolution.causal_conv1d(x, w, b, activation="silu")[0],
        _convolution,
        (0, 1, 2),
    ),
    ("token_shift", _sequence, lambda x: shifting.token_shift(x), _shifted, (0,)),
    ("chunk_global_cumsum", _sequence, lambda x: utils.chunk_global_cumsum(x), lambda x: x.cumsum(1), ()),
    (
        "mean_pooling",
        lambda d, t: (_qkv(d, t)[0],),
        lambda x: utils.mean_pooling(x, 64),
        lambda x: x.unflatten(1, (-1, 64)).mean(2),
        (0,),
    ),
    (
        "hgrn",
        _gates,
        lambda x, g: ops["hgrn"].fused_recurrent_hgrn(x, g)[0],
        lambda x, g: naive["hgrn"].naive_recurrent_hgrn(x, g)[0],
        (0, 1),
    ),
]
ATTENTION: list[Row] = [
    (
        "chunk_linear_attn",
        _qkv,
        lambda q, k, v: ops["linear_attn"].chunk_linear_attn(q, k, v, normalize=False)[0],
        _weighted,
        (0, 1, 2),
    ),
    (
        "chunk_retention",
        _qkv,
        lambda q, k, v: ops["retention"].chunk_retention(q, k, v)[0],
        lambda q, k, v: _weighted(q, k, v, _decays(q)),
        (0, 1, 2),
    ),
    (
        "parallel_retention",
        _qkv,
        lambda q, k, v: ops["retention"].parallel_retention(q, k, v)[0],
        lambda q, k, v: _weighted(q, k, v, _decays(q)),
        (0, 1, 2),
    ),
    (
        "fused_recurrent_retention",
        lambda d, t: _qkv(d, t, 512),
        lambda q, k, v: ops["retention"].fused_recurrent_retention(q, k, v)[0],
        lambda q, k, v: _weighted(q, k, v, _decays(q)),
        (0, 1, 2),
    ),
    (
        "chunk_simple_gla",
        lambda d, t: (*_qkv(d, t), _per_head(d, torch.float32)),
        lambda q, k, v, g: ops["simple_gla"].chunk_simple_gla(q, k, v, g)[0],
        _weighted,
        (0, 1, 2, 3),
    ),
    (
        "chunk_gla",
        lambda d, t: (*_qkv(d, t, 512), _short(d, "wide", torch.float32)),
        lambda q, k, v, g: ops["gla"].chunk_gla(q, k, v, g)[0],
        lambda q, k, v, g: naive["gla"].naive_recurrent_gla(q, k, v, g)[0],
        (0, 1, 2, 3),
    ),
    (
        "fused_recurrent_gla",
        lambda d, t: (*_qkv(d, t, 512), _short(d, "wide", torch.float32)),
        lambda q, k, v, g: ops["gla"].fused_recurrent_gla(q, k, v, g)[0],
        lambda q, k, v, g: naive["gla"].naive_recurrent_gla(q, k, v, g)[0],
        (0, 1, 2, 3),
    ),
    (
        "chunk_delta_rule",
        lambda d, t: (*_normal_keys(d, t), _short(d, "beta", t)),
        lambda q, k, v, b: ops["delta_rule"].chunk_delta_rule(q, k, v, b)[0],
        _delta,
        (0, 1, 2, 3),
    ),
    (
        "fused_recurrent_delta_rule",
        lambda d, t: (*_normal_keys(d, t), _short(d, "beta", t)),
        lambda q, k, v, b: ops["delta_rule"].fused_recurrent_delta_rule(q, k, v, b)[0],
        _delta,
        (0, 1, 2, 3),
    ),
    (
        "chunk_gated_delta_rule",
        lambda d, t: (*_normal_keys(d, t), _short(d, "gate", torch.float32), _short(d, "beta", t)),
        lambda q, k, v, g, b: ops["gated_delta_rule"].chunk_gated_delta_rule(q, k, v, g, b)[0],
        lambda q, k, v, g, b: naive["gated_delta_rule"].naive_recurrent_gated_delta_rule(q, k, v, b, g)[0],
        (0, 1, 2, 3, 4),
    ),
    ("parallel_attn", _qkv, lambda q, k, v: ops["attn"].parallel_attn(q, k, v), _attention, (0, 1, 2)),
    (
        "parallel_forgetting_attn",
        lambda d, t: (*_qkv(d, t), _per_head(d, torch.float32)),
        lambda q, k, v, g: ops["forgetting_attn"].parallel_forgetting_attn(q, k, v, g),
        _attention,
        (0, 1, 2, 3),
    ),
]


def cases() -> list[Case]:
    """All cases, those without products first."""

    def of(rows: list[Row], kinds: tuple[str, ...], products: bool) -> list[Case]:
        return [
            Case(
                "fla",
                f"{name}, {kind}",
                lambda d, make=make, kind=kind: make(d, TYPES[kind]),
                run,
                reference,
                gradients,
                products=products,
                tolerance=2e-2 if products or kind == "bf16" else 1e-3,
            )
            for name, make, run, reference, gradients in rows
            for kind in kinds
        ]

    forward = [
        (f"{name} forward", make, run, reference, ())
        for name, make, run, reference, gradients in ATTENTION
        if gradients
    ]
    return of(MODULES, ("f32", "bf16"), False) + of(forward, ("bf16",), True) + of(ATTENTION, ("bf16",), True)
