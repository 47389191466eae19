"""Tensor descriptors as parameters of kernels: the text of their type, and the plain parameters behind it.

    tensordesc<fp16[128,64]>          boxes of 128 x 64 float16; zeros outside of the tensor
    tensordesc<fp16[128,64],nan>      NaN outside
    tensordesc<fp16[128,64]>:16       the tensor's last size is a multiple of 16 bytes

A descriptor parameter ``x`` of two dimensions is the parameters ``x`` (a pointer, aligned to 16 bytes),
``x.shape.0`` and ``x.shape.1`` (``i32``), and ``x.stride.0`` (``i64``, in elements, a multiple of 16 bytes);
the last stride is 1.
"""

from __future__ import annotations

import re

import attrs

from ptxforge.support import dtypes
from ptxforge.support.dtypes import DType

MAX_RANK, ALIGNMENT = 5, 16
"""Dimensions; bytes that divide the base and the strides, and the least number along a box's last dimension.
(CUDA driver API, ``cuTensorMapEncodeTiled``. TMA does not copy boxes of more than 256 elements along one
dimension at once, but descriptors may have them.)"""

PADDINGS = ("zero", "nan")
"""What elements outside of the tensor are when they are loaded."""

_TEXT = re.compile(r"tensordesc<(\w+)\[([\d,\s]+)\](?:,\s*(nan|zero))?>(:16)?")


@attrs.frozen(slots=True)
class DescriptorType:
    """What a kernel is compiled for: element type, the box's shape, padding, and whether the tensor's last
    size is a multiple of 16 bytes (that of a contiguous one always is)."""

    dtype: DType
    box: tuple[int, ...]
    padding: str = "zero"
    aligned: bool = False

    def __str__(self) -> str:
        padding = "" if self.padding == "zero" else f",{self.padding}"
        box = ",".join(map(str, self.box))
        return f"tensordesc<{self.dtype.short}[{box}]{padding}>{':16' if self.aligned else ''}"

    def parameters(self, name: str) -> list[tuple[str, str]]:
        """Names and signature types of the parameters behind the descriptor ``name``."""
        rank = len(self.box)
        unit = ALIGNMENT // self.dtype.bytes
        sizes = [(f"{name}.shape.{d}", "i32") for d in range(rank)]
        if self.aligned:
            sizes[-1] = (sizes[-1][0], f"i32:{unit}")
        strides = [(f"{name}.stride.{d}", f"i64:{unit}") for d in range(rank - 1)]
        return [(name, f"*{self.dtype.short}:{ALIGNMENT}"), *sizes, *strides]


def is_descriptor(text: str) -> bool:
    """Whether a signature's type is meant to be a descriptor's."""
    return text.startswith("tensordesc<")


def parameter_names(name: str, text: str) -> list[str]:
    """The parameters behind the parameter ``name`` of type ``text``: itself, unless it is a descriptor."""
    return [part for part, _ in parse(text).parameters(name)] if is_descriptor(text) else [name]


def parse(text: str) -> DescriptorType:
    """The type of a text. Raises ``ValueError`` for another text.

    >>> str(parse("tensordesc<fp16[128, 64]>"))
    'tensordesc<fp16[128,64]>'
    """
    match = _TEXT.fullmatch(text)
    if match is None or match[1] not in dtypes.BY_SHORT:
        raise ValueError(f"'{text}' is not the type of a tensor descriptor, such as tensordesc<fp16[128,64]>")
    box = tuple(int(size) for size in match[2].split(","))
    return DescriptorType(dtypes.BY_SHORT[match[1]], box, match[3] or "zero", bool(match[4]))
