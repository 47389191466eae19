"""The language outside of kernels: types, constants, documentation."""

from __future__ import annotations

import doctest
import inspect
import pickle

import pytest

import ptxforge.language as tl
from ptxforge.language import constexpr as constexpr_module
from ptxforge.language import types
from ptxforge.language.registry import is_builtin
from ptxforge.support import dtypes
from ptxforge.support.errors import PtxforgeError


def test_stubs_raise_outside_of_kernels():
    with pytest.raises(PtxforgeError, match=r"tl.load\(\) has a meaning only inside a kernel"):
        tl.load(None)
    with pytest.raises(PtxforgeError, match=r"tl.softmax\(\) has a meaning only inside a kernel"):
        tl.softmax(None)
    with pytest.raises(TypeError, match="stands only in the 'for'"):
        tl.range(3)


def test_stubs_have_no_code():
    assert is_builtin(tl.load) and inspect.signature(tl.load).parameters["eviction_policy"].default == ""


def test_doctests():
    for module in (types, inspect.getmodule(constexpr_module)):
        result = doctest.testmod(module)
        assert result.failed == 0 and result.attempted > 0


# -- element types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", dtypes.ALL, ids=lambda base: base.name)
def test_every_element_type_is_public(base):
    dtype = getattr(tl, base.name)
    assert dtype is tl.dtype(base.short) is tl.dtype(base.name)
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    name = base.short if base.is_float else base.name  # Triton's
    assert (str(dtype), dtype.name, dtype.itemsize) == (name, name, base.bytes)
    questions = [name for name in dir(dtype) if name.startswith("is_") and name != "is_dtype"]
    assert all(isinstance(getattr(dtype, question)(), bool) for question in questions)


@pytest.mark.parametrize("base", dtypes.ALL, ids=lambda base: base.name)
def test_one_question_is_for_this_type(base):
    short = {
        "float8e4nv": "fp8e4nv", "float8e5": "fp8e5", "float16": "fp16", "bfloat16": "bf16",
        "float32": "fp32", "float64": "fp64",
    }.get(base.name, base.name)  # fmt: skip
    askers = [d for d in dtypes.ALL if getattr(tl.dtype(d.name), f"is_{short}")()]
    assert askers == [base]


def test_ranges():
    assert (tl.int8.get_int_min_value(), tl.int8.get_int_max_value()) == (-128, 127)
    assert (tl.uint8.get_int_min_value(), tl.uint8.get_int_max_value()) == (0, 255)


def test_pointer_and_block_types():
    pointer = tl.pointer_type(tl.float16)
    assert pointer == tl.pointer_type(tl.float16) != tl.pointer_type(tl.float16, const=True)
    assert pointer.is_ptr() and not pointer.is_const() and pointer.primitive_bitwidth == 64
    block = tl.block_type(pointer, [4, 8])
    assert block.is_block() and block.scalar is pointer and block.numel == 32 and block.shape == (4, 8)
    assert block == tl.block_type(pointer, (4, 8)) and block.scalar.const is False
    assert block.nbytes == 256 and block.with_element_ty(tl.int8) == tl.block_type(tl.int8, (4, 8))


def test_questions_about_elements_are_the_elements():
    """Of the type of a block and of a pointer none is true, as in Triton: a kernel asks ``x.dtype``."""
    questions = [name for name in dir(tl.dtype) if name.startswith("is_") and name != "is_dtype"]
    for composite, true in ((tl.block_type(tl.int8, (4,)), "is_block"), (tl.pointer_type(tl.int8), "is_ptr")):
        assert [name for name in questions if getattr(composite, name)()] == [true]
        assert composite.name == composite.codegen_name() == composite.cache_key_part == repr(composite)
    assert [tl.int32.mangle(), tl.pointer_type(tl.float16).mangle()] == ["i32", "Pfp16"]
    assert tl.block_type(tl.float16, (16, 2)).mangle() == "fp16S16_2S"
    with pytest.raises(TypeError, match="points at an element type"):
        tl.pointer_type(3)
    with pytest.raises(TypeError, match="not the name of an element type"):
        tl.dtype("fp33")


# -- constants ---------------------------------------------------------------------------------------------


def test_constexpr_arithmetic():
    x = tl.constexpr(7)
    assert (x + 1).value == 8 and (1 - x).value == -6 and (x // 2).value == 3 and (x**2).value == 49
    assert (x == 7) and not (x != tl.constexpr(7)) and (x > 3) and (-x).value == -7 and (~x).value == -8
    assert int(x) == 7 and float(x) == 7.0 and list(range(x))[-1] == 6 and hash(x) == hash(7)
    assert tl.constexpr(x).value == 7 and tl.constexpr((1, 2))[1].value == 2
    assert x.bit_length() == 3 and tl.constexpr(len)([1, 2]) == 2
    assert x.logical_and(0).value == 0 and x.logical_or(0).value == 7 and bool(tl.constexpr(0)) is False


def test_constexpr_functions_run_on_the_host():
    @tl.constexpr_function
    def double(x):
        return 2 * x

    assert double(4) == 8
