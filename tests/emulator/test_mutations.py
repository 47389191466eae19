"""Mutation test of the checkers: break each fixture in every way that matters and see that it is reported.

A mutant is caught when checked mode has a finding (or refuses the launch); for a moved address the finding
must name the changed line. Survivors must be listed in `HARMLESS`, with the reason why no execution of the
mutant misbehaves. An access moved by one element survives where it stays inside its array: bounds are exact,
so there is no fault to report.
"""

from __future__ import annotations

import pytest

from ptxforge.emulator import EmulatorDevice

from .foreign import CASES, Case
from .mutations import Mutant, mutants
from .triton_cases import CASES as TRITON
from .triton_cases import VARIANTS

_FAR = 1 << 40
"""Bytes by which addresses move: beyond everything."""

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


def triton_case(name: str, capability: int) -> Case:
    label = f"triton_{name}_sm{capability}"
    return Case(label, label, TRITON[name], (name.removesuffix("_causal"),))


ALL_CASES = [*CASES, *(triton_case(*variant) for variant in VARIANTS)]


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_every_mutant_is_caught_or_harmless(case):
    caught, survivors = 0, []
    everything = list(mutants(case.ptx, case.entries, _FAR))
    if case.name.startswith("triton_"):
        # Their many alike accesses would take minutes: a sample.
        moved = [mutant for mutant in everything if mutant.kind in ("address", "next element")]
        everything = [mutant for mutant in everything if mutant not in moved] + moved[
            :: max(1, len(moved) // 6)
        ]
    for mutant in everything:
        if is_caught(mutant, findings_of(case, mutant)):
            caught += 1
        else:
            survivors.append(mutant)
    moved = sum(mutant.kind == "next element" for mutant in survivors)
    print(
        f"\n{case.name}: {caught}/{len(everything)} caught; {moved} moved accesses stay inside their arrays"
    )
    unexplained = []
    for mutant in survivors:
        reason = (
            _INSIDE if mutant.kind == "next element" else HARMLESS.get((case.name, mutant.kind, mutant.line))
        )
        if mutant.kind != "next element":
            print(f"  harmless: {mutant}: {reason}")
        if reason is None:
            unexplained.append(str(mutant))
    assert not unexplained, unexplained
