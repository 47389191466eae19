"""A kernel that does not fit: the error names what would."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import cache
from ptxforge.support.errors import OutOfResourcesError


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
