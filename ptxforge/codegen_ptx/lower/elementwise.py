"""Helpers for lowerings that act entry by entry, and on narrow integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.floats import via_f32
from ptxforge.codegen_ptx.lower.indices import linear_of, run_starts
from ptxforge.codegen_ptx.lowering import Lowering
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.formula import formula
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation


def elementwise(ctx: Lowering, op: Operation, function: Callable) -> None:
    """The result's entries are ``function(*entries of the operands)``; equal entries are computed once."""
    _each(ctx, op, aligned(ctx, op), function)


def in_two_widths(ctx: Lowering, op: Operation, double: Callable, single: Callable) -> None:
    """:func:`elementwise`: ``double`` for f64, ``single`` for f32 and, by way of it, narrower floats."""
    element = T.element_type(op.operands[0].type)
    if element is T.F64:
        elementwise(ctx, op, double)
    else:
        elementwise(ctx, op, lambda *x: via_f32(ctx.b, single, element, *x))


def by_formula(ctx: Lowering, op: Operation, single: Callable, double: Callable) -> None:
    """:func:`in_two_widths` with formulas of values in registers."""
    is_double = T.element_type(op.operands[0].type) is T.F64
    kind, function = ("d", double) if is_double else ("f", single)
    b, made = ctx.b, formula(function, kind * len(op.operands))

    def compute(*entries):
        return made(b, *[b.register(x, kind) for x in entries])

    in_two_widths(ctx, op, compute, compute)


def once_for_runs(ctx: Lowering, op: Operation, function: Callable) -> None:
    """:func:`elementwise`; elements that are known to be equal (``constancy``) are computed once."""
    _each(ctx, op, of_runs(ctx, op), function)


def _each(ctx: Lowering, op: Operation, all_entries: list[tuple], function: Callable) -> None:
    memo: dict[tuple, object] = {}
    result = []
    for entries in all_entries:
        found = memo.get(entries)
        if found is None:
            found = memo[entries] = function(*entries)
        result.append(found)
    ctx.values[op.results[0]] = result


def aligned(ctx: Lowering, op: Operation) -> list[tuple]:
    """The operands' entries, those of one element of the result side by side."""
    operands = [ctx.values[v] for v in op.operands]
    count = max(map(len, operands))
    # In a combining region, which works on many pairs at once, a constant has one entry.
    operands = [x * count if len(x) == 1 < count else x for x in operands]
    return list(zip(*operands, strict=True))


def of_runs(ctx: Lowering, op: Operation) -> list[tuple]:
    """:func:`aligned`, with the entries of the first element for a whole run of results that are known to be
    equal (``constancy``)."""
    found, constancy = aligned(ctx, op), op.attributes.get("constancy", (1,))
    if not isinstance(op.result.type, T.TensorType) or max(constancy) == 1:
        return found
    return [found[start] for start in run_starts(linear_of(op.result.type), constancy)]


def sign_extended(b: Builder, x, bits: int):
    """An 8- or 16-bit integer in the low bits of ``x`` as a whole 32-bit one; wider ones as they are."""
    if bits >= 32:
        return x
    if isinstance(x, int):
        half = 1 << (bits - 1)
        return ((x + half) & (2 * half - 1)) - half
    found = b.pure(f"cvt.s32.s{bits} %s, %s;", "r", b.plain(x))
    return found.within(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def zero_extended(b: Builder, x, bits: int):
    """As :func:`sign_extended`, with zeros."""
    if bits >= 32:
        return x
    mask = (1 << bits) - 1
    if isinstance(x, int):
        return x & mask
    known = b.range_of(x)
    if known is not None and 0 <= known[0] and known[1] <= mask:
        return x
    x = b.plain(x)
    found = b.pure("and.b32 %s, %s, %s;", "r", x, mask).within(0, mask)
    note_field(b, found, x, 0, mask)
    return found


class Field(NamedTuple):
    """Bits of a register: ``(source >> shift) & mask``."""

    source: Register
    shift: int
    mask: int


def note_field(b: Builder, found, x, shift: int, mask: int) -> None:
    """State that ``found`` is ``(x >> shift) & mask``; both may be constants, of which nothing is noted."""
    if isinstance(found, Register) and isinstance(x, Register):
        inner = field_of(b, x)
        field = Field(inner.source, inner.shift + shift, inner.mask >> shift & mask)
        b.remember(("field", found), field)


def field_of(b: Builder, x: Register) -> Field:
    """Which bits of which register ``x`` is."""
    return b.known(("field", x)) or Field(x, 0, -1)


def integer_class(bits: int) -> str:
    """The register class of an integer of this width."""
    return "q" if bits == 64 else "r"


def width_of(bits: int) -> int:
    """The width of the instructions that compute with such integers."""
    return 64 if bits == 64 else 32
