"""coalesce: the five cases of seed 003, and what the layout of an access follows from."""

from __future__ import annotations

import pytest

from ptxforge.ir import types as T
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.parser import parse_function
from ptxforge.passes.assign_layouts import assign_layouts
from ptxforge.passes.coalesce import coalesce
from tests.passes.elementwise import elementwise, pointers
from tests.passes.gpu import apply, operations, parse, same_meaning
from tests.passes.kernels import ALL, ARGUMENTS, TRANSPOSE


def coalesced(text, **options):
    function = parse_function(text) if text.startswith("func") else parse(text, **options)
    return apply(function, assign_layouts, coalesce)


def sizes(function, kind):
    return [list(op.pointer.type.layout.size_per_thread) for op in operations(function, kind)]


def test_transpose_loads_rows_and_stores_columns():
    """Seed 003, case 1: sizePerThread [1, 4] in row order for the load,
    [4, 1] in column order for the store."""
    function = coalesced(TRANSPOSE)
    (load,), (store,) = operations(function, Load), operations(function, Store)
    assert str(load.pointer.type.layout) == (
        "#blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], order = [1, 0]}>")
    assert str(store.pointer.type.layout) == (
        "#blocked<{sizePerThread = [4, 1], threadsPerWarp = [16, 2], warpsPerCTA = [1, 4], order = [0, 1]}>")


def test_two_types():
    """Seed 003, case 2: 4 elements of f32, 8 of f16; connected loads agree on the larger."""
    types = ("f32", "f16", "f32")
    function = coalesced(elementwise(*types), parameters=pointers(*types))
    assert sizes(function, Load) == [[8], [8]] and sizes(function, Store) == [[4]]


def test_two_types_stored_as_the_narrow_one():
    """Seed 003, case 3: every access has 8 elements."""
    types = ("f32", "f16", "f16")
    function = coalesced(elementwise(*types), parameters=pointers(*types))
    assert sizes(function, Load) == [[8], [8]] and sizes(function, Store) == [[8]]


def test_pointers_computed_from_loaded_pointers():
    """Seed 003, case 4: accesses through tensors of pointers of which nothing is known,
    and scalar accesses."""
    function = coalesced("""
      %v = load %a : (ptr<ptr<f32>>) -> ptr<f32>
      %s = splat %v : (ptr<f32>) -> tensor<1024xptr<f32>>
      %w = load %s : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
      store %s, %w : (tensor<1024xptr<f32>>, tensor<1024xf32>)""", parameters="%a: ptr<ptr<f32>>")
    assert sizes(function, Store) == [[1]]


def test_facts_pass_through_if_and_for():
    """Seed 003, case 5."""
    function = coalesced("""
      %c0 = constant {value = 0} : i32
      %c1 = constant {value = 1} : i32
      %r = make_range {start = 0, end = 1024} : tensor<1024xi32>
      %c4 = constant {value = 1024} : tensor<1024xi32>
      %s = splat %a : (ptr<f32>) -> tensor<1024xptr<f32>>
      %p = addptr %s, %r : tensor<1024xptr<f32>>
      %q = if %flag : tensor<1024xptr<f32>> {
        %t = addptr %p, %c4 : tensor<1024xptr<f32>>
        yield %t
      } else {
        yield %p
      }
      %z = for %k = %c0 to %n step %c1 iter_args(%u = %q) : tensor<1024xptr<f32>> {
        %v = load %u : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
        store %u, %v : (tensor<1024xptr<f32>>, tensor<1024xf32>)
        %w = addptr %u, %c4 : tensor<1024xptr<f32>>
        yield %w
      }""", parameters="%a: ptr<f32> {divisibility = 16}, %n: i32, %flag: i1")
    assert sizes(function, Load) == [[4]] and sizes(function, Store) == [[4]]


@pytest.mark.parametrize(("divisibility", "width"), [(16, 4), (8, 2), (4, 1)])
def test_alignment_limits_the_width(divisibility, width):
    parameters = pointers("f32", "f32").replace("16", str(divisibility))
    assert sizes(coalesced(elementwise("f32", "f32"), parameters=parameters), Load) == [[width]]


def test_small_tiles_are_shared_among_the_threads():
    text = elementwise("f32", "f32").replace("1024", "256")
    assert sizes(coalesced(text, parameters=pointers("f32", "f32")), Load) == [[2]]


