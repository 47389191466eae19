"""A matrix product in IR text, brought up to a pass, and what it should compute."""

from __future__ import annotations

import numpy as np

from ptxforge import interpreter
from ptxforge.ir.core import Function
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.support.target import parse_target

GEMM = """
func @gemm(%a: ptr<f16> {divisibility = 16}, %b: ptr<f16> {divisibility = 16}, %c: ptr<f16> {divisibility = 16}, %n: i32 {divisibility = 16}, %k: i32 {divisibility = 16}) attributes {num_warps = 4, num_stages = 3, target = "sm_80"} {
  %c0 = constant {value = 0} : i32
  %c1 = constant {value = 1} : i32
  %c32 = constant {value = 32} : i32
  %zero = constant {value = 0.0} : tensor<64x64xf32>
  %r = make_range {start = 0, end = 64} : tensor<64xi32>
  %rk = make_range {start = 0, end = 32} : tensor<32xi32>
  %i = expand_dims %r {axis = 1} : (tensor<64xi32>) -> tensor<64x1xi32>
  %j = expand_dims %r {axis = 0} : (tensor<64xi32>) -> tensor<1x64xi32>
  %kr = expand_dims %rk {axis = 0} : (tensor<32xi32>) -> tensor<1x32xi32>
  %kc = expand_dims %rk {axis = 1} : (tensor<32xi32>) -> tensor<32x1xi32>
  %ks = splat %k : (i32) -> tensor<64x1xi32>
  %ik = muli %i, %ks : tensor<64x1xi32>
  %ikb = broadcast %ik : (tensor<64x1xi32>) -> tensor<64x32xi32>
  %krb = broadcast %kr : (tensor<1x32xi32>) -> tensor<64x32xi32>
  %ao = addi %ikb, %krb : tensor<64x32xi32>
  %ns = splat %n : (i32) -> tensor<32x1xi32>
  %kn = muli %kc, %ns : tensor<32x1xi32>
  %knb = broadcast %kn : (tensor<32x1xi32>) -> tensor<32x64xi32>
  %jb = broadcast %j : (tensor<1x64xi32>) -> tensor<32x64xi32>
  %bo = addi %knb, %jb : tensor<32x64xi32>
  %bstep = muli %n, %c32 : i32
  %acc, %pa, %pb = for %s = %c0 to %k step %c32 iter_args(%x = %zero, %ap = %a, %bp = %b) : tensor<64x64xf32>, ptr<f16>, ptr<f16> {
    %as = splat %ap : (ptr<f16>) -> tensor<64x32xptr<f16>>
    %aptr = addptr %as, %ao : tensor<64x32xptr<f16>>
    %av = load %aptr : (tensor<64x32xptr<f16>>) -> tensor<64x32xf16>
    %bs = splat %bp : (ptr<f16>) -> tensor<32x64xptr<f16>>
    %bptr = addptr %bs, %bo : tensor<32x64xptr<f16>>
    %bv = load %bptr : (tensor<32x64xptr<f16>>) -> tensor<32x64xf16>
    %d = dot %av, %bv, %x : (tensor<64x32xf16>, tensor<32x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
    %an = addptr %ap, %c32 : ptr<f16>
    %bn = addptr %bp, %bstep : ptr<f16>
    yield %d, %an, %bn
  }
  %res = truncf %acc : (tensor<64x64xf32>) -> tensor<64x64xf16>
  %n64 = splat %n : (i32) -> tensor<64x1xi32>
  %in = muli %i, %n64 : tensor<64x1xi32>
  %inb = broadcast %in : (tensor<64x1xi32>) -> tensor<64x64xi32>
  %jbb = broadcast %j : (tensor<1x64xi32>) -> tensor<64x64xi32>
  %co = addi %inb, %jbb : tensor<64x64xi32>
  %cs = splat %c : (ptr<f16>) -> tensor<64x64xptr<f16>>
  %cptr = addptr %cs, %co : tensor<64x64xptr<f16>>
  store %cptr, %res : (tensor<64x64xptr<f16>>, tensor<64x64xf16>)
  return
}
"""  # noqa: E501
TARGET = parse_target("sm_80")


def run_until(last, stages: int = 3, text: str = GEMM) -> Function:
    """The kernel after every row of the pipeline up to the last row of pass ``last``."""
    function = parse_function(text)
    function.attributes["num_stages"] = stages
    end = max(i for i, row in enumerate(PIPELINE) if row.function is last)
    for row in PIPELINE[: end + 1]:
        row.function(function, TARGET)
    verify(function)
    return function


def product(function: Function, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The kernel's result for random operands, and numpy's."""
    rng = np.random.default_rng(k)
    a, b = rng.integers(-4, 5, (64, max(k, 1))), rng.integers(-4, 5, (max(k, 1), 64))
    out = np.full((64, 64), np.nan, np.float16)
    interpreter.run(function, 1, [a.astype(np.float16), b.astype(np.float16), out, 64, k])
    return out, (a[:, :k] @ b[:k]).astype(np.float16)
