"""The devices that the emulator's tests run on: the emulator, and with ``--device cuda`` a GPU too."""

from __future__ import annotations

import pytest

from ptxforge.driver.cuda import cuda_device
from ptxforge.emulator import EmulatorDevice


def _cuda_requested(config: pytest.Config) -> bool:
    try:
        return "cuda" in str(config.getoption("--device"))
    except ValueError:
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "machine" in metafunc.fixturenames:
        names = ["emulator"] + ["cuda"] * _cuda_requested(metafunc.config)
        metafunc.parametrize("machine", names, indirect=True)


@pytest.fixture
def machine(request: pytest.FixtureRequest):
    """A device: the emulator always, CUDA too with ``--device cuda``."""
    if request.param == "emulator":
        return EmulatorDevice()
    return cuda_device(0)


@pytest.fixture
def checked() -> EmulatorDevice:
    """An emulator that checks every CTA and never raises for what it finds."""
    return EmulatorDevice(check="all", raise_faults=False)
