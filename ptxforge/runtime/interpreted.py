"""The interpreter as a device: kernels run as tile IR, in numpy, one program after the other.

It is the slow and simple executor: no layouts, no PTX, no threads. What it has that no other device has is
``breakpoint()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from ptxforge import frontend, interpreter
from ptxforge.compiler import Artifact, Assembly, parameters_of
from ptxforge.driver.protocol import FunctionAttributes, natural_places
from ptxforge.interpreter.address_space import HostMemory
from ptxforge.ir import types as T
from ptxforge.ir.core import Function
from ptxforge.ir.ops.debug import Breakpoint
from ptxforge.ir.printer import print_function
from ptxforge.passes.analysis.roots import written_parameters
from ptxforge.support import settings
from ptxforge.support.errors import DeviceError, PtxforgeError
from ptxforge.support.target import DEFAULT_TARGET
from ptxforge.support.tracebacks import short

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction
    from ptxforge.runtime.variants import Key

_FRONTEND_OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "debug", "enable_fp_fusion", "sanitize_overflow",
    "enable_reflect_ftz",
)  # fmt: skip
_POISON = np.uint32(0xFFF5FDEF)
"""What fresh memory holds: a NaN in f32, f64, f16 and bf16, and an unlikely integer."""


@attrs.define(slots=True, eq=False)
class InterpretedKernel(Artifact):
    """A kernel as tile IR: ``function``; there is no PTX. ``namespace`` holds the globals of its source."""

    function: Function = attrs.field(default=None, kw_only=True, repr=False)
    namespace: dict[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)


def _compiled(kernel: JITFunction, key: Key) -> InterpretedKernel:
    options = {name: value for name, value in key.options.items() if name in _FRONTEND_OPTIONS}

    def built(steps: bool) -> Function:
        return frontend.build(
            kernel, key.signature, key.constants, target=key.target, steps=steps, **options
        )

    try:
        function = built(steps=False)
        if function.has(Breakpoint):
            function = built(steps=True)
    except PtxforgeError as error:
        raise short(error)  # noqa: B904 - `short` decides about the cause
    text = print_function(function)
    return InterpretedKernel(
        name=function.name, ptx="", target=key.target, num_warps=key.options["num_warps"],
        num_stages=key.options["num_stages"], num_ctas=key.options["num_ctas"], shared_bytes=0,
        parameters=parameters_of(function, key.signature), signature=dict(key.signature),
        constants=dict(key.constants), options=key.options | {"tensor_maps": False}, timings={},
        asm=Assembly({"tile": text}), stages=[("frontend", text)], written=written_parameters(function),
        promises=tuple(function.promises), function=function, namespace=kernel.fn.__globals__,
    )  # fmt: skip


class InterpreterDevice:
    """Runs kernels in the interpreter, on the arrays of the host."""

    name = "interpreter"
    multiprocessors = 1
    max_threads_per_block = 1024
    max_shared_bytes = 1 << 40
    warp_size = 32
    findings: tuple = ()

    def __init__(self) -> None:
        self.memory = HostMemory()
        self._owned: dict[int, np.ndarray] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.target}>"

    @property
    def target(self) -> str:
        """What kernels are told that they are compiled for."""
        return settings.TARGET.get() or DEFAULT_TARGET

    def allocate(self, nbytes: int) -> int:
        """The address of fresh bytes, which hold NaNs."""
        words = np.full(nbytes // 4 + 128, _POISON)
        start = -words.ctypes.data % 256
        data = words.view(np.uint8)[start : start + nbytes]
        address = self.memory.register(data)
        self._owned[address] = data
        return address

    def free(self, address: int) -> None:
        """Release what :meth:`allocate` gave."""
        self.memory.unregister(address)
        self._owned.pop(address, None)

    def copy_to_device(self, address: int, source: np.ndarray, stream: int = 0) -> None:
        """Copy a host array to ``address``. Raises :class:`InterpreterError` where there is no room."""
        source = np.ascontiguousarray(source)
        self.memory.bytes_at(address, source.nbytes)[:] = source.reshape(-1).view(np.uint8)

    def copy_to_host(self, destination: np.ndarray, address: int, stream: int = 0) -> None:
        """Fill a C-contiguous host array. Raises :class:`InterpreterError` where there is less."""
        destination.reshape(-1).view(np.uint8)[:] = self.memory.bytes_at(address, destination.nbytes)

    def register_host_array(self, array: np.ndarray) -> int:
        """The address under which kernels use a host array in place."""
        return self.memory.register(array)

    def unregister_host_array(self, address: int) -> None:
        """Forget a host array again."""
        self.memory.unregister(address)

    def encode_tensor_map(self, *tensor: Any, **how: Any) -> bytes:
        """Raises :class:`DeviceError`: kernels here take no tensor maps."""
        raise DeviceError("the interpreter has no tensor maps")

    def load_module(self, ptx: str) -> Any:
        """Raises :class:`DeviceError`: PTX is the emulator's."""
        raise DeviceError("the interpreter runs tile IR, and no PTX; PTXFORGE_DEVICE=emulator does")

    def compile(self, kernel: JITFunction, key: Key) -> InterpretedKernel:
        """A kernel as tile IR. Raises :class:`CompilationError` for one that is wrong."""
        return _compiled(kernel, key)

    def load_kernel(self, artifact: InterpretedKernel) -> InterpretedFunction:
        """The kernel, ready to run."""
        return InterpretedFunction(self, artifact)

    def synchronize(self, stream: int = 0) -> None:
        """Launches are finished when they return."""


class InterpretedFunction:
    """A kernel ready to run."""

    attributes = FunctionAttributes(0, 0, 1024)

    def __init__(self, device: InterpreterDevice, artifact: InterpretedKernel):
        self.name, self.device, self.artifact = artifact.name, device, artifact

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        stream: int,
        params: bytes,
    ) -> None:
        """Run the whole grid; returns when it is done. Raises :class:`InterpreterError` for what is wrong."""
        made = self.artifact
        values = _unpacked([argument.type for argument in made.function.arguments], params)
        seconds = float(settings.TIME_LIMIT.get())
        interpreter.run(
            made.function, grid, values, memory=self.device.memory, namespace=made.namespace,
            time_limit=seconds,
        )  # fmt: skip


def _unpacked(types: list[T.Type], params: bytes) -> list[Any]:
    """The values in a parameter buffer: each at its natural alignment, in order."""
    dtypes = [np.dtype(type.numpy) for type in types]
    places = natural_places(dtype.itemsize for dtype in dtypes)
    values = [np.frombuffer(params, dtype, 1, at)[0] for dtype, (at, _) in zip(dtypes, places)]
    return [int(v) if isinstance(t, T.PointerType) else v for t, v in zip(types, values, strict=True)]
