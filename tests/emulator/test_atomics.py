"""atom and red: the final memory, and that what lanes saw is one possible order."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import HEADER, run

LANES = 256
RNG = np.random.default_rng(11)


def kernel(
    opcode: str, kind: str, size: int, space: str = "global", extra: str = "", value: str = "%v"
) -> str:
    """Each lane applies ``opcode`` to ``cell[where[tid]]``, stores what it saw; shared cells are copied in
    and out.
    """
    bits = 8 * size
    shared = space == "shared"
    target = "%s" if shared else "%c"
    result = f"%o, [{target}]" if opcode.startswith("atom") else f"[{target}]"
    return (
        HEADER.format(target="sm_90")
        + f"""
    .visible .entry k(.param .u64 cells, .param .u64 where, .param .u64 values,
      .param .u64 seen, .param .u32 n) {{
      .shared .align 16 .b8 buffer[4096]; .reg .b64 %a<6>, %c; .reg .b32 %t, %w, %s, %n, %q;
      .reg .b{bits} %v, %o, %x;
      .reg .pred %p;
      mov.u32 %t, %tid.x; ld.param.u64 %a0, [cells]; ld.param.u64 %a1, [where]; ld.param.u64 %a2, [values];
      ld.param.u64 %a3, [seen]; ld.param.u32 %n, [n]; mad.wide.u32 %a1, %t, 4, %a1; ld.global.u32 %w, [%a1];
      mad.wide.u32 %c, %w, {size}, %a0; mov.u32 %s, buffer; mad.wide.u32 %a4, %t, {size}, %a0;
      mad.lo.u32 %q, %t, {size}, %s; mad.lo.u32 %s, %w, {size}, %s; setp.lt.u32 %p, %t, %n;
      @%p ld.global.b{bits} %x, [%a4]; @%p st.shared.b{bits} [%q], %x; bar.sync 0;
      mad.wide.u32 %a2, %t, {size}, %a2; mad.wide.u32 %a3, %t, {size}, %a3; ld.global.b{bits} %v, [%a2];
      {extra}
      {opcode.format(space=space)}.{kind} {result}, {value};
      bar.sync 0; @{"" if shared else "!"}%p bra OUT; bra DONE;
      OUT: {f"ld.shared.b{bits} %x, [%q]; st.global.b{bits} [%a4], %x;" if shared else ""}
      DONE: st.global.b{bits} [%a3], %o; ret;
    }}"""
    )


def apply(opcode, kind, dtype, initial, values, space="global", extra="", value="%v", cells=7):
    """Launch; returns (cells after, what lanes saw, where they went)."""
    memory = np.array(initial(cells), dtype)
    where = RNG.integers(0, cells, LANES, dtype=np.uint32)
    values = np.asarray(values, dtype)
    seen = np.zeros(LANES, dtype)
    start = memory.copy()
    ptx = kernel(opcode, kind, np.dtype(dtype).itemsize, space, extra, value)
    return ptx, memory, start, where, values, seen, np.uint32(cells)


def launch(machine, prepared):
    ptx, memory, start, where, values, seen, count = prepared
    run(machine, ptx, "k", 1, LANES, memory, where, values, seen, count)
    return memory, seen, where, values, start


INTEGERS = [
    ("add", "u32", "u4", lambda a, b: a + b),
    ("add", "s32", "i4", lambda a, b: a + b),
    ("add", "u64", "u8", lambda a, b: a + b),
    ("min", "u32", "u4", min),
    ("max", "u32", "u4", max),
    ("min", "s32", "i4", min),
    ("max", "s32", "i4", max),
    ("min", "s64", "i8", min),
    ("max", "u64", "u8", max),
    ("and", "b32", "u4", lambda a, b: a & b),
    ("or", "b32", "u4", lambda a, b: a | b),
    ("xor", "b32", "u4", lambda a, b: a ^ b),
    ("and", "b64", "u8", lambda a, b: a & b),
    ("or", "b64", "u8", lambda a, b: a | b),
    ("xor", "b64", "u8", lambda a, b: a ^ b),
]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("opcode", ["atom.{space}", "red.relaxed.gpu.{space}"])
@pytest.mark.parametrize(
    "operation, kind, dtype, combine", INTEGERS, ids=[f"{row[0]}.{row[1]}" for row in INTEGERS]
)
def test_integer_operations(machine, space, opcode, operation, kind, dtype, combine):
    info = np.iinfo(dtype)
    values = RNG.integers(info.min // 512, info.max // 512, LANES, dtype=dtype)
    prepared = apply(f"{opcode}.{operation}", kind, dtype, lambda n: RNG.integers(0, 1000, n), values, space)
    memory, seen, where, values, start = launch(machine, prepared)
    expected = start.tolist()
    for place, value in zip(where.tolist(), values.tolist()):
        expected[place] = combine(expected[place], value)
    bits = 8 * np.dtype(dtype).itemsize
    assert [value & (1 << bits) - 1 for value in expected] == [
        value & (1 << bits) - 1 for value in memory.tolist()
    ]
    if opcode.startswith("atom"):
        check_order(start, memory, where, values, seen, combine, bits)


def check_order(start, memory, where, values, seen, combine, bits):
    """Per cell the (seen, new) pairs must be one chain from the first to the last value."""
    ones = (1 << bits) - 1
    for cell in range(len(start)):
        mine = np.flatnonzero(where == cell)
        steps = [(int(seen[n]) & ones, combine(int(seen[n]), int(values[n])) & ones) for n in mine]
        degrees: dict[int, int] = {}
        for old, new in steps:
            degrees[old] = degrees.get(old, 0) + 1
            degrees[new] = degrees.get(new, 0) - 1
        degrees[int(start[cell]) & ones] = degrees.get(int(start[cell]) & ones, 0) - 1
        degrees[int(memory[cell]) & ones] = degrees.get(int(memory[cell]) & ones, 0) + 1
        assert not any(degrees.values())


@pytest.mark.parametrize("space", ["global", "shared"])
def test_exchange_hands_values_on(machine, space):
    prepared = apply("atom.{space}.exch", "b32", "u4", lambda n: np.arange(n) + 1000, np.arange(LANES), space)
    memory, seen, where, values, start = launch(machine, prepared)
    for cell in range(len(start)):
        mine = where == cell
        assert sorted([*values[mine], start[cell]]) == sorted([*seen[mine], memory[cell]])


@pytest.mark.parametrize("space", ["global", "shared"])
def test_increment_and_decrement_wrap(machine, space):
    for operation, step in (
        ("inc", lambda old, limit: 0 if old >= limit else old + 1),
        ("dec", lambda old, limit: limit if old == 0 or old > limit else old - 1),
    ):
        prepared = apply(
            f"atom.{{space}}.{operation}", "u32", "u4", lambda n: np.zeros(n), np.full(LANES, 10), space
        )
        memory, seen, where, values, start = launch(machine, prepared)
        for cell in range(len(start)):
            expected, old = [], 0
            for _ in range(np.count_nonzero(where == cell)):
                expected.append(old)
                old = step(old, 10)
            assert sorted(seen[where == cell].tolist()) == sorted(expected) and memory[cell] == old


@pytest.mark.parametrize("kind, dtype", [("b16", "u2"), ("b32", "u4"), ("b64", "u8")])
def test_compare_and_swap_has_one_winner(machine, kind, dtype):
    prepared = apply(
        "atom.acq_rel.gpu.global.cas",
        kind,
        dtype,
        lambda n: np.zeros(n),
        np.arange(1, LANES + 1),
        "global",
        value="0, %v",
    )
    memory, seen, where, values, start = launch(machine, prepared)
    for cell in range(len(start)):
        mine = where == cell
        winners = values[mine][seen[mine] == 0]
        assert winners.tolist() == [memory[cell]]
        assert set(seen[mine].tolist()) <= {0, int(memory[cell])}


def test_compare_and_swap_chain(machine):
    """Lane n swaps n for n + 1: in lane order all of them succeed one after another, in no other order more
    than once.
    """
    ptx = kernel("atom.global.cas", "b32", 4, value="%v, %x", extra="add.u32 %x, %v, 1;")
    memory, seen = np.zeros(1, np.uint32), np.zeros(LANES, np.uint32)
    values = np.arange(LANES, dtype=np.uint32)
    run(machine, ptx, "k", 1, LANES, memory, np.zeros(LANES, np.uint32), values, seen, np.uint32(1))
    assert memory[0] == np.count_nonzero(seen == values)


FLOATS = [("f32", "f4", 1e-5), ("f64", "f8", 1e-14)]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("opcode", ["atom.{space}", "red.{space}"])
@pytest.mark.parametrize("kind, dtype, tolerance", FLOATS, ids=["f32", "f64"])
def test_float_addition(machine, space, opcode, kind, dtype, tolerance):
    prepared = apply(f"{opcode}.add", kind, dtype, lambda n: np.ones(n), RNG.standard_normal(LANES), space)
    memory, seen, where, values, start = launch(machine, prepared)
    expected = start.astype("f8") + np.bincount(where, values, minlength=len(start))
    np.testing.assert_allclose(memory, expected, rtol=tolerance, atol=tolerance * 50)


def test_float_addition_flushes_on_global_memory_only(machine):
    tiny = np.float32(2.0**-130)
    for space, total in (("global", 0.0), ("shared", 256 * 2.0**-130)):
        for opcode in ("atom", "red"):
            memory, seen = np.zeros(1, np.float32), np.zeros(LANES, np.float32)
            run(
                machine,
                kernel(f"{opcode}.{{space}}.add", "f32", 4, space),
                "k",
                1,
                LANES,
                memory,
                np.zeros(LANES, np.uint32),
                np.full(LANES, tiny),
                seen,
                np.uint32(1),
            )
            assert memory[0] == total


@pytest.mark.parametrize("kind, halves", [("f16x2", np.float16), ("bf16x2", None)])
@pytest.mark.parametrize("opcode", ["atom.global.add.noftz", "red.global.add.noftz"])
def test_packed_halves(machine, kind, halves, opcode):
    """Small integers are exact in f16 and in bf16."""
    pairs = RNG.integers(-1, 2, (LANES, 2))

    def bits(values):
        if halves is not None:
            return np.ascontiguousarray(values.astype(halves)).view(np.uint32).reshape(-1)
        return (
            np.ascontiguousarray((values.astype("f4").view("u4") >> 16).astype("u2")).view("u4").reshape(-1)
        )

    where = RNG.integers(0, 5, LANES, dtype=np.uint32)
    memory, seen = np.zeros(5, np.uint32), np.zeros(LANES, np.uint32)
    run(machine, kernel(opcode, kind, 4), "k", 1, LANES, memory, where, bits(pairs), seen, np.uint32(5))
    expected = np.stack([np.bincount(where, pairs[:, half], minlength=5) for half in range(2)], axis=1)
    np.testing.assert_array_equal(memory, bits(expected + 0.0))


def test_vector_reduction(machine):
    ptx = (
        HEADER.format(target="sm_90")
        + """
    .visible .entry k(.param .u64 cells, .param .u64 values) {
      .reg .b64 %a<2>; .reg .b32 %t; .reg .f32 %f<4>;
      mov.u32 %t, %tid.x; ld.param.u64 %a0, [cells]; ld.param.u64 %a1, [values];
      mad.wide.u32 %a1, %t, 16, %a1;
      and.b32 %t, %t, 3; mad.wide.u32 %a0, %t, 16, %a0; ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%a1];
      red.global.add.v4.f32 [%a0], {%f0, %f1, %f2, %f3}; ret;
    }"""
    )
    values = RNG.integers(-8, 8, (64, 4)).astype(np.float32)
    cells = np.zeros((4, 4), np.float32)
    run(machine, ptx, "k", 1, 64, cells, values)
    np.testing.assert_array_equal(cells, values.reshape(16, 4, 4).sum(axis=0))
