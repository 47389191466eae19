"""Print the folder that makes ``import triton`` give ptxforge when it leads ``PYTHONPATH``.

PYTHONPATH=$(python -m ptxforge triton-path) python train.py
"""

from __future__ import annotations

import argparse

from ptxforge import triton_compat


def configure(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults()


def run(options: argparse.Namespace) -> int:
    print(triton_compat.SHADOW)
    return 0
