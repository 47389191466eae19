"""The toolkit's programs, where they are installed: for looking at machine code, never needed to run a
kernel."""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from ptxforge.compiler import Assembly
from ptxforge.driver import nvjitlink
from ptxforge.driver.jit import is_whole_program
from ptxforge.support import settings
from ptxforge.support.errors import DeviceError

_WHEELS = {
    "ptxas": "the Python package nvidia-cuda-nvcc",
    "nvdisasm": "the Python package nvidia-cuda-nvdisasm",
    "cuobjdump": "the Python package nvidia-cuda-cuobjdump",
}


@functools.cache
def find(name: str) -> str | None:
    """The path of ``ptxas``, ``nvdisasm`` or ``cuobjdump``: on ``PATH``, else in NVIDIA's Python wheels."""
    found = shutil.which(name)
    if found:
        return found
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob(f"**/bin/{name}")):
            return str(path)
    return None


def run(name: str, *arguments: str) -> str:
    """The output of a toolkit program. Raises :class:`DeviceError` when it is missing or refuses."""
    return _run(name, *arguments).stdout


def _run(name: str, *arguments: str) -> subprocess.CompletedProcess:
    path = find(name)
    if path is None:
        raise DeviceError(
            f"{name} is not installed; it comes with the CUDA toolkit ({_WHEELS[name]} has it, too)"
        )
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DeviceError(f"{name} failed with exit status {done.returncode}", done.stderr + done.stdout)
    return done


def assemble(ptx: str, target: str) -> bytes:
    """The machine code that ``ptxas`` makes of PTX text. Raises :class:`DeviceError` with its messages."""
    return assemble_with_log(ptx, target)[0]


def assemble_with_log(ptx: str, target: str, *options: str) -> tuple[bytes, str]:
    """As :func:`assemble`, with more options, and what ``ptxas`` has to say."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        done = _run("ptxas", *options, f"-arch={target}", str(source), "-o", str(cubin))
        return cubin.read_bytes(), done.stdout + done.stderr


def serialized_products(log: str) -> list[str]:
    """The notes of ``ptxas`` that it makes ``wgmma`` instructions wait for each other, which costs a third of
    their speed. (C7519 only says that it put in a fence.)"""
    return [line for line in log.splitlines() if re.search(r"\(C75(?!19)\d\d\)", line)]


def must_use_ptxas(ptx: str) -> bool:
    """Whether machine code of ``ptx`` to keep or give away comes from ``ptxas``, which is installed, as no
    linker makes it right."""
    return is_whole_program(ptx) and find("ptxas") is not None


def machine_code(ptx: str, target: str) -> bytes:
    """The machine code of PTX text without a GPU: by nvJitLink where it is installed (faster, as no process
    is started), else by ``ptxas``, which comes first where :func:`must_use_ptxas`; unless
    ``PTXFORGE_ASSEMBLER`` names one. Raises :class:`DeviceError` as those do."""
    return assemble_with(assembler_for(ptx), ptx, target)


def assembler_for(ptx: str) -> str:
    """Which assembler :func:`machine_code` takes: ``nvjitlink`` or ``ptxas``."""
    chosen = settings.ASSEMBLER.get()
    if chosen not in ("", "driver"):
        return chosen
    return "nvjitlink" if nvjitlink.library() and not must_use_ptxas(ptx) else "ptxas"


def assemble_with(assembler: str, ptx: str, target: str) -> bytes:
    """The machine code that ``nvjitlink`` or ``ptxas`` makes. Raises :class:`DeviceError` as they do."""
    return nvjitlink.assemble(ptx, target) if assembler == "nvjitlink" else assemble(ptx, target)


@functools.cache
def assembler_version(assembler: str) -> str:
    """``nvjitlink`` or ``ptxas`` with its version, for the names of what it makes. Raises
    :class:`DeviceError` when it is not installed."""
    if assembler == "nvjitlink":
        if nvjitlink.library() is None:
            raise DeviceError("nvJitLink is not installed; the Python package nvidia-nvjitlink has it")
        return "nvjitlink " + ".".join(map(str, nvjitlink.library().version()))
    return "ptxas " + run("ptxas", "--version").splitlines()[-1]


def can_disassemble() -> bool:
    """Whether the tools are there that make SASS of PTX text."""
    return bool(find("ptxas") and (find("nvdisasm") or find("cuobjdump")))


def disassemble(cubin: bytes, *options: str) -> str:
    """The SASS of machine code, by ``nvdisasm`` (with more ``options``) or ``cuobjdump``, whichever is
    there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        if find("nvdisasm"):
            return run("nvdisasm", *options, "-c", str(path))
        return run("cuobjdump", "-sass", str(path))


def with_machine_code(asm: Assembly, cubin: Callable[[], bytes]) -> Assembly:
    """The texts of ``asm``, the bytes ``cubin`` (by the function of that name, if they are not in ``asm``)
    and the text ``sass`` made of them; each made when asked for."""
    return asm.with_machine_code(cubin, disassemble)
