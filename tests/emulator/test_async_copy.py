"""cp.async, mbarriers, bulk copies and TMA on every device, and what checked mode says of misuse."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import EmulatorError

from . import tma
from .foreign import _with_arrays
from .harness import HEADER, lanes, pack, run

# ------------------------------------------------------------------------------------------------------------
# cp.async
# ------------------------------------------------------------------------------------------------------------

_PROLOGUE = (
    "shl.b32 %s, %t, 4; mov.b32 %b, buf; add.u32 %s, %s, %b;"
    "mul.wide.u32 %g, %t, 16; ld.param.u64 %h, [p_i0]; add.u64 %g, %g, %h;"
)
_REGISTERS = ".shared .align 16 .b8 buf[512]; .reg .b32 %s, %b; .reg .b64 %g, %h; .reg .pred %p;"
_ONES = "mov.b32 %b, -1; st.shared.v4.b32 [%s], {%b, %b, %b, %b};"
_RESULT = [("b32", np.uint32)] * 4
_LOAD = "ld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%s];"


def copied(
    device, instructions: str, source: np.ndarray, extra: list[np.ndarray] | None = None
) -> np.ndarray:
    """Each of 32 lanes copies its 16 bytes of `source` (u32, 128) by `instructions`; gives (32, 4) u32 of
    shared memory.

    The harness runs 128 lanes, one per element of the source, which is its first input.
    """
    extra = extra or []
    text = f"{_PROLOGUE} {_ONES} {instructions} {_LOAD}"
    inputs = [source, *[np.resize(array, 128) for array in extra]]
    out = lanes(device, text, inputs, ["b32"] * len(inputs), _RESULT, _REGISTERS.replace("[512]", "[2048]"))
    return np.stack(out, axis=1)[:32]


@pytest.fixture
def source() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**31, 512, dtype=np.uint32)[:128].copy()


def in_range(instruction: str) -> str:
    """Only the first 32 lanes: the source has 512 bytes."""
    return f"setp.lt.u32 %p, %t, 32; @%p {instruction}"


@pytest.mark.parametrize("size", [4, 8, 16])
def test_sizes(machine, source, size):
    got = copied(
        machine, in_range(f"cp.async.ca.shared.global [%s], [%g], {size};") + "cp.async.wait_all;", source
    )
    want = np.full((32, 4), 0xFFFFFFFF, np.uint32)
    want[:, : size // 4] = source.reshape(32, 4)[:, : size // 4]
    assert np.array_equal(got, want)


def test_cache_hints_do_not_matter(machine, source):
    text = (
        in_range("cp.async.cg.shared.global.L2::128B [%s], [%g], 16;")
        + "cp.async.commit_group; cp.async.wait_group 0;"
    )
    assert np.array_equal(copied(machine, text, source), source.reshape(32, 4))


@pytest.mark.parametrize("size", [0, 4, 8, 12, 16])
def test_source_size_fills_with_zeros(machine, source, size):
    text = (
        f"mov.b32 %b, {size};"
        + in_range("cp.async.cg.shared.global [%s], [%g], 16, %b;")
        + "cp.async.wait_all;"
    )
    want = source.reshape(32, 4).copy()
    want[:, size // 4 :] = 0
    assert np.array_equal(copied(machine, text, source), want)


def test_source_size_zero_touches_no_memory(machine, source):
    """All 128 lanes run: those beyond the array have source size 0."""
    text = (
        "setp.lt.u32 %p, %t, 32; selp.b32 %b, 16, 0, %p;"
        "cp.async.cg.shared.global [%s], [%g], 16, %b; cp.async.wait_all;"
    )
    assert np.array_equal(copied(machine, text, source), source.reshape(32, 4))


def test_source_sizes_differ_between_lanes(machine, source):
    sizes = np.tile(np.array([0, 4, 8, 12, 16, 16, 3, 9], np.uint32), 16)
    text = in_range("cp.async.cg.shared.global [%s], [%g], 16, %i1;") + "cp.async.wait_all;"
    got = copied(machine, text, source, [sizes]).view(np.uint8)
    want = source.reshape(32, 4).copy().view(np.uint8)
    for lane in range(32):
        want[lane, sizes[lane] :] = 0
    assert np.array_equal(got, want)


def test_data_comes_when_its_group_is_waited_for(machine, source):
    """Two groups; after wait_group 1 the first is there. (The second may be, too: it is not looked at.)"""
    text = (
        in_range("cp.async.ca.shared.global [%s], [%g], 8;") + "cp.async.commit_group;"
        "@%p cp.async.ca.shared.global [%s+8], [%g+8], 8; cp.async.commit_group; cp.async.wait_group 1;"
        "ld.shared.v2.b32 {%o0, %o1}, [%s]; cp.async.wait_group 0; ld.shared.v2.b32 {%o2, %o3}, [%s+8];"
    )
    out = lanes(
        machine,
        f"{_PROLOGUE} {_ONES} {text}",
        [source],
        ["b32"],
        _RESULT,
        _REGISTERS.replace("[512]", "[2048]"),
    )
    assert np.array_equal(np.stack(out, axis=1)[:32], source.reshape(32, 4))


def test_groups_are_counted_per_thread(machine, source):
    """Odd lanes commit an extra empty group, so that wait_group 1 waits for their copy, but not for the
    others'.
    """
    text = (
        in_range("cp.async.cg.shared.global [%s], [%g], 16;") + "cp.async.commit_group;"
        "and.b32 %b, %t, 1; setp.eq.u32 %p, %b, 1; @%p cp.async.commit_group; @%p cp.async.wait_group 1; "
        "@!%p cp.async.wait_group 0;"
    )
    assert np.array_equal(copied(machine, text, source), source.reshape(32, 4))


def test_late_data_is_visible_as_old_data(source):
    got = copied(
        EmulatorDevice(),
        in_range("cp.async.cg.shared.global [%s], [%g], 16;") + "cp.async.commit_group;",
        source,
    )
    assert (got == 0xFFFFFFFF).all()


@pytest.mark.parametrize(
    "text",
    [
        "cp.async.ca.shared.global [%s], [%g], 12;",
        "cp.async.cg.shared.global [%s], [%g], 8;",
        "cp.async.wait_group %b;",
    ],
)
def test_unknown_forms_are_refused_at_load_time(text, source):
    with pytest.raises(EmulatorError, match="PTX line"):
        copied(EmulatorDevice(), text, source)


# ------------------------------------------------------------------------------------------------------------
# mbarriers
# ------------------------------------------------------------------------------------------------------------


def kernel(body: str, params: str = ".param .u64 p", target: str = "sm_90a") -> str:
    return f"""{HEADER.format(target=target)}
