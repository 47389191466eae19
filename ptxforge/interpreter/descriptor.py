"""Tensor descriptors: boxes of a tensor, clipped to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ptxforge.interpreter.atomic import update
from ptxforge.interpreter.memory import read
from ptxforge.interpreter.registry import interprets
from ptxforge.ir import types as T
from ptxforge.ir.ops.descriptor import (
    DescriptorGather,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    MakeDescriptor,
)


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
def load(program, op, descriptor, *offsets):
    return _load(program, descriptor, descriptor.box(offsets))


@interprets(DescriptorStore)
def store(program, op, descriptor, value, *offsets):
    _store(program, descriptor.box(offsets), value)


@interprets(DescriptorReduce)
def reduce(program, op, descriptor, value, *offsets):
    addresses, inside = descriptor.box(offsets)
    update(program, op.kind, addresses, np.asarray(value), inside)


@interprets(DescriptorGather)
def gather(program, op, descriptor, rows, column):
    return _load(program, descriptor, descriptor.rows(rows, column))


@interprets(DescriptorScatter)
def scatter(program, op, descriptor, value, rows, column):
    _store(program, descriptor.rows(rows, column), value)
