"""torch's ``cuda`` device on a machine without a GPU: tensors stay on the CPU, where the emulator uses them.

:func:`install` changes torch when the program imports it, and never imports it itself. From then on tensors
are made and kept on the CPU wherever the program says ``cuda``, they say that they are on ``cuda:0``, and the
queries, streams and events of ``torch.cuda`` answer as for one idle GPU. (Streams order nothing here: a
launch on the emulator has ended when it returns.) What has no meaning on the CPU, such as capturing a graph,
stays as torch has it.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import ptxforge
from ptxforge.checking import torch_functions
from ptxforge.checking.torch_functions import Mapped
from ptxforge.driver import arrays
from ptxforge.emulator.memory import POISON
from ptxforge.runtime import lending
from ptxforge.runtime.devices import default_device

_OURS = (str(Path(ptxforge.__file__).parent), "<ptxforge")
"""How the files of ptxforge's own functions begin."""

MESSAGE = (
    "ptxforge: torch's 'cuda' device is mapped to the CPU, and kernels run on the emulator "
    "(--no-device-map leaves torch as it is)"
)


def install(tell: Callable[[str], None]) -> None:
    """Map the device from now on; ``tell`` gets :data:`MESSAGE` when the program first asks for ``cuda``."""
    _with_torch(lambda torch: _map(torch, tell))


@contextlib.contextmanager
def poison_empty() -> Iterator[None]:
    """Inside, tensors of ``torch.empty`` and its like hold :data:`POISON` until they are written."""
    modes, is_over = [], []

    def enter(torch: Any) -> None:
        if not is_over:  # torch may be imported for the first time long after
            modes.append(_poisoning(torch))
            modes[-1].__enter__()

    _with_torch(enter)
    try:
        yield
    finally:
        is_over.append(True)
        for mode in modes:
            mode.__exit__(None, None, None)


def _with_torch(change: Callable[[Any], None]) -> None:
    """Change torch now, or when the program imports it."""
    if "torch" in sys.modules:
        change(sys.modules["torch"])
        return
    found = next((finder for finder in sys.meta_path if isinstance(finder, _Finder)), None)
    if found is None:
        found = _Finder()
        sys.meta_path.insert(0, found)
    found.changes.append(change)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets Python find torch, and changes it once it is loaded."""

    def __init__(self) -> None:
        self.changes: list[Callable[[Any], None]] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of torch, with a loader that goes on to map its device."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                for change in self.changes:
                    change(module)

            spec.loader.exec_module = exec_module
        return spec


def _map(torch: Any, tell: Callable[[str], None]) -> None:
    mapped = Mapped(torch, lambda: tell(MESSAGE))
    mode = _mode(mapped)
    mode.__enter__()
    torch_functions.replace(mapped, mode)
    _replace_queries(torch, mapped.named)
    arrays.DEVICE_NAMES["cuda:0"] = "cpu"
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # torch.compile would compile for the CPU


def _mode(mapped: Mapped) -> Any:
    """The hook through which torch passes every call of its own functions."""
    torch, tensor = mapped.torch, mapped.torch.Tensor
    device_of, is_cuda = tensor.device.__get__, tensor.is_cuda.__get__
    known: dict[Any, Callable[..., Any]] = {
        device_of: lambda tensor: mapped.there,
        is_cuda: lambda tensor: True,
        tensor.get_device: lambda tensor: 0,
        tensor.data_ptr: lambda tensor: _address_of(torch, tensor),
        tensor.cuda: lambda tensor, *arguments, **options: mapped.named() or tensor,
        tensor.pin_memory: lambda tensor, *arguments, **options: tensor,
        torch.device: lambda *name, **options: _device(mapped, *name, **options),
    }

    class CudaOnCpu(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if func in known:
                return known[func](*args, **kwargs)
            if any(map(mapped.is_gpu, args)) or any(map(mapped.is_gpu, kwargs.values())):
                mapped.named()
                args = tuple(mapped.here if mapped.is_gpu(value) else value for value in args)
                kwargs = {
                    name: mapped.here if mapped.is_gpu(value) else value for name, value in kwargs.items()
                }
            if "device" in kwargs:
                kwargs["device"] = mapped.on_cpu(kwargs["device"])
            if func is tensor.to and len(args) > 1:
                args = (args[0], mapped.on_cpu(args[1]), *args[2:])
            kwargs.pop("pin_memory", None)
            return func(*args, **kwargs)

    return CudaOnCpu()


def _device(mapped: Mapped, *name: Any, **options: Any) -> Any:
    """``torch.device(…)``, of which a number alone means the GPU."""
    if len(name) == 1 and isinstance(name[0], int):
        name = ("cuda", *name)
    return mapped.torch.device(*name, **options)


def _address_of(torch: Any, tensor: Any) -> int:
    """The address of a tensor. A program that asks for it may put it in a table of pointers, which a kernel
    then follows: what it leads to is lent to the emulator, too."""
    address = tensor.data_ptr()
    caller = sys._getframe(2)
    while caller.f_code.co_name == "__torch_function__":  # of other modes
        caller = caller.f_back
    if not caller.f_code.co_filename.startswith(_OURS):
        storage = tensor.untyped_storage()
        alive = torch.multiprocessing.reductions.StorageWeakRef(storage)
        lending.pointed_at[storage.data_ptr()] = storage.nbytes(), lambda: not alive.expired()
    return address


def _on_host(tensor: Any) -> bool:
    device = str(tensor.device)
    return arrays.DEVICE_NAMES.get(device, device) == "cpu"


def _poisoning(torch: Any) -> Any:
    """The hook that fills what torch leaves as it finds it."""
    tensor = torch.Tensor
    makers = (
        torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted, tensor.new_empty,
        tensor.new_empty_strided,
    )  # fmt: skip

    class PoisonEmpty(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
        ) -> Any:
            made = func(*args, **kwargs or {})
            if func in makers and type(made) is tensor and _on_host(made):
                storage = made.untyped_storage()
                words = arrays.bytes_at(storage.data_ptr(), storage.nbytes() // 4 * 4).view(np.uint32)
                words[:] = POISON
            return made

    return PoisonEmpty()


class Event:
    """``torch.cuda.Event``: milliseconds of the host's clock."""

    def __init__(self, *arguments: Any, **options: Any):
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        self._at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this event to ``end``."""
        return 1e3 * (end._at - self._at)

    def synchronize(self) -> None:
        """Nothing is under way."""

    def wait(self, stream: Any = None) -> None:
        """Nothing is under way."""

    def query(self) -> bool:
        """Whether the event has happened: always."""
        return True


class Stream:
    """``torch.cuda.Stream``: launches have ended when they return, so that streams order nothing."""

    cuda_stream = 0
    device_index = 0

    def __init__(self, *arguments: Any, **options: Any):
        pass

    def synchronize(self) -> None:
        """Nothing is under way."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is under way."""

    def wait_event(self, event: Any) -> None:
        """Nothing is under way."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened now."""
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        """Whether all work is done: always."""
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *details: Any) -> None:
        pass


