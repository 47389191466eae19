"""Atomic read-modify-write.

An element with copies in several threads is updated by one of them; where the result is used, the copies get
it by a shuffle within the warp or through scratch memory between warps. Vectors of floats are one instruction
where PTX has it (``f16x2`` everywhere, ``v2``/``v4``/``v8`` from sm_90 on).

*Order.* A single access carries its semantics itself: ``atom.global.gpu.acq_rel``. It does so where nothing
reads its result, too: ``red`` can release but not acquire, and a fence behind it costs more than an
instruction that acquires; of one that need not, and that nothing reads, the assembler makes a reduction
anyway. For several accesses, one fence before (release) and one after (acquire) make the whole operation
what each access would be, at the cost of one; those that nothing reads are ``red``. Modifiers of ``atom``
stand in the order in which Triton writes them: the assembler takes any.
"""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.exchange import (
    barrier,
    from_word,
    load_words,
    shared_address,
    shuffle,
    store_words,
    to_word,
    word_class,
)
from ptxforge.codegen_ptx.lower.floats import binary
from ptxforge.codegen_ptx.lower.indices import (
    first_thread,
    lane_id,
    linear_of,
    owner,
    register_constants,
    replication,
    thread_columns,
    thread_xor,
)
from ptxforge.codegen_ptx.lower.memory import thread_owner
from ptxforge.codegen_ptx.lower.packing import pack, unpack
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx import pointers
from ptxforge.codegen_ptx.ptx.access import vector_syntax
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops import atomic as ops
from ptxforge.layouts.linear import LANE
from ptxforge.layouts.scratch import container_bytes
from ptxforge.support.errors import InternalCompilerError

_NAMES = {"add": ("add", "u"), "fadd": ("add", "f"), "max": ("max", "s"), "min": ("min", "s"),
          "umax": ("max", "u"),
          "umin": ("min", "u"), "and": ("and", "b"), "or": ("or", "b"), "xor": ("xor", "b"),
          "xchg": ("exch", "b")}  # fmt: skip


@lowers(ops.AtomicRMW)
def atomic_rmw(ctx: Lowering, op: ops.AtomicRMW) -> None:
    element = T.element_type(op.value.type)
    # There is no red.exch.
    used = op.is_used and op.kind != "store" or op.kind in ("xchg", "load")
    width = op.width
    values, places = ctx.get(op.value), pointers.addresses(ctx.b, ctx.get(op.pointer)[::width])
    masks = ctx.get(op.mask)[::width] if op.mask is not None else [None] * len(places)
    copies, owner_predicate = thread_owner(ctx, op.value.type)
    active = [i for i in range(len(places)) if not (i * width) & copies and masks[i] != 0]
    access = _Access(ctx, op, element, used, alone=len(active) == 1)
    result: list = [0] * len(values)
    access.fence_before()
    for i in active:
        predicate = ctx.b.both(masks[i], owner_predicate)
        old = access.update(places[i], values[i * width : (i + 1) * width], predicate)
        result[i * width : (i + 1) * width] = old
    access.fence_after()
    ctx.set(op, _share(ctx, op, result, element) if op.is_used else result)


@lowers(ops.AtomicCAS)
def atomic_cas(ctx: Lowering, op: ops.AtomicCAS) -> None:
    b = ctx.b
    element = T.element_type(op.value.type)
    places = pointers.addresses(b, ctx.get(op.pointer))
    copies, owner_predicate = thread_owner(ctx, op.value.type)
    active = [i for i in range(len(places)) if not i & copies]
    access = _Access(ctx, op, element, True, alone=len(active) == 1)
    kind = "h" if element.bits == 16 else register_class(element)
    result: list = [0] * len(places)
    access.fence_before()
    for i in active:
        old = b.new(kind)
        compare, value = (_swapped(b, ctx.get(v)[i], element) for v in (op.compare, op.value))
        if owner_predicate is not None:
            b.copy(old, 0)
        template = f"atom.global.{access.sem}.{op.scope}.cas.b{element.bits} %s, [%s+%s], %s, %s;"
        b.effect(template, old, *places[i], compare, value, guard=owner_predicate)
        result[i] = b.pure("cvt.u32.u16 %s, %s;", "r", old) if element is T.I16 else old
    access.fence_after()
    ctx.set(op, _share(ctx, op, result, element) if op.is_used else result)


