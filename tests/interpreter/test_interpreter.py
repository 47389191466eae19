"""Kernels in IR text, executed, against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ptxforge.interpreter import AddressSpace, run
from ptxforge.ir.parser import parse_function
from ptxforge.support.errors import ArgumentError, InterpreterError

RNG = np.random.default_rng(0)

ADD = """
func @add(%x: ptr<f32>, %y: ptr<f32>, %out: ptr<f32>, %n: i32) {
  %pid = get_program_id {axis = 0} : i32
  %size = constant {value = 64} : i32
  %start = muli %pid, %size : i32
  %range = make_range {end = 64, start = 0} : tensor<64xi32>
  %starts = splat %start : (i32) -> tensor<64xi32>
  %i = addi %starts, %range : tensor<64xi32>
  %ns = splat %n : (i32) -> tensor<64xi32>
  %mask = cmpi %i, %ns {predicate = "slt"} : tensor<64xi1>
  %xs = splat %x : (ptr<f32>) -> tensor<64xptr<f32>>
  %xp = addptr %xs, %i : tensor<64xptr<f32>>
  %a = load %xp, %mask : (tensor<64xptr<f32>>, tensor<64xi1>) -> tensor<64xf32>
  %ys = splat %y : (ptr<f32>) -> tensor<64xptr<f32>>
  %yp = addptr %ys, %i : tensor<64xptr<f32>>
  %b = load %yp, %mask : (tensor<64xptr<f32>>, tensor<64xi1>) -> tensor<64xf32>
  %c = addf %a, %b : tensor<64xf32>
  %os = splat %out : (ptr<f32>) -> tensor<64xptr<f32>>
  %op = addptr %os, %i : tensor<64xptr<f32>>
  store %op, %c, %mask : (tensor<64xptr<f32>>, tensor<64xf32>, tensor<64xi1>)
  return
}
"""


def test_add_over_a_grid():
    x, y = RNG.standard_normal((2, 200)).astype(np.float32)
    out = np.zeros(200, np.float32)
    run(parse_function(ADD), 4, [x, y, out, 200])
    np.testing.assert_array_equal(out, x + y)


def test_arguments_by_name_in_place_and_overlapping():
    buffer = np.arange(132, dtype=np.float32)
    expected = buffer[:100] + buffer[32:132]
    run(parse_function(ADD), (2,), {"x": buffer[:100], "y": buffer[32:], "out": buffer[:100], "n": 100})
    # Programs run in turn: the second one reads what the first one wrote.
    expected[64:] = np.arange(132, dtype=np.float32)[64:100] + np.arange(132, dtype=np.float32)[96:132]
    np.testing.assert_array_equal(buffer[:100], expected)


def test_wrong_arguments():
    function, x = parse_function(ADD), np.zeros(64, np.float32)
    with pytest.raises(ArgumentError, match="takes 4 arguments, 2"):
        run(function, 1, [x, x])
    with pytest.raises(ArgumentError, match="lacks arguments: out"):
        run(function, 1, {"x": x, "y": x, "n": 3})
    with pytest.raises(ArgumentError, match="argument 'y': array of float64"):
        run(function, 1, [x, x.astype(np.float64), x, 3])
    with pytest.raises(ArgumentError, match="argument 'x': expected a numpy array"):
        run(function, 1, ["x", x, x, 3])


def test_out_of_bounds_names_program_and_array():
    x = np.zeros(100, np.float32)
    with pytest.raises(InterpreterError) as caught:
        run(parse_function(ADD), 2, [x, x, np.zeros(100, np.float32), 128])
    message = str(caught.value)
    assert "out-of-bounds read of 4 bytes" in message and "(and 27 more)" in message
    assert "float32 [100]" in message and "this is byte 400" in message
    assert "in 'load' of program (1, 0, 0)" in message


def test_a_view_may_not_be_left_though_its_buffer_goes_on():
    buffer = np.zeros(200, np.float32)
    with pytest.raises(InterpreterError, match="out-of-bounds"):
        run(parse_function(ADD), 2, [buffer[:100], buffer[:100], np.zeros(128, np.float32), 128])


def test_read_only_arrays():
    x = np.zeros(64, np.float32)
    x.flags.writeable = False
    with pytest.raises(InterpreterError, match="read-only"):
        run(parse_function(ADD), 1, [x, x, x, 64])


def test_misaligned_access():
    raw = np.zeros(64 * 4 + 2, np.uint8)[2:]
    memory = AddressSpace()
    address = memory.register(np.zeros(66, np.float32)) + 2
    with pytest.raises(InterpreterError, match="misaligned access of 4 bytes"):
        run(parse_function(ADD), 1, [address, address, address, 4], memory=memory)
    assert raw.size == 256


def execute(body: str, *arguments, parameters: str, output=print, grid=1) -> None:
    run(parse_function(f"func @f({parameters}) {{\n{body}\nreturn\n}}"), grid, arguments, output=output)


def test_for_carries_values_and_may_run_no_time():
    body = """
      %zero = constant {value = 0} : i32
      %one = constant {value = 1} : i32
      %a, %b = for %i = %zero to %n step %one iter_args(%x = %zero, %y = %one) : i32, i32 {
        %next = addi %x, %y : i32
        yield %y, %next
      }
      store %out, %a : (ptr<i32>, i32)"""
    for n, expected in ((10, 55), (0, 0), (-3, 0)):
        out = np.full(1, -1, np.int32)
        execute(body, out, n, parameters="%out: ptr<i32>, %n: i32")
        assert out[0] == expected


def test_while_and_if():
    """The Collatz sequence's length."""
    body = """
      %zero = constant {value = 0} : i32
      %one = constant {value = 1} : i32
      %three = constant {value = 3} : i32
      %two = constant {value = 2} : i32
      %last, %steps = while %n, %zero : i32, i32 {
        (%x: i32, %s: i32):
        %more = cmpi %x, %one {predicate = "ne"} : i1
        condition %more, %x, %s
      } body {
        (%x1: i32, %s1: i32):
        %bit = andi %x1, %one : i32
        %odd = cmpi %bit, %one {predicate = "eq"} : i1
        %next = if %odd : i32 {
          %t = muli %x1, %three : i32
          %u = addi %t, %one : i32
          yield %u
        } else {
          %h = divsi %x1, %two : i32
          yield %h
        }
        %s2 = addi %s1, %one : i32
        yield %next, %s2
      }
      store %out, %steps : (ptr<i32>, i32)"""
    out = np.zeros(1, np.int32)
    execute(body, out, 27, parameters="%out: ptr<i32>, %n: i32")
    assert out[0] == 111