.visible .entry k({params})
{{
  .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .pred %p<8>; .reg .f32 %f<8>;
  .shared .align 1024 .b8 tile[8192]; .shared .align 8 .b8 bar[64];
  mov.u32 %r0, %tid.x; mov.b32 %r1, bar; mov.b32 %r2, tile; setp.eq.u32 %p0, %r0, 0;
{body}
  ret;
}}
"""


WAIT = "again{n}: mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r1], {parity}; @!%p7 bra again{n};"


def wait(parity: int, n: int = 0) -> str:
    return WAIT.format(parity=parity, n=n)


def test_producer_and_consumer_warps_take_turns(machine):
    """Warp 0 writes a number, warp 1 reads it: ten rounds through a full and an empty mbarrier."""
    body = """
  ld.param.u64 %rd0, [p];
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 32;
  @%p0 mbarrier.init.shared::cta.b64 [%r1+8], 32;
  bar.sync 0;
  mov.b32 %r3, 0; shl.b32 %r5, %r0, 2; and.b32 %r5, %r5, 127; add.u32 %r5, %r5, %r2; setp.lt.u32 %p1, %r0, 32;
  mov.b32 %r8, 0;
  @%p1 bra producer;
consumer:
  and.b32 %r4, %r3, 1;
c0: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], %r4; @!%p2 bra c0;
  ld.shared.b32 %r6, [%r5]; mad.lo.u32 %r8, %r8, 3, %r6;
  mbarrier.arrive.shared::cta.b64 _, [%r1+8];
  add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 10; @%p3 bra consumer;
  sub.u32 %r7, %r0, 32; mul.wide.u32 %rd1, %r7, 4; add.u64 %rd1, %rd1, %rd0; st.global.b32 [%rd1], %r8;
  bra done;
producer:
  and.b32 %r4, %r3, 1; xor.b32 %r4, %r4, 1;
q0: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], %r4; @!%p2 bra q0;
  mad.lo.u32 %r6, %r3, 7, %r0; st.shared.b32 [%r5], %r6;
  mbarrier.arrive.shared::cta.b64 %rd2, [%r1];
  add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 10; @%p3 bra producer;
