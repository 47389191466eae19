"""PTX text into machine code by the driver's own assembler, with its log in the error; and the way of a text
through a linker (the driver's, nvJitLink), the only one to get machine code from either.

Linkers have a text assembled as a part of a program. When it says how many threads a block has (``.reqntid``)
the assembler then spends registers as if nothing but one block had to fit on a multiprocessor; when it does
not, it saves them for more blocks, as it does for whole programs. So linkers get the text without it where
nothing else depends on it, and with it after all if a block then needs more registers than there are.

``setmaxnreg`` has no effect in a part of a program (note C7504 of the assembler): threads that reckon with
more registers spill, and their products wait for each other. Nothing can be done about that here.
"""

from __future__ import annotations

import ctypes
import functools
import re
import struct
from collections.abc import Callable

import numpy as np

from ptxforge.driver.cuda_api import bindings, call, describe
from ptxforge.support.errors import DeviceError
from ptxforge.support.machine import REGISTERS_PER_MULTIPROCESSOR

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


def load_module(ptx: str) -> tuple[object, str]:
    """The driver's module of ``ptx``, in the current context, and the JIT's log. Raises :class:`DeviceError`
    with that."""
    driver, log = bindings(), JitLog()
    image = ptx.encode() + b"\0"
    code, module = driver.cuModuleLoadDataEx(image, len(log.options), log.options, log.values)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"the CUDA driver refused the PTX: {describe(driver, code)}", log.text)
    return module, log.text


def load_cubin(cubin: bytes) -> object:
    """The driver's module of machine code, in the current context. Raises :class:`DeviceError` when the code
    is for another GPU or newer than the driver."""
    driver = bindings()
    code, module = driver.cuModuleLoadDataEx(cubin, 0, [], [])
    if code != driver.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"the CUDA driver refused machine code: {describe(driver, code)}")
    return module


def link_cubin(ptx: str, logs: list[str] | None = None) -> bytes:
    """The machine code (an ELF image) of ``ptx`` for the current context's device. The driver's log of what
    it did last is appended to ``logs``.

    Raises :class:`DeviceError` with the driver's log when it refuses the text.
    """
    return linked(ptx, functools.partial(_link, [] if logs is None else logs))


def _link(logs: list[str], ptx: str) -> bytes:
    driver, log = bindings(), JitLog()
    state = call("cuLinkCreate", len(log.options), log.options, log.values)
    try:
        image = ptx.encode() + b"\0"
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        (code,) = driver.cuLinkAddData(state, kind, image, len(image), b"kernel.ptx", 0, [], [])
        if code != driver.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"the CUDA driver refused the PTX: {describe(driver, code)}", log.text)
        address, size = call("cuLinkComplete", state)
        logs.append(log.text)
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


_SIZE = re.compile(r"^\.reqntid (\d+), (\d+), (\d+)\n", re.MULTILINE)
_ALSO = re.compile(r"^\.(minnctapersm|maxnreg|reqnctapercluster|explicitcluster)\b", re.MULTILINE)
"""What is a word about registers itself, or wants ``.reqntid`` beside it."""
_SECTION = "<IIQQQQIIQQ"
"""An entry of the table of sections of an ELF-64 file."""
_REGISTERS = b"\x04\x2f\x08\x00"
"""How a fact of the section ``.nv.info`` begins that says how many registers a function has."""


def is_whole_program(ptx: str) -> bool:
    """Whether a text is slow as a part of a program, so that a linker is the last resort."""
    return "setmaxnreg" in ptx


def linked(ptx: str, link: Callable[[str], bytes]) -> bytes:
    """The machine code that ``link`` makes of ``ptx``, which has one kernel."""
    size = _SIZE.search(ptx)
    if size is None or _ALSO.search(ptx):
        return link(ptx)
    cubin = link(_SIZE.sub("", ptx))
    x, y, z = map(int, size.groups())
    if registers(cubin) * x * y * z <= REGISTERS_PER_MULTIPROCESSOR:
        return cubin
    return link(ptx)


def registers(cubin: bytes) -> int:
    """32-bit registers of a thread of machine code (the most of its functions), in units of 8 as they are
    dealt out; 0 where it does not say."""
    facts = _section(cubin, b".nv.info\0")
    places = [place for place in range(0, len(facts) - 11, 4) if facts.startswith(_REGISTERS, place)]
    used = [struct.unpack_from("<I", facts, place + 8)[0] for place in places]
    return -(-max(used, default=0) // 8) * 8


def _section(cubin: bytes, name: bytes) -> bytes:
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from(_SECTION, cubin, table + size * i) for i in range(count)]
    text = sections[names][4]
    for section in sections:
        if cubin.startswith(name, text + section[0]):
            return cubin[section[4] : section[4] + section[5]]
    return b""
