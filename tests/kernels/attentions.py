"""What attention and its gradients are, in float64."""

from __future__ import annotations

import numpy as np


def softmax_product(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool) -> np.ndarray:
    """In f64; ``scale`` is for powers of two."""
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k.astype(np.float64)) * scale
    if causal:
        length = scores.shape[-1]
        scores = np.where(np.arange(length)[:, None] >= np.arange(length), scores, -np.inf)
    p = np.exp2(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v.astype(np.float64))


LOG2_E = 1.4426950408889634


def gradients(q, k, v, d_out, scale, causal):
    """(lse, delta, d_q, d_k, d_v) in f64; ``lse`` to the base 2."""
    q, k, v, d_out = (x.astype(np.float64) for x in (q, k, v, d_out))
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    lse = np.log2(np.exp2(scores * LOG2_E).sum(-1))
    p = np.exp2(scores * LOG2_E - lse[..., None])
    delta = (d_out * (p @ v)).sum(-1)
    d_s = p * (d_out @ v.swapaxes(-1, -2) - delta[..., None]) * scale
    return lse, delta, d_s @ k, d_s.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ d_out
