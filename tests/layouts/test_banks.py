from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxforge.layouts.banks import conflict_degree, element_bytes, lanes_per_step, offsets_of, shared_access
from ptxforge.layouts.encodings import Blocked, DotOperand, Mma
from ptxforge.layouts.shared import Shared
from ptxforge.layouts.swizzle import optimal_swizzle, swizzle_for_dot_operand

from .layout_strategies import distributed, elements
from .linear_maps import flat


def degree_by_counting(lane_columns, vec, size):
    """The worst bank of the worst step, word by word."""
    lanes = lanes_per_step(vec * size)
    worst = 1
    for first in range(0, 32, lanes):
        words: dict[int, set[int]] = {}
        for lane in range(first, first + lanes):
            offset = 0
            for bit, column in enumerate(lane_columns):
                offset ^= column if lane >> bit & 1 else 0
            for byte in range(offset * size, (offset + vec) * size):
                words.setdefault(byte // 4 % 32, set()).add(byte // 4)
        worst = max(worst, *(len(w) for w in words.values()))
    return worst


@given(st.lists(st.integers(0, 1023), min_size=5, max_size=5), st.sampled_from([1, 2, 4, 8]),
       st.sampled_from([1, 2, 4, 8]))
def test_degree(columns, vec, size):
    vec = min(vec, 16 // size)
    aligned = [c // vec * vec for c in columns]
    assert conflict_degree(aligned, vec, size) == degree_by_counting(aligned, vec, size)


@settings(max_examples=150, deadline=None)
@given(st.tuples(*[st.integers(0, 6).map(lambda b: 1 << b)] * 2), st.sampled_from([8, 16, 32, 64]), st.data())
def test_accesses_cover_every_element_once(shape, bits, data):
    layout = data.draw(distributed(shape, 1)).linear(shape)
    memory = Shared(data.draw(st.sampled_from([1, 4, 8])), 1, data.draw(st.sampled_from([1, 4, 8])),
                    data.draw(st.permutations((0, 1)))).linear(shape)
    access = shared_access(offsets_of(layout, memory), bits)
    assert access.vec * element_bytes(bits) <= 16
    numbers, places = elements(layout), memory.table().reshape(-1)
    thread = flat(access.thread, lane=range(32), warp=[[0], [1]])
    seen = []
    for vector in access.accesses:
        assert len(vector.registers) == access.vec
        for i, register in enumerate(vector.registers):
            assert (places[(thread ^ vector.offset) + i] == numbers[..., register]).all()
            seen.append(register)
    assert len(seen) == len(set(seen)) == len(set(access.representative))
    for register, standing_for in enumerate(access.representative):
        assert (numbers[..., register] == numbers[..., standing_for]).all()


@settings(max_examples=150, deadline=None)
@given(st.tuples(*[st.integers(2, 6).map(lambda b: 1 << b)] * 2), st.sampled_from([8, 16, 32, 64]), st.data())
def test_swizzle_is_a_bijection_and_its_degrees_are_true(shape, bits, data):
    store, load = (data.draw(distributed(shape, 2)).linear(shape) for _ in range(2))
    swizzle = optimal_swizzle(store, load, bits)
    assert swizzle.layout.is_injective and swizzle.layout.is_surjective
    for access in (swizzle.store, swizzle.load):
        columns = access.layout.columns_of("lane")
        assert access.degree == degree_by_counting(columns, access.vec, access.bytes_per_element)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.sampled_from([8, 16, 32]))
def test_swizzle_is_no_worse_than_row_major_order(data, bits):
    shape = (64, 64)
    store, load = (data.draw(distributed(shape, 2)).linear(shape) for _ in range(2))
    plain = Shared(1, 1, 1, (1, 0)).linear(shape)
    steps = sum(shared_access(offsets_of(side, plain), bits).wavefronts for side in (store, load))
    assert optimal_swizzle(store, load, bits).cost[0] <= steps


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_a_transpose_has_no_conflicts(bits):
    vec = 128 // bits
    rows = Blocked((1, vec), (4, 8), (4, 1), (1, 0)).linear((64, 128))
    columns = Blocked((vec, 1), (8, 4), (1, 4), (0, 1)).linear((64, 128))
    swizzle = optimal_swizzle(rows, columns, bits)
    assert swizzle.store.degree == swizzle.load.degree == 1


OPERANDS = [
    # element bits, k width: what the type's mma takes
    (16, 2), (8, 4), (32, 1),
]


@pytest.mark.parametrize("bits, k_width", OPERANDS)
@pytest.mark.parametrize("op_idx", [0, 1])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("k", [32, 64, 128])
def test_dot_operands_have_no_conflicts(bits, k_width, op_idx, order, k):
    """Filling with 16-byte rows, as cp.async does, and reading fragments."""
    operand = DotOperand(op_idx, Mma((2, 0), (2, 2)), k_width)
    shape = (128, k) if op_idx == 0 else (k, 128)
    encoding = swizzle_for_dot_operand(operand, shape, order, bits)
    memory = encoding.linear(shape)
    vec = 128 // bits
    size = [1, 1]
    size[order[0]] = vec
    threads = [1, 1]
    threads[order[0]] = min(32, shape[order[0]] // vec)
    threads[order[1]] = 32 // threads[order[0]]
    fill = shared_access(offsets_of(Blocked(size, threads, (2, 2), order).linear(shape), memory), bits)
    assert fill.vec * bits >= min(128, encoding.vec * bits) and fill.degree == 1
    read = shared_access(offsets_of(operand.linear(shape), memory), bits)
    if bits == 32:
        assert read.degree == 1


@pytest.mark.parametrize("k", [16, 32, 64])
@pytest.mark.parametrize("op_idx, order", [(0, (0, 1)), (1, (1, 0))])
def test_words_across_k_are_read_by_four_without_conflicts(k, op_idx, order):
    operand = DotOperand(op_idx, Mma((2, 0), (2, 2), interleave=(4, 4)), 1)
    shape = (128, k) if op_idx == 0 else (k, 128)
    memory = swizzle_for_dot_operand(operand, shape, order, 32).linear(shape)
    read = shared_access(offsets_of(operand.linear(shape), memory), 32)
    assert (read.vec, read.degree) == (4, 1)


@pytest.mark.parametrize("k", [32, 64, 128])
@pytest.mark.parametrize("op_idx, order", [(0, (1, 0)), (1, (0, 1))])
def test_halves_beside_bytes_are_read_by_four_without_conflicts(k, op_idx, order):
    """16-bit operands whose partner is widened from bytes have four neighbours along k in a lane."""
    operand = DotOperand(op_idx, Mma((2, 0), (2, 2)), 4)
    shape = (128, k) if op_idx == 0 else (k, 128)
    memory = swizzle_for_dot_operand(operand, shape, order, 16).linear(shape)
    read = shared_access(offsets_of(operand.linear(shape), memory), 16)
    assert (read.vec, read.degree) == (4, 1)


def test_operands_of_fma_are_not_swizzled():
    operand = DotOperand(0, Blocked((4, 4), (1, 32), (4, 1), (1, 0)))
    assert swizzle_for_dot_operand(operand, (64, 64), (1, 0), 32) == Shared(1, 1, 1, (1, 0))
