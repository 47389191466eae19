"""A kernel that does not fit: the error names what would."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator.launch import load_text
from ptxforge.emulator.registers import live_by_line, pressure
from ptxforge.runtime import cache
from ptxforge.support.errors import OutOfResourcesError
from tests.driver.fake_driver import FakeDriver, install


@ptxforge.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, STEP):
        left = tl.load(a + i[:, None] * K + (start + k)[None, :])
        total = tl.dot(left, tl.load(b + (start + k)[:, None] * N + j[None, :]), total)
    tl.store(c + i[:, None] * N + j[None, :], total)


def launch(stages, step=64):
    a, b = np.zeros((64, 256), np.float16), np.zeros((256, 64), np.float16)
    matmul[(1,)](a, b, np.zeros((64, 64), np.float32), 256, M=64, N=64, STEP=step, num_stages=stages)


def test_the_nearest_configuration_that_fits(monkeypatch):
    monkeypatch.setenv("PTXFORGE_TARGET", "sm_86")  # 99 KiB a block
    with pytest.raises(OutOfResourcesError) as raised:
        launch(stages=8)
    text = str(raised.value)
    fits = int(text.partition("nearest that fits: num_stages=")[2].partition(" ")[0])
    assert 1 < fits < 8 and "checked by compiling it" in text
    launch(stages=fits)
    with pytest.raises(OutOfResourcesError):
        launch(stages=fits + 1)


def test_no_advice_where_nobody_reads_it(monkeypatch):
    """A tuner goes on to the next configuration, and must not compile others for each that fails."""
    monkeypatch.setenv("PTXFORGE_TARGET", "sm_86")
    configs = [ptxforge.Config({"STEP": 64}, num_stages=stages) for stages in (8, 2)]
    tuned = ptxforge.autotune(configs, key=[])(ptxforge.jit(matmul.fn))
    before = cache.counters.compiled
    a, b = np.zeros((64, 256), np.float16), np.zeros((256, 64), np.float16)
    tuned[(1,)](a, b, np.zeros((64, 64), np.float32), 256, M=64, N=64)
    assert tuned.best_config is configs[1] and cache.counters.compiled == before + 2
    assert "nearest that fits" not in str(tuned.failures[configs[0]])


def test_registers_by_source_line(monkeypatch):
    """A GPU tells how many registers there are, and the PTX which lines they belong to."""
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    driver = install(monkeypatch, FakeDriver())
    driver.function_attributes = {"MAX_THREADS_PER_BLOCK": 256, "NUM_REGS": 255}
    kernel = ptxforge.jit(matmul.fn)
    a, c = ptxforge.empty((64, 256), np.float16), ptxforge.empty((64, 64), np.float32)
    with pytest.raises(OutOfResourcesError) as raised:
        kernel[(1,)](a, a, c, 256, M=64, N=64, STEP=32, num_warps=16, tensor_maps=False)
    text = str(raised.value)
    assert text.startswith("out of resource: registers (255 per thread leave room for 256 threads): 512")
    rows = re.findall(rf"^ +(\d+): {re.escape(__file__)}:(\d+)  (.+)$", text, re.MULTILINE)
    assert rows and all(1 <= int(count) <= 255 for count, _, _ in rows)
    counts = [int(count) for count, _, _ in rows]
    assert counts == sorted(counts, reverse=True)
    lines, first = inspect.getsourcelines(matmul.fn)
    assert all(lines[int(number) - first].strip() == shown for _, number, shown in rows)
    assert "tl.dot" in rows[0][2]  # the sums: 64 * 64 / 512 threads
    assert "nearest that fits: num_warps=8" in text


def test_registers_that_are_live_at_once():
    text = """.version 7.0
.target sm_80
.address_size 64
.file 1 "k.py"
.visible .entry f(.param .u64 p) {
    .reg .b32 %r<4>; .reg .b64 %d<2>; .reg .pred %q;
    .loc 1 10 1
    ld.param.u64 %d0, [p];
    .loc 1 11 1
    ld.global.u32 %r0, [%d0];
    ld.global.u32 %r1, [%d0+4];
    .loc 1 12 1
    add.u32 %r2, %r0, %r1;
    setp.eq.u32 %q, %r2, %r0;
    .loc 1 13 1
    @%q st.global.u32 [%d0], %r2;
    ret;
}
"""
    program = load_text(text).translations["f"].program
    assert pressure(program) == 4  # the address, and two of the loads and their sum
    assert [(line.line, count) for line, count in live_by_line(program)] == [(10, 2), (11, 1), (12, 1)]
