"""A compiler with a small fault is found out, without a GPU: wrong code by results and by the emulator's
checks, a lost optimization by the tables of facts. The faults are in ``mutants.py``; each lives in a process
of its own (``child.py``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.child import FOUND
from tests.mutations.mutants import MUTANTS

ROOT = Path(__file__).parents[2]


def _ended(*arguments: str) -> subprocess.CompletedProcess:
    settings = {"PYTHONPATH": str(ROOT), "PTXFORGE_CACHE_DIR": "off", "PTXFORGE_DEVICE": "emulator"}
    variables = os.environ | settings
    command = [sys.executable, "-m", "tests.mutations.child", *arguments]
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("check", sorted({mutant.check for mutant in MUTANTS}))
def test_nothing_is_found_in_the_compiler_as_it_is(check):
    done = _ended(check)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_is_found(mutant):
    done = _ended(mutant.check, mutant.name)
    assert done.returncode == FOUND, f"it survives, or does not even start\n{done.stderr}"
