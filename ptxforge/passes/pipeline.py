"""The pipeline: which passes run, in which order, and why each stands where it does.

``python -m ptxforge passes`` prints this table. A pass may stand in it more than once. What differs between
targets is said by ``when`` in a row, never by a test inside the pipeline.
"""

from __future__ import annotations

from typing import Any

from ptxforge.ir.core import Function
from ptxforge.passes.accelerate_matmul import accelerate_matmul
from ptxforge.passes.advise_assembler import advise_assembler
from ptxforge.passes.allocate_shared import allocate_shared
from ptxforge.passes.alternate_tiles import alternate_tiles
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis, FactsWithinVectors
from ptxforge.passes.assign_layouts import assign_layouts
from ptxforge.passes.canonicalize import canonicalize
from ptxforge.passes.canonicalize_pointers import canonicalize_pointers
from ptxforge.passes.carry_accumulators import carry_accumulators
from ptxforge.passes.choose_sequences import choose_sequences
from ptxforge.passes.coalesce import coalesce
from ptxforge.passes.combine import combine
from ptxforge.passes.compact_loads import compact_loads
from ptxforge.passes.contract_products import contract_products
from ptxforge.passes.count_groups import count_groups
from ptxforge.passes.cse import cse
from ptxforge.passes.dce import dce, drop_assumptions
from ptxforge.passes.describe_products import describe_products
from ptxforge.passes.expand_loops import expand_loops
from ptxforge.passes.flatten_loops import flatten_loops
from ptxforge.passes.insert_barriers import insert_barriers
from ptxforge.passes.interleave_products import interleave_products
from ptxforge.passes.licm import licm
from ptxforge.passes.lower_bounds import lower_bounds
from ptxforge.passes.lower_descriptors import lower_descriptors
from ptxforge.passes.manager import Pass, Stages, check_order, run_passes
from ptxforge.passes.optimize_dot_operands import optimize_dot_operands
from ptxforge.passes.optimize_thread_locality import optimize_thread_locality
from ptxforge.passes.own_loads import own_loads
from ptxforge.passes.peel_loops import peel_loops
from ptxforge.passes.persistent_programs import persistent_programs
from ptxforge.passes.pipeline_loops import pipeline_loops
from ptxforge.passes.place_maps import place_maps
from ptxforge.passes.plan_ctas import plan_ctas
from ptxforge.passes.products_in_parts import products_in_parts
from ptxforge.passes.properties import LAYOUTS, NO_ASSUMPTIONS, OFFSETS, VECTORS
from ptxforge.passes.recompute_indices import recompute_indices
from ptxforge.passes.reduce_data_duplication import reduce_data_duplication
from ptxforge.passes.remove_layout_conversions import remove_layout_conversions
from ptxforge.passes.reorder_broadcast import reorder_broadcast
from ptxforge.passes.reorder_instructions import reorder_instructions
from ptxforge.passes.rotate_ranges import rotate_ranges
from ptxforge.passes.scale_indices import scale_indices
from ptxforge.passes.schedule_loops import schedule_loops
from ptxforge.passes.specialize_warps import specialize_warps
from ptxforge.passes.split_loops import split_loops
from ptxforge.passes.stage_boxes import stage_boxes
from ptxforge.passes.tensor_loads import TensorLoads
from ptxforge.passes.unroll_loops import unroll_loops
from ptxforge.passes.use_limits import use_limits
from ptxforge.passes.vectorize_memory import vectorize_memory
from ptxforge.passes.version_loops import version_loops
from ptxforge.passes.widen_booleans import widen_booleans
from ptxforge.support.target import Target

FACTS = (AxisInfoAnalysis, FactsWithinVectors)
"""What passes that choose layouts keep: a value in another layout is the same value."""

