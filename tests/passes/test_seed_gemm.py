"""The GEMM of the literature, followed through every pass.

The kernel is the plain one: 16x8 results from 16x16 and 16x8 tiles of f16, K = 64, one warp. What each pass
makes of it is compared with what Triton's passes are documented to make of it: the same layouts, three
buffers, a wait for all but the youngest copies (there in a group per tile, ``num = 2``, here in one per
iteration, ``num = 1``) and values carried around the loop. The second half does the same for the
pipelined loop with a scaled operand and bounds that are known at run time only.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.compiler import compile_function
from ptxforge.debug import check_passes
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.ops.arith import AddF, AddI, CmpI, MulF, MulI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import AddPtr, Barrier, Load, Store
from ptxforge.ir.ops.shape import Constant, Splat
from ptxforge.ir.ops.shared import (
    AsyncCommitGroup,
    AsyncCopyGlobalToLocal,
    AsyncWait,
    LocalAlloc,
    LocalDealloc,
    LocalLoad,
    MemDescIndex,
    MemDescSubslice,
    NextSlot,
)
from ptxforge.ir.parser import parse_function
from ptxforge.layouts.encodings import Blocked, DotOperand, Mma, Slice

BLOCKED_A = Blocked(size_per_thread=(1, 8), threads_per_warp=(16, 2), warps_per_cta=(1, 1), order=(1, 0))
BLOCKED_B = Blocked(size_per_thread=(1, 1), threads_per_warp=(4, 8), warps_per_cta=(1, 1), order=(1, 0))


def matmul_kernel(
    a_ptr, b_ptr, c_ptr, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.arange(0, BLOCK_SIZE_M)
    offs_n = tl.arange(0, BLOCK_SIZE_N)
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_SIZE_K):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        accumulator += tl.dot(a, b)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, accumulator)


UNITS = {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
ALIGNED = {
    "a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp32:16",
    "stride_am": "i32:16", "stride_bk": "i32:16", "stride_cm": "i32:16",
}  # fmt: skip
UNALIGNED_B = ALIGNED | {"stride_bk": "i32", "stride_cm": "i32"}
"""Rows of b and c begin anywhere: Triton's text has this signature, and copies b without ``cp.async``."""


def constants(m: int = 16, n: int = 8, block_k: int = 16, k: int = 64) -> dict[str, int]:
    return UNITS | {"M": m, "N": n, "K": k, "BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": block_k}


class Compiled:
    """A kernel's IR by stage: ``at(pass)`` after its first run, ``at(pass, last=True)`` after its last."""

    def __init__(self, kernel, signature, constants, **options):
        self.artifact = compile_function(kernel, signature, constants, **options)

    def at(self, name: str, last: bool = False) -> Function:
        texts = [text for stage, text in self.artifact.stages if stage == name]
        return parse_function(texts[-1 if last else 0])

    def before(self, name: str) -> Function:
        names = [stage for stage, _ in self.artifact.stages]
        return parse_function(self.artifact.stages[names.index(name) - 1][1])


@pytest.fixture(scope="module")
def gemm() -> Compiled:
    return Compiled(matmul_kernel, ALIGNED, constants(), num_warps=1)


@pytest.fixture(scope="module")
def deep_gemm() -> Compiled:
    """With tiles that are two instructions deep."""
    return Compiled(matmul_kernel, ALIGNED, constants(block_k=32), num_warps=1)


# -- reading IR -------------------------------------------------------------------------------------------


def only(function: Function, kind: type[Operation]) -> Operation:
    (found,) = (op for op in function.walk() if isinstance(op, kind))
    return found


def inside(loop: For, *kinds: type[Operation]) -> list[Operation]:
    return [op for op in loop.body.operations if not kinds or isinstance(op, kinds)]


def outside(function: Function, *kinds: type[Operation]) -> list[Operation]:
    return [op for op in function.body.operations if isinstance(op, kinds)]


def before(loop: For, *kinds: type[Operation]) -> list[Operation]:
    return [op for op in loop.parent.operations if isinstance(op, kinds) and op.is_before_in_block(loop)]


