"""A wrong kernel shows the user's frames, and ptxforge's own when asked for."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import InternalCompilerError, PtxforgeError


@ptxforge.jit
def helper(value):
    return value.nothing


@ptxforge.jit
def does_not_compile(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), helper(x))


@ptxforge.jit
def reads_too_much(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tl.load(x + BLOCK + tl.arange(0, BLOCK)))


def _compile():
    does_not_compile[(1,)](np.zeros(64, np.float32), BLOCK=64)


def _run():
    does_not_compile.run(np.zeros(64, np.float32), grid=(1,), BLOCK=64)


def _launch():
    reads_too_much[(1,)](np.zeros(64, np.float32), BLOCK=64)


def _bind():
    reads_too_much[(1,)](BLOCK=64)


def frames_of(call) -> list[str]:
    """The files below this one, innermost last."""
    with pytest.raises(PtxforgeError) as error:
        call()
    assert error.value.__cause__ is None
    return [Path(frame.filename).name for frame in traceback.extract_tb(error.value.__traceback__)][1:]


@pytest.mark.parametrize("call", [_compile, _launch, _bind])
def test_the_users_frames_and_one(call):
    assert frames_of(call)[:1] == ["test_tracebacks.py"]
    assert len(frames_of(call)) == 2


def test_the_users_frames_and_one_of_a_warm_launch():
    @ptxforge.jit
    def asserts(x, n, SIZE: tl.constexpr):
        tl.static_assert(SIZE == 1)
        tl.store(x, n)

    array = np.zeros(64, np.float32)
    for n in (2, 3):
        asserts[(1,)](array, n, SIZE=1)
    assert frames_of(lambda: asserts[(1,)](array, 4, SIZE=2)) == ["test_tracebacks.py", "<ptxforge launch>"]


def test_run_has_one_frame_of_ours_as_well():
    assert frames_of(_run) == ["test_tracebacks.py", "jit.py"]


@pytest.mark.parametrize("device", ["emulator", "interpreter"])
def test_ctrl_c_shows_where_and_no_frames_of_ours(device, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("ptxforge.emulator.scheduler.Scheduler._together", interrupt)
    monkeypatch.setattr("ptxforge.interpreter.execute.Program.block", interrupt)
    with ptxforge.use_device(device), pytest.raises(KeyboardInterrupt, match="reads_too_much") as error:
        _launch()
    names = [Path(frame.filename).name for frame in traceback.extract_tb(error.value.__traceback__)]
    assert names[:2] == ["test_tracebacks.py", "test_tracebacks.py"]
    assert names[2:] in (["plans.py"], ["<ptxforge launch>"])  # a first launch, or a later one


def test_all_frames_when_asked_for(monkeypatch):
    monkeypatch.setenv("PTXFORGE_TRACEBACK", "full")
    assert "visitor.py" in frames_of(_compile)


def test_the_frame_of_ours_is_hidden_by_pytest_and_ipython():
    with pytest.raises(PtxforgeError) as error:
        _compile()
    assert error.traceback[-1].frame.f_locals["__tracebackhide__"]


def test_a_fault_of_the_compiler_keeps_its_frames(monkeypatch):
    def fail(*arguments, **options):
        raise InternalCompilerError("ours")

    monkeypatch.setattr("ptxforge.compiler.compile_function", fail)
    assert frames_of(_compile)[-1] == "test_tracebacks.py"  # where `fail` is
    assert "jit.py" in frames_of(_compile)