def _replace_queries(torch: Any, mapped: Callable[[], None]) -> None:
    """Answers of ``torch.cuda`` for one GPU of the emulator's kind."""
    stream = Stream()
    nothing = lambda *arguments, **options: None  # noqa: E731
    zero = lambda *arguments, **options: 0  # noqa: E731

    def is_available() -> bool:
        mapped()
        return True

    answers: dict[str, Any] = {
        "is_available": is_available,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: "ptxforge emulator",
        "get_device_capability": lambda device=None: _capability(),
        "get_device_properties": lambda device=None: _properties(),
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "stream": lambda stream: contextlib.nullcontext(stream),
        "device": lambda device: contextlib.nullcontext(device),
        "Stream": Stream,
        "Event": Event,
        "mem_get_info": lambda device=None: (_MEMORY, _MEMORY),
        "is_bf16_supported": lambda *arguments, **options: True,
        "is_initialized": lambda: True,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
    }
    answers |= dict.fromkeys(_ACTIONS, nothing) | dict.fromkeys(_AMOUNTS, zero)
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer if isinstance(answer, type) else _called(name, answer))
    for name in ("range_push", "range_pop", "mark"):
        if hasattr(torch.cuda, "nvtx"):
            setattr(torch.cuda.nvtx, name, _called(name, nothing))


def _called(name: str, answer: Callable) -> Callable:
    """A function of its own for each name: torch's compiler has tables by function."""

    def function(*arguments: Any, **options: Any) -> Any:
        return answer(*arguments, **options)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "torch.cuda"
    return function


_ACTIONS = (
    "synchronize", "set_device", "empty_cache", "init", "manual_seed", "manual_seed_all", "set_stream",
    "reset_peak_memory_stats", "ipc_collect",
)  # fmt: skip
_AMOUNTS = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
_MEMORY = 80 << 30
"""Bytes of memory that the mapped device claims."""


def _capability() -> tuple[int, int]:
    digits = int("".join(filter(str.isdigit, default_device().target)))
    return divmod(digits, 10)


def _properties() -> SimpleNamespace:
    device = default_device()
    major, minor = _capability()
    return SimpleNamespace(
        name="ptxforge emulator",
        major=major,
        minor=minor,
        multi_processor_count=device.multiprocessors,
        total_memory=_MEMORY,
        warp_size=device.warp_size,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=device.max_shared_bytes,
        shared_memory_per_multiprocessor=device.max_shared_bytes + 1024,
        regs_per_multiprocessor=65536,
        L2_cache_size=50 << 20,
        gcnArchName="",
    )
