"""The one file format of what ptxforge keeps on disk: cache entries and saved kernels.

    ptxforge 1                          what it is, and the version of the format
    <64 hexadecimal digits>             SHA-256 of every byte behind this line
    {"kind": …, "sections": {…}, …}     one line of JSON
    <the sections, one behind the other, in the order and of the lengths that the line says>

Reading checks the sum before it looks at anything else and executes nothing: whatever a disk, a network or a
hand did to a file, it is read whole and right or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import attrs

from ptxforge.support.errors import PtxforgeError

FIELDS = (
    "name", "target", "num_warps", "num_stages", "num_ctas", "shared_bytes", "parameters", "written",
    "options", "signature", "extra_warps", "most_programs",
)  # fmt: skip


def described(artifact: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    """An :class:`~ptxforge.compiler.Artifact` as facts and sections of a file. ``shown`` is for
    readers only."""
    facts = {field: getattr(artifact, field) for field in FIELDS}
    facts["tensor_maps"] = [attrs.asdict(recipe) for recipe in artifact.tensor_maps]
    facts["promises"] = [attrs.asdict(promise) for promise in artifact.promises]
    facts["shown"] = {name: repr(value) for name, value in artifact.constants.items()}
    return facts, {"ptx": artifact.ptx.encode()}


_MAGIC = b"ptxforge 1\n"
_DIGITS = 64
TEMPORARY = ".tmp"
"""What the name of a file ends with that is still being written."""


class DamagedFileError(PtxforgeError):
    """A file is not what was written."""


def write(path: str | os.PathLike, data: bytes) -> None:
    """Write a file so that it is there whole or not at all. Raises ``OSError``."""
    place = Path(path).absolute()
    handle, temporary = beside(place)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, place)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def beside(place: Path) -> tuple[int, str]:
    """A new file in the folder of ``place``, to be moved there: its handle and its path. Others may read it
    as the umask has it (``tempfile`` makes files that nobody else may read). Raises ``OSError``."""
    temporary = place.with_name(f"{place.stem}.{os.getpid():x}.{os.urandom(6).hex()}{TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.open(temporary, flags, 0o666), str(temporary)


def pack(kind: str, facts: dict[str, Any], sections: dict[str, bytes]) -> bytes:
    """The bytes of a file. ``facts`` are what JSON can say."""
    header = {"kind": kind, "sections": {name: len(data) for name, data in sections.items()}, **facts}
    body = json.dumps(header, separators=(",", ":")).encode() + b"\n" + b"".join(sections.values())
    return _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unpack(data: bytes, kind: str = "") -> tuple[dict[str, Any], dict[str, bytes]]:
    """The facts and the sections of a file, of that kind if one is named. Raises :class:`DamagedFileError`
    for anything else."""
    start = len(_MAGIC) + _DIGITS + 1
    if not data.startswith(_MAGIC):
        raise DamagedFileError("not a file of ptxforge, or of another version of the format")
    if len(data) < start or data[start - 1 : start] != b"\n":
        raise DamagedFileError("the file ends too early")
    body = memoryview(data)[start:]
    if hashlib.sha256(body).hexdigest().encode() != data[len(_MAGIC) : start - 1]:
        raise DamagedFileError("the checksum does not fit")
    return _parted(bytes(body), kind)


def _parted(body: bytes, kind: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    line, _, rest = body.partition(b"\n")
    try:
        header = json.loads(line)
        lengths = header.pop("sections")
        found = header["kind"]
        sections: dict[str, bytes] = {}
        place = 0
        for name, length in lengths.items():
            sections[name] = rest[place : place + length]
            place += length
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(f"the header cannot be read ({error})") from None
    if place != len(rest):
        raise DamagedFileError("the sections do not fill the file")
    if kind and found != kind:
        raise DamagedFileError(f"holds a '{found}', not a '{kind}'")
    return header, sections
