"""``breakpoint()`` in kernels, and the interpreter as a device."""

from __future__ import annotations

import bdb
import io
import sys

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.interpreter import run
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.support.errors import CompilationError, InterpreterError

BLOCK = 16


@ptxforge.jit
def scaled(v, factor):
    w = v * factor
    return w + 1


@ptxforge.jit
def twice_scaled(x, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n)
    p = x + i  # noqa: F841 - to be looked at
    if pid == 1:
        breakpoint()
    b = scaled(a, 2.0)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(2):
        total += b
    tl.store(out + i, total, mask=i < n)


@pytest.fixture
def device(monkeypatch):
    """The interpreter, and Python's own ``breakpoint()`` (pytest has one of its own)."""
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    with ptxforge.use_device("interpreter") as device:
        yield device


def launched(kernel=twice_scaled, programs=3) -> np.ndarray:
    n = BLOCK * programs
    x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    kernel[(programs,)](x, out, n, BLOCK=BLOCK)
    return out


def talk(monkeypatch, *commands: str, kernel=twice_scaled) -> list[str]:
    """What the debugger answers to commands (one entry for each; the first is what it says when it stops)."""
    told = io.StringIO()
    with monkeypatch.context() as here:
        here.setattr(sys, "stdin", io.StringIO("\n".join([*commands, ""])))
        here.setattr(sys, "stdout", told)
        launched(kernel)
    return [answer.strip() for answer in told.getvalue().split("(Pdb) ")]


def line_of(text: str) -> int:
    with open(__file__) as source:
        return next(number for number, line in enumerate(source, 1) if line.strip() == text)


def test_it_stops_at_the_line_with_the_values_of_one_program(device, monkeypatch):
    first, tile, pointers, scalars, where, _ = talk(
        monkeypatch, "p a", "p p", "p BLOCK, int(pid), int(n)", "w", "continue"
    )
    assert first.startswith("[program (1, 0, 0) of (3, 1, 1)]")
    assert f"test_breakpoint.py({line_of('breakpoint()')})twice_scaled()\n-> breakpoint()" in first
    assert tile == repr(np.arange(16, 32, dtype=np.float32))
    assert pointers.startswith("<pointers to float32: x + array([16, 17, 18")
    assert scalars == "(16, 1, 48)"
    assert "interpreter/execute.py" not in where and "<ptxforge" not in where
    assert "kernel[(programs,)](x, out, n, BLOCK=BLOCK)" in where, "the user's frames are there"


def test_stepping(device, monkeypatch):
    answers = talk(
        monkeypatch,
        "next", "step", "p v, float(factor)", "up", "p BLOCK", "return", "next", "next", "p float(total[0])",
        "next", "p float(total[0])", "next", "c",
    )  # fmt: skip
    lines = [answer.splitlines()[-1] for answer in answers[:-1]]
    assert lines[1] == "-> b = scaled(a, 2.0)"
    assert lines[2] == "-> w = v * factor"
    assert answers[3].endswith("2.0)")
    assert lines[4] == "-> b = scaled(a, 2.0)" and lines[5] == "16"
    assert lines[6] == "-> total = tl.zeros((BLOCK,), tl.float32)", "return: to the caller's next line"
    assert lines[7:9] == ["-> for k in range(2):", "-> total += b"]
    assert (lines[9], lines[11]) == ("0.0", "33.0")
    assert lines[12] == "-> tl.store(out + i, total, mask=i < n)"


def test_breakpoints_set_in_the_debugger(device, monkeypatch):
    number = line_of("total += b")
    try:
        answers = talk(
            monkeypatch, f"b {number}, int(k) == 1", "c", "p int(k)", "cl 1", "until", "ll", "continue"
        )
    finally:
        bdb.Breakpoint.clearBreakpoints()
    assert answers[1].startswith("Breakpoint 1 at") and answers[3] == "1"
    assert answers[5].splitlines()[-1] == "-> tl.store(out + i, total, mask=i < n)"
    assert "def twice_scaled(x, out, n, BLOCK: tl.constexpr):" in answers[6]


def test_values_cannot_be_written(device, monkeypatch):
    assert "read-only" in talk(monkeypatch, "!a[0] = 5", "c")[1]


def test_quit_ends_the_launch(device, monkeypatch):
    with pytest.raises(bdb.BdbQuit):
        talk(monkeypatch, "quit")


def test_the_result_is_right_afterwards(device, monkeypatch):
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    np.testing.assert_array_equal(launched(), 2 * (2 * np.arange(48, dtype=np.float32) + 1))


