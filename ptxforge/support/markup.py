"""Small pieces of HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def table(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values side by side.

    >>> table([("warps", 4)])
    '<table><tr><th style="text-align:left">warps</th><td style="text-align:left">4</td></tr></table>'
    """
    left = 'style="text-align:left"'
    cells = (f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(str(v))}</td></tr>" for name, v in rows)
    return f"<table>{''.join(cells)}</table>"


def code(text: str) -> str:
    """A text as it stands."""
    return f'<pre style="max-height:30em;overflow:auto">{escape(text)}</pre>'


def folded(title: str, body: str) -> str:
    """``body`` (HTML) under a title that opens it."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"
