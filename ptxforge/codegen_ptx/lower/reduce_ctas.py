"""Reductions over the CTAs of a cluster: each writes what it has to its own scratch memory, and reads what
others have from theirs when all have met. They meet again before anybody writes there, or ends.
"""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.combining import Combiner
from ptxforge.codegen_ptx.lower.exchange import (
    cluster_barrier,
    from_word,
    load_words,
    shared_address,
    shared_bases,
    to_word,
    word_class,
)
from ptxforge.codegen_ptx.lower.indices import first_thread, linear_of, owner, replication
from ptxforge.codegen_ptx.lower.reduce import Scratch
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.ops.reduce import ReduceCtas
from ptxforge.layouts.scratch import exchange_bytes


class _Remote(Scratch):
    """The scratch memory of the CTAs that combine; :attr:`base` is that of one of them."""

    base: Register | None = None

    def load(self, thread, offset: int, count: int, kind: str) -> list[Register]:
        address = shared_address(self.b, thread, offset, self.base)
        return load_words(self.b, address, count, kind, "ld.shared::cluster")


@lowers(ReduceCtas)
def reduce_ctas(ctx: Lowering, op: ReduceCtas) -> None:
    b, type = ctx.b, op.inputs[0].type
    layout = linear_of(type) if isinstance(type, T.TensorType) else None
    place, combine = _Remote(ctx, layout), Combiner(ctx, op)
    writer = first_thread(b) if layout is None else owner(b, replication(layout)[1])
    starts, start = [], op.scratch_offset
    for value, element in zip(op.inputs, combine.elements):
        place.write(start, [to_word(b, x, element) for x in ctx.get(value)], writer)
        starts.append(start)
        start += exchange_bytes(place.results, [element.bits])
    cluster_barrier(b)
    parts = []
    for base in shared_bases(b, ctx.function.attributes["num_ctas"], op.ranks):
        place.base = base
        words = [place.read(at, word_class(e), 1)[0] for at, e in zip(starts, combine.elements)]
        parts.append([[from_word(b, w, e) for w in ws] for ws, e in zip(words, combine.elements)])
    cluster_barrier(b)
    ctx.set(op, *combine.tree(parts))
