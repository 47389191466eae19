"""Kernels whose programs walk over tiles though their source has a program for each tile
(``passes/persistent_programs.py``).

Such a kernel has a parameter that no caller passes, the number of programs along the first axis of the grid
that the caller asked for, and is launched with fewer blocks: one for each multiprocessor.

And kernels that are for so many programs only, because for more their indices might wrap
(``passes/use_limits.py``).
"""

from __future__ import annotations

from ptxforge.support.errors import OtherVariantError

TYPE = "programs"
"""The type of that parameter in an artifact's list of parameters: an ``i32`` for PTX."""
PLACE = -1
"""Where its value is among those of a launch: who packs them appends it."""
ANY = "any_grid", True
"""The option of kernels that are for as many programs as a grid can have."""


class GridError(OtherVariantError):
    """A grid has more programs along its first axis than the kernel was compiled for."""

    option = ANY


def check_count(programs: int, most: int) -> None:
    """Raise :class:`GridError` where the grid of a kernel that is for ``most`` programs along the first axis
    (0: for any) has more."""
    if 0 < most < programs:
        raise GridError(
            f"the kernel was compiled for {most} programs along the first axis of the grid at most, not "
            f"{programs}: with more, indices might wrap; any_grid=True compiles it for any"
        )


def is_persistent(parameters: tuple[tuple[str, str], ...]) -> bool:
    """Whether an artifact with these ``parameters`` is launched with fewer blocks than programs.

    >>> is_persistent((("x", "*fp32"), ("programs", "programs")))
    True
    """
    return any(kind == TYPE for _, kind in parameters)


def blocks(grid: tuple[int, int, int], multiprocessors: int) -> tuple[int, int, int]:
    """The grid that is launched. One with several rows or planes stays: its blocks, shared out among
    multiprocessors by the machine, would not be shared out evenly if each had many programs.

    >>> blocks((512, 1, 1), 132), blocks((100, 1, 1), 132), blocks((512, 2, 1), 132)
    ((132, 1, 1), (100, 1, 1), (512, 2, 1))
    """
    x, y, z = grid
    return (min(x, multiprocessors), 1, 1) if y == z == 1 else grid
