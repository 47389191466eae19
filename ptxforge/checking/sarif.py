"""Reports as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format"), which editors and CI read."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from ptxforge import __version__
from ptxforge.checking.issues import CATALOGUE, Issue, Place, Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def sarif(report: Report, root: Path | None = None) -> dict[str, Any]:
    """The SARIF log of a report. Files below ``root`` are named relative to it."""
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
