"""Asynchronous matrix products of warpgroups (``wgmma``): four warps multiply tiles in shared memory.

    %f0 = dot_begin %c : (tensor<128x128xf32, #mma>) -> flight<tensor<128x128xf32, #mma>>
    %f1 = dot_async %a, %b, %f0                       starts the products, as one group
    %d = dot_wait %f1 : … -> tensor<128x128xf32, #mma>

A *flight* is a set of accumulators under way; ``dot_wait`` names those whose products are to be finished.
What a product reads (tiles in shared memory, and its operand in registers) must stay as it is until then.

Until ``pipeline_loops`` a wait stands right behind its product; where both will stand in a loop is written
on them (``passes/products_in_flight.py``): ``dot_async {early, parts}``, ``dot_wait {until}``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.ops.dot import Product
from ptxforge.layouts.encodings import Mma
from ptxforge.support.errors import VerificationError

_READS_SHARED_LATER = D.Effects(reads=frozenset({"shared"}), other=True, starts=D.PRODUCTS)


@D.define(
    "dot_begin", effects=D.Effects(other=True, starts=D.PRODUCTS), traits=[D.ANCHOR], shows_operand_types=True
)
class DotBegin(Operation):
    """Put ``value`` into accumulators, where products are added to it. Its layout is that of ``wgmma``'s
    accumulators (``#mma`` of version 3). ``is_zero`` says that all elements are zero, so that the first
    product need not read them."""

    value = D.operand(D.TENSOR)
    is_zero = D.attribute(bool, False)

    @classmethod
    def infer(cls, operands, attributes):
        return [T.FlightType(operands[0])]

    def check(self):
        layout = self.value.type.layout
        if not isinstance(layout, Mma) or layout.version[0] != 3:
            raise VerificationError(f"'dot_begin' needs accumulators of wgmma, not {self.value.type}")

    def result_dim(self, index, dim):
        return dim


@D.define("dot_async", effects=_READS_SHARED_LATER, traits=[D.ANCHOR], shows_operand_types=True)
class DotAsync(Product):
    """Start adding ``a @ b`` to the accumulators ``c``, as one group of products, for ``[M, K] @ [K, N]``.

    ``b`` lies in shared memory; so does ``a``, or it is in registers as a ``dot_op`` of the accumulators'
    layout. Products of 16-bit and 8-bit floats and of f32 (whose lowest 13 bits are not read: tf32) are
    summed in f32, of f16 optionally in f16, of 8-bit integers in i32; ``a_unsigned``/``b_unsigned`` say that
    these are u8. ``max_num_imprecise_acc`` is Triton's bound on how many products of 8-bit floats are summed
    in the tensor core's narrower sums (0: no bound) before these are added up in f32. ``copies_left``: the
    product runs on into the next iteration of a loop, in which something is computed in front of the wait for
    it: it reads copies of the registers of ``a``, see ``codegen_ptx/lower/wgmma.py``.

    Its schedule: an ``early`` product starts right behind the one before it. One whose left operand passes
    through registers is started in ``parts`` along k. One that ``keeps_left`` reads its left operand from
    registers, into which threads take it once, in front of the loop (``passes/chained_products.py``).
    """

    a = D.operand(D.TENSOR_OR_MEMDESC)
    b = D.operand(D.MEMDESC)
    c = D.operand(D.FLIGHT)
    a_unsigned = D.attribute(bool, False)
    b_unsigned = D.attribute(bool, False)
    copies_left = D.attribute(bool, False)
    early = D.attribute(bool, False)
    parts = D.attribute(int, 1)
    keeps_left = D.attribute(bool, False)

    infer = D.gives_type_of(2)

    @property
    def begin(self) -> DotBegin | None:
        """What puts a value into the accumulators for this product; None where another's are added to."""
        op = self.c.defining_op
        return op if isinstance(op, DotBegin) else None

    @property
    def is_later_part(self) -> bool:
        return isinstance(self.c.defining_op, DotAsync)

    def check(self):
        a, b, c = self.a.type, self.b.type, self.c.type.tensor
        fits = len(a.shape) == 2 and a.shape[1] == b.shape[0] and c.shape == (a.shape[0], b.shape[1])
        if not fits:
            raise VerificationError(f"'dot_async' of {a}, {b} and {c}: shapes do not fit")
        layout = c.layout
        if isinstance(a, T.MemDescType) and isinstance(layout, Mma) and layout.is_interleaved:
            raise VerificationError(f"'dot_async' of {a}: only rows in registers are dealt out")

    def result_dim(self, index, dim):
        return dim if index in (2, dim) else None


@D.define(
    "dot_wait", effects=D.Effects(other=True, finishes=D.PRODUCTS), traits=[D.ANCHOR],
    shows_operand_types=True,
)  # fmt: skip
class DotWait(Operation):
    """Wait until all products that were added to ``flights`` are finished, but the newest ``but`` of each.
    The flights become tensors; the last ``stays`` of them do not: only what their products read is free then.

    Groups of products finish in the order in which they were started. How many of the newest groups may be
    unfinished (``pending``), ``count_groups`` derives, as it does for copies.

    Its schedule: it stands here ``until`` it goes in front of the first ``use`` of its tensor, or into the
    ``next`` iteration of its loop, which carries the flight.
    """

    flights = D.operands(D.FLIGHT)
    but = D.attribute(int, 0)
    stays = D.attribute(int, 0)
    pending = D.attribute(int, 0)
    until = D.attribute(("", "use", "next"), "")

    @classmethod
    def infer(cls, operands, attributes):
        return [flight.tensor for flight in operands[: len(operands) - attributes.get("stays", 0)]]

    @property
    def landing(self) -> Sequence[Value]:
        """The flights that become tensors."""
        return self.flights[: len(self.results)]

    def check(self):
        if not 0 <= self.stays <= len(self.flights) or not self.flights:
            raise VerificationError(f"'dot_wait' of {len(self.flights)} flights, of which {self.stays} stay")

    def result_dim(self, index, dim):
        return dim


@D.define("fence_async", effects=D.SIDE_EFFECT)
class FenceAsync(Operation):
    """What this thread stored to shared memory is seen by asynchronous reads (``wgmma``, bulk copies) that
    come behind the next barrier. Ordinary stores and ``cp.async`` go through another proxy than these."""

    infer = D.gives()