def after(loop: For, *kinds: type[Operation]) -> list[Operation]:
    return [op for op in loop.parent.operations if isinstance(op, kinds) and loop.is_before_in_block(op)]


def number(value: Value) -> object:
    """The value of a constant."""
    assert isinstance(value.defining_op, Constant), value.defining_op
    return value.defining_op.value


def initial_of(argument: Value, loop: For) -> Value:
    assert isinstance(argument, BlockArgument) and argument.block is loop.body
    return loop.initial[argument.index - 1]


def next_of(argument: Value, loop: For) -> Value:
    return loop.body.terminator.values[argument.index - 1]


def kinds_of(ops: list[Operation]) -> list[str]:
    return [op.name for op in ops]


# -- tile stage -------------------------------------------------------------------------------------------


def test_the_tile_ir_is_the_source(gemm):
    function = gemm.at("cse")
    loop = only(function, For)
    assert [number(v) for v in (loop.lower, loop.upper, loop.step)] == [0, 64, 16]
    carried = {str(argument.type) for argument in loop.carried}
    assert carried == {"tensor<16x8xf32>", "tensor<16x16xptr<f16>>", "tensor<16x8xptr<f16>>"}
    expected = ["load", "load", "dot", "constant", "addptr", "muli", "splat", "addptr", "yield"]
    assert kinds_of(inside(loop)) == expected


def test_combine_lets_the_dot_add(gemm):
    assert inside(only(gemm.at("frontend"), For), AddF)
    loop = only(gemm.at("combine"), For)
    (dot,) = inside(loop, Dot)
    assert not inside(loop, AddF)
    assert dot.c in loop.carried and next_of(dot.c, loop) is dot.result
    assert number(initial_of(dot.c, loop)) == 0


def test_licm_hoists_the_step_of_b(gemm):
    loop = only(gemm.before("licm"), For)
    assert kinds_of(inside(loop, MulI, Splat)) == ["muli", "splat"]
    function = gemm.at("licm")
    loop = only(function, For)
    assert not inside(loop, MulI, Splat, Constant)
    steps = [op.offset.defining_op for op in inside(loop, AddPtr)]
    (splat,) = (op for op in steps if isinstance(op, Splat))
    product = splat.value.defining_op
    assert isinstance(product, MulI) and {o.hint for o in product.operands} >= {"stride_bk"}
    assert splat in before(loop, Splat) and product in before(loop, MulI)
    assert kinds_of(inside(loop)) == ["load", "load", "dot", "addptr", "addptr", "yield"]


def test_pointers_become_a_moving_scalar_and_fixed_offsets(gemm):
    loop = only(gemm.at("canonicalize_pointers"), For)
    assert sorted(str(a.type) for a in loop.carried) == ["ptr<f16>", "ptr<f16>", "tensor<16x8xf32>"]


# -- layouts ----------------------------------------------------------------------------------------------


def tensors(function: Function) -> list[T.TensorType]:
    return [r.type for op in function.walk() for r in op.results if isinstance(r.type, T.TensorType)]


def test_every_tensor_gets_a_blocked_layout(gemm):
    assert {type.layout for type in tensors(gemm.before("assign_layouts"))} == {None}
    function = gemm.at("assign_layouts")
    layouts = [type.layout for type in tensors(function)]
    assert all(isinstance(layout, (Blocked, Slice, DotOperand)) for layout in layouts)
    blocked = [layout for layout in layouts if isinstance(layout, Blocked)]
    assert {layout.warps_per_cta for layout in blocked} <= {(1,), (1, 1)}
    assert {np.prod(layout.threads_per_warp) for layout in blocked} == {32}
    dot = only(function, Dot)
    assert isinstance(dot.result.type.layout, Blocked)
    assert [(v.type.layout.op_idx, v.type.layout.parent) for v in (dot.a, dot.b)] == [
        (0, dot.result.type.layout), (1, dot.result.type.layout),
    ]  # fmt: skip
    assert all(isinstance(v.defining_op, ConvertLayout) for v in dot.operands)


