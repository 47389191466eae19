"""Mutation test of the checkers: break each fixture in every way that matters and see that it is reported.

Every mutant runs in checked mode and under the `oracle`, which compares all pairs of accesses by other means.

* An access moved past the end of its allocation must be reported as out of bounds, with its line.
* When the oracle sees a conflict, a finding must name one of its lines (the changed line, when that is one);
  when it sees none, no race may be reported.
* A barrier, wait or fence whose removal nobody reports must stand in `HARMLESS`, with the reason why no
  execution of the mutant misbehaves. A moved access may survive when the oracle sees no conflict: it then
  reads or writes other elements of its own array, which only the results tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, partial

import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.emulator.findings import Finding

from .foreign import CASES, Case
from .mutations import MOVED, Mutant, mutants
from .oracle import Conflict, Trace
from .triton_cases import CASES as TRITON
from .triton_cases import VARIANTS

_SAMPLE = 2
"""Of Triton's many alike moved accesses, this many per kind and space are tried."""

_INIT = "the barrier that follows makes the mbarrier visible to the CTA, and its cluster is the CTA alone"
_REFILL = (
    "each thread that refills the stage has itself waited for the warpgroup's last wgmma, and that one could "
    "not run before all four warps had come so far"
)
_REPEATED = "the end of the loop body waits for the same once more, and nothing was issued or stored between"
_END = "what it waits for lies where nothing is read or written any more"
_ROW = "one of several barriers in a row between the same accesses"
_EARLIER = "the fence at the beginning of the iteration covers the same copies: one wait was for both"
_TRANSACTIONS = (
    "a copy may complete before its bytes are announced: the arrival that the phase needs comes with them"
)
_OWN_WAIT = "every thread waits on the mbarrier itself"
HARMLESS: dict[tuple[str, str, int], str] = {
    ("matmul_tma", "fence", 62): _INIT,
    ("tma_scale", "fence", 54): _INIT,
    (
        "matmul_tma",
        "wait",
        386,
    ): "the stage refilled next was read by the group before, which the loosened wait covers",
    ("matmul_tma", "barrier", 454): _REFILL,
    ("matmul_tma", "barrier", 747): _REFILL,
    ("matmul_tma", "barrier", 1046): _REFILL,
    ("matmul_tma", "fence", 604): "nothing touches the accumulators between this and the fence before",
    ("triton_matmul_sm80", "wait", 586): _REPEATED,
    ("triton_matmul_sm80", "barrier", 587): _REPEATED,
    ("triton_matmul_sm80", "wait", 762): "stands twice",
    ("triton_matmul_sm80", "wait", 763): "stands twice",
    ("triton_matmul_sm80", "wait", 1037): _END,
    ("triton_attention_sm80", "wait", 1457): _END,
    ("triton_attention_sm80", "barrier", 1458): _END,
    ("triton_attention_causal_sm80", "wait", 1583): _END,
    ("triton_attention_causal_sm80", "barrier", 1584): _END,
    ("triton_matmul_sm90", "barrier", 583): _REFILL,
    ("triton_matmul_sm90", "wait", 657): _END,
    ("triton_attention_sm90", "fence", 1045): _EARLIER,
    ("triton_attention_sm90", "barrier", 1148): _REFILL,
    ("triton_attention_sm90", "wait", 1194): _END,
    ("triton_attention_sm90", "barrier", 1195): _END,
    ("triton_attention_causal_sm90", "fence", 1165): _EARLIER,
    ("triton_attention_causal_sm90", "barrier", 1269): _REFILL,
    ("triton_attention_causal_sm90", "wait", 1315): _END,
    ("triton_attention_causal_sm90", "barrier", 1316): _END,
    **{("triton_matmul_tma_sm90", "barrier", line): _ROW for line in (71, 77, 85, 100, 104, 114)},
    ("triton_matmul_tma_sm90", "barrier", 407): _OWN_WAIT,
    ("triton_matmul_tma_sm90", "barrier", 481): _REFILL,
    ("triton_matmul_tma_sm90", "barrier", 490): _TRANSACTIONS,
    ("triton_matmul_tma_sm90", "barrier", 496): _TRANSACTIONS,
    (
        "triton_matmul_tma_sm90",
        "barrier",
        510,
    ): "the last wgmma could not complete before all warps had passed their waits",
    (
        "triton_matmul_tma_sm90",
        "barrier",
        514,
    ): "it orders the ends of two mbarriers that nobody uses any more",
    ("triton_matmul_tma_sm90", "barrier", 629): "the kernel ends here",
}
_INSIDE = "the array goes on: the moved access stays inside it"


