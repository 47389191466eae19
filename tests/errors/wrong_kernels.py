"""Kernels that must not compile: each shows one mistake. ``golden/NAME.txt`` holds the text of its error.

``@wrong(signature…, constants…)``: strings are types of a signature, anything else is a constant.
"""
# ruff: noqa: F841, B018, E731

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ptxforge.language as tl
from ptxforge.language.registry import library as jit

WRONG: dict[str, tuple[Callable, dict[str, str], dict[str, Any]]] = {}
BLOCK_SIZE = 128


def wrong(**parameters: Any) -> Callable[[Callable], Callable]:
    """Register a wrong kernel."""

    def register(fn: Callable) -> Callable:
        signature = {name: value for name, value in parameters.items() if isinstance(value, str)}
        constants = {name: value for name, value in parameters.items() if not isinstance(value, str)}
        WRONG[fn.__name__] = (fn, signature, constants)
        return fn

    return register


# -- syntax ------------------------------------------------------------------------------------------------


@wrong(out="*i32", n="i32")
def loop_with_else(out, n):
    for i in range(n):
        tl.store(out, i)
    else:
        tl.store(out, n)


@wrong(out="*i32", n="i32")
def generator(out, n):
    for i in (x for x in (1, 2)):
        tl.store(out, i)


@wrong(out="*i32", n="i32")
def kernel_with_a_result_in_a_loop(out, n):
    for i in range(n):
        if tl.load(out + i) == 0:
            return i


@wrong(out="*i32")
def try_statement(out):
    try:
        tl.store(out, 1)
    except ValueError:
        pass


@wrong(out="*i32")
def decorated_nested_function(out):
    @jit
    def helper(x): return x  # noqa: E704

    tl.store(out, helper(1))


@wrong(out="*i32")
def recursive_lambda(out):
    f = lambda x: f(x + 1)
    tl.store(out, f(1))


@wrong(out="*i32")
def dictionary(out):
    table = {"a": 1}
    tl.store(out, table["a"])


@wrong(out="*fp32")
def element_assignment(out):
    x = tl.zeros([16], tl.float32)
    x[0] = 1.0
    tl.store(out + tl.arange(0, 16), x)


@wrong(x="*fp32", n="i32")
def element_access(x, n):
    block = tl.load(x + tl.arange(0, 16))
    tl.store(x, block[n])


@wrong(out="*i32", n="i32")
def endless_loop(out, n):
    while True:
        n += 1


@wrong(out="*i32", n="i32")
def loop_over_block(out, n):
    for i in tl.arange(0, 8):
        tl.store(out + i, i)


@wrong(x="*fp32", y="*fp32")
def matmul_operator(x, y):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(x + i, tl.load(x + i) @ tl.load(y + i))


# -- names -------------------------------------------------------------------------------------------------


@wrong(out="*i32")
def undefined_name(out):
    tl.store(out, blokc)  # noqa: F821


@wrong(out="*i32")
def plain_global(out):
    tl.store(out + tl.arange(0, BLOCK_SIZE), 1)


def plain_function(x):
    return x + 1


@wrong(out="*i32", n="i32")
def call_of_plain_function(out, n):
    tl.store(out, plain_function(n))


@wrong(out="*i32")
def unknown_function(out):
    tl.store(out, tl.laod(out))


@wrong(out="*i32")
def unknown_option(out):
    x = tl.load(out, cache="ca")


@wrong(out="*i32", n="i32")
def defined_in_one_branch(out, n):
    if n > 0:
        value = n * 2
    tl.store(out, value)


@wrong(out="*i32", n="i32")
def defined_in_loop(out, n):
    for i in range(n):
        last = i
    tl.store(out, last)


@wrong(out="*i32", n="i32")
def missing_constexpr(out, n, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), n)


# -- compile-time values -----------------------------------------------------------------------------------


@wrong(out="*i32")
def range_not_power_of_two(out):
    offsets = tl.arange(0, 100)
    tl.store(out + offsets, offsets)


@wrong(out="*i32", n="i32")
def range_at_run_time(out, n):
    offsets = tl.arange(0, n)
    tl.store(out + offsets, offsets)


@wrong(out="*i32")
def local_number_is_no_constant(out):
    BLOCK = 128
    tl.store(out + tl.arange(0, BLOCK), 0)


@wrong(out="*fp32")
def shape_not_power_of_two(out):
    acc = tl.zeros([16, 3 * 16], dtype=tl.float32)


@wrong(out="*fp32")
def block_too_large(out):
    acc = tl.zeros([2048, 1024], dtype=tl.float32)


@wrong(out="*i32", n="i32")
def static_assertion_at_run_time(out, n):
    tl.static_assert(n > 2)


