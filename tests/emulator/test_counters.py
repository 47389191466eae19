"""Counters against hand-counted kernels and the known access patterns, and launches spread over processes."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.emulator.counters import MULTIPROCESSOR, global_sectors, shared_wavefronts
from ptxforge.emulator.parallel import can_spread

from .harness import HEADER, fixture, run

LANES = np.arange(32)


@pytest.mark.parametrize(
    "stride, nbytes, wavefronts, phases",
    [
        (4, 4, 1, 1),
        (128, 4, 32, 1),
        (132, 4, 1, 1),
        (8, 4, 2, 1),
        (64, 4, 16, 1),
        (0, 4, 1, 1),
        (2, 2, 1, 1),
        (1, 1, 1, 1),
        (8, 8, 2, 2),
        (16, 16, 4, 4),
        (32, 16, 8, 4),
        (128, 16, 32, 4),
        (144, 16, 4, 4),
    ],
)
def test_bank_conflicts_of_strides(stride, nbytes, wavefronts, phases):
    assert shared_wavefronts(LANES, LANES * stride, nbytes) == (1, phases, wavefronts)


@pytest.mark.parametrize(
    "stride, nbytes, sectors", [(4, 4, 4), (8, 4, 8), (32, 4, 32), (16, 16, 16), (0, 4, 1), (4096, 4, 32)]
)
def test_sectors_of_strides(stride, nbytes, sectors):
    assert global_sectors(LANES, LANES * stride + 4096, nbytes) == (1, sectors)


def test_sectors_are_per_warp():
    lanes = np.arange(64)
    assert global_sectors(lanes, np.full(64, 512), 4) == (2, 2)


KERNEL = (
    HEADER.format(target="sm_90")
    + """
.file 1 "kernel.py"
.visible .entry k(.param .u64 x) {
  .shared .align 16 .b8 buffer[8192]; .reg .b64 %a; .reg .b32 %r<8>; .reg .pred %p; .reg .f32 %f<4>;
  .loc 1 10 0
  mov.u32 %r0, %tid.x; ld.param.u64 %a, [x]; mad.wide.u32 %a, %r0, 4, %a;
  .loc 1 11 0
  ld.global.f32 %f0, [%a];
  mov.u32 %r1, buffer; mad.lo.u32 %r2, %r0, 128, %r1;
  .loc 1 12 0
  st.shared.f32 [%r2], %f0;
  mov.u32 %r3, 0;
LOOP:
  .loc 1 13 0
  add.u32 %r3, %r3, 1;
  and.b32 %r4, %r0, 1;
  add.u32 %r4, %r4, 2;
  setp.lt.u32 %p, %r3, %r4;
  @%p bra LOOP;
  .loc 1 14 0
  ex2.approx.f32 %f1, %f0;
  st.global.f32 [%a], %f1;
  ret;
}
"""
)


@pytest.fixture
def report():
    device = EmulatorDevice(counters=True)
    run(device, KERNEL, "k", 4, 64, np.zeros(64, np.float32))
    return device.last_report


def test_lines_and_totals(report):
    rows = {row.source.line: row for row in report.by_source}
    warps = 8
    assert rows[10].instructions == 3 * warps and rows[10].thread_instructions == 3 * warps * 32
    assert (
        rows[11].global_requests == warps
        and rows[11].global_sectors == 4 * warps
        and rows[11].global_bytes == 4 * 256
    )
    assert rows[12].shared_requests == warps and rows[12].bank_conflicts == 31 * warps
    # Even lanes take two turns, odd lanes three: the third turn is half empty.
    assert rows[13].instructions == 3 * 5 * warps and rows[13].thread_instructions == 5 * 5 * 16 * warps
    assert rows[13].divergent == 5 * warps
    total = report.total
    assert total.global_sectors == 2 * 4 * warps and total.instructions == sum(
        row.instructions for row in rows.values()
    )
    assert report.by_kind["special function"] == warps and report.by_kind["shared store"] == warps


def test_report_is_readable_and_plain_data(report):
    text = str(report)
    assert "kernel.py:12" in text and "limited by" in text
    line = next(row for row in text.splitlines() if row.startswith("kernel.py:12"))
    assert line.split()[-1] == "248"
    data = json.loads(json.dumps(report.data()))
    assert data["total"]["bank_conflicts"] == 248 and data["block"] == [64, 1, 1]


def test_counts_do_not_depend_on_which_ctas_run_together(report):
    """The same CTA, many times: counts per CTA stay the same."""
    device = EmulatorDevice(counters=True)
    run(device, KERNEL, "k", 1000, 64, np.zeros(64, np.float32))
    one, many = report.total, device.last_report.total
    for name in ("instructions", "divergent", "global_sectors", "shared_wavefronts", "thread_instructions"):
        assert getattr(many, name) == 250 * getattr(one, name)


@pytest.mark.parametrize(
    "threads, registers, shared, ctas, limit",
    [
        (128, 32, 0, 16, "threads"),
        (128, 255, 0, 2, "registers"),
        (256, 64, 100 * 1024, 2, "shared memory"),
        (32, 16, 0, 32, "blocks"),
        (1024, 64, 0, 1, "registers"),
        (128, 0, 227 * 1024, 1, "shared memory"),
    ],
)
def test_occupancy(threads, registers, shared, ctas, limit):
    """CUDA's occupancy calculator for sm_90 gives the same numbers."""
    found = MULTIPROCESSOR.occupancy(threads, registers, shared)
    assert found.blocks == ctas and found.limits[found.limiter] == found.limits[limit]


