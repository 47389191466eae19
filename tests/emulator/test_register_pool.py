"""``setmaxnreg``: registers go from warps that give them back to those that want more."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import DeviceError

from .harness import HEADER, run

KERNEL = """
.visible .entry k(.param .u64 x) .reqntid 256 {directive} {{
.reg .b64 %x; .reg .b32 %t; .reg .pred %p;
mov.u32 %t, %tid.x; ld.param.u64 %x, [x]; cvta.to.global.u64 %x, %x; mad.wide.u32 %x, %t, 4, %x;
setp.ge.u32 %p, %t, 128;
@%p bra others;
{first}
st.global.b32 [%x], 1;
{meet}
ret;
others:
{meet}
{second}
st.global.b32 [%x], 2;
ret; }}
"""
MORE, LESS = ("setmaxnreg.{}.sync.aligned.u32 %d;".format(way) for way in ("inc", "dec"))
EVERYONE = np.repeat(np.array([1, 2], np.uint32), 128)


def findings(first: str, second: str, directive: str = ".maxnreg 128", meet: str = "") -> list:
    device = EmulatorDevice(raise_faults=False)
    text = KERNEL.format(first=first, second=second, directive=directive, meet=meet)
    x = np.zeros(256, np.uint32)
    run(device, HEADER.format(target="sm_90a") + text, "k", 1, 256, x)
    if not device.findings:
        np.testing.assert_array_equal(x, EVERYONE)
    return [(finding.kind, finding.message) for finding in device.findings]


@pytest.mark.parametrize("first, second", [(MORE % 232, LESS % 24), (LESS % 24, MORE % 232)])
def test_what_one_half_gives_the_other_takes(first, second):
    assert not findings(first, second)


def test_more_than_was_launched_is_waited_for_for_ever():
    ((kind, message),) = findings(MORE % 240, LESS % 24)
    assert kind == "deadlock" and "of 1 CTAs wait here" in message


def test_registers_that_come_too_late():
    """Those who would give them back wait for those who want them."""
    kinds = {kind for kind, _ in findings(MORE % 232, LESS % 24, meet="bar.sync 0;")}
    assert kinds == {"deadlock"}


def test_what_exited_warps_leave_is_not_given_to_others():
    ((kind, _),) = findings(MORE % 232, "")
    assert kind == "deadlock"


@pytest.mark.parametrize("first, second, text", [
    (LESS % 136, "", "128 registers cannot go down to 136"),
    ("", MORE % 120, "128 registers cannot go up to 120"),
])  # fmt: skip
def test_the_wrong_way(first, second, text):
    ((kind, message),) = findings(first, second)
    assert kind == "register" and text in message


def test_registers_are_dealt_out_in_eights():
    assert not findings(MORE % 232, LESS % 24, directive=".maxnreg 125")


def test_without_a_number_at_launch_there_is_no_pool():
    assert not findings(MORE % 240, MORE % 240, directive="")


@pytest.mark.parametrize("count", [16, 28, 264])
def test_numbers_that_the_instruction_does_not_take(count):
    with pytest.raises(DeviceError, match="multiple of 8 from 24 to 256"):
        findings(MORE % count, "")
