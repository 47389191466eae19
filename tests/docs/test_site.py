"""The site of ``docs/`` can be built, its links lead somewhere, and it says what the code says."""

from __future__ import annotations

import doctest
import html
import importlib.util
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.cli import COMMANDS
from ptxforge.support import settings
from ptxforge.support.not_there import NOT_THERE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs/hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(path: Path) -> str:
    """What a reader sees of a page."""
    body = path.read_text(encoding="utf-8").partition("<article")[2]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", body)))


def test_every_page_is_there(site):
    for path in (ROOT / "docs").rglob("*.md"):
        built = site / path.relative_to(ROOT / "docs").with_suffix(".html")
        assert built.is_file(), path


def test_a_page_has_one_title(site):
    """With several, the site shows no table of contents beside the page."""
    for path in site.rglob("*.html"):
        assert path.name == "404.html" or path.read_text(encoding="utf-8").count("<h1") == 1, path


def test_nothing_is_fetched_from_elsewhere(site):
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|link rel="stylesheet")[^>]+(?:src|href)="(https?:[^"]+)"', text)
        assert not fetched, f"{path.name}: {fetched}"


def test_settings_and_commands_are_the_codes(site):
    shown = text_of(site / "settings.html")
    for setting in settings.ALL:
        assert setting.name in shown and re.sub(r"\s+", " ", setting.meaning) in shown
    shown = text_of(site / "index.html")
    for name, meaning in COMMANDS.items():
        assert f"python -m ptxforge {name}" in shown and meaning in shown


def test_names_that_are_not_there_have_their_reasons(site):
    shown = text_of(site / "not-there.html")
    for name, entry in NOT_THERE.items():
        assert name in shown and entry.why in shown and entry.instead in shown


def test_the_reference_says_what_help_says(site):
    shown = text_of(site / "reference.html")
    plain = re.sub(r"[^\w]+", "", shown)
    for package in (ptxforge, tl):
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.ismodule(value) or not callable(value) or not inspect.getdoc(value):
                continue
            first = inspect.getdoc(value).partition("\n")[0]
            first = re.sub(r":\w+:`~?([^`]+)`", lambda match: match[1], first)
            assert re.sub(r"[^\w]+", "", first) in plain, name


def test_docstrings_become_markdown(hooks):
    text = "Reads ``x`` as :class:`~a.B` does.\n\n    y = f(x)\n    z = 1\n\n>>> f(1)\n2"
    assert hooks.as_markdown(text).split("\n") == [
        "Reads `x` as `a.B` does.", "", "", "```python", "y = f(x)", "z = 1", "```", "", "", "", "```python",
        ">>> f(1)", "2", "```",
    ]  # fmt: skip


def test_the_first_example_runs(capsys):
    runpy.run_path(str(ROOT / "docs/first.py"))
    assert capsys.readouterr().out.startswith("[1.000e+00 2.000e+00")


def test_the_page_on_arrays():
    found = doctest.testfile(str(ROOT / "docs/arrays.md"), module_relative=False)
    assert found.attempted > 5 and not found.failed
