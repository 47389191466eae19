"""reorder_instructions: seed 004's rules."""

from __future__ import annotations

import pytest

from ptxforge.passes.reorder_instructions import reorder_instructions
from tests.passes.buffers import BLOCKED, BUFFER, TILE
from tests.passes.gpu import TARGET, apply, parse

OTHER = BLOCKED.replace("[4]", "[1]", 1)
MMA = "#mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 8]}>"


def order(body: str, parameters: str = "%n: i32, %flag: i1") -> list[str]:
    function = apply(parse(body, parameters=parameters), reorder_instructions)
    return [op.results[0].hint or op.name if op.results else op.name for op in function.body.operations][:-1]


def test_conversions_sink_to_their_first_user():
    text = f"""
      %x = constant {{value = 1.0}} : {TILE}
      %c = convert_layout %x : ({TILE}) -> tensor<1024xf32, {OTHER}>
      %a = addf %x, %x : {TILE}
      %b = mulf %a, %a : {TILE}
      %d = addf %c, %c : tensor<1024xf32, {OTHER}>"""
    assert order(text) == ["x", "a", "b", "c", "d"]


def test_but_into_no_loop_and_no_branch():
    text = f"""
      %x = constant {{value = 1.0}} : {TILE}
      %c = convert_layout %x : ({TILE}) -> tensor<1024xf32, {OTHER}>
      %a = addf %x, %x : {TILE}
      if %flag {{
        %d = addf %c, %c : tensor<1024xf32, {OTHER}>
        yield
      }} else {{
        yield
      }}
      %e = addf %a, %a : {TILE}"""
    assert order(text) == ["x", "a", "c", "if", "e"]


def test_loads_from_shared_memory_sink_but_pass_no_write():
    text = f"""
      %x = constant {{value = 1.0}} : {TILE}
      %m = local_alloc : () -> {BUFFER}
      %v = local_load %m : ({BUFFER}) -> {TILE}
      %a = addf %x, %x : {TILE}
      local_store %a, %m : ({TILE}, {BUFFER})
      %b = addf %v, %v : {TILE}"""
    assert order(text) == ["x", "m", "a", "v", "local_store", "b"]


def test_values_are_stored_as_soon_as_they_are_there():
    text = f"""
      %x = constant {{value = 1.0}} : {TILE}
      %a = addf %x, %x : {TILE}
      %b = mulf %x, %x : {TILE}
      %m = local_alloc %a : ({TILE}) -> {BUFFER}
      %v = local_load %m : ({BUFFER}) -> {TILE}
      %c = addf %v, %b : {TILE}"""
    assert order(text) == ["x", "a", "m", "b", "v", "c"]


def test_b_is_fetched_after_a():
    a, b = (f"#dot_op<{{opIdx = {i}, parent = {MMA}, kWidth = 2}}>" for i in (0, 1))
    plain = (
        "#blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>"
    )
    text = f"""
      %x = constant {{value = 1.0}} : tensor<64x32xf16, {plain}>
      %y = constant {{value = 1.0}} : tensor<32x64xf16, {plain}>
      %z = constant {{value = 0.0}} : tensor<64x64xf32, {MMA}>
      %b = convert_layout %y : (tensor<32x64xf16, {plain}>) -> tensor<32x64xf16, {b}>
      %a = convert_layout %x : (tensor<64x32xf16, {plain}>) -> tensor<64x32xf16, {a}>
      %d = dot %a, %b, %z : (tensor<64x32xf16, {a}>, tensor<32x64xf16, {b}>, tensor<64x64xf32, {MMA}>) -> tensor<64x64xf32, {MMA}>"""  # noqa: E501
    assert order(text) == ["x", "y", "z", "a", "b", "d"]


EARLY = f"""
  %pid = get_program_id {{axis = 0}} : i32
  %r = make_range {{start = 0, end = 1024}} : tensor<1024xi32, {BLOCKED}>
  %q = splat %p : (ptr<f32>) -> tensor<1024xptr<f32>, {BLOCKED}>
  %a = addptr %q, %r : tensor<1024xptr<f32>, {BLOCKED}>
  %x = load %a : (tensor<1024xptr<f32>, {BLOCKED}>) -> {TILE}
  %s = reduce %x {{axis = 0}} : ({TILE}) -> f32 {{
    (%c: f32, %d: f32):
    %e = addf %c, %d : f32
    yield %e
  }}
  %o = splat OFFSET : (i32) -> tensor<1024xi32, {BLOCKED}>
  %b = addptr %a, %o : tensor<1024xptr<f32>, {BLOCKED}>
  %y = load %b : (tensor<1024xptr<f32>, {BLOCKED}>) -> {TILE}
  %t = splat %s : (f32) -> {TILE}
  %z = addf %y, %t : {TILE}
  store %b, %z : (tensor<1024xptr<f32>, {BLOCKED}>, {TILE})"""


