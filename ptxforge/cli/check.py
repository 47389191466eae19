"""Run a script's kernels under every check, without a GPU, and report what is wrong with them.

python -m ptxforge check script.py --its --own --arguments
python -m ptxforge check --fail-on warning --sarif findings.sarif script.py
python -m ptxforge check -m package.module --its --own --arguments

Kernels of ptxforge and of Triton run on the emulator; tensors that the script puts on torch's 'cuda' device
stay on the CPU. Exit status: 0 when nothing is found (or nothing as bad as --fail-on), 1 when something is or
when the script fails, 2 for a wrong command line. Ctrl-C ends the script, and what was found so far is
reported. docs/debugging.md explains each finding.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from ptxforge import triton_compat
from ptxforge.checking import torch_device
from ptxforge.checking.issues import Report
from ptxforge.checking.page import page, sarif
from ptxforge.checking.session import FAIL_ON, check
from ptxforge.cli import run as run_script
from ptxforge.support.errors import PtxforgeError

_FILES = {
    "json": "write the findings there as JSON",
    "sarif": "write them as SARIF, for editors and CI",
    "html": "write them as one page",
}
_FLAGS = {
    "no-device-map": "leave torch's 'cuda' device and torch.cuda as they are",
    "non-finite": "find operations that make NaN or infinity of finite inputs",
    "order": "find results that depend on the order in which programs run",
    "torch-empty": "find reads of unwritten tensors of torch.empty",
    "no-tiles": "leave out what is found by interpreting some programs",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default="error",
        help="exit with 1 from this severity on (default: error)",
    )
    for name, what in _FILES.items():
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=what)
    for name, what in _FLAGS.items():
        parser.add_argument(f"--{name}", action="store_true", help=what)
    run_script.configure(parser)


def run(options: argparse.Namespace) -> int:
    if not options.is_module and not Path(options.script).is_file():
        raise PtxforgeError(f"there is no file {options.script}")
    triton_compat.install()
    if not options.no_device_map:
        torch_device.install(tell=lambda text: print(text, file=sys.stderr))
    session = check(
        "never", not options.no_tiles, options.non_finite, options.order, options.torch_empty
    )
    here = Path.cwd()
    with session as report:
        finished = _execute(options)
    os.chdir(here)  # the script may have gone elsewhere; its name, and those of the reports, are from here
    _write(options, report)
    print(report)
    return 0 if finished and not report.failing(options.fail_on) else 1


def _execute(options: argparse.Namespace) -> bool:
    """Run the script or module as Python would. Whether it came to its end; its error is shown."""
    sys.argv = [options.script, *options.arguments]
    try:
        if options.is_module:
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(options.script).resolve().parent))
            runpy.run_path(options.script, run_name="__main__")
    except SystemExit as stop:
        if stop.code not in (None, 0):
            print(f"{options.script} ended with exit status {stop.code}", file=sys.stderr)
        return stop.code in (None, 0)
    except (Exception, KeyboardInterrupt) as error:  # whatever the user's script raises
        _show(error)
        return False
    return True


def _show(error: BaseException) -> None:
    """The traceback from the script on, without the frames that lead there."""
    where = error.__traceback__
    while where is not None and where.tb_frame.f_code.co_filename in _LEADING_THERE:
        where = where.tb_next
    traceback.print_exception(type(error), error, where or error.__traceback__)


_LEADING_THERE = (__file__, "<frozen runpy>", runpy.__file__)


def _write(options: argparse.Namespace, report: Report) -> None:
    if options.json:
        options.json.write_text(json.dumps(report.data(), indent=2) + "\n", encoding="utf-8")
    if options.sarif:
        log = sarif(report, Path.cwd())
        options.sarif.write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")
    if options.html:
        options.html.write_text(page(report, f"ptxforge check {options.script}"), encoding="utf-8")
