"""Loops, branches, carried values."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Region
from ptxforge.ir.ops import arith, cast, control, memory
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import VerificationError
from tests.codegen_ptx.harness import Kernel, blocked, pointer

LAYOUT = blocked(4)
SHAPE = (512,)


def _for(kernel, lower, upper, step, initial, build):
    """A loop; ``build(induction, *carried)`` gives the next carried values."""
    b = kernel.b
    body = Block([lower.type] + [v.type for v in initial])
    with b.inside(body):
        b.create(control.Yield, *build(*body.arguments))
    return b.create(control.For, lower, upper, step, *initial, result_types=[v.type for v in initial],
                    regions=[Region(body)]).results


def _constants(kernel, *numbers):
    return [kernel.b.constant(n, T.I32) for n in numbers]


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_loop_sums_rows(trips):
    """A carried pointer tensor advances by one register; the accumulator needs no copies."""
    kernel = Kernel(pointer(T.F32), pointer(T.F32), T.I32)
    b = kernel.b
    zero, one = _constants(kernel, 0, 1)
    start = b.constant(0.0, T.TensorType(SHAPE, T.F32, LAYOUT))
    step = b.constant(512, T.TensorType(SHAPE, T.I32, LAYOUT))

    def body(_, places, total):
        x = b.value(memory.Load, places, vector=4)
        return b.value(memory.AddPtr, places, step), b.value(arith.AddF, total, x)

    results = _for(
        kernel, zero, kernel.function.arguments[2], one, [kernel.pointers(0, SHAPE, LAYOUT), start], body
    )
    kernel.store(1, results[1], vector=4)
    data = np.random.default_rng(0).normal(size=(5, 512)).astype(np.float32)
    out = np.ones(512, np.float32)
    kernel.run(data, out, trips)
    np.testing.assert_allclose(out, data[:trips].sum(0), rtol=1e-5, atol=1e-6)
    text = kernel.ptx().split("$for_2:")[1]
    assert text.count("mov") == 0, text
    assert text.split("bra")[0].count("add.s64") == 1, text


def test_swapped_values_and_cycles():
    kernel = Kernel(pointer(T.I32), pointer(T.I32), pointer(T.I32), T.I32)
    zero, one = _constants(kernel, 0, 1)
    x, y = kernel.load(0, SHAPE, LAYOUT), kernel.load(1, SHAPE, LAYOUT)
    results = _for(kernel, zero, kernel.function.arguments[3], one, [x, y], lambda i, a, c: (c, a))
    kernel.store(2, results[0])
    left, right = np.arange(512, dtype=np.int32), np.arange(512, dtype=np.int32) * 3
    for trips in (1, 2, 3):
        out = np.zeros(512, np.int32)
        kernel.run(left, right, out, trips)
        np.testing.assert_array_equal(out, right if trips % 2 else left)


def test_value_is_not_overwritten_while_needed():
    """Fibonacci: the next value is computed before the old one's last use."""
    kernel = Kernel(pointer(T.I32), T.I32)
    b = kernel.b
    zero, one = _constants(kernel, 0, 1)
    tensor = T.TensorType(SHAPE, T.I32, LAYOUT)
    first, second = b.constant(0, tensor), kernel.coordinate(SHAPE, 0, LAYOUT)

    def body(i, a, c):
        total = b.value(arith.AddI, a, c)
        return c, b.value(arith.XorI, total, a)

    results = _for(kernel, zero, kernel.function.arguments[1], one, [first, second], body)
    kernel.store(0, results[1])
    out = np.zeros(512, np.int32)
    kernel.run(out, 6)
    a, c = np.zeros(512, np.int32), np.arange(512, dtype=np.int32)
    for _ in range(6):
        a, c = c, (a + c) ^ a
    np.testing.assert_array_equal(out, c)


