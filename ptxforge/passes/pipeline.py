"""The pipeline: which passes run, in which order, and why each stands where it does."""

from __future__ import annotations

from collections.abc import Callable

from ptxforge.ir.core import Function
from ptxforge.passes.allocate_shared import allocate_shared
from ptxforge.passes.assign_layouts import assign_layouts
from ptxforge.passes.coalesce import coalesce
from ptxforge.passes.drop_assumptions import drop_assumptions
from ptxforge.passes.insert_barriers import insert_barriers
from ptxforge.passes.manager import Pass, Stages, check_order, run_passes
from ptxforge.passes.properties import LAYOUTS, NO_ASSUMPTIONS, OFFSETS, VECTORS
from ptxforge.passes.remove_layout_conversions import remove_layout_conversions
from ptxforge.passes.vectorize_memory import vectorize_memory
from ptxforge.support.target import Target

PIPELINE: tuple[Pass, ...] = (
    Pass(
        assign_layouts, "gpu", establishes=(LAYOUTS,),
        why="every tensor gets a layout: all passes below reason about who holds what",
    ),
    Pass(
        coalesce, "gpu", requires=(LAYOUTS,),
        why="memory accesses get wide, coalesced layouts first: they are the anchors that others follow",
    ),
    Pass(
        remove_layout_conversions, "gpu", requires=(LAYOUTS,),
        why="what lies between memory accesses follows their layouts; the conversions of the rows above go",
    ),
    Pass(
        drop_assumptions, "gpu", establishes=(NO_ASSUMPTIONS,),
        why="the code generator has nothing to do with a promise",
    ),
    Pass(
        vectorize_memory, "gpu", requires=(LAYOUTS,), establishes=(VECTORS,),
        why="the width of each access, from its final layout",
    ),
    Pass(
        allocate_shared, "gpu", requires=(LAYOUTS,), establishes=(OFFSETS,),
        why="no pass below adds a buffer or a conversion; the code generator reads offsets, never computes them",
    ),
    Pass(
        insert_barriers, "gpu", requires=(OFFSETS,),
        why="needs the offsets: buffers that share memory conflict",
    ),
)  # fmt: skip

check_order(PIPELINE)


def run(
    function: Function,
    target: Target,
    *,
    dump: str | None = None,
    stop_after: str | None = None,
    verify: bool | None = None,
    on_pass: Callable[[Pass, Function, bool], None] | None = None,
    timings: dict[str, float] | None = None,
) -> Stages:
    """Run the whole pipeline on ``function``, which it changes; keywords as for ``manager.run_passes``.

    The result is a sequence of snapshots (``name``, ``stage``, ``text``), one per pass that ran, after one for the
    function as the frontend built it.
    """
    return run_passes(
        function, PIPELINE, target, dump=dump, stop_after=stop_after, verify=verify, on_pass=on_pass, timings=timings
    )
