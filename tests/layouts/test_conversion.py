"""Every plan is executed here on arrays [warp, lane, register] of element numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxforge.layouts.banks import lines_in_warp
from ptxforge.layouts.conversion import (
    Nothing,
    Registers,
    SharedMemory,
    Shuffle,
    _cost,
    _shuffle,
    estimated_cost,
    plan_conversion,
    plan_linear_conversion,
    within_warp,
)
from ptxforge.layouts.encodings import Blocked, CTALayout, DotOperand, Mma, Slice
from ptxforge.layouts.linear import LayoutError

from .layout_strategies import distributed, elements
from .linear_maps import flat

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
        lane = flat(exchange.source_lane, lane=lane, warp=np.arange(warps)[:, None])
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
        for store in vectors_in if plan.matrices is not None else ():
            run_stmatrix(plan.matrices, store, memory, held)
        for access in vectors_in if plan.matrices is None else ():
            address = place(plan.store, access, lane, warp)
            for i, register in enumerate(access.registers):
                assert (memory[(address + i)[stores]] == -1).all(), "two threads store one element"
                memory[(address + i)[stores]] = held[..., register][stores]
        for access in vectors_out:
            address = place(plan.load, access, lane, warp)
            for i, register in enumerate(access.registers):
                result[..., register] = memory[address + i]
    return result[..., list(plan.load.representative)]


def run_stmatrix(plan, store, memory: np.ndarray, held: np.ndarray) -> None:
    """The instruction as PTX describes it: 32 bits of each lane for each matrix."""
    warps, columns = held.shape[0], 4 * len(store.registers[0])
    address = flat(plan.address, lane=np.arange(32), warp=np.arange(warps)[:, None])
    xored, added = store.offset & plan.thread_bits, store.offset & ~plan.thread_bits
    rows = (address ^ xored) + added
    for matrix, registers in enumerate(store.registers):
        fragment = held[..., list(registers)].reshape(warps, 8, columns)  # [row g, part of t]
        if plan.trans:
            assert columns == 8
            fragment = fragment.swapaxes(1, 2)
        for row in range(8):
            start = rows[:, 8 * matrix + row]
            assert (start % columns == 0).all()
            for column in range(columns):
                assert (memory[start + column] == -1).all(), "two threads store one element"
                memory[start + column] = fragment[:, row, column]


def place(side, access, lane, warp) -> np.ndarray:
    """The address of a vector in every thread, with the constant split as code generation does it."""
    thread = flat(side.thread, lane=lane, warp=warp)
    xored, added = access.offset & side.thread_bits, access.offset & ~side.thread_bits
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


@pytest.mark.parametrize(
    "dst", [Blocked((4, 1), (8, 4), (4, 1), (1, 0)), Blocked((1, 2), (8, 4), (4, 1), (1, 0))],
    ids=["shared", "shuffles"],
)  # fmt: skip
def test_an_estimate_is_what_the_plan_costs(dst):
    """Passes weigh layouts by the numbers by which a plan is chosen: they are equal where a plan has no bank
    conflicts, and no fewer selects than its shuffles can need."""
    plan = plan_conversion(ROWS, dst, (128, 16), 32)
    assert estimated_cost(ROWS, dst, (128, 16), 32) == _cost(plan, 32)


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


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize(("shape", "warps", "columns", "limit"), [
    ((128, 256), (8, 1), 256, 1 << 62), ((128, 256), (8, 1), 256, 48 << 10), ((64, 64), (4, 1), 64, 1 << 62),
    ((64, 64), (4, 1), 64, 1 << 10), ((64, 128), (4, 2), 64, 1 << 62), ((64, 16), (4, 1), 16, 1 << 62),
    ((256, 128), (8, 1), 128, 48 << 10),
])  # fmt: skip
def test_accumulators_of_wgmma_go_in_rows_of_matrices(shape, warps, columns, limit, order):
    """Of 16-bit elements, ``stmatrix`` writes rows of 16 bytes that other threads read as they are, without
    bank conflicts; also transposed, and in parts."""
    mma = Mma((3, 0), warps, (16, columns, 16))
    sizes, threads = ((1, 8), (4, 8)) if order == (1, 0) else ((8, 1), (8, 4))
    count = warps[0] * warps[1]
    dst = Blocked(sizes, threads, (count, 1) if order == (1, 0) else (1, count), order)
    plan = plan_conversion(mma, dst, shape, 16, limit)
    assert plan.matrices is not None and plan.matrices.trans == (order == (0, 1))
    assert plan.matrices.degree == plan.load.degree == 1 and plan.load.vec == 8
    held, expected = elements(mma.linear(shape)), elements(dst.linear(shape))
    np.testing.assert_array_equal(execute(plan, held, expected.shape[-1]), expected)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_accumulators_of_wgmma_to_lines(bits):
    """Bytes go in matrices too: a lane's columns lie in another order in the row, which its reader knows."""
    mma, shape = Mma((3, 0), (4, 1), (16, 256, 16)), (64, 256)
    dst = lines_in_warp(mma, shape, 128 // bits, bits // 8)
    plan = plan_conversion(mma, dst, shape, bits)
    assert plan.warp_local and (plan.matrices is not None) == (bits < 32)
    held, expected = elements(mma.linear(shape)), elements(dst.linear(shape))
    np.testing.assert_array_equal(execute(plan, held, expected.shape[-1]), expected)


def test_accumulators_of_wgmma_to_lines_in_halves():
    """Lanes hold rows that are eight apart: one half each, in four matrices an instruction as without."""
    mma, shape = Mma((3, 0), (8, 1), (16, 256, 16)), (128, 256)
    dst = lines_in_warp(mma, shape, 8, 2)
    whole, halves = (plan_conversion(mma, dst, shape, 16, limit) for limit in (64 << 10, 48 << 10))
    assert (len(whole.parts), len(halves.parts)) == (1, 2) and halves.warp_local
    assert halves.scratch_bytes == whole.scratch_bytes // 2 == 32 << 10
    assert whole.matrices.count == halves.matrices.count == 4
    assert halves.matrices.wavefronts == whole.matrices.wavefronts == whole.load.wavefronts
    assert halves.load.wavefronts == whole.load.wavefronts
    held, expected = elements(mma.linear(shape)), elements(dst.linear(shape))
    np.testing.assert_array_equal(execute(halves, held, expected.shape[-1]), expected)


def test_other_accumulators_go_in_vectors():
    """``stmatrix`` is surely there only where the accumulators of ``wgmma`` are."""
    rows, shape = Blocked((1, 8), (4, 8), (4, 1), (1, 0)), (64, 64)
    assert plan_conversion(Mma((3, 0), (4, 1), (16, 64, 16)), rows, shape, 16).matrices is not None
    assert getattr(plan_conversion(Mma((2, 0), (4, 1)), rows, shape, 16), "matrices", None) is None


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
