"""What passes ask of any operation. The answers here suit most; an operation that differs says so in its
definition, so that no pass needs to know which operations there are.

    op.result_layout(layout, 0)     layouts that pass through it, and back
    op.addends                      what it is the sum of
    op.axis_info(facts, known)      what is known of its result
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptxforge.ir.facts import AxisInfo, pointwise, unknown
from ptxforge.ir.limits import Limits, greatest, least, of_type

if TYPE_CHECKING:
    from ptxforge.ir.core import Value


class Interfaces:
    """Base of :class:`~ptxforge.ir.core.Operation`: the questions and their usual answers."""

    __slots__ = ()

    # -- layouts and control flow ----------------------------------------------------------------------

    def result_layout(self, layout: Any, index: int) -> Any:
        """The layout that the results get when operand ``index`` has ``layout``; None when the operation does
        not pass it on. May raise ``LayoutError``."""
        return layout if self._keeps_places and "anchor" not in self.traits else None

    def operand_layout(self, layout: Any, index: int) -> Any:
        """The layout that operand ``index`` must have for the results to have ``layout``; None when none will
        do. May raise ``LayoutError``."""
        return layout if self._keeps_places else None

    @property
    def _keeps_places(self) -> bool:
        """Whether results lie where operands do, in their layout and along their dimensions."""
        return "elementwise" in self.traits or "keeps places" in self.traits

    def takes_any_layout(self, index: int) -> bool:
        """Whether operand ``index`` may have any layout, whichever the results have."""
        return "any layout" in self.traits

    def result_dim(self, index: int, dim: int) -> int | None:
        """Along which dimension of the results that lies which operand ``index`` has along ``dim``: what is
        computed from row 3 of the operand is row 3 of the result. None when it is not along one."""
        return dim if self._keeps_places else None

    is_transpose = False
    """Whether the result is operand 0 with its dimensions in another ``order`` (an attribute)."""

    changes_layout = False
    """Whether the result is operand 0 in another layout."""

    def passes_to(self, index: int) -> Value | None:
        """The result of a loop or branch (this operation or the one around it) that operand ``index`` may
        become; None when control flow does not pass it on."""
        return None

    is_counted = False
    """Whether this is a loop whose counter goes from ``lower`` to ``upper`` by ``step``."""

    rank_bits = 0
    """The bits of a CTA's rank that the result is, besides what it is computed from."""

    # -- memory ----------------------------------------------------------------------------------------

    stored: Value | None = None
    """The operand that is written to global memory, each element as it is and to one place."""

    # -- shared memory ---------------------------------------------------------------------------------

    scratch_parts = 1
    """In how many parts, one after the other, what passes through the scratch does."""
    scratch_is_warp_local = False
    """Whether each warp reads only that scratch which it wrote itself: no other warp is waited for."""

    def scratch_bytes(self, num_warps: int) -> int:
        """Bytes of shared memory that the operation uses between its beginning and its end. It has an
        attribute ``scratch_offset`` for their place."""
        return 0

    # -- values ----------------------------------------------------------------------------------------

    @property
    def addends(self) -> tuple[tuple[Value, int], ...]:
        """What the result is the sum of, each value with its sign, 1 or -1 (offsets of pointers count
        elements); empty when it is no sum."""
        return ()

    neutral: int | float | None = None
    """The number that it combines with any other to that other."""

    def order_of_sums(self) -> tuple[Any, ...] | None:
        """What decides in which order it adds, and so how sums of floats are rounded, as a value to compare;
        None when it adds nothing up. Where two of these are equal, so are the results."""
        return None

    def is_below(self, bound: Value) -> bool:
        """Whether every element of the result is certainly less than ``bound``."""
        return False

    @property
    def alternatives(self) -> tuple[Value, ...]:
        """Operands of which every element of the result is one; none where it may be something else."""
        return tuple(self.operands) if self.between in (least, greatest) else ()

    def limits_of(self, index: int, known: Callable[[Value], Limits | None]) -> Limits | None:
        """As :meth:`limits`, for one of several results."""
        return self.limits(known) if len(self.results) == 1 else None

    def limits_in_grid(self, programs: int) -> Limits | None:
        """The limits of the result in a grid of so many programs along each axis, or as many as there can be;
        ``None`` where it is nothing of the grid."""
        return None

    def is_nonnegative(self, known: Callable[[Value], bool]) -> bool:
        """Whether every element of the result is at least 0, given which operands are ``known`` to be."""
        if self.nonnegative_if == "first":
            return known(self.operands[0])
        if self.nonnegative_if == "any":
            return any(map(known, self.operands))
        return self.nonnegative_if == "always" or (
            self.nonnegative_if == "all" and all(map(known, self.operands))
        )

    between: Callable[..., Limits | None] | None = None
    """What the limits of its operands say of its result; where nothing is known of an integer, they are those
    of its type."""

    def limits(self, known: Callable[[Value], Limits | None]) -> Limits | None:
        """The least and the greatest that an element of a result can be, given what is ``known`` of the
        operands, if nothing wraps (``ir/limits.py``); None when that is not known."""
        if "rearranging" in self.traits:
            return known(self.operands[0])
        if self.between is not None:
            return self.between(*(known(x) or of_type(x.type) for x in self.operands))
        if not self.addends:
            return None
        (first, _), (second, sign) = self.addends
        left = known(first)
        right = known(second) if left is not None else None
        if left is None or right is None:
            return None
        low, high = right if sign > 0 else (-right[1], -right[0])
        return left[0] + low, left[1] + high

    def says_all(self, values: Sequence[int | float | bool]) -> bool:
        """Whether the operands' numbers determine the result: of a NaN they do not say the bits."""
        return True

    def axis_info(self, operands: Sequence[AxisInfo], nonnegative: Callable[[Value], bool]) -> AxisInfo:
        """What is known of the result (an integer or a pointer) when ``operands`` is known of the operands,
        not all of them constants; ``nonnegative`` tells of each whether its elements are at least 0.
        Functions of their operands give equal results for equal ones."""
        is_function = "elementwise" in self.traits and hasattr(self, "evaluate")
        if is_function and all(x.rank == operands[0].rank for x in operands):
            return pointwise(operands)
        return unknown(self.results[0].type)

    def axis_info_within_vectors(
        self, operands: Sequence[AxisInfo], nonnegative: Callable[[Value], bool]
    ) -> AxisInfo:
        """:meth:`axis_info` where every vector of neighbours turns out to be contiguous in memory."""
        return self.axis_info(operands, nonnegative)
