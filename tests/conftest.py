"""What all tests share: the executors, the assembler, and goldens.

``pytest --device cuda`` adds the GPU to the executors; ``pytest --update-golden`` rewrites expected texts;
``pytest --device cuda --forms FILE`` writes the instruction forms that the GPU ran (``tests/forms.py``).
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: pytest-xdist already uses all cores
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PTXFORGE_CACHE_DIR"] = "off"  # what fixtures of modules compile comes before the fixture below

import gc
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from ptxforge import triton_compat
from ptxforge.driver.cuda import CudaDevice, cuda_device
from ptxforge.emulator import EmulatorDevice
from ptxforge.runtime import devices as runtime_devices
from ptxforge.runtime import tools
from ptxforge.support.errors import DeviceError
from tests import forms
from tests.assembling import assemble_all, assemble_later

# A test takes as long as the other tests on the machine let it.
hypothesis.settings.register_profile("ptxforge", deadline=None)
hypothesis.settings.load_profile("ptxforge")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("emulator", "cuda"), default="emulator", help="'cuda' adds the GPU")
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts")
    parser.addoption("--forms", type=Path, help="write the instruction forms that the GPU ran to this file")


def pytest_configure(config: pytest.Config) -> None:
    global _forms
    file = config.getoption("--forms")
    if file and not hasattr(config, "workerinput"):
        file.write_text("")
    _forms = forms.Session(file)
    _forms.watch()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """The tests themselves stay to the end: garbage collections need not walk through them each time, and may
    be rarer."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000)


@pytest.fixture(autouse=True)
def forms_are_listed(request: pytest.FixtureRequest) -> Iterator[None]:
    """The instructions of all PTX that a test makes have forms that ``tests/forms.txt`` has."""
    yield
    is_checked = request.path.parent.name in forms.FOLDERS
    _forms.check(is_checked, update=request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the user's cache or settings, nor leaves anything in them."""
    for name in list(os.environ):
        if name.startswith("PTXFORGE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", "off")
    monkeypatch.setenv("PTXFORGE_DEVICE", "emulator")


@pytest.fixture(autouse=True)
def alias_goes_with_the_test():
    """Commands put ptxforge in the place of triton, in a process of their own. Tests run many in one, and the
    next one must not take ptxforge for the real package.
    """
    before = triton_compat.is_installed()
    yield
    if not before:
        triton_compat.uninstall()


_lost_devices: list = []  # kept, because variants know a device by its id


@pytest.fixture(autouse=True)
def faults_stay_alone(request: pytest.FixtureRequest):
    """A fault in a kernel kills the CUDA context: the next test gets a new one, so as not to fail too."""
    yield
    if request.config.getoption("--device") != "cuda":
        return
    device = cuda_device(0)
    try:
        device.synchronize()
    except DeviceError:
        revive(device)


def revive(device: CudaDevice) -> None:
    """A new context for a GPU. Where the driver cannot recover, a worker of pytest-xdist ends here and is
    replaced; without xdist the session ends.
    """
    _lost_devices.append(device)
    cuda_device.cache_clear()
    runtime_devices.forget()
    try:
        device.reset()
        cuda_device(0).synchronize()
    except DeviceError as error:
        if "PYTEST_XDIST_WORKER" in os.environ:
            os._exit(1)
        pytest.exit(f"the GPU does not recover from a fault: {error}", returncode=1)


class CheckedEmulator(EmulatorDevice):
    """An emulator in checked mode. Every PTX text that it loads must pass ``ptxas`` too, where there is one
    (``tests/assembling.py``), and every launch must be free of findings."""

    def __init__(self) -> None:
        super().__init__(check="all")

    def load_module(self, ptx: str):
        assemble_later(ptx)
        return _CheckedModule(self, super().load_module(ptx))


class _CheckedModule:
    def __init__(self, device: CheckedEmulator, module):
        self._device, self._module = device, module

    def function(self, name: str):
        return _CheckedFunction(self._device, self._module.function(name))

    def unload(self) -> None:
        self._module.unload()


class _CheckedFunction:
    def __init__(self, device: CheckedEmulator, function):
        self._device, self._function = device, function
        self.name, self.attributes = function.name, function.attributes

    def launch(self, *arguments) -> None:
        self._function.launch(*arguments)
        assert not self._device.findings, "\n".join(map(str, self._device.findings))


@pytest.fixture(scope="module", autouse=True)
def texts_are_assembled() -> Iterator[None]:
    """All PTX that the tests of a file made passes ``ptxas``."""
    yield
    assemble_all()


@pytest.fixture(scope="session")
def assemble():
    """``assemble(ptx)``: the assembler must accept the text (``tests/assembling.py``); the test is skipped
    where there is no ``ptxas``."""
    if tools.find("ptxas") is None:
        pytest.skip("ptxas is not installed")
    return assemble_later


@pytest.fixture
def emulator() -> CheckedEmulator:
    """A fresh emulator that checks every CTA."""
    return CheckedEmulator()


@pytest.fixture
def devices(request: pytest.FixtureRequest, emulator: CheckedEmulator) -> list:
    """The executors of PTX: the emulator in checked mode and, with ``--device cuda``, the GPU."""
    return [emulator, *([cuda_device(0)] if request.config.getoption("--device") == "cuda" else [])]


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest):
    """``golden(path, text)``: ``text`` equals the file's; ``--update-golden`` rewrites the file instead."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} does not exist; make it with --update-golden and read what it says"
        assert text == path.read_text()

    return compare
