"""Products of matrices under control flow, where values of several layouts meet: loops that exchange what
they carry, branches that leave alone what others multiply. (Random ones: ``tests/fuzz/weave.py``.)"""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

TILES = 4


def tiles(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-1, 2, (TILES, 16, 16)).astype(np.float16)


def agree(execute, kernel, expected, arguments, constants=(), num_warps=4) -> None:
    """Every executor gives ``expected`` in an array behind the arguments."""
    expected = np.stack(expected).astype(np.float32)
    arguments = [*arguments, np.zeros_like(expected)]
    runs = execute(kernel, (1,), arguments, dict(constants), [len(arguments) - 1], num_warps=num_warps)
    for (out,) in runs:
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def exchange(a, b, n, out, DOT: tl.constexpr):
    """x and y change places in every step, and what is y then grows."""
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    x = tl.zeros((16, 16), tl.float32)
    y = tl.zeros((16, 16), tl.float32)
    k = 0
    while k < n:
        x, y = y, x
        if DOT:
            y = tl.dot(tl.load(a + k * 256 + at), tl.load(b + k * 256 + at), y)
        else:
            y += tl.load(a + k * 256 + at)
        k += 1
    tl.store(out + at, x)
    tl.store(out + 256 + at, y)


@pytest.mark.parametrize("dot", [False, True], ids=["sum", "dot"])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_a_while_loop_exchanges_what_it_carries(execute, n, dot):
    a, b = tiles(0), tiles(1)
    x = y = np.zeros((16, 16))
    for k in range(n):
        x, y = y, x + (a[k].astype(float) @ b[k] if dot else a[k])
    agree(execute, exchange, [x, y], [a, b, n], {"DOT": dot})


@ptxforge.jit
def signs(a, b, n, out):
    """A chain of products in a branch, then one whose warps lie otherwise, on the same accumulator."""
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    across = i[None, :] * 16 + i[:, None]
    x = tl.zeros((16, 16), tl.float32)
    y = tl.zeros((16, 16), tl.float32)
    k = 0
    while k < n:
        if k % 3 != 0:
            right = tl.load(b + k * 256 + at)
            sign = tl.where(tl.dot(tl.load(a + k * 256 + across), tl.trans(right)) > 0, 1.0, -1.0)
            y += tl.dot(sign.to(tl.float16), right)
            x += tl.where(i[None, :] <= i[:, None], y, 0.0)
        x = tl.dot(tl.load(a + k * 256 + across), tl.load(b + k * 256 + across), x)
        k += 1
    tl.store(out + at, x)
    tl.store(out + 256 + at, y)


@pytest.mark.parametrize("num_warps", [1, 2, 4])
def test_products_of_two_layouts_on_one_accumulator(execute, num_warps):
    a, b = tiles(2), tiles(3)
    x, y = np.zeros((16, 16)), np.zeros((16, 16))
    for k in range(TILES):
        left, right = a[k].T.astype(float), b[k].astype(float)
        if k % 3:
            y = y + np.where(left @ right.T > 0, 1, -1) @ right
            x = x + np.tril(y)
        x = x + left @ right.T
    agree(execute, signs, [x, y], [a, b, TILES], num_warps=num_warps)


@ptxforge.jit
def swapped_products(a, b, n, out):
    """Two accumulators of different layouts that a loop carries, exchanged and multiplied in branches."""
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    x = tl.zeros((16, 16), tl.float32)
    y = tl.zeros((16, 16), tl.float32)
    v = tl.zeros((16,), tl.float32)
    for k in range(n):
        left = tl.load(a + k * 256 + at, mask=i[None, :] < k + 9, other=0.0)
        right = tl.load(b + k * 256 + at)
        x += left * 2.0
        v += tl.sum(right, 1)
        if k % 2 == 0:
            y += v[:, None]
            x = tl.dot(left, right, x)
        else:
            x, y = y, x
            sign = tl.where(tl.dot(tl.trans(left), tl.trans(right)) > 0, 1.0, -1.0)
            x += tl.dot(sign.to(tl.float16), right)
    tl.store(out + at, x)
    tl.store(out + 256 + at, y)


