"""spell_out_negations: no chain of signed extrema reads a negation, whose sign assemblers drop."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.codegen_ptx import emit
from ptxforge.codegen_ptx.ptx import pipeline
from ptxforge.codegen_ptx.ptx.spell_out_negations import spell_out_negations
from ptxforge.ir.parser import parse_function
from ptxforge.support.target import parse_target

SIZE = 256


@ptxforge.jit
def of_three(x, y, z, out, n):
    at = tl.arange(0, 256)
    tl.store(out + at, tl.maximum(tl.maximum(tl.load(x + at), -tl.load(y + at)), tl.load(z + at)))


@ptxforge.jit
def of_products(x, y, z, out, n):
    at = tl.arange(0, 256)
    tl.store(out + at, tl.minimum(tl.load(x + at), tl.minimum(tl.load(z + at), tl.load(y + at) * -1)))


@ptxforge.jit
def of_a_loop(x, y, z, out, n):
    at = tl.arange(0, 256)
    largest, steps = tl.load(x + at).to(tl.int32), tl.load(y + at).to(tl.int32)
    for k in range(3):
        largest = tl.maximum(largest, k - steps)
    tl.store(out + at, largest)


@ptxforge.jit
def of_a_row(x, y, z, out, n):
    at = tl.arange(0, 256)
    tl.store(out + at, tl.max(-tl.load(y + tl.arange(0, 1024) % 256)) + tl.zeros((256,), tl.int32))


@ptxforge.jit
def of_a_bound(x, y, z, out, n):
    at = tl.arange(0, 256)
    tl.store(out + at, tl.minimum(n - tl.load(x + at), 8))


@ptxforge.jit
def of_constants(x, y, z, out, n):
    at = tl.arange(0, 256)
    tl.store(out + at, tl.maximum(tl.maximum(tl.load(x + at), 1 - tl.load(y + at)), tl.load(z + at)))


@ptxforge.jit
def of_a_moved_origin(x, y, z, out, n):
    at = tl.arange(0, 256)
    moved = tl.load(y + at).to(tl.int32) + 4
    largest = tl.maximum(tl.maximum(tl.load(x + at), 4 - moved), tl.load(z + at))
    tl.store(out + at, tl.where(moved > 100, moved, largest))


@ptxforge.jit
def of_sums_in_a_loop(x, y, z, out, n):
    at = tl.arange(0, 256)
    largest, steps = tl.load(x + at).to(tl.int32), tl.load(y + at).to(tl.int32)
    for k in range(6):
        largest = tl.maximum(largest, k - steps)
        largest += k
    tl.store(out + at, largest)


@ptxforge.jit
def of_factors(x, y, z, out, n):
    at = tl.arange(0, 256)
    largest, factor = tl.load(x + at).to(tl.int32), tl.load(y + at).to(tl.int32)
    for k in tl.range(-1, 14, 3, num_stages=2):
        largest = tl.maximum(tl.maximum(largest, factor * k), tl.load(z + at))
    tl.store(out + at, largest)


@ptxforge.jit
def of_loaded_factors(x, y, z, out, n):
    at = tl.arange(0, 256)
    product = tl.load(x + at).to(tl.int32) * tl.load(y + at)
    tl.store(out + at, tl.maximum(tl.maximum(tl.load(x + at), product), tl.load(z + at)))


def sums_in_a_loop(x, y, z):
    for k in range(6):
        x = np.maximum(x, k - y) + k
    return x


EXPECTED = {
    of_three: lambda x, y, z: np.maximum(np.maximum(x, -y), z),
    of_products: lambda x, y, z: np.minimum(np.minimum(x, -y), z),
    of_a_loop: lambda x, y, z: np.maximum(x, 2 - y),
    of_a_row: lambda x, y, z: np.full(SIZE, np.max(-y)),
    of_a_bound: lambda x, y, z: np.minimum(7 - x, 8),
    of_constants: lambda x, y, z: np.maximum(np.maximum(x, 1 - y), z),
    of_a_moved_origin: lambda x, y, z: np.maximum(np.maximum(x, -y), z),
    of_sums_in_a_loop: sums_in_a_loop,
    of_factors: lambda x, y, z: np.max([x, -y, 11 * y, z], 0),
    of_loaded_factors: lambda x, y, z: np.maximum(np.maximum(x, x * y), z),
}
SPELLED_OUT = {*EXPECTED} - {of_a_bound, of_loaded_factors}


@pytest.mark.parametrize("kernel", EXPECTED, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("dtype", [np.int32, np.int16, np.int8], ids=lambda dtype: dtype.__name__)
def test_extrema_of_negations(kernel, dtype, devices):
    x, y, z = np.random.default_rng(0).integers(-50, 50, (3, SIZE)).astype(dtype)
    out = np.zeros(SIZE, np.int32)
    expected = EXPECTED[kernel](*(a.astype(np.int32) for a in (x, y, z)))
    for device in devices:
        arrays = [ptxforge.to_device(array, device) for array in (x, y, z, out)]
        kernel[(1,)](*arrays, 7)
        np.testing.assert_array_equal(arrays[-1].numpy(), expected)


def _negations(kernel, target):
    signature = {"x": "*i32", "y": "*i32", "z": "*i32", "out": "*i32", "n": "i32"}
    function = parse_function(ptxforge.compile(kernel, signature=signature, target=target).asm["gpu"])
    ptx = emit(function, parse_target(target))
    return len(re.findall(r"sub\.s32 %r\d+, \S+, %r|mul\.lo\.s32 .*, -1;", ptx)), ptx.count("not.b32")


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("kernel", EXPECTED, ids=lambda kernel: kernel.__name__)
def test_a_complement_and_a_sum(kernel, target, monkeypatch):
    """For older targets, too: a driver assembles their PTX for a newer GPU."""
    left, complements = _negations(kernel, target)
    others = [row for row in pipeline.PASSES if row.function is not spell_out_negations]
    monkeypatch.setattr(pipeline, "PASSES", others)
    before, none = _negations(kernel, target)
    assert none == 0
    if kernel in SPELLED_OUT:
        assert complements > 0
        assert kernel is of_factors or before - left == complements  # the product remains one
    else:
        assert (left, complements) == (before, 0)