def test_reduced_rows_stay_inside_warps():
    """Four rows of 1024: each warp takes a row, where the plain rule would spread a row over all warps."""
    text = """
      %r = make_range {start = 0, end = 4} : tensor<4xi32>
      %c = make_range {start = 0, end = 1024} : tensor<1024xi32>
      %e = expand_dims %r {axis = 1} : (tensor<4xi32>) -> tensor<4x1xi32>
      %f = expand_dims %c {axis = 0} : (tensor<1024xi32>) -> tensor<1x1024xi32>
      %k = constant {value = 1024} : tensor<4x1xi32>
      %m = muli %e, %k : tensor<4x1xi32>
      %mb = broadcast %m : (tensor<4x1xi32>) -> tensor<4x1024xi32>
      %fb = broadcast %f : (tensor<1x1024xi32>) -> tensor<4x1024xi32>
      %o = addi %mb, %fb : tensor<4x1024xi32>
      %s = splat %a0 : (ptr<f32>) -> tensor<4x1024xptr<f32>>
      %p = addptr %s, %o : tensor<4x1024xptr<f32>>
      %v = load %p : (tensor<4x1024xptr<f32>>) -> tensor<4x1024xf32>
      %t = USE
      %q = splat %out : (ptr<f32>) -> tensor<4xptr<f32>>
      %w = addptr %q, %r : tensor<4xptr<f32>>
      store %w, %z : (tensor<4xptr<f32>>, tensor<4xf32>)"""
    reduced = text.replace("%t = USE", """%z = reduce %v {axis = 1} : (tensor<4x1024xf32>) -> tensor<4xf32> {
        (%x: f32, %y: f32):
        %xy = addf %x, %y : f32
        yield %xy
      }""")
    function = coalesced(reduced, parameters=pointers("f32", "f32"))
    assert operations(function, Load)[0].pointer.type.layout.warps_per_cta == (4, 1)


def test_atomics_keep_their_own_limit():
    text = elementwise("f16", "f32").replace(
        "store %po, %w0 : (tensor<1024xptr<f32>>, tensor<1024xf32>)",
        '%old = atomic_rmw %po, %w0 {kind = "fadd"} : (tensor<1024xptr<f32>>, tensor<1024xf32>) -> tensor<1024xf32>',  # noqa: E501
    )
    function = coalesced(text, parameters=pointers("f16", "f32"))
    assert sizes(function, AtomicRMW) == [[4]] and sizes(function, Load) == [[8]]


def test_scattered_accesses_follow_contiguous_ones():
    """A histogram: the values are loaded 16 bytes at a time, and counted where they are."""
    function = coalesced("""
      %r = make_range {start = 0, end = 1024} : tensor<1024xi32>
      %s = splat %a : (ptr<i32>) -> tensor<1024xptr<i32>>
      %p = addptr %s, %r : tensor<1024xptr<i32>>
      %v = load %p : (tensor<1024xptr<i32>>) -> tensor<1024xi32>
      %t = splat %out : (ptr<i32>) -> tensor<1024xptr<i32>>
      %q = addptr %t, %v : tensor<1024xptr<i32>>
      %one = constant {value = 1} : tensor<1024xi32>
      %old = atomic_rmw %q, %one {kind = "add"} : (tensor<1024xptr<i32>>, tensor<1024xi32>) ->
          tensor<1024xi32>""",
      parameters="%a: ptr<i32> {divisibility = 16}, %out: ptr<i32> {divisibility = 16}")  # fmt: skip
    assert sizes(function, Load) == sizes(function, AtomicRMW) == [[4]]


COMPACTED = """
      %r = make_range {start = 0, end = 1024} : tensor<1024xi32>
      %is = splat %i : (ptr<i32>) -> tensor<1024xptr<i32>>
      %ip = addptr %is, %r : tensor<1024xptr<i32>>
      %places = load %ip : (tensor<1024xptr<i32>>) -> tensor<1024xi32>
      %xs = splat %x : (ptr<f32>) -> tensor<1024xptr<f32>>
      %xp = addptr %xs, %r : tensor<1024xptr<f32>>
      %v = load %xp : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
      %os = splat %out : (ptr<f32>) -> tensor<1024xptr<f32>>
      %op = addptr %os, %places : tensor<1024xptr<f32>>"""
