"""What compute-sanitizer looks at runs, and is clean on the emulator; what it prints is read right."""

from __future__ import annotations

import pytest

from tests import sanitize


@pytest.mark.parametrize("name", sanitize.LAUNCHES)
def test_launches_are_clean(emulator, name):
    sanitize.LAUNCHES[name]().on(emulator)


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