def tile(name: str, pointer: str, shape: tuple[int, int], kind: str) -> str:
    """IR that makes ``%name``: pointers to a row-major tile."""
    m, n = shape
    t = f"{m}x{n}"
    return f"""
      %r{name} = make_range {{start = 0, end = {m * n}}} : tensor<{m * n}xi32>
      %i{name} = reshape %r{name} : (tensor<{m * n}xi32>) -> tensor<{t}xi32>
      %s{name} = splat {pointer} : (ptr<{kind}>) -> tensor<{t}xptr<{kind}>>
      %{name} = addptr %s{name}, %i{name} : tensor<{t}xptr<{kind}>>"""


@pytest.mark.parametrize("axis", [0, 1])
def test_reduce_with_a_region_of_two_values(axis):
    """argmax with ties to the lower index."""
    kept = (8, 16)[1 - axis]
    row = f"tensor<{kept}xi32>"
    body = f"""{tile("p", "%x", (8, 16), "f32")}
      %v = load %p : (tensor<8x16xptr<f32>>) -> tensor<8x16xf32>
      %m, %a = reduce %v, %ip {{axis = {axis}}} : (tensor<8x16xf32>, tensor<8x16xi32>)
          -> tensor<{kept}xf32>, {row} {{
        (%v1: f32, %i1: i32, %v2: f32, %i2: i32):
        %gt = cmpf %v1, %v2 {{predicate = "ogt"}} : i1
        %eq = cmpf %v1, %v2 {{predicate = "oeq"}} : i1
        %lt = cmpi %i1, %i2 {{predicate = "slt"}} : i1
        %tie = andi %eq, %lt : i1
        %left = ori %gt, %tie : i1
        %value = select %left, %v1, %v2 : f32
        %index = select %left, %i1, %i2 : i32
        yield %value, %index
      }}
      %k = make_range {{start = 0, end = {kept}}} : {row}
      %o = splat %out : (ptr<i32>) -> tensor<{kept}xptr<i32>>
      %q = addptr %o, %k : tensor<{kept}xptr<i32>>
      store %q, %a : (tensor<{kept}xptr<i32>>, {row})"""
    x = RNG.integers(0, 4, (8, 16)).astype(np.float32)
    out = np.zeros(kept, np.int32)
    execute(body, x, out, parameters="%x: ptr<f32>, %out: ptr<i32>")
    flat = np.argmax(x, axis)
    np.testing.assert_array_equal(out, flat * 16 + np.arange(16) if axis == 0 else flat + np.arange(8) * 16)


