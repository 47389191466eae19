"""Checked mode on small kernels: what must be found, with its lines, and what must not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice, memory
from ptxforge.emulator.findings import KINDS

from .harness import HEADER, run


def kernel(body: str, registers: str = "") -> str:
    """%s: this thread's word of a shared buffer, %n: the next thread's (cyclic); %a: its word of `out`."""
    return (
        HEADER.format(target="sm_90")
        + f"""
.visible .entry k(.param .u64 out) {{
.shared .align 16 .b8 buffer[4096]; .reg .b64 %a, %b; .reg .b32 %t, %s, %n, %m, %r<8>, %c; .reg .pred %p<4>;
{registers}
mov.u32 %t, %tid.x; mov.u32 %m, %ntid.x; sub.u32 %m, %m, 1; mov.u32 %s, buffer; add.u32 %n, %t, 1;
and.b32 %n, %n, %m;
mad.lo.u32 %n, %n, 4, %s; mad.lo.u32 %s, %t, 4, %s; ld.param.u64 %b, [out]; mov.u32 %c, %ctaid.x;
mov.u32 %r6, %ntid.x; mad.lo.u32 %r7, %c, %r6, %t; mad.wide.u32 %a, %r7, 4, %b;
{body}
ret;
}}
"""
    )


def findings(
    body: str, threads: int = 64, blocks: int = 1, check: str = "all", registers: str = "", out: int = 4096
):
    device = EmulatorDevice(check=check, raise_faults=False)
    run(device, kernel(body, registers), "k", blocks, threads, np.zeros(out, np.uint32))
    return device.findings


def kinds(*args, **options) -> list[str]:
    return [finding.kind for finding in findings(*args, **options)]


EXCHANGE = "st.shared.u32 [%s], %t;\n{sync}\nld.shared.u32 %r1, [%n];\nst.global.u32 [%a], %r1;"


@pytest.mark.parametrize(
    "sync, expected",
    [
        ("", ["race"]),
        ("bar.sync 0;", []),
        ("bar.warp.sync -1;", ["race"]),
        ("bar.sync 0, 64;", []),
        ("barrier.sync 3;", []),
        ("membar.cta;", ["race"]),
        ("bar.red.popc.u32 %r2, 0, %p0;", []),
    ],
)
def test_exchange_between_warps(sync, expected):
    assert kinds(EXCHANGE.format(sync=sync)) == expected


@pytest.mark.parametrize(
    "sync, expected",
    [
        ("", ["race"]),
        ("bar.warp.sync -1;", []),
        ("shfl.sync.idx.b32 %r3, %t, 0, 31, -1;", []),
        ("vote.sync.ballot.b32 %r3, %p0, -1;", []),
        ("bar.sync 0;", []),
    ],
)
def test_exchange_within_a_warp(sync, expected):
    assert kinds(EXCHANGE.format(sync=sync), threads=32) == expected


def test_race_names_both_instructions():
    (finding,) = findings(EXCHANGE.format(sync=""))
    text = kernel(EXCHANGE.format(sync="")).splitlines()
    store, load = (text.index(line) + 1 for line in ("st.shared.u32 [%s], %t;", "ld.shared.u32 %r1, [%n];"))
    assert finding.line == load and finding.instruction == "ld.shared.u32 %r1, [%n];"
    assert f"at PTX line {store}" in finding.message and "thread (1, 0, 0)" in finding.message
    assert finding.thread == (0, 0, 0) and finding.address == 1028 and finding.count == 64


def test_write_after_read():
    """The second barrier keeps the next round's stores from overtaking this round's loads."""
    body = (
        "mov.u32 %r2, 0;\nL: st.shared.u32 [%s], %t;\nbar.sync 0;\nld.shared.u32 %r1, [%n];\n{sync}\n"
        "add.u32 %r2, %r2, 1;\nsetp.lt.u32 %p0, %r2, 2;\n@%p0 bra L;\nst.global.u32 [%a], %r1;"
    )
    assert kinds(body.format(sync="bar.sync 0;")) == []
    (finding,) = findings(body.format(sync=""))
    assert (
        finding.kind == "race"
        and finding.instruction == "L: st.shared.u32 [%s], %t;"
        and "is read by" in finding.message
    )


def test_the_writers_own_read_does_not_hide_another_readers():
    body = """setp.ge.u32 %p0, %t, 32; setp.eq.u32 %p1, %t, 0; mov.u32 %r1, buffer;
