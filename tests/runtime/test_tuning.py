"""The search for the best configuration, on a clock of its own."""

from __future__ import annotations

import concurrent.futures
import importlib
import logging
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import reduction_order, search, timings
from ptxforge.runtime.autotune import Config, autotune, pow2
from ptxforge.runtime.config import expand
from ptxforge.runtime.jit import KernelInterface
from ptxforge.support.errors import AutotunerError, OutOfResourcesError
from tests.driver.fake_driver import FakeDriver, install


class Kernel(KernelInterface):
    """Takes ``cost[BLOCK]`` milliseconds of the clock, or raises it."""

    def __init__(self, cost):
        self.__name__, self.arg_names, self.cache_key = "kernel", ["x", "n", "BLOCK"], "source 1"
        self.cost, self.runs = cost, []

    def run(self, *args, grid, warmup, **kwargs):
        block = kwargs["BLOCK"]
        self.runs.append(block)
        if isinstance(self.cost[block], BaseException):
            raise self.cost[block]
        if isinstance(args[0], np.ndarray):
            args[0][:] += 1

    def warmup(self, *args, grid=None, **kwargs):
        return None


class Clock:
    """Stands for a session of timing: the cost of what just ran, with noise."""

    kernel: Kernel
    noise = 0.0
    random = random.Random(0)

    def __init__(self, device):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def time(self, before, fn, after):
        kept = before()
        try:
            fn()
        finally:
            after(kept)
        return self.kernel.cost[self.kernel.runs[-1]] * (1 + self.noise * abs(self.random.gauss(0, 1)))


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(search, "Session", Clock)
    monkeypatch.setattr(Clock, "noise", 0.0)

    def made(cost) -> Kernel:
        Clock.kernel = Kernel(cost)
        return Clock.kernel

    return made


def tuned(kernel, **options):
    return autotune([Config({"BLOCK": block}) for block in kernel.cost], key=["n"], **options)(kernel)


def best(kernel, n=5, x=None, **options) -> int:
    tuner = tuned(kernel, **options)
    tuner[(1,)](x, n)
    return tuner.best_config.kwargs["BLOCK"]


# The tournament


def test_the_fastest_wins_and_the_slow_run_seldom(clock):
    kernel = clock({block: 1.0 + 0.1 * block for block in range(16, 0, -1)})
    assert best(kernel) == 1
    counts = {block: kernel.runs.count(block) for block in kernel.cost}
    assert counts[16] <= 2 + search.FIRST_RUNS < counts[1]
    assert kernel.runs[:4] == [16, 16, 15, 15]
    first_round = kernel.runs[32:48]
    assert first_round == list(range(16, 0, -1))  # in turn, not one after the other


def test_ties_go_to_the_first(clock):
    assert best(clock({1: 1.50, 2: 1.01, 3: 1.0, 4: 1.015})) == 2
    assert best(clock({1: 1.50, 3: 1.0, 2: 1.01})) == 3


def test_searches_agree_in_spite_of_noise(clock, monkeypatch):
    monkeypatch.setattr(Clock, "noise", 0.05)
    cost = {block: 1.0 + 0.06 * (block - 1) for block in range(1, 21)}
    assert [best(clock(cost)) for _ in range(10)].count(1) >= 9


def test_searches_agree_where_the_clock_ticks(clock, monkeypatch):
    """By half a microsecond, of kernels of 24: medians are 24.0 or 24.5, which is no tie."""
    tick, phase, exact = 0.0005, random.Random(1), Clock.time

    def time(self, *run):
        return round(exact(self, *run) / tick + phase.uniform(-0.5, 0.5)) * tick

    monkeypatch.setattr(Clock, "time", time)
    cost = {1: 0.02424, 2: 0.02405, 3: 0.0240, 4: 0.02406} | {block: 0.03 for block in range(5, 21)}
    assert [best(clock(cost)) for _ in range(20)].count(1) >= 19


