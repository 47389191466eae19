"""Loads, stores, pointers, program ids.

A tensor access is cut into vectors of ``vector`` elements (an attribute that the passes set from alignment,
contiguity and mask constancy), at most 16 bytes each, as far as the layout's registers are neighbours.
"""

from __future__ import annotations

from ptxforge.codegen_ptx import pointers
from ptxforge.codegen_ptx.indices import consecutive_registers, linear_of, owner, replication
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.packing import elements_of, fresh_words, words_of
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.ops import memory as ops
from ptxforge.ir.ops.control import Yield


@lowers(ops.GetProgramId)
def program_id(ctx: Lowering, op: ops.GetProgramId) -> None:
    found = ctx.b.pure(f"mov.u32 %s, %%ctaid.{'xyz'[op.axis]};", "r")
    ctx.b.ranges.setdefault(found, (0, (1 << 31) - 1 if op.axis == 0 else 65535))
    ctx.set(op, [found])


@lowers(ops.GetNumPrograms)
def num_programs(ctx: Lowering, op: ops.GetNumPrograms) -> None:
    found = ctx.b.pure(f"mov.u32 %s, %%nctaid.{'xyz'[op.axis]};", "r")
    ctx.b.ranges.setdefault(found, (1, (1 << 31) - 1 if op.axis == 0 else 65535))
    ctx.set(op, [found])


@lowers(ops.AddPtr)
def addptr(ctx: Lowering, op: ops.AddPtr) -> None:
    size = T.element_type(op.pointer.type).pointee.bytes
    if isinstance(op.result.type, T.PointerType) and all(isinstance(user, Yield) for user in op.result.users):
        # The end of the loop computes it, where it may take the place of the old pointer.
        ctx.set(op, [pointers.moved_by(ctx.b, pointers.as_pointer(ctx.scalar(op.pointer)), ctx.scalar(op.offset), size)])
        return
    ctx.set(op, pointers.advance(ctx.b, ctx.get(op.pointer), ctx.get(op.offset), size))


@lowers(ops.Barrier)
def barrier(ctx: Lowering, op: ops.Barrier) -> None:
    ctx.b.effect("bar.sync 0;")


# -- vectors ---------------------------------------------------------------------------------------------


