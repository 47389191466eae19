"""drop_assumptions: promises go before code generation."""

from __future__ import annotations

from ptxforge.passes.dce import drop_assumptions
from tests.passes.harness import check


def test_promises_go():
    check(drop_assumptions, """
      %c = constant {value = 0} : i32
      %t = cmpi %x, %c {predicate = "sgt"} : i1
      assume %t : (i1)
      store %p, %x : (ptr<i32>, i32)""", """
      %c = constant {value = 0} : i32
      %t = cmpi %x, %c {predicate = "sgt"} : i1
      store %p, %x : (ptr<i32>, i32)""")
