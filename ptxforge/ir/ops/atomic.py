"""Atomic read-modify-write. All return the old value (0 where the mask does not hold)."""

from __future__ import annotations

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.layouts.scratch import atomic_scratch_bytes
from ptxforge.support import machine
from ptxforge.support.errors import VerificationError

FLOAT_KINDS = ("fadd", "fmax", "fmin")
RMW_KINDS = (*FLOAT_KINDS, "add", "max", "min", "umax", "umin", "and", "or", "xor", "xchg", "load", "store")
SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "gpu", "sys")


_GLOBAL = frozenset({"global"})
ATOMIC = D.Effects(reads=_GLOBAL, writes=_GLOBAL, other=True, may_wait=True)


class Atomic(D.MemoryAccess):
    """Base of atomic accesses: threads that hold copies of an element get its old value from the one that did
    the access."""

    def scratch_bytes(self, num_warps):
        if not self.is_used:
            return 0
        type = self.result.type
        layout = type.layout.linear(type.shape) if isinstance(type, T.TensorType) else None
        return atomic_scratch_bytes(layout, T.element_type(type).bits, num_warps)


@D.define("atomic_rmw", effects=ATOMIC, traits=[D.ELEMENTWISE, D.ANCHOR], shows_operand_types=True)
class AtomicRMW(Atomic):
    """Atomically replace what ``pointer`` points at by ``kind(old, value)``; the result is the old value.
    ``fadd`` adds floats; ``max min`` are signed integers', ``umax umin`` unsigned ones', ``fmax fmin`` those
    of 16-bit floats. (Those of wider ones are built from integers' by the frontend.) ``load`` replaces
    nothing and ``value`` says its type only; ``store`` reads nothing and its result has no meaning. Elements
    of a tensor are separate atomics in no particular order."""

    value = D.operand(D.NUMBER_OR_POINTER)
    mask = D.operand(D.BOOL, optional=True)
    kind = D.attribute(RMW_KINDS)
    sem = D.attribute(SEMANTICS, "acq_rel")
    scope = D.attribute(SCOPES, "gpu")
    scratch_offset = D.attribute(int, -1)

    @property
    def is_silent(self) -> bool:
        return not self.is_used and self.sem == "relaxed"

    def most_bytes(self, target):
        """Only floats are added in vectors: f16 in pairs by every target, all of up to 32 bits from sm_90
        on."""
        element = T.element_type(self.value.type)
        if self.kind != "fadd" or element not in (T.F16, T.BF16, T.F32):
            return element.bytes
        if target.has_packed_atomics:
            return machine.VECTOR_BYTES
        return 2 * element.bytes if element is T.F16 else element.bytes

    infer = D.gives_type_of(1)

    def order_of_sums(self):
        return ("atomic", str(T.element_type(self.value.type))) if self.kind == "fadd" else None

    def check(self):
        super().check()
        _check_pointee(self, self.value)
        is_float = T.element_type(self.value.type).is_float
        if is_float != (self.kind in FLOAT_KINDS) and self.kind not in ("xchg", "load", "store"):
            raise VerificationError(f"'atomic_rmw' of kind '{self.kind}' on {self.value.type}")


def _check_pointee(op: Operation, value: Value) -> None:
    pointee = T.element_type(op.operands[0].type).pointee
    if T.element_type(value.type) is not pointee:
        raise VerificationError(f"'{op.name}' of {value.type} through {op.operands[0].type}")


@D.define("atomic_cas", effects=ATOMIC, traits=[D.ELEMENTWISE, D.ANCHOR], shows_operand_types=True)
class AtomicCAS(Atomic):
    """Atomically store ``value`` where the old value equals ``compare`` (bitwise);
    the result is the old value."""

    takes_vectors = False
    compare = D.operand(D.NUMBER_OR_POINTER)
    value = D.operand(D.NUMBER_OR_POINTER)
    sem = D.attribute(SEMANTICS, "acq_rel")
    scope = D.attribute(SCOPES, "gpu")
    scratch_offset = D.attribute(int, -1)

    infer = D.gives_type_of(2)

    def check(self):
        super().check()
        D.same_operand_types(self, 1)
        _check_pointee(self, self.value)

    @property
    def element(self) -> T.Type:
        return T.element_type(self.value.type)
