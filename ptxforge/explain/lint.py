"""Advice by source line: what keeps a kernel from being fast, why, and what to do about it.

Each piece follows from facts that the other modules collect; none guesses what the kernel is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from ptxforge.explain.memory import Access, Conflict, conflicts_of
from ptxforge.explain.resources import Occupancy, Resources
from ptxforge.explain.roofline import Counts, Product
from ptxforge.explain.trace import Trace
from ptxforge.support.location import Location

SEVERITIES = ("warning", "note")
SCATTERED = 2.0
"""Times as many sectors as needed from which on an access counts as scattered."""
FEW_INSTRUCTIONS = 2
"""Instructions of a thread up to which an access is not worth a warning, however narrow."""
FEW_WARPS = 8
"""Warps on a multiprocessor below which latencies are hardly hidden: two for each of its four parts."""

ONLY_REMARKED = ("not-prefetched", "not-by-tma", "not-by-wgmma", "not-flattened", "not-specialized")
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
        *_of_products(trace.products, trace.target.has_wgmma),
        *_of_remarks(trace),
        *_of_conflicts(conflicts_of(trace.function)),
        *(_of_counts(trace, counts) if counts is not None else ()),
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


def _of_products(products: Iterable[Product], has_wgmma: bool) -> Iterator[Advice]:
    for product in products:
        if product.unit == "fma":
            yield Advice("warning", "tensor cores", product.location, product.why, product.cure)


def _of_remarks(trace: Trace) -> Iterator[Advice]:
    """What the compiler says of its own decisions, as far as nothing above has said it."""
    for remark in trace.artifact.remarks:
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


def _of_counts(trace: Trace, counts: Counts) -> Iterator[Advice]:
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
