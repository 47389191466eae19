"""Addresses are sums until a pass makes instructions of them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.codegen_ptx import emit
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import PURE, text_of
from ptxforge.codegen_ptx.ptx.pointers import SUM, Pointer, address, sum_of
from ptxforge.codegen_ptx.ptx.registers import Names, Register
from ptxforge.codegen_ptx.ptx.select_addresses import select_addresses
from ptxforge.ir import types as T
from ptxforge.ir.ops import arith, control, memory
from ptxforge.ir.warps import WarpGroup
from ptxforge.support.target import parse_target
from tests.codegen_ptx.harness import Kernel, blocked, pointer

FAR = 1 << 31
STORE = "st.global.b32 [%s+%s], %s;"


class Code:
    """A builder with a base, two 32-bit indices and a 64-bit one."""

    def __init__(self, without: tuple[str, ...] = ()):
        self.b = Builder(parse_target("sm_80"), WarpGroup(4), without)
        self.base, self.wide = (self.b.pure(f"ld.param.u64 %s, [{name}];", "q") for name in "pw")
        self.row, self.column = (self.b.pure(f"ld.param.u32 %s, [{name}];", "r") for name in "rc")

    def store(self, *terms: tuple[Register, int], offset: int = 0) -> None:
        place = address(self.b, Pointer(self.base, tuple(terms), offset))
        self.b.effect(STORE, *place, 0)

    def selected(self) -> list[str]:
        """The lines behind the four parameters."""
        code = select_addresses(self.b.all_code(), self.b)
        assert not any(instruction.form.opcode == SUM for instruction in code)
        return [line.strip() for line in text_of(code, Names({})).split("\n")][4:]


def test_a_sum_becomes_one_instruction_by_term():
    code = Code()
    code.store((code.row, 4), (code.column, 2), offset=512)
    assert [i.syntax for i in code.b.all_code() if i.kind is PURE][4:] == [sum_of(2)]
    assert code.selected() == [
        "mad.wide.s32 %q2, %r0, 4, %q0;", "mad.wide.s32 %q3, %r1, 2, %q2;", "st.global.b32 [%q3+512], 0;"
    ]  # fmt: skip


def test_an_index_of_64_bits_is_scaled_and_added():
    code = Code()
    code.store((code.wide, 4))
    assert code.selected() == [
        "shl.b64 %q2, %q1, 2;", "add.s64 %q3, %q0, %q2;", "st.global.b32 [%q3], 0;"
    ]  # fmt: skip


def test_sums_that_accesses_share_are_one():
    code = Code()
    for offset in (0, 16, 32):
        code.store((code.row, 4), offset=offset)
    assert sum(line.startswith("mad.wide") for line in code.selected()) == 1


@pytest.mark.parametrize("offset, fits", [(FAR - 1, True), (FAR, False), (-FAR, True), (-FAR - 1, False)])
def test_a_constant_stands_in_the_access_where_it_fits(offset, fits):
    code = Code()
    code.store(offset=offset)
    added = [f"add.s64 %q2, %q0, {offset};", "st.global.b32 [%q2], 0;"]
    assert code.selected() == ([f"st.global.b32 [%q0+{offset}], 0;"] if fits else added)


def test_a_constant_that_does_not_fit_is_added_once_up_to_a_label():
    code = Code()
    code.store(offset=FAR)
    code.store(offset=FAR)
    code.b.place("$top")
    code.store(offset=FAR)
    added = ["add" in line for line in code.selected()]
    assert added == [True, False, False, False, True, False]


def test_left_out_the_pass_makes_an_instruction_of_every_constant():
    code = Code(without=("select_addresses",))
    code.store((code.row, 4), offset=16)
    assert code.selected()[1:] == ["add.s64 %q3, %q2, 16;", "st.global.b32 [%q3], 0;"]


def far_kernel() -> Kernel:
    """Copies 512 numbers from ``x + n``, taking a way around: 2 GiB further and back."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), T.I64)
    b, layout, (source, _, n) = kernel.b, blocked(4), kernel.function.arguments
    start = b.value(memory.AddPtr, source, n)
    index = kernel.coordinate((512,), 0, layout)
    further = b.value(arith.AddI, index, b.constant(FAR // 4, index.type))
    places = b.value(memory.AddPtr, kernel.splat(start, (512,), layout), further)
    kernel.store(1, b.value(memory.Load, places, vector=4), vector=4)
    return kernel


def test_constants_beyond_an_instructions_reach():
    kernel, data, out = far_kernel(), np.arange(600, dtype=np.float32), np.zeros(512, np.float32)
    kernel.run(data, out, 88 - FAR // 4)
    np.testing.assert_array_equal(out, data[88:])
    assert f", {FAR};" in kernel.ptx() and f"+{FAR}]" not in kernel.ptx()


def test_sums_are_seen_before_the_pass_and_not_behind_it(monkeypatch, capsys):
    kernel = far_kernel()
    kernel.b.create(control.Return)
    monkeypatch.setenv("PTXFORGE_DUMP", "drop_dead,select_addresses")
    ptx = emit(kernel.function, parse_target("sm_80"), why=True)
    before, after = capsys.readouterr().err.split("// after select_addresses")
    assert "\tsum %q" in before and "mad.wide" not in before
    assert "\tsum %q" not in after and "mad.wide" in after
    assert "// select_addresses: a constant that no access takes" in ptx
