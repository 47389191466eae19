"""Mutation test of the checkers: break each fixture in every way that matters and see that it is reported.

A mutant is caught when checked mode has a finding (or refuses the launch); for a moved address the finding must name the
changed line. Survivors must be listed in `HARMLESS`, with the reason why no execution of the mutant misbehaves. An access
moved by one element survives where it stays inside its array: bounds are exact, so there is no fault to report.
"""

from __future__ import annotations

import pytest

from ptxforge.emulator import EmulatorDevice

from .foreign import CASES, Case
from .mutations import Mutant, mutants

_FAR = 1 << 40
"""Bytes by which addresses move: beyond everything."""

_INIT = "the barrier that follows makes the mbarrier visible to the CTA, and its cluster is the CTA alone"
_REFILL = (
    "the thread that refills the stage has itself waited for the warpgroup's last wgmma, and that one could not run "
    "before all four warps had passed the mbarrier of its stage"
)
HARMLESS: dict[tuple[str, str, int], str] = {
    ("matmul_tma", "fence", 63): _INIT,
    ("tma_scale", "fence", 54): _INIT,
    ("matmul_tma", "wait", 387): "the stage refilled next was read by the group before, which the loosened wait covers",
    ("matmul_tma", "barrier", 455): _REFILL,
    ("matmul_tma", "barrier", 741): _REFILL,
    ("matmul_tma", "barrier", 1041): _REFILL,
    ("matmul_tma", "fence", 598): "nothing touches the accumulators between this and the fence before",
}
_INSIDE = "the array goes on: the moved access stays inside it"


def findings_of(case: Case, mutant: Mutant) -> list:
    device = EmulatorDevice(check="all", raise_faults=False)
    found = []

    class Recorder:
        """The device, with the findings of every launch kept."""

        def __getattr__(self, name: str):
            return getattr(device, name)

        def load_module(self, ptx: str):
            module = device.load_module(ptx)
            inner = module.function

            def function(name: str):
                kernel = inner(name)
                launch = kernel.launch

                def recorded(*arguments) -> None:
                    launch(*arguments)
                    found.extend(device.findings)

                kernel.launch = recorded
                return kernel

            module.function = function
            return module

    try:
        case.check(Recorder(), mutant.text)
    except AssertionError:
        pass  # wrong results: the point is whether a finding says why
    return found


def is_caught(mutant: Mutant, findings: list) -> bool:
    if mutant.kind in ("address", "next element"):
        return any(finding.line == mutant.line for finding in findings)
    return bool(findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_mutant_is_caught_or_harmless(case):
    caught, survivors = 0, []
    everything = list(mutants(case.ptx, case.entries, _FAR))
    for mutant in everything:
        if is_caught(mutant, findings_of(case, mutant)):
            caught += 1
        else:
            survivors.append(mutant)
    moved = sum(mutant.kind == "next element" for mutant in survivors)
    print(f"\n{case.name}: {caught}/{len(everything)} caught; {moved} moved accesses stay inside their arrays")
    unexplained = []
    for mutant in survivors:
        reason = _INSIDE if mutant.kind == "next element" else HARMLESS.get((case.name, mutant.kind, mutant.line))
        if mutant.kind != "next element":
            print(f"  harmless: {mutant}: {reason}")
        if reason is None:
            unexplained.append(str(mutant))
    assert not unexplained, unexplained
