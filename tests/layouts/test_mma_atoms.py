from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxforge.layouts.encodings import (
    Blocked,
    DotOperand,
    Mma,
    elements_per_thread,
)
from ptxforge.layouts.mma_atoms import plan_ldmatrix
from ptxforge.layouts.panels import Panels
from ptxforge.layouts.shared import Shared
from ptxforge.layouts.swizzle import swizzle_for_dot_operand

from .layout_strategies import distributed, elements, in_shared_memory


def matrix_of_lane(row_of, lane, trans):
    """The two 16-bit values that a lane gets of one matrix, by the instruction's definition; ``row_of[i]``
    are the 8 values that addressing lane i points at."""
    group, thread = divmod(lane, 4)
    if trans:
        return row_of[2 * thread][group], row_of[2 * thread + 1][group]
    return row_of[group][2 * thread], row_of[group][2 * thread + 1]


def run_ldmatrix(plan, memory, warps, registers, element_bits):
    """Execute the plan on ``memory`` (element numbers by offset), byte by byte: a byte is a pair (element,
    which byte of it)."""
    size = element_bits // 8
    result = np.full((warps, 32, registers), -1)
    for warp in range(warps):
        for load in plan.loads:
            rows = [row_at(plan, load, lane, warp, memory, size) for lane in range(32)]
            for lane in range(32):
                for matrix, targets in enumerate(load.registers):
                    low, high = matrix_of_lane(rows[8 * matrix:8 * matrix + 8], lane, plan.trans)
                    word = [*low, *high]
                    for i, register in enumerate(targets):
                        element = word[size * i][0]
                        assert word[size * i:size * (i + 1)] == [(element, part) for part in range(size)]
                        result[warp, lane, register] = element
    return result


def row_at(plan, load, lane, warp, memory, size):
    """The 8 values of 16 bits, each two bytes, that ``lane`` points at."""
    xored, added = load.offset & plan.thread_bits, load.offset & ~plan.thread_bits
    first = ((plan.address.apply(lane=lane, warp=warp)[0] ^ xored) + added) * size
    assert first % 16 == 0
    row = [(memory[byte // size], byte % size) for byte in range(first, first + 16)]
    return [row[i:i + 2] for i in range(0, 16, 2)]


def check(layout, memory_layout, bits):
    plan = plan_ldmatrix(layout, memory_layout, bits)
    if plan is None:
        return None
    memory = memory_layout.table().reshape(-1)
    expected = elements(layout)
    found = run_ldmatrix(plan, memory, expected.shape[0], expected.shape[2], bits)
    np.testing.assert_array_equal(found, expected)
    return plan


SHAPES = st.tuples(*[st.integers(3, 6).map(lambda b: 1 << b)] * 2)

# element bits, kWidth, op_idx, order in memory -> does ldmatrix apply, and transposed
CASES = [
    (16, 2, 0, (1, 0), (4, False)), (16, 2, 0, (0, 1), (4, True)),
    (16, 2, 1, (1, 0), (4, True)), (16, 2, 1, (0, 1), (4, False)),
    (8, 4, 0, (1, 0), (4, False)), (8, 4, 1, (0, 1), (4, False)),
    (8, 4, 0, (0, 1), None), (8, 4, 1, (1, 0), None),
    (32, 1, 0, (1, 0), (4, False)), (32, 1, 1, (0, 1), (4, False)),
    (32, 1, 0, (0, 1), None), (32, 1, 1, (1, 0), None),
]


@pytest.mark.parametrize("bits, k_width, op_idx, order, expected", CASES)
def test_operands(bits, k_width, op_idx, order, expected):
    operand = DotOperand(op_idx, Mma((2, 0), (2, 2)), k_width)
    shape = (64, 64)
    memory = swizzle_for_dot_operand(operand, shape, order, bits)
    plan = check(operand.linear(shape), memory.linear(shape), bits)
    assert (plan and (plan.count, plan.trans)) == expected
    if plan:
        assert plan.degree == 1
        assert len(plan.loads) * plan.count * (32 // bits) == elements_per_thread(operand, shape)


@pytest.mark.parametrize("k_width", [2, 4])
@pytest.mark.parametrize("op_idx, order", [(0, (0, 1)), (1, (1, 0))])
@pytest.mark.parametrize("k", [32, 64, 128])
def test_bytes_are_transposed_in_pairs(k_width, op_idx, order, k):
    operand = DotOperand(op_idx, Mma((2, 0), (2, 2), interleave=(2, 2)), k_width)
    shape = (128, k) if op_idx == 0 else (k, 128)
    memory = swizzle_for_dot_operand(operand, shape, order, 8)
    plan = check(operand.linear(shape), memory.linear(shape), 8)
    assert (plan.count, plan.trans, plan.degree) == (4, True, 1)
    assert len(plan.loads) * 16 == elements_per_thread(operand, shape)


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("in_panels", [False, True])
def test_the_operand_b_of_a_wide_tile(order, in_panels):
    """128 x 256 x 64 with 8 warps of 64 x 64: 8 ldmatrix per k step of 16 and operand pair."""
    operand = DotOperand(1, Mma((2, 0), (2, 4)), 2)
    rows = swizzle_for_dot_operand(operand, (64, 256), order, 16)
    memory = Panels(128, 16, order) if in_panels else rows
    plan = check(operand.linear((64, 256)), memory.linear((64, 256)), 16)
    assert plan.count == 4 and plan.degree == 1 and plan.trans == (order == (1, 0))
    assert len(plan.loads) == 16


def test_unswizzled_memory_has_conflicts():
    operand = DotOperand(0, Mma((2, 0), (1, 1)), 2).linear((16, 64))
    plan = check(operand, Shared(1, 1, 1, (1, 0)).linear((16, 64)), 16)
    assert plan.degree == 8


def test_small_tiles_use_fewer_matrices():
    mma = Mma((2, 0), (1, 1))
    memory = Shared(1, 1, 1, (1, 0))
    a = check(DotOperand(0, mma, 2).linear((16, 8)), memory.linear((16, 8)), 16)
    assert a.count == 2
    b = check(DotOperand(1, mma, 2).linear((8, 8)), memory.linear((8, 8)), 16)
    assert b.count == 1 and b.trans


def test_a_swizzle_finer_than_16_bytes_does_not_fit():
    operand = DotOperand(0, Mma((2, 0), (1, 1)), 2).linear((16, 64))
    assert plan_ldmatrix(operand, Shared(2, 1, 8, (1, 0)).linear((16, 64)), 16) is None


def test_blocked_layouts_do_not_fit():
    assert plan_ldmatrix(Blocked((1, 8), (4, 8), (4, 1), (1, 0)).linear((64, 64)),
                         Shared(8, 1, 8, (1, 0)).linear((64, 64)), 16) is None
    assert plan_ldmatrix(Blocked((1, 1), (4, 8), (4, 1), (1, 0)).linear((64, 64)),
                         Shared(8, 1, 8, (1, 0)).linear((64, 64)), 64) is None


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.sampled_from([8, 16, 32]), st.data())
def test_whatever_is_planned_is_right(shape, bits, data):
    layout = data.draw(distributed(shape, 1)).linear(shape)
    check(layout, data.draw(in_shared_memory()).linear(shape), bits)


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.sampled_from([(8, 4), (16, 2), (16, 4), (32, 1)]),
       st.integers(0, 1), in_shared_memory())
def test_operands_in_any_memory(shape, kind, op_idx, memory):
    bits, k_width = kind
    check(DotOperand(op_idx, Mma((2, 0), (2, 1)), k_width).linear(shape), memory.linear(shape), bits)
