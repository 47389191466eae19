"""A short loop behind a chain of products reads on in the chain's ring.

    for %j = %zero to %start step 128 { … k[%j] … v[%j] … }                     causal attention: all blocks
    for %i = %start to (%start + 128) step 128 { … k[%i] … v[%i] …, masked }    … and those on the diagonal

Both loops read the same tiles, each where the other stops. So the first loop's copies run on: its last
iterations start those of the second, which takes them from the same ring (``rings.py``), at the place and in
the phase that the first has reached. The second loop starts no copies, needs no barrier, and waits for no
memory: its tiles were asked for some iterations ago.

``schedule_loops`` writes on the second loop that it ``reads_on``, and on loads of the first for how many
iterations their copies go ``beyond`` it.

Rules
-----
CHAIN     The first loop is a chain (``chained_products.py``), whose copies lead by ``distance`` iterations.
SAME      The loads of both read the same boxes of the same tensors at the same value of the counter, in the
          same order, and want them in the same layout, padded alike.
EXACT     The second counter begins with the first one's upper bound, which the first surely reaches exactly,
          and both have the same step.
FEW       The second loop has a known number of iterations, ``distance`` at most: so all its copies have been
          started when the first loop ends.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.rewriter import constant_of
from ptxforge.passes.analysis.flights import runs_ahead
from ptxforge.passes.analysis.rectangles import Dimension, Rectangle
from ptxforge.passes.tensor_loads import TensorLoads


def continue_ring(loop: For, loads: list[Load], by_tma: TensorLoads) -> None:
    """Write on the chain ``loop`` and on the one behind that this reads on in the ring, if it can."""
    following = next((behind for behind in _behind(loop) if behind.distance), None)
    if following is None or following.lower is not loop.upper:
        return
    step, iterations = constant_of(loop.step), constant_extent(following)
    if step is None or constant_of(following.step) != step or iterations is None:
        return
    others = [op for op in following.body.operations if runs_ahead(op)]
    is_same = len(loads) == len(others) and all(
        _are_same(loop, first, following, second, by_tma) for first, second in zip(loads, others)
    )
    if is_same and 0 < iterations <= loop.distance and by_tma.rectangles.forms.ends_exactly(loop):
        following.reads_on = True
        for load in loads:
            load.attributes["beyond"] = iterations


def reader_behind(loop: For) -> For:
    """The loop that reads on in the ring of ``loop``."""
    return next(behind for behind in _behind(loop) if behind.reads_on)


def constant_extent(loop: For) -> int | None:
    """How many iterations ``for … in range(x, x + n, step)`` has; ``None`` if that is not its form."""
    op, step = loop.upper.defining_op, constant_of(loop.step)
    if op is None or step is None or [sign for _, sign in op.addends] != [1, 1]:
        return None
    for base, extent in (op.operands, reversed(op.operands)):
        if base is loop.lower and constant_of(extent) is not None:
            return -(-constant_of(extent) // step)
    return None


def _behind(loop: For) -> Iterator[For]:
    """The loops behind ``loop`` in its block."""
    op = loop.next
    while op is not None:
        if op.is_counted:
            yield op
        op = op.next


def _are_same(loop: For, first: Load, following: For, second: Load, by_tma: TensorLoads) -> bool:
    """See SAME."""
    one, other = by_tma.rectangle(first), by_tma.rectangle(second)
    if None in (one, other) or one.base is not other.base or _tile_type(first) != _tile_type(second):
        return False
    is_padded_alike = one.padding == other.padding
    return is_padded_alike and _at(one, loop.induction, following.induction) == list(other.dimensions)


def _tile_type(load: Load) -> T.MemDescType:
    return next(iter(load.result.users)).result.type


def _at(rectangle: Rectangle, counter: Value, other: Value) -> list[Dimension]:
    """The dimensions with ``other`` for ``counter``."""
    return [
        attrs.evolve(d, coordinate={
            tuple(other if v is counter else v for v in monomial): c for monomial, c in d.coordinate.items()
        })
        for d in rectangle.dimensions
    ]  # fmt: skip
