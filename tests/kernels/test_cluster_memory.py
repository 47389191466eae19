"""What the CTAs of a cluster do to global memory, on every executor: atomics for the whole program, locks,
barriers, tiles that lie over each other, assertions and prints. All that is done once is done once."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.errors import PtxforgeError

CTAS = [2, 4]
MEET = "barrier {of_cluster = true}"


def tile_of(kernel, signature: dict, constants: dict, **options) -> str:
    """The IR of one CTA of two, which all share the work."""
    artifact = ptxforge.compile(
        kernel, signature=signature, constants=constants, target="sm_90a", num_ctas=2, **options
    )
    assert not [remark for remark in artifact.remarks if remark.kind == "one-cta-works"]
    return artifact.asm["tile"]


# -- atomics -------------------------------------------------------------------------------------------------


@ptxforge.jit
def taken_tiles(x, y, counter, tiles, BLOCK: tl.constexpr):
    """Programs take tiles until there are none."""
    tile = tl.atomic_add(counter, 1)
    while tile < tiles:
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at) * 2)
        tile = tl.atomic_add(counter, 1, sem="relaxed")


@pytest.mark.parametrize("num_ctas", CTAS)
def test_a_counter_is_asked_once(execute, num_ctas):
    x = np.arange(7 * 64, dtype=np.int32)
    arguments = [x, np.zeros_like(x), np.zeros(1, np.int32), 7]
    for y, counter in execute(taken_tiles, (2,), arguments, {"BLOCK": 64}, outputs=[1, 2], num_ctas=num_ctas):
        assert np.array_equal(y, 2 * x) and counter[0] == 9


@ptxforge.jit
def sum_under_a_lock(x, total, count, lock, BLOCK: tl.constexpr):
    """Programs add their tile to what is there, one after the other."""
    i = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * BLOCK + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        value += tl.load(total + BLOCK - 1 - i)
    tl.store(total + BLOCK - 1 - i, value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_a_lock_is_for_all_ctas(execute, num_ctas):
    x = np.random.default_rng(0).integers(-9, 10, (4, 64)).astype(np.int32)
    arguments = [x, np.full(64, 77, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    for total, count, lock in execute(sum_under_a_lock, (4,), arguments, {"BLOCK": 64}, outputs=[1, 2, 3],
                                      num_ctas=num_ctas):  # fmt: skip
        assert np.array_equal(total, x.sum(0)[::-1]) and count[0] == 1 and lock[0] == 0


@ptxforge.jit
def product_in_parts(a, b, c, locks, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                     PARTS: tl.constexpr):  # fmt: skip
    """Programs add their part of the inner dimension in the order of their numbers."""
    row, column, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    i, j, k = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(part * (K // PARTS), (part + 1) * (K // PARTS), BK):
        x = tl.load(a + i[:, None] * K + (start + k)[None, :])
        acc = tl.dot(x, tl.load(b + (start + k)[:, None] * N + j[None, :]), acc)
    lock = locks + row * tl.num_programs(1) + column
    while tl.atomic_cas(lock, part, part) != part:
        pass
    at = c + i[:, None] * N + j[None, :]
    if part > 0:
        acc += tl.load(at)
    tl.store(at, acc)
    tl.debug_barrier()
    tl.atomic_xchg(lock, part + 1)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_products_that_are_added_in_turn(execute, num_ctas):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (256, 256)).astype(np.float16) for _ in range(2))
    arguments = [a, b, np.full((256, 256), 9, np.float32), np.zeros(4, np.int32), 256, 256, 256]
    constants = {"BM": 128, "BN": 256, "BK": 64, "PARTS": 2}
    for (c,) in execute(product_in_parts, (2, 1, 2), arguments, constants, outputs=[2], num_ctas=num_ctas):
        np.testing.assert_array_equal(c, a.astype(np.float32) @ b)


@ptxforge.jit
def last_one_sums(x, parts, out, done, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """The program that ends last reads what all have stored."""
    i, pid = tl.arange(0, BLOCK), tl.program_id(0)
    tl.store(parts + pid * BLOCK + i, tl.load(x + pid * BLOCK + i) * 3)
    if tl.atomic_add(done, 1) == PROGRAMS - 1:
        total = tl.zeros((BLOCK,), tl.int32)
        for p in range(PROGRAMS):
            total += tl.load(parts + p * BLOCK + i)
        tl.store(out + i, total)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_all_have_stored_before_one_says_so(execute, num_ctas):
    x = np.arange(5 * 64, dtype=np.int32).reshape(5, 64)
    arguments = [x, np.zeros_like(x), np.zeros(64, np.int32), np.zeros(1, np.int32)]
    constants = {"BLOCK": 64, "PROGRAMS": 5}
    for out, done in execute(last_one_sums, (5,), arguments, constants, outputs=[2, 3], num_ctas=num_ctas):
        assert np.array_equal(out, 3 * x.sum(0)) and done[0] == 5
    signature = dict.fromkeys(("x", "parts", "out", "done"), "*i32:16")
    text = tile_of(last_one_sums, signature, constants)
    assert text.index(MEET) < text.index("atomic_rmw") < text.index("reduce_ctas")


@ptxforge.jit
def answered(x, out, rows, scalar, M: tl.constexpr, N: tl.constexpr):
    """Atomics whose results are used: of rows, when columns are cut, of one element; volatile loads."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = i[:, None] * N + j[None, :]
    found = tl.atomic_add(rows + i, 5) + tl.atomic_cas(rows + M + i, 0 * i, i + 1)
    one = tl.atomic_max(scalar, 9, sem="acquire") + tl.load(scalar + 1, volatile=True)
    tl.atomic_min(scalar + 2, -1, sem="release")
    tl.atomic_or(scalar + 3, 6, sem="acquire")
    tl.store(out + at, tl.load(x + at, volatile=True) + found[:, None] + one)


