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


def pytest_in(folder, *options):
    """A pytest of its own on the tests of a folder."""
    command = [sys.executable, "-m", "pytest", "-p", "ptxforge.checking.pytest_plugin", "-W", "ignore"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, str(folder)], cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("option", "wanted"),
    [([], "1 failed, 2 passed"), (["--ptxforge-check"], "2 failed, 1 passed"),
     (["--ptxforge-check", "--ptxforge-fail-on=note"], "2 failed, 1 passed")],
)  # fmt: skip
def test_findings_fail_the_test(option, wanted, tmp_path):
    (tmp_path / "test_user.py").write_text(TESTS)
    done = pytest_in(tmp_path, *option)
    assert wanted in done.stdout, done.stdout + done.stderr
    assert ("race in kernel 'double'" in done.stdout) == bool(option)
    assert "my own reason" in done.stdout


TESTS_OF_TRITON = """
import numpy as np
import pytest
import triton
import triton.language as tl


@triton.jit
def fill(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)


@pytest.mark.parametrize("size", [64, 60])
def test_fill(size):
    fill[(1,)](np.zeros(size, np.float32), BLOCK=64)
"""


def test_tests_of_triton_kernels_need_no_triton(tmp_path):
    (tmp_path / "test_user.py").write_text(TESTS_OF_TRITON)
    done = pytest_in(tmp_path, "--ptxforge-check")
    assert "kernels run on the emulator under all checks; 'import triton' is ptxforge" in done.stdout
    assert "1 failed, 1 passed" in done.stdout and "x[60], past the end of 'x'" in done.stdout


def test_nothing_is_mapped_unless_asked_for(tmp_path):
    (tmp_path / "test_user.py").write_text(
        "import sys\n\ndef test(): assert type(sys.modules.get('triton')).__name__ != 'Alias'\n"
    )
    for options in ([], ["--ptxforge-check", "--ptxforge-no-device-map"]):
        done = pytest_in(tmp_path, *options)
        assert "1 passed" in done.stdout and "import triton" not in done.stdout


def test_the_real_triton_is_refused(tmp_path):
    (tmp_path / "triton.py").write_text("")
    (tmp_path / "conftest.py").write_text("import triton\n")
    done = pytest_in(tmp_path, "--ptxforge-check")
    assert "the real triton package is imported already" in done.stdout + done.stderr
