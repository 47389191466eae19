"""Warp-level instructions against their definitions, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import HEADER, lanes, run

FULL = 0xFFFFFFFF
RNG = np.random.default_rng(7)
VALUES = RNG.integers(0, 2**32, 64, dtype=np.uint32)
SMALL = RNG.integers(0, 4, 64, dtype=np.uint32)


def shuffle(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The PTX ISA's pseudo-code of shfl: (source lane, predicate)."""
    segment, clamp = c >> 8 & 31, c & 31
    highest = (lane & segment) | (clamp & ~segment)
    lowest = lane & segment
    b &= 31
    source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": lowest | (b & ~segment)}[mode]
    valid = source >= highest if mode == "up" else source <= highest
    return (source if valid else lane), valid


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8, 4])
@pytest.mark.parametrize("literal", [True, False])
def test_shfl(machine, mode, width, literal):
    c = 32 - width << 8 | (0 if mode == "up" else 31)
    for b in (0, 1, 3, 7, 16, 31):
        operands = f"{b}, {c}" if literal else "%b, %c"
        text = (
            "mov.u32 %b, %laneid; mov.u32 %c, %laneid; sub.u32 %b, %b, %c; "
            f"add.u32 %b, %b, {b}; mov.u32 %c, {c}; "
            f"shfl.sync.{mode}.b32 %o0|%o1, %i0, {operands}, 0xffffffff;"
        )
        value, valid = lanes(
            machine, text, [VALUES], ["b32"], [("b32", "u4"), ("pred", "u1")], ".reg .b32 %b, %c;"
        )
        expected = [shuffle(mode, n % 32, b, c) for n in range(64)]
        assert value.tolist() == [VALUES[n // 32 * 32 + source] for n, (source, _) in enumerate(expected)]
        assert valid.tolist() == [ok for _, ok in expected]


def test_shfl_onto_its_own_source(machine):
    text = "mov.b32 %o0, %i0; shfl.sync.idx.b32 %o0, %o0, 5, 31, -1;"
    (value,) = lanes(machine, text, [VALUES], ["b32"], [("b32", "u4")])
    np.testing.assert_array_equal(value, np.repeat(VALUES[[5, 37]], 32))


def test_votes_and_masks(machine):
    text = """setp.lt.u32 %p, %i0, 2; vote.sync.ballot.b32 %o0, %p, -1; vote.sync.all.pred %o1, %p, -1;
    vote.sync.any.pred %o2, !%p, -1; vote.sync.uni.pred %o3, %p, -1; activemask.b32 %o4;
    vote.sync.ballot.b32 %o5, !%p, -1;"""
    values = np.concatenate([SMALL[:32], np.ones(32, np.uint32)])
    ballot, every, some, same, active, other = lanes(
        machine,
        text,
        [values],
        ["b32"],
        [("b32", "u4"), ("pred", "u1"), ("pred", "u1"), ("pred", "u1"), ("b32", "u4"), ("b32", "u4")],
        ".reg .pred %p;",
    )
    bits = sum(int(v < 2) << n for n, v in enumerate(SMALL[:32].tolist()))
    assert set(ballot[:32]) == {bits} and set(ballot[32:]) == {FULL}
    assert set(other[:32]) == {bits ^ FULL} and set(other[32:]) == {0}
    assert every.tolist() == [0] * 32 + [1] * 32 and some.tolist() == [1] * 32 + [0] * 32
    assert same.tolist() == [0] * 32 + [1] * 32 and set(active) == {FULL}


def test_divergent_lanes_vote_among_themselves(machine):
    ptx = (
        HEADER.format(target="sm_90")
        + """
    .visible .entry k(.param .u64 out) {
      .reg .b64 %a; .reg .b32 %r<6>; .reg .pred %p<3>;
      ld.param.u64 %a, [out]; mov.u32 %r0, %tid.x; mad.wide.u32 %a, %r0, 8, %a; and.b32 %r1, %r0, 3;
      setp.eq.u32 %p0, %r1, 0;
      @%p0 bra ZERO;
      activemask.b32 %r2; vote.sync.ballot.b32 %r3, %p0, 0xeeeeeeee;
      bra END;
      ZERO: activemask.b32 %r2; elect.sync %r3|%p1, 0x11111111; selp.u32 %r4, 100, 0, %p1;
      add.u32 %r3, %r3, %r4;
      END: st.global.v2.b32 [%a], {%r2, %r3}; ret;
    }"""
    )
    out = np.zeros((64, 2), np.uint32)
    run(machine, ptx, "k", 1, 64, out)
    zero = np.arange(64) % 4 == 0
    assert set(out[zero, 0]) == {0x11111111} and set(out[~zero, 0]) == {0xEEEEEEEE}
    assert set(out[~zero, 1]) == {0}
    assert out[zero, 1].tolist() == [100] + [0] * 7 + [100] + [0] * 7


@pytest.mark.parametrize("kind, dtype", [("b32", "u4"), ("b64", "u8")])
def test_match(machine, kind, dtype):
    values = SMALL.astype(dtype)
    values[32:] = 9
    text = f"match.any.sync.{kind} %o0, %i0, -1; match.all.sync.{kind} %o1|%o2, %i0, -1;"
    some, every, agreed = lanes(
        machine, text, [values], [kind], [("b32", "u4"), ("b32", "u4"), ("pred", "u1")]
    )
    expected = [sum(1 << m for m in range(32) if values[n // 32 * 32 + m] == values[n]) for n in range(64)]
    assert some.tolist() == expected
    assert every.tolist() == [0] * 32 + [FULL] * 32 and agreed.tolist() == [0] * 32 + [1] * 32


@pytest.mark.parametrize(
    "operation, kind, reduce",
    [
        ("add", "u32", np.add),
        ("add", "s32", np.add),
        ("min", "u32", np.minimum),
        ("max", "u32", np.maximum),
        ("min", "s32", np.minimum),
        ("max", "s32", np.maximum),
        ("and", "b32", np.bitwise_and),
        ("or", "b32", np.bitwise_or),
        ("xor", "b32", np.bitwise_xor),
    ],
)
def test_redux(machine, operation, kind, reduce):
    dtype = "i4" if kind == "s32" else "u4"
    (found,) = lanes(
        machine,
        f"redux.sync.{operation}.{kind} %o0, %i0, -1;",
        [VALUES.view(dtype)],
        ["b32"],
        [("b32", dtype)],
    )
    values = VALUES.view(dtype).reshape(2, 32)
    np.testing.assert_array_equal(found, np.repeat(reduce.reduce(values, axis=1, dtype=dtype), 32))


def test_redux_of_some_members(machine):
    text = (
        "and.b32 %t0, %i0, 0; mov.u32 %t1, %laneid; setp.lt.u32 %p, %t1, 8; "
        "@%p redux.sync.add.u32 %t0, %i0, 0xff; "
        "mov.b32 %o0, %t0;"
    )
    (found,) = lanes(machine, text, [SMALL], ["b32"], [("b32", "u4")], ".reg .b32 %t<2>; .reg .pred %p;")
    rows = SMALL.reshape(2, 32)
    expected = np.zeros((2, 32), np.uint32)
    expected[:, :8] = rows[:, :8].sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(found, expected.reshape(-1))


def test_lane_masks(machine):
    names = ["lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge"]
    text = " ".join(f"mov.u32 %o{n}, %{name};" for n, name in enumerate(names))
    found = lanes(machine, text, [SMALL], ["b32"], [("b32", "u4")] * 5)
    for n in range(64):
        lane = n % 32
        equal, below = 1 << lane, (1 << lane) - 1
        assert [int(mask[n]) for mask in found] == [
            equal,
            below,
            below | equal,
            FULL & ~(below | equal),
            FULL & ~below,
        ]
