"""Arrays from ``ptxforge.empty``: reading what nothing has written is found, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def add_to(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(out + i, mask=m) + tl.load(x + i, mask=m), mask=m)


@ptxforge.jit
def fill(out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 1, mask=i < n)


@ptxforge.jit
def count(out, BLOCK: tl.constexpr):
    tl.atomic_add(out + tl.arange(0, BLOCK) % 4, 1)


def findings_of(launch) -> list:
    with ptxforge.check(fail_on="never") as report:
        launch()
    return [issue for issue in report.issues if issue.severity == "error"]


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "int64"])
@pytest.mark.parametrize("written", [0, 37])
def test_a_read_of_what_nobody_wrote(kind, written):
    out, x = ptxforge.empty(100, kind), ptxforge.to_device(np.ones(100, kind))

    def launch():
        fill[(1,)](out, written, BLOCK=128)
        add_to[(1,)](x, out, 100, BLOCK=128)

    (issue,) = findings_of(launch)
    assert issue.kind == "uninitialised" and issue.kernel == "add_to"
    assert issue.message == "global memory is read that nobody has written"
    assert issue.element.startswith("out[") and issue.element.endswith(f", {kind}[100]")


def test_what_was_written_may_be_read():
    out, x = ptxforge.empty((4, 25), np.float16), ptxforge.to_device(np.ones(100, np.float16))
    copied = ptxforge.empty(100).copy_from(np.zeros(100, np.float32))

    def launch():
        fill[(1,)](out, 100, BLOCK=128)
        add_to[(1,)](x, out, 100, BLOCK=128)
        add_to[(1,)](ptxforge.to_device(np.ones(100, np.float32)), copied, 100, BLOCK=128)

    assert not findings_of(launch)
    assert (out.numpy() == 2).all() and (copied.numpy() == 1).all()


def test_what_an_unchecked_launch_wrote_counts():
    out, x = ptxforge.empty(100), ptxforge.to_device(np.ones(100, np.float32))
    fill[(1,)](out, 100, BLOCK=128)
    assert not findings_of(lambda: add_to[(1,)](x, out, 100, BLOCK=128))


def test_an_atomic_reads_too():
    out = ptxforge.empty(4, np.int32)
    (issue,) = findings_of(lambda: count[(1,)](out, BLOCK=128))
    assert issue.kind == "uninitialised"


def test_memory_that_is_given_back_is_forgotten(emulator):
    out = ptxforge.empty(100, device=emulator)
    address = out.data_ptr()
    assert np.isnan(out.numpy()).all() and address in emulator.memory.poisoned
    out.free()
    assert address not in emulator.memory.poisoned
