"""rotate_ranges: tiles of rows that begin anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.ops.shape import MakeRange, RotatedRange
from ptxforge.passes.coalesce import coalesce
from ptxforge.passes.rotate_ranges import rotate_ranges
from ptxforge.passes.vectorize_memory import vectorize_memory
from tests.passes.gpu import apply, operations, up_to
from tests.passes.harness import check, function, transform

PARAMETERS = "%p: ptr<f32> {divisibility = 16}, %q: ptr<f32> {divisibility = 16}, %x: i32, %y: i32"

ROW = """
    %i = make_range {start = 0, end = 1024} : tensor<1024xi32>
    %n = splat %y : (i32) -> tensor<1024xi32>
    %m = cmpi %i, %n {predicate = "slt"} : tensor<1024xi1>
    %b = addptr %p, %x : ptr<f32>
    %s = splat %b : (ptr<f32>) -> tensor<1024xptr<f32>>
    %a = addptr %s, %i : tensor<1024xptr<f32>>
    %v = load %a, %m : (tensor<1024xptr<f32>>, tensor<1024xi1>) -> tensor<1024xf32>
    %w = addf %v, %v : tensor<1024xf32>
    %c = addptr %q, %x : ptr<f32>
    %t = splat %c : (ptr<f32>) -> tensor<1024xptr<f32>>
    %d = addptr %t, %i : tensor<1024xptr<f32>>
    store %d, %w, %m : (tensor<1024xptr<f32>>, tensor<1024xf32>, tensor<1024xi1>)
