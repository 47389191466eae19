"""What users download stays small, and holds what runs, nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
LIMIT = 1_283_000
"""Bytes of the wheel at most; the aim is a million."""
SUFFIXES = {".py", ".typed", ".js", ".css"}
"""What a package consists of: code, and what the pages that it writes hold."""


def packaged() -> list[Path]:
    """The files of the packages, without what Python and type checkers keep beside them."""
    found = [path for package in PACKAGES["packages"] for path in (ROOT / package).rglob("*")]
    kept = [path for path in found if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path for path in kept if not path.name.startswith("."))


def wheel() -> bytes:
    """The files as a wheel has them: deflated, each with its line of the record; the project's facts, the
    readme and the licence beside them, as in the wheel's metadata."""
    made, record = io.BytesIO(), []
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        metadata = (ROOT / "pyproject.toml").read_bytes() + (ROOT / "README.md").read_bytes()
        files = {str(path.relative_to(ROOT)): path.read_bytes() for path in [*packaged(), ROOT / "LICENSE"]}
        for name, data in (files | {"METADATA": metadata}).items():
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
        archive.writestr("RECORD", "".join(record))
    return made.getvalue()


def test_the_wheel_is_small():
    size = len(wheel())
    assert size <= LIMIT, f"the wheel has {size} bytes"


def test_the_wheel_holds_what_runs():
    assert {path.suffix for path in packaged()} == SUFFIXES
