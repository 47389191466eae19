"""torch.compile with ptxforge as its Triton, on CPU tensors: Inductor's kernels run in the emulator.

These tests need torch and are skipped without it (``pip install '.[test-torch]'``).
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from ptxforge import triton_compat
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.triton_compat.modules import Alias

if importlib.util.find_spec("torch"):  # else the files of this folder skip themselves
    if "triton" not in sys.modules:
        triton_compat.install()  # before torch looks for it
    import torch
    import torch._dynamo
    import torch._inductor.config as inductor


@pytest.fixture(autouse=True)
def triton_on_the_cpu(tmp_path, monkeypatch):
    """Inductor generates Triton code for CPU tensors, compiles it in this process, and keeps nothing."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    triton_compat.install()
    torch._dynamo.reset()
    torch.manual_seed(0)
    with inductor.patch(
        cpu_backend="triton", compile_threads=1, fx_graph_cache=False, autotune_local_cache=False
    ):
        yield
    assert not strangers(), "the real package was imported"


def strangers() -> list[str]:
    """Modules called triton that are not the alias, and libraries of the real package in this process."""
    modules = [
        name
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "triton" and not isinstance(module, Alias)
    ]
    mapped = Path("/proc/self/maps")
    text = mapped.read_text() if mapped.exists() else ""
    return modules + [name for name in ("libtriton", "libLLVM", "libMLIR") if name in text]


@pytest.fixture
def launched(monkeypatch):
    """The kernels that were loaded to be launched, oldest first."""
    kernels = []
    load = CompiledKernel._init_handles

    def loading(kernel):
        kernels.append(kernel)
        load(kernel)

    monkeypatch.setattr(CompiledKernel, "_init_handles", loading)
    return kernels


@pytest.fixture
def agrees(launched):
    """``agrees(function, *inputs)``: compiled as in eager mode, up to a relative distance of each output."""

    def check(function, *inputs, tolerance=1e-5, kernels=1, **options):
        expected = flat(function(*inputs))
        found = flat(torch.compile(function, **options)(*inputs))
        assert len(launched) >= kernels, "Inductor launched no kernel of ptxforge"
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            ours, theirs = ours.double(), theirs.double()
            assert (ours - theirs).norm() <= tolerance * theirs.norm(), (ours, theirs)

    return check


def flat(value):
    """The tensors of a result."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    return [tensor for item in value for tensor in flat(item)]