@pytest.mark.parametrize("sizes", [(2, 64), (32, 8)])
@pytest.mark.parametrize("num_ctas", CTAS)
def test_all_get_what_one_found(execute, num_ctas, sizes):
    x = np.arange(np.prod(sizes), dtype=np.int32).reshape(sizes)
    rows = np.arange(2 * sizes[0], dtype=np.int32)
    rows[sizes[0] + 1 :] = 0
    found = rows[: sizes[0]] + rows[sizes[0] :]
    arguments = [x, np.zeros_like(x), rows, np.array([4, 8, 3, 1], np.int32)]
    for out, after, scalar in execute(answered, (1,), arguments, dict(zip("MN", sizes)), outputs=[1, 2, 3],
                                      num_ctas=num_ctas):  # fmt: skip
        assert np.array_equal(out, x + found[:, None] + 12) and scalar.tolist() == [9, 8, -1, 7]
        assert np.array_equal(after[: sizes[0]], rows[: sizes[0]] + 5)
        old = rows[sizes[0] :]
        assert np.array_equal(after[sizes[0] :], np.where(old == 0, np.arange(sizes[0]) + 1, old))


# -- order ---------------------------------------------------------------------------------------------------


@ptxforge.jit
def shifted(x, steps, BLOCK: tl.constexpr):
    """All move down by one in each step."""
    i = tl.arange(0, BLOCK)
    for _ in range(steps):
        value = tl.load(x + i + 1)
        tl.debug_barrier()
        tl.store(x + i, value)
        tl.debug_barrier()


@pytest.mark.parametrize("num_ctas", CTAS)
def test_barriers_are_for_all_ctas(execute, num_ctas):
    x = np.random.default_rng(1).integers(0, 100, 80).astype(np.int32)
    expected = x.copy()
    for _ in range(3):
        expected[:64] = expected[1:65].copy()
    for (y,) in execute(shifted, (1,), [x, 3], {"BLOCK": 64}, outputs=[0], num_ctas=num_ctas):
        assert np.array_equal(y, expected)
    assert tile_of(shifted, {"x": "*i32:16", "steps": "i32"}, {"BLOCK": 64}).count(MEET) == 2


