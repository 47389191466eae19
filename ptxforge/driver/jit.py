"""PTX text into machine code by the driver's own assembler, with its log in the error."""

from __future__ import annotations

import ctypes

import numpy as np

from ptxforge.driver.cuda_api import bindings, call, describe
from ptxforge.driver.linking import linked
from ptxforge.support.errors import DeviceError

LOG_BYTES = 16 * 1024


class JitLog:
    """The two log buffers of a JIT call, as cuda-python wants its options."""

    def __init__(self) -> None:
        option = bindings().CUjit_option
        self._info, self._error = bytearray(LOG_BYTES), bytearray(LOG_BYTES)
        self.options = [
            option.CU_JIT_INFO_LOG_BUFFER,
            option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            option.CU_JIT_ERROR_LOG_BUFFER,
            option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ]
        self.values = [self._info, LOG_BYTES, self._error, LOG_BYTES]

    @property
    def text(self) -> str:
        """What the JIT wrote: its errors, then its remarks."""
        parts = (
            bytes(buffer).split(b"\0", 1)[0].decode(errors="replace") for buffer in (self._error, self._info)
        )
        return "\n".join(part.strip() for part in parts if part.strip())


def load_module(ptx: str) -> object:
    """The driver's module of ``ptx``, in the current context. Raises :class:`DeviceError` with the JIT's
    log."""
    driver, log = bindings(), JitLog()
    image = ptx.encode() + b"\0"
    code, module = driver.cuModuleLoadDataEx(image, len(log.options), log.options, log.values)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"the CUDA driver refused the PTX: {describe(driver, code)}", log.text)
    return module


def load_cubin(cubin: bytes) -> object:
    """The driver's module of machine code, in the current context. Raises :class:`DeviceError` when the code
    is for another GPU or newer than the driver."""
    driver = bindings()
    code, module = driver.cuModuleLoadDataEx(cubin, 0, [], [])
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"the CUDA driver refused machine code: {describe(driver, code)}")
    return module


def link_cubin(ptx: str) -> bytes:
    """The machine code (an ELF image) of ``ptx`` for the current context's device.

    Raises :class:`DeviceError` with the driver's log when it refuses the text.
    """
    return linked(ptx, _link)


def _link(ptx: str) -> bytes:
    driver, log = bindings(), JitLog()
    state = call("cuLinkCreate", len(log.options), log.options, log.values)
    try:
        image = ptx.encode() + b"\0"
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        (code,) = driver.cuLinkAddData(state, kind, image, len(image), b"kernel.ptx", 0, [], [])
        if code != driver.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"the CUDA driver refused the PTX: {describe(driver, code)}", log.text)
        address, size = call("cuLinkComplete", state)
        return ctypes.string_at(address, size)
    finally:
        call("cuLinkDestroy", state)


def host_address(array: np.ndarray) -> int:
    """The address of a C-contiguous host array, as the driver's copies want it.

    Raises :class:`DeviceError` for another array.
    """
    if not array.flags.c_contiguous:
        raise DeviceError("only C-contiguous host arrays can be copied")
    return array.ctypes.data