def _swapped(b: Builder, x, element: T.Type) -> Register:
    """In a register as wide as the element; the instruction takes no wider one."""
    word = _operand(b, x, element)
    return b.pure("cvt.u16.u32 %s, %s;", "h", word) if element is T.I16 else word


def _operand(b: Builder, x, element: T.Type) -> Register:
    if isinstance(x, pointers.Pointer):
        return pointers.whole(b, x)
    return b.register(x, register_class(element))


class _Access:
    """Emits the accesses of one operation in its memory order."""

    def __init__(self, ctx: Lowering, op: Operation, element: T.Type, used: bool, alone: bool):
        self.ctx, self.b, self.op, self.element, self.used, self.alone = ctx, ctx.b, op, element, used, alone
        scalar = not isinstance(op.value.type, T.TensorType)
        self.releases = op.sem in ("release", "acq_rel")
        self.acquires = op.sem in ("acquire", "acq_rel")
        # A scalar's one thread speaks for the whole program: the others' accesses come before or after a
        # barrier.
        self.meets = scalar and ctx.b.group.count > 1
        self.sem = op.sem if alone else "relaxed"

    def fence_before(self) -> None:
        if self.releases and self.meets:
            barrier(self.b)
        if self.releases and not self.alone:
            self.b.effect(f"fence.acq_rel.{self.op.scope};")

    def fence_after(self) -> None:
        if self.acquires and not self.alone:
            self.b.effect(f"fence.acq_rel.{self.op.scope};")
        if self.acquires and self.meets and not self.used:
            barrier(self.b)

    def update(self, place: tuple[Register, int], values: list, predicate) -> list:
        """Update the neighbouring elements at ``place``; gives their old values when they are used."""
        element, op = self.element, self.op
        if op.kind in ("load", "store"):
            return [self._one_way(place, values[0], predicate)]
        no_add = element is T.BF16 and not self.ctx.target.has_bf16_arithmetic
        if op.kind in ("fmax", "fmin") or no_add:
            return [self._by_compare_and_swap(place, values[0], predicate)]
        name, sign = _NAMES[op.kind]
        words, suffix = self._words(values, name, sign)
        vector, slots = vector_syntax(len(words))
        operation = name + suffix.replace("@", vector)
        if not (self.used or self.alone):
            template = f"red.relaxed.{op.scope}.global.{operation} [%s+%s], {slots};"
            self.b.effect(template, *place, *words, guard=predicate)
            return [0] * len(values)
        old = [self.b.new(word.kind) for word in words]
        if self.used and predicate is not None and predicate != 1:
            for register in old:
                self.b.copy(register, 0)
        template = f"atom.global.{op.scope}.{self.sem}.{operation} {slots}, [%s+%s], {slots};"
        self.b.effect(template, *old, *place, *words, guard=predicate)
        return self._elements(old, len(values)) if self.used else [0] * len(values)

    def _one_way(self, place: tuple[Register, int], value, predicate):
        """A load or a store that is atomic and ordered."""
        b, element = self.b, self.element
        if self.op.kind == "store":
            template = f"st.{self.sem}.{self.op.scope}.global.b{element.bits} [%s+%s], %s;"
            b.effect(template, *place, _operand(b, value, element), guard=predicate)
            return 0
        found = b.new(register_class(element))
        if predicate is not None and predicate != 1:
            b.copy(found, 0)
        template = f"ld.{self.sem}.{self.op.scope}.global.b{element.bits} %s, [%s+%s];"
        b.effect(template, found, *place, guard=predicate)
        return found

    def _words(self, values: list, name: str, sign: str) -> tuple[list[Register], Register]:
        """Operands and the instruction's suffix, with ``@`` where a vector's size goes."""
        b, element = self.b, self.element
        if element in (T.F16, T.BF16):
            if element is T.BF16 or len(values) > 2:
                b.require(8, 1) if len(values) > 2 else b.require(7, 8)
            if len(values) == 1:
                return [_operand(b, values[0], element)], f".noftz.{element}"
            words = [b.register(pack(b, values[i : i + 2], element), "r") for i in range(0, len(values), 2)]
            return words, f".noftz@.{element}x2"
        if len(values) > 1:
            b.require(8, 1)
        kind = {"f": "f", "s": "s", "u": "u", "b": "b"}[sign]
        if name in ("and", "or", "xor", "exch"):
            kind = "b"
        if element.bits < 32:
            raise InternalCompilerError(f"there is no atomic {self.op.kind} of {element}")
        return [_operand(b, x, element) for x in values], f"@.{kind}{element.bits}"

    def _elements(self, words: list[Register], count: int) -> list:
        if self.element.bits == 16 and count > 1:
            return [x for word in words for x in unpack(self.b, word, self.element)]
        return words

    def _by_compare_and_swap(self, place: tuple[Register, int], value, predicate) -> Register:
        """bf16 addition before sm_90, extrema: read, compute, try to swap, until nobody came between."""
        b = self.b
        old, seen = b.new("h"), b.new("h")
        b.copy(old, 0)
        top, end = b.label("cas"), b.label("cas_end")
        if predicate is not None:
            b.effect(f"@!%s bra {end};", b.register(predicate, "p"))
        b.effect("ld.relaxed.gpu.global.b16 %s, [%s+%s];", old, *place)
        b.place(top)
        b.open_scope()
        value = b.register(value, "h")
        if self.op.kind == "fadd":
            total = binary(b, "add", old, value, T.BF16)
        else:
            total = b.pure(f"{self.op.kind[1:]}.{self.element} %s, %s, %s;", "h", old, value)
        template = f"atom.global.{self.sem}.{self.op.scope}.cas.b16 %s, [%s+%s], %s, %s;"
        b.effect(template, seen, *place, old, total)
        b.close_scope()
        changed = b.new("p")
        b.effect("setp.ne.b16 %s, %s, %s;", changed, seen, old)
        b.effect("mov.b16 %s, %s;", old, seen)
        b.effect(f"bra {top};", guard=changed)
        b.place(end)
        return old


