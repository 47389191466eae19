"""Kernels in IR text, as the tile passes leave them, for the tests of the gpu passes.

``ARGUMENTS`` gives each one's integers and grid for the interpreter.
"""

from __future__ import annotations

ADD = """\
func @add(%x: ptr<f32> {divisibility = 16}, %y: ptr<f32> {divisibility = 16},
    %out: ptr<f32> {divisibility = 16}, %n: i32 {divisibility = 16})
    attributes {num_warps = 4, target = "sm_90a"} {
  %c = constant {value = 1024} : i32
  %pid = get_program_id {axis = 0} : i32
  %s = muli %pid, %c : i32
  %r = make_range {start = 0, end = 1024} : tensor<1024xi32>
  %ss = splat %s : (i32) -> tensor<1024xi32>
  %i = addi %ss, %r : tensor<1024xi32>
  %ns = splat %n : (i32) -> tensor<1024xi32>
  %m = cmpi %i, %ns {predicate = "slt"} : tensor<1024xi1>
  %xs = splat %x : (ptr<f32>) -> tensor<1024xptr<f32>>
  %xp = addptr %xs, %i : tensor<1024xptr<f32>>
  %a = load %xp, %m : (tensor<1024xptr<f32>>, tensor<1024xi1>) -> tensor<1024xf32>
  %ys = splat %y : (ptr<f32>) -> tensor<1024xptr<f32>>
  %yp = addptr %ys, %i : tensor<1024xptr<f32>>
  %b = load %yp, %m : (tensor<1024xptr<f32>>, tensor<1024xi1>) -> tensor<1024xf32>
  %d = addf %a, %b : tensor<1024xf32>
  %os = splat %out : (ptr<f32>) -> tensor<1024xptr<f32>>
  %op = addptr %os, %i : tensor<1024xptr<f32>>
  store %op, %d, %m : (tensor<1024xptr<f32>>, tensor<1024xf32>, tensor<1024xi1>)
  return
}
"""

TRANSPOSE = """\
func @transpose(%x: ptr<f32> {divisibility = 16}, %out: ptr<f32> {divisibility = 16},
    %n: i32 {divisibility = 16}) attributes {num_warps = 4, target = "sm_90a"} {
  %r = make_range {start = 0, end = 64} : tensor<64xi32>
  %e = expand_dims %r {axis = 1} : (tensor<64xi32>) -> tensor<64x1xi32>
  %f = expand_dims %r {axis = 0} : (tensor<64xi32>) -> tensor<1x64xi32>
  %ns = splat %n : (i32) -> tensor<64x1xi32>
  %nt = splat %n : (i32) -> tensor<1x64xi32>
  %rs = muli %e, %ns : tensor<64x1xi32>
  %xs = splat %x : (ptr<f32>) -> tensor<64x1xptr<f32>>
  %xp = addptr %xs, %rs : tensor<64x1xptr<f32>>
  %xb = broadcast %xp : (tensor<64x1xptr<f32>>) -> tensor<64x64xptr<f32>>
  %fb = broadcast %f : (tensor<1x64xi32>) -> tensor<64x64xi32>
  %p = addptr %xb, %fb : tensor<64x64xptr<f32>>
  %v = load %p : (tensor<64x64xptr<f32>>) -> tensor<64x64xf32>
  %cs = muli %f, %nt : tensor<1x64xi32>
  %os = splat %out : (ptr<f32>) -> tensor<64x1xptr<f32>>
  %op = addptr %os, %e : tensor<64x1xptr<f32>>
  %ob = broadcast %op : (tensor<64x1xptr<f32>>) -> tensor<64x64xptr<f32>>
  %cb = broadcast %cs : (tensor<1x64xi32>) -> tensor<64x64xi32>
  %q = addptr %ob, %cb : tensor<64x64xptr<f32>>
  %w = exp %v : tensor<64x64xf32>
  store %q, %w : (tensor<64x64xptr<f32>>, tensor<64x64xf32>)
  return
}
"""

