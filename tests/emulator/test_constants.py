"""Constant expressions: the evaluator against C's rules, and as operands, offsets and initial values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.emulator.constants import evaluate
from ptxforge.support.errors import EmulatorError

from .harness import lanes, per_lane

VALUES = {
    "5": 5, "0x10": 16, "0X1fU": 31, "017": 15, "0b101": 5, "0": 0, "-3": -3, "+4": 4, "WARP_SZ": 32,
    "2+3*4": 14, "(2+3)*4": 20, "7/2": 3, "-7/2": -3, "-7%3": -1, "7%-3": 1, "2-3-4": -5, "100/5/2": 10,
    "1<<4|3": 19, "0xff&~0xf": 0xF0, "6^3": 5, "1<<63": -(1 << 63), "1U<<63": 1 << 63, "-1>>1": -1,
    "0xffffffffffffffff": (1 << 64) - 1, "0xffffffffffffffff>>60": 15, "-1U": (1 << 64) - 1,
    "(.u64)-1/2": ((1 << 64) - 1) // 2, "(.s64)0xffffffffffffffff": -1, "(.s64) 7 * 2": 14,
    "3>2": 1, "3<2": 0, "2>=2": 1, "1==2": 0, "1!=2": 1, "1&&0": 0, "2||0": 1, "!5": 0, "!0": 1, "~5": -6,
    "1?2:3": 2, "0?2:1?4:5": 4, "-(5)": -5, "- -5": 5, "1+2==3&&4<5": 1, "1|2==2": 1, "2<<1+1": 8,
    "9223372036854775807+1": -(1 << 63), "-WARP_SZ*2": -64,
    "1.5+2.0": 3.5, "3.0/2.0": 1.5, "-1.5e2": -150.0, "0d3FF0000000000000*2.0": 2.0, "1.5<2.0": 1,
    "-0.0": -0.0, "1.0/0.0": math.inf, "1.0/-0.0": -math.inf,
}  # fmt: skip


@pytest.mark.parametrize("text", VALUES)
def test_values(text):
    got, want = evaluate(text), VALUES[text]
    assert got == want and type(got) is type(want) and math.copysign(1, got) == math.copysign(1, want)


def test_zero_by_zero_is_no_number():
    assert math.isnan(evaluate("0.0/0.0"))


@pytest.mark.parametrize(
    "text", ["", "1+", "(1", "1)", "1 2", "a+1", "1.5*2", "1.5&2.5", "~1.5", "1/0", "?", "1?2"]
)
def test_what_is_no_constant_expression(text):
    with pytest.raises(ValueError, match="."):
        evaluate(text)


@pytest.mark.parametrize(
    "instruction, expected",
    [
        ("add.s32 %o0, %i0, (1<<4)|3;", 19),
        ("add.s32 %o0, %i0, 3>2 ? 7 : 9;", 7),
        ("add.s32 %o0, %i0, -WARP_SZ*2;", -64),
        ("{ .reg .pred %q; setp.ne.s32 %q, %i0, 1|2; selp.s32 %o0, %i0, 3, %q; }", 0),
        ("{ .reg .b64 %q; ld.param.u64 %q, [p_i0+(2-2)]; mad.wide.u32 %q, %t, 4, %q;"
         " ld.global.s32 %o0, [%q+4*2-8]; }", 0),
        ("{ .reg .pred %q, %z; setp.eq.s32 %q|%z, %i0, %i0; selp.s32 %o0, %i0, 5, %q; }", 0),
    ],
)  # fmt: skip
def test_operands_and_offsets(machine, instruction, expected):
    x = np.arange(64, dtype=np.int32)
    (out,) = lanes(machine, instruction, [x], ["b32"], [("b32", "i4")])
    np.testing.assert_array_equal(out, x + expected)


def test_floats_as_operands(machine):
    x = np.arange(64, dtype=np.float32)
    (out,) = lanes(machine, "add.f32 %o0, %i0, 1.5+2.0*2.0;", [x], ["f32"], [("f32", "f4")])
    np.testing.assert_array_equal(out, x + np.float32(5.5))


@pytest.mark.parametrize("operand", ["1+", "1.5*2", "1/0", "(1", "[%a0+1.5]"])
def test_errors_name_the_line(operand):
    text = per_lane(f"\nadd.s32 %o0, %i0, {operand};", [("b32", 4)], [("b32", 4)])
    line = text[: text.index("add.s32")].count("\n") + 1
    with pytest.raises(EmulatorError, match=f"PTX line {line}: "):
        EmulatorDevice().load_module(text)
