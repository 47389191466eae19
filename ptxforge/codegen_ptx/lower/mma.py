"""Matrix products on tensor cores by ``mma.sync``.

Which registers make a fragment, and the order of the instructions, says ``layouts/product_steps.py``. Reads
of fragments and asynchronous copies are done in between where they say so (``Lowering.in_pieces``). Parts of
a fragment that a small tile does not have are zeros, and their results are dropped.
"""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.packing import pack, unpack
from ptxforge.codegen_ptx.lowering import Lowering
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.ops.dot import Dot
from ptxforge.layouts.mma_families import MMA_SYNC, find_family
from ptxforge.layouts.product_steps import Registers, Step
from ptxforge.support.errors import InternalCompilerError


def multiply(ctx: Lowering, op: Dot) -> None:
    """Lower a dot whose result has an ``mma`` layout."""
    b = ctx.b
    element, total = op.a.type.element, op.c.type.element
    if op.c.type.layout.version[0] != 2:
        raise InternalCompilerError(f"there is no mma.sync for {op.c.type.layout}")
    steps = op.steps
    old_sums = ctx.get(op.c)
    left = _Words(b, ctx.get(op.a), element)
    right = _Words(b, ctx.get(op.b), op.b.type.element)
    sums = _Accumulator(b, old_sums, total)
    template = _template(b, op, steps[0])
    b.locate(op.location)
    for step in steps:
        ctx.before_product(op)
        old = sums.operands(step.c)
        new = b.several([word.kind for word in old])
        b.effect(template, *new, *map(left.__getitem__, step.a), *map(right.__getitem__, step.b), *old)
        sums.assign(step.c, new)
    ctx.set(op, sums.entries)


def _template(b: Builder, op: Dot, step: Step) -> str:
    """The instruction with a slot per register."""
    types = [str(v.type.element) for v in op.operands]
    family = find_family(MMA_SYNC, *types)
    b.require(*family.ptx)
    first, second, sums = family.kinds(*types, op.a_unsigned, op.b_unsigned)
    words_c = len(step.c) // (2 if op.element is T.F16 else 1)
    slots = ["{" + ", ".join(["%s"] * n) + "}" for n in (words_c, len(step.a), len(step.b), words_c)]
    shape = f"m{family.m}n{family.n}k{family.k}"
    return f"mma.sync.aligned.{shape}.row.col.{sums}.{first}.{second}.{sums} {', '.join(slots)};"


class _Words(dict):
    """The 32-bit registers of an operand (64-bit for f64) by those of its elements, each when it is needed
    first."""

    def __init__(self, b: Builder, entries: list, element: T.Type):
        self.b, self.entries, self.element = b, entries, element

    def __missing__(self, registers: Registers) -> Register:
        b = self.b
        if registers is None:
            word = b.register(0, "d" if self.element is T.F64 else "r")
        elif self.element.bits >= 32:
            word = b.register(self.entries[registers[0]], register_class(self.element))
        else:
            word = b.register(pack(b, [self.entries[r] for r in registers], self.element), "r")
        self[registers] = word
        return word


class _Accumulator:
    """The registers of C, and of D as the instructions give them. f16 is packed in pairs."""

    def __init__(self, b: Builder, entries: list, element: T.Type):
        self.b, self.element = b, element
        self.entries = list(entries)
        self.kind = register_class(element)

    def operands(self, registers: tuple[int | None, ...]) -> tuple[Register, ...]:
        b = self.b
        if self.element is T.F16:
            values = [0 if r is None else self.entries[r] for r in registers]
            return tuple(b.register(pack(b, values[i : i + 2], T.F16), "r") for i in range(0, len(values), 2))
        zero = "0f00000000" if self.element is T.F32 else "0d0000000000000000" if self.element is T.F64 else 0
        values = tuple([zero if r is None else self.entries[r] for r in registers])
        for x in values:
            if x.__class__ is not Register:
                return tuple([b.register(x, self.kind) for x in values])
        return values

    def assign(self, registers: tuple[int | None, ...], words: list[Register]) -> None:
        if self.element is T.F16:
            words = [x for word in words for x in unpack(self.b, word, T.F16)]
        for register, word in zip(registers, words, strict=True):
            if register is not None:
                self.entries[register] = word
