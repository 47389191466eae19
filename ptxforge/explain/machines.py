"""What machines can do, as far as their makers publish it: limits of occupancy, and peaks for rooflines.

Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". Peaks: NVIDIA's data
sheets of the named cards, dense figures, and the architecture white papers for what one multiprocessor does
per clock. Architectures without figures here have no roofline.
"""

from __future__ import annotations

import attrs

from ptxforge.support.target import Target

ISSUE_PER_CLOCK = 4
"""Warp instructions that a multiprocessor issues per clock: one for each of its four parts."""


@attrs.frozen(slots=True)
class Limits:
    """What one multiprocessor holds: ``threads``, ``blocks`` and ``shared`` bytes."""

    threads: int
    blocks: int
    shared: int

    @property
    def warps(self) -> int:
        """Warps that it holds."""
        return self.threads // 32


@attrs.frozen(slots=True)
class Card:
    """A card of an architecture. ``tensor`` are operations per clock and multiprocessor of tensor cores by
    element type (a multiply-add is two), ``fma`` those of f32 outside of them, ``bandwidth`` bytes per second
    of its memory, ``clock`` the boost clock in Hz that goes with the published peaks."""

    name: str
    multiprocessors: int
    clock: float
    bandwidth: float
    fma: int
    tensor: dict[str, int]

    def tensor_rate(self, element: str) -> float:
        """Operations per second of tensor cores on ``element``; 0 where they do not take it."""
        return self.tensor.get(element, 0) * self.multiprocessors * self.clock

    @property
    def fma_rate(self) -> float:
        """Operations per second of f32 without tensor cores."""
        return self.fma * self.multiprocessors * self.clock

    @property
    def balance(self) -> float:
        """Operations on f16 per byte of memory from which on tensor cores are the limit."""
        return self.tensor_rate("f16") / self.bandwidth


_THREADS_AND_BLOCKS = {
    80: (2048, 32), 86: (1536, 16), 87: (1536, 16), 89: (1536, 24), 90: (2048, 32), 100: (2048, 32),
    103: (2048, 32), 120: (1536, 24),
}  # fmt: skip


def _rates(f16: int, **others: int) -> dict[str, int]:
    """Operations per clock by element type: tf32 has half of f16's, 8-bit integers twice."""
    return {"f16": f16, "bf16": f16, "f32": f16 // 2, "i8": 2 * f16, **others}


_CARDS = {
    80: Card("A100 SXM 80 GB", 108, 1.41e9, 2.039e12, 128, _rates(2048, f64=128)),
    86: Card("A10", 72, 1.695e9, 0.6e12, 256, _rates(1024)),
    89: Card("L40S", 142, 2.52e9, 0.864e12, 256, _rates(1024, f8e4m3=2048, f8e5m2=2048)),
    90: Card("H200 SXM", 132, 1.83e9, 4.8e12, 256, _rates(4096, f64=256, f8e4m3=8192, f8e5m2=8192)),
}


def limits_of(target: Target) -> Limits:
    """The limits of a multiprocessor of ``target``."""
    return Limits(*_THREADS_AND_BLOCKS[target.sm], target.shared_bytes_per_multiprocessor)


def card_of(target: Target) -> Card | None:
    """The card that stands for ``target`` in rooflines; ``None`` where there are no figures."""
    return _CARDS.get(target.sm)
