"""The comparison of two revisions' PTX, and the benchmark configurations that it compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import same_ptx
from benchmarks.configurations import configurations
from benchmarks.dialects import load
from ptxforge.compiler import compile_function

ROOT = Path(__file__).parents[2]


def test_configurations_have_names_of_their_own_and_kernels_that_exist():
    names = [one.name for one in configurations()]
    assert len(set(names)) == len(names)
    kernels = load("ptxforge")
    for one in configurations():
        parameters = set(getattr(kernels, one.kernel).arg_names)
        assert set(one.signature) | set(one.constants) <= parameters, one.name


def test_a_difference_is_told_once_and_shown_on_demand():
    old = {"a @ sm_80": "x;\ny;\n", "b @ sm_80": "x;\n", "c @ sm_80": "z;\n"}
    new = {"a @ sm_80": "x;\nw;\nv;\n", "b @ sm_80": "x;\n", "d @ sm_80": "z;\n"}
    told = ["differs  a @ sm_80  (+2 -1 of 2 lines)", "gone     c @ sm_80", "new      d @ sm_80"]
    assert list(same_ptx.compare(old, new)) == told
    shown = list(same_ptx.compare(old, new, with_diff=True))
    assert {"-y;", "+w;", "+v;"} < set(shown) and set(told) < set(shown)


def test_benchmarks_are_recorded_for_each_target():
    texts = same_ptx.record(ROOT, "benchmarks", "sm_80,sm_120", "add-1024-w4")
    assert list(texts) == ["add-1024-w4 @ sm_80", "add-1024-w4 @ sm_120"]
    (one,) = [c for c in configurations() if c.name == "add-1024-w4"]
    ptx = compile_function(load("ptxforge").add, one.signature, one.constants, "sm_80", **one.options).ptx
    lines = [line for line in ptx.splitlines() if not line.strip().startswith((".loc", ".file"))]
    assert texts["add-1024-w4 @ sm_80"].splitlines() == lines


def test_what_tests_compile_is_recorded_for_each_target():
    texts = same_ptx.record(ROOT, "tests", "sm_80,sm_90a", "test_streams.py")
    assert {name.split(" @ ")[1] for name in texts} == {"sm_80", "sm_90a"}
    assert all(".visible .entry" in text for text in texts.values())


def test_an_unknown_revision_is_refused():
    with pytest.raises(SystemExit, match="no-such-revision"):
        same_ptx.main(["no-such-revision", "."])
