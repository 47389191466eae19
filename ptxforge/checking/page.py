"""Reports as one self-contained HTML page."""

from __future__ import annotations

import linecache
from html import escape

from ptxforge.checking.catalogue import SEVERITIES
from ptxforge.checking.issues import Issue, Place, Report

_AROUND = 3
"""Source lines shown before and after the line of an issue."""

_STYLE = """
:root { --ink: #1d2433; --paper: #ffffff; --soft: #f4f5f7; --line: #d9dde3; --error: #b3261e;
        --warning: #8a5a00; --note: #2456a6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ef; --paper: #14181f; --soft: #1d232d; --line: #333c49; --error: #ff8a80;
          --warning: #ffc266; --note: #8ab8ff; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 0; }
article { border: 1px solid var(--line); border-left-width: 6px; border-radius: 4px; padding: 1rem;
          margin: 1rem 0; }
.error { border-left-color: var(--error); } .warning { border-left-color: var(--warning); }
.note { border-left-color: var(--note); }
.error h2 b { color: var(--error); } .warning h2 b { color: var(--warning); }
.note h2 b { color: var(--note); }
pre { background: var(--soft); padding: .5rem; overflow-x: auto; margin: .75rem 0; border-radius: 4px; }
mark { background: none; color: inherit; font-weight: 700; border-bottom: 2px solid currentColor; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: .5rem 0 0; }
dt { opacity: .7; } dd { margin: 0; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
"""


def page(report: Report, title: str) -> str:
    """The page. It needs no other file and no network."""
    body = "\n".join(map(_article, report.issues)) or "<p>Nothing was found.</p>"
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"<p>{escape(report.summary())}</p>\n{_contents(report)}{body}\n</body></html>\n"
    )


def _contents(report: Report) -> str:
    counts = [(severity, report.count(severity)) for severity in SEVERITIES]
    rows = "".join(f"<dt>{severity}s</dt><dd>{number}</dd>" for severity, number in counts)
    return f"<dl>{rows}</dl>\n"


def _article(issue: Issue) -> str:
    where = f" at <code>{escape(str(issue.place))}</code>" if issue.place else ""
    what = f"{escape(issue.kind)} in <code>{escape(issue.kernel)}</code>"
    head = f"<h2><b>{issue.severity}</b>: {what}{where}</h2>"
    parts = [head, f"<p>{escape(issue.message)}</p>", _source(issue.place)]
    if issue.other is not None and issue.other != issue.place:
        what = "The access" if issue.kind == "overflow" else "The other access"
        parts += [f"<p>{what}, at <code>{escape(str(issue.other))}</code>:</p>", _source(issue.other)]
    facts = [
        ("element", issue.element),
        ("program", "" if issue.program is None else str(issue.program)),
        ("thread", "" if issue.thread is None else str(issue.thread)),
        ("seen", f"{issue.count} times in {issue.launches} launches"),
        ("why", issue.entry.reason),
        ("cure", issue.entry.cure),
        ("PTX", issue.ptx),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts if text)
    return f'<article class="{issue.severity}">\n' + "\n".join(parts) + f"\n<dl>{rows}</dl>\n</article>"


def _source(place: Place | None) -> str:
    lines = linecache.getlines(place.file) if place is not None else []
    if place is None or not 1 <= place.line <= len(lines):
        return ""
    first, last = max(1, place.line - _AROUND), min(len(lines), place.line + _AROUND)
    width = len(str(last))
    rows = []
    for number in range(first, last + 1):
        text = escape(lines[number - 1].rstrip())
        rows.append(f"{number:>{width}}  " + (f"<mark>{text}</mark>" if number == place.line else text))
    return "<pre>" + "\n".join(rows) + "</pre>"