MEASURED = {
    "gemm": [
        27.90, 28.04, 31.54, 38.89, 30.28, 28.98, 31.06, 39.04, 28.23, 31.27,
        29.53, 36.43, 27.90, 30.50, 28.14, 34.83, 40.98, 34.22, 31.52, 34.36,
    ],
    "softmax": [
        20.61, 20.60, 21.09, 28.45, 54.24, 20.69, 20.75, 20.42, 21.92, 32.63,
        22.44, 21.04, 21.06, 21.22, 23.64, 37.25, 22.57, 21.06, 21.20, 21.08,
    ],
    "layer norm": [
        21.54, 21.46, 22.12, 30.43, 57.51, 21.85, 21.57, 21.61, 23.22, 33.47,
        23.80, 22.18, 22.72, 22.38, 24.84, 35.24, 22.30, 22.62, 26.41, 28.00,
    ],
}  # fmt: skip
"""Microseconds of twenty configurations of each kernel, as they were measured on an H200."""


@pytest.mark.parametrize("spread, most_runs", [(0.005, 1000), (0.02, 1250), (0.04, 1900)])
@pytest.mark.parametrize("case", sorted(MEASURED))
def test_searches_agree_on_what_was_measured(clock, monkeypatch, case, spread, most_runs):
    """Several of the twenty are ties. Single runs spread, one of twenty is disturbed, the clock drifts."""
    source = random.Random(f"{case} {spread}")
    drift = [0.0]

    def time(self, before, fn, after):
        fn()
        drift[0] += source.gauss(0, 0.001) - drift[0] / 300
        disturbed = 1 + 0.3 * source.random() if source.random() < 0.05 else 1
        noise = (1 + drift[0]) * (1 + source.gauss(0, spread)) * disturbed
        return round(self.kernel.cost[self.kernel.runs[-1]] * noise / 32e-6) * 32e-6

    monkeypatch.setattr(Clock, "time", time)
    cost = {block: microseconds / 1e3 for block, microseconds in enumerate(MEASURED[case])}
    kernels = [clock(cost) for _ in range(30)]
    chosen = []
    for Clock.kernel in kernels:
        chosen.append(best(Clock.kernel))
    assert chosen.count(0) >= 27
    assert all(cost[choice] <= 1.02 * min(cost.values()) for choice in chosen)
    assert sum(len(kernel.runs) for kernel in kernels) <= most_runs * len(kernels)


def test_the_first_of_the_ties_stays_while_one_before_it_is_in_doubt(clock, monkeypatch):
    """Clearly 2 and the best are a tie; whether 1 is one takes more runs, with 2 among them."""
    monkeypatch.setattr(Clock, "noise", 0.01)
    monkeypatch.setattr(Clock, "random", random.Random(3))
    chosen, longest = [], 0
    for _ in range(20):
        kernel = clock({1: 1.0204, 2: 1.008, 3: 1.0} | {block: 1.5 for block in range(4, 9)})
        chosen.append(best(kernel))
        longest = max(longest, len(kernel.runs))
    assert longest > 400  # more rounds than five
    assert set(chosen) <= {1, 2} and 2 in chosen


@pytest.mark.parametrize("slow", [0, 1])
def test_launches_of_which_every_other_is_slow(clock, monkeypatch, slow):
    """All candidates meet as many of them, also where there are two or four."""
    exact, count = Clock.time, [0]

    def time(self, *run):
        count[0] += 1
        return exact(self, *run) * (1.032 if count[0] % 2 == slow else 1.0)

    monkeypatch.setattr(Clock, "time", time)
    assert best(clock({1: 0.0280, 2: 0.0279, 3: 0.0400, 4: 0.0400})) == 1


def test_a_choice_that_is_clear_takes_no_more_rounds(clock):
    kernel = clock({1: 1.0, 2: 1.01, 3: 1.03})
    assert best(kernel) == 1
    assert len(kernel.runs) <= 3 * (2 + sum(3 * 2**n for n in range(search.ROUNDS))) + 1


def test_slow_kernels_run_less_often(clock):
    kernel = clock({1: 500.0, 2: 700.0})
    assert best(kernel) == 1 and len(kernel.runs) <= 2 * (2 + search.ROUNDS) + 1


def test_nobody_leaves_an_exhaustive_search(clock):
    kernel = clock({1: 1.0, 2: 9.0})
    assert best(kernel, strategy="exhaustive") == 1
    assert kernel.runs.count(2) == kernel.runs.count(1) - 1  # the launch itself


