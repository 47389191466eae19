"""remove_layout_conversions: what is left after it, where, and that nothing else changed."""

from __future__ import annotations

import time

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops.control import For, If
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.math import Exp
from ptxforge.ir.ops.memory import AddPtr, Load, Store
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.ir.ops.shape import Join, MakeRange
from ptxforge.ir.parser import parse_function
from ptxforge.layouts.conversion import Nothing
from ptxforge.layouts.encodings import Blocked, DotOperand, Slice, infer_join
from ptxforge.passes.accelerate_matmul import accelerate_matmul
from ptxforge.passes.conversions import operand_layout
from ptxforge.passes.layout_propagation import propagate_layouts
from ptxforge.passes.rematerialization import rematerialize
from ptxforge.passes.remove_layout_conversions import remove_layout_conversions
from tests.passes.elementwise import elementwise, pointers
from tests.passes.gpu import operations, parse, same_meaning, up_to
from tests.passes.kernels import ADD, ALL, ARGUMENTS, COLUMN_SUM, MATMUL, ONLINE_SOFTMAX, TRANSPOSE


def cleaned(text, **options):
    function = parse_function(text) if text.startswith("func") else parse(text, **options)
    return up_to(function, remove_layout_conversions)


def conversions(function):
    return operations(function, ConvertLayout)


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_meaning_is_kept(text):
    integers, grid = ARGUMENTS[text]
    same_meaning(parse_function(text), cleaned(text), integers, grid, seeds=[3])


@pytest.mark.parametrize(
    "text", [ADD, COLUMN_SUM, ONLINE_SOFTMAX], ids=["add", "column_sum", "online_softmax"]
)
def test_nothing_is_left(text):
    assert conversions(cleaned(text)) == []


def test_add_keeps_one_layout_and_no_copy():
    function = cleaned(ADD)
    layouts = {
        T.layout_of(v.type) for op in function.walk() for v in op.results if isinstance(v.type, T.TensorType)
    }
    assert [layout.size_per_thread for layout in layouts] == [(4,)]
    assert len(operations(function, MakeRange)) == 1


def test_transpose_converts_the_value_once_after_computing():
    function = cleaned(TRANSPOSE)
    (conversion,) = conversions(function)
    assert isinstance(conversion.x.defining_op, Exp) and isinstance(conversion.result.users[0], Store)
    assert operations(function, Load)[0].pointer.type.layout.order == (1, 0)
    assert operations(function, Store)[0].pointer.type.layout.order == (0, 1)


def test_what_nobody_needs_as_it_was_changes_where_it_stands():
    function = up_to(parse_function(TRANSPOSE), accelerate_matmul)
    propagate_layouts(function)
    before = {op: op.result.type.layout for op in operations(function, AddPtr)}
    rematerialize(function)
    assert {*operations(function, AddPtr)} == before.keys()  # none is a copy
    assert sum(op.result.type.layout != layout for op, layout in before.items()) > 1


def test_matmul_converts_operands_and_the_final_result():
    function = cleaned(MATMUL)
    (loop,) = operations(function, For)
    (dot,), (store,) = operations(function, Dot), operations(function, Store)
    inside = [c for c in conversions(function) if c.parent is loop.body]
    assert {type(c.result.type.layout) for c in inside} == {DotOperand}
    assert all(isinstance(c.x.defining_op, Load) for c in inside)
    assert loop.carried[0].type == dot.result.type
    outside = [c for c in conversions(function) if c.parent is not loop.body]
    assert all(c.x is loop.results[0] and c.result is store.value for c in outside)


@pytest.mark.parametrize(("types", "width"), [
    (("f32", "f16", "f32"), 4), (("f32", "f16", "f16"), 8), (("f16", "f32"), 4),
    (("f8e5m2", "f16", "f32"), 4),
])  # fmt: skip
def test_mixed_types_agree_on_a_width(types, width):
    """Accesses whose values meet end in one layout, so that nothing is converted."""
    function = cleaned(elementwise(*types), parameters=pointers(*types))
    assert conversions(function) == []
    accesses = operations(function, Load, Store)
    assert {op.pointer.type.layout.size_per_thread for op in accesses} == {(width,)}


