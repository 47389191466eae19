"""triton_kernels of Triton 3.6: what mixtures of experts need, and microscaling formats. Its own functions
of torch are the references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.packages.case import Case, Data, Lazy

glu = Lazy("triton_kernels.swiglu")
selection = Lazy("triton_kernels.topk")
reduction = Lazy("triton_kernels.reduce")
compact = Lazy("triton_kernels.compaction")
formats = Lazy("triton_kernels.numerics_details.mxfp")
matmul = Lazy("triton_kernels.matmul_ogs")
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
QUANTISED = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "e2m1": torch.uint8}


def _selected(function: str, x: torch.Tensor, k: int, softmax: bool) -> tuple:
    found = getattr(selection, function)(x, k, apply_softmax=softmax)
    words = found.mask.storage.data
    return found.vals, found.indx, words[: x.shape[0]].view(torch.int32)


def _downcast(function: str, x: torch.Tensor, kind: torch.dtype) -> tuple:
    values, scales = getattr(formats, function)(x, kind, axis=-1)[:2]
    return values.view(torch.uint8), scales


def _upcast(function: str, values: torch.Tensor, scales: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    return getattr(formats, function)(values, scales, kind, axis=-1)


def _compaction(d: Data) -> tuple:
    rows, k = d.rows, 8
    order = torch.stack([torch.randperm(32, device=d.device)[:k] for _ in range(64)])
    indices = order.repeat(rows // 64 + 1, 1)[:rows].to(torch.int16)
    return (
        d.normal(rows, k, dtype=torch.bfloat16),
        indices,
        d.integers(-(2**31), 2**31 - 1, rows, 1, dtype=torch.int32),
    )


def _glu(function: str, x: torch.Tensor, limit: float) -> torch.Tensor:
    return getattr(glu, function)(x, 1.1, glu.PrecisionConfig(limit=limit))


def _mask(d: Data) -> torch.Tensor:
    return d.integers(0, 2, d.size(8, 2), d.rows // 4, d.columns // 4, dtype=torch.int8)


def _volume(d: Data, dtype: torch.dtype) -> torch.Tensor:
    return d.normal(d.size(8, 2), d.rows // 4, d.columns // 4, dtype=dtype)


def _exact(
    name: str,
    make: Callable[[Data], tuple],
    run: Callable[..., Any],
    reference: Callable[..., Any],
    **how: Any,
) -> Case:
    return Case("triton_kernels", name, make, run, reference, exact=True, **how)


def _for_type(name: str, dtype: torch.dtype) -> list[Case]:
    made = [
        _exact(
            f"swiglu, limit {limit}, {name}",
            lambda d: (d.normal(dtype=dtype),),
            lambda x, limit=limit: _glu("swiglu", x, limit),
            lambda x, limit=limit: _glu("swiglu_torch", x, limit),
        )
        for limit in (1e-2, 10.0)
    ]
    for axis in (0, 1):
        made.append(
            _exact(
                f"reduce, axis {axis}, {name}",
                lambda d: (_volume(d, dtype),),
                lambda x, axis=axis: reduction.reduce(x, axis)[0],
                lambda x, axis=axis: x.float().sum(axis),
            )
        )
    made.append(
        _exact(
            f"reduce, masked, {name}",
            lambda d: (_volume(d, dtype), _mask(d)),
            lambda x, m: reduction.reduce(x, 0, mask=m)[0],
            lambda x, m: (x.float() * m).sum(0),
        )
    )
    for experts, k in ((32, 4), (128, 8)):
        made.append(
            _exact(
                f"topk {k} of {experts}, {name}",
                lambda d, e=experts: (
                    d.normal(d.size(16384, 40), e, dtype=torch.float32).argsort(1).sub(e // 2).to(dtype) / 8,
                ),
                lambda x, k=k: _selected("topk", x, k, True),
                lambda x, k=k: _selected("topk_torch", x, k, True),
            )
        )
    return made


def _for_format(name: str, kind: torch.dtype) -> list[Case]:
    made = []
    for wide in ("f16", "bf16"):
        dtype = TYPES[wide]
        made.append(
            _exact(
                f"downcast of {wide} to {name}",
                lambda d, dtype=dtype: (d.normal(dtype=dtype),),
                lambda x: _downcast("downcast_to_mxfp", x, kind),
                lambda x: _downcast("downcast_to_mxfp_torch", x, kind),
            )
        )
        made.append(
            _exact(
                f"upcast of {name} to {wide}",
                lambda d, dtype=dtype: formats.downcast_to_mxfp_torch(d.normal(dtype=dtype), kind, axis=-1)[
                    :2
                ],
                lambda v, s, dtype=dtype: _upcast("upcast_from_mxfp", v, s, dtype),
                lambda v, s, dtype=dtype: _upcast("upcast_from_mxfp_torch", v, s, dtype),
            )
        )
    return made


def cases() -> list[Case]:
    """All cases, those without products first."""
    made = [case for name, dtype in TYPES.items() for case in _for_type(name, dtype)]
    made += [case for name, kind in QUANTISED.items() for case in _for_format(name, kind)]
    made.append(
        _exact(
            "compaction",
            _compaction,
            lambda v, i, m: compact.compaction(v, i, m),
            lambda v, i, m: compact.compaction_torch(v, i, m),
        )
    )
    for name in ("f16", "bf16"):
        made.append(
            Case(
                "triton_kernels",
                f"matmul, {name}",
                lambda d, t=TYPES[name]: (
                    d.normal(d.size(4096, 64), d.size(2048, 64), dtype=t),
                    d.normal(d.size(2048, 64), d.size(2048, 64), dtype=t),
                ),
                lambda x, w: matmul.matmul_ogs(x, w, None),
                lambda x, w: x @ w,
                products=True,
            )
        )
    return made
