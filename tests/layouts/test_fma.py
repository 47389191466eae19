"""Layouts of matrix products on the FMA units."""

from __future__ import annotations

import pytest

from ptxforge.layouts.banks import offsets_of, shared_access
from ptxforge.layouts.encodings import Blocked, DotOperand, default_blocked, elements_per_thread
from ptxforge.layouts.linear import LANE, REGISTER, WARP
from ptxforge.layouts.product_steps import blocked_for_fma, shared_for_fma_operand
from ptxforge.layouts.shared import Shared

SHAPES = [
    ((128, 128), 8), ((128, 256), 8), ((256, 128), 8), ((64, 128), 4), ((64, 64), 4), ((32, 32), 4),
    ((16, 16), 4), ((16, 256), 4), ((256, 16), 4), ((16, 16), 8), ((4, 64, 64), 4), ((2, 32, 64), 8),
]  # fmt: skip


@pytest.mark.parametrize("shape, num_warps", SHAPES, ids=str)
def test_every_thread_computes_elements_of_its_own(shape, num_warps):
    layout = blocked_for_fma(shape, num_warps)
    linear = layout.linear(shape)
    assert linear.in_size(LANE) * linear.in_size(WARP) == 32 * num_warps
    assert linear.in_size(REGISTER) == elements_per_thread(layout, shape)
    assert linear.is_surjective and linear.is_injective


@pytest.mark.parametrize("shape, num_warps, reads", [
    ((128, 128), 8, 4), ((128, 256), 8, 6), ((256, 128), 8, 6), ((64, 128), 4, 4), ((64, 64), 4, 3),
    ((16, 16), 8, 2),
], ids=str)  # fmt: skip
def test_a_step_along_k_takes_few_reads(shape, num_warps, reads):
    layout = blocked_for_fma(shape, num_warps)
    accesses = 0
    for operand in (0, 1):
        tile = (shape[0], 1) if operand == 0 else (1, shape[1])
        memory = Shared(1, 1, 1, (operand, 1 - operand)).linear(tile)
        access = shared_access(offsets_of(DotOperand(operand, layout).linear(tile), memory), 32)
        assert access.degree == 1
        accesses += len(access.accesses)
    assert accesses == reads


def test_more_threads_than_elements():
    assert blocked_for_fma((4, 4), 4) is None


def filling(shape, num_warps, order, bits) -> Blocked:
    """The layout of a copy of 16 bytes per thread."""
    size = [1, 1]
    size[order[0]] = max(1, min(128 // bits, shape[0] * shape[1] // (32 * num_warps)))
    return default_blocked(shape, num_warps, size_per_thread=size, order=order)


@pytest.mark.parametrize(
    "tile, num_warps", [((128, 128), 8), ((128, 256), 8), ((64, 64), 4), ((64, 128), 4)], ids=str)
@pytest.mark.parametrize("op_idx", [0, 1])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)], ids=str)
@pytest.mark.parametrize("k", [8, 16, 32])
def test_operands_are_read_in_vectors_without_conflicts(tile, num_warps, op_idx, order, k):
    operand = DotOperand(op_idx, blocked_for_fma(tile, num_warps))
    shape = (tile[0], k) if op_idx == 0 else (k, tile[1])
    writer = filling(shape, num_warps, order, 32)
    encoding = shared_for_fma_operand(operand, writer, shape, 32)
    assert encoding.order[0] == 1 - operand.k_dim
    memory = encoding.linear(shape)
    write = shared_access(offsets_of(writer.linear(shape), memory), 32)
    read = shared_access(offsets_of(operand.linear(shape), memory), 32)
    assert read.vec == 4 and read.degree == write.degree == 1
    assert write.vec == (1 if order[0] == operand.k_dim else writer.size_per_thread[order[0]])


@pytest.mark.parametrize("k, degree", [(16, 1), (32, 1), (64, 1)])
def test_narrow_elements_stay_along_k(k, degree):
    """Two bytes cannot be copied by themselves."""
    operand = DotOperand(0, blocked_for_fma((128, 128), 8))
    writer = filling((128, k), 8, (1, 0), 16)
    encoding = shared_for_fma_operand(operand, writer, (128, k), 16)
    assert encoding.order == (1, 0)
    memory = encoding.linear((128, k))
    for side, vec in ((writer, 8), (operand, 8)):
        access = shared_access(offsets_of(side.linear((128, k)), memory), 16)
        assert (access.vec, access.degree) == (vec, degree)
