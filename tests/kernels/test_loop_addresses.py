"""What the pipelined loop of a matrix product computes beside its products: one offset for all buffers,
pointers that walk. And how its results leave."""

from __future__ import annotations

import re

import pytest

from benchmarks.dialects import load
from ptxforge.compiler import compile_function

kernels = load("ptxforge")


@pytest.fixture(scope="module", params=["NN", "NT"])
def ptx(request) -> str:
    """f16, 128x256 tiles, 64 along k, 4 stages, 8 warps: 12 copies of 16 bytes an iteration."""
    signature = {n: "*fp16:16" for n in "abc"} | {
        n: "i32:16" for n in ("M", "N", "K", "stride_am", "stride_cm")
    }
    inner, outer = ("stride_bn", "stride_bk") if request.param == "NN" else ("stride_bk", "stride_bn")
    constants = {"stride_ak": 1, "stride_cn": 1, inner: 1, "BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64,
                 "GROUP_M": 8, "PRECISION": "tf32"}  # fmt: skip
    return compile_function(
        kernels.matmul, signature | {outer: "i32:16"}, constants, "sm_90", num_warps=8, num_stages=4
    ).ptx


def loop_of(ptx: str) -> list[str]:
    (label,) = re.findall(r"bra\.uni (\$for_\d+);", ptx)
    body = ptx.split(f"{label}:")[1].split("$for_end")[0]
    return [line.strip() for line in body.splitlines() if line.strip() and ".loc" not in line]


def test_the_iteration_is_one_group_of_copies(ptx):
    loop = loop_of(ptx)
    assert sum("cp.async.cg" in line for line in loop) == 12
    assert sum("cp.async.commit_group" in line for line in loop) == 1
    assert "cp.async.wait_group 2;" in loop


def test_each_copy_takes_at_most_one_sum(ptx):
    """Rows that lanes do not share have pointers that walk; rows that a warp shares are added to one that
    does. What the columns add is in the pointers, and they advance in place."""
    loop = loop_of(ptx)
    sums = [line for line in loop if line.startswith(("mad.wide", "add.s64"))]
    advances = [
        line
        for line in sums
        if re.match(r"(mad\.wide\.s32 (%q\d+), %r\d+, 2, \2|add\.s64 (%q\d+), \3, \d+);", line)
    ]
    copied_from = {re.search(r"\], \[(%q\d+)", line).group(1) for line in loop if "cp.async.cg" in line}
    assert len(copied_from) == 12 and len(sums) <= 12 + 1
    assert {line.split()[1].rstrip(",") for line in sums} >= copied_from
    assert len(advances) >= 4
    assert not any(line.startswith("mov.b64") for line in loop)


def test_shared_addresses_are_sums(ptx):
    """The number of the buffer is a number of bytes: nothing is multiplied by the size of a buffer."""
    for line in loop_of(ptx):
        if line.startswith(("mul", "mad.lo", "shl")):
            assert re.search(r", 6;$", line), f"{line} is not the start of the next tile along k"


def test_stores_begin_when_the_first_part_of_the_results_is_exchanged(ptx):
    """Where warps have whole lines of the result (NN), they do not wait for each other."""
    tail = ptx.split("$for_end")[-1]
    events = re.findall(r"bar\.sync|bar\.warp\.sync|st\.shared|ld\.shared|st\.global", tail)
    order = [event for i, event in enumerate(events) if i == 0 or events[i - 1] != event]
    meet = "bar.warp.sync" if "ldmatrix.sync.aligned.m8n8.x4.trans" in ptx else "bar.sync"
    part = ["st.shared", meet, "ld.shared", "st.global"]
    assert order == ["bar.sync", *part, *part], "no barrier between the parts: each has memory of its own"


def test_the_assembler_need_not_save_registers_for_more_blocks(ptx):
    assert ".minnctapersm 1" in ptx
