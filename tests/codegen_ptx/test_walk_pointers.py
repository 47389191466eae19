"""Pointers of loops take in what accesses add, and what addresses have in common is added once."""

from __future__ import annotations

import pytest

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import text_of
from ptxforge.codegen_ptx.ptx.pipeline import check
from ptxforge.codegen_ptx.ptx.pointers import Pointer, address
from ptxforge.codegen_ptx.ptx.registers import Names, Register
from ptxforge.codegen_ptx.ptx.select_addresses import share_terms
from ptxforge.codegen_ptx.ptx.walk_pointers import walk_pointers
from ptxforge.ir.warps import WarpGroup
from ptxforge.support import machine
from ptxforge.support.target import parse_target

LOAD = "ld.global.b32 %s, [%s+%s];"


class Code:
    """A builder with a base, the thread's number, a column, a step and 16 rows that differ by lanes."""

    def __init__(self):
        self.b = b = Builder(parse_target("sm_80"), WarpGroup(4))
        self.base = b.pure("ld.param.u64 %s, [x];", "q")
        self.tid = b.pure("mov.u32 %s, %%tid.x;", "r")
        self.column, self.step = (b.pure(f"ld.param.u32 %s, [{name}];", "r") for name in "cs")
        self.rows = [b.pure("mul.lo.s32 %s, %s, %s;", "r", self.tid, n + 3) for n in range(16)]
        self.shared = [b.pure("shr.u32 %s, %s, %s;", "r", self.tid, n + 5) for n in range(3)]
        b.place("$begin")

    def load(self, base: Register, *terms: Register, offset: int = 0) -> None:
        place = address(self.b, Pointer(base, tuple(sorted((root, 2) for root in terms)), offset))
        self.b.effect(LOAD, self.b.new("r"), *place)

    def loop(self, start: Register, *accesses: tuple[Register, ...], held: int = 0) -> Register:
        """A loop through which a pointer walks; each access adds some registers to it."""
        b, pointer = self.b, self.b.new("q")
        b.copy(pointer, start)
        label = b.label("for")
        top = b.place(label)
        for terms in accesses:
            self.load(pointer, *terms)
        b.carry(top, [(pointer, address(b, Pointer(pointer, ((self.step, 2),)))[0])], held=held)
        b.effect(f"bra {label};")
        b.place(b.label("for_end"))
        return pointer

    def walked(self) -> str:
        """The lines behind what the constructor made."""
        code = walk_pointers(self.b.all_code(), self.b)
        check(code, self.b, "walk_pointers")
        return "\n".join(lines_behind_the_constructor(code))


def lines_behind_the_constructor(code: list) -> list[str]:
    lines = [line.strip() for line in text_of(code, Names({})).split("\n")]
    return lines[lines.index("$begin:") + 1 :]


def test_what_all_accesses_add_is_in_the_pointer():
    code = Code()
    code.loop(code.base, (code.column, code.shared[0]), (code.column, code.shared[1]))
    front, loop = code.walked().split("$for_1:")
    assert front == "sum %q1, %q0, %r1, 2;\nmov.b64 %q2, %q1;\n"
    assert "sum %q3, %q2, %r19, 2;" in loop and "sum %q4, %q2, %r20, 2;" in loop and "%r1," not in loop


def test_what_the_loop_changes_stays_outside_of_the_pointer():
    code = Code()
    b, index = code.b, code.b.new("r")
    b.copy(index, 0)
    b.carry = lambda top, copies, held, carry=b.carry: carry(top, [*copies, (index, code.column)], held=held)
    code.loop(code.base, (index,), (index, code.shared[1]))
    assert "sum" not in code.walked().split("$for_1:")[0]


@pytest.mark.parametrize("count", [3, 4, 12, 13])
def test_rows_that_lanes_do_not_share_get_pointers_of_their_own(count):
    """As many as are worth it, and not where tensors need the registers."""
    code = Code()
    code.loop(code.base, *((code.column, row) for row in code.rows[:count]))
    fewest, most = machine.LOOP_POINTER_ACCESSES
    assert (fewest, most) == (4, 12)
    loop = code.walked().split("$for_1:")[1].split("carry")[0]
    assert loop.count("sum") == (count if count in (4, 12) else count + 1)
    assert loop.count("%r2, 2;") == (count if count in (4, 12) else 1), "each of them advances"


def test_rows_are_added_where_tensors_take_the_registers():
    code = Code()
    accesses = [(code.column, row) for row in code.rows[:4]]
    code.loop(code.base, *accesses, held=machine.TENSOR_REGISTERS_BESIDE_POINTERS + 1)
    assert code.walked().split("$for_1:")[1].count("sum") == 4 + 1


def test_rows_that_a_warp_shares_are_added():
    code = Code()
    four = [*code.shared, code.column]
    code.loop(code.base, *((row,) for row in four))
    assert code.walked().split("$for_1:")[1].count("sum") == 4 + 1


def test_behind_the_loop_the_pointer_is_what_it_was():
    code = Code()
    pointer = code.loop(code.base, (code.column,))
    code.load(pointer)
    behind = code.walked().split("$for_end_2:")[1]
    assert behind.strip() == "sum %q4, %q2, %r0, -2;\nld.global.b32 %r3, [%q4];"


def test_a_loop_behind_a_loop_goes_on_from_its_pointer():
    code = Code()
    accesses = (code.column, code.shared[0]), (code.column, code.shared[1])
    code.loop(code.loop(code.base, *accesses), *accesses)
    between = code.walked().split("$for_end_2:")[1].split("$for_3:")[0]
    assert between.strip() == "mov.b64 %q6, %q2;"


def shared_sums(code: Code) -> list[str]:
    found = share_terms(code.b.all_code(), code.b)
    check(found, code.b, "share_terms")
    return lines_behind_the_constructor(found)


def test_what_most_addresses_add_is_added_first():
    code = Code()
    for row in code.shared:
        code.load(code.base, row, code.column)
    sums = [line for line in shared_sums(code) if line.startswith("sum")]
    assert sums[0] == "sum %q1, %q0, %r1, 2;"
    assert [line.split()[2] for line in sums[1:]] == ["%q1,"] * 3


def test_an_address_that_is_part_of_another_is_not_computed_again():
    code = Code()
    code.load(code.base, code.shared[0], code.column)
    code.load(code.base, code.column)
    lines = shared_sums(code)
    assert sum(line.startswith("sum") for line in lines) == 2 and lines[-1].endswith("[%q1];")


def test_nothing_is_shared_between_the_sides_of_a_branch():
    code = Code()
    b, condition = code.b, code.b.pure("setp.eq.s32 %s, %s, 0;", "p", code.column)
    end = b.skip_unless(condition, "endif")
    b.open_scope()
    code.load(code.base, code.shared[0], code.column)
    b.close_scope()
    b.place(end)
    code.load(code.base, code.shared[0], code.column)
    assert sum(line.startswith("sum") for line in shared_sums(code)) == 4


def test_nothing_of_a_loop_is_known_behind_it():
    """Its pointer is another one there."""
    code = Code()
    b = code.b
    b.open_scope()
    pointer = code.loop(code.base, (code.shared[0], code.column))
    b.close_scope()
    code.load(pointer, code.shared[0], code.column)
    assert sum(line.startswith("sum") for line in shared_sums(code)) == 2 + 1 + 2
