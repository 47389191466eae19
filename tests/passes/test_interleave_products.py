"""interleave_products: pieces of reads and copies get places among the instructions of products."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ptxforge.codegen_ptx import emit
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.shared import AsyncCommitGroup, AsyncCopyGlobalToLocal, LocalLoad
from ptxforge.passes.interleave_products import interleave_products
from ptxforge.support.errors import InternalCompilerError
from tests.kernels.static_facts import facts_of
from tests.passes.gemm import GEMM, TARGET, product, run_until
from tests.passes.gpu import operations


def in_loop(function, *kinds) -> list:
    (loop,) = operations(function, For)
    return [op for op in loop.body.operations if isinstance(op, kinds)]


@pytest.mark.parametrize("stages", [2, 4])
def test_every_piece_in_the_loop_has_a_place(stages):
    function = run_until(interleave_products, stages, text=GEMM)
    count = sum(len(dot.steps) for dot in in_loop(function, Dot))
    for op in in_loop(function, LocalLoad, AsyncCopyGlobalToLocal, AsyncCommitGroup):
        assert len(op.order) == len(op.pieces()) and all(0 <= place < count for place in op.order)


def places(function, *kinds) -> list[int]:
    """After how many of the loop's products the pieces of these operations come, in order."""
    done, found = 0, []
    for op in in_loop(function, Dot, *kinds):
        if isinstance(op, Dot):
            done += len(op.steps)
        else:
            found += [done + place for place in op.order]
    return found


def test_groups_end_behind_their_copies():
    found = places(run_until(interleave_products, 3, text=GEMM), AsyncCopyGlobalToLocal, AsyncCommitGroup)
    assert found == sorted(found)


@pytest.mark.parametrize("k", [0, 64, 160])
def test_the_meaning_is_kept(k):
    found, expected = product(run_until(interleave_products, 3), k)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kinds, fact", [
    ([AsyncCopyGlobalToLocal], "copies after products"), ([LocalLoad], "reads after products"),
])  # fmt: skip
def test_the_code_generator_keeps_the_order(kinds, fact):
    function = run_until(interleave_products, 3, text=GEMM)
    wanted = Counter(places(function, *kinds))
    assert len(wanted) > 1, "not all in one place"
    found = facts_of(emit(function, TARGET))["loop 0"][fact]
    assert found == " ".join(f"{place}:{count}" for place, count in sorted(wanted.items()))


def test_an_order_beyond_the_products_is_an_error():
    function = run_until(interleave_products, 3, text=GEMM)
    in_loop(function, LocalLoad)[0].order = (10**6,) * len(in_loop(function, LocalLoad)[0].pieces())
    with pytest.raises(InternalCompilerError, match="an 'order' leads beyond"):
        emit(function, TARGET)
