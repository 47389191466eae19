"""What Triton's host side offers beside kernels: facts about the device, and tensors seen as another type."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from ptxforge.driver import cuda_api
from ptxforge.driver.arrays import torch_stream
from ptxforge.driver.cuda import CudaDevice, cuda_device
from ptxforge.runtime.devices import default_device
from ptxforge.runtime.timing import FLUSH_BYTES, do_bench
from ptxforge.support.errors import DeviceError
from ptxforge.support.target import parse_target


class GPUTarget(NamedTuple):
    """``backend`` is ``"cuda"``; ``arch`` the compute capability times ten, such as 90."""

    backend: str
    arch: int
    warp_size: int


class Utilities:
    """``driver.active.utils``."""

    def get_device_properties(self, ordinal: int = 0) -> dict[str, int]:
        """Limits and clocks (kHz) of a device, under Triton's names."""
        device = cuda_device(ordinal) if cuda_api.device_count() else default_device()
        facts = {
            "multiprocessor_count": device.multiprocessors,
            "max_shared_mem": device.max_shared_bytes,
            "warpSize": device.warp_size,
            "max_num_regs": 65536,
        }
        if isinstance(device, CudaDevice):
            facts |= {
                "sm_clock_rate": device.attribute("CLOCK_RATE"),
                "mem_clock_rate": device.attribute("MEMORY_CLOCK_RATE"),
                "mem_bus_width": device.attribute("GLOBAL_MEMORY_BUS_WIDTH"),
            }
        return facts


class ActiveDriver:
    """``triton.runtime.driver.active``."""

    utils = Utilities()

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for on the default device."""
        return GPUTarget("cuda", parse_target(default_device().target).sm, 32)

    def get_current_device(self) -> int:
        """The number of the current GPU: torch's, where torch uses one."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return torch.cuda.current_device()
        return getattr(default_device(), "ordinal", 0)

    def set_current_device(self, ordinal: int) -> None:
        """Make a GPU torch's current one."""
        self.get_device_interface().set_device(ordinal)

    def get_current_stream(self, ordinal: int = 0) -> int:
        """The handle of the stream that launches are queued on."""
        torch = sys.modules.get("torch")
        return torch_stream(ordinal) if torch is not None and torch.cuda.is_initialized() else 0

    def get_device_interface(self) -> ModuleType:
        """``torch.cuda``. Raises :class:`DeviceError` when torch is not imported."""
        if "torch" not in sys.modules:
            raise DeviceError("the device interface is torch.cuda, and torch is not imported")
        return sys.modules["torch"].cuda

    def get_active_torch_device(self) -> Any:
        """The ``torch.device`` that tensors for kernels go to. Raises :class:`DeviceError` without torch."""
        if "torch" not in sys.modules:
            raise DeviceError("torch is not imported")
        where = f"cuda:{self.get_current_device()}" if isinstance(default_device(), CudaDevice) else "cpu"
        return sys.modules["torch"].device(where)

    def get_benchmarker(self) -> Callable[..., Any]:
        """``do_bench``."""
        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """A buffer larger than the L2 cache; :meth:`clear_cache` overwrites it."""
        torch = sys.modules.get("torch")
        if torch is None:
            raise DeviceError("torch is not imported")
        return torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=self.get_active_torch_device())

    def clear_cache(self, buffer: Any) -> None:
        """Flush the L2 cache."""
        buffer.zero_()


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
