"""Clusters of 2, 4 and 8 CTAs on every device: numbers, barriers, each other's shared memory; and what
checked mode says of misuse.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import DeviceError, EmulatorError

from .clusters import FILL, INIT, SYNC, THREADS, clean, filled, kernel, launched, neighbours, try_wait
from .harness import run

# ------------------------------------------------------------------------------------------------------------
# Numbers
# ------------------------------------------------------------------------------------------------------------

NUMBERS = ["clusterid", "cluster_ctaid", "nclusterid", "cluster_nctaid", "ctaid"]
GRID = (4, 4, 2)


def numbers_kernel(cluster: str) -> str:
    """Every CTA writes its numbers, by its place in the grid."""
    words = [f"%{name}.{axis}" for name in NUMBERS for axis in "xyz"] + [
        "%cluster_ctarank",
        "%cluster_nctarank",
    ]
    stores = "".join(
        f"mov.u32 %r10, {word}; st.global.b32 [%rd1+{4 * place}], %r10;" for place, word in enumerate(words)
    )
    return kernel(
        f"""mov.u32 %r11, %ctaid.y; mov.u32 %r12, %ctaid.z; mov.u32 %r13, %nctaid.x; mov.u32 %r14, %nctaid.y;
mad.lo.u32 %r12, %r12, %r14, %r11; mad.lo.u32 %r12, %r12, %r13, %r7; ld.param.u64 %rd1, [p];
mad.wide.u32 %rd1, %r12, {4 * len(words)}, %rd1; {stores}""",
        cluster,
    )


@pytest.mark.parametrize(
    "cluster", [(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 2, 2)]
)
def test_numbers_of_ctas_and_clusters(machine, cluster):
    out = np.zeros((int(np.prod(GRID)), 3 * len(NUMBERS) + 2), np.uint32)
    run(machine, numbers_kernel(", ".join(map(str, cluster))), "k", GRID, 32, out)
    for number, row in enumerate(out.tolist()):
        cta = number % GRID[0], number // GRID[0] % GRID[1], number // (GRID[0] * GRID[1])
        within = [place % extent for place, extent in zip(cta, cluster)]
        rank = within[0] + cluster[0] * (within[1] + cluster[1] * within[2])
        clusters = [ctas // extent for ctas, extent in zip(GRID, cluster)]
        want = [*(place // extent for place, extent in zip(cta, cluster)), *within, *clusters, *cluster, *cta]
        assert row == [*want, rank, int(np.prod(cluster))]


@pytest.mark.parametrize("cluster", ["2", ""])
def test_is_explicit_cluster(machine, cluster):
    text = kernel(
        "mov.pred %p1, %is_explicit_cluster; selp.b32 %r10, 1, 2, %p1; st.global.b32 [%rd0], %r10;", cluster
    )
    assert (launched(machine, text) == (1 if cluster else 2)).all()


# ------------------------------------------------------------------------------------------------------------
# The barrier, and each other's shared memory
# ------------------------------------------------------------------------------------------------------------

EXCHANGES = {
    "aligned": "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
    "defaults": "barrier.cluster.arrive; barrier.cluster.wait;",
    "relaxed": "fence.acq_rel.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;",
    "relaxed.aligned": "fence.sc.gpu; barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;",
}


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("form", EXCHANGES)
def test_the_barrier_of_a_cluster_orders_its_ctas(machine, checked, form, size):
    text = kernel(
        f"""{FILL} {EXCHANGES[form]}
mapa.shared::cluster.u32 %r11, %r5, %r4; ld.shared::cluster.b32 %r12, [%r11];
{SYNC} st.global.b32 [%rd0], %r12;""",
        str(size),
    )
    want = filled(8)[neighbours(8, size)]
    assert np.array_equal(launched(machine, text, 8), want)
    assert np.array_equal(launched(checked, text, 8), want)
    clean(checked)


def test_ctas_that_diverge_meet_at_the_barrier(machine, checked):
    """CTA 1 takes a longer way; thread by thread, ten times."""
    text = kernel(f"""mov.b32 %r14, 0; mov.b32 %r15, 0; mapa.shared::cluster.u32 %r11, %r5, %r4;
again: setp.eq.u32 %p1, %r3, 0; @%p1 bra short;
  mov.b32 %r16, 0;
