"""Launches in CUDA graphs, and timing by them."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import ptxforge
from ptxforge.cli.demo_kernels import add, matmul
from ptxforge.driver.cuda_launch import CudaGraph
from ptxforge.runtime import hooks, slots, timing
from ptxforge.runtime.devices import default_device
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


def _multiply(a, b, out):
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    return matmul[(2, 2)](a, b, out, 128, 128, 128, **blocks)


def test_captured_launches_keep_their_tensor_maps(driver):
    """Whatever is launched between, and though the maps that a variant keeps are others by now."""
    a, b, *others = (ptxforge.to_device(np.zeros((128, 128), np.float16)) for _ in range(slots._KEPT + 4))
    out = ptxforge.empty((128, 128), np.float32)
    variant = _multiply(a, b, out)
    assert len(variant.artifact.tensor_maps) == 2
    with CudaGraph(default_device()) as graph:
        with hooks.on_stream(graph.stream), graph.capture():
            _multiply(a, b, out)
        for other in others:
            _multiply(other, other, out)
        graph.replay()
    ((_, (packed,)),) = driver.replays
    read = struct.pack("<Q", a.data_ptr()), struct.pack("<Q", b.data_ptr())
    assert [packed.count(address) for address in read] == [2, 2]  # as an argument, and in the map
    assert len(driver.tensor_maps) > slots._KEPT


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


def test_captured_launches_keep_their_tensor_maps_on_the_gpu(devices):
    gpus = [device for device in devices if device.name != "emulator"]
    if not gpus:
        pytest.skip("needs --device cuda")
    values = np.random.default_rng(0).standard_normal((3, 128, 128)).astype(np.float16)
    with ptxforge.use_device(gpus[0]) as device:
        a, b, others = map(ptxforge.to_device, values)
        out, between = (ptxforge.to_device(np.zeros((128, 128), np.float32)) for _ in range(2))
        assert _multiply(a, b, out).artifact.tensor_maps
        out.copy_from(np.zeros((128, 128), np.float32))
        with CudaGraph(device) as graph:
            with hooks.on_stream(graph.stream), graph.capture():
                _multiply(a, b, out)
            _multiply(others, a, between)
            assert not out.numpy().any()
            graph.replay()
            device.synchronize()
            expected = values[0].astype(np.float32) @ values[1].astype(np.float32)
            np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-2)
            a.copy_from(values[2])  # what the maps name is read anew
            graph.replay()
            device.synchronize()
    expected = values[2].astype(np.float32) @ values[1].astype(np.float32)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-3, atol=1e-2)
