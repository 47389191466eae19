"""Look at the disk cache of compiled kernels, check it, make it smaller, carry it elsewhere.

    python -m ptxforge cache list                     what is in it, the newest first
    python -m ptxforge cache verify                   read every file; exit status 1 if one is damaged
    python -m ptxforge cache prune --size 500M        remove what was not used for the longest time
    python -m ptxforge cache export kernels.zip       all entries in one file, for another machine or an image
    python -m ptxforge cache import kernels.zip       take them in; damaged ones are left out

The folder is that of PTXFORGE_CACHE_DIR; what other processes do meanwhile does no harm.
"""

from __future__ import annotations

import argparse
import datetime
import zipfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ptxforge.runtime import store
from ptxforge.support import container, settings
from ptxforge.support.errors import PtxforgeError


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="what is in it")
    verify = actions.add_parser("verify", help="read every file")
    verify.add_argument("--remove", action="store_true", help="remove damaged files")
    prune = actions.add_parser("prune", help="remove the entries that were not used for the longest time")
    prune.add_argument(
        "--size", help="what may stay: bytes, or a number with K, M, G or T (default: the cap)"
    )
    for name, text in (("export", "write all entries to a file"), ("import", "read entries from a file")):
        actions.add_parser(name, help=text).add_argument("file", type=Path, metavar="FILE.zip")


def run(options: argparse.Namespace) -> int:
    where = store.folder()
    if where is None:
        raise PtxforgeError("the disk cache is switched off (PTXFORGE_CACHE_DIR)")
    actions = {"list": _list, "verify": _verify, "prune": _prune, "export": _export, "import": _import}
    return actions[options.action](where, options)


def _list(where: Path, options: argparse.Namespace) -> int:
    table = Table("kind", "kernel", "target", "what", "bytes", "used")
    total = count = 0
    for entry in sorted(store.entries(where), key=lambda entry: -entry.used):
        table.add_row(
            *_row(entry), str(entry.bytes), f"{datetime.datetime.fromtimestamp(entry.used):%F %H:%M}"
        )
        total, count = total + entry.bytes, count + 1
    console = Console()
    console.print(table)
    console.print(f"{count} entries, {total} bytes of {settings.CACHE_SIZE.get()} in {where}", soft_wrap=True)
    return 0


def _row(entry: store.Entry) -> tuple[str, str, str, str]:
    try:
        facts, _ = container.unpack(entry.path.read_bytes())
    except (OSError, container.DamagedFileError) as error:
        return "damaged", "", "", str(error)
    kernel = str(facts.get("name") or facts.get("kernel") or "")
    target = str(facts.get("target", ""))
    types = facts.get("signature", {}).items()
    shown = [f"{name}={facts.get('shown', {}).get(name, kind)}" for name, kind in types]
    warps = [f"num_warps={facts['num_warps']}"] if "num_warps" in facts else []
    return facts["kind"], kernel, target, ", ".join(shown + warps) or str(facts.get("assembler", ""))


def _verify(where: Path, options: argparse.Namespace) -> int:
    damaged = store.verify(where)
    for entry, why in damaged:
        print(f"{entry.path}: {why}")
        if options.remove:
            entry.path.unlink(missing_ok=True)
    total = sum(1 for _ in store.entries(where))
    print(f"{len(damaged)} damaged{' and removed' if options.remove and damaged else ''}, {total} in all")
    return 1 if damaged and not options.remove else 0


def _prune(where: Path, options: argparse.Namespace) -> int:
    text = options.size or settings.CACHE_SIZE.get()
    try:
        allowed = settings.parse_size(text)
    except ValueError:
        raise PtxforgeError(f"--size {text}: a number of bytes, or a number with K, M, G or T") from None
    removed = store.prune(where, allowed)
    print(f"removed {len(removed)} entries, {sum(entry.bytes for entry in removed)} bytes")
    return 0


def _export(where: Path, options: argparse.Namespace) -> int:
    count = 0
    with zipfile.ZipFile(options.file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in store.entries(where):
            data = _whole(entry)
            if data is not None:
                archive.writestr(f"{entry.name}{store.SUFFIX}", data)
                count += 1
    print(f"wrote {count} entries to {options.file}")
    return 0


def _whole(entry: store.Entry) -> bytes | None:
    """The bytes of an entry, ``None`` for one that is damaged or has just been removed."""
    try:
        data = entry.path.read_bytes()
        container.unpack(data)
    except (OSError, container.DamagedFileError):
        return None
    return data


def _import(where: Path, options: argparse.Namespace) -> int:
    count = refused = 0
    try:
        with zipfile.ZipFile(options.file) as archive:
            for name in archive.namelist():
                taken = _take(archive, name)
                count, refused = count + taken, refused + (not taken)
    except zipfile.BadZipFile as error:
        raise PtxforgeError(f"{options.file} is no file of cache export: {error}") from None
    print(
        f"took {count} entries into {where}" + (f"; left out {refused} that are damaged" if refused else "")
    )
    return 1 if refused else 0


def _take(archive: zipfile.ZipFile, name: str) -> bool:
    """Whether a member is an entry, which is kept then. Its name in the archive decides nothing: the place is
    that of the name in the entry itself."""
    try:
        facts, sections = container.unpack(archive.read(name))
        kind, entry = facts.pop("kind"), facts.pop("entry")
        if not store.is_name(entry):
            return False
    except (zipfile.BadZipFile, container.DamagedFileError, KeyError):
        return False
    store.write(entry, kind, facts, sections)
    return True
