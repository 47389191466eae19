"""Functions of scalars, with control flow, on blocks."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import CompilationError


@ptxforge.jit
def order(a, b):
    if a < b:
        return -1
    elif a == b:
        return 0
    else:
        return 1


@ptxforge.jit
def collatz_step(n):
    for _ in tl.static_range(3):
        if n % 2 == 0:
            n = n // 2
        elif n > 1:
            n = 3 * n + 1
        big = n if n > 10 else order(n, 5)
        n += big - big
    return n, order(n, 4) * 2


@ptxforge.jit
def quotients(a0, a1, b0, b1):
    return a0 // b0, a1 // b1, a0 % b0, a1 % b1


@ptxforge.jit
def largest_first(a, b, c, d):
    if a < b:
        a, b = b, a
    if c < d:
        c, d = d, c
    return a, b, c, d


@ptxforge.jit
def kernel(x, y, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a, b = tl.load(x + at), tl.load(y + tl.arange(0, N))
    tl.store(out + at, tl.map_elementwise(order, a, b[None, :]))
    n, sign = tl.map_elementwise(collatz_step, a)
    tl.store(out + M * N + at, n)
    tl.store(out + 2 * M * N + at, sign)
    quotient, rest = tl.map_elementwise(quotients, a, b[None, :], pack=2)
    tl.store(out + 3 * M * N + at, quotient)
    tl.store(out + 4 * M * N + at, rest)
    tl.store(out + 5 * M * N + at, tl.map_elementwise(largest_first, a, pack=4))
    tl.store(out + 6 * M * N, tl.map_elementwise(order, 3, tl.load(x)))


def in_numpy(x, y):
    def step(n):
        for _ in range(3):
            n = n // 2 if n % 2 == 0 else 3 * n + 1 if n > 1 else n
        return n

    n = np.vectorize(step)(x)
    groups = x.reshape(-1, 2, 2)
    pairs = np.sort(groups, axis=2)[:, :, ::-1]
    parts = [np.sign(x - y), n, 2 * np.sign(n - 4), x // y, x % y, pairs.reshape(x.shape)]
    return np.concatenate([*(part.ravel() for part in parts), [np.sign(3 - x[0, 0])]])


@pytest.mark.parametrize(("m", "n"), [(4, 8), (1, 64), (32, 16)])
def test_against_numpy(execute, m, n):
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 40, (m, n)).astype(np.int32), rng.integers(1, 9, n).astype(np.int32)
    expected = in_numpy(x, y)
    arguments = [x, y, np.zeros(6 * m * n + 1, np.int32)]
    for (out,) in execute(kernel, (1,), arguments, {"M": m, "N": n}, outputs=[2]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def collatz(n):
    """Loops, a branch in one; who does not take part would never end."""
    steps = 0
    if n > 0:
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
    return steps


@ptxforge.jit
def triangle(n):
    """Bounds that elements decide, one loop in another, and a variable after its loop."""
    total = 0
    for row in range(n):
        for column in range(row, -1, -1):
            total += column
        total += 100 * row
    return total * 10 + row


@ptxforge.jit
def first_divisor(n):
    """Ways out of loops: of one with a common end, and of one with none."""
    for d in range(2, 40):
        if n % d == 0:
            return d
    while True:
        n += 1
        if n % 3 == 0:
            continue
        if n % 5 == 0:
            break
    return -n


@ptxforge.jit
def power(n):
    """A common number of steps, a condition that is a number, and a loop under a branch."""
    result = 1
    for _ in range(3):
        result *= n
    i = 0
    while i < 2:
        result += 1
        i += 1
    if n > 10:
        k = 0
        while k < 3:
            result += k
            k += 1
        for j in range(2, n, 5):
            result -= j
    return result


@ptxforge.jit
def both(a, b):
    """Two elements at once (pack=2), in one loop."""
    while a < 50:
        a += b if b > 0 else 7
    return a, b


def python_of(function):
    """The function as Python runs it."""
    return function.fn


@ptxforge.jit
def loops(x, out, N: tl.constexpr, M: tl.constexpr):
    at = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    a = tl.load(x + at)
    tl.store(out + at, tl.map_elementwise(collatz, a))
    tl.store(out + N * M + at, tl.map_elementwise(triangle, a))
    tl.store(out + 2 * N * M + at, tl.map_elementwise(first_divisor, a))
    tl.store(out + 3 * N * M + at, tl.map_elementwise(power, a))
    tl.store(out + 4 * N * M + at, tl.map_elementwise(both, a, pack=2))


@pytest.mark.parametrize("shape", [(4, 8), (1, 2), (16, 32)])
def test_loops_of_elements(execute, shape):
    x = np.random.default_rng(1).integers(-3, 40, shape).astype(np.int32)
    x.flat[:2] = 27, 1

    def rows(n):  # in Python a loop that does not run leaves its variable without a value
        return python_of(triangle)(n) if n > 0 else -1

    functions = python_of(collatz), rows, python_of(first_divisor), python_of(power)
    expected = [np.vectorize(function)(x) for function in functions]
    pairs = x.reshape(-1, 2)
    expected.append(np.array([python_of(both)(int(a), int(b)) for a, b in pairs]))
    expected = np.concatenate([part.ravel() for part in expected])
    arguments = [x, np.zeros(5 * x.size, np.int32)]
    constants = {"N": shape[0], "M": shape[1]}
    for (out,) in execute(loops, (1,), arguments, constants, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def never_ends(a):
    while True:
        a += 1
    return a


@ptxforge.jit
def loads(a):
    if a > 3:
        a = tl.load(a.to(tl.int64).to(tl.pointer_type(tl.int32), bitcast=True))
    return a


@ptxforge.jit
def plain(a):
    return a


@ptxforge.jit
def apply(x, F: tl.constexpr, PACK: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(x + i, tl.map_elementwise(F, tl.load(x + i), pack=PACK))


@pytest.mark.parametrize(
    ("function", "pack", "message"),
    [
        (never_ends, 1, "this loop never ends"),
        (loads, 1, "'load' cannot stand under a condition that elements decide for themselves"),
        (plain, 3, "argument 'pack' of map_elementwise\\(\\): must be a power of two of at most 16, is 3"),
        (7, 1, "argument 'scalar_fn' of map_elementwise\\(\\): must be a @ptxforge.jit function"),
    ],
)
def test_mistakes(function, pack, message):
    with pytest.raises(CompilationError, match=message):
        apply.compile({"x": "*i32"}, {"F": function, "PACK": pack}, target="sm_90a")
