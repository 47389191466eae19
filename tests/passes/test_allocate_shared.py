"""allocate_shared: lifetimes, places, and the error when it is too much."""

from __future__ import annotations

import random

import pytest

from ptxforge.ir.ops.convert_layout import ConvertLayout
from ptxforge.ir.ops.memory import Barrier
from ptxforge.ir.ops.reduce import Reduce
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.allocate_shared import Request, allocate_shared, place
from ptxforge.passes.insert_barriers import insert_barriers
from ptxforge.passes.remove_layout_conversions import remove_layout_conversions
from ptxforge.support.errors import OutOfResourcesError
from ptxforge.support.target import parse_target
from tests.passes.buffers import BLOCKED, BUFFER, LOOP, SHARED, TILE, alloc
from tests.passes.gpu import TARGET, apply, operations, parse, up_to
from tests.passes.kernels import ADD, TRANSPOSE


def use(name: str) -> str:
    return f"%v_{name}{next(_counter)} = local_load %{name} : ({BUFFER}) -> {TILE}\n"


_counter = iter(range(10**6))


def offsets(body: str, parameters: str = "%n: i32, %flag: i1") -> tuple[dict[str, int], int]:
    function = apply(parse(body, parameters=parameters), allocate_shared)
    return {op.result.hint: op.offset for op in operations(function, LocalAlloc)}, function.attributes[
        "shared_bytes"
    ]


def test_buffers_that_live_together_lie_apart():
    places, total = offsets(alloc("a") + alloc("b") + use("a") + use("b"))
    assert sorted(places.values()) == [0, 4096] and total == 8192


def test_buffers_that_follow_each_other_share():
    places, total = offsets(alloc("a") + use("a") + alloc("b") + use("b"))
    assert places == {"a": 0, "b": 0} and total == 4096


def test_a_buffer_used_in_a_loop_lives_to_its_end():
    inside = use("a") + alloc("b") + use("b")
    _, total = offsets(LOOP + alloc("a") + "for %i = %c0 to %n step %c1 {\n" + inside + "yield\n}")
    assert total == 8192


def test_buffers_of_one_iteration_share():
    inside = alloc("a") + use("a") + alloc("b") + use("b")
    _, total = offsets(LOOP + "for %i = %c0 to %n step %c1 {\n" + inside + "yield\n}")
    assert total == 4096


def test_a_carried_buffer_lives_through_the_loop():
    body = LOOP + alloc("a") + f"%z = for %i = %c0 to %n step %c1 iter_args(%m = %a) : {BUFFER} {{\n"
    body += use("m") + alloc("b") + use("b") + "yield %m\n}\n"
    places, total = offsets(body)
    assert places["a"] != places["b"] and total == 8192


def test_a_buffer_yielded_to_the_next_iteration_lives_through_the_loop():
    body = LOOP + alloc("a") + f"%z = for %i = %c0 to %n step %c1 iter_args(%m = %a) : {BUFFER} {{\n"
    body += use("m") + alloc("c") + use("c") + alloc("b") + "yield %b\n}\n" + use("z")
    places, _ = offsets(body)
    assert len(set(places.values())) == 3


STORED = """\
#rows = #blocked<{sizePerThread = [1, 8], threadsPerWarp = [16, 2], warpsPerCTA = [1, 1], order = [1, 0]}>
#panels = #panels<{swizzle = 32, elementBits = 16, order = [1, 0]}>
func @f(%y: ptr<f16>, %map: tensormap {dtype = "float16", base = "y", shape = [16, 16], strides = [16, 1], \
box = [16, 16], swizzle = 32}, %flag: i1) attributes {num_warps = 1, target = "sm_90a"} {
  %zero = constant {value = 0} : i32
  %none = no_work {queue = "bulk"} : token<bulk>
  %buffer = local_alloc : () -> memdesc<16x16xf16, #panels, mutable>
  %stored = if %flag : token<bulk> {
    %copy = tensor_store %map, %y, %buffer, %zero, %zero : (tensormap, ptr<f16>, \
memdesc<16x16xf16, #panels, mutable>, i32, i32) -> token<bulk>
    yield %copy
  } else {
    yield %none
  }
EARLY  %other = local_alloc : () -> memdesc<16x16xf16, #panels, mutable>
  %x = local_load %other : (memdesc<16x16xf16, #panels, mutable>) -> tensor<16x16xf16, #rows>
LATE  return
}
"""


@pytest.mark.parametrize(("early", "total"), [(True, 512), (False, 1024)])
def test_a_buffer_that_is_stored_lives_until_that_was_waited_for(early, total):
    wait = "  store_wait %stored\n"
    text = STORED.replace("EARLY", wait if early else "").replace("LATE", "" if early else wait)
    function = parse_function(text)
    verify(function)
    allocate_shared(function, parse_target("sm_90a"))
    assert function.attributes["shared_bytes"] == total


