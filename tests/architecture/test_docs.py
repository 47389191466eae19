"""What the documents show is true: IR in fences marked ``ir`` is verified and prints as it stands."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

from ptxforge.codegen_ptx.ptx.pipeline import PASSES
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


STEP = re.compile(r"^\d+\. `(ptxforge/[^`]+\.py)` — ((?:.*\n)(?:   .*\n)*)", re.MULTILINE)


def walks() -> list[str]:
    return (ROOT / "docs/architecture.md").read_text().split("\n## ")[1:4]


def test_the_walks_pass_through_files_that_exist_each_once():
    """``docs/architecture.md``: numbered steps, each of which begins with its file."""
    for walk in walks():
        stops = [file for file, _ in STEP.findall(walk)]
        numbers = [int(number) for number in re.findall(r"^(\d+)\. ", walk, re.MULTILINE)]
        assert numbers == list(range(1, len(stops) + 1)) and len(stops) >= 6
        named = re.findall(r"`(ptxforge/[^`]+\.py)`", walk)
        assert len(set(named)) == len(named), "a file is visited once"
        for path in named:
            assert (ROOT / path).exists(), path


def place_of(file: str) -> tuple[int, int]:
    """Where a walk may pass through a file: the front end, the rows of the table, the lowering, and the rows
    of the table of passes over instructions, each in the order in which they run first."""
    folder, name = file.removeprefix("ptxforge/").rpartition("/")[::2]
    if folder == "passes":
        rows = list(dict.fromkeys(row.name for row in PIPELINE))
        return 1, rows.index(name.removesuffix(".py"))  # a numbered step is a row; what it uses, it names
    if folder == "codegen_ptx/ptx":
        rows = [inspect.getfile(row.function) for row in PASSES]
        return next(((3, at) for at, path in enumerate(rows) if path.endswith(file)), (2, 0))
    return {"frontend/semantics": (0, 0), "codegen_ptx/lower": (2, 0)}[folder]


def test_the_passes_and_the_analyses_stand_in_their_page():
    text = (ROOT / "docs/passes.md").read_text()
    files = {path.stem for path in (ROOT / "ptxforge/passes/analysis").glob("*.py")} - {"__init__", "kept"}
    rows = {row.name for row in PIPELINE}
    assert not [name for name in sorted(rows) if f"`{name}`" not in text]
    assert not [name for name in sorted(files) if f"| `{name}` |" not in text]


def test_the_walks_follow_the_pipeline():
    for walk in walks():
        places = [place_of(file) for file, _ in STEP.findall(walk)]
        assert places == sorted(places) and len({at for at in places if at[0] == 1}) >= 4


def test_the_steps_of_a_walk_name_the_files_that_only_they_use():
    """A module of ``passes`` that is no row, and that one or two others import, is a part of these."""
    folder = ROOT / "ptxforge/passes"
    rows = {row.name for row in PIPELINE}
    line = re.compile(r"^from ptxforge\.passes\.(\w+) import", re.MULTILINE)
    imported = {path.stem: set(line.findall(path.read_text())) for path in folder.glob("*.py")}
    users = Counter(name for names in imported.values() for name in names)
    checked = 0
    for walk in walks():
        for file, text in STEP.findall(walk):
            if file.startswith("ptxforge/passes/"):
                for name in imported[Path(file).stem] - rows:
                    if users[name] <= 2:
                        assert f"`ptxforge/passes/{name}.py`" in walk, f"{file} uses {name}.py: say for what"
                        checked += 1
    assert checked >= 8
