"""torch's ``cuda`` device on the CPU; with torch where it is installed, and always with a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.checking import torch_device
from ptxforge.driver import arrays
from ptxforge.emulator.memory import POISON
from ptxforge.runtime import lending

ROOT = Path(__file__).parents[2]

STAND_IN = '''
import ctypes, weakref

class device:
    def __init__(self, name):
        self.type = name.partition(":")[0]

class Tensor:
    def __init__(self, where, size=0):
        self.where, self.memory = where, bytearray(size)
    device = property(lambda self: self.where)
    is_cuda = property(lambda self: False)
    def cuda(self): raise RuntimeError("no CUDA")
    def get_device(self): return -1
    def data_ptr(self): return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
    def untyped_storage(self): return self
    def nbytes(self): return len(self.memory)
    def pin_memory(self): raise RuntimeError("no CUDA")
    def to(self, where): return Tensor(where)
    new_empty = new_empty_strided = None

class Generator:
    def __new__(cls, device="cpu"):
        made = object.__new__(cls)
        made.where = device
        return made

class accelerator:
    pass

def load(f, map_location=None):
    return map_location

def set_default_device(device):
    global default
    default = device

def stack(): return active
active = []

class autograd:
    def _engine_run_backward(function): return function()

class overrides:
    _get_current_function_mode_stack = staticmethod(stack)
    class TorchFunctionMode:
        def __enter__(self):
            global mode
            mode = self
            active.append(self)
        def __exit__(self, *details): active.pop()

class cuda:
    @staticmethod
    def is_available(): return False

class multiprocessing:
    class reductions:
        class StorageWeakRef:
            def __init__(self, storage): self.storage = weakref.ref(storage)
            def expired(self): return self.storage() is None

def empty(size, device=None):
    return mode.__torch_function__(lambda size, device=None: Tensor(device), (), (size,), {"device": device})

empty_like = empty_strided = empty_permuted = None
'''


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """A stand-in that passes calls through a function mode, imported after the device was mapped."""
    (tmp_path / "torch.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(arrays, "DEVICE_NAMES", {})
    monkeypatch.setattr(lending, "pointed_at", {})
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
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


def test_devices_keep_their_names_and_numbers_mean_them(torch):
    call = torch.mode.__torch_function__
    assert call(torch.device, (), ("cuda:1",)).type == "cuda" and not torch.said
    assert torch.empty(3, device=0).where.type == "cpu"
    assert call(torch.Tensor.to, (), (torch.Tensor(None), 0)).where.type == "cpu"
    assert call(torch.Tensor.to, (), (torch.Tensor(None), "cpu")).where == "cpu"
    pinned = torch.Tensor("cpu")
    assert call(torch.Tensor.pin_memory, (), (pinned,)) is pinned
    assert torch.said == [torch_device.MESSAGE]


def test_what_no_mode_sees(torch):
    made = torch.Generator(device="cuda")
    assert made.where.type == "cpu" and isinstance(made, torch.Generator) and torch.Generator().where == "cpu"
    assert torch.load("f").type == torch.load("f", "cuda:3").type == "cpu"
    assert torch.load("f", "meta") == "meta"
    torch.set_default_device("cuda")
    assert torch.default.type == "cpu"
    assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "cuda"


def test_backward_passes_see_the_gpu_too(torch):
    """torch takes the mode off during a call that passed through it, and ``backward`` calls the program."""
    seen = torch.autograd._engine_run_backward(lambda: list(torch.active))
    assert seen == [torch.mode]
    torch.active.clear()
    assert torch.autograd._engine_run_backward(lambda: list(torch.active)) == [torch.mode]
    assert not torch.active


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


def test_each_query_is_a_function_of_its_own(torch):
    """torch's compiler has tables by function, and stops at one with two names."""
    functions = [value for value in vars(torch.cuda).values() if isinstance(value, types.FunctionType)]
    assert len(functions) > 20 and len(set(functions)) == len(functions)
    assert torch.cuda.synchronize.__qualname__ == "synchronize"


@ptxforge.jit
def sums(table, sizes, out, BLOCK: tl.constexpr):
    g, i = tl.program_id(0), tl.arange(0, BLOCK)
    p = tl.load(table + g).to(tl.pointer_type(tl.float32))
    tl.store(out + g, tl.sum(tl.load(p + i, mask=i < tl.load(sizes + g), other=0.0)))


