"""What was measured in a laboratory stands in ``docs/performance.md``, not in code: there it grows old
unseen."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "ptxforge"
FIGURES = re.compile(
    r"\d\s?(µs|us|ns|ms|%|[GT]B/s|TFLOP\S*)(?!\w)"
    r"|\d (nano|micro|milli)?seconds|\d cycles"
    r"|ptxas \d+\.\d+[^.]*\d registers"
    r"|\b(on an?|an?) [AH]\d00 .{0,60}\d"
)
"""Times, shares and rates; what a version of the assembler does with registers; what a GPU does."""
NOT_MEASURED = re.compile(r"\d+ %,? (and )?80 %")
"""Quantiles."""
LEFT = {
    "language/extra/cuda.py": "how often a GPU's clock advances",
    "support/machine.py": "the constants of machines, each with its unit",
}
"""Files that may have figures in their text, and what they are."""


def prose(source: str) -> list[str]:
    """The comments and docstrings of a file, each on a line; comments below each other are one."""
    found = [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    ]
    below = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            text = token.string.lstrip("#")
            if token.start[0] == below + 1:
                found[-1] += text
            else:
                found.append(text)
            below = token.start[0]
    return [" ".join(text.split()) for text in found]


def figures(source: str) -> list[str]:
    if not FIGURES.search(" ".join(source.replace("#", " ").split())):
        return []  # there are none in its code either: reading it costs less than parsing it
    texts = (NOT_MEASURED.sub("", text) for text in prose(source))
    return [found[0] for text in texts for found in FIGURES.finditer(text)]


def test_code_has_no_figures_of_the_laboratory():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        measured = figures(path.read_text())
        if measured:
            found[path.relative_to(ROOT).as_posix()] = measured
    assert not found.keys() - LEFT.keys(), found
    assert not LEFT.keys() - found.keys(), "these have none any more: take them out of the list"


@pytest.mark.parametrize("text", [
    "faster (by 13 %)", "does that in 10 µs", "on an H200 it takes\n    28 instructions", "some 150 cycles",
    "reaches 700 TFLOP/s", "4.8 TB/s of memory", "ptxas 13.0, interpolation: 138\n    registers",
    "done in 3 seconds",
])  # fmt: skip
def test_figures_are_found(text):
    assert figures(f'def f():\n    """It is {text}."""\n')
    comment = text.replace("\n   ", "\n    #")
    assert figures(f"def f():\n    # It is {comment}.\n    pass\n")


@pytest.mark.parametrize("text", [
    "`x % 16` is 0", "milliseconds (median, 20 %, 80 %) of each", "128 registers", "as an H200 does",
])  # fmt: skip
def test_what_is_no_figure(text):
    assert not figures(f'"""It is {text}."""\n')
