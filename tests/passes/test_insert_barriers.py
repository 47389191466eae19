"""insert_barriers: seed 004's equations, on examples and against a race detector on random programs."""

from __future__ import annotations

import random

import pytest

from ptxforge.ir.core import Block, Function
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.control import For, If
from ptxforge.ir.ops.memory import Barrier, Load, Store
from ptxforge.ir.ops.shared import LocalAlloc, LocalLoad, LocalStore
from ptxforge.passes.allocate_shared import allocate_shared
from ptxforge.passes.insert_barriers import insert_barriers
from tests.passes.buffers import BLOCKED, BUFFER, LOOP, TILE, alloc
from tests.passes.gpu import TARGET, apply, operations, parse

VALUE = f"%x = constant {{value = 1.0}} : {TILE}\n"


def load(buffer: str, name: str, token: str = "") -> str:
    operand, type = (f", {token}", ", token<cp.async>") if token else ("", "")
    return f"%{name} = local_load %{buffer}{operand} : ({BUFFER}{type}) -> {TILE}\n"


def store(buffer: str) -> str:
    return f"local_store %x, %{buffer} : ({TILE}, {BUFFER})\n"


def names(function: Function) -> list[str]:
    kinds = (LocalAlloc, LocalLoad, LocalStore, Barrier, For, If)
    return [
        op.name.removeprefix("local_")
        for op in operations(function, *kinds)
        if not isinstance(op, LocalAlloc)
    ]


def inserted(body: str) -> list[str]:
    return names(
        apply(parse(VALUE + body, parameters="%n: i32, %flag: i1"), allocate_shared, insert_barriers)
    )


def test_read_after_write():
    assert inserted(alloc("a") + store("a") + load("a", "v")) == ["store", "barrier", "load"]


def test_write_after_read():
    assert inserted(alloc("a") + load("a", "v") + store("a")) == ["load", "barrier", "store"]


def test_reads_need_none_among_themselves():
    assert inserted(alloc("a") + load("a", "v") + load("a", "w")) == ["load", "load"]


def test_one_barrier_serves_several():
    body = alloc("a") + alloc("b") + store("a") + store("b") + load("a", "v") + load("b", "w")
    assert inserted(body) == ["store", "store", "barrier", "load", "load"]


def test_buffers_that_share_memory_conflict():
    body = alloc("a") + load("a", "v") + alloc("b") + store("b") + load("b", "w")
    assert inserted(body) == ["load", "barrier", "store", "barrier", "load"]


def test_a_loop_conflicts_with_its_own_next_iteration():
    body = LOOP + alloc("a") + "for %i = %c0 to %n step %c1 {\n" + store("a") + load("a", "v") + "yield\n}"
    assert inserted(body) == ["for", "barrier", "store", "barrier", "load"]


def test_both_branches_count():
    body = alloc("a") + "if %flag {\n" + store("a") + "yield\n} else {\nyield\n}\n" + load("a", "v")
    assert inserted(body) == ["if", "store", "barrier", "load"]


def test_the_users_own_barrier_counts():
    assert inserted(alloc("a") + store("a") + "barrier\n" + load("a", "v")) == ["store", "barrier", "load"]


def test_a_value_given_at_allocation_is_a_write():
    body = f"%a = local_alloc %x : ({TILE}) -> {BUFFER}\n" + load("a", "v")
    assert inserted(body) == ["barrier", "load"]


def test_scratch_is_written_then_read():
    """Two conversions through the same scratch: the second waits for the first one's readers."""
    other = BLOCKED.replace("[4]", "[1]", 1)
    convert = f": ({TILE}) -> tensor<1024xf32, {other}>\n"
    body = f"%y = convert_layout %x {convert}%z = convert_layout %x {convert}"
    function = apply(parse(VALUE + body, parameters="%n: i32"), allocate_shared, insert_barriers)
    assert [op.name for op in function.walk()] == [
        "constant",
        "convert_layout",
        "barrier",
        "convert_layout",
        "return",
    ]


COPY = f"""
  %r = make_range {{start = 0, end = 1024}} : tensor<1024xi32, {BLOCKED}>
  %b = splat %p : (ptr<f32>) -> tensor<1024xptr<f32>, {BLOCKED}>
  %q = addptr %b, %r : tensor<1024xptr<f32>, {BLOCKED}>
"""


def copy(buffer: str, name: str, attributes: str = "") -> str:
    types = f"(tensor<1024xptr<f32>, {BLOCKED}>, {BUFFER})"
    return f"%{name} = async_copy_global_to_local %q, %{buffer} {attributes}: {types} -> token<cp.async>\n"


