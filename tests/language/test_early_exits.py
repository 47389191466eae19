"""``break``, ``continue`` and ``return`` in loops on every executor, against Python itself."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import CompilationError


def in_python(kernel, x, out, n, limit):
    """The kernel's function on a list, with Python's own meaning."""
    values = list(out)

    class Language:
        constexpr = tl.constexpr

        @staticmethod
        def load(place):
            return int(x[place[1]]) if place[0] == "x" else values[place[1]]

        @staticmethod
        def store(place, value):
            values[place[1]] = int(value)

        range = range
        static_range = range

    class Pointer(tuple):
        def __add__(self, offset):
            return Pointer((self[0], self[1] + int(offset)))

    scope = dict(kernel.fn.__globals__, tl=Language)
    helpers = {k: v for k, v in scope.items() if isinstance(v, ptxforge.runtime.jit.JITFunction)}
    for name, helper in helpers.items():
        scope[name] = type(helper.fn)(helper.fn.__code__, scope)
    type(kernel.fn)(kernel.fn.__code__, scope)(Pointer(("x", 0)), Pointer(("out", 0)), n, limit)
    return values


@ptxforge.jit
def break_for(x, out, n, limit):
    total = 0
    for i in range(n):
        value = tl.load(x + i)
        if value > limit:
            break
        total += value
    tl.store(out, total)


@ptxforge.jit
def continue_for(x, out, n, limit):
    total = 0
    for i in range(n):
        value = tl.load(x + i)
        if value > limit:
            continue
        total += value
        if value == 2:
            total += 100
    tl.store(out, total)


@ptxforge.jit
def both_for(x, out, n, limit):
    total, seen = 0, 0
    for i in range(1, n, 2):
        seen += 1
        value = tl.load(x + i)
        if value < 3:
            if value == 1:
                seen += 10
                continue
            total += 1
        elif value > limit:
            seen += 1000
            break
        total += value
    tl.store(out, total)
    tl.store(out + 1, seen)


@ptxforge.jit
def descending(x, out, n, limit):
    total = 0
    for i in range(n - 1, -1, -1):
        if tl.load(x + i) > limit:
            break
        total += i
    tl.store(out, total)


@ptxforge.jit
def return_for(x, out, n, limit):
    total = 0
    for i in range(n):
        value = tl.load(x + i)
        total += value
        if value > limit:
            tl.store(out, total)
            return
    tl.store(out + 1, total)


@ptxforge.jit
def find(x, n, limit):
    for i in range(n):
        if tl.load(x + i) > limit:
            return i
    return n + 100


@ptxforge.jit
def return_value(x, out, n, limit):
    tl.store(out, find(x, n, limit))
    tl.store(out + 1, find(x, n, limit + 2))


@ptxforge.jit
def find_pair(x, n, limit):
    for i in range(n):
        for j in range(i):
            total = tl.load(x + i) + tl.load(x + j)
            if total == limit:
                return i, j
            if total > 3 * limit:
                break
            if j > 4:
                continue
            if total < 0:
                return -1, j
        if i > 8:
            return i, -2
    return -3, -3


@ptxforge.jit
def nested(x, out, n, limit):
    i, j = find_pair(x, n, limit)
    tl.store(out, i)
    tl.store(out + 1, j)


@ptxforge.jit
def break_while(x, out, n, limit):
    i = 0
    total = 0
    while i < n:
        value = tl.load(x + i)
        i += 1
        if value > limit:
            break
        if value == 1:
            continue
        total += value
    tl.store(out, total)
    tl.store(out + 1, i)


@ptxforge.jit
def endless(x, out, n, limit):
    i = 0
    while True:
        if i >= n:
            break
        if tl.load(x + i) > limit:
            tl.store(out + 1, i)
            return
        i += 1
    tl.store(out, i)


@ptxforge.jit
def walrus(x, out, n, limit):
    i = 0
    while (value := tl.load(x + i)) <= limit:
        i += 1
        if i == n:
            break
        tl.store(out + 2, value)
    tl.store(out, i)


@ptxforge.jit
def unrolled(x, out, n, limit):
    total = 0
    last = 0
    for i in tl.static_range(6):
        value = tl.load(x + i)
        if value == 1:
            continue
        if value > limit:
            break
        total += value
        last = i
    tl.store(out, total)
    tl.store(out + 1, last)


@ptxforge.jit
def unrolled_return(x, out, n, limit):
    for i in tl.static_range(6):
        value = tl.load(x + i)
        if value == 1:
            continue
        tl.store(out + i, value)
        if value > limit:
            return
    tl.store(out + 7, n)


@ptxforge.jit
def static_break(x, out, n, limit):
    for i in tl.static_range(8):
        if i == 2:
            continue
        if i == 5:
            break
        tl.store(out + i, tl.load(x + i))


@ptxforge.jit
def unrolled_in_a_loop(x, out, n, limit):
    total = 0
    for i in range(n):
        for j in tl.static_range(3):
            value = tl.load(x + i) + j
            if value == limit:
                break
            if value > limit + 2:
                tl.store(out, total)
                return
            total += value
        if total > 100:
            break
    tl.store(out + 1, total)


@ptxforge.jit
def never_early(x, n, limit):
    """Conditions that are known while compiling leave none of these statements."""
    total = 0
    for i in range(n):
        for j in tl.static_range(3):
            if total >= 0:
                if j != j:
                    return total + 100
            if j == 2 and total > 1000:
                break
            total += tl.load(x + i) * j
    while total > 50:
        if 2 < 1:
            return limit
        total -= 7
    for j in tl.static_range(2):
        if j > 5:
            return 1.5
    return total


@ptxforge.jit
def unreached_returns(x, out, n, limit):
    tl.store(out, never_early(x, n, limit))


@ptxforge.jit
def checked(x, n, limit, CHECKED, STRICT):
    """Ways out that only some values of the constants leave."""
    total = 0
    for i in range(n):
        if CHECKED and tl.load(x + i) > limit:
            return total + 100
        for j in range(3):
            if CHECKED:
                if tl.load(x + i) == j + limit:
                    return -j
            if STRICT and total > 40:
                break
            if total == 7:
                continue
            total += tl.load(x + i) * j
        if STRICT:
            if total > 2 * limit:
                total += i
                break
    return total


@ptxforge.jit
def some_ways_out(x, out, n, limit):
    tl.store(out, checked(x, n, limit, True, True))
    tl.store(out + 1, checked(x, n, limit, False, True))
    tl.store(out + 2, checked(x, n, limit, True, False))
    tl.store(out + 3, checked(x, n, limit, False, False))


KERNELS = [
    break_for, continue_for, both_for, descending, return_for, return_value, nested, break_while, endless,
    walrus, unrolled, unrolled_return, static_break, unrolled_in_a_loop,
    unreached_returns, some_ways_out,
]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize(("n", "limit"), [(0, 3), (1, 3), (10, 3), (10, 6), (12, 99)])
def test_as_python(execute, kernel, n, limit):
    x = np.array([2, 1, 3, 1, 2, 5, 1, 7, 0, 4, 2, 1], np.int32)
    out = np.zeros(8, np.int32)
    expected = in_python(kernel, x, out, n, limit)
    for (found,) in execute(kernel, (1,), [x, out, n, limit], {}, outputs=[1]):
        assert found.tolist() == expected


CHECKS_ALL = tl.constexpr(False)


@ptxforge.jit
def summed(x, out, n, limit, CHECKED: tl.constexpr, STRICT: tl.constexpr):
    tl.store(out, checked(x, n, limit, CHECKED, STRICT))
    for i in range(n):
        if CHECKS_ALL and tl.load(x + i) < 0:
            return
        tl.store(out + i, i)


@pytest.mark.parametrize(
    ("checks", "kinds"),
    [((False, False), "for for"), ((False, True), "while while for"), ((True, False), "while while for")],
)
def test_ways_out_that_constants_close_leave_a_counted_loop(checks, kinds):
    signature = {"x": "*i32", "out": "*i32", "n": "i32", "limit": "i32"}
    text = summed.compile(signature, dict(zip(("CHECKED", "STRICT"), checks)), target="sm_90a").asm["tile"]
    assert " ".join(re.findall(r"\b(for|while)\b", text)) == kinds


@ptxforge.jit
def first_block_with(x, out, n, limit, BLOCK: tl.constexpr):
    """The sum of blocks up to the first that holds something above the limit: blocks are carried."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, n, BLOCK):
        block = tl.load(x + start + i, mask=start + i < n, other=0)
        if tl.max(block, 0) > limit:
            break
        if tl.min(block, 0) < 0:
            continue
        total += block
    tl.store(out + i, total)


