"""Software pipelining, decided: which loads of a loop run ahead, by how many stages, which arrive together.

    for %k … iter_args(%p = %base, %acc = %zero) {                              (before, num_stages = 3)
      %x = load (addptr %p, %offsets), %mask
      %y = convert_layout %x : dot_op
      %d = dot %y, …, %acc
      yield … }

    for %k … iter_args(%p = %base, %acc = %zero) {distance = 2, last_stage = 2} {            (after)
      %x = load (addptr %p, %offsets), %mask {group = 0, stage = 0}
      %y = convert_layout %x : dot_op
      %d = dot %y, …, %acc {slice = 16}
      yield … }

The loop means what it meant. ``pipeline_loops`` gives the loads buffers, cuts the product, and gives every
other operation the stage that these demand: what a load needs is in its stage at the latest, all else in the
last.

Rules
-----
LOADS       Those that ``pipelined_loads`` names, with their levels. A load of level ``l`` has its value used
            ``(l + 1) · d`` steps before the last stage, with ``d = (num_stages - 1) / (levels)``; levels for
            which there are no stages stay where they are.
GROUPS      Loads of one group are waited for together. What threads copy is one group. Each tile that TMA
            copies is a group, with the vectors of its stage behind it: a wait of their own, among products
            that are under way, would keep the assembler from starting the next one before they are finished.
SLICES      A product is done slice by slice along k (``slice``), if its operands are copied by threads
            (``sliced_products.py``).
REGISTERS   Where no load is, one of two tiles that threads load by themselves may run ahead in registers
            (``loads_in_registers.py``).
NARROW      Beside the copies of a product's tiles, loads that no copy can do may run one iteration ahead in
            registers: they have a stage, but no group.
CHAINS      of two products have a schedule of their own (``chained_products.py``).
PRODUCTS    of warpgroups run on into the next iteration, or are waited for where it uses their sums
            (``products_in_flight.py``), whether loads run ahead or not.
TURNS       of a loop over tiles two groups of warps may take (``deal_out_tiles.py``).
SKIPPED     Loops that contain loops, barriers, assertions or prints; ``num_stages`` below 2; a loop that
            yields another carried value unchanged.

What stays where it is although it would pay to run ahead is told in a remark.
"""

from __future__ import annotations

from collections.abc import Collection

from ptxforge.ir import types as T
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For, While, loops_around
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import Load
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.analysis.pipelined_loads import may_be_pipelined, pipelined_loads
from ptxforge.passes.analysis.reasons import why_not_ahead
from ptxforge.passes.chained_products import schedule_chain
from ptxforge.passes.deal_out_tiles import deal_out_tiles
from ptxforge.passes.loads_in_registers import run_ahead_in_registers, run_narrow_ahead
from ptxforge.passes.products_in_flight import schedule_products
from ptxforge.passes.sliced_products import products_of, width_of_slices
from ptxforge.passes.stays import StaysError
from ptxforge.passes.tensor_loads import TensorLoads, is_vector
from ptxforge.support.target import Target


def schedule_loops(function: Function, target: Target) -> bool:
    """Write a schedule on every loop for which it is legal and asked for."""
    default = function.attributes.get("num_stages", 3)
    for loop in function.walk(While) if default > 1 else ():
        _remark_uncounted(function, loop, default)
    loops = function.walk(For)
    if not loops:
        return False
    by_tma = kept(TensorLoads, function)
    stages = {loop: loop.num_stages if loop.num_stages >= 0 else default for loop in loops}
    staged = [loop for loop in loops if stages[loop] >= 2]
    through_memory = {loop for loop in staged if _through_memory(function, loop, stages[loop], by_tma)}
    changed = bool(through_memory)
    # When all rings are known, and so what shared memory they leave:
    for loop in staged:
        if loop not in through_memory:
            ahead = run_ahead_in_registers(function, loop, target) if may_be_pipelined(loop) else []
            _remark(function, loop, stages[loop], ahead)
            changed |= bool(ahead)
    for loop in loops:
        is_chain = schedule_chain(function, loop, by_tma, target)
        changed |= not is_chain and schedule_products(function, loop, target)
    return deal_out_tiles(function, target) or changed