def test_loads_are_coalesced():
    """Eight f16 a thread where rows are known to be aligned; one where they may begin anywhere."""
    function = Compiled(matmul_kernel, UNALIGNED_B, constants(), num_warps=1).at("coalesce")
    a, b = inside(only(function, For), Load)
    assert a.result.type.layout == BLOCKED_A
    assert b.result.type.layout == BLOCKED_B
    assert only(function, Store).pointer.type.layout == BLOCKED_B


def test_coalescing_keeps_every_thread_busy(gemm):
    """b is only 16x8: eight neighbours each would leave half of the warp without work."""
    a, b = inside(only(gemm.at("coalesce"), For), Load)
    assert a.result.type.layout == BLOCKED_A
    assert b.result.type.layout.size_per_thread == (1, 4)
    assert b.result.type.layout.threads_per_warp == (16, 2)


def test_the_dot_moves_to_tensor_cores(gemm):
    function = gemm.at("accelerate_matmul")
    dot = only(function, Dot)
    mma = dot.result.type.layout
    assert isinstance(mma, Mma) and mma.version == (2, 0) and mma.warps_per_cta == (1, 1)
    for index, operand in enumerate((dot.a, dot.b)):
        layout = operand.type.layout
        assert (layout.op_idx, layout.parent, layout.k_width) == (index, mma, 2)
        assert isinstance(operand.defining_op, ConvertLayout)
    assert dot.c.type is dot.result.type
    (back,) = dot.result.users
    assert isinstance(back, ConvertLayout) and isinstance(back.result.type.layout, Blocked)


def test_the_loop_keeps_two_conversions_and_the_epilogue_one(gemm):
    function = gemm.at("remove_layout_conversions")
    loop, dot = only(function, For), only(function, Dot)
    conversions = inside(loop, ConvertLayout)
    assert {op.result for op in conversions} == {dot.a, dot.b}
    assert all(isinstance(op.operands[0].defining_op, Load) for op in conversions)
    assert dot.c in loop.carried and next_of(dot.c, loop) is dot.result
    assert isinstance(initial_of(dot.c, loop).defining_op, Constant)
    store = only(function, Store)
    (last,) = outside(function, ConvertLayout)
    assert last.result is store.value and last.operands[0].defining_op is loop
    assert isinstance(last.operands[0].type.layout, Mma) and isinstance(last.result.type.layout, Blocked)


def test_accesses_get_their_widths(gemm):
    function = gemm.at("vectorize_memory")
    a, b = inside(only(function, For), Load)
    assert [op.attributes["vector"] for op in (a, b)] == [8, 4]
    assert only(function, Store).attributes["vector"] == 4  # 16 bytes of f32


# -- pipelining -------------------------------------------------------------------------------------------


def buffer_of(view: Value) -> LocalAlloc:
    index = view.defining_op
    assert isinstance(index, MemDescIndex)
    return index.source.defining_op


def assert_counts_to_three(argument: Value, loop: For, first: int) -> None:
    """0, 1, 2, 0, … from ``first``."""
    assert number(initial_of(argument, loop)) == first
    following = next_of(argument, loop).defining_op
    assert isinstance(following, NextSlot) and following.slot is argument
    assert (following.count, following.step) == (3, 1)


def test_operands_get_three_buffers(gemm):
    function = gemm.at("expand_loops")
    a, b = outside(function, LocalAlloc)
    assert [op.result.type.shape for op in (a, b)] == [(3, 16, 16), (3, 16, 8)]
    assert all(op.result.type.mutable for op in (a, b))
    one, other = (op.result.type.layout for op in (a, b))
    assert (one.vec, one.per_phase, one.max_phase, one.order) == (8, 4, 2, (1, 0))
    assert (other.vec, other.per_phase, other.max_phase, other.order) == (8, 8, 1, (1, 0))


def test_two_iterations_are_copied_before_the_loop(gemm):
    function = gemm.at("cse", last=True)
    loop = only(function, For)
    a, b = before(loop, LocalAlloc)
    copies = before(loop, AsyncCopyGlobalToLocal)
    places = [(buffer_of(op.destination), number(op.destination.defining_op.index)) for op in copies]
    assert places == [(a, 0), (b, 0), (a, 1), (b, 1)]
    groups = [[token.defining_op for token in op.operands] for op in before(loop, AsyncCommitGroup)]
    assert groups == [copies[:2], copies[2:]], "a group per iteration"
    assert not inside(loop, Load), "nothing is loaded to registers"


