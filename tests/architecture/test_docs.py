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
