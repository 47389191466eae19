"""Findings of many launches put together: one :class:`Issue` per kernel, kind and source line."""

from __future__ import annotations

import re
from typing import Any

import attrs

from ptxforge.checking.catalogue import CATALOGUE, SEVERITIES, Entry, rank
from ptxforge.runtime.findings import Launch, element_of
from ptxforge.support import markup
from ptxforge.support.location import Location, snippet


@attrs.frozen(slots=True)
class Place:
    """A position in the user's source: ``line`` counts from 1, ``column`` from 1 (0: not known)."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def shown(self) -> str:
        """The source line with a caret; empty when the file cannot be read."""
        return snippet(Location(self.file, self.line, max(0, self.column - 1)), context=0)


@attrs.define(slots=True, repr=False)
class Issue:
    """One thing that is wrong with a kernel.

    ``place`` is the source line, ``other`` the second line of a race; ``element`` names the argument and
    index, ``program`` and ``thread`` are the first that had it, ``count`` how often it was seen, in
    ``launches`` launches; ``ptx`` is the instruction.
    """

    kernel: str
    kind: str
    message: str
    place: Place | None
    other: Place | None = None
    element: str = ""
    program: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    count: int = 1
    launches: int = 1
    ptx: str = ""

    @property
    def entry(self) -> Entry:
        """What the catalogue says about this kind."""
        return CATALOGUE[self.kind]

    @property
    def severity(self) -> str:
        """``"error"``, ``"warning"`` or ``"note"``."""
        return self.entry.severity

    @property
    def key(self) -> tuple:
        """Issues with the same key are one."""
        places = [(place.file, place.line) if place else None for place in (self.place, self.other)]
        return self.kernel, self.kind, *places, "" if self.place else self.message

    def data(self) -> dict[str, Any]:
        """Everything as strings, numbers, lists and dictionaries."""
        return {
            "severity": self.severity,
            "kind": self.kind,
            "kernel": self.kernel,
            "message": self.message,
            "place": None if self.place is None else attrs.asdict(self.place),
            "other": None if self.other is None else attrs.asdict(self.other),
            "element": self.element,
            "program": None if self.program is None else list(self.program),
            "thread": None if self.thread is None else list(self.thread),
            "count": self.count,
            "launches": self.launches,
            "reason": self.entry.reason,
            "cure": self.entry.cure,
            "ptx": self.ptx,
        }

    def headline(self) -> str:
        """What, in which kernel, where."""
        where = f" at {self.place}" if self.place else ""
        return f"{self.severity}: {self.kind} in kernel '{self.kernel}'{where}"

    def __repr__(self) -> str:
        return f"<{self.headline()}>"

    def _repr_html_(self) -> str:
        """For notebooks: the source, and the facts beside their names."""
        places = [place for place in (self.place, self.other) if place is not None and place.shown()]
        shown = "".join(markup.code(place.shown()) for place in dict.fromkeys(places))
        facts = [("finding", self.headline()), ("what", self.message), *self._details()]
        return markup.table((name, text) for name, text in facts if text) + shown

    def __str__(self) -> str:
        lines = [self.headline()]
        shown = self.place.shown() if self.place else ""
        lines += [f"  {row}" for row in shown.splitlines()]
        lines.append(f"  {self.message}")
        if self.other is not None and self.other != self.place:
            what = "the access is at" if self.kind == "overflow" else "the other access is at"
            lines.append(f"  {what} {self.other}")
            lines += [f"  {row}" for row in self.other.shown().splitlines()]
        lines += [f"  {name}: {text}" for name, text in self._details() if text]
        return "\n".join(lines)

    def _details(self) -> list[tuple[str, str]]:
        seen = [
            f"program {self.program}" if self.program else "",
            f"thread {self.thread}" if self.thread else "",
        ]
        first = ", ".join(part for part in seen if part)
        launches = "" if self.launches == 1 else f" in {self.launches} launches"
        times = f"{self.count} times{launches}" if self.count > 1 or launches else ""
        return [
            ("element", self.element),
            ("first seen" if first else "seen", "; ".join(part for part in (first, times) if part)),
            ("why", self.entry.reason),
            ("cure", self.entry.cure),
        ]


_PTX_LINE = re.compile(r"PTX line \d+ \((.+?:\d+)\)")
"""A place that has a source line: the line in the PTX tells a user nothing more."""


def issue_of(finding: Any, launch: Launch) -> Issue:
    """The issue that a finding of the emulator is."""
    return Issue(
        kernel=launch.variant.name,
        kind=finding.kind,
        message=_PTX_LINE.sub(r"\1", finding.message),
        place=_place(finding.source),
        other=_place(finding.other.source) if finding.other is not None else None,
        element=element_of(finding, launch),
        program=finding.cta,
        thread=finding.thread,
        count=finding.count,
        ptx=finding.instruction,
    )


def _place(source: Any) -> Place | None:
    return None if source is None else Place(source.file, source.line, source.column)


@attrs.define(slots=True, repr=False)
class Report:
    """What was found: ``issues``, and how often each kernel was launched (``launches``). ``launch`` is the
    number of the launch that issues are added for now."""

    _issues: dict[tuple, Issue] = attrs.field(factory=dict)
    launches: dict[str, int] = attrs.field(factory=dict)
    launch: int = 0
    _seen_in: dict[tuple, int] = attrs.field(factory=dict)

    @property
    def issues(self) -> list[Issue]:
        """All issues: the worst first, then by kernel and line."""
        return sorted(self._issues.values(), key=_order)

    def add(self, issue: Issue) -> None:
        """Add an issue, or to the count of one that is known."""
        known = self._issues.setdefault(issue.key, issue)
        if known is not issue:
            known.count += issue.count
            known.launches += self._seen_in[issue.key] != self.launch
        self._seen_in[issue.key] = self.launch

    def count(self, severity: str) -> int:
        """The number of issues of a severity."""
        return sum(issue.severity == severity for issue in self._issues.values())

    def failing(self, fail_on: str) -> list[Issue]:
        """The issues that are at least as bad as ``fail_on`` (a severity; none for ``"never"``)."""
        if fail_on == "never":
            return []
        return [issue for issue in self.issues if rank(issue.severity) <= rank(fail_on)]

    def summary(self) -> str:
        """One line: kernels, launches, and how many issues there are."""
        counts = [(self.count(severity), severity) for severity in SEVERITIES]
        found = ", ".join(f"{number} {name}{'s' * (number != 1)}" for number, name in counts)
        kernels, launches = len(self.launches), sum(self.launches.values())
        where = f"{kernels} kernel{'s' * (kernels != 1)} in {launches} launch{'es' * (launches != 1)}"
        return f"{where} checked: {found}"

    def data(self) -> dict[str, Any]:
        """Everything as strings, numbers, lists and dictionaries; what ``--json`` writes."""
        return {
            "version": 1,
            "kernels": [{"name": name, "launches": count} for name, count in sorted(self.launches.items())],
            "issues": [issue.data() for issue in self.issues],
            "counts": {severity: self.count(severity) for severity in SEVERITIES},
        }

    def __repr__(self) -> str:
        return f"<Report: {self.summary()}>"

    def _repr_html_(self) -> str:
        """For notebooks: a line for each issue, which opens."""
        rows = [markup.folded(issue.headline(), issue._repr_html_()) for issue in self.issues]
        return markup.code(self.summary()) + "".join(rows)

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.issues), self.summary()])


def _order(issue: Issue) -> tuple:
    place = issue.place or Place("", 0)
    other = issue.other or Place("", 0)
    return rank(issue.severity), issue.kernel, place.file, place.line, issue.kind, other.file, other.line