def test_the_steady_state(gemm):
    """Wait for all but the youngest group, read, multiply, copy the tiles after the next."""
    loop = only(gemm.at("count_groups"), For)
    order = kinds_of(inside(loop, AsyncWait, LocalLoad, Dot, AsyncCopyGlobalToLocal, AsyncCommitGroup))
    copies = ["async_copy_global_to_local", "async_copy_global_to_local", "async_commit_group"]
    assert order == ["async_wait", "local_load", "local_load", "dot", *copies]
    (wait,) = inside(loop, AsyncWait)
    assert wait.num == 1
    (dot,) = inside(loop, Dot)
    read = [v.defining_op for v in (dot.a, dot.b)]
    assert all(isinstance(op, LocalLoad) and op.token is wait.result for op in read)
    (read_at,) = {op.source.defining_op.index for op in read}
    copies = inside(loop, AsyncCopyGlobalToLocal)
    (copied_to,) = {op.destination.defining_op.index for op in copies}
    assert_counts_to_three(read_at, loop, first=0)
    assert_counts_to_three(copied_to, loop, first=2)
    assert [buffer_of(op.destination) for op in copies] == [buffer_of(op.source) for op in read]
    assert dot.c in loop.carried and next_of(dot.c, loop) is dot.result


def test_copies_beyond_the_end_are_masked_off(gemm):
    loop = only(gemm.at("canonicalize", last=True), For)
    for copy in inside(loop, AsyncCopyGlobalToLocal):
        flag = copy.mask.defining_op.operands[0].defining_op
        assert isinstance(flag, CmpI) and flag.predicate == "slt" and flag.operands[1] is loop.upper
        ahead = flag.operands[0].defining_op
        assert isinstance(ahead, AddI) and ahead.operands[0] is loop.induction
        assert number(ahead.operands[1]) == 2 * 16


def test_nothing_is_in_flight_after_the_loop(gemm):
    function = gemm.at("expand_loops")
    loop = only(function, For)
    (wait,) = after(loop, AsyncWait)
    assert wait.num == 0
    freed = after(loop, LocalDealloc)
    assert {op.source.defining_op for op in freed} == set(before(loop, LocalAlloc))
    assert all(wait.is_before_in_block(op) for op in freed)


def test_one_barrier_a_step(gemm, deep_gemm):
    for compiled in (gemm, deep_gemm):
        loop = only(compiled.at("insert_barriers"), For)
        (barrier,) = inside(loop, Barrier)
        (wait,) = inside(loop, AsyncWait)
        assert wait.is_before_in_block(barrier)
        reads = [op for op in inside(loop, LocalLoad) if op.token is wait.result]
        assert len(reads) == 2 and all(barrier.is_before_in_block(op) for op in reads)


def test_rows_that_are_not_aligned_are_not_copied_asynchronously():
    """``cp.async`` moves 4 bytes at least: b, whose rows begin anywhere, is loaded and stays correct."""
    compiled = Compiled(matmul_kernel, UNALIGNED_B, constants(), num_warps=1)
    loop = only(compiled.at("count_groups"), For)
    assert len(inside(loop, AsyncCopyGlobalToLocal)) == 1 and len(inside(loop, Load)) == 1
    assert inside(loop, AsyncWait)[0].num == 1


# -- slices ---------------------------------------------------------------------------------------------


def subslice_of(read: LocalLoad) -> MemDescSubslice:
    view = read.source.defining_op
    assert isinstance(view, MemDescSubslice)
    return view


def fragments(loop: For) -> list[Value]:
    """The operands of products that a loop carries."""
    return [a for a in loop.carried if isinstance(getattr(a.type, "layout", None), DotOperand)]


def test_fragments_are_carried_around_the_loop(deep_gemm):
    loop = only(deep_gemm.at("count_groups"), For)
    added = fragments(loop)
    assert [(a.type.shape, a.type.layout.op_idx) for a in added] == [((16, 16), 0), ((16, 8), 1)]
    for argument in added:
        first = initial_of(argument, loop).defining_op
        assert isinstance(first, LocalLoad) and first.token.defining_op.num == 1
        assert subslice_of(first).offsets == (0, 0)
        assert number(subslice_of(first).source.defining_op.index) == 0
    first_dot = inside(loop, Dot)[0]
    assert [first_dot.a, first_dot.b] == added


