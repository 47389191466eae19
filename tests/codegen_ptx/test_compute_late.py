"""compute_late: pure instructions stand where their results are needed first."""

from __future__ import annotations

import pytest

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.compute_late import compute_late
from ptxforge.codegen_ptx.ptx.instruction import COPY, LABEL, PURE, Instruction
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir.warps import WarpGroup
from ptxforge.support.target import parse_target

P, Q = Register("p", 0), Register("q", 0)
R = [Register("r", number) for number in range(12)]


def load(result):
    return Instruction("ld.global.b32 %s, [%s+%s];", (R[result], Q, 0))


def add(result, x, y=1):
    return Instruction("add.s32 %s, %s, %s;", (R[result], R[x], y), PURE)


def store(x):
    return Instruction("st.global.b32 [%s+%s], %s;", (Q, 0, R[x]))


def move(result, x):
    return Instruction("mov.b32 %s, %s;", (R[result], R[x]), COPY)


def less(x):
    return Instruction("setp.lt.s32 %s, %s, 9;", (P, R[x]), PURE)


def label(name):
    return Instruction(f"${name}:", (), LABEL)


def branch(name):
    return Instruction(f"@%s bra ${name};", (P,))


def arranged(code, aliases=()):
    """The places, in ``code``, of what comes out."""
    b = Builder(parse_target("sm_90a"), WarpGroup(4))
    b.aliases.update(aliases)
    b.computes_late = True
    found = compute_late(code, b)
    assert sorted(map(id, found)) == sorted(map(id, code))
    return [next(place for place, x in enumerate(code) if x is y) for y in found]


def test_one_element_after_the_other():
    code = [load(0), load(1), add(2, 0), add(3, 1), add(4, 2), add(5, 3), store(4), store(5)]
    assert arranged(code) == [0, 1, 2, 4, 6, 3, 5, 7]
    assert [place for place, x in enumerate(code) if x.why] == [3, 5]  # what something overtook


def test_what_two_need_comes_before_the_first():
    assert arranged([load(0), add(1, 0), add(2, 1), add(3, 1), store(3), store(2)]) == [0, 1, 3, 4, 2, 5]


def test_long_chains():
    count = 5000
    registers = [Register("r", number) for number in range(count + 1)]
    chain = [Instruction("add.s32 %s, %s, 1;", pair[::-1], PURE) for pair in zip(registers, registers[1:])]
    code = [*chain, Instruction("st.global.b32 [%s+%s], %s;", (Q, 0, registers[-1]))]
    assert arranged(code) == list(range(count + 1))


def test_nothing_goes_behind_what_changes_its_operand():
    assert arranged([load(0), add(1, 0), add(2, 1), move(0, 3), store(2)]) == [0, 1, 3, 2, 4]


def test_what_is_assigned_again_stays():
    assert arranged([add(1, 0), store(2), store(1)], {R[1]: R[4]}) == [0, 1, 2]
    assert arranged([add(2, 1), add(1, 0), store(2), store(1)], {R[1]: R[4]}) == [0, 1, 2, 3]
    assert arranged([add(1, 0), store(2), store(1)]) == [1, 0, 2]


def test_a_branch_around_a_store():
    """What is stored behind it waits, what is stored in it is computed in front of it or in it."""
    code = [load(0), add(1, 0), add(2, 0), less(0), branch("end"), add(3, 2), store(5), store(3)]
    code += [label("end"), store(1)]
    assert arranged(code) == [0, 3, 2, 4, 6, 5, 7, 8, 1, 9]


def test_a_loop():
    """What it reads, and what reads what it changes, is computed in front of it."""
    code = [load(0), add(1, 0), add(2, 0), add(7, 6), add(8, 0), label("loop"), add(3, 1), add(4, 2)]
    code += [store(5), store(4), move(6, 3), less(6), branch("loop"), store(7), store(8)]
    assert arranged(code) == [0, 1, 2, 3, 5, 8, 7, 9, 6, 10, 11, 12, 13, 4, 14]


@pytest.mark.parametrize("outside", ["in front", "behind"])
def test_nothing_waits_where_a_region_has_another_way_in_or_out(outside):
    way_in = [branch("inside"), add(1, 0), less(0), branch("end"), label("inside"), store(2), label("end"),
              store(1)]  # fmt: skip
    way_out = [add(1, 0), less(0), branch("else"), store(2), branch("end"), label("else"), store(3),
               label("end"), store(1)]  # fmt: skip
    code = way_in if outside == "in front" else way_out
    assert arranged(code) == list(range(len(code)))


def test_only_where_it_is_asked_for():
    code = [add(1, 0), store(2), store(1)]
    assert compute_late(code, Builder(parse_target("sm_90a"), WarpGroup(4))) is code
