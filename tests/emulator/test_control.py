"""Divergence, loops, calls, barriers, deadlocks, printing."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import DeviceError, EmulatorError

from .harness import HEADER, per_lane, run


def entry(body: str, registers: str = "", params: str = ".param .u64 out", before: str = "") -> str:
    """A kernel ``k`` with %a pointing at out[global thread id] (4 bytes each) and %i = that id."""
    return (
        HEADER.format(target="sm_90")
        + before
        + f"""
    .visible .entry k({params}) {{
      .reg .b64 %a, %g<8>; .reg .b32 %i, %t, %r<16>; .reg .pred %p<8>; .reg .f32 %f<8>; {registers}
      mov.u32 %t, %tid.x; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mad.lo.u32 %i, %r0, %r1, %t;
      ld.param.u64 %a, [out]; mad.wide.u32 %a, %i, 4, %a;
      {body}
    }}"""
    )


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@pytest.mark.parametrize("blocks, threads", [(1, 32), (3, 100), (5, 256), (2, 1)])
def test_every_lane_takes_its_own_number_of_turns(machine, blocks, threads):
    ptx = entry("""
      add.u32 %r2, %i, 1; mov.u32 %r3, 0;
      LOOP: setp.eq.u32 %p0, %r2, 1; @%p0 bra DONE;
      and.b32 %r4, %r2, 1; setp.eq.u32 %p1, %r4, 0; add.u32 %r3, %r3, 1; @%p1 bra EVEN;
      mad.lo.u32 %r2, %r2, 3, 1; bra LOOP;
      EVEN: shr.u32 %r2, %r2, 1; bra LOOP;
      DONE: st.global.u32 [%a], %r3; ret;""")
    out = np.zeros(blocks * threads, np.uint32)
    run(machine, ptx, "k", blocks, threads, out)
    assert out.tolist() == [collatz(n + 1) for n in range(len(out))]


def test_lanes_that_continue_early_wait_at_the_latch(machine):
    """A loop with two back edges: the warp must be whole again for the vote in the next turn."""
    ptx = entry(
        """
      mov.u32 %r2, 0; mov.u32 %r3, 0;
      LOOP: vote.sync.ballot.b32 %r4, 1, -1; setp.eq.u32 %p0, %r4, -1; selp.u32 %r5, 1, 0, %p0;
      add.u32 %r3, %r3, %r5;
      add.u32 %r2, %r2, 1; setp.ge.u32 %p1, %r2, 8; @%p1 bra DONE;
      xor.b32 %r6, %i, %r2; and.b32 %r6, %r6, 1; setp.eq.u32 %p2, %r6, 0; @%p2 bra LOOP;
      add.u32 %r7, %r7, 1; bra LOOP;
      DONE: st.global.u32 [%a], %r3; ret;""".replace(
            "vote.sync.ballot.b32 %r4, 1,", "vote.sync.ballot.b32 %r4, %p7,"
        ).replace("LOOP: vote", "setp.eq.u32 %p7, 0, 0; LOOP: vote")
    )
    out = np.zeros(64, np.uint32)
    run(machine, ptx, "k", 1, 64, out)
    assert set(out) == {8}


def test_lanes_that_leave_a_loop_wait_for_the_others(machine):
    ptx = entry("""
      setp.eq.u32 %p7, 0, 0; mov.u32 %r2, 0; and.b32 %r3, %i, 7;
      LOOP: setp.ge.u32 %p0, %r2, %r3; @%p0 bra AFTER; add.u32 %r2, %r2, 1; bra LOOP;
      AFTER: vote.sync.ballot.b32 %r4, %p7, -1; st.global.u32 [%a], %r4; ret;""")
    out = np.zeros(64, np.uint32)
    run(machine, ptx, "k", 1, 64, out)
    assert set(out) == {0xFFFFFFFF}


def test_early_exit_by_guard(machine):
    ptx = entry("setp.ge.u32 %p0, %i, 37; @%p0 exit; mov.u32 %r2, 5; st.global.u32 [%a], %r2; ret;")
    out = np.zeros(64, np.uint32)
    run(machine, ptx, "k", 2, 32, out)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 37, 5, 0))


def test_indexed_branch(machine):
    ptx = entry("""
      and.b32 %r2, %i, 3; TABLE: .branchtargets A, B, C, D;
      brx.idx %r2, TABLE;
      A: mov.u32 %r3, 10; bra END; B: mov.u32 %r3, 20; bra END; C: mov.u32 %r3, 30; bra END;
      D: mov.u32 %r3, 40;
      END: st.global.u32 [%a], %r3; ret;""")
    out = np.zeros(64, np.uint32)
    run(machine, ptx, "k", 1, 64, out)
    assert out.tolist() == [10, 20, 30, 40] * 16


CALLED = """
.func (.reg .b32 %sum) in_registers(.reg .b32 %x, .reg .f32 %y) {
  .reg .b32 %t; cvt.rni.s32.f32 %t, %y; add.s32 %sum, %x, %t; ret; }