# ---- processes ---------------------------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_give_the_same_result():
    x = np.random.default_rng(0).integers(-100, 100, 5000, dtype=np.int32)
    results = []
    for processes in (1, 3):
        y, totals = np.zeros_like(x), np.zeros(20, np.int32)
        device = EmulatorDevice(processes=processes)
        run(device, fixture("scan"), "scan_blocks", 20, 256, x, y, totals, np.int32(len(x)))
        run(device, fixture("scan"), "add_totals", 20, 256, y, totals, np.int32(len(x)))
        results.append(y)
    np.testing.assert_array_equal(results[0], np.cumsum(x))
    np.testing.assert_array_equal(results[1], results[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_findings_come_from_all_processes():
    device = EmulatorDevice(processes=2, raise_faults=False)
    run(device, KERNEL, "k", 4, 64, np.zeros(48, np.float32))
    assert {finding.kind for finding in device.findings} == {"out-of-bounds"}
    assert sorted(finding.count for finding in device.findings) == [64, 64]


def test_kernels_with_global_atomics_are_not_spread():
    device = EmulatorDevice()
    reduce_sum, scan = device.load_module(fixture("reduction")), device.load_module(fixture("scan"))
    assert not can_spread(reduce_sum.function("reduce_sum").translation.program)
    assert can_spread(scan.function("scan_blocks").translation.program)


def test_registers_are_those_live_at_once():
    """Three 32-bit and one 64-bit value are live before the first ``add``; predicates and dead values are not
    counted.
    """
    text = HEADER.format(target="sm_90") + """
.visible .entry k(.param .u64 out)DIRECTIVE {
.reg .b32 %r<9>; .reg .b64 %a; .reg .pred %p; .reg .b16 %h;
ld.param.u64 %a, [out]; mov.u32 %r0, %tid.x; mov.u32 %r8, 5; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
setp.eq.u32 %p, %r0, 3; add.u32 %r3, %r0, %r1; add.u32 %r4, %r3, %r2; @%p add.u32 %r4, %r4, %r0;
cvt.u16.u32 %h, %r4; st.global.u16 [%a], %h; ret; }
.visible .entry empty() { ret; }
"""
    module = EmulatorDevice().load_module(text.replace("DIRECTIVE", ""))
    assert module.function("k").attributes.registers == 2 + 3
    assert module.function("empty").attributes.registers == 1
    limited = EmulatorDevice().load_module(text.replace("DIRECTIVE", " .maxnreg 4"))
    assert limited.function("k").attributes.registers == 4


def test_registers_that_a_loop_carries_are_live_in_it():
    text = HEADER.format(target="sm_90") + """
.visible .entry k() { .reg .b32 %r<9>; .reg .pred %p;
mov.u32 %r0, 0; mov.u32 %r1, 1; mov.u32 %r2, 2;
L: add.u32 %r0, %r0, 1; setp.lt.u32 %p, %r0, 4; @%p bra L;
add.u32 %r3, %r1, %r2; add.u32 %r3, %r3, %r0; ret; }
"""
    assert EmulatorDevice().load_module(text).function("k").attributes.registers == 3