def test_what_comes_from_far_is_asked_for_before_threads_meet():
    parameters = "%p: ptr<f32>, %n: i32"
    assert order(EARLY.replace("OFFSET", "%pid"), parameters) == [
        "pid", "r", "q", "a", "x", "o", "b", "y", "s", "t", "z", "store"]  # fmt: skip
    assert order(EARLY.replace("OFFSET", "%n"), parameters) == [
        "pid", "r", "q", "a", "x", "s", "o", "b", "y", "t", "z", "store"]  # fmt: skip


def test_loads_pass_no_store_and_no_result_of_the_meeting():
    parameters = "%p: ptr<f32>, %n: i32"
    stored = EARLY.replace("OFFSET", "%pid").replace(
        "  %o = ", f"  store %a, %x : (tensor<1024xptr<f32>, {BLOCKED}>, {TILE})\n  %o = "
    )
    names = order(stored, parameters)
    assert names.index("y") > names.index("s")
    indirect = EARLY.replace("OFFSET", "%w").replace(
        "  %o = ", "  %v = fptosi %s : (f32) -> i32\n  %w = addi %v, %pid : i32\n  %o = "
    )
    names = order(indirect, parameters)
    assert names.index("y") > names.index("s")


def test_loads_stay_behind_a_gather_whose_result_they_need():
    places = f"tensor<1024xi32, {BLOCKED}>"
    body = f"""
      %pid = get_program_id {{axis = 0}} : i32
      %r = make_range {{start = 0, end = 1024}} : {places}
      %g = gather %r, %r {{axis = 0}} : ({places}, {places}) -> {places}
      %o = splat %pid : (i32) -> {places}
      %i = addi %g, %o : {places}
      %q = splat %p : (ptr<f32>) -> tensor<1024xptr<f32>, {BLOCKED}>
      %a = addptr %q, %i : tensor<1024xptr<f32>, {BLOCKED}>
      %y = load %a : (tensor<1024xptr<f32>, {BLOCKED}>) -> {TILE}
      store %a, %y : (tensor<1024xptr<f32>, {BLOCKED}>, {TILE})"""
    assert order(body, "%p: ptr<f32>, %n: i32") == ["pid", "r", "g", "o", "i", "q", "a", "y", "store"]


def test_says_whether_it_changed_anything():
    function = parse(
        f"%x = constant {{value = 1.0}} : {TILE}\n%a = addf %x, %x : {TILE}", parameters="%n: i32"
    )
    assert not reorder_instructions(function, TARGET)


@pytest.mark.parametrize(
    ("used_in_the_branch", "expected"),
    [(False, ["p", "x", "y", "if", "c", "d", "e"]), (True, ["p", "x", "c", "y", "if", "d", "e"])],
)
def test_what_waits_for_a_load_lets_that_of_a_branch_begin(used_in_the_branch, expected):
    """A cast, and what follows it, waits for its load: behind the branch it does so for both loads."""
    pointers, halves = TILE.replace("f32", "ptr<f16>"), TILE.replace("f32", "f16")
    use = "%c" if used_in_the_branch else "%y"
    text = f"""
      %p = splat %base : (ptr<f16>) -> {pointers}
      %x = load %p {{vector = 1}} : ({pointers}) -> {halves}
      %c = extf %x : ({halves}) -> {TILE}
      %d = mulf %c, %c : {TILE}
      %y = constant {{value = 1.0}} : {TILE}
      if %flag {{
        %z = load %p {{vector = 1}} : ({pointers}) -> {halves}
        %w = extf %z : ({halves}) -> {TILE}
        %u = addf %w, {use} : {TILE}
        yield
      }} else {{
        yield
      }}
      %e = addf %d, %d : {TILE}"""
    assert order(text, "%base: ptr<f16>, %n: i32, %flag: i1") == expected


def test_no_cast_passes_a_branch_that_loads_nothing():
    halves = TILE.replace("f32", "f16")
    pointers = TILE.replace("f32", "ptr<f16>")
    text = f"""
      %p = splat %base : (ptr<f16>) -> {pointers}
      %x = load %p {{vector = 1}} : ({pointers}) -> {halves}
      %c = extf %x : ({halves}) -> {TILE}
      if %flag {{
        yield
      }} else {{
        yield
      }}
      %d = mulf %c, %c : {TILE}"""
    assert order(text, "%base: ptr<f16>, %n: i32, %flag: i1") == ["p", "x", "c", "if", "d"]
