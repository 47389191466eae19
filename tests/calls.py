"""How often Python calls functions: a measure of work that no other load on the machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(run: Callable[[], Any], without: str = "\0") -> int:
    """How often functions are called, and generators are resumed, while ``run`` is called once; those of
    files with ``without`` in their names do not count."""
    count = 0

    def see(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call" and without not in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
