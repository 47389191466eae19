"""What Triton's host side offers beside kernels: tensors seen as another type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class TensorWrapper:
    """A tensor whose elements are read as ``dtype``; see :func:`reinterpret`."""

    def __init__(self, base: Any, dtype: Any):
        self.base, self.dtype = base, dtype
        self.shape, self.device = base.shape, base.device

    def data_ptr(self) -> int:
        return self.base.data_ptr()

    def stride(self, *axis: int) -> Any:
        return self.base.stride(*axis)

    def element_size(self) -> int:
        return self.base.element_size()

    def untyped_storage(self) -> Any:
        return self.base.untyped_storage()

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base!r})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """``tensor`` with its memory read as elements of ``dtype`` (one of the language's), which must be as
    wide."""
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    return base if str(base.dtype).removeprefix("torch.") == dtype.base.name else TensorWrapper(base, dtype)


def set_allocator(allocator: Callable[[int, int, Any], Any]) -> None:
    """Accepted: ``allocator`` is for kernels that need scratch memory on the device, and ptxforge's need
    none."""


class InterpretedFunction:
    """What ``TRITON_INTERPRET=1`` makes of kernels in Triton. There is none here: kernels run in the
    emulator, with ``PTXFORGE_DEVICE=emulator``, as they are."""