def test_branches_share_and_their_result_outlives_them():
    body = (
        f"%z = if %flag : {BUFFER} {{\n" + alloc("a") + "yield %a\n} else {\n" + alloc("b") + "yield %b\n}\n"
    )
    body += alloc("c") + use("c") + use("z")
    places, _ = offsets(body)
    assert places["c"] not in (places["a"], places["b"])


def test_views_keep_their_buffer_alive():
    body = f"%a = local_alloc : () -> memdesc<2x1024xf32, {SHARED}, mutable>\n" + LOOP
    body += f"%m = memdesc_index %a, %c1 : (memdesc<2x1024xf32, {SHARED}, mutable>, i32) -> {BUFFER}\n"
    places, total = offsets(body + alloc("b") + use("m") + use("b"))
    assert total == 12288 and places["a"] != places["b"]


def two_buffers(name: str, size: int) -> str:
    return f"%{name} = local_alloc : () -> memdesc<2x{size}xf32, {SHARED}, mutable>\n"


def choose(name: str, size: int, index: str) -> str:
    view = f"memdesc<{size}xf32, {SHARED}, mutable>"
    text = f"%{name}{index} = memdesc_index %{name}, %{index} : (memdesc<2x{size}xf32, {SHARED}, mutable>, i32) -> {view}\n"  # noqa: E501
    return (
        text + f"%v_{name}{index} = local_load %{name}{index} : ({view}) -> tensor<{size}xf32, {BLOCKED}>\n"
    )


def interleaved(between: str) -> dict[str, tuple[int, int]]:
    """Offsets and pitches of two pairs of buffers;
    something happens between the first uses and the last ones."""
    body = LOOP + two_buffers("a", 1024) + two_buffers("b", 512) + choose("a", 1024, "c0") + between
    function = apply(parse(body + choose("b", 512, "c1")), allocate_shared)
    return {op.result.hint: (op.offset, op.pitch) for op in operations(function, LocalAlloc)}


def test_buffers_of_several_operands_are_interleaved():
    """Buffer i of each is found by one offset."""
    assert interleaved("") == {"a": (0, 4096 + 2048), "b": (4096, 4096 + 2048)}


def test_interleaving_never_holds_memory_that_others_could_use():
    """``c`` can have the place of ``a``, which has been used for the last time."""
    places = interleaved(alloc("c") + use("c"))
    assert places["a"] == (0, 0) and places["c"] == (0, 0) and places["b"][1] == 0


def test_buffers_that_follow_each_other_are_not_interleaved():
    """Those of one loop have the place of those of the loop before."""
    pairs = [two_buffers(name, 1024) + choose(name, 1024, "c0") for name in "ab"]
    places, total = offsets(LOOP + "".join(pairs))
    assert places == {"a": 0, "b": 0} and total == 2 * 4096


MMA = "#mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 4], instrShape = [16, 8]}>"
ROWS = "#blocked<{sizePerThread = [1, 8], threadsPerWarp = [1, 32], warpsPerCTA = [8, 1], order = [1, 0]}>"
RESULT = f"""%t = constant {{value = 0.0}} : tensor<128x256xf16, {MMA}>
%u = convert_layout %t : (tensor<128x256xf16, {MMA}>) -> tensor<128x256xf16, {ROWS}>
"""


@pytest.mark.parametrize("kibibytes, pitch", [(64, 32 << 10), (128, 32 << 10), (32, 0), (0, 0)])
def test_parts_of_a_conversion_get_memory_of_their_own_where_it_is_free(kibibytes, pitch):
    """64 KiB pass in two parts of 32: a buffer that is no longer needed has room for both, or not."""
    tile = f"tensor<{kibibytes << 8}xf32, {BLOCKED.replace('warpsPerCTA = [4]', 'warpsPerCTA = [8]')}>"
    buffer = f"memdesc<{kibibytes << 8}xf32, {SHARED}, mutable>"
    before = (
        f"%a = local_alloc : () -> {buffer}\n%v = local_load %a : ({buffer}) -> {tile}\n" if kibibytes else ""
    )
    function = apply(parse(before + RESULT, num_warps=8), allocate_shared)
    (conversion,) = operations(function, ConvertLayout)
    assert conversion.scratch_pitch == pitch
    assert function.attributes["shared_bytes"] == max(kibibytes, 32) << 10


