"""mbarriers, copies of boxes of tensors, and tensor maps that a kernel makes: a copy reads its source when it
starts, and writes when its barrier is waited for; a store by TMA writes at the latest moment.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from ptxforge.interpreter.execute import TensorMap
from ptxforge.interpreter.memory import update
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.mbarrier import (
    BarrierArrive,
    BarrierExpect,
    BarrierInit,
    BarrierInval,
    BarrierWait,
    TensorLoad,
)
from ptxforge.ir.ops.tensor_map import MakeTensorMap, MapWorkspace, ReleaseWorkspace
from ptxforge.ir.ops.tensor_store import NoWork, StoreBox, StoreWait, TensorStore
from ptxforge.support.errors import InterpreterError


@attrs.define
class _Phases:
    """An mbarrier: how many phases have ended, and of the one under way the bytes that are expected (None
    before the arrival), those that came, and what stores them."""

    ended: int = 0
    expected: int | None = None
    started: int = 0
    copies: list[Callable[[], None]] = attrs.Factory(list)


@attrs.frozen
class _Phase:
    """A token: phase ``number`` of an mbarrier. (None where nothing was expected.)"""

    of: _Phases
    number: int

    @property
    def is_over(self) -> bool:
        return self.of.ended > self.number


@interprets(BarrierInit)
def barrier_init(program, op, barriers):
    for barrier in barriers.reshape(-1, 1):
        program.mbarriers[_address(barrier)] = _Phases()


@interprets(BarrierInval)
def barrier_inval(program, op, barriers):
    for barrier in barriers.reshape(-1, 1):
        if _found(program, barrier).copies:
            raise InterpreterError("an mbarrier ends while copies are under way")
        del program.mbarriers[_address(barrier)]


@interprets(BarrierExpect)
def barrier_expect(program, op, barrier, flag=True):
    if not flag:
        return None
    phases = _found(program, barrier)
    if phases.expected is not None:
        raise InterpreterError("a second arrival in one phase of an mbarrier")
    phases.expected = op.bytes
    _note_progress(program)
    return _Phase(phases, phases.ended)


@interprets(BarrierArrive)
def barrier_arrive(program, op, barrier, flag=True):
    """All warps of the program, or of the group that runs this, arrive at once."""
    if not flag:
        return
    _found(program, barrier).ended += 1
    _note_progress(program)


@interprets(BarrierWait)
def barrier_wait(program, op, barrier, phase, flag=True):
    phases = _found(program, barrier)
    if not flag:
        return
    while phases.ended % 2 == phase and (phases.expected is None or phases.expected != phases.started):
        if program.turns is None or not program.turns.pass_on(program):
            raise InterpreterError(
                f"a wait that never ends: the mbarrier expects {phases.expected} bytes, copies of "
                f"{phases.started} have started"
            )
    if phases.ended % 2 != phase:
        return
    for copy in phases.copies:
        copy()
    phases.ended, phases.expected, phases.started, phases.copies = phases.ended + 1, None, 0, []


@interprets(TensorLoad)
def tensor_load(program, op, map, phase, destination, *rest):
    if op.is_flagged and not rest[-1]:
        return
    if phase is None or phase.is_over:
        raise InterpreterError("a copy that completes in a phase of an mbarrier that nothing expects")
    phases = phase.of
    phases.started += destination.nbytes
    tile = _box(program, map, [int(c) for c in rest[: len(op.tile_dims)]], op.tile_dims, destination)

    def land():
        destination[...] = tile

    phases.copies.append(land)
    _note_progress(program)


def _box(program, map, corner: list[int], tile_dims: tuple[int, ...], destination: np.ndarray) -> np.ndarray:
    """The box's elements, in the destination's dimensions; the padding outside of the tensor."""
    address, inside = np.int64(map.address), np.True_
    for start, size, stride, dim in zip(corner, map.shape, map.strides, tile_dims, strict=True):
        index = np.int64(start)
        if dim >= 0:
            along = [1] * destination.ndim
            along[dim] = -1
            index = start + np.arange(destination.shape[dim]).reshape(along)
        inside = inside & (index >= 0) & (index < size)
        address = address + index * stride * destination.itemsize
    address, inside = (np.broadcast_to(x, destination.shape) for x in (address, inside))
    tile = np.full(destination.shape, np.nan if map.padding == "nan" else 0, destination.dtype)
    tile[inside] = program.memory.read(address[inside], destination.dtype)
    return tile


def _note_progress(program) -> None:
    """Who waits for a barrier may look again."""
    if program.turns is not None:
        program.turns.waiting.clear()


def _found(program, barrier: np.ndarray) -> _Phases:
    found = program.mbarriers.get(_address(barrier))
    if found is None:
        raise InterpreterError("an mbarrier is used before barrier_init")
    return found


def _address(barrier: np.ndarray) -> int:
    return barrier.__array_interface__["data"][0]


_CHUNK_BYTES = 16


@interprets(StoreBox)
def store_box(program, op, map, pointer, value, *corner):
    _write(program, op, map, value, corner)


@interprets(TensorStore)
def tensor_store(program, op, map, pointer, source, *corner):
    was = np.array(source)

    def land():
        _write(program, op, map, was, corner)

    copy = source, was
    program.stores.append(copy)
    program.landing.append(land)
    return copy


@interprets(StoreWait)
def store_wait(program, op, *tokens):
    while len(program.stores) > op.pending:
        source, was = program.stores.pop(0)
        if source.tobytes() != was.tobytes():
            raise InterpreterError("a tile was overwritten before the wait for its copy")
    if any(copy is token for copy in program.stores for token in tokens):
        raise InterpreterError("a wait names a copy that it leaves under way")
    if op.landed:
        finish(program, op.pending)


@interprets(NoWork)
def no_work(program, op):
    return None


def finish(program, pending: int = 0) -> None:
    """What all but the newest copies write is in memory."""
    while len(program.landing) > pending:
        program.landing.pop(0)()


def _write(program, op, map, rows: np.ndarray, corner) -> None:
    """Write a matrix whose rows are those of the box, one after the other. Raises :class:`InterpreterError`
    where TMA would do something else."""
    if min(int(at) for at in corner) < 0 or map.shape[-1] * rows.itemsize % _CHUNK_BYTES:
        raise InterpreterError("TMA stores begin in the tensor, and write rows of multiples of 16 bytes")
    box = op.map.attributes["box"]
    tile = rows.reshape(*box[:-1], rows.shape[-1] * rows.shape[0] // int(np.prod(box[:-1], dtype=int)))
    address, inside = np.int64(map.address), np.True_
    for dim, (start, size, stride) in enumerate(zip(corner, map.shape, map.strides, strict=True)):
        along = [1] * tile.ndim
        along[dim] = -1
        index = int(start) + np.arange(tile.shape[dim]).reshape(along)
        inside = inside & (index >= 0) & (index < size)
        address = address + index * stride * tile.itemsize
    address, inside = (np.broadcast_to(x, tile.shape) for x in (address, inside))
    if op.kind:
        update(program, op.kind, address, tile, inside)
    else:
        program.memory.write(address[inside], tile[inside])


@interprets(MapWorkspace)
def map_workspace(program, op):
    """Programs run one after the other, and maps are values here."""
    return np.int64(0)


@interprets(ReleaseWorkspace)
def release_workspace(program, op, workspace):
    pass


@interprets(MakeTensorMap)
def make_tensor_map(program, op, workspace, template, base, *numbers):
    given = iter(int(number) for number in numbers)
    shape = tuple(size or next(given) for size in op.sizes)
    if min(shape) < 1:
        shape = (0,) * len(shape)
    return TensorMap(int(base), shape, (*given, 1), op.padding)
