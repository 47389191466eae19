"""Findings of many launches put together, one :class:`Issue` per kernel, kind and source line; and what can
be found: how bad it is, what it means, what to do (docs/debugging.md has one entry for each)."""

from __future__ import annotations

import re
from typing import Any

import attrs

from ptxforge.runtime.findings import Launch, element_of
from ptxforge.support import markup
from ptxforge.support.location import Location, snippet

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)  # the worst first


@attrs.frozen(slots=True)
class Entry:
    """One kind of finding: its severity, the reason why it is wrong, and the cure."""

    severity: str
    reason: str
    cure: str


CATALOGUE: dict[str, Entry] = {
    "out-of-bounds": Entry(
        ERROR,
        "the address lies outside every array that the kernel was given; a GPU stops with an error, or reads "
        "and overwrites what lies there",
        "mask the access with the array's size, or correct the grid, the strides or the offsets",
    ),
    "misaligned": Entry(
        ERROR,
        "the address is no multiple of the access's size; a GPU stops with an error",
        "pass an array whose address is aligned, and promise with multiple_of only what is true",
    ),
    "race": Entry(
        ERROR,
        "two threads of one program touch the same memory, one of them writes, and no barrier orders them: "
        "the result depends on which comes first",
        "put tl.debug_barrier() between the two accesses, or use an atomic operation for both",
    ),
    "uninitialised": Entry(
        ERROR,
        "memory is read that nothing has written, so that the value is whatever was there before",
        "write it first: look for a missing store, or a mask that is wider at the load than at the store",
    ),
    "barrier": Entry(
        ERROR,
        "some threads of the program reach a barrier, or a warp's exchange, that others do not",
        "move the barrier out of the branch",
    ),
    "global-race": Entry(
        ERROR,
        "two programs touch the same memory, one of them writes, and nothing orders them: programs run in "
        "any order and at the same time",
        "let each program own what it writes, use atomics for both accesses, or split the kernel into two "
        "launches",
    ),
    "async": Entry(
        ERROR,
        "an asynchronous copy or product is still under way when its data is touched",
        "wait for its group or its mbarrier first",
    ),
    "proxy": Entry(
        ERROR,
        "a bulk copy or wgmma reads through the async proxy what an ordinary store wrote, with no "
        "fence.proxy.async between",
        "let the storing threads execute the fence before the barrier",
    ),
    "copy-proxy": Entry(
        WARNING,
        "a bulk copy or wgmma reads what a cp.async wrote, with no fence.proxy.async between; PTX asks for "
        "it, shipped compilers leave it out",
        "let the copying threads wait and execute the fence before the barrier",
    ),
    "cluster": Entry(
        ERROR,
        "shared memory of another CTA of the cluster is accessed before it is known to run, or when it may "
        "have ended",
        "put a barrier of the cluster before the first such access and after the last",
    ),
    "register": Entry(
        ERROR,
        "an address or a branch depends on a register that no path has written",
        "correct the PTX or the inline assembly that reads it",
    ),
    "deadlock": Entry(
        ERROR,
        "threads wait for something that can never happen; a GPU hangs",
        "look for a barrier in a branch, a lock that is not released, or a flag that nobody sets",
    ),
    "livelock": Entry(
        ERROR,
        "threads go on and on without any change that another thread could see; a GPU hangs",
        "look for a loop whose condition never becomes false, or a lock that is never free",
    ),
    "limit": Entry(
        ERROR,
        "the launch was stopped because it exceeded its limit of steps or seconds",
        "look for a loop that does not end, use a smaller grid, or raise the limit (PTXFORGE_STEP_LIMIT, "
        "PTXFORGE_TIME_LIMIT)",
    ),
    "trap": Entry(ERROR, "the kernel executed trap", "find out what it guards"),
    "assert": Entry(ERROR, "a device_assert failed", "look at the values that its condition compares"),
    "overflow": Entry(
        ERROR,
        "the offset is computed in 32 bits and wraps around before it is added to a pointer: the access goes "
        "somewhere else",
        "compute it in 64 bits: tl.program_id(0).to(tl.int64), or pass the stride as a 64-bit integer",
    ),
    "promise": Entry(
        ERROR,
        "what the kernel promises with multiple_of, max_contiguous, max_constancy or assume is not true, and "
        "the compiler relies on it",
        "correct the promise, or the arguments",
    ),
    "non-finite": Entry(
        WARNING,
        "an operation makes a NaN or an infinity of finite inputs",
        "look at the inputs: a division by zero, the logarithm of a negative number, exp of a large one "
        "(take the maximum off first), or a sum that leaves the range of its type",
    ),
    "order": Entry(
        WARNING,
        "the result depends on the order in which programs run by more than rounding explains",
        "let each program own what it writes; atomics that add floats differ by rounding only",
    ),
    "unused-mask": Entry(
        NOTE,
        "the mask was true for every element of every program that ran",
        "it costs instructions; with a size that is always a multiple of the block, leave it out",
    ),
    "false-mask": Entry(
        NOTE,
        "the mask was false for every element of every program that ran: the access never happens",
        "look whether the condition is what you meant",
    ),
}


def rank(severity: str) -> int:
    """0 for the worst severity."""
    return SEVERITIES.index(severity)


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