ROWS = """
  %r = make_range {start = 0, end = 32} : tensor<32xi32>
  %c = make_range {start = 0, end = 128} : tensor<128xi32>
  %e = expand_dims %r {axis = 1} : (tensor<32xi32>) -> tensor<32x1xi32>
  %f = expand_dims %c {axis = 0} : (tensor<128xi32>) -> tensor<1x128xi32>
  %k = constant {value = 128} : tensor<32x1xi32>
  %m = muli %e, %k : tensor<32x1xi32>
  %mb = broadcast %m : (tensor<32x1xi32>) -> tensor<32x128xi32>
  %fb = broadcast %f : (tensor<1x128xi32>) -> tensor<32x128xi32>
  %o = addi %mb, %fb : tensor<32x128xi32>
  %s = splat %x : (ptr<f32>) -> tensor<32x128xptr<f32>>
  %p = addptr %s, %o : tensor<32x128xptr<f32>>
  %v = load %p : (tensor<32x128xptr<f32>>) -> tensor<32x128xf32>
  %so = splat %out : (ptr<f32>) -> tensor<32x128xptr<f32>>
  %q = addptr %so, %o : tensor<32x128xptr<f32>>"""

ALIGNED = "%x: ptr<f32> {divisibility = 16}, %out: ptr<f32> {divisibility = 16}, %n: i32"


def test_weights_are_loaded_in_the_slice_that_needs_them():
    """A row of weights for every row of a tile: loaded by each warp as it is used, not sent around."""
    function = cleaned(ROWS + """
      %ws = splat %out : (ptr<f32>) -> tensor<128xptr<f32>>
      %wp = addptr %ws, %c : tensor<128xptr<f32>>
      %w = load %wp : (tensor<128xptr<f32>>) -> tensor<128xf32>
      %we = expand_dims %w {axis = 0} : (tensor<128xf32>) -> tensor<1x128xf32>
      %wb = broadcast %we : (tensor<1x128xf32>) -> tensor<32x128xf32>
      %z = mulf %v, %wb : tensor<32x128xf32>
      store %p, %z : (tensor<32x128xptr<f32>>, tensor<32x128xf32>)""", parameters=ALIGNED)
    assert conversions(function) == []
    assert isinstance(operations(function, Load)[1].result.type.layout, Slice)


def test_small_results_are_stored_where_they_are():
    """A reduction's result goes out in its slice layout:
    a conversion would cost more than a few narrow stores."""
    function = cleaned(ROWS + """
      %t = reduce %v {axis = 1} : (tensor<32x128xf32>) -> tensor<32xf32> {
        (%a: f32, %b: f32):
        %ab = maxnumf %a, %b : f32
        yield %ab
      }
      %to = splat %out : (ptr<f32>) -> tensor<32xptr<f32>>
      %tp = addptr %to, %r : tensor<32xptr<f32>>
      store %tp, %t : (tensor<32xptr<f32>>, tensor<32xf32>)""", parameters=ALIGNED)
    assert conversions(function) == []
    assert isinstance(operations(function, Store)[0].pointer.type.layout, Slice)


def test_what_an_if_yields_follows():
    function = cleaned(ROWS + """
      %flag = cmpi %n, %n {predicate = "eq"} : i1
      %w = if %flag : tensor<32x128xf32> {
        %y = exp %v : tensor<32x128xf32>
        yield %y
      } else {
        yield %v
      }
      store %q, %w : (tensor<32x128xptr<f32>>, tensor<32x128xf32>)""".replace("%n, %n", "%n, %x1").replace(
        "%flag =", "%x1 = get_program_id {axis = 0} : i32\n%flag ="), parameters=ALIGNED)
    assert conversions(function) == []
    (branch,) = operations(function, If)
    assert branch.results[0].type == operations(function, Load)[0].result.type


