"""Loads, stores, and where a program is. Without ``other``, masked-off elements of a load are 0."""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.registry import interprets
from ptxforge.ir import types as T
from ptxforge.ir.ops.memory import Barrier, GetCtaRank, GetNumPrograms, GetProgramId, Load, Store


@interprets(GetProgramId)
def get_program_id(program, op):
    return np.int32(program.index[op.axis])


@interprets(GetNumPrograms)
def get_num_programs(program, op):
    return np.int32(program.grid[op.axis])


@interprets(GetCtaRank)
def get_cta_rank(program, op):
    return np.int32(program.rank >> op.first & op.parts - 1)


@interprets(Barrier)
def barrier(program, op):
    return None


@interprets(Load)
def load(program, op, pointer, mask=None, other=None):
    return read(program, pointer, mask, other, T.element_type(op.result.type).numpy)


def read(program, pointer, mask, other, dtype):
    """What a load gives: memory where ``mask`` holds, elsewhere ``other`` or 0."""
    pointer = np.asarray(pointer)
    if mask is None:
        return program.memory.read(pointer, dtype)[()]
    mask = np.broadcast_to(mask, pointer.shape)
    result = (
        np.zeros(pointer.shape, dtype) if other is None else np.array(np.broadcast_to(other, pointer.shape))
    )
    result[mask] = program.memory.read(pointer[mask], dtype)
    return result[()]


@interprets(Store)
def store(program, op, pointer, value, mask=None):
    pointer, value = np.asarray(pointer), np.asarray(value)
    if mask is not None:
        mask = np.asarray(mask)
        pointer, value = pointer[mask], value[mask]
    program.memory.write(pointer, value)
