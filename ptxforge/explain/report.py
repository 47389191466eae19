"""Everything that is known of one compiled kernel, and its text, with advice by source line: what keeps a
kernel from being fast, why, and what to do about it.

Each piece of advice follows from facts that the other modules collect; none guesses what the kernel is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from ptxforge.explain.memory import Access, Area, Conflict, areas_of, conflicts_of
from ptxforge.explain.resources import resources_of
from ptxforge.explain.roofline import Counts, Product, Roofline, card_of, roofline
from ptxforge.explain.trace import Trace
from ptxforge.runtime.assembled import Resources
from ptxforge.support import markup
from ptxforge.support.location import Location
from ptxforge.support.target import Occupancy


@attrs.frozen(slots=True)
class Report:
    """A kernel explained. ``counts`` and ``roofline`` are there when it was run; ``roofline`` also needs
    figures of a card. ``str(report)`` is the text, :meth:`data` plain data."""

    trace: Trace
    resources: Resources
    occupancy: Occupancy
    areas: tuple[Area, ...]
    advice: tuple[Advice, ...]
    counts: Counts | None
    roofline: Roofline | None

    def __str__(self) -> str:
        parts = [_head(self), _resources(self), _accesses(self), _products(self), _loops(self), _shared(self)]
        if self.counts is not None:
            parts += [_counts(self), _findings(self), _roofline(self)]
        return "\n\n".join(part for part in [*parts, _advice(self)] if part)

    def _repr_html_(self) -> str:
        """For notebooks: the text."""
        return markup.code(str(self))

    def data(self) -> dict[str, Any]:
        """Numbers and texts as dictionaries and lists, for JSON."""
        made = self.trace.artifact
        return {
            "kernel": made.name,
            "target": made.target,
            "signature": made.signature,
            "constants": {name: str(value) for name, value in made.constants.items()},
            "options": made.options,
            "shared_bytes": made.shared_bytes,
            "resources": attrs.asdict(self.resources),
            "occupancy": attrs.asdict(self.occupancy),
            "advice": [
                {
                    "severity": a.severity, "kind": a.kind, "what": a.what, "cure": a.cure,
                    "file": a.location.file if a.location else None,
                    "line": a.location.line if a.location else None,
                }
                for a in self.advice
            ],
            "counters": self.counts.report.data() if self.counts else None,
            "findings": [str(finding) for finding in self.counts.findings] if self.counts else None,
        }  # fmt: skip


def explain(trace: Trace, counts: Counts | None = None, grid: tuple[int, int, int] = (1, 1, 1)) -> Report:
    """The report of a traced kernel, with what was counted on ``grid`` where it was run."""
    resources = resources_of(trace.artifact)
    made = trace.artifact
    occupancy = trace.target.occupancy(made.threads, resources.registers, made.shared_bytes)
    card = card_of(trace.target)
    blocks = grid[0] * grid[1] * grid[2]
    estimate = roofline(counts, card, blocks) if counts is not None and card is not None else None
    advice = advice_for(trace, resources, occupancy, counts)
    return Report(
        trace, resources, occupancy, tuple(areas_of(trace.function)), tuple(advice), counts, estimate
    )


# -- the text --------------------------------------------------------------------------------------------


def _at(location: Location | None) -> str:
    return f"{Path(location.file).name}:{location.line}" if location else "?"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Columns side by side, the first two to the left and the others to the right."""
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = []
    for row in [heads, *rows]:
        cells = [
            c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def _head(report: Report) -> str:
    made = report.trace.artifact
    kinds = ", ".join(f"{name}: {kind}" for name, kind in made.parameters)
    constants = ", ".join(f"{name}={value}" for name, value in made.constants.items())
    options = f"num_warps={made.num_warps}, num_stages={made.num_stages}"
    options += f", num_ctas={made.num_ctas}" if made.num_ctas > 1 else ""
    with_constants = f"\n  constants  {constants}" if constants else ""
    return f"{made.name} for {made.target}, {options}\n  parameters {kinds}{with_constants}"


def _resources(report: Report) -> str:
    used, fit, made = report.resources, report.occupancy, report.trace.artifact
    spills = f", {used.spilled} bytes of spills" if used.by == "ptxas" else "; spills are not known"
    return "\n".join([
        "resources",
        f"  {used.registers} registers a thread ({used.by}){spills}, {made.shared_bytes} bytes of shared "
        "memory",
        f"  occupancy: {fit.blocks} blocks, {fit.warps} of {fit.most} warps on a multiprocessor, limited by "
        f"{fit.limiter}",
    ])  # fmt: skip


def _accesses(report: Report) -> str:
    rows = [
        (
            _at(a.location), f"{a.kind} {a.array}".rstrip(), "x".join(map(str, a.shape)), a.element,
            f"{a.bytes}-{a.bytes * a.guarded // a.vector}" if a.guarded > a.vector else str(a.bytes),
            str(a.instructions), f"{a.sectors}/{a.best}", str(a.copies),
        )
        for a in report.trace.accesses
    ]  # fmt: skip
    heads = ("where", "access", "block", "type", "bytes at once", "instr/thread", "sectors/best", "copies")
    return "\n".join(["accesses to global memory", *_table(heads, rows)]) if rows else ""


def _products(report: Report) -> str:
    lines = []
    card = card_of(report.trace.target)
    for p in report.trace.products:
        batch = f"{p.batch} of " if p.batch > 1 else ""
        lines.append(
            f"  {_at(p.location)}  {batch}{p.m}x{p.n}x{p.k} {p.element} into {p.accumulator} by {p.unit}; "
            f"{p.intensity:.0f} operations for each byte of its operands"
        )
    if lines and card is not None:
        lines.append(
            f"  (f16 on {card.name}: from {card.balance:.0f} operations per byte of memory on, tensor cores "
            "are the limit; caches feed more)"
        )
    return "\n".join(["products", *lines]) if lines else ""


def _loops(report: Report) -> str:
    lines = []
    for loop in report.trace.loops:
        if loop.loads:
            how = f", by {loop.by} in {loop.stages} stages" if loop.ahead else ""
            lines.append(f"  {_at(loop.location)}  {loop.ahead} of {loop.loads} loads run ahead{how}")
    return "\n".join(["loops", *lines]) if lines else ""


def _shared(report: Report) -> str:
    rows = [
        (_at(a.location), a.what, str(a.offset), str(a.size), f"{a.first}-{a.last}") for a in report.areas
    ]
    heads = ("where", "what", "offset", "bytes", "operations")
    return "\n".join(["shared memory", *_table(heads, rows)]) if rows else ""


def _counts(report: Report) -> str:
    rows = []
    for row in report.counts.report.by_source:
        if row.source is None:
            continue
        sectors = f"{row.sectors_per_request:.1f}" if row.global_requests else ""
        conflicts = str(row.bank_conflicts) if row.shared_requests else ""
        rows.append((
            f"{Path(row.source.file).name}:{row.source.line}", str(row.instructions), sectors,
            str(row.global_bytes or ""), str(row.shared_requests or ""), conflicts, str(row.divergent or ""),
        ))  # fmt: skip
    heads = ("where", "warp instr", "sectors/req", "global bytes", "shared req", "conflicts", "divergent")
    return "\n".join(["counted by the emulator", *_table(heads, rows)])


def _findings(report: Report) -> str:
    found = [f"  {finding}" for finding in report.counts.findings]
    return "\n".join(["found by the emulator", *found]) if found else "found by the emulator: nothing wrong"


def _roofline(report: Report) -> str:
    estimate = report.roofline
    if estimate is None:
        return f"roofline: no figures for {report.trace.target}"
    if not estimate.bounds:
        return "roofline: nothing was done"
    lines = [
        f"  {bound.seconds * 1e6:10.3f} us  {bound.part}: {bound.work:,} {bound.unit}"
        for bound in estimate.bounds
    ]
    tensor = estimate.tensor_share
    share = f"\n  tensor cores are busy for at most {100 * tensor:.0f} % of the time" if tensor else ""
    return "\n".join([
        f"roofline: this launch takes at least {estimate.seconds * 1e6:.3f} us on one {estimate.card.name}, "
        f"limited by {estimate.limiter}",
        *lines,
    ]) + share  # fmt: skip


def _advice(report: Report) -> str:
    if not report.advice:
        return "advice: none"
    lines = []
    for advice in report.advice:
        where = _at(advice.location) if advice.location else report.trace.artifact.name
        lines += [f"  {where}: {advice.severity}: {advice.what}", f"      cure: {advice.cure}"]
    return "\n".join(["advice", *lines])


SEVERITIES = ("warning", "note")
SCATTERED = 2.0
"""Times as many sectors as needed from which on an access counts as scattered."""
FEW_INSTRUCTIONS = 2
"""Instructions of a thread up to which an access is not worth a warning, however narrow."""
FEW_WARPS = 8
"""Warps on a multiprocessor below which latencies are hardly hidden: two for each of its four parts."""

ONLY_REMARKED = (
    "not-prefetched", "not-by-tma", "not-by-wgmma", "not-flattened", "not-specialized", "not-multicast",
    "not-persistent", "not-in-flight",
)  # fmt: skip
"""Kinds of the compiler's remarks that no facts here stand for."""


@attrs.frozen(slots=True)
class Advice:
    """``what`` is the matter at ``location`` (``None``: with the kernel as a whole), by ``kind``; ``cure``
    says what to do. A ``warning`` costs time as a rule, a ``note`` may."""

    severity: str
    kind: str
    location: Location | None
    what: str
    cure: str


def advice_for(
    trace: Trace, resources: Resources, occupancy: Occupancy, counts: Counts | None = None
) -> list[Advice]:
    """All advice: of the whole kernel first, then by line."""
    found = [
        *_of_resources(resources, occupancy),
        *_of_accesses(trace.accesses),
        *_of_loops(trace),
        *_of_products(trace.products),
        *_of_remarks(trace),
        *_of_conflicts(conflicts_of(trace.function)),
        *(_of_counts(counts) if counts is not None else ()),
    ]
    unique = list(dict.fromkeys(found))
    return sorted(unique, key=_place)


def _place(advice: Advice) -> tuple:
    where = (advice.location.file, advice.location.line) if advice.location else ("", 0)
    return (*where, SEVERITIES.index(advice.severity))


def _of_resources(resources: Resources, occupancy: Occupancy) -> Iterator[Advice]:
    if resources.spilled:
        yield Advice(
            "warning", "spills", None,
            f"registers do not suffice: {resources.spilled} bytes of code move spilled ones",
            "more num_warps, smaller blocks, or fewer num_stages leave more registers to each value",
        )  # fmt: skip
    if resources.serialized:
        yield Advice(
            "warning", "serialized", None,
            f"the assembler makes each product wait for the one before, {resources.serialized}",
            "smaller blocks or more warps give each thread fewer sums",
        )  # fmt: skip
    if occupancy.blocks == 0:
        yield Advice("warning", "occupancy", None, f"no block fits: too much of {occupancy.limiter}",
                     "smaller blocks or fewer num_stages need less")  # fmt: skip
    elif occupancy.warps < FEW_WARPS:
        yield Advice(
            "note", "occupancy", None,
            f"{occupancy.warps} of {occupancy.most} warps fit on a multiprocessor, limited by "
            f"{occupancy.limiter}",
            "only what runs ahead hides latencies then: smaller blocks let more in",
        )  # fmt: skip


def _of_accesses(accesses: Iterable[Access]) -> Iterator[Advice]:
    for access in accesses:
        named = f"the {access.kind} {'to' if access.kind == 'store' else 'of'} '{access.array}'" if (
            access.array) else f"this {access.kind}"  # fmt: skip
        is_scattered = access.sectors >= SCATTERED * access.best
        sectors = f"up to {access.sectors} sectors per request, {access.best} would do"
        if access.why and access.guarded > access.vector:
            wide = access.guarded * access.bytes // access.vector
            yield Advice(
                "note", "access", access.location,
                f"{named} moves {wide} bytes at once where the kernel finds that it may, else "
                f"{access.bytes}: {access.why}",
                access.cure,
            )  # fmt: skip
        elif access.why:
            severity = "note" if access.instructions <= FEW_INSTRUCTIONS else "warning"
            yield Advice(
                severity, "access", access.location,
                f"{named} moves {access.bytes} bytes at once{f' ({sectors})' if is_scattered else ''}: "
                f"{access.why}",
                access.cure,
            )  # fmt: skip
        elif is_scattered:
            yield Advice(
                "warning", "sectors", access.location, f"{named} touches {sectors}",
                "let neighbouring elements of the block lie side by side in memory (order of dimensions, "
                "stride 1)",
            )  # fmt: skip
        if access.copies > 1 and access.kind != "store":
            yield Advice(
                "note", "replicated", access.location,
                f"{named} is done by {access.copies} threads for each element",
                "a larger block or fewer warps give every thread work of its own",
            )  # fmt: skip


def _of_loops(trace: Trace) -> Iterator[Advice]:
    for loop in trace.loops:
        for location, why, cure in loop.reasons:
            severity = "warning" if loop.has_dot else "note"
            yield Advice(severity, "pipeline", location, why, cure)


def _of_products(products: Iterable[Product]) -> Iterator[Advice]:
    for product in products:
        if product.unit == "fma":
            yield Advice("warning", "tensor cores", product.location, product.why, product.cure)


def _of_remarks(trace: Trace) -> Iterator[Advice]:
    """What the compiler says of its own decisions, as far as nothing above has said it."""
    for remark in trace.artifact.decisions:
        if remark.kind in ONLY_REMARKED:
            what, _, cure = remark.message.partition("; ")
            yield Advice("note", remark.kind, remark.location, what, cure or "see the passes' documentation")


def _of_conflicts(conflicts: Iterable[Conflict]) -> Iterator[Advice]:
    for conflict in conflicts:
        yield Advice(
            "note", "banks", conflict.location,
            f"exchanging threads' elements here has bank conflicts: {conflict.store} words one after the "
            f"other when written, {conflict.load} when read",
            "another shape of the block, or of the result, may need no exchange",
        )  # fmt: skip


def _of_counts(counts: Counts) -> Iterator[Advice]:
    for row in counts.report.by_source:
        if row.source is None:
            continue
        location = Location(row.source.file, row.source.line, max(0, row.source.column - 1))
        if row.shared_phases and row.bank_conflicts > row.shared_phases // 10:
            share = row.shared_wavefronts / row.shared_phases
            yield Advice(
                "warning", "banks", location,
                f"accesses to shared memory take {share:.1f} times as long as without bank conflicts "
                f"({row.bank_conflicts} counted)",
                "another block shape or element order; see the layouts",
            )  # fmt: skip
        if row.divergent > row.instructions // 10:
            yield Advice(
                "note", "divergence", location,
                f"{row.divergent} of {row.instructions} warp instructions run with a part of the warp only",
                "masks instead of branches where the threads of a warp differ",
            )  # fmt: skip
