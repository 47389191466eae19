"""Tensor cores and software pipelining: a matrix product in IR text keeps its meaning through every pass, and
gets the shape that each pass promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ages import ages_at_waits
from ptxforge.ir.core import Function
from ptxforge.ir.definition import COPIES
from ptxforge.ir.ops import shared
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.layouts.encodings import Blocked, DotOperand, Mma
from ptxforge.passes.accelerate_matmul import accelerate_matmul
from ptxforge.passes.expand_loops import expand_loops
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.passes.pipeline_loops import pipeline_loops
from ptxforge.support.errors import VerificationError
from tests.passes.gemm import GEMM, product, run_until
from tests.passes.gpu import TARGET as SM_90
from tests.passes.gpu import same_meaning


def loop_of(function: Function) -> For:
    (loop,) = [op for op in function.walk() if isinstance(op, For)]
    return loop


def operations(block, kind) -> list:
    return [op for op in block.operations if isinstance(op, kind)]


@pytest.mark.parametrize("k", [0, 32, 64, 96, 320])
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("last", [accelerate_matmul, pipeline_loops, expand_loops])
def test_meaning_is_kept(last, stages, k):
    out, expected = product(run_until(last, stages), k)
    np.testing.assert_array_equal(out, expected)


def test_dot_gets_a_tensor_core_layout():
    function = run_until(accelerate_matmul)
    (dot,) = operations(loop_of(function).body, Dot)
    layout = dot.result.type.layout
    assert layout == Mma((2, 0), (2, 2), (16, 8), tiles_per_warp=(1, 4))
    assert dot.a.type.layout == DotOperand(0, layout, 2) and dot.b.type.layout == DotOperand(1, layout, 2)


def test_ieee_dots_stay_on_the_fma_units():
    text = (
        GEMM.replace("f16", "f32")
        .replace("%res = truncf %acc : (tensor<64x64xf32>) -> tensor<64x64xf32>", "")
        .replace("store %cptr, %res", "store %cptr, %acc")
    )
    for precision, layout in (("ieee", Blocked), ("tf32", Mma)):
        precise = text.replace(
            "dot %av, %bv, %x :", f'dot %av, %bv, %x {{input_precision = "{precision}"}} :'
        )
        (dot,) = operations(loop_of(run_until(accelerate_matmul, text=precise)).body, Dot)
        assert isinstance(dot.result.type.layout, layout)


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_pipelined_loop(stages):
    function = run_until(expand_loops, stages)
    loop = loop_of(function)
    assert not operations(loop.body, Load) and not operations(loop.body, ConvertLayout)
    buffers = [op.result.type for op in function.walk() if isinstance(op, shared.LocalAlloc)]
    assert [(t.shape, t.element) for t in buffers] == [((stages, 64, 32), T.F16), ((stages, 32, 64), T.F16)]
    # One wait in a step: the newest (stages - 2) iterations may be on their way, each a group of two copies.
    (wait,) = operations(loop.body, shared.AsyncWait)
    assert ages_at_waits(function, COPIES)[wait] == stages - 2
    copies = operations(function.body, shared.AsyncCopyGlobalToLocal)
    assert len(copies) == 2 * (stages - 1)
    assert len(operations(loop.body, shared.AsyncCopyGlobalToLocal)) == 2


def test_one_stage_is_not_pipelined():
    function = run_until(expand_loops, stages=1)
    assert len(operations(loop_of(function).body, Load)) == 2
    assert not any(isinstance(op, shared.AsyncCopyGlobalToLocal) for op in function.walk())


def test_volatile_loads_are_not_pipelined():
    text = GEMM.replace("%av = load %aptr :", "%av = load %aptr {volatile = true} :")
    assert not any(
        isinstance(op, shared.AsyncCopyGlobalToLocal) for op in run_until(expand_loops, text=text).walk()
    )


def test_fragments_are_carried():
    loop = loop_of(run_until(expand_loops))
    dots = operations(loop.body, Dot)
    assert [dot.a.type.shape for dot in dots] == [(64, 16), (64, 16)]
    assert dots[0].a in loop.carried and dots[0].b in loop.carried
    assert dots[1].operands[2] is dots[0].result
    # The next tile is waited for before the last slice multiplies, and its first fragments are read there.
    (wait,) = operations(loop.body, shared.AsyncWait)
    assert dots[0].is_before_in_block(wait) and wait.is_before_in_block(dots[1])
    yielded = [v.defining_op for v in loop.body.terminator.values]
    assert sum(isinstance(op, shared.LocalLoad) and op.token is wait.result for op in yielded) == 2


def test_result_is_stored_sixteen_bytes_at_a_time():
    (store,) = [op for op in run_until(PIPELINE[-1].function).walk() if isinstance(op, Store)]
    assert store.attributes["vector"] * 2 == 16


SCHEDULED = Path(__file__).parents[1] / "tir" / "schedule.tir"


@pytest.mark.parametrize("ahead", [1, 2, 3, 5])
def test_a_schedule_of_any_depth_is_obeyed(ahead):
    """What the text says is done: as many buffers as copies may be under way, and one more; the loop keeps
    its meaning."""
    text = SCHEDULED.read_text().split("// gives:\n")[1].partition("// ----")[0]
    text = text.replace("last_stage = 2, distance = 2", f"last_stage = {ahead}, distance = {ahead}")
    before = parse_function(text)
    after = before.clone()
    for carry_out in (pipeline_loops, expand_loops):
        assert carry_out(after, SM_90)
        verify(after)
    (buffer,) = [op for op in after.walk() if isinstance(op, LocalAlloc)]
    assert buffer.result.type.shape == (ahead + 1, 16, 16)
    assert not any({"stage", "turn", "last_stage", "distance"} & op.attributes.keys() for op in after.walk())
    same_meaning(before, after, {"n": 4})


@pytest.mark.parametrize("wrong", ["stage = 3", "stage = -1", "stage = true"])
def test_a_stage_that_the_loop_does_not_have_is_refused(wrong):
    text = SCHEDULED.read_text().split("// gives:\n")[1].partition("// ----")[0]
    with pytest.raises(VerificationError, match="attribute 'stage' cannot be"):
        verify(parse_function(text.replace("stage = 0", wrong)))


def test_a_stage_stands_in_scheduled_loops_only():
    text = SCHEDULED.read_text().split("// gives:\n")[1].partition("// ----")[0]
    with pytest.raises(VerificationError, match="no attribute .(group|stage). is declared"):
        verify(parse_function(text.replace("{last_stage = 2, distance = 2} ", "")))