WHILE = ROWS + """
  %c1 = constant {value = 1} : i32
  %i, %w = while %n, %v : i32, tensor<32x128xf32> {
    (%j: i32, %a: tensor<32x128xf32>):
    %go = cmpi %j, %c1 {predicate = "sgt"} : i1
    condition %go, %j, %a
  } body {
    (%l: i32, %b: tensor<32x128xf32>):
    %d = addf %b, %b : tensor<32x128xf32>
    %e1 = subi %l, %c1 : i32
    yield %e1, %d
  }
  store %q, %w : (tensor<32x128xptr<f32>>, tensor<32x128xf32>)"""


def test_what_a_while_carries_follows():
    before = parse(WHILE, parameters=ALIGNED)
    function = up_to(before, remove_layout_conversions)
    assert conversions(function) == []
    same_meaning(before, function, {"n": 4})


def test_a_carried_value_may_move_as_a_whole():
    """The loop's accumulator starts from a constant and is stored by columns: it is computed by columns."""
    text = """
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %r = make_range {start = 0, end = 64} : tensor<64xi32>
      %e = expand_dims %r {axis = 1} : (tensor<64xi32>) -> tensor<64x1xi32>
      %f = expand_dims %r {axis = 0} : (tensor<64xi32>) -> tensor<1x64xi32>
      %k = constant {value = 64} : tensor<1x64xi32>
      %m = muli %f, %k : tensor<1x64xi32>
      %mb = broadcast %m : (tensor<1x64xi32>) -> tensor<64x64xi32>
      %eb = broadcast %e : (tensor<64x1xi32>) -> tensor<64x64xi32>
      %o = addi %mb, %eb : tensor<64x64xi32>
      %z = constant {value = 1.0} : tensor<64x64xf32>
      %a = for %i = %c0 to %n step %c1 iter_args(%b = %z) : tensor<64x64xf32> {
        %d = addf %b, %b : tensor<64x64xf32>
        yield %d
      }
      %so = splat %out : (ptr<f32>) -> tensor<64x64xptr<f32>>
      %q = addptr %so, %o : tensor<64x64xptr<f32>>
      store %q, %a : (tensor<64x64xptr<f32>>, tensor<64x64xf32>)"""
    before = parse(text, parameters="%out: ptr<f32> {divisibility = 16}, %n: i32")
    function = up_to(before, remove_layout_conversions)
    assert conversions(function) == []
    same_meaning(before, function, {"n": 5})


def test_what_a_while_carries_may_move_as_a_whole():
    """As above, in a loop on a condition."""
    text = """
      %c1 = constant {value = 1} : i32
      %r = make_range {start = 0, end = 64} : tensor<64xi32>
      %e = expand_dims %r {axis = 1} : (tensor<64xi32>) -> tensor<64x1xi32>
      %f = expand_dims %r {axis = 0} : (tensor<64xi32>) -> tensor<1x64xi32>
      %k = constant {value = 64} : tensor<1x64xi32>
      %m = muli %f, %k : tensor<1x64xi32>
      %mb = broadcast %m : (tensor<1x64xi32>) -> tensor<64x64xi32>
      %eb = broadcast %e : (tensor<64x1xi32>) -> tensor<64x64xi32>
      %o = addi %mb, %eb : tensor<64x64xi32>
      %z = constant {value = 1.0} : tensor<64x64xf32>
      %i, %a = while %n, %z : i32, tensor<64x64xf32> {
        (%j: i32, %b: tensor<64x64xf32>):
        %go = cmpi %j, %c1 {predicate = "sgt"} : i1
        condition %go, %j, %b
      } body {
        (%l: i32, %h: tensor<64x64xf32>):
        %d = addf %h, %h : tensor<64x64xf32>
        %s = subi %l, %c1 : i32
        yield %s, %d
      }
      %so = splat %out : (ptr<f32>) -> tensor<64x64xptr<f32>>
      %q = addptr %so, %o : tensor<64x64xptr<f32>>
      store %q, %a : (tensor<64x64xptr<f32>>, tensor<64x64xf32>)"""
    before = parse(text, parameters="%out: ptr<f32> {divisibility = 16}, %n: i32")
    function = up_to(before, remove_layout_conversions)
    assert conversions(function) == []
    same_meaning(before, function, {"n": 5})


