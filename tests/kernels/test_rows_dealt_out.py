"""Products of f32 that lie across k: threads read the left operand out of TMA's panels, and a warp's rows are
dealt out so that they meet no conflicts; what becomes of such results, and their room in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.emulator import EmulatorDevice
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.support.errors import VerificationError


@ptxforge.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACROSS: tl.constexpr,
            THEN: tl.constexpr, STORED: tl.constexpr):  # fmt: skip
    """c = a @ b, with a [K, M] and b [N, K] in memory (ACROSS "a"), or a [M, K] and b [K, N]."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, K, BK):
        k = step + tl.arange(0, BK)
        if ACROSS == "a":
            x, y = tl.load(a + i[:, None] + k[None, :] * M), tl.load(b + k[:, None] + j[None, :] * K)
        else:
            x, y = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :])
        acc = tl.dot(x, y, acc, input_precision="tf32")
    if THEN == "less the row's maximum":
        acc -= tl.max(acc, 1)[:, None]
    elif THEN == "and the column's sum":
        acc += tl.sum(acc, 0)[None, :]
    if STORED == "by TMA":
        out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
        out.store([tl.program_id(0) * BM, tl.program_id(1) * BN], acc.to(c.dtype.element_ty))
    elif STORED == "transposed":
        tl.store(c + j[:, None] * M + i[None, :], acc.T.to(c.dtype.element_ty))
    else:
        tl.store(c + i[:, None] * N + j[None, :], acc.to(c.dtype.element_ty))


def expected_of(x: np.ndarray, y: np.ndarray, then: str, rows: int) -> np.ndarray:
    """The product of one column of tiles, each of so many rows."""
    total = (x @ y).reshape(-1, rows, y.shape[1])
    if then == "less the row's maximum":
        total -= total.max(2, keepdims=True)
    elif then == "and the column's sum":
        total += total.sum(1, keepdims=True)
    return total.reshape(x.shape[0], y.shape[1])


@pytest.mark.parametrize("across", ["a", "b"])
@pytest.mark.parametrize(("stored", "element"), [
    ("", np.float32), ("by TMA", np.float32), ("by TMA", np.float16), ("transposed", np.float16),
])  # fmt: skip
@pytest.mark.parametrize(("then", "block", "num_warps"), [
    ("", (64, 128, 32), 4),
    ("less the row's maximum", (128, 64, 64), 8),
    ("and the column's sum", (128, 128, 32), 8),
])  # fmt: skip
def test_results(execute, across, stored, element, then, block, num_warps):
    rows, columns, depth = block
    rng = np.random.default_rng(rows + columns)
    x, y = (rng.integers(-3, 4, s).astype(np.float32) for s in ((2 * rows, 3 * depth), (3 * depth, columns)))
    expected = expected_of(x, y, then, rows).astype(element)
    expected = expected.T if stored == "transposed" else expected
    operands = [np.ascontiguousarray(x.T), np.ascontiguousarray(y.T)] if across == "a" else [x, y]
    arguments = [*operands, np.zeros(expected.shape, element), 2 * rows, columns, 3 * depth]
    constants = {"BM": rows, "BN": columns, "BK": depth, "ACROSS": across, "THEN": then, "STORED": stored}
    for (out,) in execute(product, (2, 1), arguments, constants, outputs=[2], num_warps=num_warps):
        np.testing.assert_array_equal(out, expected)
    artifact = product.variants[-1].artifact
    assert "interleave = [4, 1]" in artifact.asm["gpu"]
    assert {recipe.base for recipe in artifact.tensor_maps} >= {"a", "b"}


def compiled(across: str, stored: str, **options) -> ptxforge.Artifact:
    signature = dict.fromkeys("abc", "*fp32:16") | dict.fromkeys("MNK", "i32:16")
    constants = {"BM": 256, "BN": 128, "BK": 32, "ACROSS": across, "THEN": "", "STORED": stored}
    return ptxforge.compile(product, signature=signature, constants=constants, target="sm_90a", **options)


def test_reads_meet_no_conflicts():
    device = EmulatorDevice(target="sm_90a", counters=True)
    rng = np.random.default_rng(0)
    x, y, out = (rng.random(s, dtype=np.float32) for s in ((128, 64), (64, 128), (128, 128)))
    placed = [ptxforge.to_device(array, device) for array in (x, y, out)]
    constants = {"BM": 128, "BN": 128, "BK": 32, "ACROSS": "b", "THEN": "", "STORED": ""}
    ptxforge.compile(product)[(1, 1)](*placed, 128, 128, 64, **constants, num_warps=8)
    reads = [line for line in device.last_report.lines if line.text.startswith("ld.shared.")]
    assert reads and not [line.text for line in reads if line.bank_conflicts]


def test_a_tile_that_is_stored_whole_has_room():
    """Warps have columns of it, so that it does not go in parts; beside the ring of the next tile's operands
    there is no room for all of it."""
    artifact = compiled("b", "by TMA", num_warps=8, num_stages=3)
    (remark,) = [r.message for r in artifact.remarks if r.kind == "not-persistent"]
    assert "no room side by side" in remark
    assert artifact.shared_bytes < compiled("a", "by TMA", num_warps=8, num_stages=3).shared_bytes


TEXT = """#p = #panels<{swizzle = 128, elementBits = 32, order = [1, 0]}>
#q = #panels<{swizzle = 128, elementBits = 32, order = [0, 1]}>
#mma = #mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]INTERLEAVE}>
func @f() attributes {num_warps = 4, target = "sm_90a"} {
  %a = local_alloc : () -> memdesc<64x32xf32, #p, mutable>
  %b = local_alloc : () -> memdesc<32x64xf32, #q, mutable>
  %z = constant {value = 0.0} : tensor<64x64xf32, #mma>
  %f = dot_begin %z : (tensor<64x64xf32, #mma>) -> flight<tensor<64x64xf32, #mma>>
  %g = dot_async %a, %b, %f : (memdesc<64x32xf32, #p, mutable>, memdesc<32x64xf32, #q, mutable>, \
flight<tensor<64x64xf32, #mma>>) -> flight<tensor<64x64xf32, #mma>>
  %d = dot_wait %g : (flight<tensor<64x64xf32, #mma>>) -> tensor<64x64xf32, #mma>
  return
}
"""


def test_only_rows_in_registers_are_dealt_out():
    verify(parse_function(TEXT.replace("INTERLEAVE", "")))
    dealt_out = parse_function(TEXT.replace("INTERLEAVE", ", interleave = [4, 1]"))
    with pytest.raises(VerificationError, match="only rows in registers are dealt out"):
        verify(dealt_out)
