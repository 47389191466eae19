"""Instructions on memory: ld and st; atom and red.

ld and st in all spaces and vector shapes.

atom and red: lanes act on memory one after another, in lane order.

Without a result most operations are one ``ufunc.at``. With a result, lanes are sorted by address; a segment
is the lanes that share one. Integer additions and exchanges are closed forms over a segment, compare-and-swap
takes one round per success, and everything else one round per rank within a segment (or one ``accumulate``
per segment where there are fewer of those).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator import numerics
from ptxforge.emulator.access import ATOMIC, OF_THE_BATCH, READ, WRITE, Locator, gather, scatter
from ptxforge.emulator.arithmetic import UFUNCS, dtype_of
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import CODES, ORIGIN, TABLES
from ptxforge.emulator.parser import TYPE_BITS, Immediate, Instruction, Memory, Register, Sink, Symbol, Vector
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter, scalar


def _elements(e: Emitter, operand: object, count: int) -> list:
    elements = list(operand.elements) if isinstance(operand, Vector) else [operand]
    if len(elements) != count:
        raise e.error(f"{count} elements are expected")
    return elements


def _parameter(e: Emitter, operand: object) -> tuple[str, str] | None:
    """``("kernel" | "frame", name)`` for a memory operand that names a parameter."""
    if not isinstance(operand, Memory) or not isinstance(operand.base, Symbol):
        return None
    name = operand.base.name
    if name in e.program.params:
        return "kernel", name
    if e.program.locations.get(name, ("",))[0] == "frame":
        return "frame", name
    return None


@instruction("ld", "ldu")
def emit_ld(e: Emitter, i: Instruction) -> None:
    memory = i.operands[1]
    count, kind = i.vector_width, i.types[-1]
    targets = _elements(e, i.operands[0], count)
    space = i.space
    parameter = _parameter(e, memory) if space == "param" else None
    if parameter is not None:
        _emit_ld_parameter(e, parameter, memory, targets, kind)
        return
    size = TYPE_BITS[kind] // 8
    views = [_destination(e, target, kind) for target in targets]
    e.call(_bind_load, e.locator(memory, space, size * count, READ), views, size, count)


def _destination(e: Emitter, target: object, kind: str) -> object:
    """The register's view that a loaded element is copied to; a wider register is extended by the type's
    sign.
    """
    if isinstance(target, Sink):
        return None
    if not isinstance(target, Register) or target.bits < TYPE_BITS[kind]:
        raise e.error("a destination register as wide as the type is expected")
    if target.bits == 128:
        return e.view(target, "c16")
    return e.view(target, ("i" if kind[0] == "s" else "u") + str(target.bits // 8))


def _bind_load(machine: Machine, locator: Locator, targets: list, size: int, count: int) -> Callable:
    total = size * count
    piece = min(total, 16)
    pieces = total // piece
    signed = any(target is not None and target.dtype.kind == "i" for target in targets)
    element = "c16" if size == 16 else ("i" if signed else "u") + str(size)
    direct = targets[0] if count == 1 and targets[0] is not None and targets[0].itemsize == size else None
    if direct is not None:
        direct = direct.view(CODES[piece])
    columns = range(count)

    def run(mask: np.ndarray | None) -> None:
        indices, lanes = locator(mask)
        if lanes is None and direct is not None:
            gather(indices, piece, direct)
            return
        if lanes is None:
            raw = machine.scratch(CODES[piece], 6, pieces)
            grid = raw.reshape(machine.lanes, pieces)
        else:
            grid = np.empty((len(lanes), pieces), CODES[piece])
        for index in range(pieces):
            grid[:, index] = gather(indices + 16 * index if index else indices, piece)
        values = grid.view(element)
        for column in columns:
            target = targets[column]
            if target is None:
                continue
            if lanes is None:
                np.copyto(target, values[:, column], casting="unsafe")
            else:
                target[lanes] = values[:, column]

    return run


def _emit_ld_parameter(
    e: Emitter, parameter: tuple[str, str], memory: Memory, targets: list, kind: str
) -> None:
    where, name = parameter
    size = TYPE_BITS[kind] // 8
    dtype = dtype_of(kind) if kind[0] in "us" else f"u{size}"
    for index, target in enumerate(targets):
        if isinstance(target, Sink):
            continue
        offset = memory.offset + index * size
        made = e.write(target, dtype)
        e.line(f"copyto({made}, {_parameter_view(e, where, name, offset, dtype)})")


def _parameter_view(e: Emitter, where: str, name: str, offset: int, dtype: str) -> str:
    """A kernel parameter as a 0-d array, or a call parameter as ``(lanes,)``."""
    size = np.dtype(dtype).itemsize
    if where == "kernel":
        start = e.program.params[name][0] + offset
        if start < 0 or start + size > max(e.program.param_bytes, 1):
            raise e.error("outside the parameter")
        return e.bind(lambda machine: machine.params[start : start + size].view(dtype)[0:1].reshape(()))
    return e.bind(lambda machine: machine.frame(name)[:, offset : offset + size].view(dtype)[:, 0])


@instruction("st", defines=0)
def emit_st(e: Emitter, i: Instruction) -> None:
    memory, value = i.operands[:2]
    count, kind = i.vector_width, i.types[-1]
    sources = _elements(e, value, count)
    size = TYPE_BITS[kind] // 8
    space = i.space
    parameter = _parameter(e, memory) if space == "param" else None
    if parameter is not None:
        for index, source in enumerate(sources):
            view = _parameter_view(e, *parameter, memory.offset + index * size, f"u{size}")
            e.copy(view, e.read(source, f"u{size}"))
        return
    views = [_source(e, source, size) for source in sources]
    e.call(_bind_store, e.locator(memory, space, size * count, WRITE), views, size, count)


def _source(e: Emitter, source: object, size: int) -> object:
    dtype = "c16" if size == 16 else f"u{size}"
    if isinstance(source, Immediate):
        return scalar(source, dtype)
    return e.view(source, dtype)


def _bind_store(machine: Machine, locator: Locator, sources: list, size: int, count: int) -> Callable:
    total = size * count
    piece = min(total, 16)
    pieces = total // piece
    element = "c16" if size == 16 else f"u{size}"
    checkers = [watcher.stored for watcher in locator.watchers if hasattr(watcher, "stored")]
    is_own = locator.space in OF_THE_BATCH

    def values(lanes: np.ndarray | None) -> np.ndarray:
        if count == 1:
            source = sources[0]
            return source if np.ndim(source) == 0 or lanes is None else source[lanes]
        rows = machine.lanes if lanes is None else len(lanes)
        kind = CODES[piece]
        grid = machine.scratch(kind, 6, pieces) if lanes is None else np.empty(rows * pieces, kind)
        columns = grid.view(element).reshape(rows, count)
        for column, source in enumerate(sources):
            columns[:, column] = source if np.ndim(source) == 0 or lanes is None else source[lanes]
        return grid.reshape(rows, pieces)

    def run(mask: np.ndarray | None) -> None:
        if not is_own:
            machine.changed = True
        indices, lanes = locator(mask)
        grid = values(lanes)
        if pieces == 1 and count > 1:
            grid = grid[:, 0]
        if pieces == 1:
            scatter(indices, piece, grid)
        else:
            for index in range(pieces):
                scatter(indices + 16 * index, piece, grid[:, index])
        for checker in checkers:
            checker(locator, lanes, indices, grid, piece)

    return run


@instruction("st.bulk", defines=0)
def emit_st_bulk(e: Emitter, i: Instruction) -> None:
    """st.bulk{.weak}{.shared::cta} [a], size, 0: zeros, size a multiple of 8 bytes."""
    memory, size, initial = i.operands
    if e.constant(initial) != 0:
        raise e.error("only 0 is stored in bulk")
    e.call(_bind_st_bulk, e.locator(memory, i.space, 8, WRITE), e.view(size, "u8"), e.site)


def _bind_st_bulk(machine: Machine, locator: Locator, size: np.ndarray, site: Site) -> Callable:
    first = locator.offset

    def run(mask: np.ndarray | None) -> None:
        left = size.astype(np.int64) if mask is None else np.where(mask, size, 0).astype(np.int64)
        odd = np.flatnonzero(left % 8)
        if odd.size:
            machine.report("misaligned", "the size of a bulk store must be a multiple of 8", site, odd)
        try:
            while (left >= 8).any():
                indices, _ = locator(left >= 8)
                scatter(indices, 8, np.uint64(0))
                locator.offset += 8
                left -= 8
        finally:
            locator.offset = first

    return run


_OPERATIONS = ("add", "and", "or", "xor", "min", "max", "inc", "dec", "exch", "cas", "sub")


def _increment(old: np.ndarray, limit: np.ndarray) -> np.ndarray:
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _decrement(old: np.ndarray, limit: np.ndarray) -> np.ndarray:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def combiner(operation: str, kind: str) -> Callable:
    """``new = f(old, operand)`` on arrays of the type's natural dtype."""
    if operation == "inc":
        return _increment
    if operation == "dec":
        return _decrement
    if operation == "exch":
        return lambda old, value: value
    if kind[0] in "usb" and kind[1:].isdigit():
        return UFUNCS[operation]
    rounding = ".rn" if operation == "add" else ""
    return numerics.lookup(f"{operation}{rounding}.{kind}").function


