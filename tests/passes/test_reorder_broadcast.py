"""reorder_broadcast: elementwise operations before splat and broadcast."""

from __future__ import annotations

import pytest

from ptxforge.passes.reorder_broadcast import reorder_broadcast
from tests.passes.harness import body, check, function, transform


def test_splats_are_computed_as_scalars():
    check(reorder_broadcast, """
      %s = splat %x : (i32) -> tensor<8xi32>
      %t = splat %y : (i32) -> tensor<8xi32>
      %c = constant {value = 3} : tensor<8xi32>
      %u = addi %s, %t : tensor<8xi32>
      %v = muli %u, %c : tensor<8xi32>
      %w = extsi %v : (tensor<8xi32>) -> tensor<8xi64>
      %q = splat %p : (ptr<i32>) -> tensor<8xptr<i32>>
      %a = addptr %q, %w : tensor<8xptr<i32>>
      store %a, %v : (tensor<8xptr<i32>>, tensor<8xi32>)""", """
      %0 = addi %x, %y : i32
      %1 = constant {value = 3} : i32
      %2 = muli %0, %1 : i32
      %v = splat %2 : (i32) -> tensor<8xi32>
      %3 = extsi %2 : (i32) -> i64
      %4 = addptr %p, %3 : ptr<i32>
      %a = splat %4 : (ptr<i32>) -> tensor<8xptr<i32>>
      store %a, %v : (tensor<8xptr<i32>>, tensor<8xi32>)""", parameters="%x: i32, %y: i32, %p: ptr<i32>")


def test_broadcasts_of_one_shape():
    check(reorder_broadcast, """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %e = expand_dims %r {axis = 1} : (tensor<8xi32>) -> tensor<8x1xi32>
      %b = broadcast %e : (tensor<8x1xi32>) -> tensor<8x4xi32>
      %s = splat %x : (i32) -> tensor<8x4xi32>
      %c = constant {value = 4} : tensor<8x4xi32>
      %m = muli %b, %c : tensor<8x4xi32>
      %n = addi %m, %s : tensor<8x4xi32>
      %t = cmpi %n, %b {predicate = "slt"} : tensor<8x4xi1>
      %q = splat %p : (ptr<i32>) -> tensor<8x4xptr<i32>>
      %a = addptr %q, %n : tensor<8x4xptr<i32>>
      store %a, %n, %t : (tensor<8x4xptr<i32>>, tensor<8x4xi32>, tensor<8x4xi1>)""", """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %e = expand_dims %r {axis = 1} : (tensor<8xi32>) -> tensor<8x1xi32>
      %0 = constant {value = 4} : tensor<8x1xi32>
      %1 = muli %e, %0 : tensor<8x1xi32>
      %2 = splat %x : (i32) -> tensor<8x1xi32>
      %3 = addi %1, %2 : tensor<8x1xi32>
      %n = broadcast %3 : (tensor<8x1xi32>) -> tensor<8x4xi32>
      %4 = cmpi %3, %e {predicate = "slt"} : tensor<8x1xi1>
      %t = broadcast %4 : (tensor<8x1xi1>) -> tensor<8x4xi1>
      %5 = splat %p : (ptr<i32>) -> tensor<8x1xptr<i32>>
      %6 = addptr %5, %3 : tensor<8x1xptr<i32>>
      %a = broadcast %6 : (tensor<8x1xptr<i32>>) -> tensor<8x4xptr<i32>>
      store %a, %n, %t : (tensor<8x4xptr<i32>>, tensor<8x4xi32>, tensor<8x4xi1>)""")  # fmt: skip


ROWS = """
      %r = make_range {start = 0, end = 8} : tensor<8xi32>
      %c = expand_dims %r {axis = 1} : (tensor<8xi32>) -> tensor<8x1xi32>
      %d = expand_dims %r {axis = 0} : (tensor<8xi32>) -> tensor<1x8xi32>
      %e = broadcast %c : (tensor<8x1xi32>) -> tensor<8x8xi32>
      %f = broadcast %d : (tensor<1x8xi32>) -> tensor<8x8xi32>
      %q = splat %p : (ptr<i32>) -> tensor<8x8xptr<i32>>"""


@pytest.mark.parametrize("text", [
    # Rows and columns; memory; a tensor that is no broadcast.
    "%g = addi %e, %f : tensor<8x8xi32>\n%a = addptr %q, %g : tensor<8x8xptr<i32>>\n"
    "store %a, %g : (tensor<8x8xptr<i32>>, tensor<8x8xi32>)",
    "%v = load %q : (tensor<8x8xptr<i32>>) -> tensor<8x8xi32>\nstore %q, %v : (tensor<8x8xptr<i32>>, tensor<8x8xi32>)",  # noqa: E501
])  # fmt: skip
def test_what_stays(text):
    before = function(ROWS + "\n" + text)
    assert "broadcast" not in body(transform(reorder_broadcast, before)).replace(body(before), "")


def test_hints_stay_with_the_tensor_they_speak_of():
    after = body(
        transform(
            reorder_broadcast,
            function("""
      %s = splat %x : (i32) -> tensor<8xi32>
      %u = addi %s, %s {contiguity = [8]} : tensor<8xi32>
      %q = splat %p : (ptr<i32>) -> tensor<8xptr<i32>>
      store %q, %u : (tensor<8xptr<i32>>, tensor<8xi32>)"""),
        )
    )
    assert "addi %x, %x : i32" in after and "{contiguity = [8]} : (i32) -> tensor<8xi32>" in after