def test_a_budget_ends_the_search(clock, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(search.time, "monotonic", lambda: now[0])
    kernel = clock({block: 1.0 for block in range(1, 50)} | {50: 0.1})
    original = Kernel.run
    monkeypatch.setattr(
        Kernel, "run", lambda self, *a, **k: (now.__setitem__(0, now[0] + 1), original(self, *a, **k))[1]
    )
    assert best(kernel, budget=20.0) == 1 and max(kernel.runs) < 50
    with pytest.raises(AutotunerError, match="the budget is a time in seconds"):
        tuned(kernel, budget=0)


def test_random_order_is_always_the_same(clock):
    first = clock({block: 1.0 for block in range(20)})
    best(first, strategy="random")
    second = clock(first.cost)
    best(second, strategy="random")
    assert first.runs == second.runs and first.runs[:8:2] != [0, 1, 2, 3]
    with pytest.raises(AutotunerError, match="strategy is one of halving, exhaustive, random, not 'fast'"):
        tuned(first, strategy="fast")


def test_failures_are_named_with_their_reason(clock):
    kernel = clock({1: OutOfResourcesError("shared memory", 2, 1), 2: 1.0})
    tuner = tuned(kernel)
    tuner[(1,)](None, 5)
    assert tuner.best_config.kwargs == {"BLOCK": 2}
    ((config, error),) = tuner.failures.items()
    assert config.kwargs == {"BLOCK": 1} and "shared memory: 2 required, 1 available" in str(error)


def test_an_error_of_the_kernel_is_not_hidden(clock):
    with pytest.raises(ZeroDivisionError):
        best(clock({1: ZeroDivisionError(), 2: 1.0}))


def test_interrupting_keeps_the_best_so_far(clock, capsys):
    kernel = clock({1: 2.0, 2: 1.0, 3: KeyboardInterrupt(), 4: 0.1})
    assert best(kernel) == 2
    told = capsys.readouterr().err
    assert "interrupted; the best so far: Config({'BLOCK': 2}, num_warps=4, num_stages=3, num_ctas=1)" in told
    with pytest.raises(KeyboardInterrupt):
        best(clock({3: KeyboardInterrupt(), 4: 0.1}))


def test_the_launch_begins_with_clean_arrays(clock):
    x = np.ones(3)
    best(clock({1: 2.0, 2: 1.0}), x=x, reset_to_zero=["x"])
    assert (x == 1).all()
    best(clock({1: 2.0, 2: 1.0}), x=x, restore_value=["x"])
    assert (x == 2).all()


# Spaces


def test_spaces():
    assert pow2(32, 128) == [32, 64, 128] and pow2(20, 100) == [32, 64] and pow2(1, 2) == [1, 2]
    made = expand({"BM": pow2(32, 64), "BN": [16], "num_warps": [2, 4]})
    assert [(c.kwargs, c.num_warps) for c in made] == [
        ({"BM": 32, "BN": 16}, 2),
        ({"BM": 32, "BN": 16}, 4),
        ({"BM": 64, "BN": 16}, 2),
        ({"BM": 64, "BN": 16}, 4),
    ]
    with pytest.raises(AutotunerError, match="no values for 'BM'"):
        expand({"BM": []})


def test_a_search_over_a_space(clock):
    kernel = clock({block: abs(block - 64) + 1.0 for block in pow2(16, 256)})
    tuner = autotune(key=["n"], space={"BLOCK": pow2(16, 256)})(kernel)
    tuner[(1,)](None, 5)
    assert tuner.best_config.kwargs == {"BLOCK": 64}


# Results


def test_results_travel_as_json(clock, tmp_path):
    kernel = clock({1: 2.0, 2: 1.0})
    tuner = tuned(kernel)
    tuner[(1,)](None, 5)
    tuner[(1,)](None, 6)
    assert tuner.export_results(tmp_path / "a.json") == 4
    again = tuned(clock({1: 2.0, 2: 1.0, 3: 0.5}))
    assert again.import_results(tmp_path / "a.json") == 4
    again[(1,)](None, 5)
    assert again.best_config.kwargs == {"BLOCK": 3} and set(Clock.kernel.runs) == {3}  # the new one alone
    other = tuned(clock({1: 2.0, 2: 1.0}))
    other.import_results(tmp_path / "a.json")
    other.fn.cache_key = "source 2"
    other[(1,)](None, 5)
    assert set(Clock.kernel.runs) == {1, 2}  # another source is another kernel


def test_files_are_put_together(tmp_path):
    row = {"kernel": "k", "source": "s", "gpu": "g", "key": "()", "config": "c", "ms": [2.0, 1.0, 3.0]}
    faster, other = row | {"ms": [1.0, 1.0, 1.0]}, row | {"gpu": "h"}
    for rows in ([row], [faster, other], [other, faster]):
        timings.write(tmp_path / "t.json", rows)
        assert timings.merge(timings.read(tmp_path / "t.json")) == sorted(rows, key=timings.identity)
    assert sorted(timings.merge([row, other], [faster]), key=str) == sorted([faster, other], key=str)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other", "timings": []}', '{"format": "ptxforge timings 1", "timings": [{"kernel": 1}]}'])  # fmt: skip # noqa: E501
def test_a_file_without_timings(text, tmp_path, clock):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(AutotunerError, match="holds no timings"):
        tuned(clock({1: 1.0})).import_results(tmp_path / "t.json")


def test_results_on_disk(clock, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    best(clock({1: 2.0, 2: 1.0}), cache_results=True)
    kernel = clock({1: 2.0, 2: 1.0})
    assert best(kernel, cache_results=True) == 2 and kernel.runs == [2]


# When nothing may run


def test_nothing_is_tuned_while_a_graph_is_captured(clock, monkeypatch, caplog):
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    driver = install(monkeypatch, FakeDriver())
    monkeypatch.setattr(search, "CudaDevice", type(None))
    driver.captured = {7}
    kernel = clock({1: 2.0, 2: 1.0})
    tuner = tuned(kernel)
    for _ in range(2):
        tuner[(1,)](None, 5, stream=7)
    assert kernel.runs == [1, 1]
    (said,) = (record.message for record in caplog.records if record.name == "ptxforge.tune")
    assert "is not tuned for (5,) while a CUDA graph is captured: the first configuration, Config(" in said
    tuner[(1,)](None, 5, stream=8)
    assert tuner.best_config.kwargs == {"BLOCK": 2}
    driver.captured = {0}
    tuner[(1,)](None, 5)  # known now
    assert kernel.runs[-1] == 2 and len(caplog.records) == 1


def test_stored_results_serve_where_compiling_is_forbidden(clock, tmp_path, caplog):
    first = tuned(clock({1: 2.0, 2: 1.0}))
    first[(1,)](None, 5)
    first.export_results(tmp_path / "t.json")
    second = tuned(clock({1: 2.0, 2: 1.0}))
    second.import_results(tmp_path / "t.json")
    with caplog.at_level(logging.WARNING), ptxforge.forbid_jit():
        second[(1,)](None, 5)
        second[(1,)](None, 6)
    assert Clock.kernel.runs == [2, 1]
    assert ["the stored" in record.message for record in caplog.records] == [True, False]


# The order of additions


@ptxforge.jit
def rows(x, out, N: tl.constexpr, ROWS: tl.constexpr):
    i = tl.arange(0, ROWS)
    total = tl.sum(tl.load(x + i[:, None] * N + tl.arange(0, N)[None, :]), axis=1)
    tl.store(out + i, total)


@ptxforge.jit
def matmul(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + i[:, None] * K + (start + k)[None, :])
        total = tl.dot(
            left, tl.load(b + (start + k)[:, None] * N + j[None, :]), total, input_precision=PRECISION
        )
    tl.store(c + i[:, None] * N + j[None, :], total)


def order_of_product(target="sm_80", element="fp16", stages=3, warps=4, **constants):
    constants = {"M": 32, "N": 32, "BK": 32, "PRECISION": "tf32"} | constants
    types = {name: f"*{element}:16" for name in "abc"} | {"c": "*fp32:16", "K": "i32:16"}
    made = matmul.compile(types, constants, target, num_warps=warps, num_stages=stages)
    return reduction_order.reduction_order(made)


def test_products_in_one_order():
    plain = order_of_product()
    assert plain == order_of_product(stages=2) == order_of_product(warps=2) == order_of_product(M=64)
    assert plain != order_of_product(BK=64)  # another split of K
    single = order_of_product(element="fp32")
    assert single != order_of_product(element="fp32", PRECISION="ieee") != plain


def test_products_of_warpgroups_in_one_order():
    def order(**changes):
        return order_of_product(target="sm_90a", **{"M": 64, "N": 64, "BK": 64} | changes)

    plain = order()
    assert plain == order(stages=2) == order(stages=4) == order(N=128) and "mma" in str(plain)
    assert plain != order(BK=32) and plain != order_of_product(M=64, N=64, BK=64)


def test_sums_in_one_order():
    def order(warps, n=128, rows_=4):
        made = rows.compile({"x": "*fp32:16", "out": "*fp32:16"}, {"N": n, "ROWS": rows_}, num_warps=warps)
        return reduction_order.reduction_order(made)

    assert order(4) == order(4, rows_=8) != order(4, n=256)
    assert order(1, rows_=1) != order(4, rows_=1)  # the warps share the row


@ptxforge.jit
def sums_of_products(x, y, out, N: tl.constexpr):
    i = tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + i)
    tl.store(out + tl.arange(0, 4), tl.sum(v * tl.load(y + i), axis=1))
    tl.store(out + i, tl.cumsum(v, axis=1))


def test_what_was_chosen_for_sums_decides_their_order():
    types = dict.fromkeys(("x", "y", "out"), "*fp32:16")
    gpu = sums_of_products.compile(types, {"N": 512}, num_warps=4).asm["gpu"]

    def order(text):
        return reduction_order.reduction_order(SimpleNamespace(asm={"gpu": text}))

    plain = order(gpu)
    assert [fact[0] for fact in plain] == ["reduce", "scan"]
    for chosen in (r"contracted_sums = \d+", r"lanes_at_once = \d+"):
        (before,) = re.findall(chosen, gpu)
        assert order(gpu.replace(before, before + "0")) != plain
    assert order(gpu.replace("scratch_offset = ", "scratch_offset = 16")) == plain


def test_tuning_that_keeps_the_bits(emulator, monkeypatch):
    """The faster configuration adds in another order, and is not chosen."""
    monkeypatch.setattr(search, "Session", Clock)
    listed = [Config({"ROWS": 1}, num_warps=warps) for warps in (1, 4, 1)] + [Config({"ROWS": 1, "N": 128})]
    listed[2].num_stages = 2
    kept = autotune(listed[:3], key=[], deterministic="bitwise")(rows)
    x = np.zeros((1, 128), np.float32)
    with ptxforge.use_device(emulator):
        allowed = kept._comparable(listed[:3], (x, np.zeros(1, np.float32)), {"N": 128})
    assert allowed == [listed[0], listed[2]]
    with pytest.raises(AutotunerError, match="deterministic is None or 'bitwise', not True"):
        autotune(listed, key=[], deterministic=True)(rows)


# Workers


@pytest.fixture
def sums(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    yield importlib.import_module("kernels")
    sys.modules.pop("kernels", None)


def tune_by(executor, kernels):
    x, out = ptxforge.to_device(np.ones(16, np.float32)), ptxforge.to_device(np.zeros(16, np.float32))
    listed = [Config({"BLOCK": 16}, num_warps=warps) for warps in (1, 2)] + [Config({"BLOCK": 32})]
    tuner = autotune(listed, key=[], executor=executor)(kernels.limited)
    tuner[lambda meta: (16 // meta["BLOCK"],)](x, out)
    assert (out.numpy() == 2).all()
    return tuner


def test_workers_compile_and_measure(sums):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        tuner = tune_by(pool, sums)
    assert tuner.best_config.kwargs["BLOCK"] == 16
    assert [config.kwargs["BLOCK"] for config in tuner.failures] == [32]
    assert "at most 16" in str(*tuner.failures.values())


def test_hooks_do_not_travel(clock):
    with concurrent.futures.ThreadPoolExecutor(1) as pool, pytest.raises(AutotunerError, match="has hooks"):
        best(clock({1: 1.0, 2: 2.0}), executor=pool, pre_hook=lambda arguments: None)


def test_a_dask_cluster(sums, monkeypatch):
    """How users of many machines tune: the cluster's client gives an executor."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv(
        "PYTHONPATH", ":".join(filter(None, [str(Path.cwd()), str(Path(__file__).parent), *sys.path]))
    )
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, protocol="tcp"
    )
    with cluster, distributed.Client(cluster) as client:
        tuner = tune_by(client.get_executor(), sums)
    assert tuner.best_config.kwargs["BLOCK"] == 16
