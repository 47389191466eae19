"""Compiling does not take more work than it did: calls of Python functions are counted, for a clock would
tell what else the machine does. ``python -m benchmarks.compile_time`` measures milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ptxforge.language as tl
from benchmarks.compile_time import KERNELS
from ptxforge.compiler import compile_function
from tests.calls import calls_of
from tests.kernels.configured import BY_NAME, kernels

CALLS = dict(zip(KERNELS, (5_700, 66_200, 73_500, 122_800), strict=True))
"""Of a warm compilation, with CPython 3.11; newer versions call less."""
ROOM = 1.03
"""Whoever needs more says so here."""


def calls_when_warm(compiles: Callable[[], Any]) -> int:
    """How often functions are called when layouts and types are known."""
    compiles()
    return calls_of(compiles)


@pytest.mark.parametrize(("name", "target"), KERNELS)
def test_a_warm_compilation(name, target):
    one = BY_NAME[name]
    calls = calls_when_warm(lambda: compile_function(
        getattr(kernels, one.kernel), one.signature, one.constants, target, **one.options
    ))  # fmt: skip
    assert calls <= CALLS[name, target] * ROOM


def pairs(x, out, n, PAIRS: tl.constexpr):
    i = tl.arange(0, 1024)
    for k in tl.static_range(PAIRS):
        at = k * 1024 + i
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def test_work_grows_in_proportion():
    signature = {"x": "*fp32:16", "out": "*fp32:16", "n": "i32"}
    few, many = (
        calls_when_warm(lambda count=count: compile_function(
            pairs, signature, {"PAIRS": count}, "sm_80", num_warps=4
        ))
        for count in (16, 64)
    )  # fmt: skip
    assert many <= 4.1 * few
