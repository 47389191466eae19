"""Kernels in which a warp of its own copies, with one barrier, fence, wait or arrival less: the emulator
finds each, or it is harmless."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import attrs
import numpy as np
import pytest

import ptxforge
from ptxforge.emulator import EmulatorDevice
from ptxforge.runtime.loaded import LoadedKernel
from tests.emulator.mutations import Mutant, mutants
from tests.kernels import specialized

_INIT = "fence.mbarrier_init"  # a barrier behind it makes the mbarriers visible: the cluster is the CTA alone
_IN_A_ROW = "bar.sync 1, 256;"  # bar.sync 0 follows, and between them at most mbarriers are made
_LAST = "mbarrier.arrive.shared"  # nothing is copied to the place of the last tile any more
HARMLESS = {"product": {_INIT: 3, _IN_A_ROW: 1}, "attention": {_INIT: 4, _IN_A_ROW: 1, _LAST: 1}}
"""How many instructions are not missed."""
TRIED = {"product": 22, "attention": 34}


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(np.float16)


def product():
    constants = {"BM": 128, "BN": 64, "BK": 32, "WS": True}
    artifact = specialized.compiled(specialized.product, constants, num_warps=8, num_stages=3)
    x, y = integers(128, 160), integers(160, 64)
    return artifact, [x, y, np.zeros((128, 64), np.float32), 128, 64, 160], 2


def attention():
    constants = {"BM": 128, "BN": 64, "D": 64, "CAUSAL": False, "WS": True}
    artifact = specialized.compiled(specialized.attention, constants, num_warps=8, num_stages=2)
    return artifact, [*(integers(256, 64) for _ in range(3)), np.zeros((256, 64), np.float16), 0.1, 256], 3


def changed(ptx: str, entry: str) -> Iterator[Mutant]:
    """All texts with an instruction less that orders something."""
    yield from mutants(ptx, (entry,), lambda line, space: None)
    lines = ptx.split("\n")
    for number, line in enumerate(lines, 1):
        if "mbarrier.arrive" in line:
            text = "\n".join([*lines[: number - 1], "", *lines[number:]])
            yield Mutant("arrival", number, line.strip(), text)


def launched(artifact, arguments: list, out: int) -> tuple[list, np.ndarray]:
    """The findings of a launch, and its result."""
    device = EmulatorDevice(check="all", target="sm_90a", raise_faults=False)
    placed = [ptxforge.to_device(x, device) if isinstance(x, np.ndarray) else x for x in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        LoadedKernel(artifact)[(1,)](*placed)
    return device.findings, placed[out].numpy()


@pytest.mark.parametrize("make", [product, attention], ids=lambda make: make.__name__)
def test_what_is_missing_is_found(make):
    artifact, arguments, out = make()
    assert specialized.partitions(artifact)
    findings, right = launched(artifact, arguments, out)
    assert not findings
    tried, missed = 0, Counter()
    for mutant in changed(artifact.ptx, artifact.name):
        tried += 1
        findings, result = launched(attrs.evolve(artifact, ptx=mutant.text), arguments, out)
        if not findings:
            known = HARMLESS[make.__name__] if np.array_equal(result, right) else ()
            missed[next((text for text in known if text in mutant.before), str(mutant))] += 1
    assert missed == HARMLESS[make.__name__]
    assert tried >= TRIED[make.__name__]