def after_copies(body: str) -> list[str]:
    function = parse(COPY + body, parameters="%p: ptr<f32>, %n: i32")
    function = apply(function, allocate_shared, insert_barriers)
    kinds = ("async_copy_global_to_local", "async_wait", "barrier", "local_load")
    return [
        op.name.removeprefix("async_").removeprefix("local_") for op in function.walk() if op.name in kinds
    ]


def test_a_copy_is_written_when_it_was_waited_for():
    """A barrier between copy and wait publishes nothing."""
    body = (
        alloc("a")
        + copy("a", "t")
        + "%g = async_commit_group %t : token<cp.async>\nbarrier\n"
        + "%w = async_wait {num = 0} : token<cp.async>\n"
    )
    assert after_copies(body + load("a", "v")) == [
        "copy_global_to_local",
        "barrier",
        "wait",
        "barrier",
        "load",
    ]


def test_a_wait_publishes_what_its_token_is_taken_for():
    """Behind the second wait ``a`` needs no barrier again, but for a read that takes no token."""
    kernel = alloc("a") + alloc("other") + copy("a", "t") + "%g = async_commit_group %t : token<cp.async>\n"
    kernel += copy("other", "u") + "%h = async_commit_group %u : token<cp.async>\n"
    kernel += "%w = async_wait {num = 1} : token<cp.async>\n" + load("a", "v", "%w")
    kernel += "%z = async_wait {num = 0} : token<cp.async>\n"
    in_between = ["copy_global_to_local"] * 2 + ["wait", "barrier", "load", "wait"]
    once_more, other = load("a", "x", "%w"), load("other", "y", "%z")
    assert after_copies(kernel + once_more + other) == [*in_between, "load", "barrier", "load"]
    assert after_copies(kernel + load("a", "x") + other) == [*in_between, "barrier", "load", "load"]


def test_a_copy_waits_for_readers_unless_it_is_ordered():
    body, wait = alloc("a") + load("a", "v"), "%w = async_wait : token<cp.async>\n"
    waits = ["load", "barrier", "copy_global_to_local", "wait"]
    assert after_copies(body + copy("a", "t") + wait) == waits
    ordered = copy("a", "t", "{ordered = true} ")
    assert after_copies(body + ordered + wait) == ["load", "copy_global_to_local", "wait"]


# -- random programs against a race detector --------------------------------------------------------------


def random_block(rng: random.Random, depth: int, counter: list[int]) -> str:
    text = ""
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["load", "store", "load", "store", "for", "if"] if depth else ["load", "store"])
        counter[0] += 1
        buffer = rng.choice("abc")
        if kind == "load":
            text += load(buffer, f"v{counter[0]}")
        elif kind == "store":
            text += store(buffer)
        elif kind == "for":
            text += f"for %i{counter[0]} = %c0 to %n step %c1 {{\n{random_block(rng, depth - 1, counter)}yield\n}}\n"  # noqa: E501
        else:
            then, other = (random_block(rng, depth - 1, counter) for _ in range(2))
            text += f"if %flag {{\n{then}yield\n}} else {{\n{other}yield\n}}\n"
    return text


def traces(block: Block, rng: random.Random) -> list:
    """One possible sequence of operations: loops run 0 to 3 times, branches go either way."""
    found = []
    for op in block.operations:
        if isinstance(op, For):
            for _ in range(rng.randint(0, 3)):
                found += traces(op.body, rng)
        elif isinstance(op, If):
            found += traces(rng.choice([op.then_block, op.else_block]), rng)
        elif isinstance(op, (LocalLoad, LocalStore, Barrier)):
            found.append(op)
    return found


def has_race(trace: list) -> bool:
    """Whether two accesses to one buffer, at least one a write, are not separated by a barrier."""
    reads, writes = set(), set()
    for op in trace:
        if isinstance(op, Barrier):
            reads, writes = set(), set()
        elif isinstance(op, LocalLoad):
            if op.source in writes:
                return True
            reads.add(op.source)
        else:
            if op.destination in reads | writes:
                return True
            writes.add(op.destination)
    return False


