"""sink_rare: what only rare code needs moves into it."""

from __future__ import annotations

from ptxforge.codegen_ptx.ptx import sink_rare
from ptxforge.codegen_ptx.ptx.instruction import COPY, EFFECT, LABEL, RARE_BEGIN, RARE_END

BEGIN, END = ("", (), RARE_BEGIN), ("", (), RARE_END)


def sink(code, pinned):
    return sink_rare.sink(code, pinned, {})


def pure(result, *operands, template="add.s32 %s, %s, %s;"):
    return (template, (result, *operands), 1)


def effect(*operands, template="st %s;"):
    return (template, operands, EFFECT)


A = pure("%r1", "%r0", 1)
B = pure("%r2", "%r1", 2)
ENTRY = pure("%r0", template="mov.b32 %s, %%tid.x;")


def test_moves_what_only_rare_code_needs_in_order():
    code = [ENTRY, A, B, effect("%r0"), BEGIN, effect("%r2"), END, ("$end:", (), LABEL)]
    assert sink(code, set()) == [ENTRY, effect("%r0"), A, B, effect("%r2"), ("$end:", (), LABEL)]


def test_keeps_what_others_need():
    code = [ENTRY, A, B, effect("%r1"), BEGIN, effect("%r2"), END]
    assert sink(code, set()) == [ENTRY, A, effect("%r1"), B, effect("%r2")]


def test_repeats_it_in_each_rare_region():
    code = [ENTRY, A, effect("%r0"), BEGIN, effect("%r1"), END, BEGIN, effect("%r1", 5), END]
    assert sink(code, set()) == [ENTRY, effect("%r0"), A, effect("%r1"), A, effect("%r1", 5)]


def test_nested_regions_are_regions_of_their_own():
    inner = [BEGIN, effect("%r1", 5), END]
    code = [ENTRY, A, B, effect("%r0"), BEGIN, effect("%r2"), *inner, END]
    assert sink(code, set()) == [ENTRY, effect("%r0"), A, B, effect("%r2"), A, effect("%r1", 5)]


def test_leaves_what_is_reassigned_or_read_from_memory():
    load = pure("%r3", "%q0", template="ld.param.u32 %s, [%s];")
    copied = ("mov.b32 %s, %s;", ("%r5", "%r0"), COPY)
    code = [ENTRY, load, copied, pure("%r6", "%r5", 1), BEGIN, effect("%r3"), effect("%r6"), END]
    assert sink(code, {"%r5"}) == [ENTRY, load, copied, pure("%r6", "%r5", 1), effect("%r3"), effect("%r6")]


def test_drops_what_nobody_needs():
    assert sink([ENTRY, A, B], set()) == []
