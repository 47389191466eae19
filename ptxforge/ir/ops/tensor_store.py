"""Stores and reductions of tiles by TMA: from shared memory to a box of a tensor, asynchronously.

    store_box %map, %c, %tile, %row, %column                                 a tile in registers, as a whole

    %none = no_work {queue = "bulk"} : token<bulk>
    %last = for … iter_args(%copied = %none) : token<bulk> {
      store_wait %copied {pending = 0}                                       the last copy has read the buffer
      local_store %tile, %buffer
      %copy = tensor_store %map, %c, %buffer, %row, %column : … -> token<bulk>      starts one group of copies
      yield %copy }
    store_wait %last {pending = 0}                                           before the kernel ends

``store_box`` is what passes work with; ``stage_boxes`` makes the other operations of it. Groups of copies
finish in the order in which they were started. The token of a ``tensor_store`` is its group, which reads the
buffer until a ``store_wait`` names it; in a loop that may be one of an iteration before, or none yet. ``map``
is a kernel's parameter whose attributes describe the tensor (``tensor_load``), ``pointer`` the parameter that
points at it. What lies outside of the tensor is not written; its rows are whole multiples of 16 bytes, which
a copy writes at once.
"""

from __future__ import annotations

import math

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops.descriptor import REDUCTIONS
from ptxforge.ir.ops.tensor_map import check_boxes, described
from ptxforge.support.errors import VerificationError

_SHARED_TO_GLOBAL = D.Effects(
    reads=frozenset({"shared"}), writes=frozenset({"global"}), other=True, starts=D.STORES
)
_TOKEN = D.Constraint(str(T.TokenType(D.STORES)), lambda t: t is T.TokenType(D.STORES))
KINDS = ("", *REDUCTIONS)


def _check(op: Operation, shape: tuple[int, ...]) -> None:
    rank, box = len(op.map.attributes["shape"]), op.map.attributes["box"]
    if len(op.coordinates) != rank:
        raise VerificationError(
            f"'{op.name}' to a tensor of {rank} dimensions has {len(op.coordinates)} coordinates"
        )
    if len(shape) != 2 or math.prod(shape) % math.prod(box):
        raise VerificationError(f"'{op.name}' of a tile {list(shape)} in boxes of {list(box)}")


@D.define(
    "store_box", effects=D.WRITES_GLOBAL, traits=[D.ANY_LAYOUT, D.UNORDERED], removed_by="stage_boxes",
    shows_operand_types=True,
)  # fmt: skip
class StoreBox(Operation):
    """Write ``value``, a matrix, to the box that begins at ``coordinates``, none of which is negative; with a
    ``kind``, combine each element with what is there, atomically (``descriptor_reduce``). Its rows are those
    of the box, one after the other."""

    map = D.operand(D.TENSOR_MAP)
    pointer = D.operand(D.POINTER)
    value = D.operand(D.TENSOR)
    coordinates = D.operands(D.SCALAR_INT)
    kind = D.attribute(KINDS, "")

    infer = D.gives()

    def get_effects(self):
        return D.READS_WRITES_GLOBAL if self.kind else D.WRITES_GLOBAL

    def scratch_bytes(self, num_warps):
        """For parts of the tile, at least (``stage_boxes.py``)."""
        type, width = self.value.type, self.map.attributes["box"][-1]
        columns = type.shape[1]
        return type.numel // columns * width * min(2, columns // width) * type.element.bytes

    def check(self):
        _check(self, self.value.type.shape)


@D.define("tensor_store", effects=_SHARED_TO_GLOBAL, traits=[D.ANCHOR], shows_operand_types=True)
class TensorStore(Operation):
    """Start the copies of ``source`` to the box that begins at ``coordinates``, by one thread, as one group,
    for which the token stands. ``source`` must stay as it is until a ``store_wait`` names that."""

    map = D.operand(D.TENSOR_MAP)
    pointer = D.operand(D.POINTER)
    source = D.operand(D.MEMDESC)
    coordinates = D.operands(D.SCALAR_INT)
    kind = D.attribute(KINDS, "")

    infer = D.gives(T.TokenType(D.STORES))

    def order_of_sums(self):
        return ("atomic", str(self.source.type.element)) if self.kind == "fadd" else None

    def check(self):
        _check(self, self.source.type.shape)
        *rows, width = described(self.map)["box"]
        check_boxes(self, self.map, self.source.type, (math.prod(rows), width), (0, 1))


@D.define("store_wait", effects=D.Effects(other=True, finishes=D.STORES))
class StoreWait(Operation):
    """Wait until at most ``pending`` of the newest groups of copies still read shared memory; the groups of
    ``tokens`` are none of these. If they are to have ``landed``, what they wrote is there, too: copies that
    are started from here on come after them."""

    tokens = D.operands(_TOKEN)
    pending = D.attribute(int, 0)
    landed = D.attribute(bool, False)

    infer = D.gives()


@D.define("no_work", cost=D.FREE)
class NoWork(Operation):
    """A token of a ``queue`` for which nothing was started yet: what a loop carries to its first wait."""

    queue = D.attribute(T.QUEUES)

    @classmethod
    def infer(cls, operands, attributes):
        return [T.TokenType(attributes["queue"])]
