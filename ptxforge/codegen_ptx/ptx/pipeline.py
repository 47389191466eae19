"""The second table of passes: from the list of instructions that lowering leaves to text.

``python -m ptxforge passes`` prints it below the passes over the IR; ``PTXFORGE_DUMP=drop_dead`` prints the
instructions after a row, ``PTXFORGE_STOP_AFTER=sink_rare`` leaves out the rows behind it (``lowering`` names
what is in front of the first one), and with ``PTXFORGE_VERIFY=1`` instructions are checked after each
(:func:`check`). A kernel is right without any row but those that are ``needed``.

Other decisions have to be taken while operations are lowered, because what follows depends on them. They
stand in ``RULES``, by the name under which ``--why`` shows them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import attrs

from ptxforge.codegen_ptx.ptx.branch_to_copies import branch_to_copies
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.coalesce_copies import coalesce_copies, order_copies
from ptxforge.codegen_ptx.ptx.compute_late import compute_late
from ptxforge.codegen_ptx.ptx.instruction import CARRY, PURE, Instruction, text_of
from ptxforge.codegen_ptx.ptx.registers import Names, Register
from ptxforge.codegen_ptx.ptx.select_addresses import select_addresses, share_terms
from ptxforge.codegen_ptx.ptx.sink_rare import drop_dead, sink_rare
from ptxforge.codegen_ptx.ptx.spell_out_negations import spell_out_negations
from ptxforge.codegen_ptx.ptx.walk_pointers import walk_pointers
from ptxforge.support import settings
from ptxforge.support.errors import InternalCompilerError

PtxFunction = Callable[[list[Instruction], Builder], list[Instruction]]


@attrs.frozen(slots=True)
class PtxPass:
    """One row: a function of the instructions, which it may change, why it stands there, and whether there is
    no text without it."""

    function: PtxFunction
    why: str
    needed: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__


PASSES: tuple[PtxPass, ...] = (
    PtxPass(
        drop_dead,
        why="first: lowerings compute every element; wide accesses and unused results then need few of them",
    ),
    PtxPass(
        walk_pointers,
        why="after drop_dead, for only accesses that are needed count: a loop's pointer takes in what all "
        "accesses add; those whose rows differ within a warp get a pointer of their own",
    ),
    PtxPass(
        share_terms,
        why="before coalesce_copies: what addresses have in common reads a loop's old pointer last",
    ),
    PtxPass(
        coalesce_copies,
        why="what becomes a loop's carried value or a branch's result is computed in its register, where "
        "nobody reads the old one any more; rows behind know which registers are assigned repeatedly",
    ),
    PtxPass(
        order_copies,
        why="after coalesce_copies: copies that are left happen at once, moves one after another; those onto "
        "themselves go",
        needed=True,
    ),
    PtxPass(
        select_addresses,
        why="addresses are sums until here, and become instructions; their constants stand in the "
        "instructions that access memory, where they fit",
        needed=True,
    ),
    PtxPass(
        sink_rare,
        why="behind what takes instructions out: what rare code alone needs is computed there",
    ),
    PtxPass(
        compute_late,
        why="behind sink_rare, whose marks are gone: where elements do not meet, each is computed when it is "
        "stored",
    ),
    PtxPass(
        spell_out_negations,
        why="behind what moves and drops instructions: what an extremum reads stands as it is assembled",
        needed=True,
    ),
    PtxPass(
        branch_to_copies,
        why="last: what is left between copies by TMA is needed, and stands in front of the branch",
    ),
)

RULES: dict[str, str] = {
    "at_entry": "what depends on the thread's number alone is computed once, before everything else",
    "number_values": "what an instruction computed that comes before in any case is not computed again",
}
"""What is decided while operations are lowered, by name. A kernel is right without any but the first."""

LOWERING = "lowering"
"""What the instructions are dumped after, and the passes stopped after, before any of them ran."""

NAMES = tuple(row.name for row in PASSES)


def run(
    b: Builder, why: bool = False, timings: dict[str, float] | None = None
) -> tuple[list[str], str]:
    """Register declarations and the body's text of what was built; with ``why``, comments say which rule
    made an instruction what it is. ``timings`` collects seconds by row."""
    dumped, last = {name.strip() for name in settings.DUMP.get().split(",")}, settings.STOP_AFTER.get()
    checked = settings.VERIFY.flag()

    def look(after: str) -> None:
        if dumped & {after, "all"}:
            print(f"// after {after}", text_of(code, Names(b.aliases)), sep="\n", file=sys.stderr)
        if checked:
            check(code, b, after)

    code, stopped = b.all_code(), last == LOWERING
    look(LOWERING)
    for row in PASSES:
        if not row.needed and (stopped or row.name in b.without):
            continue
        start = time.perf_counter()
        code = row.function(code, b)
        if timings is not None:
            timings[row.name] = time.perf_counter() - start
        look(row.name)
        stopped = stopped or row.name == last
    names = Names(b.aliases)
    text = text_of(code, names, why)
    return names.declarations(), text


def check(code: list[Instruction], b: Builder, after: str) -> None:
    """Every register is defined before it is read, in the order of the text; what a pure instruction defines
    nothing else defines, unless it is carried; what is computed at the entry is carried nowhere.

    Raises:
        InternalCompilerError: an instruction for which one of these does not hold; ``after`` names the pass.
    """
    for instruction in b.entry_code():
        for x in instruction.definitions:
            _require(x not in b.aliases, instruction, f"{x} is computed at the entry, and assigned", after)
    carried = {*b.aliases, *b.aliases.values()}
    made: dict[Register, Instruction] = {}
    for instruction in code:
        if not instruction.acts:
            continue
        for x in instruction.operands if instruction.kind is CARRY else instruction.uses:
            if isinstance(x, Register):
                _require(b.resolved(x) in made, instruction, f"nothing defines {x} before", after)
        for x in instruction.definitions:
            _require(isinstance(x, Register), instruction, f"{x} is no register", after)
            is_second = made.setdefault(b.resolved(x), instruction) is not instruction
            is_alone = instruction.kind is PURE and x not in carried
            _require(not (is_second and is_alone), instruction, f"{x} is defined twice", after)


def _require(holds: bool, instruction: Instruction, reason: str, after: str) -> None:
    if not holds:
        raise InternalCompilerError(f"after {after}: {reason}: {instruction}")
