"""What the parser refuses, and where it says the fault is."""

from __future__ import annotations

import pytest

from ptxforge.ir.parser import parse_function, parse_type
from ptxforge.ir.printer import print_function
from ptxforge.support.errors import ParseError

CASES = [
    ("func @f(%x: i32) {\n  %y = addi %x, %z : i32\n  return\n}", 2, 17, "'%z' is not defined before its use"),  # noqa: E501
    ("func @f(%x: i32) {\n  %x = addi %x, %x : i32\n  return\n}", 2, 3, "'%x' is defined twice"),
    ("func @f() {\n  frobnicate\n  return\n}", 2, 3, "unknown operation 'frobnicate'"),
    ("func @f(%x: i33) {\n  return\n}", 1, 13, "unknown type 'i33'"),
    ("func @f(%x: i32) {\n  %y = extsi %x : (i64) -> i64\n}", 2, 19, "the operands of 'extsi' have types (i32)"),  # noqa: E501
    ("func @f(%x: i32) {\n  addi %x, %x : i32\n}", 2, 3, "'addi' has 1 results, 0 are named"),
    ("func @f(%x: tensor<4xi32, #blocked>) {\n}", 1, 27, "unknown alias '#blocked'"),
    ("func @f() {\n  %c = constant {value = maybe} : i32\n}", 2, 26, "'maybe' is not an attribute's value"),
    ("func @f() {\n  %c = constant {value = 1 : i32\n}", 2, 28, "expected ','"),
    ("func @f() {\n  return\n", 3, 1, "expected '}'"),
    ("func @f() {\n  return\n}\n}", 4, 1, "expected the end of the text after the function"),
    ("#a = #blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>\n#a = #a\n",
     2, 1, "layout '#a' is defined twice"),
]  # fmt: skip


@pytest.mark.parametrize("text, line, column, message", CASES, ids=[case[3] for case in CASES])
def test_faults_are_reported_where_they_are(text, line, column, message):
    with pytest.raises(ParseError) as caught:
        parse_function(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert message in str(caught.value)
    assert "^" in str(caught.value) or line > text.count("\n")


def test_a_type_stands_alone():
    with pytest.raises(ParseError, match="expected the end of the type"):
        parse_type("i32 x")
    with pytest.raises(ParseError, match="expected a type"):
        parse_type("7")


def test_parameters_keep_their_names_and_values_may_share_them():
    """A hint is what the printer prefers; a parameter's name is what callers use."""
    function = parse_function("func @f(%x: i32, %0: i32) {\n  %y = addi %x, %0 : i32\n  return\n}\n")
    assert [argument.name for argument in function.arguments] == ["x", ""]
    function.body.first.result.hint = "x"
    text = print_function(function)
    assert "%x_1 = addi %x, %0" in text
    assert [argument.name for argument in parse_function(text).arguments] == ["x", ""]
