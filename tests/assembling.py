"""PTX texts that tests make are assembled by ``ptxas``. Those of a file's tests wait for each other, and many
go into one call, as its start takes longer than most texts.

A text that is refused fails when the tests of its file end, or earlier where many wait; the message names the
test that made it.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from ptxforge.runtime import tools
from ptxforge.support.errors import DeviceError

MOST, SECONDS = 8, 30
"""Texts of a call, and how long it may take: with more texts ``ptxas`` 13.0 may fail, or never end."""

_TARGET = re.compile(r"^\.target\s+(\w+)", re.MULTILINE)
_ENTRY = re.compile(r"(\.entry\s+[\w$]+)")
_FILE = re.compile(r"^(\s*\.(?:file|loc)\s+)(\d+)", re.MULTILINE)

_seen: set[tuple[int, tuple[str, ...]]] = set()
_waiting: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
"""Target and options of ``ptxas`` -> text -> the test that made it."""


def assemble_later(ptx: str, *options: str) -> None:
    """Let a text wait for the assembler, if it is new and there is one. Raises as :func:`assemble_all` where
    many wait."""
    known = hash(ptx), options
    if known in _seen or tools.find("ptxas") is None:
        return
    _seen.add(known)
    texts = _waiting[target_of(ptx), *options]
    texts[ptx] = os.environ.get("PYTEST_CURRENT_TEST", "collection").rpartition(" ")[0]
    if len(texts) >= MOST:
        assemble_all()


def assemble_all() -> None:
    """Assemble what waits. Fails with the assembler's messages when it refuses a text, or makes products of
    warpgroups wait for each other."""
    said = [f"made by {makers[ptx]}: {why}" for how, makers in _waiting.items()
            for ptx, why in complaints(list(makers), *how)]  # fmt: skip
    _waiting.clear()
    assert not said, "\n\n".join(said)


def assemble_now(ptx: str) -> None:
    """As :func:`assemble_all`, one text."""
    said = complaints([ptx], target_of(ptx)) if tools.find("ptxas") else []
    assert not said, said[0][1]


def target_of(ptx: str) -> str:
    return _TARGET.search(ptx)[1]


def complaints(texts: list[str], target: str, *options: str) -> list[tuple[str, str]]:
    """The texts that ``ptxas`` refuses, and why. Some are only refused beside others, which have variables of
    the same names, or because ``ptxas`` fails on so much: each half is tried alone."""
    if len(texts) == 1:
        why = complaint(texts[0], target, *options)
        return [(texts[0], why)] if why else []
    if accepts(texts, target, *options):
        return []
    half = len(texts) // 2
    return complaints(texts[:half], target, *options) + complaints(texts[half:], target, *options)


def accepts(texts: list[str], target: str, *options: str) -> bool:
    """Whether ``ptxas`` takes all together: kernels and source files get numbers of their own for that."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.ptx") for number in range(1, len(texts) + 1)]
        for number, (file, ptx) in enumerate(zip(files, texts), 1):
            file.write_text(_FILE.sub(rf"\g<1>{number}00\2", _ENTRY.sub(rf"\1_{number}", ptx)))
        command = [tools.find("ptxas"), *options, f"-arch={target}", *files, "-o", Path(folder, "cubin")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0 and not tools.serialized_products(done.stdout + done.stderr)


def complaint(ptx: str, target: str, *options: str) -> str:
    """What is wrong with one text; "" if nothing is."""
    try:
        _, log = tools.assemble_with_log(ptx, target, *options)
    except DeviceError as error:
        return f"ptxas refuses it:\n{error}\n{_lines(str(error), ptx)}\n{ptx}"
    return f"ptxas serializes wgmma:\n{log}\n{ptx}" if tools.serialized_products(log) else ""


def _lines(message: str, ptx: str) -> str:
    """The lines of the text that the assembler's first complaints are about."""
    lines = ptx.splitlines()
    numbers = [int(number) for number in re.findall(r"line (\d+)", message)[:5]]
    return "\n".join(f"{number}: {lines[number - 1]}" for number in numbers if number <= len(lines))
