"""Reports for others: one self-contained HTML page, and SARIF for editors and CI."""

from __future__ import annotations

import linecache
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ptxforge import __version__
from ptxforge.checking.issues import CATALOGUE, Issue, Place, Report

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
.error { --mark: var(--error); } .warning { --mark: var(--warning); } .note { --mark: var(--note); }
article { border-left-color: var(--mark); } h2 b { color: var(--mark); }
pre { background: var(--soft); padding: .5rem; overflow-x: auto; margin: .75rem 0; border-radius: 4px; }
pre i { font-style: normal; opacity: .5; }
mark { background: none; color: inherit; font-weight: 700; border-bottom: 2px solid var(--mark); }
mark.other { border-bottom-style: dotted; }
h1, h2, p, dd, td { overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 1rem 0; } td { padding: .2rem 1rem .2rem 0; vertical-align: top; }
td:first-child { border-left: 6px solid var(--mark); padding-left: .6rem; } td b { color: var(--mark); }
a { color: inherit; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: .5rem 0 0; }
dt { opacity: .7; } dd { margin: 0; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
"""


def page(report: Report, title: str) -> str:
    """The page. It needs no other file and no network."""
    articles = [_article(number, issue) for number, issue in enumerate(report.issues)]
    body = "\n".join(articles) or "<p>Nothing was found.</p>"
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"<p>{escape(report.summary())}</p>\n{_contents(report)}{body}\n</body></html>\n"
    )


def _contents(report: Report) -> str:
    """A line for each issue, the worst first, which leads to it."""
    rows = []
    for number, issue in enumerate(report.issues):
        where = f"<code>{escape(_name(issue.place))}</code>" if issue.place else ""
        what = f'<a href="#issue-{number}">{escape(issue.kind)}</a> in <code>{escape(issue.kernel)}</code>'
        rows.append(f'<tr class="{issue.severity}"><td><b>{issue.severity}</b><td>{what}<td>{where}</tr>')
    return f"<table>{''.join(rows)}</table>\n" if len(rows) > 1 else ""


def _name(place: Place) -> str:
    """``file:line``, from the current folder on where the file is in it."""
    path = Path(place.file)
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{here}:{place.line}"


def _article(number: int, issue: Issue) -> str:
    where = f" at <code>{escape(_name(issue.place))}</code>" if issue.place else ""
    what = f"{escape(issue.kind)} in <code>{escape(issue.kernel)}</code>"
    head = f"<h2><b>{issue.severity}</b>: {what}{where}</h2>"
    parts = [head, f"<p>{escape(issue.message)}</p>", *_sources(issue)]
    launches = "" if issue.launches == 1 else f" in {issue.launches} launches"
    facts = [
        ("element", escape(issue.element)),
        ("program", "" if issue.program is None else str(issue.program)),
        ("thread", "" if issue.thread is None else str(issue.thread)),
        ("seen", f"{issue.count} time{'s' * (issue.count != 1)}{launches}"),
        ("why", escape(issue.entry.reason)),
        ("cure", escape(issue.entry.cure)),
        ("PTX", f"<code>{escape(issue.ptx)}</code>" if issue.ptx else ""),
    ]
    rows = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts if text)
    start = f'<article class="{issue.severity}" id="issue-{number}">\n'
    return start + "\n".join(parts) + f"\n<dl>{rows}</dl>\n</article>"


def _sources(issue: Issue) -> list[str]:
    """The source of an issue, and that of the other access; in one piece where they are near."""
    place, other = issue.place, issue.other
    if other is None or other == place or place is None:
        return [_source(place)]
    if other.file == place.file and abs(other.line - place.line) <= 2 * _AROUND:
        return [_source(place, other.line)]
    what = "The access" if issue.kind == "overflow" else "The other access"
    return [_source(place), f"<p>{what}, at <code>{escape(_name(other))}</code>:</p>", _source(other)]


def _source(place: Place | None, other: int | None = None) -> str:
    """The lines around a place, which is marked; so is the line ``other``."""
    lines = linecache.getlines(place.file) if place is not None else []
    if place is None or not 1 <= place.line <= len(lines):
        return ""
    marked = {other or place.line, place.line}
    first, last = max(1, min(marked) - _AROUND), min(len(lines), max(marked) + _AROUND)
    while first < min(marked) and not lines[first - 1].strip():
        first += 1
    while last > max(marked) and (not lines[last - 1].strip() or lines[last - 1][0] in "@d"):
        last -= 1  # of the next function
    width = len(str(last))
    rows = []
    for number in range(first, last + 1):
        text = lines[number - 1].rstrip()
        body = text.lstrip()
        shown = escape(text)
        if number in marked:
            kind = "" if number == place.line else ' class="other"'
            shown = f"{text[: len(text) - len(body)]}<mark{kind}>{escape(body)}</mark>"
        rows.append(f"<i>{number:>{width}}</i>  {shown}")
    return "<pre>" + "\n".join(rows) + "</pre>"


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def sarif(report: Report, root: Path | None = None) -> dict[str, Any]:
    """The log of a report in SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"). Files below
    ``root`` are named relative to it."""
    kinds = sorted({issue.kind for issue in report.issues})
    driver = {"name": "ptxforge", "version": __version__, "rules": [_rule(kind) for kind in kinds]}
    results = [_result(issue, kinds.index(issue.kind), root) for issue in report.issues]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: str) -> dict[str, Any]:
    entry = CATALOGUE[kind]
    return {
        "id": kind,
        "shortDescription": {"text": entry.reason},
        "help": {"text": entry.cure},
        "defaultConfiguration": {"level": entry.severity},
    }


def _result(issue: Issue, rule: int, root: Path | None) -> dict[str, Any]:
    message = f"{issue.kind} in kernel '{issue.kernel}': {issue.message}"
    if issue.element:
        message += f"; {issue.element}"
    found: dict[str, Any] = {
        "ruleId": issue.kind,
        "ruleIndex": rule,
        "level": issue.severity,
        "message": {"text": f"{message}. Cure: {issue.entry.cure}."},
        "occurrenceCount": issue.count,
        "locations": [] if issue.place is None else [{"physicalLocation": _location(issue.place, root)}],
    }
    if issue.other is not None:
        what = "the access" if issue.kind == "overflow" else "the other access"
        there = {"physicalLocation": _location(issue.other, root), "message": {"text": what}}
        found["relatedLocations"] = [there]
    return found


def _location(place: Place, root: Path | None) -> dict[str, Any]:
    region = {"startLine": max(place.line, 1)} | ({"startColumn": place.column} if place.column else {})
    return {"artifactLocation": {"uri": _uri(Path(place.file), root)}, "region": region}


def _uri(file: Path, root: Path | None) -> str:
    if root is not None and file.is_absolute() and file.is_relative_to(root):
        file = file.relative_to(root)
    return file.as_uri() if file.is_absolute() else quote(file.as_posix())
