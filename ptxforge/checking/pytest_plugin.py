"""pytest: ``--ptxforge-check`` runs each test's kernels under every check; what is found fails the test.

As for ``python -m ptxforge check``, no GPU is needed: ``import triton`` gives ptxforge, and torch's ``cuda``
device is the CPU, unless ``--ptxforge-no-device-map`` leaves both as they are. The plugin is there where
ptxforge is installed; ``-p ptxforge.checking.pytest_plugin`` loads it elsewhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from typing import Any

import pytest

import ptxforge

_LEVELS = ("error", "warning", "note")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--ptxforge-check``, ``--ptxforge-fail-on`` and ``--ptxforge-no-device-map``."""
    group = parser.getgroup("ptxforge")
    group.addoption(
        "--ptxforge-check",
        action="store_true",
        help="run every test's kernels on ptxforge's emulator under every check",
    )
    group.addoption(
        "--ptxforge-fail-on",
        choices=_LEVELS,
        default="error",
        help="with --ptxforge-check, a test fails for findings from this severity on (default: error)",
    )
    group.addoption(
        "--ptxforge-no-device-map",
        action="store_true",
        help="with --ptxforge-check, leave 'import triton' and torch's 'cuda' device as they are",
    )


def _maps(config: pytest.Config) -> bool:
    return config.getoption("--ptxforge-check") and not config.getoption("--ptxforge-no-device-map")


def pytest_configure(config: pytest.Config) -> None:
    """Before the tests are imported: ptxforge for Triton, the CPU for torch's GPU."""
    if not _maps(config):
        return
    try:
        ptxforge.triton_compat.install()
    except ptxforge.PtxforgeError as error:
        raise pytest.UsageError(f"{error}, or pass --ptxforge-no-device-map") from None
    torch_device = importlib.import_module("ptxforge.checking.torch_device")  # other runs need it not
    torch_device.install(tell=lambda text: None)  # the header has told


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is not as usual."""
    if not config.getoption("--ptxforge-check"):
        return None
    mapped = "; 'import triton' is ptxforge, torch's 'cuda' device the CPU" if _maps(config) else ""
    return f"ptxforge: kernels run on the emulator under all checks{mapped}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Check the kernels of one test; what is found is the test's failure, unless it fails by itself."""
    if not item.config.getoption("--ptxforge-check"):
        return (yield)
    with ptxforge.check(fail_on="never") as report:
        result = yield
    failing = report.failing(item.config.getoption("--ptxforge-fail-on"))
    if failing:
        pytest.fail("\n\n".join([*map(str, failing), report.summary()]), pytrace=False)
    return result
