"""Partitions: text, what the verifier refuses, and what the interpreter makes of two groups of warps."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.interpreter import run
from ptxforge.ir.ops.partition import Partition
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.ir.warps import WarpGroup, threads_of, warps_around
from ptxforge.support.errors import InterpreterError, VerificationError

BAR, TILE = "memdesc<1xmbarrier, #bar, mutable>", "memdesc<16x16xf16, #a, mutable>"
TILES = "memdesc<2x16x16xf16, #a, mutable>"
TEXT = f"""\
#a = #panels<{{swizzle = 32, elementBits = 16, order = [1, 0]}}>
#bar = #shared<{{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}}>
#b = #blocked<{{sizePerThread = [1, 8], threadsPerWarp = [16, 2], warpsPerCTA = [1, 1], order = [1, 0]}}>
func @two_tiles(%x: ptr<f16> {{divisibility = 16}}, %out: ptr<f16>, %map: tensormap {{dtype = "float16", \
base = "x", shape = [32, 16], strides = [16, 1], box = [16, 16], swizzle = 32}}) \
attributes {{num_warps = 1, extra_warps = 1, target = "sm_90a"}} {{
  %buffers = local_alloc : () -> {TILES}
  %full = local_alloc : () -> {BAR}
  %empty = local_alloc : () -> {BAR}
  barrier_init %full
  barrier_init %empty {{count = 1}}
  %zero = constant {{value = 0}} : i32
  %one = constant {{value = 1}} : i32
  %sum = partition : tensor<16x16xf16, #b> {{
    %one_came = barrier_wait %full, %zero : token<tma>
    %view = memdesc_index %buffers, %zero, %one_came : ({TILES}, i32, token<tma>) -> {TILE}
    %v = local_load %view : ({TILE}) -> tensor<16x16xf16, #b>
    barrier_arrive %empty
    %two_came = barrier_wait %full, %one : token<tma>
    %view2 = memdesc_index %buffers, %zero, %two_came : ({TILES}, i32, token<tma>) -> {TILE}
    %w = local_load %view2 : ({TILE}) -> tensor<16x16xf16, #b>
    %both = addf %v, %w : tensor<16x16xf16, #b>
    yield %both
  }} producer {{
    %first = constant {{value = 0}} : i32
    %second = constant {{value = 16}} : i32
    %buffer = memdesc_index %buffers, %first : ({TILES}, i32) -> {TILE}
    %t1 = barrier_expect %full {{bytes = 512}} : token<tma>
    tensor_load %map, %t1, %buffer, %first, %first {{tile_dims = [0, 1]}} : \
(tensormap, token<tma>, {TILE}, i32, i32)
    %room = barrier_wait %empty, %first : token<tma>
    %t2 = barrier_expect %full {{bytes = 512}} : token<tma>
    tensor_load %map, %t2, %buffer, %second, %first {{tile_dims = [0, 1]}} : \
(tensormap, token<tma>, {TILE}, i32, i32)
    yield
  }}
  %i = make_range {{start = 0, end = 16}} : tensor<16xi32, #slice<{{dim = 1, parent = #b}}>>
  %j = make_range {{start = 0, end = 16}} : tensor<16xi32, #slice<{{dim = 0, parent = #b}}>>
  %i2 = expand_dims %i {{axis = 1}} : (tensor<16xi32, #slice<{{dim = 1, parent = #b}}>>) \
-> tensor<16x1xi32, #b>
  %j2 = expand_dims %j {{axis = 0}} : (tensor<16xi32, #slice<{{dim = 0, parent = #b}}>>) \
-> tensor<1x16xi32, #b>
  %w2 = constant {{value = 16}} : tensor<16x1xi32, #b>
  %r = muli %i2, %w2 : tensor<16x1xi32, #b>
  %rr = broadcast %r : (tensor<16x1xi32, #b>) -> tensor<16x16xi32, #b>
  %cc = broadcast %j2 : (tensor<1x16xi32, #b>) -> tensor<16x16xi32, #b>
  %o = addi %rr, %cc : tensor<16x16xi32, #b>
  %s = splat %out : (ptr<f16>) -> tensor<16x16xptr<f16>, #b>
  %p = addptr %s, %o : tensor<16x16xptr<f16>, #b>
  store %p, %sum : (tensor<16x16xptr<f16>, #b>, tensor<16x16xf16, #b>)
  return
}}
"""


def parsed(*changes: tuple[str, str]):
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    function = parse_function(text)
    verify(function)
    return function


def summed(function) -> np.ndarray:
    x, out = np.arange(512).astype(np.float16).reshape(32, 16), np.zeros((16, 16), np.float16)
    run(function, 1, [x, out])
    return out


def test_text_round_trips():
    text = print_function(parsed())
    assert print_function(parse_function(text)) == text


def test_who_runs_what():
    function = parsed()
    (op,) = function.walk(Partition)
    assert warps_around(op) == warps_around(op.consumers.first) == WarpGroup(1, barrier=1)
    assert warps_around(op.producer.first) == WarpGroup(1, first=1, barrier=2)
    assert threads_of(function) == 64


def test_both_groups_take_turns():
    x = np.arange(512).reshape(32, 16)
    np.testing.assert_array_equal(summed(parsed()), x[:16] + x[16:])


ROOM = "    %room = barrier_wait %empty, %first : token<tma>\n"
ARRIVE = "    barrier_arrive %empty\n"
REGISTERS = "extra_warps = 4, maxnreg = 168, warp_registers = [240, 24], "
ATTRIBUTES = ("extra_warps = 1, ", REGISTERS)


@pytest.mark.parametrize(("changes", "message"), [
    ([("    yield\n", "    return\n")], "must end in 'yield'"),
    ([("    yield %both\n", "    yield\n")], "must yield its results"),
    ([("    yield\n", "    yield %first\n")], "yields nothing"),
    ([("extra_warps = 1, ", "")], "no 'extra_warps'"),
    ([("barrier_wait %empty, %first", "barrier_wait %empty, %zero")], "uses a i32 of other warps"),
    ([(ARRIVE, "")], "at which no other group arrives|nothing arrives"),
    ([("%empty {count = 1}", "%empty {count = 2}")], "a barrier of 2 arrivals in 'partition' gets 1"),
    ([("  barrier_init %full\n", "")], "a barrier of no arrivals"),
    ([(ROOM, ARRIVE)], "two groups of 'partition' arrive"),
    ([("{bytes = 512}", "{bytes = 256}")], "copies bring 512 of the 256 bytes"),
    ([("%full {bytes", "%empty {bytes")], "at which no other group arrives|nothing arrives"),
    ([("  %i = make", "  %late = barrier_wait %full, %one : token<tma>\n  %i = make")], "used outside of it"),
    ([ATTRIBUTES, ("[240, 24]", "[248, 24]")], "a multiple of 8 from 24 to 240"),
    ([ATTRIBUTES, ("[240, 24]", "[240, 20]")], "a multiple of 8 from 24 to 240"),
    ([ATTRIBUTES, ("maxnreg = 168", "maxnreg = 64")], "336 registers of 32 threads are wanted, 320 were"),
    ([ATTRIBUTES, ("extra_warps = 4", "extra_warps = 2")], "no whole warpgroups"),
    ([(ARRIVE, ARRIVE + "    %g = get_consumer_group : i32\n")], "where there is one group of consumers"),
    ([("extra_warps = 1, ", "extra_warps = 2, consumer_groups = 2, ")], "groups of consumers"),
])  # fmt: skip
def test_mutations_that_the_verifier_finds(changes, message):
    with pytest.raises(VerificationError, match=message):
        parsed(*changes)


def test_registers_that_fit():
    parsed(ATTRIBUTES)


PHASES = "barrier_wait %full, %zero", "barrier_wait %full, %one"


@pytest.mark.parametrize(("changes", "message"), [
    ([(PHASES[1], PHASES[0])], None),
    ([(ROOM, ROOM + "    %more = barrier_wait %empty, %second : token<tma>\n"),
      ("%second = constant {value = 16}", "%second = constant {value = 1}")], "a wait that never ends"),
    ([(ARRIVE, ""), ("    yield %both\n", ARRIVE + "    yield %both\n")], "a wait that never ends"),
    ([(ROOM, "")], "second arrival"),
])  # fmt: skip
def test_mutations_that_the_interpreter_finds(changes, message):
    """Waits for the wrong phase, for bytes that nobody asked for, for each other; a tile that comes before
    the last one was read."""
    function = parsed(*changes)
    if message is None:
        x = np.arange(512).reshape(32, 16)
        assert not np.array_equal(summed(function), x[:16] + x[16:])
        return
    with pytest.raises(InterpreterError, match=message):
        summed(function)


def test_a_fault_of_the_producer_is_told_with_its_place():
    with pytest.raises(InterpreterError, match="in 'barrier_expect' of program"):
        summed(parsed((ROOM, "")))
