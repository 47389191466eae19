"""Scans along an axis that the CTAs of a cluster share, on every executor; what the emulator says where they
do not wait for each other; and tiles that change their shape."""

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
def running_sums(x, y, BLOCK: tl.constexpr, REVERSE: tl.constexpr):
    """A row a program."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.cumsum(tl.load(x + at), 0, reverse=REVERSE))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("num_warps", [1, 4])
@pytest.mark.parametrize("block", [8, 1024])
@pytest.mark.parametrize("num_ctas", CTAS)
def test_rows_of_which_each_cta_has_a_part(execute, block, num_ctas, num_warps, reverse):
    x = np.random.default_rng(block).integers(-99, 100, (2, block)).astype(np.int32)
    expected = x[:, ::-1].cumsum(1)[:, ::-1] if reverse else x.cumsum(1)
    constants = {"BLOCK": block, "REVERSE": reverse}
    for (y,) in execute(running_sums, (2,), [x, np.zeros_like(x)], constants, outputs=[1],
                        num_warps=num_warps, num_ctas=num_ctas):  # fmt: skip
        assert np.array_equal(y, expected)


@ptxforge.jit
def after(a, b, count, c, d, more):
    """x → c (a x + b) + d: not commutative; beside it a sum of another size."""
    return a * c, b * c + d, count + more


@ptxforge.jit
def recurrence(a, b, x, factors, total, ROWS: tl.constexpr, COLUMNS: tl.constexpr, REVERSE: tl.constexpr):
    """Three operands, of 32 and 64 bits, along either dimension of a tile."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    one = tl.full((ROWS, COLUMNS), 1, tl.int64)
    f, s, n = tl.associative_scan((tl.load(a + at), tl.load(b + at), one), 1, after, reverse=REVERSE)
    tl.store(factors + at, f)
    tl.store(x + at, s)
    tl.store(total + at, n)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows, columns, num_ctas", [(1, 64, 2), (1, 8, 8), (2, 64, 8), (4, 32, 2)])
def test_an_order_that_matters(execute, rows, columns, num_ctas, reverse):
    rng = np.random.default_rng(rows)
    a, b = (rng.integers(-3, 4, (rows, columns)).astype(np.int32) for _ in range(2))
    order = range(columns - 1, -1, -1) if reverse else range(columns)
    factor, value = np.ones(rows, np.int32), np.zeros(rows, np.int32)
    expected = np.zeros((2, rows, columns), np.int32)
    for j in order:
        factor, value = factor * a[:, j], value * a[:, j] + b[:, j]
        expected[:, :, j] = factor, value
    count = np.arange(1, columns + 1) if not reverse else np.arange(columns, 0, -1)
    arguments = [a, b, np.zeros_like(a), np.zeros_like(a), np.zeros((rows, columns), np.int64)]
    constants = {"ROWS": rows, "COLUMNS": columns, "REVERSE": reverse}
    for x, factors, total in execute(recurrence, (1,), arguments, constants, outputs=[2, 3, 4],
                                     num_ctas=num_ctas):  # fmt: skip
        assert np.array_equal(factors, expected[0]) and np.array_equal(x, expected[1])
        assert np.array_equal(total, np.broadcast_to(count, total.shape))


@ptxforge.jit
def kept_positive(x, y, counts, steps, BLOCK: tl.constexpr):
    """In a loop and a branch: where each positive element goes."""
    n = 0
    for step in range(steps):
        value = tl.load(x + step * BLOCK + tl.arange(0, BLOCK))
        is_kept = value > 0
        if tl.sum(is_kept.to(tl.int32)) > 3:
            place = n + tl.cumsum(is_kept.to(tl.int32), 0) - 1
            tl.store(y + place, value, mask=is_kept)
            n += tl.sum(is_kept.to(tl.int32))
    tl.store(counts, n)


@pytest.mark.parametrize("num_ctas", CTAS)
def test_in_loops_and_branches(execute, num_ctas):
    x = np.random.default_rng(4).integers(-50, 51, (5, 64)).astype(np.int32)
    x[2] = -1
    kept = [row[row > 0] for row in x if (row > 0).sum() > 3]
    expected = np.zeros(320, np.int32)
    expected[: sum(map(len, kept))] = np.concatenate(kept)
    arguments = [x, np.zeros(320, np.int32), np.zeros(1, np.int32), 5]
    for y, counts in execute(kept_positive, (1,), arguments, {"BLOCK": 64}, outputs=[1, 2],
                             num_ctas=num_ctas):  # fmt: skip
        assert np.array_equal(y, expected) and counts[0] == sum(map(len, kept))


# -- shapes --------------------------------------------------------------------------------------------------


