"""Every plan is executed here on arrays [warp, lane, register] of element numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxforge.layouts.conversion import (
    Nothing,
    Registers,
    SharedMemory,
    Shuffle,
    _shuffle,
    plan_conversion,
    plan_linear_conversion,
    within_warp,
)
from ptxforge.layouts.encodings import Blocked, CTALayout, DotOperand, Mma, Slice
from ptxforge.layouts.linear import LayoutError

from .layout_strategies import distributed, elements

PARITY = np.array([bin(i).count("1") & 1 for i in range(1 << 12)], bool)


def execute(plan, held: np.ndarray, result_registers: int) -> np.ndarray:
    """What the plan makes of the values ``held[warp, lane, register]``."""
    match plan:
        case Nothing():
            return held
        case Registers(source_of):
            return held[..., list(source_of)]
        case Shuffle():
            return run_shuffle(plan, held, result_registers)
        case SharedMemory():
            return run_shared(plan, held, result_registers)
    raise AssertionError(plan)


def run_shuffle(plan: Shuffle, held: np.ndarray, result_registers: int) -> np.ndarray:
    exchange = plan.exchange
    warps, lanes, _ = held.shape
    words = held[..., np.array(plan.words_in)]  # [warp, lane, word, element]
    words = run_selects(exchange.before, words)
    lane = np.broadcast_to(np.arange(lanes), (warps, lanes))
    if exchange.source_lane is not None:
        lane, = exchange.source_lane.apply_array(lane=lane, warp=np.arange(warps)[:, None])
    warp = np.arange(warps)[:, None]
    moved = np.stack([words[warp, lane ^ r.lane_xor, r.source] for r in exchange.rounds], axis=2)
    moved = run_selects(exchange.after, moved)[:, :, list(exchange.destination)]
    result = np.full((warps, lanes, result_registers), -1)
    for word, registers in enumerate(plan.words_out):
        result[..., list(registers)] = moved[:, :, word]
    return result


def run_selects(selects, words: np.ndarray) -> np.ndarray:
    warps, lanes, registers = words.shape[:3]
    for select in selects:
        by_lane = PARITY[np.arange(lanes) & select.lane_mask]
        swap = by_lane ^ PARITY[np.arange(warps) & select.warp_mask][:, None]
        other = words[:, :, np.arange(registers) ^ select.register_xor]
        words = np.where(swap[:, :, None, None], other, words)
    return words


def run_shared(plan: SharedMemory, held: np.ndarray, result_registers: int) -> np.ndarray:
    warps, lanes, _ = held.shape
    lane, warp = np.arange(lanes), np.arange(warps)[:, None]
    stores = (lane & plan.store.free_lanes == 0) & (warp & plan.store.free_warps == 0)
    result = np.full((warps, lanes, result_registers), -1)
    elements_in_scratch = plan.scratch_bytes // plan.store.bytes_per_element
    for vectors_in, vectors_out in plan.parts:
        memory = np.full(elements_in_scratch, -1)
        for access in vectors_in:
            address = place(plan.store, access, lane, warp)
            for i, register in enumerate(access.registers):
                assert (memory[(address + i)[stores]] == -1).all(), "two threads store one element"
                memory[(address + i)[stores]] = held[..., register][stores]
        for access in vectors_out:
            address = place(plan.load, access, lane, warp)
            for i, register in enumerate(access.registers):
                result[..., register] = memory[address + i]
    return result[..., list(plan.load.representative)]


def place(side, access, lane, warp) -> np.ndarray:
    """The address of a vector in every thread, with the constant split as code generation does it."""
    thread, = side.thread.apply_array(lane=lane, warp=warp)
    xored, added = side.split_constant(access)
    address = (thread ^ xored) + added
    assert (address % side.vec == 0).all()
    assert ((thread & (side.vec - 1)) == 0).all()
    return address


@st.composite
def conversions(draw):
    shape = tuple(1 << draw(st.integers(0, 6)) for _ in range(2))
    warp_bits = draw(st.integers(0, 3))
    return draw(distributed(shape, warp_bits)), draw(distributed(shape, warp_bits)), shape


@settings(max_examples=400, deadline=None)
@given(conversions(), st.sampled_from([1, 8, 16, 32, 64]), st.sampled_from([1 << 62, 1024]))
def test_every_element_arrives(case, element_bits, limit):
    src, dst, shape = case
    plan = plan_conversion(src, dst, shape, element_bits, limit)
    held, expected = elements(src.linear(shape)), elements(dst.linear(shape))
    np.testing.assert_array_equal(execute(plan, held, expected.shape[-1]), expected)


@settings(max_examples=300, deadline=None)
@given(conversions(), st.sampled_from([8, 16, 32]))
def test_shuffles_are_right_even_where_shared_memory_is_cheaper(case, element_bits):
    src, dst, shape = case
    source, result = src.linear(shape), dst.linear(shape)
    wanted = within_warp(source, result)
    plan = _shuffle(wanted, element_bits) if wanted is not None else None
    if plan is None:
        return
    held, expected = elements(source), elements(result)
    np.testing.assert_array_equal(run_shuffle(plan, held, expected.shape[-1]), expected)


ROWS = Blocked((1, 4), (8, 4), (4, 1), (1, 0))


def plan_of(src, dst, shape=(128, 64), bits=32):
    return plan_conversion(src, dst, shape, bits)


def test_equal_layouts_need_nothing():
    assert plan_of(ROWS, ROWS) == Nothing()
    # Another name for the same distribution.
    column, vector = Slice(1, Blocked((1, 1), (32, 1), (4, 1), (0, 1))), Blocked((1,), (32,), (4,), (0,))
    assert plan_of(column, vector, (128,)) == Nothing()


def test_another_order_of_registers_moves_nothing():
    a = Blocked((2, 2), (8, 4), (4, 1), (1, 0)).linear((64, 8))
    swapped = a.of_columns(a.in_items(), a.out_dims, (a.columns[1], a.columns[0], *a.columns[2:]))
    assert plan_linear_conversion(a, swapped, 32) == Registers((0, 2, 1, 3))


def test_accumulator_to_operand_stays_in_registers():
    """The chained dot of attention: P = softmax(Q K) accumulates in one dot and is operand A of the next."""
    mma = Mma((2, 0), (4, 1), (16, 8))
    plan = plan_conversion(mma, DotOperand(0, mma, 2), (64, 64), 16)
    assert isinstance(plan, Nothing | Registers)


def test_a_lane_permutation_is_one_shuffle_per_register():
    rows, columns = (Blocked((1, 1), (4, 8), (1, 1), order) for order in ((1, 0), (0, 1)))
    plan = plan_conversion(rows, columns, (4, 8), 32)
    assert isinstance(plan, Shuffle)
    assert (plan.exchange.shuffles, plan.exchange.selects) == (1, 0)


def test_broadcast_from_a_slice_picks_registers_of_the_own_thread():
    """Each thread holds all 4 elements and wants one: selects only."""
    src = DotOperand(0, Blocked((1, 1), (1, 32), (1, 1), (1, 0)))
    plan = plan_conversion(src, Blocked((1, 1), (8, 4), (1, 1), (1, 0)), (1, 4), 32)
    assert isinstance(plan, Shuffle)
    assert plan.exchange.shuffles == 0 and plan.exchange.selects > 0


def test_copies_in_registers_are_shuffled_once():
    """An m16n8k16 operand of a tile with k = 8 has registers that repeat others."""
    src = Blocked((1, 1), (8, 4), (1, 1), (0, 1))
    plan = plan_conversion(src, DotOperand(0, Mma((2, 0), (1, 1)), 2), (16, 8), 32)
    assert isinstance(plan, Shuffle)
    assert len(plan.exchange.rounds) == len(set(plan.exchange.rounds)) == 4
    assert len(plan.exchange.destination) == 8


def test_pairs_of_halves_travel_as_one_word():
    src, dst = Blocked((1, 4), (8, 4), (1, 1), (1, 0)), Blocked((1, 2), (8, 4), (1, 1), (1, 0))
    plan = plan_conversion(src, dst, (8, 16), 16)
    assert isinstance(plan, Shuffle)
    assert plan.words_in == ((0, 1), (2, 3))
    assert plan.exchange.shuffles == 2


def test_quad_transpose_of_the_gemm_epilogue():
    """f16 accumulators of four n-tiles to 16-byte rows: four shuffles and no shared memory."""
    mma = Mma((2, 0), (1, 1), (16, 8)).linear((16, 32))
    rows = Blocked((1, 8), (8, 4), (1, 1), (1, 0)).linear((16, 32))
    plan = plan_linear_conversion(mma, rows, 16)
    assert isinstance(plan, Shuffle)
    assert plan.exchange.source_lane is None
    assert plan.exchange.shuffles == 6  # 2 rows of 4 words: 3 of 4 words move


def test_across_warps_goes_through_shared_memory_without_conflicts():
    plan = plan_of(ROWS, Blocked((4, 1), (8, 4), (1, 4), (0, 1)))
    assert isinstance(plan, SharedMemory)
    assert plan.scratch_bytes == 128 * 64 * 4 and not plan.warp_local
    assert plan.store.degree == plan.load.degree == 1


def test_a_large_tile_passes_in_parts():
    mma, rows = Mma((2, 0), (2, 4)), Blocked((1, 8), (1, 32), (8, 1), (1, 0))
    plan = plan_of(mma, rows, (128, 256))
    assert plan.scratch_bytes <= 48 << 10
    assert len(plan.parts) == 4
    assert plan.store.degree == plan.load.degree == 1
    assert plan.store.vec == plan.load.vec == 4


def test_copies_are_stored_once():
    src = Slice(1, Blocked((1, 4), (4, 8), (4, 1), (1, 0)))
    plan = plan_conversion(src, Blocked((1,), (32,), (4,), (0,)), (128,), 32)
    assert isinstance(plan, SharedMemory)
    assert plan.store.free_lanes == 0b111


def test_mismatches_are_refused():
    with pytest.raises(LayoutError, match="different numbers of warps: 4 and 8"):
        plan_of(ROWS, Blocked((1, 4), (8, 4), (8, 1), (1, 0)))
    split = Blocked((1, 4), (8, 4), (4, 1), (1, 0), CTALayout((2, 1), (2, 1), (1, 0)))
    with pytest.raises(LayoutError, match="split among CTAs"):
        plan_of(split, ROWS)


def test_plans_are_cached_and_equal():
    assert plan_of(ROWS, Mma((2, 0), (2, 2))) is plan_of(ROWS, Mma((2, 0), (2, 2)))
