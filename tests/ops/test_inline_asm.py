"""Inline assembly as an operation: its text form, its types, its checks. What it computes:
``tests/language/test_inline_asm.py``."""

from __future__ import annotations

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops.inline_asm import InlineAsm, parse_constraints, parse_text, words_of
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import VerificationError

TEXT = """\
func @f(%x: i32, %p: ptr<f32>) {
  %0 = splat %x : (i32) -> tensor<16xi32>
  %1, %2 = inline_asm %0, %0 {text = "add.s32 $0, $2, $3;\\n\\tmov.b64 $1, 0; // \\"q\\"", \
constraints = "=r,=d,r,r", elements = ["i32", "f64"]} : (tensor<16xi32>, tensor<16xi32>) -> tensor<16xi32>, \
tensor<16xf64>
  %3 = inline_asm %p {text = "mov.b64 $0, $1;", constraints = "=l,l", elements = ["ptr<f32>"], pure = false} \
: (ptr<f32>) -> ptr<f32>
  return
}"""


def test_text():
    function = parse_function(TEXT)
    verify(function)
    assert print_function(function) == TEXT
    first, second = (op for op in function.body.operations if isinstance(op, InlineAsm))
    assert first.is_pure and not second.is_pure
    assert first.text.splitlines() == ["add.s32 $0, $2, $3;", '\tmov.b64 $1, 0; // "q"']


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("=r,=d,r,r", "=r,=d,r", "have 1 inputs"),
        ("=r,=d,r,r", "=r,=r,r,r", "1 × f64 .* does not fit in a register 'r'"),
        ('"i32", "f64"]', '"i32", "f64"], pack = 3', "a power of two of elements, not 3"),
        ("$0, $2, $3", "$0, $2, $9", r"\$9 stands in the text"),
        ('"i32", "f64"', '"i32", "f32"', "expected"),
    ],
)
def test_checks(old, new, message):
    with pytest.raises(VerificationError, match=message):
        verify(parse_function(TEXT.replace(old, new)))


def test_constraints():
    parsed = parse_constraints("=&r, =l,0,f, n,~{memory},~{cc}")
    assert (parsed.results, parsed.inputs, parsed.tied) == (("r", "l"), ("r", "f", "n"), (0, None, None))
    assert parse_constraints("").results == ()


def test_pieces_of_text():
    assert parse_text("a $0, ${12:x}$$1") == ("a ", 0, ", ", 12, "", "$", "1")


def test_registers_that_elements_take():
    assert words_of([T.I8, T.F32], 4) == [(0, 4), (1, 1), (1, 1), (1, 1), (1, 1)]
    assert words_of([T.I8, T.F16, T.I1], 2) == [(0, 2), (1, 2), (2, 1), (2, 1)]
    assert words_of([T.PointerType(T.F32)], 1) == [(0, 1)]
