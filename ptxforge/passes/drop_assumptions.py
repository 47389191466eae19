"""Remove ``assume``: the analyses that may use it have run.

    assume %c                                                      (before)
                                                                   (after)
"""

from __future__ import annotations

from ptxforge.ir.core import Function
from ptxforge.ir.ops.debug import Assume
from ptxforge.support.target import Target


def drop_assumptions(function: Function, target: Target) -> bool:
    """Erase every ``assume``; what it computed is dead code then."""
    promises = list(function.walk(Assume))
    for op in promises:
        op.erase()
    return bool(promises)
