"""Which allocations of shared memory a ``memdesc`` value may stand for."""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, SAME_MEMORY
from ptxforge.ir.ops.control import Structured
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.passes.analysis.components import carried_groups


class Buffers:
    """For every memdesc the ``local_alloc`` operations behind it: views share their source's, and values that
    control flow passes on collect those of all that may be passed."""

    def __init__(self, function: Function):
        self.of: dict[Value, set[LocalAlloc]] = {}
        self.allocations: list[LocalAlloc] = []
        flows: list[tuple[Value, ...]] = []
        for op in function.walk():
            if ALLOCATES in op.traits:
                self.of[op.result] = {op}
                self.allocations.append(op)
            elif SAME_MEMORY in op.traits and isinstance(op.operands[0].type, T.MemDescType):
                # A view shares the very set of its source, so that what control flow adds reaches it.
                self.of[op.result] = self.of.setdefault(op.operands[0], set())
            elif isinstance(op, Structured):
                groups = [g for g in carried_groups(op) if isinstance(g[0].type, T.MemDescType)]
                flows += groups
                for group in groups:
                    for value in group:
                        self.of.setdefault(value, set())
        self._flow(flows)

    def _flow(self, groups: list[tuple[Value, ...]]) -> None:
        changed = True
        while changed:
            changed = False
            for group in groups:
                together = set().union(*(self.of[v] for v in group))
                for value in group:
                    if self.of[value] != together:
                        self.of[value] |= together
                        changed = True

    def used_by(self, op: Operation) -> list[LocalAlloc]:
        """The allocations behind the operation's memdesc operands, in order."""
        found: dict[LocalAlloc, None] = {}
        for value in op.operands:
            if isinstance(value.type, T.MemDescType):
                found.update(dict.fromkeys(sorted(self.of[value], key=self.allocations.index)))
        return list(found)