.func (.param .b32 sum) in_memory(.param .b32 x, .param .f32 y) {
  .reg .b32 %t<2>; .reg .f32 %f; ld.param.b32 %t0, [x]; ld.param.f32 %f, [y]; cvt.rni.s32.f32 %t1, %f;
  add.s32 %t0, %t0, %t1; st.param.b32 [sum], %t0; ret; }
.func nothing(.reg .b32 %unused) { ret; }
"""


@pytest.mark.parametrize(
    "call, expected",
    [
        ("call (%o0), in_registers, (%i0, %f);", lambda i: i + 2),
        ("call.uni (%o0), in_registers, (5, 0f40400000);", lambda i: 0 * i + 8),
        ("call (%o0), in_registers, (2+3*2, 3.0);", lambda i: 0 * i + 11),
        ("call (%o0), in_memory, (%i0, %f);", lambda i: i + 2),
        ("call (%o0), in_memory, (-7, %f);", lambda i: 0 * i - 5),
        ("{ .param .b32 q, z; st.param.b32 [z], %i0; call (q), in_registers, (z, %f);"
         " ld.param.b32 %o0, [q]; }", lambda i: i + 2),
        ("{ .param .b32 q, z; st.param.b32 [z], %i0; call (q), in_memory, (z, 1.0); ld.param.b32 %o0, [q]; }",
         lambda i: i + 1),
        ("mov.b32 %o0, 9; setp.gt.s32 %p, %i0, 3; @%p call (%o0), in_registers, (%i0, %f);",
         lambda i: np.where(i > 3, i + 2, 9)),
        ("call nothing, (4); call (%o0), in_registers, (%i0, %f); call (%o0), in_registers, (%o0, %f);",
         lambda i: i + 4),
    ],
)  # fmt: skip
def test_parameters_in_registers_and_literals(machine, call, expected):
    x = np.arange(-32, 32, dtype=np.int32)
    registers = ".reg .f32 %f; .reg .pred %p; mov.f32 %f, 0f40000000;"
    text = per_lane(call, [("b32", 4)], [("b32", 4)], registers).replace(".visible", CALLED + ".visible", 1)
    out = np.zeros_like(x)
    run(machine, text, "k", 1, 64, x, out)
    np.testing.assert_array_equal(out, expected(x))


def test_only_param_variables_are_passed_by_name():
    text = per_lane("call (%o0), in_registers, (buffer, 1.0);", [("b32", 4)], [("b32", 4)],
                    ".shared .b8 buffer[4];").replace(".visible", CALLED + ".visible", 1)  # fmt: skip
    with pytest.raises(EmulatorError, match="buffer is no .param variable"):
        EmulatorDevice().load_module(text)


def test_calls_nest_and_scopes_rename(machine):
    functions = """
    .func (.param .b32 result) square(.param .b32 x) {
      .reg .b32 %v; ld.param.b32 %v, [x]; mul.lo.u32 %v, %v, %v; st.param.b32 [result], %v; ret; }
    .func (.param .b32 result) twice(.param .b32 x) {
      .reg .b32 %v, %w; .reg .pred %q; ld.param.b32 %v, [x]; setp.gt.u32 %q, %v, 20; mov.u32 %w, 0;
      @%q bra SKIP;
      { .param .b32 p; .param .b32 r; st.param.b32 [p], %v; call.uni (r), square, (p); ld.param.b32 %w, [r]; }
      SKIP: { .reg .b32 %w2; add.u32 %w2, %w, %w; st.param.b32 [result], %w2; } ret; }"""
    ptx = entry(
        """
      { .param .b32 p; .param .b32 r; st.param.b32 [p], %i; call (r), twice, (p); ld.param.b32 %r2, [r]; }
      { .reg .b32 %i; .param .b32 p; .param .b32 r; mov.u32 %i, 3; st.param.b32 [p], %i;
      call (r), square, (p);
        ld.param.b32 %r3, [r]; }
      add.u32 %r2, %r2, %r3; st.global.u32 [%a], %r2; ret;""",
        before=functions,
    )
    out = np.zeros(32, np.uint32)
    run(machine, ptx, "k", 1, 32, out)
    assert out.tolist() == [2 * n * n + 9 if n <= 20 else 9 for n in range(32)]


def test_three_dimensional_grid(machine):
    ptx = (
        HEADER.format(target="sm_90")
        + """
    .visible .entry k(.param .u64 out) {
      .reg .b64 %a; .reg .b32 %r<24>; ld.param.u64 %a, [out];
      mov.u32 %r0, %tid.x; mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mov.u32 %r3, %ntid.x;
      mov.u32 %r4, %ntid.y;
      mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ctaid.z; mov.u32 %r8, %nctaid.x;
      mov.u32 %r9, %nctaid.y;
      mov.u32 %r10, %ntid.z; mov.u32 %r11, %nctaid.z;
      mad.lo.u32 %r12, %r7, %r9, %r6; mad.lo.u32 %r12, %r12, %r8, %r5;
      mad.lo.u32 %r13, %r2, %r4, %r1; mad.lo.u32 %r13, %r13, %r3, %r0;
      mul.lo.u32 %r14, %r3, %r4; mul.lo.u32 %r14, %r14, %r10; mad.lo.u32 %r15, %r12, %r14, %r13;
      mul.lo.u32 %r16, %r5, 100; mad.lo.u32 %r16, %r6, 10, %r16; add.u32 %r16, %r16, %r7;
      mad.lo.u32 %r16, %r16, 1000, %r0; mad.lo.u32 %r16, %r1, 10, %r16; mad.lo.u32 %r16, %r2, 100, %r16;
      mad.wide.u32 %a, %r15, 4, %a; st.global.u32 [%a], %r16; ret;
    }"""
    )
    out = np.zeros((2, 3, 4, 2, 3, 5), np.uint32)
    run(machine, ptx, "k", (4, 3, 2), (5, 3, 2), out)
    z, y, x, c, b, a = np.indices(out.shape)
    np.testing.assert_array_equal(out, (x * 100 + y * 10 + z) * 1000 + a + b * 10 + c * 100)


def test_registers_start_at_zero_in_every_batch(machine):
    """Registers that a path reads unwritten are 0, whatever the CTAs before left in them: here a
    guard leaves them.
    """
    if machine.name != "emulator":
        pytest.skip("uninitialised registers are unspecified in PTX")
    ptx = entry("""
      setp.eq.u32 %p0, %t, 3; @%p0 mov.u32 %r9, %i; st.global.u32 [%a], %r9; mov.u32 %r9, 77; ret;""")
    out = np.ones(640 * 32, np.uint32)
    run(machine, ptx, "k", 640, 32, out)
    ids = np.arange(out.size)
    np.testing.assert_array_equal(out, np.where(ids % 32 == 3, ids, 0))


# ---- barriers ----------------------------------------------------------------------------------------------
def test_named_barriers_hand_data_from_producers_to_consumers(machine):
    """Warp 0 fills a buffer for warp 1 and arrives; warp 1 waits: `bar.arrive` and `bar.sync` with a count of
    64.
    """
    ptx = entry(
        """
      .shared .align 4 .b32 buffer[32]; mov.u32 %r2, buffer; and.b32 %r3, %t, 31; mad.lo.u32 %r2, %r3, 4, %r2;
      mov.u32 %r9, 0; setp.ge.u32 %p0, %t, 32; @%p0 bra CONSUMER;
      LOOP: mad.lo.u32 %r4, %r9, 100, %t; st.shared.u32 [%r2], %r4; bar.arrive 1, 64; bar.sync 2, 64;
      add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 3; @%p1 bra LOOP; ret;
      CONSUMER: bar.sync 1, 64; ld.shared.u32 %r5, [%r2]; add.u32 %r6, %r6, %r5; bar.arrive 2, 64;
      add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 3; @%p1 bra CONSUMER;
      st.global.u32 [%a], %r6; ret;""".replace("mov.u32 %r9, 0;", "mov.u32 %r9, 0; mov.u32 %r6, 0;")
    )
    out = np.zeros(64, np.uint32)
    run(machine, ptx, "k", 1, 64, out)
    np.testing.assert_array_equal(out[32:], 3 * np.arange(32) + 300)


def test_cluster_barrier_of_one_cta(machine):
    """Like a CTA barrier in two halves; barrier 15 is not disturbed by it."""
    ptx = entry(
        """
      .shared .align 4 .b32 buffer[64]; mov.u32 %r2, buffer; mad.lo.u32 %r3, %t, 4, %r2;
      st.shared.u32 [%r3], %t;
      setp.lt.u32 %p0, %t, 32; @%p0 bar.arrive 15, 64; @!%p0 bar.sync 15, 64;
      barrier.cluster.arrive.release.aligned; mov.u32 %r5, %cluster_nctarank;
      barrier.cluster.wait.acquire.aligned;
      xor.b32 %r4, %t, 63; mad.lo.u32 %r4, %r4, 4, %r2; ld.shared.u32 %r6, [%r4]; mul.lo.u32 %r6, %r6, %r5;
      st.global.u32 [%a], %r6; ret;"""
    )
    out = np.zeros(128, np.uint32)
    run(machine, ptx, "k", 2, 64, out)
    np.testing.assert_array_equal(out, np.tile(63 - np.arange(64), 2))


def test_barrier_reductions(machine):
    ptx = entry("""
      setp.lt.u32 %p0, %t, 40; bar.red.popc.u32 %r2, 0, %p0; bar.red.and.pred %p1, 0, %p0;
      bar.red.or.pred %p2, 0, !%p0;
      selp.u32 %r3, 100, 0, %p1; selp.u32 %r4, 1000, 0, %p2; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
      st.global.u32 [%a], %r2; ret;""")
    out = np.zeros(128, np.uint32)
    run(machine, ptx, "k", 2, 64, out)
    assert set(out) == {1040}


def test_deadlock_names_both_places():
    ptx = entry("""setp.lt.u32 %p0, %t, 32; @%p0 bra LOW;
      bar.sync 1, 64; ret;
      LOW: bar.sync 2, 64; ret;""")
    device = EmulatorDevice(raise_faults=False)
    run(device, ptx, "k", 1, 64, np.zeros(64, np.uint32))
    assert sorted(f.instruction for f in device.findings) == [
        "LOW: bar.sync 2, 64; ret;",
        "bar.sync 1, 64; ret;",
    ]
    assert {f.kind for f in device.findings} == {"deadlock"}
    assert {f.thread for f in device.findings} == {(0, 0, 0), (32, 0, 0)}
    with pytest.raises(DeviceError, match="deadlock: 32 threads of 1 CTAs wait at barrier"):
        run(EmulatorDevice(), ptx, "k", 1, 64, np.zeros(64, np.uint32))


def test_spinning_on_memory_that_nobody_changes_is_a_deadlock():
    ptx = entry("LOOP: ld.volatile.global.u32 %r2, [%a]; setp.eq.u32 %p0, %r2, 0; @%p0 bra LOOP; ret;")
    device = EmulatorDevice(raise_faults=False)
    run(device, ptx, "k", 2, 32, np.zeros(64, np.uint32))
    assert [f.kind for f in device.findings] == ["deadlock"]


def test_ctas_of_different_batches_wait_for_each_other(machine):
    """Every CTA but the last waits for its successor's flag, so the first batch cannot end before the last
    has begun.
    """
    ptx = entry("""
      .reg .b32 %n; mov.u32 %n, %nctaid.x; sub.u32 %n, %n, 1; setp.ne.u32 %p0, %t, 0; @%p0 bra END;
      setp.eq.u32 %p1, %r0, %n; @%p1 bra SET;
      LOOP: ld.acquire.gpu.global.u32 %r2, [%a+128]; setp.eq.u32 %p2, %r2, 0; @%p2 bra LOOP;
      SET: add.u32 %r3, %r0, 1; st.release.gpu.global.u32 [%a], %r3;
      END: ret;""")
    blocks = 300 if machine.name == "emulator" else 100
    out = np.zeros(blocks * 32, np.uint32)
    run(machine, ptx, "k", blocks, 32, out)
    np.testing.assert_array_equal(out[::32], np.arange(blocks) + 1)


def test_lock_between_lanes_of_one_warp(machine):
    """The lane that holds the lock is at a higher block than those that spin: it must get its turn."""
    ptx = entry("""
      ld.param.u64 %g0, [out];
      LOOP: atom.global.cas.b32 %r2, [%g0], 0, 1; setp.ne.u32 %p0, %r2, 0; @%p0 bra LOOP;
      ld.volatile.global.u32 %r3, [%g0+4]; add.u32 %r3, %r3, 1; st.volatile.global.u32 [%g0+4], %r3;
      membar.gl; atom.global.exch.b32 %r4, [%g0], 0; ret;""")
    out = np.zeros(2, np.uint32)
    run(machine, ptx, "k", 2, 48, out)
    assert out.tolist() == [0, 96]


def test_trap(checked):
    ptx = entry("setp.eq.u32 %p0, %t, 9; @%p0 trap; ret;")
    with pytest.raises(DeviceError, match=r"trap.*thread \(9, 0, 0\)"):
        run(EmulatorDevice(), ptx, "k", 1, 32, np.zeros(32, np.uint32))
    run(checked, ptx, "k", 1, 32, np.zeros(32, np.uint32))
    assert [finding.kind for finding in checked.findings] == ["trap"]


def test_a_failed_assertion_says_what_and_where(checked):
    before = """
    .extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 c);
    .global .b8 message[6] = {120, 32, 62, 32, 48, 0};
    .global .b8 file[5] = {97, 46, 112, 121, 0};"""
    ptx = entry(
        """
      setp.ne.u32 %p0, %t, 5; @%p0 bra END;
      mov.u64 %g0, message; cvta.global.u64 %g0, %g0; mov.u64 %g1, file; cvta.global.u64 %g1, %g1;
      { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 c;
        st.param.b64 [m], %g0; st.param.b64 [f], %g1; st.param.b32 [l], 17; st.param.b64 [n], %g1;
        st.param.b64 [c], 1; call.uni __assertfail, (m, f, l, n, c); }
      END: ret;""",
        before=before,
    )
    run(checked, ptx, "k", 1, 32, np.zeros(32, np.uint32))
    (finding,) = checked.findings
    assert finding.kind == "assert" and finding.thread == (5, 0, 0)
    assert finding.message == "assertion failed: x > 0 (a.py:17)"
    with pytest.raises(DeviceError, match="x > 0"):
        run(EmulatorDevice(), ptx, "k", 1, 32, np.zeros(32, np.uint32))


def test_printf_formats():
    before = """
    .extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
    .global .align 1 .b8 text[] = {37, 100, 32, 37, 53, 46, 50, 102, 124, 37, 115, 124, 37, 120, 32, 37,
      108, 108, 117, 37, 37, 10, 0};
    .global .align 1 .b8 word[4] = {97, 98, 99, 0};"""
    ptx = entry(
        """
      .local .align 8 .b8 args[40]; setp.ne.u32 %p0, %t, 2; @%p0 bra END;
      mov.u64 %g0, args; cvta.local.u64 %g1, %g0; mov.b32 %r2, -7; st.local.u32 [%g0], %r2;
      mov.f64 %d, 0d4009000000000000; st.local.f64 [%g0+8], %d; mov.u64 %g2, word; cvta.global.u64 %g2, %g2;
      st.local.u64 [%g0+16], %g2; mov.b32 %r2, 255; st.local.u32 [%g0+24], %r2; mov.u64 %g3, 5000000000;
      st.local.u64 [%g0+32], %g3; mov.u64 %g4, text; cvta.global.u64 %g4, %g4;
      { .param .b64 p0; .param .b64 p1; .param .b32 r; st.param.b64 [p0], %g4; st.param.b64 [p1], %g1;
        call.uni (r), vprintf, (p0, p1); ld.param.b32 %r5, [r]; }
      END: ret;""",
        ".reg .f64 %d;",
        before=before,
    )
    device = EmulatorDevice()
    run(device, ptx, "k", 1, 4, np.zeros(4, np.uint32))
    assert device.output == "-7  3.12|abc|ff 5000000000%\n"
