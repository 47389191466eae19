"""Integer division by constants, and remainders that mostly keep indices inside a matrix."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.codegen_ptx.lower.divisions import _multiplier
from ptxforge.ir import types as T
from ptxforge.ir.ops import arith, memory
from tests.codegen_ptx.elements import COUNT, INTEGERS, assert_same, values
from tests.codegen_ptx.harness import Kernel, blocked, pointer

DIVISIONS = (arith.DivSI, arith.DivUI, arith.RemSI, arith.RemUI)
DIVISORS = (
    1, 2, 3, 5, 6, 7, 10, 14, 25, 28, 64, 100, 127, 641, 1 << 14, 12345, 65535, 1 << 20, 1_000_000_007,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 6_700_417, (1 << 61) - 1, 1 << 62, (1 << 63) - 1,
)  # fmt: skip


def _divisors(bits: int) -> list[int]:
    """Those that fit, their negatives, zero and the smallest number."""
    fitting = [d for d in DIVISORS if d < 1 << (bits - 1)]
    return [*fitting, *(-d for d in fitting), 0, -1 << (bits - 1)]


def _quotients(kernel: Kernel, kind, x, divisors: list[int]) -> None:
    """Store x ∘ d for every divisor, one after the other."""
    out = kernel.pointers(1, (COUNT,), x.type.layout)
    for number, divisor in enumerate(divisors):
        y = kernel.splat(kernel.b.constant(divisor, x.type.element), (COUNT,), x.type.layout)
        offset = kernel.splat(kernel.b.constant(number * COUNT, T.I32), (COUNT,), x.type.layout)
        kernel.b.create(memory.Store, kernel.b.value(memory.AddPtr, out, offset), kernel.b.value(kind, x, y))


@pytest.mark.parametrize("element", INTEGERS, ids=str)
@pytest.mark.parametrize("kind", DIVISIONS, ids=lambda k: k.name)
def test_by_constants(kind, element):
    kernel = Kernel(pointer(element), pointer(element))
    divisors = _divisors(element.bits)
    _quotients(kernel, kind, kernel.load(0, (COUNT,), blocked(4)), divisors)
    data, out = values(element, 1), np.zeros((len(divisors), COUNT), element.numpy)
    for i, divisor in enumerate(d for d in divisors if d):
        at = min(abs(divisor) * (i + 1), int(np.iinfo(element.numpy).max))
        data[20 * i % COUNT :][:3] = [at, at - 1, -at]
    kernel.run(data, out, check="off")
    for divisor, found in zip(divisors, out):
        y = np.full(COUNT, divisor, element.numpy)
        assert_same(found, _meaning(kind, data, y))


@pytest.mark.parametrize("kind", DIVISIONS, ids=lambda k: k.name)
def test_of_natural_numbers(kind):
    """A mask says that the dividend is not negative: no rounding towards zero, no sign."""
    kernel = Kernel(pointer(T.I32), pointer(T.I32))
    divisors = _divisors(32)
    x = kernel.load(0, (COUNT,), blocked(4))
    mask = kernel.splat(kernel.b.constant((1 << 31) - 1, T.I32), (COUNT,), x.type.layout)
    _quotients(kernel, kind, kernel.b.value(arith.AndI, x, mask), divisors)
    data, out = values(T.I32, 2), np.zeros((len(divisors), COUNT), np.int32)
    kernel.run(data, out, check="off")
    for divisor, found in zip(divisors, out):
        assert_same(found, _meaning(kind, data & ((1 << 31) - 1), np.full(COUNT, divisor, np.int32)))


def _meaning(kind, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What the operation means."""
    return kind.evaluate(None, x, y)


def test_constants_need_no_division():
    kernel = Kernel(pointer(T.I32), pointer(T.I32))
    x = kernel.load(0, (COUNT,), blocked(4))
    _quotients(kernel, arith.DivSI, x, [d for d in _divisors(32) if abs(d) not in (0, 1 << 31)])
    assert "div." not in kernel.ptx() and "rem." not in kernel.ptx()


