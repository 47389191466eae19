"""Files under names that tell their content, in folders that many processes and machines share.

A name is the hash of everything that decides the content, so a file is never wrong and never changes; who
comes second writes the same again. A file is written under another name in the same folder and moved into
place, so that a reader sees a whole file or none, also on a network file system and beside a writer that is
killed. Nobody takes a lock, and no folder is ever removed.

Reading goes through *layers*: the folder that is written to, then those of ``PTXFORGE_CACHE_PATH``, which are
only read. What cannot be read, for whatever reason, is not there; what cannot be written costs time later.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import attrs
import platformdirs

from ptxforge.support import container, settings

log = logging.getLogger("ptxforge.cache")

SUFFIX = ".ptxf"
_PASSING = (errno.EBUSY, errno.ESTALE, errno.EINTR, errno.EAGAIN)
"""What a shared file system answers for a moment: worth another try."""
_TRIES, _PAUSE = 4, 0.01
_USED_AGAIN_AFTER = 3600.0
"""Seconds after which another use of a file is noted: its date is what pruning goes by."""
_ABANDONED_AFTER = 3600.0
"""Seconds after which a temporary file is one that a killed process left."""
_WRITES_BETWEEN_LOOKS = 200
_KEEP = 0.8
"""Pruning leaves this part of the allowed size, so that it is not due again at once."""

Result = TypeVar("Result")


@attrs.frozen(slots=True)
class Entry:
    """A file of the store: its ``name`` (hash), where it lies, its bytes, and when it was used last (seconds
    since 1970, exact to an hour)."""

    name: str
    path: Path
    bytes: int
    used: float


def elsewhere() -> str | None:
    """The folder that a program chooses while it runs, over ``PTXFORGE_CACHE_DIR`` (but a cache that is off
    stays off). Triton's knobs put a function of theirs in its place."""
    return None


def folder() -> Path | None:
    """Where files are written; ``None`` when the cache is switched off."""
    chosen = settings.CACHE_DIR.get()
    is_off = bool(chosen) and not settings.CACHE_DIR.flag()
    moved = elsewhere()
    if moved is not None and not is_off:
        return _as_path(moved)
    if not chosen:
        return _of_the_user(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))
    return None if is_off else _as_path(chosen)


@functools.cache
def _as_path(text: str) -> Path:
    """A path that is asked for several times in each launch of a new kernel."""
    return Path(text)


@functools.lru_cache(maxsize=16)
def _of_the_user(*decide: str | None) -> Path:
    """The folder of the user's caches, which depends on these variables."""
    return Path(platformdirs.user_cache_dir("ptxforge", appauthor=False))


def layers() -> list[Path]:
    """Where files are looked for, in this order; empty when the cache is switched off."""
    first = folder()
    if first is None:
        return []
    return [first, *(_as_path(name) for name in settings.CACHE_PATH.get().split(os.pathsep) if name)]


