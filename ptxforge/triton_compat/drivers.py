"""``triton.runtime.driver`` and ``triton.backends``: which device kernels are made for, and by what."""

from __future__ import annotations

import hashlib
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from ptxforge.driver import cuda_api
from ptxforge.driver.arrays import torch_stream
from ptxforge.driver.cuda import CudaDevice, cuda_device
from ptxforge.runtime import compiler_state, options
from ptxforge.runtime.devices import default_device
from ptxforge.runtime.timing import FLUSH_BYTES, do_bench
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.runtime.variants import GPUTarget
from ptxforge.support import settings
from ptxforge.support.errors import ArgumentError, DeviceError
from ptxforge.support.target import parse_target

DEFAULTS = {
    "num_warps": 4, "num_stages": 3, "num_ctas": 1, "cluster_dims": (1, 1, 1), "warp_size": 32,
    "maxnreg": None, "debug": False, "enable_fp_fusion": True, "launch_cooperative_grid": False,
    "launch_pdl": False, "sanitize_overflow": True, "enable_reflect_ftz": True, "extern_libs": None,
    "arch": None, "backend_name": "cuda", "default_dot_input_precision": "tf32",
    "allowed_dot_input_precisions": ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
    "supported_fp8_dtypes": ("fp8e4b15", "fp8e4nv", "fp8e5"), "max_num_imprecise_acc_default": 0,
}  # fmt: skip


class Options(SimpleNamespace):
    """Compile options as attributes."""

    def hash(self) -> str:
        """A digest of all of them."""
        return hashlib.sha256(repr(sorted(self.__dict__.items())).encode()).hexdigest()


class BaseBackend:
    """What backends descend from."""


class Backend(BaseBackend):
    """The compiler for one target."""

    binary_ext = "cubin"

    def __init__(self, target: GPUTarget):
        self.target = target

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        """Whether kernels can be made for it."""
        return target.backend in ("cuda", "cpu")

    def hash(self) -> str:
        """A text that is another for every version of the compiler and every target."""
        return f"ptxforge-{compiler_state.digest()}-{self.target}"

    @staticmethod
    def parse_attr(text: str) -> list[list[Any]]:
        """An attribute of a specialised argument: ``"D"`` is divisible by 16."""
        return [["tt.divisibility", 16]] if "D" in text else []

    def load_dialects(self, context: Any) -> None:
        """Nothing to load."""

    def get_codegen_implementation(self, options: Any) -> dict[str, Any]:
        """Nothing that others could replace."""
        return {}

    def get_module_map(self) -> dict[str, Any]:
        """Nothing that others could replace."""
        return {}

    def parse_options(self, given: dict[str, Any]) -> Options:
        """The options with their defaults; those that ptxforge does not know are left out, as Triton does."""
        known = {name: value for name, value in given.items() if name in DEFAULTS}
        fuses = options.fuses(given.get("enable_fp_fusion"))
        return Options(**DEFAULTS | {"arch": f"sm_{self.target.arch}"} | known | {"enable_fp_fusion": fuses})


def make_backend(target: GPUTarget) -> Backend:
    """The backend for ``target``."""
    return Backend(target)


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


compiled: weakref.WeakValueDictionary[str, CompiledKernel] = weakref.WeakValueDictionary()
"""What ``triton.compile`` made and somebody holds, by hash."""


class Launcher:
    """The launch function of the kernel of which ``src`` and ``metadata`` are told: called with the grid, the
    stream, the function, and what :attr:`CompiledKernel.run` takes after it. Raises :class:`ArgumentError`
    for a kernel that nobody holds."""

    def __init__(self, src: Any, metadata: Any):
        wanted = metadata.get("hash") if isinstance(metadata, Mapping) else metadata.hash
        variants = [*getattr(src, "variants", ()), *filter(None, [compiled.get(wanted)])]
        found = next((variant for variant in variants if variant.hash == wanted), None)
        if found is None:
            raise ArgumentError(f"no kernel of {src!r} has the hash {wanted}", "metadata")
        self.launch, self.num_ctas = found.run, found.artifact.num_ctas

    def __call__(self, gridX: int, gridY: int, gridZ: int, stream: int, function: Any, *args: Any) -> None:
        self.launch(gridX, gridY, gridZ, stream, function, *args)


class Driver:
    """``triton.runtime.driver.active``."""

    utils = Utilities()
    launcher_cls = Launcher

    @staticmethod
    def is_active() -> bool:
        """Whether kernels can be compiled for it. True without a GPU, too: a compile worker has none."""
        return True

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

    def get_device_capability(self, ordinal: int = 0) -> tuple[int, int]:
        """Major and minor version, such as ``(9, 0)``."""
        return divmod(self.get_current_target().arch, 10)

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

    def map_python_to_cpp_type(self, ty: str) -> str:
        """The C type of a signature type: ``*fp32`` is ``CUdeviceptr``."""
        return "CUdeviceptr" if ty.startswith("*") else _C_TYPES[ty.partition(":")[0]]


_C_TYPES = {
    "i1": "int8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u1": "uint8_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "fp16": "double", "bf16": "double", "fp32": "double", "f32": "double", "fp64": "double",
}  # fmt: skip


class EmulatorDriver(Driver):
    """The emulator as the backend for CPU tensors: what Inductor's ``cpu_backend="triton"`` asks for."""

    @staticmethod
    def is_active() -> bool:
        """Whether ``PTXFORGE_DEVICE`` chooses the emulator."""
        return settings.DEVICE.get() == "emulator"

    def get_current_target(self) -> GPUTarget:
        """Kernels are the GPU's; ``backend`` says where they run."""
        return super().get_current_target()._replace(backend="cpu")

    def get_active_torch_device(self) -> Any:
        """``torch.device("cpu")``."""
        return sys.modules["torch"].device("cpu")


class Backends(Mapping[str, SimpleNamespace]):
    """``triton.backends.backends``: ``nvidia``, and ``cpu`` where ``PTXFORGE_DEVICE`` chooses the
    emulator."""

    _all = {
        "nvidia": SimpleNamespace(compiler=Backend, driver=Driver),
        "cpu": SimpleNamespace(compiler=Backend, driver=EmulatorDriver),
    }

    def _names(self) -> list[str]:
        return ["nvidia", "cpu"] if EmulatorDriver.is_active() else ["nvidia"]

    def __getitem__(self, name: str) -> SimpleNamespace:
        if name not in self._names():
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


class DriverConfig:
    """``triton.runtime.driver``: the ``active`` driver can be replaced. Each is made when it is asked for."""

    def __init__(self) -> None:
        self.reload()

    def reload(self) -> None:
        """Forget both drivers: what reloading the module of that name does."""
        self._default: Driver | None = None
        self._active: Driver | None = None

    @property
    def default(self) -> Driver:
        """The driver that is active unless another was set."""
        if self._default is None:
            self._default = Driver()
        return self._default

    @property
    def active(self) -> Driver:
        """The driver in use."""
        if self._active is None:
            self._active = self.default
        return self._active

    def set_active(self, driver: Driver) -> None:
        """Use another driver."""
        self._active = driver

    def reset_active(self) -> None:
        """Use the default one again."""
        self._active = self.default


driver = DriverConfig()


def max_shared_mem(device: int) -> int:
    """The bytes that a block may have."""
    return driver.active.utils.get_device_properties(device)["max_shared_mem"]