def test_the_dot_is_cut_along_k(deep_gemm):
    loop = only(deep_gemm.at("expand_loops"), For)
    one, two = inside(loop, Dot)
    assert two.c is one.result and one.c in loop.carried and next_of(one.c, loop) is two.result
    reads = [v.defining_op for v in (two.a, two.b)]
    assert [subslice_of(op).offsets for op in reads] == [(0, 16), (16, 0)]
    assert all(op.is_before_in_block(one) for op in reads), "on their way when the dot before theirs begins"


def test_the_next_tiles_fragments_are_read_before_the_last_slice(deep_gemm):
    loop = only(deep_gemm.at("count_groups"), For)
    one, two = inside(loop, Dot)
    (wait,) = inside(loop, AsyncWait)
    assert wait.num == 1 and one.is_before_in_block(wait) and wait.is_before_in_block(two)
    current = {subslice_of(v.defining_op).source.defining_op.index for v in (two.a, two.b)}
    for argument in (one.a, one.b):
        read = next_of(argument, loop).defining_op
        assert read.token is wait.result and subslice_of(read).offsets == (0, 0)
        assert wait.is_before_in_block(read) and read.is_before_in_block(two)
        (index,) = current
        assert subslice_of(read).source.defining_op.index is next_of(index, loop)


def test_a_tile_of_one_slice_has_nothing_to_read_ahead(gemm):
    loop = only(gemm.at("expand_loops"), For)
    assert len(inside(loop, Dot)) == 1 and not fragments(loop)


# -- the end of the road ----------------------------------------------------------------------------------


def test_the_ptx_has_the_wide_instructions(deep_gemm, assemble):
    ptx = deep_gemm.artifact.ptx
    loop = ptx[ptx.index("$for_") : ptx.index("$for_end")]
    assert loop.count("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") == 2
    assert loop.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 2
    assert loop.count("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16") == 2
    assert len(re.findall(r"cp\.async\.cg\.shared\.global \[.*\], \[.*\], 16", loop)) == 3  # 2 of a, 1 of b
    assert loop.count("cp.async.wait_group 1;") == 1 and loop.count("bar.sync") == 1
    assert "ld.global" not in ptx and "st.shared" not in ptx
    assert ptx.count("st.global.v4.b32") == 1 == ptx.count("st.global")  # a thread's four results, 16 bytes
    assemble(ptx)


@pytest.mark.parametrize(
    ("m", "n", "block_k", "num_warps", "signature"),
    [(16, 8, 16, 1, ALIGNED), (16, 8, 16, 1, UNALIGNED_B), (16, 8, 32, 1, ALIGNED), (64, 32, 32, 4, ALIGNED)],
    ids=["16", "16-unaligned", "32", "64x32x32"],
)
def test_every_stage_computes_the_same(m, n, block_k, num_warps, signature):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, 64), (64, n)))
    strides = {"stride_am": 64, "stride_bk": n, "stride_cm": n}
    arguments = {"a_ptr": a, "b_ptr": b, "c_ptr": np.zeros((m, n), np.float32)} | strides
    passes = check_passes(
        matmul_kernel, arguments, signature=signature, constants=constants(m, n, block_k), num_warps=num_warps
    )
    changed = {one.name for one in passes if one.changed}
    assert changed >= {"licm", "assign_layouts", "coalesce", "accelerate_matmul"}
    assert changed >= {"pipeline_loops", "expand_loops"}
    assert max(one.difference for one in passes) < 1e-4


