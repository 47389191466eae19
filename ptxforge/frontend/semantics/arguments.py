"""Checks of arguments that must be known at compile time or have a certain kind."""

from __future__ import annotations

import math
from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.semantics.registry import ArgumentProblem
from ptxforge.frontend.values import TensorValue, describe, dtype_name, is_number
from ptxforge.language import types as L
from ptxforge.language.constexpr import unwrap
from ptxforge.support.dtypes import DType

MAX_ELEMENTS = 1 << 20

_STATIC_HINT = "make it a tl.constexpr: a parameter annotated so, or a local 'name: tl.constexpr = …'"


def static(value: Any, name: str) -> Any:
    """A compile-time value."""
    if isinstance(value, TensorValue):
        raise ArgumentProblem(
            name, f"must be known at compile time, is a runtime {describe(value)}", _STATIC_HINT
        )
    return unwrap(value)


def static_int(value: Any, name: str) -> int:
    """A compile-time integer."""
    value = static(value, name)
    if isinstance(value, float) and value.is_integer():
        raise ArgumentProblem(
            name, f"must be an integer, is {value!r}", "use // instead of / for whole numbers"
        )
    if not isinstance(value, int):
        raise ArgumentProblem(name, f"must be an integer, is {value!r}")
    return int(value)


def static_bool(value: Any, name: str) -> bool:
    """A compile-time truth value."""
    return bool(static(value, name))


def choice(value: Any, name: str, allowed: tuple[str, ...], default: str = "") -> str:
    """One of some words; ``None`` is ``default``."""
    value = static(value, name)
    if value is None:
        return default
    if value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ArgumentProblem(name, f"must be one of {words}; is {value!r}")
    return value


def tile_shape(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """A compile-time shape of a block: powers of two, at most 2**20 elements."""
    shape = unwrap(shape)
    if isinstance(shape, (TensorValue, int)):
        shape = (shape,)
    if not isinstance(shape, tuple):
        raise ArgumentProblem(name, f"must be a list of sizes, is {describe(shape)}")
    sizes = tuple(static_int(size, name) for size in shape)
    for dimension, size in enumerate(sizes):
        if size <= 0 or size & (size - 1):
            raise ArgumentProblem(
                name,
                f"every dimension must be a power of two; dimension {dimension} is {size}",
                "round up with ptxforge.next_power_of_2 and mask the elements beyond",
            )
    if math.prod(sizes) > MAX_ELEMENTS:
        raise ArgumentProblem(
            name, f"{list(sizes)} has {math.prod(sizes)} elements; the limit is {MAX_ELEMENTS}"
        )
    return sizes


def variadic_shape(shape: tuple) -> tuple:
    """``f(x, 4, 2)`` and ``f(x, [4, 2])`` are the same."""
    return shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape


def element_type(value: Any, name: str = "dtype") -> L.dtype | L.pointer_type:
    """An element type or pointer type."""
    value = static(value, name)
    if isinstance(value, DType):
        return L.of(value)
    if isinstance(value, L.block_type):
        return value.scalar
    if not isinstance(value, (L.dtype, L.pointer_type)):
        raise ArgumentProblem(name, f"must be an element type such as tl.float32, is {describe(value)}")
    return value


def tensor(ctx: Context, value: Any, name: str) -> TensorValue:
    """A runtime value; a number becomes a scalar."""
    if isinstance(value, TensorValue):
        return value
    if not is_number(value):
        raise ArgumentProblem(name, f"must be a tensor or a number, is {describe(value)}")
    return ctx.to_tensor(value)


def block(value: Any, name: str) -> TensorValue:
    """A block (not a scalar)."""
    if not isinstance(value, TensorValue) or not value.is_block:
        raise ArgumentProblem(name, f"must be a block, is {describe(value)}")
    return value


def integer(value: TensorValue, name: str) -> TensorValue:
    """A runtime value of an integer type."""
    if value.is_pointer or not value.dtype.is_int():
        raise ArgumentProblem(name, f"must be an integer, is {dtype_name(value.dtype)}")
    return value


def number(value: TensorValue, name: str) -> TensorValue:
    """A runtime value that is not a pointer."""
    if value.is_pointer:
        raise ArgumentProblem(name, f"must be a number, is a {dtype_name(value.dtype)}")
    return value


def axis_of(axis: Any, rank: int, name: str = "axis", extra: int = 0) -> int:
    """A dimension's number; negative ones count from the end. ``extra`` dimensions are about to be added."""
    index = static_int(axis, name)
    total = rank + extra
    if not -total <= index < total:
        raise ArgumentProblem(name, f"{index} is out of range for {total} dimension{'s' * (total != 1)}")
    return index % total
