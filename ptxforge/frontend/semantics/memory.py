"""Loads and stores."""

from __future__ import annotations

from typing import Any

from ptxforge.frontend.context import Context
from ptxforge.frontend.convert import broadcast_to, cast, common_shape, not_zero
from ptxforge.frontend.semantics import arguments
from ptxforge.frontend.semantics.descriptor import padding, pointers_and_mask
from ptxforge.frontend.semantics.registry import ArgumentProblem, implements
from ptxforge.frontend.values import BlockPointer, TensorValue, describe
from ptxforge.ir.ops import memory as M
from ptxforge.language import memory as language
from ptxforge.language import types as L
from ptxforge.support.errors import TypeMismatchError


def pointer_argument(value: Any) -> TensorValue:
    """A scalar pointer or block of pointers."""
    if not isinstance(value, TensorValue) or not value.is_pointer:
        raise ArgumentProblem(
            "pointer",
            f"must be a pointer or a block of pointers, is {describe(value)}",
            "add offsets to a pointer parameter: x_ptr + offsets",
        )
    return value


def _fit(ctx: Context, value: TensorValue, shape: tuple[int, ...], name: str) -> TensorValue:
    """An argument broadcast to the pointers' shape."""
    if value.is_block and not shape:
        raise ArgumentProblem(name, f"cannot be a block ({describe(value)}) when the pointer is a scalar")
    try:
        return broadcast_to(ctx, value, shape)
    except TypeMismatchError:
        raise ArgumentProblem(
            name, f"of shape {list(value.shape)} cannot be broadcast to the pointers' shape {list(shape)}"
        ) from None


def _widened(ctx: Context, pointer: TensorValue, *arguments: Any) -> TensorValue:
    """A block of pointers at the shape that it and a load's other arguments broadcast to. Shapes that do not
    fit are left to :func:`_fit`, which knows the argument's name."""
    if not pointer.is_block:
        return pointer
    shape = pointer.shape
    for argument in arguments:
        if isinstance(argument, TensorValue):
            try:
                shape = common_shape(shape, argument.shape, "load")
            except TypeMismatchError:
                break
    return broadcast_to(ctx, pointer, shape)


def mask_argument(ctx: Context, mask: Any, shape: tuple[int, ...]) -> TensorValue | None:
    """A mask as int1 of ``shape``; ``None`` for none, or for one that always holds."""
    if mask is None or mask is True:
        return None
    value = arguments.number(arguments.tensor(ctx, mask, "mask"), "mask")
    if not value.dtype.is_int():
        raise ArgumentProblem(
            "mask", f"must be boolean, is {describe(value)}", "compare something: offsets < n"
        )
    return _fit(ctx, not_zero(ctx, value), shape, "mask")


def value_argument(
    ctx: Context, value: Any, dtype: L.dtype | L.pointer_type, shape: tuple, name: str
) -> TensorValue:
    """A value to be stored, in the pointee's type and the pointers' shape."""
    if isinstance(value, TensorValue):
        return _fit(ctx, cast(ctx, value, dtype), shape, name)
    if isinstance(dtype, L.dtype) and isinstance(value, (int, float)):
        return ctx.constant(value, dtype, shape)
    return _fit(ctx, cast(ctx, arguments.tensor(ctx, value, name), dtype), shape, name)


def _only_for_block_pointers(boundary_check: Any, padding_option: Any = "") -> None:
    for name, given in (("boundary_check", boundary_check), ("padding_option", padding_option)):
        if given:
            raise ArgumentProblem(name, "is for block pointers", "give a mask instead")


def _through_block_pointer(
    ctx: Context, block: BlockPointer, boundary_check: Any, mask: Any, other: Any = None
) -> tuple[TensorValue, TensorValue | None]:
    """The pointers and the mask that a block pointer stands for."""
    for name, given in (("mask", mask), ("other", other)):
        if given is not None:
            hint = "say which dimensions to check with boundary_check=(0, 1), and padding_option for the rest"
            raise ArgumentProblem(name, "does not go with a block pointer", hint)
    return pointers_and_mask(ctx, block, boundary_check)


def _storage(dtype: L.dtype | L.pointer_type) -> L.dtype | L.pointer_type:
    """What lies in memory: int1 takes a byte."""
    return L.int8 if dtype is L.int1 else dtype


@implements(language.load)
def load(
    ctx, pointer, mask=None, other=None, boundary_check=(), padding_option="", cache_modifier="",
    eviction_policy="", volatile=False,
):  # fmt: skip
    if isinstance(pointer, BlockPointer):
        block = pointer
        pointer, mask = _through_block_pointer(ctx, block, boundary_check, mask, other)
        fill = padding(ctx, padding_option, _storage(pointer.dtype.element_ty), block.box)
        other = None if mask is None else fill
    else:
        _only_for_block_pointers(boundary_check, padding_option)
        pointer = pointer_argument(pointer)
        if mask is None and other is not None:
            raise ArgumentProblem("other", "needs a mask: it is what masked-off elements become")
        pointer = _widened(ctx, pointer, mask, other)
    element = pointer.dtype.element_ty
    held = _storage(element)
    operands = [pointer]
    mask = mask_argument(ctx, mask, pointer.shape)
    if mask is not None:
        operands.append(mask)
        if other is not None:
            operands.append(value_argument(ctx, other, held, pointer.shape, "other"))
    loaded = ctx.op(
        M.Load,
        *operands,
        dtype=held,
        cache=arguments.choice(cache_modifier, "cache_modifier", M.LOAD_CACHE),
        eviction=arguments.choice(eviction_policy, "eviction_policy", M.EVICTION),
        volatile=arguments.static_bool(volatile, "volatile"),
    )
    return cast(ctx, loaded, element)


@implements(language.store)
def store(ctx, pointer, value, mask=None, boundary_check=(), cache_modifier="", eviction_policy=""):
    if isinstance(pointer, BlockPointer):
        pointer, mask = _through_block_pointer(ctx, pointer, boundary_check, mask)
    else:
        _only_for_block_pointers(boundary_check)
        pointer = pointer_argument(pointer)
    if pointer.dtype.const:
        raise ArgumentProblem("pointer", "is a tl.const pointer, which must not be written through")
    element = pointer.dtype.element_ty
    if element is L.int1:
        value = cast(ctx, arguments.tensor(ctx, value, "value"), L.int1)
    held = value_argument(ctx, value, _storage(element), pointer.shape, "value")
    mask = mask_argument(ctx, mask, pointer.shape)
    operands = [pointer.value, held.value] + ([] if mask is None else [mask.value])
    ctx.builder.create(
        M.Store,
        *operands,
        cache=arguments.choice(cache_modifier, "cache_modifier", M.STORE_CACHE),
        eviction=arguments.choice(eviction_policy, "eviction_policy", M.EVICTION),
    )
