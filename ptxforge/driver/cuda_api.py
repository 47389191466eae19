"""The CUDA driver's functions, through cuda-python: loaded on first use, checked on every call.

The only module that imports cuda-python. :func:`call` turns a result code into :class:`DeviceError`, so the
rest of the driver package reads as plain calls.
"""

from __future__ import annotations

import functools
import re
import types
from pathlib import Path

from ptxforge.support.errors import DeviceError


@functools.cache
def bindings() -> types.ModuleType:
    """``cuda.bindings.driver`` with the driver initialised.

    Raises :class:`DeviceError` when cuda-python or the NVIDIA driver is missing.
    """
    try:
        from cuda.bindings import driver  # a machine without a GPU never pays for this import
    except ImportError as error:
        raise DeviceError(
            f"cuda-python cannot be imported ({error}); install it to use CUDA devices"
        ) from error
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError as error:  # cuda-python's own error for a missing libcuda
        raise DeviceError(f"the NVIDIA driver is not installed: {error}") from error
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"the NVIDIA driver cannot start: {describe(driver, code)}")
    return driver


def describe(driver: types.ModuleType, code: object) -> str:
    """``CUDA_ERROR_INVALID_PTX: a PTX JIT compilation failed`` of a result code."""
    status, text = driver.cuGetErrorString(code)
    name = getattr(code, "name", str(code))
    return f"{name}: {text.decode()}" if status == driver.CUresult.CUDA_SUCCESS and text else name


def call(name: str, *arguments: object) -> object:
    """Call the driver function ``name``; its value, a tuple of several, or ``None``.

    Raises :class:`DeviceError` for any result code but success.
    """
    driver = bindings()
    code, *values = getattr(driver, name)(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"{name} failed: {describe(driver, code)}")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


@functools.cache
def device_count() -> int:
    """How many CUDA devices this process can use; 0 without a driver or without cuda-python."""
    try:
        return call("cuDeviceGetCount")
    except DeviceError:
        return 0


@functools.cache
def driver_build() -> str:
    """The driver's version as exactly as it can be told: its CUDA version and, on Linux, its build."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        text = ""
    build = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return ".".join(map(str, driver_version())) + (f" ({build[0]})" if build else "")


def driver_version() -> tuple[int, int]:
    """The CUDA version that the driver supports, such as (13, 0)."""
    version = call("cuDriverGetVersion")
    return version // 1000, version % 1000 // 10