RACES = ("race", "global-race", "uninitialised")


@dataclass
class Outcome:
    """What became of one mutant: findings and trace of all its launches."""

    findings: list[Finding]
    trace: Trace
    right: bool
    """The results were right."""

    @cached_property
    def conflicts(self) -> set[Conflict]:
        """What the oracle sees."""
        return self.trace.conflicts()


def outcome_of(case: Case, text: str) -> Outcome:
    """Run a text in place of a case's."""
    device = _Recorder()
    right = True
    with Trace().recording() as trace:
        try:
            case.check(device, text)
        except AssertionError:
            right = False
    return Outcome(device.all_findings, trace, right)


class _Recorder(EmulatorDevice):
    """Keeps the findings of every launch."""

    def __init__(self) -> None:
        self.all_findings: list[Finding] = []
        super().__init__(check="all", raise_faults=False)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "findings":
            self.all_findings.extend(value)
        super().__setattr__(name, value)


def names(finding: Finding, line: int) -> bool:
    """Whether a finding points at a PTX line, as its place or as the other one."""
    return finding.line == line or bool(re.search(rf"PTX line {line}\b", finding.message))


def complaint(mutant: Mutant, outcome: Outcome) -> str | None:
    """What is wrong with the verdict on a mutant; None when findings and oracle agree."""
    findings = outcome.findings
    if mutant.kind == "past the end":
        outside = [one for one in findings if one.kind == "out-of-bounds" and one.line == mutant.line]
        return None if outside else "the access past its allocation is not reported"
    conflicts = outcome.conflicts
    if any(finding.kind in RACES for finding in findings) and not conflicts:
        return f"no conflict, but {findings[0]}"
    if not conflicts:
        return None
    own = any(mutant.line in conflict.lines for conflict in conflicts)
    lines = {mutant.line} if own else set().union(*(conflict.lines for conflict in conflicts))
    if any(names(finding, line) for finding in findings for line in lines):
        return None
    return f"conflicts of lines {sorted(lines)} are not reported"


def reason_to_survive(case: Case, mutant: Mutant, outcome: Outcome) -> str | None:
    """Why a mutant without findings is harmless."""
    if mutant.kind in MOVED:
        results = "the results are the same" if outcome.right else "only the results are wrong"
        return f"no two accesses conflict; {results}"
    return HARMLESS.get((case.name, mutant.kind, mutant.line))


def triton_case(name: str, capability: int) -> Case:
    label = f"triton_{name}_sm{capability}"
    check = partial(TRITON[name], heads=1) if name.startswith("attention") else TRITON[name]
    return Case(label, label, check, (name.removesuffix("_causal"),))


ALL_CASES = [*CASES, *(triton_case(*variant) for variant in VARIANTS)]


def chosen(case: Case, everything: list[Mutant]) -> list[Mutant]:
    """All mutants of our own kernels; of Triton's a sample of the moved accesses."""
    if not case.name.startswith("triton_"):
        return everything
    kept = [mutant for mutant in everything if mutant.kind not in MOVED]
    for kind in MOVED:
        for shared in (False, True):
            alike = [one for one in everything if one.kind == kind and one.shared == shared]
            kept += alike[:: -(-len(alike) // _SAMPLE) or 1]
    return kept


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_every_mutant_is_caught_or_harmless(case):
    clean = outcome_of(case, case.ptx)
    assert clean.right and not clean.findings and not clean.conflicts
    caught, complaints, survivors = 0, [], []
    tried = chosen(case, list(mutants(case.ptx, case.entries, clean.trace.room)))
    for mutant in tried:
        outcome = outcome_of(case, mutant.text)
        wrong = complaint(mutant, outcome)
        if wrong is not None:
            complaints.append(f"{mutant}: {wrong}")
        if outcome.findings:
            caught += 1
            continue
        reason = reason_to_survive(case, mutant, outcome)
        survivors.append(f"{mutant}: {reason}")
        if reason is None:
            complaints.append(f"{mutant}: survives, nobody knows why")
    print(f"\n{case.name}: {caught}/{len(tried)} caught")
    for survivor in survivors:
        print(f"  harmless: {survivor}")
    assert not complaints, "\n".join(complaints)