@pytest.mark.parametrize("block_k", [16, 32])
def test_it_multiplies(block_k, devices):
    """Small integers: every product and sum is exact."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((16, 64), (64, 16)))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    tile = Compiled(matmul_kernel, ALIGNED, constants(n=16, block_k=block_k)).before("assign_layouts")
    out = np.zeros((16, 16), np.float32)
    interpreter.run(tile, 1, [a, b, out, 64, 16, 16])
    np.testing.assert_array_equal(out, expected)
    kernel = ptxforge.compile(matmul_kernel)
    for device in devices:
        x, y, z = (ptxforge.to_device(v, device) for v in (a, b, np.zeros((16, 16), np.float32)))
        kernel[(1,)](x, y, z, 64, 1, 16, 1, 16, 1, 64, 16, 64, 16, 16, block_k, num_warps=1)
        np.testing.assert_array_equal(z.numpy(), expected)


# -- a scaled operand, bounds known at run time -----------------------------------------------------------


def scaled_kernel(a, b, c, lower, upper, step, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """c = Σ a_tile @ (4 · b_tile) over lower, lower + step, … < upper; each iteration takes new tiles."""
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    k = tl.arange(0, K)
    a_tile = a + i[:, None] * K + k[None, :]
    b_tile = b + k[:, None] * N + j[None, :]
    acc = tl.zeros((M, N), tl.float32)
    for _ in range(lower, upper, step):
        acc = tl.dot(tl.load(a_tile), tl.load(b_tile) * 4.0, acc)
        a_tile += M * K
        b_tile += K * N
    tl.store(c + i[:, None] * N + j[None, :], acc)


SCALED = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "lower": "i32", "upper": "i32", "step": "i32"}


@pytest.fixture(scope="module")
def scaled() -> Compiled:
    return Compiled(scaled_kernel, SCALED, {"M": 32, "N": 32, "K": 32})


def test_copies_before_the_loop_are_masked_by_its_bounds(scaled):
    """The first by ``lower < upper``, the second by ``lower + step < upper``."""
    function = scaled.at("canonicalize", last=True)
    loop = only(function, For)
    flags = [op.mask.defining_op.operands[0].defining_op for op in before(loop, AsyncCopyGlobalToLocal)]
    assert len(flags) == 4
    assert all(isinstance(f, CmpI) and f.predicate == "slt" and f.operands[1] is loop.upper for f in flags)
    first, second = flags[:2], flags[2:]
    assert {f.operands[0] for f in first} == {loop.lower}
    for flag in second:
        later = flag.operands[0].defining_op
        assert isinstance(later, AddI) and list(later.operands) == [loop.lower, loop.step]


def test_the_scaled_operand_is_read_from_its_buffer_too(scaled):
    loop = only(scaled.at("count_groups"), For)
    (wait,) = inside(loop, AsyncWait)
    assert wait.num == 1 and not inside(loop, Load)
    ahead, beside = inside(loop, MulF)
    (first,) = (next_of(v, loop).defining_op for v in ahead.operands if v in loop.carried)
    (second,) = (v.defining_op for v in beside.operands if isinstance(v.defining_op, LocalLoad))
    buffers = {buffer_of(subslice_of(read).source).result.type.shape for read in (first, second)}
    assert first.token is wait.result and buffers == {(3, 32, 32)}


RANGES = [(0, 0, 1), (0, 1, 1), (3, 5, 1), (0, 7, 1), (-3, 8, 4), (5, 2, 1)]


@pytest.mark.parametrize(("lower", "upper", "step"), RANGES)
def test_any_number_of_iterations(scaled, lower, upper, step, devices):
    count = len(range(lower, upper, step))
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-8, 9, (max(count, 1), 32, 32)).astype(np.float16) for _ in range(2))
    expected = np.zeros((32, 32), np.float32)
    for i in range(count):
        expected += a[i].astype(np.float32) @ (4 * b[i].astype(np.float32))
    for name in ("dce", "expand_loops", "insert_barriers"):
        out = np.ones((32, 32), np.float32)
        interpreter.run(scaled.at(name), 1, [a, b, out, lower, upper, step])
        np.testing.assert_array_equal(out, expected)
    kernel = ptxforge.compile(scaled_kernel)
    for device in devices:
        x, y, z = (ptxforge.to_device(v, device) for v in (a, b, np.ones((32, 32), np.float32)))
        kernel[(1,)](x, y, z, lower, upper, step, M=32, N=32, K=32)
        np.testing.assert_array_equal(z.numpy(), expected)
