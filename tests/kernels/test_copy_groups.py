"""Which copies of a loop arrive together is a matter of its schedule: any groups give the same results, and
as many waits as there are groups."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
from ptxforge.passes import schedule_loops
from tests.kernels.products import compiled_artifact, problem, product
from tests.kernels.specialized import walking

BY_TMA = {"block": (64, 64, 32), "num_warps": 4, "edges": "none"}
BY_THREADS = {"block": (32, 64, 32), "num_warps": 2, "edges": "cut"}


def grouped(monkeypatch, together: bool):
    """Let the scheduler put all loads of a loop into one group, or each into its own."""

    def write(loads, by_tma):
        for number, load in enumerate(loads):
            load.attributes["group"] = 0 if together else number

    monkeypatch.setattr(schedule_loops, "_write_groups", write)


@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("form", [BY_TMA, BY_TMA | {"num_ctas": 2}, BY_THREADS],
                         ids=["by TMA", "for two CTAs", "by threads"])  # fmt: skip
def test_a_product(execute, monkeypatch, form, stages, together):
    grouped(monkeypatch, together)
    point = form | {"kind": "f16", "layout": "row-row", "num_stages": stages, "steps": 5}
    arguments, expected, grid, constants, options = problem(point)
    options["num_ctas"] = form.get("num_ctas", 1)
    for (out,) in execute(ptxforge.jit(product.fn), grid, arguments, constants, outputs=[2], **options):
        np.testing.assert_array_equal(out, expected.astype(out.dtype))


@pytest.mark.parametrize("warp_specialize", [False, True])
def test_tiles_that_arrive_together_in_one_ring_for_all_programs(execute, monkeypatch, warp_specialize):
    grouped(monkeypatch, together=True)
    rng = np.random.default_rng(2)
    m, n, k = 192, 128, 160
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.full((m, n), 9, np.float32)
    constants = {"BM": 64, "BN": 64, "BK": 32, "PROGRAMS": 2, "FLATTEN": True, "WS": warp_specialize,
                 "INNER": False, "TRIANGLE": False}  # fmt: skip
    kernel = ptxforge.jit(walking.fn)
    for (out,) in execute(kernel, (2,), [a, b, c, m, n, k, 6], constants, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(out, a.astype(float) @ b.astype(float))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("together", [True, False], ids=["together", "apart"])
def test_each_group_is_waited_for_once(monkeypatch, target, together):
    grouped(monkeypatch, together)
    text = compiled_artifact("f16", (64, 64, 64), target=target).asm["gpu"]
    loop = text[text.index(" = for ") :].partition("yield")[0]
    by_threads = target == "sm_80"
    wait, end = ("async_wait", "async_commit_group") if by_threads else ("barrier_wait", "barrier_expect")
    groups = 1 if together else 2
    assert (len(re.findall(rf"{wait} ", loop)), len(re.findall(rf"{end} ", loop))) == (groups, groups)
    assert together == ("bytes = 16384" in loop) or by_threads
    # Three stages: a wait leaves the groups of one later iteration, and what its own has behind it.
    left = [int(number) for number in re.findall(r"async_wait [^{\n]*\{num = (\d+)", loop)]
    assert sorted(left) == (([1] if together else [2, 3]) if by_threads else [])