def test_invariant_conversions_leave_the_loop():
    """A tile loaded before the loop and used by columns inside: converted once."""
    text = ROWS + """
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %cc = constant {value = 32} : tensor<1x128xi32>
      %mc = muli %f, %cc : tensor<1x128xi32>
      %mcb = broadcast %mc : (tensor<1x128xi32>) -> tensor<32x128xi32>
      %eb = broadcast %e : (tensor<32x1xi32>) -> tensor<32x128xi32>
      %oc = addi %mcb, %eb : tensor<32x128xi32>
      %qc = addptr %so, %oc : tensor<32x128xptr<f32>>
      for %i = %c0 to %n step %c1 {
        %g = load %qc : (tensor<32x128xptr<f32>>) -> tensor<32x128xf32>
        %h = addf %g, %v : tensor<32x128xf32>
        store %qc, %h : (tensor<32x128xptr<f32>>, tensor<32x128xf32>)
        yield
      }"""
    before = parse(text, parameters=ALIGNED)
    function = up_to(before, remove_layout_conversions)
    (conversion,) = conversions(function)
    assert conversion.parent is function.body
    same_meaning(before, function, {"n": 3})


def test_what_comes_from_outside_of_a_loop_is_converted_in_front_of_it():
    """Both tiles have as many elements: the columns that a loop loads stay as they come, not the rows in
    front of it, which were there earlier."""
    function = cleaned("""
      %r = make_range {start = 0, end = 4} : tensor<4xi32>
      %c = make_range {start = 0, end = 128} : tensor<128xi32>
      %e = expand_dims %r {axis = 1} : (tensor<4xi32>) -> tensor<4x1xi32>
      %f = expand_dims %c {axis = 0} : (tensor<128xi32>) -> tensor<1x128xi32>
      %eb = broadcast %e : (tensor<4x1xi32>) -> tensor<4x128xi32>
      %xs = splat %x : (ptr<f32>) -> tensor<4x128xptr<f32>>
      %rows = addptr %xs, %eb : tensor<4x128xptr<f32>>
      %v = load %rows : (tensor<4x128xptr<f32>>) -> tensor<4x128xf32>
      %z = constant {value = 0} : i32
      %s = constant {value = 128} : i32
      %start = constant {value = 0.0} : tensor<4x128xf32>
      %sum = for %i = %z to %n step %s iter_args(%a = %start) : tensor<4x128xf32> {
        %is = splat %i : (i32) -> tensor<1x128xi32>
        %o = addi %is, %f {contiguity = [1, 128], divisibility = [1, 128]} : tensor<1x128xi32>
        %ob = broadcast %o : (tensor<1x128xi32>) -> tensor<4x128xi32>
        %columns = addptr %xs, %ob : tensor<4x128xptr<f32>>
        %w = load %columns : (tensor<4x128xptr<f32>>) -> tensor<4x128xf32>
        %d = mulf %v, %w : tensor<4x128xf32>
        %b = addf %a, %d : tensor<4x128xf32>
        yield %b
      }
      %os = splat %out : (ptr<f32>) -> tensor<4x128xptr<f32>>
      %fb = broadcast %f : (tensor<1x128xi32>) -> tensor<4x128xi32>
      %q = addptr %os, %fb : tensor<4x128xptr<f32>>
      store %q, %sum : (tensor<4x128xptr<f32>>, tensor<4x128xf32>)""", parameters=ALIGNED)
    (loop,) = operations(function, For)
    assert loop.carried[0].type.layout.order == (1, 0)
    assert [c.parent is loop.body for c in conversions(function)] in ([], [False])


