"""PTX text through a linker (the driver's, nvJitLink): the only way to get machine code from either.

Linkers have a text assembled as a part of a program. When it says how many threads a block has (``.reqntid``)
the assembler then spends registers as if nothing but one block had to fit on a multiprocessor; when it does
not, it saves them for more blocks, as it does for whole programs. (ptxas 13.0, bilinear interpolation: 138
and 56 registers.) So linkers get the text without it where nothing else depends on it, and with it after all
if a block then needs more registers than there are.

``setmaxnreg`` has no effect in a part of a program (note C7504 of the assembler): threads that reckon with
more registers spill, and their products wait for each other. Nothing can be done about that here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from ptxforge.support.machine import REGISTERS_PER_MULTIPROCESSOR

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
