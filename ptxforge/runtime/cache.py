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
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ptxforge.compiler import Artifact, Assembly
from ptxforge.runtime import compiler_state, store
from ptxforge.runtime.places import FunctionPlace, moved
from ptxforge.runtime.store import folder, hashed
from ptxforge.support.artifact_facts import FIELDS, described
from ptxforge.support.container import DamagedFileError
from ptxforge.support.tensor_map import TensorMapRecipe

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
    """The artifact that :func:`~ptxforge.support.artifact_facts.described` describes. Raises ``KeyError``
    and the like for other facts."""
    made: list[Artifact] = []

    def again() -> Artifact:
        if not made:
            made.append(recompile())
        return made[0]

    fields = {field: facts[field] for field in FIELDS}
    fields["parameters"] = tuple((name, kind) for name, kind in fields["parameters"])
    fields["written"] = tuple(fields["written"])
    fields["tensor_maps"] = tuple(TensorMapRecipe(**recipe) for recipe in facts["tensor_maps"])
    ptx = sections["ptx"].decode()
    return Artifact(
        **fields,
        ptx=ptx,
        constants={},
        timings={},
        asm=Assembly({"tile": lambda: again().asm["tile"], "gpu": lambda: again().asm["gpu"], "ptx": ptx}),
        stages=lambda: again().stages,
        remarks=lambda: again().remarks,
    )


def store_artifact(name: str, artifact: Artifact, places: Sequence[FunctionPlace] = ()) -> None:
    """Keep an artifact whose functions stand at ``places``."""
    facts, sections = described(artifact)
    store.write(name, "kernel", facts | {"places": [attrs.asdict(place) for place in places]}, sections)


# Machine code


def machine_name(ptx: str, architecture: str, assembler: str) -> str:
    """The name of the entry for the machine code of a PTX text; ``assembler`` tells its version too. (Files
    and lines of the source count: profilers read them in machine code.)"""
    return hashed("machine", hashlib.sha256(ptx.encode()).hexdigest(), architecture, assembler)


def load_machine_code(name: str) -> bytes | None:
    """The machine code of an entry, ``None`` when there is none."""
    found = store.read(name, "machine")
    return found[1].get("cubin") if found is not None else None


def store_machine_code(name: str, cubin: bytes, kernel: str, architecture: str, assembler: str) -> None:
    """Keep machine code; ``kernel`` is for readers only."""
    facts = {"kernel": kernel, "target": architecture, "assembler": assembler}
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
