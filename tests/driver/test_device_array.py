from __future__ import annotations

import gc

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
