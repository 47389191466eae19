"""What an argument makes of a variant, and that the warm path's keys never confuse two variants."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ptxforge.language as tl
from ptxforge import to_device
from ptxforge.runtime.jit import compile, jit
from ptxforge.runtime.options import parameters_of
from ptxforge.runtime.specialize import Keys, Parameter, packed, specialize
from ptxforge.support import dtypes
from ptxforge.support.errors import ArgumentError, CompilationError

PLAIN = Parameter("p", 0)


@pytest.mark.parametrize(
    ("value", "type_text"),
    [
        (2, "i32"), (0, "i32:16"), (16, "i32:16"), (-32, "i32:16"), (-1, "i32"), (2**31 - 1, "i32"),
        (-(2**31), "i32:16"), (2**31, "i64:16"), (2**31 + 1, "i64"), (-(2**31) - 1, "i64"),
        (2**63 - 1, "i64"), (2**63, "u64:16"),
        (2**64 - 1, "u64"), (True, "i1"), (False, "i1"), (1.0, "fp32"), (np.int64(3), "i32"),
        (np.float64(3), "fp32"), (np.bool_(True), "i1"), (ml_dtypes.bfloat16(1.5), "fp32"), (np.float16(2),
        "fp32"),
    ],
)  # fmt: skip
def test_numbers(value, type_text):
    assert specialize(PLAIN, value).type == type_text


@pytest.mark.parametrize("value", [1, None, tl.float32, tl.constexpr(1)])
def test_values_that_are_compiled_in(value):
    made = specialize(PLAIN, value)
    assert made.is_constant and made.constant == (1 if isinstance(value, tl.constexpr) else value)


@pytest.mark.parametrize(("offset", "type_text"), [(0, "*fp32:16"), (1, "*fp32"), (4, "*fp32:16")])
def test_alignment_of_arrays(offset, type_text):
    memory = np.zeros(64, np.float32)
    start = -memory.ctypes.data // 4 % 4 + offset
    assert specialize(PLAIN, memory[start:]).type == type_text


def test_jitted_functions_are_constants():
    for helper in (jit(lambda x: x), tl.constexpr_function(lambda x: x)):
        assert specialize(PLAIN, helper).constant is helper


@pytest.mark.parametrize("value", [16, 2.5, "text", (1, 2), None, tl.float16])
def test_a_constexpr_is_compiled_in_whatever_the_parameter(value):
    for parameter in (PLAIN, Parameter("p", 0, constexpr=True), Parameter("p", 0, dtype=dtypes.int32)):
        made = specialize(parameter, tl.constexpr(value))
        assert made.is_constant and made.constant == value
    keys = Keys(PLAIN)
    key, packed_value = keys[tl.constexpr](tl.constexpr(16))
    assert packed_value is None and key != keys[int](16)[0] and key == keys[tl.constexpr](tl.constexpr(16))[0]


def test_do_not_specialize():
    def kernel(a, b, c):
        pass

    a, b, c = parameters_of(kernel, do_not_specialize=["a"], do_not_specialize_on_alignment=[1])
    assert [specialize(p, 16).type for p in (a, b, c)] == ["i32", "i32", "i32:16"]
    assert [specialize(p, 1).is_constant for p in (a, b, c)] == [False, True, True]


def test_annotations():
    def kernel(a: tl.int64, b: "tl.uint8", c: tl.float16, d: tl.constexpr, e: int, f: "fp64"):  # noqa: F821
        pass

    parameters = parameters_of(kernel)
    assert [p.constexpr for p in parameters] == [False, False, False, True, False, False]
    assert [specialize(p, 3).type for p in parameters] == ["i64", "u8", "fp16", "constexpr", "i32", "fp64"]
    with pytest.raises(ArgumentError, match="argument 'b': 256 does not fit in uint8"):
        specialize(parameters[1], 256)
    with pytest.raises(ArgumentError, match="argument 'a': 2.5 is not an integer"):
        specialize(parameters[0], 2.5)


def test_the_value_1_of_annotated_integers_is_compiled_in_and_keeps_its_type(emulator):
    def kernel(out, stride: tl.int64, other: tl.int8, apart: tl.int32):
        i = tl.arange(0, 128)
        tl.static_assert(stride.dtype == tl.int64 and other.dtype == tl.int8)
        tl.store(out + i * stride, (1 << 40) * stride + other + apart)

    parameters = parameters_of(kernel, do_not_specialize=["apart"])
    assert [specialize(p, 1).type for p in parameters[1:]] == ["i64:1", "i8:1", "i32"]
    assert specialize(Parameter("p", 0, dtype=dtypes.float32), 1).type == "fp32"
    made = jit(do_not_specialize=["apart"])(kernel)
    for variants, stride, values in ((1, 1, (1, 1)), (1, 1, (1, 5)), (2, 2, (1, 1)), (2, 3, (1, 1))):
        out = to_device(np.zeros(512, np.int64), emulator)
        variant = made[(1,)](out, stride, *values, num_warps=1)
        assert len(made.variants) == variants
        assert ("st.global.v2" in variant.asm["ptx"]) == (stride == 1)
        expected = np.zeros(512, np.int64)
        expected[: 128 * stride : stride] = (1 << 40) * stride + sum(values)
        np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize("text", ["fp32:1", "*i32:1"])
def test_only_integers_are_1(text):
    def kernel(out, x):
        tl.store(out, x)

    with pytest.raises(CompilationError, match="only integers are 1"):
        compile(kernel, signature={"out": "*i32", "x": text}, constants={})


def test_bf16_and_fp8_are_packed_as_their_bits():
    assert packed(dtypes.bfloat16, 1.0) == 0x3F80
    assert packed(dtypes.float8e5, 1.0) == 0x3C
    assert packed(dtypes.float64, 3) == 3.0


_VALUES = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 2, 15, 16, 2**31 - 1, 2**31, 2**63]),
    st.booleans(),
    st.floats(allow_nan=False, width=32),
    st.none(),
    st.sampled_from(
        [tl.float32, tl.constexpr(1), tl.constexpr(2), np.int32(1), np.int32(7), np.float16(1), -0.0, 0.0]
    ),
)
_PARAMETERS = st.sampled_from(
    [
        PLAIN,
        Parameter("p", 0, alignment=False),
        Parameter("p", 0, alignment=False, ones=False),
        Parameter("p", 0, constexpr=True),
    ]
)


@given(_PARAMETERS, _VALUES, _VALUES)
def test_equal_keys_mean_equal_specialisations(parameter, one, other):
    keys = Keys(parameter)
    if keys[type(one)](one)[0] != keys[type(other)](other)[0]:
        return
    first, second = specialize(parameter, one), specialize(parameter, other)
    assert first == second and repr(first.constant) == repr(second.constant)


@given(_VALUES)
def test_packed_values_are_the_arguments(value):
    _, given_value = Keys(PLAIN)[type(value)](value)
    made = specialize(PLAIN, value)
    if not made.is_constant:
        assert given_value == (value.value if isinstance(value, tl.constexpr) else value)


@pytest.mark.parametrize("listed", ["do_not_specialize", "do_not_specialize_on_alignment"])
def test_a_constant_cannot_be_left_unspecialised(listed):
    def kernel(x, n: tl.constexpr):
        pass

    with pytest.raises(CompilationError, match="n marked as constexpr and listed in do_not_specialize"):
        parameters_of(kernel, **{listed: ["n"]})
