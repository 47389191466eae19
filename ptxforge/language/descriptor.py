"""Tensors in memory of which blocks are loaded and stored.

Tensor descriptors: boxes of one shape.

    a_desc = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    for k in range(0, K, BLOCK_K):
        x = a_desc.load([row, k])

A box begins at any ``offsets`` (integers, one per dimension; also negative ones, or beyond the end): elements
outside of the tensor are never touched, and a load gives the descriptor's padding for them. A descriptor is a
value: loops carry it, functions take it, tuples hold it. A kernel's caller may pass one too
(``ptxforge.TensorDescriptor``).

Descriptors are for tensors that the tensor memory accelerator of newer GPUs can read, on every GPU: the
``base`` is aligned to 16 bytes, every stride but the last is a multiple of 16 bytes, and the last one is 1; a
box has at least 16 bytes along its last dimension. What is known to break these rules is a compile-time
error. A launch refuses arguments that do, where base and strides are parameters, or sums and products of
them, and the kernel makes the descriptor whenever it runs. What breaks them unseen is undefined behaviour.

Block pointers: a block that moves.

    tile = tl.make_block_ptr(a, (M, K), (stride_m, stride_k), (row, 0), (BLOCK_M, BLOCK_K), (1, 0))
    for k in range(0, K, BLOCK_K):
        x = tl.load(tile, boundary_check=(0, 1), padding_option="zero")
        tile = tl.advance(tile, (0, BLOCK_K))

A block pointer is a value: it is carried by loops, passed to functions, put into tuples, and a branch may
choose between two of one type. ``tl.load`` and ``tl.store`` take it in the place of a block of pointers, and
compile to the very instructions that those would. Addresses are computed with 64 bits.
"""

from __future__ import annotations

from typing import Any

from ptxforge.language.registry import builtin
from ptxforge.language.types import block_type, dtype, tensor


class tensor_descriptor_type:
    """The type of a tensor descriptor: the type of its boxes (``block_type``), and what a load gives outside
    of the tensor (``padding``: ``"zero"`` or ``"nan"``)."""

    __slots__ = ("block_type", "padding")

    def __init__(self, block_type: block_type, padding: str = "zero"):
        self.block_type, self.padding = block_type, padding

    def __repr__(self) -> str:
        return f"tensor_descriptor<{self.block_type}, {self.padding}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tensor_descriptor_type) and (self.block_type, self.padding) == (
            other.block_type,
            other.padding,
        )

    def __hash__(self) -> int:
        return hash((tensor_descriptor_type, self.block_type, self.padding))


class tensor_descriptor:
    """A descriptor of a tensor, inside a kernel; made by :func:`make_tensor_descriptor`, or an argument.

    ``shape`` (int32) and ``strides`` (int64) are tuples of scalars; ``block_shape``, ``dtype``,
    ``block_type`` and ``type`` are known at compile time.
    """

    dtype: dtype

    @builtin
    def load(self, offsets: Any) -> tensor:
        """The box of ``self`` that begins at ``offsets``.

        x = a_desc.load([row, k])
        """

    @builtin
    def store(self, offsets: Any, value: Any) -> None:
        """Write ``value``, cast to the descriptor's type, to the box of ``self`` that begins at ``offsets``.

        A ``value`` that is a scalar, or that broadcasts to a box, fills it; any other shape is an error.
        """

    @builtin
    def gather(self, x_offsets: tensor, y_offset: Any) -> tensor:
        """Boxes of one row each, of the matrix ``self``: the rows ``x_offsets`` (a block of int32, at least
        8) from column ``y_offset`` on. Rows that do not exist give padding.

        The descriptor's boxes have one row, of 32 bytes or more.
        """

    @builtin
    def scatter(self, value: Any, x_offsets: tensor, y_offset: Any) -> None:
        """Write the rows of ``value`` to the rows ``x_offsets`` of the matrix ``self``, from column
        ``y_offset`` on; as :meth:`gather`. Of equal rows any one wins."""

    @builtin
    def atomic_add(self, offsets: Any, value: Any) -> None:
        """Add ``value`` to the box of ``self`` at ``offsets``, element by element, in no order: 32- and
        64-bit integers, float16, bfloat16, float32, float64."""

    @builtin
    def atomic_max(self, offsets: Any, value: Any) -> None:
        """The larger one of old and ``value`` in the box of ``self`` at ``offsets``: 32- and 64-bit
        integers, float16 and bfloat16 (a number wins against a NaN)."""

    @builtin
    def atomic_min(self, offsets: Any, value: Any) -> None:
        """The smaller one of old and ``value`` in the box of ``self`` at ``offsets``: 32- and 64-bit
        integers, float16 and bfloat16 (a number wins against a NaN)."""

    @builtin
    def atomic_and(self, offsets: Any, value: Any) -> None:
        """The bits common to old and ``value`` in the box of ``self`` at ``offsets``: 32- and 64-bit
        integers."""

    @builtin
    def atomic_or(self, offsets: Any, value: Any) -> None:
        """The bits of old or ``value`` in the box of ``self`` at ``offsets``: 32- and 64-bit integers."""

    @builtin
    def atomic_xor(self, offsets: Any, value: Any) -> None:
        """The bits of one of old and ``value`` in the box of ``self`` at ``offsets``: 32- and 64-bit
        integers."""


tensor_descriptor_base = tensor_descriptor


@builtin
def make_tensor_descriptor(
    base: tensor, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> tensor_descriptor:
    """A descriptor of the tensor at ``base`` (a scalar pointer), whose boxes have the shape ``block_shape``.

    ``shape`` and ``strides`` (integers; in elements) and ``block_shape`` (compile-time powers of two) have
    one to five entries. ``padding_option`` is ``"zero"`` or, for floats, ``"nan"``. The rules of alignment
    are at the head of this module.

    Errors: a ``base`` that is no scalar pointer, lists of different lengths, a last stride that is not the
    constant 1, constant strides that are not multiples of 16 bytes, boxes that are too large or too narrow.

        a_desc = tl.make_tensor_descriptor(a, [M, K], [stride_m, 1], [128, 64])
    """


@builtin
def load_tensor_descriptor(desc: tensor_descriptor, offsets: Any) -> tensor:
    """``desc.load(offsets)``."""


@builtin
def store_tensor_descriptor(desc: tensor_descriptor, offsets: Any, value: Any) -> None:
    """``desc.store(offsets, value)``."""


@builtin
def make_block_ptr(
    base: tensor, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> tensor:
    """A pointer to a block of ``block_shape`` that begins at ``offsets`` of the tensor at ``base``.

    ``base`` is a scalar pointer. ``shape`` and ``strides`` (integers; in elements) describe the tensor;
    ``offsets`` (integers, which may be negative or beyond the end) say where the block begins; where they and
    the ``shape`` have 32 bits, their difference fits in 32 bits, too;
    ``block_shape`` is a list of compile-time powers of two; ``order`` lists the dimensions from the fastest
    in memory to the slowest, which may speed nothing up: the strides say it already. All five have one
    length.

    Errors: a ``base`` that is no scalar pointer, lists of different lengths, floats, an ``order`` that is no
    permutation.

        tile = tl.make_block_ptr(a, (M, K), (K, 1), (pid * 128, 0), (128, 64), (1, 0))
    """


@builtin(member=True)
def advance(base: tensor, offsets: Any) -> tensor:
    """The block pointer ``base`` moved by ``offsets``, an integer for each dimension.

    Errors: a ``base`` that is no block pointer, a wrong number of ``offsets``, floats.

        tile = tl.advance(tile, (0, BLOCK_K))
    """