@ptxforge.jit
def over_each_other(y, n, stride, STEP: tl.constexpr, BLOCK: tl.constexpr, UNROLLED: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if UNROLLED:
        for k in tl.static_range(4):
            tl.store(y + k * STEP + i, i * 10 + k)
    else:
        for k in range(n):
            tl.store(y + k * stride + i, i * 10 + k)
            tl.debug_barrier()


@pytest.mark.parametrize("unrolled, stride", [(False, 16), (False, 64), (True, 32), (True, 64)])
@pytest.mark.parametrize("num_ctas", CTAS)
def test_the_later_tile_counts(execute, num_ctas, unrolled, stride):
    expected = np.zeros(320, np.int32)
    for k in range(4):
        expected[k * stride : k * stride + 64] = np.arange(64) * 10 + k
    constants = {"STEP": stride, "BLOCK": 64, "UNROLLED": unrolled}
    for (y,) in execute(over_each_other, (1,), [np.zeros(320, np.int32), 4, stride], constants, outputs=[0],
                        num_ctas=num_ctas, num_warps=1):  # fmt: skip
        assert np.array_equal(y, expected)


@pytest.mark.parametrize("step, count", [(32, 3), (64, 0), (96, 3), (128, 0)])
def test_unrolled_tiles_wait_only_where_they_may_overlap(step, count):
    signature = {"y": "*i32:16", "n": "i32", "stride": "i32"}
    text = tile_of(over_each_other, signature, {"STEP": step, "BLOCK": 64, "UNROLLED": True})
    assert text.count(MEET) == count


@ptxforge.jit
def walks(x, y, n, stride, rows, HOW: tl.constexpr, BLOCK: tl.constexpr):
    i, pid = tl.arange(0, BLOCK), tl.program_id(0)
    if HOW == "side by side":
        for k in range(0, n, BLOCK):
            tl.store(y + pid * stride + k + i, tl.load(x + k + i))
    elif HOW == "pointers":
        p = y + i
        for k in range(n):
            tl.store(p, tl.load(x + k * BLOCK + i))
            p += 2 * BLOCK
    elif HOW == "anywhere":
        for k in range(n):
            tl.store(y + k * stride + i, tl.load(x + k * BLOCK + i))
    elif HOW == "loaded":
        for k in range(n):
            tl.store(y + tl.load(rows + k) * BLOCK + i, tl.load(x + k * BLOCK + i))
    elif HOW == "anywhere loaded":
        for k in range(n):
            tl.store(y + tl.load(rows + k) + i, tl.load(x + k * BLOCK + i))
    else:
        for k in range(pid, n, tl.num_programs(0)):
            tl.store(y + k * stride + i, tl.load(x + k * BLOCK + i))


@pytest.mark.parametrize("how, count", [
    ("side by side", 0), ("pointers", 0), ("anywhere", 1), ("loaded", 0), ("anywhere loaded", 1),
    ("dealt", 0),
])  # fmt: skip
def test_tiles_of_a_loop_wait_only_where_they_may_overlap(how, count):
    signature = dict.fromkeys(("x", "y", "rows"), "*i32:16") | {"n": "i32", "stride": "i32"}
    assert tile_of(walks, signature, {"HOW": how, "BLOCK": 64}).count(MEET) == count


@ptxforge.jit
def walking_tiles(x, y, n, stride, HOW: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    value = tl.load(x + i * N + j)
    if HOW == "down":
        for k in range(n):
            tl.store(y + (k * M + i) * stride + j, value + k)
    elif HOW == "across":
        for k in range(0, n, N):
            tl.store(y + i * stride + k + j, value + k)
    elif HOW == "across short rows":
        for k in range(0, 4 * N, N):
            tl.store(y + i * (4 * N) + k + j, value + k)
    elif HOW == "beyond short rows":
        for k in range(0, 5 * N, N):
            tl.store(y + i * (4 * N) + k + j, value + k)
    elif HOW == "rows down":
        for k in range(n):
            tl.store(y + (k * stride + i) * N + j, value + k)
    else:
        for k in range(n):
            tl.store(y + (k + i) * stride + j, value + k)


@pytest.mark.parametrize("how, count", [
    ("down", 0), ("across", 0), ("across short rows", 0), ("beyond short rows", 1), ("rows down", 1),
    ("a row down", 1),
])  # fmt: skip
def test_tiles_with_rows_wait_only_where_they_may_overlap(how, count):
    signature = {"x": "*i32:16", "y": "*i32:16", "n": "i32", "stride": "i32"}
    constants = {"HOW": how, "M": 16, "N": 8}
    assert tile_of(walking_tiles, signature, constants).count(MEET) == count


@ptxforge.jit
def gathered_products(x, y, tables, n, BLOCK: tl.constexpr):
    """What is read through a loaded pointer may be what is stored: all meet in front of the loop."""
    i = tl.arange(0, BLOCK)
    for tile in range(n):
        source = tl.load(tables + tile).to(tl.pointer_type(tl.int32))
        total = tl.zeros((BLOCK,), tl.int32)
        for k in range(n):
            total += tl.load(source + k * BLOCK + i)
        tl.store(y + tile * BLOCK + i, total)


def test_ctas_meet_in_front_of_loops():
    signature = {"x": "*i32:16", "y": "*i32:16", "tables": "*i64:16", "n": "i32"}
    lines = tile_of(gathered_products, signature, {"BLOCK": 64}).splitlines()
    depth = [len(line) - len(line.lstrip()) for line in lines if MEET in line]
    loops = [len(line) - len(line.lstrip()) for line in lines if " for " in f" {line.strip()} "]
    assert depth and max(depth) <= max(loops)


# -- what is said --------------------------------------------------------------------------------------------


@ptxforge.jit
def checked(x, y, limit, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    value = tl.load(x + i[:, None] * N + j[None, :])
    tl.device_assert(value < limit, "tile")
    tl.device_assert(tl.load(x + i) < limit + 7, "rows")
    tl.device_assert(limit > 0, "limit")
    tl.device_print("limit", limit)
    tl.device_print("here")
    tl.store(y + i[:, None] * N + j[None, :], value)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_assertions_hold_in_every_part(execute, num_ctas):
    x = np.arange(256, dtype=np.int32)
    for (y,) in execute(checked, (1,), [x, np.zeros_like(x), 256], {"M": 4, "N": 64}, outputs=[1],
                        num_ctas=num_ctas, debug=True, num_warps=1):  # fmt: skip
        assert np.array_equal(y, x)


@pytest.mark.parametrize("device", ["emulator", "interpreter"])
@pytest.mark.parametrize("limit, message", [(255, "tile"), (0, "tile|rows|limit")])
@pytest.mark.parametrize("num_ctas", CTAS)
def test_assertions_fail_in_every_part(device, num_ctas, limit, message):
    x = ptxforge.to_device(np.arange(256, dtype=np.int32), device)
    with pytest.raises(PtxforgeError, match=message):
        ptxforge.compile(checked)[(1,)](x, x, limit, M=4, N=64, num_ctas=num_ctas, debug=True)


def test_what_all_have_is_printed_once(capfd):
    """As often as by one CTA: a thread a line."""
    said = []
    for num_ctas in (1, 2, 4):
        x = ptxforge.to_device(np.arange(256, dtype=np.int32), "emulator")
        ptxforge.compile(checked)[(1,)](x, x, 999, M=4, N=64, num_ctas=num_ctas, num_warps=1)
        said.append(sorted(capfd.readouterr().out.splitlines()))
    assert said[0] == said[1] == said[2] and len(said[0]) > 1