@pytest.mark.parametrize("width", [32, 64])
def test_multipliers(width):
    """m and s for numbers whose quotients are the hardest to tell apart: multiples and their neighbours."""
    rng = np.random.default_rng(width)
    divisors = [3, 5, 7, 641, *(int(d) for d in rng.integers(3, 1 << (width - 1), 200)), (1 << width - 1) - 1]
    for divisor in divisors:
        for precision in (width - 1, width):
            factor, shift = _multiplier(divisor, width, precision)
            last = ((1 << precision) - 1) // divisor * divisor
            for x in {0, divisor - 1, divisor, last - 1, last, (1 << precision) - 1}:
                assert x * factor >> (width + shift) == x // divisor
            assert factor < 1 << (width + 1)


@pytest.mark.parametrize("element", (T.I32, T.I64), ids=str)
@pytest.mark.parametrize("kind", (arith.RemSI, arith.RemUI), ids=lambda k: k.name)
def test_wrapped_indices(kind, element):
    """One comparison for each dividend; the divisions are rare code. Whatever the divisor is."""
    for divisor in (1 << 30, 1000, 1, -7, 0, int(np.iinfo(element.numpy).min)):
        kernel = Kernel(pointer(element), pointer(element), element)
        x = kernel.load(0, (COUNT,), blocked(4))
        y = kernel.splat(kernel.function.arguments[2], (COUNT,), x.type.layout)
        kernel.store(1, kernel.b.value(kind, x, y))
        for data in (np.arange(COUNT).astype(element.numpy), values(element, 3)):
            out = np.zeros(COUNT, element.numpy)
            kernel.run(data, out, divisor, check="off")
            assert_same(out, _meaning(kind, data, np.full(COUNT, divisor, element.numpy)))
    before, _, rare = kernel.ptx().partition("bra $common")
    assert "rem." not in before and rare.partition("$common")[0].count("rem.") == 4


def test_quotient_and_remainder_share_a_division():
    """Indices that are taken apart have both: no branch."""
    kernel = Kernel(pointer(T.I32), pointer(T.I32), T.I32)
    x = kernel.load(0, (COUNT,), blocked(4))
    y = kernel.splat(kernel.function.arguments[2], (COUNT,), x.type.layout)
    quotient, remainder = (kernel.b.value(kind, x, y) for kind in (arith.DivSI, arith.RemSI))
    kernel.store(1, kernel.b.value(arith.SubI, quotient, remainder))
    assert "bra" not in kernel.ptx()
    data, out = values(T.I32, 4), np.zeros(COUNT, np.int32)
    kernel.run(data, out, 12)
    with np.errstate(all="ignore"):
        y = np.full(COUNT, 12, np.int32)
        assert_same(out, _meaning(arith.DivSI, data, y) - _meaning(arith.RemSI, data, y))


@pytest.mark.parametrize("first", ["quotient", "remainder"])
@pytest.mark.parametrize("element", (T.I32, T.I64), ids=str)
@pytest.mark.parametrize("kinds", (DIVISIONS[::2], DIVISIONS[1::2]), ids=lambda kinds: kinds[1].name)
def test_remainders_by_way_of_quotients(kinds, element, first):
    """Whatever the divisor is: none, -1 of the smallest number; and whichever comes first."""
    kernel = Kernel(pointer(element), pointer(element), pointer(element), pointer(element))
    x, y = (kernel.load(number, (COUNT,), blocked(4)) for number in (0, 1))
    order = kinds if first == "quotient" else kinds[::-1]
    made = {kind: kernel.b.value(kind, x, y) for kind in order}
    for number, kind in enumerate(kinds, 2):
        kernel.store(number, made[kind])
    dividends, divisors = values(element, 5), values(element, 6)
    info = np.iinfo(element.numpy)
    edges = [0, 1, -1, 2, 7, -7, info.max, info.max - 1, info.min]
    for place, pair in enumerate((a, b) for a in edges for b in edges):
        dividends[place], divisors[place] = pair
    found = [np.zeros(COUNT, element.numpy) for _ in kinds]
    kernel.run(dividends, divisors, *found, check="off")
    for kind, out in zip(kinds, found):
        assert_same(out, _meaning(kind, dividends, divisors))
    text, is_long = kernel.ptx(), element is T.I64
    assert text.count("div.u32" if is_long else "div.") == 4
    assert text.count(" bra $narrow") == int(is_long)
    assert ("rem." in text) == (kinds[1] is arith.RemUI and not is_long)  # which the assembler shares


