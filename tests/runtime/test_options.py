"""Options of a launch: what equals a value that an option has means that value, for a new kernel and for one
that was launched before; anything else is refused by the option's name."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import compiler
from ptxforge.runtime import options
from ptxforge.support.errors import ArgumentError

NUMBERS = {"num_warps": 4, "num_stages": 2, "num_ctas": 1, "maxnreg": 64, "stream": 7}
SWITCHES = (*(name for name, value in compiler.OPTIONS.items() if isinstance(value, bool)), *options.SWITCHES)
AS_NUMBERS = [float, np.int64, np.uint8, np.float32, complex]


def test_every_option_is_tested():
    assert {*NUMBERS, *SWITCHES, *options.REFUSED, *options.FIXED} == {*options.names()}


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("kind", AS_NUMBERS)
@pytest.mark.parametrize(("name", "value"), NUMBERS.items())
def test_a_number_of_any_type(kernel, compiled, arrays, name, value, kind, is_warm):
    for _ in range(4 * is_warm):
        kernel[(8,)](*arrays, 1000, **{name: value})
    kernel[(8,)](*arrays, 1000, **{name: kind(value)})
    assert len(compiled) == 1
    used = compiled[0]["options"].get(name, value)
    assert used == value and type(used) is int


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_number_in_an_array_that_changes(kernel, compiled, arrays, is_warm):
    """What an array without dimensions holds at the launch counts, whatever it held before."""
    number = np.array(4)
    for _ in range(4 * is_warm):
        kernel[(8,)](*arrays, 1000, num_warps=4)
    for warps in (4, 4, 4, 8, 8, 4):
        number[...] = warps
        variant = kernel[(np.array(8),)](*arrays, 1000, num_warps=number, num_stages=np.array(2))
        assert variant.artifact.num_warps == warps
    assert [used["options"]["num_warps"] for used in compiled[is_warm:]] == [4, 8]
    with pytest.raises(ArgumentError, match="'num_warps': must be an integer, is array"):
        kernel[(8,)](*arrays, 1000, num_warps=np.array([4]))


def test_an_array_as_an_option_ahead_of_a_launch():
    four = np.array(4)
    assert ptxforge.Config({}, num_warps=four).num_warps == 4
    assert ptxforge.compile(add, signature={"x": "*fp32"}, constants={}, num_warps=four).num_warps == 4


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("kind", [bool, int, float, np.bool_, np.int32])
@pytest.mark.parametrize("name", sorted({*SWITCHES} - {"warmup"}))
def test_a_switch_of_any_type(kernel, compiled, arrays, name, kind, is_warm):
    for _ in range(4 * is_warm):
        kernel[(8,)](*arrays, 1000, **{name: False})
    kernel[(8,)](*arrays, 1000, **{name: kind(0)})
    assert len(compiled) == 1 and compiled[0]["options"].get(name, False) is False


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("value", ["4", "no", 4.5, [4], {}, float("nan"), np.array([1, 2]), object], ids=repr)
@pytest.mark.parametrize("name", sorted({*options.names()} - {"stream", "extern_libs"}))
def test_what_no_option_can_be(kernel, compiled, arrays, name, value, is_warm):
    for _ in range(4 * is_warm):
        kernel[(8,)](*arrays, 1000)
    with pytest.raises(ArgumentError, match=f"argument '{name}': ") as caught:
        kernel[(8,)](*arrays, 1000, **{name: value})
    assert repr(value) in str(caught.value)
    assert len(compiled) == is_warm


@pytest.mark.parametrize("name", [*options.FIXED, "arch"])
def test_options_that_ask_for_what_happens_anyway(kernel, compiled, arrays, name):
    accepted, _ = options.FIXED.get(name, (("sm90", "sm_90", "sm_90a"), ""))
    for value in (None, *accepted):
        for _ in range(3):
            kernel[(8,)](*arrays, 1000, **{name: value})
    assert len(compiled) == 1 and name not in compiled[0]["options"]
    with pytest.raises(ArgumentError, match=f"argument '{name}': 'sm80' is not supported: "):
        kernel[(8,)](*arrays, 1000, **{name: "sm80"})


def test_what_triton_s_compiler_takes_by_itself_as_lists():
    listed = {"supported_fp8_dtypes": ["fp8e5", "fp8e4b15"], "deprecated_fp8_dot_operand_dtypes": []}
    assert options.parse(listed) == options.parse({})
    with pytest.raises(ArgumentError, match="'arch': 'sm90' is not supported"):
        options.parse({"arch": "sm90"})


def test_the_compiler_asks_by_itself():
    with pytest.raises(ArgumentError, match="argument 'sanitize_overflow': must be True or False, is 'no'"):
        compiler.compile_function(add, {}, {}, sanitize_overflow="no")
    made = compiler.compile_function(add, {"x": "*fp32"}, {}, num_warps=np.int64(2), line_info=0)
    assert made.num_warps == 2 and type(made.num_warps) is int and made.options["line_info"] is False
    assert made.ptx == compiler.compile_function(add, {"x": "*fp32"}, {}, num_warps=2, line_info=False).ptx


def test_a_launch_does_not_only_compile(kernel, arrays):
    with pytest.raises(ArgumentError, match="'warmup': a launch launches; kernel.warmup"):
        kernel[(8,)](*arrays, 1000, warmup=True)
    kernel[(8,)](*arrays, 1000, warmup=False)


@pytest.mark.parametrize("libraries", [None, {}, (), {"libdevice": "here"}, (("libdevice", "here"),)])
def test_libraries_that_change_nothing(libraries):
    options.check_libraries(libraries)


@pytest.mark.parametrize("libraries", ["no", 1, {"other": "x"}, np.array([1, 2]), [1]])
def test_libraries_that_are_not_there(libraries):
    with pytest.raises(ArgumentError, match="argument 'extern_libs': .* is not supported"):
        options.check_libraries(libraries)


def test_an_argument_given_twice(kernel, arrays):
    """Of a kernel that was launched before, Python itself says so, while it binds the arguments."""
    for _ in range(4):
        with pytest.raises(TypeError, match="argument 'x'"):
            kernel[(8,)](*arrays, 1000, x=arrays[0])
        kernel[(8,)](*arrays, 1000)


def test_a_parameter_called_as_an_option_takes_any_value(monkeypatch):
    monkeypatch.setenv("PTXFORGE_DEVICE", "emulator")

    @ptxforge.jit
    def both(out, debug, num_stages: tl.constexpr, stream, persistent: tl.constexpr):
        tl.store(out, num_stages + persistent + tl.load(stream) + tl.load(debug))

    numbers = np.array([100], np.int32)
    for stages, used in ((2, 2), (tl.constexpr(4), 4), (2.5, 3)):
        out = np.zeros(1, np.float32)
        for _ in range(3):
            named = {"debug": numbers, "num_stages": stages, "stream": numbers, "persistent": 7}
            variant = both[(1,)](out, **named)
        assert out[0] == 207 + getattr(stages, "value", stages)
        assert variant.metadata.num_stages == used
    assert both.newest.artifact.options["persistent"] is True


def add(x):
    tl.store(x, tl.load(x) + 1)


@pytest.mark.parametrize("executor", ["emulator", "interpreter"])
def test_denormal_powers_of_two(executor):
    @ptxforge.jit
    def powers(x, out):
        i = tl.arange(0, 16)
        tl.store(out + i, tl.exp2(tl.load(x + i)))

    x = np.full(16, -127.0, np.float32)
    results = []
    for options_ in ({}, {"enable_reflect_ftz": True}, {"enable_reflect_ftz": False}):
        with ptxforge.use_device(executor):
            out = np.ones(16, np.float32)
            powers[(1,)](x, out, **options_)
        results.append(set(out.tolist()))
    assert results == [{0.0}, {0.0}, {2.0**-127}]


@pytest.mark.parametrize("kind", [int, np.int32, np.uint8, np.array])
def test_sizes_of_numpy_s_types(kind):
    assert ptxforge.next_power_of_2(kind(5)) == 8 and ptxforge.next_power_of_2(kind(0)) == 1
    assert ptxforge.cdiv(kind(7), kind(2)) == 4
