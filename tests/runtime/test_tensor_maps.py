"""Kernels with a tensor map among their parameters, which the launcher encodes."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
from ptxforge import compiler
from ptxforge.codegen_ptx import emit
from ptxforge.compiler import Artifact, Assembly
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.runtime import cache
from ptxforge.runtime.jit import jit
from ptxforge.support.errors import DeviceError
from ptxforge.support.target import parse_target
from ptxforge.support.tensor_map import TensorMapRecipe

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry box(.param .u64 x, .param .u32 rows, .param .align 64 .b8 map[128], .param .u64 out, .param .u32 row)
.maxntid 32, 1, 1
{
  .shared .align 128 .b8 tile[256];
  .shared .align 8 .b64 bar;
  .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<6>;
  mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, bar; setp.eq.u32 %p0, %r0, 0;
  ld.param.u32 %r3, [row]; mov.b32 %r4, 0; ld.param.u64 %d0, [out];
  mov.u64 %d1, map; cvta.param.u64 %d1, %d1;
  @%p0 mbarrier.init.shared::cta.b64 [%r2], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @!%p0 bra wait;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d1, {%r4, %r3}], [%r2];
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
  @!%p1 bra wait;
  shl.b32 %r5, %r0, 3; add.u32 %r6, %r5, %r1; cvt.u64.u32 %d2, %r5; add.u64 %d3, %d0, %d2;
  ld.shared.v2.b32 {%r7, %r8}, [%r6];
  st.global.v2.b32 [%d3], {%r7, %r8};
  ret;
}
"""  # noqa: E501
RECIPE = TensorMapRecipe("map", "float32", base="x", shape=("rows", 16), strides=(16, 1), box=(4, 16))


def box(x, rows, out, row):
    """out = x[row : row + 4] of a [rows, 16] matrix, with zeros outside; its text is written by hand."""


@pytest.fixture
def kernel(monkeypatch):
    def compile_function(fn, signature, constants, target, symbol="", **options):
        kinds = signature | {"map": "tensormap"}
        return Artifact(
            name="box", ptx=PTX, target=target, num_warps=1, num_stages=1, num_ctas=1, shared_bytes=0,
            parameters=tuple((name, kinds[name]) for name in ("x", "rows", "map", "out", "row")),
            signature=signature, constants=constants, options=options, timings={},
            asm=Assembly({"ptx": PTX}), stages=[], tensor_maps=(RECIPE,),
        )  # fmt: skip

    monkeypatch.setattr(compiler, "compile_function", compile_function)
    return jit(box, do_not_specialize=["rows", "row"])


def _expected(x, row):
    padded = np.concatenate([np.zeros((4, 16), np.float32), x, np.zeros((8, 16), np.float32)])
    return padded[row + 4 : row + 8]


def test_boxes_of_several_arrays(kernel, devices):
    for device in devices:
        for rows in (9, 6):
            x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
            placed = ptxforge.to_device(x, device)
            for row in (0, -2, 5):
                out = ptxforge.to_device(np.ones((4, 16), np.float32), device)
                kernel[(1,)](placed, rows, out, row, num_warps=1)
                np.testing.assert_array_equal(out.numpy(), _expected(x, row))


def test_arrays_of_the_host(kernel, emulator):
    """They lie at another address at each launch."""
    with ptxforge.use_device(emulator):
        for seed in range(3):
            x, out = (
                np.random.default_rng(seed).standard_normal((9, 16)).astype(np.float32),
                np.zeros((4, 16), "f4"),
            )
            kernel[(1,)](x, 9, out, 7, num_warps=1)
            np.testing.assert_array_equal(out, _expected(x, 7))


def test_a_launch_that_repeats_encodes_nothing(kernel, emulator, monkeypatch):
    calls = []
    encode = emulator.encode_tensor_map
    monkeypatch.setattr(emulator, "encode_tensor_map", lambda *a, **k: calls.append(a) or encode(*a, **k))
    x, out = (ptxforge.to_device(np.zeros((9, 16), np.float32), emulator) for _ in range(2))
    for row in (0, 1, 2):
        kernel[(1,)](x, 9, out, row, num_warps=1)
    assert len(calls) == 1
    kernel[(1,)](x, 8, out, 0, num_warps=1)
    assert [shape for _, _, shape, *_ in calls] == [(9, 16), (8, 16)]


def test_what_cannot_be_a_tensor_map(kernel, emulator):
    x = ptxforge.to_device(np.zeros((9, 16), np.float32), emulator)
    with pytest.raises(DeviceError, match="sizes lie between"):
        kernel[(1,)](x, 0, x, 0, num_warps=1)


TEXT = """
func @f(%x: ptr<f32>, %n: i32, %m: tensormap {dtype = "float32", base = "x", shape = ["n", 16], strides = [16, 1], box = [4, 16], swizzle = 64, padding = "zero"}) attributes {num_warps = 4} {
  return
}
"""  # noqa: E501


def test_a_tensor_map_in_the_ir(assemble):
    function = parse_function(TEXT)
    assert print_function(function) == TEXT.strip()
    ptx = emit(function, parse_target("sm_90a"))
    assert ".param .align 64 .b8 m_2[128]" in ptx
    assemble(ptx)
    (recipe,) = compiler._tensor_maps(function)
    assert recipe == TensorMapRecipe("m", "float32", "x", ("n", 16), (16, 1), (4, 16), 64, "zero")


def test_recipes_are_kept_on_disk(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CACHE_DIR", str(tmp_path))
    artifact = kernel.compile({"x": "*fp32:16", "rows": "i32", "out": "*fp32:16", "row": "i32"})
    cache.store_artifact("entry", artifact)
    restored = cache.load("entry", lambda: artifact)
    assert restored.tensor_maps == (RECIPE,) and restored.parameters == artifact.parameters