@instruction("atom", "red", defines=lambda i: 1 if i.parts[0] == "atom" else 0, polls=True)
def emit_atom(e: Emitter, i: Instruction) -> None:
    """atom{.sem}{.scope}{.space}.op{.level}{.vec}.type d, [a], b{, c} and red without d."""
    operation = i.first_of(_OPERATIONS)
    if operation is None:
        raise e.error("unknown atomic operation")
    operands = list(i.operands)
    target = operands.pop(0) if i.parts[0] == "atom" else Sink()
    memory, values = operands[0], operands[1:]
    kind, count = i.types[-1], i.vector_width
    size, space = TYPE_BITS[kind] // 8, i.space
    dtype = "c16" if kind == "b128" else dtype_of(kind)
    wanted = 2 if operation == "cas" else 1
    if len(values) < wanted:
        raise e.error(f"{wanted} value operands are expected")
    locator = e.locator(memory, space, size * count, ATOMIC)
    try:
        combine = None if operation == "cas" else combiner(operation, kind)
    except (numerics.UnknownOperation, KeyError) as error:
        raise e.error(f"no such atomic operation ({error})") from error
    if count > 1:
        targets = target.elements if isinstance(target, Vector) else [Sink()] * count
        made, added = ([e.view(one, dtype) for one in many] for many in (targets, values[0].elements))
        e.call(_bind_vector, locator, made, added, size, combine)
        return
    bind = _bind_flushing if (operation, kind, space) == ("add", "f32", "global") else _bind_scalar
    chosen = [e.view(value, dtype) for value in values[:wanted]]
    e.call(bind, locator, e.view(target, dtype), chosen, size, operation, combine)