done:
"""
    out = np.zeros(32, np.uint32)
    run(machine, kernel(body), "k", 1, 64, out)
    want = np.zeros(32, np.uint32)
    for step in range(10):
        want = want * np.uint32(3) + np.uint32(step * 7) + np.arange(32, dtype=np.uint32)
    assert np.array_equal(out, want)


def test_the_same_under_every_check(checked):
    test_producer_and_consumer_warps_take_turns(checked)
    assert not checked.findings, "\n".join(map(str, checked.findings))


def test_checks_survive_the_end_of_their_ticks(checked, monkeypatch):
    monkeypatch.setattr("ptxforge.emulator.checks._LAST_TICK", 40)
    test_producer_and_consumer_warps_take_turns(checked)
    assert not checked.findings, "\n".join(map(str, checked.findings))


def test_state_tokens_counts_and_test_wait(machine):
    """A count of 64: each of 32 threads arrives for two; test_wait on the state of before turns true."""
    body = """
  ld.param.u64 %rd0, [p];
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 64;
  bar.sync 0;
  mbarrier.arrive.shared::cta.b64 %rd1, [%r1];
  mbarrier.test_wait.shared::cta.b64 %p1, [%r1], %rd1;
  selp.u32 %r3, 1, 0, %p1;
  bar.sync 0;
  mbarrier.arrive.shared::cta.b64 %rd2, [%r1];
again: mbarrier.test_wait.shared::cta.b64 %p2, [%r1], %rd1; @!%p2 bra again;
  selp.u32 %r4, 2, 0, %p2; add.u32 %r3, %r3, %r4;
  mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0; st.global.b32 [%rd3], %r3;
"""
    out = np.zeros(32, np.uint32)
    run(machine, kernel(body), "k", 1, 32, out)
    assert (out == 2).all()


def test_pending_count_of_a_state(machine):
    body = """
  ld.param.u64 %rd0, [p];
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 40;
  bar.sync 0;
  mbarrier.arrive.noComplete.shared::cta.b64 %rd1, [%r1], 1;
  mbarrier.pending_count.b64 %r3, %rd1;
  mul.wide.u32 %rd3, %r0, 4; add.u64 %rd3, %rd3, %rd0; st.global.b32 [%rd3], %r3;
"""
    out = np.zeros(32, np.uint32)
    run(machine, kernel(body), "k", 1, 32, out)
    # The counts around each arrival, in whatever order the threads came.
    assert set(out.tolist()) <= set(range(8, 41)) and out.max() >= 39


def test_copies_announce_themselves_on_an_mbarrier(machine):
    body = f"""
  ld.param.u64 %rd0, [p];
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 64;
  bar.sync 0;
  mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd1, %rd0; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2;
  cp.async.ca.shared.global [%r3], [%rd1], 4;
  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];
  {wait(0)}
  xor.b32 %r4, %r0, 63; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r2; ld.shared.b32 %r5, [%r4];
  bar.sync 0;
  st.global.b32 [%rd1], %r5;
"""
    x = np.arange(64, dtype=np.uint32) * 3
    run(machine, kernel(body), "k", 1, 64, x)
    assert np.array_equal(x, np.arange(64)[::-1] * 3)


def test_a_wait_for_a_phase_that_never_comes_is_a_deadlock(checked):
    body = (
        "@%p0 mbarrier.init.shared::cta.b64 [%r1], 2; bar.sync 0; "
        "@%p0 mbarrier.arrive.shared::cta.b64 _, [%r1];" + wait(0)
    )
    run(checked, kernel(body), "k", 1, 32, np.zeros(1, np.uint32))
    assert [finding.kind for finding in checked.findings] == ["deadlock"]
    assert "try_wait" in checked.findings[0].instruction


def test_too_many_arrivals_and_missing_initialisation(checked):
    run(checked, kernel("mbarrier.arrive.shared::cta.b64 _, [%r1];"), "k", 1, 32, np.zeros(1, np.uint32))
    assert "async" in [finding.kind for finding in checked.findings]
    body = (
        "@%p0 mbarrier.init.shared::cta.b64 [%r1], 5; bar.sync 0; mbarrier.arrive.shared::cta.b64 _, [%r1];"
    )
    run(checked, kernel(body), "k", 1, 32, np.zeros(1, np.uint32))
    assert any("more arrivals" in finding.message for finding in checked.findings)


def test_an_mbarrier_needs_a_barrier_after_its_initialisation(checked):
    body = "@%p0 mbarrier.init.shared::cta.b64 [%r1], 64; mbarrier.arrive.shared::cta.b64 _, [%r1];" + wait(0)
    run(checked, kernel(body), "k", 1, 64, np.zeros(1, np.uint32))
    assert "race" in [finding.kind for finding in checked.findings]


# ------------------------------------------------------------------------------------------------------------
# Bulk copies without a tensor map
# ------------------------------------------------------------------------------------------------------------

_BULK = f"""
  ld.param.u64 %rd0, [p]; ld.param.u64 %rd1, [q];
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @!%p0 bra wait;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 1024, [%r1];
wait: {wait(0)}
  shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2;