long: add.u32 %r16, %r16, 1; setp.lt.u32 %p2, %r16, 50; @%p2 bra long;
short: mad.lo.u32 %r10, %r14, 7, %r7; st.shared.b32 [%r5], %r10; {SYNC}
  ld.shared::cluster.b32 %r12, [%r11]; mad.lo.u32 %r15, %r15, 3, %r12; {SYNC}
  add.u32 %r14, %r14, 1; setp.lt.u32 %p3, %r14, 10; @%p3 bra again;
  st.global.b32 [%rd0], %r15;""")
    want = np.zeros(4, np.uint32)
    for step in range(10):
        want = want * np.uint32(3) + np.uint32(step * 7) + neighbours(4, 2).astype(np.uint32)
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), np.repeat(want[:, None], THREADS, axis=1))
    clean(checked)


def test_the_barrier_does_not_wait_for_threads_that_have_exited(machine, checked):
    text = kernel(
        f"""setp.ge.u32 %p1, %r0, 32; setp.eq.u32 %p2, %r3, 1; and.pred %p3, %p1, %p2; @%p3 ret;
{SYNC} st.global.b32 [%rd0], 1;""".replace("%rd0], 1", "%rd0], %r6")
    )
    want = np.full((4, THREADS), 2, np.uint32)
    want[1::2, 32:] = 0
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), want)
    clean(checked)


ACCESSES = {
    "ld.b32": "ld.shared::cluster.b32 %r12, [%r11];",
    "ld.v2": "and.b32 %r13, %r11, -8; ld.shared::cluster.v2.b32 {%r14, %r15}, [%r13]; and.b32 %r13, %r0, 1; "
    "setp.eq.u32 %p1, %r13, 0; selp.b32 %r12, %r14, %r15, %p1;",
    "ld.generic": "ld.b32 %r12, [%rd2];",
    "ld.relaxed": "ld.relaxed.cluster.shared::cluster.b32 %r12, [%r11];",
    "ld.volatile": "ld.volatile.shared::cluster.b32 %r12, [%r11];",
    "atom.or": "atom.relaxed.cluster.shared::cluster.or.b32 %r12, [%r11], 0;",
    "atom.generic": "atom.relaxed.cluster.add.u32 %r12, [%rd2], 0;",
    "cvta.to": "cvta.to.shared.u64 %rd3, %rd2; cvt.u32.u64 %r13, %rd3; ld.shared::cluster.b32 %r12, [%r13];",
    "cvta": "cvt.u64.u32 %rd3, %r11; cvta.shared::cluster.u64 %rd3, %rd3; ld.b32 %r12, [%rd3];",
    "offset": "add.u32 %r13, %r11, -16; ld.shared::cluster.b32 %r12, [%r13+16];",
}
MAP = """mapa.shared::cluster.u32 %r11, %r5, %r4;
cvt.u64.u32 %rd1, %r5; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd2, %rd1, %r4;"""


@pytest.mark.parametrize("access", ACCESSES)
def test_reads_of_the_next_ctas_memory(machine, checked, access):
    text = kernel(f"{FILL} {MAP} {SYNC} {ACCESSES[access]} {SYNC} st.global.b32 [%rd0], %r12;", "4")
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), filled(4)[neighbours(4, 4)])
    clean(checked)


WRITES = {
    "st.b32": "st.shared::cluster.b32 [%r11], %r10;",
    "st.generic": "st.b32 [%rd2], %r10;",
    "st.v2": "shl.b32 %r13, %r0, 3; add.u32 %r13, %r13, %r2; mapa.shared::cluster.u32 %r13, %r13, %r4; "
    "mul.lo.u32 %r14, %r0, 2; mad.lo.u32 %r14, %r7, 1000, %r14; add.u32 %r15, %r14, 1; "
    "setp.lt.u32 %p1, %r0, 32; "
    "@%p1 st.shared::cluster.v2.b32 [%r13], {%r14, %r15};",
    "st.relaxed": "st.relaxed.cluster.shared::cluster.b32 [%r11], %r10;",
    "red.add": "red.relaxed.cluster.shared::cluster.add.u32 [%r11], %r10;",
    "atom.exch": "atom.acq_rel.cluster.shared::cluster.exch.b32 %r13, [%r11], %r10;",
    "atom.cas": "atom.relaxed.cluster.shared::cluster.cas.b32 %r13, [%r11], 0, %r10;",
}


@pytest.mark.parametrize("access", WRITES)
def test_writes_to_the_next_ctas_memory(machine, checked, access):
    text = kernel(
        f"""mov.b32 %r10, 0; st.shared.b32 [%r5], %r10; mad.lo.u32 %r10, %r7, 1000, %r0; {MAP} {SYNC}
{WRITES[access]} {SYNC} ld.shared.b32 %r12, [%r5]; st.global.b32 [%rd0], %r12;""",
        "4",
    )
    before = np.arange(4) // 4 * 4 + (np.arange(4) - 1) % 4
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), filled(4)[before])
    clean(checked)


def test_addresses_tell_their_cta(machine):
    """getctarank and isspacep, of own and foreign addresses, generic and not: one bit or two for each."""
    asks = """
