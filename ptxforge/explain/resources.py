"""Registers, spills, shared memory, how many blocks fit on a multiprocessor; and machine code with source
lines, where ``ptxas`` and ``nvdisasm`` are installed."""

from __future__ import annotations

import re

from ptxforge.compiler import Artifact
from ptxforge.explain.trace import Line, Place
from ptxforge.runtime import tools
from ptxforge.runtime.assembled import Resources, assembled


def resources_of(artifact: Artifact) -> Resources:
    """By ``ptxas`` where it is installed, else the emulator's estimate.

    Raises :class:`DeviceError` when ``ptxas`` refuses the text.
    """
    if tools.find("ptxas") is None:
        return _estimate(artifact)
    return assembled(artifact)


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