def _through_memory(function: Function, loop: For, stages: int, by_tma: TensorLoads) -> bool:
    """Let loads of ``loop`` run ahead through rings of buffers; whether one does."""
    by_tma.survey(loop.body.of(Load))
    levels = pipelined_loads(loop, by_tma.rectangle) if may_be_pipelined(loop) else {}
    by_tma.remark({**levels, **dict.fromkeys(op for op in loop.body.of(Load) if op.boxed)})
    if levels:
        _write(loop, stages, levels, by_tma)
        _write_slices(function, loop, by_tma)
        _remark(function, loop, stages, [*levels, *run_narrow_ahead(loop, levels)])
    return bool(levels)


def _write(loop: For, stages: int, levels: dict[Load, int], by_tma: TensorLoads) -> None:
    """See LOADS and GROUPS."""
    depth = min(max(levels.values()) + 1, stages - 1)
    loop.distance = (stages - 1) // depth
    loop.last_stage = loop.distance * depth
    for load, level in levels.items():
        if level < depth:
            load.attributes["stage"] = loop.last_stage - loop.distance * (level + 1)
    _write_groups([load for load in levels if "stage" in load.attributes], by_tma)


def _write_groups(loads: list[Load], by_tma: TensorLoads) -> None:
    """See GROUPS."""
    numbers: dict[Load | None, int] = {}
    tiles: dict[int, Load] = {}
    for load in loads:
        tile, at = None, load.attributes["stage"]
        if by_tma.rectangle(load) is not None:
            tile = tiles[at] = tiles.get(at, load) if is_vector(load) else load
        load.attributes["group"] = numbers.setdefault(tile, len(numbers))


def _write_slices(function: Function, loop: For, by_tma: TensorLoads) -> None:
    """See SLICES; a remark where a product stays whole."""
    ahead = [op for op in loop.body.of(Load) if "stage" in op.attributes and by_tma.rectangle(op) is None]
    copied = [op for op in ahead if op.attributes["stage"] == loop.last_stage - loop.distance]
    dots = products_of(loop, copied)
    if not dots:
        return
    try:
        if len(copied) < len(ahead):
            raise StaysError("its operands do not arrive together, by one wait for copies of threads")
        dots[0].attributes["slice"] = width_of_slices(loop, dots[0], copied)
    except StaysError as why:
        place = (dots[0] if len(dots) == 1 else loop).location
        text = f"operands of products are read where these are done, not a slice of k ahead: {why}"
        function.remarks.add("not-prefetched", text, place)


def _remark(function: Function, loop: For, stages: int, ahead: Collection[Load]) -> None:
    """Say why loads of the loop do not run ahead."""
    tensors = [op for op in loop.body.of(Load) if isinstance(op.result.type, T.TensorType)]
    if len(ahead) < len(tensors):
        has_dot = any(loop.body.of(Product))
        for place, why, cure in why_not_ahead(loop, tensors, stages, has_dot, ahead):
            function.remarks.add("not-pipelined", f"{why}; {cure}", place)


def _remark_uncounted(function: Function, loop: While, stages: int) -> None:
    """Say so of a loop of products whose steps nobody can count before it."""
    loads, products = (
        [op for op in loop.body.walk(kind) if loops_around(op)[0] is loop] for kind in (Load, Product)
    )
    tensors = [op for op in loads if isinstance(op.result.type, T.TensorType)]
    if tensors and products:
        ((place, why, cure),) = why_not_ahead(loop, tensors, stages, has_dot=True)
        function.remarks.add("not-pipelined", f"{why}; {cure}", place)
