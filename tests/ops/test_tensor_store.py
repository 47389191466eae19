"""Stores by TMA: text, verifier, and what the interpreter makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import InterpreterError, VerificationError

TEXT = """\
#a = #panels<{swizzle = 32, elementBits = 16, order = [1, 0]}>
#b = #blocked<{sizePerThread = [1, 8], threadsPerWarp = [16, 2], warpsPerCTA = [1, 1], order = [1, 0]}>
func @copy(%y: ptr<f16> {divisibility = 16}, %n: i32, %map: tensormap {dtype = "float16", base = "y", \
shape = [5, "n"], strides = ["2*n", 1], box = [16, 16], swizzle = 32}) attributes {num_warps = 1, \
target = "sm_90a"} {
  %one = constant {value = 1} : i32
  %zero = constant {value = 0} : i32
  %x = constant {value = 1.0} : tensor<16x16xf16, #b>
  %z = constant {value = 2.0} : tensor<16x16xf16, #b>
  %buffer = local_alloc : () -> memdesc<16x16xf16, #a, mutable>
  local_store %x, %buffer : (tensor<16x16xf16, #b>, memdesc<16x16xf16, #a, mutable>)
  fence_async
  barrier
  tensor_store %map, %y, %buffer, %zero, %one : (tensormap, ptr<f16>, memdesc<16x16xf16, #a, mutable>, \
i32, i32)
  store_wait %buffer
  barrier
  local_store %z, %buffer : (tensor<16x16xf16, #b>, memdesc<16x16xf16, #a, mutable>)
  fence_async
  barrier
  tensor_store %map, %y, %buffer, %one, %one {kind = "fadd"} : (tensormap, ptr<f16>, \
memdesc<16x16xf16, #a, mutable>, i32, i32)
  store_wait %buffer {landed = true}
  store_box %map, %y, %z, %one, %zero {kind = "fadd"} : (tensormap, ptr<f16>, tensor<16x16xf16, #b>, i32, \
i32)
  return
}
"""


def parsed(*changes: tuple[str, str]):
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    function = parse_function(text)
    verify(function)
    return function


def stored(function, columns: int = 8) -> np.ndarray:
    y = np.zeros((5, 16), np.float16)
    run(function, 1, [y, columns])
    return y


def test_text_round_trips():
    text = print_function(parsed())
    assert print_function(parse_function(text)) == text


def test_what_lies_outside_is_not_written():
    """Rows of 8 elements, 16 apart: columns 1 to 7 of all rows get 1, then 2 more from row 1 on; then 2 more
    in all columns of these."""
    expected = np.zeros((5, 16))
    expected[:, 1:8] = 1
    expected[1:, 1:8] += 2
    expected[1:, :8] += 2
    np.testing.assert_array_equal(stored(parsed()), expected)


@pytest.mark.parametrize(("change", "columns"), [
    (("constant {value = 0} : i32", "constant {value = -1} : i32"), 8), (("", ""), 9),
])  # fmt: skip
def test_what_tma_does_not_do(change, columns):
    """Begin in front of the tensor, or end within 16 bytes."""
    with pytest.raises(InterpreterError, match="begin in the tensor, and write rows of multiples of 16"):
        stored(parsed(change), columns)


def test_a_tile_that_is_overwritten_before_its_wait():
    with pytest.raises(InterpreterError, match="a tile was overwritten before the wait for its copy"):
        stored(parsed(("  store_wait %buffer\n", "")))


def test_a_program_that_ends_before_its_copy():
    with pytest.raises(InterpreterError, match="ends while TMA still reads its shared memory"):
        stored(parsed(("  store_wait %buffer {landed = true}\n", "")))


def test_a_copy_lands_as_late_as_it_may():
    """Without the wait for its landing, the box behind it is written first."""
    function = parsed(
        ("  store_wait %buffer {landed = true}\n", "  store_wait %buffer\n"),
        ("%one, %zero {kind = \"fadd\"}", "%one, %zero"),
    )
    assert (stored(function)[1:, 1:8] != 2).all()


def test_a_wait_names_what_is_read():
    """A wait for groups alone, or for other memory, does not say whose turn it is."""
    other = "%other = local_alloc : () -> memdesc<16x16xf16, #a, mutable>\n  store_wait %other"
    landed = "  store_wait %buffer {landed = true}\n"
    for wait in ("store_wait", other):
        with pytest.raises(VerificationError, match="invariant 15 .* nobody waits until its memory has been"):
            parsed((landed, ""), ("store_wait %buffer", wait))


@pytest.mark.parametrize(("change", "message"), [
    (("%buffer, %zero, %one : (tensormap, ptr<f16>, memdesc<16x16xf16, #a, mutable>, i32, i32)",
      "%buffer, %zero : (tensormap, ptr<f16>, memdesc<16x16xf16, #a, mutable>, i32)"),
     "a tensor of 2 dimensions has 1 coordinates"),
    (("box = [16, 16]", "box = [3, 16]"), r"a tile \[16, 16\] in boxes of \[3, 16\]"),
    (("16], swizzle = 32", "16], swizzle = 64"), r"boxes of \[16, 16\] under a swizzle of 64 bytes do"),
    (("local_store %x, %buffer :", "local_store %x, %buffer {part = 1} :"), "'local_store' of part 1"),
])  # fmt: skip
def test_verifier(change, message):
    with pytest.raises(VerificationError, match=message):
        parsed(change)
