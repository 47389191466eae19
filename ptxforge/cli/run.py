"""Run a Python script or module in which ``import triton`` gives ptxforge, child processes included.

python -m ptxforge run tutorial.py --its --own --arguments
python -m ptxforge run -m pytest tests
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from ptxforge import triton_compat
from ptxforge.support.errors import PtxforgeError


def configure(parser: argparse.ArgumentParser) -> None:
    """The script, or module, and its own arguments."""
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script")
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the script")
    rest.required = False  # argparse would say so where the script is missing


def run(options: argparse.Namespace) -> int:
    script = Path(options.script)
    if not options.is_module and not script.is_file():
        raise PtxforgeError(f"there is no file {script}")
    triton_compat.install()
    sys.argv = [options.script, *options.arguments]
    if options.is_module:
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        return 0
    sys.path.insert(1, str(script.resolve().parent))  # behind the folder that child processes need
    runpy.run_path(options.script, run_name="__main__")
    return 0
