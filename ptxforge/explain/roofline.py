"""A roofline estimate: the least time that a launch can take on a card, by what it moves and computes.

Each figure is work over a published peak (:mod:`ptxforge.explain.machines`), so that every one of them is a
lower bound of the time, and the largest is the bound. It says what to look at first, not how long the kernel
takes.
"""

from __future__ import annotations

import attrs

from ptxforge.explain.machines import ISSUE_PER_CLOCK, Card
from ptxforge.explain.measure import Counts


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
