"""Give every memory access the layout in which neighbouring threads touch neighbouring memory, in wide
pieces.

    %v = load %p : (tensor<1024xptr<f32>, #blocked>) -> tensor<1024xf32, #blocked>         sizePerThread = [1]

    %q = convert_layout %p : (…) -> tensor<1024xptr<f32>, #blocked1>                       sizePerThread = [4]
    %w = load %q : (tensor<1024xptr<f32>, #blocked1>) -> tensor<1024xf32, #blocked1>
    %v = convert_layout %w : (…) -> tensor<1024xf32, #blocked>

The layout of an access (seed 004: analyse, choose, convert operands, make the access, convert results back)
-----------------------------------------------------------------------------------------------------------
ORDER       Dimensions by contiguity of the pointer, the longest runs first; equals from the last one on.
WIDTH       Elements per thread along the first dimension: what alignment, contiguity and the access's 16
            bytes allow. A load takes the largest width of all accesses of the same shape and order whose
            tensors are connected with its own, so that they agree; stores and atomics never exceed their own
            16 bytes. All are limited to the tile's elements per thread. What ``rotate_ranges`` found is taken
            as it is (``guarded``).
PAIRS       Of a product's operand, 16-bit elements that must be loaded one by one are loaded in pairs of
            neighbours, where warpgroups may multiply them: threads store whole words to shared memory, and
            there are half as many masks and row addresses.
THREADS     Lanes, then warps, fill the dimensions in that order. Where a connected tensor of that shape is
            reduced or scanned along a dimension, warps go to the other dimensions as long as there is work:
            the reduction then stays inside warps.
SCATTERED   Where nothing is contiguous (a gather, a scatter, an atomic on a histogram) every layout is as
            good as another, so the access takes that of a connected one.
COMPACTED   A store whose addresses come from memory often fills what it writes without gaps (what a mask
            selects, at places that a running sum gives). Then neighbouring threads have neighbouring
            elements, and so do the loads of its shape: each as wide as an element, but no sector is written
            in parts by several instructions.
ALIKE       Connected tensors of one shape that are computed element by element, and whose accesses all take
            one layout, get that layout at once: there is nothing to convert.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import prod

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, ORDERLESS, REARRANGING, RELAYOUT, WRITES_GLOBAL
from ptxforge.ir.facts import AxisInfo
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.reduce import Combining
from ptxforge.layouts import wgmma
from ptxforge.layouts.encodings import WARP_SIZE, Blocked, Distributed, default_blocked
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.components import Components
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.conversions import do_in_layout
from ptxforge.passes.properties import memory_accesses
from ptxforge.support import machine
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once


def coalesce(function: Function, target: Target) -> bool:
    """Every load, store and atomic on a tensor of pointers gets the layout chosen by the rules above."""
    accesses = memory_accesses(function)
    if not accesses:
        return False
    facts = kept(AxisInfoAnalysis, function)
    components = Components(function)
    num_warps = function.attributes["num_warps"]
    kept_whole = _reduced_dimensions(function, components)
    orders = {op: order_by_contiguity(facts[op.pointer]) for op in accesses}
    widths = {op: _elements_per_thread(op, facts[op.pointer], orders[op], num_warps) for op in accesses}
    if target.has_wgmma and num_warps % wgmma.WARPS == 0:
        pairs = _single_loads(function, widths)
        widths |= {op: 2 for op in pairs if op.pointer.type.shape[orders[op][0]] > 1}
    widths |= dict.fromkeys(_beside_scattered_stores(accesses, facts, components), 1)
    widest = _widest_by_group(accesses, orders, widths, components)
    layouts: dict[Operation, Distributed] = {}
    for op in accesses:
        shape, order = op.pointer.type.shape, orders[op]
        root = components.find(op.pointer)
        width = widest[root, shape, order] if not op.get_effects().writes else widths[op]
        layouts[op] = _layout(shape, order, width, num_warps, kept_whole[root, shape])
    _let_scattered_follow(layouts, facts, components)
    _relay_alike(function, layouts, components)
    for op, layout in layouts.items():
        if op.pointer.type.layout != layout:
            do_in_layout(op, layout)
    return True


def _single_loads(function: Function, widths: dict[Operation, int]) -> Iterator[Operation]:
    """The loads that PAIRS speaks of."""
    num_threads = function.attributes["num_warps"] * WARP_SIZE
    for dot in function.walk(Dot):
        for value in (dot.a, dot.b):
            op = value.defining_op
            while op is not None and REARRANGING in op.traits and value.has_one_use:
                value = op.operands[0]
                op = value.defining_op
            is_single = widths.get(op) == 1 and value.has_one_use and value.type.element.bytes == 2
            if is_single and not op.get_effects().writes and value.type.numel >= 2 * num_threads:
                yield op


def _beside_scattered_stores(
    accesses: list[Operation], facts: AxisInfoAnalysis, components: Components
) -> Iterator[Operation]:
    """The loads that COMPACTED speaks of: no store of their shape is contiguous, and one goes to addresses
    that were loaded."""
    groups: dict[tuple, list[Operation]] = defaultdict(list)
    for op in accesses:
        groups[components.find(op.pointer), op.pointer.type.shape].append(op)
    for group in groups.values():
        stores = [op for op in group if op.get_effects().writes]
        if not any(_has_runs(op, facts) for op in stores) and any(
            op.get_effects() == WRITES_GLOBAL and _is_loaded(op.pointer) for op in stores
        ):
            yield from (op for op in group if op.guarded < 2)


def _is_loaded(pointer: Value) -> bool:
    """Whether addresses depend on a tensor that is loaded."""
    work = [pointer]
    for value in each_once(work):
        op = value.defining_op
        if op is not None and isinstance(value.type, T.TensorType):
            if op.get_effects().reads:
                return True
            work += op.operands
    return False


def _let_scattered_follow(layouts: dict, facts: AxisInfoAnalysis, components: Components) -> None:
    """Accesses without any run take the layout of a connected one of their shape that has (SCATTERED)."""
    with_runs: dict[tuple, Distributed] = {}
    for op, layout in layouts.items():
        if _has_runs(op, facts):
            with_runs.setdefault((components.find(op.pointer), op.pointer.type.shape), layout)
    for op in layouts:
        if not _has_runs(op, facts):
            key = components.find(op.pointer), op.pointer.type.shape
            layouts[op] = with_runs.get(key, layouts[op])


def _has_runs(op: Operation, facts: AxisInfoAnalysis) -> bool:
    return op.guarded > 1 or max(facts[op.pointer].contiguity) > 1


def _relay_alike(function: Function, layouts: dict[Operation, Distributed], components: Components) -> None:
    """Give whole components the only layout that their accesses take, where that can be (ALIKE)."""
    chosen: dict[Value, set[tuple]] = defaultdict(set)
    for op, layout in layouts.items():
        chosen[components.find(op.pointer)].add((op.pointer.type.shape, layout))
    wanted = {root: next(iter(found)) for root, found in chosen.items() if len(found) == 1}
    tensors: dict[Value, list[Value]] = defaultdict(list)
    for op in function.walk():
        used = [v for v in op.operands if isinstance(v.type, T.TensorType)]
        made = [v for v in op.results if isinstance(v.type, T.TensorType)]
        if not used and not made:
            continue
        root = components.find((used or made)[0])
        if root not in wanted:
            continue
        arguments = [a for region in op.regions for a in region.block.arguments]
        made += [a for a in arguments if isinstance(a.type, T.TensorType)]
        shape, _ = wanted[root]
        if _is_alike(op, used) and all(v.type.shape == shape for v in (*used, *made)):
            tensors[root] += made
        else:
            del wanted[root]
    for root, (_, layout) in wanted.items():
        for value in tensors[root]:
            value.type = value.type.with_layout(layout)


def _is_alike(op: Operation, used: list[Value]) -> bool:
    """Whether an operation, which uses these tensors, can be done in any layout that they all have."""
    return bool(op.traits & {ELEMENTWISE, ORDERLESS}) or RELAYOUT in op.traits and not used


def order_by_contiguity(info: AxisInfo) -> tuple[int, ...]:
    """Dimensions, the one with the longest runs first, equals from the last dimension on."""
    return tuple(sorted(range(info.rank), key=lambda d: (-info.contiguity[d], -d)))


def _elements_per_thread(op: Operation, info: AxisInfo, order: tuple[int, ...], num_warps: int) -> int:
    """How many elements of one access can lie side by side, aligned, in 16 bytes."""
    type = op.pointer.type
    size = type.element.pointee.bytes
    d = order[0]
    share = max(1, type.numel // (num_warps * WARP_SIZE))
    if op.guarded > 1:
        return min(op.guarded, share)
    aligned = max(1, info.divisibility[d] // size) if info.contiguity[d] > 1 else 1
    return min(aligned, info.contiguity[d], type.shape[d], max(1, machine.VECTOR_BYTES // size), share)


def _widest_by_group(accesses, orders, widths, components) -> dict[tuple, int]:
    widest: dict[tuple, int] = defaultdict(lambda: 1)
    for op in accesses:
        key = components.find(op.pointer), op.pointer.type.shape, orders[op]
        widest[key] = max(widest[key], widths[op])
    return widest


def _reduced_dimensions(function: Function, components: Components) -> dict[tuple, set[int]]:
    """By component and shape: the dimensions along which tensors are reduced or scanned."""
    found: dict[tuple, set[int]] = defaultdict(set)
    for op in function.walk():
        if isinstance(op, Combining):
            found[components.find(op.inputs[0]), op.inputs[0].type.shape].add(op.axis)
    return found


def _layout(
    shape: tuple[int, ...], order: tuple[int, ...], width: int, num_warps: int, kept_whole: set[int]
) -> Distributed:
    size = [1] * len(shape)
    size[order[0]] = width
    plain = default_blocked(shape, num_warps, size_per_thread=size, order=order)
    if not kept_whole or len(shape) == 1:
        return plain
    warps = _warps_elsewhere(shape, plain, num_warps, kept_whole)
    return Blocked(size, plain.threads_per_warp, warps, order)


def _warps_elsewhere(
    shape: tuple[int, ...], plain: Blocked, num_warps: int, kept_whole: set[int]
) -> tuple[int, ...]:
    """Warps per dimension, with as few as possible along the dimensions to be kept whole."""
    room = [max(1, n // (s * t)) for n, s, t in zip(shape, plain.size_per_thread, plain.threads_per_warp)]
    warps, left = [1] * len(shape), num_warps
    first = [d for d in plain.order if d not in kept_whole]
    for d in first + [d for d in plain.order if d in kept_whole]:
        warps[d] = min(left, room[d])
        left //= warps[d]
    # More warps than work: the surplus holds copies, along the slowest dimension that is not reduced.
    spare = (first or list(plain.order))[-1]
    warps[spare] *= left
    assert prod(warps) == num_warps
    return tuple(warps)
