"""The programming model: programs, creation of blocks, casts, promises to the compiler, loops."""

from __future__ import annotations

from typing import Any

from ptxforge.language.constexpr import constexpr
from ptxforge.language.registry import builtin
from ptxforge.language.types import dtype, tensor

CONSTEXPR_0 = constexpr(0)
"""Zero, as some kernels written for Triton import it."""


@builtin
def program_id(axis: int) -> tensor:
    """This program's index along grid ``axis`` (0, 1 or 2), an int32 scalar.

    row = tl.program_id(0)
    """


@builtin
def num_programs(axis: int) -> tensor:
    """The grid's size along ``axis`` (0, 1 or 2), an int32 scalar.

    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)): ...
    """


@builtin
def arange(start: int, end: int) -> tensor:
    """The int32 block ``start, start + 1, …, end - 1``.

    Both are compile-time integers; ``end - start`` is a power of two.

        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    """


@builtin
def full(shape: Any, value: Any, dtype: dtype) -> tensor:
    """A block of ``shape`` with ``value`` (a number or scalar, cast to ``dtype``) everywhere.

    best = tl.full([BLOCK_M], -float("inf"), tl.float32)
    """


@builtin
def zeros(shape: Any, dtype: dtype) -> tensor:
    """A block of zeros.

    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    """


@builtin
def zeros_like(input: tensor) -> tensor:
    """Zeros of ``input``'s shape and element type."""


@builtin
def to_tensor(x: Any) -> tensor:
    """A number as a runtime scalar: int32 (int64, uint32, uint64 when larger), float32 (float64) or int1."""


@builtin(member=True)
def cast(input: Any, dtype: dtype, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """``input`` converted to ``dtype``; with ``bitcast`` the same bits under a type of the same width.

    ``fp_downcast_rounding`` is ``"rtne"`` (to nearest even; the default) or ``"rtz"`` (towards zero) and is allowed
    only when a float narrows. Float to integer goes towards zero and saturates; anything to int1 is ``!= 0``.

        half = tl.cast(x, tl.float16, fp_downcast_rounding="rtz")
    """


@builtin(member=True)
def to(input: Any, dtype: dtype, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> tensor:
    """``x.to(dtype)``: see :func:`cast`."""


@builtin(member=True)
def item(input: tensor) -> tensor:
    """The only element of a block of one element, as a scalar."""


@builtin
def multiple_of(input: tensor, values: Any) -> tensor:
    """A promise: along each dimension, the first of each run of consecutive values is a multiple of ``values``.

    offsets = tl.multiple_of(offsets, 8)
    """


@builtin
def max_contiguous(input: tensor, values: Any) -> tensor:
    """A promise: along each dimension, every ``values`` elements (aligned to their number) are consecutive integers.

    offsets = tl.max_contiguous(tl.multiple_of(offsets % N, BLOCK), BLOCK)
    """


@builtin
def max_constancy(input: tensor, values: Any) -> tensor:
    """A promise: along each dimension, every ``values`` elements (aligned to their number) are equal."""


@builtin
def assume(cond: Any) -> None:
    """A promise that the boolean ``cond`` holds, which analyses may use.

    tl.assume(stride > 0)
    """


@builtin
def debug_barrier() -> None:
    """All threads of the program meet here, and writes to memory before it are seen after it."""


@builtin
def expect_zero(x: tensor, mask: tensor) -> tensor:
    """``x``, where the author promises zeros outside ``mask``; outside, the result is zero in any case."""


class range:
    """A counted loop, as Python's ``range``, with advice for the compiler.

    ``num_stages``: depth of the software pipeline of this loop; ``loop_unroll_factor``: copies of the body;
    ``flatten``: fuse with the loop around; ``disallow_acc_multi_buffer``, ``warp_specialize``, ``disable_licm``: as in
    Triton. A negative step must be a compile-time value.

        for k in tl.range(0, K, BLOCK_K, num_stages=4): ...
    """

    def __init__(
        self,
        arg1: Any,
        arg2: Any = None,
        step: Any = None,
        num_stages: int | None = None,
        loop_unroll_factor: int | None = None,
        disallow_acc_multi_buffer: bool = False,
        flatten: bool = False,
        warp_specialize: bool = False,
        disable_licm: bool = False,
    ):
        raise TypeError("tl.range stands only in the 'for' statement of a kernel")


class static_range:
    """A loop that the compiler unrolls completely: bounds and the index are compile-time values.

    for i in tl.static_range(4): ...
    """

    def __init__(self, arg1: int, arg2: int | None = None, step: int | None = None):
        raise TypeError("tl.static_range stands only in the 'for' statement of a kernel")


class condition:
    """The condition of a ``while`` with advice for the compiler: ``while tl.condition(x > 0, disable_licm=True):``."""

    def __init__(self, arg1: Any, disable_licm: bool = False):
        raise TypeError("tl.condition stands only in the 'while' statement of a kernel")
