"""More kernels that must not compile: what Triton refuses, too. See ``wrong_kernels``."""
# ruff: noqa: F841

from __future__ import annotations

import ptxforge.language as tl
from tests.errors.wrong_kernels import wrong

ANNOTATED_SIZE: tl.constexpr = 128


@wrong(out="*i32")
def annotated_global(out):
    tl.store(out + tl.arange(0, ANNOTATED_SIZE), 1)


@wrong(a="*fp8e4nv", s="*fp8e4nv")
def scaled_dot_with_too_few_scales_in_e4m3(a, s):
    i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    x = tl.load(a + i * 32 + j)
    c = tl.dot_scaled(x, tl.load(s + i), "e4m3", tl.trans(x), None, "e4m3")


@wrong(a="*fp16")
def dot_of_short_rows(a):
    x = tl.load(a + tl.arange(0, 16)[:, None] * 8 + tl.arange(0, 8)[None, :])
    c = tl.dot(x, tl.trans(x))


@wrong(a="*fp8e5")
def dot_with_more_imprecise_sums_than_columns(a):
    x = tl.load(a + tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :])
    c = tl.dot(x, tl.trans(x), max_num_imprecise_acc=64)
