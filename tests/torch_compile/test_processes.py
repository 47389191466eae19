"""Compile workers: Inductor's own processes, which compile with ptxforge and import nothing of Triton."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ptxforge import triton_compat

pytest.importorskip("torch")

SCRIPT = """
import os
from pathlib import Path
import torch
import torch._inductor.config as inductor
from torch._inductor.async_compile import AsyncCompile
from ptxforge.runtime.variant import CompiledKernel

kernels, load = [], CompiledKernel._init_handles

def loading(kernel):
    kernels.append(kernel)
    load(kernel)

CompiledKernel._init_handles = loading

def parent_of(process):
    try:
        return int((Path("/proc") / process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0

def descendants():
    parents = {int(p.name): parent_of(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()}
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found

if __name__ == "__main__":
    inductor.cpu_backend = "triton"
    AsyncCompile.warm_pool()
    AsyncCompile.wait_pool_ready()
    x = torch.randn(64, 100)
    function = lambda x: torch.softmax(x * 2, -1)
    assert torch.allclose(torch.compile(function)(x), function(x))
    assert kernels, "no kernel of ptxforge was launched"
    assert all(kernel.src.fn.is_bare() for kernel in kernels), "compiled in the parent"
    processes = descendants()
    assert len(processes) >= 2, "no worker is alive"
    for process in processes:
        mapped = Path(f"/proc/{process}/maps").read_text()
        assert not [name for name in ("libtriton", "libLLVM", "libMLIR") if name in mapped]
    print("passed")
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
@pytest.mark.parametrize("way", ["path", "run"])
def test_workers(tmp_path, way):
    """A package called triton that stands behind the alias on the path leaves a mark when it is imported."""
    stranger, mark = tmp_path / "stranger" / "triton", tmp_path / "imported"
    stranger.mkdir(parents=True)
    (stranger / "__init__.py").write_text(f"open({str(mark)!r}, 'a').write('imported')\n")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    folder = triton_compat.SHADOW if way == "path" else str(Path(triton_compat.SHADOW).parents[2])
    command = [str(script)] if way == "path" else ["-m", "ptxforge", "run", str(script)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([folder, str(stranger.parent)]),
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
        "TORCHINDUCTOR_WORKER_START": "subprocess",
    }
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.stdout == "passed\n", done.stderr
    assert not mark.exists()
