"""What a function is made of, so that it can be told whether anything of it changed."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Any

from ptxforge.ir.core import Block, Function, Value


class State:
    """Every object that a function consists of at one moment, and how they hang together: links, operands,
    uses, types, attributes. (Locations, hints and remarks mean nothing to a verifier, and are left out.)

    Objects are told apart by identity: of two states that agree, nothing whatever was changed in between.
    Those that hold equal objects in other places may well differ.
    """

    __slots__ = ("_objects",)

    def __init__(self, function: Function):
        self._objects: list[Any] = [function.body]
        self._attributes(function.attributes)
        self._block(function.body)

    def agrees(self, other: State) -> bool:
        mine, others = self._objects, other._objects
        return len(mine) == len(others) and all(map(is_, mine, others))

    def _block(self, block: Block) -> None:
        seen = self._objects
        seen += (block.parent, block.first, block.last)
        self._values(block.arguments)
        for argument in block.arguments:
            seen.append(argument.name)
            self._attributes(argument.attributes)
        here = block.first
        while here is not None:
            seen += (here, here.parent, here.previous, here.operands)
            self._values(here.results)
            if here.attributes:
                self._attributes(here.attributes)
            for region in here.regions:
                seen += (region, region.parent, region.block)
                self._block(region.block)
            here = here.next
        seen.append(block)

    def _values(self, values: Iterable[Value]) -> None:
        for value in values:
            self._objects += (value, value.type, *value.uses)

    def _attributes(self, attributes: dict[str, Any]) -> None:
        self._objects += attributes
        self._objects += attributes.values()
