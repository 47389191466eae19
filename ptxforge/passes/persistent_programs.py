"""A kernel with a program for each tile becomes one whose programs walk over tiles.

    %pid = get_program_id {axis = 0}                                   (before)
    … %acc = for %k … { load …; dot_async … }; store …

    %first = get_program_id {axis = 0}; %step = get_num_programs {axis = 0}       (after)
    for %pid = %first to %programs step %step {
      … %acc = for %k … { load …; dot_async … }; store … }

``%programs`` is a parameter that the launcher passes: how many programs the caller asked for. It launches one
for each multiprocessor (``support/programs.py``), and these take every ``%step``-th tile. Then the next
tile's first copies start before this one is stored (``flatten_loops.py``), and no multiprocessor waits for a
block to begin.

Rules
-----
ALLOWED     The option ``persistent``, and tensor maps, for what launches the kernel passes parameters anyway.
PRODUCT     One loop that adds up products by ``wgmma``, nothing else that loops; TMA copies all of its tiles.
SINGLE      They leave no room for a second block on the multiprocessor, which would work while this one
            stores.
ROOM        They and the scratch of the epilogue, or what it stores by TMA, have room side by side: else
            nothing could start early.
APART       Programs do not wait for each other, nor does their number or order show: no atomics, volatile
            loads, barriers, prints, assertions or assembly; nothing asks for the number of programs.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Region
from ptxforge.ir.definition import PRODUCTS
from ptxforge.ir.ops.control import For, Loop, Yield
from ptxforge.ir.ops.dot import Product
from ptxforge.ir.ops.memory import GetNumPrograms, GetProgramId, Load
from ptxforge.ir.warps import scratch_of
from ptxforge.passes.analysis.kept import kept
from ptxforge.passes.stage_boxes import least_bytes
from ptxforge.passes.tensor_loads import TensorLoads
from ptxforge.support import programs
from ptxforge.support.target import Target


def persistent_programs(function: Function, target: Target) -> bool:
    """Let the function's programs walk over tiles, if all of the rules admit it."""
    attributes = function.attributes
    if not (attributes.get("persistent") and attributes.get("tensor_maps") and target.has_wgmma):
        return False
    loop = _loop_of_products(function)
    if loop is None:
        return False
    indices = [op for op in function.walk(GetProgramId) if op.axis == 0]
    why = _why_not(function, loop, target) if indices else "no program asks for its number along axis 0"
    if why:
        function.remarks.add("not-persistent", f"each program computes one tile: {why}", loop.location)
        return False
    _walk_over_tiles(function, indices)
    text = (
        "each multiprocessor runs one program, which walks over the tiles of several and loads the next "
        "while it stores one; persistent=False forbids it"
    )
    function.remarks.add("persistent", text, loop.location)
    return True


def _why_not(function: Function, loop: For, target: Target) -> str:
    """Which rule keeps the programs from walking, and what helps if anything does; empty where none does."""
    if loop.warp_specialize:
        return "its loop asks for warps that copy; leave warp_specialize out"
    if function.attributes.get("num_ctas", 1) > 1:
        return "it is a cluster of CTAs"
    turn = next((op for op in function.walk() if op.get_effects().keeps_turn), None)
    if turn is not None:
        line = f" in line {turn.location.line}" if turn.location else ""
        return f"others may wait for it, or its turn shows: it holds '{turn.name}'{line}"
    if function.walk(GetNumPrograms):
        return "it asks for the number of programs"
    buffers = bytes_of_tiles(function, loop)
    if not buffers:
        return _why_no_tiles(function, loop)
    scratch = max(least_bytes(function), *map(scratch_of, function.walk()))
    if buffers + scratch > target.max_shared_bytes:
        sizes = f"its tiles take {buffers} bytes, the exchange of its results {scratch}"
        return f"{sizes}, which have no room side by side; use smaller blocks or fewer num_stages"
    if 2 * max(buffers, scratch) <= target.max_shared_bytes:
        return "a second block has room on the multiprocessor, and multiplies while this one stores"
    return ""


def _why_no_tiles(function: Function, loop: For) -> str:
    """Why :func:`bytes_of_tiles` is 0."""
    stages = stages_of(function, loop)
    if stages < 2:
        return f"its loads do not run ahead, num_stages is {stages}; use 2 or more"
    return "TMA does not copy all of its tiles by maps that the launcher makes"


def _loop_of_products(function: Function) -> For | None:
    """See PRODUCT."""
    loops = function.walk(Loop)
    if len(loops) != 1 or not loops[0].is_counted or loops[0].parent is not function.body:
        return None
    (loop,) = loops
    products = function.walk(Product)
    is_plain = len(products) == 1 and products[0].effects.starts == PRODUCTS
    return loop if is_plain and products[0].parent is loop.body else None


def are_apart(function: Function) -> bool:
    """Whether programs, or tiles, do not wait for each other and their order does not show."""
    return not any(op.get_effects().keeps_turn for op in function.walk())


def stages_of(function: Function, loop: For) -> int:
    """``num_stages`` of a loop."""
    return loop.num_stages if loop.num_stages >= 0 else function.attributes.get("num_stages", 3)


def bytes_of_tiles(function: Function, loop: For) -> int:
    """Shared memory of the ring of the tiles of ``loop``; 0 where TMA does not copy all of them."""
    stages = stages_of(function, loop)
    loads = loop.body.walk(Load)
    if stages < 2 or not loads:
        return 0
    by_tma = kept(TensorLoads, function)
    by_tma.survey(loads)
    total = 0
    for load in loads:
        found = by_tma.rectangle(load)
        if found is None or found.in_kernel:
            return 0
        total += load.result.type.bytes + T.MBARRIER.bytes
    return stages * total


def _walk_over_tiles(function: Function, indices: list[Operation]) -> None:
    """Put the function's body into a loop over programs."""
    taken = {argument.name for argument in function.arguments}
    name = next(n for n in (programs.TYPE + "_" * k for k in range(len(taken) + 1)) if n not in taken)
    count = function.add_parameter(T.I32, name)
    count.attributes = {"programs": True}
    place = Builder.at(function.body.first)
    first, step = place.value(GetProgramId, axis=0), place.value(GetNumPrograms, axis=0)
    body = Block()
    tile = body.add_argument(T.I32, "tile")
    loop = place.create(For, first, count, step, result_types=[], regions=[Region(body)])
    for op in indices:
        op.result.replace_all_uses_with(tile)
        op.erase()
    moved = [op for op in function.body.operations if op is not function.body.terminator]
    end = Builder(body, location=loop.location).create(Yield)
    for op in moved[moved.index(loop) + 1 :]:
        op.move_before(end)
