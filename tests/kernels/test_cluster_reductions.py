"""Reductions along an axis that the CTAs of a cluster share: results on every executor, and what the emulator
says where CTAs do not wait for each other."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import PtxforgeError, VerificationError

CTAS = [2, 4, 8]


@ptxforge.jit
def softmax(x, y, sums, columns, BLOCK: tl.constexpr):
    """A row a program."""
    row, j = tl.program_id(0), tl.arange(0, BLOCK)
    inside = j < columns
    value = tl.load(x + row * columns + j, mask=inside, other=-float("inf"))
    value = tl.exp2(value - tl.max(value, 0))
    total = tl.sum(value, 0)
    tl.store(y + row * columns + j, value / total, mask=inside)
    tl.store(sums + row, total)


@pytest.mark.parametrize("num_ctas", CTAS)
@pytest.mark.parametrize("num_warps", [1, 4])
def test_rows_of_which_each_cta_has_a_part(execute, num_ctas, num_warps):
    x = np.random.default_rng(0).integers(-6, 7, (3, 900)).astype(np.float32)
    want = np.exp2(x - x.max(1, keepdims=True))
    total = want.sum(1)  # powers of two: exact
    arguments = [x, np.zeros_like(x), np.zeros(3, np.float32), 900]
    for y, sums in execute(softmax, (3,), arguments, {"BLOCK": 1024}, outputs=[1, 2], num_warps=num_warps,
                           num_ctas=num_ctas):  # fmt: skip
        assert np.array_equal(sums, total)
        np.testing.assert_allclose(y, want / total[:, None], rtol=1e-6)


def compiled(kernel, signature: dict, constants: dict, **options) -> ptxforge.Artifact:
    return ptxforge.compile(kernel, signature=signature, constants=constants, target="sm_90a", **options)


def of_softmax(**options) -> ptxforge.Artifact:
    signature = {"x": "*fp32:16", "y": "*fp32:16", "sums": "*fp32:16", "columns": "i32:16"}
    return compiled(softmax, signature, {"BLOCK": 1024}, **options)


def test_what_is_exchanged(assemble):
    artifact = of_softmax(num_ctas=4)
    assemble(artifact.ptx)
    assert "tensor<256xf32>" in artifact.asm["tile"] and "tensor<1024xf32>" not in artifact.asm["tile"]
    assert artifact.asm["tile"].count("reduce_ctas") == 2
    assert artifact.ptx.count("ld.shared::cluster.b32") == 2 * 4
    assert artifact.ptx.count("barrier.cluster.arrive") == 4
    assert not [remark for remark in artifact.remarks if remark.kind == "one-cta-works"]
    assert "barrier.cluster" not in of_softmax().ptx


@ptxforge.jit
def facts(x, least, place, product, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Two operands, integers of 64 bits, an own region, tensors of results."""
    i, j = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tile = tl.load(x + i[:, None] * COLUMNS + j[None, :])
    low, at = tl.min(tile, 1, return_indices=True)
    tl.store(least + i, low)
    tl.store(place + i, at)
    tl.store(product + i, tl.sum(tile.to(tl.int64) * tile, 1))


@pytest.mark.parametrize("rows, num_ctas", [(1, 2), (2, 4), (2, 8), (16, 4)])
def test_rows_and_columns_are_shared_out(execute, rows, num_ctas):
    x = np.random.default_rng(1).integers(-(10**6), 10**6, (2 * rows, 64)).astype(np.int32)
    x[:, 40] = x[:, 7] = -(10**7)
    empty = np.zeros(2 * rows, np.int32)
    arguments = [x, empty, empty.copy(), np.zeros(2 * rows, np.int64)]
    constants = {"ROWS": rows, "COLUMNS": 64}
    for least, place, product in execute(facts, (2,), arguments, constants, outputs=[1, 2, 3],
                                         num_ctas=num_ctas):  # fmt: skip
        assert np.array_equal(least, x.min(1)) and np.array_equal(place, x.argmin(1))
        assert np.array_equal(product, (x.astype(np.int64) ** 2).sum(1))


