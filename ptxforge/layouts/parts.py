"""A part of a tensor, and the registers that hold it.

Where two layouts give the same coordinates to a thread, the elements of a part of a tensor lie in registers
of the thread that holds them in the whole one: to take the part is to rename registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ptxforge.layouts.linear import REGISTER, LinearLayout, register_constants


@lru_cache(maxsize=1024)
def registers_of_part(
    whole: LinearLayout, part: LinearLayout, first: tuple[int, ...]
) -> tuple[int, ...] | None:
    """For every register of ``part``, which lies at ``first`` in ``whole``, the whole tensor's register with
    the same element in the same thread; ``None`` where one is in another thread's. ``first`` is a multiple of
    the part's size in each dimension."""
    if not _share_threads(whole, part):
        return None
    held: dict[tuple[int, ...], int] = {}
    for register, flat in enumerate(register_constants(whole)):
        held.setdefault(whole.unflatten(flat), register)
    wanted = [_moved(part.unflatten(flat), first) for flat in register_constants(part)]
    found = [held.get(place) for place in wanted]
    return None if None in found else tuple(found)


def _share_threads(whole: LinearLayout, part: LinearLayout) -> bool:
    """Whether every bit of a thread's number moves to the same coordinates in both."""
    names = {name for layout in (whole, part) for name, _ in layout.in_items()} - {REGISTER}
    return all(_places(whole, name) == _places(part, name) for name in names)


def _places(layout: LinearLayout, name: str) -> list[tuple[int, ...]]:
    return [layout.unflatten(column) for column in layout.columns_of(name)]


def _moved(place: Sequence[int], first: Sequence[int]) -> tuple[int, ...]:
    return tuple(p + f for p, f in zip(place, first, strict=True))
