"""Tiles in shared memory: what their encodings have in common, and the one for tiles in rows."""

from __future__ import annotations

from attrs import evolve, field, frozen

from ptxforge.layouts.cta import CTALayout, Shape, check_order, check_powers, cta_field, ints, permuted_order
from ptxforge.layouts.encodings import Encoding
from ptxforge.layouts.linear import OFFSET, LinearLayout, log2_exact
from ptxforge.layouts.scratch import fit
from ptxforge.support import machine


class InSharedMemory(Encoding):
    """Base of the encodings of tiles in shared memory, whose elements lie in ``order`` (fastest dimension
    first) but for what is permuted within the two fastest ones."""

    __slots__ = ()

    cta: CTALayout
    vec: int
    """Elements that stay together."""
    alignment: int = machine.BUFFER_ALIGNMENT
    """Bytes, of the address where a tile begins."""

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.order)

    @property
    def pattern(self) -> tuple[int, int]:
        """Rows and columns after which the permutation repeats."""
        raise NotImplementedError

    def build(self, shape: Shape) -> LinearLayout:
        per_cta = self.cta.shape_per_cta(shape)
        tile = self.plane(per_cta)
        for d in self.order[2:]:
            tile *= LinearLayout.identity(per_cta[d], OFFSET, f"dim{d}")
        return fit(tile, self.cta, shape, OFFSET)

    def plane(self, shape: Shape) -> LinearLayout:
        """The part of a tile of ``shape`` along its two fastest dimensions (or the only one)."""
        raise NotImplementedError

    def permuted(self, order: tuple[int, ...]) -> InSharedMemory:
        """The encoding of the tile, where it is, with dimensions permuted: the new i is ``order[i]``."""
        return evolve(self, order=permuted_order(self.order, order), cta=self.cta.permuted(order))

    def in_memory(self, shape: Shape) -> Shape:
        """The extents of a CTA's part of a tile as it lies in memory, slowest first."""
        per_cta = self.cta.shape_per_cta(shape)
        return tuple(per_cta[d] for d in reversed(self.order))


@frozen(eq=False, str=False)
class Shared(InSharedMemory):
    """A tile in ``order`` but for this: in row r (counted along the second fastest dimension) the groups of
    ``vec`` elements are permuted, column c lies where column c ^ vec · ((r / per_phase) mod max_phase) would.
    """

    name = "shared"

    vec: int = field(validator=check_powers)
    per_phase: int = field(validator=check_powers)
    max_phase: int = field(validator=check_powers)
    order: tuple[int, ...] = field(converter=ints, validator=check_order)
    cta: CTALayout = cta_field()

    def plane(self, shape: Shape) -> LinearLayout:
        order = self.order
        if self.rank == 1:
            return LinearLayout.identity(shape[0], OFFSET, "dim0")
        cols, rows = shape[order[0]], shape[order[1]]
        bases = [(0, 1 << i) for i in range(log2_exact(cols))]
        for i in range(log2_exact(rows)):
            phase = ((1 << i) // self.per_phase) % self.max_phase
            bases.append((1 << i, self.vec * phase % cols))
        return LinearLayout({OFFSET: bases}, [(f"dim{order[1]}", rows), (f"dim{order[0]}", cols)])

    @property
    def pattern(self) -> tuple[int, int]:
        """One phase after the other, and the groups that change places."""
        return self.per_phase * self.max_phase, self.vec * self.max_phase

    def fields(self):
        return [("vec", self.vec), ("perPhase", self.per_phase), ("maxPhase", self.max_phase),
                ("order", self.order), *self.cta.fields()]
