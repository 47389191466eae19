"""Creation of tensors and movement of their elements: mostly renaming of registers."""

from __future__ import annotations

from functools import lru_cache

from ptxforge.codegen_ptx.constants import constant
from ptxforge.codegen_ptx.indices import coordinate, linear_of
from ptxforge.codegen_ptx.lowering import Lowering, lowers, register_count
from ptxforge.ir import types as T
from ptxforge.ir.ops import shape as ops
from ptxforge.layouts.linear import LANE, REGISTER, WARP, LinearLayout
from ptxforge.support.errors import InternalCompilerError


@lowers(ops.Constant)
def lower_constant(ctx: Lowering, op: ops.Constant) -> None:
    type = op.result.type
    ctx.set(op, [constant(op.value, T.element_type(type))] * register_count(type))


@lowers(ops.Splat)
def splat(ctx: Lowering, op: ops.Splat) -> None:
    ctx.set(op, ctx.get(op.value) * register_count(op.result.type))


@lowers(ops.MakeRange)
def make_range(ctx: Lowering, op: ops.MakeRange) -> None:
    indices = coordinate(ctx.b, linear_of(op.result.type), 0)
    ctx.set(op, [ctx.b.add(index, op.start) for index in indices])


# -- renaming --------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _matching_registers(source: LinearLayout, result: LinearLayout) -> tuple[int, ...]:
    """For every register of ``result``, the register of ``source`` of the same thread with the same flat element.

    Raises:
        InternalCompilerError: when an element would have to leave its thread.
    """
    for name in (LANE, WARP):
        theirs = source.columns_of(name)
        for bit, column in enumerate(result.columns_of(name)):
            if bit >= len(theirs) or theirs[bit] != column:
                raise InternalCompilerError(f"an operation that only renames registers meets {source} and {result}")
    held: dict[int, int] = {}
    for register, element in enumerate(_elements(source)):
        held.setdefault(element, register)
    try:
        return tuple(held[element] for element in _elements(result))
    except KeyError:
        raise InternalCompilerError(
            f"an operation that only renames registers meets {source} and {result}") from None


def _elements(layout: LinearLayout) -> list[int]:
    values = [0]
    for column in layout.columns_of(REGISTER):
        values += [v ^ column for v in values]
    return values


def rename(ctx: Lowering, op, source: LinearLayout) -> None:
    """The result's registers are those of the only operand, whose layout, in the result's coordinates, is ``source``."""
    entries = ctx.get(op.operands[0])
    places = _matching_registers(source, linear_of(op.result.type))
    ctx.set(op, [entries[i] for i in places])


@lowers(ops.ExpandDims, ops.Reshape)
def reshape(ctx: Lowering, op) -> None:
    names = [f"dim{d}" for d in range(op.result.type.rank)]
    rename(ctx, op, linear_of(op.x.type).reshape_outs(zip(names, op.result.type.shape)))


@lowers(ops.Trans)
def trans(ctx: Lowering, op: ops.Trans) -> None:
    rename(ctx, op, _permuted(linear_of(op.x.type), tuple(op.order)))


@lru_cache(maxsize=1024)
def _permuted(layout: LinearLayout, order: tuple[int, ...]) -> LinearLayout:
    moved = layout.transpose_outs([f"dim{d}" for d in order])
    return moved.rename({f"dim{d}": f"dim{i}" for i, d in enumerate(order)})


@lowers(ops.Broadcast)
def broadcast(ctx: Lowering, op: ops.Broadcast) -> None:
    entries = ctx.get(op.x)
    if len(set(entries)) == 1:
        ctx.set(op, entries[:1] * register_count(op.result.type))
        return
    ctx.set(op, [entries[i] for i in _broadcast_registers(op.x.type, op.result.type)])


@lru_cache(maxsize=4096)
def _broadcast_registers(source: T.TensorType, result: T.TensorType) -> tuple[int, ...]:
    """For every register of the result, the source's register with the element at the same coordinates, those of
    size 1 ignored. Threads agree because both have one encoding."""
    narrow, wide = linear_of(source), linear_of(result)
    keep = wide.flatten([0 if s == 1 else size - 1 for s, size in zip(source.shape, result.shape)])
    held: dict[int, int] = {}
    for register, element in enumerate(_elements(narrow)):
        held.setdefault(wide.flatten(narrow.unflatten(element)), register)
    return tuple(held[element & keep] for element in _elements(wide))


@lowers(ops.Join)
def join(ctx: Lowering, op: ops.Join) -> None:
    left, right = ctx.get(op.lhs), ctx.get(op.rhs)
    half = _join_registers(linear_of(op.lhs.type), linear_of(op.result.type))
    ctx.set(op, [(right if which else left)[i] for i, which in half])


@lru_cache(maxsize=1024)
def _join_registers(half: LinearLayout, whole: LinearLayout) -> tuple[tuple[int, int], ...]:
    """For every register of the joined tensor (register of the half, which half)."""
    held: dict[int, int] = {}
    for register, element in enumerate(_elements(half)):
        held.setdefault(element, register)
    return tuple((held[element >> 1], element & 1) for element in _elements(whole))


@lowers(ops.Split)
def split(ctx: Lowering, op: ops.Split) -> None:
    entries = ctx.get(op.x)
    whole, half = linear_of(op.x.type), linear_of(op.results[0].type)
    held: dict[int, int] = {}
    for register, element in enumerate(_elements(whole)):
        held.setdefault(element, register)
    ctx.set(op, *([entries[held[element << 1 | which]] for element in _elements(half)] for which in (0, 1)))


@lowers(ops.Cat)
def cat(ctx: Lowering, op: ops.Cat) -> None:
    ctx.set(op, _cat_entries(ctx.get(op.lhs), ctx.get(op.rhs), register_count(op.result.type)))


def _cat_entries(left: list, right: list, count: int) -> list:
    """Elements may come in any order: a thread's registers of both, one after the other."""
    both = left + right
    if len(both) != count:
        raise InternalCompilerError(f"'cat' of {len(left)} and {len(right)} registers cannot make {count}")
    return both
