"""The pass pipeline: every pass, the stage it works on, and why it stands where it does."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from ptxforge.passes.pipeline import PIPELINE
from ptxforge.support.target import parse_target


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", help="leave out the passes that do not run for this target")


def run(options: argparse.Namespace) -> int:
    table = Table(
        "", "pass", "stage", "requires", "establishes", "why", title="from the frontend to codegen_ptx"
    )
    rows = PIPELINE
    if options.target:
        target = parse_target(options.target)
        rows = tuple(row for row in PIPELINE if row.runs_on(target))
    for number, row in enumerate(rows, start=1):
        table.add_row(
            str(number), row.name, row.stage, ", ".join(row.requires), ", ".join(row.establishes), row.why
        )
    Console().print(table)
    return 0
