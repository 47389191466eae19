"""What a compiled kernel gives: texts, machine code, resources."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.runtime import tools
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.support.errors import DeviceError

ELF = b"\x7fELF"
needs_ptxas = pytest.mark.skipif(tools.find("ptxas") is None, reason="no ptxas")


@ptxforge.jit
def double(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) * 2)


def _ahead_of_time() -> ptxforge.Artifact:
    return ptxforge.compile(double, signature={"x": "*fp32:16"}, constants={"BLOCK": 128}, target="sm_80")


def test_an_artifact_has_every_text():
    made = _ahead_of_time()
    assert list(made.asm) == ["tile", "gpu", "ptx", "cubin", "sass"]
    assert made.asm["ptx"] == made.ptx and ".target sm_80" in made.ptx
    assert made.stages[0][0] == "frontend"


@needs_ptxas
def test_an_artifact_gives_machine_code():
    assert _ahead_of_time().asm["cubin"].startswith(ELF)


@needs_ptxas
def test_a_variant_gives_machine_code(emulator):
    with ptxforge.use_device(emulator):
        variant = double.warmup(np.float32, BLOCK=128)
    assert variant.asm["cubin"].startswith(ELF)


def test_sass_is_made_of_the_cubin(monkeypatch):
    monkeypatch.setattr(tools, "disassemble", lambda cubin: f"SASS of {cubin[:4]}")
    monkeypatch.setattr(tools, "assemble", lambda ptx, target: f"{target} code".encode())
    assert _ahead_of_time().asm["sass"] == "SASS of b'sm_8'"


def test_handles_are_loaded_under_triton_s_name(emulator):
    with ptxforge.use_device(emulator):
        variant = double.warmup(np.float32, BLOCK=128)
    variant._init_handles()
    assert variant.n_max_threads >= 128


def test_handles_need_a_device():
    with pytest.raises(DeviceError, match="without a device"):
        CompiledKernel(_ahead_of_time(), None)._init_handles()
