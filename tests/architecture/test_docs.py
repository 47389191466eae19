"""What the documents show is true: IR in fences marked ``ir`` is verified and prints as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry
from ptxforge.ir.definition import REGISTRY
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.pipeline import PIPELINE

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    (path.name, number, text)
    for path in sorted((ROOT / "docs").glob("*.md"))
    for number, text in enumerate(
        re.findall(r"^```ir\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    )
]


@pytest.mark.parametrize(
    "name, number, text", EXAMPLES, ids=[f"{name}-{number}" for name, number, _ in EXAMPLES]
)
def test_ir_in_documents(name, number, text):
    function = parse_function(text)
    verify(function)
    assert print_function(function) == text.strip()


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


def test_the_families_name_operations_that_exist():
    rows = re.search(r"\| family \| operations \|\n(.*?)\n\n", (ROOT / "docs/ir.md").read_text(), re.DOTALL)[
        1
    ]
    named = {
        word
        for row in rows.splitlines()[1:]
        for code in re.findall(r"`([^`]*)`", row.split("|")[2])
        for word in code.split()
        if word != "…"
    }
    assert len(named) > 50 and named <= REGISTRY.keys(), named - REGISTRY.keys()


def test_the_walks_pass_through_files_that_exist_each_once():
    """``docs/architecture.md``: numbered steps, each of which begins with its file."""
    text = (ROOT / "docs/architecture.md").read_text()
    walks = text.split("\n## ")[1:4]
    for walk in walks:
        stops = re.findall(r"^\d\. `(ptxforge/[^`]+\.py)` —", walk, re.MULTILINE)
        assert len(stops) == len(re.findall(r"^\d\. ", walk, re.MULTILINE)) >= 6
        assert len(set(stops)) == len(stops), "a file is visited once"
    for path in re.findall(r"`(ptxforge/[^`]+\.py)`", text):
        assert (ROOT / path).exists(), path


def test_the_walks_follow_the_pipeline():
    """Passes stand in a walk in the order in which they run first."""
    order = list(dict.fromkeys(row.name for row in PIPELINE))
    for walk in (ROOT / "docs/architecture.md").read_text().split("\n## ")[1:4]:
        passes = [name for name in re.findall(r"^\d\. `ptxforge/passes/(\w+)\.py`", walk, re.MULTILINE)]
        rows = [order.index(name) for name in passes if name in order]
        assert len(rows) >= 3 and rows == sorted(rows), passes
