"""Shared memory: a memdesc is an array, its views are numpy views.

Fresh and freed memory holds a byte pattern, so that reading it shows. An asynchronous copy reads its source
when it starts and writes its destination only when its group was waited for. (In a loop with a schedule that
is still to be expanded, at once: iterations are done one after the other, and their text does not say when.)

Asynchronous matrix products: a product is computed when it starts, and what it reads must still be the
same when it was waited for. Of f32 it reads what tensor cores do, tf32: sums of parts depend on that.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from ptxforge.interpreter.control import results
from ptxforge.interpreter.memory import read
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops import shared
from ptxforge.ir.ops.dot import Dot, multiply_matrices
from ptxforge.ir.ops.warpgroup import DotAsync, DotBegin, DotWait, FenceAsync
from ptxforge.support.errors import InterpreterError

_GARBAGE = 0xCD


def _spoil(array: np.ndarray) -> None:
    array[...] = np.full(array.dtype.itemsize, _GARBAGE, np.uint8).view(array.dtype)[0]


@interprets(shared.LocalAlloc)
def local_alloc(program, op, value=None):
    if value is not None:
        return np.array(value)
    memory = np.empty(op.result.type.shape, op.result.type.element.numpy)
    _spoil(memory)
    return memory


@interprets(shared.LocalDealloc)
def local_dealloc(program, op, source):
    _spoil(source)


@interprets(shared.LocalLoad)
def local_load(program, op, source, token=None):
    return np.array(source)


@interprets(shared.LocalStore)
def local_store(program, op, value, destination):
    fastest = op.destination.type.layout.order[0] - len(op.destination.type.shape)
    destination[...] = np.split(value, op.parts, fastest)[op.part]


@interprets(shared.MemDescIndex)
def memdesc_index(program, op, source, index, token=None):
    if op.pitch:
        index, rest = divmod(index, op.pitch)
        if rest:
            raise InterpreterError(f"byte {rest} of a buffer is not its beginning")
    if not 0 <= index < len(source):
        raise InterpreterError(f"buffer {index} of {len(source)}")
    return source[int(index)]


@interprets(shared.MemDescSubslice)
def memdesc_subslice(program, op, source):
    parts = zip(op.offsets, op.result.type.shape, strict=True)
    return source[tuple(slice(offset, offset + size) for offset, size in parts)]


@interprets(shared.MemDescTrans)
def memdesc_trans(program, op, source):
    return np.transpose(source, op.order)


@interprets(shared.AsyncCopyGlobalToLocal)
def async_copy_global_to_local(program, op, pointer, destination, mask=None, other=None):
    data = read(program, pointer, mask, other, destination.dtype)

    def store():
        destination[...] = data

    copy = Copy(store)
    if getattr(op.parent_op, "last_stage", 0):
        copy.finish()
    else:
        program.open_group.append(copy)
    return copy


@attrs.define(eq=False)
class Copy:
    """A copy under way. As a token it stands for the group that named it, or that took it."""

    store: Callable[[], None] | None
    group: Group | None = None

    def finish(self) -> None:
        """Store what was copied, if that has not been done."""
        if self.store is not None:
            self.store()
        self.store = None


@attrs.frozen(eq=False)
class Group:
    """Copies that are waited for together."""

    copies: list[Copy]

    def finish(self) -> None:
        """Finish all of them."""
        for copy in self.copies:
            copy.finish()


@interprets(shared.AsyncCommitGroup)
def async_commit_group(program, op, *tokens):
    named = [token for token in tokens if isinstance(token, Copy)]
    group = Group(list(dict.fromkeys([*program.open_group, *named])))
    for copy in group.copies:
        copy.group = group
    program.groups.append(group)
    program.open_group = []
    return group


@interprets(shared.AsyncWait)
def async_wait(program, op, *tokens):
    """Finish those that are named, even if their number would have others finish, too."""
    for token in tokens:
        group = token.group if isinstance(token, Copy) else token
        if group is not None:
            group.finish()
    while not tokens and len(program.groups) > op.num:
        program.groups.pop(0).finish()


@attrs.frozen(eq=False)
class Flight:
    """A sum under way: what it will be, and what the products that nobody has waited for read: operands, and
    what was in them."""

    total: np.ndarray
    reads: tuple[list[tuple[np.ndarray, np.ndarray]], ...] = ()

    def finish(self, but: int) -> None:
        """End all products, ``but`` the newest so many."""
        for operands in self.reads[: len(self.reads) - but]:
            if not all(_is_same(*operand) for operand in operands):
                raise InterpreterError("an operand of a matrix product was overwritten before its wait")
            operands.clear()


@interprets(DotBegin)
def dot_begin(program, op, value):
    return Flight(np.array(value))


@interprets(DotAsync)
def dot_async(program, op, a, b, c):
    left, right = _as_read(Dot.as_held(a, op.a_unsigned)), _as_read(Dot.as_held(b, op.b_unsigned))
    total = c.total + multiply_matrices(left, right, c.total.dtype)
    return Flight(total, (*filter(None, c.reads), [(source, np.array(source)) for source in (a, b)]))


def _as_read(x: np.ndarray) -> np.ndarray:
    """Without the 13 bits of an f32 that ``wgmma`` leaves out."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if x.dtype == np.float32 else x


@interprets(DotWait)
def dot_wait(program, op, *flights):
    for flight in flights:
        flight.finish(op.but)
    return results([flight.total for flight in flights[: len(op.results)]]) if op.results else None


@interprets(FenceAsync)
def fence_async(program, op):
    return None


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    return np.ascontiguousarray(one).tobytes() == other.tobytes()
