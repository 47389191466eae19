"""Whole models: forward and backward, matrix templates, kernels of the user's own in a compiled graph."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from torch import nn  # noqa: E402
from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors  # noqa: E402
from torch._inductor import config as inductor  # noqa: E402


class Block(nn.Module):
    """A block of a decoder: attention under a causal mask, and a perceptron."""

    def __init__(self, width=32, heads=2):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.gather = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        parts = self.project(x).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5
        visible = torch.ones(length, length, dtype=torch.bool).tril()
        mixed = scores.masked_fill(~visible, float("-inf")).softmax(-1) @ v
        return self.gather(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.before(x))
        return x + self.down(F.gelu(self.up(self.between(x))))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)])
def test_forward_and_backward_of_a_transformer(launched, dtype, tolerance):
    model = nn.Sequential(Block(), Block()).to(dtype)
    x, weights = torch.randn(2, 8, 32, dtype=dtype), torch.linspace(-1, 1, 32, dtype=dtype)

    def step(forward):
        model.zero_grad()
        given = x.clone().requires_grad_()
        out = forward(given)
        (out * weights).sum().backward()
        return [out.detach(), given.grad, *(parameter.grad.clone() for parameter in model.parameters())]

    for ours, theirs in zip(step(torch.compile(model)), step(model), strict=True):
        assert (ours - theirs).double().norm() <= tolerance * theirs.double().norm()
    assert len(launched) >= 5


def test_convolutions_and_batch_norm(agrees):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
    with torch.no_grad():
        agrees(model.eval(), torch.randn(2, 3, 12, 12))


def test_an_optimizer_step(launched):
    """Foreach: one kernel for all parameters."""
    found = {}
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(30, 20)
        model.weight.grad, model.bias.grad = torch.randn(20, 30), torch.randn(20)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True, capturable=False)
        (torch.compile(optimizer.step) if compiled else optimizer.step)()
        found[compiled] = model.weight.detach().clone()
    torch.testing.assert_close(found[True], found[False])
    assert launched


@pytest.mark.parametrize("shape", [(64, 96, 128), (33, 50, 70)])
def test_matrix_templates(launched, agrees, monkeypatch, shape):
    """All that max-autotune tries is compiled, run and compared; the fastest stays, its epilogue fused."""
    rows, depth, columns = shape
    monkeypatch.setattr("torch._inductor.select_algorithm.VERIFY", {"atol": 1e-3, "rtol": 1e-3})
    options = {"max_autotune_gemm_backends": "TRITON", "max_autotune_gemm_search_space": "DEFAULT"}
    with inductor.patch(max_autotune_gemm=True, benchmark_epilogue_fusion=False, **options):
        agrees(lambda x, y: torch.relu(x @ y + 1), torch.randn(rows, depth), torch.randn(depth, columns))
    assert launched[-1].name.startswith("triton_tem_fused")


@triton.jit
def scale_kernel(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


tuned_kernel = triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])(
    scale_kernel
)


def scaled(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), 3.0, BLOCK=128)
    return y + 1


def scaled_and_tuned(x):
    y = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 3.0)
    return y + 1


@pytest.mark.parametrize("function", [scaled, scaled_and_tuned])
def test_kernels_of_the_user_s_own(launched, function):
    x = torch.randn(300)
    found = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(found, 3 * x + 1)
    assert any(kernel.name.startswith("scale_kernel") for kernel in launched)


def test_what_a_kernel_of_the_user_s_changes_is_known():
    """Only what it stores to counts as changed: neither copies of its inputs nor a warning."""
    x, y = torch.randn(300), torch.empty(300)
    arguments = {"x": x, "y": y, "n": 300, "factor": 3.0, "BLOCK": 128}
    for kernel in (scale_kernel, tuned_kernel):
        found = identify_accessed_tensors(kernel, dict(arguments), {})
        assert {dependency.name for dependency in found.read_writes.writes} == {"y"}
        assert {dependency.name for dependency in found.read_writes.reads} == {"x", "y"}