"""
_TWO = ".param .u64 p, .param .u64 q"


def test_bulk_copy_there_and_back(machine):
    body = (
        _BULK
        + """
  ld.shared.b32 %r4, [%r3]; add.u32 %r4, %r4, 1; st.shared.b32 [%r3], %r4;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @!%p0 bra done;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 1024;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
done:
"""
    )
    x, y = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    run(machine, kernel(body, _TWO), "k", 1, 256, x, y)
    assert np.array_equal(y, x + 1)


def test_bulk_copy_inside_shared_memory(checked):
    """On the emulator alone: an H200 stops with an illegal instruction. The copy is meant for the shared
    memory of another CTA, and this kernel is not launched as a cluster.
    """
    body = (
        _BULK
        + f"""
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;
  add.u32 %r5, %r2, 2048;
  @%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r2], 1024, [%r1];
  {wait(1, 1)}
  ld.shared.b32 %r4, [%r3+2048];
  mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; st.global.b32 [%rd2], %r4;
"""
    )
    x, y = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    run(checked, kernel(body, _TWO), "k", 1, 256, x, y)
    assert np.array_equal(y, x)
    assert not checked.findings, "\n".join(map(str, checked.findings))


REDUCTIONS = [
    ("add", "u32", np.uint32), ("add", "s32", np.int32), ("min", "s32", np.int32), ("max", "u32", np.uint32),
    ("and", "b32", np.uint32),
    ("or", "b32", np.uint32), ("xor", "b32", np.uint32), ("inc", "u32", np.uint32), ("dec", "u32", np.uint32),
    ("add", "f32", np.float32), ("add", "u64", np.uint64), ("add.noftz", "f16", np.float16), ("add", "f64",
    np.float64),
    ("min", "f16", np.float16), ("max", "s64", np.int64),
]  # fmt: skip


@pytest.mark.parametrize("name, kind, dtype", REDUCTIONS)
def test_bulk_reductions(machine, name, kind, dtype):
    rng = np.random.default_rng(1)
    count = 1024 // np.dtype(dtype).itemsize
    if np.dtype(dtype).kind == "f":
        x, y = rng.standard_normal(count).astype(dtype), rng.standard_normal(count).astype(dtype)
    else:
        x, y = rng.integers(0, 100, count).astype(dtype), rng.integers(0, 100, count).astype(dtype)
    body = (
        _BULK
        + f"""
  bar.sync 0;
  @!%p0 bra done;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.{name}.{kind} [%rd1], [%r2], 1024;
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
done:
"""
    )
    before = y.copy()
    run(machine, kernel(body, _TWO), "k", 1, 256, x, y)
    want = {
        "add": lambda: before + x, "min": lambda: np.minimum(before, x), "max": lambda: np.maximum(before, x),
        "and": lambda: before & x, "or": lambda: before | x, "xor": lambda: before ^ x,
        "inc": lambda: np.where(before >= x, 0, before + 1),
        "dec": lambda: np.where((before == 0) | (before > x), x, before - 1),
    }[name.partition(".")[0]]()  # fmt: skip
    assert np.array_equal(y, want.astype(dtype))


def test_a_store_that_nobody_waits_for_is_reported(checked):
    body = (
        _BULK + "bar.sync 0; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 1024; "
        "@%p0 cp.async.bulk.commit_group;"
    )
    x, y = np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32)
    run(checked, kernel(body, _TWO), "k", 1, 256, x, y)
    assert [finding.kind for finding in checked.findings] == ["async"]


def test_shared_memory_changed_under_a_store_is_reported(checked):
    body = (
        _BULK
        + """
  bar.sync 0; @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 1024;
  @%p0 cp.async.bulk.commit_group;
  bar.sync 0; st.shared.b32 [%r3], %r0; @%p0 cp.async.bulk.wait_group 0;
