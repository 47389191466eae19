"""Products by ``wgmma`` whose left operand is computed from what differs along k and lies in no ring of
buffers (masks, scales, sums along k, gathered columns): they run on into the next iteration; on every
executor that is present."""

from __future__ import annotations

import re
import warnings

import attrs
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.runtime.loaded import LoadedKernel
from tests.kernels.assembly import schedule

GROUP = 16


@ptxforge.jit
def product(
    a, b, c, s, K, stride_a, stride_b, stride_c, stride_s, KIND: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """c = f(a) @ b, where f takes ``s``, of each KIND in another way."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    place = k
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in tl.range(0, K, BK, num_stages=STAGES):
        if KIND == "gathered":
            x = tl.load(a + i[:, None] * stride_a + tl.load(s + start + k)[None, :]) + 1
        else:
            x = tl.load(a + i[:, None] * stride_a + (start + k)[None, :])
        if KIND == "compared":
            x = tl.where(place[None, :] < K - 3, x, 0.0)
        if KIND == "mask":
            x = tl.where(tl.load(s + start + k)[None, :] != 0, x, 0.0)
        if KIND == "vector":
            x = x * tl.load(s + (start + k) * stride_s)[None, :]
        if KIND == "groups":
            x = x * tl.load(s + i[:, None] * stride_s + ((start + k) // GROUP)[None, :])
        if KIND == "repeated":
            scales = tl.load(s + i[:, None] * stride_s + start // GROUP + tl.arange(0, BK // GROUP)[None, :])
            x = (x.reshape(BM, BK // GROUP, GROUP) * scales[:, :, None]).reshape(BM, BK)
        if KIND == "narrowed":
            scales = tl.load(s + i[:, None] * stride_s + start // GROUP + tl.arange(0, BK // GROUP)[None, :])
            wide = x.to(tl.float32).reshape(BM, BK // GROUP, GROUP) * scales.to(tl.float32)[:, :, None]
            x = wide.reshape(BM, BK).to(b.dtype.element_ty)
        if KIND == "sums":
            x = x * tl.cumsum(tl.load(s + start + k), 0)[None, :]
        if KIND == "powers":
            x = tl.exp(x.to(tl.float32)).to(b.dtype.element_ty)
        if KIND == "widened":
            x = (x.to(tl.float32) * 2).to(b.dtype.element_ty)
        y = tl.load(b + (start + k)[:, None] * stride_b + j[None, :])
        acc = tl.dot(x, y, acc)
        place += BK
    tl.store(c + i[:, None] * stride_c + j[None, :], acc)


KINDS = ("compared", "gathered", "mask", "vector", "groups", "repeated", "narrowed", "sums", "widened")


def draw(kind: str, m: int, n: int, k: int, block: int) -> tuple:
    """a, b, s, the distance of rows of s, and the product; all numbers are exact."""
    rng = np.random.default_rng(m + n + k)
    a = rng.integers(-4, 5, (m, k + (kind == "widened"))).astype(np.float16)
    b = rng.integers(-2, 3, (k, n)).astype(np.float16)
    wide, stride, s = a[:, :k].astype(np.float32), 1, rng.integers(0, 3, max(2 * k, 1)).astype(np.float16)
    narrow = s.astype(np.float32)
    if kind == "gathered":
        s = rng.permutation(k).astype(np.int32) if k else np.zeros(1, np.int32)
        wide = wide[:, s[:k]] + 1
    if kind == "compared":
        wide = np.where(np.arange(k) < k - 3, wide, 0)
    if kind == "mask":
        s = (s != 0).astype(np.uint8)
        wide = wide * s[:k]
    if kind == "vector":
        wide, stride = wide * narrow[: 2 * k : 2], 2
    if kind in ("groups", "repeated", "narrowed"):
        s, stride = rng.integers(0, 3, (m, max(k // GROUP, 1))).astype(np.float16), max(k // GROUP, 1)
        wide = wide * np.repeat(s.astype(np.float32), GROUP, 1)[:, :k]
    if kind == "sums":
        wide = wide * np.cumsum(narrow[:k].reshape(-1, block), 1).reshape(-1)
    if kind == "widened":
        wide = wide * 2
    return a, b, s, stride, wide @ b.astype(np.float32)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_products(execute, kind, steps):
    m, n, bk = 64, 256, 64
    k = steps * bk
    a, b, s, stride, expected = draw(kind, m, n, k, bk)
    arguments = (a, b, np.ones((m, n), np.float32), s, k, a.shape[1], n, n, stride)
    constants = {"KIND": kind, "BM": m, "BN": n, "BK": bk, "STAGES": 3, "GROUP": GROUP}
    for (out,) in execute(product, (1, 1), arguments, constants, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("steps", [1, 4])
def test_exponentials(execute, assemble, steps):
    """One branch for all of a thread's tiny results would keep products from running beside each other."""
    artifact = compiled("powers")
    assemble(artifact.ptx)
    assert "in flight across iterations" in str(artifact.remarks)
    k = 64 * steps
    a, b, s, stride, _ = draw("powers", 64, 64, k, 64)
    expected = np.exp(a.astype(np.float32)).astype(np.float16).astype(np.float32) @ b.astype(np.float32)
    arguments = (a, b, np.zeros((64, 64), np.float32), s, k, k, 64, 64, stride)
    constants = {"KIND": "powers", "BM": 64, "BN": 64, "BK": 64, "STAGES": 3, "GROUP": GROUP}
    for (out,) in execute(product, (1, 1), arguments, constants, outputs=[2], num_warps=4):
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1)


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("kind", ["vector", "groups", "sums", "gathered", "widened"])
def test_two_warpgroups(execute, kind, stages):
    m, n, k = 128, 256, 192
    a, b, s, stride, expected = draw(kind, m, n, k, 64)
    arguments = (a, b, np.ones((m, n), np.float32), s, k, a.shape[1], n, n, stride)
    constants = {"KIND": kind, "BM": 128, "BN": 256, "BK": 64, "STAGES": stages, "GROUP": GROUP}
    for (out,) in execute(product, (1, 1), arguments, constants, outputs=[2], num_warps=8):
        np.testing.assert_array_equal(out, expected)


