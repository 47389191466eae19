"""That the driver's assembler makes products wait for each other is a remark on the kernel that it loaded."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
from ptxforge import compiler
from ptxforge.runtime import assembled, tools
from ptxforge.runtime.jit import jit
from ptxforge.support.remarks import Remark
from tests.driver.fake_driver import Nothing, install

from .conftest import add

NOTE = (
    b"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
    b"insufficient register resources for the wgmma pipeline in the function 'add'"
)
SAID = (
    "each product waits for the one before, due to insufficient register resources for the wgmma pipeline in "
    "the function 'add', at a third of the speed; smaller blocks or more warps give each thread fewer sums"
)


@pytest.fixture
def driver(monkeypatch) -> Nothing:
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    return install(monkeypatch, Nothing())


def launched(monkeypatch, ptx_says: str = ""):
    """The variant of a launch as a new process makes it; its text has ``ptx_says`` in a comment."""
    make = compiler.compile_function

    def compile_function(*given, **options):
        made = make(*given, **options)
        made.ptx += f"// {ptx_says}\n"
        return made

    monkeypatch.setattr(compiler, "compile_function", compile_function)
    x, y, out = (ptxforge.empty(1000, np.float32) for _ in range(3))
    return jit(add, do_not_specialize=["n"])[(8,)](x, y, out, 1000)


@pytest.mark.parametrize("has_ptxas", [False, True])
def test_what_the_driver_notes(driver, compiled, monkeypatch, has_ptxas):
    """With ``ptxas`` or without; who says it is told."""
    if not has_ptxas:
        monkeypatch.setattr(tools, "find", lambda name: None)
    driver.notes = NOTE
    artifact = launched(monkeypatch).artifact
    assert driver.loaded == ["text"]
    assert [r for r in artifact.remarks if r.kind == "serialized"] == [Remark("driver", "serialized", SAID)]


@pytest.mark.parametrize("text", ["", "setmaxnreg"])
def test_what_another_process_had_assembled(driver, compiled, monkeypatch, tmp_path, text):
    """By way of a linker, or as a whole: the driver notes nothing when it has the machine code."""
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tools, "find", lambda name: None)
    driver.notes = NOTE
    assert [r.message for r in launched(monkeypatch, text).artifact.remarks] == [SAID]
    driver.notes = b""
    assert [r.message for r in launched(monkeypatch, text).artifact.remarks] == [SAID]
    ways = ["assembled", "machine code", "machine code"] if not text else ["text", "text"]
    assert driver.loaded == ways


def test_nothing_is_said_of_other_notes(driver, compiled, monkeypatch):
    """C7519 tells of a fence alone."""
    monkeypatch.setattr(tools, "find", lambda name: None)
    driver.notes = b"ptxas info    : 0 bytes gmem\nptxas info    : (C7519) wgmma: a fence is put in"
    assert launched(monkeypatch).artifact.remarks == ()


def test_what_ptxas_notes_gives_way(driver, compiled, monkeypatch):
    """One remark of a kind, that of the assembler whose code runs."""
    other = assembled.Resources(255, 0, 0, "ptxas", "for another reason")
    monkeypatch.setattr(assembled, "assembled", lambda artifact: other)
    monkeypatch.setattr(tools, "find", lambda name: "ptxas")
    artifact = launched(monkeypatch).artifact
    (remark,) = assembled.remarks_of_assembler(artifact)
    assert remark.pass_name == "ptxas" and "for another reason" in remark.message
    assembled.note_driver(artifact, NOTE.decode())
    assert [(r.pass_name, r.message) for r in artifact.remarks] == [("driver", SAID)]
