"""What the assembler says of a kernel, and what its text shows."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

from ptxforge.runtime import tools


def spilled_bytes(ptx: str, folder: Path, target: str = "sm_90a") -> int:
    """Bytes of stack, and of registers stored there and loaded again, that ``ptxas`` counts: 0 when all fits.
    Skips the test where there is no ``ptxas``."""
    return spills_and_registers(ptx, folder, target)[0]


def spills_and_registers(ptx: str, folder: Path, target: str) -> tuple[int, int]:
    """:func:`spilled_bytes`, and how many registers ``ptxas`` gives a thread."""
    assembler = tools.find("ptxas")
    if assembler is None:
        pytest.skip("ptxas is not installed")
    source = folder / "kernel.ptx"
    source.write_text(ptx)
    command = [assembler, "-v", f"-arch={target}", str(source), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr
    counts = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)
    assert len(counts) == 3, said
    (registers,) = re.findall(r"Used (\d+) registers", said)
    return sum(map(int, counts)), int(registers)


@functools.cache
def assembler_version() -> str | None:
    """The version of ``ptxas``: ``13.0``; ``None`` where there is none."""
    if tools.find("ptxas") is None:
        return None
    return re.search(r"release (\d+\.\d+)", tools.run("ptxas", "--version"))[1]


def schedule(ptx: str) -> list[str]:
    """What a kernel with one loop waits for, stores and starts, in order, up to its last wait."""
    found = []
    for line in ptx.splitlines():
        if "wgmma.wait_group" in line:
            found.append(f"wait {line.split()[1][:-1]}")
        elif "wgmma.commit_group" in line:
            found.append("start")
        elif "st.shared" in line and found[-1:] != ["store"]:
            found.append("store")
    last = max(at for at, what in enumerate(found) if what.startswith("wait"))
    return found[: last + 1]
