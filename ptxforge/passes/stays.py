"""What a pass raises where a loop, or a product in it, stays as it is."""

from __future__ import annotations


class StaysError(Exception):
    """A loop stays as it is; the text says why, for a remark."""
