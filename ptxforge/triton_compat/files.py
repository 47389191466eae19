"""``triton.runtime.cache``: files by key and name, below ``triton.knobs.cache.dir``.

For programs that keep files of their own there. Compiled kernels are :mod:`ptxforge.runtime.cache`'s.
"""

from __future__ import annotations

import abc
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ptxforge.support import container
from ptxforge.triton_compat import knobs


class CacheManager(abc.ABC):
    """Files of one key."""

    def __init__(self, key: str, override: bool = False, dump: bool = False):  # noqa: B027 - may be empty
        pass

    @abc.abstractmethod
    def get_file(self, filename: str) -> str | None:
        """The path of a file; ``None`` when there is none."""

    @abc.abstractmethod
    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        """Write a file; its path."""

    @abc.abstractmethod
    def get_group(self, filename: str) -> dict[str, str] | None:
        """Paths by name that belong together; ``None`` when nothing was put there."""

    @abc.abstractmethod
    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        """Note paths by name that belong together."""


class FileCacheManager(CacheManager):
    """In a folder of the key's name. ``override`` and ``dump`` choose the other folders of the knobs."""

    def __init__(self, key: str, override: bool = False, dump: bool = False):
        chosen = knobs.cache.override_dir if override else knobs.cache.dump_dir if dump else knobs.cache.dir
        self.key = key
        self.cache_dir = str(Path(chosen) / key)

    def has_file(self, filename: str) -> bool:
        """Whether there is such a file."""
        return os.path.exists(self._path(filename))

    def get_file(self, filename: str) -> str | None:
        path = self._path(filename)
        return path if os.path.exists(path) else None

    def put(self, data: bytes | str, filename: str, binary: bool = True) -> str:
        content = data if isinstance(data, bytes) else str(data).encode()
        path = Path(self._path(filename))
        replace_file(path, content)
        return str(path)

    def get_group(self, filename: str) -> dict[str, str] | None:
        path = self.get_file(f"__grp__{filename}")
        if path is None:
            return None
        group = json.loads(Path(path).read_text()).get("child_paths")
        return group and {name: child for name, child in group.items() if os.path.exists(child)}

    def put_group(self, filename: str, group: Mapping[str, str]) -> str:
        return self.put(json.dumps({"child_paths": dict(group)}), f"__grp__{filename}", binary=False)

    def _path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)


class RemoteCacheBackend(abc.ABC):
    """Files of one key on another machine, which programs implement for themselves."""

    def __init__(self, key: str):  # noqa: B027 - may be empty
        pass

    @abc.abstractmethod
    def get(self, filenames: list[str]) -> dict[str, bytes]:
        """The contents of those files that are there."""

    @abc.abstractmethod
    def put(self, filename: str, data: bytes) -> None:
        """Store a file."""


def get_cache_manager(key: str) -> CacheManager:
    """The manager of a key: of ``knobs.cache.manager_class``, else files."""
    return (knobs.cache.manager_class or FileCacheManager)(key)


def get_override_manager(key: str) -> CacheManager:
    """The manager of files that stand in for compiled ones; nothing here reads them."""
    return (knobs.cache.manager_class or FileCacheManager)(key, override=True)


def get_dump_manager(key: str) -> CacheManager:
    """The manager of dumped files."""
    return (knobs.cache.manager_class or FileCacheManager)(key, dump=True)


def replace_file(path: Path, data: bytes) -> None:
    """Write a whole file or none: other processes read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    container.write(path, data)
