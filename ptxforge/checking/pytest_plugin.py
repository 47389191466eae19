"""pytest: ``--ptxforge-check`` runs each test's kernels under every check; what is found fails the test.

The plugin is there where ptxforge is installed; ``-p ptxforge.checking.pytest_plugin`` loads it elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

import ptxforge

_LEVELS = ("error", "warning", "note")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--ptxforge-check`` and ``--ptxforge-fail-on``."""
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
