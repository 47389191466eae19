"""What a stranger sees first: the project's papers agree with the package."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

import ptxforge
import ptxforge.language as tl

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


def listing(names: set[str]) -> str:
    """``__all__`` of these names, in rows as wide as they may be."""
    rows = ["   "]
    for name in sorted(names):
        if len(rows[-1]) + len(name) + 4 > 108:
            rows.append("   ")
        rows[-1] += f' "{name}",'
    return "\n".join(["__all__ = [", *rows, "]"])


@pytest.mark.parametrize("package", [ptxforge, tl], ids=["ptxforge", "ptxforge.language"])
def test_every_public_name_is_listed_and_seen_by_type_checkers(package, request):
    """What is imported, at run time or for type checkers only, is in ``__all__``, and the other way round: to
    a type checker, a name of a typed package that ``__all__`` lacks is not public. ``--update-golden``
    rewrites the list."""
    path = Path(package.__file__)
    text = path.read_text()
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("ptxforge")
        for alias in node.names
        if not (alias.asname or alias.name).startswith("_")
    }
    public = imported | ({"__version__"} if package is ptxforge else {"TRITON_MAX_TENSOR_NUMEL", "tuple"})
    if request.config.getoption("--update-golden"):
        path.write_text(re.sub(r"^__all__ = \[.*?\]", listing(public), text, flags=re.DOTALL | re.MULTILINE))
        return
    assert set(package.__all__) == public
    assert len(package.__all__) == len(set(package.__all__))
    assert all(hasattr(package, name) for name in package.__all__)


def test_all_that_is_loaded_when_first_used_is_public():
    """Else help(), the site and type checkers do not know of it."""
    assert {*ptxforge._HOME, *ptxforge._MODULES, "__version__"} == set(ptxforge.__all__) == set(dir(ptxforge))


LISTING = [path for path in sorted((ROOT / "ptxforge").rglob("*.py")) if "\n__all__ = " in path.read_text()]


@pytest.mark.parametrize("path", LISTING, ids=lambda path: str(path.relative_to(ROOT)))
def test_listed_names_exist(path):
    """``__all__`` of a package may name modules that have moved into others: no linter reads it there."""
    module = importlib.import_module(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    )
    assert not [name for name in module.__all__ if not hasattr(module, name)]
