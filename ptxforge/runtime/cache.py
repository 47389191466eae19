"""The disk cache of compiled kernels: what was compiled or assembled once is not made again.

=============  ==================================================  =======================================
kind           the name is a hash of                               the file holds
=============  ==================================================  =======================================
``kernel``     the compiler's own source; the kernel's source,     the PTX and what is known of the kernel;
               its callees' and the globals that they read;        where its functions stood
               signature, constants, options, target
``machine``    the PTX, the exact architecture, the assembler      the machine code (cubin)
               and its version
``timings``    the kernel, the key, the GPU                        milliseconds of each configuration
``outline``    the compiler's own source; a function's source      its source, the names that it reads
``digest``     names, sizes and dates of the compiler's files      the hash of their content
=============  ==================================================  =======================================

How files are kept safely is :mod:`ptxforge.runtime.store`'s business, their format
ptxforge.support.container's. docs/caching.md tells users about it.

A cache entry is named after what a kernel means, not after where it stands: the same text in another folder,
or some lines further down because an import was added above it, is the same kernel. But its PTX names files
and lines (``.file``, ``.loc``), which findings, reports and debuggers show. So an entry tells where each
function of the kernel stood, and whoever reads it gets PTX that names the place where the function stands
now, letter by letter as if it had been compiled there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from ptxforge.compiler import Artifact, Assembly
from ptxforge.runtime import compiler_state, store
from ptxforge.runtime.store import folder, hashed
from ptxforge.support.container import FIELDS, DamagedFileError, described
from ptxforge.support.location import escaped
from ptxforge.support.promises import Promise
from ptxforge.support.source_text import source_text
from ptxforge.support.tensor_map import TensorMapRecipe

_FILE = re.compile(r'^\.file (\d+) "(.*)"\n', re.MULTILINE)
_LOC = re.compile(r"\.loc (\d+) (\d+) (\d+)$", re.MULTILINE)
_PLACES_IN_DATA = "__assertfail"
"""A message with file and line that an assertion prints: data of the program, which is not rewritten."""


@attrs.frozen(slots=True)
class FunctionPlace:
    """Where a function's text stands: its file, the line of its ``def`` (from 1), the number of lines from
    there on, and the columns that it is indented by."""

    file: str
    line: int
    lines: int
    indent: int

    def holds(self, file: str, line: int) -> bool:
        """Whether a line of a file is one of the function's."""
        return file == self.file and self.line <= line < self.line + self.lines


def place_of(fn: Callable) -> FunctionPlace:
    """Where ``fn`` stood when it became a kernel. Raises :class:`CompilationError` for a function whose text
    is nowhere."""
    text = source_text(fn)
    own = text.own_lines()
    decorators = next((n for n, line in enumerate(own) if line.lstrip().startswith(("def ", "async "))), 0)
    head = own[decorators]
    indent = len(head) - len(head.lstrip())
    return FunctionPlace(text.code.co_filename, text.line + decorators, len(own) - decorators, indent)


def moved(ptx: str, before: Sequence[FunctionPlace], now: Sequence[FunctionPlace]) -> str | None:
    """PTX whose functions stood at the places ``before`` as it is when they stand at those of ``now``, one
    for one; ``None`` for text that cannot be rewritten and has to be compiled."""
    if before == now:
        return ptx
    if len(before) != len(now) or _PLACES_IN_DATA in ptx:
        return None
    pairs = list(zip(before, now, strict=True))
    names = {number: _plain(name) for number, name in _FILE.findall(ptx)}
    numbers = _numbers(names.values(), pairs)

    def rewritten(found: re.Match) -> str:
        number, line, column = found[1], int(found[2]), int(found[3])
        for old, new in pairs:
            if old.holds(names[number], line):
                line, column = line - old.line + new.line, column - old.indent + new.indent
                return f".loc {numbers[new.file]} {line} {column}"
        return f".loc {numbers[names[number]]} {line} {column}"

    table = "".join(f'.file {number} "{escaped(name)}"\n' for name, number in numbers.items())
    first = _FILE.search(ptx)
    if first is None:
        return ptx
    text = ptx[: first.start()] + table + _FILE.sub("", ptx[first.start() :])
    return _LOC.sub(rewritten, text)


def _numbers(names: Iterable[str], pairs: list[tuple[FunctionPlace, FunctionPlace]]) -> dict[str, int]:
    """The number of each file that instructions may come from now, in the order of those before."""
    numbers: dict[str, int] = {}
    for name in names:
        for file in [new.file for old, new in pairs if old.file == name] or [name]:
            numbers.setdefault(file, len(numbers) + 1)
    return numbers


def _plain(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)


__all__ = ["Counters", "counters", "folder", "key", "load", "restore", "store_artifact"]

log = logging.getLogger("ptxforge.cache")

@attrs.define(slots=True)
class Counters:
    """What this process did: kernels ``found`` on disk, ``compiled`` from source, ``assembled`` from PTX, and
    machine code that was ``loaded`` as it was found on disk."""

    found: int = 0
    compiled: int = 0
    assembled: int = 0
    loaded: int = 0


