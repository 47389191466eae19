"""What must hold of every function, between any two passes.

Structure
    1.  Links agree: a block's operations name it as their parent and are chained both ways; a region names
        its operation, a block its region (or the function).
    2.  Use lists agree: each operand is among the uses of its value, and each use of a value is an operand of
        an operation in this function.
    3.  Dominance: an operand is defined earlier in the same block or in an enclosing one.
    4.  An operation has its declared number of regions. A block ends in a terminator and has no other: the
        function's body in ``return``, a region in ``yield`` or (in ``while``) ``condition``.

Operations
    5.  Operands: as many as declared, each within its field's constraint.
    6.  Attributes: each required one is there; each has its declared type or one of the allowed values; there
        are no others, but hints (``divisibility contiguity constancy``) on what has results.
    7.  Results: their types are what the operation infers from its operands (a layout may be another name of
        the inferred linear map).
    8.  An elementwise operation has scalars only, or tensors only, all of one shape and one layout.
    9.  What the operation's own ``check`` demands.

Types
    10. Tile dimensions are powers of two, at most 2**20 elements in all. (In shared memory, dimensions in
        front of those that the encoding describes count buffers and are free.)
    11. Either no tensor of a function has a layout (tile stage) or each has one (gpu stage); it is a
        distributed encoding of the tensor's rank for as many warps as run the operation. A memdesc has an
        encoding in shared memory; mbarriers are elements of memdescs alone, and no tensor's are tensor maps.
    12. Parameters are scalars or pointers, and their names differ; ``num_warps`` is a power of two.

Asynchronous work
    13. What waits for a queue has something to wait for: an operation of the function that starts work of
        that queue, or signals to its waits. At the mbarriers that are waited for, something arrives; those
        that expect bytes are waited for.
    14. What copies by TMA bring is read through views that take the token of a wait, for an mbarrier of those
        on which the copies complete.
    15. What is started is waited for: some ``async_wait`` for copies of threads, a ``dot_wait`` that a flight
        reaches for products, a ``store_wait`` that its token reaches for what a store reads.
    16. An ``async_wait``, ``dot_wait`` or ``store_wait`` leaves nothing under way that it names (where no
        loop has a schedule to carry out). What a store reads is neither written again nor freed, and the
        kernel does not end, before a wait has left it behind, whichever way is taken.

The verifier stops at the first fault. Its message cites the number and shows the function with a note at the
operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from ptxforge.ir import types as T
from ptxforge.ir.ages import ages_at_waits
from ptxforge.ir.core import Block, Function, Operation, Region, Value
from ptxforge.ir.definition import (
    ALLOCATES,
    COPIES,
    ELEMENTWISE,
    HINTS,
    PRODUCTS,
    REGISTRY,
    SAME_MEMORY,
    SCHEDULE,
    STORES,
    TENSORS,
    AttributeField,
)
from ptxforge.ir.departures import check_departures
from ptxforge.ir.ops.control import Loop
from ptxforge.ir.ops.shape import check_tile_shape
from ptxforge.ir.printer import print_function
from ptxforge.ir.views import memory_of
from ptxforge.ir.warps import SplitsWarps, WarpGroup, warps_of
from ptxforge.layouts.encodings import Distributed
from ptxforge.layouts.linear import LayoutError
from ptxforge.layouts.panels import Panels
from ptxforge.layouts.shared import InSharedMemory
from ptxforge.support.errors import IRError, VerificationError
from ptxforge.support.worklist import each_once


def verify(function: Function) -> None:
    """Raise :class:`VerificationError` at the first invariant that does not hold."""
    _Verifier(function).run()


class _Verifier:
    def __init__(self, function: Function):
        self.function = function
        self.operations: set[Operation] = set()
        self.visible: set[Value] = set()
        self.checked_types: set[T.Type] = set()
        self.group: WarpGroup | None = None
        self.has_layouts: bool | None = None

    def fail(self, number: int, message: str, op: Operation | None = None) -> NoReturn:
        notes = {op: f"{message} (invariant {number})"} if op is not None else {}
        where = f" in '{op.name}'" if op is not None else ""
        text = print_function(self.function, notes=notes)
        raise VerificationError(f"invariant {number} does not hold{where}: {message}\n{text}")

    def run(self) -> None:
        function = self.function
        if function.body.parent is not function:
            self.fail(1, "the body does not name the function as its parent")
        self.check_parameters()
        if "num_warps" in function.attributes:
            self.group = warps_of(function)
        for op in self.linked_operations(function.body):
            self.operations.add(op)
        self.check_queues()
        self.block(function.body, None)
        self.check_end(function.body, "return", "the function")
        self.check_reads()
        self.check_waits()

    # -- structure -------------------------------------------------------------------------------------

    def linked_operations(self, block: Block) -> Iterator[Operation]:
        """All operations of a block, nested ones included, with their links checked (1)."""
        previous = None
        here = block.first
        while here is not None:
            if here.parent is not block or here.previous is not previous:
                self.fail(1, "the operation is not linked to its block and its neighbours", here)
            yield here
            for region in here.regions:
                self.check_region_links(here, region)
                yield from self.linked_operations(region.block)
            previous, here = here, here.next
        if block.last is not previous:
            self.fail(1, "the block's last operation is not the end of its chain", previous)

    def check_region_links(self, op: Operation, region: Region) -> None:
        if region.parent is not op or region.block.parent is not region:
            self.fail(1, "a region is not linked to its operation or its block", op)

    def block(self, block: Block, owner: Operation | None) -> None:
        defined: list[Value] = list(block.arguments)
        self.visible.update(defined)
        for value in defined:
            self.value(value, owner)
        for op in block.operations:
            self.operation(op)
            defined += op.results
            self.visible.update(op.results)
            if op.is_terminator and op is not block.last:
                self.fail(4, "a terminator must be the last operation of its block", op)
        if block.last is None or not block.last.is_terminator:
            self.fail(4, "a block must end in a terminator", block.last or owner)
        self.visible.difference_update(defined)

    def value(self, value: Value, owner: Operation | None) -> None:
        """Check the uses (2) and the type (10, 11) of a value that ``owner`` defines."""
        for user, index in value.uses:
            is_operand = index < len(user.operands) and user.operands[index] is value
            if user not in self.operations or not is_operand:
                problem = f"a use by '{user.name}' as operand {index}, which is not so in this function"
                self.fail(2, f"the use list of a value of type {value.type} has {problem}", owner)
        self.type(value.type, owner)

    def operation(self, op: Operation) -> None:
        for index, value in enumerate(op.operands):
            if (op, index) not in value.uses:
                self.fail(2, f"operand {index} is not in the use list of its value", op)
            if value not in self.visible:
                self.fail(3, f"operand {index} is not defined before the operation or not visible to it", op)
        self.check_operands(op)
        self.check_attributes(op)
        self.check_results(op)
        self.check_elementwise(op)
        for result in op.results:
            self.value(result, op)
        self.check_regions(op)
        try:
            op.check() if hasattr(op, "check") else None
        except VerificationError as fault:
            self.fail(9, str(fault), op)

    def check_regions(self, op: Operation) -> None:
        if len(op.regions) != len(op.definition.region_fields):
            self.fail(
                4, f"{len(op.definition.region_fields)} regions expected, there are {len(op.regions)}", op
            )
        for index, region in enumerate(op.regions):
            around = self.group, self.checked_types
            if isinstance(op, SplitsWarps):
                self.group, self.checked_types = op.warps_of(region), set()
            self.block(region.block, op)
            self.group, self.checked_types = around
            terminator = op.definition.region_fields[index].terminator
            self.check_end(region.block, terminator, f"a region of '{op.name}'")

    def check_end(self, block: Block, terminator: str, what: str) -> None:
        if not isinstance(block.last, REGISTRY[terminator]):
            self.fail(4, f"{what} must end in '{terminator}'", block.last)

    def check_queues(self) -> None:
        waits = [op for op in self.operations if op.effects.finishes == TENSORS]
        signals = [op for op in self.operations if TENSORS in (op.effects.starts, op.effects.signals)]
        arrivals = [op for op in signals if not op.effects.fills]  # copies only bring bytes
        under_way = {queue for op in self.operations for queue in (op.effects.starts, op.effects.signals)}
        for op in self.function.walk():
            queue = op.effects.finishes
            if queue and queue not in under_way:
                self.fail(13, f"it waits for the queue '{queue}', to which nothing is added", op)
            if queue == TENSORS and not _is_met(op.barrier, arrivals):
                self.fail(13, "nothing arrives at the mbarrier that it waits for", op)
            if op.effects.starts == TENSORS and not op.effects.fills and not _is_met(op.barrier, waits):
                self.fail(13, "nobody waits for the bytes that it expects", op)

    def check_waits(self) -> None:
        waits = [op for op in self.operations if op.effects.finishes]
        finished = {op.effects.finishes for op in waits}
        for op in self.function.walk():
            queue = op.effects.starts
            if queue == COPIES and queue not in finished:
                self.fail(15, "nobody waits for its copies", op)
            if queue == PRODUCTS and not _lands(op.results[0]):
                self.fail(15, "nobody waits for its products", op)
            if queue == STORES and not _lands(op.results[0]):
                self.fail(15, "nobody waits until its memory has been read", op)
        # A loop that has a schedule is not done in the order of its text.
        is_in_order = not any(getattr(op, "last_stage", 0) for op in self.operations)
        for queue, left in ((COPIES, "num"), (PRODUCTS, "pending")) if is_in_order else ():
            for wait, age in ages_at_waits(self.function, queue).items():
                if getattr(wait, left) > age:
                    self.fail(16, f"{age + 1} groups are surely as new as what it names, or newer", wait)
        if any(op.effects.starts == STORES for op in self.operations):
            check_departures(self.function, lambda fault, op: self.fail(16, fault, op))

    def check_reads(self) -> None:
        completing: dict[Operation | None, set[Operation | None]] = {}
        for op in self.function.walk():
            if op.effects.fills == TENSORS:
                completing.setdefault(memory_of(op.destination), set()).add(memory_of(op.barrier))
        for op in self.function.walk() if completing else ():
            tiles = [v for v in op.operands if isinstance(v.type, T.MemDescType)]
            if "shared" in op.get_effects().reads and not all(_is_there(v, completing) for v in tiles):
                self.fail(14, "it reads what copies bring, by a view without the token of a wait", op)

    # -- operations ------------------------------------------------------------------------------------

    def check_operands(self, op: Operation) -> None:
        definition = op.definition
        count, least, most = len(op.operands), definition.min_operands, definition.max_operands
        if count < least or (most is not None and count > most):
            wanted = f"at least {least}" if most is None else f"{least} to {most}"
            self.fail(5, f"{wanted} operands expected, there are {count}", op)
        for field, value in zip(definition.operand_fields, op.operands):
            self.check_operand(op, field, value.type)
        if definition.variadic is not None:
            for value in op.operands[definition.variadic.index :]:
                self.check_operand(op, definition.variadic, value.type)

    def check_operand(self, op: Operation, field, type: T.Type) -> None:
        if not field.constraint.holds(type):
            expected = field.constraint.description
            self.fail(5, f"operand '{field.name}' has type {type}, expected {expected}", op)

    def scheduled(self, op: Operation) -> set[str]:
        """The attributes of a schedule that ``op`` has, where it may have them."""
        found = SCHEDULE & op.attributes.keys()
        last = getattr(op.parent_op, "last_stage", 0)
        if not found or not last:
            return set()
        for name in found:
            value = op.attributes[name]
            if type(value) is not int or value < 0 or (name == "stage" and value > last):
                self.fail(6, f"attribute '{name}' cannot be {value!r}", op)
        return found

    def check_attributes(self, op: Operation) -> None:
        attributes, fields = op.attributes, op.definition.attribute_fields
        if not (attributes.keys() <= fields.keys() and SCHEDULE.isdisjoint(attributes)):
            self.check_undeclared(op)
        for name, field in fields.items():
            if name in attributes:
                if not _attribute_fits(field, attributes[name]):
                    self.fail(6, f"attribute '{name}' cannot be {attributes[name]!r}", op)
            elif field.required:
                self.fail(6, f"attribute '{name}' is missing", op)

    def check_undeclared(self, op: Operation) -> None:
        unknown = op.attributes.keys() - op.definition.attribute_fields.keys()
        unknown -= HINTS if op.results else set()
        unknown -= self.scheduled(op)
        if unknown:
            self.fail(6, f"no attribute '{min(unknown)}' is declared", op)

    def check_results(self, op: Operation) -> None:
        infer = getattr(type(op), "infer", None)
        if infer is None:
            return
        try:
            wanted = infer([v.type for v in op.operands], op.attributes)
        except (IRError, LayoutError) as fault:
            self.fail(7, f"no result type can be inferred: {fault}", op)
        actual = [result.type for result in op.results]
        if len(actual) != len(wanted) or not all(map(_same_type, actual, wanted)):
            self.fail(7, f"results have types ({_join(actual)}), expected ({_join(wanted)})", op)

    def check_elementwise(self, op: Operation) -> None:
        if ELEMENTWISE not in op.traits:
            return
        types = [v.type for v in (*op.operands, *op.results)]
        if len(set(types)) > 1 and len({(T.shape_of(t), T.layout_of(t)) for t in types}) > 1:
            self.fail(8, f"operands and results must have one shape and layout: {_join(types)}", op)

    # -- types -----------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        for argument in self.function.arguments:
            if not isinstance(argument.type, (T.ScalarType, T.PointerType, T.TensorMapType)):
                self.fail(12, f"parameter '{argument.name}' has type {argument.type}")
        names = [argument.name for argument in self.function.arguments if argument.name]
        if len(set(names)) < len(names):
            self.fail(12, f"two parameters have one name: {', '.join(names)}")
        count = self.function.attributes.get("num_warps", 1)
        if not isinstance(count, int) or count < 1 or count & (count - 1):
            self.fail(12, f"num_warps must be a power of two, not {count!r}")

    def type(self, type: T.Type, op: Operation | None) -> None:
        if type in self.checked_types:
            return
        self.checked_types.add(type)
        if isinstance(type, T.MemDescType):
            self.memdesc(type, op)
        elif type is T.MBARRIER or isinstance(type, T.TensorType) and type.element in T.OPAQUE:
            self.fail(11, f"{T.element_type(type)}s lie in shared memory: no value is of {type}", op)
        elif isinstance(type, T.TensorType):
            self.tensor(type, op)
        elif isinstance(type, T.FlightType):
            self.tensor(type.tensor, op)

    def tensor(self, type: T.TensorType, op: Operation | None) -> None:
        self.tile_shape(type.shape, op)
        if self.has_layouts is None:
            self.has_layouts = type.layout is not None
        if self.has_layouts != (type.layout is not None):
            self.fail(11, f"some tensors have a layout, others have none; this one is {type}", op)
        if type.layout is None:
            return
        if not isinstance(type.layout, Distributed) or type.layout.rank != type.rank:
            self.fail(11, f"{type} needs a distributed encoding of rank {type.rank}", op)
        covered, group = type.layout.num_warps, self.group
        if group is not None and covered != group.count:
            owner = "group" if group.barrier else "function"
            self.fail(11, f"the layout of {type} is for {covered} warps, the {owner} has {group.count}", op)

    def memdesc(self, type: T.MemDescType, op: Operation | None) -> None:
        if not isinstance(type.layout, InSharedMemory):
            self.fail(11, f"{type} needs an encoding in shared memory", op)
        if isinstance(type.layout, Panels) and type.layout.element_bits != type.element.bits:
            self.fail(11, f"{type} needs panels of elements of {type.element.bits} bits", op)
        buffers = type.rank - type.layout.rank
        if buffers not in (0, 1):
            self.fail(11, f"{type} has {type.rank} dimensions, its encoding {type.layout.rank}", op)
        self.tile_shape(type.shape[buffers:], op)

    def tile_shape(self, shape: tuple[int, ...], op: Operation | None) -> None:
        try:
            check_tile_shape(shape)
        except VerificationError as fault:
            self.fail(10, str(fault), op)


def _is_met(barrier: Value, others: list[Operation]) -> bool:
    """Whether one of the others is for an mbarrier, too, or for others of its allocation. (Where control flow
    passes mbarriers on, it is not known which they are.)"""
    barriers = memory_of(barrier)
    if barriers is None or ALLOCATES not in barriers.traits:
        return True
    return any(memory_of(op.barrier) is barriers for op in others)


def _is_there(tile: Value, completing: dict[Operation | None, set[Operation | None]]) -> bool:
    """Whether no copies bring a tile, or it is seen behind a wait for an mbarrier on which they complete.
    (What memory control flow passes on is not known, nor what tokens.)"""
    mbarriers, view = completing.get(memory_of(tile)), tile.defining_op
    if mbarriers is None:
        return True
    while view is not None and SAME_MEMORY in view.traits:
        for token in (v for v in view.operands if isinstance(v.type, T.TokenType)):
            wait = token.defining_op
            if wait is None or wait.regions:
                return True
            return wait.effects.finishes == TENSORS and memory_of(wait.barrier) in mbarriers
        view = view.operands[0].defining_op
    return False


def _lands(work_under_way: Value) -> bool:
    """Whether a wait takes a flight or token, or what products and control flow make of it."""
    work = [work_under_way]
    for value in each_once(work):
        for user, index in value.uses:
            if user.effects.finishes:
                return True
            passed = user.passes_to(index)
            carrier = passed.defining_op if passed is not None else None
            if passed is None:
                work += [result for result in user.results if isinstance(result.type, T.FlightType)]
            else:
                work += carrier.carried_names(passed.index) if isinstance(carrier, Loop) else [passed]
    return False


def _attribute_fits(field: AttributeField, value) -> bool:
    if not isinstance(field.kind, tuple):
        return type(value) is field.kind
    if all(isinstance(kind, type) for kind in field.kind):
        return type(value) in field.kind
    return value in field.kind


def _same_type(one: T.Type, other: T.Type) -> bool:
    """Whether two types are equal, or tensors that differ only in how one linear map is named."""
    if one is other:
        return True
    if not isinstance(one, T.TensorType) or not isinstance(other, T.TensorType):
        return False
    if one.with_layout(None) is not other.with_layout(None) or one.layout is None or other.layout is None:
        return False
    return one.layout.linear(one.shape) == other.layout.linear(other.shape)


def _join(types) -> str:
    return ", ".join(map(str, types))
