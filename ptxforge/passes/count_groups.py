"""A wait that names copies of threads, or products, leaves under way what is newer, and says how much it is.

    for … iter_args(%old = %g0, %new = %g1) {                (before)
      %t = async_wait %old
      …
      %g2 = async_commit_group
      yield %new, %g2 }

    for … iter_args(%old = %g0, %new = %g1) {                (after)
      %t = async_wait %old {num = 1}                         the group of %new is newer
      …

``cp.async`` and ``wgmma`` know no names: their groups finish in order, and one waits until there are so many.
The passes above name what they wait for, and nobody counts: ``dot_wait %f {pending = 1}``.
"""

from __future__ import annotations

from ptxforge.ir.ages import ages_at_waits
from ptxforge.ir.core import Function
from ptxforge.ir.definition import COPIES, PRODUCTS
from ptxforge.support.target import Target


def count_groups(function: Function, target: Target) -> bool:
    """Write on every wait that names what was started how many groups are newer, on every path."""
    changed = False
    for queue, left in ((COPIES, "num"), (PRODUCTS, "pending")):
        for wait, age in ages_at_waits(function, queue).items():
            newer = max(age, 0)
            changed |= getattr(wait, left) != newer
            setattr(wait, left, newer)
    return changed