def test_nested_loops():
    kernel = Kernel(pointer(T.I32), T.I32, T.I32)
    b = kernel.b
    zero, one = _constants(kernel, 0, 1)
    start = kernel.coordinate(SHAPE, 0, LAYOUT)

    def outer(i, total):
        def inner(j, part):
            product = b.value(arith.MulI, i, j)
            return (b.value(arith.AddI, part, kernel.splat(product, SHAPE, LAYOUT)),)

        (result,) = _for(kernel, zero, kernel.function.arguments[2], one, [total], inner)
        return (b.value(arith.MulI, result, result),)

    (result,) = _for(kernel, zero, kernel.function.arguments[1], one, [start], outer)
    kernel.store(0, result)
    out = np.zeros(512, np.int32)
    kernel.run(out, 3, 4)
    expected = np.arange(512, dtype=np.int32)
    for i in range(3):
        for j in range(4):
            expected = expected + np.int32(i * j)
        expected = (expected.astype(np.int64) ** 2).astype(np.int32)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("flag", [0, 1])
def test_if_with_results(flag):
    kernel = Kernel(pointer(T.F32), pointer(T.F32), T.I32)
    b = kernel.b
    x = kernel.load(0, SHAPE, LAYOUT)
    condition = b.value(arith.CmpI, kernel.function.arguments[2], b.constant(0, T.I32), predicate="ne")
    sides = [Block(), Block()]
    with b.inside(sides[0]):
        y = b.value(arith.AddF, x, x)
        b.create(control.Yield, y, x, kernel.pointers(1, SHAPE, LAYOUT))
    with b.inside(sides[1]):
        z = b.value(arith.MulF, x, x)
        b.create(control.Yield, x, z, kernel.pointers(1, SHAPE, LAYOUT))
    op = b.create(control.If, condition, regions=[Region(s) for s in sides],
                  result_types=[x.type, x.type, T.TensorType(SHAPE, pointer(T.F32), LAYOUT)])
    b.create(memory.Store, op.results[2], b.value(arith.AddF, op.results[0], op.results[1]))
    data = np.random.default_rng(0).normal(size=512).astype(np.float32)
    out = np.zeros_like(data)
    kernel.run(data, out, flag)
    np.testing.assert_allclose(out, data * 3 if flag else data + data * data, rtol=1e-6)


def test_what_a_side_computes_at_the_entry_survives_the_other_side():
    """Computed once, before the loop, it must not be computed in the register that both sides assign."""
    kernel = Kernel(pointer(T.I32), T.I32)
    b = kernel.b
    zero, one = _constants(kernel, 0, 1)
    layout = blocked(2)
    tensor = T.TensorType((256,), T.I32, layout)

    def body(i, total):
        sides = [Block(), Block()]
        with b.inside(sides[0]):
            b.create(control.Yield, kernel.coordinate((256,), 0, layout))
        with b.inside(sides[1]):
            b.create(control.Yield, b.constant(-1, tensor))
        odd = b.value(cast.TruncI, i, type=T.I1)
        found = b.create(control.If, odd, regions=[Region(s) for s in sides], result_types=[tensor])
        return [b.value(arith.AddI, total, found.results[0])]

    (total,) = _for(kernel, zero, kernel.function.arguments[1], one, [b.constant(0, tensor)], body)
    kernel.store(0, total)
    out = np.zeros(256, np.int32)
    kernel.run(out, 4)
    np.testing.assert_array_equal(out, 2 * np.arange(256) - 2)


def test_if_without_results_guards_a_store():
    kernel = Kernel(pointer(T.F32), T.I32)
    b = kernel.b
    condition = b.value(arith.CmpI, kernel.function.arguments[1], b.constant(3, T.I32), predicate="sgt")
    sides = [Block(), Block()]
    with b.inside(sides[0]):
        kernel.store(0, b.constant(1.0, T.TensorType(SHAPE, T.F32, LAYOUT)))
        b.create(control.Yield)
    with b.inside(sides[1]):
        b.create(control.Yield)
    b.create(control.If, condition, regions=[Region(s) for s in sides], result_types=[])
    out = np.zeros(512, np.float32)
    kernel.run(out, 3)
    assert not out.any()
    kernel.run(out, 4)
    assert out.all()


