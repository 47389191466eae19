"""PTX that Triton makes from our own kernels: right results and no findings. The PTX is committed; with
Triton
installed, what it makes today is run too."""

from __future__ import annotations

import importlib

import pytest

from .harness import fixture
from .triton_cases import CASES, VARIANTS

names = pytest.mark.parametrize("name, capability", VARIANTS)


@names
def test_committed_ptx_is_right_and_clean(name, capability, checked):
    CASES[name](checked, fixture(f"triton_{name}_sm{capability}"))
    assert not checked.findings, "\n".join(map(str, checked.findings))


@names
def test_committed_ptx_on_every_device(name, capability, machine):
    CASES[name](machine, fixture(f"triton_{name}_sm{capability}"))


@names
def test_fresh_ptx_is_right_and_clean(name, capability, checked, tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernels = importlib.import_module("tests.emulator.fixtures.triton_kernels")
    ptx, metadata = kernels.compile_one(name, capability)
    CASES[name](checked, f"// shared bytes: {metadata.shared}\n" + ptx)
    # Triton 3.6 has no proxy fence between the wait for a cp.async and the wgmma that reads its data; 3.9
    # has. Ordinary stores are fenced in both: a finding about those stays an error.
    known = {"copy-proxy"} if _release(kernels.triton.__version__) < (3, 9) else set()
    findings = [finding for finding in checked.findings if finding.kind not in known]
    assert not findings, "\n".join(map(str, findings))


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
