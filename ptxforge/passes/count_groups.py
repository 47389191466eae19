"""A wait that names copies of threads leaves under way what is newer, and says how much that is.

    for … iter_args(%old = %g0, %new = %g1) {                (before)
      %t = async_wait %old
      …
      %g2 = async_commit_group
      yield %new, %g2 }

    for … iter_args(%old = %g0, %new = %g1) {                (after)
      %t = async_wait %old {num = 1}                         the group of %new is newer
      …

``cp.async`` knows no names: its groups finish in order, and one waits until there are so many. The passes
above name what they wait for, and nobody counts.
"""

from __future__ import annotations

from ptxforge.ir.ages import ages_at_waits
from ptxforge.ir.core import Function
from ptxforge.support.target import Target


def count_groups(function: Function, target: Target) -> bool:
    """Write ``num`` on every wait that names what was started: as many groups as are newer on every path."""
    changed = False
    for wait, age in ages_at_waits(function).items():
        newer = max(age, 0)
        changed |= wait.num != newer
        wait.num = newer
    return changed
