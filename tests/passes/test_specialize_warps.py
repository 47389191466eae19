"""Which loops get a warp that copies for them, what becomes of them, and why others do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ptxforge
import ptxforge.language as tl
from tests.kernels.specialized import (
    BLOCKS,
    TILES,
    attention,
    compiled,
    partitions,
    product,
    reasons,
    walking,
)

GOLDEN = Path(__file__).parent / "golden" / "specialized.txt"


def test_text_of_a_small_product(golden):
    """What two groups of warps do, and what stands around it."""
    golden(GOLDEN, compiled(product, BLOCKS | {"WS": True}).asm["gpu"])


@ptxforge.jit
def by_table(
    a, b, c, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """out = a @ b: where the tiles of a begin is loaded (``table``), or they are read in a branch, by a
    ``while``, or beside a tile that TMA cannot copy (``mixed``)."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    first = tl.load(c).to(tl.int32) * 16 if KIND == "table" else 0
    if KIND == "table":
        tl.assume(first >= 0)
    acc = tl.zeros((BM, BN), tl.float32)
    if KIND != "branch" or M > 64:
        for start in tl.range(0, K, BK, warp_specialize=True):
            if KIND == "mixed":
                x = tl.load(a + (i * i)[:, None] * 16 + (start + k)[None, :])
            else:
                x = tl.load(a + i[:, None] * K + (first + start + k)[None, :])
            acc = tl.dot(x, tl.load(b + (start + k)[:, None] * N + j[None, :]), acc)
    tl.store(out + i[:, None] * N + j[None, :], acc.to(tl.float16))


@pytest.mark.parametrize(("kernel", "changes", "options", "reason"), [
    (product, {}, {"target": "sm_80"}, "TMA copies none of its tiles"),
    (product, {}, {"target": "sm_90a", "tensor_maps": False}, "TMA copies none of its tiles"),
    (product, {}, {"num_warps": 2}, "TMA copies none of its tiles"),
    (product, {}, {"num_stages": 1}, "TMA copies none of its tiles"),
    (product, {"BM": 128}, {"num_ctas": 2}, "the program is a cluster"),
    (product, {"BM": 256, "BN": 256}, {"num_warps": 16}, "beside 16 warps there are not enough registers"),
    (product, {"BM": 256, "BN": 128}, {"num_warps": 32}, "beside 32 warps there are not enough registers"),
    (product, {"BM": 128}, {"num_warps": 8, "maxnreg": 128}, "'maxnreg' says how many registers"),
    (walking, {"BM": 128, "BN": 256, "BK": 64, "FLATTEN": False}, {"num_warps": 8, "num_stages": 4},
     "have no room side by side"),
    (by_table, {"KIND": "table"}, {}, "where its copies begin depends on"),
    (by_table, {"KIND": "branch"}, {}, "inside of a loop or branch"),
    (by_table, {"KIND": "mixed"}, {}, "threads copy some of its tiles"),
])  # fmt: skip
def test_loops_that_stay_as_they_are(kernel, changes, options, reason):
    made = compiled(kernel, TILES | {"WS": True} | changes, **options)
    (found,) = reasons(made)
    assert reason in found and found.startswith("all warps load and compute")
    assert not partitions(made) and made.extra_warps == 0


def test_a_limit_of_registers_that_leaves_all_as_they_are():
    """One more warp beside four needs none of theirs."""
    made = compiled(product, BLOCKS | {"WS": True}, maxnreg=128)
    assert made.threads == 160 and ".maxnreg 128" in made.ptx