getctarank.shared::cluster.u32 %r12, %r5; getctarank.shared::cluster.u32 %r13, %r11;
getctarank.u64 %r14, %rd1; getctarank.u64 %r15, %rd2;
isspacep.shared %p1, %rd1; isspacep.shared::cta %p2, %rd2; isspacep.shared::cluster %p3, %rd1;
isspacep.shared::cluster %p4, %rd2; isspacep.global %p5, %rd2;
shl.b32 %r13, %r13, 2; or.b32 %r12, %r12, %r13; shl.b32 %r14, %r14, 4; or.b32 %r12, %r12, %r14;
shl.b32 %r15, %r15, 6; or.b32 %r12, %r12, %r15;
"""
    for number in range(1, 6):
        asks += f"selp.b32 %r16, {1 << (7 + number)}, 0, %p{number}; or.b32 %r12, %r12, %r16;"
    text = kernel(f"{MAP} {asks} st.global.b32 [%rd0], %r12;", "4")
    rank, other = np.arange(4), (np.arange(4) + 1) % 4
    want = rank | other << 2 | rank << 4 | other << 6 | (1 | 4 | 8) << 8
    assert np.array_equal(launched(machine, text), np.repeat(want[:, None], THREADS, axis=1))


def test_the_address_of_a_variable_is_mapped(machine):
    text = kernel(f"{FILL} {SYNC} mapa.shared::cluster.u32 %r11, buffer, %r4; "
                  f"ld.shared::cluster.b32 %r12, [%r11+8]; {SYNC} st.global.b32 [%rd0], %r12;")  # fmt: skip
    want = np.repeat(filled(4)[neighbours(4, 2)][:, 2:3], THREADS, axis=1)
    assert np.array_equal(launched(machine, text), want)


# ------------------------------------------------------------------------------------------------------------
# mbarriers of other CTAs
# ------------------------------------------------------------------------------------------------------------

ARRIVALS = {
    "arrive": "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];",
    "arrive.defaults": "mbarrier.arrive.shared::cluster.b64 _, [%r12];",
    "arrive.generic": "cvt.u64.u32 %rd3, %r12; cvta.shared.u64 %rd3, %rd3; "
    "mbarrier.arrive.release.cluster.b64 %rd4, [%rd3];",
    "count": "and.b32 %r13, %r0, 1; setp.eq.u32 %p1, %r13, 0; "
    "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12], 2;",
    "expect_tx": "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r12], 0;",
    "relaxed": "fence.acq_rel.cluster; mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r12];",
    "expect and complete": "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r12], 4; "
    "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r12], 4; "
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];",
}


@pytest.mark.parametrize("form", [name for name in ARRIVALS if name != "arrive.generic"])
def test_arrivals_on_the_next_ctas_mbarrier(machine, checked, form):
    """Each thread writes to the next CTA and arrives there."""
    text = kernel(
        INIT.format(count=THREADS)
        + f"""mad.lo.u32 %r10, %r7, 1000, %r0; mapa.shared::cluster.u32 %r11, %r5, %r4;
mapa.shared::cluster.u32 %r12, %r1, %r4; st.shared::cluster.b32 [%r11], %r10; {ARRIVALS[form]} {try_wait()}
xor.b32 %r14, %r5, 128; ld.shared.b32 %r12, [%r14]; st.global.b32 [%rd0], %r12;""",
        "4",
    )
    before = (np.arange(4) - 1) % 4
    want = filled(4)[before][:, np.arange(THREADS) ^ 32]
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), want)
    clean(checked)


def ring_kernel(
    steps: int, release: str = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];"
) -> str:
    """CTA 0 writes numbers to CTA 1, which reads them and tells when it has: full and empty mbarriers."""
    return kernel(
        INIT.format(count=THREADS)
        + f"""mov.b32 %r15, 0; mov.b32 %r16, 0; setp.eq.u32 %p1, %r3, 0; @!%p1 bra consumer;
