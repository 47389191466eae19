"""The language of kernels: what a kernel author imports as ``tl``.

    import ptxforge.language as tl

Everything here is a name with a signature, a docstring and an example; what it means inside a kernel stands
in ``ptxforge.frontend.semantics``. Names and meanings are those of Triton's language.
"""

import typing as _typing

from ptxforge.language import core, extra, math, random, standard
from ptxforge.language.core import aggregate, aggregate_replace
from ptxforge.language.arith import (
    add, cdiv, clamp, logical_and, logical_or, maximum, minimum, mul, next_power_of_2, sub, where,
)  # fmt: skip
from ptxforge.language.atomic import (
    atomic_add, atomic_and, atomic_cas, atomic_load, atomic_max, atomic_min, atomic_or, atomic_store,
    atomic_xchg, atomic_xor,
)  # fmt: skip
from ptxforge.language.descriptor import advance, make_block_ptr
from ptxforge.language.composite_types import constexpr_type, str_to_ty, tuple_type
from ptxforge.language.constexpr import constexpr
from ptxforge.language.core import (
    arange, assume, cast, condition, debug_barrier, expect_zero, full, max_constancy, max_contiguous,
    multiple_of, num_programs, program_id, range, static_range, to_tensor, zeros, zeros_like,
)  # fmt: skip
from ptxforge.language.core import device_assert, device_print, static_assert, static_print
from ptxforge.language.descriptor import (
    load_tensor_descriptor, make_tensor_descriptor, store_tensor_descriptor, tensor_descriptor,
    tensor_descriptor_base, tensor_descriptor_type,
)  # fmt: skip
from ptxforge.language.dot_product import dot, dot_scaled
from ptxforge.language.instructions import inline_asm_elementwise
from ptxforge.language.math import (
    abs, ceil, cos, div_rn, erf, exp, exp2, fdiv, floor, fma, log, log2, rsqrt, sin, sqrt, sqrt_rn, umulhi,
)  # fmt: skip
from ptxforge.language.memory import load, store
from ptxforge.language.random import (
    pair_uniform_to_normal, philox, philox_impl, rand, rand4x, randint, randint4x, randn, randn4x,
    uint_to_uniform_float,
)  # fmt: skip
from ptxforge.language.reduction import (
    argmax, argmin, associative_scan, cumprod, cumsum, max, min, reduce, reduce_or, sum, xor_sum,
)  # fmt: skip
from ptxforge.language.registry import constexpr_function
from ptxforge.language.shape import (
    broadcast, broadcast_to, cat, expand_dims, flip, gather, histogram, interleave, join, map_elementwise,
    permute, ravel, reshape, split, squeeze, trans, unsqueeze, view,
)  # fmt: skip
from ptxforge.language.standard import atomic_poll, bitonic_merge, sigmoid, softmax, sort, swizzle2d, topk
from ptxforge.language.types import (
    PropagateNan, bfloat16, block_type, const, dtype, float8e4b8, float8e4b15, float8e4nv, float8e5,
    float8e5b16, float16, float32, float64, int1, int8, int16, int32, int64, pi32_t, pointer_type, tensor,
    uint8, uint16, uint32, uint64, void,
)  # fmt: skip
from ptxforge.support.not_there import reason as _reason

TRITON_MAX_TENSOR_NUMEL = 1 << 20
"""The largest number of elements of a block."""

tuple = tuple
"""Tuples in kernels are Python's."""

__all__ = [
    "PropagateNan", "TRITON_MAX_TENSOR_NUMEL", "abs", "add", "advance", "aggregate", "aggregate_replace",
    "arange", "argmax", "argmin", "associative_scan", "assume", "atomic_add", "atomic_and", "atomic_cas",
    "atomic_load", "atomic_max", "atomic_min", "atomic_or", "atomic_poll", "atomic_store", "atomic_xchg",
    "atomic_xor", "bfloat16", "bitonic_merge", "block_type", "broadcast", "broadcast_to", "cast", "cat",
    "cdiv", "ceil", "clamp", "condition", "const", "constexpr", "constexpr_function", "constexpr_type",
    "core", "cos", "cumprod", "cumsum", "debug_barrier", "device_assert", "device_print", "div_rn", "dot",
    "dot_scaled", "dtype", "erf", "exp", "exp2", "expand_dims", "expect_zero", "extra", "fdiv", "flip",
    "float16", "float32", "float64", "float8e4b15", "float8e4b8", "float8e4nv", "float8e5", "float8e5b16",
    "floor", "fma", "full", "gather", "histogram", "inline_asm_elementwise", "int1", "int16", "int32",
    "int64", "int8", "interleave", "join", "load", "load_tensor_descriptor", "log", "log2", "logical_and",
    "logical_or", "make_block_ptr", "make_tensor_descriptor", "map_elementwise", "math", "max",
    "max_constancy", "max_contiguous", "maximum", "min", "minimum", "mul", "multiple_of", "next_power_of_2",
    "num_programs", "pair_uniform_to_normal", "permute", "philox", "philox_impl", "pi32_t", "pointer_type",
    "program_id", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "random", "range", "ravel",
    "reduce", "reduce_or", "reshape", "rsqrt", "sigmoid", "sin", "softmax", "sort", "split", "sqrt",
    "sqrt_rn", "squeeze", "standard", "static_assert", "static_print", "static_range", "store",
    "store_tensor_descriptor", "str_to_ty", "sub", "sum", "swizzle2d", "tensor", "tensor_descriptor",
    "tensor_descriptor_base", "tensor_descriptor_type", "to_tensor", "topk", "trans", "tuple", "tuple_type",
    "uint16", "uint32", "uint64", "uint8", "uint_to_uniform_float", "umulhi", "unsqueeze", "view", "void",
    "where", "xor_sum", "zeros", "zeros_like",
]  # fmt: skip
"""Every name above: to a type checker, what a typed package imports without listing it is not public."""

if not _typing.TYPE_CHECKING:  # else every name would be right to a type checker

    def __getattr__(name: str) -> None:
        """Say why a name that people look for is not there. Raises ``AttributeError``."""
        known = _reason(f"tl.{name}") or _reason(name)
        why = f" ({known})" if known else ""
        raise AttributeError(f"module 'ptxforge.language' has no attribute '{name}'{why}")
