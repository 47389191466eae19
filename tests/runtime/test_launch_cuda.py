"""Launches on CUDA, with a fake driver: what is packed, on which stream, and what is refused."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.driver.cuda_launch import LaunchAttributes, Launcher
from ptxforge.runtime import bound, hooks, timing
from ptxforge.runtime.plans import MOST_ENTRIES
from ptxforge.support.errors import ArgumentError, DeviceError, LaunchError, PlacementError
from tests.driver.fake_driver import CUresult, FakeDriver, install


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


class HostTensor(Tensor):
    """As a torch tensor of 8 elements in the host's memory."""

    __module__ = "torch"
    shape = (8,)

    def __init__(self, values: np.ndarray):
        super().__init__(values.ctypes.data, -1)

    def stride(self):
        return (1,)

    def element_size(self):
        return 4


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


class Pinned(Tensor):
    """A CPU tensor in page-locked memory, as long as ``pinned`` says so."""

    __module__ = "torch"
    pinned = True

    def __init__(self, address: int):
        super().__init__(address, device=-1)

    def is_pinned(self):
        return self.pinned


def test_pinned_host_memory_is_read_where_it_lies(kernel, driver, torch):
    arguments = [Pinned(0x1000), Pinned(0x2000), Pinned(0x3000), 8]
    for _ in range(4):
        kernel[(1,)](*arguments)
    kernel[(1,)](Tensor(0x1000), *arguments[1:])
    assert {launch.params for launch in driver.launches} == {struct.pack("<QQQi", 0x1000, 0x2000, 0x3000, 8)}
    assert [launch.stream for launch in driver.launches] == [500] * 5  # torch's, also when it has no array


def test_the_emulator_does_not_ask_whether_memory_is_pinned(monkeypatch):
    """torch refuses the question for some tensors, while it traces."""

    @ptxforge.jit
    def one(x):
        tl.store(x, 1.0)

    out = np.zeros(1, np.float32)
    tensor = Pinned(out.ctypes.data)
    tensor.shape, tensor.stride, tensor.element_size = (1,), lambda: (1,), lambda: 4
    tensor.is_pinned = lambda: pytest.fail("asked")
    monkeypatch.setenv("PTXFORGE_DEVICE", "emulator")
    one[(1,)](tensor)
    assert out[0] == 1


def test_whether_memory_is_pinned_is_asked_at_every_launch(kernel, driver, torch):
    x, other = Pinned(0x1000), Pinned(0x1000)
    other.pinned = False
    kernel[(1,)](x, x, x, 8)
    kernel[(1,)](x, x, x, 8)
    for _ in range(2):
        with pytest.raises(PlacementError, match="argument 'y': is a CPU array"):
            kernel[(1,)](x, other, x, 8)
    assert len(driver.launches) == 2


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


# Launch attributes, bound launches, hooks


def attributes_of(launch) -> list[tuple[int, int]]:
    """(CUlaunchAttributeID, the first word of its value)."""
    return [struct.unpack_from("<i4xI", text) for text in launch.attributes]


