"""The pass pipeline: every pass, the stage it works on, and why it stands where it does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from ptxforge.codegen_ptx.ptx.pipeline import PASSES, RULES
from ptxforge.passes.manager import STAGES, Pass
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.passes.properties import PROPERTIES
from ptxforge.support.target import parse_target


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", help="leave out the passes that do not run for this target")


def run(options: argparse.Namespace) -> int:
    rows: Sequence[Pass] = PIPELINE
    if options.target:
        target = parse_target(options.target)
        rows = [row for row in PIPELINE if row.runs_on(target)]
    console = Console()
    console.print(_table(rows))
    console.print(_ptx_table())
    for name, invariant in PROPERTIES.items():
        console.print(f"{name}: {invariant.meaning}", highlight=False)
    return 0


def _ptx_table() -> Table:
    """What the code generator does: rules while it lowers operations, then passes over its instructions."""
    table = Table("while", "rule or pass", "why", title="in codegen_ptx", box=box.SIMPLE_HEAD)
    for name, why in RULES.items():
        table.add_row("lowering", name, why)
    for row in PASSES:
        table.add_row("afterwards", row.name, row.why)
    return table


def _table(rows: Sequence[Pass]) -> Table:
    """The rows by stage, each with what it needs and gives below its name."""
    table = Table("", "pass", "why", title="from the frontend to codegen_ptx", box=box.SIMPLE_HEAD)
    for number, row in enumerate(rows, start=1):
        notes = [f"  needs {name}" for name in row.requires] + [f"  gives {name}" for name in row.establishes]
        table.add_row(str(number), "\n".join([row.name, *notes]), row.why)
    for stage in STAGES[1:]:
        first = next((i for i, row in enumerate(rows) if row.stage == stage), 0)
        if first:
            table.rows[first - 1].end_section = True
    return table
