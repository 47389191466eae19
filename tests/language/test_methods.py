"""Functions of the language as methods of what they act on, and their arguments by position."""

from __future__ import annotations

import numpy as np

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def atomics(words, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    pointers = words + i
    (out + i).store(pointers.atomic_add(1, i < n))
    pointers.atomic_max(2, mask=i < n)
    pointers.atomic_min(100, i < n, sem="relaxed")
    pointers.atomic_or(8, scope="cta")
    pointers.atomic_xor(1)
    pointers.atomic_and(0xF)
    (out + N + i).store(pointers.atomic_xchg(i), i < n)
    (out + 2 * N + i).store(pointers.atomic_cas(i, i + 1))
    (out + 3 * N + i).store(i.cdiv(3))


def test_methods_of_pointers(execute):
    words, out = np.zeros(16, np.int32), np.full((4, 16), -1, np.int32)
    i = np.arange(16)
    inside = i < 12
    before = (np.where(inside, 2, 0) | 8) ^ 1
    expected = [np.zeros(16), np.where(inside, before, -1), i, -(-i // 3)]
    for found, left in execute(atomics, (1,), [words, out, 12], {"N": 16}, outputs=[1, 0]):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(left, i + 1)


@ptxforge.jit
def by_position(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    row = tl.load(x + i, i < N - 1, 7.0, (), "", ".ca", "evict_first", False)
    tl.store(out + i, row, i < N - 2, (), ".cs", "evict_last")
    source = tl.make_block_ptr(x, (N - 3,), (1,), (0,), (N,), (0,))
    target = tl.make_block_ptr(out + N, (N - 1,), (1,), (0,), (N,), (0,))
    tl.store(target, tl.load(source, None, None, (0,), "zero"), None, (0,))
    target.advance((N,)).store(tl.load(source, boundary_check=0), boundary_check=0)


def test_arguments_by_position(execute):
    x = np.arange(1, 17, dtype=np.float32)
    expected = np.full((2, 16), -1, np.float32)
    expected[0, :14], expected[1, :13], expected[1, 13:15] = x[:14], x[:13], 0
    out = np.full((2, 16), -1, np.float32)
    for (found,) in execute(by_position, (1,), [x, out], {"N": 16}, outputs=[1]):
        np.testing.assert_array_equal(found, expected)


@ptxforge.jit
def sorted_by_triton_s_name(x, out, N: tl.constexpr, K: tl.constexpr):
    i = tl.arange(0, N)
    values = tl.load(x + i)
    tl.store(out + i, tl.standard.sort_impl(values))
    tl.store(out + N + tl.arange(0, K), tl.standard.sort_impl(values, k=K, descending=True))


def test_sort_impl(execute):
    x = np.random.default_rng(0).integers(-99, 99, 32).astype(np.int32)
    arguments, constants = [x, np.zeros(36, np.int32)], {"N": 32, "K": 4}
    for (found,) in execute(sorted_by_triton_s_name, (1,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(found, [*np.sort(x), *np.sort(x)[:27:-1]])
