"""Timings of configurations as a JSON file: for another machine, for a repository, to be put together.

    {"format": "ptxforge timings 1", "timings": [
      {"kernel": "module.matmul", "source": <hash>, "gpu": "NVIDIA H200", "key": "(4096, 'float16')",
       "config": "Config({'BLOCK': 128}, num_warps=8, …)", "ms": [0.41, 0.40, 0.43]}, …]}

Each row stands for itself: a kernel whose list of configurations has grown keeps what was measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ptxforge.runtime import store
from ptxforge.support.errors import AutotunerError

FORMAT = "ptxforge timings 1"
_NAMES = ("kernel", "source", "gpu", "key", "config")
Row = dict[str, Any]


def read(path: str | os.PathLike) -> list[Row]:
    """The rows of a file. Raises :class:`AutotunerError` for one that holds none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        rows = found["timings"] if found["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AutotunerError(f"{path} holds no timings: {error}") from None
    if rows is None or not all(map(_is_row, rows)):
        raise AutotunerError(f"{path} holds no timings of the format '{FORMAT}'")
    return rows


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in _NAMES)
        and isinstance(row.get("ms"), list)
        and len(row["ms"]) == 3
        and all(isinstance(value, (int, float)) and value >= 0 for value in row["ms"])
    )


def write(path: str | os.PathLike, rows: Iterable[Row]) -> None:
    """Write rows to a file, sorted, so that equal timings make equal files."""
    ordered = sorted(rows, key=identity)
    text = json.dumps({"format": FORMAT, "timings": ordered}, indent=1)
    store.replace(Path(path).absolute(), text.encode() + b"\n")


def identity(row: Row) -> tuple[str, ...]:
    """What a row is about."""
    return tuple(row[name] for name in _NAMES)


def merge(*groups: Iterable[Row]) -> list[Row]:
    """All rows; of several about the same, the one with the smallest median, which was disturbed least."""
    best: dict[tuple, Row] = {}
    for rows in groups:
        for row in rows:
            known = best.get(identity(row))
            if known is None or row["ms"][0] < known["ms"][0]:
                best[identity(row)] = row
    return list(best.values())
