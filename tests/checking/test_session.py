"""``with ptxforge.check()``: what it collects, when it raises, and that it leaves nothing behind."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.checking.session import CheckError
from ptxforge.runtime import devices, findings
from ptxforge.support.errors import EmulatorError


@ptxforge.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2, mask=i < n)


@ptxforge.jit
def halve(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 0.5)


def _arrays(count=100):
    return np.ones(count, np.float32), np.zeros(128, np.float32)


def test_faults_do_not_raise_at_the_launch_but_at_the_end():
    x, out = _arrays()
    with pytest.raises(CheckError) as error, ptxforge.check() as report:
        double[(1,)](x, out, 100, BLOCK=128)
        assert (out[:100] == 2).all()  # it went on
    assert error.value.report is report
    assert "out-of-bounds in kernel 'double'" in str(error.value) and "1 error" in str(error.value)


def test_one_issue_per_line_over_all_launches():
    with ptxforge.check(fail_on="never") as report:
        for block, warps in ((128, 4), (128, 1), (256, 4)):
            double[(1,)](*_arrays(), 100, BLOCK=block, num_warps=warps)
        halve[(1,)](*_arrays(), 100, BLOCK=256)
    by_kernel = {issue.kernel: issue for issue in report.issues}
    assert len(report.issues) == 2 and report.launches == {"double": 3, "halve": 1}
    assert by_kernel["double"].launches == 3 and by_kernel["double"].count >= 3
    assert by_kernel["halve"].element == "out[128], past the end of 'out', float32[128]"
    line = double.fn.__code__.co_firstlineno + 3
    assert by_kernel["double"].place.line == line and by_kernel["double"].place.file == __file__


@ptxforge.jit
def wraps(x, out, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + i, mask=i < n), mask=i < n)


def test_launches_are_counted_not_what_was_seen_in_one():
    """Two programs and two masks of a line, in one launch or in two."""
    for launches in (1, 2):
        with ptxforge.check(fail_on="never") as report:
            for _ in range(launches):
                wraps[(4,)](*_arrays(), 100, 2**30, BLOCK=64)
                halve[(1,)](*_arrays(), 256, BLOCK=128)
        found = {issue.kind: issue for issue in report.issues}
        overflow, mask = found["overflow"], found["unused-mask"]
        assert overflow.count == launches * 64 * 2 and overflow.launches == launches
        assert mask.launches == 1 and "first seen" not in str(mask)
        assert ("launches" in str(overflow)) == (launches > 1)


@pytest.mark.parametrize("fail_on", ["error", "warning", "note"])
def test_from_which_severity_on_it_raises(fail_on):
    with pytest.raises(CheckError), ptxforge.check(fail_on=fail_on):
        double[(1,)](*_arrays(), 100, BLOCK=128)


def test_an_unknown_severity():
    with pytest.raises(ValueError, match="fail_on is one of error, warning, note, never, not 'fatal'"):
        ptxforge.check(fail_on="fatal")


def test_the_users_own_error_comes_through():
    with pytest.raises(KeyError), ptxforge.check():
        double[(1,)](*_arrays(), 100, BLOCK=128)
        raise KeyError("mine")


def test_nothing_is_left_behind():
    device = devices.device("emulator")
    before = device.check, device.raise_faults
    with ptxforge.check(fail_on="never"):
        pass
    assert (device.check, device.raise_faults) == before and not findings.listeners
    with pytest.raises(EmulatorError, match="out-of-bounds"):
        double[(1,)](*_arrays(), 100, BLOCK=128)


def test_inside_another_one_both_collect():
    with ptxforge.check(fail_on="never") as outer, ptxforge.check(fail_on="never") as inner:
        double[(1,)](*_arrays(), 100, BLOCK=128)
    assert len(outer.issues) == len(inner.issues) == 1


def test_no_warnings_inside():
    with warnings.catch_warnings(), ptxforge.check(fail_on="never"):
        warnings.simplefilter("error")
        double[(1,)](*_arrays(), 100, BLOCK=128)


def test_arrays_of_the_emulator_are_named_too():
    x, out = ptxforge.to_device(np.ones((10, 10), np.float32)), ptxforge.empty(128)
    with ptxforge.check(fail_on="never") as report:
        double[(1,)](x, out, 100, BLOCK=128)
    assert report.issues[0].element == "x[10, 0], past the end of 'x', float32[10, 10]"


def test_the_setting_counts_again_afterwards(monkeypatch):
    """What the session set on the default device is taken off it, not replaced by what it was."""
    device = devices.device("emulator")
    with ptxforge.check(fail_on="never", order=True):
        halve[(1,)](np.ones(128, np.float32), np.zeros(128, np.float32), 100, BLOCK=128)
    assert device.own_check == ""
    monkeypatch.setenv("PTXFORGE_CHECK", "one")
    assert device.check == "one"
