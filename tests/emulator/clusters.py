"""Kernels of clusters for tests: numbers, barriers and buffers that each has, and pieces of their text."""

from __future__ import annotations

import numpy as np

from ptxforge.emulator import EmulatorDevice

from .harness import HEADER, run

SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
THREADS = 64


def kernel(body: str, cluster: str = "2", target: str = "sm_90a", directives: str = "") -> str:
    """%r0: this thread, %r1: 64 bytes for mbarriers, %r2: a buffer of 4 KiB, %r3: the CTA's rank, %r4: that
    of the next CTA, %r5: this thread's word of the buffer; %rd0: this thread's element of `p`, %p0: thread 0.
    """
    shape = f".explicitcluster .reqnctapercluster {cluster}" if cluster else ""
    return f"""{HEADER.format(target=target)}
.visible .entry k(.param .u64 p) {shape} {directives}
{{
  .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .pred %p<8>; .reg .b16 %h<4>;
  .shared .align 16 .b8 barriers[64]; .shared .align 512 .b8 buffer[4096];
  mov.u32 %r0, %tid.x; mov.b32 %r1, barriers; mov.b32 %r2, buffer; mov.u32 %r3, %cluster_ctarank;
  mov.u32 %r6, %cluster_nctarank; add.u32 %r4, %r3, 1; rem.u32 %r4, %r4, %r6;
  mad.lo.u32 %r5, %r0, 4, %r2; setp.eq.u32 %p0, %r0, 0;
  mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ntid.x; mad.lo.u32 %r9, %r7, %r8, %r0;
  ld.param.u64 %rd0, [p]; cvta.to.global.u64 %rd0, %rd0; mad.wide.u32 %rd0, %r9, 4, %rd0;
{body}
  ret;
}}
"""


def launched(device, text: str, ctas: int = 4, threads: int = THREADS) -> np.ndarray:
    """What a kernel leaves in one u32 per thread: ``(ctas, threads)``."""
    out = np.zeros(ctas * threads, np.uint32)
    run(device, text, "k", ctas, threads, out)
    return out.reshape(ctas, threads)


def neighbours(ctas: int, size: int) -> np.ndarray:
    """Per CTA of the grid the next one of its cluster."""
    cta = np.arange(ctas)
    return cta // size * size + (cta + 1) % size


def try_wait(parity: str = "0", barrier: str = "%r1", label: str = "W") -> str:
    return (
        f"{label}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p7, [{barrier}], {parity}; "
        f"@!%p7 bra {label};"
    )


FILL = "mad.lo.u32 %r10, %r7, 1000, %r0; st.shared.b32 [%r5], %r10;"
"""A word per thread that tells CTA and thread."""


def filled(ctas: int, threads: int = THREADS) -> np.ndarray:
    return (np.arange(ctas)[:, None] * 1000 + np.arange(threads)).astype(np.uint32)


INIT = (
    """@%p0 mbarrier.init.shared::cta.b64 [%r1], {count};
@%p0 mbarrier.init.shared::cta.b64 [%r1+8], {count};
@%p0 fence.mbarrier_init.release.cluster;
"""
    + SYNC
)


def clean(device: EmulatorDevice) -> None:
    assert not device.findings, "\n".join(map(str, device.findings))
