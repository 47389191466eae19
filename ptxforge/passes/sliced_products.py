"""A product in slices along k: the fragments of one are read while the one before it multiplies.

    for … {distance = 2, last_stage = 2} {                                     (``schedule_loops`` wrote it)
      %x = load … {group = 0, stage = 0}
      %y = load … {group = 0, stage = 0}
      %d = dot (convert_layout %x), (convert_layout %y), %acc {slice = 16}
      yield %d }

    for … {last_stage = 2} {                                                   (``pipeline_loops`` obeys)
      async_copy …; async_commit_group                       {stage = 0, turn = 2}
      async_wait                                             {stage = 1, turn = 4}    the next tile is there
      %a0 = local_load (subslice %A [0, 0]), %b0 = …         {stage = 1, turn = 4}
      %a1 = local_load (subslice %A [0, 16]), %b1 = …        {stage = 2, turn = 2}
      %d0 = dot %a0, %b0, %acc                               {stage = 2, turn = 3}
      %d1 = dot %a1, %b1, %d0                                {stage = 2, turn = 5}
      yield %d1 }

The first slice of a tile has a stage of its own, one before the products: in a step it is read after the next
to last product of the tile before, and the loop carries its fragments. There is one barrier in a step, right
after the wait, and never a moment in which the tensor cores wait for shared memory. Copies are started in
front of the first product, and done among all of them (``interleave_products.py``).

In the last step the fragments of a tile that does not exist are read from a buffer that masked copies filled
with zeros; they are not used.

Rules
-----
PAYS    A tile is at least two slices deep, a slice being what one instruction takes along k. On FMA units it
        is as thin as work behind which a read hides allows, since its fragments take registers: 64 products
        for each thread, but no less than 16 bytes where an operand lies along k.
SHAPE   The loop holds one product, of operands that threads copy ahead for it alone; other loops are left as
        they are.
WORK    Between its read and the product an operand may be cast, scaled by what is the same all along k, and
        the like (``optimize_dot_operands``): that is done slice by slice, right before each product. The loop
        carries what was read.

A product whose operands stay in buffers until it needs them although copies bring them ahead, a remark names
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import ELEMENTWISE, UNIFORM
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Broadcast
from ptxforge.ir.ops.shared import LocalLoad
from ptxforge.layouts.encodings import DotOperand, Mma, elements_per_thread
from ptxforge.passes.parts_of_operands import Cutter, Part, read_part
from ptxforge.passes.rings import layout_behind, tile_behind, values_read
from ptxforge.passes.stays import StaysError
from ptxforge.support import machine
from ptxforge.support.errors import IRError

# -- the decision -----------------------------------------------------------------------------------------


def products_of(loop: For, copied: Collection[Load]) -> list[Dot]:
    """The products of ``loop`` that take what the loads ``copied`` bring."""
    return [dot for dot in loop.body.of(Dot)
            if any(tile_behind(read, loop.body) in copied for read in _reads(dot, loop))]  # fmt: skip


def width_of_slices(loop: For, dot: Dot, copied: Collection[Load]) -> int:
    """How many elements along k a slice of ``dot`` has; ``copied`` are the loads of ``loop`` that threads
    copy, and that arrive before the products.

    Raises:
        StaysError: when it has to be done as a whole.
    """
    if (count := sum(1 for _ in loop.body.of(Dot))) != 1:
        raise StaysError(f"the loop has {count} products; one alone has slices")
    if len(dot.result.type.shape) != 2:
        raise StaysError("it is a product of batches; one of 2-dimensional blocks has slices")
    reads = _reads(dot, loop)
    for name, read in zip("ab", reads):
        if tile_behind(read, loop.body) not in copied:
            raise StaysError(f"operand {name} does not come from copies that run ahead")
        if not read.result.has_one_use:
            raise StaysError(f"operand {name} has other uses; loaded again for these, it has slices")
    if len({tile_behind(read, loop.body).attributes["group"] for read in reads}) > 1:
        raise StaysError("its operands do not arrive together, by one wait for copies of threads")
    operands = [read.result for read in reads]
    if any(value not in operands for load in copied for value in values_read(load.result, loop.body)):
        raise StaysError("what arrives with its operands is used elsewhere, too")
    width = _slice_width(dot, reads, loop)
    if (depth := dot.a.type.shape[1]) < 2 * width:
        raise StaysError(f"a slice is {width} deep, and the block only {depth}; a larger one has two")
    return width


def _reads(dot: Dot, loop: For) -> list[Operation | None]:
    """What makes the operands of ``dot``, before the WORK on them."""
    return [_read_behind(value, 1 - side, loop) for side, value in enumerate((dot.a, dot.b))]


def _read_behind(value: Value, k: int, loop: For) -> Operation | None:
    """The operation that makes ``value``, or what the WORK that makes it is done on."""
    op = value.defining_op
    if op is None or op.parent is not loop.body or ELEMENTWISE not in op.traits:
        return op
    inputs = [v for v in op.operands if isinstance(v.type, T.TensorType) and not _is_same_along(v, k)]
    if len(inputs) != 1 or not (op.is_pure and value.has_one_use and len(op.results) == 1):
        return None
    return _read_behind(inputs[0], k, loop)


def _is_same_along(value: Value, dim: int) -> bool:
    """Whether a tensor is a broadcast along ``dim``, so that any slice of it is made like the whole."""
    op = value.defining_op
    if isinstance(op, Broadcast):
        return op.x.type.shape[dim] == 1
    return op is not None and UNIFORM in op.traits


def _slice_width(dot: Dot, reads: list[Operation], loop: For) -> int:
    """Elements along k of a slice: what one ``mma`` takes, 8 or 4 threads' worth of ``k_width``; on FMA units
    see PAYS."""
    operand: DotOperand = dot.a.type.layout
    if isinstance(operand.parent, Mma):
        return operand.depth_of_instruction
    type = dot.result.type
    hidden = max(1, machine.MULTIPLY_ADDS_PER_SLICE // elements_per_thread(type.layout, type.shape))
    wide = max(_elements_along_k(read, 1 - i, loop) for i, read in enumerate(reads))
    return max(wide, min(hidden, dot.a.type.shape[1] // 2))


def _elements_along_k(read: Operation, k: int, loop: For) -> int:
    """How many elements of an operand one read of shared memory takes along ``k``."""
    is_along = layout_behind(read, loop.body).order[0] == k
    return max(1, 16 // read.result.type.element.bytes) if is_along else 1


# -- the products -----------------------------------------------------------------------------------------


def cut_product(loop: For, stage: dict[Operation, int], last: int) -> Slices | None:
    """Cut the product on which that is written, whose operands now lie in rings of buffers; write the stages
    of all that comes of it to ``stage``. Raises :class:`IRError` for one of which that cannot be true."""
    for dot in loop.body.of(Dot):
        if "slice" in dot.attributes:
            return _Slicing(loop, dot, dot.attributes.pop("slice"), stage, last).run()
    return None


@attrs.frozen
class Slices:
    """What a product was cut into, slice by slice: the operations that read its fragments, and those that
    multiply, the last of which is the product."""

    reads: list[list[Operation]]
    products: list[list[Operation]]

    def turns(self, turn: dict[Operation, int]) -> dict[Operation, int]:
        """The steady state; ``turn`` is that of all but the reads and what depends on products."""
        turn, first = dict(turn), max(turn.values())
        for number, (reads, products) in enumerate(zip([*self.reads[1:], self.reads[0]], self.products)):
            turn.update(dict.fromkeys(reads, first + 2 * number))
            turn.update(dict.fromkeys(products, first + 2 * number + 1))
        last = self.products[-1][-1]
        turn.update(dict.fromkeys(_users(last), turn[last]))
        return turn


class _Slicing:
    """Cuts one product. :meth:`run` does it, and erases the product and the reads of its whole operands."""

    def __init__(self, loop: For, dot: Dot, width: int, stage: dict[Operation, int], last: int):
        self.dot, self.width, self.stage, self.last = dot, width, stage, last
        self.whole: list[LocalLoad] = _reads(dot, loop)
        self.b, self.cutter = Builder.at(dot), Cutter(loop.body, held_for=lambda read: 0)
        self.fragments: dict[tuple[Part, DotOperand], Value] = {}
        tokens = {getattr(read, "token", None) for read in self.whole}
        if len(tokens) != 1 or None in tokens or not width or dot.a.type.shape[1] % width:
            raise IRError(f"a product cannot be done in slices of {width}")

    def run(self) -> Slices:
        token, tiles = self.whole[0].token, [read.source for read in self.whole]
        count = self.dot.a.type.shape[1] // self.width
        ahead, _ = self._noted(self.last - 1, self._read_ahead, token)
        others = [self._noted(self.last, self._read, tiles, number)[0] for number in range(1, count)]
        ahead.insert(0, token.defining_op)
        self.stage[token.defining_op] = self.last - 1
        products, total = [], self.dot.c
        for number in range(count):
            made, total = self._noted(self.last, self._multiply, number, total)
            products.append(made)
        self._replace_whole(total)
        return Slices([ahead, *others], products)

    def _noted(self, stage: int, make: Callable[..., Any], *arguments: Any) -> tuple[list[Operation], Any]:
        """The operations that ``make`` inserts, which get a ``stage``, and what it returns."""
        before = self.dot.previous
        returned = make(*arguments)
        made, op = [], before.next
        while op is not self.dot:
            made.append(op)
            op = op.next
        self.stage.update(dict.fromkeys(made, stage))
        return made, returned

    def _read_ahead(self, token: Value) -> None:
        """The first fragments of a tile that ``token`` says has arrived."""
        fragments = self._read([self._tile(read) for read in self.whole], 0, token)
        for fragment, name in zip(fragments, ("a0", "b0")):
            fragment.hint = name

    def _tile(self, read: LocalLoad) -> Value:
        """What ``read`` reads, chosen anew."""
        views = [read.source.defining_op]
        while views[-1].is_transpose:
            views.append(views[-1].source.defining_op)
        tile = views[-1].source
        for view in reversed(views):
            copy = view.clone({})
            copy.set_operand(0, tile)
            tile = self.b.insert(copy).result
        return tile

    def _read(self, tiles: list[Value], number: int, *token: Value) -> list[Value]:
        """Slice ``number`` along k of both tiles in shared memory, as fragments."""
        read = []
        for side, (tile, whole) in enumerate(zip(tiles, self.whole)):
            part, layout = self._slice(side, whole.result, number), whole.result.type.layout
            self.fragments[part, layout] = read_part(self.b, part, layout, tile, *token)
            read.append(self.fragments[part, layout])
        return read

    def _multiply(self, number: int, total: Value) -> Value:
        """The WORK on slice ``number`` of both operands, and their product."""
        operands = [
            self.cutter.make(self.b, self._slice(side, value, number), value.type.layout, self.fragments)
            for side, value in enumerate((self.dot.a, self.dot.b))
        ]
        return self.b.value(Dot, *operands, total, **self.dot.attributes)

    def _slice(self, side: int, value: Value, number: int) -> Part:
        """Slice ``number`` along k of the operand on one ``side``, or of what it is made of."""
        rows, columns = value.type.shape
        if side == 0:
            return Part(value, (0, number * self.width), (rows, self.width))
        return Part(value, (number * self.width, 0), (self.width, columns))

    def _replace_whole(self, total: Value) -> None:
        self.dot.replace_with([total])
        self.cutter.erase_unused()
        for read in self.whole:
            self.stage.pop(read)
            read.erase()


def _users(product: Operation) -> list[Operation]:
    """The operations of an iteration that depend on ``product``."""
    found = {product}
    op = product.next
    while not op.is_terminator:
        if any(value.defining_op in found for nested in op.walk() for value in nested.operands):
            found.add(op)
        op = op.next
    return [op for op in found if op is not product]
