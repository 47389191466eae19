"""Instruction forms: what the code generator emits, and what a GPU has run.

An assembler may encode one form of an instruction wrong and others right, which no emulator notices. So
``forms.txt`` lists every form that the PTX consists of which tests make of our kernels. A test in one of the
``FOLDERS`` that makes another one fails; ``--update-golden`` adds it. A run on a GPU tells which forms it
ran, of those on the list and of all that its tests make:

    python -m pytest --device cuda --forms FILE
    python -m tests.forms FILE...       # which forms of the list it did not run, and who makes them

A form is an instruction's name with all that stands behind its dots, and the shape of its operands::

    ld.global.v4.b32 {4}, [_]           how long lists are; which operands there are
    mov.u32 _, %clusterid.x             special registers by their names
    cp.async.ca.shared.global [_], [_], 8, _        constants only where they choose an encoding

A ``wgmma`` comes in 32 widths for each combination of types. The assembler encodes the width apart from the
types, so such an instruction has two forms: one says its types, where A is and how tiles lie, with ``n`` left
open; the other one its width ``n``, with the registers that it needs and the kind of instruction that it is,
of which there is one for each ``k``.

Texts that tests wrote by hand are no forms of ours, neither whole modules nor inline assembly. A form that
only targets newer than Hopper have is marked so in the list, and one may be excused there by a reason.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import ptxforge
from ptxforge import codegen_ptx
from ptxforge.driver.cuda import CudaModule
from ptxforge.ir.core import Function
from ptxforge.ir.ops.inline_asm import InlineAsm
from ptxforge.support.target import parse_target

LIST = Path(__file__).parent / "forms.txt"
FOLDERS = ("codegen_ptx", "fuzz", "kernels", "language", "tir")
"""Whose tests make no form that is not listed: those of the code generator, of whole kernels and of random
programs."""
NEWEST = 90
"""The architecture on on which such runs happen, as in ``sm_90``: forms of newer ones are excused."""
PACKAGE = str(Path(ptxforge.__file__).parent)

_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"//.*")
_REGISTER = re.compile(r"[-!]?%[phrfqd]\d+")
_STATEMENT = re.compile(
    r"(?:^|[;{}:])\s*(?:@!?[%\w]+\s+)?([a-z]\w*(?:(?:\.|::)\w+)*)(?:\s+([^;.][^;]*))?(?=;)", re.MULTILINE
)
_LIST = re.compile(r"\{([^{}]*)\}")
_OFFSET = re.compile(r"\+-?\d+\]")
_CONSTANT = re.compile(r"(?<![\w.%{])-?[\w$]+(?:\.\d+)?(?![\w.}])")
_WGMMA = re.compile(r"(wgmma\.mma_async\.sync\.aligned\.m64)n(\d+)(k\d+)(\.\w+)(\S+) \{(\d+)\}, (\{4\}|_)")
_ENCODED = {"cp.async.ca": 3, "cp.async.cg": 3, "wgmma.mma_async": 9}
"""Instructions of whose operands the first ones choose an encoding also where they are constants: sizes,
transposed tiles."""


# -- the forms of a text ---------------------------------------------------------------------------------


def forms_of(ptx: str) -> set[str]:
    """The forms of all instructions of PTX text that the code generator wrote."""
    text = _REGISTER.sub("_", _COMMENT.sub("", ptx))
    return set().union(*(_forms(*found) for found in set(_STATEMENT.findall(text))))


@functools.lru_cache(1 << 16)
def _forms(name: str, operands: str) -> tuple[str, ...]:
    """The forms, one or two, of an instruction whose operands have ``_`` for registers."""
    shape = _LIST.sub(lambda found: f"{{{found[1].count(',') + 1}}}", _OFFSET.sub("]", operands.strip()))
    kept = next((count for start, count in _ENCODED.items() if name.startswith(start)), 0)
    parts = [part if i < kept else _CONSTANT.sub("_", part) for i, part in enumerate(shape.split(", "))]
    shape = ", ".join(parts)
    form = f"{name} {' '.join(shape.split())}".strip()
    wide = _WGMMA.match(form)
    if not wide:
        return (form,)
    front, n, k, total, types, count, left = wide.groups()
    return (f"{front}nN{k}{total}{types} {{N}}, {left}{form[wide.end():]}",
            f"{front}n{n}{k} {{{count}}}, {left}")  # fmt: skip


def _written_by_hand(function: Function) -> set[str]:
    """The names of instructions in the inline assembly of a kernel; not in that of the language's own
    functions."""
    texts = [
        op.text for op in function.walk()
        if isinstance(op, InlineAsm) and not (op.location and op.location.file.startswith(PACKAGE))
    ]  # fmt: skip
    return {found[1] for text in texts for found in _STATEMENT.finditer(text.replace("$", "%r"))}


# -- the list --------------------------------------------------------------------------------------------


def listed() -> dict[str, str]:
    """The forms of the list, each with the reason that excuses it, if any."""
    rows = (line.partition("  # ") for line in LIST.read_text().splitlines())
    return {form: reason for form, _, reason in rows}


def _excuse(target: str) -> str:
    """What the list says behind a form that was only made for this target."""
    return f"for {target}" if parse_target(target).sm > NEWEST else ""


def _is_covered(form: str, target: str, known: dict[str, str]) -> bool:
    """Whether the list has a form that was made for this target: an excuse that speaks of newer ones does not
    hold for an older one."""
    return form in known and (bool(_excuse(target)) or not known[form].startswith("for sm_"))


def add(found: Iterable[tuple[str, str]]) -> None:
    """Put forms, each with a target that it was made for, on the list. Other processes may do so as well."""
    with LIST.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = listed()
        for form, target in found:
            if not _is_covered(form, target, known):
                known[form] = _excuse(target)
        file.write("".join(f"{form}  # {known[form]}".removesuffix("  # ") + "\n" for form in sorted(known)))
        file.truncate()


# -- what this session makes and runs --------------------------------------------------------------------


class Session:
    """The forms of what this process makes and of what it runs on a GPU. With ``file`` each is appended to
    that, which processes share."""

    def __init__(self, file: Path | None = None):
        self.file = file
        self._known = listed()
        self._texts: set[tuple[str, int]] = set()
        self._noted: set[tuple[str, ...]] = set()
        self._unlisted: dict[tuple[str, str], str] = {}

    def watch(self) -> None:
        """From now on take down the forms of every module that is written, and of every one of which a GPU
        gets a kernel."""
        write, function = codegen_ptx.module_text, CudaModule.function

        @functools.wraps(write)
        def made(kernel: Function, *arguments):
            text = write(kernel, *arguments)
            self.made(text, kernel)
            return text

        @functools.wraps(function)
        def loaded(module: CudaModule, name: str):
            self.ran(module._ptx)
            return function(module, name)

        codegen_ptx.module_text, CudaModule.function = made, loaded

    def made(self, ptx: str, kernel: Function) -> None:
        """The code generator wrote this text."""
        if not self._is_new("made", ptx):
            return
        target = _TARGET.search(ptx)[1]
        test = os.environ.get("PYTEST_CURRENT_TEST", "collection").rpartition(" ")[0]
        by_hand = _written_by_hand(kernel)
        for form in forms_of(ptx):
            if by_hand and form.split()[0] in by_hand:
                continue
            self._note("made", form, target, test)
            if not _is_covered(form, target, self._known):
                self._unlisted.setdefault((form, target), test)

    def ran(self, ptx: str) -> None:
        """A GPU got a kernel of this text."""
        if self.file and self._is_new("ran", ptx):
            for form in forms_of(ptx):
                self._note("ran", form)

    def _is_new(self, what: str, ptx: str) -> bool:
        key = what, hash(ptx)
        is_new = key not in self._texts
        self._texts.add(key)
        return is_new

    def _note(self, what: str, form: str, *more: str) -> None:
        """A line of the file, the first time only for a target."""
        key = what, form, *more[:1]
        if self.file and key not in self._noted:
            self._noted.add(key)
            with self.file.open("a") as file:
                file.write("\t".join((what, form, *more)) + "\n")

    def check(self, is_checked: bool, update: bool) -> None:
        """If ``is_checked``, fail when what was made since the last check has forms that are not listed;
        with ``update`` add them."""
        found, self._unlisted = self._unlisted, {}
        if not is_checked:
            return
        if found and update:
            add(found)
            self._known = listed()
            return
        rows = [f"    {form}    for {target}, by {found[form, target]}" for form, target in sorted(found)]
        assert not rows, (
            "the code generator emits forms that tests/forms.txt has not: see to it that a GPU runs them "
            "(tests/forms.py), and add them with --update-golden\n" + "\n".join(rows)
        )


def report(text: str) -> tuple[list[str], list[str]]:
    """What a session whose file has this text leaves open: in words the numbers and what is excused, and each
    form that no GPU ran, on the list or made in this session, with a test that makes it."""
    rows = [line.split("\t") for line in text.splitlines()]
    ran = {row[1] for row in rows if row[0] == "ran"}
    made = [row[1:] for row in rows if row[0] == "made"]
    makers = {form: f"{test}, for {target}" for form, target, test in made}
    known = {form: _excuse(target) for form, target, _ in made} | listed()
    missing = sorted(known.keys() - ran)
    excused = [f"excused: {form}    {known[form]}" for form in missing if known[form]]
    left = [f"not run: {form}    by {makers.get(form, 'no test of this session')}"
            for form in missing if not known[form]]  # fmt: skip
    numbers = f"{len(known)} forms: {len(known) - len(missing)} ran, {len(excused)} are excused"
    return [f"{numbers}, {len(left)} did not run", *excused], left


if __name__ == "__main__":
    said, left = report("".join(Path(name).read_text() for name in sys.argv[1:]))
    print("\n".join([*said, *left]))
    sys.exit(bool(left))
