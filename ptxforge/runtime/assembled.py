"""What the assembler makes of a kernel: registers, spills, products that wait for each other; and the remarks
on that, where ``ptxas`` is installed."""

from __future__ import annotations

import functools
import importlib
import re

import attrs

from ptxforge.compiler import Artifact
from ptxforge.runtime import tools
from ptxforge.support.errors import DeviceError
from ptxforge.support.location import Location
from ptxforge.support.remarks import Remark

MOST_HOLDERS = 4
"""Tensors that a remark on spills names."""


@attrs.frozen(slots=True)
class Resources:
    """``registers`` per thread; ``spilled`` bytes of stores and loads of spilled registers in the code;
    ``local`` bytes of stack per thread. ``by`` says who counted: ``ptxas``, or ``estimate`` where there is
    none (then nothing is known of spills). ``serialized`` is why the assembler makes each ``wgmma`` wait for
    the one before, empty if it does not."""

    registers: int
    spilled: int
    local: int
    by: str
    serialized: str = ""


def assembled(artifact: Artifact) -> Resources:
    """What ``ptxas`` tells. Raises :class:`DeviceError` when it is not installed or refuses the text."""
    return read_log(tools.assemble_with_log(artifact.ptx, artifact.target, "-v")[1])


def read_log(said: str) -> Resources:
    """What ``ptxas -v`` tells, from its text."""
    registers = re.search(r"Used (\d+) registers", said)
    frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    local, stores, loads = map(int, frame.groups()) if frame else (0, 0, 0)
    notes = [note.partition(" serialized ")[2] or note for note in tools.serialized_products(said)]
    return Resources(int(registers[1]) if registers else 0, stores + loads, local, "ptxas", "; ".join(notes))


def remarks_of_assembler(artifact: Artifact, by_driver: str = "") -> tuple[Remark, ...]:
    """What the assembler makes of a kernel's registers and its products; nothing where there is none, or one
    too old for the target. ``by_driver`` is why the driver's makes products wait for each other."""
    try:
        used = assembled(artifact) if tools.find("ptxas") is not None else None
    except DeviceError:
        used = None
    found = [_spills(artifact, used.spilled)] if used is not None and used.spilled else []
    if by_driver:
        found.append(_serialized(artifact, by_driver, "driver"))
    elif used is not None and used.serialized:
        found.append(_serialized(artifact, used.serialized, "ptxas"))
    return tuple(found)


def note_driver(artifact: Artifact, log: str) -> None:
    """Let the artifact's remarks say what the driver's assembler noted in its ``log`` of the kernel."""
    serialized = read_log(log).serialized
    if serialized:
        artifact.assembled = functools.partial(remarks_of_assembler, by_driver=serialized)


def _spills(artifact: Artifact, spilled: int) -> Remark:
    """How many bytes are kept in memory, and which tensors take the registers."""
    parser, pressure = (importlib.import_module(f"ptxforge.ir.{name}") for name in ("parser", "pressure"))
    holders = pressure.holders_at_the_peak(parser.parse_function(artifact.asm["gpu"]))
    names = [f"{h.value.hint or 'a value'} ({h.value.type.element} {list(h.value.type.shape)}, {h.registers})"
             for h in holders[:MOST_HOLDERS]]  # fmt: skip
    message = (
        f"{spilled} bytes of code move registers to local memory and back: of a thread's registers, "
        f"{sum(h.registers for h in holders)} go to tensors at one time, most of them to {', '.join(names)}; "
        "smaller blocks or more warps give each thread less"
    )
    return Remark("ptxas", "spills", message)


def _serialized(artifact: Artifact, why: str, by: str) -> Remark:
    message = (
        f"each product waits for the one before, {why}, at a third of the speed; smaller blocks or more "
        "warps give each thread fewer sums"
    )
    return Remark(by, "serialized", message, place_of_products(artifact.ptx))


def place_of_products(ptx: str) -> Location | None:
    """Where the source has the first product by ``wgmma``, as the text's ``.loc`` lines say."""
    files, seen = dict(re.findall(r'^\.file (\d+) "(.*)"$', ptx, re.MULTILINE)), None
    for line in ptx.splitlines():
        found = re.match(r"\s*\.loc (\d+) (\d+) (\d+)", line)
        seen = found or seen
        if "wgmma.mma_async" in line and seen is not None:
            return Location(files[seen[1]], int(seen[2]), int(seen[3]) - 1)
    return None
