"""A loop over tiles whose next copies start before the present tile is stored."""

from __future__ import annotations

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import frontend
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Store
from ptxforge.ir.ops.shared import AsyncCopyGlobalToLocal, LocalAlloc
from ptxforge.passes.expand_loops import expand_loops
from ptxforge.passes.flatten_loops import flatten_loops
from ptxforge.passes.insert_barriers import insert_barriers
from tests.passes import gpu

SIZES = {"N": 128, "K": 96, "tiles": 3, "stride": 96}


@ptxforge.jit
def products(a, b, c, flags, tiles, K, stride, FLATTEN: tl.constexpr, KIND: tl.constexpr):
    """c[32 · tile :][:32, :32] = a[32 · tile :][:32, :K] @ b[:K, :32] for the program's tiles; variants that
    may not run ahead are told by KIND."""
    i, k = tl.arange(0, 32), tl.arange(0, 32)
    shift = 0
    src, dst = a, c
    acc = tl.zeros((32, 32), tl.float32)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        row = tile * 32
        if KIND == "counted":
            row += tl.load(flags + tile) * 0
        if KIND == "queued":
            row += tl.atomic_add(flags, 0) * 0
        if KIND == "dependent":
            row += shift
        if KIND == "chosen":
            if stride > 0:
                row = tile * 32
            else:
                row = tile
        if KIND == "halved":
            left = tiles - tile
            while left != 1:
                left = left // 2
            row *= left
        a_tile = src + (row + i)[:, None] * stride + k[None, :]
        b_tile = b + k[:, None] * 32 + i[None, :]
        if KIND != "summed":
            acc = tl.zeros((32, 32), tl.float32)
        for _ in range(0, K, 32):
            acc = tl.dot(tl.load(a_tile), tl.load(b_tile), acc)
            a_tile += 32
            b_tile += 32 * 32
        shift = (tl.max(tl.max(acc, 1), 0) > 1e30).to(tl.int32)
        place = (row + i)[:, None] * 32 + i[None, :]
        tl.store((a if KIND == "in place" else dst) + place, acc)
        if KIND == "swapped":
            old = src
            src, dst = dst + stride * 0, old + stride * 0
        if KIND == "flagged":
            tl.atomic_add(flags, 1)
        if KIND == "barrier":
            tl.debug_barrier()


def built(last, kind: str = "", flatten: bool = True) -> Function:
    """``products`` after the passes up to ``last``."""
    signature = {name: "*fp32:16" for name in "abc"} | {"flags": "*i32:16"}
    signature |= {"tiles": "i32", "K": "i32:16", "stride": "i32:16"}
    function = frontend.build(
        products, signature, {"FLATTEN": flatten, "KIND": kind}, target="sm_90a", num_warps=4, num_stages=3)
    return gpu.up_to(function, last)


def loops(function: Function) -> tuple[For, For]:
    outer, inner = gpu.operations(function, For)
    return outer, inner


def runs_ahead(function: Function) -> bool:
    """Whether the outer loop starts copies behind the inner one, and none before it."""
    outer, inner = loops(function)
    here = [op for op in outer.body.operations if isinstance(op, AsyncCopyGlobalToLocal)]
    behind = [inner.is_before_in_block(op) for op in here]
    assert all(behind) or not any(behind)
    return all(behind)


def test_copies_come_before_the_store():
    function = built(flatten_loops)
    outer, inner = loops(function)
    assert runs_ahead(function)
    (store,) = gpu.operations(function, Store)
    copies = [op for op in outer.body.operations if isinstance(op, AsyncCopyGlobalToLocal)]
    assert len(copies) == 4
    assert all(op.is_before_in_block(store) for op in copies)
    first = [op for op in gpu.operations(function, AsyncCopyGlobalToLocal) if op.is_before_in_block(outer)]
    assert len(first) == 4


def test_buffers_live_as_long_as_the_loop():
    function = built(flatten_loops)
    outer, _ = loops(function)
    assert all(op.is_before_in_block(outer) for op in gpu.operations(function, LocalAlloc))


def test_what_is_the_same_for_all_tiles_is_not_carried():
    """Two pointers into A and B, which the next tile's steps begin with, at the most."""
    outer, _ = loops(built(insert_barriers))
    assert len(outer.carried) <= 6


@pytest.mark.parametrize("kind", ["", "counted", "summed", "chosen"])
def test_may(kind):
    assert runs_ahead(built(flatten_loops, kind))


@pytest.mark.parametrize("kind", [
    "in place", "swapped", "queued", "flagged", "barrier", "dependent", "halved"
])  # fmt: skip
def test_may_not(kind):
    """What is stored may be loaded; atomics and barriers, which order memory; addresses from results; a loop
    that would not end for the tile after the last."""
    function = built(flatten_loops, kind)
    assert not runs_ahead(function)
    (remark,) = [remark for remark in function.remarks if remark.kind == "not-flattened"]
    assert WHY[kind] in remark.message


WHY = {
    "in place": "the body may write what they read", "swapped": "hands a carried value on unchanged",
    "queued": "the body holds 'atomic_rmw'", "flagged": "the body holds 'atomic_rmw'",
    "barrier": "the body holds 'barrier'", "dependent": "they depend on 'for'",
    "halved": "they depend on 'while'",
}  # fmt: skip


def test_is_asked_for():
    assert not runs_ahead(built(flatten_loops, flatten=False))


@pytest.mark.parametrize("kind", [
    "", "counted", "summed", "chosen", "in place", "swapped", "dependent", "halved"
])  # fmt: skip
@pytest.mark.parametrize("last", [flatten_loops, insert_barriers])
@pytest.mark.parametrize("tiles, K", [(0, 96), (1, 96), (5, 96), (4, 32), (3, 0)])
def test_meaning_is_kept(tiles, K, last, kind):
    """No tile, one, several for a program; steps fewer than stages, and none."""
    before = built(expand_loops, kind, flatten=False)
    gpu.same_meaning(
        before, built(last, kind), {"tiles": tiles, "K": K, "stride": 96}, grid=2, seeds=[0], rtol=1e-4)
