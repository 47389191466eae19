"""Structured control flow as labels and branches. Conditions are scalars, so every branch is uniform; but in
the regions of reductions and their like, where a scalar is an element, each thread decides for itself
(``Builder.branch``), and where inline assembly says what threads do (``ir/varying.py``).

    for:    guard; copies of the initial values; body; copies; test at the bottom
    while:  test at the top
    if:     two sides; values that both sides give alike need no register
"""

from __future__ import annotations

from functools import reduce

from ptxforge.codegen_ptx.lower.arith import integer_compare
from ptxforge.codegen_ptx.lower.carried import Shape, Slot, carried_shape, general_shape
from ptxforge.codegen_ptx.lower.choices import choose
from ptxforge.codegen_ptx.lowering import LOWERINGS, Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import Pointer, as_pointer, whole
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Value
from ptxforge.ir.ops import control as ops
from ptxforge.ir.ops.arith import SelectRarely
from ptxforge.ir.pressure import held_by_loop


@lowers(ops.Yield, ops.Condition)
def ends_region(ctx: Lowering, op) -> None:
    """The enclosing operation reads its operands."""


@lowers(ops.Return)
def ends_kernel(ctx: Lowering, op: ops.Return) -> None:
    """The module ends in ``ret``."""


# -- for -------------------------------------------------------------------------------------------------


@lowers(ops.For)
def lower_for(ctx: Lowering, op: ops.For) -> None:
    b = ctx.b
    bits = op.induction.type.bits
    lower, upper, step = (ctx.scalar(v) for v in (op.lower, op.upper, op.step))
    enters = integer_compare(b, "slt", lower, upper, bits)
    if enters == 0:
        ctx.set(op, *(ctx.get(v) for v in op.initial))
        return
    limit, stride = b.plain(upper), b.plain(step)
    end, top = b.label("for_end"), b.label("for")
    induction = general_shape(b, [lower], op.induction.type)
    values = zip(op.carried, op.initial, op.body.terminator.values, strict=True)
    shapes = [carried_shape(b, argument, ctx.get(start), after) for argument, start, after in values]
    registers = [b.several(shape.kind * len(shape.initial)) for shape in shapes]
    counter = [b.new(induction.kind)]
    _copy_initial(b, [induction, *shapes], [counter, *registers])
    branch = ctx.branch_on(op.lower, op.upper, op.step)
    if enters != 1:
        b.effect(f"{branch} {end};", guard=b.negate(enters))
    loop = b.place(top)
    b.open_scope()
    ctx.values[op.induction] = induction.entries(b, counter)
    _bind(ctx, op.carried, shapes, registers)
    ctx.block(op.body)
    following = b.plain(b.add(counter[0], stride, 64 if bits == 64 else 32))
    again = integer_compare(b, "slt", following, limit, bits)
    copies = [(counter[0], following), *_next(ctx, op.body.terminator.values, shapes, registers)]
    carries_pointers = any(destination.kind == "q" for destination, _ in copies)
    b.carry(loop, copies, held=held_by_loop(op) if carries_pointers else None)
    # The assembler unrolls no loop that ``bra.uni`` closes.
    b.effect(f"{branch if op.rolled else 'bra'} {top};", guard=b.register(again, "p"))
    b.close_scope()
    b.place(end)
    ctx.set(op, *(shape.entries(b, r) for shape, r in zip(shapes, registers)))


def _copy_initial(b: Builder, shapes: list[Shape], registers: list[list[Register]]) -> None:
    for shape, targets in zip(shapes, registers):
        for register, value in zip(targets, shape.initial):
            b.copy(register, value)


def _bind(ctx: Lowering, arguments, shapes: list[Shape], registers: list[list[Register]]) -> None:
    for argument, shape, targets in zip(arguments, shapes, registers, strict=True):
        ctx.values[argument] = shape.entries(ctx.b, targets)


def _next(
    ctx: Lowering, values, shapes: list[Shape], registers: list[list[Register]]
) -> list[tuple[Register, object]]:
    """The copies that carry ``values`` to the next iteration."""
    copies = []
    for value, shape, targets in zip(values, shapes, registers, strict=True):
        components = shape.components(ctx.b, ctx.get(value))
        copies += [
            (target, component) for target, component in zip(targets, components) if target != component
        ]
    return copies


@lowers(ops.Recompute)
def recompute(ctx: Lowering, op: ops.Recompute) -> None:
    """Values are lowered again, from a copy of the thread's number that the assembler cannot see through: it
    would otherwise merge the two. Outside all control flow this copy serves all that follows."""
    if op.parent is ctx.function.body:
        ctx.b.recompute_thread_values()
        _lower_again(ctx, op)
    else:
        ctx.b.forget()
        with ctx.b.opaque_thread():
            _lower_again(ctx, op)


def _lower_again(ctx: Lowering, op: ops.Recompute) -> None:
    with ctx.b.because("recompute_indices: needed only behind the loop, which needs the registers"):
        for value in op.values:
            again = value.defining_op
            LOWERINGS[type(again)](ctx, again)


# -- while -----------------------------------------------------------------------------------------------


