"""Creation of tensors and movement of their elements: mostly renaming of registers."""

from __future__ import annotations

from functools import lru_cache

from ptxforge.codegen_ptx.lower.arith import integer_compare
from ptxforge.codegen_ptx.lower.elementwise import sign_extended, zero_extended
from ptxforge.codegen_ptx.lower.exchange import (
    barrier,
    butterfly,
    from_word,
    load_words,
    shared_address,
    shared_base,
    store_words,
    to_word,
    word_class,
)
from ptxforge.codegen_ptx.lower.indices import (
    combine,
    flat_indices,
    linear_of,
    owner,
    register_constants,
    replication,
    thread_columns,
    thread_id,
    thread_xor,
)
from ptxforge.codegen_ptx.lowering import Lowering, lowers, register_count
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.constants import constant
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.ops import shape as ops
from ptxforge.layouts.linear import LANE, REGISTER, WARP, LinearLayout
from ptxforge.layouts.scratch import container_bytes, mirror
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
    b, start, indices = ctx.b, op.start, flat_indices(ctx.b, linear_of(op.result.type))
    ctx.set(op, [b.add(index, start) for index in indices] if start else indices)


@lowers(ops.RotatedRange)
def rotated_range(ctx: Lowering, op: ops.RotatedRange) -> None:
    """Only elements of the last granule can jump, but for its first; the others are a register and a
    constant, as ever."""
    b, size, layout = ctx.b, op.end - op.start, linear_of(op.result.type)
    shift = ctx.scalar(op.shift)
    if isinstance(shift, Register):
        shift.within(0, op.granule - 1)
    threads_hold_granules = all(column % op.granule == 0 for column in thread_columns(layout))

    def value(place, constant: int):
        known = b.range_of(place)
        begins_granule = threads_hold_granules and constant % op.granule == 0
        moved = b.add(place, shift)
        if not begins_granule and (known is None or known[1] + op.granule > size):
            moved = b.pure("and.b32 %s, %s, %s;", "r", b.plain(moved), size - 1)
        return b.add(moved, op.start)

    ctx.set(op, list(map(value, flat_indices(b, layout), register_constants(layout))))


# -- renaming --------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _matching_registers(source: LinearLayout, result: LinearLayout) -> tuple[int, ...]:
    """For every register of ``result``, the register of ``source`` of the same thread with the same flat
    element.

    Raises:
        InternalCompilerError: when an element would have to leave its thread.
    """
    for name in (LANE, WARP):
        theirs = source.columns_of(name)
        for bit, column in enumerate(result.columns_of(name)):
            if bit >= len(theirs) or theirs[bit] != column:
                raise InternalCompilerError(
                    f"an operation that only renames registers meets {source} and {result}"
                )
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
    """The result's registers are those of the only operand, whose layout, in the result's coordinates, is
    ``source``."""
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
    """For every register of the result, the source's register with the element at the same coordinates,
    those of size 1 ignored. Threads agree because both have one encoding."""
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


@lowers(ops.ExtractSlice)
def extract_slice(ctx: Lowering, op: ops.ExtractSlice) -> None:
    entries = ctx.get(op.x)
    ctx.set(op, [entries[register] for register in op.registers])


@lowers(ops.Cat)
def cat(ctx: Lowering, op: ops.Cat) -> None:
    ctx.set(op, _cat_entries(ctx.get(op.lhs), ctx.get(op.rhs), register_count(op.result.type)))


def _cat_entries(left: list, right: list, count: int) -> list:
    """Elements may come in any order: a thread's registers of both, one after the other."""
    both = left + right
    if len(both) != count:
        raise InternalCompilerError(f"'cat' of {len(left)} and {len(right)} registers cannot make {count}")
    return both


# -- through shared memory -------------------------------------------------------------------------------


@lowers(ops.Gather)
def gather(ctx: Lowering, op: ops.Gather) -> None:
    """The source goes to scratch memory in row-major order; each thread then picks."""
    b, source, index = ctx.b, op.source.type, op.index.type
    element = source.element
    size = container_bytes(element.bits)
    _spill(ctx, linear_of(source), ctx.get(op.source), element, op.scratch_offset)
    barrier(b)
    stride = size
    for extent in source.shape[op.axis + 1 :]:
        stride *= extent
    layout = linear_of(index)
    rest = [
        _offset_without(layout, flat, op.axis, source.shape) * size for flat in register_constants(layout)
    ]
    columns = [_offset_without(layout, flat, op.axis, source.shape) * size for flat in thread_columns(layout)]
    thread = b.add(shared_base(b), op.scratch_offset)
    thread = b.add(thread, thread_xor(b, columns))
    memo: dict = {}
    result = []
    for constant_, entry in zip(rest, ctx.get(op.index), strict=True):
        key = (constant_, entry)
        if key not in memo:
            place = b.add(b.add(thread, b.mul(_as_i32(b, entry, index.element), stride)), constant_)
            memo[key] = from_word(b, load_words(b, place, 1, word_class(element))[0], element)
        result.append(memo[key])
    ctx.set(op, result)


