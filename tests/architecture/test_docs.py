"""What the documents show is true: IR in fences marked ``ir`` is verified and prints as it stands."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

from ptxforge.codegen_ptx.ptx.pipeline import PASSES, RULES
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


def part_of_passes(title: str) -> str:
    """What stands in ``docs/passes.md`` under a title."""
    return (ROOT / "docs/passes.md").read_text().split(f"\n## {title}")[1].split("\n## ")[0]


def rows_of(text: str) -> list[str]:
    """The names with which rows of a table begin."""
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


def test_the_road_names_every_pass():
    road = part_of_passes("The road")
    assert not [name for name in sorted({row.name for row in PIPELINE}) if f"`{name}`" not in road]


def test_the_passes_over_instructions_stand_in_their_order():
    text = part_of_passes("Passes over instructions")
    assert rows_of(text) == [row.name for row in PASSES]
    assert not [name for name in RULES if f"`{name}`" not in text]


def test_the_analyses_stand_in_their_table():
    files = {path.stem for path in (ROOT / "ptxforge/passes/analysis").glob("*.py")} - {"__init__", "kept"}
    assert sorted(rows_of(part_of_passes("Facts that passes share"))) == sorted(files)


SEE = re.compile(
    r"\b[Ss]ee\s+(?P<rules>[A-Z][A-Z_]+\b(?:(?:,\s|\s+and\s+|\s+)[A-Z][A-Z_]+\b)*)"
    r"(?:\s+(?:of|in)\s+``(?P<file>[\w/]+\.py)``)?"
)
"""A reference to rules, whose names are in capitals: in the same file, or in one that is named."""


def unknown_rules(path: Path) -> list[str]:
    """The rules that a file refers to, and that neither it nor a file which it says has them begins a line
    with. (A second word, as in TWO AHEAD, belongs to the first one's line.)"""
    own = path.read_text()
    found = list(SEE.finditer(own))
    texts = [own, *((ROOT / "ptxforge/passes" / name).read_text() for m in found if (name := m["file"]))]
    names = {name for m in found for name in re.split(r",\s|\s+and\s+", " ".join(m["rules"].split()))}
    bare = [SEE.sub("", text) for text in texts]
    return sorted(
        name for name in names
        if not any(re.search(rf"^(?:\d+\. )?{name}\b", text, re.MULTILINE) for text in bare)
    )  # fmt: skip


def test_rules_that_are_referred_to_exist():
    files = [path for path in (ROOT / "ptxforge").rglob("*.py") if SEE.search(path.read_text())]
    assert len(files) >= 30
    assert not {path.name: rules for path in files if (rules := unknown_rules(path))}


def test_references_to_rules_are_found(tmp_path):
    path = tmp_path / "a.py"
    path.write_text('"""Rules\n\nHERE   what holds.\nTWO AHEAD  more.\n"""\n# See HERE, GONE and TWO AHEAD\n')
    assert unknown_rules(path) == ["GONE"]
    path.write_text('"""See CHOICE of ``plan_ctas.py``."""\n# see ONCE, and see NEVER.\n')
    assert unknown_rules(path) == ["NEVER"]


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
