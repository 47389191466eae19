"""Tiles that several CTAs of a cluster need, each of which copies a share for all: results on every executor,
which operands it is done for, and what the emulator says where a part of the protocol is missing."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.support import dtypes
from ptxforge.support.errors import PtxforgeError
from tests.kernels.products import KINDS, every_pair, identify, problem, product
from tests.kernels.specialized import TILES, walking
from tests.kernels.specialized import compiled as compiled_walking

# -- results ----------------------------------------------------------------------------------------------

AXES = {
    "kind": ("f16", "bf16", "tf32", "i8"),
    "block": ((128, 64, 64), (64, 128, 32), (128, 128, 32), (256, 128, 64)),
    "layout": ("row-row", "row-column", "column-row"),
    "num_warps": (4, 8),
    "num_stages": (2, 3, 4),
    "steps": (0, 1, 2, 5),
    "edges": ("none", "cut"),
    "num_ctas": (2, 4),
}
SAMPLE = every_pair(AXES, seed=11)


@pytest.mark.parametrize("point", SAMPLE, ids=lambda p: f"{identify(p)}-{p['num_ctas']}ctas")
def test_product(execute, point):
    arguments, expected, grid, constants, options = problem(point)
    options["num_ctas"] = point["num_ctas"]
    for (out,) in execute(product, grid, arguments, constants, outputs=[2], **options):
        np.testing.assert_array_equal(out, expected.astype(out.dtype))


POINT = {"kind": "f16", "block": (64, 128, 64), "layout": "row-row", "num_warps": 4, "num_stages": 3,
         "steps": 7, "edges": "none"}  # fmt: skip


@pytest.mark.parametrize("block, num_ctas", [((128, 128, 64), 8), ((64, 256, 32), 8), ((256, 256, 32), 4)])
def test_larger_clusters(execute, block, num_ctas):
    arguments, expected, grid, constants, options = problem(POINT | {"block": block, "steps": 4})
    for (out,) in execute(product, grid, arguments, constants, outputs=[2], **options, num_ctas=num_ctas):
        np.testing.assert_array_equal(out, expected.astype(out.dtype))


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("triangle", [False, True])
@pytest.mark.parametrize("num_ctas", [2, 4])
def test_programs_that_walk_over_tiles(execute, num_ctas, flatten, triangle):
    """One ring for all tiles, some of which may have no step."""
    rng = np.random.default_rng(2)
    m, n, k = 320, 160, 176
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), 9, np.float32)
    tiles = -(-m // 64) * -(-n // 128)
    constants = {"BM": 64, "BN": 128, "BK": 32, "PROGRAMS": 2, "FLATTEN": flatten, "WS": False,
                 "INNER": False, "TRIANGLE": triangle}  # fmt: skip
    want = np.zeros((m, n))
    for row in range(0, m, 64):
        depth = min(k, row) if triangle else k
        depth = min(k, -(-depth // 32) * 32)
        want[row : row + 64] = a[row : row + 64, :depth].astype(float) @ b[:depth].astype(float)
    for (out,) in execute(walking, (2,), [a, b, c, m, n, k, tiles], constants, outputs=[2],
                          num_warps=4, num_ctas=num_ctas):  # fmt: skip
        np.testing.assert_array_equal(out, want)


@ptxforge.jit
def two_products(a, b, e, c, d, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a @ b and d = a @ e: the second ring takes the place of the first."""
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    out = i[:, None] * N + j[None, :]
    first = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + (start + k)[None, :])
        first = tl.dot(x, tl.load(b + (start + k)[:, None] * N + j[None, :]), first)
    tl.store(c + out, first)
    second = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + i[:, None] * K + (start + k)[None, :])
        second = tl.dot(x, tl.load(e + (start + k)[:, None] * N + j[None, :]), second)
    tl.store(d + out, second)


def test_one_ring_after_another(execute):
    """Others may still read what a ring has where the next one's copies go."""
    rng = np.random.default_rng(4)
    m, n, k = 64, 256, 128
    a, b, e = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n), (k, n)))
    arguments = [a, b, e, *(np.zeros((m, n), np.float32) for _ in range(2)), m, n, k]
    blocks = {"BM": 64, "BN": 256, "BK": 32}
    for one, other in execute(two_products, (1, 1), arguments, blocks, outputs=[3, 4], num_warps=4,
                              num_ctas=2):  # fmt: skip
        np.testing.assert_array_equal(one, a.astype(float) @ b.astype(float))
        np.testing.assert_array_equal(other, a.astype(float) @ e.astype(float))


