"""What the compiler tells a user about decisions that cost speed: what it left alone, and why; and how it
makes products.

A pass says ``function.remarks.add("not-pipelined", "…", op.location)``; ``Artifact.remarks`` and
``python -m ptxforge compile … --remarks`` show it. A remark is no error and no warning: the code is right.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from ptxforge.support.location import Location, snippet

KINDS = {
    "product": "how a product is made: instruction, what feeds it, schedule, registers",
    "persistent": "kernels whose programs walk over the tiles of several",
    "specialized": "loops whose tiles a warp of its own copies",
    "split": "loops whose masks only some iterations need, which have a loop of their own",
    "not-split": "loops in which all iterations do what a mask is for that only some need",
    "not-persistent": "products by wgmma whose programs compute one tile each",
    "not-pipelined": "loads of a loop that do not run ahead of their iteration",
    "not-prefetched": "operands of products that are read where they are used, not a slice ahead",
    "not-in-flight": "sums by wgmma for which each iteration waits, instead of the next one",
    "not-flattened": "loops over tiles that do not start the next tile's loads before this one is stored",
    "not-specialized": "loops that asked for warps of their own for loads and got none",
    "not-dealt-out": "loops over tiles that two groups of warps do not take in turns",
    "not-by-tma": "tiles for wgmma that threads copy, because their addresses are no rectangle of a tensor",
    "not-by-wgmma": "products left to mma.sync where the target has wgmma",
    "narrow-access": "accesses to global memory that move fewer bytes at a time than they could",
    "no-tensor-core": "products that are done without tensor cores",
    "not-multicast": "tiles that several CTAs of a program need, and each of them copies for itself",
    "one-cta-works": "programs of several CTAs whose work is not shared among them",
    "spills": "registers that the assembler keeps in memory",
    "serialized": "products by wgmma that the assembler makes wait for each other",
}
"""What a remark can be about."""


@attrs.frozen(slots=True)
class Remark:
    """``message`` says, about what stands at ``location`` in the kernel's source, what ``pass_name`` did not
    do and why (of ``product``, ``persistent``, ``specialized`` and ``split``: what was done); ``kind`` is one
    of ``KINDS``."""

    pass_name: str
    kind: str
    message: str
    location: Location | None = None

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location is not None else ""
        return f"{where}{self.kind}: {self.message} [{self.pass_name}]"

    def explain(self) -> str:
        """The remark with its source line and a caret, where the source can be read."""
        lines = snippet(self.location, context=0) if self.location is not None else ""
        return f"{self}\n{lines}" if lines else str(self)


class Remarks:
    """The remarks on one function, each once, in the order in which passes made them.

    ``pass_name`` is the pass that is running; the pass manager sets it.
    """

    def __init__(self) -> None:
        self.pass_name = ""
        self._made: dict[Remark, None] = {}

    def add(self, kind: str, message: str, location: Location | None = None) -> None:
        """Make a remark in the name of the running pass. Raises ``ValueError`` for an unknown ``kind``."""
        if kind not in KINDS:
            raise ValueError(f"no remarks of kind '{kind}'; there are {', '.join(KINDS)}")
        self._made[Remark(self.pass_name, kind, message, location)] = None

    def withdraw(self, kind: str, location: Location | None) -> None:
        """Take back what was said about ``location``, which a later pass has made untrue."""
        for remark in [r for r in self._made if r.kind == kind and r.location == location]:
            del self._made[remark]

    def __iter__(self) -> Iterator[Remark]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
