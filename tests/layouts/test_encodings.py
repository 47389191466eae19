from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxforge.layouts.banks import register_run
from ptxforge.layouts.encodings import (
    Blocked,
    CTALayout,
    DotOperand,
    Linear,
    Mma,
    Slice,
    as_blocked,
    default_blocked,
    elements_per_thread,
    infer_expand_dims,
    infer_join,
    infer_reshape,
    infer_split,
    infer_trans,
    unique_elements_per_thread,
)
from ptxforge.layouts.linear import LayoutError, LinearLayout
from ptxforge.layouts.shared import Shared

from .layout_strategies import blocked, distributed, elements, in_shared_memory, shared
from .linear_maps import linear

SHAPES = st.tuples(*[st.integers(0, 6).map(lambda b: 1 << b)] * 2)


def counter(shape, order):
    """Indices of ``shape``, fastest dimension of ``order`` first."""
    ranges = [range(shape[d]) for d in reversed(order)]
    for index in product(*ranges):
        by_dim = dict(zip(reversed(order), index))
        yield tuple(by_dim[d] for d in range(len(shape)))


def blocked_by_definition(layout: Blocked, shape):
    """Elements of each [warp][lane], in register order: tiles laid side by side, wrapped by the tensor's
    shape, copies in one thread dropped."""
    repeats = [max(1, s // t) for s, t in zip(shape, layout.tile)]
    result = []
    for warp in counter(layout.warps_per_cta, layout.order):
        result.append([])
        for lane in counter(layout.threads_per_warp, layout.order):
            held = []
            for repeat in counter(repeats, layout.order):
                for inside in counter(layout.size_per_thread, layout.order):
                    element = tuple(
                        (i + s * (n + t * (w + p * r))) % size for i, s, n, t, w, p, r, size in zip(
                            inside, layout.size_per_thread, lane, layout.threads_per_warp, warp,
                            layout.warps_per_cta, repeat, shape))
                    if element not in held:
                        held.append(element)
            result[-1].append(held)
    return result


@settings(max_examples=60, deadline=None)
@given(blocked(), SHAPES)
def test_blocked_by_definition(layout, shape):
    linear = layout.linear(shape)
    registers = range(linear.in_size("register"))
    for warp, lanes in enumerate(blocked_by_definition(layout, shape)):
        for lane, held in enumerate(lanes):
            assert held == [linear.apply(register=r, lane=lane, warp=warp) for r in registers]


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.data())
def test_every_element_has_a_place(shape, data):
    layout = data.draw(distributed(shape, data.draw(st.integers(0, 3))))
    linear = layout.linear(shape)
    assert linear.in_dims == ("register", "lane", "warp", "block")
    assert linear.out_dims == (("dim0", shape[0]), ("dim1", shape[1]))
    assert linear.is_surjective
    assert linear.in_size("warp") == layout.num_warps
    assert linear is layout.linear(shape)
    assert elements_per_thread(layout, shape) == linear.in_size("register")
    assert unique_elements_per_thread(layout, shape) <= elements_per_thread(layout, shape)


@settings(max_examples=100, deadline=None)
@given(blocked(3), st.integers(0, 2), SHAPES)
def test_slice_holds_what_its_parent_holds(parent, dim, shape):
    wide = (*shape[:dim], 1, *shape[dim:])
    sliced, whole = Slice(dim, parent).linear(shape), parent.linear(wide)
    for warp in range(whole.in_size("warp")):
        for lane in range(32):
            mine = {sliced.apply(register=r, lane=lane, warp=warp) for r in range(sliced.in_size("register"))}
            theirs = {whole.apply(register=r, lane=lane, warp=warp) for r in range(whole.in_size("register"))}
            assert mine == {t[:dim] + t[dim + 1:] for t in theirs}
    assert Slice(dim, parent).order == tuple(d - (d > dim) for d in parent.order if d != dim)


@given(shared(), SHAPES)
def test_shared_by_definition(layout, shape):
    """Row r, column c lies where the seeds' formula says: column c ^ vec * ((r / perPhase) % maxPhase)."""
    linear = layout.linear(shape)
    columns, rows = shape[layout.order[0]], shape[layout.order[1]]
    for r in range(rows):
        for c in range(columns):
            phase = r // layout.per_phase % layout.max_phase
            where = r * columns + (c ^ layout.vec * phase % columns)
            coordinates = linear.apply(offset=where)
            assert (coordinates[layout.order[1]], coordinates[layout.order[0]]) == (r, c)


@given(in_shared_memory(3), st.tuples(*[st.integers(0, 4).map(lambda b: 1 << b)] * 3))
def test_tiles_in_shared_memory_are_bijections(layout, shape):
    linear = layout.linear(shape)
    assert linear.is_injective and linear.is_surjective


# -- fragments, by the formulas of PTX ISA 9.0, section 9.7.14.5 ----------------------------------------

MMA = Mma((2, 0), (1, 1), (16, 8))


def fragment(layout, shape, lane):
    linear = layout.linear(shape)
    return [linear.apply(register=r, lane=lane) for r in range(linear.in_size("register"))]


@pytest.mark.parametrize("lane", range(32))
def test_fragments_of_m16n8k16(lane):
    group, thread = lane >> 2, lane % 4
    a = [(group + (8 if i in (2, 3, 6, 7) else 0), thread * 2 + (i & 1) + (8 if i >= 4 else 0))
         for i in range(8)]
    b = [(thread * 2 + (i & 1) + (8 if i >= 2 else 0), group) for i in range(4)]
    c = [(group + (8 if i >= 2 else 0), thread * 2 + (i & 1)) for i in range(4)]
    assert fragment(DotOperand(0, MMA, 2), (16, 16), lane) == a
    assert fragment(DotOperand(1, MMA, 2), (16, 8), lane) == b
    assert fragment(MMA, (16, 8), lane) == c


@pytest.mark.parametrize("lane", range(32))
def test_fragments_of_m16n8k8_tf32(lane):
    group, thread = lane >> 2, lane % 4
    a = [(group + (8 if i in (1, 3) else 0), thread + (4 if i >= 2 else 0)) for i in range(4)]
    b = [(thread + 4 * i, group) for i in range(2)]
    assert fragment(DotOperand(0, MMA, 1), (16, 8), lane) == a
    assert fragment(DotOperand(1, MMA, 1), (8, 8), lane) == b


@pytest.mark.parametrize("lane", range(32))
def test_fragments_of_m16n8k32_bytes(lane):
    group, thread = lane >> 2, lane % 4
    a = [(group + (8 if 4 <= i < 8 or i >= 12 else 0), thread * 4 + (i & 3) + (16 if i >= 8 else 0))
         for i in range(16)]
    b = [(thread * 4 + (i & 3) + (16 if i >= 4 else 0), group) for i in range(8)]
    assert fragment(DotOperand(0, MMA, 4), (16, 32), lane) == a
    assert fragment(DotOperand(1, MMA, 4), (32, 8), lane) == b


@pytest.mark.parametrize("lane", range(32))
def test_fragments_of_m8n8k4_f64(lane):
    mma = Mma((2, 0), (1, 1), (8, 8))
    group, thread = lane >> 2, lane % 4
    assert fragment(DotOperand(0, mma, 1), (8, 4), lane) == [(group, thread)]
    assert fragment(DotOperand(1, mma, 1), (4, 8), lane) == [(thread, group)]
    assert fragment(mma, (8, 8), lane) == [(group, thread * 2), (group, thread * 2 + 1)]


@pytest.mark.parametrize("lane", range(32))
def test_wgmma_accumulator(lane):
    """m64nNk16: four warps of 16 rows; a lane's registers walk along n by 8 columns."""
    layout = Mma((3, 0), (4, 1), (16, 32, 16))
    linear = layout.linear((64, 32))
    for warp in range(4):
        for i in range(16):
            row = 16 * warp + lane // 4 + 8 * (i // 2 % 2)
            column = 8 * (i // 4) + 2 * (lane % 4) + i % 2
            assert linear.apply(register=i, lane=lane, warp=warp) == (row, column)


@pytest.mark.parametrize("interleave", [(2, 1), (1, 2), (2, 2), (4, 4)])
def test_interleaved_instructions_agree_on_rows_and_columns(interleave):
    """Any instruction finds in A, B and C the same rows and columns, in the registers of its figure."""
    mma = Mma((2, 0), (2, 2), (16, 8), interleave=interleave)
    plain = Mma((2, 0), (2, 2), (16, 8))
    for shape, make, dims in (
        ((128, 64), lambda m: m, (0, 1)), ((128, 16), lambda m: DotOperand(0, m, 2), (0,)),
        ((16, 64), lambda m: DotOperand(1, m, 2), (1,)),
    ):
        for warp in range(4):
            for lane in range(32):
                counted = []
                for layout in (make(mma), make(plain)):
                    linear, parent = layout.linear(shape), getattr(layout, "parent", layout)
                    places = [
                        linear.apply(register=r, lane=lane, warp=warp)
                        for r in range(linear.in_size("register"))
                    ]
                    counted.append(
                        {
                            tuple(parent.as_counted(d, x) if d in dims else x for d, x in enumerate(at))
                            for at in places
                        }
                    )
                assert counted[0] == counted[1]


def test_interleaving_gives_a_lane_neighbours():
    mma = Mma((2, 0), (2, 2), (16, 8), interleave=(2, 4))
    a, b = DotOperand(0, mma, 1).linear((64, 8)), DotOperand(1, mma, 1).linear((8, 64))
    assert {a.apply(register=r, lane=4)[0] for r in range(4)} == {2, 3}
    assert {b.apply(register=r, lane=4)[1] for r in range(8)} == {4, 5, 6, 7}


def test_interleaved_layouts_are_clipped_and_cut_into_slices():
    mma = Mma((2, 0), (2, 2), (16, 8), interleave=(2, 4))
    assert mma.linear((16, 16)).is_surjective
    rows = Slice(1, mma).linear((64,))
    assert [rows.apply(register=r, lane=4)[0] for r in range(rows.in_size("register"))] == [2, 3, 34, 35]


def test_wgmma_is_not_interleaved():
    with pytest.raises(LayoutError, match="interleave"):
        Mma((3, 0), (4, 1), (16, 32, 16), interleave=(1, 2))


@pytest.mark.parametrize("tiles", [(1, 2), (1, 8), (2, 1), (4, 4)])
def test_tiles_per_warp(tiles):
    """What a warp holds of the result is one piece of so many instructions, and the operands agree on it."""
    mma = Mma((2, 0), (2, 4), (16, 8), tiles_per_warp=tiles)
    piece = 16 * tiles[0], 8 * tiles[1]
    shape = 2 * piece[0], 4 * piece[1]
    c = mma.linear(shape)
    a, b = DotOperand(0, mma, 2).linear((shape[0], 16)), DotOperand(1, mma, 2).linear((16, shape[1]))
    assert c.is_permutation
    for warp in range(8):
        row, column = warp // 4 * piece[0], warp % 4 * piece[1]
        rows, columns = set(range(row, row + piece[0])), set(range(column, column + piece[1]))
        for lane in (0, 5, 31):
            held = [c.apply(register=r, lane=lane, warp=warp) for r in range(c.in_size("register"))]
            left = [a.apply(register=r, lane=lane, warp=warp) for r in range(a.in_size("register"))]
            right = [b.apply(register=r, lane=lane, warp=warp) for r in range(b.in_size("register"))]
            assert {i for i, _ in held} == {i for i, _ in left} <= rows
            assert {j for _, j in held} <= columns and {j for _, j in right} <= columns


def test_tiles_per_warp_are_for_plain_mma_sync():
    with pytest.raises(LayoutError, match="tilesPerWarp"):
        Mma((3, 0), (4, 1), (16, 32, 16), tiles_per_warp=(1, 2))
    with pytest.raises(LayoutError, match="tilesPerWarp"):
        Mma((2, 0), (2, 2), interleave=(1, 2), tiles_per_warp=(1, 2))


def test_batched_mma():
    layout = Mma((2, 0), (4, 1, 1), (1, 16, 8))
    in_warp = ["register", "lane"]
    one = layout.linear((4, 16, 8)).sublayout(in_warp, ["dim1", "dim2"])
    assert one.bases == MMA.linear((16, 8)).sublayout(in_warp, ["dim0", "dim1"]).bases
    assert DotOperand(1, layout, 2).order == (1, 2, 0)


def test_operand_b_of_wgmma_is_refused():
    with pytest.raises(LayoutError, match="lives in shared memory"):
        DotOperand(1, Mma((3, 0), (4, 1), (16, 64, 16)), 2).linear((64, 64))
    assert elements_per_thread(DotOperand(0, Mma((3, 0), (4, 1), (16, 64, 16)), 2), (64, 16)) == 8


def test_fma_operands():
    parent = Blocked((4, 4), (1, 32), (4, 1), (1, 0))
    a, b = DotOperand(0, parent), DotOperand(1, parent)
    linear = a.linear((128, 32))
    assert linear.free_variables()["lane"] == 0b11111 and linear.free_variables()["warp"] == 0
    assert linear.columns_of("register")[:7] == (1, 2, 4, 8, 16, 32, 64)  # four rows of all of k
    assert register_run(b, (32, 128)) == (1, 4)


# -- CTAs ----------------------------------------------------------------------------------------------


def test_ctas_split_a_tensor():
    cta = CTALayout((2, 1), (2, 1), (1, 0))
    layout = default_like(Blocked((1, 4), (4, 8), (4, 1), (1, 0), cta))
    linear = layout.linear((64, 32))
    assert linear.apply(block=1) == (32, 0)
    assert "CTAsPerCGA = [2, 1], CTASplitNum = [2, 1], CTAOrder = [1, 0]" in str(layout)
    assert elements_per_thread(layout, (64, 32)) == 8


def default_like(layout):
    assert not layout.cta.is_default
    return layout


def test_ctas_hold_copies_along_k():
    cta = CTALayout((2, 2), (2, 2), (1, 0))
    a = DotOperand(0, Mma((2, 0), (2, 2), (16, 8), cta), 2)
    assert a.cta.cta_split_num == (2, 1)
    linear = a.linear((64, 32))
    assert linear.apply(block=1) == (0, 0) and linear.apply(block=2) == (32, 0)
    assert Slice(0, Blocked((1, 1), (1, 32), (1, 4), (1, 0), cta)).cta == CTALayout((2,), (2,), (0,))


# -- rules ---------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(SHAPES, st.data())
def test_rules_move_nothing(shape, data):
    """The result's element at a place is the operand's at the same place."""
    layout = data.draw(distributed(shape, data.draw(st.integers(0, 2))))
    source = layout.linear(shape)
    numbers = elements(source)
    flipped = infer_trans(layout, (1, 0), shape).linear(shape[::-1])
    expected = numbers % shape[1] * shape[0] + numbers // shape[1]
    assert same_threads(elements(flipped), expected)
    flat = infer_reshape(layout, shape, (shape[0] * shape[1],))
    assert same_threads(elements(flat.linear((shape[0] * shape[1],))), numbers)
    axis = data.draw(st.integers(0, 2))
    wide = (*shape[:axis], 1, *shape[axis:])
    assert same_threads(elements(infer_expand_dims(layout, axis, wide).linear(wide)), numbers)
    joined = infer_join(layout, shape)
    pairs = elements(joined.linear((*shape, 2)))
    assert same_threads(pairs[..., 0::2] // 2, numbers) and (pairs[..., 1::2] == pairs[..., 0::2] + 1).all()
    halves = infer_split(joined, (*shape, 2))
    assert same_threads(elements(halves.linear(shape)), numbers)


def same_threads(a, b):
    """Same elements in the same registers; where an encoding drops or keeps copies, the same set."""
    if a.shape == b.shape and (a == b).all():
        return True
    return all(set(x) == set(y) for x, y in zip(a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])))


def test_split_needs_both_halves_in_one_thread():
    with pytest.raises(LayoutError, match="different threads"):
        infer_split(default_blocked((16, 32, 2), 4), (16, 32, 2))


def test_trans_of_shared_permutes_the_order():
    assert Shared(8, 1, 8, (1, 0)).permuted((1, 0)) == Shared(8, 1, 8, (0, 1))
    assert infer_trans(Blocked((1,), (32,), (4,), (0,)), (0,), (128,)) == Blocked((1,), (32,), (4,), (0,))
    cta = CTALayout((2, 1), (2, 1), (1, 0))
    turned = infer_trans(Blocked((1, 4), (4, 8), (4, 1), (1, 0), cta), (1, 0), (64, 64))
    assert turned.cta == CTALayout((1, 2), (1, 2), (0, 1))


@settings(max_examples=60, deadline=None)
@given(blocked(), SHAPES)
def test_blocked_is_recognised(layout, shape):
    found = as_blocked(layout.linear(shape))
    assert found is None or found.linear(shape) == layout.linear(shape)
    if layout.tile == shape:
        assert found is not None


def test_reshape_keeps_blocked():
    rows = Blocked((1, 4), (4, 8), (4, 1), (1, 0))
    assert infer_reshape(rows, (16, 32), (512,)) == Blocked((4,), (32,), (4,), (0,))
    assert infer_reshape(MMA, (16, 8), (128,)) == Blocked((2,), (32,), (1,), (0,))
    assert isinstance(infer_reshape(MMA, (16, 16), (256,)), Linear)


def test_linear_encoding_repeats_and_wraps():
    layout = linear((4, 32), {
        "register": [(0, 8), (0, 16)], "lane": [(0, 1), (0, 2), (0, 4), (1, 0), (2, 0)]})
    assert layout.order == (1, 0)
    assert layout.linear((8, 32)).columns_of("register")[-1] == 4 * 32
    assert layout.linear((4, 16)).columns_of("register") == (8, 0)


@pytest.mark.parametrize("make, message", [
    (lambda: Blocked((3,), (32,), (1,), (0,)), "size_per_thread must be a power of two, got 3"),
    (lambda: Blocked((1,), (32,), (1,), (1,)), r"order must be a permutation of 0..0, got \[1\]"),
    (lambda: Blocked((1, 1), (32,), (1,), (0,)), "different lengths"),
    (lambda: Slice(2, Blocked((1, 1), (1, 32), (1, 1), (1, 0))), "cannot slice dimension 2"),
    (lambda: Slice(0, Shared(1, 1, 1, (1, 0))), "must be a distributed encoding"),
    (lambda: DotOperand(2, MMA), "opIdx must be 0"),
    (lambda: DotOperand(0, Slice(0, Blocked((1, 1), (1, 32), (1, 1), (1, 0)))), "must be mma or blocked"),
    (lambda: Mma((1, 0)), "mma version 1"),
    (lambda: Mma((2, 0), (4, 1), (4, 4)), "does not fit"),
    (lambda: CTALayout((1,), (1, 1), (0,)), "same length"),
    (lambda: MMA.linear((16,)), "has rank 2, the shape"),
    (lambda: MMA.linear((16, 12)), "must be a power of two, got 12"),
    (lambda: Linear(LinearLayout.identity(2, "register", "dim0")), "expected inputs register, lane, warp"),
    (lambda: linear((2,), {"lane": [(1,)]}), "expected 32 lanes, got 2"),
    (lambda: linear((64,), {"lane": [(1,), (2,), (4,), (8,), (16,)]}), "have no place"),
])
def test_bad_encodings(make, message):
    with pytest.raises(LayoutError, match=message):
        make()


def test_encodings_are_values():
    a, b = Slice(1, default_blocked((64, 64), 4)), Slice(1, default_blocked((64, 64), 4))
    assert a == b and hash(a) == hash(b) and a != Slice(0, a.parent)
    assert len({a, b, MMA, Mma((2, 0), (1, 1), (16, 8)), DotOperand(0, MMA, 2)}) == 3
