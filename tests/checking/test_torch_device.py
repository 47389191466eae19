"""torch's ``cuda`` device on the CPU; with torch where it is installed, and always with a stand-in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ptxforge.checking import torch_device
from ptxforge.driver import arrays

ROOT = Path(__file__).parents[2]

STAND_IN = '''
class device:
    def __init__(self, name):
        self.type = name.partition(":")[0]

class Tensor:
    def __init__(self, where):
        self.where = where
    device = property(lambda self: self.where)
    is_cuda = property(lambda self: False)
    def cuda(self): raise RuntimeError("no CUDA")
    def get_device(self): return -1

class overrides:
    class TorchFunctionMode:
        def __enter__(self):
            global mode
            mode = self

class cuda:
    @staticmethod
    def is_available(): return False

def empty(size, device=None):
    return mode.__torch_function__(lambda size, device=None: Tensor(device), (), (size,), {"device": device})
'''


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """A stand-in that passes calls through a function mode, imported after the device was mapped."""
    (tmp_path / "torch.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(arrays, "DEVICE_NAMES", {})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    said: list[str] = []
    torch_device.install(said.append)
    assert "torch" not in sys.modules
    import torch

    torch.said = said
    yield torch
    sys.modules.pop("torch", None)


@pytest.mark.parametrize("where", ["cuda", "cuda:0"])
def test_tensors_stay_on_the_cpu(torch, where):
    assert not torch.said
    for device in (where, torch.device(where)):
        assert torch.empty(3, device=device).where.type == "cpu"
    assert torch.said == [torch_device.MESSAGE]


def test_the_cpu_stays_the_cpu(torch):
    assert torch.empty(3, device="cpu").where == "cpu" and not torch.said


def test_tensors_say_that_they_are_on_the_gpu(torch):
    tensor = torch.Tensor(None)
    call = torch.mode.__torch_function__
    assert call(torch.Tensor.device.__get__, (), (tensor,)).type == "cuda"
    assert call(torch.Tensor.is_cuda.__get__, (), (tensor,)) is True
    assert call(torch.Tensor.cuda, (), (tensor,)) is tensor
    assert call(torch.Tensor.get_device, (), (tensor,)) == 0
    assert arrays.DEVICE_NAMES == {"cuda:0": "cpu"}


def test_queries_streams_and_events(torch):
    cuda = torch.cuda
    assert cuda.is_available() and cuda.device_count() == 1 and cuda.current_device() == 0
    assert cuda.get_device_capability() == (9, 0) and cuda.get_device_name() == "ptxforge emulator"
    assert cuda.get_device_properties(0).multi_processor_count == 132
    assert cuda.memory_allocated() == 0 and cuda.synchronize() is None
    with cuda.stream(cuda.Stream()) as stream, cuda.Stream():
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record(stream)
        end.record()
    assert start.elapsed_time(end) > 0 and start.query() and stream.query()
    assert stream.record_event().query() and cuda.current_stream().cuda_stream == 0


def test_torch_may_be_imported_before(torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    torch_device.install(lambda text: None)
    assert torch.cuda.is_available()


SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)

x = torch.ones(64, device="cuda")
out = torch.empty_like(x)
model = torch.nn.Linear(4, 4).cuda()
assert x.is_cuda and x.device.type == "cuda" and model.weight.is_cuda
double[(1,)](x, out, BLOCK=64)
torch.testing.assert_close(out, 2 * x)
with torch.device("cuda"):
    double[(1,)](torch.zeros(128)[:60], out, BLOCK=64)
"""


def test_with_torch_itself(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "ptxforge", "check", str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.strip() == torch_device.MESSAGE
    assert "x[60], past the end of 'x', float32[60]" in done.stdout and "1 error" in done.stdout
