"""Inductor's caches and its static launcher take what ptxforge compiled."""

from __future__ import annotations

import pickle

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor import config as inductor  # noqa: E402
from torch._inductor.runtime.static_triton_launcher import StaticallyLaunchedCudaKernel  # noqa: E402
from torch._inductor.runtime.triton_heuristics import HeuristicType, StaticTritonCompileResult  # noqa: E402

import ptxforge  # noqa: E402
import ptxforge.language as tl  # noqa: E402
from ptxforge.driver import nvjitlink  # noqa: E402
from ptxforge.runtime import tools  # noqa: E402
from ptxforge.runtime.variants import GPUTarget  # noqa: E402
from ptxforge.triton_compat.compiler import ASTSource, base32, compile  # noqa: E402


def test_the_cache_of_graphs(launched):
    def function(x):
        return torch.softmax(x * 3, -1)

    x = torch.randn(33, 70)
    with inductor.patch(fx_graph_cache=True, bundle_triton_into_fx_graph_cache=True):
        counters.clear()
        first = torch.compile(function)(x)
        torch._dynamo.reset()
        second = torch.compile(function)(x)
    torch.testing.assert_close(first, function(x))
    assert torch.equal(first, second) and launched
    found = counters["inductor"]
    assert found["fxgraph_cache_hit"] == 1 and found["triton_bundler_save_kernel"] >= 1


@ptxforge.jit
def scaled(x, y, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@pytest.mark.skipif(tools.find("ptxas") is None and nvjitlink.library() is None, reason="no assembler")
def test_the_static_launcher(tmp_path, monkeypatch):
    """For a GPU that is not here: the launcher reads the file of the cubin and the types of its arguments."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    target = GPUTarget("cuda", 90, 32)
    kernel = compile(ASTSource(scaled, signature, {"BLOCK": 128}), target=target, options={"num_warps": 8})
    meta = {"device_type": "cuda", "device": 0}
    with inductor.patch(use_static_triton_launcher=True, strict_static_triton_launcher=True):
        static = StaticTritonCompileResult.can_statically_launch(kernel, {}, meta, HeuristicType.POINTWISE)
    assert isinstance(static, StaticallyLaunchedCudaKernel)
    assert (static.arg_tys, static.num_warps, static.shared) == ("OOif", 8, 0)
    assert static.cubin_path == str(tmp_path / base32(kernel.hash) / "scaled.cubin")
    arrived = pickle.loads(pickle.dumps(static))
    arrived.reload_cubin_from_raw(str(tmp_path / "again.cubin"))
    assert (tmp_path / "again.cubin").read_bytes() == kernel.asm["cubin"]
