"""Tensor maps: what the CUDA driver is asked for, and what the emulator makes of the same request."""

from __future__ import annotations

import pytest

from ptxforge.driver import tensor_map
from ptxforge.driver.cuda import CudaDevice
from ptxforge.emulator import EmulatorDevice
from ptxforge.emulator.tensormap import ELEMENT_BYTES, decode
from ptxforge.support import dtypes
from ptxforge.support.errors import DeviceError
from ptxforge.support.tensor_map import kind_of

from .fake_driver import FakeDriver, install

REQUEST = (dtypes.bfloat16, 4096, (100, 7, 64), (512, 64, 1), (4, 7, 32))


def test_nothing_of_a_fake_is_kept(monkeypatch):
    """The next tests of the process may have a GPU, and an encoder that is gone is no place to call."""
    kept = tensor_map._encoder.cache_info(), tensor_map.encode.cache_info()
    with monkeypatch.context() as patch:
        install(patch, FakeDriver())
        CudaDevice(0).encode_tensor_map(*REQUEST)
    assert (tensor_map._encoder.cache_info(), tensor_map.encode.cache_info()) == kept


def test_the_driver_counts_from_the_innermost_dimension(driver):
    device = CudaDevice(0)
    made = device.encode_tensor_map(*REQUEST, swizzle=64, padding="nan")
    assert made[8:] == bytes([9]) * 120
    (asked,) = driver.tensor_maps
    assert (asked.dtype, asked.address, asked.sizes) == (9, 4096, [64, 7, 100])
    assert (asked.strides, asked.box, asked.steps) == ([128, 1024], [32, 7, 4], [1, 1, 1])
    interleave, swizzle, _, fill = asked.modes
    assert (interleave, swizzle, fill) == (0, 2, 1) and asked.context


def test_equal_requests_are_encoded_once(driver):
    device = CudaDevice(0)
    assert device.encode_tensor_map(*REQUEST) is device.encode_tensor_map(*REQUEST)
    assert len(driver.tensor_maps) == 1
    device.encode_tensor_map(*REQUEST, swizzle=128)
    assert len(driver.tensor_maps) == 2


def test_what_the_driver_refuses_is_told(driver):
    with pytest.raises(DeviceError, match=r"cuTensorMapEncodeTiled failed[^\n]*\nbfloat16 \(8,\) at 0x8"):
        CudaDevice(0).encode_tensor_map(dtypes.bfloat16, 8, (8,), (1,), (8,))


@pytest.mark.parametrize("where", ["driver", "emulator"])
@pytest.mark.parametrize("shape, strides", [((8, 8), (16, 2)), ((8, 8), (1,)), ((), ())], ids=str)
def test_shapes_that_no_tensor_map_has(request, where, shape, strides):
    if where == "driver":
        request.getfixturevalue("driver")
    device = CudaDevice(0) if where == "driver" else EmulatorDevice()
    with pytest.raises(DeviceError):
        device.encode_tensor_map(dtypes.float32, 0, shape, strides, (8,) * len(shape))


def test_the_emulator_makes_the_same_of_it():
    made = decode(memoryview(EmulatorDevice().encode_tensor_map(*REQUEST, swizzle=64, padding="nan")))
    assert (made.kind, made.address, made.sizes, made.strides) == ("bf16", 4096, (64, 7, 100), (128, 1024))
    assert (made.box, made.swizzle, made.fill_nan) == ((32, 7, 4), 64, True)


def test_the_emulator_refuses_what_the_driver_refuses():
    with pytest.raises(DeviceError, match="multiple of 16"):
        EmulatorDevice().encode_tensor_map(dtypes.bfloat16, 8, (8,), (1,), (8,))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_every_element_type_has_a_kind_of_its_size(dtype):
    kind = kind_of(dtype)
    assert ELEMENT_BYTES[kind] == dtype.bytes and kind in tensor_map._TYPES
    assert tensor_map._TYPES[kind] == list(ELEMENT_BYTES).index(kind)