def test_remainders_by_numbers_that_are_not_zero_take_no_selection():
    kernel = Kernel(pointer(T.I32), pointer(T.I32), T.I32, pointer(T.I32))
    x = kernel.load(0, (COUNT,), blocked(4))
    some = kernel.b.value(arith.AndI, kernel.function.arguments[2], kernel.b.constant(7, T.I32))
    y = kernel.splat(kernel.b.value(arith.AddI, some, kernel.b.constant(1, T.I32)), (COUNT,), x.type.layout)
    kernel.store(1, kernel.b.value(arith.RemSI, x, y))
    kernel.store(3, kernel.b.value(arith.DivSI, x, y))
    assert "selp" not in kernel.ptx() and "rem." not in kernel.ptx()
    data, out = values(T.I32, 7), np.zeros(COUNT, np.int32)
    kernel.run(data, out, 5, np.zeros_like(out))
    assert_same(out, _meaning(arith.RemSI, data, np.full(COUNT, 6, np.int32)))


@pytest.mark.parametrize("kind", (arith.RemSI, arith.RemUI), ids=lambda k: k.name)
def test_remainders_that_count_up_are_computed_once(kind):
    """Where 8 divides the divisor, those of 8 neighbours are the first one's and what follows it."""
    for divisor in (COUNT // 2, 8, 1 << 20):
        kernel = Kernel(pointer(T.I32), T.I32)
        x = kernel.indices((COUNT,), blocked(16, threads=(32,), warps=(1,)))
        y = kernel.splat(kernel.function.arguments[1], (COUNT,), x.type.layout)
        value = kernel.b.create(kind, x, y, contiguity=(8,)).result
        kernel.store(0, value)
        out = np.zeros(COUNT, np.int32)
        kernel.run(out, divisor)
        np.testing.assert_array_equal(out, np.arange(COUNT) % divisor)
    assert kernel.ptx().count("rem.") == 2


def test_quotients_leave_remainders_that_count_up():
    kernel = Kernel(pointer(T.I32), pointer(T.I32), T.I32)
    x = kernel.indices((COUNT,), blocked(16, threads=(32,), warps=(1,)))
    y = kernel.splat(kernel.function.arguments[2], (COUNT,), x.type.layout)
    kernel.store(0, kernel.b.create(arith.RemSI, x, y, contiguity=(8,)).result)
    kernel.store(1, kernel.b.create(arith.DivSI, x, y, constancy=(8,)).result)
    remainders, quotients = np.zeros(COUNT, np.int32), np.zeros(COUNT, np.int32)
    kernel.run(remainders, quotients, 40)
    np.testing.assert_array_equal(quotients, np.arange(COUNT) // 40)
    np.testing.assert_array_equal(remainders, np.arange(COUNT) % 40)
    assert kernel.ptx().count("div.") == kernel.ptx().count("selp") == 2 and "rem." not in kernel.ptx()


def test_no_branch_in_loops():
    """It would be in the way of whoever schedules the loop."""

    def wrapped(x, out, n, steps, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.int32)
        for step in range(steps):
            total += tl.load(x + (i + step) % n)
        tl.store(out + i % n, total)

    signature = {"x": "*i32:16", "out": "*i32:16", "n": "i32", "steps": "i32"}
    ptx = ptxforge.compile(wrapped, signature=signature, constants={"BLOCK": 256}, target="sm_90a").asm["ptx"]
    loop, behind = ptx.rsplit("$for_end", 1)
    assert "rem.s32" in loop and "$common" not in loop
    assert "$common" in behind


def test_divisors_of_their_own_are_no_sizes():
    """Elements with a divisor each are divided without a look at whether they are below it."""

    def rests(x, y, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i) % tl.load(y + i))

    signature = {"x": "*i64:16", "y": "*i64:16", "out": "*i64:16"}
    ptx = ptxforge.compile(rests, signature=signature, constants={"BLOCK": 256}, target="sm_90a").asm["ptx"]
    assert "rem.s64" in ptx and "$common" not in ptx
