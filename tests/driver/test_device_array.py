from __future__ import annotations

import gc
import pickle
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.driver.device_array import DeviceArray, element_type
from ptxforge.support import dtypes
from ptxforge.support.errors import DeviceError


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int8, np.bool_]
)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (2, 3, 4)])
def test_there_and_back(devices, shape, dtype):
    source = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    for device in devices:
        array = ptxforge.to_device(source, device)
        assert (array.shape, array.nbytes, array.device) == (source.shape, source.nbytes, device.name)
        np.testing.assert_array_equal(array.numpy(), source)


def test_any_order_becomes_c_order(emulator):
    source = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(ptxforge.to_device(source.T, emulator).numpy(), source.T)


def test_strides_count_elements(emulator):
    array = ptxforge.empty((2, 3, 4), "bf16", emulator)
    assert array.strides == (12, 4, 1) and array.stride(0) == 12 and len(array) == 2


@pytest.mark.parametrize(
    "name", ["bf16", "bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), tl.bfloat16]
)
def test_spellings_of_an_element_type(name):
    assert element_type(name) is dtypes.bfloat16


@pytest.mark.parametrize("name", ["float7", np.complex64, None, object()])
def test_what_is_no_element_type(name):
    with pytest.raises(DeviceError, match="is not an element type"):
        element_type(name)


def test_copy_from_needs_the_same_shape_and_type(emulator):
    array = ptxforge.empty((4,), np.float32, emulator)
    with pytest.raises(DeviceError, match="cannot copy float64"):
        array.copy_from(np.zeros(4))
    with pytest.raises(DeviceError, match="cannot copy float32"):
        array.copy_from(np.zeros(5, np.float32))


def test_memory_goes_with_the_last_reference():
    freed = []

    class Recorder:
        name = "recorder"

        def allocate(self, nbytes):
            return 4096

        def free(self, address):
            freed.append(address)

    array = DeviceArray(Recorder(), 10, np.float32)
    assert not freed
    del array
    gc.collect()
    assert freed == [4096]


def test_free_frees_once():
    freed = []

    class Recorder:
        name = "recorder"

        def allocate(self, nbytes):
            return 4096

        def free(self, address):
            freed.append(address)

    array = DeviceArray(Recorder(), 10, np.float32)
    array.free()
    array.free()
    with pytest.raises(DeviceError, match=r"this array of shape \(10,\) was freed"):
        array.data_ptr()
    del array
    gc.collect()
    assert freed == [4096]


def test_only_cuda_memory_has_the_cuda_interface(emulator):
    assert not hasattr(ptxforge.empty(4, np.float32, emulator), "__cuda_array_interface__")
    array = ptxforge.empty((2, 4), np.float16, emulator)
    array.owner = type("Named", (), {"name": "cuda:0", "free": lambda self, address: None})()
    interface = array.__cuda_array_interface__
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((2, 4), "<f2", 3)
    assert interface["data"] == (array.data_ptr(), False)


def test_default_device_and_use_device(emulator):
    with ptxforge.use_device(emulator) as chosen:
        assert chosen is emulator is ptxforge.default_device()
        assert ptxforge.empty(3).owner is emulator
    assert ptxforge.default_device() is not emulator


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:1:2"])
def test_an_unknown_device(name):
    with pytest.raises(DeviceError, match=f"there is no device '{name}'"):
        ptxforge.empty(3, np.float32, name)


def test_numpy_takes_a_copy(emulator):
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = ptxforge.to_device(source, emulator)
    found = np.asarray(array)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, source)
    assert np.asarray(array, np.float64).dtype == np.float64 and np.sum(array) == 15
    found[0] = 9
    np.testing.assert_array_equal(array.numpy(), source)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(array, copy=False)


# -- looking at, handing over, pickling ----------------------------------------------------------------------

KEYS = [
    0, -1, np.int64(1), (1, 2), (-1, slice(None), 3), slice(1, None), (slice(None), 0), ..., (0, ...),
    (1, None), [0, 1], (0, [1, 2]), (slice(None, None, -1), 1),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_is_numpys(emulator, key):
    source = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    found = ptxforge.to_device(source, emulator)[key]
    np.testing.assert_array_equal(found, source[key])
    assert np.shape(found) == source[key].shape


def test_indexing_with_an_array_of_booleans(emulator):
    source = np.arange(6)
    np.testing.assert_array_equal(ptxforge.to_device(source, emulator)[source > 3], [4, 5])


@pytest.mark.parametrize("key", [2, -3, (0, 9)])
def test_indexing_beyond_the_end(emulator, key):
    with pytest.raises(IndexError, match="out of bounds"):
        ptxforge.to_device(np.zeros((2, 3)), emulator)[key]


def test_one_row_is_copied_alone(emulator, monkeypatch):
    array = ptxforge.to_device(np.arange(12, dtype=np.int32).reshape(3, 4), emulator)
    copied = []
    original = type(emulator).copy_to_host

    def spy(device, destination, address, stream=0):
        copied.append(destination.nbytes)
        return original(device, destination, address, stream)

    monkeypatch.setattr(type(emulator), "copy_to_host", spy)
    assert array[1, 2] == 6 and copied == [16]
    assert [row.sum() for row in array] == [6, 22, 38]


def test_elements_are_not_assigned(emulator):
    with pytest.raises(TypeError, match="copy_from"):
        ptxforge.to_device(np.zeros(3), emulator)[0] = 1
    with pytest.raises(TypeError, match="no length"):
        len(ptxforge.empty((), np.float32, emulator))


def test_numpy_takes_the_emulators_memory_without_a_copy(emulator):
    array = ptxforge.to_device(np.arange(6, dtype=np.float32).reshape(2, 3), emulator)
    view = np.from_dlpack(array)
    array.copy_from(np.full((2, 3), 7, np.float32))
    assert (view == 7).all() and array.__dlpack_device__() == (1, 0)
    del array
    gc.collect()
    assert (view == 7).all()  # the view keeps the memory


def test_cuda_memory_is_not_handed_over_as_host_memory():
    device = SimpleNamespace(name="cuda:1", allocate=lambda nbytes: 4096, free=lambda address: None)
    array = DeviceArray(device, 10, np.float32)
    assert array.__dlpack_device__() == (2, 1)
    with pytest.raises(BufferError, match="__cuda_array_interface__"):
        array.__dlpack__()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.bool_])
def test_pickling_keeps_values_type_and_device(dtype):
    array = ptxforge.to_device(np.array([[0, 1], [1, 0]]).astype(dtype), "emulator")
    there = pickle.loads(pickle.dumps(array))
    assert there.dtype == array.dtype and there.shape == (2, 2) and there.device == "emulator"
    assert there.data_ptr() != array.data_ptr()
    np.testing.assert_array_equal(there.numpy(), array.numpy())
