"""The IR's objects: values, operations, blocks, regions, functions.

The IR is SSA with structured control flow: every region has exactly one block, so dominance is "earlier in
the same block, or in an enclosing one". An operation owns its regions; a region's block owns its operations
in a doubly linked list (insertion and removal anywhere are O(1)). Every value knows its uses.

    Function → body Block → Operation → regions → Block → …

Definitions of operations live in ``ptxforge.ir.ops``; :mod:`ptxforge.ir.definition` says how one is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from ptxforge.ir.interfaces import Interfaces
from ptxforge.ir.types import Type
from ptxforge.ir.walk import Walked
from ptxforge.support.location import Location
from ptxforge.support.promises import Promise
from ptxforge.support.remarks import Remarks

if TYPE_CHECKING:
    from ptxforge.ir.definition import Definition, Effects
    from ptxforge.ir.walk import Kinds


class Value:
    """An SSA value: an operation's result or a block's argument.

    ``uses`` maps ``(user, operand index)`` in order of creation; ``hint`` is the name in the user's source
    that the printer prefers (``%acc``), or ``""``.
    """

    __slots__ = ("type", "uses", "hint")

    defining_op: ClassVar[Operation | None] = None
    """The operation whose result this is; ``None`` for a block argument."""

    def __init__(self, type: Type, hint: str = ""):
        self.type = type
        self.uses: dict[tuple[Operation, int], None] = {}
        self.hint = hint

    @property
    def users(self) -> list[Operation]:
        """The operations that use this value, each once, in order of first use."""
        return list(dict.fromkeys(map(itemgetter(0), self.uses)))

    @property
    def has_one_use(self) -> bool:
        return len(self.uses) == 1

    def replace_all_uses_with(self, other: Value, unless: Callable[[Operation], bool] | None = None) -> None:
        """Make every use of this value a use of ``other``, except by operations that ``unless`` picks."""
        if other is self:
            return
        for user, index in list(self.uses):
            if unless is None or not unless(user):
                user.set_operand(index, other)

    @property
    def owner_block(self) -> Block | None:
        """The block in which this value is defined."""
        raise NotImplementedError


class OpResult(Value):
    """Result ``index`` of operation ``op``."""

    __slots__ = ("op", "index")

    def __init__(self, type: Type, op: Operation, index: int):
        self.type, self.uses, self.hint = type, {}, ""
        self.op, self.index = op, index

    @property
    def owner_block(self) -> Block | None:
        return self.op.parent


OpResult.defining_op = OpResult.op  # the slot by its other name


class BlockArgument(Value):
    """Argument ``index`` of ``block``. Of a function's parameter, ``name`` is what callers know it by (unlike
    ``hint`` no matter of taste: it is in the signature, and no other parameter has it), and ``attributes``
    holds facts such as ``{"divisibility": 16}``."""

    __slots__ = ("block", "index", "attributes", "name")

    def __init__(self, type: Type, block: Block, index: int, hint: str = ""):
        super().__init__(type, hint)
        self.block, self.index = block, index
        self.attributes: dict[str, Any] = {}
        self.name = ""

    @property
    def owner_block(self) -> Block:
        return self.block


class Operation(Interfaces):
    """One operation. Subclasses are declared in ``ptxforge.ir.ops``; fields become named accessors, and
    ``ptxforge.ir.interfaces`` has what passes ask of it.

    ``operands`` is a tuple (change it by :meth:`set_operand` / :meth:`set_operands`, which keep the use
    lists right); ``attributes`` a dict of immutable Python values.
    """

    __slots__ = ("operands", "results", "attributes", "regions", "location", "parent", "previous", "next")

    # Filled in by ``definition.define``.
    name: ClassVar[str]
    definition: ClassVar[Definition]
    effects: ClassVar[Effects]
    traits: ClassVar[frozenset[str]] = frozenset()
    is_terminator: ClassVar[bool] = False
    cost: ClassVar[str]
    nonnegative_if: ClassVar[str]

    def __init__(
        self,
        operands: Sequence[Value] = (),
        result_types: Sequence[Type] = (),
        attributes: dict[str, Any] | None = None,
        regions: Sequence[Region] = (),
        location: Location | None = None,
    ):
        self.operands: tuple[Value, ...] = tuple(operands)
        for index, value in enumerate(self.operands):
            value.uses[self, index] = None
        self.results: tuple[OpResult, ...] = tuple(map(OpResult, result_types, repeat(self), count()))
        self.attributes: dict[str, Any] = attributes if attributes is not None else {}
        self.regions: tuple[Region, ...] = tuple(regions)
        for region in self.regions:
            region.parent = self
        self.location = location
        self.parent: Block | None = None
        self.previous: Operation | None = None
        self.next: Operation | None = None

    # -- operands and results ------------------------------------------------------------------------

    @property
    def result(self) -> OpResult:
        """The only result."""
        (only,) = self.results
        return only

    def set_operand(self, index: int, value: Value) -> None:
        old = self.operands[index]
        if old is value:
            return
        del old.uses[self, index]
        value.uses[self, index] = None
        self.operands = self.operands[:index] + (value,) + self.operands[index + 1 :]

    def set_operands(self, values: Sequence[Value]) -> None:
        """Replace the whole operand list (its length may change)."""
        self.drop_operands()
        self.operands = tuple(values)
        for index, value in enumerate(self.operands):
            value.uses[self, index] = None

    def drop_operands(self) -> None:
        for index, value in enumerate(self.operands):
            value.uses.pop((self, index), None)
        self.operands = ()

    @property
    def is_used(self) -> bool:
        for result in self.results:  # asked for every operation by every pass: no generator
            if result.uses:
                return True
        return False

    def add_result(self, type: Type) -> OpResult:
        """Append a result of ``type`` (a pass that adds a carried value to a loop)."""
        added = OpResult(type, self, len(self.results))
        self.results += (added,)
        return added

    def erase_operand(self, index: int) -> None:
        """Take out one operand; those after it move up."""
        self.set_operands(self.operands[:index] + self.operands[index + 1 :])

    def erase_result(self, index: int) -> None:
        """Take out one unused result; those after it move up."""
        if self.results[index].uses:
            raise ValueError(f"cannot erase result {index} of '{self.name}': it is still used")
        self.results = self.results[:index] + self.results[index + 1 :]
        for position, result in enumerate(self.results):
            result.index = position

    # -- place ---------------------------------------------------------------------------------------

    @property
    def parent_op(self) -> Operation | None:
        """The operation whose region holds this one; ``None`` at a function's top level."""
        return self.parent.parent_op if self.parent is not None else None

    def remove(self) -> Operation:
        """Take the operation out of its block; it keeps its operands and can be inserted elsewhere."""
        block = self.parent
        block.forget_list()
        if self.previous is None:
            block.first = self.next
        else:
            self.previous.next = self.next
        if self.next is None:
            block.last = self.previous
        else:
            self.next.previous = self.previous
        self.parent = self.previous = self.next = None
        return self

    def erase(self) -> None:
        """Remove the operation for good. None of its results may still be used."""
        if self.is_used:
            raise ValueError(f"cannot erase '{self.name}': its results are still used")
        for region in self.regions:
            region.block.clear()
        self.drop_operands()
        if self.parent is not None:
            self.remove()

    def discard(self) -> None:
        """Erase the operation where nobody holds it or its results: it is freed at once (they know each
        other, so otherwise the garbage collector has to find them)."""
        self.erase()
        self.results = ()

    def move_before(self, other: Operation) -> None:
        self.remove()
        other.parent.insert_before(other, self)

    def move_after(self, other: Operation) -> None:
        self.remove()
        other.parent.insert_after(other, self)

    def is_before_in_block(self, other: Operation) -> bool:
        """Whether this operation comes before ``other``; both must be in the same block. Linear time."""
        here = self.next
        while here is not None and here is not other:
            here = here.next
        return here is not None

    def replace_with(self, values: Sequence[Value]) -> None:
        """Replace the results by ``values`` and erase the operation."""
        for old, new in zip(self.results, values, strict=True):
            if not new.hint:
                new.hint = old.hint
            old.replace_all_uses_with(new)
        self.erase()

    # -- structure -----------------------------------------------------------------------------------

    def walk(self, kind: Kinds = None) -> tuple[Operation, ...]:
        """This operation, then those in its regions, in textual order: all, or those of a ``kind``."""
        found = (self,) if kind is None or isinstance(self, kind) else ()
        for region in self.regions:
            found += region.block.walk(kind)
        return found

    def clone(
        self, mapping: dict[Value, Value] | None = None, keep: Collection[Operation] | None = None
    ) -> Operation:
        """A copy, not inserted anywhere. Operands (and those of nested operations) go through ``mapping``,
        which then maps the results, too. Of nested operations it has those to ``keep``, and terminators."""
        mapping = {} if mapping is None else mapping
        copy = object.__new__(type(self))
        Operation.__init__(
            copy,
            map(mapping.get, self.operands, self.operands),
            [r.type for r in self.results],
            self.attributes.copy(),
            [Region(x.block.clone(mapping, keep)) for x in self.regions] if self.regions else (),
            self.location,
        )
        for old, new in zip(self.results, copy.results):
            new.hint = old.hint
            mapping[old] = new
        return copy

    def get_effects(self) -> Effects:
        """Effects of this instance: the definition's, unless attributes change them (a volatile load).
        What is defined without any has none."""
        return self.effects

    @property
    def is_pure(self) -> bool:
        """No effects of its own nor of any nested operation:
        may be duplicated, moved, removed when unused."""
        if not self.regions or not self.get_effects().is_pure:
            return self.get_effects().is_pure
        return all(
            op.is_pure for region in self.regions for op in region.block.operations if not op.is_terminator
        )

    @property
    def is_speculatable(self) -> bool:
        """Pure, and harmless with operands that the program would not give it: may run where, or more often
        than, the program runs it."""
        if not self.regions:
            return "partial" not in self.traits and self.is_pure
        return self.is_pure and not any("partial" in op.traits for op in self.walk())

    @property
    def is_elementwise(self) -> bool:
        """Pure, and each element of its one result follows from those in its place."""
        return self.is_pure and len(self.results) == 1 and "elementwise" in self.traits

    def __repr__(self) -> str:
        results = ", ".join(str(r.type) for r in self.results)
        return f"<{self.name} {self.attributes or ''} -> {results or '()'}>"


