"""Instructions are checked after every pass."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def instructions_are_checked(monkeypatch):
    monkeypatch.setenv("PTXFORGE_VERIFY", "1")
