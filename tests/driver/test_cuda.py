"""The CUDA device against a fake driver; with ``--device cuda`` the same promises against the real one."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from ptxforge.driver.cuda import CudaDevice, cuda_device
from ptxforge.driver.cuda_launch import LaunchAttributes
from ptxforge.support.errors import DeviceError

from .fake_driver import FakeDriver

COPY = """.version 7.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 source, .param .u64 destination, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [destination];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p, %r5, %r1;
    @%p bra done;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.b32 %r2, [%rd4];
    st.global.b32 [%rd5], %r2;
done:
    ret;
}
"""


@pytest.fixture
def gpu(request):
    if request.config.getoption("--device") != "cuda":
        pytest.skip("needs --device cuda")
    return cuda_device(0)


def test_facts_come_from_the_driver(driver):
    device = CudaDevice(0)
    assert (device.name, device.target, device.multiprocessors) == ("cuda:0", "sm_90a", 132)
    assert (device.max_shared_bytes, device.max_threads_per_block, device.warp_size) == (232448, 1024, 32)
    assert device.product == "Fake H200"


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((8, 9), "sm_89"),
        ((9, 0), "sm_90a"),
        ((10, 0), "sm_100a"),
        ((12, 1), "sm_120"),
    ],
)
def test_target_is_the_newest_known_one_that_runs_on_the_device(install_driver, capability, target):
    install_driver(FakeDriver(capability=capability))
    assert CudaDevice(0).target == target


def test_a_gpu_older_than_ampere_is_refused(install_driver):
    install_driver(FakeDriver(capability=(7, 5)))
    with pytest.raises(DeviceError, match="compute capability 7.5; ptxforge needs 8.0"):
        CudaDevice(0)


def test_a_device_that_is_not_there(driver):
    with pytest.raises(DeviceError, match="no CUDA device 3; this machine has 1"):
        CudaDevice(3)


def test_memory_goes_there_and_back(driver):
    device = CudaDevice(0)
    source = np.arange(100, dtype=np.int32)
    address = device.allocate(source.nbytes)
    device.copy_to_device(address, source)
    back = np.zeros_like(source)
    device.copy_to_host(back, address, stream=7)
    np.testing.assert_array_equal(back, source)
    assert driver.calls == ["synchronize 0", "synchronize 7"]
    device.free(address)
    assert not driver.memory


def test_only_contiguous_host_arrays_are_copied(driver):
    device = CudaDevice(0)
    with pytest.raises(DeviceError, match="C-contiguous"):
        device.copy_to_device(device.allocate(64), np.zeros((4, 8), np.float32)[:, ::2])


def test_launch_hands_over_one_packed_buffer(driver):
    function = CudaDevice(0).load_module("entry kernel").function("kernel")
    function.launch((3, 2, 1), (128, 1, 1), 1000, 5, b"parameters")
    function.launch((1, 1, 1), (32, 1, 1), 0, 0, b"")
    first, second = driver.launches
    assert (first.grid, first.block, first.shared, first.stream) == ((3, 2, 1), (128, 1, 1), 1000, 5)
    assert (first.params, second.params) == (b"parameters", b"")


def test_parameters_behind_a_tensor_map_lie_where_the_assembler_put_them(driver):
    """Tensor maps are aligned by their address, and the bank of parameters begins at 16 modulo 64."""
    driver.parameter_places = [(0, 4), (48, 128), (176, 8)]
    signature = ".param .u32 n,\n.param .align 64 .b8 map[128],\n.param .u64 x"
    ptx = f".visible .entry other() {{}}\n.visible .entry kernel(\n{signature}\n) {{}}"
    function = CudaDevice(0).load_module(ptx).function("kernel")
    function.launch((1, 1, 1), (32, 1, 1), 0, 0, b"abcd" + bytes(60) + b"m" * 128 + b"pointer8")
    assert driver.launches[0].params == b"abcd" + bytes(44) + b"m" * 128 + b"pointer8"


def test_every_kernel_with_dynamic_shared_memory_may_use_all_of_it(driver):
    CudaDevice(0).load_module("entry kernel").function("kernel")
    assert driver.max_dynamic_shared is None  # it has none
    CudaDevice(0).load_module(".extern .shared .b8 smem[];\nentry kernel").function("kernel")
    assert driver.max_dynamic_shared == 232448


def test_a_launcher_asks_where_parameters_lie_only_behind_tensor_maps(driver, monkeypatch):
    asked = []
    inner = FakeDriver.cuFuncGetParamInfo
    monkeypatch.setattr(FakeDriver, "cuFuncGetParamInfo", lambda self, *a: asked.append(a) or inner(self, *a))
    driver.parameter_places = [(0, 4), (48, 128)]
    ptx = ".visible .entry kernel(\n.param .u32 n,\n.param .align 64 .b8 map[128]\n) {}"
    function = CudaDevice(0).load_module(ptx).function("kernel")
    attributes = LaunchAttributes()
    function.launcher(["i", "Q"], [0, 1], (32, 1, 1), 0, 0, attributes)
    assert not asked
    launcher = function.launcher(["i", "128s"], [0, 1], (32, 1, 1), 0, 0, attributes)
    assert len(asked) == 2
    launcher.once(1, 1, 1, 0, (8, b"map" * 42), ())
    assert driver.launches[0].params == struct.pack("<i44x128s", 8, b"map" * 42)


def test_attributes(driver):
    attributes = CudaDevice(0).load_module("entry kernel").function("kernel").attributes
    assert (attributes.registers, attributes.local_bytes, attributes.max_threads_per_block) == (40, 8, 1024)


def test_each_thread_has_its_own_parameter_buffer(driver):
    """The driver call gives up the GIL: a shared buffer would be overwritten by another thread's launch."""
    function = CudaDevice(0).load_module("entry kernel").function("kernel")
    buffers, noted = {}, threading.Barrier(2)

    def note(name):
        function.launch((1, 1, 1), (32, 1, 1), 0, 0, name.encode())
        buffers[name] = function._parameters.extra
        noted.wait(60)  # a thread that has ended leaves its buffer's address to the next one

    threads = [threading.Thread(target=note, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    note_of_main = function._parameters.extra
    for thread in threads:
        thread.join()
    assert len({note_of_main, *buffers.values()}) == 3
    assert sorted(launch.params for launch in driver.launches) == [b"a", b"b"]


def test_a_refused_launch_says_what_was_launched(driver):
    function = CudaDevice(0).load_module("entry kernel").function("kernel")
    with pytest.raises(
        DeviceError, match=r"launching 'kernel' failed: CUDA_ERROR_INVALID_VALUE(.|\n)*grid \(0, 1, 1\)"
    ):
        function.launch((0, 1, 1), (32, 1, 1), 0, 0, b"")


def test_the_log_of_the_jit_is_in_the_error(driver):
    with pytest.raises(
        DeviceError, match="CUDA_ERROR_INVALID_PTX: a PTX JIT compilation failed\nline 3: wrong token"
    ) as error:
        CudaDevice(0).load_module("wrong")
    assert error.value.log == "line 3: wrong token"


def test_a_kernel_that_is_not_in_the_module(driver):
    with pytest.raises(DeviceError, match="cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND"):
        CudaDevice(0).load_module("entry kernel").function("other")


def test_one_gpu_becomes_current_once(driver):
    device = CudaDevice(0)
    device.allocate(4)
    device.allocate(4)
    assert driver.current == 0x1000 and "push" not in driver.calls


def test_with_two_gpus_the_current_one_stays_current(install_driver):
    driver = install_driver(FakeDriver(devices=2))
    driver.current = 0x1000
    function = CudaDevice(1).load_module("entry kernel").function("kernel")
    function.launch((1, 1, 1), (32, 1, 1), 0, 0, b"")
    assert driver.launches[0].context == 0x1001
    assert driver.current == 0x1000
    assert driver.calls.count("push") == driver.calls.count("pop")


def test_a_foreign_context_is_not_replaced(driver):
    driver.current = 0x9999
    device = CudaDevice(0)
    device.allocate(4)
    assert driver.current == 0x9999
    assert driver.calls == ["push", "pop"]


def test_events_time_a_stream(driver):
    device = CudaDevice(0)
    start, end = device.event(), device.event()
    start.record(3)
    end.record(3)
    end.synchronize()
    assert end.milliseconds_since(start) == 0.5


def test_without_a_driver_there_is_no_device_and_a_reason(monkeypatch):
    script = (
        "import sys; sys.modules['cuda'] = None\n"
        "from ptxforge.driver.cuda_api import device_count\n"
        "from ptxforge.driver.cuda import cuda_device\n"
        "assert device_count() == 0\n"
        "try: cuda_device(0)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("DeviceError cuda-python cannot be imported")


def test_a_gpu_runs_a_kernel(gpu):
    source = np.arange(1000, dtype=np.uint32)
    addresses = [gpu.allocate(source.nbytes) for _ in range(2)]
    gpu.copy_to_device(addresses[0], source)
    function = gpu.load_module(COPY).function("copy")
    params = np.array(addresses, np.uint64).tobytes() + np.array([1000], np.uint32).tobytes()
    function.launch((8, 1, 1), (128, 1, 1), 0, 0, params)
    result = np.zeros_like(source)
    gpu.copy_to_host(result, addresses[1])
    np.testing.assert_array_equal(result, source)
    assert function.attributes.registers > 0


def test_a_gpu_refuses_bad_ptx_with_the_assemblers_words(gpu):
    with pytest.raises(DeviceError, match="ptxas"):
        gpu.load_module(COPY.replace("mad.lo.u32", "mud.lo.u32"))


def test_a_gpu_gives_machine_code(gpu):
    assert gpu.cubin(COPY).startswith(b"\x7fELF")


def test_a_device_that_was_reset_is_no_longer_used_and_frees_nothing(driver):
    device = CudaDevice(0)
    address = device.allocate(16)
    device.reset()
    assert driver.calls[-2:] == ["reset", "release"] and driver.current == 0
    anew = CudaDevice(0)
    driver.memory[address] = "of the new context"
    device.free(address)
    assert address in driver.memory
    with pytest.raises(DeviceError, match="was reset"):
        device.synchronize()
    assert anew.allocate(16)


def test_loading_does_not_break_a_capture(driver):
    CudaDevice(0).load_module("entry kernel")
    assert driver.capture_mode_of_loading == "CU_STREAM_CAPTURE_MODE_RELAXED"
    assert driver.capture_mode == "CU_STREAM_CAPTURE_MODE_GLOBAL"