class Block(Walked):
    """A list of operations with arguments. ``parent`` is its region, or the function whose body it is."""

    __slots__ = ("arguments", "first", "last", "parent")

    def __init__(self, argument_types: Sequence[Type] = ()):
        self.arguments: list[BlockArgument] = [
            BlockArgument(t, self, i) for i, t in enumerate(argument_types)
        ]
        self.first: Operation | None = None
        self.last: Operation | None = None
        self.parent: Region | Function | None = None
        self.listed = None

    @property
    def parent_op(self) -> Operation | None:
        return self.parent.parent if isinstance(self.parent, Region) else None

    @property
    def operations(self) -> Iterator[Operation]:
        """The operations in order. The one last yielded may be removed or erased while iterating."""
        here = self.first
        while here is not None:
            following = here.next
            yield here
            here = following

    @property
    def terminator(self) -> Operation | None:
        """The last operation, if it is a terminator."""
        return self.last if self.last is not None and self.last.is_terminator else None

    def add_argument(self, type: Type, hint: str = "") -> BlockArgument:
        argument = BlockArgument(type, self, len(self.arguments), hint)
        self.arguments.append(argument)
        return argument

    def erase_argument(self, index: int) -> None:
        if self.arguments[index].uses:
            raise ValueError("cannot erase a block argument that is still used")
        del self.arguments[index]
        for position, argument in enumerate(self.arguments):
            argument.index = position

    def append(self, op: Operation) -> Operation:
        self.forget_list()
        op.parent, op.previous, op.next = self, self.last, None
        if self.last is None:
            self.first = op
        else:
            self.last.next = op
        self.last = op
        return op

    def insert_before(self, place: Operation, op: Operation) -> Operation:
        self.forget_list()
        op.parent, op.previous, op.next = self, place.previous, place
        if place.previous is None:
            self.first = op
        else:
            place.previous.next = op
        place.previous = op
        return op

    def insert_after(self, place: Operation, op: Operation) -> Operation:
        if place.next is None:
            return self.append(op)
        return self.insert_before(place.next, op)

    def clear(self) -> None:
        """Erase every operation, last first."""
        for op in reversed([*self.operations]):
            for result in op.results:
                result.uses.clear()
            op.erase()

    def clone(self, mapping: dict[Value, Value], keep: Collection[Operation] | None = None) -> Block:
        """A copy; see :meth:`Operation.clone`."""
        copy = Block([a.type for a in self.arguments])
        for old, new in zip(self.arguments, copy.arguments):
            new.name, new.hint, new.attributes = old.name, old.hint, dict(old.attributes)
            mapping[old] = new
        for op in self.operations:
            if keep is None or op in keep or op.is_terminator:
                copy.append(op.clone(mapping, keep))
        return copy

    def ancestor_of(self, op: Operation) -> Operation | None:
        """The operation of this very block that is ``op`` or contains it; ``None`` when there is none."""
        while op is not None and op.parent is not self:
            op = op.parent_op
        return op


