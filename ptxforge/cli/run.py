"""Run a Python script in which ``import triton`` gives ptxforge.

python -m ptxforge run tutorial.py --its --own --arguments
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from ptxforge import triton_compat
from ptxforge.support.errors import PtxforgeError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the script")


def run(options: argparse.Namespace) -> int:
    if not options.script.is_file():
        raise PtxforgeError(f"there is no file {options.script}")
    triton_compat.install()
    sys.argv = [str(options.script), *options.arguments]
    sys.path.insert(0, str(options.script.resolve().parent))
    runpy.run_path(str(options.script), run_name="__main__")
    return 0