TILE: tuple[Pass, ...] = (
    Pass(
        lower_descriptors, "tile",
        why="first: the passes below see pointers and masks, as if the author had written them",
    ),
    Pass(
        lower_bounds, "tile",
        why="after what makes bounds: every analysis of masks knows comparisons only",
    ),
    Pass(
        canonicalize, "tile",
        why="one spelling per idea before anything is matched; folds what constexpr arguments decide",
    ),
    Pass(
        combine, "tile",
        why="pairs that one operation does better (dot and add, select and masked load); "
        "wants the folded form",
    ),
    Pass(
        reorder_broadcast, "tile",
        why="elementwise work before it is spread over a tile; makes uniform operands visible as splats",
    ),
    Pass(
        cse, "tile", settles=True,
        why="the frontend computes every index again for each use",
    ),
    Pass(
        licm, "tile",
        why="after cse, so that a value is hoisted once; before unrolling, so that it is not copied",
    ),
    Pass(
        split_loops, "tile",
        why="after licm: what a mask compares with is in front of its loop; before anything is made of loops",
    ),
    Pass(
        unroll_loops, "tile",
        why="after licm: what is invariant is outside by now",
    ),
    Pass(
        peel_loops, "tile",
        why="of loops that the row above leaves: in those that it writes out every iteration is by itself",
    ),
    Pass(
        canonicalize_pointers, "tile",
        why="needs splats (reorder_broadcast) and uniform steps outside of loops (licm); "
        "layouts would only be in its way",
    ),
    Pass(
        compact_loads, "tile",
        why="after the row above: what all pointers of a tile have in common is a scalar, and no loop "
        "changes offsets",
    ),
    Pass(
        canonicalize, "tile",
        why="what unrolling, the new scalar pointers and the shorter ranges leave to be folded",
    ),
    Pass(
        use_limits, "tile",
        why="after unrolling, for of an index that a loop carries nothing is known; after the row above, "
        "which finds minima and maxima",
    ),
    Pass(
        cse, "tile", settles=True,
        why="copies made by unrolling, addresses rebuilt in every loop",
    ),
    Pass(
        dce, "tile", settles=True,
        why="the gpu passes choose layouts for what is needed only",
    ),
    Pass(
        plan_ctas, "tile",
        why="after dce: unused values would tie dimensions together; before layouts, which are one CTA's",
    ),
    Pass(
        rotate_ranges, "tile",
        why="after cse, which shows whether rows lie alike; before coalesce, which follows what it finds",
    ),
)  # fmt: skip

