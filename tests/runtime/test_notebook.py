"""What notebooks and the prompt show of kernels, artifacts, layouts and arrays."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.layouts.encodings import Blocked, DotOperand, Linear, Mma, Slice
from ptxforge.layouts.linear import LinearLayout
from ptxforge.layouts.panels import Panels
from ptxforge.layouts.shared import Shared


@ptxforge.jit
def copied(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def parsed(html: str) -> str:
    """The text of HTML whose elements are all closed."""
    return "".join(ElementTree.fromstring(f"<div>{html}</div>").itertext())


@pytest.fixture
def artifact():
    signature = {"x": "*fp32:16", "out": "*fp32:16", "n": "i32"}
    return ptxforge.compile(copied, signature=signature, constants={"BLOCK": 256}, target="sm_80")


def test_an_artifact_is_short_at_the_prompt_and_whole_in_a_notebook(artifact):
    assert repr(artifact) == "<Artifact copied for sm_80, 4 warps, 0 bytes of shared memory>"
    shown = parsed(artifact._repr_html_())
    assert "x: *fp32:16" in shown and "BLOCK=256" in shown and ".visible .entry copied" in shown
    assert all(str(remark) in shown for remark in artifact.remarks)


def test_a_kernel_shows_its_variants_and_its_source():
    kernel = ptxforge.jit(copied.fn)
    assert len(repr(kernel)) < 80 and "variant 0" not in parsed(kernel._repr_html_())
    x = ptxforge.to_device(np.ones(10, np.float32))
    variant = kernel[(1,)](x, x, 10, BLOCK=16)
    shown = parsed(kernel._repr_html_())
    assert "variant 0<Artifact copied for " in shown and "i < n" in shown
    assert len(repr(variant)) < 80 and "16" in parsed(variant._repr_html_())


BLOCKED = Blocked((1, 4), (8, 4), (2, 1), (1, 0))


@pytest.mark.parametrize(("layout", "cells"), [
    (BLOCKED, 16 * 16), (Slice(0, BLOCKED), 16), (Mma((2, 0), (1, 2)), 16 * 16),
    (Shared(2, 1, 4, (1, 0)), 4 * 8), (Panels(32, 16, (1, 0)), 8 * 16),
    (Linear(LinearLayout({"register": [], "lane": [(1,), (2,), (4,), (8,), (16,)], "warp": [], "block": []},
                         {"dim0": 32})), 32),
])  # fmt: skip
def test_a_layout_has_a_picture(layout, cells):
    html = layout._repr_html_()
    assert str(layout) in parsed(html) and html.count("<rect") == cells


def test_a_layout_without_a_picture_is_text():
    layout = DotOperand(0, Mma(), 2)
    assert parsed(layout._repr_html_()) == str(layout) and "<svg" not in layout._repr_html_()


def test_an_array_shows_its_beginning():
    small = ptxforge.to_device(np.arange(4, dtype=np.float32), "emulator")
    assert "[0. 1. 2. 3.]" in parsed(small._repr_html_()) and "16" in parsed(small._repr_html_())
    large = ptxforge.to_device(np.arange(10000).reshape(10, 1000), "emulator")
    shown = parsed(large._repr_html_())
    assert re.search(r"\[0 1 2 3 4 5 6 7\]", shown) and "999" not in shown


@ptxforge.jit
def no_mask(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, i)


def test_findings():
    with ptxforge.check("never") as report:
        no_mask[(1,)](np.zeros(100, np.int32), BLOCK=128)
    (issue,) = report.issues
    device = ptxforge.runtime.devices.device("emulator")
    (finding,) = device.findings
    assert repr(report) == "<Report: 1 kernel in 1 launch checked: 1 error, 0 warnings, 0 notes>"
    assert repr(issue).startswith("<error: out-of-bounds in kernel 'no_mask' at ") and len(repr(issue)) < 200
    assert repr(finding).startswith("<out-of-bounds at ") and "\n" not in repr(finding)
    for shown in (report, issue, finding):
        text = parsed(shown._repr_html_())
        assert "out-of-bounds" in text
    assert "x[100], past the end of 'x'" in parsed(issue._repr_html_())
    assert "tl.store(x + i, i)" in parsed(report._repr_html_())


def test_what_else_is_shown_is_short_too(artifact):
    tuned = ptxforge.autotune(configs=[ptxforge.Config({"BLOCK": 64})], key=["n"])(copied)
    around = ptxforge.heuristics({"n": lambda arguments: 5})(tuned)
    assert repr(tuned) == f"<Autotuner of {__name__}.copied>" and repr(around).startswith("<Heuristics of ")
    assert "i < n" in parsed(around._repr_html_())
    assert repr(artifact.asm) == "<Assembly: tile, gpu, ptx, cubin, sass>"
    with ptxforge.use_device("emulator") as emulator, ptxforge.use_device("interpreter") as interpreter:
        assert repr(emulator) == f"<{type(emulator).__name__} for sm_90a, check={emulator.check!r}>"
        assert repr(interpreter) == "<InterpreterDevice for sm_90a>"