@pytest.mark.parametrize("n", [0, 100, 512])
def test_blocks_are_carried(execute, n):
    x = np.random.default_rng(0).integers(0, 9, 512).astype(np.int32)
    x[70], x[300] = -1, 50
    expected = np.zeros(64, np.int32)
    for start in range(0, n, 64):
        block = np.pad(x[start : min(n, start + 64)], (0, max(0, start + 64 - n)))
        if block.max() > 20:
            break
        expected += block if block.min() >= 0 else 0
    arguments = [x, np.zeros(64, np.int32), n, 20]
    for (out,) in execute(first_block_with, (1,), arguments, {"BLOCK": 64}, outputs=[1]):
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def near_the_end(out, first, last, step):
    count = 0
    for _ in range(first, last, step):
        count += 1
        if count > 9:
            break
    tl.store(out, count)


@pytest.mark.parametrize(
    "bounds", [(2**31 - 7, 2**31 - 1, 4), (-(2**31), 2**31 - 1, 2**30), (5, 5, 3), (6, 5, 3)]
)
def test_counts_do_not_overflow(execute, bounds):
    for (out,) in execute(near_the_end, (1,), [np.zeros(1, np.int32), *bounds], {}, outputs=[0]):
        assert out[0] == len(range(*bounds))


@ptxforge.jit
def one_element(out, x):
    flag = tl.load(x + tl.arange(0, 1))
    if flag > 2:
        tl.store(out, 1)
    while flag < 5:
        flag += 1
        tl.store(out + 1, 7)
    tl.store(out + 2 + tl.arange(0, 1), 3 if flag[:, None] > 4 else 4)