@pytest.mark.parametrize("branches", [False, True])
@pytest.mark.parametrize("reverse", ["", ", reverse = true"])
def test_scan_keeps_the_order(reverse, branches):
    """An associative operation that does not commute: (a, b) ∘ (c, d) = (a·c, b·c + d); also with control
    flow."""
    plain = "%s = addi %u, %b2 : i32"
    branch = "%s = if %flag : i32 {\n%w = addi %u, %b2 : i32\nyield %w\n} else {\nyield %zero\n}"
    body = f"""{tile("p", "%x", (4, 8), "i32")}{tile("q", "%y", (4, 8), "i32")}
      %zero = constant {{value = 0}} : i32
      %flag = constant {{value = true}} : i1
      %v = load %p : (tensor<4x8xptr<i32>>) -> tensor<4x8xi32>
      %w0 = load %q : (tensor<4x8xptr<i32>>) -> tensor<4x8xi32>
      %m, %a = scan %v, %w0 {{axis = 1{reverse}}} : (tensor<4x8xi32>, tensor<4x8xi32>)
          -> tensor<4x8xi32>, tensor<4x8xi32> {{
        (%a1: i32, %b1: i32, %a2: i32, %b2: i32):
        %t = muli %a1, %a2 : i32
        %u = muli %b1, %a2 : i32
        {branch if branches else plain}
        yield %t, %s
      }}
      store %q, %a : (tensor<4x8xptr<i32>>, tensor<4x8xi32>)"""
    x, y = RNG.integers(-3, 4, (2, 4, 8)).astype(np.int32)
    expected = y.copy()
    columns = range(6, -1, -1) if reverse else range(1, 8)
    for j in columns:
        expected[:, j] = expected[:, j + 1 if reverse else j - 1] * x[:, j] + y[:, j]
    execute(body, x, y, parameters="%x: ptr<i32>, %y: ptr<i32>")
    np.testing.assert_array_equal(y, expected)


ATOMICS = {
    "add": ("i32", np.int32, sum), "max": ("i32", np.int32, max), "min": ("i32", np.int32, min),
    "fadd": ("f32", np.float32, sum),
    "umax": ("i32", np.int32, lambda v: max(v, key=lambda e: int(e) & 0xFFFFFFFF)),
}  # fmt: skip


@pytest.mark.parametrize("kind", ATOMICS)
def test_atomics_that_meet_at_one_address(kind):
    name, dtype, expected = ATOMICS[kind]
    body = f"""{tile("p", "%x", (4, 8), name)}
      %v = load %p : (tensor<4x8xptr<{name}>>) -> tensor<4x8x{name}>
      %o = splat %out : (ptr<{name}>) -> tensor<4x8xptr<{name}>>
      %old = atomic_rmw %o, %v {{kind = "{kind}"}} : (tensor<4x8xptr<{name}>>, tensor<4x8x{name}>)
          -> tensor<4x8x{name}>
      store %p, %old : (tensor<4x8xptr<{name}>>, tensor<4x8x{name}>)"""
    x = RNG.integers(-50, 50, (4, 8)).astype(dtype)
    out, values = np.zeros(1, dtype), x.copy()
    execute(body, x, out, parameters=f"%x: ptr<{name}>, %out: ptr<{name}>")
    assert out[0] == expected([*values.ravel(), dtype(0)])
    assert x.flat[0] == 0  # the first one found the initial value