"""
    )
    run(checked, kernel(body, _TWO), "k", 1, 256, np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32))
    finding = next(iter(checked.findings))
    assert finding.kind == "async" and "st.shared" in finding.instruction
    text = kernel(body, _TWO).splitlines()
    issued = next(number for number, line in enumerate(text, 1) if "cp.async.bulk.global" in line)
    assert finding.message.endswith(f"was not waited for; issued at PTX line {issued}")


@pytest.mark.parametrize(
    "copy, wait",
    [
        ("cp.async.ca.shared.global [%r3], [%rd0], 4;", "cp.async.wait_all;"),
        ("cp.async.ca.shared.global [%r3], [%rd0], 16;", "cp.async.wait_all;"),
    ],
)
def test_data_of_a_copy_read_too_early_names_the_copy(checked, copy, wait):
    body = f"""mad.lo.u32 %r3, %r0, 16, %r2; ld.param.u64 %rd0, [p]; mad.wide.u32 %rd0, %r0, 16, %rd0;
{copy}
ld.shared.b32 %r4, [%r3];
{wait}"""
    run(checked, kernel(body, _TWO), "k", 1, 32, np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32))
    text = kernel(body, _TWO).splitlines()
    (finding,) = [one for one in checked.findings if one.kind == "async"]
    assert finding.line == text.index("ld.shared.b32 %r4, [%r3];") + 1 and finding.count == 32
    assert finding.message.endswith(f"was not waited for; issued at PTX line {text.index(copy) + 1}")


def test_bulk_copies_outside_memory_are_reported(checked):
    body = _BULK.replace("[%rd0], 1024", "[%rd0], 2048").replace("[%r1], 1024", "[%r1], 2048")
    run(checked, kernel(body, _TWO), "k", 1, 256, np.arange(256, dtype=np.uint32), np.zeros(256, np.uint32))
    assert "out-of-bounds" in [finding.kind for finding in checked.findings]


def test_uninitialised_data_is_reported_when_stored(checked):
    body = """
  ld.param.u64 %rd1, [p];
  @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 1024;
  @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;
"""
    run(checked, kernel(body), "k", 1, 32, np.zeros(256, np.uint32))
    assert [finding.kind for finding in checked.findings] == ["uninitialised"]


# ------------------------------------------------------------------------------------------------------------
# TMA
# ------------------------------------------------------------------------------------------------------------

DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "u8": np.uint8,
    "u64": np.uint64,
    "s32": np.int32,
    "f64": np.float64,
}
MAPS = ".param .align 64 .b8 m0[128], .param .align 64 .b8 m1[128], .param .u64 out, " + ", ".join(
    f".param .s32 c{axis}" for axis in range(5)
)


def tensor_kernel(rank: int, nbytes: int, back: str) -> str:
    """Loads the box at c0, c1... to `tile`, writes its bytes to `out`, then runs `back`."""
    coordinates = ", ".join(f"%r{10 + axis}" for axis in range(rank))
    loads = "".join(f"ld.param.s32 %r{10 + axis}, [c{axis}];" for axis in range(rank))
    body = f"""
  {loads} mov.b64 %rd3, m0; cvta.param.u64 %rd3, %rd3; mov.b64 %rd4, m1; cvta.param.u64 %rd4, %rd4;
  ld.param.u64 %rd0, [out];
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @!%p0 bra wait;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {nbytes};
  cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd3,
  {{{coordinates}}}], [%r1];
wait: {wait(0)}
  mov.b32 %r3, %r0;
copy:
  setp.ge.u32 %p1, %r3, {nbytes}; @%p1 bra copied;
  add.u32 %r4, %r3, %r2; ld.shared.b32 %r5, [%r4]; cvt.u64.u32 %rd1, %r3; add.u64 %rd1, %rd1, %rd0;
  st.global.b32 [%rd1], %r5;
  add.u32 %r3, %r3, 128; bra copy;
