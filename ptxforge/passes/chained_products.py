"""Two products in a chain, as in attention: the schedule that keeps the tensor cores busy under the softmax.

    for … iter_args(%o, …) {                          one step of the steady state:
      %s = q @ kᵀ                                     start  s = q @ k[j+1]ᵀ
      %p, %alpha = softmax of %s                      o *= alpha[j];  start  o += p[j] @ v[j]
      %o = o · alpha + p @ v                          start the copies of later tiles
      yield %o, … }                                   wait for s;  softmax: p[j+1], alpha[j+1]
                                                      wait for o

The second product lags an iteration behind (a stage of its own in the pipeline), so both products are under
way while the exponentials of neither are needed. What is carried from one stage to the next is ``p`` as the
operand that it becomes, and ``alpha`` as the row that it is. The loop is ``peeled`` (``expand_loops.py``):
the last second product stands behind it, beside no first one. A loop behind may read on in its ring
(``continued_rings.py``).

``schedule_loops`` writes that on the loop, on what lags behind (``stage``) and on what has a turn of its own:

    for … {distance = 1, last_stage = 2, peeled = true} {
      %k = load … {group = 0, stage = 0};  %v = load … {group = 1, stage = 1}
      %s = dot_async %q, %k … {stage = 1, turn = 0};  dot_wait {stage = 1, turn = 3}
      %alpha = …;  %p = truncf … {stage = 1, turn = 6}
      %a = mulf %o, %alpha {stage = 2};  dot_async %p, %v, %a {stage = 2};  dot_wait {stage = 2, turn = 5} }

``pipeline_loops`` lets all else have the turns between (:func:`turns_around`).

Each warpgroup says on an mbarrier of its own when it has read a tile; only the warp that asks for the next
tile waits for that. A barrier of all threads would keep the warpgroups in lockstep: all multiply, then all
compute exponentials.

Rules
-----
CHAIN     The loop has two products. The first begins at zero and reads what does not change and a tile that
          TMA copies. The second reads registers that are computed from the first, and another such tile; it
          adds to a carried value, of which the loop makes nothing else.
KEPT      Where warps of their own copy, the first product's left operand stays in registers, if there are
          enough and nobody else reads it: shared memory is read a fifth less. (The assembler may not give
          these away as in ``warpgroup_dots``, KEPT: where an iteration begins, the second product's operand
          lives beside them.)
LENT      A chain gets warps that copy unasked where they pay: if it has as many as
          ``machine.WARPS_THAT_LEND`` names; eight only if its tiles leave room for no other block on the
          multiprocessor. (Attention on an H200: ``docs/hopper.md``.)
LONG      Not for loops that are known to have few iterations, for which the pipeline is hardly full before it
          ends.
"""

from __future__ import annotations

import attrs

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, PRODUCTS, TENSORS
from ptxforge.ir.ops.cast import Cast
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Splat
from ptxforge.ir.ops.shared import LocalAlloc, LocalLoad, MemDescTrans
from ptxforge.ir.ops.warpgroup import DotAsync
from ptxforge.ir.pressure import registers_of
from ptxforge.ir.rewriter import constant_of
from ptxforge.layouts.conversion import Nothing, Registers
from ptxforge.layouts.encodings import DotOperand
from ptxforge.passes.analysis.flights import Product, products_of, runs_ahead
from ptxforge.passes.continued_rings import constant_extent, continue_ring
from ptxforge.passes.group_registers import has_registers
from ptxforge.passes.tensor_loads import TensorLoads
from ptxforge.support import machine
from ptxforge.support.target import Target

_IN_THREADS = (Nothing, Registers)
"""Conversions for which no thread needs another."""


@attrs.frozen
class Chain:
    """See CHAIN. ``load`` is that of the second product's right operand; ``scaling`` makes of the carried sum
    what the second product adds to; ``packing`` makes its left operand."""

    first: Product
    second: Product
    load: Load
    scaling: tuple[Operation, ...]
    packing: tuple[Operation, ...]

    @property
    def late(self) -> set[Operation]:
        """The operations that lag an iteration behind."""
        views = _views(self.second.start.b)
        return {*self.scaling, *views, self.second.begin, self.second.start, self.second.wait}


