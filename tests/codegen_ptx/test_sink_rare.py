"""sink_rare: what only rare code needs moves into it."""

from __future__ import annotations

from types import SimpleNamespace

from ptxforge.codegen_ptx.ptx import sink_rare
from ptxforge.codegen_ptx.ptx.instruction import COPY, LABEL, PURE, RARE_BEGIN, RARE_END, Instruction
from ptxforge.codegen_ptx.ptx.registers import Register

BEGIN, END = Instruction("", (), RARE_BEGIN), Instruction("", (), RARE_END)
R = [Register("r", number) for number in range(7)]


def sink(code, pinned):
    return sink_rare.sink(code, pinned)


def pure(result, *operands, syntax="add.s32 %s, %s, %s;"):
    return Instruction(syntax, (result, *operands), PURE)


def effect(*operands):
    return Instruction("st " + ", ".join(["%s"] * len(operands)) + ";", operands)


A = pure(R[1], R[0], 1)
B = pure(R[2], R[1], 2)
ENTRY = pure(R[0], syntax="mov.b32 %s, %%tid.x;")
HOT, OTHER, RARE = effect(R[0]), effect(R[1]), effect(R[2])
END_LABEL = Instruction("$end:", (), LABEL)


def test_moves_what_only_rare_code_needs_in_order():
    code = [ENTRY, A, B, HOT, BEGIN, RARE, END, END_LABEL]
    assert sink(code, set()) == [ENTRY, HOT, A, B, RARE, END_LABEL]
    assert A.why == B.why == sink_rare.REASON and not RARE.why


def test_keeps_what_others_need():
    code = [ENTRY, A, B, OTHER, BEGIN, RARE, END]
    assert sink(code, set()) == [ENTRY, A, OTHER, B, RARE]


def test_repeats_it_in_each_rare_region():
    again = effect(R[1], 5)
    code = [ENTRY, A, HOT, BEGIN, OTHER, END, BEGIN, again, END]
    assert sink(code, set()) == [ENTRY, HOT, A, OTHER, A, again]


def test_nested_regions_are_regions_of_their_own():
    again = effect(R[1], 5)
    code = [ENTRY, A, B, HOT, BEGIN, RARE, BEGIN, again, END, END]
    assert sink(code, set()) == [ENTRY, HOT, A, B, RARE, A, again]


def test_leaves_what_is_reassigned_or_read_from_memory():
    load = pure(R[3], Register("q", 0), syntax="ld.param.u32 %s, [%s];")
    copied = Instruction("mov.b32 %s, %s;", (R[5], R[0]), COPY)
    sum, one, other = pure(R[6], R[5], 1), effect(R[3]), effect(R[6])
    code = [ENTRY, load, copied, sum, BEGIN, one, other, END]
    assert sink(code, {R[5]}) == [ENTRY, load, copied, sum, one, other]


def test_drops_what_nobody_needs():
    assert sink([ENTRY, A, B], set()) == []


def test_reads_what_one_load_has_read():
    """Without a guard: with one, the register has another value where the guard does not hold."""
    load = Instruction("ld.global.b32 %s, [%s];", (R[3], R[0]))
    guarded = Instruction("@%s ld.global.b32 %s, [%s];", (Register("p", 0), R[3], R[0]))
    sum, rare = pure(R[4], R[3], 1), effect(R[4])
    assert sink([ENTRY, load, sum, HOT, BEGIN, rare, END], set()) == [ENTRY, load, HOT, sum, rare]
    for first in ([guarded], [load, load], [Instruction("mov.b32 %s, %s;", (R[3], R[0]), COPY), load]):
        code = [ENTRY, *first, sum, HOT, BEGIN, rare, END]
        assert sink(code, set()) == [ENTRY, *first, sum, HOT, rare]


def test_moves_what_takes_long_to_one_region_only():
    root = pure(R[1], R[0], syntax="sqrt.rn.f32 %s, %s;")
    assert sink([ENTRY, root, HOT, BEGIN, OTHER, END], set()) == [ENTRY, HOT, root, OTHER]
    code = [ENTRY, root, HOT, BEGIN, OTHER, END, BEGIN, OTHER, END]
    assert sink(code, set()) == [ENTRY, root, HOT, OTHER, OTHER]


def test_reads_what_rare_code_has_left():
    """A register that copies assign, in the next rare code: not beyond another copy, nor a label."""
    left, sum, rare = R[5], pure(R[6], R[5], 1), effect(R[6])
    first = Instruction("mov.b32 %s, %s;", (left, R[0]), COPY)
    again = Instruction("mov.b32 %s, %s;", (left, 7), COPY)
    before = [ENTRY, first, HOT, BEGIN, again, END, END_LABEL]
    kept = [ENTRY, first, HOT, again, END_LABEL]
    assert sink([*before, sum, HOT, BEGIN, rare, again, END], set()) == [*kept, HOT, sum, rare, again]
    for between in (again, END_LABEL):
        code = [*before, sum, between, HOT, BEGIN, rare, END]
        assert sink(code, set()) == [*kept, sum, between, HOT, rare]
    code = [*before, sum, HOT, BEGIN, rare, END]
    assert sink(code, {left}) == [*kept, sum, HOT, rare]
    other = Instruction("ld.global.b32 %s, [%s];", (left, R[0]))
    assert sink([other, *code], set()) == [other, *kept, sum, HOT, rare]


def test_moves_inline_assembly():
    root = pure(R[1], R[0], syntax="%.0srsqrt.approx.ftz.f32 %s, %s;")
    assert sink([ENTRY, root, HOT, BEGIN, OTHER, END], set()) == [ENTRY, HOT, root, OTHER]


def test_code_in_which_nothing_can_move_keeps_its_order():
    of_both = [ENTRY, A, OTHER, BEGIN, OTHER, END, END_LABEL]
    of_its_own = [ENTRY, HOT, BEGIN, A, OTHER, END, END_LABEL]
    of_hot_code_alone = [ENTRY, A, OTHER, BEGIN, HOT, BEGIN, HOT, END, END, END_LABEL]
    for code in (of_both, of_its_own, of_hot_code_alone):
        b = SimpleNamespace(has_rare_code=True, aliases={})
        assert not sink_rare._needed_rarely(code, set())
        assert sink_rare.sink_rare(code, b) == [x for x in code if x not in (BEGIN, END)] == sink(code, set())


def test_a_result_that_rare_code_alone_reads_can_move():
    code = [ENTRY, A, HOT, BEGIN, OTHER, END]
    assert sink_rare._needed_rarely(code, set()) == {R[1]}
    assert not sink_rare._needed_rarely(code, {R[1]})
