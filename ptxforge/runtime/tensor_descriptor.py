"""Tensor descriptors on the host: a tensor, and the shape of the boxes that a kernel loads and stores.

    a_desc = TensorDescriptor.from_tensor(a, block_shape=[128, 64])
    kernel[grid](a_desc, …)                  # in the kernel: x = a_desc.load([row, k])

The kernel is compiled for the element type, the box and the padding. ``base`` and the sizes are told to it at
each launch: the attributes may be changed between launches, ``block_shape`` by an autotuner's ``pre_hook``
for instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ptxforge.driver import arrays
from ptxforge.driver.device_array import DeviceArray
from ptxforge.support.descriptor import ALIGNMENT, MAX_RANK, PADDINGS, DescriptorType
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import ArgumentError, ValueArgumentError

_LARGEST_SIZE = (1 << 31) - 1


@attrs.define(slots=False)
class TensorDescriptor:
    """A descriptor of the tensor at ``base`` (an array of any library), an argument of a kernel.

    ``shape`` and ``strides`` count elements; ``block_shape`` is the shape of a box; each has one to five
    entries. ``padding`` is what a load gives outside of the tensor: ``"zero"`` or, for floats, ``"nan"``.

    Raises :class:`ArgumentError`, with the attribute's name: ``base`` is not aligned to 16 bytes, a stride
    but the last is no multiple of 16 bytes, the last one is not 1, lists of different lengths, NaN for
    integers; :class:`ValueArgumentError` for strides and sizes that cannot be and a ``block_shape`` that is
    not made of powers of two. Whether its last dimension has 16 bytes is asked when the descriptor is used.
    """

    base: Any
    shape: Sequence[int] = attrs.field(converter=list)
    strides: Sequence[int] = attrs.field(converter=list)
    block_shape: Sequence[int] = attrs.field(converter=list)
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __attrs_post_init__(self) -> None:
        rank = len(self.shape)
        if not 1 <= rank <= MAX_RANK:
            raise ArgumentError(f"must have 1 to {MAX_RANK} entries, has {rank}", "shape")
        for name, given in (("strides", self.strides), ("block_shape", self.block_shape)):
            if len(given) != rank:
                raise ArgumentError(f"must have {rank} entries as shape, has {len(given)}", name)
        if self.padding not in PADDINGS:
            known = " or ".join(map(repr, PADDINGS))
            raise ArgumentError(f"must be {known}, is {self.padding!r}", "padding")
        if self.round_f32_to_tf32:
            raise ArgumentError("is not supported: tl.dot rounds its operands itself", "round_f32_to_tf32")
        self._check_powers("", "block_shape")
        self._check_memory()

    def _check_memory(self) -> None:
        element, address = self.dtype, self.address
        if address % ALIGNMENT:
            beyond = address % ALIGNMENT
            raise ArgumentError(
                f"must be aligned to {ALIGNMENT} bytes, lies {beyond} bytes behind such a place", "base"
            )
        for dimension, stride in enumerate(self.strides[:-1]):
            if stride * element.bytes % ALIGNMENT or stride < 0:
                raise ValueArgumentError(
                    f"must be multiples of {ALIGNMENT} bytes; that of dimension {dimension} is "
                    f"{stride * element.bytes}",
                    "strides",
                )
        for size in self.shape:
            if not 0 < size <= _LARGEST_SIZE:
                raise ValueArgumentError(f"sizes are positive and fit in 32 bits; one is {size}", "shape")
        if self.strides[-1] != 1:
            raise ArgumentError(f"the last one must be 1, is {self.strides[-1]}", "strides")
        if self.padding == "nan" and not element.is_float:
            raise ArgumentError(f"'nan' is for floats, not for {element}", "padding")

    @classmethod
    def from_tensor(
        cls, tensor: Any, block_shape: Sequence[int], padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """The descriptor of a whole array. Raises what the constructor raises."""
        return cls(tensor, tensor.shape, _strides(tensor), block_shape, padding, round_f32_to_tf32)

    @property
    def dtype(self) -> DType:
        """The element type. Raises :class:`ArgumentError` for a ``base`` that is no array."""
        return self.base.dtype if isinstance(self.base, DeviceArray) else self._view().dtype

    @property
    def address(self) -> int:
        """Where the tensor begins. Raises :class:`ArgumentError` for a ``base`` that is no array."""
        return self.base.data_ptr() if isinstance(self.base, DeviceArray) else self._view().address

    def _view(self) -> arrays.ArrayView:
        found = arrays.view(self.base)
        if found is None:
            raise ArgumentError(f"must be an array, is a '{type(self.base).__name__}'", "base")
        return found

    @property
    def type(self) -> DescriptorType:
        """What a kernel is compiled for. Raises :class:`ArgumentError` for a ``block_shape`` that cannot be,
        and for what the constructor refuses."""
        self._check_memory()
        self._check_box()
        element = self.dtype
        is_aligned = self.shape[-1] * element.bytes % ALIGNMENT == 0
        return DescriptorType(element, tuple(self.block_shape), self.padding, is_aligned)

    def _check_powers(self, lead: str, argument: str = "") -> None:
        for dimension, size in enumerate(self.block_shape):
            if size < 1 or size & (size - 1):
                text = f"{lead}must be powers of two; dimension {dimension} is {size}"
                raise ValueArgumentError(text, argument)

    def _check_box(self) -> None:
        self._check_powers("its block_shape ")
        nbytes = self.block_shape[-1] * self.dtype.bytes
        if nbytes < ALIGNMENT:
            raise ArgumentError(
                f"its block_shape must have at least {ALIGNMENT} bytes along the last dimension, has {nbytes}"
            )

    def values(self, address: Any) -> tuple:
        """What a kernel is told (:meth:`DescriptorType.parameters`), of a tensor at ``address``."""
        return (address, *self.shape, *self.strides[:-1])


def _strides(tensor: Any) -> list[int]:
    """Strides in elements."""
    if isinstance(tensor, DeviceArray):
        return list(tensor.strides)
    stride = getattr(tensor, "stride", None)
    if callable(stride):  # torch
        return list(stride())
    strides = getattr(tensor, "strides", None)
    if strides is not None:  # numpy and its like count bytes
        return [step // tensor.itemsize for step in strides]
    found, step = [], 1
    for size in reversed(tensor.shape):
        found.append(step)
        step *= size
    return found[::-1]


def array_of(value: Any) -> Any:
    """The array behind an argument: that of a descriptor, or the argument itself."""
    return value.base if isinstance(value, TensorDescriptor) else value


def parts_of(value: Any) -> tuple:
    """What an argument is to a kernel: of a descriptor its array, sizes and strides."""
    return value.values(value.base) if isinstance(value, TensorDescriptor) else (value,)


def readdressed(value: Any, address: int) -> Any:
    """What is packed for an array or a descriptor when its memory lies at ``address``; ``value`` was packed
    before."""
    return (address, *value[1:]) if isinstance(value, tuple) else address
