"""branch_to_copies: copies by TMA under one guard stand behind one branch."""

from __future__ import annotations

import re

from ptxforge.codegen_ptx.ptx.branch_to_copies import branch_to_copies
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import EFFECT, LABEL, PURE, Instruction
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir.warps import WarpGroup
from ptxforge.support.target import parse_target
from tests.kernels.persistent import compiled

P, Q = Register("p", 0), Register("p", 1)
R = [Register("r", number) for number in range(6)]
COPY_SYNTAX = (
    "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
    "[%s+%s], [%s, {%s}], [%s+%s];"
)
EXPECT_SYNTAX = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%s+%s], 512;"


def copy(guard, coordinate):
    return Instruction("@%s " + COPY_SYNTAX, (guard, R[0], 0, R[1], coordinate, R[2], 8))


def expect(guard):
    return Instruction("@%s " + EXPECT_SYNTAX, (guard, R[2], 8))


def add(result, x):
    return Instruction("add.s32 %s, %s, 64;", (result, x), PURE)


BARRIER = Instruction("bar.sync 0;")
END = Instruction("$end:", (), LABEL)


def builder(aliases=()):
    b = Builder(parse_target("sm_90a"), WarpGroup(4))
    b.aliases.update(aliases)
    b.branches_to_copies = True
    return b


def texts(code):
    return [i.syntax % i.operands if i.operands else i.syntax for i in code]


def branches(code):
    """The guards of the branches."""
    return [i.operands[0] for i in code if i.syntax.startswith("@!%s bra")]


def test_a_run_of_copies():
    code = [expect(P), copy(P, R[3]), add(R[4], R[3]), copy(P, R[4]), BARRIER]
    found = branch_to_copies(code, builder())
    assert found[0] is code[2] and found[-1] is BARRIER
    branch, *copies, label = found[1:-1]
    assert re.fullmatch(r"@!%s bra (\$copies_\d+);", branch.syntax)[1] + ":" == label.syntax
    assert branch.operands == (P,) and label.kind is LABEL
    assert texts(copies) == [i.syntax.removeprefix("@%s ") % i.operands[1:] for i in code if i.guard is P]
    assert all(i.kind is EFFECT and i.guard is None for i in copies)


def test_what_ends_a_run():
    """A barrier, a label, another guard. What belongs to copies stays as it is where there are none."""
    for between in (BARRIER, END):
        found = branch_to_copies([copy(P, R[3]), between, expect(P)], builder())
        assert branches(found) == [P] and found[-2] is between and found[-1].guard is P
    assert branches(branch_to_copies([copy(P, R[3]), copy(Q, R[3])], builder())) == [P, Q]


def test_nothing_that_the_run_reads_changes():
    """A loop's next value may take the register of this one: then it is computed behind."""
    code = [copy(P, R[3]), add(R[4], R[3]), copy(P, R[5])]
    assert branches(branch_to_copies(code, builder())) == [P]
    found = branch_to_copies(code, builder({R[4]: R[3]}))
    assert branches(found) == [P, P] and found[3] is code[1]


def test_guards_are_left_out_on_the_way():
    """Of a product: as many copies as without the pass, none of them guarded."""
    ptx = compiled(line_info=False).ptx
    copies = re.findall(r"^\t(@%p\d+ )?cp\.async\.bulk\.tensor", ptx, re.MULTILINE)
    assert len(copies) == 5 * 5 and not any(copies)
    assert len(re.findall(r"@!%p\d+ bra \$copies_\d+;", ptx)) == 2 + 1 + 2


def test_kernels_without_copies_stay():
    code = [add(R[4], R[3]), BARRIER]
    assert branch_to_copies(code, builder()) is code


def test_kernels_of_several_products_stay():
    ptx = compiled("twice", line_info=False).ptx
    assert "\tcp.async.bulk.tensor" not in ptx and "copies_" not in ptx
    assert re.search(r"^\t@%p\d+ cp\.async\.bulk\.tensor", ptx, re.MULTILINE)