counters = Counters()


def key(
    text: str, signature: dict[str, str], constants: dict[str, Any], target: str, options: dict[str, Any]
) -> str:
    """The name of the entry for one specialisation of the kernel whose meaning is ``text``."""
    return hashed(
        "kernel",
        compiler_state.digest(),
        text,
        sorted(signature.items()),
        _described(constants),
        target,
        _described(options),
    )


def _described(values: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Constants by name, type and value; a jitted function by its source."""
    return [(name, type(value).__name__, _identity(value)) for name, value in sorted(values.items())]


def _identity(value: Any) -> str:
    dependencies = getattr(value, "dependencies", None)
    return dependencies.digest() if dependencies is not None else repr(value)


# Kernels


def load(
    name: str, recompile: Callable[[], Artifact], places: Sequence[FunctionPlace] = ()
) -> Artifact | None:
    """The artifact of an entry, ``None`` when there is none. Its PTX names the ``places`` where the kernel's
    functions stand now.

    The IR's texts are not stored; ``recompile`` makes them when somebody asks.
    """
    found = store.read(name, "kernel")
    if found is None:
        return None
    try:
        facts, sections = found
        before = [FunctionPlace(**place) for place in facts["places"]]
        ptx = moved(sections["ptx"].decode(), before, list(places))
        if ptx is None:
            return None
        made = restore(facts, {"ptx": ptx.encode()}, recompile)
    except (ValueError, KeyError, TypeError, DamagedFileError) as error:
        log.warning("ignoring the cache entry %s, which cannot be understood: %s", name, error)
        return None
    counters.found += 1
    return made


def restore(facts: dict[str, Any], sections: dict[str, bytes], recompile: Callable[[], Artifact]) -> Artifact:
    """The artifact that :func:`~ptxforge.support.container.described` describes. Raises ``KeyError``
    and the like for other facts."""
    made: list[Artifact] = []

    def again() -> Artifact:
        if not made:
            made.append(recompile())
        return made[0]

    later = {"extra_warps": 0, "promises": (), "most_programs": 0}  # than a saved kernel may be
    facts = later | facts
    fields = {field: facts[field] for field in FIELDS}
    fields["parameters"] = tuple((name, kind) for name, kind in fields["parameters"])
    fields["written"] = tuple(fields["written"])
    fields["tensor_maps"] = tuple(TensorMapRecipe(**recipe) for recipe in facts["tensor_maps"])
    fields["promises"] = tuple(Promise(**promise) for promise in facts["promises"])
    ptx = sections["ptx"].decode()
    return Artifact(
        **fields,
        ptx=ptx,
        constants={},
        timings={},
        asm=Assembly({"tile": lambda: again().asm["tile"], "gpu": lambda: again().asm["gpu"], "ptx": ptx}),
        stages=lambda: again().stages,
        remarks=lambda: again().decisions,
    )


def store_artifact(name: str, artifact: Artifact, places: Sequence[FunctionPlace] = ()) -> None:
    """Keep an artifact whose functions stand at ``places``."""
    facts, sections = described(artifact)
    store.write(name, "kernel", facts | {"places": [attrs.asdict(place) for place in places]}, sections)


# Machine code

_MACHINE = "machine 2"
"""The number counts the ways in which texts were given to assemblers (``driver.jit``)."""

def machine_name(ptx: str, architecture: str, assembler: str) -> str:
    """The name of the entry for the machine code of a PTX text; ``assembler`` tells its version too. (Files
    and lines of the source count: profilers read them in machine code.)"""
    return hashed(_MACHINE, hashlib.sha256(ptx.encode()).hexdigest(), architecture, assembler)


def load_machine_code(name: str) -> tuple[bytes, str] | None:
    """The machine code of an entry and what its assembler noted, ``None`` when there is none."""
    found = store.read(name, "machine")
    return (found[1]["cubin"], found[0].get("notes", "")) if found and "cubin" in found[1] else None


def store_machine_code(
    name: str, cubin: bytes, kernel: str, architecture: str, assembler: str, notes: str = ""
) -> None:
    """Keep machine code and what the ``assembler`` noted; ``kernel`` is for readers only."""
    facts = {"kernel": kernel, "target": architecture, "assembler": assembler, "notes": notes}
    store.write(name, "machine", facts, {"cubin": cubin})


# Timings


def read_timings(name: str) -> dict[str, Any]:
    """The timings of an entry, empty when there are none."""
    found = store.read(name, "timings")
    if found is None:
        return {}
    timings = json.loads(found[1].get("timings", b"{}"))
    return timings if isinstance(timings, dict) else {}


def write_timings(name: str, facts: dict[str, Any], timings: dict[str, Any]) -> None:
    """Keep timings; ``facts`` are for readers."""
    store.write(name, "timings", facts, {"timings": json.dumps(timings).encode()})
