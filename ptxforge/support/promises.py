"""What a kernel takes for granted of its arguments: those of which it makes tensor descriptors.

    d = tl.make_tensor_descriptor(a, [M, K], [stride, 1], [128, 64])        # a: *fp16, stride: i32

lies at a multiple of 16 bytes, and so do its rows. The accesses through it are made for that, so a launch
checks it, unless the signature says it already (``*fp16:16``, ``i32:16``).
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ptxforge.support.descriptor import ALIGNMENT
from ptxforge.support.errors import ArgumentError
from ptxforge.support.tensor_map import evaluate, names_in


@attrs.frozen(slots=True)
class Promise:
    """``entry`` (an :data:`~ptxforge.support.tensor_map.Entry`) is a multiple of 16 bytes: the base of a
    descriptor, or its stride along ``dimension``, in elements of ``unit`` bytes."""

    entry: str
    dimension: int = -1
    unit: int = 1

    @property
    def divisor(self) -> int:
        """What divides the entry."""
        return ALIGNMENT // self.unit

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the kernel that the entry is made of."""
        return tuple(dict.fromkeys(names_in(self.entry)))

    def __str__(self) -> str:
        return f"{self.entry}: a multiple of {self.divisor}"

    def check(self, value_of: Callable[[str], int]) -> None:
        """Raise :class:`ArgumentError` for a launch that does not keep it."""
        value = evaluate(self.entry, value_of)
        if value % self.divisor:
            raise self.broken(value)

    def broken(self, value: int) -> ArgumentError:
        """The error of a launch in which the entry is ``value``."""
        name = self.parameters[0]
        if self.dimension < 0:
            text = f"the base of make_tensor_descriptor() must be aligned to {ALIGNMENT} bytes, and lies "
            return ArgumentError(f"{text}{value % ALIGNMENT} bytes behind such a place", name)
        made = "" if self.entry == name else f", {self.entry.replace('*', ' * ')},"
        text = f"the strides of make_tensor_descriptor() must be multiples of {ALIGNMENT} bytes; that of "
        return ArgumentError(f"{text}dimension {self.dimension}{made} is {value * self.unit}", name)