def schedule_chain(function: Function, loop: For, by_tma: TensorLoads, target: Target) -> bool:
    """Write the schedule of a chain on ``loop``, whose loads are scheduled; whether it is one."""
    loads = [op for op in loop.body.operations if runs_ahead(op)]
    chain = _chain_of(loop, loads) if all(map(by_tma.rectangle, loads)) else None
    if chain is None or loop.reads_on:
        return chain is not None
    _write(loop, chain)
    continue_ring(loop, loads, by_tma)
    if _lends_a_warp(function, loop, loads, by_tma, target):
        loop.warp_specialize = True
    tile = _left_tile(chain)
    chain.first.start.keeps_left = tile is not None and _has_room_for(function, loop, tile)
    return True


def _write(loop: For, chain: Chain) -> None:
    """Write what lags behind, and the turns around which all else has its own."""
    last = loop.last_stage
    loop.peeled, loop.last_stage = True, last + 1
    chain.load.attributes["stage"] += 1
    turns = {chain.first.start: 0, chain.first.wait: last + 2, chain.second.wait: last + 4}
    for op, turn in (turns | dict.fromkeys(chain.packing, last + 5)).items():
        op.attributes.update(stage=last, turn=turn)
    for op in chain.late:
        op.attributes["stage"] = last + 1


def turns_around(
    loop: For, written: dict[Operation, int], stage: dict[Operation, int], last: int
) -> dict[Operation, int]:
    """The turns of the steady state of a chain, of which those of its products and of what packs an operand
    are ``written``: the first one starts with all that it needs; then what lags behind; then copies. What
    computes between the products, in the stage ``last``, stands between their waits."""
    body = [op for op in loop.body.operations if not op.is_terminator]
    turn = {op: 1 if stage[op] > last else 1 + last - stage[op] for op in body}
    turn.update((op, last + 3) for op in body if stage[op] == last)
    for op, at in written.items():
        with_it = _ending(op) if at else _needed_by(op, [other for other in body if stage[other] == last])
        turn.update(dict.fromkeys(with_it, at))
    return turn


def _ending(op: Operation) -> list[Operation]:
    """``op``, and where it waits for a product, what says then that its tile was read."""
    ending = [op]
    while op.effects.finishes == PRODUCTS and ending[-1].effects.signals != TENSORS:
        ending.append(ending[-1].next)
    return ending


def _needed_by(last: Operation, ops: list[Operation]) -> list[Operation]:
    """Of ``ops``, which are in order: those that ``last`` needs, waits for its tiles included, and itself."""
    needed = {last}
    for op in reversed(ops[: ops.index(last) + 1]):
        is_needed = op in needed or op.effects.finishes == TENSORS
        if is_needed:
            needed.update(v.defining_op for v in op.operands)
            needed.add(op)
    return [op for op in ops if op in needed]


# -- what is a chain --------------------------------------------------------------------------------------


def _chain_of(loop: For, loads: list[Load]) -> Chain | None:
    """The chain that ``loop`` is made of, if all of ``loads`` are those of its tiles."""
    products = products_of(loop)
    if len(products) != 2 or len(loads) != 2 or _is_short(loop) or any(len(p.terms) > 1 for p in products):
        return None
    tiles = [_right_tile(loop, product.start) for product in products]
    if set(tiles) != set(loads):
        return None
    first, second = products
    if not first.begin.is_zero or first.start.a.owner_block is loop.body:
        return None
    total = second.total
    if not total.has_one_use or total not in loop.body.terminator.values:
        return None
    carried = loop.carried[loop.body.terminator.values.index(total)]
    scaling = _scaling(loop, carried, second.begin.value)
    packing = _packing(loop, second.start)
    if scaling is None or not packing:
        return None
    return Chain(first, second, tiles[1], scaling, packing)


def _is_short(loop: For) -> bool:
    lower, upper, step = map(constant_of, (loop.lower, loop.upper, loop.step))
    if None in (lower, upper, step):
        iterations = constant_extent(loop)
        return iterations is not None and iterations <= machine.SHORT_CHAIN
    return upper - lower <= machine.SHORT_CHAIN * step


def _right_tile(loop: For, start: DotAsync) -> Load | None:
    """The load of a product's right operand, if that is for it alone."""
    views = _views(start.b)
    op = (views[-1].source if views else start.b).defining_op
    if op is None or ALLOCATES not in op.traits or op.parent is not loop.body or op.value is None:
        return None
    load = op.value.defining_op
    is_alone = isinstance(load, Load) and load.result.has_one_use and op.result.has_one_use
    return load if is_alone else None


