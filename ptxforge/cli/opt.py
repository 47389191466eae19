"""Run passes on IR text and print the result.

python -m ptxforge opt kernel.tir --passes canonicalize,licm
python -m ptxforge opt - --target sm_80 < kernel.tir         # the whole pipeline
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.manager import Pass, run_passes
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.support.errors import PtxforgeError
from ptxforge.support.target import DEFAULT_TARGET, parse_target


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.tir", help="IR text, '-' for the standard input")
    parser.add_argument(
        "--passes", default="", help="names separated by commas (default: the whole pipeline)"
    )
    parser.add_argument("--target", default=DEFAULT_TARGET, help="default: %(default)s")
    parser.add_argument(
        "--each", action="store_true", help="print the IR after every pass, not only the last"
    )


def run(options: argparse.Namespace) -> int:
    text = _read(options.file)
    function = parse_function(text)
    verify(function)

    def show(row: Pass, after, changed: bool) -> None:
        print(f"// after {row.name}{'' if changed else ': no change'}")
        if changed:
            print(print_function(after))

    rows, target = _rows(options.passes), parse_target(options.target)
    run_passes(function, rows, target, verify=True, on_pass=show if options.each else None)
    if not options.each:
        print(print_function(function))
    return 0


def _read(file: str) -> str:
    """The text of a file or of the standard input. Raises :class:`PtxforgeError` when it is no UTF-8."""
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        name = "the standard input" if file == "-" else file
        raise PtxforgeError(f"{name} is no IR text: byte {error.start} is not UTF-8") from None


def _rows(names: str) -> list[Pass]:
    """The rows of the pipeline with these names, in the order given; all of them for an empty text."""
    if not names:
        return list(PIPELINE)
    known = {row.name: row for row in reversed(PIPELINE)}
    listed = [name.strip() for name in names.split(",") if name.strip()]
    for name in listed:
        if name not in known:
            raise PtxforgeError(
                f"there is no pass '{name}'; there are {', '.join(dict.fromkeys(r.name for r in PIPELINE))}"
            )
    return [known[name] for name in listed]