@ptxforge.jit
def shapes(x, flat, folded, doubled, total, M: tl.constexpr, N: tl.constexpr):
    """Rows that follow each other, and pieces of one row; neighbours that become one row."""
    tile = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(flat + tl.arange(0, M * N), tl.cumsum(tl.ravel(tile), 0))
    pieces = tl.reshape(tl.load(x + tl.arange(0, M * N)), (N, M))
    tl.store(folded + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], pieces)
    row = tl.load(x + tl.arange(0, N))
    tl.store(doubled + tl.arange(0, 2 * N), tl.interleave(row, -row))
    tl.store(total, tl.sum(tile))
    tl.store(total + 1, tl.argmax(tl.ravel(tile), 0))


@pytest.mark.parametrize("num_ctas", CTAS)
@pytest.mark.parametrize("sizes", [(8, 32), (32, 8), (16, 16)])
def test_outermost_dimensions_are_shared_out(execute, sizes, num_ctas):
    x = np.random.default_rng(6).permutation(256).astype(np.int32).reshape(sizes)
    row = x.reshape(-1)[: sizes[1]]
    outputs = [np.zeros(256, np.int32), np.zeros(256, np.int32), np.zeros(2 * sizes[1], np.int32)]
    arguments = [x, *outputs, np.zeros(2, np.int32)]
    constants = dict(zip("MN", sizes))
    for flat, folded, doubled, total in execute(shapes, (1,), arguments, constants, outputs=[1, 2, 3, 4],
                                                num_ctas=num_ctas):  # fmt: skip
        assert np.array_equal(flat, x.reshape(-1).cumsum()) and np.array_equal(folded, x.reshape(-1))
        assert np.array_equal(doubled, np.stack([row, -row], 1).reshape(-1))
        assert total.tolist() == [x.sum(), x.argmax()]
    made = compiled(shapes, dict.fromkeys(("x", "flat", "folded", "doubled", "total"), "*i32:16"), constants,
                    num_ctas=num_ctas)  # fmt: skip
    assert not [remark for remark in made.remarks if remark.kind == "one-cta-works"]


# -- text, and what is missing -----------------------------------------------------------------------------


def compiled(kernel, signature: dict, constants: dict, **options) -> ptxforge.Artifact:
    return ptxforge.compile(kernel, signature=signature, constants=constants, target="sm_90a", **options)


def test_what_is_exchanged(assemble):
    signature, constants = {"x": "*i32:16", "y": "*i32:16"}, {"BLOCK": 2048, "REVERSE": False}
    artifact = compiled(running_sums, signature, constants, num_ctas=4)
    assemble(artifact.ptx)
    assert "scan %" in artifact.asm["tile"] and "ranks = 3" in artifact.asm["tile"]
    assert artifact.ptx.count("ld.shared::cluster.b32") == 4
    assert artifact.ptx.count("barrier.cluster.arrive") == 2
    assert "barrier.cluster" not in compiled(running_sums, signature, constants).ptx


TEXT = """func @f() attributes {num_warps = 1, num_ctas = 2, planned_ctas = 2} {
  %x = constant {value = 1.0} : tensor<8xf32>
  %y = scan %x {axis = 0, ranks = 1} : (tensor<8xf32>) -> tensor<8xf32> {
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
    with pytest.raises(VerificationError, match="'ranks' of 'scan' names ranks beyond the 2"):
        verify(parse_function(TEXT.replace("ranks = 1", "ranks = 2")))


MEET = "\tbarrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;\n"


class _Edited(EmulatorDevice):
    """Loads PTX text without its barrier of the cluster number ``missing``."""

    def __init__(self, missing: int):
        super().__init__(check="all")
        self.missing = missing

    def load_module(self, ptx: str):
        parts = re.split(re.escape(MEET), ptx)
        assert len(parts) == 3
        glue = ["\tbar.sync 0;\n" if number == self.missing else MEET for number in range(2)]
        return super().load_module("".join(x for pair in zip(parts, [*glue, ""]) for x in pair))


@pytest.mark.parametrize("missing, found", [(-1, {""}), (0, {"race", "cluster"}), (1, {"cluster"})])
@pytest.mark.filterwarnings("ignore")
def test_ctas_that_do_not_meet_are_found(missing, found):
    device = _Edited(missing)
    arrays = [ptxforge.to_device(np.ones(1024, np.int32), device) for _ in range(2)]
    try:
        ptxforge.compile(running_sums)[(1,)](*arrays, BLOCK=1024, REVERSE=False, num_ctas=2)
        kinds = {finding.kind for finding in device.findings} or {""}
    except PtxforgeError as fault:
        kinds = {str(fault)}
    assert kinds & found and ("" in found) == ("" in kinds)
