"""Every finding has an entry in the catalogue and one in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxforge.checking.issues import CATALOGUE, SEVERITIES, rank
from ptxforge.emulator.findings import FATAL, KINDS

DEBUGGING = (Path(__file__).parents[2] / "docs" / "debugging.md").read_text()
ENTRIES = dict(re.findall(r"^### (\S+)\n(.*?)(?=^#|\Z)", DEBUGGING, re.M | re.S))


def test_the_emulator_finds_nothing_that_is_not_listed():
    assert set(KINDS) <= set(CATALOGUE)
    assert all(CATALOGUE[kind].severity == "error" for kind in FATAL)


def test_the_documentation_has_one_entry_for_each():
    assert list(ENTRIES) == list(CATALOGUE)


@pytest.mark.parametrize("kind", CATALOGUE)
def test_an_entry_says_how_bad_it_is(kind):
    entry = CATALOGUE[kind]
    assert ENTRIES[kind].startswith(f"{entry.severity.capitalize()}. ")
    assert entry.reason and entry.cure and not entry.cure.endswith(".")


def test_ranks():
    assert [rank(severity) for severity in SEVERITIES] == [0, 1, 2]
