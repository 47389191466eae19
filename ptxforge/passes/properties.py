"""What passes establish and rely on: predicates on a whole function, each with a name.

``PROPERTIES[name].check(function, target)`` raises :class:`VerificationError` at the first offender. The
manager checks the order of names when it is imported, and in tests the properties themselves after every
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, MemoryAccess
from ptxforge.ir.warps import scratch_of
from ptxforge.layouts.banks import register_run
from ptxforge.support.errors import VerificationError
from ptxforge.support.target import Target

LAYOUTS = "layouts"
VECTORS = "vectors"
OFFSETS = "offsets"
NO_ASSUMPTIONS = "no_assumptions"


@attrs.frozen(slots=True)
class Property:
    """A named invariant; ``check`` raises where it does not hold."""

    name: str
    meaning: str
    check: Callable[[Function, Target], None]


PROPERTIES: dict[str, Property] = {}


def _property(name: str) -> Callable:
    def register(check: Callable[[Function, Target], None]) -> Callable[[Function, Target], None]:
        PROPERTIES[name] = Property(name, check.__doc__ or "", check)
        return check

    return register


def values_of(function: Function) -> Iterator[Value]:
    """Parameters, results and the arguments of regions."""
    yield from function.arguments
    for op in function.walk():
        yield from op.results
        for region in op.regions:
            yield from region.block.arguments


@_property(LAYOUTS)
def every_tensor_has_a_layout(function: Function, target: Target) -> None:
    """Every tensor type has a distributed encoding."""
    for value in values_of(function):
        if isinstance(value.type, T.TensorType) and value.type.layout is None:
            raise VerificationError(f"a value of type {value.type} has no layout: {_where(value)}")


def _where(value: Value) -> str:
    return repr(value.defining_op) if value.defining_op is not None else "a block's argument"


@_property(VECTORS)
def every_access_has_a_width(function: Function, target: Target) -> None:
    """Every tensor load, store and atomic_rmw says in ``vector`` how many elements one access moves, and no
    more than lie side by side in a thread's registers and than the target moves."""
    for op in memory_accesses(function):
        if op.takes_vectors:
            if not op.vector:
                raise VerificationError(f"no 'vector' on {op!r}")
            most = most_in_a_vector(op, target)
            if max(op.vector, op.guarded) > most:
                raise VerificationError(f"at most {most} elements are one vector of {op!r}")


def most_in_a_vector(op: MemoryAccess, target: Target) -> int:
    """How many elements an instruction of a memory access may move: neighbours in a thread's registers, as
    far as the target moves them at once."""
    type = op.pointer.type
    _, run = register_run(type.layout, type.shape)
    return min(run, max(1, op.most_bytes(target) // type.element.pointee.bytes))


@_property(OFFSETS)
def shared_memory_has_places(function: Function, target: Target) -> None:
    """Every ``local_alloc`` and every operation that needs scratch has its offset;
    the function its ``shared_bytes``."""
    if "shared_bytes" not in function.attributes:
        raise VerificationError("the function has no 'shared_bytes'")
    for op in function.walk():
        if ALLOCATES in op.traits and op.offset < 0:
            raise VerificationError(f"no 'offset' on {op!r}")
        if scratch_of(op) and op.attributes.get("scratch_offset", -1) < 0:
            raise VerificationError(f"no 'scratch_offset' on {op!r}")


@_property(NO_ASSUMPTIONS)
def no_assumptions_are_left(function: Function, target: Target) -> None:
    """No ``assume`` is left: the analyses that use it have run."""
    for op in function.walk():
        if "promises" in op.effects.writes:
            raise VerificationError(f"{op!r} is left")


def is_memory_access(op: Operation) -> bool:
    """A load, store, atomic, or whatever else accesses the memory behind a tensor of pointers."""
    return isinstance(op, MemoryAccess) and isinstance(op.pointer.type, T.TensorType)


def memory_accesses(function: Function) -> list[MemoryAccess]:
    """All operations of a function for which :func:`is_memory_access` holds, in textual order."""
    return [op for op in function.walk(MemoryAccess) if is_memory_access(op)]
