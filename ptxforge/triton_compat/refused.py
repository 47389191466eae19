"""What of Triton there will not be, each with its reason: told at the import, and at the use.

``docs/from-triton.md`` shows this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from ptxforge.support.not_there import NOT_THERE

REFUSED = {name: entry.why for name, entry in NOT_THERE.items() if name.startswith("triton.")}
"""Modules of Triton that are not there, out of the list of all such names."""


def reason(name: str) -> str | None:
    """Why there is no module or name of that full name; ``None`` when it is not refused."""
    for refused, why in REFUSED.items():
        if name == refused or name.startswith(f"{refused}."):
            return why
    return None


class Refusals:
    """The last of Python's finders: it says why a module that ptxforge refuses is not found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """``None``, as every finder that does not know a module. Raises ``ModuleNotFoundError`` with the
        reason for a refused one."""
        why = reason(name)
        if why is not None:
            raise ModuleNotFoundError(f"ptxforge has no '{name}': {why}", name=name)
        return None
