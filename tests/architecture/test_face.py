"""What a stranger sees first: the project's papers agree with the package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import ptxforge

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAPERS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff")


def test_the_version_stands_everywhere():
    version = re.escape(ptxforge.__version__)
    assert re.search(rf"^## {version}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)


def test_the_newest_version_of_the_changelog_comes_first():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Version policy" and headings[1].startswith(ptxforge.__version__)


def test_the_citation_names_no_person():
    text = (ROOT / "CITATION.cff").read_text()
    assert 'name: "the ptxforge authors"' in text
    assert not re.search(r"email|orcid|given-names|family-names", text)


def test_the_licence_is_one():
    assert PROJECT["license"] == "Apache-2.0"
    assert "license: Apache-2.0" in (ROOT / "CITATION.cff").read_text()
    assert not [c for c in PROJECT["classifiers"] if c.startswith("License")]  # an expression says it


def test_the_classifiers_agree():
    oldest = re.search(r">=3\.(\d+)", PROJECT["requires-python"])[1]
    minors = [c.rpartition(".")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert minors and min(minors, key=int) == oldest
    assert "Typing :: Typed" in PROJECT["classifiers"]


@pytest.mark.parametrize("name", PAPERS)
def test_links_lead_somewhere(name):
    text = re.sub(r"```.*?```", "", (ROOT / name).read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), f"{name} links to {target}"
