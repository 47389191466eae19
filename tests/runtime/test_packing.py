"""The parameter buffer against ctypes, which lays a C structure out by the same rule."""

from __future__ import annotations

import ctypes
import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxforge.runtime import arithmetic, slots
from ptxforge.runtime.slots import layout
from ptxforge.support.errors import ArgumentError

_C = {
    "i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32:16": ctypes.c_int32,
    "i64": ctypes.c_int64, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32,
    "u64:16": ctypes.c_uint64,
    "fp32": ctypes.c_float, "fp64": ctypes.c_double, "*fp16:16": ctypes.c_uint64, "*i1": ctypes.c_uint64,
}  # fmt: skip


@given(st.lists(st.sampled_from(sorted(_C)), max_size=12), st.randoms())
def test_the_layout_is_that_of_a_c_structure(types, random):
    structure = type("S", (ctypes.Structure,), {"_fields_": [(f"f{i}", _C[t]) for i, t in enumerate(types)]})
    values = [random.randrange(2) if t == "i1" else random.randrange(100) for t in types]
    expected = bytes(structure(*values))
    actual = layout(types).pack(*values)
    assert expected.startswith(actual) and not expected[len(actual) :].strip(b"\0")


def test_a_type_that_is_none():
    with pytest.raises(ArgumentError, match="'fp33' is not a type of a kernel's parameter"):
        layout(["fp33"])


@pytest.mark.parametrize("module", [slots, arithmetic])
def test_examples(module):
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
