"""Which device runs a kernel when its arguments do not say, and arrays on it."""

from __future__ import annotations

import copyreg
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ptxforge.driver.cuda import cuda_device
from ptxforge.driver.cuda_api import device_count
from ptxforge.driver.device_array import DeviceArray, element_type
from ptxforge.driver.protocol import Device
from ptxforge.support import settings
from ptxforge.support.errors import DeviceError

_chosen: list[Device] = []  # innermost use_device() last


def default_device() -> Device:
    """The device of :func:`use_device`, else that of ``PTXFORGE_DEVICE``, else the first GPU, else the
    emulator."""
    global _default
    if _chosen:
        return _chosen[-1]
    known = _default
    # Every launch without arrays asks, so the variable is looked up where Python's environment keeps it, and
    # compared by identity: it is another object only after it was set.
    held = _look_up(_KEY) if os.environ is _environment else settings.DEVICE.held()
    if known[0] is not held:
        _default = known = held, device(settings.DEVICE.get())
    return known[1]


_environment = os.environ
_look_up: Callable[[Any], Any] = getattr(getattr(os.environ, "_data", os.environ), "get")
_KEY = settings.DEVICE.key


def _unknown() -> tuple[Any, Any]:
    """Stands for no default device, and is identical with nothing that somebody holds."""
    return object(), None


_default = _unknown()
"""The last default device, behind what decided it. Another object whenever the default may be another
device."""


class Following:
    """A launch that follows the default device, which was ``device``; ``None`` where it does not."""

    __slots__ = ("device", "seen")

    def __init__(self, device: Device | None):
        self.device = device
        self.seen: tuple[Any, Any] | None = None
        """What ``_default`` was when ``device`` was the default one without ``PTXFORGE_DEVICE``."""

    def follows(self) -> bool:
        """Whether ``device`` is the default device now."""
        now = _default
        if self.device is not default_device():
            return False
        self.seen = None if os.environ is not _environment or _KEY in _variables else now
        return True


_variables = getattr(os.environ, "_data", os.environ)
FOLLOWS = (
    "(__ready.seen is __devices._default and __key_of_device not in __variables"
    " and __os.environ is __environment or __ready.follows())"
)
"""The expression ``__ready.follows()``, its usual case written out: the call takes longer than all else that
a launch without arrays asks. :data:`FOLLOWS_SCOPE` has its names."""
FOLLOWS_SCOPE = {
    "__devices": sys.modules[__name__], "__key_of_device": _KEY, "__variables": _variables, "__os": os,
    "__environment": _environment,
}  # fmt: skip


def has_one_gpu() -> bool:
    """Whether torch works with GPUs here and there is only one. (Asking starts no driver: torch has.)"""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() and device_count() == 1


def forget() -> None:
    """Make devices again when they are asked for: one of them was reset."""
    global _default
    _default = _unknown()
    device.cache_clear()


@functools.cache
def device(name: str) -> Device:
    """The device called ``emulator``, ``interpreter``, ``cuda`` or ``cuda:N``; with an empty name, the best
    there is.

    The same name gives the same object. Raises :class:`DeviceError` for any other name and for a GPU that is
    not there.
    """
    settings.warn_of_unknown()
    if not name:
        return device("cuda:0") if device_count() else device("emulator")
    kind, _, number = name.partition(":")
    if kind == "cuda" and (number.isdigit() or not number):
        return _cuda(int(number or 0))
    if name in _ON_THE_HOST:
        return _ON_THE_HOST[name]()
    raise DeviceError(
        f"there is no device '{name}'; PTXFORGE_DEVICE is 'emulator', 'interpreter', 'cuda' or 'cuda:N'"
    )


def _cuda(number: int) -> Device:
    importlib.import_module("ptxforge.runtime.compiler_state").look_ahead()  # needs more than a plain import
    return cuda_device(number)


def _emulator() -> Device:
    from ptxforge.emulator import DefaultEmulator  # a machine with a GPU need not load it

    return DefaultEmulator()


def _interpreter() -> Device:
    from ptxforge.runtime.interpreted import InterpreterDevice  # wanted by few

    return InterpreterDevice()


_ON_THE_HOST = {"emulator": _emulator, "interpreter": _interpreter}


@contextmanager
def use_device(chosen: Device | str) -> Iterator[Device]:
    """Make a device the default one inside a ``with`` block."""
    global _default
    _chosen.append(device(chosen) if isinstance(chosen, str) else chosen)
    _default = _unknown()
    try:
        yield _chosen[-1]
    finally:
        _chosen.pop()
        _default = _unknown()


def _resolve(where: Device | str | None) -> Device:
    if where is None:
        return default_device()
    return device(where) if isinstance(where, str) else where


def to_device(array: np.ndarray, device: Device | str | None = None) -> DeviceArray:
    """A copy of a host array in the memory of ``device`` (a device, its name, or ``None``: the default one).

    Raises :class:`DeviceError` when kernels have no element type like the array's.
    """
    return DeviceArray.from_numpy(_resolve(device), array)


def empty(
    shape: int | tuple[int, ...], dtype: object = np.float32, device: Device | str | None = None
) -> DeviceArray:
    """An array on ``device`` with whatever its memory held: on the emulator NaNs, and its checks report who
    reads them.

    ``dtype`` is an element type of the language, a numpy or ml_dtypes dtype, or a name such as ``"bf16"``.
    """
    array = DeviceArray(_resolve(device), shape, dtype)
    if hasattr(array.owner, "poison"):
        array.owner.poison(array.data_ptr())
    return array


def _unpickled(name: str, shape: tuple[int, ...], kind: str, data: bytes) -> DeviceArray:
    """The array of a pickle: on the device of its name where this process has that, else on the default
    one."""
    there = device(name) if name in _ON_THE_HOST or name.startswith("cuda") and device_count() else None
    dtype = element_type(kind)
    return to_device(np.frombuffer(data, dtype.numpy).reshape(shape), there)


def _reduced(array: DeviceArray) -> tuple:
    return _unpickled, (array.device, array.shape, array.dtype.short, array.numpy().tobytes())


copyreg.pickle(DeviceArray, _reduced)  # which device a name means is known here
