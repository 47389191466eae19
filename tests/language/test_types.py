"""Names of types: attributes of dtype, compile-time types, types by name, and types that no value has."""

from __future__ import annotations

import collections

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import CompilationError

Pair = collections.namedtuple("Pair", "x y")
FOREIGN = (tl.float8e4b8, tl.float8e5b16)


def test_lists_of_names():
    assert tl.dtype.SINT_TYPES == ["int8", "int16", "int32", "int64"]
    assert tl.dtype.UINT_TYPES == ["int1", "uint8", "uint16", "uint32", "uint64"]
    assert tl.dtype.STANDARD_FP_TYPES == ["fp16", "bf16", "fp32", "fp64"]
    assert {"fp8e4nv", "fp8e5", "fp8e4b8", "fp8e4b15", "fp8e5b16", "fp32"} < set(tl.dtype.FP_TYPES)
    assert tl.dtype.is_dtype("uint8") and tl.dtype.is_dtype("void") and not tl.dtype.is_dtype("i8")
    for name in (*tl.dtype.SINT_TYPES, *tl.dtype.UINT_TYPES, *tl.dtype.FP_TYPES, *tl.dtype.OTHER_TYPES):
        assert tl.dtype(name).name == name


def test_numpy_knows_the_names_of_integers():
    for name in (*tl.dtype.SINT_TYPES, *tl.dtype.UINT_TYPES[1:]):
        assert getattr(np, name)().itemsize == tl.dtype(name).itemsize


def test_kinds_are_ordered():
    kinds = [t.kind() for t in (tl.int1, tl.uint8, tl.float16)]
    assert kinds == sorted(kinds) == [tl.dtype.KIND.BOOLEAN, tl.dtype.KIND.INTEGRAL, tl.dtype.KIND.FLOATING]
    assert tl.int32.int_signedness is tl.dtype.SIGNEDNESS.SIGNED
    assert tl.uint32.int_signedness is tl.dtype.SIGNEDNESS.UNSIGNED


@pytest.mark.parametrize(
    ("name", "bias"), [("float16", 15), ("bfloat16", 127), ("float32", 127), ("float64", 1023),
                       ("float8e4nv", 7), ("float8e5", 15), ("float8e4b15", 15), ("float8e4b8", 8),
                       ("float8e5b16", 16)],
)  # fmt: skip
def test_biases(name, bias):
    assert getattr(tl, name).exponent_bias == bias


def test_types_by_name():
    assert tl.str_to_ty("i32") is tl.int32 and tl.str_to_ty("fp16:16") is tl.float16
    assert tl.str_to_ty("*kfp32") == tl.pointer_type(tl.float32, const=True)
    pointers = tl.str_to_ty("*fp32"), tl.str_to_ty("*kfp32")
    assert [*map(repr, pointers)] == ["pointer<fp32>", "const_pointer<fp32>"]
    assert tl.str_to_ty("B") is tl.int1 and tl.str_to_ty("*B") == tl.pointer_type(tl.int1)
    boxes = tl.str_to_ty("tensordesc<fp16[32, 64]>")
    assert boxes == tl.tensor_descriptor_type(tl.block_type(tl.float16, [32, 64]))
    assert tl.str_to_ty("tensordesc<fp16[32,64]>:16") == boxes != tl.str_to_ty("tensordesc<fp16[32,64],nan>")
    assert tl.str_to_ty("**i8") == tl.pointer_type(tl.pointer_type(tl.int8))
    assert tl.str_to_ty("constexpr", 3) == tl.constexpr_type(3) != tl.constexpr_type(3.0)
    pair = tl.str_to_ty(Pair("i32", "constexpr"), Pair(None, 5))
    assert pair == tl.tuple_type([tl.int32, tl.constexpr_type(5)], ("x", "y"))
    assert len(pair) == 2 and pair[0] is tl.int32
    with pytest.raises(TypeError, match="'i7' is not the name of an element type"):
        tl.str_to_ty("i7")
    with pytest.raises(TypeError, match="is not the type of a tensor descriptor"):
        tl.str_to_ty("tensordesc<fp16>")


@ptxforge.jit
def introspect(out, N: tl.constexpr):
    tl.static_assert(N.type == tl.constexpr_type(4))
    tl.static_assert((out, N).type == tl.tuple_type([tl.pointer_type(tl.int32), tl.constexpr_type(4)]))
    tl.static_assert((5, N).type == tl.constexpr_type((5, 4)))
    tl.static_assert((5, N).type != tl.constexpr_type((5, 5)))
    tl.static_assert(out.dtype.element_ty != tl.float8e4b8)
    tl.static_assert(not out.dtype.element_ty.is_fp8e4b15())
    tl.static_assert(out.dtype.element_ty.kind() == tl.dtype.KIND.INTEGRAL)
    tl.store(out, N)


def test_types_in_a_kernel(execute):
    for (out,) in execute(introspect, (1,), [np.zeros(1, np.int32)], {"N": 4}, outputs=[0]):
        assert out[0] == 4


@ptxforge.jit
def narrow(out, T: tl.constexpr):
    tl.store(out, tl.load(out).to(T).to(tl.float32))


@pytest.mark.parametrize("dtype", FOREIGN, ids=str)
def test_types_that_no_value_has(dtype):
    """They can be asked, compared and passed; a value of them is an error with the kernel's line."""
    assert dtype.is_fp8() and dtype.is_floating() and dtype.primitive_bitwidth == 8
    assert [t for t in FOREIGN if t == dtype] == [dtype]
    with pytest.raises(CompilationError, match=f"no value can be {dtype!r}".replace("tl.", "")) as caught:
        narrow.compile({"out": "*fp32"}, {"T": dtype}, target="sm_90a")
    assert "tl.load(out).to(T)" in str(caught.value)
    with pytest.raises(CompilationError, match="no value can be"):
        narrow.compile({"out": f"*{dtype}"}, {"T": tl.float32}, target="sm_90a")
