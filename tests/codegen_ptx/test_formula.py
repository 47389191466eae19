"""Formulas: what is written with operators comes out as instructions, as often as registers come."""

from __future__ import annotations

import math

import pytest

from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.formula import Step, evaluate, fma, formula, of_halves, where
from ptxforge.codegen_ptx.ptx.instruction import text_of
from ptxforge.codegen_ptx.ptx.registers import Names, Register
from ptxforge.ir.warps import WarpGroup
from ptxforge.support.target import parse_target


@pytest.fixture
def b() -> Builder:
    return Builder(parse_target("sm_90a"), WarpGroup(4))


def instructions(b: Builder) -> list[str]:
    return [line.strip() for line in text_of(b.code, Names({})).splitlines()]


def softsign(x):
    return x / (abs(x) + 1.0)


def test_one_text_for_both_types(b):
    evaluate(b, softsign, b.new("f"))
    assert instructions(b) == [
        "abs.f32 %f0, %f1;", "add.rn.f32 %f2, %f0, 0f3F800000;", "div.full.f32 %f3, %f1, %f2;"
    ]  # fmt: skip
    b.code.clear()
    evaluate(b, softsign, b.new("d"))
    assert instructions(b) == [
        "abs.f64 %d0, %d1;", "add.rn.f64 %d2, %d0, 0d3FF0000000000000;", "div.rn.f64 %d3, %d1, %d2;"
    ]  # fmt: skip


def test_a_formula_is_called_once(b):
    calls = []

    def twice(x):
        calls.append(x)
        return x + x

    results = [evaluate(b, twice, b.new("f")) for _ in range(3)]
    assert len(calls) == 1 and len(set(results)) == 3
    evaluate(b, twice, b.new("d"))
    assert len(calls) == 2


def test_equal_instructions_are_one(b):
    x = b.new("f")
    assert evaluate(b, softsign, x) is evaluate(b, softsign, x)
    assert len(b.code) == 3


@pytest.mark.parametrize("text, expected", [
    (lambda x: x - 2.5, "add.rn.f32 %f0, %f1, 0fC0200000;"),
    (lambda x: 2.5 - x, "sub.rn.f32 %f0, 0f40200000, %f1;"),
    (lambda x: 2.5 + x, "add.rn.f32 %f0, 0f40200000, %f1;"),
    (lambda x: 1.0 / x, "div.full.f32 %f0, 0f3F800000, %f1;"),
    (lambda x: fma(-2.0, x, math.inf), "fma.rn.f32 %f0, 0fC0000000, %f1, 0f7F800000;"),
    (lambda x: x != 0.0, "setp.ne.f32 %p0, %f0, 0f00000000;"),
])  # fmt: skip
def test_constants(b, text, expected):
    evaluate(b, text, b.new("f"))
    assert instructions(b) == [expected]


def test_what_is_no_number_is_the_hardwares(b):
    evaluate(b, lambda x: where(x < 0.0, math.nan, x), b.new("d"))
    assert instructions(b)[1] == "selp.b64 %d1, 0d7FFFFFFFFFFFFFFF, %d0, %p0;"


def test_constants_to_choose_from_have_the_type_of_the_formula(b):
    evaluate(b, lambda x: where(x < 0.0, -1.0, 1.0), b.new("f"))
    assert instructions(b)[1] == "selp.b32 %f1, 0fBF800000, 0f3F800000, %p0;"


def test_bits(b):
    evaluate(b, lambda x: ((x.bits() >> 1) + 7).as_f32(), b.new("f"))
    assert instructions(b) == [
        "mov.b32 %r0, %f0;", "shr.s32 %r1, %r0, 1;", "add.s32 %f1, %r1, 7;"
    ]  # fmt: skip
    b.code.clear()

    def exchanged(x):
        low, high = x.halves()
        return of_halves(high, low)

    evaluate(b, exchanged, b.new("d"))
    assert instructions(b) == ["mov.b64 {%r0, %r1}, %d0;", "mov.b64 %d1, {%r1, %r0};"]


def test_conjunctions_do_not_depend_on_the_order(b):
    p, q = b.several("pp")
    assert evaluate(b, lambda p, q: p & q, p, q) is evaluate(b, lambda p, q: q & p, p, q)


def test_several_results(b):
    total, difference = evaluate(b, lambda x, y: (x + y, x - y), *b.several("ff"))
    assert total.kind == difference.kind == "f" and total is not difference


def test_steps_are_made_by_the_builder(b):
    given = []

    def branch(b: Builder, x: Register, y: str) -> tuple[Register, Register]:
        given.append((x, y))
        return b.new(x.kind), b.new("r")

    step, x = Step("xr", branch), b.new("d")

    def text(x):
        value, turns = step(x, 0.5)
        return value + turns.to_float()

    assert evaluate(b, text, x).kind == "d"
    assert given == [(x, "0d3FE0000000000000")]


def test_operands_are_counted(b):
    with pytest.raises(ValueError):
        formula(softsign, "f")(b, *b.several("ff"))
