"""Machine code on disk: a second process neither compiles nor assembles."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import ptxforge
from ptxforge.runtime import cache, store, tools
from ptxforge.runtime.jit import jit
from ptxforge.support.errors import DeviceError, JITForbiddenError
from tests.driver.fake_driver import CUBIN, FakeDriver, install

from . import conftest
from .conftest import ADD_PTX, add


@pytest.fixture
def process(monkeypatch, tmp_path, compiled):
    """``process(**facts of the driver)``: a launch in a process of its own, as far as the cache can tell;
    what was assembled and loaded."""
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path / "cache"))

    def run(**facts) -> list[str]:
        with monkeypatch.context() as patch:
            driver = install(patch, FakeDriver(capability=facts.pop("capability", (9, 0))))
            for name, value in facts.items():
                setattr(driver, name, value)
            x = ptxforge.to_device(np.zeros(8, np.float32))
            jit(add, do_not_specialize=["n"])[(1,)](x, x, x, 8)
            assert len(driver.launches) == 1
            return driver.loaded

    return run


def test_the_second_process_neither_compiles_nor_assembles(process, compiled):
    assert process() == ["assembled", "machine code"]
    before = (cache.counters.compiled, cache.counters.assembled, cache.counters.loaded)
    assert process() == ["machine code"] and len(compiled) == 1
    after = (cache.counters.compiled, cache.counters.assembled, cache.counters.loaded)
    assert after == (before[0], before[1], before[2] + 1)


def test_another_driver_and_another_gpu_assemble_for_themselves(process):
    process()
    assert process(version=12080) == ["assembled", "machine code"]
    assert process(capability=(10, 0)) == ["assembled", "machine code"]
    assert process() == process(version=12080) == process(capability=(10, 0)) == ["machine code"]


def test_machine_code_that_is_refused_is_made_again_once(process, caplog, tmp_path):
    process()
    assert process(refuses_machine_code=True) == ["machine code", "assembled", "machine code", "text"]
    assert "the machine code of 'add' on disk is refused, assembling it again" in caplog.text
    for entry in store.entries(tmp_path / "cache"):
        found = store.read(entry.name, "machine")
        if found is not None:  # as a disk that brings back the code of another kernel
            store.write(entry.name, "machine", found[0], {"cubin": CUBIN + b"wrong"})
    caplog.clear()
    assert process() == ["machine code", "assembled", "machine code"]
    assert process() == ["machine code"]


@pytest.fixture
def whole(monkeypatch):
    """The kernel's text gives registers from one warp to another."""
    text = ADD_PTX.replace("    ret;", "    setmaxnreg.dec.sync.aligned.u32 24;\n    ret;")
    monkeypatch.setattr(conftest, "ADD_PTX", text)
    return text


def test_what_sets_registers_is_assembled_whole(process, whole, compiled, caplog):
    """A linker ignores ``setmaxnreg``: what the driver gives away of such a text is slower by a third."""
    before = (cache.counters.assembled, cache.counters.loaded)
    assert process() == ["text"] == process()
    assert (cache.counters.assembled, cache.counters.loaded) == (before[0] + 1, before[1] + 1)
    assert len(compiled) == 1 and not caplog.records
    with ptxforge.forbid_jit():
        assert process() == ["text"]
        with pytest.raises(JITForbiddenError, match="would have to be assembled"):
            process(version=12080)


def test_ptxas_assembles_whole(process, whole, monkeypatch):
    monkeypatch.setenv("PTXFORGE_ASSEMBLER", "ptxas")
    monkeypatch.setattr(tools, "assembler_version", lambda name: f"{name} 13")
    monkeypatch.setattr(tools, "assemble_with", lambda *what: CUBIN + what[1].encode())
    assert process() == ["machine code"] == process()
    monkeypatch.setenv("PTXFORGE_ASSEMBLER", "nvjitlink")
    assert process() == ["text"] == process()


def test_without_a_cache_the_driver_loads_the_text(process, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", "off")
    assert process() == ["text"] == process()


def test_an_assembler_that_was_chosen(process, monkeypatch):
    asked = []
    monkeypatch.setenv("PTXFORGE_ASSEMBLER", "ptxas")
    monkeypatch.setattr(tools, "assembler_version", lambda name: f"{name} 13")
    monkeypatch.setattr(tools, "assemble_with", lambda *what: asked.append(what) or CUBIN + what[1].encode())
    assert process() == ["machine code"] == process()
    assert asked == [("ptxas", ADD_PTX, "sm_90a")]


def test_the_assemblers_have_versions():
    if tools.find("ptxas") is None:
        with pytest.raises(DeviceError, match="ptxas is not installed"):
            tools.assembler_version("ptxas")
        return
    told = subprocess.run([tools.find("ptxas"), "--version"], capture_output=True, text=True).stdout
    assert tools.assembler_version("ptxas") == f"ptxas {told.splitlines()[-1]}"