def test_while_collatz():
    kernel = Kernel(pointer(T.I32), T.I32)
    b = kernel.b
    before, body = Block([T.I32, T.I32]), Block([T.I32, T.I32])
    with b.inside(before):
        n, steps = before.arguments
        b.create(control.Condition, b.value(arith.CmpI, n, b.constant(1, T.I32), predicate="ne"), n, steps)
    with b.inside(body):
        n, steps = body.arguments
        half = b.value(arith.DivUI, n, b.constant(2, T.I32))
        odd = b.value(cast.TruncI, n, type=T.I1)
        up = b.value(arith.AddI, b.value(arith.MulI, n, b.constant(3, T.I32)), b.constant(1, T.I32))
        b.create(
            control.Yield,
            b.value(arith.Select, odd, up, half),
            b.value(arith.AddI, steps, b.constant(1, T.I32)),
        )
    op = b.create(
        control.While,
        kernel.function.arguments[1],
        b.constant(0, T.I32),
        regions=[Region(before), Region(body)],
    )
    kernel.store_scalar(0, op.results[1])
    for start in (1, 7, 27):
        n, steps = start, 0
        while n != 1:
            n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
        out = np.zeros(1, np.int32)
        kernel.run(out, start)
        assert out[0] == steps


def test_while_carries_tensors():
    kernel = Kernel(pointer(T.F32), pointer(T.F32), T.I32)
    b = kernel.b
    x = kernel.load(0, SHAPE, LAYOUT)
    types = [T.I32, x.type]
    before, body = Block(types), Block(types)
    with b.inside(before):
        n, v = before.arguments
        b.create(control.Condition, b.value(arith.CmpI, n, b.constant(0, T.I32), predicate="sgt"), n, v)
    with b.inside(body):
        n, v = body.arguments
        b.create(control.Yield, b.value(arith.SubI, n, b.constant(1, T.I32)), b.value(arith.AddF, v, v))
    op = b.create(control.While, kernel.function.arguments[2], x, regions=[Region(before), Region(body)])
    kernel.store(1, op.results[1])
    data = np.random.default_rng(0).normal(size=512).astype(np.float32)
    out = np.zeros_like(data)
    kernel.run(data, out, 3)
    np.testing.assert_array_equal(out, data * 8)


@pytest.mark.parametrize("is_inside", [False, True])
def test_recomputed_indices_come_from_a_thread_number_of_their_own(is_inside):
    """What stands behind ``recompute`` shares no register with what stands in front."""
    kernel = Kernel(pointer(T.I32), pointer(T.I32))
    b = kernel.b

    def body(*_):
        first = kernel.coordinate(SHAPE, 0, LAYOUT)
        index = b.value(arith.MulI, first, b.constant(3, first.type))
        b.create(memory.Store, kernel.pointers(0, SHAPE, LAYOUT), index, vector=1)
        b.create(control.Recompute, first, index)
        b.create(memory.Store, kernel.pointers(1, SHAPE, LAYOUT), index, vector=1)
        return ()

    if is_inside:
        _for(kernel, *_constants(kernel, 0, 2, 1), [], body)
    else:
        body()
    before, after = (np.zeros(512, np.int32) for _ in range(2))
    kernel.run(before, after)
    np.testing.assert_array_equal(before, 3 * np.arange(512))
    np.testing.assert_array_equal(after, before)
    above, _, below = kernel.ptx().partition("shfl.sync.bfly.b32")
    assert "mul.lo.s32" in above and "mul.lo.s32" in below


def test_only_indices_of_the_same_block_are_recomputed():
    kernel = Kernel(pointer(T.I32))
    x = kernel.load(0, SHAPE, LAYOUT)
    kernel.b.create(control.Recompute, x)
    kernel.b.create(control.Return)
    with pytest.raises(VerificationError, match="no index arithmetic of the same block"):
        verify(kernel.function)
