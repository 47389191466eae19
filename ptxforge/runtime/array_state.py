"""Saving, clearing and restoring arrays of any library, for kernels that are run many times while tuning. A
tensor descriptor stands for its array."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxforge.driver.device_array import DeviceArray
from ptxforge.runtime.tensor_descriptor import array_of


def is_readonly(array: Any) -> bool:
    """Whether it is a host array that cannot be written."""
    flags = getattr(array_of(array), "flags", None)
    return getattr(flags, "writeable", True) is False


def clear(array: Any) -> None:
    """Set every element to zero."""
    array = array_of(array)
    if isinstance(array, DeviceArray):
        array.copy_from(np.zeros(array.shape, array.dtype.numpy))
    elif hasattr(array, "zero_"):  # torch
        array.zero_()
    else:
        array[...] = 0


def copy_of(array: Any) -> Any:
    """A copy that :func:`restore` takes."""
    array = array_of(array)
    if isinstance(array, DeviceArray):
        return array.numpy()
    return array.clone() if hasattr(array, "clone") else array.copy()


def restore(array: Any, saved: Any) -> None:
    """Make ``array`` what it was when :func:`copy_of` saved it."""
    array = array_of(array)
    if isinstance(array, DeviceArray):
        array.copy_from(saved)
    elif hasattr(array, "copy_"):  # torch
        array.copy_(saved)
    else:
        array[...] = saved