# -- results ---------------------------------------------------------------------------------------------


def _share(ctx: Lowering, op: Operation, result: list, element: T.Type) -> list:
    """Give the old values to all copies."""
    type = op.value.type
    if not isinstance(type, T.TensorType):
        return [_share_scalar(ctx, op, result[0], element)]
    layout = linear_of(type)
    copies, threads = replication(layout)
    result = [result[r & ~copies] for r in range(len(result))]
    if not threads:
        return result
    if threads >> layout.in_bits(LANE):
        return _share_tile(ctx, op, layout, result, element)
    b = ctx.b
    lane = b.pure("and.b32 %s, %s, %s;", "r", lane_id(b), 31 & ~threads)
    return [from_word(b, shuffle(b, "idx", to_word(b, x, element), lane), element) for x in result]


def _share_scalar(ctx: Lowering, op: Operation, value, element: T.Type):
    b = ctx.b
    word = to_word(b, value, element)
    if b.group.count == 1:
        return from_word(b, shuffle(b, "idx", word, 0), element)
    _check_scratch(op)
    address = shared_address(b, 0, op.scratch_offset)
    store_words(b, address, [word], first_thread(b))
    barrier(b)
    return from_word(b, load_words(b, address, 1, word_class(element))[0], element)


def _share_tile(ctx: Lowering, op: Operation, layout, result: list, element: T.Type) -> list:
    b = ctx.b
    _check_scratch(op)
    size = container_bytes(element.bits)
    copies, threads = replication(layout)
    thread = thread_xor(b, [c * size for c in thread_columns(layout)])
    addresses = [shared_address(b, thread, op.scratch_offset + c * size) for c in register_constants(layout)]
    owner_predicate = owner(b, threads)
    for register, (address, x) in enumerate(zip(addresses, result, strict=True)):
        if not register & copies:
            store_words(b, address, [to_word(b, x, element)], owner_predicate)
    barrier(b)
    kind = word_class(element)
    loaded = {r: from_word(b, load_words(b, a, 1, kind)[0], element)
              for r, a in enumerate(addresses) if not r & copies}
    return [loaded[r & ~copies] for r in range(len(result))]


def _check_scratch(op: Operation) -> None:
    if op.scratch_offset < 0:
        raise InternalCompilerError(f"'{op.name}' needs scratch memory that was not allocated")
