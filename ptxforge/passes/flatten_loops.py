"""A loop over tiles around a pipelined loop: the first copies of a tile start before the last one is stored.

    for %tile … {flatten = true} {                                             (before)
      %p = addresses of %tile
      async_copy %p …; async_commit_group                  prologue of the inner loop
      %acc = for %k … { … }
      async_wait {num = 0}
      store addresses(%tile), %acc }

    async_copy (addresses of the first tile) …; async_commit_group             (after)
    for %tile … iter_args(%p) {
      %acc = for %k … { … }
      async_wait {num = 0}
      %q = addresses of %tile + step                       predicated off behind the last tile
      async_copy %q …; async_commit_group
      store addresses(%tile), %acc
      yield %q }
    async_wait {num = 0}

This is a software pipeline of two stages (``expand_loops``): the prologue and what it needs run an iteration
ahead of everything else, and their place in the steady state is right behind the inner loop. While results
are converted and stored, memory works on the next tile; with one program for each multiprocessor nothing but
the inner loop's own start is ever waited for.

Copies by TMA go on in the ring where the inner loop stops (``rings.py``): it hands on place and phase, which
are used in the same step. The buffers that they fill were read by products before the last one, for which
all warps have waited (of all CTAs that get them): so they start while the last product is under way, whose
wait has its turn behind them, and need no barrier.

Rules
-----
ASKED FOR   The loop is marked ``flatten`` (``tl.range(…, flatten=True)``); or TMA copies its tiles, which
            makes the same promise necessary (``TensorLoads._check_writes``), and as many blocks have room in
            a multiprocessor as without it.
ROOM        Buffers live as long as the outer loop, and its scratch lies beside them. (Where TMA copies and
            that is too much, the tiles start one by one, with a remark if the author asked.)
SHAPE       Its body holds one loop, and asynchronous copies before it.
AHEAD       The copies, and all that they are computed from. They move over what follows the inner loop, so
            that may write only through other parameters than those through which they read (``flatten`` is
            the author's promise that these do not overlap); atomics, barriers and the like in the body, or
            copies that depend on the results of this tile (but for what the inner loop hands on to the next)
            forbid it; and what may not run for a tile that does not exist (a ``while`` need not end, a
            ``gather`` leaves its source).
TWO AHEAD   Where TMA copies, scalars that follow from the number of the tile (its row and column, by
            divisions) are computed for the tile after the next, behind the next one's copies: these start at
            once, and the divisions run while the last product is under way and results are stored.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation
from ptxforge.ir.definition import ALLOCATES, COPIES, MEETING, PRODUCTS, READS_GLOBAL, TENSORS
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.mbarrier import TensorLoad
from ptxforge.ir.ops.shared import AsyncWait, LocalAlloc
from ptxforge.ir.warps import scratch_of
from ptxforge.passes.analysis.roots import root_of_access
from ptxforge.passes.expand_loops import expand_loop
from ptxforge.passes.stage_boxes import least_bytes
from ptxforge.passes.stays import StaysError
from ptxforge.support.target import Target
from ptxforge.support.worklist import each_once

_QUEUES = (COPIES, TENSORS)


def flatten_loops(function: Function, target: Target) -> bool:
    """Overlap the iterations of every loop that asks for it and may."""
    changed = False
    for loop in reversed(function.walk(For)):
        if loop.consumer_groups > 1:  # a producer runs ahead by itself
            continue
        try:
            inner = _inner_loop(loop)
            ahead = _ahead(loop, inner)
            _check_moves(loop, inner, ahead)
            if not _has_room(function, target, loop, ahead):
                continue
        except StaysError as why:
            if loop.flatten:
                message = f"the next tile's loads wait for this one's end: {why}"
                function.remarks.add("not-flattened", message, loop.location)
            continue
        _overlap(loop, inner, ahead)
        changed = True
    return changed


def _inner_loop(loop: For) -> For:
    """See SHAPE."""
    inner = list(loop.body.of(For))
    if len(inner) != 1:
        raise StaysError("the body has several loops" if inner else "there is no loop in the body")
    return inner[0]


def _ahead(loop: For, inner: For) -> set[Operation]:
    """The operations that run an iteration ahead: the copies before ``inner`` and what they need."""
    ahead: set[Operation] = set()
    work: list[Operation] = []
    for op in loop.body.operations:
        if op is inner:
            break
        if op.get_effects().starts in _QUEUES:
            work.append(op)
    if not work or not (loop.flatten or all(op.get_effects().starts == TENSORS for op in work)):
        raise StaysError("the loads of the loop in the body do not run ahead")
    for op in each_once(work):
        is_copy = op.get_effects().starts in _QUEUES
        is_read = op.get_effects() == READS_GLOBAL or ALLOCATES in op.traits
        if not (op.is_speculatable or is_copy or is_read):
            raise StaysError(f"they depend on '{op.name}', which cannot run for a tile before its turn")
        ahead.add(op)
        work.extend(_sources(loop, inner, op))
    return ahead


def _sources(loop: For, inner: For, op: Operation) -> list[Operation]:
    """The operations of the body that make what ``op`` uses, in this iteration or in the one before. (What
    ``inner`` hands on from there is at hand behind it.)"""
    found = []
    for nested in op.walk():
        for value in nested.operands:
            if value in loop.carried:
                value = loop.next_of(value)
                if value.defining_op is inner:
                    continue
            top = loop.body.ancestor_of(value.defining_op) if value.defining_op is not None else None
            if top is not None and top is not op:
                found.append(top)
    return found


def _check_moves(loop: For, inner: For, ahead: set[Operation]) -> None:
    """That nothing in the body minds that ``ahead`` moves over it: see AHEAD."""
    if loop.hands_on:
        raise StaysError("the loop hands a carried value on unchanged")
    read = {root_of_access(op) for op in ahead if "global" in op.get_effects().reads}
    for op in loop.body.walk():
        effects = op.get_effects()
        is_of_ring = op.parent is inner.body and (MEETING in op.traits or effects.signals == TENSORS)
        if effects.keeps_turn and not is_of_ring:
            raise StaysError(f"the body holds '{op.name}'")
        if "global" in effects.writes and (None in read or root_of_access(op) in read | {None}):
            raise StaysError("the body may write what they read")


def _has_room(function: Function, target: Target, loop: For, ahead: set[Operation]) -> bool:
    """See ROOM."""
    if not any(op.effects.fills == TENSORS for op in ahead):
        return True
    kept, scratch = room_side_by_side(function, target)
    return loop.flatten or kept + scratch <= target.shared_bytes_for_as_many_blocks(max(kept, scratch))


def room_side_by_side(function: Function, target: Target) -> tuple[int, int]:
    """The bytes of all buffers, and of the largest scratch area or of what is stored by TMA.

    Raises:
        StaysError: when shared memory has no room for both.
    """
    kept = sum(op.result.type.bytes for op in function.walk(LocalAlloc))
    scratch = max(least_bytes(function), *map(scratch_of, function.walk()))
    if kept + scratch > target.max_shared_bytes:
        raise StaysError(
            f"{kept} bytes of buffers and {scratch} of scratch have no room side by side; fewer stages or "
            "smaller blocks help"
        )
    return kept, scratch


def _overlap(loop: For, inner: For, ahead: set[Operation]) -> None:
    buffers = [op for op in loop.body.of(LocalAlloc) if op in ahead]
    keep_for_all_iterations(loop, buffers)
    ahead.difference_update(buffers)
    ahead.difference_update(hoist_scalars(loop))
    copies = [op for op in loop.body.operations if op in ahead and op.get_effects().starts in _QUEUES]
    by_tma = all(op.effects.starts == TENSORS for op in copies)
    early = _known_early(loop, ahead) if by_tma else set()
    last = 1 + bool(early)
    for op, turn in _turns(loop, inner, ahead, early, copies[-1], by_tma).items():
        op.attributes.update(stage=0 if op in early else last - (op in ahead), turn=turn)
    loop.last_stage = last
    for op in loop.body.of(TensorLoad):
        op.attributes["ordered"] = True
    if not by_tma:
        # Copies of a tile that does not exist store zeros: they too must have landed.
        Builder.after(loop).create(AsyncWait, num=0)
    expand_loop(loop)


def _turns(
    loop: For, inner: For, ahead: set[Operation], early: set[Operation], last_copy: Operation, by_tma: bool
) -> dict[Operation, int]:
    """When operations are done in a step: behind ``inner``, and waits for copies, come those of ``ahead``.
    The last product runs on until all copies by TMA have been asked for: these do not touch its tiles."""
    behind, landing = inner, set()
    while behind.next.effects.finishes in (COPIES, PRODUCTS):
        behind = behind.next
        landing.update([behind] if by_tma and behind.effects.finishes == PRODUCTS else [])
    turns: dict[Operation, int] = {}
    turn, turn_ahead = 0, 1
    for op in loop.body.operations:
        turns[op] = 4 if op in early else turn_ahead if op in ahead else 2 if op in landing else turn
        turn = 5 if op is behind else turn
        turn_ahead = 3 if op is last_copy else turn_ahead
    del turns[loop.body.terminator]
    return turns


def _known_early(loop: For, ahead: set[Operation]) -> set[Operation]:
    """See TWO AHEAD: scalars of ``ahead`` that follow from the number of the tile."""
    early: set[Operation] = set()
    known = {loop.induction}
    for op in loop.body.operations:
        own = [value for value in op.operands if value.owner_block is loop.body]
        is_scalar = op.is_speculatable and not op.regions and all(v.type is T.I32 for v in op.results)
        if op in ahead and is_scalar and own and known.issuperset(own):
            early.add(op)
            known.update(op.results)
    return early


def hoist_scalars(loop: For) -> list[Operation]:
    """Move scalars that are the same in every iteration before ``loop``, which need not carry them."""
    hoisted = []
    for op in loop.body.operations:
        if (
            op.is_speculatable
            and not op.regions
            and not op.is_terminator
            and not any(isinstance(v.type, T.TensorType) for v in op.results)
            and not any(v.owner_block is loop.body for v in op.operands)
        ):
            op.move_before(loop)
            hoisted.append(op)
    return hoisted


def keep_for_all_iterations(top: Operation, buffers: list[Operation]) -> None:
    """Allocate before ``top``, a loop, and free behind it."""
    for buffer in buffers:
        for user in list(buffer.result.users):
            if user.effects.follows:
                user.move_after(top)
        buffer.move_before(top)
