"""The disk cache of compiled kernels.

Content-addressed: an entry's name is the hash of everything that decides its content (the compiler's own
source, the kernel's and its callees', signature, constants, options, target), so an entry is never wrong and
never changed. One file per entry, written under a temporary name in the same folder and moved into place with
``os.replace``: readers and writers in many processes, on a shared file system too, see a whole entry or none.
A folder that cannot be written to costs time, not correctness.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import platformdirs

from ptxforge.compiler import Artifact, Assembly
from ptxforge.runtime.source import compiler_digest
from ptxforge.support import settings
from ptxforge.support.tensor_map import TensorMapRecipe

log = logging.getLogger("ptxforge.cache")

_FIELDS = (
    "name",
    "ptx",
    "target",
    "num_warps",
    "num_stages",
    "num_ctas",
    "shared_bytes",
    "parameters",
    "written",
    "options",
)


def folder() -> Path | None:
    """Where entries lie; ``None`` when the cache is switched off."""
    chosen = settings.CACHE_DIR.get()
    if not chosen:
        return Path(platformdirs.user_cache_dir("ptxforge", appauthor=False))
    return Path(chosen) if settings.CACHE_DIR.flag() else None


def key(
    source: str, signature: dict[str, str], constants: dict[str, Any], target: str, options: dict[str, Any]
) -> str:
    """The name of the entry for one specialisation."""
    parts = (
        compiler_digest(),
        source,
        sorted(signature.items()),
        _described(constants),
        target,
        _described(options),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _described(values: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Constants by name, type and value; a jitted function by its source."""
    return [(name, type(value).__name__, _identity(value)) for name, value in sorted(values.items())]


def _identity(value: Any) -> str:
    dependencies = getattr(value, "dependencies", None)
    return dependencies.digest() if dependencies is not None else repr(value)


def load(name: str, recompile: Callable[[], Artifact]) -> Artifact | None:
    """The artifact of an entry, ``None`` when there is none.

    The IR's texts are not stored; ``recompile`` makes them when somebody asks.
    """
    text = read(name)
    if text is None:
        return None
    try:
        stored = json.loads(text)
        return _restore(stored, recompile)
    except (ValueError, KeyError, TypeError) as error:
        log.warning("ignoring the damaged cache entry %s: %s", name, error)
        return None


def _restore(stored: dict[str, Any], recompile: Callable[[], Artifact]) -> Artifact:
    made: list[Artifact] = []

    def again() -> Artifact:
        if not made:
            made.append(recompile())
        return made[0]

    fields = {field: stored[field] for field in _FIELDS}
    fields["parameters"] = tuple((name, kind) for name, kind in fields["parameters"])
    fields["written"] = tuple(fields["written"])
    fields["tensor_maps"] = tuple(TensorMapRecipe(**recipe) for recipe in stored["tensor_maps"])
    return Artifact(
        **fields,
        signature=stored["signature"],
        constants={},
        timings={},
        asm=Assembly(
            {"tile": lambda: again().asm["tile"], "gpu": lambda: again().asm["gpu"], "ptx": stored["ptx"]}
        ),
        stages=lambda: again().stages,
        remarks=lambda: again().remarks,
    )


def store(name: str, artifact: Artifact) -> None:
    """Keep an artifact."""
    stored = {field: getattr(artifact, field) for field in _FIELDS} | {"signature": artifact.signature}
    stored["tensor_maps"] = [attrs.asdict(recipe) for recipe in artifact.tensor_maps]
    write(name, json.dumps(stored))


def read(name: str) -> str | None:
    """The text of an entry, ``None`` when there is none."""
    where = folder()
    if where is None:
        return None
    try:
        return _path(where, name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def write(name: str, text: str) -> None:
    """Keep a text; says so in the log, and does nothing else, when the folder cannot be written to."""
    where = folder()
    if where is None:
        return
    path = _path(where, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text)
    except OSError as error:
        log.warning("cannot write the cache entry %s: %s", path, error)


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _path(where: Path, name: str) -> Path:
    return where / name[:2] / f"{name[2:]}.json"
