"""A roofline estimate: the least time that a launch can take on a card, by what it moves and computes.

Each figure is work over a published peak, so that every one of them is a lower bound of the time, and the
largest is the bound. It says what to look at first, not how long the kernel takes.

Peaks: NVIDIA's data sheets of the named cards, dense figures, and the architecture white papers for what one
multiprocessor does per clock. Architectures without figures here have no roofline.

Products: which instruction makes them, and how much work they are for what they load.
"""

from __future__ import annotations

import math

import attrs

from ptxforge.explain.measure import Counts
from ptxforge.ir.core import Function
from ptxforge.ir.ops import dot as ops
from ptxforge.layouts.encodings import Mma
from ptxforge.passes.analysis.dot_reasons import why_no_tensor_core
from ptxforge.support.location import Location
from ptxforge.support.target import Target


@attrs.frozen(slots=True)
class Product:
    """A ``dot`` of [``m``, ``k``] and [``k``, ``n``], ``batch`` times. ``unit`` is ``mma.sync``, ``wgmma`` or
    ``fma``; ``why`` and ``cure`` are empty for tensor cores."""

    location: Location | None
    m: int
    n: int
    k: int
    batch: int
    element: str
    accumulator: str
    unit: str
    why: str
    cure: str

    @property
    def flops(self) -> int:
        """Additions and multiplications of one execution by one program."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def intensity(self) -> float:
        """Operations per byte of both operands."""
        size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}.get(self.element, 1)
        return self.flops / (self.batch * size * self.k * (self.m + self.n))


def products_of(function: Function, target: Target) -> list[Product]:
    """The products, after tensor cores were given what they can do."""
    return [_product(op) for op in function.walk(ops.Product)]


def _product(op: ops.Product) -> Product:
    a, c = op.a.type, op.sums
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    unit = _unit(c.layout)
    why, cure = why_no_tensor_core(op) if unit == "fma" else ("", "")
    return Product(
        op.location, m, n, k, math.prod(c.shape[:-2]), str(a.element), str(c.element), unit, why, cure
    )


def _unit(layout: object) -> str:
    if not isinstance(layout, Mma):
        return "fma"
    return "wgmma" if layout.version[0] == 3 else "mma.sync"


ISSUE_PER_CLOCK = 4
"""Warp instructions that a multiprocessor issues per clock: one for each of its four parts."""


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


def _rates(f16: int, **others: int) -> dict[str, int]:
    """Operations per clock by element type: tf32 has half of f16's, 8-bit integers twice."""
    return {"f16": f16, "bf16": f16, "f32": f16 // 2, "i8": 2 * f16, **others}


_CARDS = {
    80: Card("A100 SXM 80 GB", 108, 1.41e9, 2.039e12, 128, _rates(2048, f64=128)),
    86: Card("A10", 72, 1.695e9, 0.6e12, 256, _rates(1024)),
    89: Card("L40S", 142, 2.52e9, 0.864e12, 256, _rates(1024, f8e4m3=2048, f8e5m2=2048)),
    90: Card("H200 SXM", 132, 1.83e9, 4.8e12, 256, _rates(4096, f64=256, f8e4m3=8192, f8e5m2=8192)),
}


def card_of(target: Target) -> Card | None:
    """The card that stands for ``target`` in rooflines; ``None`` where there are no figures."""
    return _CARDS.get(target.sm)


@attrs.frozen(slots=True)
class Bound:
    """``seconds`` that ``work`` of ``unit`` take at least on one part of the machine."""

    part: str
    work: float
    unit: str
    seconds: float


@attrs.frozen(slots=True)
class Roofline:
    """The bounds of one launch on ``card``, the longest first. ``tensor_share`` is the largest part of the
    time that tensor cores can be busy in (0 where they have nothing to do)."""

    card: Card
    bounds: tuple[Bound, ...]

    @property
    def seconds(self) -> float:
        """The least time of the launch."""
        return self.bounds[0].seconds

    @property
    def limiter(self) -> str:
        """The part of the machine that takes longest."""
        return self.bounds[0].part

    @property
    def tensor_share(self) -> float:
        """See the class."""
        busy = [bound.seconds for bound in self.bounds if bound.part == "tensor cores"]
        return busy[0] / self.seconds if busy else 0.0


def roofline(counts: Counts, card: Card, blocks: int) -> Roofline:
    """The bounds of a launch of ``blocks`` blocks.

    A launch with fewer blocks than the card has multiprocessors leaves some without work: what one
    multiprocessor does counts for as many as have a block.
    """
    total = counts.report.total
    busy = max(1, min(blocks, card.multiprocessors))
    per_second = busy * card.clock
    tensor = sum(
        work / (card.tensor[kind] * per_second) for kind, work in counts.tensor.items() if kind in card.tensor
    )
    bounds = [
        Bound("memory", counts.arrays, "bytes, every array once", counts.arrays / card.bandwidth),
        Bound("tensor cores", sum(counts.tensor.values()), "operations", tensor),
        Bound("f32 arithmetic", counts.flops, "operations", counts.flops / (card.fma * per_second)),
        Bound("shared memory", total.shared_wavefronts, "wavefronts", total.shared_wavefronts / per_second),
        Bound("issue", total.instructions, "warp instructions",
              total.instructions / (ISSUE_PER_CLOCK * per_second)),
    ]  # fmt: skip
    done = [bound for bound in bounds if bound.seconds]
    return Roofline(card, tuple(sorted(done, key=lambda bound: -bound.seconds)))
