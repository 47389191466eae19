"""The second table of passes: from the list of instructions that lowering leaves to text.

``python -m ptxforge passes`` prints it below the passes over the IR; ``PTXFORGE_DUMP=drop_dead`` prints the
instructions after a row, ``PTXFORGE_STOP_AFTER=sink_rare`` leaves out the rows behind it. No row is needed
for the kernel to be right: each only makes it better. (Names are given to registers in any case.)

Other decisions have to be taken while operations are lowered, because what follows depends on them. They
stand in ``RULES``, by the name under which ``--why`` shows them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from ptxforge.codegen_ptx.ptx.drop import drop_copies, drop_dead, drop_locations
from ptxforge.codegen_ptx.ptx.instruction import Instruction
from ptxforge.codegen_ptx.ptx.registers import Names
from ptxforge.codegen_ptx.ptx.sink_rare import sink_rare
from ptxforge.codegen_ptx.ptx.text import lines_of
from ptxforge.support import settings

if TYPE_CHECKING:
    from ptxforge.codegen_ptx.ptx.builder import Builder

PtxFunction = Callable[[list[Instruction], "Builder"], list[Instruction]]


@attrs.frozen(slots=True)
class PtxPass:
    """One row: a function of the instructions, which it may change, and why it stands there."""

    function: PtxFunction
    why: str

    @property
    def name(self) -> str:
        return self.function.__name__


PASSES: tuple[PtxPass, ...] = (
    PtxPass(
        sink_rare,
        why="first, so that what only rare code needs is computed there, and dead where nobody is left",
    ),
    PtxPass(
        drop_dead,
        why="lowerings compute every element; wide accesses and unused results then need few of them",
    ),
    PtxPass(
        drop_copies,
        why="after drop_dead: a copy onto itself keeps alive what computes its register",
    ),
    PtxPass(
        drop_locations,
        why="last: only now it shows behind which source lines no instruction is left",
    ),
)

RULES: dict[str, str] = {
    "at_entry": "what depends on the thread's number alone is computed once, before everything else",
    "walk_pointers": "a pointer that a loop advances takes in what all its accesses add; accesses whose rows "
    "differ within a warp get a pointer of their own",
    "recompute": "index arithmetic that is needed behind a loop of products is computed anew, for the loop "
    "needs the registers",
    "coalesce_copies": "what becomes a loop's carried value is computed in its register, where nobody reads "
    "the old one any more",
}
"""What is decided while operations are lowered, by name. :func:`~ptxforge.codegen_ptx.emit` can leave out any
but the first, and any row of the table, and the kernel is still right."""

NAMES = tuple(row.name for row in PASSES)


def run(
    b: Builder, why: bool = False, timings: dict[str, float] | None = None
) -> tuple[list[str], list[str]]:
    """Register declarations and the body's lines of what was built; with ``why``, comments say which rule
    made an instruction what it is. ``timings`` collects seconds by row."""
    dumped, last = {name.strip() for name in settings.DUMP.get().split(",")}, settings.STOP_AFTER.get()
    code = b.all_code()
    for row in PASSES:
        if row.name in b.without:
            continue
        start = time.perf_counter()
        code = row.function(code, b)
        if timings is not None:
            timings[row.name] = time.perf_counter() - start
        if dumped & {row.name, "all"}:
            print(f"// after {row.name}", *lines_of(code, Names(b.aliases)), sep="\n", file=sys.stderr)
        if row.name == last:
            break
    names = Names(b.aliases)
    lines = lines_of(code, names, b.reasons if why else None)
    return names.declarations(), lines
