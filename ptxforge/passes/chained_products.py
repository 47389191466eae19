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
LONG      Not for loops that are known to have few iterations, for which the pipeline is hardly full before it
          ends.
"""

from __future__ import annotations

import attrs

from ptxforge.ir.builder import Builder
from ptxforge.ir.core import BlockArgument, Operation, Value
from ptxforge.ir.definition import ALLOCATES
from ptxforge.ir.ops.cast import Cast
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Broadcast, ExpandDims, Splat
from ptxforge.ir.ops.shared import LocalAlloc, LocalLoad, MemDescTrans
from ptxforge.ir.ops.warpgroup import DotAsync
from ptxforge.ir.rewriter import constant_of
from ptxforge.layouts.conversion import Nothing, Registers
from ptxforge.layouts.encodings import DotOperand
from ptxforge.passes.analysis.flights import Product, products_of
from ptxforge.support.machine import SHORT_CHAIN

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


def chain_of(loop: For, loads: list[Load]) -> Chain | None:
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


def left_tile(chain: Chain) -> LocalAlloc | None:
    """Where threads store the first product's left operand for it alone."""
    made = chain.first.start.a.defining_op
    is_filled = made is not None and ALLOCATES in made.traits and made.value is not None
    return made if is_filled and made.result.has_one_use else None


def keep_in_registers(chain: Chain, tile: LocalAlloc, loop: For) -> None:
    """Take the ``tile`` that the first product of ``loop`` reads from registers. See KEPT."""
    layout = chain.first.begin.result.type.tensor.layout
    operand = DotOperand(0, layout, 32 // tile.value.type.element.bits)
    type = tile.value.type.with_layout(operand)
    chain.first.start.set_operand(0, Builder.at(loop).value(LocalLoad, tile.result, type=type))


def _is_short(loop: For) -> bool:
    lower, upper, step = map(constant_of, (loop.lower, loop.upper, loop.step))
    if None in (lower, upper, step):
        iterations = constant_extent(loop)
        return iterations is not None and iterations <= SHORT_CHAIN
    return upper - lower <= SHORT_CHAIN * step


def constant_extent(loop: For) -> int | None:
    """How many iterations ``for … in range(x, x + n, step)`` has; ``None`` if that is not its form."""
    op, step = loop.upper.defining_op, constant_of(loop.step)
    if op is None or step is None or [sign for _, sign in op.addends] != [1, 1]:
        return None
    for base, extent in (op.operands, reversed(op.operands)):
        if base is loop.lower and constant_of(extent) is not None:
            return -(-constant_of(extent) // step)
    return None


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