@wrong(out="*i32", BLOCK=24)
def failing_static_assert(out, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 16 == 0, f"BLOCK must be a multiple of 16, is {BLOCK}")


@wrong(out="*i32", N=0)
def division_by_zero_constant(out, N: tl.constexpr):
    tl.store(out, 128 // N)


@wrong(out="*i32")
def integer_literal_overflow(out):
    tl.store(out, 1 << 64)


@wrong(out="*i32", n="i32")
def number_out_of_range(out, n):
    tl.store(out, n.to(tl.int8) + 300)


# -- types and shapes --------------------------------------------------------------------------------------


@wrong(x="*fp32", y="*fp32")
def shapes_do_not_broadcast(x, y):
    a = tl.load(x + tl.arange(0, 64))
    b = tl.load(y + tl.arange(0, 32))
    tl.store(x + tl.arange(0, 64), a + b)


@wrong(x="*fp32", n="i32")
def mask_does_not_broadcast(x, n):
    a = tl.load(x + tl.arange(0, 64), mask=tl.arange(0, 32) < n)


@wrong(x="*fp32", n="i32")
def block_mask_for_scalar_pointer(x, n):
    a = tl.load(x, mask=tl.arange(0, 32) < n)


@wrong(x="*fp32")
def other_without_mask(x):
    a = tl.load(x + tl.arange(0, 64), other=0.0)


@wrong(x="*fp32", n="i32")
def load_of_an_integer(x, n):
    a = tl.load(n + tl.arange(0, 64))


@wrong(x="*fp32")
def wrong_eviction_policy(x):
    a = tl.load(x, eviction_policy="evict_never")


@wrong(x="*kfp32")
def store_through_const(x):
    tl.store(x, 1.0)


@wrong(out="*i32", n="i32", m="u32")
def mixed_signs_divided(out, n, m):
    tl.store(out, n // m)


@wrong(out="*i32", x="fp32")
def bits_of_floats(out, x):
    tl.store(out, x & 1)


@wrong(out="*fp32", n="i32")
def float_offset(out, n):
    tl.store(out + n / 2, 1.0)


@wrong(x="*fp16")
def exponential_of_half(x):
    a = tl.load(x + tl.arange(0, 64))
    tl.store(x + tl.arange(0, 64), tl.exp(a))


@wrong(out="*fp32", n="i32")
def loop_changes_a_type(out, n):
    acc = 0
    for i in range(n):
        acc += tl.load(out + i)
    tl.store(out, acc)


@wrong(out="*fp32", n="i32")
def loop_changes_a_shape(out, n):
    acc = 0.0
    for i in range(n):
        acc = acc + tl.load(out + tl.arange(0, 16))
    tl.store(out + tl.arange(0, 16), acc)


@wrong(out="*fp32", n="i32")
def branches_of_two_types(out, n):
    if n > 0:
        x = 1.5
    else:
        x = n
    tl.store(out, x)


@jit
def returns_two_types(n):
    if n > 0:
        return 1.5
    return n


@wrong(out="*fp32", n="i32")
def returned_types_differ(out, n):
    tl.store(out, returns_two_types(n))


@wrong(out="*i32")
def block_as_condition(out):
    i = tl.arange(0, 16)
    if i < 8:
        tl.store(out, 1)


@wrong(out="*fp32", n="fp32")
def float_loop_bound(out, n):
    for i in range(n):
        tl.store(out, 1.0)


@wrong(a="*fp16", b="*fp16")
def dot_reduction_sizes(a, b):
    x = tl.load(a + tl.arange(0, 16)[:, None] * 32 + tl.arange(0, 32)[None, :])
    y = tl.load(b + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :])
    c = tl.dot(x, y)


@wrong(a="*fp16", b="*fp32")
def dot_of_two_types(a, b):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    c = tl.dot(tl.load(a + i), tl.load(b + i))


@wrong(a="*bf16")
def dot_accumulates_in_bfloat16(a):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    c = tl.dot(tl.load(a + i), tl.load(a + i), out_dtype=tl.bfloat16)


@wrong(x="*fp32")
def reshape_to_another_size(x):
    a = tl.load(x + tl.arange(0, 64)).reshape(4, 8)


@wrong(x="*fp32")
def axis_out_of_range(x):
    a = tl.sum(tl.load(x + tl.arange(0, 64)), axis=1)


@wrong(x="*fp32", n="i32")
def unpacked_into_too_few(x, n):
    a, b = (n, n, n)


@wrong(x="*i16")
def atomic_of_a_short(x):
    tl.atomic_add(x, 1)


@wrong(x="*i32")
def wrong_atomic_order(x):
    tl.atomic_add(x, 1, sem="sequential")


@wrong(x="*fp32", n="i32")
def cast_to_a_name(x, n):
    tl.store(x, n.to("float"))


@wrong(x="*fp64")
def bitcast_of_two_widths(x):
    tl.store(x, tl.load(x).to(tl.int32, bitcast=True))


@jit
def innermost(x):
    return x + tl.arange(0, 12)


@jit
def through(x):
    return innermost(x) * 2


@wrong(x="*i32", n="i32")
def mistake_in_an_inlined_function(x, n):
    tl.store(x, through(n))


@jit
def endless(n):
    return endless(n - 1)


@wrong(x="*i32", n="i32")
def recursion(x, n):
    tl.store(x, endless(n))


@wrong(x="*i32", n="i32")
def kernel_with_a_result(x, n):
    return n + 1


@wrong(x="*i32", n="i32")
def wide_characters(x, n):
    变量 = "文字"
    tl.store(x, n + 变量)


@wrong(a="*fp8e4nv", s="*u8")
def scaled_dot_of_an_unknown_format(a, s):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    scale = tl.load(s + i)
    c = tl.dot_scaled(x, scale, "e3m2", x, scale, "e4m3")


@wrong(a="*fp8e4nv", s="*u8")
def scaled_dot_of_another_type(a, s):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    scale = tl.load(s + i)
    c = tl.dot_scaled(x, scale, "e4m3", x, scale, "e2m1")


@wrong(a="*fp8e4nv", s="*u8")
def scaled_dot_with_the_scale_transposed(a, s):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 128)[None, :]
    x = tl.load(a + i * 128 + j)
    y = tl.load(a + tl.arange(0, 128)[:, None] * 16 + tl.arange(0, 16)[None, :])
    scale = tl.load(s + i * 4 + tl.arange(0, 4)[None, :])
    transposed = tl.load(s + tl.arange(0, 4)[:, None] * 16 + tl.arange(0, 16)[None, :])
    c = tl.dot_scaled(x, scale, "e4m3", y, transposed, "e4m3")


