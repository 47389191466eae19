"""check_passes: sound kernels pass, a wrong pass is named."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge.language as tl
from ptxforge import debug
from ptxforge.debug import check_passes, signature_of
from ptxforge.ir.ops.arith import AddF, SubF
from ptxforge.ir.ops.memory import Store
from ptxforge.ir.rewriter import PatternSet, rewrite
from ptxforge.passes.manager import Pass
from ptxforge.support.errors import InternalCompilerError

RNG = np.random.default_rng(0)


def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    value = tl.load(x + row * columns + i, mask=inside, other=-float("inf"))
    weight = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + i, weight / tl.sum(weight, axis=0), mask=inside)


def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    pa = a + m[:, None] * K + k[None, :]
    pb = b + k[:, None] * N + n[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, K, STEP):
        total += tl.dot(tl.load(pa), tl.load(pb))
        pa += STEP
        pb += STEP * N
    tl.store(c + m[:, None] * N + n[None, :], total)


SOFTMAX = {
    "x": RNG.standard_normal((5, 100)).astype(np.float32),
    "out": np.zeros((5, 100), np.float32),
    "columns": 100,
}
PRODUCT = {
    "a": RNG.standard_normal((32, 64)).astype(np.float16),
    "b": RNG.standard_normal((64, 32)).astype(np.float16),
    "c": np.zeros((32, 32), np.float32), "K": 64,
}  # fmt: skip


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_sound_passes(target):
    passes = check_passes(softmax, SOFTMAX, 5, constants={"BLOCK": 128}, target=target)
    assert {"canonicalize", "assign_layouts", "coalesce", "insert_barriers"} <= {row.name for row in passes}
    assert any(row.changed for row in passes) and max(row.difference for row in passes) < 1e-5
    assert not SOFTMAX["out"].any()  # the arguments are not touched


def test_sound_passes_of_a_pipelined_product():
    passes = check_passes(product, PRODUCT, constants={"M": 32, "N": 32, "STEP": 16}, num_stages=3)
    assert "pipeline_loops" in {row.name for row in passes}


def spoil_sums(function, target) -> bool:
    """A pass that takes sums for differences."""
    rules = PatternSet()
    rules.on(AddF)(lambda op, rewriter: rewriter.replace(op, rewriter.value(SubF, *op.operands)))
    return rewrite(function, rules)


def drop_masks(function, target) -> bool:
    """A pass that forgets the masks of stores."""
    rules = PatternSet()

    @rules.on(Store)
    def unmask(op, rewriter):
        return op.mask is not None and rewriter.set_operands(op, op.operands[:2])

    return rewrite(function, rules)


@pytest.mark.parametrize("wrong, message", [
    (spoil_sums, r"array 'out': 500 of 500 elements differ; at \(0, 0\)"),
    (drop_masks, "the kernel fails: out-of-bounds write"),
])  # fmt: skip
@pytest.mark.parametrize("place", [0, 10])
def test_a_wrong_pass_is_named(wrong, message, place, monkeypatch):
    rows = list(debug.pipeline.PIPELINE)
    stage = rows[place].stage
    monkeypatch.setattr(
        debug.pipeline, "PIPELINE", (*rows[:place], Pass(wrong, stage, why="test"), *rows[place:])
    )
    with pytest.raises(
        InternalCompilerError, match=f"pass '{wrong.__name__}' changes the meaning.*{message}"
    ) as caught:
        check_passes(softmax, SOFTMAX, 5, constants={"BLOCK": 128})
    assert f"--- before '{wrong.__name__}'\n" in str(caught.value)


@pytest.mark.parametrize("value, expected", [
    (np.zeros(4, np.float16), "*fp16:16"), (np.zeros(4, np.int32)[1:], "*i32"), (32, "i32:16"), (7, "i32"),
    (2**40, "i64:16"), (True, "u1"), (1.5, "fp32"),
])  # fmt: skip
def test_signatures_of_arguments(value, expected):
    assert signature_of(value) == expected
