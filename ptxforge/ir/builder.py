"""Creates operations at an insertion point. Never global: who builds holds a builder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Operation, Region, Value
from ptxforge.ir.ops.shape import Constant
from ptxforge.support.location import Location


class MakesValues:
    """What follows from a method ``create`` that makes and inserts an operation."""

    __slots__ = ()

    def value(
        self, kind: type[Operation], /, *operands: Value, type: T.Type | None = None, **more: Any
    ) -> Value:
        """``create``, giving the only result; ``type`` is its type where it is not inferred."""
        return self.create(kind, *operands, result_types=None if type is None else [type], **more).result

    def constant(self, value: int | float | bool, type: T.Type) -> Value:
        """A constant of ``type`` (scalar, or tensor with that value everywhere)."""
        return self.create(Constant, result_types=[type], value=value).result


class Builder(MakesValues):
    """Inserts at the end of ``block``, or before operation ``before``.
    ``location`` is given to what it creates."""

    __slots__ = ("block", "before", "location")

    def __init__(
        self, block: Block | None = None, before: Operation | None = None, location: Location | None = None
    ):
        self.block = before.parent if before is not None else block
        self.before = before
        self.location = location

    @classmethod
    def at(cls, op: Operation) -> Builder:
        """A builder that inserts before ``op``, with its location."""
        return cls(before=op, location=op.location)

    @classmethod
    def after(cls, op: Operation) -> Builder:
        """A builder that inserts right after ``op``, with its location."""
        builder = cls(op.parent, op.next, op.location)
        builder.block = op.parent
        return builder

    def insert(self, op: Operation) -> Operation:
        if self.before is not None:
            return self.block.insert_before(self.before, op)
        return self.block.append(op)

    def create(
        self,
        kind: type[Operation],
        /,
        *operands: Value,
        result_types: Sequence[T.Type] | None = None,
        regions: Sequence[Region] = (),
        location: Location | None = None,
        **attributes: Any,
    ) -> Operation:
        """Make and insert an operation. Without ``result_types`` the operation's ``infer`` gives them."""
        if result_types is None:
            result_types = kind.infer([v.type for v in operands], attributes)
        return self.insert(kind(operands, result_types, attributes, regions, location or self.location))

    @contextlib.contextmanager
    def inside(self, block: Block) -> Iterator[Builder]:
        """Within the ``with``, insert at the end of ``block``."""
        saved = self.block, self.before
        self.block, self.before = block, None
        try:
            yield self
        finally:
            self.block, self.before = saved
