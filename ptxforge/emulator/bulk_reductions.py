"""Reductions that bulk copies and asynchronous stores do in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator import numerics
from ptxforge.emulator.memory import TABLES

KINDS = {"f16": (np.dtype("u2"),), "bf16": (np.dtype("u2"),), "u32": (np.dtype("u4"),),
          "s32": (np.dtype("i4"),),
          "b32": (np.dtype("u4"),), "u64": (np.dtype("u8"),), "s64": (np.dtype("i8"),),
          "b64": (np.dtype("u8"),),
          "f32": (np.dtype("f4"),), "f64": (np.dtype("f8"),)}  # fmt: skip


def reduce_into(indices: np.ndarray, values: np.ndarray, reduction: tuple[str, str]) -> None:
    """memory[index] = op(memory[index], value); indices are distinct, `values` raw bits."""
    name, kind = reduction
    dtype = KINDS[kind][0]
    table = TABLES[dtype.itemsize]
    places = indices >> (dtype.itemsize.bit_length() - 1)
    old = table[places]
    if kind in ("f16", "bf16"):
        result = numerics.lookup(f"{name}.{kind}").function(
            *(x.view(numerics.NATURAL[kind]) for x in (old, values))
        )
    else:
        result = _REDUCE[name](old.view(dtype), values.view(dtype))
    table[places] = result.astype(result.dtype, copy=False).view(table.dtype)


_REDUCE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0),
    old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}  # fmt: skip
