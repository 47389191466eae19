"""Loops whose tiles a warp of its own copies (``tl.range(warp_specialize=True)``): the same results as
without it on every executor that is present, and in the interpreter after the passes."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge import interpreter
from ptxforge.ir.parser import parse_function
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from tests.kernels.specialized import (
    BLOCKS,
    TILES,
    attention,
    by_descriptors,
    compiled,
    one_after_the_other,
    partitions,
    product,
    reasons,
    walking,
)

of = TensorDescriptor.from_tensor


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(np.float16)


@pytest.mark.parametrize(("shape", "block", "num_warps", "num_stages"), [
    ((128, 128, 160), (64, 64, 32), 4, 2), ((128, 64, 160), (64, 64, 32), 4, 4),
    ((80, 112, 48), (64, 64, 32), 4, 3), ((256, 128, 192), (128, 128, 64), 8, 3),
    ((128, 64, 32), (128, 64, 32), 8, 3), ((128, 64, 0), (128, 64, 32), 8, 3),
    ((512, 64, 96), (256, 64, 32), 16, 3),
], ids=str)  # fmt: skip
def test_product(execute, shape, block, num_warps, num_stages):
    m, n, k = shape
    a, b = integers(m, max(k, 1)), integers(max(k, 1), n)
    constants = dict(zip(("BM", "BN", "BK"), block)) | {"WS": True}
    grid = (-(-m // block[0]), -(-n // block[1]))
    arguments = [a, b, np.zeros((m, n), np.float32), m, n, k]
    expected = a[:, :k].astype(np.float32) @ b[:k]
    for (out,) in execute(product, grid, arguments, constants, outputs=[2], num_warps=num_warps,
                          num_stages=num_stages):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("num_warps", [4, 8])
def test_product_by_descriptors(execute, num_warps):
    a, b = integers(256, 96), integers(128, 96)
    c = np.zeros((256, 128), np.float16)
    arguments = [of(a, [128, 32]), of(b, [64, 32]), of(c, [128, 64]), 96]
    constants = {"BM": 128, "BN": 64, "BK": 32, "WS": True}
    expected = (a.astype(np.float32) @ b.T).astype(np.float16)
    for (out,) in execute(by_descriptors, (2, 2), arguments, constants, outputs=[2], num_warps=num_warps):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("triangle", [False, True])
@pytest.mark.parametrize(("flatten", "outer"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize(("shape", "programs"), [((192, 128, 160), 2), ((80, 112, 48), 1), ((64, 64, 96), 3)])
def test_tiles_one_after_the_other(execute, shape, programs, flatten, outer, triangle):
    m, n, k = shape
    a, b = integers(m, k), integers(k, n)
    tiles = -(-m // 64) * -(-n // 64)
    constants = {"BM": 64, "BN": 64, "BK": 32, "PROGRAMS": programs, "FLATTEN": flatten, "WS": outer,
                 "INNER": not outer, "TRIANGLE": triangle}  # fmt: skip
    wide = a.astype(np.float32)
    if triangle:
        wide *= np.arange(k) < np.arange(m)[:, None] // 64 * 64
    arguments = [a, b, np.zeros((m, n), np.float32), m, n, k, tiles]
    for (out,) in execute(walking, (programs,), arguments, constants, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(out, wide @ b)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("length", "dim", "block", "num_warps", "num_stages"), [
    (256, 64, (64, 32), 4, 2), (512, 32, (128, 16), 8, 3), (512, 64, (256, 64), 16, 3),
])  # fmt: skip
def test_attention(execute, length, dim, block, num_warps, num_stages, causal):
    rng = np.random.default_rng(length)
    q, k, v = (rng.standard_normal((2, length, dim)).astype(np.float16) for _ in range(3))
    scale = dim**-0.5 * 1.4426950408889634
    scores = np.einsum("hid,hjd->hij", q.astype(np.float64), k.astype(np.float64)) * scale
    if causal:
        scores = np.where(np.arange(length)[:, None] >= np.arange(length), scores, -np.inf)
    p = np.exp2(scores - scores.max(-1, keepdims=True))
    expected = p / p.sum(-1, keepdims=True) @ v.astype(np.float64)
    constants = {"BM": block[0], "BN": block[1], "D": dim, "CAUSAL": causal, "WS": True}
    arguments = [q, k, v, np.zeros_like(q), scale, length]
    for (out,) in execute(attention, (length // block[0], 2), arguments, constants, outputs=[3],
                          num_warps=num_warps, num_stages=num_stages):  # fmt: skip
        assert np.abs(out.astype(np.float64) - expected).max() < 4e-3


# -- what was made of them -------------------------------------------------------------------------------

ATTENTION = {"BM": 128, "BN": 128, "D": 128, "CAUSAL": False, "WS": True}
CASES = [
    (product, BLOCKS | {"WS": True}, 4, 3, 1),
    (product, {"BM": 128, "BN": 256, "BK": 64, "WS": True}, 8, 4, 1),
    (walking, TILES, 4, 3, 1), (walking, TILES | {"WS": False, "INNER": True}, 4, 3, 1),
    (walking, TILES | {"BM": 128, "BN": 256, "BK": 64, "FLATTEN": False}, 8, 3, 1),
    (attention, ATTENTION, 8, 2, 1), (attention, ATTENTION | {"CAUSAL": True}, 8, 2, 1),
    (attention, ATTENTION | {"CAUSAL": True, "BN": 64}, 8, 2, 2),
    (attention, ATTENTION | {"BM": 64, "BN": 64, "D": 64}, 4, 3, 1),
    (attention, ATTENTION | {"BM": 256, "BN": 64, "D": 64}, 16, 3, 1),
    (attention, ATTENTION | {"BM": 256, "BN": 64, "D": 64, "CAUSAL": True}, 16, 3, 2),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[2]}")
def test_a_warp_of_its_own_copies(case, assemble):
    """The assembler reports neither spills nor products that it serialises (``assemble`` looks for these)."""
    kernel, constants, num_warps, num_stages, count = case
    made = compiled(kernel, constants, num_warps=num_warps, num_stages=num_stages)
    assert not reasons(made)
    assert len(partitions(made)) == count
    assemble(made.ptx)
    main, others = made.ptx.split("$extra_warps_", 2)[1:]
    assert "cp.async.bulk.tensor" in others and "wgmma" not in others and "bar.sync 1" not in others
    assert "cp.async.bulk.tensor" not in main and "expect_tx" not in main and "wgmma" in main
    assert main.count("bar.sync 0;") == others.count("bar.sync 0;") == 2 * count


@pytest.mark.parametrize(("num_warps", "threads", "registers"), [(4, 160, None), (8, 384, (168, 240, 24))])
def test_warps_and_registers(num_warps, threads, registers):
    """Eight warps would have 168 registers beside a ninth: three more cost nothing, and lend theirs."""
    made = compiled(product, {"BM": 128, "BN": 128, "BK": 64, "WS": True}, num_warps=num_warps)
    assert made.threads == threads and made.num_warps == num_warps
    assert f".reqntid {threads}, 1, 1" in made.ptx
    lines = [".maxnreg %d", "setmaxnreg.inc.sync.aligned.u32 %d;", "setmaxnreg.dec.sync.aligned.u32 %d;"]
    for line, number in zip(lines, registers or (0, 0, 0)):
        assert (line % number in made.ptx) == (registers is not None)
    if registers is not None:
        launched, more, fewer = registers
        assert num_warps * more + 4 * fewer <= launched * threads // 32


def test_without_being_asked_nothing_changes():
    made = compiled(product, BLOCKS | {"WS": False})
    assert not partitions(made) and made.threads == 128 and made.extra_warps == 0
    assert "bar.sync 1" not in made.ptx and "extra_warps" not in made.asm["gpu"]


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("flatten", [False, True])
def test_interpreter_after_the_passes(flatten, outer):
    """Both groups of warps run there, too; it finds waits that never end, and tiles that products still
    read."""
    m, n, k = 192, 128, 160
    a, b, c = integers(m, k), integers(k, n), np.zeros((m, n), np.float32)
    made = compiled(walking, TILES | {"FLATTEN": flatten, "WS": outer, "INNER": not outer})
    interpreter.run(parse_function(made.asm["gpu"]), 2, [a, b, c, m, n, k, 6])
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b)


def test_interpreter_of_a_partition_behind_another():
    """What was computed between them is there for both groups, whoever came to its end last."""
    artifact = compiled(one_after_the_other, BLOCKS | {"WS": True})
    function = parse_function(artifact.asm["gpu"])
    assert len(partitions(artifact)) == 2
    a, b, out = integers(64, 96), integers(96, 64), np.zeros((2, 3, 64, 64), np.float32)
    interpreter.run(function, 1, [a, b, out, 96])
    parts = [a[:, s : s + 32].astype(np.float32) @ b[s : s + 32] for s in range(0, 96, 32)]
    np.testing.assert_array_equal(out, [parts, parts])
