"""Kernels whose programs walk over tiles though their source has a program for each tile
(``passes/persistent_programs.py``).

Such a kernel has a parameter that no caller passes, the number of programs along the first axis of the grid
that the caller asked for, and is launched with fewer blocks: one for each multiprocessor.
"""

from __future__ import annotations

TYPE = "programs"
"""The type of that parameter in an artifact's list of parameters: an ``i32`` for PTX."""
PLACE = -1
"""Where its value is among those of a launch: who packs them appends it."""


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
