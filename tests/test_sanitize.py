"""What compute-sanitizer looks at runs, and is clean on the emulator; what it prints is read right."""

from __future__ import annotations

import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import DeviceError
from tests import sanitize
from tests.sanitizer_controls import CONTROLS


@pytest.mark.parametrize("name", sanitize.LAUNCHES)
def test_launches_are_clean(emulator, name):
    sanitize.LAUNCHES[name]().on(emulator)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.filterwarnings("ignore")
def test_controls_are_what_they_say(name, assemble):
    """Each has the error that its tool is to find, and no other; the emulator has no check for the last
    one's."""
    control, device = CONTROLS[name], EmulatorDevice(check="all")
    assemble(control.ptx)
    try:
        control.on(device)
    except DeviceError:
        assert control.finding == "out-of-bounds"
    assert {finding.kind for finding in device.findings} == ({control.finding} if control.finding else set())
    assert control.is_wrong or not control.finding


PRINTED = """========= COMPUTE-SANITIZER

@@ softmax

@@ done

@@ sort
========= Invalid __global__ write of size 4 bytes
=========     at sorted_rows+0x140
ptxforge.support.errors.DeviceError: the launch failed
========= ERROR SUMMARY: 1 error
"""


def test_findings_belong_to_kernels():
    found = sanitize.findings(PRINTED)
    assert list(found) == ["softmax", "sort"] and not found["softmax"]
    assert found["sort"][:2] == ["Invalid __global__ write of size 4 bytes", "at sorted_rows+0x140"]
    assert found["sort"][-1].startswith("unfinished")


def test_a_summary_without_errors_is_no_finding():
    found = sanitize.findings(PRINTED.replace("1 error", "0 errors").replace("@@ sort\n", ""))
    assert "ERROR SUMMARY: 0 errors" in found["softmax"]
    assert not sanitize.is_finding("ERROR SUMMARY: 0 errors") and sanitize.is_finding("Invalid __global__")
