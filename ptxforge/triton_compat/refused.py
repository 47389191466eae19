"""What of Triton there will not be, each with its reason: told at the import, and at the use.

``docs/from-triton.md`` shows this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

REFUSED = {
    "triton.experimental": (
        "Gluon writes the layouts and the memory of one architecture by hand; ptxforge finds them for each"
    ),
    "triton.language.extra.hip": "ptxforge makes PTX, for NVIDIA's GPUs; there is nothing for AMD's",
    "triton.language.extra.tlx": "TLX is an extension of another fork, with barriers and buffers by hand",
    "triton.language.extra.tcgen05": "there are no instructions of Blackwell's tensor memory here",
    "triton._C.libtriton": "there is no C++ behind ptxforge: no MLIR, no LLVM, and so no bindings of them",
    "triton.tools.experimental_descriptor": "it gave way to triton.tools.tensor_descriptor in Triton 3.4",
}


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
