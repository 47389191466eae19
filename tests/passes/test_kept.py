"""Analyses that are kept between passes say what a new one would."""

from __future__ import annotations

import pytest

from ptxforge.ir.parser import parse_function
from ptxforge.passes import pipeline
from ptxforge.passes.analysis.axis_info import AxisInfoAnalysis
from ptxforge.passes.analysis.kept import kept, note_change
from ptxforge.passes.properties import is_memory_access
from tests.passes.gpu import TARGET
from tests.passes.kernels import ADD, ALL


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_what_is_kept_is_still_true(text):
    """After every pass that keeps facts, those about pointers and masks are the facts of a new analysis."""
    compared = []

    def compare(row, function, changed):
        if not (row.keeps and changed):
            return
        old, new = kept(AxisInfoAnalysis, function), AxisInfoAnalysis(function)
        for op in function.walk():
            if is_memory_access(op):
                values = [op.pointer] if op.mask is None else [op.pointer, op.mask]
                assert [old[v] for v in values] == [new[v] for v in values], (row.name, op)
                compared.append(row.name)

    pipeline.run(parse_function(text), TARGET, on_pass=compare)
    assert "coalesce" in compared and ("remove_layout_conversions" in compared or text == ADD)


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_a_kernel_is_analysed_once(text, monkeypatch):
    made, init = [], AxisInfoAnalysis.__init__

    def count(self, function):
        made.append(type(self))
        init(self, function)

    monkeypatch.setattr(AxisInfoAnalysis, "__init__", count)
    pipeline.run(parse_function(text), TARGET)
    assert made.count(AxisInfoAnalysis) == 1


def test_changes_end_what_was_known():
    function = parse_function(ADD)
    assert kept(AxisInfoAnalysis, function) is not kept(AxisInfoAnalysis, function), "no pipeline runs"
    function.analyses = {}
    first = kept(AxisInfoAnalysis, function)
    assert kept(AxisInfoAnalysis, function) is first
    note_change(function, (AxisInfoAnalysis,))
    assert kept(AxisInfoAnalysis, function) is first
    note_change(function, ())
    second = kept(AxisInfoAnalysis, function)
    assert second is not first
    note_change(function, ())
    note_change(function, (AxisInfoAnalysis,))
    assert kept(AxisInfoAnalysis, function) is not second, "true two changes ago"
