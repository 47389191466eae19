"""lower_descriptors: boxes by pointers and masks, with the meaning that the operations have."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.lower_bounds import lower_bounds
from ptxforge.passes.lower_descriptors import lower_descriptors
from ptxforge.support.errors import VerificationError
from tests.passes.harness import TARGET

HEAD = """func @f(%x: ptr<f32>, %y: ptr<f32>, %n: i32, %m: i32, %i: i32, %j: i32) attributes {num_warps = 4} {
  %one = constant {value = 1} : i64
  %row = constant {value = 24} : i64
  %zero = constant {value = 0} : i32
  %d = make_descriptor %x, %n, %m, %row, %one : (ptr<f32>, i32, i32, i64, i64) -> descriptor<8x16xf32PAD>
  %r = make_descriptor %x, %n, %m, %row, %one : (ptr<f32>, i32, i32, i64, i64) -> descriptor<1x16xf32PAD>
  %e = make_descriptor %y, %n, %m, %row, %one : (ptr<f32>, i32, i32, i64, i64) -> descriptor<8x16xf32PAD>
  %s = make_descriptor %y, %n, %m, %row, %one : (ptr<f32>, i32, i32, i64, i64) -> descriptor<1x16xf32PAD>
  %rows = make_range {start = 3, end = 11} : tensor<8xi32>
BODY
  return
}"""
BODIES = {
    "load": """  %v = descriptor_load %d, %i, %j : (BOX, i32, i32) -> tensor<8x16xf32>
  descriptor_store %e, %v, %zero, %zero : (BOX, tensor<8x16xf32>, i32, i32)""",
    "store": """  %v = descriptor_load %d, %zero, %zero : (BOX, i32, i32) -> tensor<8x16xf32>
  descriptor_store %e, %v, %i, %j : (BOX, tensor<8x16xf32>, i32, i32)""",
    "reduce": """  %v = descriptor_load %d, %zero, %zero : (BOX, i32, i32) -> tensor<8x16xf32>
  descriptor_reduce %e, %v, %i, %j {kind = "fadd"} : (BOX, tensor<8x16xf32>, i32, i32)""",
    "gather": """  %v = descriptor_gather %r, %rows, %j : (ROW, tensor<8xi32>, i32) -> tensor<8x16xf32>
  descriptor_store %e, %v, %zero, %zero : (BOX, tensor<8x16xf32>, i32, i32)""",
    "scatter": """  %v = descriptor_load %d, %zero, %zero : (BOX, i32, i32) -> tensor<8x16xf32>
  descriptor_scatter %s, %v, %rows, %j : (ROW, tensor<8x16xf32>, tensor<8xi32>, i32)""",
}  # fmt: skip


def _text(name: str, padding: str = "zero") -> str:
    text = HEAD.replace("BODY", BODIES[name])
    text = text.replace("BOX", "descriptor<8x16xf32PAD>").replace("ROW", "descriptor<1x16xf32PAD>")
    return text.replace("PAD", "" if padding == "zero" else f", {padding}")


def _shifted(x, i, j, fill):
    out = np.full((8, 16), fill, np.float32)
    for a in range(8):
        for b in range(16):
            if 0 <= i + a < x.shape[0] and 0 <= j + b < x.shape[1]:
                out[a, b] = x[i + a, j + b]
    return out


def _expected(name, x, y, i, j, fill):
    """``y`` afterwards: both are the first n rows and m columns of matrices."""
    y, tile = y.copy(), _shifted(x, 0, 0, fill)
    n, m = x.shape
    if name in ("load", "gather"):
        tile = _shifted(x, i if name == "load" else 3, j, fill)
        i = j = 0
    first = 3 if name == "scatter" else i
    for a in range(8):
        for b in range(16):
            if 0 <= first + a < n and 0 <= j + b < m:
                y[first + a, j + b] = tile[a, b] + (y[first + a, j + b] if name == "reduce" else 0)
    return y


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("i, j", [(0, 0), (2, 5), (-3, -7), (7, 15), (20, 2)])
def test_meaning(name, padding, i, j):
    before = parse_function(_text(name, padding))
    verify(before)
    assert print_function(before) == _text(name, padding)
    after = before.clone()
    assert lower_descriptors(after, TARGET) and not lower_descriptors(after, TARGET)
    verify(after)
    final = after.clone()
    lower_bounds(final, TARGET)
    n, m = 9, 20
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((12, 24)).astype(np.float32), rng.standard_normal((12, 24)).astype(np.float32)
    expected = y.copy()
    fill = np.nan if padding == "nan" else 0
    expected[:n, :m] = _expected(name, x[:n, :m], y[:n, :m], i, j, fill)
    for function in (before, after, final):
        out = y.copy()
        run(function, 1, [x, out, n, m, i, j])
        np.testing.assert_array_equal(out, expected)


def test_nothing_of_descriptors_is_left():
    function = parse_function(_text("load"))
    lower_descriptors(function, TARGET)
    assert not any("descriptor" in op.name for op in function.walk())


@pytest.mark.parametrize("wrong, message", [
    ("descriptor_load %d, %i :", "needs 2 offsets"),
    ("make_descriptor %x, %n, %m, %one :", "as many sizes"),
    ("descriptor_gather %d, %rows, %i :", "boxes of one row"),
])  # fmt: skip
def test_the_verifier(wrong, message):
    body = {
        "descriptor_load": "  %v = descriptor_load %d, %i : (descriptor<8x16xf32>, i32) -> tensor<8x16xf32>",
        "make_descriptor": "  %v = make_descriptor %x, %n, %m, %one : (ptr<f32>, i32, i32, i64) -> "
        "descriptor<8x16xf32>",
        "descriptor_gather": "  %v = descriptor_gather %d, %rows, %i : "
        "(descriptor<8x16xf32>, tensor<8xi32>, i32) -> tensor<8x16xf32>",
    }[wrong.split()[0]]
    with pytest.raises(VerificationError, match=message):
        verify(parse_function(HEAD.replace("BODY", body).replace("PAD", "")))