COLUMN_SUM = """\
func @colsum(%x: ptr<f16> {divisibility = 16}, %out: ptr<f32> {divisibility = 16}, %m: i32,
    %n: i32 {divisibility = 16}) attributes {num_warps = 4, target = "sm_90a"} {
  %c0 = constant {value = 0} : i32
  %c32 = constant {value = 32} : i32
  %r = make_range {start = 0, end = 32} : tensor<32xi32>
  %c = make_range {start = 0, end = 128} : tensor<128xi32>
  %e = expand_dims %r {axis = 1} : (tensor<32xi32>) -> tensor<32x1xi32>
  %f = expand_dims %c {axis = 0} : (tensor<128xi32>) -> tensor<1x128xi32>
  %fb = broadcast %f : (tensor<1x128xi32>) -> tensor<32x128xi32>
  %zero = constant {value = 0.0} : tensor<128xf32>
  %sum = for %k = %c0 to %m step %c32 iter_args(%acc = %zero) : tensor<128xf32> {
    %ks = splat %k : (i32) -> tensor<32x1xi32>
    %rows = addi %ks, %e : tensor<32x1xi32>
    %ns = splat %n : (i32) -> tensor<32x1xi32>
    %ms = splat %m : (i32) -> tensor<32x1xi32>
    %mask = cmpi %rows, %ms {predicate = "slt"} : tensor<32x1xi1>
    %mb = broadcast %mask : (tensor<32x1xi1>) -> tensor<32x128xi1>
    %rs = muli %rows, %ns : tensor<32x1xi32>
    %xs = splat %x : (ptr<f16>) -> tensor<32x1xptr<f16>>
    %xp = addptr %xs, %rs : tensor<32x1xptr<f16>>
    %xb = broadcast %xp : (tensor<32x1xptr<f16>>) -> tensor<32x128xptr<f16>>
    %p = addptr %xb, %fb : tensor<32x128xptr<f16>>
    %z = constant {value = 0.0} : tensor<32x128xf16>
    %v = load %p, %mb, %z : (tensor<32x128xptr<f16>>, tensor<32x128xi1>, tensor<32x128xf16>) ->
        tensor<32x128xf16>
    %w = extf %v : (tensor<32x128xf16>) -> tensor<32x128xf32>
    %s = reduce %w {axis = 0} : (tensor<32x128xf32>) -> tensor<128xf32> {
      (%a: f32, %b: f32):
      %cc = addf %a, %b : f32
      yield %cc
    }
    %next = addf %acc, %s : tensor<128xf32>
    yield %next
  }
  %os = splat %out : (ptr<f32>) -> tensor<128xptr<f32>>
  %op = addptr %os, %c : tensor<128xptr<f32>>
  store %op, %sum : (tensor<128xptr<f32>>, tensor<128xf32>)
  return
}
"""

MATMUL = """\
func @matmul(%a: ptr<f16> {divisibility = 16}, %b: ptr<f16> {divisibility = 16},
    %c: ptr<f32> {divisibility = 16}, %sam: i32 {divisibility = 16}, %sbk: i32 {divisibility = 16},
    %scm: i32 {divisibility = 16}, %K: i32 {divisibility = 16})
    attributes {num_warps = 4, target = "sm_90a"} {
  %c0 = constant {value = 0} : i32
  %cBK = constant {value = 32} : i32
  %pid = get_program_id {axis = 0} : i32
  %c128 = constant {value = 128} : i32
  %pm = muli %pid, %c128 : i32
  %rm = make_range {start = 0, end = 128} : tensor<128xi32>
  %pms = splat %pm : (i32) -> tensor<128xi32>
  %om = addi %pms, %rm : tensor<128xi32>
  %on = make_range {start = 0, end = 64} : tensor<64xi32>
  %ok = make_range {start = 0, end = 32} : tensor<32xi32>
  %om1 = expand_dims %om {axis = 1} : (tensor<128xi32>) -> tensor<128x1xi32>
  %ok0 = expand_dims %ok {axis = 0} : (tensor<32xi32>) -> tensor<1x32xi32>
  %sams = splat %sam : (i32) -> tensor<128x1xi32>
  %ar = muli %om1, %sams : tensor<128x1xi32>
  %as = splat %a : (ptr<f16>) -> tensor<128x1xptr<f16>>
  %ap = addptr %as, %ar : tensor<128x1xptr<f16>>
  %apb = broadcast %ap : (tensor<128x1xptr<f16>>) -> tensor<128x32xptr<f16>>
  %okb = broadcast %ok0 : (tensor<1x32xi32>) -> tensor<128x32xi32>
  %aptr = addptr %apb, %okb : tensor<128x32xptr<f16>>
  %ok1 = expand_dims %ok {axis = 1} : (tensor<32xi32>) -> tensor<32x1xi32>
  %on0 = expand_dims %on {axis = 0} : (tensor<64xi32>) -> tensor<1x64xi32>
  %sbks = splat %sbk : (i32) -> tensor<32x1xi32>
  %br = muli %ok1, %sbks : tensor<32x1xi32>
  %bs = splat %b : (ptr<f16>) -> tensor<32x1xptr<f16>>
  %bp = addptr %bs, %br : tensor<32x1xptr<f16>>
  %bpb = broadcast %bp : (tensor<32x1xptr<f16>>) -> tensor<32x64xptr<f16>>
  %onb = broadcast %on0 : (tensor<1x64xi32>) -> tensor<32x64xi32>
  %bptr = addptr %bpb, %onb : tensor<32x64xptr<f16>>
  %zero = constant {value = 0.0} : tensor<128x64xf32>
  %acc, %x, %y = for %k = %c0 to %K step %cBK
      iter_args(%d = %zero, %p = %aptr, %q = %bptr) : tensor<128x64xf32>, tensor<128x32xptr<f16>>,
      tensor<32x64xptr<f16>> {
    %av = load %p : (tensor<128x32xptr<f16>>) -> tensor<128x32xf16>
    %bv = load %q : (tensor<32x64xptr<f16>>) -> tensor<32x64xf16>
    %e = dot %av, %bv, %d : (tensor<128x32xf16>, tensor<32x64xf16>, tensor<128x64xf32>) -> tensor<128x64xf32>
    %inc = constant {value = 32} : tensor<128x32xi32>
    %pn = addptr %p, %inc : tensor<128x32xptr<f16>>
    %bi = muli %sbk, %cBK : i32
    %bis = splat %bi : (i32) -> tensor<32x64xi32>
    %qn = addptr %q, %bis : tensor<32x64xptr<f16>>
    yield %e, %pn, %qn
  }
  %scms = splat %scm : (i32) -> tensor<128x1xi32>
  %cr = muli %om1, %scms : tensor<128x1xi32>
  %cs = splat %c : (ptr<f32>) -> tensor<128x1xptr<f32>>
  %cp = addptr %cs, %cr : tensor<128x1xptr<f32>>
  %cpb = broadcast %cp : (tensor<128x1xptr<f32>>) -> tensor<128x64xptr<f32>>
  %onc = broadcast %on0 : (tensor<1x64xi32>) -> tensor<128x64xi32>
  %cptr = addptr %cpb, %onc : tensor<128x64xptr<f32>>
  store %cptr, %acc : (tensor<128x64xptr<f32>>, tensor<128x64xf32>)
  return
}
"""