def test_launch_attributes(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    kernel[(1,)](x, x, x, 8)
    kernel[(1,)](x, x, x, 8, launch_cooperative_grid=True)
    kernel[(1,)](x, x, x, 8, launch_pdl=True, launch_cooperative_grid=True)
    kernel[(1,)](x, x, x, 8, launch_pdl=False)
    assert [attributes_of(launch) for launch in driver.launches] == [[], [(2, 1)], [(2, 1), (6, 1)], []]


def test_a_grid_counts_programs_of_several_ctas(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    for _ in range(3):  # the first launch, the one that makes the fast way, and that
        kernel[(3, 2)](x, x, x, 8, num_ctas=4)
    bound = kernel.bind((3, 2), x, x, x, 8, num_ctas=4)
    bound()
    bound()
    assert [launch.grid for launch in driver.launches] == [(12, 2, 1)] * 5
    clusters = [[number for number, _ in attributes_of(launch)] for launch in driver.launches]
    assert clusters == [[4]] * 5


def test_the_layouts_are_those_of_cuda_h():
    """Against the structures that cuda-python builds, where it is installed with its own."""
    real = pytest.importorskip("cuda.bindings.driver")
    for mine, name, field, value in [
        (LaunchAttributes(cooperative=True), "COOPERATIVE", "cooperative", 1),
        (
            LaunchAttributes(programmatic=True),
            "PROGRAMMATIC_STREAM_SERIALIZATION",
            "programmaticStreamSerializationAllowed",
            1,
        ),
        (LaunchAttributes(cluster=(2, 3, 4)), "CLUSTER_DIMENSION", "clusterDim", (2, 3, 4)),
    ]:
        attribute, held = real.CUlaunchAttribute(), real.CUlaunchAttributeValue()
        attribute.id = getattr(real.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{name}")
        if isinstance(value, tuple):
            held.clusterDim.x, held.clusterDim.y, held.clusterDim.z = value
        else:
            setattr(held, field, value)
        attribute.value = held
        assert mine.encoded() == [ctypes.string_at(attribute.getPtr(), 72)]
    config = real.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 1, 2, 3
    config.blockDimX, config.blockDimY, config.blockDimZ = 4, 5, 6
    config.sharedMemBytes, config.hStream = 7, real.CUstream(8)
    assert ctypes.string_at(config.getPtr(), 40) == struct.pack("<7I4xQ", *range(1, 9))


def test_a_thread_without_a_context_gets_one(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    kernel[(1,)](x, x, x, 8)
    driver.refuse = [CUresult.CUDA_ERROR_INVALID_CONTEXT.value]
    kernel[(1,)](x, x, x, 8)
    assert len(driver.launches) == 2


def test_a_launch_that_the_driver_refuses(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    driver.refuse = [1, 1]
    message = r"launching 'add' failed: CUDA_ERROR_INVALID_VALUE(.|\n)*grid \(9, 1, 1\), block \(128, 1, 1\)"
    with pytest.raises(DeviceError, match=message):
        kernel[(9,)](x, x, x, 8)


def test_grids_that_cannot_be_are_explained_though_nobody_looked(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    for grid, message in [
        ((1.5,), "integers"), ((1, -1), "axis 1 of the grid is -1"), ((1, 2, 3, 4), "one to three axes"),
    ]:  # fmt: skip
        with pytest.raises(LaunchError, match=message):
            kernel[grid](x, x, x, 8)
    assert kernel[(np.int64(2), np.int32(1))](x, x, x, 8) is kernel.newest
    assert driver.launches[-1].grid == (2, 1, 1)


def test_numpy_scalars(compiled, driver):
    def add(x, y, n, f, BLOCK: tl.constexpr):
        pass

    kernel = ptxforge.jit(add)
    x = ptxforge.to_device(np.zeros(8, np.float32))
    for n, f, block in [(16, 0.5, 8), (np.int32(16), np.float32(0.5), np.int64(8)), (np.int64(32), 1.0, 8)]:
        kernel[(1,)](x, x, n, f, BLOCK=block)
    assert len(compiled) == 1
    assert compiled[0]["constants"] == {"BLOCK": 8} and type(compiled[0]["constants"]["BLOCK"]) is int
    assert list(compiled[0]["signature"].values()) == ["*fp32:16"] * 2 + ["i32:16", "fp32", "constexpr"]


def test_a_bound_launch(kernel, compiled, driver, torch):
    x, y, out = Tensor(0x1000), Tensor(0x2000), Tensor(0x3000)
    bound = kernel.bind(lambda meta: (meta["n"] // 4, 2), x, y, out, n=8)
    assert not driver.launches and len(compiled) == 1
    calls = len(driver.calls)
    bound()
    torch.stream = 600
    bound.update(n=9, x=Tensor(0x5000))()
    bound.grid, bound.stream = (7,), 11
    bound()
    assert [(launch.grid, launch.stream) for launch in driver.launches] == [
        ((2, 2, 1), 500), ((2, 2, 1), 600), ((7, 1, 1), 11),
    ]  # fmt: skip
    assert driver.launches[0].params == struct.pack("<QQQi", 0x1000, 0x2000, 0x3000, 8)
    assert driver.launches[2].params == struct.pack("<QQQi", 0x5000, 0x2000, 0x3000, 9)
    assert len(compiled) == 1 and driver.calls[calls:] == []  # nothing waits, nothing is allocated
    bound.update(x=Tensor(0x5004))()  # not aligned: another variant
    assert len(compiled) == 2 and bound.variant is kernel.newest


def test_a_bound_launch_that_repeats_packs_once_for_each_stream(kernel, driver, torch, monkeypatch):
    packed = []
    pack = Launcher.pack
    monkeypatch.setattr(Launcher, "pack", lambda self, *a: packed.append(a[4]) or pack(self, *a))
    x = Tensor(0x1000)
    bound = kernel.bind((1,), x, x, x, n=8)
    for stream in (500, 500, 600, 600, 500):
        torch.stream = stream
        bound()
    assert packed == [500, 600] and [launch.stream for launch in driver.launches] == [500, 500, 600, 600, 500]
    bound.update(n=9)
    for stream in (600, 500):
        torch.stream = stream
        bound()
    assert packed == [500, 600, 600, 500]
    assert {launch.params[-4:] for launch in driver.launches[-2:]} == {struct.pack("<i", 9)}
    for stream in range(1000):
        bound.stream = stream
        bound()
    assert driver.launches[-1].stream == 999 and len(bound._frames) <= 64


def test_a_bound_launch_that_the_driver_refuses_the_second_time(kernel, driver, torch):
    x = Tensor(0x1000)
    bound = kernel.bind((1,), x, x, x, n=8)
    bound()
    driver.refuse[:] = [CUresult.CUDA_ERROR_INVALID_CONTEXT]
    bound()  # once more in the device's context
    driver.refuse[:] = [CUresult.CUDA_ERROR_INVALID_VALUE] * 2
    with pytest.raises(DeviceError, match="launching 'add' failed: CUDA_ERROR_INVALID_VALUE"):
        bound()
    bound()
    assert len(driver.launches) == 3


def test_every_launch_packs_the_same(kernel, driver, torch):
    """The first goes the long way, the second makes the short one, of which the third is the first user."""
    for number in range(4):
        x, y, out = (Tensor(0x1000 * index) for index in (1, 2, 3))
        kernel[(2, number + 1)](x, y, out, 8 + number, stream=number)
    for number, launch in enumerate(driver.launches):
        assert launch.params == struct.pack("<QQQi", 0x1000, 0x2000, 0x3000, 8 + number)
        assert (launch.grid, launch.stream) == ((2, number + 1, 1), number)


def test_a_launch_that_repeats_is_not_packed_again(kernel, driver, torch, monkeypatch):
    packed = []
    new_frame = Launcher.new_frame
    monkeypatch.setattr(Launcher, "new_frame", lambda self: packed.append(1) or new_frame(self))
    x, y = Tensor(0x1000), Tensor(0x2000)
    for _ in range(3):
        for number in (8, 9):
            kernel[(1,)](x, x, y, number)
    made = len(packed)
    for _ in range(3):
        kernel[(1,)](x, x, y, 8)
        torch.stream = 600  # packed anew, once
        kernel[(1,)](x, x, y, 9, num_warps=4)
        torch.stream = 500
        kernel[(2,)](x, x, x, 8)
    assert len(packed) <= made + 4
    last = driver.launches[-3:]
    assert [(launch.grid[0], launch.stream) for launch in last] == [(1, 500), (1, 600), (2, 500)]
    assert [launch.params for launch in last] == [
        struct.pack("<QQQi", 0x1000, 0x1000, *rest) for rest in ((0x2000, 8), (0x2000, 9), (0x1000, 8))
    ]


@pytest.mark.parametrize("values", [(0.0, -0.0), (8, np.int64(8), True), (1.0, 1, True)])
def test_repetitions_do_not_take_equal_numbers_for_the_same(driver, values):
    """0.0 and -0.0 are equal, so are 1, 1.0 and True."""

    def fn(x, n):
        pass

    kernel = ptxforge.jit(fn)
    x = ptxforge.to_device(np.zeros(8, np.float32))
    packed = {}
    for value in values * 4:
        kernel[(1,)](x, value)
        kind = type(value), str(value)
        assert packed.setdefault(kind, driver.launches[-1].params) == driver.launches[-1].params
    if values[0] == 0.0:
        assert packed[float, "0.0"] != packed[float, "-0.0"]


def test_what_repeats_but_for_one_thing_is_no_repetition(kernel, compiled, monkeypatch, torch):
    """The address is the same: the element type is another, or where the array lies."""
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    driver = install(monkeypatch, FakeDriver(devices=2))
    x, half = Tensor(0x1000), Tensor(0x1000)
    half.dtype = "torch.float16"
    for _ in range(5):
        kernel[(1,)](x, x, x, 8)
    kernel[(1,)](x, x, half, 8)
    assert [request["signature"]["out"] for request in compiled] == ["*fp32:16", "*fp16:16"]
    with pytest.raises(ArgumentError, match="argument 'out': is a CPU array"):
        kernel[(1,)](x, x, Tensor(0x1000, -1), 8)
    with pytest.raises(ArgumentError, match="argument 'y': is on cuda:1, but 'x' is on cuda:0"):
        kernel[(1,)](x, Tensor(0x1000, 1), x, 8)
    there = Tensor(0x1000, 1)
    kernel[(1,)](there, there, there, 8)
    kernel[(1,)](x, x, x, 8)
    contexts = [launch.context for launch in driver.launches]
    assert contexts[-2] != contexts[0] == contexts[-1] and len(contexts) == 8


def test_where_there_is_one_gpu_a_repetition_does_not_ask_where_its_arrays_are(kernel, driver, torch):
    """Their addresses tell it; what else may have changed at an address is asked."""
    asked = []

    class Asked(Tensor):
        __module__ = "torch"

        def get_device(self):
            asked.append(self)
            return 0

    x, half = Asked(0x1000), Asked(0x1000)
    half.dtype = "torch.float16"
    for _ in range(4):
        kernel[(1,)](x, x, x, 8)
    asked.clear()
    kernel[(1,)](x, x, x, 8)
    assert not asked
    kernel[(1,)](x, x, half, 8)
    kernel[(1,)](x, x, x, 9)
    assert asked and len(kernel.variants) == 2 and len(driver.launches) == 7
    assert driver.launches[-1].params == struct.pack("<QQQi", *[0x1000] * 3, 9)


def test_arrays_without_elements_are_never_a_repetition(kernel, driver, torch):
    """All of them have the address 0, wherever they lie."""
    x, empty = Tensor(0x1000), Tensor(0)
    for _ in range(5):
        kernel[(1,)](x, x, empty, 8)
    (known,) = [known for known in kernel._prepared if isinstance(known, bound.Repeats)]
    assert list(known.values()) == [None]
    with pytest.raises(ArgumentError, match="argument 'out': is a CPU array"):
        kernel[(1,)](x, x, Tensor(0, -1), 8)


def test_repetitions_in_turn(kernel, driver, torch):
    """Of launches that share an address, a grid, or nothing."""
    x, y = Tensor(0x1000), Tensor(0x2000)
    calls = [((1,), x, y, 8), ((2,), x, y, 8), ((1,), y, y, 8), ((1,), x, x, 8), ((1,), x, y, 9)]
    for grid, a, out, n in calls * 4 + calls[::-1] * 2:
        kernel[grid](a, a, out, n)
        (*_, launch) = driver.launches
        assert launch.grid[0] == grid[0]
        assert launch.params == struct.pack("<QQQi", a._address, a._address, out._address, n)


def test_a_repetition_that_the_driver_refuses(kernel, driver, torch):
    x = Tensor(0x1000)
    for _ in range(4):
        kernel[(1,)](x, x, x, 8)
    driver.refuse[:] = [CUresult.CUDA_ERROR_INVALID_VALUE] * 2
    with pytest.raises(DeviceError, match="launching 'add' failed: CUDA_ERROR_INVALID_VALUE"):
        kernel[(1,)](x, x, x, 8)
    kernel[(1,)](x, x, x, 8)
    assert len(driver.launches) == 5


def test_a_grid_function_is_asked_at_every_launch(kernel, driver, torch, monkeypatch):
    """What it answers decides, with what was packed for that answer; the stream is none of its business."""
    seen, blocks = [], [3]

    def grid(meta):
        seen.append(meta)
        return (blocks[0],)

    x = Tensor(0x1000)
    for _ in range(4):
        kernel[grid](x, x, x, 8, num_warps=4, stream=7)
    new_frame = Launcher.new_frame
    packed = []
    monkeypatch.setattr(Launcher, "new_frame", lambda self: packed.append(1) or new_frame(self))
    kernel[grid](x, x, x, 8, num_warps=4, stream=7)
    blocks[0] = 5
    kernel[grid](x, x, x, 8, num_warps=4, stream=7)
    assert not packed and [launch.grid[0] for launch in driver.launches] == [3] * 5 + [5]
    assert {tuple(meta) for meta in seen} == {("x", "y", "out", "n", "num_warps")} and len(seen) == 6


def test_lists_and_integers_as_grids_repeat(kernel, driver, torch):
    x = Tensor(0x1000)
    for grid in ([2, 3], 6, (4,)) * 5:
        kernel[grid](x, x, x, 8)
    assert [launch.grid for launch in driver.launches] == [(2, 3, 1), (6, 1, 1), (4, 1, 1)] * 5
    (known,) = [known for known in kernel._prepared if isinstance(known, bound.Repeats)]
    assert sorted(key[-1] for key, found in known.items() if found) == [(2, 3, 1), (4,), (6, 1, 1)]
    with pytest.raises(LaunchError, match="one to three axes"):
        kernel[[1, 2, 3, 4]](x, x, x, 8)


def test_torchs_stream_is_nobodys_business_on_the_host(kernel, emulator, torch):
    """A torch that is made for CUDA and finds no GPU raises when it is asked for a stream."""

    def asked(index):
        raise RuntimeError("no GPU")

    torch._C._cuda_getCurrentRawStream = asked
    numbers, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    x, result = HostTensor(numbers), HostTensor(out)
    for _ in range(5):
        kernel[(1,)](x, x, result, 8)
    assert (out == 2 * numbers).all()
    (known,) = [known for known in kernel._prepared if isinstance(known, bound.Repeats)]
    assert known.is_on is None and not known
    del torch._C._cuda_getCurrentRawStream  # as in a torch that is made for CPUs
    other = ptxforge.jit(kernel.fn)
    for _ in range(3):
        other[(1,)](x, x, result, 8)
    assert not any(isinstance(known, bound.Repeats) for known in other._prepared)


def test_repetitions_are_given_up_where_there_are_none(kernel, driver, torch):
    x = Tensor(0x1000)
    for number in range(bound.MOST + 10):
        kernel[(1,)](x, x, x, number)
    (plan,) = [known for known in kernel._prepared if isinstance(known, bound.Repeats)]
    assert not plan.is_on and not plan
    kernel[(1,)](x, x, x, 5)
    kernel[(1,)](x, x, x, 5)
    assert not plan
    launches = len(driver.launches)
    while not plan.is_on and len(driver.launches) < launches + bound.PAUSE:
        kernel[(1,)](x, x, x, 5)
    assert launches + bound.PAUSE - 10 < len(driver.launches)  # the program may have begun another thing
    assert plan.is_on
    for _ in range(3):
        kernel[(1,)](x, x, x, 5)
    assert [type(found) for found in plan.values()] == [bound.Repeat]


def test_a_repetition_on_another_default_device(monkeypatch):
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    driver = install(monkeypatch, FakeDriver(devices=2))

    def nothing():
        pass

    kernel = ptxforge.jit(nothing)
    contexts = []
    for name in ("cuda:0",) * 4 + ("cuda:1",) * 4 + ("cuda:0",) * 2:
        monkeypatch.setenv("PTXFORGE_DEVICE", name)
        kernel[(1,)]()
        contexts.append(driver.launches[-1].context)
    first, second = contexts[0], contexts[4]
    assert first != second and contexts == [first] * 4 + [second] * 4 + [first] * 2


def test_a_repetition_follows_every_change_of_the_default_device(monkeypatch):
    monkeypatch.delenv("PTXFORGE_DEVICE", raising=False)
    driver = install(monkeypatch, FakeDriver(devices=2))

    def nothing():
        pass

    kernel = ptxforge.jit(nothing)

    def contexts(count: int = 4) -> set[int]:
        for _ in range(count):
            kernel[(1,)]()
        return {launch.context for launch in driver.launches[-count:]}

    first = contexts(8)
    with ptxforge.use_device("cuda:1"):
        second = contexts(8)
        with ptxforge.use_device("cuda:0"):
            assert contexts() == first
        assert contexts() == second != first
    assert contexts() == first
    with monkeypatch.context() as inside:
        inside.setenv("PTXFORGE_DEVICE", "cuda:1")
        assert contexts() == second
    assert contexts() == first
    with monkeypatch.context() as inside:
        inside.setattr(os, "environ", {**os.environ, "PTXFORGE_DEVICE": "cuda:1"})
        assert contexts() == second
    assert contexts() == first


def test_grids_that_are_kept(kernel, driver, torch):
    x, calls = Tensor(0x1000), []
    for grid in ((8,), (8,), (np.int64(8),), [8], 8, np.int64(8), (8, 1), (8, 1, 1), lambda meta: (8,)):
        for _ in range(3):
            kernel[grid](x, x, x, 8)
            assert driver.launches[-1].grid == (8, 1, 1)
    for extent in range(1, 600):
        kernel[(extent,)](x, x, x, 8)
        assert driver.launches[-1].grid == (extent, 1, 1)
    assert len(kernel._entries) <= MOST_ENTRIES
    assert all(type(extent) is int for grid in kernel._entries for extent in grid)
    kernel.pre_run_hooks.append(lambda *args, **kwargs: calls.append(args))
    kernel[(599,)](x, x, x, 8)
    assert calls == [(x, x, x, 8)]


def test_a_kernel_without_parameters_has_nothing_packed(driver):
    def nothing():
        pass

    kernel = ptxforge.jit(nothing)
    for _ in range(5):
        kernel[(3,)]()
    kernel.bind((3,))()
    assert [(launch.params, launch.grid) for launch in driver.launches] == [(b"", (3, 1, 1))] * 6


def test_a_kernel_without_parameters_that_repeats_looks_at_everything(driver, monkeypatch):
    """Also where PTXFORGE_DEVICE is not set, which such launches tell at once."""
    monkeypatch.delenv("PTXFORGE_DEVICE")

    def nothing():
        pass

    kernel, seen = ptxforge.jit(nothing), []
    for number in range(6):
        for wrong in (None, (), (1, 1, 1, 1)):
            with pytest.raises(LaunchError, match="grid"):
                kernel[wrong]()
        kernel[(3,)]()
        assert len(driver.launches) == number + 1
    count = len(driver.launches)
    kernel[(3,)](num_warps=8)
    kernel[(3,)](stream=77)
    kernel[(2, 2)]()
    assert [launch.block[0] for launch in driver.launches[count:]] == [256, 128, 128]
    assert [launch.stream for launch in driver.launches[count:]] == [0, 77, 0]
    assert driver.launches[-1].grid == (2, 2, 1)
    with pytest.raises(ArgumentError):
        kernel[(3,)](1)
    with pytest.raises(ArgumentError, match="num_warp"):
        kernel[(3,)](num_warp=8)
    with hooks.add(enter=lambda launch: seen.append(launch.grid)):
        kernel[(3,)]()
    assert seen == [(3, 1, 1)]
    kernel[(3,)]()
    driver.refuse = [CUresult.CUDA_ERROR_INVALID_VALUE.value] * 2
    with pytest.raises(DeviceError, match="launching 'nothing' failed"):
        kernel[(3,)]()
    kernel[(3,)]()


@pytest.mark.parametrize("is_bound", [False, True])
def test_arrays_are_given_back_at_once(kernel, driver, torch, is_bound):
    """By the kernel after its launches, by a bound launch with itself; without the collector of cycles, which
    may not come for a long time."""
    x, y = Tensor(0x1000), Tensor(0x2000)
    gone, bound = weakref.ref(y), None
    gc.disable()
    try:
        if is_bound:
            bound = kernel.bind((8,), x, x, y, 8)
            bound()
            bound.update(n=16)()
        else:
            for _ in range(6):
                kernel[(8,)](x, x, y, 8)
        del y, bound
        assert gone() is None
    finally:
        gc.enable()


def test_other_types_after_the_entry_was_made(kernel, compiled, driver, torch):
    x, held = Tensor(0x1000), kernel[(1,)]
    for _ in range(3):
        held(x, x, x, 8)
    array = ptxforge.to_device(np.zeros(8, np.float32))
    for _ in range(3):
        kernel[(1,)](x, x, array, 8.0)
        held(x, x, array, np.int32(8))
    assert [list(c["signature"].values())[-1] for c in compiled] == ["i32", "fp32"]
    wanted = [struct.pack("<QQQi", 0x1000, 0x1000, array.data_ptr(), 8),
              struct.pack("<QQQf", 0x1000, 0x1000, array.data_ptr(), 8)]  # fmt: skip
    assert {launch.params for launch in driver.launches[3:]} == set(wanted)


def test_a_bound_launch_refuses_what_a_launch_refuses(kernel, driver):
    x = ptxforge.to_device(np.zeros(8, np.float32))
    bound = kernel.bind((1,), x, x, x, 8)
    with pytest.raises(ArgumentError, match="'add' has no such parameter; did you mean 'out'"):
        bound.update(ouut=x)
    with pytest.raises(ArgumentError, match="argument 'y': is a CPU array"):
        bound.update(n=9, y=np.zeros(8, np.float32))
    with pytest.raises(ArgumentError, match="does not fit in 64 bits"):
        bound.update(x=ptxforge.empty(8, np.int8), n=1 << 70)
    with pytest.raises(LaunchError, match="one to three axes"):
        bound.grid = (1, 2, 3, 4)
    bound()  # is what it was
    assert driver.launches[0].params == struct.pack("<QQQi", *[x.data_ptr()] * 3, 8)


def test_hooks(kernel, driver):
    kernel.launch_metadata = lambda grid, metadata, arguments: {"flops": 2 * arguments["n"]}
    x = ptxforge.to_device(np.zeros(8, np.float32))
    seen = []
    with hooks.add(enter=lambda l: seen.append(("in", l)), exit=lambda l: seen.append(("out", l))):
        kernel[(3,)](x, x, x, 8, stream=5)
        kernel.bind((2,), x, x, x, 8)()
    kernel[(1,)](x, x, x, 8)
    assert [when for when, _ in seen] == ["in", "out"] * 2 and seen[0][1] is seen[1][1]
    launch = seen[0][1]
    assert (launch.name, launch.grid, launch.block, launch.stream) == ("add", (3, 1, 1), (128, 1, 1), 5)
    assert launch.metadata == {"flops": 16} and launch.arguments["x"] is x
    assert len(driver.launches) == 3 and hooks.LAUNCH == []


class Matrix(Tensor):
    """As a torch tensor of [16, 64] elements."""

    __module__ = "torch"
    shape = (16, 64)

    def stride(self):
        return (64, 1)

    def element_size(self):
        return 4


def test_launches_with_descriptors_that_repeat(driver, torch, monkeypatch):
    """All that decides one is looked at: address, sizes, strides, box, padding, and torch's stream."""

    def copy(x, y):
        y.store([0, 0], x.load([0, 0]))

    packed = []
    new_frame = Launcher.new_frame
    monkeypatch.setattr(Launcher, "new_frame", lambda self: packed.append(1) or new_frame(self))
    kernel = ptxforge.jit(copy)
    x, y = (ptxforge.TensorDescriptor.from_tensor(Matrix(at), [16, 16]) for at in (0x1000, 0x2000))
    for _ in range(4):
        kernel[(1,)](x, y)
    made = len(packed)
    for _ in range(3):
        kernel[(1,)](x, y)
    assert len(packed) == made and len({launch.params for launch in driver.launches}) == 1
    assert struct.pack("<Q", 0x1000) in driver.launches[-1].params and driver.launches[-1].stream == 500
    torch.stream = 600
    kernel[(1,)](x, y)
    assert driver.launches[-1].stream == 600
    x.shape[0] = 13
    kernel[(1,)](x, y)
    assert struct.pack("<i", 13) in driver.launches[-1].params
    x.shape[0], x.base = 16, Matrix(0x3000)
    kernel[(1,)](x, y)
    assert struct.pack("<Q", 0x3000) in driver.launches[-1].params
    assert len(kernel.variants) == 1
    x.padding = "nan"
    kernel[(1,)](x, y)
    x.block_shape = [8, 16]
    y.block_shape = [8, 16]
    kernel[(1,)](x, y)
    assert len(kernel.variants) == 3 and len(driver.launches) == 12