"""


def rotated(text, parameters=PARAMETERS):
    """How many ranges the pass rotates."""
    after = transform(rotate_ranges, function(text, parameters=parameters), rtol=1e-5)
    return len(operations(after, RotatedRange))


def test_a_row():
    """The shift is that of the row, and comes before the range."""
    before = """
      %i = make_range {start = 0, end = 1024} : tensor<1024xi32>
      %b = addptr %p, %x : ptr<f32>
      %s = splat %b : (ptr<f32>) -> tensor<1024xptr<f32>>
      %a = addptr %s, %i : tensor<1024xptr<f32>>
      %v = load %a : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
      store %a, %v : (tensor<1024xptr<f32>>, tensor<1024xf32>)
    """
    after = """
      %0 = constant {value = 0} : i32
      %1 = subi %0, %x : i32
      %2 = constant {value = 3} : i32
      %3 = andi %1, %2 : i32
      %i = rotated_range %3 {start = 0, end = 1024, granule = 4} : tensor<1024xi32>
      %b = addptr %p, %x : ptr<f32>
      %s = splat %b : (ptr<f32>) -> tensor<1024xptr<f32>>
      %a = addptr %s, %i : tensor<1024xptr<f32>>
      %v = load %a {guarded = 4} : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
      store %a, %v {guarded = 4} : (tensor<1024xptr<f32>>, tensor<1024xf32>)
    """
    check(rotate_ranges, before, after, parameters=PARAMETERS)


def test_what_computes_the_shift_is_hoisted():
    text = ROW.replace("addptr %p, %x", "addptr %p, %z").replace("addptr %q, %x", "addptr %q, %z")
    text = text.replace("%b = ", "%k = constant {value = 3} : i32\n    %z = muli %x, %k : i32\n    %b = ")
    assert rotated(text) == 1


@pytest.mark.parametrize(("change", "reason"), [
    ({"%p: ptr<f32> {divisibility = 16}": "%p: ptr<f32>"}, "the two arrays lie differently"),
    ({"%x: i32": "%x: i32 {divisibility = 16}"}, "rows are aligned"),
])  # fmt: skip
def test_alignments(change, reason):
    parameters = PARAMETERS
    for old, new in change.items():
        parameters = parameters.replace(old, new)
    assert rotated(ROW, parameters) == 0, reason


@pytest.mark.parametrize(("predicate", "count"), [("slt", 1), ("sle", 1), ("sge", 0), ("eq", 0)])
def test_masks(predicate, count):
    """Of a vector that is not whole, the first elements are wanted: no other mask is tested by its ends."""
    assert rotated(ROW.replace('"slt"', f'"{predicate}"')) == count


def test_volatile_loads_stay_single():
    assert rotated(ROW.replace("load %a, %m :", "load %a, %m {volatile = true} :")) == 0


def test_no_more_code_than_for_32_vectors():
    assert rotated(ROW.replace("1024", "16384")) == 1
    assert rotated(ROW.replace("1024", "32768")) == 0


def test_rows_that_lie_differently():
    assert rotated(ROW.replace("addptr %q, %x", "addptr %q, %y")) == 0


def test_a_factor_of_a_vector_does_not_matter():
    """16 · y elements more are whole vectors."""
    text = ROW.replace("%c = addptr %q, %x", "%k = constant {value = 16} : i32\n    %z = muli %y, %k : i32\n"
                       "    %e = addi %x, %z : i32\n    %c = addptr %q, %e")  # fmt: skip
    assert rotated(text.replace("1024", "64")) == 0, "too few elements for each thread"
    assert rotated(text) == 1


def combining(kind, combine, type):
    """A ``reduce`` or ``scan`` of the row."""
    return f"""
    %o{kind} = {kind} %v {{axis = 0}} : (tensor<1024xf32>) -> {type} {{
    (%g{kind}: f32, %h{kind}: f32):
    %k{kind} = {combine} %g{kind}, %h{kind} : f32
    yield %k{kind}
    }}"""


@pytest.mark.parametrize("operation", [
    combining("scan", "addf", "tensor<1024xf32>"),
    "%o = reshape %v : (tensor<1024xf32>) -> tensor<32x32xf32>",
    "%o = expand_dims %v {axis = 0} : (tensor<1024xf32>) -> tensor<1x1024xf32>",
], ids=["scan", "reshape", "expand_dims"])  # fmt: skip
def test_order_that_is_seen(operation):
    """Nothing moves when somebody sees the order of the elements."""
    assert rotated(ROW + operation) == 0


def test_reductions_see_no_order():
    assert rotated(ROW + combining("reduce", "maxnumf", "f32")) == 1


HINTED_ROW = ROW.replace("addptr %s, %i", "addptr %s, %i {divisibility = 16}")


def test_rows_that_are_promised_to_be_aligned():
    assert rotated(HINTED_ROW.replace("addptr %t, %i", "addptr %t, %i {divisibility = 16}")) == 0


def test_hints_about_what_moves_are_dropped():
    """Runs of the rotated tile begin elsewhere than those that the hint is about."""
    after = transform(rotate_ranges, function(HINTED_ROW, parameters=PARAMETERS), rtol=1e-5)
    assert operations(after, RotatedRange)
    assert not any("divisibility" in op.attributes for op in after.walk())


LOOP = """
    %i = make_range {start = 0, end = 1024} : tensor<1024xi32>
    %lo = constant {value = 0} : i32
    %step = constant {value = STEP} : i32
    %b = addptr %p, %x : ptr<f32>
    %r = for %k = %lo to %y step %step iter_args(%c = %b) : ptr<f32> {
      %s = splat %c : (ptr<f32>) -> tensor<1024xptr<f32>>
      %a = addptr %s, %i : tensor<1024xptr<f32>>
      %v = load %a : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
      %w = negf %v : tensor<1024xf32>
      store %a, %w : (tensor<1024xptr<f32>>, tensor<1024xf32>)
      %d = addptr %c, %step : ptr<f32>
      yield %d
    }
"""


@pytest.mark.parametrize(("step", "count"), [(1024, 1), (4, 1), (6, 0)])
def test_a_pointer_that_advances(step, count):
    """By whole vectors: the shift is that before the loop. By less, it changes."""
    text = LOOP.replace("STEP", str(step)).replace("%w = negf %v", "%w = addf %v, %v")
    assert rotated(text) == count


def test_widths():
    """The layout and the vectors follow: 4 f32 in a thread, which the code may move as one."""
    after = apply(up_to(function(ROW, parameters=PARAMETERS), coalesce), vectorize_memory)
    for op in operations(after, Load, Store):
        assert op.pointer.type.layout.size_per_thread == (4,)
        assert (op.vector, op.guarded, op.aligned) == (1, 4, False)
    assert not operations(after, MakeRange)


def test_the_range_itself():
    text = """
      %r = rotated_range %x {start = 8, end = 24, granule = 4} : tensor<16xi32>
      %s = splat %p : (ptr<i32>) -> tensor<16xptr<i32>>
      %i = make_range {start = 0, end = 16} : tensor<16xi32>
      %a = addptr %s, %i : tensor<16xptr<i32>>
      store %a, %r : (tensor<16xptr<i32>>, tensor<16xi32>)
    """
    out = np.zeros(16, np.int32)
    run(function(text, parameters="%p: ptr<i32>, %x: i32"), 1, [out, 3])
    np.testing.assert_array_equal(out, [*range(11, 24), 8, 9, 10])