@%p1 st.shared.u32 [%r1], %t; bar.sync 0;
@%p0 ld.shared.u32 %r2, [%r1];
@%p1 ld.shared.u32 %r2, [%r1];
@%p1 st.shared.u32 [%r1], %r2;"""
    assert kinds(body) == ["race"]
    assert kinds(body.replace("\n@%p1 st", "\nbar.sync 0;\n@%p1 st")) == []


def test_lanes_that_write_different_values_to_one_address():
    assert kinds("mov.u32 %r1, buffer; st.shared.u32 [%r1], %t;", threads=32) == ["race"]
    assert kinds("mov.u32 %r1, buffer; mov.u32 %r2, 7; st.shared.u32 [%r1], %r2;", threads=32) == []


def test_uninitialised_read():
    (finding,) = findings(
        "setp.lt.u32 %p0, %t, 60;\n@%p0 st.shared.u32 [%s], %t;\n"
        "ld.shared.u32 %r1, [%s];\nst.global.u32 [%a], %r1;"
    )
    assert finding.kind == "uninitialised" and finding.thread == (60, 0, 0) and finding.count == 4
    assert finding.instruction == "ld.shared.u32 %r1, [%s];"


def test_bytes_have_shadows_of_their_own():
    body = """mov.u32 %r1, buffer; add.u32 %r1, %r1, %t; cvt.u16.u32 %h, %t; st.shared.u8 [%r1], %h;
ld.shared.u8 %h, [%r1];"""
    assert kinds(body, registers=".reg .b16 %h;") == []


def test_shared_atomics_do_not_race_with_each_other_but_with_loads():
    body = """setp.eq.u32 %p0, %t, 0; mov.u32 %r1, buffer; @%p0 st.shared.u32 [%r1], 0; bar.sync 0;
atom.shared.add.u32 %r2, [%r1], 1;
{sync}
ld.shared.u32 %r3, [%r1];"""
    assert kinds(body.format(sync="bar.sync 0;")) == []
    assert kinds(body.format(sync="")) == ["race"]


def test_named_barrier_orders_only_those_who_take_part():
    """Warps 0 and 1 meet; warp 2 reads what warp 0 wrote without a barrier."""
    body = """setp.ge.u32 %p0, %t, 64; setp.lt.u32 %p1, %t, 32; @%p1 st.shared.u32 [%s], %t; @%p0 bra LAST;
bar.sync 1, 64; sub.u32 %r1, %s, 128; @!%p1 ld.shared.u32 %r2, [%r1]; bra END;
LAST: sub.u32 %r1, %s, 256;
{sync}
END: mov.u32 %r5, 0;"""
    assert kinds(body.format(sync=""), threads=96) == []
    assert kinds(body.format(sync="ld.shared.u32 %r2, [%r1];"), threads=96) == ["race"]


def test_barrier_at_which_all_arrive_and_nobody_waits():
    assert kinds("st.shared.u32 [%s], %t; bar.arrive 1, 64; bar.sync 0;") == []


def test_barrier_reached_by_part_of_the_cta():
    (finding,) = findings("setp.ge.u32 %p0, %t, 40;\n@%p0 bra END;\nbar.sync 0;\nEND: mov.u32 %r1, 0;")
    assert (
        finding.kind == "barrier"
        and "24 threads had exited" in finding.message
        and finding.instruction == "bar.sync 0;"
    )


def test_barrier_at_two_places_of_one_warp():
    body = """and.b32 %r1, %t, 1; setp.eq.u32 %p0, %r1, 0; @%p0 bra EVEN;