mapa.shared::cluster.u32 %r13, %r1, 1; mapa.shared::cluster.u32 %r11, %r5, 1;
producer: and.b32 %r17, %r15, 1; xor.b32 %r17, %r17, 1;
{try_wait("%r17", "%r1+8", "WE")}
mad.lo.u32 %r10, %r15, 7, %r0; st.shared::cluster.b32 [%r11], %r10;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r13];
add.u32 %r15, %r15, 1; setp.lt.u32 %p2, %r15, {steps}; @%p2 bra producer;
bra.uni done;
consumer: mapa.shared::cluster.u32 %r14, %r1, 0; add.u32 %r14, %r14, 8; xor.b32 %r18, %r5, 128;
take: and.b32 %r17, %r15, 1;
{try_wait("%r17", "%r1", "WF")}
ld.shared.b32 %r12, [%r18]; mad.lo.u32 %r16, %r16, 3, %r12;
{release}
add.u32 %r15, %r15, 1; setp.lt.u32 %p2, %r15, {steps}; @%p2 bra take;
st.global.b32 [%rd0], %r16;
done: {SYNC}"""
    )


def ring_result(steps: int) -> np.ndarray:
    want = np.zeros(THREADS, np.uint32)
    for step in range(steps):
        want = (
            want * np.uint32(3) + np.uint32(step * 7) + (np.arange(THREADS, dtype=np.uint32) ^ np.uint32(32))
        )
    return want


def test_a_producer_and_a_consumer_cta(machine, checked):
    for device in (machine, checked):
        out = launched(device, ring_kernel(9))
        assert np.array_equal(out[1::2], np.stack([ring_result(9)] * 2))
    clean(checked)


# ------------------------------------------------------------------------------------------------------------
# Asynchronous stores
# ------------------------------------------------------------------------------------------------------------

STORES = {
    "b32": "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r11], %r10, [%r12];",
    "u32": "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r11], %r10, [%r12];",
    "b64": "@%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r14], %rd3, [%r12];",
    "v2.b32": "@%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r14], {%r20, %r21}, "
    "[%r12];",
    "v4.b32": "@%p2 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r15], "
    "{%r22, %r23, %r24, %r25}, [%r12];",
    "v2.b64": "@%p2 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 [%r15], {%rd4, %rd5}, "
    "[%r12];",
}
PARTS = """mad.lo.u32 %r10, %r7, 1000, %r0; mapa.shared::cluster.u32 %r11, %r5, %r4;
mapa.shared::cluster.u32 %r12, %r1, %r4; mapa.shared::cluster.u32 %r13, %r2, %r4;
mad.lo.u32 %r14, %r0, 8, %r13; mad.lo.u32 %r15, %r0, 16, %r13; setp.lt.u32 %p1, %r0, 32;
setp.lt.u32 %p2, %r0, 16;
mul.lo.u32 %r20, %r7, 1000; mad.lo.u32 %r20, %r0, 2, %r20; add.u32 %r21, %r20, 1; mov.b64 %rd3, {%r20, %r21};
mul.lo.u32 %r22, %r7, 1000; mad.lo.u32 %r22, %r0, 4, %r22; add.u32 %r23, %r22, 1; add.u32 %r24, %r22, 2;
add.u32 %r25, %r22, 3; mov.b64 %rd4, {%r22, %r23}; mov.b64 %rd5, {%r24, %r25};"""


def async_kernel(store: str, nbytes: int = 4 * THREADS, before: str = "") -> str:
    return kernel(
        before
        + INIT.format(count=1)
        + f"""{PARTS} @%p0 mbarrier.arrive.expect_tx.relaxed.cluster.shared::cta.b64 _, [%r1], {nbytes};
{store} {try_wait()} xor.b32 %r16, %r5, 128; ld.shared.b32 %r17, [%r16]; st.global.b32 [%rd0], %r17;""",
        "4",
    )


@pytest.mark.parametrize("form", STORES)
def test_asynchronous_stores(machine, checked, form):
    want = filled(4)[(np.arange(4) - 1) % 4][:, np.arange(THREADS) ^ 32]
    for device in (machine, checked):
        assert np.array_equal(launched(device, async_kernel(STORES[form])), want)
    clean(checked)


REDUCTIONS = {
    ("add", "u32"): lambda old, new: old + new,
    ("add", "s32"): lambda old, new: old + new,
    ("min", "u32"): np.minimum,
    ("max", "s32"): np.maximum,
    ("inc", "u32"): lambda old, new: np.where(old >= new, 0, old + 1),
    ("dec", "u32"): lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    ("and", "b32"): np.bitwise_and,
    ("or", "b32"): np.bitwise_or,
    ("xor", "b32"): np.bitwise_xor,
}


@pytest.mark.parametrize("name, kind", REDUCTIONS)
def test_asynchronous_reductions(machine, checked, name, kind):
    opcode = f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{name}.{kind}"
    old = "xor.b32 %r10, %r0, 21; st.shared.b32 [%r5], %r10;"
    text = async_kernel(f"{opcode} [%r11], %r10, [%r12];", before=old)
    values = filled(4)[(np.arange(4) - 1) % 4]
    want = REDUCTIONS[name, kind](np.arange(THREADS, dtype=np.uint32) ^ np.uint32(21), values)
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), want[:, np.arange(THREADS) ^ 32])
    clean(checked)


def test_asynchronous_reductions_of_64_bits(machine, checked):
    opcode = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64"
    old = "mov.b32 %r10, 1; st.shared.b32 [%r5], %r10;"
    text = async_kernel(f"@%p1 {opcode} [%r14], %rd3, [%r12];", before=old)
    want = filled(4)[(np.arange(4) - 1) % 4] + 1
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), want[:, np.arange(THREADS) ^ 32])
    clean(checked)


@pytest.mark.parametrize(
    "text",
    [
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b16 [%r11], %h0, [%r12];",
        "st.async.weak.shared::cta.mbarrier::complete_tx::bytes.b32 [%r11], %r0, [%r12];",
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r11], {%r0}, [%r12];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.b32 [%r11], %r0, [%r12];",
        "barrier.cluster.arrive.acquire;",
        "barrier.cluster.wait.release;",
        "barrier.cluster.sync;",
    ],
)
def test_unknown_forms_are_refused_when_loaded(text):
    with pytest.raises(EmulatorError, match="PTX line"):
        EmulatorDevice().load_module(kernel(text))


# ------------------------------------------------------------------------------------------------------------
# What checked mode finds
# ------------------------------------------------------------------------------------------------------------


def kinds(device: EmulatorDevice, text: str, ctas: int = 4) -> set[str]:
    launched(device, text, ctas)
    return {finding.kind for finding in device.findings}


READ = "mapa.shared::cluster.u32 %r11, %r5, %r4; ld.shared::cluster.b32 %r12, [%r11];"


@pytest.mark.parametrize(
    "body, expected",
    [
        (f"{FILL} {SYNC} {READ} {SYNC}", set()),
        # nothing orders the CTAs
        (f"{FILL} bar.sync 0; {READ} {SYNC}", {"race", "cluster"}),
        # a relaxed arrival releases nothing
        (f"{FILL} barrier.cluster.arrive.relaxed; barrier.cluster.wait; {READ} {SYNC}", {"race"}),
        # a fence of the CTA does not reach the cluster
        (f"{FILL} fence.acq_rel.cta; barrier.cluster.arrive.relaxed; barrier.cluster.wait; {READ} {SYNC}",
         {"race"}),
        # the other CTA may have ended
        (f"{FILL} {SYNC} {READ}", {"cluster"}),
        # what is read may be overwritten
        (f"{FILL} {SYNC} {READ} bar.sync 0; {FILL} {SYNC}", {"race"}),
        (f"{FILL} {SYNC} {READ} {SYNC} {FILL}", set()),
        # between the halves of the barrier
        (f"{FILL} barrier.cluster.arrive; barrier.cluster.wait; barrier.cluster.arrive; {READ} "
         "barrier.cluster.wait;", {"cluster"}),
        (f"barrier.cluster.arrive; {FILL} barrier.cluster.wait; {READ} {SYNC}", {"race"}),
        # the first access shows that the other CTA has not been waited for
        (f"mov.b32 %r12, 0; {READ.replace('ld.', 'st.').replace('%r12, [%r11]', '[%r11], %r12')} {SYNC}",
         {"cluster"}),
        # a CTA's barrier orders nothing in the other CTA
        (f"{FILL} bar.sync 0; barrier.cluster.arrive.relaxed; barrier.cluster.wait; {READ} {SYNC}", {"race"}),
    ],
)  # fmt: skip
def test_orders_between_ctas(checked, body, expected):
    assert kinds(checked, kernel(body)) == expected
    if expected:
        checked.check = "one"
        assert kinds(checked, kernel(body)) == expected


def test_a_race_names_both_ctas(checked):
    text = kernel(f"{FILL} {SYNC} {FILL}\n{READ}\n{SYNC}")
    assert kinds(checked, text) == {"race"}
    finding = checked.findings[0]
    assert "of the cluster's CTA" in finding.message
    assert finding.other.text.startswith("mad.lo.u32 %r10") and "ld.shared::cluster" in finding.instruction


def test_a_cta_that_has_ended_cannot_be_reached(checked):
    """CTA 1 ends at once; CTA 0 goes round a loop first."""
    text = kernel(f"""{FILL} {SYNC} setp.eq.u32 %p1, %r3, 1; @%p1 ret; mov.b32 %r14, 0;