@ptxforge.jit
def annotated(out, n):
    twice: tl.constexpr = n * 2
    four: tl.constexpr = 4
    tl.store(out + tl.arange(0, four), twice)


def test_a_runtime_value_may_be_annotated_as_a_constant(execute):
    for (out,) in execute(annotated, (1,), [np.zeros(4, np.int32), 5], {}, outputs=[0]):
        assert out.tolist() == [10] * 4


@ptxforge.jit
def returns_two_types(x, n):
    for i in range(n):
        if tl.load(x + i) > 3:
            return 1.5
        if tl.load(x + i) < 0:
            return tl.arange(0, 4)
    return 2.5


@ptxforge.jit
def uses_two_types(out, n):
    tl.store(out, returns_two_types(out, n))


@ptxforge.jit
def changes_type_on_one_way(out, n):
    total = 0
    for i in range(n):
        if i == 3:
            total = 1.5
            continue
        total += i
    tl.store(out, total)


@ptxforge.jit
def never_breaks(out, n):
    while True:
        if False:
            break
        tl.store(out, n)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (uses_two_types, "different types on different ways out of a loop: float32 and int32\\[4\\]"),
        (changes_type_on_one_way, "different types on different ways out of a loop: float32 and int32"),
        (never_breaks, "this loop never ends"),
    ],
)
def test_mistakes(kernel, message):
    with pytest.raises(CompilationError, match=message):
        kernel.compile({"out": "*i32", "n": "i32"}, {}, target="sm_90a")


def test_a_block_of_one_element_is_a_condition(execute):
    arguments = [np.zeros(3, np.int32), np.array([3], np.int32)]
    for (out,) in execute(one_element, (1,), arguments, {}, outputs=[0]):
        assert out.tolist() == [1, 7, 3]