bar.sync 0;
bra END;
EVEN: {bar} 0;
END: mov.u32 %r2, 0;"""
    assert kinds(body.format(bar="bar.sync")) == ["barrier"]


def test_warp_instruction_without_a_named_lane():
    body = """setp.ge.u32 %p0, %t, 20; @%p0 bra END;
shfl.sync.idx.b32 %r1, %t, 0, 31, {members};
END: mov.u32 %r2, 0;"""
    assert kinds(body.format(members="-1"), threads=32) == ["barrier"]
    assert kinds(body.format(members="0xfffff"), threads=32) == []


@pytest.mark.parametrize("warps_that_wait", ["", "@%p1 bra END;"])
def test_branch_that_threads_of_a_warp_must_take_together(warps_that_wait):
    """Also while other warps are elsewhere; where whole warps part, or no thread does, nothing is said."""
    body = """setp.ge.u32 %p1, %t, 64; setp.{compare}.u32 %p0, %t, {limit};
{waits}
@%p0 bra{uni} END;
mov.u32 %r1, 1;
END: mov.u32 %r2, 0;"""
    for compare, limit, uni, expected in (
        ("lt", 40, ".uni", ["barrier"]), ("lt", 40, "", []), ("lt", 32, ".uni", []), ("lt", 0, ".uni", []),
        ("ge", 31, ".uni", ["barrier"]),
    ):  # fmt: skip
        text = body.format(compare=compare, limit=limit, uni=uni, waits=warps_that_wait)
        assert kinds(text, threads=96) == expected, (compare, limit, uni)


def test_one_cta_is_checked_by_default_all_on_request():
    """Only CTA 5 has the race."""
    body = "setp.ne.u32 %p0, %c, 5;\n@%p0 bra END;\n" + EXCHANGE.format(sync="") + "\nEND: mov.u32 %r2, 0;"
    assert kinds(body, blocks=8, check="one") == []
    (finding,) = findings(body, blocks=8, check="all")
    assert finding.kind == "race" and finding.cta == (5, 0, 0)


def test_checking_does_not_change_results():
    ptx = kernel(EXCHANGE.format(sync="bar.sync 0;"))
    results = []
    for check in ("off", "one", "all"):
        out = np.zeros(640, np.uint32)
        run(EmulatorDevice(check=check), ptx, "k", 10, 64, out)
        results.append(out)
    np.testing.assert_array_equal(results[0], np.tile((np.arange(64) + 1) % 64, 10))
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])


# ---- global memory -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("blocks", [2, 300])
def test_ctas_that_write_the_same_place(blocks):
    assert kinds("st.global.u32 [%b], %c;", blocks=blocks) == ["global-race"]
    assert kinds("st.global.u32 [%a], %c;", blocks=blocks, out=64 * 300) == []


@pytest.mark.parametrize("blocks", [2, 300])
def test_cta_that_reads_what_its_neighbour_writes(blocks):
    body = "st.global.u32 [%a], %c;\nld.global.u32 %r1, [%a+{offset}];"
    assert kinds(body.format(offset=0), blocks=blocks, out=64 * 301) == []
    assert set(kinds(body.format(offset=256), blocks=blocks, out=64 * 301)) == {"global-race"}


def test_global_atomics_do_not_race():
    assert kinds("atom.global.add.u32 %r1, [%b], 1;", blocks=40) == []
    assert kinds(
        "red.global.add.u32 [%b], 1;\nsetp.eq.u32 %p0, %c, 39;\n@%p0 ld.global.u32 %r1, [%b];", blocks=40
    ) == ["global-race"]


def test_the_last_cta_may_read_what_fenced_ctas_wrote():
    """Every CTA stores, fences and counts itself; the one that counts last reads all. Without the fence it
    must not.
    """
    body = """setp.ne.u32 %p0, %t, 0; @%p0 bra END; mul.lo.u32 %r1, %c, 4; cvt.u64.u32 %a, %r1;
