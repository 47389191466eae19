"""Accesses of memory in every form that the code generator gives them: orders, scopes, cache operators,
eviction policies, types and widths. Each form has an encoding of its own, which a GPU runs here once
(``tests/forms.py``)."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl

ORDERS = tuple(itertools.product(("relaxed", "acquire", "release", "acq_rel"), ("cta", "gpu", "sys")))
ONE_WAY = tuple(itertools.product(("relaxed", "ordered"), ("cta", "gpu", "sys")))
POLICIES = ("", "evict_first", "evict_last")
WIDTHS = (1, 2, 4, 8, 16)
"""How many neighbouring elements a thread reads or writes."""
LANES = 32
UPDATES = ("add", "max", "min", "and", "or", "xor", "exchange", "compare and swap")


@ptxforge.jit
def _updated(x, old, order: tl.constexpr, scope: tl.constexpr, N: tl.constexpr):
    """Each update once in each of two halves of ``x``; results of the second half are not used."""
    i = tl.arange(0, N)
    v = (i * 5 - 7).to(x.dtype.element_ty)
    tl.store(old + i, tl.atomic_add(x + i, v, sem=order, scope=scope))
    tl.store(old + N + i, tl.atomic_max(x + N + i, v, sem=order, scope=scope))
    tl.store(old + 2 * N + i, tl.atomic_min(x + 2 * N + i, v, sem=order, scope=scope))
    tl.store(old + 3 * N + i, tl.atomic_and(x + 3 * N + i, v, sem=order, scope=scope))
    tl.store(old + 4 * N + i, tl.atomic_or(x + 4 * N + i, v, sem=order, scope=scope))
    tl.store(old + 5 * N + i, tl.atomic_xor(x + 5 * N + i, v, sem=order, scope=scope))
    tl.store(old + 6 * N + i, tl.atomic_xchg(x + 6 * N + i, v, sem=order, scope=scope))
    tl.store(old + 7 * N + i, tl.atomic_cas(x + 7 * N + i, v, v + 1, sem=order, scope=scope))
    unused = x + 8 * N
    tl.atomic_add(unused + i, v, sem=order, scope=scope)
    tl.atomic_max(unused + N + i, v, sem=order, scope=scope)
    tl.atomic_min(unused + 2 * N + i, v, sem=order, scope=scope)
    tl.atomic_and(unused + 3 * N + i, v, sem=order, scope=scope)
    tl.atomic_or(unused + 4 * N + i, v, sem=order, scope=scope)
    tl.atomic_xor(unused + 5 * N + i, v, sem=order, scope=scope)
    tl.atomic_xchg(unused + 6 * N + i, v, sem=order, scope=scope)
    tl.atomic_cas(unused + 7 * N + i, v, v + 1, sem=order, scope=scope)


@ptxforge.jit
def updates(x, old, SEM: tl.constexpr, SCOPE: tl.constexpr, N: tl.constexpr):
    _updated(x, old, SEM, SCOPE, N)


@pytest.mark.parametrize("type", [np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize(("order", "scope"), ORDERS)
@pytest.mark.parametrize("each", [1, 2])
def test_updates_of_integers(execute, order, scope, type, each):
    """With one element a thread an instruction has the order itself, with several fences around them do."""
    n = LANES * each
    rng = np.random.default_rng(n)
    x = rng.integers(0, 1 << 31, (2, len(UPDATES), n)).astype(type)
    v = (np.arange(n) * 5 - 7).astype(type)
    x[:, -1, ::2] = v[::2]
    expected = np.stack([
        x[:, 0] + v, np.maximum(x[:, 1], v), np.minimum(x[:, 2], v), x[:, 3] & v, x[:, 4] | v, x[:, 5] ^ v,
        np.broadcast_to(v, x[:, 6].shape), np.where(x[:, 7] == v, v + type(1), x[:, 7]),
    ], axis=1)  # fmt: skip
    arguments, constants = [x, np.zeros_like(x[0])], {"SEM": order, "SCOPE": scope, "N": n}
    for new, old in execute(updates, (1,), arguments, constants, outputs=[0, 1], num_warps=1):
        np.testing.assert_array_equal(new, expected)
        np.testing.assert_array_equal(old, x[0])


@ptxforge.jit
def sums(x, old, SEM: tl.constexpr, SCOPE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(old + i, tl.atomic_add(x + i, i.to(x.dtype.element_ty), sem=SEM, scope=SCOPE))
    tl.atomic_add(x + N + i, i.to(x.dtype.element_ty), sem=SEM, scope=SCOPE)


@pytest.mark.parametrize("type", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(("order", "scope"), ORDERS)
@pytest.mark.parametrize("each", [1, 2, 4, 8])
def test_sums_of_floats(execute, order, scope, type, each):
    """One by one, in pairs, and by vectors of up to 16 bytes."""
    n = LANES * each
    x = (np.arange(2 * n) % 7).reshape(2, n).astype(type)
    arguments, constants = [x, np.zeros_like(x[0])], {"SEM": order, "SCOPE": scope, "N": n}
    for new, old in execute(sums, (1,), arguments, constants, outputs=[0, 1], num_warps=1):
        np.testing.assert_array_equal(new, x + np.arange(n).astype(type))
        np.testing.assert_array_equal(old, x[0])


@ptxforge.jit
def extrema(x, SEM: tl.constexpr, SCOPE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = 10 - i.to(x.dtype.element_ty)
    tl.atomic_max(x + i, v, sem=SEM, scope=SCOPE)
    tl.atomic_min(x + N + i, v, sem=SEM, scope=SCOPE)


@pytest.mark.parametrize("type", [np.float32, np.float64])
@pytest.mark.parametrize(("order", "scope"), ORDERS)
def test_extrema_of_floats(execute, order, scope, type):
    x = np.linspace(-20, 20, 2 * LANES).reshape(2, LANES).astype(type)
    v = (10 - np.arange(LANES)).astype(type)
    constants = {"SEM": order, "SCOPE": scope, "N": LANES}
    for (new,) in execute(extrema, (1,), [x], constants, outputs=[0], num_warps=1):
        np.testing.assert_array_equal(new, [np.maximum(x[0], v), np.minimum(x[1], v)])


@ptxforge.jit
def one_way(x, out, LOAD: tl.constexpr, STORE: tl.constexpr, SCOPE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_store(out + i, tl.atomic_load(x + i, sem=LOAD, scope=SCOPE), sem=STORE, scope=SCOPE)


@pytest.mark.parametrize("type", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize(("order", "scope"), ONE_WAY)
@pytest.mark.parametrize("each", [1, 2])
def test_loads_and_stores_with_an_order(execute, order, scope, type, each):
    n = LANES * each
    load, store = ("relaxed", "relaxed") if order == "relaxed" else ("acquire", "release")
    x = np.arange(1, n + 1).astype(type)
    constants = {"LOAD": load, "STORE": store, "SCOPE": scope, "N": n}
    for (out,) in execute(one_way, (1,), [x, np.zeros_like(x)], constants, outputs=[1], num_warps=1):
        np.testing.assert_array_equal(out, x)


@ptxforge.jit
def copy(
    x, out, LOADED: tl.constexpr, STORED: tl.constexpr, POLICY: tl.constexpr, VOLATILE: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, N)
    value = tl.load(x + i, cache_modifier=LOADED, eviction_policy=POLICY, volatile=VOLATILE)
    tl.store(out + i, value, cache_modifier=STORED, eviction_policy=POLICY)


@pytest.mark.parametrize("type", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("each", WIDTHS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("loaded", "stored"), [("", ""), (".ca", ".wb"), (".cg", ".cg"), (".cs", ".cs"), (".cv", ".wt")]
)
def test_cache_operators(execute, loaded, stored, policy, each, type):
    n = LANES * each
    x = np.arange(1, n + 1).astype(type)
    constants = {"LOADED": loaded, "STORED": stored, "POLICY": policy, "VOLATILE": False, "N": n}
    for (out,) in execute(copy, (1,), [x, np.zeros_like(x)], constants, outputs=[1], num_warps=1):
        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("type", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("each", WIDTHS)
def test_volatile_loads(execute, each, type):
    n = LANES * each
    x = np.arange(1, n + 1).astype(type)
    constants = {"LOADED": "", "STORED": "", "POLICY": "", "VOLATILE": True, "N": n}
    for (out,) in execute(copy, (1,), [x, np.zeros_like(x)], constants, outputs=[1], num_warps=1):
        np.testing.assert_array_equal(out, x)


@ptxforge.jit
def swaps(x, old, SEM: tl.constexpr, SCOPE: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = i.to(x.dtype.element_ty)
    tl.store(old + i, tl.atomic_cas(x + i, v, v + 1, sem=SEM, scope=SCOPE))


@pytest.mark.parametrize(("order", "scope"), ORDERS)
@pytest.mark.parametrize("each", [1, 2])
def test_swaps_of_sixteen_bits(execute, order, scope, each):
    n = LANES * each
    x = np.where(np.arange(n) % 3, np.arange(n), 500).astype(np.int16)
    constants = {"SEM": order, "SCOPE": scope, "N": n}
    for new, old in execute(swaps, (1,), [x, np.zeros_like(x)], constants, outputs=[0, 1], num_warps=1):
        np.testing.assert_array_equal(new, np.where(x == np.arange(n), x + 1, x))
        np.testing.assert_array_equal(old, x)
