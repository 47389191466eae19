"""licm: invariant operations leave loops; the GEMM of seed 000 is the model."""

from __future__ import annotations

from ptxforge.passes.licm import licm
from tests.passes.harness import body, check, function, transform


def test_muli_and_splat_leave_the_gemm_loop():
    """Seed 000, "IR Before / After LoopInvariantCodeMotion": the pointer increment is computed once."""
    text = """
      %c0 = constant {value = 0} : i32
      %c64 = constant {value = 64} : i32
      %c16 = constant {value = 16} : i32
      %r = make_range {start = 0, end = 128} : tensor<128xi32>
      %i = reshape %r : (tensor<128xi32>) -> tensor<16x8xi32>
      %q = splat %p : (ptr<f16>) -> tensor<16x8xptr<f16>>
      %b = addptr %q, %i : tensor<16x8xptr<f16>>
      %z = constant {value = 0.0} : tensor<16x8xf16>
      %acc, %ptr = for %k = %c0 to %c64 step %c16 iter_args(%a = %z, %bp = %b) : tensor<16x8xf16>, tensor<16x8xptr<f16>> {
        %v = load %bp : (tensor<16x8xptr<f16>>) -> tensor<16x8xf16>
        %s = addf %a, %v : tensor<16x8xf16>
        %30 = muli %stride, %c16 : i32
        %31 = splat %30 : (i32) -> tensor<16x8xi32>
        %32 = addptr %bp, %31 : tensor<16x8xptr<f16>>
        yield %s, %32
      }
      store %b, %acc : (tensor<16x8xptr<f16>>, tensor<16x8xf16>)"""  # noqa: E501
    lines = body(transform(licm, function(text, parameters="%p: ptr<f16>, %stride: i32"))).splitlines()
    loop = next(i for i, line in enumerate(lines) if "for %k" in line)
    assert "muli %stride, %c16" in lines[loop - 2] and "splat" in lines[loop - 1]
    assert [line.strip().split(" = ")[-1].split()[0] for line in lines[loop + 1 :][:4]] == [
        "load", "addf", "addptr", "yield"]  # fmt: skip


def test_through_all_loops_with_nested_regions():
    check(licm, """
      %c = constant {value = 1} : i32
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      for %i = %c to %x step %c {
        for %j = %c to %x step %c {
          %a = muli %y, %y : i32
          %b = muli %i, %y : i32
          %m = reduce %r {axis = 0} : (tensor<8xi32>) -> i32 {
            (%k: i32, %l: i32):
            %n = addi %k, %l : i32
            yield %n
          }
          %d = addi %a, %b : i32
          %e = addi %d, %m : i32
          store %p, %e : (ptr<i32>, i32)
          yield
        }
        yield
      }""", """
      %c = constant {value = 1} : i32
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %a = muli %y, %y : i32
      %m = reduce %r {axis = 0} : (tensor<8xi32>) -> i32 {
        (%k: i32, %l: i32):
        %n = addi %k, %l : i32
        yield %n
      }
      for %i = %c to %x step %c {
        %b = muli %i, %y : i32
        %d = addi %a, %b : i32
        %e = addi %d, %m : i32
        for %j = %c to %x step %c {
          store %p, %e : (ptr<i32>, i32)
          yield
        }
        yield
      }""")  # fmt: skip


def test_out_of_both_regions_of_while():
    text = """
      %c = constant {value = 1} : i32
      %r = while %x : i32 {
        (%a: i32):
        %k = muli %y, %y : i32
        %t = cmpi %a, %k {predicate = "slt"} : i1
        condition %t, %a
      } body {
        (%d: i32):
        %m = addi %y, %y : i32
        %f = addi %d, %m : i32
        yield %f
      }
      store %p, %r : (ptr<i32>, i32)"""
    lines = body(transform(licm, function(text))).splitlines()
    assert [line.split(" = ")[1].split()[0] for line in lines[:4]] == ["constant", "muli", "addi", "while"]


LOOP = """
      %c = constant {value = 1} : i32
      for %i = %c to %x step %c ATTRIBUTES{
        %a = muli %y, %y : i32
        %v = load %p : (ptr<i32>) -> i32
        %b = addi %v, %a : i32
        store %p, %b : (ptr<i32>, i32)
        yield
      }"""


def test_loads_stay():
    lines = body(transform(licm, function(LOOP.replace("ATTRIBUTES", "")))).splitlines()
    assert "muli" in lines[1] and "for" in lines[2] and "load" in lines[3]


def test_what_may_not_run_in_vain_stays():
    """The loop may run no time: then a search need not end, and an index may be outside."""
    text = """
      %c = constant {value = 1} : i32
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %q = splat %p : (ptr<i32>) -> tensor<8xptr<i32>>
      for %i = %c to %x step %c {
        %w = while %y : i32 {
          (%a: i32):
          %t = cmpi %a, %c {predicate = "slt"} : i1
          condition %t, %a
        } body {
          (%d: i32):
          yield %c
        }
        %b = andi %y, %c : i32
        %s = splat %b : (i32) -> tensor<8xi32>
        %g = gather %r, %s {axis = 0} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>
        store %p, %w : (ptr<i32>, i32)
        store %q, %g : (tensor<8xptr<i32>>, tensor<8xi32>)
        yield
      }"""
    lines = body(transform(licm, function(text))).splitlines()
    assert [line.split(" = ")[1].split()[0] for line in lines[:5]] == [
        "constant", "make_range", "splat", "andi", "splat"]  # fmt: skip
    assert lines[5].lstrip().startswith("for") and "while" in lines[6]


def test_disable_licm():
    text = LOOP.replace("ATTRIBUTES", "{disable_licm = true} ")
    assert body(transform(licm, function(text))) == body(function(text))
