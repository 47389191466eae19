"""Loads, stores, atomics, boxes of tensor descriptors, and where a program is. Without ``other``, masked-off
elements of a load are 0. Atomics go through their elements one after the other; at once where no two of them
meet at one address."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptxforge.interpreter.registry import interprets
from ptxforge.ir import types as T
from ptxforge.ir.ops.arith import as_unsigned
from ptxforge.ir.ops.atomic import AtomicCAS, AtomicRMW
from ptxforge.ir.ops.descriptor import (
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    MakeDescriptor,
)
from ptxforge.ir.ops.memory import GetCtaRank, GetNumPrograms, GetProgramId, Load, Store


@interprets(GetProgramId)
def get_program_id(program, op):
    return np.int32(program.index[op.axis])


@interprets(GetNumPrograms)
def get_num_programs(program, op):
    return np.int32(program.grid[op.axis])


@interprets(GetCtaRank)
def get_cta_rank(program, op):
    return np.int32(program.rank >> op.first & op.parts - 1)


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


def _unsigned(ufunc):
    return lambda old, value: ufunc(as_unsigned(old), as_unsigned(value)).view(old.dtype)


_UPDATES = {
    "add": np.add, "fadd": np.add, "fmax": np.fmax, "fmin": np.fmin,
    "max": np.maximum, "min": np.minimum, "umax": _unsigned(np.maximum),
    "umin": _unsigned(np.minimum), "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "xchg": lambda old, value: value, "load": lambda old, value: old, "store": lambda old, value: value,
}  # fmt: skip


@interprets(AtomicRMW)
def atomic_rmw(program, op, pointer, value, mask=None):
    pointer, value = np.asarray(pointer), np.asarray(value)
    active = np.ones(pointer.shape, bool) if mask is None else np.asarray(mask)
    return update(program, op.kind, pointer, value, active)[()]


def update(program, kind: str, pointer: np.ndarray, value: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Replace the elements at ``pointer`` where ``active`` by ``kind(old, value)``; gives the old ones, and 0
    elsewhere."""
    combine = _UPDATES[kind]
    result = np.zeros(value.shape, value.dtype)
    result[active] = _in_turn(
        program.memory, pointer[active], lambda old, i: combine(old, value[active][i]), value.dtype
    )
    return result


@interprets(AtomicCAS)
def atomic_cas(program, op, pointer, compare, value):
    pointer, compare, value = np.atleast_1d(pointer), np.atleast_1d(compare), np.atleast_1d(value)
    flat_compare, flat_value = compare.ravel(), value.ravel()

    def exchange(old, i):
        return np.where(_bits(old) == _bits(flat_compare[i]), flat_value[i], old)

    old = _in_turn(program.memory, pointer.ravel(), exchange, value.dtype).reshape(value.shape)
    return old if op.value.type is not op.element else old[0]


def _bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _in_turn(memory, addresses: np.ndarray, update, dtype: np.dtype) -> np.ndarray:
    """Replace each address's element by ``update(old, positions)``; gives the old elements."""
    if len(np.unique(addresses)) == len(addresses):
        old = memory.read(addresses, dtype)
        memory.write(addresses, update(old, slice(None)).astype(dtype))
        return old
    old = np.empty(addresses.shape, dtype)
    for i in range(len(addresses)):
        here = slice(i, i + 1)
        old[here] = memory.read(addresses[here], dtype)
        memory.write(addresses[here], update(old[here], here).astype(dtype))
    return old


class Descriptor(NamedTuple):
    """A tensor in memory: an address, sizes, and strides in elements."""

    type: T.DescriptorType
    base: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def places(self, index: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The addresses of elements (an array of indices per dimension), and which are inside."""
        address = np.full((), self.base, np.int64)
        inside = np.ones((), bool)
        for i, size, stride in zip(index, self.sizes, self.strides):
            address = address + i * np.int64(stride) * self.type.element.bytes
            inside = inside & (i >= 0) & (i < size)
        return np.broadcast_arrays(address, inside)

    def box(self, offsets) -> tuple[np.ndarray, np.ndarray]:
        """:meth:`places` of the box that begins at ``offsets``."""
        starts = np.array([int(offset) for offset in offsets]).reshape((-1,) + (1,) * len(offsets))
        return self.places([start + i for start, i in zip(starts, np.indices(self.type.shape))])

    def rows(self, rows, column) -> tuple[np.ndarray, np.ndarray]:
        """:meth:`places` of single rows, each from ``column`` on."""
        columns = int(column) + np.arange(self.type.shape[1])
        return self.places([np.asarray(rows, np.int64)[:, None], columns[None, :]])


@interprets(MakeDescriptor)
def make_descriptor(program, op, base, *numbers):
    values = [int(n) for n in numbers]
    rank = len(values) // 2
    return Descriptor(op.result.type, int(base), tuple(values[:rank]), tuple(values[rank:]))


def _load(program, descriptor: Descriptor, places):
    element = descriptor.type.element.numpy
    addresses, inside = places
    return read(program, addresses, inside, np.array(descriptor.type.fill, element), element)


def _store(program, places, value):
    addresses, inside = places
    program.memory.write(addresses[inside], np.asarray(value)[inside])


@interprets(DescriptorLoad)
def load_box(program, op, descriptor, *offsets):
    return _load(program, descriptor, descriptor.box(offsets))


@interprets(DescriptorStore)
def store_box(program, op, descriptor, value, *offsets):
    _store(program, descriptor.box(offsets), value)


@interprets(DescriptorReduce)
def reduce_box(program, op, descriptor, value, *offsets):
    addresses, inside = descriptor.box(offsets)
    update(program, op.kind, addresses, np.asarray(value), inside)


@interprets(DescriptorGather)
def gather_rows(program, op, descriptor, rows, column):
    return _load(program, descriptor, descriptor.rows(rows, column))


@interprets(DescriptorScatter)
def scatter_rows(program, op, descriptor, value, rows, column):
    _store(program, descriptor.rows(rows, column), value)
