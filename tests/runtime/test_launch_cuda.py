"""Launches on CUDA, with a fake driver: what is packed, on which stream, and what is refused."""

from __future__ import annotations

import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import ptxforge
from ptxforge.runtime import timing
from ptxforge.support.errors import ArgumentError
from tests.driver.fake_driver import FakeDriver, install


@pytest.fixture
def driver(monkeypatch) -> FakeDriver:
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    return install(monkeypatch, FakeDriver())


class Tensor:
    """As a torch tensor, of module torch."""

    __module__ = "torch"
    dtype = "torch.float32"

    def __init__(self, address: int, device: int = 0):
        self._address, self._device = address, device

    @property
    def device(self):
        return TorchDevice(self._device)

    def data_ptr(self):
        return self._address

    def get_device(self):
        return self._device


class TorchDevice:
    def __init__(self, index):
        self.index = None if index < 0 else index

    def __str__(self):
        return "cpu" if self.index is None else f"cuda:{self.index}"


@pytest.fixture
def torch(monkeypatch):
    """torch with a current stream that the test can change."""
    fake = SimpleNamespace(stream=500, cuda=SimpleNamespace(is_initialized=lambda: True))
    fake._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: fake.stream + index)
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def test_device_arrays(kernel, compiled, driver):
    x, y, out = (ptxforge.to_device(np.zeros(1000, np.float32)) for _ in range(3))
    kernel[(8, 2)](x, y, out, 1000, num_warps=4)
    (launch,) = driver.launches
    assert (launch.grid, launch.block, launch.stream) == ((8, 2, 1), (128, 1, 1), 0)
    assert launch.params == struct.pack("<QQQi", x.data_ptr(), y.data_ptr(), out.data_ptr(), 1000)
    assert compiled[0]["target"] == "sm_90a"


def test_torch_tensors_and_their_current_stream(kernel, compiled, driver, torch):
    arguments = [Tensor(0x1000), Tensor(0x2000), Tensor(0x3004), 7]
    kernel[(1,)](*arguments)
    torch.stream = 600
    kernel[(1,)](*arguments)
    kernel[(1,)](*arguments, stream=9)
    kernel[(1,)](*arguments, stream=SimpleNamespace(cuda_stream=10))
    assert [launch.stream for launch in driver.launches] == [500, 600, 9, 10]
    assert {launch.params for launch in driver.launches} == {struct.pack("<QQQi", 0x1000, 0x2000, 0x3004, 7)}
    assert [request["signature"]["out"] for request in compiled] == ["*fp32"]


def test_the_cuda_array_interface_and_its_stream(kernel, driver):
    interface = {"data": (0x4000, False), "typestr": "<f4", "shape": (8,), "version": 3, "stream": 77}
    array = SimpleNamespace(__cuda_array_interface__=interface)
    kernel[(1,)](array, array, array, 8)
    assert driver.launches[0].stream == 77
    assert driver.launches[0].params == struct.pack("<QQQi", 0x4000, 0x4000, 0x4000, 8)


def test_numpy_arrays_are_refused_with_advice(kernel, driver):
    x = np.zeros(8, np.float32)
    with pytest.raises(
        ArgumentError, match="argument 'x': is a CPU array, and the kernel runs on cuda:0; .*to_device"
    ):
        kernel[(1,)](x, x, x, 8)
    assert not driver.launches


def test_a_cpu_tensor_among_others_is_named(kernel, driver, torch):
    with pytest.raises(ArgumentError, match="argument 'y': is a CPU array"):
        kernel[(1,)](Tensor(0x1000), Tensor(0x2000, device=-1), Tensor(0x3000), 8)


def test_tensors_on_two_gpus_are_named(kernel, monkeypatch, torch):
    install(monkeypatch, FakeDriver(devices=2))
    with pytest.raises(ArgumentError, match="argument 'out': is on cuda:1, but 'x' is on cuda:0"):
        kernel[(1,)](Tensor(0x1000), Tensor(0x2000), Tensor(0x3000, device=1), 8)


def test_the_device_is_that_of_the_arguments(kernel, monkeypatch, torch):
    driver = install(monkeypatch, FakeDriver(devices=2))
    for index in (1, 0):
        kernel[(1,)](*(Tensor(0x1000, index) for _ in range(3)), 8)
    assert [(launch.context, launch.stream) for launch in driver.launches] == [(0x1001, 501), (0x1000, 500)]


def test_options_of_a_stream_that_is_none(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    with pytest.raises(ArgumentError, match="argument 'stream': 'fast' is not a stream"):
        kernel[(1,)](x, x, x, 8, stream="fast")


def test_measuring_flushes_the_cache_before_each_run(driver, monkeypatch, torch):
    order = []
    monkeypatch.setattr(
        driver, "cuMemsetD8Async", lambda a, v, n, stream: order.append(("flush", n, stream)) or (0,)
    )
    ptxforge.to_device(np.zeros(8))  # a device is there
    runs = timing.measure(lambda: order.append("run"), warmup=1, rep=1)
    assert len(runs) >= 2 and set(runs) == {0.5}
    flush = ("flush", timing.FLUSH_BYTES, 500)
    assert order[-2 * len(runs) :] == [flush, "run"] * len(runs)
    assert not [address for address, buffer in driver.memory.items() if len(buffer) == timing.FLUSH_BYTES]