class Region:
    """One block, owned by an operation."""

    __slots__ = ("block", "parent")

    def __init__(self, block: Block | None = None):
        self.block = block if block is not None else Block()
        self.block.parent = self
        self.parent: Operation | None = None


class Function:
    """A kernel: its parameters are the arguments of ``body``; ``attributes`` holds ``num_warps``, ``target``
    …. ``remarks`` are what passes tell the user, ``promises`` what the frontend takes for granted of
    arguments (:mod:`ptxforge.support.promises`); copies begin without any. ``changes`` counts the passes that
    changed the function, so that what an analysis found may be kept in ``analyses`` between two of them
    (``passes/analysis/kept.py``; None while no pipeline runs).

    Device functions do not exist in the IR: the frontend inlines their calls.
    """

    __slots__ = ("name", "body", "attributes", "location", "remarks", "promises", "changes", "analyses")

    def __init__(
        self,
        name: str,
        argument_types: Sequence[Type] = (),
        attributes: dict[str, Any] | None = None,
        location: Location | None = None,
    ):
        self.name = name
        self.body = Block(argument_types)
        self.body.parent = self
        self.attributes: dict[str, Any] = attributes if attributes is not None else {}
        self.location = location
        self.remarks = Remarks()
        self.promises: list[Promise] = []
        self.changes = 0
        self.analyses: dict[Any, tuple[int, Any]] | None = None

    @property
    def arguments(self) -> list[BlockArgument]:
        return self.body.arguments

    def add_parameter(self, type: Type, name: str) -> BlockArgument:
        """Append a parameter that callers know as ``name``."""
        argument = self.body.add_argument(type, hint=name)
        argument.name = name
        return argument

    def walk(self, kind: Kinds = None) -> tuple[Operation, ...]:
        """All operations in textual order, nested ones included; or those of a ``kind``."""
        return self.body.walk(kind)

    def acting(self) -> tuple[Operation, ...]:
        """Those of :meth:`walk` that may have effects, as their definitions say."""
        return self.body.acting()

    def has(self, kind: Kinds) -> bool:
        """Whether there is an operation of a ``kind``."""
        return bool(self.body.walk(kind))

    def clone(self) -> Function:
        copy = Function(self.name, (), dict(self.attributes), self.location)
        copy.body = self.body.clone({})
        copy.body.parent = copy
        return copy
