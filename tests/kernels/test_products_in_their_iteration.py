"""``disallow_acc_multi_buffer``: no product by ``wgmma`` is under way from one iteration to the next.
Results on all executors that are present."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.compiler import compile_function
from ptxforge.ir import types as T
from ptxforge.ir.ops.control import For
from ptxforge.ir.parser import parse_function


@ptxforge.jit
def summed(
    a, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KIND: tl.constexpr, WS: tl.constexpr,
    ENDS: tl.constexpr,
):  # fmt: skip
    """out = a @ b. ``widened``: a is of bytes. ``chain``: out is the sum of relu(a @ b) @ b[:BN, :BN] of all
    steps; ``several``: that and a @ b."""
    i, j, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc, other = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    first = tl.load(b + j[:, None] * BN + j[None, :])
    for start in tl.range(0, K, BK, warp_specialize=WS, disallow_acc_multi_buffer=ENDS):
        x = tl.load(a + i[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * BN + j[None, :])
        if KIND == "widened":
            x = x.to(tl.float16)
        if KIND == "chain" or KIND == "several":
            acc = tl.dot(tl.maximum(tl.dot(x, y), 0.0).to(tl.float16), first, acc)
        if KIND != "chain":
            other = tl.dot(x, y, other)
    tl.store(out + i[:, None] * BN + j[None, :], (acc + other).to(tl.float16))


BLOCKS = {"BM": 64, "BN": 64, "BK": 64}


def operands(kind: str, m: int, k: int, n: int) -> tuple[list, np.ndarray]:
    """The arguments of ``summed``, and what it leaves in out."""
    rng = np.random.default_rng(k)
    a = rng.integers(-1, 2, (m, k)).astype(np.int8 if kind == "widened" else np.float16)
    b = rng.integers(-1, 2, (k, n)).astype(np.float16)
    left, right = a.astype(np.float32), b.astype(np.float32)
    steps = [left[:, at : at + 64] @ right[at : at + 64] for at in range(0, k, 64)]
    chained = sum(np.maximum(step, 0) for step in steps) @ right[:n]
    expected = {"chain": chained, "several": chained + sum(steps)}.get(kind, sum(steps))
    return [a, b, np.zeros((m, n), np.float16), k], expected


@pytest.mark.parametrize("num_stages", [1, 3])
@pytest.mark.parametrize("specialized", [False, True])
@pytest.mark.parametrize("kind", ["", "widened", "chain", "several"])
def test_results(execute, kind, specialized, num_stages):
    arguments, expected = operands(kind, 128, 256, 64)
    constants = BLOCKS | {"KIND": kind, "WS": specialized, "ENDS": True}
    runs = execute(summed, (2,), arguments, constants, outputs=[2], num_warps=4, num_stages=num_stages)
    for (out,) in runs:
        np.testing.assert_array_equal(out.astype(np.float32), expected)


def compiled(ends: bool, kind: str = "", blocks: dict = BLOCKS, **options):
    signature = {"a": "*i8:16" if kind == "widened" else "*fp16:16", "b": "*fp16:16", "out": "*fp16:16"}
    constants = blocks | {"KIND": kind, "WS": options.pop("specialized", False), "ENDS": ends}
    return compile_function(summed, signature | {"K": "i32:16"}, constants, "sm_90a", **options)


def waits(artifact) -> list[int]:
    """How many products each wait leaves under way, in order."""
    return [int(found) for found in re.findall(r"wgmma\.wait_group\.sync\.aligned (\d+);", artifact.ptx)]


def carries_products(artifact) -> bool:
    loops = parse_function(artifact.asm["gpu"]).walk(For)
    return any(isinstance(value.type, T.FlightType) for loop in loops for value in loop.carried)


@pytest.mark.parametrize("options", [
    {}, {"num_stages": 1}, {"tensor_maps": False}, {"specialized": True}, {"kind": "widened"},
    {"blocks": BLOCKS | {"BM": 128, "BN": 256}, "num_warps": 8},
], ids=str)  # fmt: skip
def test_a_product_ends_in_its_iteration(options, assemble):
    running, ended = (compiled(ends, **options) for ends in (False, True))
    assert carries_products(running) and not carries_products(ended)
    assert waits(ended) == [0]
    assemble(ended.ptx)


@pytest.mark.parametrize("options", [{}, {"num_stages": 1}, {"tensor_maps": False}], ids=str)
def test_of_several_products_all_end(options, assemble):
    """They may be under way together."""
    running, ended = (compiled(ends, "several", **options) for ends in (False, True))
    assert carries_products(running) and not carries_products(ended)
    assert waits(ended)[-1] == 0
    assemble(ended.ptx)


def test_tiles_are_not_dealt_out():
    """Two groups of warps take turns where products run on."""
    options = {"blocks": {"BM": 128, "BN": 128, "BK": 64}, "num_stages": 4}
    running, ended = (compiled(ends, **options) for ends in (False, True))
    assert any("in turns with them" in remark.message for remark in running.remarks)
    (why,) = [remark.message for remark in ended.remarks if remark.kind == "not-dealt-out"]
    assert "disallow_acc_multi_buffer" in why and not ended.extra_warps
