"""Boxes that are stored by TMA: a copy reads its source when it starts, and writes at the latest moment."""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.atomic import update
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.tensor_store import StoreBox, StoreWait, TensorStore
from ptxforge.support.errors import InterpreterError

_CHUNK_BYTES = 16


@interprets(StoreBox)
def store_box(program, op, map, pointer, value, *corner):
    _write(program, op, map, value, corner)


@interprets(TensorStore)
def tensor_store(program, op, map, pointer, source, *corner):
    was = np.array(source)

    def land():
        _write(program, op, map, was, corner)

    program.stores.append((source, was))
    program.landing.append(land)


@interprets(StoreWait)
def store_wait(program, op, *buffers):
    while len(program.stores) > op.pending:
        source, was = program.stores.pop(0)
        if source.tobytes() != was.tobytes():
            raise InterpreterError("a tile was overwritten before the wait for its copy")
    if op.landed:
        finish(program, op.pending)


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
