"""Left operands of ``wgmma`` that are the same in all iterations of a loop of several products: on every
executor, and where they come from, by the PTX. In registers they would be lost: the assembler gives those to
the left operand of the loop's last product, as its machine code for the second iteration shows."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2 * np.abs(wanted).max())


def left_operands(kernel) -> list[str]:
    """Where each product in the text reads its left operand: ``memory`` or ``registers``."""
    found = re.findall(r"wgmma\.mma_async.*?\}, (\{|%)", kernel.variants[-1].artifact.ptx)
    return ["registers" if first == "{" else "memory" for first in found]


@ptxforge.jit
def scaled_rows(q, k, v, d_out, d_q, length, scale, BLOCK: tl.constexpr, STEP: tl.constexpr, D: tl.constexpr):
    """A gradient of rows that are scaled before the loop."""
    i, n, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, STEP), tl.arange(0, D)
    at = i[:, None] * D + d[None, :]
    rows = (tl.load(q + at).to(tl.float32) * scale).to(tl.float16)
    d_rows = (tl.load(d_out + at).to(tl.float32) * scale).to(tl.float16)
    acc = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, length, STEP):
        step = (start + n)[:, None] * D + d[None, :]
        keys = tl.load(k + step)
        p = tl.exp2(tl.dot(rows, tl.trans(keys)) - 4.0)
        d_s = p * tl.dot(d_rows, tl.trans(tl.load(v + step)))
        acc = tl.dot(d_s.to(tl.float16), keys, acc)
    tl.store(d_q + at, acc)


@pytest.mark.parametrize("depth", [32, 64])
def test_gradients_of_scaled_rows(execute, depth):
    rng = np.random.default_rng(depth)
    q, k, v, d_out = (rng.standard_normal((192, depth)).astype(np.float16) for _ in range(4))
    arguments = [q, k, v, d_out, np.full((192, depth), np.nan, np.float32), 192, 0.5]
    rows, d_rows = (x.astype(np.float64) * 0.5 for x in (q, d_out))
    d_q = (np.exp2(rows @ k.T - 4) * (d_rows @ v.T)) @ k
    blocks = {"BLOCK": 64, "STEP": 64, "D": depth}
    for (found,) in execute(scaled_rows, (3,), arguments, blocks, outputs=[4], num_warps=4, num_stages=3):
        close(found, d_q)
    found = left_operands(scaled_rows)
    assert found[: depth // 8] == ["memory"] * (depth // 8) and set(found[depth // 8 :]) == {"registers"}


@ptxforge.jit
def attend(q, k, v, out, length, scale, turns, FORM: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Sums of ``e^(scale q k - 4) v`` for a block of rows, scaled before, or in, a loop of one FORM."""
    i, n, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, STEP), tl.arange(0, STEP)
    at = i[:, None] * STEP + d[None, :]
    rows = (tl.load(q + at).to(tl.float32) * scale).to(tl.float16)
    acc = tl.zeros((BLOCK, STEP), tl.float32)
    if FORM == "carried":  # by the outer loop, changed behind the inner one
        for _ in range(turns):
            for start in range(0, length, STEP):
                step = (start + n)[:, None] * STEP + d[None, :]
                p = tl.math.exp(tl.dot(rows, tl.trans(tl.load(k + step))) - 4.0)
                acc = tl.dot(p.to(tl.float16), tl.load(v + step), acc)
            rows = (rows * 0.5).to(tl.float16)
    elif FORM == "while":
        start = 0
        while start < length * turns:
            step = (start % length + n)[:, None] * STEP + d[None, :]
            p = tl.math.exp(tl.dot(rows, tl.trans(tl.load(k + step))) - 4.0)
            acc = tl.dot(p.to(tl.float16), tl.load(v + step), acc)
            start += STEP
    elif FORM == "branch":
        for start in range(0, length, STEP):
            if turns > start // STEP:
                step = (start + n)[:, None] * STEP + d[None, :]
                p = tl.math.exp(tl.dot(rows, tl.trans(tl.load(k + step))) - 4.0)
                acc = tl.dot(p.to(tl.float16), tl.load(v + step), acc)
    elif FORM == "inside":  # the assembler moves the scaling in front of the loop
        raw = tl.load(q + at)
        for start in tl.range(0, length, STEP, disable_licm=True):
            step = (start + n)[:, None] * STEP + d[None, :]
            scaled = (raw.to(tl.float32) * scale).to(tl.float16)
            p = tl.math.exp(tl.dot(scaled, tl.trans(tl.load(k + step))) - 4.0)
            acc = tl.dot(p.to(tl.float16), tl.load(v + step), acc)
    else:
        for start in range(0, length, STEP):
            step = (start + n)[:, None] * STEP + d[None, :]
            p = tl.math.exp(tl.dot(rows, tl.trans(tl.load(k + step))) - 4.0)
            acc = tl.dot(p.to(tl.float16), tl.load(v + step), acc)
    tl.store(out + at, acc)


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("step", [16, 64])
@pytest.mark.parametrize("form", ["before", "inside", "branch", "while", "carried"])
def test_scaled_queries(execute, form, step, stages):
    rng = np.random.default_rng(step)
    q, k, v = (rng.standard_normal((rows, step)).astype(np.float16) for rows in (128, 4 * step, 4 * step))
    arguments = [q, k, v, np.full((128, step), np.nan, np.float32), 4 * step, 0.25, 2]
    rows = (q * np.float32(0.25)).astype(np.float64)
    if form == "branch":
        k, v = k[: 2 * step], v[: 2 * step]
    wanted = np.exp(rows @ k.T - 4) @ v
    wanted = wanted + {"carried": np.exp(rows * 0.5 @ k.T - 4) @ v, "while": wanted}.get(form, 0)
    blocks = {"FORM": form, "BLOCK": 64, "STEP": step}
    for (found,) in execute(attend, (2,), arguments, blocks, outputs=[3], num_warps=4, num_stages=stages):
        close(found, wanted)
    found = left_operands(attend)
    assert found and found.count("memory") == found.count("registers")


@ptxforge.jit
def exponentials(q, k, out, length, scale, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """Sums over columns of ``e^(scale q k - 4)``."""
    i, n, d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, STEP), tl.arange(0, STEP)
    rows = (tl.load(q + i[:, None] * STEP + d[None, :]).to(tl.float32) * scale).to(tl.float16)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, STEP):
        keys = tl.load(k + (start + n)[:, None] * STEP + d[None, :])
        total += tl.sum(tl.math.exp(tl.dot(rows, tl.trans(keys)) - 4.0), 1)
    tl.store(out + i, total)


def test_the_only_product_of_a_loop_keeps_its_left_operand_in_registers(execute):
    rng = np.random.default_rng(5)
    q, k = (rng.standard_normal((rows, 64)).astype(np.float16) for rows in (64, 256))
    arguments = [q, k, np.full(64, np.nan, np.float32), 256, 0.25]
    wanted = np.exp((q * np.float32(0.25)).astype(np.float64) @ k.T - 4).sum(1)
    blocks = {"BLOCK": 64, "STEP": 64}
    for (found,) in execute(exponentials, (1,), arguments, blocks, outputs=[2], num_warps=4):
        close(found, wanted)
    assert set(left_operands(exponentials)) == {"registers"}
