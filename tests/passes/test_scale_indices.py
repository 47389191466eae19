"""scale_indices: what loops count to choose buffers, they count in bytes."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge import interpreter
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.shared import InRing, MemDescIndex
from ptxforge.ir.verifier import verify
from ptxforge.passes.analysis.sign import is_nonnegative, limits
from ptxforge.passes.scale_indices import scale_indices
from ptxforge.support.errors import VerificationError
from tests.passes.gemm import GEMM, product, run_until
from tests.passes.gpu import apply, operations, parse

PITCH = (64 * 32 + 32 * 64) * 2


def choices(function: Function, inside: bool) -> list[MemDescIndex]:
    return [op for op in operations(function, MemDescIndex) if isinstance(op.parent_op, For) is inside]


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_the_loop_counts_bytes(stages):
    function = run_until(scale_indices, stages, text=GEMM)
    assert choices(function, inside=True) and all(op.pitch == PITCH for op in choices(function, inside=True))
    assert all(op.pitch == 0 for op in choices(function, inside=False)), "constants stay numbers of buffers"
    (loop,) = operations(function, For)
    counted = {op.index for op in choices(function, inside=True)} & set(loop.carried)
    starts = {loop.initial[v.index - 1].defining_op.value for v in counted}
    assert starts <= {i * PITCH for i in range(stages)} and len(starts) == len(counted) == 2


@pytest.mark.parametrize("k", [0, 32, 64, 160])
def test_the_meaning_is_kept(k):
    found, expected = product(run_until(scale_indices, 3), k)
    np.testing.assert_array_equal(found, expected)


COUNTER = """%c0 = constant {{value = 0}} : i32
%c1 = constant {{value = 1}} : i32
%a = local_alloc : () -> memdesc<3x1024xf32, {shared}, mutable>
%last = for %k = %c0 to %n step %c1 iter_args(%i = %c0) : i32 {{
  %m = memdesc_index %a, %i : (memdesc<3x1024xf32, {shared}, mutable>, i32)
      -> memdesc<1024xf32, {shared}, mutable>
  %v = local_load %m : (memdesc<1024xf32, {shared}, mutable>) -> tensor<1024xf32, {blocked}>
  {more}
  %next = next_slot %i {{count = 3}} : i32
  yield {result}
}}
"""


def pitches(more: str = "", result: str = "%next", counter: str = COUNTER) -> list[int]:
    text = counter.format(shared="#shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>",
                          blocked="#blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>",  # noqa: E501
                          more=more, result=result)  # fmt: skip
    return [op.pitch for op in operations(apply(parse(text), scale_indices), MemDescIndex)]


def test_one_tile_counts_in_its_own_size():
    assert pitches() == [4096]


def test_counters_with_other_uses_are_left_alone():
    assert pitches(
        more="%p = addptr %x, %i : ptr<f32>\n%s = load %p : (ptr<f32>) -> f32\nstore %p, %s : (ptr<f32>, f32)"
    ) == [0]


def test_other_counters_are_left_alone():
    assert pitches(more="%other = addi %i, %c1 : i32", result="%other") == [0]
    assert pitches(more="%phase = next_phase %c0, %i {count = 3} : i32") == [0]
    assert pitches(more="%unused = next_slot %i {count = 3} : i32", result="%i") == [0]


def test_slots_that_two_carried_values_become_are_left_alone():
    """The other one would count buffers, the slot bytes."""
    text = COUNTER.replace("%last = for", "%last, %other = for")
    text = text.replace("(%i = %c0) : i32", "(%i = %c0, %j = %c0) : i32, i32")
    assert pitches(result="%next, %next", counter=text) == [0]
    assert pitches(result="%next, %c0", counter=text) == [4096]


@pytest.mark.parametrize(("count", "step"), [(0, 1), (3, 0), (3, -4)])
def test_rings_have_buffers_apart(count, step):
    text = f"%t = next_slot %n {{count = {count}, step = {step}}} : i32"
    with pytest.raises(VerificationError, match="invariant 9 .*'next_slot' in a ring of"):
        verify(parse(text, "%n: i32"))


def test_slots_and_phases_are_in_the_ring():
    """Whatever they are computed from."""
    body = "%t = next_slot %n {count = 3, step = 48} : i32\n%q = next_phase %n, %t {count = 3} : i32"
    function = parse(body, "%n: i32")
    slot, phase = (op.result for op in operations(function, InRing))
    assert (limits(slot), limits(phase)) == ((0, 96), (0, 1))
    assert is_nonnegative(slot) and is_nonnegative(phase)


def test_slots_and_phases_go_round():
    """Numbers of buffers and bytes alike."""
    for step in (1, 48):
        body = "%c0 = constant {value = 0} : i32\n%c1 = constant {value = 1} : i32\n"
        body += "%slot, %phase = for %k = %c0 to %n step %c1 iter_args(%s = %c0, %p = %c0) : i32, i32 {\n"
        body += f"%t = next_slot %s {{count = 3, step = {step}}} : i32\n"
        body += f"%q = next_phase %p, %s {{count = 3, step = {step}}} : i32\nyield %t, %q\n}}\n"
        body += "%one = addptr %out, %c1 : ptr<i32>\nstore %out, %slot : (ptr<i32>, i32)\n"
        function = parse(body + "store %one, %phase : (ptr<i32>, i32)", "%out: ptr<i32>, %n: i32")
        for n in range(8):
            out = np.zeros(2, np.int32)
            interpreter.run(function, 1, [out, n])
            assert out.tolist() == [n % 3 * step, n // 3 % 2]
