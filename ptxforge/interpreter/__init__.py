"""Executes IR of any stage in numpy: the meaning of a kernel, without a GPU and without codegen.

    from ptxforge.interpreter import run
    run(function, grid=(4,), arguments=[x, y, out, n])

Programs run one after the other, each operation on whole tiles; layouts mean nothing here. An operation means
what its ``evaluate`` computes; those that touch memory, control flow or the outside have handlers in these
files.
"""

from ptxforge.interpreter import (
    control,
    debugger,
    inline_asm,
    mbarrier,
    memory,
    partition,
    shared,
)
from ptxforge.interpreter.address_space import AddressSpace
from ptxforge.interpreter.execute import run
from ptxforge.interpreter.registry import HANDLERS

__all__ = [
    "HANDLERS", "AddressSpace", "control", "debugger", "inline_asm",
    "mbarrier", "memory", "partition", "run", "shared",
]  # fmt: skip
