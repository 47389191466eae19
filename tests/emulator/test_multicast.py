"""Bulk copies between the CTAs of a cluster, and loads that go to several of them, with and without tensor
maps.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice

from . import tma
from .clusters import FILL, INIT, SYNC, THREADS, clean, kernel, launched, neighbours, try_wait
from .foreign import _with_arrays
from .harness import HEADER, pack

# ------------------------------------------------------------------------------------------------------------
# Shared memory to shared memory
# ------------------------------------------------------------------------------------------------------------

SEND = """fence.proxy.async.shared::cta; bar.sync 0;
mapa.shared::cluster.u32 %r11, %r2, %r4; add.u32 %r11, %r11, 2048; mapa.shared::cluster.u32 %r12, %r1, %r4;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;
@%p0 {copy} [%r11], [%r2], 256, [%r12];
"""
COPY = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"


def test_a_copy_to_the_next_ctas_memory(machine, checked):
    text = kernel(
        FILL + INIT.format(count=1) + SEND.format(copy=COPY) + try_wait() +
        f"ld.shared.b32 %r13, [%r5+2048]; {SYNC} st.global.b32 [%rd0], %r13;", "4",
    )  # fmt: skip
    want = (np.arange(4)[:, None] * 1000 + np.arange(THREADS))[(np.arange(4) - 1) % 4]
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), want)
    clean(checked)


@pytest.mark.parametrize("name, combine", [("add", np.add), ("max", np.maximum), ("and", np.bitwise_and)])
def test_a_reduction_into_the_next_ctas_memory(machine, checked, name, combine):
    kind = "b32" if name == "and" else "u32"
    copy = f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{name}.{kind}"
    text = kernel(
        FILL + "mul.lo.u32 %r14, %r0, 37; st.shared.b32 [%r5+2048], %r14;" + INIT.format(count=1) +
        SEND.format(copy=copy) + try_wait() +
        f"ld.shared.b32 %r13, [%r5+2048]; {SYNC} st.global.b32 [%rd0], %r13;", "2",
    )  # fmt: skip
    sent = (np.arange(4)[:, None] * 1000 + np.arange(THREADS))[neighbours(4, 2)]
    for device in (machine, checked):
        assert np.array_equal(launched(device, text), combine(sent, np.arange(THREADS) * 37))
    clean(checked)


def test_a_copy_that_its_source_does_not_outlive(checked):
    """The sender may write there again only when the copy has been read: the receiver tells it."""
    text = kernel(
        FILL + INIT.format(count=1) + SEND.format(copy=COPY) + try_wait() + "st.shared.b32 [%r5], %r0;" + SYNC
    )
    launched(checked, text)
    assert not [finding for finding in checked.findings if finding.kind == "cluster"]


# ------------------------------------------------------------------------------------------------------------
# Global memory to several CTAs
# ------------------------------------------------------------------------------------------------------------

_PIECE = 1024


def bulk_kernel(mask: str, nbytes: int, size: int = 4, issue: str = "%p0") -> str:
    """Every CTA sends its piece of `p` (1 KiB) to the CTAs of `mask`, to 1 KiB x its own rank there."""
    return kernel(
        INIT.format(count=1)
        + f"""
