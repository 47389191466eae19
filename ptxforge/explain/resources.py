"""Registers, spills, shared memory, how many blocks fit on a multiprocessor; and machine code with source
lines, where ``ptxas`` and ``nvdisasm`` are installed."""

from __future__ import annotations

import re

import attrs

from ptxforge.compiler import Artifact
from ptxforge.explain.trace import Line, Place
from ptxforge.runtime import tools
from ptxforge.support.location import Location


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


def resources_of(artifact: Artifact) -> Resources:
    """By ``ptxas`` where it is installed, else the emulator's estimate.

    Raises :class:`DeviceError` when ``ptxas`` refuses the text.
    """
    if tools.find("ptxas") is None:
        return _estimate(artifact)
    return _read(tools.assemble_with_log(artifact.ptx, artifact.target, "-v")[1])


def _read(said: str) -> Resources:
    """What ``ptxas -v`` tells."""
    registers = re.search(r"Used (\d+) registers", said)
    frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    local, stores, loads = map(int, frame.groups()) if frame else (0, 0, 0)
    notes = [note.partition(" serialized ")[2] or note for note in tools.serialized_products(said)]
    return Resources(int(registers[1]) if registers else 0, stores + loads, local, "ptxas", "; ".join(notes))


def place_of_products(ptx: str) -> Location | None:
    """Where the source has the first product by ``wgmma``, as the text's ``.loc`` lines say."""
    files, seen = dict(re.findall(r'^\.file (\d+) "(.*)"$', ptx, re.MULTILINE)), None
    for line in ptx.splitlines():
        found = re.match(r"\s*\.loc (\d+) (\d+) (\d+)", line)
        seen = found or seen
        if "wgmma.mma_async" in line and seen is not None:
            return Location(files[seen[1]], int(seen[2]), int(seen[3]) - 1)
    return None


def _estimate(artifact: Artifact) -> Resources:
    from ptxforge.emulator import EmulatorDevice  # only where nobody else counts

    function = EmulatorDevice(target=artifact.target).load_module(artifact.ptx).function(artifact.name)
    return Resources(function.attributes.registers, 0, function.attributes.local_bytes, "estimate")


_PLACE = re.compile(r'//## File "(.*)", line (\d+)')
_CODE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*)$")


def machine_code(artifact: Artifact) -> tuple[Line, ...] | None:
    """The SASS of a kernel, line by line; ``None`` where the tools are missing.

    Raises :class:`DeviceError` when one of them refuses.
    """
    if tools.find("ptxas") is None or tools.find("nvdisasm") is None:
        return None
    cubin, _ = tools.assemble_with_log(artifact.ptx, artifact.target, "-lineinfo")
    return read_sass(tools.disassemble(cubin, "-g"))


def read_sass(text: str) -> tuple[Line, ...]:
    """Instructions and labels of ``nvdisasm -g -c``, each with the place that its last comment names.

    >>> read_sass('\\t//## File "/k.py", line 7\\n        /*0010*/                   EXIT ;')
    (Line(text='    EXIT ;', places=(('/k.py', 7),)),)
    """
    lines: list[Line] = []
    places: tuple[Place, ...] = ()
    for raw in text.splitlines():
        where, code = _PLACE.search(raw), _CODE.match(raw)
        if where:
            places = ((where[1], int(where[2])),)
        elif code:
            lines.append(Line(f"    {re.sub(r' +', ' ', code[1]).strip()}", places))
        elif re.match(r"^\.L_x_\d+:", raw):
            lines.append(Line(raw.strip()))
    return tuple(lines)
