"""Walks a function of the gpu stage and lowers its operations one by one.

The value of a tensor is a list with one entry per register of its layout, that of a scalar a list of one; an
entry is a register, a constant, an affine integer or a :class:`~ptxforge.codegen_ptx.ptx.pointers.Pointer`.
Entries that are equal are the same value of the thread, and what is computed from them is computed once.

*Deferred work.* Loads of fragments from shared memory and asynchronous copies need not stand where the IR has
them: they wait in a queue (:meth:`Lowering.defer`) until somebody needs their value, an operation comes that
they must not pass (any other effect, a barrier above all), or a matrix product takes them in between its own
instructions.

A lowering is registered by ``@lowers(Op)`` in the file ``lower/<family>.py`` that has the stem of the op's
family.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.indices import thread_id
from ptxforge.codegen_ptx.module import parameter_name, parameter_type
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import COPIES, READS_SHARED, Effects
from ptxforge.layouts.linear import REGISTER
from ptxforge.support.errors import InternalCompilerError
from ptxforge.support.location import Location
from ptxforge.support.target import Target

LOWERINGS: dict[type[Operation], Callable[[Lowering, Operation], None]] = {}


def lowers(*kinds: type[Operation]) -> Callable:
    """Register the decorated function as the lowering of these operations."""

    def register(function: Callable) -> Callable:
        for kind in kinds:
            LOWERINGS[kind] = function
        return function

    return register


class Values(dict):
    """Entries by value. Asking for a value that is still deferred does the deferred work first."""

    def __init__(self, ctx: Lowering):
        super().__init__()
        self.ctx = ctx

    def __missing__(self, value: Value) -> list:
        self.ctx.flush()
        if value not in self:
            raise InternalCompilerError(f"a value of type {value.type} is used before it is computed")
        return self[value]


class Deferred(NamedTuple):
    """One piece of deferred work. ``registers`` of ``value`` are known after it; a copy (or its commit) makes
    none."""

    emit: Callable[[], None]
    location: Location | None
    value: Value | None = None
    registers: tuple[int, ...] = ()


class Lowering:
    """State of the lowering of one function: the builder, the values computed so far, and deferred work."""

    def __init__(self, function: Function, target: Target, without: Collection[str] = ()):
        self.function, self.target = function, target
        self.num_warps: int = function.attributes["num_warps"]
        self.b = Builder(target, 32 * self.num_warps, without)
        self.b.has_lines = function.attributes.get("line_info", True)
        self.values = Values(self)
        self.deferred: deque[Deferred] = deque()
        self.partial: dict[Value, list] = {}

    def run(self) -> None:
        """Lower the whole function."""
        thread_id(self.b)
        for argument in self.function.arguments:
            self.values[argument] = [self._parameter(argument)]
        self.block(self.function.body)

    def _parameter(self, argument: BlockArgument) -> Register:
        b, name, type = self.b, parameter_name(argument), argument.type
        kind = register_class(type)
        if type is T.TENSOR_MAP:
            b.require(7, 7)
            return b.pure("cvta.param.u64 %s, %s;", kind, b.pure(f"mov.u64 %s, {name};", kind))
        if type is T.I1:
            return b.pure("setp.ne.b32 %s, %s, 0;", "p", b.pure(f"ld.param.u8 %s, [{name}];", "r"))
        return b.pure(f"ld.param.{parameter_type(type)} %s, [{name}];", kind)

    def program_register(self, axis: int, count: str = "") -> str:
        """The special register, for a template, of the program's index along an axis, or with ``count="n"``
        of the number of programs. A program of several CTAs is a cluster."""
        unit = "cluster" if self.function.attributes.get("num_ctas", 1) > 1 else "cta"
        return f"%%{count}{unit}id.{'xyz'[axis]}"

    def block(self, block: Block) -> None:
        """Lower a block's operations in order."""
        b, table = self.b, LOWERINGS
        for op in block.operations:
            lower = table.get(type(op))
            if lower is None:
                raise InternalCompilerError(f"no lowering for '{op.name}' at {op.location}")
            if self.deferred and not self._may_be_passed(op):
                self.flush()
            b.locate(op.location)
            lower(self, op)
        self.flush()

    def _may_be_passed(self, op: Operation) -> bool:
        """Whether what is deferred need not be done before ``op``, which may want to do it itself."""
        if op.stored is not None:
            return all(work.value is op.stored for work in self.deferred)
        if op.attributes.get("scratch_offset", -1) >= 0 and any(w.value is not None for w in self.deferred):
            return False  # its barrier may be the one that ends what was read before it
        return not op.regions and may_be_passed(op.get_effects())

    # -- deferred work -----------------------------------------------------------------------------------

    def defer(self, location: Location | None, emit: Callable[[], None]) -> None:
        """Do ``emit()`` some time before the next operation that must not be passed."""
        self.deferred.append(Deferred(emit, location))

    def defer_parts(
        self, op: Operation, parts: list[tuple[tuple[int, ...], Callable[[list], None]]], count: int
    ) -> None:
        """Make the ``count`` entries of the result in parts: each fills some registers of the list that it is
        given."""
        entries: list = [None] * count
        left = len(parts)

        def finish(fill: Callable[[list], None]) -> None:
            nonlocal left
            fill(entries)
            left -= 1
            if not left:
                self.values[op.result] = self.partial.pop(op.result)

        self.partial[op.result] = entries
        for registers, fill in parts:
            self.deferred.append(Deferred(lambda fill=fill: finish(fill), op.location, op.result, registers))

    def do(self, work: Deferred) -> None:
        """Do a piece of deferred work that was taken from the queue."""
        self.b.locate(work.location)
        work.emit()

    def take(self, value: Value) -> list[Deferred]:
        """Take the parts of a deferred value from the queue; whoever takes them must do them."""
        if value not in self.partial:
            return []
        mine = [work for work in self.deferred if work.value is value]
        self.deferred = deque(work for work in self.deferred if work.value is not value)
        return mine

    def flush(self) -> None:
        """Do all deferred work."""
        while self.deferred:
            self.do(self.deferred.popleft())

    # -- values ------------------------------------------------------------------------------------------

    def get(self, value: Value) -> list:
        """The entries of a value."""
        return self.values[value]

    def scalar(self, value: Value):
        """The only entry of a scalar."""
        (entry,) = self.values[value]
        return entry

    def set(self, op: Operation, *results: list) -> None:
        """Set the entries of an operation's results."""
        for result, entries in zip(op.results, results, strict=True):
            self.values[result] = entries


def may_be_passed(effects: Effects) -> bool:
    """Whether deferred work may pass an operation with these effects: it has none, or is deferred itself
    (reads of shared memory, asynchronous copies and the ends of their groups)."""
    return effects.is_pure or effects == READS_SHARED or effects.starts == COPIES


def register_count(type: T.Type) -> int:
    """Entries of a value of this type."""
    return type.layout.linear(type.shape).in_size(REGISTER) if isinstance(type, T.TensorType) else 1
