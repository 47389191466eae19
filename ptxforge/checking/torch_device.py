"""torch's ``cuda`` device on a machine without a GPU: tensors stay on the CPU, where the emulator uses them.

:func:`install` changes torch when the program imports it, and never imports it itself. From then on tensors
are made and kept on the CPU wherever the program says ``cuda``, they say that they are on ``cuda:0``, and the
queries, streams and events of ``torch.cuda`` answer as for one idle GPU. (Streams order nothing here: a
launch on the emulator has ended when it returns.) What has no meaning on the CPU, such as capturing a graph,
stays as torch has it.

What of torch takes a device and does not pass through its function modes, for the mapped device.
"""

from __future__ import annotations

import contextlib
import functools
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

import attrs
import numpy as np

import ptxforge
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
    replace(mapped, mode)
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


@attrs.define(slots=True)
class Mapped:
    """torch's GPU and what stands for it: ``here`` is the CPU, ``there`` ``cuda:0``. ``tell`` is called when
    the program first names the GPU."""

    torch: Any
    tell: Callable[[], None]
    here: Any = attrs.field(init=False)
    there: Any = attrs.field(init=False)
    was_named: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self.here, self.there = self.torch.device("cpu"), self.torch.device("cuda:0")

    def named(self) -> None:
        """The program asks for the GPU."""
        if not self.was_named:
            self.was_named = True
            self.tell()

    def is_gpu(self, value: Any) -> bool:
        """Whether a value means the GPU, wherever it stands."""
        if isinstance(value, self.torch.device):
            return value.type == "cuda"
        return isinstance(value, str) and value.partition(":")[0] == "cuda"

    def on_cpu(self, device: Any) -> Any:
        """The CPU for the GPU, which a number means where a device is expected."""
        is_number = isinstance(device, int) and not isinstance(device, bool)
        if not is_number and not self.is_gpu(device):
            return device
        self.named()
        return self.here


def replace(mapped: Mapped, mode: Any) -> None:
    """Let the functions take the GPU for the CPU. ``mode`` is the hook of all others."""
    torch = mapped.torch
    for owner, name, make in (
        (torch, "Generator", _generator), (torch, "load", _load), (torch, "set_default_device", _default),
        (torch, "_C._nn._parse_to", _parsed), (torch, "autograd.graph._engine_run_backward", _backward),
        (torch, "autograd._engine_run_backward", _backward),
    ):  # fmt: skip
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part, None)
        if hasattr(owner, last):
            setattr(owner, last, make(getattr(owner, last), mapped, mode))
    if hasattr(torch, "accelerator"):
        _replace_accelerator(torch.accelerator, mapped)


def _generator(original: type, mapped: Mapped, mode: Any) -> type:
    """``torch.Generator``: of the GPU, one of the CPU."""

    class Kind(type(original)):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

    class Generator(original, metaclass=Kind):
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls, mapped.on_cpu(device))

    return Generator


def _load(original: Callable, mapped: Mapped, mode: Any) -> Callable:
    """``torch.load``: tensors that a file says were on a GPU come to the CPU."""

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *arguments: Any, **options: Any) -> Any:
        where = mapped.here if map_location is None else mapped.on_cpu(map_location)
        return original(f, where, *arguments, **options)

    return load


def _default(original: Callable, mapped: Mapped, mode: Any) -> Callable:
    """``torch.set_default_device``."""
    return functools.wraps(original)(lambda device: original(mapped.on_cpu(device)))


def _parsed(original: Callable, mapped: Mapped, mode: Any) -> Callable:
    """What ``torch.nn.Module.to`` makes of its arguments."""

    def parse(*arguments: Any, **options: Any) -> Any:
        if arguments:
            arguments = (mapped.on_cpu(arguments[0]), *arguments[1:])
        if "device" in options:
            options["device"] = mapped.on_cpu(options["device"])
        return original(*arguments, **options)

    return parse


def _backward(original: Callable, mapped: Mapped, mode: Any) -> Callable:
    """The engine behind ``backward`` and ``grad``, which calls the program's functions: with the mode, which
    torch takes off for the time of a call that passed through it."""

    @functools.wraps(original)
    def run(*arguments: Any, **options: Any) -> Any:
        with _entered(mapped.torch, mode):
            return original(*arguments, **options)

    return run


@contextlib.contextmanager
def _entered(torch: Any, mode: Any) -> Iterator[None]:
    if mode in torch.overrides._get_current_function_mode_stack():
        yield
    else:
        with mode:
            yield


def _replace_accelerator(accelerator: Any, mapped: Mapped) -> None:
    """``torch.accelerator``: one GPU."""

    def current_accelerator(*arguments: Any, **options: Any) -> Any:
        mapped.named()
        return mapped.torch.device("cuda")

    answers = {
        "current_accelerator": current_accelerator,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device_index": lambda: 0,
        "set_device_index": lambda device: None,
        "synchronize": lambda device=None: None,
    }
    for name, answer in answers.items():
        setattr(accelerator, name, answer)
