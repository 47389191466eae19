"""A kernel that copies a tile by TMA and waits for it at an mbarrier."""

from __future__ import annotations

TEXT = """\
#a = #panels<{swizzle = 32, elementBits = 16, order = [1, 0]}>
#bar = #shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>
#b = #blocked<{sizePerThread = [1, 8], threadsPerWarp = [16, 2], warpsPerCTA = [1, 1], order = [1, 0]}>
func @copy(%x: ptr<f16> {divisibility = 16}, %n: i32, %out: ptr<f16>, %map: tensormap {dtype = "float16", \
base = "x", shape = [3, "n"], strides = ["2*n", 1], box = [16, 16], swizzle = 32}) \
attributes {num_warps = 1, target = "sm_90a"} {
  %buffers = local_alloc : () -> memdesc<2x16x16xf16, #a, mutable>
  %bars = local_alloc : () -> memdesc<2x1xmbarrier, #bar, mutable>
  barrier_init %bars
  barrier
  %zero = constant {value = 0} : i32
  %one = constant {value = 1} : i32
  %buffer = memdesc_index %buffers, %one : (memdesc<2x16x16xf16, #a, mutable>, i32) -> \
memdesc<16x16xf16, #a, mutable>
  %minus = constant {value = -1} : i32
  %yes = constant {value = true} : i1
  %bar = memdesc_index %bars, %one : (memdesc<2x1xmbarrier, #bar, mutable>, i32) \
-> memdesc<1xmbarrier, #bar, mutable>
  %tile = barrier_expect %bar {bytes = 512} : token<tma>
  tensor_load %map, %tile, %buffer, %minus, %one, %yes {tile_dims = [0, 1], is_flagged = true} : \
(tensormap, token<tma>, memdesc<16x16xf16, #a, mutable>, i32, i32, i1)
  %there = barrier_wait %bar, %zero : token<tma>
  %view = memdesc_index %buffers, %one, %there : (memdesc<2x16x16xf16, #a, mutable>, i32, token<tma>) -> \
memdesc<16x16xf16, #a, mutable>
  %v = local_load %view : (memdesc<16x16xf16, #a, mutable>) -> tensor<16x16xf16, #b>
  barrier
  barrier_inval %bars
  %i = make_range {start = 0, end = 16} : tensor<16xi32, #slice<{dim = 1, parent = #b}>>
  %j = make_range {start = 0, end = 16} : tensor<16xi32, #slice<{dim = 0, parent = #b}>>
  %i2 = expand_dims %i {axis = 1} : (tensor<16xi32, #slice<{dim = 1, parent = #b}>>) -> tensor<16x1xi32, #b>
  %j2 = expand_dims %j {axis = 0} : (tensor<16xi32, #slice<{dim = 0, parent = #b}>>) -> tensor<1x16xi32, #b>
  %w = constant {value = 16} : tensor<16x1xi32, #b>
  %r = muli %i2, %w : tensor<16x1xi32, #b>
  %rr = broadcast %r : (tensor<16x1xi32, #b>) -> tensor<16x16xi32, #b>
  %cc = broadcast %j2 : (tensor<1x16xi32, #b>) -> tensor<16x16xi32, #b>
  %o = addi %rr, %cc : tensor<16x16xi32, #b>
  %s = splat %out : (ptr<f16>) -> tensor<16x16xptr<f16>, #b>
  %p = addptr %s, %o : tensor<16x16xptr<f16>, #b>
  store %p, %v : (tensor<16x16xptr<f16>, #b>, tensor<16x16xf16, #b>)
  return
}
"""