def random_program(rng: random.Random, depth: int) -> Function:
    body = VALUE + LOOP + "".join(map(alloc, "abc")) + random_block(rng, depth, [0])
    body += "".join(load(b, f"last_{b}") for b in "abc")
    return apply(parse(body, parameters="%n: i32, %flag: i1"), allocate_shared)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_have_no_race(seed):
    rng = random.Random(seed)
    function = random_program(rng, depth=2)
    changed = insert_barriers(function, TARGET)
    runs = [traces(function.body, rng) for _ in range(50)]
    assert not any(map(has_race, runs))
    assert changed == bool(operations(function, Barrier))


@pytest.mark.parametrize("seed", range(40))
def test_every_barrier_is_needed(seed):
    """Where loops are not nested, no barrier is put that another one makes superfluous."""
    function = random_program(random.Random(seed), depth=1)
    insert_barriers(function, TARGET)
    for index in range(len(operations(function, Barrier))):
        without = function.clone()
        operations(without, Barrier)[index].erase()
        assert insert_barriers(without, TARGET)


def test_nothing_to_do_without_shared_memory():
    function = apply(parse("%v = constant {value = 1} : i32", parameters="%n: i32"), allocate_shared)
    assert not insert_barriers(function, TARGET)


# -- global memory, in place ---------------------------------------------------------------------------------

IN_PLACE = "%x: ptr<f32>, %y: ptr<f32>, %n: i32, %flag: i1"
SCALAR = """%v = load %x : (ptr<f32>) -> f32
  %w = addf %v, %v : f32
  store %x, %w : (ptr<f32>, f32)
"""


def global_accesses(body: str) -> list[str]:
    function = parse(body, parameters=IN_PLACE)
    insert_barriers(function, TARGET)
    return [op.name for op in operations(function, Load, Store, AtomicRMW, Barrier)]


def tile(size: int, store_to: str = "%x") -> str:
    layout = "#blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    pointers, values = f"tensor<{size}xptr<f32>, {layout}>", f"tensor<{size}xf32, {layout}>"
    return f"""%p = splat %x : (ptr<f32>) -> {pointers}
      %q = splat {store_to} : (ptr<f32>) -> {pointers}
      %i = make_range {{start = 0, end = {size}}} : tensor<{size}xi32, {layout}>
      %a = addptr %p, %i : {pointers}
      %b = addptr %q, %i : {pointers}
      %v = load %a : ({pointers}) -> {values}
      store %b, %v : ({pointers}, {values})
    """


def test_copies_of_what_is_overwritten_are_loaded_before():
    assert global_accesses(SCALAR) == ["load", "barrier", "store"]
    assert global_accesses(tile(64)) == ["load", "barrier", "store"]


def test_no_copies_or_another_array_need_no_barrier():
    assert global_accesses(tile(128)) == ["load", "store"]
    assert global_accesses(tile(64, store_to="%y")) == ["load", "store"]
    assert global_accesses(SCALAR.replace("store %x", "store %y")) == ["load", "store"]


def test_an_atomic_overwrites_too():
    atomic = '%o = atomic_rmw %x, %w {kind = "fadd"} : (ptr<f32>, f32) -> f32'
    body = SCALAR.replace("store %x, %w : (ptr<f32>, f32)", atomic)
    assert global_accesses(body) == ["load", "barrier", "atomic_rmw"]


def test_what_one_thread_stored_is_there_before_the_others_load_it():
    again = SCALAR + SCALAR.replace("%v", "%v2").replace("%w", "%w2")
    assert global_accesses(again) == ["load", "barrier", "store", "barrier", "load", "barrier", "store"]
    assert global_accesses(again.replace("load %x", "load %y")) == ["load", "store", "load", "store"]
    met = SCALAR + "barrier\n" + SCALAR.replace("%v", "%v2").replace("%w", "%w2")
    assert global_accesses(met) == ["load", "barrier", "store", "barrier", "load", "barrier", "store"]


def test_in_place_in_loops_and_branches():
    loop = f"%c = constant {{value = 1}} : i32\nfor %k = %c to %n step %c {{\n{SCALAR}yield\n}}"
    assert global_accesses(loop) == ["barrier", "load", "barrier", "store"]
    carried = """%c = constant {value = 1} : i32
      %e = for %k = %c to %n step %c iter_args(%p = %x) : ptr<f32> {
        %v = load %p : (ptr<f32>) -> f32
        store %p, %v : (ptr<f32>, f32)
        %q = addptr %p, %c : ptr<f32>
        yield %q
      }"""
    assert global_accesses(carried) == ["barrier", "load", "barrier", "store"]
    branch = SCALAR.replace("store", "if %flag {\nstore", 1) + "yield\n} else {\nyield\n}"
    assert global_accesses(branch) == ["load", "store"]