@lowers(ops.Flip)
def flip(ctx: Lowering, op: ops.Flip) -> None:
    b, element = ctx.b, op.x.type.element
    entries, away = ctx.get(op.x), mirror(linear_of(op.x.type), op.axis)
    if away[WARP]:
        entries = _of_other_thread(b, entries, element, away[WARP] << 5 | away[LANE], op.scratch_offset)
    elif away[LANE]:
        entries = butterfly(b, entries, element, away[LANE])
    ctx.set(op, [entries[register ^ away[REGISTER]] for register in range(len(entries))])


def _of_other_thread(b: Builder, entries: list, element: T.Type, mask: int, start: int) -> list:
    """The entries of the thread whose number differs in the bits of ``mask``."""
    size, thread = container_bytes(element.bits), thread_id(b)
    row = size * b.group.threads
    place = b.add(b.add(shared_base(b), start), b.mul(thread, size))
    for register, entry in enumerate(entries):
        store_words(b, b.add(place, register * row), [to_word(b, entry, element)])
    barrier(b)
    other = b.pure("xor.b32 %s, %s, %s;", "r", thread, mask).within(0, b.group.threads - 1)
    place = b.add(b.add(shared_base(b), start), b.mul(other, size))
    words = [load_words(b, b.add(place, r * row), 1, word_class(element))[0] for r in range(len(entries))]
    return [from_word(b, word, element) for word in words]


def _as_i32(b, x, element: T.Type):
    if element.bits == 64:
        root, offset = b.split(x)
        return offset if root is None else b.affine(b.pure("cvt.u32.u64 %s, %s;", "r", root), offset, 32)
    return sign_extended(b, x, element.bits)


def _offset_without(layout: LinearLayout, flat: int, axis: int, shape: tuple[int, ...]) -> int:
    """The row-major index in ``shape`` of an element's coordinates, with 0 along ``axis``."""
    index = 0
    for d, (coordinate_, extent) in enumerate(zip(layout.unflatten(flat), shape)):
        index = index * extent + (0 if d == axis else coordinate_)
    return index


def _spill(ctx: Lowering, layout: LinearLayout, entries: list, element: T.Type, start: int) -> None:
    """Store a tile to scratch memory in row-major order, one container per element."""
    b = ctx.b
    size = container_bytes(element.bits)
    copies, threads = replication(layout)
    columns = [c * size for c in thread_columns(layout)]
    thread = thread_xor(b, columns)
    owns = owner(b, threads)
    base = b.add(shared_base(b), start)
    for register, flat in enumerate(register_constants(layout)):
        if not register & copies:
            place = b.add(base, combine(b, thread, columns, flat * size))
            store_words(b, place, [to_word(b, entries[register], element)], owns)


@lowers(ops.Histogram)
def histogram(ctx: Lowering, op: ops.Histogram) -> None:
    """Counters in scratch memory: clear, count, read."""
    b, bins = ctx.b, op.result.type.numel
    threads = b.group.threads
    place = shared_address(
        b, thread_xor(b, [4 << i for i in range(threads.bit_length() - 1)]), op.scratch_offset
    )
    inside = None if bins >= threads else b.pure("setp.lt.s32 %s, %s, %s;", "p", thread_id(b), bins)
    for first in range(0, bins, threads):
        store_words(b, b.add(place, 4 * first), [b.register(0)], inside)
    barrier(b)
    _count(ctx, op, bins)
    barrier(b)
    layout = linear_of(op.result.type)
    columns = [4 * c for c in thread_columns(layout)]
    thread = thread_xor(b, columns)
    base = b.add(shared_base(b), op.scratch_offset)
    loaded: dict[int, Register] = {}
    result = []
    for flat in register_constants(layout):
        if flat not in loaded:
            loaded[flat] = load_words(b, b.add(base, combine(b, thread, columns, 4 * flat)), 1, "r")[0]
        result.append(loaded[flat])
    ctx.set(op, result)


def _count(ctx: Lowering, op: ops.Histogram, bins: int) -> None:
    b, element = ctx.b, op.x.type.element
    copies, threads = replication(linear_of(op.x.type))
    owns = owner(b, threads)
    masks = ctx.get(op.mask) if op.mask is not None else None
    base = b.add(shared_base(b), op.scratch_offset)
    for register, entry in enumerate(ctx.get(op.x)):
        if register & copies:
            continue
        fits = bins >> element.bits  # else the type does not hold the number of bins
        counted = None if fits else integer_compare(b, "ult", entry, bins, element.bits)
        counted = b.both(counted, b.both(owns, masks[register] if masks is not None else None))
        value = _as_i32(b, entry, element) if element.bits == 64 else zero_extended(b, entry, element.bits)
        root, offset = b.split(b.add(base, b.mul(value, 4)))
        b.effect("red.shared.add.u32 [%s+%s], 1;", root, offset, guard=counted)
