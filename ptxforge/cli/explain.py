"""What a kernel becomes, and what limits it: facts and advice by source line, without a GPU.

    python -m ptxforge explain kernels.py:add --constants BLOCK=1024 \\
        --signature '*fp32:16,*fp32:16,*fp32:16,i32' --target sm_80 --html add.html

With --grid and one --arg for each parameter (i32:5, f32:0.5, f32[1024], f16[64x64]:randn, @file.npy) the
emulator runs the kernel under all checks and adds what it counts: sectors per request, bank conflicts,
divergence, a roofline. The signature may be left out then: it is what a launch would make of the arguments
(an integer 1 is compiled in). --html writes a page that needs nothing else: source, IR of every pass, PTX,
SASS where it can be made, layouts, shared memory, schedule. The exit status is 1 when the emulator found
something wrong.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from ptxforge.cli.source import (
    add_kernel_options,
    compile_options,
    load_kernel,
    parse_constants,
    parse_signature,
)
from ptxforge.explain.page import page
from ptxforge.explain.report import Report, explain
from ptxforge.explain.roofline import run_counted
from ptxforge.explain.trace import trace
from ptxforge.runtime.jit import JITFunction
from ptxforge.runtime.specialize import specialize
from ptxforge.support.errors import PtxforgeError


def configure(parser: argparse.ArgumentParser) -> None:
    add_kernel_options(parser)
    parser.add_argument("--grid", metavar="X[,Y,Z]", help="run it on this grid in the emulator, and count")
    parser.add_argument("--arg", action="append", default=[], metavar="VALUE", help="an argument to run with")
    parser.add_argument("--json", action="store_true", help="print plain data instead of text")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained page there")


def run(options: argparse.Namespace) -> int:
    kernel = load_kernel(options.kernel)
    constants = parse_constants(options.constants)
    arguments = _arguments(options)
    if options.signature or not arguments:
        signature = parse_signature(options.signature, kernel, constants)
    else:
        signature, arguments = _specialized(kernel, constants, arguments)
    traced = trace(kernel, signature, constants, options.target, **compile_options(options))
    report = _report(traced, arguments, options.grid)
    if options.html:
        options.html.write_text(page(report), encoding="utf-8")
        print(f"wrote {options.html}")
    elif options.json:
        print(json.dumps(report.data(), indent=2))
    else:
        print(report)
    return 1 if report.counts is not None and report.counts.findings else 0


def _report(traced: Any, arguments: list, grid_text: str | None) -> Report:
    if grid_text is None:
        return explain(traced)
    grid = _size(grid_text)
    return explain(traced, run_counted(traced.artifact, arguments, grid), grid)


def _arguments(options: argparse.Namespace) -> list[np.ndarray | np.generic]:
    """The values of ``--arg``. Raises :class:`PtxforgeError` for one that cannot be read."""
    if bool(options.arg) != bool(options.grid):
        raise PtxforgeError("--grid and --arg belong together: the grid to run on, and what to run with")
    from ptxforge.emulator import __main__ as emulator  # the same texts as there

    try:
        return [emulator.parse_argument(text) for text in options.arg]
    except emulator.UsageError as error:
        raise PtxforgeError(str(error)) from None


def _size(text: str) -> tuple[int, int, int]:
    from ptxforge.emulator import __main__ as emulator

    try:
        return emulator.parse_size(text)
    except emulator.UsageError as error:
        raise PtxforgeError(str(error)) from None


def _specialized(
    kernel: JITFunction, constants: dict[str, Any], arguments: list
) -> tuple[dict[str, str], list]:
    """The signature that a launch with these arguments has, and those that are parameters of the compiled
    kernel; what a launch compiles in is added to the constants. Raises :class:`PtxforgeError`."""
    takes = [p for p in kernel.params if p.name not in constants and not p.constexpr]
    if len(takes) != len(arguments):
        names = ", ".join(p.name for p in takes)
        raise PtxforgeError(f"{len(arguments)} --arg are given for {len(takes)} parameters: {names}")
    made = {p: specialize(p, value) for p, value in zip(takes, arguments, strict=True)}
    constants |= {p.name: found.constant for p, found in made.items() if found.is_constant}
    signature = {p.name: found.type for p, found in made.items() if not found.is_constant}
    kept = [value for value, found in zip(arguments, made.values(), strict=True) if not found.is_constant]
    return signature, kept