ld.param.u64 %rd1, [p]; mad.wide.u32 %rd1, %r7, {_PIECE}, %rd1; mad.lo.u32 %r11, %r3, {_PIECE}, %r2;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {nbytes};
{mask} cvt.u16.u32 %h0, %r12;
@{issue} cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r11],
  [%rd1], {_PIECE},
  [%r1], %h0;
{try_wait()} {SYNC}
mov.b32 %r13, 0; mad.lo.u32 %r14, %r0, 64, %r2; mov.b32 %r15, 0;
sum: ld.shared.b32 %r16, [%r14]; mad.lo.u32 %r13, %r13, 3, %r16; add.u32 %r14, %r14, 4; add.u32 %r15, %r15, 1;
setp.lt.u32 %p1, %r15, 16; @%p1 bra sum;
ld.param.u64 %rd2, [p]; mov.b64 %rd3, 16384; add.u64 %rd2, %rd2, %rd3; mad.wide.u32 %rd2, %r9, 4, %rd2;
st.global.b32 [%rd2], %r13;""",
        str(size),
    )


def folded(words: np.ndarray) -> np.ndarray:
    """What each thread makes of its 16 words of the 4 KiB."""
    found = np.zeros(THREADS, np.uint32)
    for column in words.reshape(THREADS, 16).T:
        found = found * np.uint32(3) + column
    return found


def run_bulk(device, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of 16 CTAs, and what their threads made of what they got."""
    out = np.random.default_rng(0).integers(0, 1 << 20, 4096 + 16 * THREADS, dtype=np.uint32)
    pieces = out[:4096].reshape(16, _PIECE // 4).copy()

    def launch(at: list[int]) -> None:
        device.load_module(text).function("k").launch(
            (16, 1, 1), (THREADS, 1, 1), 0, 0, pack([np.uint64(at[0])])
        )

    _with_arrays(device, [out], launch)
    return pieces, out[4096:].reshape(16, THREADS)


def test_a_piece_from_everybody_to_everybody(machine, checked):
    text = bulk_kernel("mov.b32 %r12, 15;", 4 * _PIECE)
    for device in (machine, checked):
        pieces, got = run_bulk(device, text)
        for cta in range(16):
            assert np.array_equal(got[cta], folded(pieces[cta // 4 * 4 : cta // 4 * 4 + 4]))
    clean(checked)


def test_masks_that_leave_ctas_out(machine, checked):
    """Rank r sends to itself and to the next: each CTA gets two pieces; the rest of its buffer is zero."""
    mask = "mov.b32 %r14, 1; shl.b32 %r12, %r14, %r3; shl.b32 %r13, %r14, %r4; or.b32 %r12, %r12, %r13;"
    zero = "".join(f"st.shared.b32 [%r5+{256 * part}], %r14;" for part in range(16))
    text = bulk_kernel(mask, 2 * _PIECE).replace(
        "@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;",
        f"mov.b32 %r14, 0; {zero} fence.proxy.async.shared::cta;\n"
        "@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;",
    )
    for device in (machine, checked):
        pieces, got = run_bulk(device, text)
        for cta in range(16):
            first, rank = cta // 4 * 4, cta % 4
            wanted = np.zeros((4, _PIECE // 4), np.uint32)
            for source in (rank, (rank - 1) % 4):
                wanted[source] = pieces[first + source]
            assert np.array_equal(got[cta], folded(wanted))
    clean(checked)


def test_one_cta_sends_to_all(machine, checked):
    """Rank 1 alone sends; the others announce what they expect."""
    issue = "setp.eq.u32 %p2, %r3, 1; and.pred %p2, %p2, %p0;"
    text = bulk_kernel(issue + "mov.b32 %r12, 15;", _PIECE, issue="%p2").replace(
        "%r14, %r0, 64, %r2", "%r14, %r0, 16, %r2"
    )
    text = text.replace("setp.lt.u32 %p1, %r15, 16", "setp.lt.u32 %p1, %r15, 4").replace(
        f"%r11, %r3, {_PIECE}, %r2", f"%r11, 0, {_PIECE}, %r2"
    )
    for device in (machine, checked):
        pieces, got = run_bulk(device, text)
        for cta in range(16):
            want = np.zeros(THREADS, np.uint32)
            for column in pieces[cta // 4 * 4 + 1].reshape(THREADS, 4).T:
                want = want * np.uint32(3) + column
            assert np.array_equal(got[cta], want)
    clean(checked)


# ------------------------------------------------------------------------------------------------------------
# Tensor maps
# ------------------------------------------------------------------------------------------------------------

ROWS, COLUMNS, SLICE = 24, 64, 4


def tensor_kernel(size: int, multicast: str, sync: str = SYNC) -> str:
    """Each CTA of a cluster loads a slice of 4 rows of the cluster's tile and sends it to all CTAs (f32, 32
    columns from column 16 on, no swizzle); then each writes the whole tile to its place of `out`.
    """
    nbytes = SLICE * 32 * 4
    return f"""{HEADER.format(target="sm_90a")}
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) .explicitcluster .reqnctapercluster {size}
{{
  .reg .b32 %r<32>; .reg .b64 %rd<8>; .reg .pred %p<8>; .reg .b16 %h<2>;
  .shared .align 16 .b8 barriers[16]; .shared .align 1024 .b8 buffer[{size * nbytes}];
  mov.u32 %r0, %tid.x; mov.b32 %r1, barriers; mov.b32 %r2, buffer; mov.u32 %r3, %cluster_ctarank;
  setp.eq.u32 %p0, %r0, 0; mov.u32 %r7, %ctaid.x; mov.b64 %rd3, map; cvta.param.u64 %rd3, %rd3;
  ld.param.u64 %rd0, [out]; mad.wide.u32 %rd0, %r7, {size * nbytes}, %rd0; mad.wide.u32 %rd0, %r0, 4, %rd0;
  mov.u32 %r8, %clusterid.x; mov.b32 %r10, 16; mul.lo.u32 %r11, %r8, {size * SLICE};
  mad.lo.u32 %r11, %r3, {SLICE}, %r11;
  mad.lo.u32 %r12, %r3, {nbytes}, %r2;
  @%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  {sync}
  @!%p0 bra wait;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {size * nbytes};
  mov.b32 %r13, {(1 << size) - 1}; cvt.u16.u32 %h0, %r13;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.{multicast}
    [%r12], [%rd3, {{%r10, %r11}}], [%r1], %h0;
wait: {try_wait()}
  mov.b32 %r14, 0; mad.lo.u32 %r15, %r0, 4, %r2;
copy: ld.shared.b32 %r16, [%r15]; st.global.b32 [%rd0], %r16; add.u32 %r15, %r15, 128;
  add.u64 %rd0, %rd0, 128;
  add.u32 %r14, %r14, 1; setp.lt.u32 %p1, %r14, {size * SLICE}; @%p1 bra copy;
  {SYNC}
  ret;
}}
"""


def run_tensor(device, size: int, text: str) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(1, ROWS * COLUMNS + 1, dtype=np.float32).reshape(ROWS, COLUMNS)
    out = np.zeros((2 * size, size * SLICE, 32), np.float32)

    def launch(at: list[int]) -> None:
        tensor_map = tma.encode(device, "f32", at[0], (COLUMNS, ROWS), (4 * COLUMNS,), (32, SLICE))
        device.load_module(text).function("k").launch(
            (2 * size, 1, 1), (32, 1, 1), 0, 0, pack([tensor_map, np.uint64(at[1])])
        )

    _with_arrays(device, [x, out], launch)
    return x, out


@pytest.mark.parametrize("size", [2, 4])
def test_tiles_that_the_ctas_of_a_cluster_share(machine, checked, size):
    """With clusters of 4 the second one's tile reaches below the tensor: zeros."""
    text = tensor_kernel(size, "multicast::cluster")
    for device in (machine, checked):
        x, out = run_tensor(device, size, text)
        padded = np.vstack([x, np.zeros((32, COLUMNS), np.float32)])
        for cta in range(2 * size):
            first = cta // size * size * SLICE
            assert np.array_equal(out[cta], padded[first : first + size * SLICE, 16:48])
    clean(checked)


def test_a_cta_that_may_not_have_started_is_not_sent_to(checked):
    """Without the barrier of the cluster at the start."""
    run_tensor(checked, 2, tensor_kernel(2, "multicast::cluster", "bar.sync 0;"))
    assert "cluster" in {finding.kind for finding in checked.findings}


def test_masks_of_ctas_that_are_not_there(checked):
    text = tensor_kernel(2, "multicast::cluster").replace("mov.b32 %r13, 3;", "mov.b32 %r13, 7;")
    run_tensor(checked, 2, text)
    assert any("beyond the 2 of the cluster" in finding.message for finding in checked.findings)


def test_a_tile_that_is_read_before_all_its_parts_have_come(checked):
    """Too few bytes are announced: the phase completes with the first slice."""
    text = tensor_kernel(2, "multicast::cluster").replace("[%r1], 1024;", "[%r1], 512;")
    run_tensor(checked, 2, text)
    assert {"async", "deadlock"} & {finding.kind for finding in checked.findings}


def test_a_tile_that_is_asked_for_again_before_everybody_has_read_it(checked):
    """Two rounds into one buffer, with a barrier of the CTA between them instead of the cluster's."""
    again = """{sync} @!%p0 bra wait2;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
    [%r12], [%rd3, {{%r10, %r11}}], [%r1], %h0;
wait2: {wait}
"""
    text = tensor_kernel(2, "multicast::cluster")
    end = text.rindex(SYNC)
    for sync, expected in ((SYNC, set()), ("bar.sync 0;", {"race"})):
        more = again.format(sync=sync, wait=try_wait("1", label="V"))
        run_tensor(checked, 2, text[:end] + more + text[end:])
        assert {finding.kind for finding in checked.findings} == expected


def test_global_memory_is_read_once():
    device = EmulatorDevice(counters=True)
    run_tensor(device, 2, tensor_kernel(2, "multicast::cluster"))
    total = device.last_report.total
    assert total.global_bytes - 4 * 8 * 32 * 4 == 4 * SLICE * 32 * 4  # stores aside