def test_atomic_masks_and_cas():
    body = """
      %r = make_range {start = 0, end = 4} : tensor<4xi32>
      %two = constant {value = 2} : tensor<4xi32>
      %m = cmpi %r, %two {predicate = "slt"} : tensor<4xi1>
      %s = splat %x : (ptr<i32>) -> tensor<4xptr<i32>>
      %p = addptr %s, %r : tensor<4xptr<i32>>
      %old = atomic_rmw %p, %two, %m {kind = "xchg"} : (tensor<4xptr<i32>>, tensor<4xi32>, tensor<4xi1>)
          -> tensor<4xi32>
      %c = constant {value = 7} : i32
      %d = constant {value = 9} : i32
      %seen = atomic_cas %y, %c, %d : (ptr<i32>, i32, i32) -> i32
      %again = atomic_cas %y, %c, %c : (ptr<i32>, i32, i32) -> i32
      %t = splat %z : (ptr<i32>) -> tensor<4xptr<i32>>
      %q = addptr %t, %r : tensor<4xptr<i32>>
      store %q, %old : (tensor<4xptr<i32>>, tensor<4xi32>)
      store %z, %again : (ptr<i32>, i32)"""
    x, y, z = np.array([5, 6, 7, 8], np.int32), np.array([7], np.int32), np.full(4, -1, np.int32)
    execute(body, x, y, z, parameters="%x: ptr<i32>, %y: ptr<i32>, %z: ptr<i32>")
    np.testing.assert_array_equal(x, [2, 2, 7, 8])
    np.testing.assert_array_equal(z, [9, 6, 0, 0])
    assert y[0] == 9


SHARED = (
    "#shared = #shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [1, 0]}>\n"
    + "#blocked = #blocked<{sizePerThread = [1, 1], threadsPerWarp = [4, 8], warpsPerCTA = [1, 1], order = [1, 0]}>\n"  # noqa: E501
)


def pipeline(wait: str) -> str:
    return (
        SHARED
        + f"""func @f(%x: ptr<f16>, %y: ptr<f16>) {{
      %r = make_range {{start = 0, end = 32}} : tensor<32xi32>
      %i = reshape %r : (tensor<32xi32>) -> tensor<4x8xi32>
      %zero = constant {{value = 0}} : i32
      %one = constant {{value = 1}} : i32
      %s = splat %x : (ptr<f16>) -> tensor<4x8xptr<f16>>
      %p = addptr %s, %i : tensor<4x8xptr<f16>>
      %buffers = local_alloc : () -> memdesc<2x4x8xf16, #shared, mutable>
      %b0 = memdesc_index %buffers, %zero : (memdesc<2x4x8xf16, #shared, mutable>, i32)
          -> memdesc<4x8xf16, #shared, mutable>
      %b1 = memdesc_index %buffers, %one : (memdesc<2x4x8xf16, #shared, mutable>, i32)
          -> memdesc<4x8xf16, #shared, mutable>
      %c0 = async_copy_global_to_local %p, %b0 : (tensor<4x8xptr<f16>>, memdesc<4x8xf16, #shared, mutable>)
          -> token<cp.async>
      %g0 = async_commit_group %c0 : token<cp.async>
      %c1 = async_copy_global_to_local %p, %b1 : (tensor<4x8xptr<f16>>, memdesc<4x8xf16, #shared, mutable>)
          -> token<cp.async>
      %g1 = async_commit_group %c1 : token<cp.async>
      {wait}
      %t = memdesc_trans %b0 {{order = [1, 0]}} : (memdesc<4x8xf16, #shared, mutable>)
          -> memdesc<8x4xf16, #shared, mutable>
      %h = memdesc_subslice %t {{offsets = [4, 0]}} : (memdesc<8x4xf16, #shared, mutable>)
          -> memdesc<4x4xf16, #shared, mutable>
      %v = local_load %h : (memdesc<4x4xf16, #shared, mutable>) -> tensor<4x4xf16>
      %k = make_range {{start = 0, end = 16}} : tensor<16xi32>
      %l = reshape %k : (tensor<16xi32>) -> tensor<4x4xi32>
      %o = splat %y : (ptr<f16>) -> tensor<4x4xptr<f16>>
      %q = addptr %o, %l : tensor<4x4xptr<f16>>
      store %q, %v : (tensor<4x4xptr<f16>>, tensor<4x4xf16>)
      return
    }}"""
    )


def test_asynchronous_copies_arrive_when_waited_for():
    x, y = RNG.standard_normal((4, 8)).astype(np.float16), np.zeros((4, 4), np.float16)
    run(parse_function(pipeline("%w = async_wait %g0 {num = 1} : token<cp.async>")), 1, [x, y])
    np.testing.assert_array_equal(y, x.T[4:])


@pytest.mark.parametrize(("named", "comes"), [("%g0", True), ("%c0", True), ("%g1", False), ("%c1", False)])
def test_a_wait_finishes_what_it_names_alone(named, comes):
    """Whatever its number says: that is derived from the names."""
    x, y = RNG.standard_normal((4, 8)).astype(np.float16), np.zeros((4, 4), np.float16)
    run(parse_function(pipeline(f"%w = async_wait {named} : token<cp.async>")), 1, [x, y])
    assert np.array_equal(y, x.T[4:]) == comes and (y.view(np.uint16) == 0xCDCD).all() != comes


