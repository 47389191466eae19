"""Addresses and guards that come from registers which no path has written."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.emulator.launch import load_text
from ptxforge.emulator.registers import unwritten

from .harness import FIXTURES, HEADER, fixture

KERNEL = HEADER.format(target="sm_80") + """
.visible .entry k(.param .u64 data) {
    .reg .b32 %%r<6>; .reg .b64 %%rd<6>; .reg .pred %%p<4>;
    ld.param.u64 %%rd0, [data]; mov.u32 %%r0, %%tid.x; setp.lt.u32 %%p0, %%r0, 16;
    %s
    ret;
}
"""
FAULTY = {
    "itself": ("st.global.u32 [%rd1], %r0;", "%rd1 is used, but nothing has written it"),
    "a sum": (
        "add.u64 %rd1, %rd0, %rd2; st.global.u32 [%rd1], %r0;",
        "%rd1 is used, but computed from a register that nothing has written",
    ),
    "a long way": (
        "mov.u32 %r1, %r2; shl.b32 %r1, %r1, 2; cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %rd0, %rd1;"
        "st.global.u32 [%rd1], %r0;",
        "%rd1 is used, but computed from",
    ),
    "a guard": ("setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%rd0], %r0;", "%p1 is used, but computed from"),
    "overwritten": (
        "mov.u64 %rd1, %rd0; mov.u64 %rd1, %rd2; st.global.u32 [%rd1], %r0;", "%rd1 is used, but computed"
    ),
}  # fmt: skip
RIGHT = {
    "on one path": "@%p0 mov.u64 %rd2, 0; add.u64 %rd1, %rd0, %rd2; st.global.u32 [%rd1], %r0;",
    "known on one path": "mov.u64 %rd1, %rd0; @%p0 mov.u64 %rd1, %rd2; st.global.u32 [%rd1], %r0;",
    "cancelled": "xor.b32 %r1, %r1, %r1; mad.wide.u32 %rd1, %r1, 4, %rd0; st.global.u32 [%rd1], %r0;",
    "as data": "add.u32 %r1, %r2, 1; st.global.u32 [%rd0], %r1;",
    "left out": "selp.b64 %rd1, %rd0, %rd2, %p0; @%p0 st.global.u32 [%rd1], %r0;",
    "loaded": "ld.global.u64 %rd1, [%rd0]; setp.ne.u64 %p1, %rd1, 0; @%p1 st.global.u32 [%rd1], %r0;",
    "in a loop": "mov.u64 %rd1, %rd0; L: st.global.u32 [%rd1], %r0; add.u64 %rd1, %rd1, 4;"
    "setp.gt.u64 %p1, %rd1, %rd0; @!%p1 bra L;",
}


def findings_of(body: str) -> list[str]:
    device = EmulatorDevice(check="all", raise_faults=False)
    address = device.allocate(256)
    kernel = device.load_module(KERNEL % body).function("k")
    kernel.launch((1, 1, 1), (32, 1, 1), 0, 0, np.uint64(address).tobytes())
    return [finding.message for finding in device.findings if finding.kind == "register"]


@pytest.mark.parametrize("case", FAULTY)
def test_found(case):
    body, message = FAULTY[case]
    (found,) = findings_of(body)
    assert found.startswith(message)


@pytest.mark.parametrize("case", RIGHT)
def test_not_found(case):
    assert not findings_of(RIGHT[case])


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.ptx")))
def test_other_compilers_text_has_none(name):
    for translation in load_text(fixture(name)).translations.values():
        assert not unwritten(translation.program)