PLACES = ", ".join(f"{p} {{divisibility = 16}}" for p in ("%i: ptr<i32>", "%x: ptr<f32>", "%out: ptr<f32>"))


def test_neighbours_store_what_is_compacted():
    """Places that a running sum gives: a warp writes whole sectors at once."""
    store = "\n      store %op, %v : (tensor<1024xptr<f32>>, tensor<1024xf32>)"
    function = coalesced(COMPACTED + store, parameters=PLACES)
    assert sizes(function, Load) == [[1], [1]] and sizes(function, Store) == [[1]]
    assert not operations(function, ConvertLayout)


def test_beside_a_contiguous_store_loads_stay_wide():
    stores = """
      store %op, %v : (tensor<1024xptr<f32>>, tensor<1024xf32>)
      store %xp, %v : (tensor<1024xptr<f32>>, tensor<1024xf32>)"""
    function = coalesced(COMPACTED + stores, parameters=PLACES)
    assert sizes(function, Load) == [[4], [4]] and sizes(function, Store) == [[4], [4]]


def test_operands_are_converted_and_results_converted_back():
    """Where two accesses differ: the load has 8 elements a thread, the store 4."""
    function = coalesced(elementwise("f16", "f32"), parameters=pointers("f16", "f32"))
    (load,) = operations(function, Load)
    assert isinstance(load.pointer.defining_op, ConvertLayout)
    (back,) = load.result.users
    before = load.pointer.defining_op.x.type
    assert isinstance(back, ConvertLayout)
    assert back.result.type == before.with_element(load.result.type.element)


LOOP = """
  %r = make_range {start = 0, end = 1024} : tensor<1024xi32>
  %s = splat %a0 : (ptr<f32>) -> tensor<1024xptr<f32>>
  %p = addptr %s, %r : tensor<1024xptr<f32>>
  %zero = constant {value = 0.0} : tensor<1024xf32>
  %lower = constant {value = 0} : i32
  %step = constant {value = 1} : i32
  %sum = for %i = %lower to %n step %step iter_args(%x = %zero) : tensor<1024xf32> {
    %v = load %p : (tensor<1024xptr<f32>>) -> tensor<1024xf32>
    %w = addf %x, %v : tensor<1024xf32>
    yield %w
  }
  %o = splat %out : (ptr<f32>) -> tensor<1024xptr<f32>>
  %q = addptr %o, %r : tensor<1024xptr<f32>>
  store %q, %sum : (tensor<1024xptr<f32>>, tensor<1024xf32>)"""


@pytest.mark.parametrize("text", [elementwise("f32", "f32"), LOOP], ids=["straight", "loop"])
def test_tensors_that_are_alike_get_one_layout_at_once(text):
    function = coalesced(text, parameters=pointers("f32", "f32") + ", %n: i32")
    assert not operations(function, ConvertLayout)
    values = [v for op in function.walk() for v in (*op.operands, *op.results)]
    arguments = [a for op in function.walk() for region in op.regions for a in region.block.arguments]
    layouts = {v.type.layout for v in values + arguments if isinstance(v.type, T.TensorType)}
    assert [list(layout.size_per_thread) for layout in layouts] == [[4]]


def test_a_scan_is_not_done_in_any_layout():
    """It is no elementwise operation: what it needs is decided where conversions are removed."""
    function = coalesced("""
      %r = make_range {start = 0, end = 1024} : tensor<1024xi32>
      %s = splat %a : (ptr<i32>) -> tensor<1024xptr<i32>>
      %p = addptr %s, %r : tensor<1024xptr<i32>>
      %v = load %p : (tensor<1024xptr<i32>>) -> tensor<1024xi32>
      %w = scan %v {axis = 0, reverse = false} : (tensor<1024xi32>) -> tensor<1024xi32> {
        (%x: i32, %y: i32):
        %z = addi %x, %y : i32
        yield %z
      }
      store %p, %w : (tensor<1024xptr<i32>>, tensor<1024xi32>)""",
      parameters="%a: ptr<i32> {divisibility = 16}")  # fmt: skip
    assert operations(function, ConvertLayout)


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_meaning_is_kept(text):
    integers, grid = ARGUMENTS[text]
    same_meaning(parse_function(text), coalesced(text), integers, grid, seeds=[2])