@pytest.mark.parametrize("num_warps", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_branches_exchange_accumulators(execute, n, num_warps):
    a, b = tiles(4), tiles(5)
    x, y, v = np.zeros((16, 16)), np.zeros((16, 16)), np.zeros(16)
    for k in range(n):
        left, right = np.where(np.arange(16) < k + 9, a[k], 0).astype(float), b[k].astype(float)
        x, v = x + left * 2, v + right.sum(1)
        if k % 2 == 0:
            x, y = x + left @ right, y + v[:, None]
        else:
            x, y = y + np.where(left.T @ right.T > 0, 1, -1) @ right, x
    agree(execute, swapped_products, [x, y], [a, b, n], num_warps=num_warps)


@ptxforge.jit
def read_before_the_branch(a, b, n, odd, out):
    """Operands in shared memory are read while the branch that multiplies them is not taken."""
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    x = tl.zeros((16, 16), tl.float32)
    y = tl.zeros((16, 16), tl.float32)
    v = tl.zeros((16,), tl.float32)
    k = 0
    while k < n:
        left = tl.load(a + k * 256 + at, mask=i[None, :] < k + 9, other=0.0)
        right = tl.load(b + k * 256 + at)
        x += left * 1.0
        v += tl.sum(right, 1)
        if odd == 0:
            y += v[:, None]
        else:
            x, y = y, x
            sign = tl.where(tl.dot(tl.trans(tl.load(a + k * 256 + at)), tl.trans(right)) > 0, 1.0, -1.0)
            x += tl.dot(sign.to(tl.float16), right)
        k += 1
    tl.store(out + at, x)
    tl.store(out + 256 + at, y)


@pytest.mark.parametrize("odd", [0, 2])
@pytest.mark.parametrize("num_warps", [2, 4])
def test_reads_end_before_the_next_tile_is_written(execute, num_warps, odd):
    a, b = tiles(6), tiles(7)
    x, y, v = np.zeros((16, 16)), np.zeros((16, 16)), np.zeros(16)
    for k in range(TILES):
        left, right = np.where(np.arange(16) < k + 9, a[k], 0).astype(float), b[k].astype(float)
        x, v = x + left, v + right.sum(1)
        if odd == 0:
            y = y + v[:, None]
        else:
            x, y = y + np.where(a[k].T.astype(float) @ right.T > 0, 1, -1) @ right, x
    agree(execute, read_before_the_branch, [x, y], [a, b, TILES, odd], num_warps=num_warps)


@ptxforge.jit
def rounds(b, n, m, out):
    """A pipelined loop in a flattened one whose body keeps its constants."""
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    v = tl.zeros((16,), tl.float32)
    for _ in tl.range(0, m, flatten=True, disable_licm=True):
        for k in tl.range(0, n, num_stages=3):
            v += tl.sum(tl.load(b + k * 256 + at, mask=(i[:, None] + k) % 3 != 0, other=0.0), 1)
    tl.store(out + i, v)


@pytest.mark.parametrize("m", [0, 1, 3])
def test_constants_within_a_flattened_loop(execute, m):
    b = tiles(8)
    kept = (np.arange(16) + np.arange(TILES)[:, None]) % 3 != 0
    agree(execute, rounds, [m * (b.sum(2) * kept).sum(0)], [b, TILES, m])


@ptxforge.jit
def one_value_twice(x, n, out):
    """What one side computes once is two results, which the other side computes apart."""
    i = tl.arange(0, 128)
    v = tl.load(x + i)
    if n > 2:
        a = v * 3
        b = a
    else:
        a = v + 1
        b = v + 2
    tl.store(out + i, a)
    tl.store(out + 128 + i, b)


@pytest.mark.parametrize("n", [0, 3])
def test_one_value_of_a_branch_is_two_results(execute, n):
    x = np.arange(128, dtype=np.float32)
    agree(execute, one_value_twice, [x * 3, x * 3] if n > 2 else [x + 1, x + 2], [x, n])
