"""The operations in a block, nested ones included, as lists that are kept until one is put somewhere else.

Every pass walks over all operations, most of them several times, and few passes change where these stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, repeat
from operator import attrgetter, not_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxforge.ir.core import Operation

    Kinds = type[Operation] | tuple[type[Operation], ...] | None


class Walked:
    """What of a block is about the order of its operations, of which ``first`` is the first one. ``listed``
    is what is kept: lists by kind, or None; where a nested block keeps none, those around it do not either.
    """

    __slots__ = ("listed",)

    listed: dict[Kinds | str, tuple[Operation, ...]] | None

    def of(self, kind: Kinds) -> Iterator[Operation]:
        """Those of the operations in order (no nested ones) that are of a ``kind``."""
        return (op for op in self.walk(kind) if op.parent is self)

    def walk(self, kind: Kinds = None) -> tuple[Operation, ...]:
        """All operations, nested ones included, in textual order (an operation before those in its regions);
        or those of a ``kind``. What is done to the block meanwhile does not show; the answer is kept until an
        operation in it is put somewhere else."""
        if self.listed is None:
            every, here = [], self.first
            while here is not None:
                every.append(here)
                if here.regions:
                    for region in here.regions:
                        every += region.block.walk()
                here = here.next
            self.listed = {None: tuple(every)}
        found = self.listed.get(kind)
        if found is None:
            every = self.listed[None]
            found = self.listed[kind] = tuple(compress(every, map(isinstance, every, repeat(kind))))
        return found

    def forget_list(self) -> None:
        """An operation was put here or taken out: what :meth:`walk` keeps holds no more, here and in the
        blocks around (which keep nothing where a nested one does not)."""
        block = self
        while block.listed is not None:
            block.listed = None
            around = block.parent_op
            if around is None or around.parent is None:
                return
            block = around.parent

    def acting(self) -> tuple[Operation, ...]:
        """Those of :meth:`walk` that may have effects, as their definitions say."""
        every = self.walk()
        found = self.listed.get("acting")
        if found is None:
            are_pure = map(attrgetter("effects.is_pure"), every)
            found = self.listed["acting"] = tuple(compress(every, map(not_, are_pure)))
        return found

    def has(self, kind: Kinds) -> bool:
        """Whether an operation of a ``kind`` is among them, or nested in one."""
        return bool(self.walk(kind))
