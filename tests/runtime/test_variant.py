"""What a compiled kernel gives: texts, machine code, resources."""

from __future__ import annotations

import pickle

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
    monkeypatch.setattr(tools, "machine_code", lambda ptx, target: f"{target} code".encode())
    assert _ahead_of_time().asm["sass"] == "SASS of b'sm_8'"


def test_handles_are_loaded_under_triton_s_name(emulator):
    with ptxforge.use_device(emulator):
        variant = double.warmup(np.float32, BLOCK=128)
    variant._init_handles()
    assert variant.n_max_threads >= 128


def test_handles_need_a_device():
    with pytest.raises(DeviceError, match="without a device"):
        CompiledKernel(_ahead_of_time(), None)._init_handles()


def test_triton_s_names_of_stages():
    made = _ahead_of_time()
    assert made.asm["ttir"] is made.asm["tile"] and made.asm["ttgir"] is made.asm["gpu"]
    assert "ttir" in made.asm and "llir" not in made.asm
    with pytest.raises(KeyError, match="there is no text 'llir' of a kernel .ptxforge has no LLVM"):
        made.asm["llir"]


def _same(restored, made):
    assert restored.asm["tile"] == made.asm["tile"] and restored.asm["gpu"] == made.asm["gpu"]
    assert restored.ptx == made.ptx and restored.stages == made.stages
    assert (restored.parameters, restored.constants) == (made.parameters, made.constants)


def test_an_artifact_survives_pickling():
    made = _ahead_of_time()
    _same(pickle.loads(pickle.dumps(made)), made)


def test_an_artifact_from_the_disk_cache_survives_pickling(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    first, second = _ahead_of_time(), _ahead_of_time()
    assert second.ptx == first.ptx and list(tmp_path.rglob("*.ptxf"))
    _same(pickle.loads(pickle.dumps(second)), first)


def test_a_variant_survives_pickling(emulator):
    with ptxforge.use_device(emulator):
        variant = double.warmup(np.float32, BLOCK=128)
    arrived = pickle.loads(pickle.dumps(variant))
    assert arrived.hash == variant.hash and arrived.metadata == variant.metadata
    x = np.arange(128, dtype=np.float32)
    arrived[(1,)](x)
    np.testing.assert_array_equal(x, 2 * np.arange(128))
