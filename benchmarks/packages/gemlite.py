"""gemlite 0.6.0: products of activations and quantised weights."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.packages.case import Case, Data, Lazy

helper = Lazy("gemlite.helper")
GROUP = 64
ROWS = (1, 8, 64, 1024)
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
LAYERS: dict[tuple, Any] = {}
"""Layers with packed weights, made once for each case: packing is no part of a step."""


def _inputs(d: Data, rows: int, bits: int, dtype: torch.dtype) -> tuple:
    outputs, depth = d.size(4096, 128), d.size(4096, 128)
    weights = d.integers(0, 2**bits, outputs, depth, dtype=torch.uint8)
    scales = d.uniform(0.001, 0.005, outputs * depth // GROUP, 1, dtype=dtype)
    zeros = torch.full_like(scales, 2 ** (bits - 1))
    return d.normal(rows, depth, dtype=dtype), weights, scales, zeros


def _layer(
    bits: int, x: torch.Tensor, weights: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor
) -> torch.Tensor:
    key = (bits, x.dtype, x.shape, weights.data_ptr())
    if key not in LAYERS:
        LAYERS.clear()
        made = helper.A16Wn(device=x.device, dtype=x.dtype)
        LAYERS[key] = made.from_weights(weights.clone(), scales.clone(), zeros.clone(), bits, GROUP)
    return LAYERS[key](x)


def _reference(
    x: torch.Tensor, weights: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor
) -> torch.Tensor:
    wide = (weights.reshape(-1, GROUP).to(scales.dtype) - zeros) * scales
    return x @ wide.reshape(weights.shape).t()


def _dynamic(kind: str, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    key = (kind, x.dtype, x.shape, weights.data_ptr())
    if key not in LAYERS:
        LAYERS.clear()
        LAYERS[key] = getattr(helper, kind)(device=x.device, dtype=x.dtype).from_weights(weights.clone())
    return LAYERS[key](x)


def _plain(d: Data, rows: int, dtype: torch.dtype) -> tuple:
    outputs, depth = d.size(4096, 128), d.size(4096, 128)
    return d.normal(rows, depth, dtype=dtype), d.normal(outputs, depth, dtype=dtype, scale=0.02)


def cases() -> list[Case]:
    """All cases."""
    made = [
        Case(
            "gemlite",
            f"{rows} rows, {bits} bits, {name}",
            lambda d, r=rows, b=bits, t=dtype: _inputs(d, r, b, t),
            lambda *given, b=bits: _layer(b, *given),
            _reference,
            tolerance=3e-2,
            products=True,
        )
        for bits in (4, 8)
        for rows in ROWS
        for name, dtype in TYPES.items()
    ]
    made += [
        Case(
            "gemlite",
            f"{rows} rows, {kind}",
            lambda d, r=rows: _plain(d, r, torch.bfloat16),
            lambda *given, k=kind: _dynamic(k, *given),
            lambda x, w: x @ w.t(),
            tolerance=0.25,
            products=True,
        )
        for kind in ("A16W8_INT8", "A16W8_FP8")
        for rows in (1, 64)
    ]
    return made