again: add.u32 %r14, %r14, 1; setp.lt.u32 %p1, %r14, 9; @%p1 bra again; {READ}""")
    assert "out-of-bounds" in kinds(checked, text)
    assert any("which has ended" in finding.message for finding in checked.findings)
    with pytest.raises(DeviceError, match="which has ended"):
        launched(EmulatorDevice(), text)


def test_arrivals_that_nobody_waits_for_are_found(checked):
    """The consumer's last arrivals: without the barrier at the end their target may be gone, or is."""
    text = ring_kernel(4).replace(f"done: {SYNC}", "done:")
    assert kinds(checked, text) in ({"cluster"}, {"out-of-bounds"})
    assert {finding.instruction for finding in checked.findings} == {
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];"
    }


def test_a_missing_release_between_ctas_is_found(checked):
    """The consumer reads, and says that it has done so before."""
    early = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];"
    text = (
        ring_kernel(4)
        .replace(early, "")
        .replace("ld.shared.b32 %r12, [%r18];", f"{early}\nld.shared.b32 %r12, [%r18];")
    )
    assert "race" in kinds(checked, text)


@pytest.mark.parametrize(
    "fence, arrive, expected",
    [
        ("@%p0 fence.mbarrier_init.release.cluster;", "barrier.cluster.arrive.relaxed;", set()),
        ("", "barrier.cluster.arrive.relaxed;", {"race"}),
        ("", "barrier.cluster.arrive.release;", set()),
    ],
)
def test_mbarriers_are_made_known_by_a_fence(checked, fence, arrive, expected):
    text = kernel(f"""@%p0 mbarrier.init.shared::cta.b64 [%r1], {THREADS}; {fence} {arrive}
barrier.cluster.wait; mapa.shared::cluster.u32 %r12, %r1, %r4;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12]; {try_wait()}
""")
    assert kinds(checked, text) == expected


