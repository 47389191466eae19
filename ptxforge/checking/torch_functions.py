"""What of torch takes a device and does not pass through its function modes, for the mapped device."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import attrs


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
