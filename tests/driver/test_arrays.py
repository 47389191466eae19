"""Arrays of other libraries, by their protocols. Stand-ins have only what the protocol asks for."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from ptxforge.driver import arrays
from ptxforge.driver.arrays import ArrayView, Span, span, view
from ptxforge.support import dtypes
from ptxforge.support.errors import ArgumentError


class TorchDevice:
    """As ``torch.device``: ``cuda:1``, or ``cpu`` without an index."""

    def __init__(self, name):
        self.name, self.index = name, int(name.partition(":")[2]) if ":" in name else None

    def __str__(self):
        return self.name


class Torchlike:
    """As a torch tensor: ``dtype`` prints as ``torch.float16``."""

    def __init__(self, dtype="torch.float16", device="cuda:1", address=0x1000):
        self.dtype, self.device, self._address = dtype, TorchDevice(device), address

    def data_ptr(self):
        return self._address


class Cupylike:
    def __init__(self, **interface):
        base = {"data": (0x2000, False), "typestr": "<f4", "shape": (4,), "version": 3, "strides": None}
        self.__cuda_array_interface__ = base | interface


class DlpackOnly:
    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **kwargs):
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.bool_, np.uint8, np.int64, np.float64]
)
def test_numpy(dtype):
    array = np.zeros(5, dtype)
    assert view(array) == ArrayView(array.ctypes.data, dtypes.from_numpy(array.dtype), "cpu")


def test_numpy_readonly():
    array = np.zeros(5)
    array.flags.writeable = False
    assert view(array).readonly


@pytest.mark.parametrize(
    ("name", "short"),
    [("float16", "fp16"), ("bfloat16", "bf16"), ("bool", "i1"), ("uint8", "u8"), ("int64", "i64"),
     ("float8_e4m3fn", "fp8e4nv"), ("float8_e5m2", "fp8e5")],
)  # fmt: skip
def test_torch_element_types(name, short):
    assert arrays.from_torch_dtype(f"torch.{name}").short == short


def test_torch_tensor_with_its_stream(monkeypatch):
    current = SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 700 + index))
    monkeypatch.setitem(sys.modules, "torch", current)
    assert view(Torchlike()) == ArrayView(0x1000, dtypes.float16, "cuda:1", stream=701)


def test_torch_cpu_tensor_has_no_stream():
    assert view(Torchlike(device="cpu")) == ArrayView(0x1000, dtypes.float16, "cpu")


def test_torch_complex_is_refused():
    with pytest.raises(ArgumentError, match="no element type for 'torch.complex64'"):
        view(Torchlike("torch.complex64"))


def test_cuda_array_interface(monkeypatch):
    monkeypatch.setattr(arrays, "_ordinal_of", lambda address: 0)
    assert view(Cupylike(stream=9)) == ArrayView(0x2000, dtypes.float32, "cuda:0", stream=9)
    assert view(Cupylike(data=(0x2000, True))).readonly
    with pytest.raises(ArgumentError, match="masked"):
        view(Cupylike(mask=object()))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64, np.bool_]
)
def test_dlpack(dtype):
    array = np.zeros(8, dtype)[2:]
    assert view(DlpackOnly(array)) == ArrayView(
        array.ctypes.data, dtypes.from_numpy(array.dtype), "cpu", stream=arrays.LEGACY_STREAM
    )


def test_dlpack_complex_is_refused():
    with pytest.raises(ArgumentError, match="no element type"):
        view(DlpackOnly(np.zeros(3, np.complex64)))


@pytest.mark.parametrize("value", [3, 2.5, "text", None, [1, 2], {"a": 1}])
def test_what_is_no_array(value):
    assert view(value) is None


class TorchView(Torchlike):
    """What :func:`arrays.span` asks of a tensor on the CPU: the view's sizes, and its storage's for torch."""

    def __init__(self, array):
        super().__init__(device="cpu", dtype=f"torch.{array.dtype}", address=array.ctypes.data)
        self.shape, self.nbytes, self._array = array.shape, array.nbytes, array

    def untyped_storage(self):
        raise AssertionError("a view is bounded by its own elements")

    def element_size(self):
        return self._array.itemsize

    def numel(self):
        return self._array.size

    def stride(self):
        return tuple(step // self._array.itemsize for step in self._array.strides)


@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: a[:, ::2], lambda a: a[1:3, 2:4], lambda a: a])
@pytest.mark.parametrize("kind", [TorchView, lambda a: a, DlpackOnly])
def test_a_span_covers_the_elements_of_a_view_and_no_more(make, kind):
    array = make(np.arange(24, dtype=np.int32).reshape(4, 6))
    low, high = np.lib.array_utils.byte_bounds(array)
    assert arrays.span(kind(array)) == arrays.Span(low, high - low, array.ctypes.data, True)
    strides = tuple(step // 4 for step in array.strides)
    assert arrays.describe(kind(array)) == (high - low, "int32", 4, array.shape, strides)


def test_strides_that_do_not_matter_are_those_of_c_order():
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[2:3]
    assert arrays.describe(np.lib.stride_tricks.as_strided(array, strides=(400, 4)))[4] == (6, 1)


class RepeatedView(TorchView):
    """A view with strides of 0 on a storage of 100 bytes that begins 8 bytes ahead of it."""

    def untyped_storage(self):
        return SimpleNamespace(data_ptr=lambda: self._array.ctypes.data - 8, nbytes=lambda: 100)


def test_a_span_of_repeated_elements_is_their_memory():
    """Kernels step over them with strides of their own."""
    array = np.arange(6, dtype=np.int32).reshape(3, 2)
    repeated = np.lib.stride_tricks.as_strided(array, (3, 4), (8, 0))
    found = arrays.span(RepeatedView(repeated))
    assert found == arrays.Span(array.ctypes.data - 8, 100, array.ctypes.data, True)
    assert arrays.span(RepeatedView(repeated[:0])).nbytes == 0


def test_a_span_of_a_reversed_view():
    array = np.arange(8, dtype=np.int16)[::-1]
    found = arrays.span(array)
    assert (found.low, found.nbytes, found.first) == (array.ctypes.data - 14, 16, array.ctypes.data)


@pytest.mark.parametrize("kind", [TorchView, lambda a: a])
def test_a_span_of_nothing(kind):
    assert arrays.span(kind(np.zeros((0, 3), np.float32))).nbytes == 0


def test_what_has_no_description():
    assert arrays.describe(3) is None and arrays.describe("x") is None


class Strided(Torchlike):
    """A package's own view of memory: strides of its own, and no storage."""

    def __init__(self, address, shape, strides):
        super().__init__("torch.float32", "cpu", address)
        self.shape, self._strides = shape, strides

    def stride(self):
        return self._strides


def test_the_bytes_of_a_wrapper_with_strides_of_its_own():
    assert span(Strided(1000, (3, 4), (10, 1))) == Span(1000, 4 * 24, 1000, True)
    assert span(Strided(1000, (3, 4), (-10, 1))) == Span(1000 - 80, 4 * 24, 1000, True)
    assert span(Strided(1000, (0, 4), (4, 1))).nbytes == 0
