"""Launches that do not end are stopped, and say where they were."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice, scheduler
from ptxforge.support.errors import DeviceError
from ptxforge.support.settings import SettingError

from .harness import HEADER, fixture, run

LOOP = HEADER.format(target="sm_80") + """
.file 1 "loop.cu"
.visible .entry spin(.param .u64 data) {
    .reg .b32 %%r<4>; .reg .b64 %%rd<2>; .reg .pred %%p<3>;
    ld.param.u64 %%rd0, [data]; mov.u32 %%r0, %%tid.x; mov.u32 %%r1, 0;
    setp.lt.u32 %%p1, %%r0, %d;
    @!%%p1 bra END;
    .loc 1 7 3
    AGAIN: %s
    setp.ne.u32 %%p0, %%r1, -1;
    @%%p0 bra AGAIN;
    END: ret;
}
"""
CHANGES_NOTHING = "xor.b32 %r1, %r1, 1;"
COUNTS = "add.u32 %r1, %r1, 2;"
WRITES = "xor.b32 %r1, %r1, 1; st.global.u32 [%rd0], %r1;"
MEMORY = np.zeros(4, np.uint32)


def spin(body: str, threads: int = 32, **options) -> EmulatorDevice:
    device = EmulatorDevice(raise_faults=False, **options)
    run(device, LOOP % (threads, body), "spin", 2, 64, MEMORY.copy())
    return device


@pytest.mark.parametrize("threads", [64, 20])
@pytest.mark.parametrize("check", ["off", "all"])
def test_a_loop_that_repeats_itself_is_a_livelock(threads, check):
    (found,) = spin(CHANGES_NOTHING, threads, check=check).findings
    assert found.kind == "livelock" and str(found.source) == "loop.cu:7"
    assert found.count == 2 * threads


@pytest.mark.parametrize("body", [COUNTS, WRITES])
@pytest.mark.parametrize("threads", [64, 20])
def test_a_loop_that_changes_something_runs_to_the_limit(monkeypatch, body, threads):
    """The state is compared as soon as that of the other loops would be, and as often again."""
    monkeypatch.setattr(scheduler, "_PATIENCE", 8)
    (found,) = spin(body, threads, step_limit=1 << 15).findings
    assert found.kind == "limit" and f"stopped after {1 << 15} basic blocks" in found.message
    assert [one.kind for one in spin(CHANGES_NOTHING, threads, step_limit=1 << 15).findings] == ["livelock"]


def test_a_limit_of_seconds():
    (found,) = spin(COUNTS, time_limit=0.05).findings
    assert found.kind == "limit" and found.message == "stopped after 0.05 seconds"


def test_it_is_a_fault():
    with pytest.raises(DeviceError, match=r"loop.cu:7: limit: stopped after"):
        run(EmulatorDevice(step_limit=5000), LOOP % (64, COUNTS), "spin", 1, 64, MEMORY.copy())


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("PTXFORGE_STEP_LIMIT", "4096", "4096 basic blocks"), ("PTXFORGE_TIME_LIMIT", ".01", "0.01 seconds")],
)
def test_the_settings(monkeypatch, name, value, expected):
    monkeypatch.setenv(name, value)
    (found,) = spin(COUNTS).findings
    assert expected in found.message
    monkeypatch.setenv(name, "soon")
    with pytest.raises(SettingError, match="it is a number"):
        spin(COUNTS)


def test_a_launch_that_ends_is_not_stopped():
    """Threads take turns at a lock: each waits long for something that others change."""
    device = EmulatorDevice()
    lock, total, order = np.zeros(1, np.int32), np.zeros(2, np.int32), np.zeros(96, np.int32)
    run(device, fixture("spin_lock"), "take_turns", 24, 32, lock, total, order)
    assert not device.findings


@pytest.mark.parametrize("threads", [64, 20])
def test_an_interrupt_says_where_it_came(monkeypatch, threads):
    def interrupt(self, steps, at):
        """As a signal's handler does, but surely: other tests may have put another one in its place."""
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler.Scheduler, "_should_stop", interrupt)
    with pytest.raises(KeyboardInterrupt) as stop:
        spin(COUNTS, threads)
    assert str(stop.value) == "in kernel 'spin' at loop.cu:7, programs (0, 0, 0) to (1, 0, 0)"


@ptxforge.jit
def takes_a_lock(lock, out, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + tl.arange(0, BLOCK), 1)


@ptxforge.jit
def looks_in_vain(flag, out, BLOCK: tl.constexpr):
    """A block as the condition: its elements meet in shared memory."""
    i = tl.arange(0, BLOCK)
    while tl.sum(tl.load(flag + i, volatile=True), 0) == 0:
        pass
    tl.store(out + i, 1)


@pytest.mark.parametrize(("kernel", "programs"), [(takes_a_lock, 2), (looks_in_vain, 1)])
def test_what_programs_write_to_shared_memory_helps_no_other_one(kernel, programs):
    """A lock that nobody releases, a flag that nobody sets: what was read goes from thread to thread."""
    device = EmulatorDevice(raise_faults=False)
    with ptxforge.use_device(device):
        kernel[(programs,)](np.zeros(128, np.int32), np.zeros(128, np.int32), BLOCK=128)
    (found,) = device.findings
    assert found.kind in ("deadlock", "livelock") and found.cta == (programs - 1, 0, 0)
    assert found.source.line == kernel.fn.__code__.co_firstlineno + (2 if programs == 2 else 4)