def test_what_a_store_leaves_out_is_not_there(checked):
    """Too few bytes: a deadlock, and it names the wait."""
    text = async_kernel(STORES["b32"], nbytes=4 * THREADS + 4)
    assert "deadlock" in kinds(checked, text)
    assert any("try_wait" in f.instruction for f in checked.findings if f.kind == "deadlock")


def test_data_of_asynchronous_stores_is_read_after_the_wait(checked):
    text = async_kernel(STORES["b32"]).replace(try_wait(), "")
    assert {"async", "uninitialised"} & kinds(checked, text)


@pytest.mark.parametrize(
    "body, message",
    [
        (
            "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;",
            "again before it has waited",
        ),
        ("barrier.cluster.wait;", "without having arrived"),
        (
            "@%p0 barrier.cluster.arrive.aligned; @!%p0 barrier.cluster.arrive; barrier.cluster.wait;",
            "part of a warp",
        ),
    ],
)
def test_misused_barriers(checked, body, message):
    assert kinds(checked, kernel(body)) == {"barrier"}
    assert any(message in finding.message for finding in checked.findings)


def test_a_barrier_that_a_cta_never_reaches_is_a_deadlock(checked):
    text = kernel(f"""setp.eq.u32 %p1, %r3, 1; @%p1 bra other; barrier.cluster.arrive;
barrier.cluster.wait;
ret;
other: @%p0 mbarrier.init.shared::cta.b64 [%r1], 3; bar.sync 0; {try_wait()}""")
    assert kinds(checked, text) == {"deadlock"}
    waiting = {finding.instruction.split()[0].rstrip(";") for finding in checked.findings}
    assert waiting == {"barrier.cluster.wait", "other:"}


