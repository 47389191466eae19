"""Walking a graph that is known a step at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def each_once(work: list[Item]) -> Iterator[Item]:
    """The items of ``work``, the last one first, each once; so are those that the caller adds to it
    meanwhile."""
    seen: set[Item] = set()
    while work:
        item = work.pop()
        if item not in seen:
            seen.add(item)
            yield item