@pytest.mark.parametrize(("changes", "num_warps", "is_split"), [
    ({}, 8, True), ({"CAUSAL": True}, 8, True), ({"BN": 64}, 8, False), ({"D": 64}, 8, False),
    ({"BM": 64, "BN": 64}, 4, True), ({"BM": 64, "BN": 64, "D": 64}, 4, True),
    ({"BM": 256, "BN": 64, "D": 64}, 16, True), ({"BM": 256, "D": 64}, 16, False),
])  # fmt: skip
def test_attention_is_split_unasked(changes, num_warps, is_split):
    """Of four warps; of eight where its tiles leave no room for a second block; of sixteen whose products
    have room in the registers that they then have."""
    constants = {"BM": 128, "BN": 128, "D": 128, "CAUSAL": False, "WS": False} | changes
    made = compiled(attention, constants, num_warps=num_warps, num_stages=2)
    assert bool(partitions(made)) == is_split and not reasons(made)
    others = 1 if num_warps == 4 else 4
    assert made.threads == 32 * (num_warps + others * is_split)
    assert [r.message for r in made.remarks if r.kind == "specialized"] == is_split * [
        f"one {'of 4 more warps' if others > 1 else 'more warp'} copies the tiles, {num_warps} compute"
    ]


@pytest.mark.parametrize(("changes", "num_warps", "is_kept"), [
    ({}, 8, True), ({"WS": True, "BN": 64}, 8, True), ({"CAUSAL": True}, 8, False),
    ({"BN": 64}, 8, False), ({"BM": 64, "BN": 64}, 4, False), ({"BM": 256, "BN": 64, "D": 64}, 16, False),
])  # fmt: skip
def test_queries_that_stay_in_registers(changes, num_warps, is_kept):
    """Of eight warps beside others that copy, if one loop reads them: else they are read where they lie."""
    constants = {"BM": 128, "BN": 128, "D": 128, "CAUSAL": False, "WS": False} | changes
    made = compiled(attention, constants, num_warps=num_warps, num_stages=2)
    by_descriptors = re.findall(r"wgmma\.mma_async.*\}, %q\d+, %q\d+,", made.ptx)
    assert bool(by_descriptors) != is_kept
    assert ("ldmatrix" in made.ptx) == is_kept


@pytest.mark.parametrize("causal", [False, True])
def test_who_has_it_unasked_gets_what_others_ask_for(causal):
    constants = {"BM": 128, "BN": 128, "D": 128, "CAUSAL": causal}
    unasked, asked = (
        compiled(attention, constants | {"WS": ws}, num_warps=8, num_stages=2) for ws in (False, True)
    )
    assert unasked.ptx == asked.ptx


@pytest.mark.parametrize(("changes", "groups"), [
    ({}, 1), ({"CAUSAL": True}, 1), ({"CAUSAL": True, "BN": 64}, 2),
])  # fmt: skip
def test_one_pair_of_groups_does_what_reads_one_ring(changes, groups):
    """The masked loop reads on in it, unless it has more blocks than copies lead by. Where nobody else reads
    the queries, the consumers store them, and the first copies are under way by then."""
    constants = {"BM": 128, "BN": 128, "D": 128, "CAUSAL": False, "WS": True} | changes
    made = compiled(attention, constants, num_warps=8, num_stages=2)
    assert len(partitions(made)) == groups and not reasons(made)
    assert ("st.shared" in made.ptx[: made.ptx.index("bar.sync 0")]) == (groups > 1)
    assert "-1073741824" not in made.ptx, "no copy brings zeros for a product that does not exist"


def test_products_are_not_split_unasked():
    constants = {"BM": 128, "BN": 256, "BK": 64, "WS": False}
    assert not partitions(compiled(product, constants, num_warps=8, num_stages=4))


def test_in_attention_the_mbarriers_are_those_of_the_chain():
    """A ring for the tiles of each product, filled and released: no more of them than without."""
    constants = {"BM": 128, "BN": 64, "D": 64, "CAUSAL": False}
    plain, split = (compiled(attention, constants | {"WS": asked}, num_warps=8) for asked in (False, True))
    assert plain.ptx.count("mbarrier.init") == split.ptx.count("mbarrier.init")
    assert "for_copies" in plain.asm["gpu"] and "for_copies" not in split.asm["gpu"]
