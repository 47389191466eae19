"""What can be counted in a kernel's PTX without running it: the shape that its speed depends on."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

_PREDICATE = re.compile(r"^@!?%\w+ ")
_WHERE_AND_HOW_WIDE = re.compile(r"v\d|[bfsu]\d+(x2)?|global|shared|param|local")
_MEMORY = ("ld", "st", "red", "atom")
_PRODUCTS = ("mma.", "wgmma.mma_async.")
_COPIES = ("cp.async.ca", "cp.async.cg", "cp.async.bulk.tensor")
_READS = ("ldmatrix.", "ld.shared")
_PHASES = ("mbarrier.try_wait.", "mbarrier.test_wait.")
_GROUPS = {"groups in flight": "cp.async.wait_group", "products in flight": "wgmma.wait_group"}


def facts_of(ptx: str) -> dict[str, Any]:
    """For the kernel and each of its loops, in the order of their beginnings: instructions by class. For
    loops of products also after how many of them the copies to shared memory start, the fragments are read,
    and the loop waits for phases of mbarriers (tiles that TMA copies, turns of warps). Of each wait for
    groups of copies by threads, or of products by warpgroups, how many may be on their way behind it."""
    lines = [_PREDICATE.sub("", line.strip()) for line in ptx.splitlines()]
    lines = [line for line in lines if line and not line.startswith((".", "//", "{", "}", ")"))]
    found: dict[str, Any] = {"kernel": _classes(lines)}
    for number, body in enumerate(_loops(lines)):
        loop: dict[str, Any] = {"instructions": _classes(body)}
        if any(line.startswith(_PRODUCTS) for line in body):
            loop["copies after products"] = _after_products(body, _COPIES)
            loop["reads after products"] = _after_products(body, _READS)
            if phases := _after_products(body, _PHASES):
                loop["phases after products"] = phases
        for fact, opcode in _GROUPS.items():
            if waits := [int(line.split()[1].rstrip(";")) for line in body if line.startswith(opcode)]:
                loop[fact] = waits
        found[f"loop {number}"] = loop
    return found


def _loops(lines: list[str]) -> list[list[str]]:
    """The bodies of loops: from a label to the last branch back to it."""
    labels = {line[:-1]: at for at, line in enumerate(lines) if re.fullmatch(r"\$\w+:", line)}
    ends: dict[str, int] = {}
    for at, line in enumerate(lines):
        target = re.match(r"bra(?:\.uni)? (\$\w+);", line)
        if target and labels[target[1]] < at:
            ends[target[1]] = at
    return [lines[labels[name] : ends[name] + 1] for name in labels if name in ends]


def _classes(lines: list[str]) -> dict[str, int]:
    """Instructions by class: what they do and, of accesses to memory, where and how wide."""
    counts = Counter(_class(line.split()[0].rstrip(";")) for line in lines if not line.endswith(":"))
    return dict(sorted(counts.items()))


def _class(opcode: str) -> str:
    parts = opcode.split(".")
    if parts[0] in _MEMORY:
        return ".".join([parts[0], *filter(_WHERE_AND_HOW_WIDE.fullmatch, parts[1:])])
    if parts[0] in ("cp", "mbarrier", "wgmma", "bar", "ldmatrix", "stmatrix"):
        return ".".join(parts[:3])
    return parts[0]


def _after_products(body: list[str], wanted: tuple[str, ...]) -> str:
    """How many of ``wanted`` come after how many products: ``0:3 16:3``."""
    products, counts = 0, Counter()
    for line in body:
        products += line.startswith(_PRODUCTS)
        counts[products] += line.startswith(wanted)
    return " ".join(f"{after}:{count}" for after, count in counts.items() if count)
