"""Which compiler this is: a hash of its own source, part of the name of everything that it puts on disk.

Reading all of it takes longer than everything else that a warm start does; so the hash is itself kept on
disk, under the names, sizes and dates of the files. Even looking at these takes a millisecond or two, which a
thread of its own does when a GPU is first asked for (:func:`look_ahead`): making its context takes longer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path

import ptxforge
from ptxforge.runtime import store
from ptxforge.support import settings

_DECIDES_NOTHING = ("checking", "cli", "emulator", "explain", "interpreter", "__pycache__")
"""Folders without a part in what is kept on disk."""
_lock = threading.Lock()
_known: list[str] = []


def digest() -> str:
    """The hash, 64 hexadecimal digits, and another one for the rules of each release of Triton."""
    with _lock:
        if not _known:
            _known.append(_looked_up())
        return store.hashed(_known[0], "3.9") if settings.follows(3, 9) else _known[0]


def look_ahead() -> None:
    """Find the hash meanwhile."""
    if not _known and store.folder() is not None:
        threading.Thread(target=_quietly, name="ptxforge-digest", daemon=True).start()


def _quietly() -> None:
    with contextlib.suppress(Exception):  # who needs the hash gets the error
        digest()


def _looked_up() -> str:
    root = Path(ptxforge.__file__).parent
    states = file_states(root)
    name = store.hashed("digest", str(root), states)
    found = store.read(name, "digest")
    if found is not None and isinstance(found[0].get("digest"), str):
        return found[0]["digest"]
    made = _read_all(root, [path for path, _, _ in states])
    store.write(name, "digest", {"digest": made}, {})
    return made


def file_states(root: Path) -> list[tuple[str, int, int]]:
    """Name, size and date of change (nanoseconds) of each Python file below a folder that has a part in what
    is kept on disk."""
    found, folders = [], [str(root)]
    for folder in folders:
        for entry in os.scandir(folder):
            if entry.name.endswith(".py"):
                state = entry.stat()
                found.append((entry.path, state.st_size, state.st_mtime_ns))
            elif entry.name not in _DECIDES_NOTHING and entry.is_dir():
                folders.append(entry.path)
    return sorted(found)


def _read_all(root: Path, paths: list[str]) -> str:
    state = hashlib.sha256(ptxforge.__version__.encode())
    for path in map(Path, paths):
        state.update(path.relative_to(root).as_posix().encode())
        state.update(path.read_bytes())
    return state.hexdigest()
