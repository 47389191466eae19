"""nvJitLink, where it is installed."""

from __future__ import annotations

import pytest

from ptxforge.driver import nvjitlink
from ptxforge.runtime import tools
from ptxforge.support.errors import DeviceError

PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n"
needs_library = pytest.mark.skipif(nvjitlink.library() is None, reason="no nvJitLink")


@needs_library
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_machine_code(target):
    assert nvjitlink.assemble(PTX, target).startswith(b"\x7fELF")


@needs_library
def test_what_is_wrong_is_told():
    with pytest.raises(DeviceError, match="nvJitLink refused the PTX") as error:
        nvjitlink.assemble(PTX.replace("ret;", "banana;"), "sm_80")
    assert "banana" in error.value.log


def test_without_the_library(monkeypatch):
    monkeypatch.setattr(nvjitlink, "library", lambda: None)
    with pytest.raises(DeviceError, match="nvidia-nvjitlink"):
        nvjitlink.assemble(PTX, "sm_80")
    monkeypatch.setattr(tools, "assemble", lambda ptx, target: f"by ptxas for {target}")
    assert tools.machine_code(PTX, "sm_80") == "by ptxas for sm_80"


def test_what_sets_registers_is_for_ptxas(monkeypatch):
    """Linkers ignore ``setmaxnreg``."""
    monkeypatch.setattr(tools, "assemble", lambda ptx, target: "by ptxas")
    monkeypatch.setattr(nvjitlink, "library", lambda: nvjitlink)
    monkeypatch.setattr(nvjitlink, "assemble", lambda ptx, target: "by nvJitLink")
    text = PTX.replace("ret;", "setmaxnreg.dec.sync.aligned.u32 24; ret;")
    monkeypatch.setattr(tools, "find", lambda name: None)
    assert tools.machine_code(text, "sm_90a") == tools.machine_code(PTX, "sm_90a") == "by nvJitLink"
    monkeypatch.setattr(tools, "find", lambda name: name)
    assert tools.machine_code(text, "sm_90a") == "by ptxas"
    assert tools.machine_code(PTX, "sm_90a") == "by nvJitLink"