def vector_width(op: Operation, type: T.Type, bits: int) -> int:
    """Elements per access: what the passes say, within the layout's neighbours and 128 bits."""
    wanted = op.attributes.get("vector", 1)
    if wanted == 1 or not isinstance(type, T.TensorType):
        return 1
    return max(1, min(wanted, consecutive_registers(linear_of(type)), 128 // max(bits, 8)))


def cache_policy(ctx: Lowering, eviction: str) -> str | None:
    """The L2 policy operand for an eviction priority, or None for the normal one."""
    if not eviction:
        return None
    ctx.b.require(7, 4)
    return ctx.b.pure(f"createpolicy.fractional.L2::{eviction}.b64 %s, 0f3F800000;", "q")


def _modifiers(cache: str, eviction: str, volatile: bool = False) -> str:
    """What stands between the space and the vector: cache operator or L1 priority, and the L2 hint."""
    if volatile:
        return ""
    first = cache or (f".L1::{eviction}" if eviction else "")
    return first + (".L2::cache_hint" if eviction else "")


def address_text(template: str, with_policy: bool) -> str:
    """The tail ``[base+offset]`` and the policy operand."""
    return template + (", %s;" if with_policy else ";")


def _vector(count: int) -> tuple[str, str]:
    """``.v4`` and ``{%s, %s, %s, %s}`` for a number of words."""
    if count == 1:
        return "", "%s"
    return f".v{count}", "{" + ", ".join(["%s"] * count) + "}"


# -- loads -----------------------------------------------------------------------------------------------


@lowers(ops.Load)
def load(ctx: Lowering, op: ops.Load) -> None:
    element = T.element_type(op.result.type)
    width = vector_width(op, op.result.type, element.bits)
    places = pointers.addresses(ctx.b, ctx.get(op.pointer)[::width])
    masks = _every(ctx, op.mask, width)
    others = ctx.get(op.other) if op.other is not None else None
    policy = None if op.volatile else cache_policy(ctx, op.eviction)
    reader = _Reader(ctx, op, element, width, policy)
    done: dict[tuple, list] = {}
    result: list = []
    for i, (base, offset) in enumerate(places):
        mask = masks[i]
        other = tuple(others[i * width : (i + 1) * width]) if others is not None else None
        key = (base, offset, mask, other)
        found = done.get(key)
        if found is None:
            found = done[key] = reader.read(base, offset, mask, other)
        result += found
    ctx.set(op, result)


def _every(ctx: Lowering, mask: Value | None, width: int) -> list:
    """The predicate of each vector (a mask is constant over a vector); None where there is no mask."""
    if mask is None:
        return _Always()
    return ctx.get(mask)[::width]


class _Always:
    """A list of as many ``None`` as are asked for."""

    def __getitem__(self, index: int) -> None:
        return None


class _Reader:
    """Emits the vector loads of one operation."""

    def __init__(self, ctx: Lowering, op: ops.Load, element: T.Type, width: int, policy: str | None):
        self.b, self.element, self.width = ctx.b, element, width
        self.policy = () if policy is None else (policy,)
        self.head = "ld.volatile.global" if op.volatile else "ld.global" + _modifiers(op.cache, op.eviction)

    def read(self, base: str, offset: int, mask, other: tuple | None) -> list:
        """The elements at ``base + offset``."""
        b, width, element = self.b, self.width, self.element
        if mask == 0:
            return list(other) if other is not None else [_zero(element)] * width
        words, type = fresh_words(b, width, element)
        vector, slots = _vector(len(words))
        template = f"{self.head}{vector}.{type} {slots}, [%s+%s]" + (", %s;" if self.policy else ";")
        operands = (*words, base, offset, *self.policy)
        if mask is None or mask == 1:
            b.effect(template, *operands)
        else:
            self._initialise(words, other)
            b.effect("@%s " + template, mask, *operands)
        return elements_of(b, words, width, element)

    def _initialise(self, words: list[str], other: tuple | None) -> None:
        """Give the destination the values for when the mask does not hold (without ``other``: 0, so that
        every executor computes the same)."""
        values = [0] * len(words) if other is None else words_of(self.b, other, self.element)[0]
        for word, value in zip(words, values, strict=True):
            self.b.copy(word, value)


def _zero(element: T.Type):
    return {T.F32: "0f00000000", T.F64: "0d0000000000000000"}.get(element, 0)


# -- stores ----------------------------------------------------------------------------------------------


def thread_owner(ctx: Lowering, type: T.Type) -> tuple[int, object]:
    """(mask of register bits that are copies, predicate of the threads that own what they hold)."""
    if not isinstance(type, T.TensorType):
        return 0, owner(ctx.b, 32 * ctx.num_warps - 1)
    registers, threads = replication(linear_of(type))
    return registers, owner(ctx.b, threads)


@lowers(ops.Store)
def store(ctx: Lowering, op: ops.Store) -> None:
    b = ctx.b
    element = T.element_type(op.value.type)
    width = vector_width(op, op.value.type, element.bits)
    places = pointers.addresses(b, ctx.get(op.pointer)[::width])
    masks = _every(ctx, op.mask, width)
    values = ctx.get(op.value)
    if isinstance(element, T.PointerType):
        values = [pointers.whole(b, x) for x in values]
    copies, mine = thread_owner(ctx, op.value.type)
    policy = cache_policy(ctx, op.eviction)
    head = "st.global" + _modifiers(op.cache, op.eviction)
    for i, (base, offset) in enumerate(places):
        if (i * width) & copies:
            continue
        predicate = b.both(masks[i], mine)
        if predicate == 0:
            continue
        words, type = words_of(b, values[i * width : (i + 1) * width], element)
        if len(words) > 1:
            words = [_in_register(b, word, type) for word in words]
        vector, slots = _vector(len(words))
        template = f"{head}{vector}.{type} [%s+%s], {slots}" + (", %s;" if policy else ";")
        operands = (base, offset, *words) + ((policy,) if policy else ())
        emit_predicated(b, predicate, template, operands)


def _in_register(b, word, type: str) -> str:
    """A vector's elements must be registers."""
    return b.register(word, {"b64": "q", "b16": "h"}.get(type, "r"))


def emit_predicated(b, predicate, template: str, operands: tuple) -> None:
    """An instruction with effects under a predicate (a register, or None / 1: always; 0: never)."""
    if predicate is None or predicate == 1:
        b.effect(template, *operands)
    elif predicate != 0:
        b.effect("@%s " + template, predicate, *operands)
