"""Launches in CUDA graphs, and timing by them."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import ptxforge
from ptxforge.cli.demo_kernels import add
from ptxforge.runtime import hooks, timing
from ptxforge.support.errors import DeviceError
from tests.driver.fake_driver import FakeDriver, install


@pytest.fixture
def driver(monkeypatch) -> FakeDriver:
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    monkeypatch.setattr(timing, "FLUSH_BYTES", 64)
    return install(monkeypatch, FakeDriver())


def test_what_is_replayed(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    bound = kernel.bind((1,), x, x, x, 5)

    def work():
        kernel[(2,)](x, x, x, 8)
        bound()

    for _ in range(4):  # warm launches go other roads
        work()
    before = len(driver.launches)
    assert ptxforge.do_bench_cudagraph(work, rep=2) == 0.5
    assert len(driver.launches) == before + 2  # as they are; the captured ones are in the graph
    packed = [struct.pack("<QQQi", *[x.data_ptr()] * 3, n) for n in (8, 5)]
    assert len(driver.replays) > 3 and all(replay == (0, packed) for replay in driver.replays)
    (stream,) = driver.streams
    assert f"destroy {stream}" in driver.calls and not driver.captured and not hooks.LAUNCH
    work()
    assert [launch.stream for launch in driver.launches[-2:]] == [0, 0]


def test_a_launch_that_names_its_stream_is_not_captured(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    with pytest.raises(DeviceError, match="cuStreamEndCapture failed"):
        ptxforge.do_bench_cudagraph(lambda: kernel[(2,)](x, x, x, 8, stream=7))
    assert not hooks.LAUNCH and not driver.captured and f"destroy {driver.streams[0]}" in driver.calls


def test_an_error_while_capturing(kernel, driver):
    calls = []

    def work():
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        ptxforge.do_bench_cudagraph(work)
    assert not hooks.LAUNCH and not driver.captured


def test_on_the_emulator_it_is_do_bench():
    calls = []
    assert ptxforge.do_bench_cudagraph(lambda: calls.append(1), rep=1, quantiles=[0.5]) >= 0
    assert calls


@pytest.mark.parametrize("place", [0, -1])
def test_on_the_gpu(devices, place):
    """The time of an addition, without the host's."""
    with ptxforge.use_device(devices[place]):
        x = ptxforge.to_device(np.arange(1 << 16, dtype=np.float32))
        out = ptxforge.empty(1 << 16, np.float32)
        work = lambda: add[(64,)](x, x, out, 1 << 16, BLOCK=1024)  # noqa: E731
        assert 0 < ptxforge.do_bench_cudagraph(work, rep=2, return_mode="median") < 1000
        np.testing.assert_array_equal(out.numpy(), 2 * np.arange(1 << 16, dtype=np.float32))