def read(name: str, kind: str) -> tuple[dict[str, Any], dict[str, bytes]] | None:
    """The facts and sections of a file, ``None`` when it is nowhere. A damaged one is noted and passed
    over."""
    for layer in layers():
        path = f"{layer}{os.sep}{name[:2]}{os.sep}{name[2:]}{SUFFIX}"  # a Path takes longer than the reading
        try:
            data, changed = _patiently(lambda path=path: _content(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            log.warning("cannot read the cache entry %s: %s", path, error)
            continue
        try:
            found = _opened(data, name, kind)
        except container.DamagedFileError as error:
            log.warning("ignoring the damaged cache entry %s: %s", path, error)
            continue
        _note_use(path, changed)
        return found
    return None


def write(name: str, kind: str, facts: dict[str, Any], sections: dict[str, bytes]) -> None:
    """Keep a file. Says so in the log, once for each folder, and does nothing else, when it cannot."""
    where = folder()
    if where is None:
        return
    path = _path(where, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, container.pack(kind, {**facts, "entry": name}, sections))
    except OSError as error:
        level = logging.DEBUG if where in _complained else logging.WARNING
        log.log(level, "cannot write the cache entry %s: %s", path, error)
        _complained.add(where)
        return
    _prune_if_due(where)


_complained: set[Path] = set()


def replace(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all. Raises ``OSError``."""
    handle, temporary = container.beside(path)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        _patiently(lambda: os.replace(temporary, path))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _patiently(action: Callable[[], Result]) -> Result:
    """Try again, for some hundredths of a second, what a shared file system refuses for the moment."""
    for _ in range(_TRIES - 1):
        try:
            return action()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
        time.sleep(_PAUSE)
    return action()


def hashed(*parts: Any) -> str:
    """The name of an entry whose content these parts decide."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def is_name(name: Any) -> bool:
    """Whether a text is the name of an entry: a SHA-256 in hexadecimal digits."""
    return isinstance(name, str) and re.fullmatch("[0-9a-f]{64}", name) is not None


def _path(where: Path, name: str) -> Path:
    return where / name[:2] / f"{name[2:]}{SUFFIX}"


def _content(path: str) -> tuple[bytes, float]:
    """The bytes of a file, and when it was changed last (seconds since 1970). Python's own file objects take
    three times as long."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        data = os.read(handle, status.st_size)
        while len(data) < status.st_size:
            more = os.read(handle, status.st_size - len(data))
            if not more:
                break
            data += more
    finally:
        os.close(handle)
    return data, status.st_mtime


def _note_use(path: str, changed: float) -> None:
    if time.time() - changed > _USED_AGAIN_AFTER:
        with contextlib.suppress(OSError):  # a layer that can only be read
            os.utime(path)


# Looking at all of it, and making room


def entries(where: Path) -> Iterator[Entry]:
    """The files of a folder, damaged ones included."""
    for path, status in _files(where):
        if path.suffix == SUFFIX:
            yield Entry(path.parent.name + path.stem, path, status.st_size, status.st_mtime)


def _files(where: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything in the store's subfolders; other processes may add and remove meanwhile."""
    try:
        groups = sorted(entry.path for entry in os.scandir(where) if len(entry.name) == 2 and entry.is_dir())
    except OSError:
        return
    for group in groups:
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(group), key=lambda entry: entry.name):
                with contextlib.suppress(OSError):
                    yield Path(entry.path), entry.stat()


def verify(where: Path) -> list[tuple[Entry, str]]:
    """The damaged files of a folder, each with what is wrong."""
    damaged = []
    for entry in entries(where):
        try:
            _opened(entry.path.read_bytes(), entry.name)
        except (OSError, container.DamagedFileError) as error:
            damaged.append((entry, str(error)))
    return damaged


def _opened(data: bytes, name: str, kind: str = "") -> tuple[dict[str, Any], dict[str, bytes]]:
    facts, sections = container.unpack(data, kind)
    if facts.get("entry") != name:
        raise container.DamagedFileError("it is the content of another entry")
    return facts, sections


def prune(where: Path, allowed_bytes: int) -> list[Entry]:
    """Remove the files that were not used for the longest time until ``allowed_bytes`` suffice, and temporary
    files that killed processes left; the files that were removed."""
    for path, status in list(_files(where)):
        if path.suffix == container.TEMPORARY and time.time() - status.st_mtime > _ABANDONED_AFTER:
            _remove(path)
    found = sorted(entries(where), key=lambda entry: entry.used)
    total = sum(entry.bytes for entry in found)
    removed = []
    for entry in found:
        if total <= allowed_bytes:
            break
        if _remove(entry.path):
            removed.append(entry)
        total -= entry.bytes
    return removed


def _remove(path: Path) -> bool:
    try:
        os.unlink(path)
    except OSError:  # another process was faster, or it may only be read
        return False
    return True


_writes = 0


def _prune_if_due(where: Path) -> None:
    """Look at the size now and then: every so many writes of this process, and after an hour in which no
    process did."""
    global _writes
    _writes += 1
    mark = where / "looked-at"
    try:
        if _writes % _WRITES_BETWEEN_LOOKS and time.time() - mark.stat().st_mtime < _USED_AGAIN_AFTER:
            return
    except OSError:
        pass
    with contextlib.suppress(OSError):
        mark.touch()
        allowed = settings.parse_size(settings.CACHE_SIZE.get())
        if sum(entry.bytes for entry in entries(where)) > allowed:
            removed = prune(where, int(allowed * _KEEP))
            log.info("removed %d cache entries to stay below %d bytes", len(removed), allowed)
