"""What Triton's host side offers beside kernels: tensors seen as another type, and smaller names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxforge.runtime.specialize import Parameter, specialize
from ptxforge.support.errors import PtxforgeError


class TensorWrapper:
    """A tensor whose elements are read as ``dtype``; see :func:`reinterpret`."""

    def __init__(self, base: Any, dtype: Any):
        self.base, self.dtype = base, dtype
        self.data, self.shape, self.device = getattr(base, "data", base), base.shape, base.device

    @property
    def is_cuda(self) -> bool:
        """Whether it lies on a GPU."""
        return self.base.is_cuda

    def data_ptr(self) -> int:
        return self.base.data_ptr()

    def stride(self, *axis: int) -> Any:
        return self.base.stride(*axis)

    def numel(self) -> int:
        return self.base.numel()

    def dim(self) -> int:
        return self.base.dim()

    def element_size(self) -> int:
        return self.base.element_size()

    def untyped_storage(self) -> Any:
        return self.base.untyped_storage()

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(self.base.cpu(), self.dtype)

    def clone(self) -> TensorWrapper:
        return TensorWrapper(self.base.clone(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def new_empty(self, *sizes: Any) -> TensorWrapper:
        return TensorWrapper(self.base.new_empty(*sizes), self.dtype)

    def copy_(self, other: TensorWrapper) -> None:
        self.base.copy_(other.base)

    def __repr__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base!r})"


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """``tensor`` with its memory read as elements of ``dtype`` (one of the language's, or of torch's), which
    must be as wide."""
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    name = str(dtype.base.name if hasattr(dtype, "base") else dtype)
    same = str(base.dtype).removeprefix("torch.") == name.removeprefix("torch.")
    return base if same else TensorWrapper(base, dtype)


class MockTensor:
    """A tensor's element type without a tensor, for ``kernel.warmup``; its memory is aligned."""

    ptr_range = staticmethod(lambda: 0)

    def __init__(self, dtype: Any, shape: Any = None):
        self.dtype, self.shape = dtype, [1] if shape is None else shape
        self.device = "cpu"

    @staticmethod
    def wrap_dtype(value: Any) -> Any:
        """A mock tensor of an element type of torch; anything else itself."""
        is_type = type(value).__name__ == "dtype" and type(value).__module__ == "torch"
        return MockTensor(value) if is_type else value

    @staticmethod
    def data_ptr() -> int:
        return 0


def set_allocator(allocator: Callable[[int, int, Any], Any]) -> None:
    """Accepted: ``allocator`` is for kernels that need scratch memory on the device, and ptxforge's need
    none."""


class NullAllocator:
    """The allocator of a program that set none."""

    def __call__(self, size: int, alignment: int, stream: int | None) -> Any:
        """Raises :class:`PtxforgeError`: there is nothing to allocate with."""
        raise PtxforgeError("no allocator was set; call triton.set_allocator")


class InterpretedFunction:
    """What ``TRITON_INTERPRET=1`` makes of kernels in Triton. There is none here: kernels run in the
    emulator, with ``PTXFORGE_DEVICE=emulator``, as they are."""


def must_use_result(function: Any, required: bool | str = True) -> Any:
    """Mark a function that kernels call: a call whose result nobody uses is an error. A text (instead of the
    function, as a decorator with an argument) is added to the error."""
    if isinstance(function, str):
        return lambda marked: must_use_result(marked, function)
    function.__triton_must_use_result__ = required
    return function


def native_specialize_impl(
    backend: Any, value: Any, is_const: bool = False, specialize_value: bool = True, align: bool = True
) -> tuple[str, str | None]:
    """``(type, key)`` of an argument: the key is ``"D"`` when 16 divides it."""
    parameter = Parameter(name="value", index=0, const=is_const, alignment=align, ones=specialize_value)
    kind, _, divisor = specialize(parameter, value).type.partition(":")
    return kind, "D" if divisor else None


def mangle_type(value: Any, specialized: bool = False) -> str:
    """The signature type of an argument: ``*fp32``, ``i32``, ``constexpr`` for ``None``."""
    return native_specialize_impl(None, value, False, specialized, False)[0]