def test_what_a_table_of_pointers_leads_to(torch):
    """The program asks for addresses and puts them in an array: the kernel may follow them, to their ends."""
    groups = [torch.Tensor(None, 4 * n) for n in (5, 20, 3)]
    views = [np.frombuffer(group.memory, np.float32) for group in groups]
    for view in views:
        view[:] = 1
    ask = torch.mode.__torch_function__
    table = np.array([ask(torch.Tensor.data_ptr, (), (group,)) for group in groups])
    out, sizes = np.zeros(3, np.float32), np.array([5, 20, 3])
    with ptxforge.check(tiles=False):
        sums[(3,)](table, sizes, out, BLOCK=32)
    assert out.tolist() == [5, 20, 3]
    with ptxforge.check("never", tiles=False) as report:
        sums[(3,)](table, sizes + 1, out, BLOCK=32)
    (issue,) = report.issues
    assert issue.kind == "out-of-bounds" and "past the end of the 20-byte allocation" in issue.message
    del views, view
    groups.clear()
    with ptxforge.check("never", tiles=False) as report:
        sums[(3,)](table, sizes, out, BLOCK=32)
    assert report.issues and not lending.pointed_at, "memory that is gone is not lent"


def test_empty_tensors_are_poisoned(torch, monkeypatch):
    made = torch.Tensor("cpu", 10)
    monkeypatch.setattr(torch, "empty", lambda tensor: tensor)
    with torch_device.poison_empty():
        torch.mode.__torch_function__(torch.empty, (), (made,))
    assert np.frombuffer(made.memory[:8], np.uint32).tolist() == [POISON] * 2, "whole words"
    assert made.memory[8:] == b"\0\0"


def test_torch_imported_after_the_check_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text(STAND_IN + "mode = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with torch_device.poison_empty():
        pass
    import torch

    assert torch.mode is None
    sys.modules.pop("torch")


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
import torch._dynamo
assert torch.compile(lambda x: x + 1)(x).sum() == 128, "as it is, not for the CPU"
double[(1,)](torch.empty_like(x), out, BLOCK=64)
half = x.new_empty(64)
half.fill_(1)
double[(1,)](half, out, BLOCK=64)
"""


@pytest.mark.parametrize(("options", "errors"), [([], 1), (["--torch-empty"], 2)])
def test_with_torch_itself(tmp_path, options, errors):
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "ptxforge", "check", *options, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.strip() == torch_device.MESSAGE
    assert "x[60], past the end of 'x', float32[60]" in done.stdout and f"{errors} error" in done.stdout
    assert ("nobody has written" in done.stdout) is (errors == 2)


DEVICES = """
import torch

assert torch.arange(3, device=torch.device("cuda", 0)).is_cuda and torch.device("cuda:1").index == 1
generator = torch.Generator(device="cuda").manual_seed(7)
assert torch.rand(3, device="cuda", generator=generator).shape == (3,)
assert isinstance(generator, torch.Generator)
assert torch.zeros(3).to(0).is_cuda and torch.zeros(3, device=torch.cuda.current_device()).is_cuda
assert torch.zeros(3).pin_memory().to("cuda", non_blocking=True).sum() == 0
assert next(torch.nn.Linear(2, 2).to(0).parameters()).is_cuda
torch.save(torch.ones(2, device="cuda"), "saved.pt")
assert torch.load("saved.pt", map_location="cuda").sum() == 2 == torch.load("saved.pt").sum()
assert torch.accelerator.current_accelerator().type == "cuda"
torch.cuda.nvtx.range_push("name")


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        assert gradient.is_cuda
        return gradient * torch.full((3,), 2.0, device="cuda")


x = torch.ones(3, device="cuda", requires_grad=True)
Twice.apply(x).sum().backward()
assert x.grad.tolist() == [2, 2, 2]
assert torch.autograd.grad(Twice.apply(x).sum(), x)[0].tolist() == [2, 2, 2]
torch.set_default_device("cuda")
assert torch.ones(2).is_cuda
print("all right")
"""


def test_devices_with_torch_itself(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(DEVICES)
    done = subprocess.run(
        [sys.executable, "-m", "ptxforge", "check", "script.py"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("all right"), done.stderr
    assert done.stderr.strip() == torch_device.MESSAGE