def test_another_debugger_finds_the_kernels_frame(device, monkeypatch):
    seen = []

    def hook():
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_name, frame.f_lineno, frame.f_locals["a"][0], frame.f_globals["tl"]))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    launched()
    assert seen == [("twice_scaled", line_of("breakpoint()"), 16.0, tl)]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_compiled_kernels_say_what_to_do(target):
    with pytest.raises(CompilationError, match="PTXFORGE_DEVICE=interpreter") as caught:
        twice_scaled.compile({"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 16}, target)
    assert "        breakpoint()\n   |         ^^^^^^^^^^^^" in str(caught.value)


def test_the_emulator_says_what_to_do():
    with ptxforge.use_device("emulator"), pytest.raises(CompilationError, match="in the interpreter only"):
        launched()


@ptxforge.jit
def largest(a, b):
    breakpoint()
    return tl.maximum(a, b)


@ptxforge.jit
def stops_in_a_reduction(x, out, n, BLOCK: tl.constexpr):
    tl.store(out, tl.reduce(tl.load(x + tl.arange(0, BLOCK)), 0, largest))


@ptxforge.jit
def stops_with_a_word(x, out, n, BLOCK: tl.constexpr):
    breakpoint("here")


@pytest.mark.parametrize(
    ("kernel", "text"),
    [(stops_in_a_reduction, "combines elements"), (stops_with_a_word, "takes no arguments")],
)
def test_where_none_can_be(device, kernel, text):
    with pytest.raises(CompilationError, match=text):
        launched(kernel)


@ptxforge.jit
def composite(x, out, n, BLOCK: tl.constexpr):
    words = tl.arange(0, BLOCK).to(tl.uint32) - 1
    pair = (words, (n, 2.5))
    block = tl.make_block_ptr(x, (n,), (1,), (BLOCK,), (BLOCK,), (0,))
    scale: tl.constexpr = float("inf")
    s = tl.sum(tl.load(block))
    breakpoint()
    tl.store(out, s + pair[1][1] * (scale > 0))


def test_what_consists_of_parts(device, monkeypatch):
    answers = talk(
        monkeypatch, "p int(words[0])", "p int(pair[0][0]), int(pair[1][0])", "p int(block.offsets[0])",
        "p scale, float(s)", *["c"] * 3, kernel=composite,
    )  # fmt: skip
    assert answers[1:5] == [str(2**32 - 1), f"({2**32 - 1}, 48)", "16", "(inf, 376.0)"]


def test_text_of_the_operation():
    text = """\
func @f(%x: i32, %p: tensor<4xf32>) {
  breakpoint
  breakpoint %x, %p {stops = false, names = ["x", "p.0"], types = ["int32", "float32"], \
constants = ["N = 4"]} \
: (i32, tensor<4xf32>)
  return
}"""
    function = parse_function(text.replace("breakpoint\n", "breakpoint : ()\n"))
    again = print_function(function)
    assert print_function(parse_function(again)) == again
    assert 'names = ["x", "p.0"]' in again


# -- the device --------------------------------------------------------------------------------------------


@ptxforge.jit
def mixed(x, out, small: tl.bfloat16, flag, wide, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i) * small + wide
    tl.store(out + i, tl.where(flag, v, -v))


@pytest.mark.parametrize("flag", [True, False])
def test_it_agrees_with_the_emulator(flag):
    found = []
    for name in ("interpreter", "emulator"):
        x = ptxforge.to_device(np.arange(64, dtype=np.float32), name)
        out = ptxforge.empty(64, np.float32, name)
        mixed[(4,)](x, out, 1.5, flag, 2**40, BLOCK=16)
        found.append(out.numpy())
    np.testing.assert_array_equal(*found)


def test_arrays(device):
    x = ptxforge.empty((2, 3), np.float32)
    assert x.device == "interpreter" and np.isnan(x.numpy()).all()
    x.copy_from(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert np.from_dlpack(x)[1, 2] == 5 and x[1, 1] == 4
    x.free()
    assert not device.memory.segments or all(s.start != x.data_ptr() for s in device.memory.segments)


@ptxforge.jit
def past_the_end(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i + 1))


def test_an_access_out_of_bounds_names_argument_and_program(device):
    with pytest.raises(InterpreterError, match="that is element 48 from the start of 'x'") as caught:
        launched(past_the_end)
    assert "program (2, 0, 0)" in str(caught.value) and "tl.load(x + i + 1)" in str(caught.value)


def test_ctrl_c_says_where(device, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    function = parse_function("func @f(%x: i32) {\n  print %x : (i32)\n  return\n}")
    with pytest.raises(KeyboardInterrupt, match="'f' was stopped in 'print' of program"):
        run(function, 1, [1], output=interrupt)


def test_both_kinds_of_variant_live_side_by_side():
    np.testing.assert_array_equal(launched_on("interpreter"), launched_on("emulator"))


@ptxforge.jit
def plain(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + 1)


def launched_on(name: str) -> np.ndarray:
    with ptxforge.use_device(name):
        return launched(plain)


@ptxforge.jit
def waits(x, out, n, BLOCK: tl.constexpr):
    while tl.load(x, volatile=True) == 0:
        tl.store(out, 1)


def test_a_kernel_that_never_ends_is_stopped(device, monkeypatch):
    monkeypatch.setenv("PTXFORGE_TIME_LIMIT", "0.2")
    with pytest.raises(InterpreterError, match="PTXFORGE_TIME_LIMIT") as caught:
        launched(waits, programs=1)
    assert "in waits" in str(caught.value) and "volatile=True" in str(caught.value)
