"""Tiles smaller than the threads are many: several threads hold copies of an element. What the compiler makes
of that is no finding, and a race of the user's own is one all the same."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.emulator.launch import load_text
from ptxforge.emulator.registers import feeds_guarded_stores_only
from tests.emulator.harness import HEADER, run


@ptxforge.jit
def in_place(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for _ in range(n):
        tl.store(x + i, tl.load(x + i) + 1)


@ptxforge.jit
def from_to(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    for _ in range(n):
        tl.store(out + i, tl.load(x + i) + 1)


@ptxforge.jit
def counter(x, out, n):
    last = 0.0
    for _ in range(n):
        last = tl.load(x)
        tl.store(x, last + 1)
    tl.store(out, last)


@pytest.mark.parametrize("block", [1, 16, 32, 64, 128])
@pytest.mark.parametrize("warps", [1, 4])
def test_updates_in_place_are_no_races(block, warps):
    x, alias = np.zeros(block, np.float32), np.zeros(block, np.float32)
    with ptxforge.check(fail_on="note"):
        in_place[(1,)](x, 3, BLOCK=block, num_warps=warps)
        from_to[(1,)](alias, alias, 3, BLOCK=block, num_warps=warps)
    assert (x == 3).all() and (alias == 3).all()


def test_what_is_loaded_again_in_a_loop_waits_for_the_store():
    """Without a barrier threads of other warps would load what was there before."""
    x, out = np.zeros(1, np.float32), np.zeros(1, np.float32)
    with ptxforge.check(fail_on="note"):
        counter[(1,)](x, out, 3)
    assert (x, out) == (3, 2)
    body = counter.asm["ptx"].split("ld.global")[0].splitlines()
    assert any("bar.sync" in line for line in body), "a barrier stands before the load"


# Threads 0 … 63 load element tid % 32; threads 0 … 31 store it back. %s: between; the guard of the store.
IN_PLACE = HEADER.format(target="sm_80") + """
.visible .entry k(.param .u64 data, .param .u64 other) {
    .reg .b32 %%r<4>; .reg .b64 %%rd<4>; .reg .pred %%p<3>; .reg .f32 %%f<4>;
    mov.u32 %%r0, %%tid.x; and.b32 %%r1, %%r0, 31; setp.lt.u32 %%p0, %%r0, 32;
    ld.param.u64 %%rd0, [data]; mad.wide.u32 %%rd1, %%r1, 4, %%rd0;
    ld.param.u64 %%rd2, [other]; mad.wide.u32 %%rd3, %%r0, 4, %%rd2;
    ld.global.f32 %%f0, [%%rd1];
    add.f32 %%f1, %%f0, 0f3F800000;
    %s
    @%%p0 st.global.f32 [%%rd1], %%f1;
    ret;
}
"""
USES = {
    "only its own store": ("", False),
    "arithmetic": ("fma.rn.f32 %f1, %f1, %f1, %f0;", False),
    "another guarded store": ("@%p0 st.global.f32 [%rd3], %f1;", False),
    "a store by all": ("st.global.f32 [%rd3], %f1;", True),
    "a branch": ("setp.gt.f32 %p1, %f0, 0f00000000; @%p1 bra END; END:", True),
    "another thread": ("shfl.sync.idx.b32 %r2, %f0, 0, 31, -1; mov.b32 %f1, %r2;", True),
    "an address": (
        "mov.b32 %r2, %f0; mad.wide.u32 %rd3, %r2, 4, %rd3; @%p0 st.global.f32 [%rd3], %f1;", True
    ),
    "a guard": ("setp.gt.f32 %p1, %f0, 0f7F800000; @%p1 st.global.f32 [%rd3], %f1;", True),
}


@pytest.mark.parametrize("use", USES)
def test_a_copy_that_feeds_more_than_a_discarded_store_is_a_race(use):
    between, is_race = USES[use]
    device = EmulatorDevice(check="all")
    run(device, IN_PLACE % between, "k", 1, 64, np.zeros(64, np.float32), np.zeros(64, np.float32))
    assert [finding.kind for finding in device.findings] == (["race"] if is_race else [])


def test_another_threads_element_is_a_race():
    """Nobody repeats the work of another here: each reads what its neighbour writes."""
    text = IN_PLACE.replace("and.b32 %%r1, %%r0, 31;", "xor.b32 %%r1, %%r0, 32;") % ""
    text = text.replace("st.global.f32 [%rd1]", "st.global.f32 [%rd2]")
    device = EmulatorDevice(check="all")
    x = np.zeros(64, np.float32)
    run(device, text.replace("ld.param.u64 %rd2, [other]", "ld.param.u64 %rd2, [data]"), "k", 1, 64, x, x)
    assert [finding.kind for finding in device.findings] == ["race"]


def test_only_loads_are_asked():
    (program,) = (t.program for t in load_text(IN_PLACE % "").translations.values())
    lines = (IN_PLACE % "").splitlines()
    load, sum = (next(i for i, line in enumerate(lines, 1) if name in line) for name in ("ld.glo", "add.f"))
    assert feeds_guarded_stores_only(program, load) and not feeds_guarded_stores_only(program, sum)