add.u64 %a, %a, %b;
st.global.u32 [%a+64], %c;
{fence}
atom.global.add.u32 %r2, [%b], 1; setp.ne.u32 %p1, %r2, 9; @%p1 bra END;
{second}
ld.global.u32 %r3, [%b+64]; ld.global.u32 %r4, [%b+80];
END: mov.u32 %r5, 0;"""
    for first, second, clean in (
        ("membar.gl;", "fence.acq_rel.gpu;", True),
        ("", "membar.gl;", False),
        ("membar.gl;", "", False),
    ):
        assert (kinds(body.format(fence=first, second=second), blocks=10, threads=32) == []) is clean
    ordered = body.format(fence="", second="").replace("atom.global", "atom.acq_rel.gpu.global")
    assert kinds(ordered, blocks=10, threads=32) == []


def test_smaller_accesses_refine_the_shadow():
    """A 16-byte store by every CTA, then bytes: neighbours' bytes are not confused."""
    body = """mul.wide.u32 %a, %r7, 16; add.u64 %a, %a, %b; st.global.v4.u32 [%a], {%t, %t, %t, %t};
ld.global.u8 %h, [%a+15]; ld.global.u16 %h, [%a+2];"""
    assert kinds(body, blocks=4, threads=32, registers=".reg .b16 %h;") == []
    assert kinds(body.replace("%a+15", "%a+16"), blocks=4, threads=32, registers=".reg .b16 %h;") == [
        "global-race",
        "race",
    ]


@pytest.mark.parametrize("most", [0, 100, 1 << 20])
@pytest.mark.parametrize(
    "body, expected",
    [
        ("ld.global.u32 %r1, [%a]; st.global.u32 [%a], %r1;", []),
        ("ld.global.u32 %r1, [%b+128]; st.global.u32 [%a], %r1;", ["global-race"]),
        ("st.global.u32 [%a], %t; ld.global.u32 %r1, [%a];", []),
        ("st.global.u32 [%a], %t; st.global.u32 [%a+128], %r7;", ["global-race"]),
        ("st.global.u32 [%a], %t; st.global.u32 [%a+512], %t;", []),
        ("mad.wide.u32 %b, %r7, 8, %b; st.global.u32 [%b], %t; st.global.u32 [%b+4], %t;", []),
        ("mad.wide.u32 %b, %r7, 8, %b; st.global.u32 [%b], %t; st.global.u32 [%b+260], %t;", []),
        ("mad.wide.u32 %b, %r7, 8, %b; st.global.u32 [%b], %t; st.global.u32 [%b+256], 99;", ["global-race"]),
        ("mad.wide.u32 %b, %r7, 8, %b; st.global.u32 [%b], %t; st.global.u64 [%b], %a;", []),
        ("mad.wide.u32 %b, %r7, 8, %b; st.global.u32 [%b+4], %t; st.global.u32 [%a], %t;", ["global-race"]),
    ],
)
def test_accesses_entered_late_conflict_all_the_same(monkeypatch, most, body, expected):
    """Reads, and stores of whole rows, are only remembered until something else touches the allocation."""
    monkeypatch.setattr(memory, "_MOST_DEFERRED", most)
    assert [kind for kind in kinds(body, threads=32, blocks=4) if kind != "race"] == expected


GLOBAL_EXCHANGE = """xor.b32 %r1, %t, 33; mad.wide.u32 %b, %r1, 4, %b;
st.global.u32 [%a], %t;
{sync}
ld.global.u32 %r2, [%b];"""


