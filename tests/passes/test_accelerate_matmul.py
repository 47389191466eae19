"""accelerate_matmul: which operand is the left one, and how many neighbours a lane holds."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge import interpreter
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shape import Trans
from ptxforge.ir.parser import parse_function
from ptxforge.passes.accelerate_matmul import accelerate_matmul
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.support.target import parse_target
from tests.passes.gemm import GEMM

TARGET = parse_target("sm_90")


def gemm(element: str, layout: str, cast: str = "") -> str:
    """The product of the pipeliner's tests with operands of ``element``, transposed in memory (T) or not;
    ``cast`` is the element type of b in memory, if another."""
    text = GEMM.replace("f16", element).replace("num_stages = 3", "num_stages = 2")
    if layout[0] == "T":
        text = text.replace("%ks = splat %k", "%ks = splat %c1").replace("%kr = expand", "%kr0 = expand")
        text = text.replace("  %ks =", """  %n32 = splat %n : (i32) -> tensor<1x32xi32>
  %kr = muli %kr0, %n32 : tensor<1x32xi32>
  %astep = muli %n, %c32 : i32
  %ks =""").replace("%an = addptr %ap, %c32", "%an = addptr %ap, %astep")
    if layout[1] == "T":
        text = text.replace("%ns = splat %n :", "%ns = splat %c1 :")
        text = text.replace("%jb = broadcast %j :", """%k64 = splat %k : (i32) -> tensor<1x64xi32>
  %jk = muli %j, %k64 : tensor<1x64xi32>
  %jb = broadcast %jk :""").replace("%bstep = muli %n, %c32", "%bstep = muli %c1, %c32")
    if cast:
        wide, narrow = f"ptr<{element}>", f"ptr<{cast}>"
        for start in ("%b: ", "%acc, %pa, %pb = ", "%bs = ", "%bptr = ", "%bn = "):
            line = next(line for line in text.split("\n") if start in line)
            head, tail = line.rsplit(start, 1)
            if start.startswith("%acc"):
                tail = f"{narrow} {{".join(tail.rsplit(f"{wide} {{", 1))
            else:
                tail = tail.replace(wide, narrow, 1 if start == "%b: " else -1)
            text = text.replace(line, head + start + tail)
        text = text.replace(
            f"%bv = load %bptr : (tensor<32x64x{wide}>) -> tensor<32x64x{element}>",
            f"%bw = load %bptr : (tensor<32x64x{narrow}>) -> tensor<32x64x{cast}>\n"
            f"    %bv = sitofp %bw : (tensor<32x64x{cast}>) -> tensor<32x64x{element}>",
        )
    return text


def after(text: str, last=accelerate_matmul) -> Function:
    function = parse_function(text)
    end = max(i for i, row in enumerate(PIPELINE) if row.function is last)
    for row in PIPELINE[: end + 1]:
        row.function(function, TARGET)
    return function


def dot_of(function: Function) -> Dot:
    (loop,) = [op for op in function.walk() if isinstance(op, For)]
    (dot,) = [op for op in loop.body.operations if isinstance(op, Dot)]
    return dot


def origin(value) -> str:
    """The parameter from which an operand is loaded."""
    op = value.defining_op
    while not isinstance(op, Load):
        op = op.operands[0].defining_op
    carried = op.pointer
    while carried.defining_op is not None:
        carried = carried.defining_op.operands[0]
    return carried.block.parent_op.initial[carried.index - 1].hint


@pytest.mark.parametrize(
    "element, layout, cast, left",
    [("f32", "NN", "", "b"), ("f32", "NT", "", "a"), ("f32", "TN", "", "a"), ("f32", "TT", "", "a"),
     ("f16", "NN", "", "a"), ("f16", "NT", "i8", "b"), ("f16", "NN", "i8", "a")],
)  # fmt: skip
def test_left_operand(element, layout, cast, left):
    """Words across k, and what is widened from bytes along k, are on the left."""
    function = after(gemm(element, layout, cast))
    dot = dot_of(function)
    assert origin(dot.a) == left and origin(dot.b) == "ab".replace(left, "")
    back = [
        op for op in function.walk() if isinstance(op, Trans) and isinstance(op.x.defining_op, ConvertLayout)
    ]
    assert bool(back) == (left == "b")


@pytest.mark.parametrize(
    "element, layout, cast, interleave",
    [("f32", "NN", "", (2, 1)), ("f32", "TN", "", (2, 1)), ("f32", "NT", "", (1, 1)),
     ("f16", "NN", "", (1, 1)), ("f16", "NN", "i8", (1, 2)), ("f16", "NT", "i8", (1, 1))],
)  # fmt: skip
def test_neighbours_of_a_lane(element, layout, cast, interleave):
    assert dot_of(after(gemm(element, layout, cast))).result.type.layout.interleave == interleave


@pytest.mark.parametrize(
    "element, layout, cast, tiles",
    [("f16", "NN", "", (1, 4)), ("f16", "TN", "", (1, 4)), ("f16", "NT", "", (1, 1)),
     ("f16", "NN", "i8", (1, 1)), ("f32", "NT", "", (1, 1)), ("f32", "NN", "", (1, 1))],
)  # fmt: skip
def test_panels_of_rows_along_n(element, layout, cast, tiles):
    assert dot_of(after(gemm(element, layout, cast))).result.type.layout.tiles_per_warp == tiles


@pytest.mark.parametrize("element, layout, cast", [("f32", "NN", ""), ("f32", "TN", ""), ("f16", "NT", "i8")])
@pytest.mark.parametrize("last", [accelerate_matmul, PIPELINE[-1].function])
def test_meaning_is_kept(element, layout, cast, last):
    rng = np.random.default_rng(0)
    dtype = {"f32": np.float32, "f16": np.float16}[element]
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((64, 96), (96, 64)))
    stored_a = np.ascontiguousarray(a if layout[0] == "N" else a.T)
    stored_b = np.ascontiguousarray(b if layout[1] == "N" else b.T).astype(np.int8 if cast else dtype)
    c = np.full((64, 64), np.nan, dtype)
    interpreter.run(after(gemm(element, layout, cast), last), 1, [stored_a, stored_b, c, 64, 96])
    np.testing.assert_array_equal(c, a @ b)
