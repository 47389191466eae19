"""Results that depend on the order of programs, beyond the rounding of sums."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def last_one(out):
    tl.store(out, tl.program_id(0))


@ptxforge.jit
def first_one(ticket, out):
    if tl.atomic_add(ticket, 1) == 0:
        tl.atomic_xchg(out, tl.program_id(0) + 1)


@ptxforge.jit
def total(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + i), 0))


@ptxforge.jit
def prints(x):
    tl.device_print("x", tl.load(x))


def found(launch, **options) -> list:
    with ptxforge.check(fail_on="never", order=True, **options) as report:
        launch()
    return [issue for issue in report.issues if issue.kind == "order"]


def test_the_last_program_wins():
    out = np.zeros(1, np.int32)
    (issue,) = found(lambda: last_one[(4,)](out))
    assert issue.message == "out[0] is 3 when programs run in order, 0 in reverse"
    assert issue.place.shown().splitlines()[0].endswith("| def last_one(out):")
    assert issue.element == "out[0], int32[1]" and issue.severity == "warning"


def test_the_first_program_wins():
    (issue,) = found(lambda: first_one[(4,)](np.zeros(1, np.int32), np.zeros(1, np.int32)))
    assert issue.message == "out[0] is 1 when programs run in order, 4 in reverse"


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32])
def test_sums_differ_by_rounding_only(kind):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(64 * 32) * 10).astype(kind)
    out = np.zeros(1, kind)
    assert not found(lambda: total[(64,)](x, out, BLOCK=32))
    assert abs(float(out[0]) - float(x.astype(np.float64).sum())) < 2


def test_it_is_opt_in():
    with ptxforge.check(fail_on="never") as report:
        last_one[(4,)](np.zeros(1, np.int32))
    assert all(issue.kind != "order" for issue in report.issues)


def test_one_program_has_no_order():
    assert not found(lambda: last_one[(1,)](np.zeros(1, np.int32)))


def test_the_launch_itself_happens_once(capsys):
    x, out = np.ones(64, np.float32), np.zeros(1, np.float32)
    assert not found(lambda: total[(2,)](x, out, BLOCK=32))
    assert out[0] == 64
    found(lambda: prints[(2,)](x))
    assert capsys.readouterr().out.count("pid (1, 0, 0)") <= 128