def test_asynchronous_copies_that_nobody_waits_for_show():
    x, y = RNG.standard_normal((4, 8)).astype(np.float16), np.zeros((4, 4), np.float16)
    run(parse_function(pipeline("%w = async_wait {num = 2} : token<cp.async>")), 1, [x, y])
    assert (y.view(np.uint16) == 0xCDCD).all()


def test_print_and_assert():
    lines: list[str] = []
    body = """
      %r = make_range {start = 0, end = 2} : tensor<2xi32>
      %m = constant {value = -1} : i32
      print %r, %m {prefix = " v: ", signed = [true, false]} : (tensor<2xi32>, i32)
      print %m {prefix = " h: ", hex = true, signed = [true]} : (i32)
      print {prefix = " done"} : ()
      %two = constant {value = 1} : tensor<2xi32>
      %c = cmpi %r, %two {predicate = "slt"} : tensor<2xi1>
      assert %c {message = "too large"} : (tensor<2xi1>)"""
    with pytest.raises(
        InterpreterError, match=r"assertion failed: too large, at index \(1,\)\nin 'assert' of program"
    ):
        execute(body, parameters="", output=lines.append)
    assert lines == [
        "pid (0, 0, 0) idx (0) v: (operand 0) 0", "pid (0, 0, 0) idx (1) v: (operand 0) 1",
        "pid (0, 0, 0) idx () v: (operand 1) 4294967295",
        "pid (0, 0, 0) idx () h: 0xffffffff", "pid (0, 0, 0) done",
    ]  # fmt: skip


def test_grid_in_three_dimensions():
    body = """
      %x = get_program_id {axis = 0} : i32
      %y = get_program_id {axis = 1} : i32
      %z = get_program_id {axis = 2} : i32
      %nx = get_num_programs {axis = 0} : i32
      %ny = get_num_programs {axis = 1} : i32
      %a = muli %z, %ny : i32
      %b = addi %a, %y : i32
      %c = muli %b, %nx : i32
      %d = addi %c, %x : i32
      %p = addptr %out, %d : ptr<i32>
      store %p, %d : (ptr<i32>, i32)"""
    out = np.full(24, -1, np.int32)
    execute(body, out, parameters="%out: ptr<i32>", grid=(2, 3, 4))
    np.testing.assert_array_equal(out, np.arange(24))


@pytest.mark.parametrize(
    "dtype, name", [(ml_dtypes.bfloat16, "bf16"), (ml_dtypes.float8_e4m3fn, "f8e4m3"), (np.int64, "i64")]
)
def test_scalar_arguments_and_element_types(dtype, name):
    out = np.zeros(1, dtype)
    execute(
        "store %out, %v : (ptr<%s>, %s)".replace("%s", name),
        out,
        -3,
        parameters=f"%out: ptr<{name}>, %v: {name}",
    )
    assert float(out[0]) == -3


def test_pointers_in_memory():
    """An array of addresses, as grouped kernels take it."""
    memory, target = AddressSpace(), np.zeros(3, np.float32)
    table = np.array([memory.register(target) + 4])
    body = """
      %a = load %table : (ptr<ptr<f32>>) -> ptr<f32>
      %v = constant {value = 2.5} : f32
      store %a, %v : (ptr<f32>, f32)"""
    function = parse_function(f"func @f(%table: ptr<ptr<f32>>) {{\n{body}\nreturn\n}}")
    run(function, 1, [table], memory=memory)
    np.testing.assert_array_equal(target, [0, 2.5, 0])


def test_freed_memory_shows():
    x, y = RNG.standard_normal((4, 8)).astype(np.float16), np.zeros((4, 4), np.float16)
    free = """%w = async_wait %g0 {num = 0} : token<cp.async>
      local_dealloc %buffers"""
    run(parse_function(pipeline(free)), 1, [x, y])
    assert (y.view(np.uint16) == 0xCDCD).all()


def test_gather_outside_is_an_error():
    body = """
      %r = make_range {start = 0, end = 4} : tensor<4xi32>
      %n = splat %k : (i32) -> tensor<4xi32>
      %i = addi %r, %n : tensor<4xi32>
      %g = gather %r, %i {axis = 0} : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>"""
    execute(body, 0, parameters="%k: i32")
    with pytest.raises(InterpreterError, match="in 'gather' of program"):
        execute(body, 1, parameters="%k: i32")