GPU: tuple[Pass, ...] = (
    Pass(
        assign_layouts, "gpu", keeps=FACTS, establishes=(LAYOUTS,),
        why="every tensor gets a layout: all passes below reason about who holds what",
    ),
    Pass(
        coalesce, "gpu", keeps=FACTS, requires=(LAYOUTS,),
        why="memory accesses get wide, coalesced layouts first: they are the anchors that others follow",
    ),
    Pass(
        accelerate_matmul, "gpu", keeps=FACTS, requires=(LAYOUTS,),
        why="the fragments of tensor cores are anchors too",
    ),
    Pass(
        remove_layout_conversions, "gpu", keeps=FACTS, requires=(LAYOUTS,),
        why="what lies between the anchors follows their layouts; the conversions of the rows above go",
    ),
    Pass(
        optimize_dot_operands, "gpu", keeps=FACTS, requires=(LAYOUTS,),
        why="after the row above, which would move work back to where it is done once; makes "
        "loads meet dots directly",
    ),
    Pass(
        optimize_thread_locality, "gpu", keeps=FACTS, requires=(LAYOUTS,),
        why="needs the layouts that reductions have in the end; what it takes out of a loop "
        "is never scheduled there",
    ),
    Pass(
        vectorize_memory, "gpu", requires=(LAYOUTS,), establishes=(VECTORS,),
        why="the width of each access, from its final layout and from what the user assumes of its addresses",
    ),
    Pass(
        drop_assumptions, "gpu", establishes=(NO_ASSUMPTIONS,),
        why="no analysis of values follows; what was computed for a promise alone is dead now",
    ),
    Pass(
        cse, "gpu", requires=(LAYOUTS,), settles=True,
        why="values that were computed in several layouts may have met in one",
    ),
    Pass(
        licm, "gpu", requires=(LAYOUTS,),
        why="conversions and constants made inside loops",
    ),
    Pass(
        dce, "gpu", settles=True,
        why="the schedule of a loop holds nothing that is not used",
    ),
    Pass(
        reorder_instructions, "gpu", requires=(LAYOUTS,),
        why="the order that the code generator keeps; before loops are pipelined, whose "
        "order is their schedule's",
    ),
    Pass(
        persistent_programs, "gpu", requires=(LAYOUTS, VECTORS), when=lambda target: target.has_wgmma,
        why="what fills shared memory is known, and nothing has been made for one tile only; before the row "
        "below, whose rings then serve all tiles",
    ),
    Pass(
        version_loops, "gpu", requires=(LAYOUTS, VECTORS),
        why="loads and their layouts are final; the row below finds one loop whose loads may run ahead, and "
        "one that it leaves alone",
    ),
    Pass(
        carry_accumulators, "gpu", keeps=(TensorLoads,), requires=(LAYOUTS,),
        why="layouts are final, and what loops carry; the row below sees which sums may be under way",
    ),
    Pass(
        schedule_loops, "gpu", keeps=(TensorLoads,), requires=(LAYOUTS, VECTORS),
        why="loads and their layouts are final; decides what the row below carries out",
    ),
    Pass(
        pipeline_loops, "gpu", requires=(LAYOUTS, VECTORS),
        why="what the schedule lets run ahead goes through shared memory, what it lets run on is carried; "
        "says of all operations of the loop when they are done",
    ),
    Pass(
        expand_loops, "gpu", requires=(LAYOUTS, VECTORS),
        why="carries out what the row above wrote; all rows below see loops in the order of their code",
    ),
    Pass(
        flatten_loops, "gpu", requires=(LAYOUTS, VECTORS),
        why="what the row above puts in front of an inner loop runs ahead of the loop around",
    ),
    Pass(
        canonicalize, "gpu", requires=(LAYOUTS,),
        why="the prologue's iteration numbers are constants",
    ),
    Pass(
        cse, "gpu", requires=(LAYOUTS,), settles=True,
        why="addresses and conditions that the copies of several loads share",
    ),
    Pass(
        reduce_data_duplication, "gpu", requires=(LAYOUTS,),
        why="what loops read and carry is final: now it shows which other operands have room in registers",
    ),
    Pass(
        cse, "gpu", requires=(LAYOUTS,), settles=True,
        why="views of the same buffer",
    ),
    Pass(
        dce, "gpu", settles=True,
        why="last cleaning; from here on nothing is made that is not used",
    ),
    Pass(
        products_in_parts, "gpu", requires=(LAYOUTS,),
        why="it is final which operands threads exchange through shared memory, where parts can be read; "
        "before places are given",
    ),
    Pass(
        stage_boxes, "gpu", requires=(LAYOUTS,), when=lambda target: target.has_wgmma,
        why="no pass below touches values or loops, so that buffers and waits stay where they belong; before "
        "places are given",
    ),
    Pass(
        specialize_warps, "gpu", requires=(LAYOUTS,),
        why="loops, their waits and their buffers are as they will be; before places are given",
    ),
    Pass(
        alternate_tiles, "gpu", requires=(LAYOUTS,), when=lambda target: target.has_wgmma,
        why="deals the tiles of a loop that the row above gave a producer out to two groups of consumers",
    ),
    Pass(
        count_groups, "gpu",
        why="no pass below starts copies by threads, or moves them or their waits",
    ),
    Pass(
        widen_booleans, "gpu", requires=(LAYOUTS,),
        why="what loops carry is final, and how many booleans of it a thread has",
    ),
    Pass(
        contract_products, "gpu",
        why="what products and sums were moved, shared or removed for is done; the code generator contracts "
        "nothing by itself",
    ),
    Pass(
        allocate_shared, "gpu", requires=(LAYOUTS,), establishes=(OFFSETS,),
        why="no pass below adds a buffer or a conversion; the code generator reads offsets, "
        "never computes them",
    ),
    Pass(
        place_maps, "gpu", requires=(OFFSETS,), when=lambda target: target.has_tma,
        why="how much shared memory a block takes is known, and so how many run at once",
    ),
    Pass(
        describe_products, "gpu", requires=(LAYOUTS,),
        why="nothing below decides how a product is made",
    ),
    Pass(
        scale_indices, "gpu", requires=(OFFSETS,),
        why="needs the pitch of buffers, which allocation decides",
    ),
    Pass(
        own_loads, "gpu", requires=(LAYOUTS, VECTORS),
        why="vectors are decided; the row below keeps accesses of several threads apart",
    ),
    Pass(
        insert_barriers, "gpu", requires=(OFFSETS,),
        why="needs the offsets: buffers that share memory conflict",
    ),
    Pass(
        interleave_products, "gpu", requires=(LAYOUTS, OFFSETS),
        why="nothing that waits may pass a barrier; the code generator keeps this order",
    ),
    Pass(
        choose_sequences, "gpu", requires=(LAYOUTS,),
        why="all operations are there, and in the order that says how many registers are live at once",
    ),
    Pass(
        recompute_indices, "gpu", requires=(LAYOUTS,),
        why="what is used behind a loop, and what in it, changes no more",
    ),
    Pass(
        advise_assembler, "gpu", requires=(LAYOUTS,),
        why="last: loops, products and the largest tile are what the assembler gets",
    ),
)  # fmt: skip

PIPELINE: tuple[Pass, ...] = TILE + GPU

check_order(PIPELINE)


def run(function: Function, target: Target, **options: Any) -> Stages:
    """Run the whole pipeline on ``function``, which it changes; keywords as for ``manager.run_passes``.

    The result is a sequence of snapshots (``name``, ``stage``, ``text``), one per pass that ran, after one
    for the function as the frontend built it.
    """
    return run_passes(function, PIPELINE, target, **options)