def compiled(kind: str, block=(128, 256, 64), num_warps=8, stages=3) -> ptxforge.Artifact:
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "s": "*fp16", "K": "i32:16"}
    signature |= {"s": {"mask": "*u8", "gathered": "*i32"}.get(kind, "*fp16")}
    signature |= {"stride_a": "i32" if kind == "widened" else "i32:16", "stride_b": "i32:16"}
    signature |= {"stride_c": "i32:16", "stride_s": "i32"}
    constants = dict(zip(("BM", "BN", "BK"), block)) | {"KIND": kind, "STAGES": stages, "GROUP": GROUP}
    return ptxforge.compile(
        product, signature=signature, constants=constants, target="sm_90a", num_warps=num_warps
    )


@pytest.mark.parametrize("kind", KINDS)
def test_products_run_on(kind, assemble):
    """One part multiplies while the registers of the other are filled, across iterations; the assembler
    serialises nothing."""
    artifact = compiled(kind)
    assemble(artifact.ptx)
    assert schedule(artifact.ptx)[-5:] == ["wait 1", "start", "wait 1", "start", "wait 0"]
    (remark,) = [r.message for r in artifact.remarks if r.kind == "product"]
    assert "through registers" in remark and "in flight across iterations" in remark


@pytest.mark.parametrize("kind", ["vector", "groups", "sums"])
def test_what_is_loaded_is_loaded_under_the_last_product(kind):
    """Loads to registers, and sums of them, stand in front of the iteration's first wait."""
    body = compiled(kind).ptx
    first = body.index("wgmma.wait_group.sync.aligned 1")
    last = body.rindex("wgmma.wait_group.sync.aligned 1")
    assert re.search(r"ld\.global", body[:first]) and not re.search(r"ld\.global", body[first:last])