def test_wide_values_are_converted_before_they_are_widened():
    """A f16 tile stored as f32 by columns: half as much passes through shared memory when converted as
    f16."""
    text = ROWS.replace(
        "%x : (ptr<f32>) -> tensor<32x128xptr<f32>>", "%x : (ptr<f16>) -> tensor<32x128xptr<f16>>"
    )
    text = text.replace(
        "%p = addptr %s, %o : tensor<32x128xptr<f32>>", "%p = addptr %s, %o : tensor<32x128xptr<f16>>"
    )
    text = text.replace("load %p : (tensor<32x128xptr<f32>>) -> tensor<32x128xf32>",
                        "load %p : (tensor<32x128xptr<f16>>) -> tensor<32x128xf16>")
    text += """
      %cc = constant {value = 32} : tensor<1x128xi32>
      %mc = muli %f, %cc : tensor<1x128xi32>
      %mcb = broadcast %mc : (tensor<1x128xi32>) -> tensor<32x128xi32>
      %eb = broadcast %e : (tensor<32x1xi32>) -> tensor<32x128xi32>
      %oc = addi %mcb, %eb : tensor<32x128xi32>
      %qc = addptr %so, %oc : tensor<32x128xptr<f32>>
      %w = extf %v : (tensor<32x128xf16>) -> tensor<32x128xf32>
      store %qc, %w : (tensor<32x128xptr<f32>>, tensor<32x128xf32>)"""
    before = parse(text, parameters=ALIGNED.replace("%x: ptr<f32>", "%x: ptr<f16>"))
    (conversion,) = conversions(up_to(before, remove_layout_conversions))
    assert conversion.x.type.element is T.F16


def test_outer_products_convert_vectors_not_tiles():
    """x[:, None] * y[None, :] stored: the vectors reach the store's layout before they are spread."""
    text = """
      %r = make_range {start = 0, end = 128} : tensor<128xi32>
      %sx = splat %x : (ptr<f32>) -> tensor<128xptr<f32>>
      %px = addptr %sx, %r : tensor<128xptr<f32>>
      %v = load %px : (tensor<128xptr<f32>>) -> tensor<128xf32>
      %ve = expand_dims %v {axis = 1} : (tensor<128xf32>) -> tensor<128x1xf32>
      %vf = expand_dims %v {axis = 0} : (tensor<128xf32>) -> tensor<1x128xf32>
      %veb = broadcast %ve : (tensor<128x1xf32>) -> tensor<128x128xf32>
      %vfb = broadcast %vf : (tensor<1x128xf32>) -> tensor<128x128xf32>
      %z = mulf %veb, %vfb : tensor<128x128xf32>
      %e = expand_dims %r {axis = 1} : (tensor<128xi32>) -> tensor<128x1xi32>
      %f = expand_dims %r {axis = 0} : (tensor<128xi32>) -> tensor<1x128xi32>
      %k = constant {value = 128} : tensor<128x1xi32>
      %m = muli %e, %k : tensor<128x1xi32>
      %mb = broadcast %m : (tensor<128x1xi32>) -> tensor<128x128xi32>
      %fb = broadcast %f : (tensor<1x128xi32>) -> tensor<128x128xi32>
      %o = addi %mb, %fb : tensor<128x128xi32>
      %so = splat %out : (ptr<f32>) -> tensor<128x128xptr<f32>>
      %q = addptr %so, %o : tensor<128x128xptr<f32>>
      store %q, %z : (tensor<128x128xptr<f32>>, tensor<128x128xf32>)"""
    before = parse(text, parameters=ALIGNED)
    function = up_to(before, remove_layout_conversions)
    assert all(c.x.type.numel <= 128 for c in conversions(function))
    same_meaning(before, function, {})


def test_reductions_take_what_there_is():
    """A reduction between two layouts reduces the tensor as loaded; at most its result is converted."""
    function = cleaned(ROWS + """
      %t = reduce %v {axis = 0} : (tensor<32x128xf32>) -> tensor<128xf32> {
        (%a: f32, %b: f32):
        %ab = addf %a, %b : f32
        yield %ab
      }
      %to = splat %out : (ptr<f32>) -> tensor<128xptr<f32>>
      %tp = addptr %to, %c : tensor<128xptr<f32>>
      store %tp, %t : (tensor<128xptr<f32>>, tensor<128xf32>)""", parameters=ALIGNED)
    (reduce,) = operations(function, Reduce)
    assert isinstance(reduce.inputs[0].defining_op, Load)
    assert all(c.x.type.numel <= 128 for c in conversions(function))