# -- what is done ------------------------------------------------------------------------------------------


def compiled(block, num_ctas: int, kernel=product, **options) -> ptxforge.Artifact:
    inputs, output, precision = KINDS["f16"]
    element, sums = (dtypes.from_numpy(d).short for d in (inputs, output))
    signature = {"a": f"*{element}:16", "b": f"*{element}:16", "c": f"*{sums}:16", "M": "i32", "N": "i32:16",
                 "K": "i32:16", "stride_am": "i32:16", "stride_bk": "i32:16"}  # fmt: skip
    constants = {"stride_ak": 1, "stride_bn": 1, "PRECISION": precision, "MASKED": False}
    constants |= dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block))
    return ptxforge.compile(
        kernel, signature=signature, constants=constants, target="sm_90a", num_ctas=num_ctas, **options
    )


def test_the_next_tiles_shares_start_early():
    """Behind the last product of a tile; unless scratch is in the way, which all CTAs must have done with."""
    blocks = TILES | {"BN": 128, "WS": False}
    for flatten, barriers in ((True, 1), (False, 2)):
        artifact = compiled_walking(walking, blocks | {"FLATTEN": flatten}, num_ctas=2)
        assert not remarks(artifact, "not-flattened")
        assert artifact.ptx.count("barrier.cluster.arrive") == barriers
        assert "multicast to 2 CTAs" in remarks(artifact, "product")[0]


def remarks(artifact: ptxforge.Artifact, kind: str) -> list[str]:
    return [remark.message for remark in artifact.remarks if remark.kind == kind]


@pytest.mark.parametrize("block, num_ctas, left, right", [
    ((128, 256, 64), 1, 1, 1), ((128, 256, 64), 2, 2, 1), ((256, 128, 64), 2, 1, 2),
    ((256, 256, 64), 4, 2, 2), ((64, 256, 64), 4, 4, 1), ((256, 256, 64), 8, 2, 4),
])  # fmt: skip
def test_which_operand_goes_to_several_ctas(block, num_ctas, left, right, assemble):
    artifact = compiled(block, num_ctas, num_warps=4 if num_ctas > 1 else 8)
    assemble(artifact.ptx)
    (told,) = remarks(artifact, "product")
    for side, ctas in (("left", left), ("right", right)):
        fed = "by TMA" if ctas == 1 else f"by TMA, multicast to {ctas} CTAs"
        assert f"{side} {fed}, 3 stages" in told
    assert not remarks(artifact, "not-multicast")
    text = artifact.ptx
    assert ("multicast::" in text) == ("barrier.cluster" in text) == (max(left, right) > 1)
    if max(left, right) > 1:
        peers = left + right - 1
        assert text.count("mbarrier.arrive.shared::cluster") == peers
        assert len(re.findall(rf"mbarrier.init.*, {4 * peers};", text)) == 3
        loop = text[text.index("$for_") :]
        assert loop.count("bar.sync") == 1, "that of the epilogue"


def test_each_cta_copies_a_share():
    """Half of the rows: the tensor map's box, the coordinate and the place in memory."""
    artifact = compiled((128, 256, 64), 2)
    boxes = {map.base: map.box for map in artifact.tensor_maps}
    assert boxes == {"a": (64, 64), "b": (64, 64)}
    assert compiled((128, 256, 64), 1).tensor_maps[0].box == (128, 64)
    copies = re.findall(r"cp\.async\.bulk\.tensor.*", artifact.ptx)
    assert sum("multicast::" in copy for copy in copies) == 3 and len(copies) == 9


@ptxforge.jit
def in_a_branch(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M: tl.constexpr,
                BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
                MASKED: tl.constexpr):  # fmt: skip
    i, j = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if M > 7:
        for start in range(0, K, BLOCK_K):
            x = tl.load(a + i[:, None] * stride_am + (start + k)[None, :])
            acc = tl.dot(x, tl.load(b + (start + k)[:, None] * stride_bk + j[None, :]), acc)
    tl.store(c + i[:, None] * N + j[None, :], acc)


@ptxforge.jit
def two_at_once(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M: tl.constexpr,
                BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
                MASKED: tl.constexpr):  # fmt: skip
    i, j = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        x = tl.load(a + i[:, None] * stride_am + (start + k)[None, :])
        acc = tl.dot(x, tl.load(b + (start + k)[:, None] * stride_bk + j[None, :]), acc)
        acc = tl.dot(x, tl.load(b + (start + k)[:, None] * stride_bk + (j + N)[None, :]), acc)
    tl.store(c + i[:, None] * N + j[None, :], acc)


