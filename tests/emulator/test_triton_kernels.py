"""PTX that Triton makes from our own kernels: right results and no findings. The PTX is committed; with
Triton installed, what it makes today is run too."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .harness import fixture
from .triton_cases import CASES, VARIANTS

ROOT = Path(__file__).parents[2]
names = pytest.mark.parametrize("name, capability", VARIANTS)


COMPILE = """
import json, sys
from tests.emulator.fixtures import triton_kernels
ptx, metadata = triton_kernels.compile_one(sys.argv[1], int(sys.argv[2]))
print(json.dumps([ptx, metadata.shared, triton_kernels.triton.__version__]))
"""
"""In a process of its own: where triton is imported, its alias cannot be installed any more."""


@names
def test_committed_ptx_is_right_and_clean(name, capability, checked):
    CASES[name](checked, fixture(f"triton_{name}_sm{capability}"))
    assert not checked.findings, "\n".join(map(str, checked.findings))


@names
def test_committed_ptx_on_every_device(name, capability, machine):
    CASES[name](machine, fixture(f"triton_{name}_sm{capability}"))


@names
def test_fresh_ptx_is_right_and_clean(name, capability, checked, tmp_path, monkeypatch):
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", COMPILE, name, str(capability)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    ptx, shared, version = json.loads(made.stdout)
    CASES[name](checked, f"// shared bytes: {shared}\n" + ptx)
    # Triton 3.6 has no proxy fence between the wait for a cp.async and the wgmma that reads its data; 3.9
    # has. Ordinary stores are fenced in both: a finding about those stays an error.
    known = {"copy-proxy"} if _release(version) < (3, 9) else set()
    findings = [finding for finding in checked.findings if finding.kind not in known]
    assert not findings, "\n".join(map(str, findings))


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
