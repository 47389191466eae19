"""Walks a function of the gpu stage and lowers its operations one by one.

The value of a tensor is a list with one entry per register of its layout, that of a scalar a list of one; an
entry is a register, a constant, an affine integer or a :class:`~ptxforge.codegen_ptx.ptx.pointers.Pointer`.
Entries that are equal are the same value of the thread, and what is computed from them is computed once.

*Pieces.* Reads of fragments from shared memory and asynchronous copies are done where they stand, or piece by
piece between the instructions of products behind them, as their ``order`` says (:meth:`Lowering.in_pieces`).

A lowering is registered by ``@lowers(Op)`` in the file ``lower/<family>.py`` that has the stem of the op's
family.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ptxforge.codegen_ptx.lower.indices import thread_id
from ptxforge.codegen_ptx.module import parameter_name, parameter_type
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import COPIES, Piecewise
from ptxforge.ir.ops.partition import Partition
from ptxforge.ir.varying import varying
from ptxforge.ir.warps import warps_of
from ptxforge.layouts.linear import REGISTER
from ptxforge.support.errors import InternalCompilerError
from ptxforge.support.location import Location
from ptxforge.support.target import Target

Part = tuple[tuple[int, ...], Callable[[list], None]]
"""Some registers of a value, and what puts their entries into the value's list."""

LOWERINGS: dict[type[Operation], Callable[[Lowering, Operation], None]] = {}


def lowers(*kinds: type[Operation]) -> Callable:
    """Register the decorated function as the lowering of these operations."""

    def register(function: Callable) -> Callable:
        for kind in kinds:
            LOWERINGS[kind] = function
        return function

    return register


class Lowering:
    """State of the lowering of one function: the builder, the values computed so far, and what is to be done
    between instructions of products."""

    def __init__(self, function: Function, target: Target, without: Collection[str] = ()):
        self.function, self.target = function, target
        self.b = Builder(target, warps_of(function), without)
        self.b.has_lines = function.attributes.get("line_info", True)
        self.b.branches_to_copies = function.attributes.get("branch_to_copies", False)
        self.b.computes_late = function.attributes.get("compute_late", False)
        self.values: dict[Value, list] = {}
        self.products = 0  # instructions of products so far
        self.due: dict[tuple[int, bool], list[tuple[Location | None, Callable[[], None]]]] = {}
        self.parts: dict[Value, list[Part]] = {}  # of conversions that their stores do
        self.partitions: list[Partition] = []  # in order
        self._varying = varying(function)

    def run(self) -> None:
        """Lower the whole function."""
        thread_id(self.b)
        for argument in self.function.arguments:
            self.values[argument] = [self.parameter(argument)]
        self.block(self.function.body)

    def branch_on(self, *conditions: Value) -> str:
        """The instruction that branches on conditions: it may say that all threads of a warp go one way."""
        return self.b.branch if self._varying.isdisjoint(conditions) else "bra"

    def parameter(self, argument: BlockArgument) -> Register:
        """A kernel's parameter in a register."""
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
            if self.due and (op.regions or op.is_terminator or not op.get_effects().lets_pieces_pass):
                raise InternalCompilerError(f"an 'order' leads beyond '{op.name}' at {op.location}")
            b.locate(op.location)
            lower(self, op)

    # -- pieces ------------------------------------------------------------------------------------------

    def in_pieces(self, op: Piecewise, pieces: Sequence[Callable[[], None]]) -> None:
        """Do the pieces of an operation: now, or between products as its ``order`` says. Where several come
        between the same two, reads come before copies."""
        if not op.order:
            for piece in pieces:
                piece()
            return
        is_copy = op.get_effects().starts == COPIES
        for number, piece in zip(op.order, pieces, strict=True):
            self.due.setdefault((self.products + number, is_copy), []).append((op.location, piece))

    def before_product(self, dot: Operation) -> None:
        """Do what is to be done before the next instruction of ``dot``."""
        if self.due:
            for is_copy in (False, True):
                for location, piece in self.due.pop((self.products, is_copy), ()):
                    self.b.locate(location)
                    piece()
            self.b.locate(dot.location)
        self.products += 1

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


def register_count(type: T.Type) -> int:
    """Entries of a value of this type."""
    return type.layout.linear(type.shape).in_size(REGISTER) if isinstance(type, T.TensorType) else 1
