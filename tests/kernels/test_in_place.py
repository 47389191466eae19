"""Memory updated in place by programs whose threads hold copies of its elements, on every executor."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def count(x):
    tl.store(x, tl.load(x) + 1)


@ptxforge.jit
def double_and_spread(x, out, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """x is doubled after every row of out, which other threads write, got it as it was."""
    i = tl.arange(0, SIZE)
    row = tl.load(x + i)
    tl.store(x + i, row * 2)
    places = tl.arange(0, ROWS)[:, None] * SIZE + i[None, :]
    tl.store(out + places, row[None, :] + tl.zeros((ROWS, SIZE), tl.float32))


@ptxforge.jit
def turn(x, angles, heads, HALF: tl.constexpr, SIZE: tl.constexpr):
    """Pairs of elements, half a head apart, are turned where they lie; two heads or fewer at once."""
    at = tl.arange(0, SIZE)
    for start in range(0, heads * HALF, SIZE):
        pair = start + at
        first = x + pair // HALF * (2 * HALF) + pair % HALF
        cos, sin = tl.load(angles + pair % HALF), tl.load(angles + HALF + pair % HALF)
        low, high = tl.load(first, pair < heads * HALF), tl.load(first + HALF, pair < heads * HALF)
        tl.store(first, low * cos - high * sin, pair < heads * HALF)
        tl.store(first + HALF, high * cos + low * sin, pair < heads * HALF)


@pytest.mark.parametrize("size", [16, 64, 256])
def test_owners_alone_turn_pairs(execute, size):
    """A tile of fewer elements than there are threads: no thread waits for one that holds copies."""
    x = np.arange(5 * 64, dtype=np.float32).reshape(5, 2, 32)
    angles = np.stack([np.arange(32) % 3, np.arange(32) % 5]).astype(np.float32)
    cos, sin = angles
    expected = np.stack([x[:, 0] * cos - x[:, 1] * sin, x[:, 1] * cos + x[:, 0] * sin], 1)
    for (turned,) in execute(turn, (1,), [x, angles, 5], {"HALF": 32, "SIZE": size}, outputs=[0]):
        np.testing.assert_array_equal(turned, expected)
    signature = {"x": "*fp32", "angles": "*fp32", "heads": "i32"}
    made = ptxforge.compile(turn, signature=signature, constants={"HALF": 32, "SIZE": size}, target="sm_80")
    assert "bar.sync" not in made.ptx


@pytest.mark.parametrize("num_warps", [1, 4])
def test_a_scalar(execute, num_warps):
    for (x,) in execute(count, (1,), [np.array([41.0], np.float32)], {}, outputs=[0], num_warps=num_warps):
        assert x == 42


@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("size", [16, 64, 256])
def test_a_tile(execute, size, num_warps):
    x = np.arange(size, dtype=np.float32)
    arguments = [x, np.zeros((32, size), np.float32)]
    results = execute(
        double_and_spread, (1,), arguments, {"SIZE": size, "ROWS": 32}, outputs=[0, 1], num_warps=num_warps
    )
    for doubled, out in results:
        np.testing.assert_array_equal(doubled, 2 * x)
        np.testing.assert_array_equal(out, np.broadcast_to(x, (32, size)))


@ptxforge.jit
def layers(x, w, out, count, D: tl.constexpr, ORDERED: tl.constexpr):
    """``out = x @ w`` layer by layer; a layer's result may be the next one's x."""
    i, j, k = tl.arange(0, 64), tl.arange(0, D), tl.arange(0, 32)
    for layer in range(count):
        acc = tl.zeros((64, D), tl.float32)
        for start in range(0, D, 32):
            left = tl.load(x + (layer * 64 + i)[:, None] * D + (start + k)[None, :])
            acc = tl.dot(left, tl.load(w + (start + k)[:, None] * D + j[None, :]), acc)
        tl.store(out + (layer * 64 + i)[:, None] * D + j[None, :], acc.to(tl.float16))
        if ORDERED:
            tl.debug_barrier()


@pytest.mark.parametrize("depth", [64, 128])
def test_two_parameters_that_lead_to_one_tensor(depth):
    """What threads have stored before a barrier, they load behind it: TMA might not see it yet."""
    memory = np.zeros((4, 64, depth), np.float16)
    memory[0] = np.random.default_rng(depth).integers(-1, 2, (64, depth))
    w = np.roll(np.eye(depth, dtype=np.float16), 1, axis=0)
    kernel = ptxforge.compile(layers)
    kernel[(1,)](memory[:3], w, memory[1:], 3, D=depth, ORDERED=True)
    for layer in range(3):
        np.testing.assert_array_equal(memory[layer + 1], memory[layer] @ w)
    artifact = kernel.variants[-1].artifact
    assert not artifact.tensor_maps
    assert any("a barrier may say" in remark.message for remark in artifact.remarks)
    kernel[(1,)](memory[:2], w, np.zeros((2, 64, depth), np.float16), 2, D=depth, ORDERED=False)
    assert kernel.variants[-1].artifact.tensor_maps
