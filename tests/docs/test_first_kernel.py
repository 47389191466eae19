"""The page for a new user, followed word by word: its file, its commands, its edit; outputs are as it says.

``--update-golden`` rewrites the outputs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "first-kernel.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(text: str, folder: Path) -> list[tuple[str, str]]:
    """(what the page shows, what is printed) for each output on the page."""
    script, printed, found = folder / "centre.py", "", []
    for kind, body in FENCE.findall(text):
        if kind == "python":
            script.write_text(body)
        elif kind == "diff":
            old, new = (line[1:] for line in body.splitlines())
            assert script.read_text().count(old) == 1
            script.write_text(script.read_text().replace(old, new))
        elif kind == "sh":
            printed = "".join(run(line, folder) for line in body.splitlines() if line.startswith("python"))
        elif kind == "text":
            found.append((body, printed))
    return found


def run(command: str, folder: Path) -> str:
    """What a command prints."""
    words = [sys.executable, *command.split()[1:]]
    if "demo" in words:
        return ""  # has tests of its own
    known = os.pathsep.join(filter(None, [str(PAGE.parents[1]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": known}
    )
    return done.stdout


def test_the_page(tmp_path, request, monkeypatch):
    monkeypatch.delenv("PTXFORGE_DEVICE", raising=False)
    text = PAGE.read_text()
    found = follow(text, tmp_path)
    if request.config.getoption("--update-golden"):
        outputs = iter(printed for _, printed in found)
        fences = re.compile(r"^```text\n.*?^```$", re.MULTILINE | re.DOTALL)
        again = fences.sub(lambda _: f"```text\n{next(outputs)}```", text)
        PAGE.write_text(again)
        return
    assert len(found) == 2 and "error: out-of-bounds in kernel 'centre' at centre.py:10" in found[0][1]
    for shown, printed in found:
        assert shown == printed