@wrong(a="*fp8e4nv", s="*fp32")
def scaled_dot_with_a_float_scale(a, s):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    c = tl.dot_scaled(x, tl.load(s + i), "e4m3", x, None, "e4m3")


@wrong(a="*u8", b="*fp8e4nv", s="*u8")
def scaled_dot_reduction_sizes(a, b, s):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    y = tl.load(b + i * 32 + j)
    c = tl.dot_scaled(x, None, "e2m1", y, None, "e4m3")


@wrong(a="*fp8e4nv")
def scaled_dot_packed_along_m(a):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    c = tl.dot_scaled(x, None, "e4m3", x, None, "e4m3", lhs_k_pack=False)


@wrong(a="*fp8e4nv", s="*u8")
def scaled_dot_too_short_for_a_scale(a, s):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 8)[None, :]
    x = tl.load(a + i * 8 + j)
    c = tl.dot_scaled(x, tl.load(s + i), "e4m3", tl.trans(x), None, "e4m3")


@wrong(a="*fp8e4nv")
def scaled_dot_into_float16(a):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    c = tl.dot_scaled(x, None, "e4m3", x, None, "e4m3", out_dtype=tl.float16)


@wrong(a="*fp8e4nv")
def scaled_dot_onto_another_shape(a):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    c = tl.dot_scaled(x, None, "e4m3", x, None, "e4m3", acc=tl.zeros([32, 16], tl.float32))


@wrong(a="*fp8e4nv")
def scaled_dot_of_batches(a):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    c = tl.dot_scaled(x[None, :, :], None, "e4m3", x, None, "e4m3")


@wrong(x="*i32", n="i32")
def integer_quotient_by_zero(x, n):
    tl.store(x, n // 0)


@wrong(x="*i32", n="i32")
def integer_remainder_by_zero(x, n):
    tl.store(x, n % 0)


@wrong(x="*i64", n="i32")
def shift_by_more_than_all_bits(x, n):
    high = n << 32
    tl.store(x, high)


@wrong(x="*fp32")
def minimum_of_a_block_by_name_alone(x):
    i = tl.arange(0, 16)
    tl.store(x, min(tl.load(x + i)))


# -- block pointers ----------------------------------------------------------------------------------------


@wrong(x="*fp32", n="i32")
def block_pointer_to_a_block_of_pointers(x, n):
    tl.make_block_ptr(x + tl.arange(0, 16), (n,), (1,), (0,), (16,), (0,))


@wrong(x="*fp32", n="i32")
def block_pointer_of_two_ranks(x, n):
    tl.make_block_ptr(x, (n, n), (n,), (0, 0), (16, 16), (1, 0))


@wrong(x="*fp32", n="i32")
def block_pointer_with_a_float_offset(x, n):
    tl.make_block_ptr(x, (n,), (1,), (n / 2,), (16,), (0,))


@wrong(x="*fp32", n="i32")
def block_pointer_order_that_is_none(x, n):
    tl.make_block_ptr(x, (n, n), (n, 1), (0, 0), (16, 16), (1, 1))


@wrong(x="*fp32", n="i32")
def block_pointer_with_a_mask(x, n):
    tile = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))
    tl.load(tile, mask=tl.arange(0, 16) < n)


