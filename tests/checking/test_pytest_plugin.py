"""``pytest --ptxforge-check``, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TESTS = """
import numpy as np
import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def double(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, 0.0)
    tl.atomic_add(out + i // 2, tl.load(x + i))


def launch(block):
    out = np.zeros(64, np.float32)
    double[(1,)](np.ones(64, np.float32), out, BLOCK=block)


def test_good():
    pass


def test_race():
    launch(64)


def test_fails_by_itself():
    launch(64)
    assert False, "my own reason"
"""


@pytest.mark.parametrize(
    ("option", "wanted"),
    [([], "1 failed, 2 passed"), (["--ptxforge-check"], "2 failed, 1 passed"),
     (["--ptxforge-check", "--ptxforge-fail-on=note"], "2 failed, 1 passed")],
)  # fmt: skip
def test_findings_fail_the_test(option, wanted, tmp_path):
    (tmp_path / "test_user.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "ptxforge.checking.pytest_plugin",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, *option, "-W", "ignore", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert wanted in done.stdout, done.stdout + done.stderr
    assert ("race in kernel 'double'" in done.stdout) == bool(option)
    assert "my own reason" in done.stdout
