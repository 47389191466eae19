"""Block pointers on every executor, and as good as pointers that are written by hand."""

from __future__ import annotations

import collections
import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def copy(
    x, out, M, N, row, column,
    BM: tl.constexpr, BN: tl.constexpr, CHECK: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    source = tl.make_block_ptr(x, (M, N), (N, 1), (row, column), (BM, BN), (1, 0))
    target = tl.make_block_ptr(out, (BM, BN), (BN, 1), (0, 0), (BM, BN), (1, 0))
    tl.store(target, tl.load(source, boundary_check=CHECK, padding_option=PAD))


def _window(x, row, column, bm, bn, fill):
    """x[row : row + bm, column : column + bn] with ``fill`` outside."""
    out = np.full((bm, bn), fill, x.dtype)
    for i in range(bm):
        for j in range(bn):
            if 0 <= row + i < x.shape[0] and 0 <= column + j < x.shape[1]:
                out[i, j] = x[row + i, column + j]
    return out


@pytest.mark.parametrize("row, column", [(0, 0), (5, 16), (-3, 7), (16, -9), (30, 60), (-40, 0), (100, 100)])
@pytest.mark.parametrize("dtype, pad", [(np.float16, "zero"), (np.float32, "nan"), (np.int32, "")])
def test_what_lies_outside_is_padding(execute, row, column, dtype, pad):
    x = np.arange(20 * 40).reshape(20, 40).astype(dtype)
    expected = _window(x, row, column, 16, 32, np.nan if pad == "nan" else 0)
    constants = {"BM": 16, "BN": 32, "CHECK": (0, 1), "PAD": pad}
    arguments = [x, np.zeros((16, 32), dtype), 20, 40, row, column]
    for (out,) in execute(copy, (1,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("check", [(), (0,), (1,), (-1,), 0, (1, 0)], ids=str)
def test_only_the_dimensions_that_are_named_are_checked(execute, check):
    """What lies beyond a row's end is the next row."""
    x = np.arange(24 * 40, dtype=np.float32).reshape(24, 40)
    named = {d % 2 for d in (check if isinstance(check, tuple) else (check,))}
    i, j = 4 + np.arange(16)[:, None], 24 + np.arange(32)[None, :]
    flat = i * 40 + j
    inside = np.ones((16, 32), bool)
    if 0 in named:
        inside &= i < 20
    if 1 in named:
        inside &= j < 40
    expected = np.where(inside, x.ravel()[flat], 0)
    arguments = [x, np.zeros((16, 32), np.float32), 20, 40, 4, 24]
    constants = {"BM": 16, "BN": 32, "CHECK": check, "PAD": "zero"}
    for (out,) in execute(copy, (1,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def store_window(out, M, N, row, column, BM: tl.constexpr, BN: tl.constexpr):
    target = tl.make_block_ptr(out, [M, N], [1, M], [row, column], [BM, BN], order=[0, 1])
    tl.store(target, 7, boundary_check=[0, 1])


@pytest.mark.parametrize("row, column", [(0, 0), (-3, 7), (9, -9)])
def test_stores_write_inside_only(execute, row, column):
    """Of a tensor whose columns lie together."""
    expected = np.zeros((10, 20), np.int16)
    expected[max(row, 0) : max(row + 8, 0), max(column, 0) : max(column + 16, 0)] = 7
    arguments = [np.zeros((20, 10), np.int16), 10, 20, row, column]
    for (out,) in execute(store_window, (1,), arguments, {"BM": 8, "BN": 16}, outputs=[0]):
        np.testing.assert_array_equal(out.T, expected)


@ptxforge.jit
def add_one(pointers, BN: tl.constexpr):
    source, target = pointers
    tl.store(target, tl.load(source, boundary_check=(0, 1)) + 1, boundary_check=(0, 1))
    return source.advance((0, BN)), tl.advance(target, (0, BN))


@ptxforge.jit
def walk(x, y, out, M, N, which, BM: tl.constexpr, BN: tl.constexpr):
    """A pointer that a branch chooses, in a tuple that a loop carries and a function moves."""
    start = tl.program_id(0) * BM
    if which > 0:
        source = tl.make_block_ptr(x, (M, N), (N, 1), (start, 0), (BM, BN), (1, 0))
    else:
        source = tl.make_block_ptr(y, (M, N), (1, M), (start, 0), (BM, BN), (0, 1))
    target = tl.make_block_ptr(out, (M, N), (N, 1), (start, 0), (BM, BN), (1, 0))
    pair = (source, target)
    for _ in range(0, N, BN):
        pair = add_one(pair, BN)


@pytest.mark.parametrize("which", [0, 2])
def test_pointers_are_values(execute, which):
    x = np.arange(20 * 40, dtype=np.float32).reshape(20, 40)
    arguments = [x, np.asfortranarray(-x).T.copy(), np.zeros_like(x), 20, 40, which]
    for (out,) in execute(walk, (2,), arguments, {"BM": 16, "BN": 16}, outputs=[2]):
        np.testing.assert_array_equal(out, (x if which else -x) + 1)


@ptxforge.jit
def sum_while(x, out, N, B: tl.constexpr):
    """One dimension; offsets that are no constants."""
    tile = tl.make_block_ptr(x, (N,), (1,), (N * 0,), (B,), (0,))
    done = N * 0
    step = B
    total = tl.zeros((B,), x.type.element_ty)
    while done < N:
        total += tl.load(tile, boundary_check=(0,), padding_option="zero")
        tile = tl.advance(tile, (step,))
        done += step
    tl.store(out, tl.sum(total, 0))


def test_a_while_loop(execute):
    x = np.arange(100, dtype=np.int32)
    for (out,) in execute(sum_while, (1,), [x, np.zeros(1, np.int32), 100], {"B": 16}, outputs=[1]):
        assert out[0] == x.sum()


@ptxforge.jit
def batches(x, out, B, M, N, far, BM: tl.constexpr, BN: tl.constexpr):
    """Three dimensions, and an offset of 64 bits."""
    source = tl.make_block_ptr(x, (B, M, N), (M * N, N, 1), (far.to(tl.int64), 0, 0), (2, BM, BN), (2, 1, 0))
    tile = tl.load(source, boundary_check=(0, 1, 2))
    target = tl.make_block_ptr(out, (2, BM, BN), (BM * BN, BN, 1), (0, 0, 0), (2, BM, BN), (2, 1, 0))
    tl.store(target, tile.to(target.dtype.element_ty))


def test_three_dimensions(execute):
    x = np.arange(3 * 6 * 12, dtype=np.int8).reshape(3, 6, 12)
    expected = np.zeros((2, 8, 16), np.float32)
    expected[0, :6, :12] = x[2]
    arguments = [x, np.zeros((2, 8, 16), np.float32), 3, 6, 12, 2]
    for (out,) in execute(batches, (1,), arguments, {"BM": 8, "BN": 16}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def flags(x, out, N, B: tl.constexpr):
    tile = tl.make_block_ptr(x, (N,), (1,), (0,), (B,), (0,))
    target = tl.make_block_ptr(out, N, 1, 0, B, 0)
    tl.store(target, ~tl.load(tile, boundary_check=0), boundary_check=(0,))


def test_truth_values(execute):
    x = np.arange(20) % 3 == 0
    for (out,) in execute(flags, (1,), [x, np.zeros_like(x), 20], {"B": 32}, outputs=[1]):
        np.testing.assert_array_equal(out, ~x)


# -- as good as by hand ------------------------------------------------------------------------------------


@ptxforge.jit
def matmul(
    a, b, c, M, N, K, stride_a, stride_b, stride_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x = tl.make_block_ptr(a, (M, K), (stride_a, 1), (row, 0), (BM, BK), (1, 0))
    y = tl.make_block_ptr(b, (K, N), (stride_b, 1), (0, column), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        if MASK:
            acc = tl.dot(tl.load(x, boundary_check=(0, 1)), tl.load(y, boundary_check=(0, 1)), acc)
        else:
            acc = tl.dot(tl.load(x), tl.load(y), acc)
        x = tl.advance(x, (0, BK))
        y = tl.advance(y, (BK, 0))
    z = tl.make_block_ptr(c, (M, N), (stride_c, 1), (row, column), (BM, BN), (1, 0))
    tl.store(z, acc.to(c.dtype.element_ty), boundary_check=(0, 1))


@ptxforge.jit
def matmul_by_hand(
    a, b, c, M, N, K, stride_a, stride_b, stride_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    k = tl.arange(0, BK)
    x = a + i * stride_a + k[None, :]
    y = b + k[:, None] * stride_b + j
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, K, BK):
        if MASK:
            left = K - step
            p = tl.load(x, mask=(i < M) & (k[None, :] < left), other=0.0)
            q = tl.load(y, mask=(k[:, None] < left) & (j < N), other=0.0)
            acc = tl.dot(p, q, acc)
        else:
            acc = tl.dot(tl.load(x), tl.load(y), acc)
        x += BK
        y += BK * stride_b
    tl.store(c + i * stride_c + j, acc.to(c.dtype.element_ty), mask=(i < M) & (j < N))


@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 72, 48), (33, 40, 8)], ids=str)
def test_matmul(execute, shape):
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = rng.integers(-4, 5, (m, k)).astype(np.float16), rng.integers(-4, 5, (k, n)).astype(np.float16)
    arguments = [a, b, np.zeros((m, n), np.float32), m, n, k, k, n, n]
    constants = {"BM": 32, "BN": 64, "BK": 32, "MASK": True}
    for (out,) in execute(matmul, (-(-m // 32), -(-n // 64)), arguments, constants, outputs=[2]):
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


def _loop_of_products(ptx: str) -> list[str]:
    """The instructions of the shortest loop that multiplies matrices."""
    lines = [line.strip() for line in ptx.splitlines()]
    labels = {line[:-1]: number for number, line in enumerate(lines) if re.fullmatch(r"[$\w]+:", line)}
    loops = []
    for number, line in enumerate(lines):
        branch = re.search(r"\bbra(?:\.uni)? ([$\w]+);", line)
        if branch and labels[branch[1]] < number:
            body = lines[labels[branch[1]] + 1 : number]
            loops.append([text for text in body if text and not text.startswith((".loc", "//"))])
    return min([body for body in loops if "mma" in "".join(body)], key=len)


def _moving(lines: list[str]) -> dict[str, int]:
    """How often each instruction occurs that moves or multiplies tiles."""
    names = re.findall(r"^\s*(?:@!?%\w+ )?((?:cp\.async|mma|wgmma|ld|st)\.[\w.:]+)", "\n".join(lines), re.M)
    return collections.Counter(names)


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_product_is_as_good_as_by_hand(assemble, masked, target):
    """The same wide copies, tensor core instructions and stores, and a loop that is no longer."""
    signature = dict.fromkeys("abc", "*fp16:16")
    signature |= dict.fromkeys(("M", "N", "K", "stride_a", "stride_b", "stride_c"), "i32:16")
    constants = {"BM": 128, "BN": 128, "BK": 64, "MASK": masked}
    ours, by_hand = (
        kernel.compile(signature, constants, target=target).asm["ptx"] for kernel in (matmul, matmul_by_hand)
    )
    assemble(ours)
    assert len(_loop_of_products(ours)) <= len(_loop_of_products(by_hand))
    assert _moving(_loop_of_products(ours)) == _moving(_loop_of_products(by_hand))
    assert _moving(ours.splitlines()) == _moving(by_hand.splitlines())
    wide = "cp.async.bulk.tensor" if target == "sm_90a" else "cp.async.cg"
    assert any(name.startswith(wide) for name in _moving(_loop_of_products(ours)))