@pytest.mark.parametrize("kibibytes, pitch, total", [
    ([64], 0, 96), ([64, 32], 32 << 10, 160), ([128], 32 << 10, 192), ([128, 64], 0, 224)
], ids=str)  # fmt: skip
def test_parts_may_take_what_no_other_block_has_room_in(kibibytes, pitch, total):
    """Beside buffers that live on: another block would fit, or would not, or both parts do not fit."""
    before = after = ""
    for index, size in enumerate(kibibytes):
        tile = f"tensor<{size << 8}xf32, {BLOCKED.replace('warpsPerCTA = [4]', 'warpsPerCTA = [8]')}>"
        buffer = f"memdesc<{size << 8}xf32, {SHARED}, mutable>"
        before += f"%a{index} = local_alloc : () -> {buffer}\n"
        after += f"%v{index} = local_load %a{index} : ({buffer}) -> {tile}\n"
    function = apply(parse(before + RESULT + after, num_warps=8), allocate_shared)
    (conversion,) = operations(function, ConvertLayout)
    assert conversion.scratch_pitch == pitch
    assert function.attributes["shared_bytes"] == total << 10


def test_conversions_and_reductions_get_scratch():
    function = apply(up_to(parse_function(TRANSPOSE), remove_layout_conversions), allocate_shared)
    (conversion,) = operations(function, ConvertLayout)
    assert conversion.scratch_offset == 0 and function.attributes["shared_bytes"] == 16384


SUM = """
  %s{n} = reduce %x {{axis = 0}} : ({tile}) -> f32 {{
    (%a{n}: f32, %b{n}: f32):
    %c{n} = addf %a{n}, %b{n} : f32
    yield %c{n}
  }}"""


def test_small_scratch_shares_nothing():
    """Softmax's two reductions: no barrier between them, for 16 bytes more."""
    body = f"%x = constant {{value = 1.0}} : {TILE}" + "".join(SUM.format(n=n, tile=TILE) for n in range(2))
    function = apply(parse(body, parameters="%n: i32"), allocate_shared, insert_barriers)
    assert [op.scratch_offset for op in operations(function, Reduce)] == [0, 16]
    assert not operations(function, Barrier)


def test_much_small_scratch_shares():
    body = f"%x = constant {{value = 1.0}} : {TILE}" + "".join(SUM.format(n=n, tile=TILE) for n in range(200))
    function = apply(parse(body, parameters="%n: i32"), allocate_shared, insert_barriers)
    assert function.attributes["shared_bytes"] == 16
    assert len(operations(function, Barrier)) == 199


def test_no_shared_memory_without_need():
    function = apply(up_to(parse_function(ADD), remove_layout_conversions), allocate_shared)
    assert function.attributes["shared_bytes"] == 0 and not operations(function, Reduce, Barrier)


@pytest.mark.parametrize("seed", range(30))
def test_random_requests_never_overlap(seed):
    """No two requests that live together share a byte, offsets are aligned, and the total is not absurd."""
    rng = random.Random(seed)
    requests = []
    for _ in range(rng.randint(1, 25)):
        first = rng.randint(0, 30)
        size, alignment = rng.choice([16, 48, 128, 1024, 4096]), rng.choice([16, 128])
        requests.append(Request(None, size, alignment, first, first + rng.randint(0, 10)))
    total = place(requests)
    for i, one in enumerate(requests):
        assert one.offset % one.alignment == 0 and one.end <= total
        for other in requests[:i]:
            assert not one.lives_with(other) or one.end <= other.offset or other.end <= one.offset
    most = max(sum(r.size for r in requests if r.first <= t <= r.last) for t in range(42))
    assert most <= total <= 2 * most + 128 * len(requests)


def test_too_much_is_an_error_that_lists_the_users():
    big = f"%a = local_alloc : () -> memdesc<64x1024xf32, {SHARED}, mutable>\n"
    function = parse(big + alloc("b") + use("b"), parameters="%n: i32")
    with pytest.raises(OutOfResourcesError) as caught:
        allocate_shared(function.clone(), parse_target("sm_86"))
    text = str(caught.value)
    assert "shared memory: 262144 required, 101376 available" in text
    assert "262144 bytes: local_alloc (memdesc<64x1024xf32" in text and "4096 bytes: local_alloc" in text
    assert "hint: smaller blocks" in text
    assert TARGET.max_shared_bytes > 101376


@pytest.mark.parametrize("attributes, is_named", [("", False), (" {flatten = true}", True)])
def test_the_error_names_flatten_where_it_holds_the_buffers(attributes, is_named):
    big = f"%a = local_alloc : () -> memdesc<64x1024xf32, {SHARED}, mutable>\n"
    loop = f"%z = constant {{value = 1}} : i32\nfor %i = %z to %n step %z{attributes} {{\n yield\n}}\n"
    with pytest.raises(OutOfResourcesError) as caught:
        allocate_shared(parse(big + loop, parameters="%n: i32"), parse_target("sm_86"))
    assert ("a loop without flatten" in str(caught.value)) == is_named