@ptxforge.jit
def sums_of_blocks(x, out, count, BLOCK: tl.constexpr):
    """A reduction in each iteration, and what is stored has no dimension."""
    total = 0
    for step in range(count):
        part = tl.sum(tl.load(x + step * BLOCK + tl.arange(0, BLOCK)), 0)
        if part > 0:
            total += tl.sum(tl.load(x + step * BLOCK + tl.arange(0, BLOCK)) + 1, 0)
    tl.store(out + tl.program_id(0), total)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_in_loops_and_branches(execute, num_ctas):
    x = np.random.default_rng(2).integers(-9, 10, (5, 128)).astype(np.int32)
    want = sum(int(row.sum()) + 128 for row in x if row.sum() > 0)
    for (out,) in execute(sums_of_blocks, (2,), [x, np.zeros(2, np.int32), 5], {"BLOCK": 128}, outputs=[1],
                          num_ctas=num_ctas):  # fmt: skip
        assert out.tolist() == [want, want]


@ptxforge.jit
def rows_and_then_columns(x, out, place, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """What the CTAs have reduced together along one axis they reduce together along the other."""
    i, j = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    most = tl.max(tl.load(x + i[:, None] * COLUMNS + j[None, :]), 1)
    tl.store(out, tl.sum(most, 0))
    tl.store(place, tl.argmax(most, 0))
    tl.store(place + 1, tl.max(tl.histogram(most & 7, 8), 0))


@pytest.mark.parametrize("num_ctas", [2, 4, 8])
def test_one_reduction_of_another(execute, num_ctas):
    x = np.random.default_rng(3).integers(-999, 1000, (32, 32)).astype(np.int32)
    most = x.max(1)
    arguments, sizes = [x, np.zeros(1, np.int32), np.zeros(2, np.int32)], {"ROWS": 32, "COLUMNS": 32}
    for out, place in execute(rows_and_then_columns, (1,), arguments, sizes, outputs=[1, 2],
                              num_ctas=num_ctas):  # fmt: skip
        assert out[0] == most.sum() and place.tolist() == [most.argmax(), np.bincount(most & 7).max()]


# -- text, and what is missing ------------------------------------------------------------------------------

TEXT = """func @f(%x: f32) attributes {num_warps = 1, num_ctas = 2, planned_ctas = 2} {
  %y = reduce_ctas %x {ranks = 1} : (f32) -> f32 {
    (%a: f32, %b: f32):
    %c = addf %a, %b : f32
    yield %c
  }
  return
}"""


def test_text():
    function = parse_function(TEXT)
    verify(function)
    assert print_function(parse_function(print_function(function))) == print_function(function)
    with pytest.raises(VerificationError, match="'ranks' of 'reduce_ctas' names ranks beyond the 2"):
        verify(parse_function(TEXT.replace("ranks = 1", "ranks = 2")))
    with pytest.raises(VerificationError, match="region must take the operands' elements twice"):
        verify(parse_function(TEXT.replace("%b: f32", "%b: f32, %d: f32")))


class _Edited(EmulatorDevice):
    """Loads PTX text without its barrier of the cluster number ``missing``."""

    def __init__(self, missing: int):
        super().__init__(check="all")
        self.missing = missing

    def load_module(self, ptx: str):
        pair = r"\tbarrier\.cluster\.arrive\.release\.aligned;\n\tbarrier\.cluster\.wait\.acquire\.aligned;\n"
        parts = re.split(pair, ptx)
        assert len(parts) == 5
        meet = "\tbarrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;\n"
        glue = ["\tbar.sync 0;\n" if number == self.missing else meet for number in range(4)]
        return super().load_module("".join(x for pair in zip(parts, [*glue, ""]) for x in pair))


@pytest.mark.parametrize("missing, found", [
    (-1, {""}), (0, {"race", "cluster"}), (2, {"race"}), (3, {"cluster"}),
])  # fmt: skip
def test_ctas_that_do_not_meet_are_found(missing, found):
    device = _Edited(missing)
    x = np.zeros((1, 1024), np.float32)
    arrays = [ptxforge.to_device(a, device) for a in (x, x.copy(), np.zeros(1, np.float32))]
    try:
        ptxforge.compile(softmax)[(1,)](*arrays, 1024, BLOCK=1024, num_ctas=2)
        kinds = {finding.kind for finding in device.findings} or {""}
    except PtxforgeError as fault:
        kinds = {str(fault)}
    assert kinds & found and ("" in found) == ("" in kinds)
