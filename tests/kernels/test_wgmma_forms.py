"""Products by ``wgmma`` of every pair of types that families have, in every width that tiles have, with the
left operand in shared memory and in registers: each form has an encoding of its own, which a GPU runs here
once (``tests/forms.py``)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.support.target import parse_target
from tests.forms import forms_of

DEPTH = 64
TYPES = {
    "f16": (np.float16, np.float32), "f16 in f16": (np.float16, np.float16),
    "bf16": (ml_dtypes.bfloat16, np.float32), "tf32": (np.float32, np.float32),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.float32), "e5m2": (ml_dtypes.float8_e5m2, np.float32),
    "s8": (np.int8, np.int32), "u8": (np.uint8, np.int32),
}  # fmt: skip
"""The type of both operands, and that of the sums."""


@ptxforge.jit
def product(x, y, out, IS_COMPUTED: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """x @ y.T, or of x doubled; rows of both lie along k."""
    i, j, k = tl.arange(0, 64), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + i[:, None] * K + k[None, :])
    b = tl.load(y + j[None, :] * K + k[:, None])
    if IS_COMPUTED:
        a = (a.to(tl.float32) * 2).to(a.dtype)
    total = tl.dot(a, b, out_dtype=out.dtype.element_ty)
    tl.store(out + i[:, None] * N + j[None, :], total)


@pytest.mark.parametrize("width", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("is_computed", [False, True], ids=["shared", "registers"])
@pytest.mark.parametrize("kind", TYPES)
def test_each_width_of_each_type(execute, kind, is_computed, width):
    type, sums = TYPES[kind]
    rng = np.random.default_rng(width)
    x, y = (rng.integers(0, 3, (rows, DEPTH)).astype(type) for rows in (64, width))
    expected = (x.astype(np.int64) @ y.astype(np.int64).T) * (2 if is_computed else 1)
    arguments = [x, y, np.zeros((64, width), sums)]
    constants = {"IS_COMPUTED": is_computed, "N": width, "K": DEPTH}
    for (out,) in execute(product, (1,), arguments, constants, outputs=[2], num_warps=4):
        np.testing.assert_array_equal(out.astype(np.int64), expected)
    artifact = product.variants[-1].artifact
    products = [form for form in forms_of(artifact.ptx) if form.startswith("wgmma.mma_async")]
    assert bool(products) == parse_target(artifact.target).has_wgmma
    assert all(("{4}" in form.split("}", 1)[1]) == is_computed for form in products), products
