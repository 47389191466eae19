"""Instructions are checked after every pass; tests run on the emulator and, with ``--device cuda``, again on
the GPU: code made for it, and code made for the oldest target."""

from __future__ import annotations

import pytest

from ptxforge.driver.cuda import cuda_device
from tests.codegen_ptx.harness import TARGETS, Executor


@pytest.fixture(autouse=True)
def instructions_are_checked(monkeypatch):
    monkeypatch.setenv("PTXFORGE_VERIFY", "1")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.config.getoption("--device") == "cuda":
        metafunc.parametrize("executor", ["emulator", "cuda", f"cuda as {TARGETS[0]}"], indirect=True)


@pytest.fixture(autouse=True)
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this test's kernels run."""
    name = getattr(request, "param", "emulator")
    if name != "emulator":
        monkeypatch.setattr(Executor, "gpu", cuda_device(0))
        monkeypatch.setattr(Executor, "target", TARGETS[0] if name != "cuda" else cuda_device(0).target)
