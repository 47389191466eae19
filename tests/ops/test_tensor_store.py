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
  %first = tensor_store %map, %y, %buffer, %zero, %one : (tensormap, ptr<f16>, \
memdesc<16x16xf16, #a, mutable>, i32, i32) -> token<bulk>
  store_wait %first
  barrier
  local_store %z, %buffer : (tensor<16x16xf16, #b>, memdesc<16x16xf16, #a, mutable>)
  fence_async
  barrier
  %second = tensor_store %map, %y, %buffer, %one, %one {kind = "fadd"} : (tensormap, ptr<f16>, \
memdesc<16x16xf16, #a, mutable>, i32, i32) -> token<bulk>
  store_wait %second {landed = true}
  store_box %map, %y, %z, %one, %zero {kind = "fadd"} : (tensormap, ptr<f16>, tensor<16x16xf16, #b>, i32, \
i32)
  return
}
"""


def changed(*changes: tuple[str, str]):
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return parse_function(text)


def parsed(*changes: tuple[str, str]):
    function = changed(*changes)
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


FIRST, SECOND = "  store_wait %first\n", "  store_wait %second {landed = true}\n"


def test_a_tile_that_is_overwritten_before_its_wait():
    with pytest.raises(InterpreterError, match="a tile was overwritten before the wait for its copy"):
        stored(changed((FIRST, "")))


def test_a_program_that_ends_before_its_copy():
    with pytest.raises(InterpreterError, match="ends while TMA still reads its shared memory"):
        stored(changed((SECOND, "")))


def test_a_wait_that_leaves_under_way_what_it_names():
    with pytest.raises(InterpreterError, match="a wait names a copy that it leaves under way"):
        stored(changed((SECOND, "  store_wait %second {pending = 1}\n  store_wait\n")))


def test_a_copy_lands_as_late_as_it_may():
    """Without the wait for its landing, the box behind it is written first."""
    function = parsed((SECOND, "  store_wait %second\n"), ("%one, %zero {kind = \"fadd\"}", "%one, %zero"))
    assert (stored(function)[1:, 1:8] != 2).all()


def test_a_token_reaches_a_wait():
    """A wait for groups alone, or for another copy, does not say whose turn it is."""
    for first, second in (("  store_wait\n", SECOND), (FIRST, FIRST)):
        with pytest.raises(VerificationError, match="invariant 15 .* nobody waits until its memory has been"):
            parsed((FIRST, first), (SECOND, second))


def test_a_wait_names_tokens_of_its_queue():
    start = "  %copies = async_commit_group : token<cp.async>\n  %done = async_wait : token<cp.async>\n"
    with pytest.raises(VerificationError, match="invariant 5 .* token<cp.async>, expected token<bulk>"):
        parsed((FIRST, f"{start}  store_wait %done\n"))


STORE = """tensor_store %map, %y, %buffer, %zero, %one : (tensormap, ptr<f16>, \
memdesc<16x16xf16, #a, mutable>, i32, i32) -> token<bulk>
"""
FILL = "local_store %x, %buffer : (tensor<16x16xf16, #b>, memdesc<16x16xf16, #a, mutable>)\n"
HEAD = TEXT[: TEXT.index("  local_store")].replace("%n: i32", "%n: i32, %flag: i1")
NONE = '%none = no_work {queue = "bulk"} : token<bulk>\n'
LOOP = f"{NONE}%last = for %i = %zero to %n step %one iter_args(%before = %none) : token<bulk> {{\n"
OTHER = "%other = local_alloc : () -> memdesc<16x16xf16, #a, mutable>\n"
TO_OTHER = STORE.replace("%buffer", "%other")
BRANCH = f"{NONE}%last = if %flag : token<bulk> {{\n%a = {STORE}yield %a\n}} else {{\nyield %none\n}}\n"
WHILE = f"""{NONE}%w, %last = while %flag, %none : i1, token<bulk> {{
(%p: i1, %copied: token<bulk>):
%a = {STORE}condition %p, %flag, %a
}} body {{
(%q: i1, %copy: token<bulk>):
store_wait %copy
{FILL}yield %q, %copy
}}
"""
SOUND = [
    f"%a = {STORE}store_wait %a\n{FILL}",
    f"{LOOP}store_wait %before\n{FILL}%a = {STORE}yield %a\n}}\nstore_wait %last\n",
    f"{BRANCH}store_wait %last\n{FILL}",
    f"{OTHER}%a = {STORE}%b = {TO_OTHER}store_wait %a {{pending = 1}}\n{FILL}%c = {STORE}store_wait %b, %c\n",
    f"%w = while %flag : i1 {{\n(%p: i1):\n%a = {STORE}store_wait %a\ncondition %p, %flag\n}} body {{\n"
    f"(%q: i1):\n{FILL}yield %q\n}}\n",
    f"{WHILE}store_wait %last\n",
]
READ, LEFT = "a copy that nobody has waited for may still read", "it leaves copies under way that it names"
ENDS = "the kernel may end while a copy reads its memory"
FAULTS = {
    f"{LOOP}{FILL}store_wait %before\n%a = {STORE}yield %a\n}}\nstore_wait %last\n": ("local_store", READ),
    f"{LOOP}%a = {STORE}yield %a\n}}\n{FILL}store_wait %last\n": ("local_store", READ),
    f"{BRANCH}{FILL}store_wait %last\n": ("local_store", READ),
    f"{BRANCH}store_wait %last {{pending = 1}}\nstore_wait\n": ("store_wait", LEFT),
    f"%a = {STORE}local_dealloc %buffer\nstore_wait %a\n": ("local_dealloc", READ),
    f"{OTHER}%a = {STORE}%b = {TO_OTHER}store_wait %b {{pending = 1}}\nstore_wait %a\n":
        ("store_wait", LEFT),
    f"{OTHER}%a = {STORE}%b = {TO_OTHER}store_wait %a {{pending = 1}}\nif %flag {{\nstore_wait %b\nyield\n}} "
    "else {\nyield\n}\n": ("return", ENDS),
    f"{LOOP}{OTHER}%a = {TO_OTHER}yield %a\n}}\nstore_wait %last\n": ("local_alloc", READ),
    WHILE: ("return", ENDS),
}  # fmt: skip


def verified(body: str) -> None:
    verify(parse_function(f"{HEAD}{FILL}{body}  return\n}}\n"))


@pytest.mark.parametrize("body", SOUND)
def test_memory_that_was_waited_for(body):
    verified(body)


@pytest.mark.parametrize("body", FAULTS)
def test_each_way_to_what_comes_behind_waits(body):
    where, what = FAULTS[body]
    with pytest.raises(VerificationError, match=f"invariant 16 does not hold in '{where}': .*{what}"):
        verified(body)


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
