from __future__ import annotations

import pytest

from ptxforge.driver import cuda, cuda_api, jit

from .fake_driver import FakeDriver


@pytest.fixture
def install_driver(monkeypatch):
    """``install_driver(FakeDriver(...))`` puts a fake in the driver's place until the test ends."""

    def install(fake: FakeDriver) -> FakeDriver:
        for module in (cuda_api, cuda, jit):
            monkeypatch.setattr(module, "bindings", lambda: fake)
        monkeypatch.setattr(cuda, "device_count", lambda: fake.devices)
        return fake

    return install


@pytest.fixture
def driver(install_driver) -> FakeDriver:
    return install_driver(FakeDriver())
