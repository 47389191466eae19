"""From the gpu stage's IR to PTX text.

:func:`emit` is the whole interface. ``lowering.py`` walks the function; how each family of
operations is lowered stands in ``lower/<family>.py``. ``ptx/`` is the floor below: instructions, the builder
that collects them, and the passes over them. ``module.py`` writes what stands around them.
"""

from __future__ import annotations

from collections.abc import Collection

from ptxforge.codegen_ptx.lower import (  # noqa: F401  (importing a lowering registers it)
    arith,
    atomic,
    cast,
    control,
    convert_layout,
    debug,
    dot,
    inline_asm,
    math,
    mbarrier,
    memory,
    partition,
    reduce,
    reduce_ctas,
    scan,
    shape,
    shared,
    tensor_map,
    wgmma,
)  # fmt: skip
from ptxforge.codegen_ptx.lowering import Lowering
from ptxforge.codegen_ptx.module import module_text
from ptxforge.codegen_ptx.ptx.pipeline import LOWERING, NAMES
from ptxforge.ir.core import Function
from ptxforge.support.target import Target

PASS_NAMES = (LOWERING, *NAMES)
"""What ``PTXFORGE_DUMP`` and ``PTXFORGE_STOP_AFTER`` may name behind the passes over the IR."""

__all__ = ["PASS_NAMES", "emit"]


def emit(
    function: Function, target: Target, *, why: bool = False, without: Collection[str] = (),
    timings: dict[str, float] | None = None,
) -> str:  # fmt: skip
    """The PTX module of a kernel in the gpu stage (all tensors have layouts, shared memory is allocated).

    The entry has the function's name, its parameters are the function's arguments in order, and its dynamic
    shared memory of ``shared_bytes`` is called ``smem``. Equal functions give equal text.

    With ``why``, comments behind instructions name the rule that made them what they are. ``without`` names
    rules and passes that are left out (``ptx/pipeline.py``); ``timings`` collects seconds by pass of that
    table.

    Raises:
        InternalCompilerError: for an operation that has no lowering or a layout that it cannot have.
    """
    lowering = Lowering(function, target, without)
    lowering.run()
    if lowering.partitions:
        partition.add_producers(lowering)
    text = module_text(function, lowering.b, function.attributes.get("shared_bytes", 0), why, timings)
    return text