def _views(tile: Value) -> list[MemDescTrans]:
    """The transposes by which a tile is seen, the last one first."""
    found = []
    while (op := tile.defining_op) is not None and op.is_transpose:
        found.append(op)
        tile = op.source
    return found


def _scaling(loop: For, carried: Value, value: Value) -> tuple[Operation, ...] | None:
    """The operations between a carried sum and what is added to, with those that spread their other operands
    to whole tiles; ``None`` if the sum has other users."""
    found: list[Operation] = []
    while value is not carried:
        op = value.defining_op
        if op is None or op.parent is not loop.body or not value.has_one_use or not op.is_pure:
            return None
        found.insert(0, op)
        following = [v for v in op.operands if _comes_from(v, carried, loop)]
        if len(following) != 1:
            return None
        found = [*(x for v in op.operands if v is not following[0] for x in _spreading(v, loop)), *found]
        value = following[0]
    return tuple(dict.fromkeys(found)) if carried.has_one_use else None


def _comes_from(value: Value, carried: Value, loop: For) -> bool:
    while value is not carried:
        op = value.defining_op
        if isinstance(value, BlockArgument) or op is None or op.parent is not loop.body or not op.operands:
            return False
        value = op.operands[0]
    return True


def _spreading(value: Value, loop: For) -> list[Operation]:
    """The operations that make a tile of a row or a scalar, and are used for nothing else; perhaps in another
    layout, of the same registers."""
    op = value.defining_op
    spreads = isinstance(op, (Broadcast, ConvertLayout, ExpandDims, Splat)) and op.parent is loop.body
    if not spreads or not value.has_one_use or not isinstance(getattr(op, "plan", Nothing()), _IN_THREADS):
        return []
    return [*_spreading(op.operands[0], loop), op]


def _packing(loop: For, start: DotAsync) -> tuple[Operation, ...]:
    """The casts and conversions that make the left operand, in order."""
    found: list[Operation] = []
    value = start.a
    while True:
        op = value.defining_op
        is_packing = isinstance(op, (Cast, ConvertLayout)) and op.parent is loop.body
        if not is_packing or not value.has_one_use:
            return tuple(found)
        found.insert(0, op)
        value = op.operands[0]


# -- warps that copy, and registers -----------------------------------------------------------------------


def _lends_a_warp(
    function: Function, loop: For, loads: list[Load], by_tma: TensorLoads, target: Target
) -> bool:
    """See LENT."""
    warps = function.attributes["num_warps"]
    if function.attributes.get("maxnreg") or not has_registers(loop.body, warps):
        return False
    if any(by_tma.rectangle(load).in_kernel for load in loads):
        return False
    if warps not in machine.WARPS_THAT_LEND_ALONE:
        return warps in machine.WARPS_THAT_LEND
    beside = sum(op.result.type.bytes for op in loop.parent.of(LocalAlloc) if op.value is not None)
    tiles = (loop.distance + 1) * sum(load.result.type.bytes for load in loads)
    return 2 * (tiles + beside) > target.max_shared_bytes


def _left_tile(chain: Chain) -> LocalAlloc | None:
    """Where threads store the first product's left operand for it alone."""
    made = chain.first.start.a.defining_op
    is_filled = made is not None and ALLOCATES in made.traits and made.value is not None
    return made if is_filled and made.result.has_one_use else None


def _has_room_for(function: Function, loop: For, tile: LocalAlloc) -> bool:
    """Whether threads have the registers to keep ``tile``: see KEPT."""
    warps = function.attributes["num_warps"]
    if not loop.warp_specialize or warps not in machine.WARPS_THAT_LEND_ALONE:
        return False
    return has_registers(loop.body, warps, registers_of(tile.value.type))


def keep_in_registers(loop: For) -> None:
    """Take left operands that products of ``loop`` are to keep from registers, instead of from tiles."""
    for start in loop.body.of(DotAsync):
        if start.attributes.pop("keeps_left", False):
            tile = start.a.defining_op
            operand = DotOperand(0, start.result.type.tensor.layout, 32 // tile.value.type.element.bits)
            type = tile.value.type.with_layout(operand)
            start.set_operand(0, Builder.at(loop).value(LocalLoad, tile.result, type=type))