def _bind_scalar(
    machine: Machine, locator: Locator, target: np.ndarray | None, values: list[np.ndarray], size: int,
    operation: str, combine: Callable | None,
) -> Callable:  # fmt: skip
    dtype = values[0].dtype
    table = TABLES[size].view(dtype)
    direct = UFUNCS.get(operation) if target is None and combine is UFUNCS.get(operation) else None
    is_own = locator.space in OF_THE_BATCH

    def run(mask: np.ndarray | None) -> None:
        indices, lanes = locator(mask)
        indices = indices.copy()
        if not indices.size:
            return
        chosen = values[0] if lanes is None else values[0][lanes]
        if direct is not None and _one_allocation(machine, locator, indices, size):
            machine.changed |= not is_own
            first, last = int(indices.min()) // size, int(indices.max()) // size
            direct.at(table[first : last + 1], indices // size - first, chosen)
            return
        if operation == "cas":
            swap = values[1] if lanes is None else values[1][lanes]
            old = compare_and_swap(indices, size, chosen, swap)
        elif combine is np.add and dtype.kind in "ui":
            old = _fetch_add(indices, size, chosen)
        else:
            old = _in_rounds(indices, size, chosen, combine)
        if not is_own:
            machine.changed |= bool((gather(indices, size).view(dtype) != old).any())
        if target is None:
            return
        if lanes is None:
            target[:] = old
        else:
            target[lanes] = old

    return run


def _bind_flushing(
    machine: Machine, locator: Locator, target: np.ndarray | None, values: list[np.ndarray], size: int,
    operation: str, combine: Callable,
) -> Callable:  # fmt: skip
    """f32 addition to global memory flushes subnormal operands and results; to shared memory it does not."""
    flushed = np.zeros_like(values[0])
    add = _bind_scalar(machine, locator, target, [flushed], size, operation, combine)

    def flush_cells(mask: np.ndarray | None) -> None:
        indices, _ = locator.peek(mask)
        cells = gather(indices, size).view(np.float32)
        tiny = (np.abs(cells) < np.finfo(np.float32).tiny) & (cells != 0)
        if tiny.any():
            scatter(indices[tiny], size, np.copysign(np.float32(0), cells[tiny]).view("u4"))

    def run(mask: np.ndarray | None) -> None:
        flushed[:] = numerics.flush(values[0])
        flush_cells(mask)
        add(mask)
        flush_cells(mask)

    return run


def _one_allocation(machine: Machine, locator: Locator, indices: np.ndarray, size: int) -> bool:
    """Whether the accesses span only memory of one allocation.

    ``ufunc.at`` copies its target when the operands may overlap it, so the target must not span foreign
    memory.
    """
    if locator.space == "shared":
        return True
    return machine.memory.contains(int(indices.min()) + ORIGIN, int(indices.max()) + ORIGIN + size)


def _bind_vector(
    machine: Machine, locator: Locator, targets: list, values: list[np.ndarray], size: int, combine: Callable
) -> Callable:
    def run(mask: np.ndarray | None) -> None:
        indices, lanes = locator(mask)
        indices = indices.copy()
        machine.changed = True
        for position, (target, value) in enumerate(zip(targets, values)):
            chosen = value if lanes is None else value[lanes]
            old = _in_rounds(indices + position * size, size, chosen, combine) if indices.size else chosen
            if target is not None:
                target[slice(None) if lanes is None else lanes] = old

    return run


class _Segments:
    """Lanes sorted by address; ``starts`` are the positions where a new address begins, ``rank`` the place
    within.
    """

    def __init__(self, indices: np.ndarray):
        self.order = np.argsort(indices, kind="stable")
        self.sorted = indices[self.order]
        new = np.ones(len(indices), bool)
        np.not_equal(self.sorted[1:], self.sorted[:-1], out=new[1:])
        self.starts = np.flatnonzero(new)
        self.of_lane = np.cumsum(new) - 1
        self.rank = np.arange(len(indices)) - self.starts[self.of_lane]
        self.ends = np.append(self.starts[1:], len(indices))


def _fetch_add(indices: np.ndarray, size: int, values: np.ndarray) -> np.ndarray:
    """Integer addition: what each lane saw is the memory plus the values of the lanes before it."""
    segments = _Segments(indices)
    sorted_values = values[segments.order]
    running = np.cumsum(sorted_values, dtype=values.dtype)
    before = running - sorted_values
    base = gather(segments.sorted[segments.starts], size).view(values.dtype)
    seen = base[segments.of_lane] + before - before[segments.starts][segments.of_lane]
    total = seen[segments.ends - 1] + sorted_values[segments.ends - 1]
    scatter(segments.sorted[segments.starts], size, total.view(f"u{size}"))
    old = np.empty_like(values)
    old[segments.order] = seen
    return old


def _in_rounds(indices: np.ndarray, size: int, values: np.ndarray, combine: Callable) -> np.ndarray:
    """Any operation: the first lanes of all segments, then the second ones, and so on."""
    segments = _Segments(indices)
    sorted_values = values[segments.order]
    dtype = values.dtype
    raw = "c16" if size == 16 else f"u{size}"
    seen = np.empty_like(values)
    deepest = int(segments.rank.max()) + 1
    if isinstance(combine, np.ufunc) and len(segments.starts) < deepest:
        _accumulate(segments, size, sorted_values, combine, seen)
    else:
        by_rank = np.argsort(segments.rank, kind="stable")
        bounds = np.searchsorted(segments.rank[by_rank], np.arange(deepest + 1))
        for first, last in zip(bounds[:-1], bounds[1:]):
            lanes = by_rank[first:last]
            where = segments.sorted[lanes]
            old = gather(where, size).view(dtype)
            seen[lanes] = old
            new = np.asarray(combine(old, sorted_values[lanes])).astype(dtype, copy=False)
            scatter(where, size, np.ascontiguousarray(new).view(raw))
    old = np.empty_like(values)
    old[segments.order] = seen
    return old


def _accumulate(
    segments: _Segments, size: int, values: np.ndarray, ufunc: np.ufunc, seen: np.ndarray
) -> None:
    """Few, long segments: one running reduction each."""
    for start, end in zip(segments.starts, segments.ends):
        where = segments.sorted[start : start + 1]
        base = gather(where, size).view(values.dtype)
        running = ufunc.accumulate(np.concatenate([base, values[start:end]]), dtype=values.dtype)
        seen[start:end] = running[:-1]
        scatter(where, size, running[-1:].view(f"u{size}"))


def compare_and_swap(indices: np.ndarray, size: int, expected: np.ndarray, swap: np.ndarray) -> np.ndarray:
    """In lane order per address; one round per success, as failures change nothing."""
    dtype = expected.dtype
    raw = "c16" if size == 16 else f"u{size}"
    old = np.empty_like(expected)
    pending = np.arange(len(indices))
    while pending.size:
        seen = gather(indices[pending], size).view(dtype)
        old[pending] = seen
        hits = pending[_same_bits(seen, expected[pending])]
        if not hits.size:
            break
        # The first lane in order with a match wins at each address; only lanes after it look again.
        addresses, first = np.unique(indices[hits], return_index=True)
        winners = hits[first]
        scatter(indices[winners], size, np.ascontiguousarray(swap[winners]).view(raw))
        position = np.searchsorted(addresses, indices[pending])
        found = (position < len(addresses)) & (
            addresses[np.minimum(position, len(addresses) - 1)] == indices[pending]
        )
        after = winners[np.minimum(position, len(addresses) - 1)] < pending
        pending = pending[found & after]
    return old


def _same_bits(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    if one.dtype.itemsize == 16:
        a, b = (np.ascontiguousarray(x).view("u8").reshape(-1, 2) for x in (one, other))
        return (a == b).all(axis=1)
    return one == other
