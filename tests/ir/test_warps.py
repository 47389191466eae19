"""Groups of warps: what is inside of a region that some warps run is for these alone."""

from __future__ import annotations

import re

import pytest

from ptxforge.codegen_ptx.lower.exchange import barrier
from ptxforge.codegen_ptx.lower.indices import first_thread, thread_id
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.instruction import text_of
from ptxforge.codegen_ptx.ptx.registers import Names
from ptxforge.ir.core import Operation
from ptxforge.ir.definition import REGISTRY, SIDE_EFFECT, define, gives, region
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.ir.warps import SplitsWarps, WarpGroup, scratch_of, warps_around, warps_of
from ptxforge.support.errors import VerificationError
from ptxforge.support.target import parse_target

SPLIT = """
#four = #blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}}>
#one = #blocked<{{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}}>
func @f(%p: ptr<i32>, %x: i32) attributes {{num_warps = 4}} {{
  %all = splat %x : (i32) -> tensor<128xi32, #four>
  %a = atomic_rmw %p, %x {{kind = "add"}} : (ptr<i32>, i32) -> i32
  two_groups {{
    %some = splat %x : (i32) -> tensor<128xi32, #{first}>
    %b = atomic_rmw %p, %x {{kind = "add"}} : (ptr<i32>, i32) -> i32
    store %p, %b : (ptr<i32>, i32)
    yield
  }} computing {{
    %rest = splat %x : (i32) -> tensor<128xi32, #four>
    yield
  }}
  store %p, %a : (ptr<i32>, i32)
  return
}}
"""


@pytest.fixture
def split():
    """An operation that gives one region to warp 0 and another to four more."""

    @define("two_groups", effects=SIDE_EFFECT)
    class Split(SplitsWarps):
        """Two groups."""

        loading = region()
        computing = region()

        infer = gives()

        def warps_of(self, region):
            return WarpGroup(1, 0, 1) if region is self.regions[0] else WarpGroup(4, 1, 2)

    yield
    del REGISTRY["two_groups"]


def _found(function, name: str) -> list[Operation]:
    return [op for op in function.walk() if op.name == name]


def test_an_operation_knows_its_warps(split):
    function = parse_function(SPLIT.format(first="one"))
    outside, inside, other = _found(function, "splat")
    assert warps_around(outside) == warps_of(function) == WarpGroup(4)
    assert (warps_around(inside), warps_around(other)) == (WarpGroup(1, 0, 1), WarpGroup(4, 1, 2))


def test_scratch_is_for_the_group(split):
    by_all, by_one = _found(parse_function(SPLIT.format(first="one")), "atomic_rmw")
    assert scratch_of(by_all) == 4
    assert scratch_of(by_one) == 0, "one warp passes a scalar on by a shuffle"


def test_layouts_are_for_the_group(split):
    verify(parse_function(SPLIT.format(first="one")))
    with pytest.raises(VerificationError, match="is for 4 warps, the group has 1"):
        verify(parse_function(SPLIT.format(first="four")))


def test_code_is_for_the_group():
    target = parse_target("sm_90a")

    def code(group: WarpGroup) -> str:
        b = Builder(target, group)
        barrier(b)
        thread_id(b)
        first_thread(b)
        return text_of(b.all_code(), Names({}))

    whole, part = code(WarpGroup(4)), code(WarpGroup(4, first=1, barrier=2))
    assert "bar.sync 0;" in whole and "sub.u32" not in whole
    assert "bar.sync 2, 128;" in part and re.search(r"sub\.u32 %\w+, %\w+, 32;", part)
    assert "setp.eq" in whole and "setp.eq" in part, "one thread owns what all of them hold"
