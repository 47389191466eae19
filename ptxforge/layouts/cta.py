"""The CTAs of a cluster, and orders of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from attrs import Factory, field, frozen

from ptxforge.layouts.linear import BLOCK, LayoutError, LinearLayout, log2_exact
from ptxforge.support.interned import Interned

Shape = tuple[int, ...]


def ints(values: Sequence[int]) -> tuple[int, ...]:
    """Converter of the fields that hold one number per dimension."""
    return tuple(int(v) for v in values)


def check_powers(instance, attribute, values) -> None:
    """Validator: a power of two, or several."""
    for value in values if isinstance(values, tuple) else (values,):
        log2_exact(value, attribute.name)


def check_order(instance, attribute, value) -> None:
    """Validator: a permutation of the dimensions. Raises :class:`LayoutError`."""
    if sorted(value) != list(range(len(value))):
        raise LayoutError(f"order must be a permutation of 0..{len(value) - 1}, got {list(value)}")


@frozen(eq=False)
class CTALayout(Interned):
    """How the CTAs of a cluster share a tensor.

    ``ctas_per_cga`` CTAs per dimension; each dimension is cut into ``cta_split_num`` parts, and CTAs beyond
    that hold copies; ``cta_order`` lists the fastest dimension first. One CTA unless said otherwise.
    """

    ctas_per_cga: tuple[int, ...] = field(converter=ints, validator=check_powers)
    cta_split_num: tuple[int, ...] = field(converter=ints, validator=check_powers)
    cta_order: tuple[int, ...] = field(converter=ints, validator=check_order)

    def __attrs_post_init__(self):
        if not len(self.ctas_per_cga) == len(self.cta_split_num) == len(self.cta_order):
            raise LayoutError("CTAsPerCGA, CTASplitNum and CTAOrder must have the same length")

    @staticmethod
    def default(rank: int) -> CTALayout:
        """The layout of one CTA, for a tensor of ``rank`` dimensions."""
        return _default_cta_layout(rank)

    @property
    def is_default(self) -> bool:
        """Whether there is only one CTA."""
        return self == _default_cta_layout(len(self.cta_order))

    def shape_per_cta(self, shape: Shape) -> Shape:
        """The part of a tensor that one CTA holds."""
        return tuple(size // min(split, size) for size, split in zip(shape, self.cta_split_num))

    def linear(self, shape: Shape) -> LinearLayout:
        """The map from ``block`` to the index of the part, per dimension."""
        layout = LinearLayout.empty([BLOCK], names_in_order(self.cta_order))
        for d in self.cta_order:
            split = min(self.cta_split_num[d], shape[d])
            layout *= LinearLayout.identity(split, BLOCK, f"dim{d}")
            layout *= LinearLayout.zeros(self.ctas_per_cga[d] // split, BLOCK, f"dim{d}")
        return layout

    def without(self, dim: int) -> CTALayout:
        """The CTA layout of a slice along ``dim``."""
        keep = [d for d in range(len(self.cta_order)) if d != dim]
        return CTALayout([self.ctas_per_cga[d] for d in keep], [self.cta_split_num[d] for d in keep],
                         order_without(self.cta_order, dim))

    def permuted(self, order: Sequence[int]) -> CTALayout:
        """The CTA layout of a tensor whose dimension i is ``order[i]`` of this one."""
        if self.is_default:
            return self
        return CTALayout([self.ctas_per_cga[d] for d in order], [self.cta_split_num[d] for d in order],
                         permuted_order(self.cta_order, order))

    def fields(self) -> list[tuple[str, object]]:
        """What is printed of it: nothing in the default case."""
        if self.is_default:
            return []
        return [("CTAsPerCGA", self.ctas_per_cga), ("CTASplitNum", self.cta_split_num),
                ("CTAOrder", self.cta_order)]


@lru_cache(maxsize=None)
def _default_cta_layout(rank: int) -> CTALayout:
    ones = (1,) * rank
    return CTALayout(ones, ones, row_major(rank))


def cta_field():
    """A field ``cta`` of an encoding, of one CTA unless said otherwise."""
    return field(default=Factory(lambda self: CTALayout.default(self.rank), takes_self=True))


@lru_cache(maxsize=None)
def row_major(rank: int) -> tuple[int, ...]:
    """The order with the last dimension fastest: (rank-1, ..., 1, 0)."""
    return tuple(range(rank - 1, -1, -1))


def order_without(order: Sequence[int], dim: int) -> tuple[int, ...]:
    """``order`` of a tensor after dimension ``dim`` is squeezed out."""
    return tuple(d - (d > dim) for d in order if d != dim)


def permuted_order(fastest: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """``fastest``, an order of a tensor, after its dimensions are permuted: the new i is ``order[i]``."""
    return tuple(order.index(d) for d in fastest)


def names_in_order(order: Sequence[int]) -> list[str]:
    """The names of the dimensions, as ``order`` lists them."""
    return [f"dim{d}" for d in order]
