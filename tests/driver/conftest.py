from __future__ import annotations

import pytest

from .fake_driver import FakeDriver, install


@pytest.fixture
def install_driver(monkeypatch):
    """``install_driver(FakeDriver(...))`` puts a fake in the driver's place until the test ends."""
    return lambda fake: install(monkeypatch, fake)


@pytest.fixture
def driver(install_driver) -> FakeDriver:
    return install_driver(FakeDriver())