@pytest.mark.parametrize("kernel, why", [
    (in_a_branch, "the loop stands in a branch"), (two_at_once, "the loop has several products"),
])  # fmt: skip
def test_why_each_copies_for_itself(kernel, why):
    artifact = compiled((128, 128, 32), 2, kernel)
    assert why in remarks(artifact, "not-multicast")[0]
    assert "multicast::" not in artifact.ptx


def test_shares_of_less_than_eight_rows():
    artifact = compiled((64, 256, 16), 4)
    assert not remarks(artifact, "not-multicast")  # 64 rows of a for four CTAs
    artifact = compiled((256, 64, 16), 4)
    assert "its 16 rows are too few for 4 CTAs" in remarks(artifact, "not-multicast")[0]


# -- what the emulator finds ------------------------------------------------------------------------------


class _Edited(EmulatorDevice):
    """Loads PTX text with a change in it."""

    def __init__(self, pattern: str, replacement: str, count: int):
        super().__init__(check="all")
        self.change = pattern, replacement, count

    def load_module(self, ptx: str):
        pattern, replacement, count = self.change
        text, made = re.subn(pattern, replacement, ptx)
        assert made == count, text
        return super().load_module(text)


def outcome(pattern: str, replacement: str, count: int, kind: type[_Edited] = _Edited, **point) -> str:
    """What is found when every match of ``pattern``, ``count`` in all, is replaced."""
    device = kind(pattern, replacement, count)
    arguments, expected, grid, constants, options = problem(POINT | point)
    options.setdefault("num_ctas", point.get("num_ctas", 2))
    placed = [ptxforge.to_device(x, device) if isinstance(x, np.ndarray) else x for x in arguments]
    try:
        ptxforge.compile(product)[grid](*placed, **constants, **options)
    except PtxforgeError as fault:
        return str(fault)
    found = " ".join(f"{finding.kind}: {finding.message}" for finding in device.findings)
    return found or str(np.array_equal(placed[2].numpy(), expected))


ARRIVE = r"\t@%p\d+ mbarrier\.arrive\.shared::cluster\.b64 _, \[%r\d+\+\d+\];\n"
FULL = r"(mbarrier\.init\.shared::cta\.b64 \[.*\], )8;"
"""Arrivals of four warps in each of two CTAs."""
WAIT = r"(bra\.uni \$waited_\d+;\n)\$wait_\d+:\n(?:\t\.loc.*\n)?\tmbarrier\.try_wait.*\n.*bra \$wait_\d+;\n"
MEETING = r"\tbarrier\.cluster\.(arrive\.release|wait\.acquire)\.aligned;\n"


def test_an_arrival_that_nobody_misses_is_found():
    """The warps of the other CTA say nothing, and the mbarrier does not wait for them: its tile may be
    overwritten while it multiplies."""

    class Alone(_Edited):
        def load_module(self, ptx: str):
            head, *ends = re.split(f"({ARRIVE})", ptx)
            assert len(ends) == 4
            return super().load_module(head + ends[0] + ends[1] + ends[3])

    text = outcome(FULL, r"\g<1>4;", 3, Alone)
    assert "race: shared write of what is read by a wgmma" in text


def test_warpgroups_of_a_cta_wait_for_each_other():
    point = {"num_ctas": 1, "num_warps": 8, "block": (128, 128, 64)}
    assert outcome("nothing", "", 0, **point) == "True"
    found = outcome(r"(?s)(\$for_\d+:.*?)\tbar\.sync 0;\n", r"\1", 1, **point)
    assert "race: shared write of what is read by a wgmma" in found


@pytest.mark.parametrize("pattern, replacement, count, finding", [
    ("nothing", "", 0, "True"),
    # Nobody tells the other CTA that a tile was read: it waits for ever.
    (rf"({ARRIVE})(?:.*\n)?{ARRIVE}", r"\1", 1, "deadlock"),
    # It does not even wait for that, and ends before the last arrival.
    (WAIT, r"\1", 1, "race"),
    (WAIT, r"\1", 1, "cluster"),
    # The copy goes to the first CTA alone, or to some beyond the last.
    (r"(shl\.b32 %r\d+), 3, ", r"\1, 1, ", 1, "deadlock"),
    (r"(shl\.b32 %r\d+), 3, ", r"\1, 6, ", 1, "names CTAs beyond the 2"),
    # The CTAs do not meet before the first copy.
    (MEETING, "", 2, "cluster"),
])  # fmt: skip
def test_what_is_missing_is_found(pattern, replacement, count, finding):
    assert finding in outcome(pattern, replacement, count)