ONLINE_SOFTMAX = """\
func @att(%x: ptr<f32> {divisibility = 16}, %out: ptr<f32> {divisibility = 16}, %n: i32 {divisibility = 16})
    attributes {num_warps = 4, target = "sm_90a"} {
  %c0 = constant {value = 0} : i32
  %c64 = constant {value = 64} : i32
  %r = make_range {start = 0, end = 32} : tensor<32xi32>
  %c = make_range {start = 0, end = 64} : tensor<64xi32>
  %e = expand_dims %r {axis = 1} : (tensor<32xi32>) -> tensor<32x1xi32>
  %f = expand_dims %c {axis = 0} : (tensor<64xi32>) -> tensor<1x64xi32>
  %ns = splat %n : (i32) -> tensor<32x1xi32>
  %rs = muli %e, %ns : tensor<32x1xi32>
  %xs = splat %x : (ptr<f32>) -> tensor<32x1xptr<f32>>
  %xp = addptr %xs, %rs : tensor<32x1xptr<f32>>
  %xb = broadcast %xp : (tensor<32x1xptr<f32>>) -> tensor<32x64xptr<f32>>
  %zero = constant {value = 0.0} : tensor<32xf32>
  %minf = constant {value = -1.0e30} : tensor<32xf32>
  %m, %l = for %k = %c0 to %n step %c64 iter_args(%mi = %minf, %li = %zero) : tensor<32xf32>, tensor<32xf32> {
    %ks = splat %k : (i32) -> tensor<1x64xi32>
    %cols = addi %ks, %f : tensor<1x64xi32>
    %fb = broadcast %cols : (tensor<1x64xi32>) -> tensor<32x64xi32>
    %p = addptr %xb, %fb : tensor<32x64xptr<f32>>
    %v = load %p : (tensor<32x64xptr<f32>>) -> tensor<32x64xf32>
    %s = reduce %v {axis = 1} : (tensor<32x64xf32>) -> tensor<32xf32> {
      (%a: f32, %b: f32):
      %cc = maxnumf %a, %b : f32
      yield %cc
    }
    %mn = maxnumf %mi, %s : tensor<32xf32>
    %d = subf %mi, %mn : tensor<32xf32>
    %alpha = exp2 %d : tensor<32xf32>
    %mne = expand_dims %mn {axis = 1} : (tensor<32xf32>) -> tensor<32x1xf32>
    %mnb = broadcast %mne : (tensor<32x1xf32>) -> tensor<32x64xf32>
    %q = subf %v, %mnb : tensor<32x64xf32>
    %pe = exp2 %q : tensor<32x64xf32>
    %ls = reduce %pe {axis = 1} : (tensor<32x64xf32>) -> tensor<32xf32> {
      (%a2: f32, %b2: f32):
      %cc2 = addf %a2, %b2 : f32
      yield %cc2
    }
    %la = mulf %li, %alpha : tensor<32xf32>
    %ln = addf %la, %ls : tensor<32xf32>
    yield %mn, %ln
  }
  %z = addf %m, %l : tensor<32xf32>
  %os = splat %out : (ptr<f32>) -> tensor<32xptr<f32>>
  %op = addptr %os, %r : tensor<32xptr<f32>>
  store %op, %z : (tensor<32xptr<f32>>, tensor<32xf32>)
  return
}
"""

ARGUMENTS = {
    ADD: ({"n": 1888}, 2),
    TRANSPOSE: ({"n": 64}, 1),
    COLUMN_SUM: ({"m": 100, "n": 128}, 1),
    MATMUL: ({"K": 64, "sam": 64, "sbk": 64, "scm": 64}, 2),
    ONLINE_SOFTMAX: ({"n": 128}, 1),
}

ALL = {
    "add": ADD,
    "transpose": TRANSPOSE,
    "column_sum": COLUMN_SUM,
    "matmul": MATMUL,
    "online_softmax": ONLINE_SOFTMAX,
}
