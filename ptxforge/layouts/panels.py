"""Tiles in panels: how ``wgmma`` reads its operands in shared memory, and how TMA copies boxes."""

from __future__ import annotations

from attrs import field, frozen

from ptxforge.layouts.boxes import CHUNK_BYTES, box_layout
from ptxforge.layouts.cta import CTALayout, Shape, check_order, cta_field, ints
from ptxforge.layouts.linear import OFFSET, LayoutError, LinearLayout
from ptxforge.layouts.shared import InSharedMemory

ATOM_ROWS = 8
"""Rows after which the permutation repeats."""
SWIZZLES = (128, 64, 32)
"""Widths of panels in bytes, best first."""
MAX_ALIGNMENT = ATOM_ROWS * SWIZZLES[0]


def _check_swizzle(instance, attribute, value) -> None:
    if value not in SWIZZLES:
        raise LayoutError(f"swizzle must be 32, 64 or 128 bytes, got {value}")


def _check_bits(instance, attribute, value) -> None:
    if value not in (8, 16, 32, 64):
        raise LayoutError(f"elementBits must be 8, 16, 32 or 64, got {value}")


@frozen(eq=False, str=False)
class Panels(InSharedMemory):
    """A tile of elements of ``element_bits`` bits, cut along its fastest dimension into panels that are
    ``swizzle`` bytes wide (32, 64 or 128) and follow each other in memory. A panel has all rows of the tile
    and is a box of TMA: eight rows make an atom, inside of which 16-byte chunks are permuted by the bits of
    their address. A tile that is narrower than a panel is a box of its own width.

    >>> layout = Panels(32, 16, (1, 0))
    >>> print(layout)
    #panels<{swizzle = 32, elementBits = 16, order = [1, 0]}>
    >>> layout.width, layout.alignment
    (16, 256)
    >>> tile = layout.linear((8, 32))
    >>> [tile.apply(offset=offset) for offset in (0, 4 * 16, 8 * 16)]  # row 0, row 4, the second panel
    [(0, 0), (4, 8), (0, 16)]
    """

    name = "panels"

    swizzle: int = field(validator=_check_swizzle)
    element_bits: int = field(validator=_check_bits)
    order: tuple[int, ...] = field(converter=ints, validator=check_order)
    cta: CTALayout = cta_field()

    def __attrs_post_init__(self):
        if self.rank < 2:
            raise LayoutError("panels have rows and columns, got a tile of one dimension")

    @property
    def width(self) -> int:
        """Elements in a row of a panel."""
        return self.swizzle * 8 // self.element_bits

    @property
    def vec(self) -> int:
        """Elements of a chunk."""
        return CHUNK_BYTES * 8 // self.element_bits

    @property
    def alignment(self) -> int:
        """The hardware permutes by the bits of the address, so tiles begin where an atom does."""
        return ATOM_ROWS * self.swizzle

    @property
    def pattern(self) -> tuple[int, int]:
        """One atom: eight rows of a panel."""
        return ATOM_ROWS, self.width

    def plane(self, shape: Shape) -> LinearLayout:
        columns, rows = (shape[d] for d in self.order[:2])
        width = min(columns, self.width)
        fastest, second = (f"dim{d}" for d in self.order[:2])
        panel = box_layout((rows, width), self.element_bits, self.swizzle)
        panel = panel.rename({"dim0": second, "dim1": fastest})
        return panel * LinearLayout.identity(columns // width, OFFSET, fastest)

    def in_memory(self, shape: Shape) -> Shape:
        """Panels are one dimension more."""
        *others, rows, columns = super().in_memory(shape)
        width = min(columns, self.width)
        return (*others, columns // width, rows, width)

    def fields(self):
        return [("swizzle", self.swizzle), ("elementBits", self.element_bits), ("order", self.order),
                *self.cta.fields()]