@pytest.mark.parametrize(
    "sync, expected",
    [("", ["race"]), ("bar.sync 0;", []), ("bar.warp.sync -1;", ["race"]), ("membar.gl;", ["race"])],
)
@pytest.mark.parametrize("check", ["one", "all"])
def test_threads_of_a_cta_race_in_global_memory(sync, expected, check):
    assert kinds(GLOBAL_EXCHANGE.format(sync=sync), check=check) == expected


def test_a_race_in_global_memory_names_both_instructions():
    (finding,) = findings(GLOBAL_EXCHANGE.format(sync=""))
    assert finding.instruction == "ld.global.u32 %r2, [%b];"
    assert "global read of what is written by thread (33, 0, 0)" in finding.message and finding.count == 64


@pytest.mark.parametrize("sync, expected", [("", ["race"]), ("bar.sync 0;", [])])
def test_write_after_read_in_global_memory(sync, expected):
    """Each thread reads what another will write; it reads another place last, which must not hide that."""
    body = f"""xor.b32 %r1, %t, 33; mad.wide.u32 %b, %r1, 4, %b; ld.global.u32 %r2, [%b];
ld.global.u32 %r3, [%a];
{sync}
st.global.u32 [%a], %r2;"""
    assert kinds(body) == expected


def test_lanes_that_write_different_values_to_one_global_address():
    assert kinds("st.global.u32 [%b], %t;", threads=32) == ["race"]
    assert kinds("mov.u32 %r1, 7; st.global.u32 [%b], %r1;", threads=32) == []
    assert kinds("st.global.v4.u32 [%b], {%c, %c, %c, %t};", threads=32) == ["race"]
    assert kinds("st.global.v4.u32 [%b], {%c, %c, %c, %c};", threads=32) == []


def test_a_lock_in_global_memory_orders_threads_of_a_cta():
    """One thread per warp takes the lock in turn; what it guards is a plain word beside it."""
    body = """and.b32 %r1, %t, 31; setp.ne.u32 %p0, %r1, 0; @%p0 bra END;
SPIN: atom.acquire.gpu.global.cas.b32 %r2, [%b], 0, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra SPIN;
ld.global.u32 %r3, [%b+64]; add.u32 %r3, %r3, 1; st.global.u32 [%b+64], %r3;
atom{release}.global.exch.b32 %r4, [%b], 0;
END: mov.u32 %r5, 0;"""
    assert kinds(body.format(release=".release.gpu"), threads=128) == []
    assert "race" in kinds(body.format(release=""), threads=128)


# ---- registers ---------------------------------------------------------------------------------------------
def test_addresses_and_guards_that_nothing_wrote():
    found = findings(
        "add.u32 %r4, %r5, 1;\n@%p3 st.global.u32 [%a], %r4;\nsetp.eq.u32 %p2, %t, 999;\n"
        "@%p2 ld.global.u32 %r1, [%g];",
        registers=".reg .b64 %g;",
    )
    assert [(f.kind, f.message.split()[0]) for f in found] == [("register", "%p3"), ("register", "%g")]


def test_registers_written_on_one_path_are_written():
    body = """setp.eq.u32 %p0, %t, 0; @%p0 bra SET; bra USE;
SET: setp.eq.u32 %p1, %t, 0;
USE: @%p1 st.global.u32 [%a], %t;"""
    assert kinds(body) == []


def test_mbarrier_outside_shared_memory():
    body = "cvta.to.global.u64 %b, %a; mbarrier.init.b64 [%b], 1;"
    assert "out-of-bounds" in kinds(body)


# ---- documentation -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_finding_is_documented_and_tested(kind):
    folder = Path(__file__).parent
    text = (folder.parents[1] / "docs" / "emulator.md").read_text()
    rows = [line for line in text.splitlines() if "|" in line]
    assert any(f"`{kind}`" in row.split("|")[1] for row in rows)
    assert any(f'"{kind}"' in path.read_text() for path in folder.glob("test_*.py"))
