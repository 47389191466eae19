"""How an operation is declared, and the registry of all of them.

    @define("exp2")
    class Exp2(Elementwise):
        '''2**x.'''
        x = operand(FLOAT)

        def evaluate(self, x): return np.exp2(x)

From such a class everything generic is derived: the printer, the parser, ``builder.create``, cloning, CSE,
DCE, LICM (through ``effects``), the interpreter and constant folding (through ``evaluate``), and the layout
passes (through ``infer`` and ``operand_layout``).

What a definition can state
---------------------------
fields      ``operand(constraint)``, ``operand(constraint, optional=True)`` (only at the end, each needing the
            one before), ``operands(constraint)`` (variadic, last), ``attribute(kind, default)``,
            ``region()``.
effects     what it reads and writes besides its operands; ``PURE`` when nothing.
traits      ``ELEMENTWISE`` (acts element by element: all tensors have one shape and one layout),
            ``COMMUTATIVE``, ``TERMINATOR``, ``ANCHOR`` (chooses its own layout: conversions stop at it),
            ``PARTIAL`` (faults, or never ends, for some operands: only runs where the program runs it),
            ``REARRANGING`` (its result holds elements of its only operand and no others), ``SAME_MEMORY``
            (what its result points at belongs to what its first operand points at), ``ANY_LAYOUT`` (does not
            care in which layouts its operands are), ``RELAYOUT`` (can be done in another layout instead of
            converting its result; pure elementwise operations need not say it), ``ADDRESSING`` (index
            arithmetic, cheaper to do again than to keep in registers), ``ORDERLESS`` (does the same in
            whatever order a tile's elements are, as elementwise operations do), ``KEEPS_PLACES`` (layouts and
            dimensions pass through it as through elementwise operations), ``UNIFORM`` (all elements
            of its result are equal: its operand, or its attribute ``value``), ``ALLOCATES`` (its result is
            memory that it takes from what a block shares), ``UNORDERED`` (the hardware does it by itself,
            without order with what threads read from global memory), ``MEETING`` (threads wait for each other
            there, and do nothing else), ``ANY_WIDTH`` (computes the same in any type that holds all numbers).
            Those of a base class are inherited: ``Elementwise`` has the first, and an ``infer`` and a
            ``check`` to go with it.
cost        what computing an element takes: ``FREE`` (nothing: constants, other names of registers),
            ``CHEAP`` (an instruction or two; unless said otherwise) or ``EXPENSIVE`` (many, or a slow one).
nonnegative_if  of an integer result, when it is certainly not negative: ``ALWAYS``, or if ``ALL``,
            ``ANY_OF`` or the ``FIRST`` of the operands are not. Where that cannot say it, the class has a
            method ``is_nonnegative``.
axis_info   of an integer or pointer result: how long it runs, what divides it, how long it is equal, made
            from what is known of the operands (``ir/facts.py``). Without it, equal operands give equal
            results.
addends     what it is the sum of, where it is one. ``neutral`` is the number that it combines with any other
            to that other. ``limits``: between which numbers it lies, by those of the operands.
result_dim  along which dimension of the results lies what an operand has along one.
scratch_bytes  of shared memory that it needs while it runs. ``ir/interfaces.py`` has all that passes ask.
infer       classmethod ``infer(operand_types, attributes) -> list of result types``; operand types carry
            layouts in the gpu stage and so do the results. ``None`` when results must be given.
            ``gives(types)`` and ``gives_type_of(index)`` make the usual ones.
check       ``check(self)`` raises ``VerificationError`` for what constraints cannot say.
evaluate    the numpy meaning: arrays (or numpy scalars) in, array or tuple of arrays out. Without it, the
            interpreter has a handler of its own.
base        an operation on the memory behind pointers derives from ``MemoryAccess``, which declares what
            every such access has.
operand_layout, result_layout  the layout that operand ``index`` must have so that the result gets ``layout``
            (for pushing conversions backwards), and the other way round; ``None`` when that cannot be.
            Elementwise operations, and others that ``KEEPS_PLACES``, need neither.
passes_to   of control flow: which result an operand becomes.
shows_operand_types   the printer writes ``: (operand types) -> result types``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.support.errors import IRError, VerificationError
from ptxforge.support.interned import Interned
from ptxforge.support.target import Target

ELEMENTWISE = "elementwise"
COMMUTATIVE = "commutative"
TERMINATOR = "terminator"
ANCHOR = "anchor"
PARTIAL = "partial"
UNORDERED = "unordered"
REARRANGING = "rearranging"
SAME_MEMORY = "same memory"
ANY_LAYOUT = "any layout"
RELAYOUT = "relayout"
ADDRESSING = "addressing"
ORDERLESS = "orderless"
KEEPS_PLACES = "keeps places"
UNIFORM = "uniform"
ALLOCATES = "allocates"
MEETING = "meeting"
ANY_WIDTH = "any width"
TRAITS = frozenset(
    (ELEMENTWISE, COMMUTATIVE, TERMINATOR, ANCHOR, PARTIAL, REARRANGING, SAME_MEMORY, ANY_LAYOUT, RELAYOUT,
     ADDRESSING, ORDERLESS, KEEPS_PLACES, UNIFORM, ALLOCATES, UNORDERED, MEETING,
     ANY_WIDTH)
)  # fmt: skip

FREE, CHEAP, EXPENSIVE = "free", "cheap", "expensive"
"""Costs of an element."""
ALWAYS, ALL, ANY_OF, FIRST = "always", "all", "any", "first"
"""When a result is not negative."""


def _derived(function: Callable[[Effects], Any]) -> Any:
    """A field that follows from the others: asked for all the time."""
    return attrs.field(init=False, repr=False, default=attrs.Factory(function, takes_self=True))


@attrs.frozen(slots=True, eq=False)
class Effects(Interned):
    """What an operation does besides computing results from operands.

    ``reads`` and ``writes`` name memory: ``global``, ``shared``; and ``promises``, which ``assume`` makes and
    analyses read. ``other`` is anything else that the world can see or that orders execution (printing,
    asserting, a barrier): never removed, never reordered. ``may_wait``: a program may learn by it what others
    have done, and so wait for them (an atomic's result, a volatile load, assembly that acts).

    ``starts`` and ``finishes`` name the queue of asynchronous work (``COPIES``, ``PRODUCTS``, ``TENSORS``,
    ``STORES``) that it adds to, or waits for: such work is ordered with that of its own queue. ``follows``
    names one behind whose waits it stays, ``signals`` one whose waits may be for it, although it is no work.
    """

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    other: bool = False
    starts: str = ""
    finishes: str = ""
    follows: str = ""
    signals: str = ""
    may_wait: bool = False
    is_pure: bool = _derived(lambda self: not (self.reads or self.writes or self.other))
    is_removable: bool = _derived(lambda self: not (self.writes or self.other))
    """Without uses, the operation may go (a plain load, too)."""
    reads_by: str = _derived(lambda self: self.starts if "shared" in self.reads else "")
    """The queue whose work reads shared memory for it; empty when none does."""

    @property
    def is_atomic(self) -> bool:
        """It reads and writes the same memory."""
        return bool(self.reads & self.writes)

    @property
    def keeps_turn(self) -> bool:
        """It may show whether programs, or iterations, do it in turn or ahead of each other: it may wait, or
        what it does is seen. Work of a queue is ordered with that alone."""
        return self.may_wait or self.is_atomic or (self.other and not self.queue)

    @property
    def queue(self) -> str:
        """The queue of asynchronous work that it has to do with; empty when it is none."""
        return self.starts or self.finishes or self.follows

    @property
    def fills(self) -> str:
        """The queue by which it copies to shared memory; empty when it does not."""
        return self.starts if "shared" in self.writes else ""

    def touches(self, memory: str) -> bool:
        return memory in self.reads or memory in self.writes

    @property
    def lets_pieces_pass(self) -> bool:
        """Reads of shared memory and copies that began before the operation may be done behind it: it has no
        effects, or is one of these itself."""
        return self.is_pure or self == READS_SHARED or self.starts == COPIES


PURE = Effects()
READS_GLOBAL = Effects(reads=frozenset({"global"}))
WRITES_GLOBAL = Effects(writes=frozenset({"global"}))
READS_WRITES_GLOBAL = Effects(reads=frozenset({"global"}), writes=frozenset({"global"}))
READS_SHARED = Effects(reads=frozenset({"shared"}))
WRITES_SHARED = Effects(writes=frozenset({"shared"}))
SIDE_EFFECT = Effects(other=True)
MAY_WAIT = Effects(other=True, may_wait=True)

COPIES, PRODUCTS, TENSORS, STORES = T.QUEUES


@attrs.frozen(slots=True, eq=False)
class Constraint:
    """What types an operand may have: a predicate and the words for it in messages."""

    description: str
    holds: Callable[[T.Type], bool]


def _elements(description: str, test: Callable[[T.Type], bool]) -> Constraint:
    def holds(type: T.Type) -> bool:
        return not isinstance(type, T.MemDescType) and test(T.element_type(type))

    return Constraint(f"{description} or tensor of them", holds)


ANY = Constraint("any value", lambda t: True)
INT = _elements("integer", lambda e: e.is_int if isinstance(e, T.ScalarType) else False)
FLOAT = _elements("float", lambda e: e.is_float if isinstance(e, T.ScalarType) else False)
BOOL = _elements("i1", lambda e: e is T.I1)
POINTER = _elements("pointer", lambda e: isinstance(e, T.PointerType))
NUMBER_OR_POINTER = _elements("number or pointer", lambda e: isinstance(e, (T.ScalarType, T.PointerType)))
SCALAR = Constraint("scalar", lambda t: isinstance(t, (T.ScalarType, T.PointerType)))
SCALAR_INT = Constraint("integer scalar", lambda t: isinstance(t, T.ScalarType) and t.is_int)
SCALAR_BOOL = Constraint("i1 scalar", lambda t: t is T.I1)
TENSOR = Constraint("tensor", lambda t: isinstance(t, T.TensorType))
INT_TENSOR = Constraint("integer tensor", lambda t: isinstance(t, T.TensorType) and INT.holds(t))
MEMDESC = Constraint("memdesc", lambda t: isinstance(t, T.MemDescType))
MBARRIERS = Constraint("mbarriers", lambda t: isinstance(t, T.MemDescType) and t.element is T.MBARRIER)
TENSOR_OR_MEMDESC = Constraint("tensor or memdesc", lambda t: isinstance(t, (T.TensorType, T.MemDescType)))
FLIGHT = Constraint("flight", lambda t: isinstance(t, T.FlightType))
COPY_TOKEN = Constraint("token<cp.async>", lambda t: t is T.TokenType(COPIES))
PHASE = Constraint("token<tma>", lambda t: t is T.TokenType(TENSORS))
DESCRIPTOR = Constraint("descriptor", lambda t: isinstance(t, T.DescriptorType))
TENSOR_MAP = Constraint("tensor map", lambda t: t is T.TENSOR_MAP)

HINTS = frozenset({"divisibility", "contiguity", "constancy", "nonnegative"})
"""Attributes that any operation with results, and any parameter, may have without declaring them: promises
of the user about the value, which passes may use or drop."""

SCHEDULE = frozenset({"stage", "group", "slice", "turn", "beyond"})
"""Attributes that any operation right in the body of a ``for`` that is to be pipelined may have, integers:
which iteration it works on (``stage``), with which others its copy arrives (``group``, of loads), how much of
k it takes at once (``slice``, of a product), when its turn comes in a step (``turn``; those of one turn stand
as in the text), and for how many iterations behind the last one it is done, too (``beyond``; so is the copy
of a load that has it). First ``passes/schedule_loops.py`` writes them, where it decides, then
``passes/pipeline_loops.py``, on all; ``expand_loops.py`` obeys."""

_REQUIRED = object()


class Field(property):
    """A named part of an operation; as a property it reads that part of an instance. (Whatever is asked of an
    operation is asked this way: a ``__get__`` of its own would take twice the time.) ``at`` says where it
    is."""

    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def at(self, index: int) -> None:
        self.index = index
        property.__init__(self, self._reader(index))


class OperandField(Field):
    """An operand at a fixed position; ``None`` when it is optional and absent."""

    def __init__(self, constraint: Constraint, optional: bool):
        self.constraint, self.optional = constraint, optional

    def _reader(self, index: int) -> Callable[[Operation], Any]:
        if self.optional:
            return lambda op: op.operands[index] if index < len(op.operands) else None
        return lambda op: op.operands[index]


class VariadicField(Field):
    """All operands from a position on."""

    def __init__(self, constraint: Constraint):
        self.constraint = constraint

    def _reader(self, index: int) -> Callable[[Operation], Any]:
        return lambda op: op.operands[index:]


class AttributeField(Field):
    """A named attribute with its Python type (or a tuple of allowed values) and default."""

    def __init__(self, kind: type | tuple, default: Any):
        self.kind, self.default = kind, default

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, default = name, self.default

        def required(op: Operation) -> Any:
            if name not in op.attributes:
                raise IRError(f"'{op.name}' lacks its attribute '{name}'")
            return op.attributes[name]

        def write(op: Operation, value: Any) -> None:
            op.attributes[name] = value

        read = required if self.required else lambda op: op.attributes.get(name, default)
        property.__init__(self, read, write)


class RegionField(Field):
    """A region at a fixed position; reads as its block, which ends in the operation called ``terminator``."""

    def __init__(self, terminator: str):
        self.terminator = terminator

    def _reader(self, index: int) -> Callable[[Operation], Any]:
        return lambda op: op.regions[index].block


def operand(constraint: Constraint = ANY, optional: bool = False) -> Any:
    """Declare an operand."""
    return OperandField(constraint, optional)


def operands(constraint: Constraint = ANY) -> Any:
    """Declare a variadic tail of operands."""
    return VariadicField(constraint)


def attribute(kind: type | tuple, default: Any = _REQUIRED) -> Any:
    """Declare an attribute of Python type ``kind`` (or one of the values in a tuple ``kind``)."""
    return AttributeField(kind, default)


def region(terminator: str = "yield") -> Any:
    """Declare a region (one block), and what it ends in."""
    return RegionField(terminator)


def gives(*types: T.Type) -> Any:
    """An ``infer``: results of always these types."""
    return classmethod(lambda cls, operands, attributes: list(types))


def gives_type_of(index: int) -> Any:
    """An ``infer``: one result, of the type of operand ``index``."""
    return classmethod(lambda cls, operands, attributes: [operands[index]])


def same_operand_types(op: Operation, first: int = 0) -> None:
    """A ``check``: all operands from ``first`` on have one type."""
    types = {v.type for v in op.operands[first:]}
    if len(types) > 1:
        listed = ", ".join(str(v.type) for v in op.operands[first:])
        raise VerificationError(f"operands of '{op.name}' must have one type: {listed}")


class MemoryAccess(Operation):
    """Base of operations that move elements to or from the memory that ``pointer`` (a scalar, or a tensor of
    pointers: one for each element) names: its ``space``.

    ``vector``   how many elements one instruction moves: consecutive registers of a thread, at consecutive
                 addresses, the first of which is aligned to the whole, with one mask. Decided by
                 ``vectorize_memory``; 0 before.
    ``guarded``  so many elements may turn out to be one vector when the kernel runs; the code tests it.
                 1: none do. ``aligned`` says that their addresses need no test.

    An operation that has a ``mask`` declares it; elements where it does not hold are not touched. One whose
    instructions move single elements only says so by ``takes_vectors``.
    """

    takes_vectors = True
    pointer = operand(POINTER)
    mask = None
    vector = attribute(int, 0)
    guarded = attribute(int, 1)
    aligned = attribute(bool, False)

    def check(self):
        if (moved := self.get_effects().reads | self.get_effects().writes) and self.space not in moved:
            raise VerificationError(f"'{self.name}' is no access to {self.space} memory")

    @property
    def space(self) -> str:
        """The memory that the pointer names, one of those that the effects do."""
        return T.element_type(self.pointer.type).address_space

    @property
    def width(self) -> int:
        """How many elements one instruction moves; a scalar is moved alone."""
        return self.vector or 1

    def most_bytes(self, target: Target) -> int:
        """How many bytes an instruction of ``target`` moves at most."""
        return target.widest_global_access // 8

    owned = False
    """Whether only the owner of an element accesses it (of loads; stores and atomics are so anyway)."""
    is_silent = False
    """Whether nobody learns from an atomic access what was there, or that it was done."""

    @property
    def elements(self) -> T.Type:
        """The type of what is moved: the elements pointed at, in the pointers' shape and layout."""
        return T.like(self.pointer.type, T.element_type(self.pointer.type).pointee)


class Piecewise(Operation):
    """Base of operations that a thread does in pieces, an instruction each, which may be done between the
    instructions of the products behind the operation in its block.

    ``order``  for each of the ``pieces``, how many instructions of those products come first; empty: all
               pieces are done here. Decided by ``interleave_products``.
    """

    order = attribute(tuple, ())

    @property
    def may_wait(self) -> bool:
        """Whether the pieces need not be done here."""
        return True

    def pieces(self) -> list[tuple[int, ...]]:
        """For each piece the registers of the result that are known after it."""
        return [()]


class Elementwise(Operation):
    """Base of operations ``(T, …, T) -> T`` on scalars or, element by element,
    on tensors of one shape and layout."""

    traits = frozenset((ELEMENTWISE,))

    infer = gives_type_of(0)
    check = same_operand_types


@attrs.frozen(slots=True, eq=False)
class Definition:
    """What was declared about an operation, collected."""

    name: str
    operand_fields: tuple[OperandField, ...]
    variadic: VariadicField | None
    attribute_fields: dict[str, AttributeField]
    region_fields: tuple[RegionField, ...]
    shows_operand_types: bool
    removed_by: str
    min_operands: int = attrs.field(init=False)
    max_operands: int | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        most = None if self.variadic is not None else len(self.operand_fields)
        object.__setattr__(self, "min_operands", sum(not f.optional for f in self.operand_fields))
        object.__setattr__(self, "max_operands", most)


REGISTRY: dict[str, type[Operation]] = {}
"""Every operation by its name in IR text."""


def define(
    name: str,
    *,
    effects: Effects = PURE,
    traits: Iterable[str] = (),
    shows_operand_types: bool = False,
    removed_by: str = "",
    cost: str = CHEAP,
    nonnegative_if: str = "",
    neutral: int | float | None = None,
    limits: Callable[..., Any] | None = None,
) -> Callable[[type[Operation]], type[Operation]]:
    """Class decorator: register an operation. After the pass ``removed_by`` it no longer exists."""

    def register(cls: type[Operation]) -> type[Operation]:
        if name in REGISTRY:
            raise TypeError(f"operation '{name}' is defined twice")
        if unknown := frozenset(traits) - TRAITS:
            raise TypeError(f"operation '{name}' has unknown traits {sorted(unknown)}")
        fields = _collect_fields(cls)
        singles = [f for f in fields if isinstance(f, OperandField)]
        tail = [f for f in fields if isinstance(f, VariadicField)]
        regions = [f for f in fields if isinstance(f, RegionField)]
        for places in (singles + tail, regions):
            for index, field in enumerate(places):
                field.at(index)
        if effects is PURE and cls.get_effects is not Operation.get_effects:
            raise TypeError(f"operation '{name}' may have effects, but is defined without")
        cls.name, cls.effects, cls.cost, cls.nonnegative_if = name, effects, cost, nonnegative_if
        cls.neutral = cls.neutral if neutral is None else neutral
        cls.between = staticmethod(limits) if limits else cls.between
        cls.traits = cls.traits | frozenset(traits)
        cls.is_terminator = TERMINATOR in cls.traits
        cls.definition = Definition(
            name,
            tuple(singles),
            tail[0] if tail else None,
            {f.name: f for f in fields if isinstance(f, AttributeField)},
            tuple(regions),
            shows_operand_types,
            removed_by,
        )
        REGISTRY[name] = cls
        return cls

    return register


def _collect_fields(cls: type) -> list[Field]:
    """Fields in order of declaration, those of base classes first."""
    found: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        for key, value in vars(base).items():
            if isinstance(value, Field):
                found[key] = value
    return list(found.values())