@pytest.mark.parametrize(
    "access, message",
    [
        ("mapa.shared::cluster.u32 %r11, %r5, 2; ld.shared::cluster.b32 %r12, [%r11];",
         "in CTA 2 of a cluster of 2"),
        ("mapa.shared::cluster.u32 %r11, %r5, %r4; ld.shared.b32 %r12, [%r11];",
         "only .shared::cluster reaches"),
        ("mapa.shared::cluster.u32 %r11, %r5, %r4; ld.shared::cluster.b32 %r12, [%r11+8192];",
         "bytes of CTA"),
        ("cvt.u64.u32 %rd1, %r5; cvta.shared.u64 %rd1, %rd1; mapa.u64 %rd1, %rd1, 7; ld.b32 %r12, [%rd1];",
         "in CTA 7 of a cluster of 2"),
        ("mapa.shared::cluster.u32 %r11, %r5, %r4; ld.shared::cluster.b32 %r12, [%r11+1];", "not aligned"),
    ],
)  # fmt: skip
def test_addresses_that_are_not_there(checked, access, message):
    launched(checked, kernel(f"{FILL} {SYNC} {access} {SYNC}"))
    assert any(message in finding.message for finding in checked.findings)


# ------------------------------------------------------------------------------------------------------------
# Launches
# ------------------------------------------------------------------------------------------------------------

RANK = "mad.lo.u32 %r10, %r6, 10, %r3; st.global.b32 [%rd0], %r10;"


def test_a_launch_can_ask_for_clusters():
    device, out = EmulatorDevice(), np.zeros(8 * 32, np.uint32)
    address = device.register_host_array(out)
    function = device.load_module(kernel(RANK, "")).function("k")
    function.launch((8, 1, 1), (32, 1, 1), 0, 0, np.uint64(address).tobytes(), cluster=(4, 1, 1))
    assert out[::32].tolist() == [40, 41, 42, 43] * 2
    function.launch((8, 1, 1), (32, 1, 1), 0, 0, np.uint64(address).tobytes())
    assert out[::32].tolist() == [10] * 8


@pytest.mark.parametrize(
    "cluster, directives, grid, asked, message",
    [
        ("2", "", (5, 1, 1), None, "no multiple of the cluster"),
        ("1, 2", "", (4, 3, 1), None, "no multiple of the cluster"),
        ("2", "", (4, 1, 1), (4, 1, 1), "differ from .reqnctapercluster"),
        ("16", "", (16, 1, 1), None, "at most 8"),
        ("", ".maxclusterrank 2", (4, 1, 1), (4, 1, 1), "at most 2"),
        ("", ".explicitcluster", (4, 1, 1), None, "needs a launch in clusters"),
    ],
)
def test_launches_that_are_refused(cluster, directives, grid, asked, message):
    text = kernel(RANK, "", directives=directives or f".reqnctapercluster {cluster}")
    function = EmulatorDevice().load_module(text).function("k")
    with pytest.raises(DeviceError, match=message):
        function.launch(grid, (32, 1, 1), 0, 0, bytes(8), cluster=asked)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_clusters_stay_together_in_any_order(order):
    device = EmulatorDevice(check="all", raise_faults=False)
    device.order = order
    text = kernel(f"{FILL} {SYNC} {READ} {SYNC} st.global.b32 [%rd0], %r12;")
    assert np.array_equal(launched(device, text, 6), filled(6)[neighbours(6, 2)])
    clean(device)


def test_clusters_stay_together_in_several_processes():
    text = kernel(f"{FILL} {SYNC} {READ} {SYNC} st.global.b32 [%rd0], %r12;", "4")
    assert np.array_equal(launched(EmulatorDevice(processes=3), text, 20), filled(20)[neighbours(20, 4)])


def test_clusters_of_large_grids_come_in_batches(checked):
    text = kernel(f"{FILL} {SYNC} {READ} {SYNC} st.global.b32 [%rd0], %r12;", "4")
    assert np.array_equal(launched(checked, text, 400), filled(400)[neighbours(400, 4)])
    clean(checked)
