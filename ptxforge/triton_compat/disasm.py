"""``triton.tools.disasm``: machine code as text."""

from __future__ import annotations

from pathlib import Path

from ptxforge.runtime import tools


def path_to_cuobjdump() -> str | None:
    """Where ``cuobjdump`` is installed."""
    return tools.find("cuobjdump")


def path_to_nvdisasm() -> str | None:
    """Where ``nvdisasm`` is installed."""
    return tools.find("nvdisasm")


def get_sass(cubin_asm: bytes, fun: str | None = None) -> str:
    """The SASS of machine code. Raises :class:`DeviceError` where no disassembler is installed."""
    return tools.disassemble(cubin_asm)


def extract(file_path: str, fun: str | None = None) -> str:
    """The SASS of a file with machine code."""
    return get_sass(Path(file_path).read_bytes(), fun)