@wrong(x="*i32", n="i32")
def block_pointer_with_nan_integers(x, n):
    tile = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))
    tl.load(tile, boundary_check=(0,), padding_option="nan")


@wrong(x="*i32", n="i32")
def boundary_check_of_a_dimension_too_many(x, n):
    tile = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))
    tl.load(tile, boundary_check=(0, 1))


@wrong(x="*i32", n="i32")
def boundary_check_of_plain_pointers(x, n):
    tl.load(x + tl.arange(0, 16), boundary_check=(0,))


@wrong(x="*i32", n="i32")
def advance_of_a_plain_pointer(x, n):
    tl.advance(x, (16,))


@wrong(x="*i32", n="i32")
def advance_along_too_many_dimensions(x, n):
    tl.advance(tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,)), (16, 0))


@wrong(x="*i32", n="i32")
def block_pointer_changes_in_a_loop(x, n):
    tile = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))
    for i in range(n):
        tile = tl.make_block_ptr(x, (n,), (1,), (0,), (32,), (0,))


@wrong(x="*i32", y="*i64", n="i32")
def block_pointers_of_two_types(x, y, n):
    if n > 3:
        tile = tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))
    else:
        tile = tl.make_block_ptr(y, (n,), (1,), (0,), (16,), (0,))
    tl.load(tile)


@wrong(x="*i32", n="i32")
def block_pointer_indexed(x, n):
    tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,))[0]


@wrong(x="*i32", n="i32")
def block_pointers_shape(x, n):
    tl.make_block_ptr(x, (n,), (1,), (0,), (16,), (0,)).shape


# -- tensor descriptors ------------------------------------------------------------------------------------


@wrong(x="fp32", n="i32")
def descriptor_of_a_number(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16])


@wrong(x="*fp32", n="i32")
def descriptor_of_two_ranks(x, n):
    tl.make_tensor_descriptor(x, [n, n, n], [n, 1], [16, 16])


@wrong(x="*fp32", n="i32")
def descriptor_of_six_dimensions(x, n):
    tl.make_tensor_descriptor(x, [n, n, n, n, n, n], [n, n, n, n, n, 1], [1, 1, 1, 1, 1, 16])


@wrong(x="*fp32", n="i32")
def descriptor_with_a_last_stride_of_two(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 2], [16, 16])


@wrong(x="*fp32", n="i32")
def descriptor_with_a_last_stride_of_run_time(x, n):
    tl.make_tensor_descriptor(x, [n, n], [1, n], [16, 16])


@wrong(x="*fp16", n="i32")
def descriptor_with_a_narrow_stride(x, n):
    tl.make_tensor_descriptor(x, [n, n], [12, 1], [16, 16])


@wrong(x="*fp16", n="i32")
def descriptor_of_large_boxes(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [2048, 1024])


@wrong(x="*fp16", n="i32")
def descriptor_of_narrow_boxes(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 4])


@wrong(x="*i32", n="i32")
def descriptor_of_integers_with_nan(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16], padding_option="nan")


@wrong(x="*i32", n="i32")
def descriptor_with_an_unknown_padding(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16], "wrap")


@wrong(x="*i32", n="i32")
def descriptor_load_with_one_offset(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16]).load([n])


@wrong(x="*i32", n="i32")
def descriptor_store_of_another_shape(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16]).store([0, 0], tl.zeros([16, 32], tl.int32))


@wrong(x="*fp32", n="i32")
def descriptor_maximum_of_floats(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16]).atomic_max([0, 0], 1.0)


@wrong(x="*fp32", n="i32")
def descriptor_gather_of_large_boxes(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16]).gather(tl.arange(0, 16), 0)


@wrong(x="*fp32", n="i32")
def descriptor_gather_of_few_rows(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [1, 16]).gather(tl.arange(0, 4), 0)


@wrong(x="*fp32", n="i32")
def descriptor_without_such_a_method(x, n):
    tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16]).laod([0, 0])


@wrong(x="*fp32", n="i32")
def load_of_a_descriptor(x, n):
    tl.load(tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16]))


@wrong(x="*fp32", n="i32")
def descriptor_changes_in_a_loop(x, n):
    d = tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 16])
    for i in range(n):
        d = tl.make_tensor_descriptor(x, [n, n], [n, 1], [16, 32])
