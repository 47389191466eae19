"""Every page of the tutorial runs as it stands, in seconds, and prints what it says.

A fence marked ``text`` shows what the fences marked ``python`` before it printed. ``--update-golden``
rewrites it. The pages of a folder are numbered, and each leads to the next one.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "tutorial").glob("*.md"))
FENCE = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(text: str, folder: Path) -> list[tuple[str, str, str]]:
    """For each fence its kind, its text, and what was printed since the fence before."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    found, printed = [], ""
    for number, (kind, body) in enumerate(FENCE.findall(text)):
        if kind == "text":
            found.append((kind, body, printed))
            printed = ""
            continue
        assert not printed, f"what was printed before this is not shown: {printed}"
        path = folder / f"part{number}.py"  # kernels are read from their file
        path.write_text(body)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(body, str(path), "exec"), names)
        printed = output.getvalue()
        found.append((kind, body, ""))
    assert not printed, f"not shown: {printed}"
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page(path, tmp_path, request):
    text = path.read_text()
    fences = run(text, tmp_path)
    if request.config.getoption("--update-golden"):
        outputs = iter(fences)
        path.write_text(FENCE.sub(lambda match: _shown(match, next(outputs)), text))
        return
    shown = [(body, printed) for kind, body, printed in fences if kind == "text"]
    assert shown, "a page ends with a picture or a figure"
    for body, printed in shown:
        assert body == printed


def _shown(match: re.Match, fence: tuple[str, str, str]) -> str:
    kind, body, printed = fence
    return f"```{kind}\n{body if kind == 'python' else printed}```"


def test_there_are_seven_steps_in_order():
    assert [path.name[0] for path in PAGES] == list("1234567")
    for path, following in zip(PAGES, PAGES[1:], strict=False):
        assert f"]({following.name})" in path.read_text(), f"{path.name} does not lead to {following.name}"
