"""Atomics: elements one after the other; at once where no two of them meet at one address."""

from __future__ import annotations

import numpy as np

from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.arith import as_unsigned
from ptxforge.ir.ops.atomic import AtomicCAS, AtomicRMW


def _unsigned(ufunc):
    return lambda old, value: ufunc(as_unsigned(old), as_unsigned(value)).view(old.dtype)


_UPDATES = {
    "add": np.add, "fadd": np.add, "max": np.maximum, "min": np.minimum, "umax": _unsigned(np.maximum),
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