copied:
{back.format(rank=rank, coordinates=coordinates)}
"""
    return kernel(body, MAPS).replace("mov.b32 %r3, %r0;", "shl.b32 %r3, %r0, 2;")


def run_tensor(
    device,
    x: np.ndarray,
    kind: str,
    box,
    corner,
    *,
    steps=None,
    swizzle=0,
    fill_nan=False,
    back="",
    second=None,
    kernel_text=tensor_kernel,
    columns=None,
):
    """Bytes of the box in shared memory, unswizzled, as x's dtype. The tensor that is stored to has the first
    ``columns`` of y's, or all."""
    rank = x.ndim
    steps = steps or (1,) * rank
    count = int(np.prod([-(-b // s) for b, s in zip(box, steps)]))
    out = np.zeros(count, x.dtype)
    y = second if second is not None else np.zeros_like(x)
    ptx = kernel_text(rank, out.nbytes, back)

    def launch(at: list[int]) -> None:
        maps = [tma.encode(device, kind, address, (width, *x.shape[-2::-1]), x.strides[-2::-1], box, steps,
                swizzle=swizzle, fill_nan=fill_nan)
                for address, width in ((at[0], x.shape[-1]), (at[2], columns or x.shape[-1]))]  # fmt: skip
        corners = [np.int32(v) for v in (*corner, *(0,) * (5 - rank))]
        device.load_module(ptx).function("k").launch(
            (1, 1, 1), (32, 1, 1), 0, 0, pack([*maps, np.uint64(at[1]), *corners])
        )

    _with_arrays(device, [x, out, y], launch)
    return tma.unswizzled(out.view(np.uint8), swizzle).view(x.dtype)


CORNERS = {1: [[0], [16], [-8], [40]], 2: [[0, 0], [8, 3], [-4, -1], [24, 6]], 3: [[0, 0, 0], [8, -1, 2]],
           4: [[0, 0, 0, 0], [-4, 1, 3, -1]], 5: [[0, 0, 0, 0, 0], [12, 4, -1, 1, 1]]}  # fmt: skip


@pytest.mark.parametrize(
    "rank, corner", [(rank, corner) for rank, corners in CORNERS.items() for corner in corners]
)
def test_loads_of_every_rank(machine, rank, corner):
    shape = (2, 3, 4, 7, 48)[-rank:] if rank > 1 else (48,)
    x = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    box = (16, 4, 2, 2, 2)[:rank]
    got = run_tensor(machine, x, "f32", box, corner)
    assert np.array_equal(got, tma.box_of(x, corner, box, (1,) * rank).reshape(-1))


@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("kind", ["f16", "u8", "f32"])
def test_swizzled_loads(machine, kind, span):
    dtype = np.dtype(DTYPES[kind])
    box = (span // dtype.itemsize, 16)
    x = np.random.default_rng(2).integers(0, 100, (20, 256)).astype(dtype)
    got = run_tensor(machine, x, kind, box, [16, 7], swizzle=span)
    assert np.array_equal(got, tma.box_of(x, [16, 7], box, (1, 1)).reshape(-1))


@pytest.mark.parametrize("kind", ["u8", "u64", "s32", "f64"])
def test_element_types(machine, kind):
    x = np.random.default_rng(3).integers(0, 100, (9, 64)).astype(DTYPES[kind])
    assert np.array_equal(
        run_tensor(machine, x, kind, (32, 4), [16, 6]), tma.box_of(x, [16, 6], (32, 4), (1, 1)).reshape(-1)
    )


def test_element_strides(machine):
    x = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    got = run_tensor(machine, x, "f32", (16, 8), [4, 3], steps=(1, 2))
    assert np.array_equal(got, tma.box_of(x, [4, 3], (16, 8), (1, 2)).reshape(-1))


def test_nan_fill(machine):
    x = np.ones((4, 16), np.float32)
    got = run_tensor(machine, x, "f32", (16, 4), [8, 2], fill_nan=True)
    assert np.array_equal(got, tma.box_of(x, [8, 2], (16, 4), (1, 1), np.nan).reshape(-1), equal_nan=True)


_STORE = """
  bar.sync 0; @!%p0 bra stored;
  cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%rd4, {{{coordinates}}}], [%r2];
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
stored:
"""


@pytest.mark.parametrize("span", [0, 64])
def test_stores_leave_out_what_is_outside(machine, span):
    x = np.random.default_rng(4).standard_normal((12, 40)).astype(np.float32)
    y = np.zeros_like(x)
    run_tensor(machine, x, "f32", (16, 8), [32, 7], swizzle=span, back=_STORE, second=y)
    want = np.zeros_like(x)
    want[7:, 32:] = x[7:, 32:]
    assert np.array_equal(y, want)


_ADD = _STORE.replace("cp.async.bulk", "cp.reduce.async.bulk", 1).replace(".tile", ".add.tile")


@pytest.mark.parametrize("back", [_STORE, _ADD], ids=["store", "add"])
@pytest.mark.parametrize("kind", ["f32", "s32", "f16"])
def test_stores_reach_the_next_16_bytes(machine, kind, back):
    """Rows of 37 elements are written up to the next multiple of 16 bytes."""
    x = np.random.default_rng(4).integers(1, 50, (12, 48)).astype(DTYPES[kind])
    y = np.zeros_like(x)
    run_tensor(machine, x, kind, (16, 8), [32, 3], back=back, second=y, columns=37)
    want = np.zeros_like(x)
    want[3:11, 32:40] = x[3:11, 32:40]
    assert np.array_equal(y, want)


@pytest.mark.parametrize("back", [_STORE, _ADD], ids=["store", "add"])
@pytest.mark.parametrize("corner", [[-16, 2], [16, -1]])
def test_stores_begin_in_the_tensor(checked, corner, back):
    """A GPU takes others for an illegal instruction; loads may begin in front."""
    x, y = np.ones((12, 64), np.float32), np.zeros((12, 64), np.float32)
    run_tensor(checked, x, "f32", (16, 4), corner, back=back, second=y)
    assert [finding.kind for finding in checked.findings] == ["out-of-bounds"]
    assert f"the coordinate {min(corner)} lies in front of the tensor" in checked.findings[0].message
    assert not y.any()


@pytest.mark.parametrize("name", ["add", "max"])
def test_tensor_reductions(machine, name):
    rng = np.random.default_rng(5)
    x, y = rng.integers(-50, 50, (12, 40)).astype(np.int32), rng.integers(-50, 50, (12, 40)).astype(np.int32)
    before = y.copy()
    back = _STORE.replace(
        "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile",
        "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta." + name + ".tile",
    )
    run_tensor(machine, x, "s32", (16, 8), [32, 7], back=back, second=y)
    want = before.copy()
    part = np.s_[7:, 32:]
    want[part] = before[part] + x[part] if name == "add" else np.maximum(before[part], x[part])
    assert np.array_equal(y, want)


def _moved_by_one(rank: int, nbytes: int, back: str) -> str:
    """The load is aligned, what follows is one element further on."""
    return tensor_kernel(rank, nbytes, "add.s32 %r10, %r10, 1;" + back)


@pytest.mark.parametrize("kind", ["f32", "u8", "f64", "f16"])
@pytest.mark.parametrize("what", ["load", "store", "reduction"])
def test_boxes_begin_at_multiples_of_16_bytes(checked, what, kind):
    """A GPU takes others for an illegal instruction."""
    x, y = np.ones((12, 64), DTYPES[kind]), np.zeros((12, 64), DTYPES[kind])
    reduction = _STORE.replace("cp.async.bulk", "cp.reduce.async.bulk", 1).replace(".tile", ".add.tile")
    back = {"load": "", "store": _STORE, "reduction": reduction}[what]
    column = -1 if what == "load" else 16
    run_tensor(checked, x, kind, (16, 4), [column, 2], back=back, second=y, kernel_text=_moved_by_one)
    finding = checked.findings[0]
    wrong = column + (what != "load")
    assert finding.kind == "misaligned" and f"the innermost coordinate {wrong} of" in finding.message
    assert len(checked.findings) == 1 or what == "load"  # which nobody sees come
    assert not y.any()


def test_a_missing_proxy_fence_is_reported(checked):
    x = np.ones((12, 40), np.float32)
    change = "shl.b32 %r6, %r0, 2; add.u32 %r6, %r6, %r2; st.shared.b32 [%r6], %r0;"
    run_tensor(checked, x, "f32", (16, 8), [0, 0], back=change + _STORE)
    assert [finding.kind for finding in checked.findings] == ["proxy"]
    run_tensor(checked, x, "f32", (16, 8), [0, 0], back=change + "fence.proxy.async;" + _STORE)
    assert not checked.findings


def test_a_missing_proxy_fence_after_cp_async_is_of_its_own_kind(checked):
    body = """
  ld.param.u64 %rd0, [p]; ld.param.u64 %rd1, [q];
  shl.b32 %r3, %r0, 4; add.u32 %r3, %r3, %r2; mul.wide.u32 %rd2, %r0, 16; add.u64 %rd2, %rd2, %rd0;
  cp.async.cg.shared.global [%r3], [%rd2], 16; cp.async.wait_all; FENCE
  bar.sync 0;
  @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 512;
  @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;
"""
    store = "mov.b32 %r4, 7; st.shared.b32 [%r3], %r4;"
    for fence, kinds in (("", {"copy-proxy"}), ("fence.proxy.async;", set()), (store, {"proxy"})):
        checked.findings.clear()
        x, y = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
        run(checked, kernel(body.replace("FENCE", fence), _TWO), "k", 1, 32, x, y)
        assert {finding.kind for finding in checked.findings} == kinds


def test_a_tensor_map_of_another_rank_or_none_is_reported(checked):
    ptx = tensor_kernel(2, 256, "")
    params = pack([bytes(128), bytes(128), np.uint64(0), *[np.int32(0)] * 5])
    checked.load_module(ptx).function("k").launch((1, 1, 1), (32, 1, 1), 0, 0, params)
    assert any("no tensor map" in finding.message for finding in checked.findings)


# ------------------------------------------------------------------------------------------------------------
# Races in global memory
# ------------------------------------------------------------------------------------------------------------

_EVERY_CTA_STORES = """st.shared.b32 [%r3], %r0; fence.proxy.async.shared::cta; bar.sync 0;
mov.u32 %r5, %ctaid.x; mul.lo.u32 %r5, %r5, {stride}; cvt.u64.u32 %rd2, %r5; add.u64 %rd1, %rd1, %rd2;
@%p0 {copy} [%rd1], [%r2], 128;
@%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0;
"""


@pytest.mark.parametrize(
    "copy, stride, expected",
    [
        ("cp.async.bulk.global.shared::cta.bulk_group", 128, []),
        ("cp.async.bulk.global.shared::cta.bulk_group", 112, ["global-race"]),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", 112, []),
    ],
)
def test_bulk_stores_of_ctas_that_overlap(checked, copy, stride, expected):
    body = "mad.lo.u32 %r3, %r0, 4, %r2; ld.param.u64 %rd1, [q];" + _EVERY_CTA_STORES.format(
        copy=copy, stride=stride
    )
    run(checked, kernel(body, _TWO), "k", 4, 32, np.zeros(128, np.uint32), np.zeros(128, np.uint32))
    assert [finding.kind for finding in checked.findings] == expected
    assert all(finding.instruction.startswith("@%p0 cp.async.bulk.global") for finding in checked.findings)


def test_bulk_loads_of_what_another_cta_stores(checked):
    body = """ld.param.u64 %rd0, [p]; mov.u32 %r5, %ctaid.x; setp.eq.u32 %p1, %r5, 1;
@%p1 st.global.b32 [%rd0], %r0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1; bar.sync 0;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd0], 128, [%r1];
""" + wait(0)
    run(checked, kernel(body), "k", 1, 1, np.zeros(64, np.uint32))
    assert not checked.findings
    run(checked, kernel(body), "k", 2, 1, np.zeros(64, np.uint32))
    assert {finding.kind for finding in checked.findings} == {"global-race"}


# ------------------------------------------------------------------------------------------------------------
# Forms with the same result
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["multicast::cluster", "prefetch"])
def test_multicast_to_the_own_cta_and_prefetches(machine, form):
    def changed(rank: int, nbytes: int, back: str) -> str:
        text = tensor_kernel(rank, nbytes, back)
        if form == "prefetch":
            hint = "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd3, {%r10, %r11}];"
            return text.replace("  mbarrier.arrive.expect_tx", hint + "  mbarrier.arrive.expect_tx")
        text = text.replace("complete_tx::bytes [%r2]", "complete_tx::bytes.multicast::cluster [%r2]")
        return text.replace("[%r1];\nwait:", "[%r1], 1;\nwait:")

    x = np.arange(7 * 48, dtype=np.float32).reshape(7, 48)
    got = run_tensor(machine, x, "f32", (16, 4), [8, 3], kernel_text=changed)
    assert np.array_equal(got, tma.box_of(x, [8, 3], (16, 4), (1, 1)).reshape(-1))


DROPPED = """
  ld.param.u64 %rd0, [p]; mad.wide.u32 %rd0, %r0, 4, %rd0; setp.lt.u32 %p1, %r0, 3;
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 32; bar.sync 0;
  @%p1 mbarrier.arrive.shared::cta.b64 %rd1, [%r1]; @!%p1 mbarrier.arrive_drop.shared::cta.b64 %rd1, [%r1];
"""


def test_threads_that_drop_out_are_not_waited_for_any_more(machine):
    """29 of 32 threads leave in the first phase; the second and third need the other three alone."""
    body = (
        DROPPED
        + wait(0)
        + "@%p1 mbarrier.arrive.shared::cta.b64 %rd1, [%r1];"
        + wait(1, 1)
        + "@%p1 mbarrier.arrive.shared::cta.b64 %rd1, [%r1];"
        + wait(0, 2)
        + "st.global.b32 [%rd0], %r0;"
    )
    out = np.zeros(32, np.uint32)
    run(machine, kernel(body), "k", 1, 32, out)
    assert np.array_equal(out, np.arange(32))


def test_a_phase_in_which_everybody_drops_out_completes(checked):
    """On the emulator alone: where it fails, it waits for ever."""
    body = DROPPED.replace("%r0, 3", "%r0, 0") + wait(0) + "st.global.b32 [%rd0], %r0;"
    out = np.zeros(32, np.uint32)
    run(checked, kernel(body), "k", 1, 32, out)
    assert np.array_equal(out, np.arange(32))


def test_bytes_are_announced_and_completed_by_hand(machine):
    body = """
  ld.param.u64 %rd0, [p]; mad.wide.u32 %rd0, %r0, 4, %rd0;
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 1; bar.sync 0;
  @%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 48;
  @%p0 mbarrier.arrive.shared::cta.b64 %rd1, [%r1];
  @%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;
  bar.sync 0;
  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 0;
  bar.sync 0;
  @%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 32;
  bar.sync 0;
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0;
  selp.b32 %r4, 2, 0, %p1; selp.b32 %r5, 1, 0, %p2; or.b32 %r4, %r4, %r5; st.global.b32 [%rd0], %r4;
"""
    out = np.zeros(32, np.uint32)
    run(machine, kernel(body), "k", 1, 32, out)
    assert (out == 1).all()
