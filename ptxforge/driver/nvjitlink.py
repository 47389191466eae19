"""PTX text into machine code by nvJitLink: a library that needs no GPU, no context and no ``ptxas``.

It comes with the CUDA toolkit, with the Python package nvidia-nvjitlink, and with torch's CUDA wheels.
"""

from __future__ import annotations

import functools
import types

from ptxforge.driver.jit import linked
from ptxforge.support.errors import DeviceError


@functools.cache
def library() -> types.ModuleType | None:
    """``cuda.bindings.nvjitlink`` with the library loaded; ``None`` where either is missing."""
    try:
        from cuda.bindings import nvjitlink  # only who assembles pays for this import

        nvjitlink.version()
    except (ImportError, RuntimeError):  # cuda-python's error for a missing library is a RuntimeError
        return None
    return nvjitlink


def assemble(ptx: str, target: str) -> bytes:
    """The machine code (an ELF image) of ``ptx`` for ``target``, such as ``sm_90a``.

    Raises :class:`DeviceError` when the library is missing, and with its log when it refuses the text.
    """
    link = library()
    if link is None:
        raise DeviceError("nvJitLink is not installed; the Python package nvidia-nvjitlink has it")
    return linked(ptx, functools.partial(_link, link, target))


def _link(link: types.ModuleType, target: str, ptx: str) -> bytes:
    handle = link.create(2, [f"-arch={target}", "-O3"])
    try:
        text = ptx.encode() + b"\0"
        link.add_data(handle, link.InputType.PTX, text, len(text), "kernel.ptx")
        link.complete(handle)
        image = bytearray(link.get_linked_cubin_size(handle))
        link.get_linked_cubin(handle, image)
        return bytes(image)
    except link.nvJitLinkError as error:
        raise DeviceError(f"nvJitLink refused the PTX: {error}", _log(link, handle)) from None
    finally:
        link.destroy(handle)


def _log(link: types.ModuleType, handle: int) -> str:
    text = bytearray(link.get_error_log_size(handle))
    link.get_error_log(handle, text)
    return bytes(text).rstrip(b"\0").decode(errors="replace").strip()