@lowers(ops.While)
def lower_while(ctx: Lowering, op: ops.While) -> None:
    b = ctx.b
    shapes = [general_shape(b, ctx.get(v), v.type) for v in op.initial]
    registers = [b.several(shape.kind * len(shape.initial)) for shape in shapes]
    _copy_initial(b, shapes, registers)
    end, top = b.label("while_end"), b.label("while")
    loop = b.place(top)
    b.open_scope()
    _bind(ctx, op.before.arguments, shapes, registers)
    ctx.block(op.before)
    condition = op.before.terminator
    leaving = [ctx.get(v) for v in condition.values]
    flag = b.register(ctx.scalar(condition.flag), "p")
    # Results must be in registers that exist on the way out.
    leaving = [[_settled(b, entry) for entry in entries] for entries in leaving]
    b.effect(f"@!%s {ctx.branch_on(condition.flag)} {end};", flag)
    for argument, entries in zip(op.body.arguments, leaving, strict=True):
        ctx.values[argument] = entries
    b.open_scope()
    ctx.block(op.body)
    copies = _next(ctx, op.body.terminator.values, shapes, registers)
    b.carry(loop, copies, kept=[x for entries in leaving for x in entries if isinstance(x, Register)])
    b.effect(f"{b.branch} {top};")
    b.close_scope()
    b.close_scope()
    b.place(end)
    ctx.set(op, *leaving)


def _settled(b: Builder, entry):
    """An entry whose value needs no further instruction."""
    return Pointer(whole(b, entry)) if isinstance(entry, Pointer) and entry.terms else entry


# -- if --------------------------------------------------------------------------------------------------


@lowers(ops.If)
def lower_if(ctx: Lowering, op: ops.If) -> None:
    b = ctx.b
    condition = ctx.scalar(op.condition)
    if isinstance(condition, int):
        taken = op.then_block if condition else op.else_block
        ctx.block(taken)
        ctx.set(op, *(ctx.get(v) for v in taken.terminator.values))
        return
    before, born = b.code, b.count
    then_code, then_values = _side(ctx, op.then_block)
    else_code, else_values = _side(ctx, op.else_block)
    sides = _Sides(b, then_code, else_code, born)
    results = [sides.merged(*found) for found in zip(op.results, then_values, else_values, strict=True)]
    b.code = before
    _place_sides(b, ctx.branch_on(op.condition), condition, then_code, else_code)
    ctx.set(op, *results)


def _side(ctx: Lowering, block: Block) -> tuple[list, list[list]]:
    """The instructions of one side, and the entries of what it yields."""
    b = ctx.b
    b.code = []
    b.open_scope()
    ctx.block(block)
    b.close_scope()
    return b.code, [ctx.get(v) for v in block.terminator.values]


class _Sides:
    """The instructions of both sides of a branch in front of which ``born`` registers were made."""

    def __init__(self, b: Builder, then_code: list, else_code: list, born: int):
        self.b, self.codes, self.born = b, (then_code, else_code), born
        self.results: set[Register] = set()

    def merged(self, result: Value, left: list, right: list) -> list:
        """The entries of a result: those that agree as they are, the rest in registers that both sides
        assign."""
        kind = register_class(T.element_type(result.type))
        pairs = list(zip(left, right, strict=True))
        found = {}
        for x, y in pairs:
            if (x, y) not in found:
                found[x, y] = x if x == y else self._entry(kind, x, y)
        return [found[pair] for pair in pairs]

    def _entry(self, kind: str, left, right):
        """A register that both sides assign."""
        b, register = self.b, self.b.new(kind)
        self.results.add(register)
        shape = Shape(kind, (None,), (_common_slot(left, right),))
        for code, entry in zip(self.codes, (left, right)):
            b.code = code
            b.open_scope()
            (source,) = shape.components(b, [entry])
            b.merge(register, source, self.born, self.results)
            b.close_scope()
        return shape.entries(b, [register])[0]


def _common_slot(left, right) -> Slot:
    """What two entries have in common stays outside the register."""
    if isinstance(left, Pointer) or isinstance(right, Pointer):
        p, q = as_pointer(left), as_pointer(right)
        if p.terms == q.terms and p.offset == q.offset:
            return Slot(0, p.terms, p.offset, True)
        return Slot(0, (), 0, True)
    if isinstance(left, tuple) and isinstance(right, tuple) and left[1] == right[1]:
        return Slot(0, (), left[1])
    return Slot(0)


def _place_sides(
    b: Builder, branch: str, condition: Register, then_code: list, else_code: list
) -> None:
    end = b.label("endif")
    if not _does_something(else_code):
        b.effect(f"@!%s {branch} {end};", condition)
        b.code += then_code
    elif not _does_something(then_code):
        b.effect(f"{branch} {end};", guard=condition)
        b.code += else_code
    else:
        other = b.label("else")
        b.effect(f"@!%s {branch} {other};", condition)
        b.code += then_code
        b.effect(f"{b.branch} {end};")
        b.place(other)
        b.code += else_code
    b.place(end)


def _does_something(code: list) -> bool:
    return any(instruction.acts for instruction in code)


@lowers(SelectRarely)
def select_rarely(ctx: Lowering, op: SelectRarely) -> None:
    """One branch for all elements of a thread, into which ``sink_rare`` moves what only they need. Where a
    condition is known, it is a plain selection."""
    b, kind = ctx.b, register_class(T.element_type(op.result.type))
    wanted = list(zip(ctx.get(op.condition), ctx.get(op.true_value), ctx.get(op.false_value), strict=True))
    holds = list(dict.fromkeys(c for c, _, _ in wanted))
    if any(isinstance(c, int) for c in holds):
        ctx.set(op, [choose(b, *entry, kind) for entry in wanted])
        return
    found = {entry: b.new(kind) for entry in dict.fromkeys(wanted)}
    for (_, _, usual), register in found.items():
        b.copy(register, b.plain(whole(b, usual) if isinstance(usual, Pointer) else usual))
    with b.rare(reduce(lambda p, q: b.pure("or.pred %s, %s, %s;", "p", p, q), holds)):
        for (condition, x, usual), register in found.items():
            b.copy(register, b.plain(choose(b, condition, x, usual, kind)))
    ctx.set(op, [found[entry] for entry in wanted])
