"""flex_attention: the Triton template that Inductor keeps for GPUs, with functions of the user's fused in.

For CPU tensors Inductor takes a template in C++ before it looks at anything else. Here its lowering runs
without that branch. There is no backward: the operator refuses gradients of CPU tensors.
"""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")

from torch._inductor import lowering  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

flex = pytest.importorskip("torch._inductor.kernel.flex.flex_attention")
BRANCH = 'query.get_device().type == "cpu"'


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    source = inspect.getsource(flex.flex_attention)
    if source.count(BRANCH) != 1:
        pytest.skip("another release of torch chooses the template elsewhere")
    operator = torch.ops.higher_order.flex_attention
    before = dict(lowering.lowerings)
    exec(source.replace(BRANCH, "False"), dict(vars(flex)))  # registers itself
    yield
    assert lowering.lowerings[operator] is not before[operator]
    lowering.lowerings.update(before)


def inputs(length=128, dtype=torch.float32):
    return [torch.randn(1, 2, length, 16, dtype=dtype) for _ in range(3)]


def relative(score, batch, head, row, column):
    return score + 0.1 * (column - row) * (head + 1)


def capped(score, batch, head, row, column):
    return 5 * torch.tanh(score / 5)


def causal(batch, head, row, column):
    return row >= column


def near(batch, head, row, column):
    return (row >= column) & (row - column < 40)


def check(launched, function, arguments, tolerance):
    expected = function(*arguments)
    found = torch.compile(function, fullgraph=True)(*arguments)
    assert (found - expected).double().norm() <= tolerance * expected.double().norm()
    assert any(kernel.name.startswith("triton_tem_fused") for kernel in launched)


@pytest.mark.parametrize(
    "score_mod, dtype, tolerance",
    [(None, torch.float32, 2e-3), (relative, torch.float32, 2e-3), (capped, torch.float16, 4e-3)],
)
def test_scores_that_a_function_changes(launched, score_mod, dtype, tolerance):
    check(launched, lambda q, k, v: flex_attention(q, k, v, score_mod), inputs(dtype=dtype), tolerance)


@pytest.mark.parametrize("mask_mod, length", [(causal, 200), (near, 256)])
def test_blocks_that_a_mask_leaves_out(launched, mask_mod, length):
    mask = create_block_mask(mask_mod, None, None, length, length, device="cpu", BLOCK_SIZE=64)
    masked = lambda q, k, v: flex_attention(q, k, v, capped, block_mask=mask)  # noqa: E731
    check(launched, masked, inputs(length), 2e-3)