def test_volatile_loads_are_neither_moved_nor_copied():
    text = TRANSPOSE.replace("%v = load %p", "%v = load %p {volatile = true}").replace(
        "load %p {volatile = true} : (tensor<64x64xptr<f32>>)",
        "load %p {volatile = true} : (tensor<64x64xptr<f32>>)",
    )
    function = cleaned(text)
    (load,) = operations(function, Load)
    assert load.volatile and load.pointer.type.layout.order == (1, 0)


def test_no_conversion_is_left_that_does_nothing():
    for text in ALL.values():
        assert not any(isinstance(c.plan, Nothing) for c in conversions(cleaned(text)))


def test_diamonds_do_not_take_exponential_time():
    """Forty values, each made from the one before in two ways,
    between a load by rows and a store by columns."""
    steps = "".join(
        f"%a{i} = exp %w{i} : tensor<64x64xf32>\n%b{i} = sqrt %w{i} : tensor<64x64xf32>\n"
        f"%w{i + 1} = mulf %a{i}, %b{i} : tensor<64x64xf32>\n" for i in range(40))
    text = TRANSPOSE.replace("%w = exp %v : tensor<64x64xf32>", steps.replace("%w0 ", "%v "))
    text = text.replace("store %q, %w :", "store %q, %w40 :")
    start = time.perf_counter()
    function = cleaned(text)
    assert time.perf_counter() - start < 1.0
    assert len(conversions(function)) == 1


def test_a_pair_is_joined_only_in_neighbouring_registers():
    """A layout whose registers go along another dimension first is that of no joined halves."""
    half = "tensor<4x64xf32, #blocked<{sizePerThread = [1, 2], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1], order = [1, 0]}>>"  # noqa: E501
    pair = half.replace("4x64", "4x64x2").replace("[1, 2]", "[1, 2, 2]").replace("[1, 32]", "[1, 32, 1]")
    pair = pair.replace("[4, 1]", "[4, 1, 1]").replace("[1, 0]", "[2, 1, 0]")
    (join,) = operations(parse_function(f"""func @f(%x: f32) attributes {{num_warps = 4}} {{
      %a = splat %x : (f32) -> {half}
      %p = join %a, %a : ({half}, {half}) -> {pair}
      return
    }}"""), Join)  # fmt: skip
    layout = join.result.type.layout
    assert operand_layout(join, 0, layout) == join.lhs.type.layout
    other = Blocked(layout.size_per_thread, layout.threads_per_warp, layout.warps_per_cta, (1, 2, 0))
    assert operand_layout(join, 0, other) is None


def test_halves_of_a_pair_that_many_lanes_hold():
    """A layout is the joined one if it is the same map, by whatever name."""
    half = "tensor<8x1xf32, #blocked<{sizePerThread = [1, 1], threadsPerWarp = [32, 1], warpsPerCTA = [1, 1], order = [1, 0]}>>"  # noqa: E501
    pair = half.replace("8x1x", "8x1x2x").replace("[1, 1]", "[1, 1, 2]", 1).replace("[32, 1]", "[32, 1, 1]")
    pair = pair.replace("warpsPerCTA = [1, 1]", "warpsPerCTA = [1, 1, 1]").replace("[1, 0]", "[2, 1, 0]")
    (join,) = operations(parse_function(f"""func @f(%x: f32) attributes {{num_warps = 1}} {{
      %a = splat %x : (f32) -> {half}
      %p = join %a, %a : ({half}, {half}) -> {pair}
      return
    }}"""), Join)  # fmt: skip
    shape, wide = join.result.type.shape, Blocked((1, 1, 2), (2, 1, 16), (1, 1, 1), (2, 0, 1))
    found = operand_layout(join, 0, wide)
    assert infer_join(found, shape[:-1]).linear(shape) == wide.linear(shape)