@pytest.mark.parametrize("kind", ["mask", "vector"])
def test_a_load_that_no_copy_can_do_runs_an_iteration_ahead(kind):
    """Behind the iteration's products, in a register; what it gave in the iteration before is exchanged in
    front of them."""
    artifact = compiled(kind)
    assert "does not run ahead" not in str(artifact.remarks)
    found = [text for name, text in artifact.stages if name == "schedule_loops"][-1]
    loads = [line for line in found.splitlines() if " load " in line and "stage = 1" in line]
    assert len(loads) == 1 and "group" not in loads[0], found
    loop = artifact.ptx[artifact.ptx.index("wgmma.wait_group.sync.aligned 1") :]
    assert re.search(r"wgmma\.mma_async[\s\S]*ld\.global", loop), loop
    head = artifact.ptx[: artifact.ptx.index("wgmma.wait_group.sync.aligned 1")]
    head = head[head.rindex("\n$for_") :]
    assert head.count("bar.sync") == 1 and not re.search(r"ld\.global", head), head


@pytest.mark.parametrize(("kind", "is_copied"), [("compared", False), ("vector", True), ("widened", True)])
def test_registers_that_are_read_are_kept(kind, is_copied):
    """Where something is computed in front of the iteration's first wait, the product under way reads copies
    that are made behind it."""
    body = compiled(kind).ptx
    body = body[body.index("wgmma.wait_group.sync.aligned 1") :]
    operands = re.findall(r"wgmma\.mma_async\S* \{[^}]*\}, \{([^}]*)\}", body)
    words = {word for words in operands for word in words.split(", ")}
    assert len(words) == 16
    assert words == set(re.findall(r"@%p\d+ or\.b32 (%r\d+)", body)) or not is_copied
    assert is_copied or not re.search(r"@%p\d+ or\.b32", body)


@pytest.mark.parametrize("num_warps", [4, 8])
def test_beside_a_second_block_they_do_not(num_warps, assemble):
    """One of two blocks multiplies while the other one waits."""
    artifact = compiled("vector", (128, 128, 64), num_warps=num_warps)
    assemble(artifact.ptx)
    assert "waited for in its iteration" in str(artifact.remarks)


def test_a_product_that_would_take_too_many_registers_is_waited_for(assemble):
    """128 of sums, 64 of fragments under way, and as many of the next ones."""
    artifact = compiled("narrowed", (256, 128, 128), stages=2)
    assemble(artifact.ptx)
    assert "waited for in its iteration" in str(artifact.remarks)
    assert schedule(artifact.ptx)[-1] == "wait 0" and "wait 1" not in schedule(artifact.ptx)


@pytest.mark.parametrize("kind", ["vector", "narrowed"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_wait_that_is_missing_is_found(kind, which):
    artifact = compiled(kind, (64, 256, 64), num_warps=4)
    lines = artifact.ptx.split("\n")
    waits = [at for at, line in enumerate(lines) if "wgmma.wait_group.sync.aligned 1" in line]
    assert len(waits) == 2
    without = attrs.evolve(artifact, ptx="\n".join(lines[: waits[which]] + lines[waits[which] + 1 :]))
    assert not findings(artifact, kind) and "not waited for" in str(findings(without, kind)[0])


def findings(artifact: ptxforge.Artifact, kind: str) -> list:
    """Of a launch with three steps."""
    device = EmulatorDevice(check="all", target="sm_90a", raise_faults=False)
    a, b, s, stride, _ = draw(kind, 64, 256, 192, 64)
    a, b, c, s = (ptxforge.to_device(x, device) for x in (a, b, np.zeros((64, 256), np.float32), s))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        LoadedKernel(artifact)[(1,)](a, b, c, s, 192, 192, 256, 256, stride)
    return device.findings
