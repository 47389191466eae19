"""The variants of a kernel under Triton's names: to look at, to clear, to make from a text, to make again."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from ptxforge.language.constexpr import unwrap
from ptxforge.language.types import dtype
from ptxforge.runtime.devices import default_device
from ptxforge.runtime.variants import Key
from ptxforge.support.errors import ArgumentError, SpecializationError
from ptxforge.support.source_text import redefined, redefinition, remember

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction
    from ptxforge.runtime.variant import CompiledKernel


def specialization_data(kernel: JITFunction, key: Key) -> str:
    """A key as JSON, for :meth:`Preloading.preload` in another process. A constant that is neither a number,
    a text nor an element type, alone or in tuples, is told by its text and cannot be read back."""
    facts = {
        "name": f"{kernel.__module__}.{kernel.__qualname__}", "target": key.target,
        "signature": key.signature, "options": key.options,
        "constants": {name: _written(value) for name, value in key.constants.items()},
    }  # fmt: skip
    return json.dumps(facts)


def _written(value: Any) -> Any:
    value = unwrap(value)
    if isinstance(value, dtype):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return {"tuple": [_written(item) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"text": repr(value)}


def _read(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    (kind, content), *_ = value.items()
    if kind == "dtype":
        return dtype(content)
    if kind == "tuple":
        return tuple(_read(name, item) for item in content)
    raise ArgumentError(f"is {content}, which specialization data cannot hold", name)


class Caches:
    """``kernel.device_caches``: the same compiled kernels whatever device is asked for, because the target
    is part of their keys. ``clear()`` forgets them."""

    def __init__(self, kernel: JITFunction):
        self._kernel = kernel

    def __getitem__(self, device: Any) -> tuple[MutableMapping[tuple, CompiledKernel]]:
        own, apart = self._kernel._compiled, self._kernel.__dict__.get("_apart")
        inner = apart.kernels() if apart is not None else ()
        return (_All(own, *(kernel._compiled for kernel in inner)) if inner else own,)

    def __iter__(self) -> Iterator[int]:
        yield getattr(default_device(), "ordinal", 0)

    def __len__(self) -> int:
        return 1

    def clear(self) -> None:
        """Compile or look up on disk again at the next launch."""
        self[None][0].clear()


class _All(ChainMap):
    """Several tables as one."""

    def clear(self) -> None:
        """Clear all of them."""
        for table in self.maps:
            table.clear()


class Compiled(dict):
    """Compiled kernels by the identity of what they are for. Clearing it makes launches forget them, too."""

    def __init__(self, kernel: JITFunction):
        super().__init__()
        self._kernel = kernel

    def clear(self) -> None:
        """Forget all of them."""
        super().clear()
        for prepared in self._kernel._prepared:
            prepared.clear()


class Preloading:
    """The part of :class:`JITFunction` that this file is about."""

    @property
    def device_caches(self) -> Caches:
        """``[device][0]`` holds the compiled kernels (Triton's name)."""
        return Caches(self)  # type: ignore[arg-type] - a JITFunction

    def _unsafe_update_src(self, text: str) -> None:
        """Give the kernel another text, with the same parameters (Triton's name). What was compiled of it,
        and of the kernels that call it, is forgotten; copies that others hold stay as they are."""
        self.fn = redefined(self.fn, text)
        remember(self.fn)
        for name in ("src", "raw_src", "starting_line_number"):
            self.__dict__.pop(name, None)
        redefinition()

    def _apart_kernels(self) -> list[Any]:
        """The kernels behind launches with tuples, so far."""
        apart = self.__dict__.get("_apart")
        kernels = apart.kernels() if apart is not None else []
        own = self.arg_names  # type: ignore[attr-defined] - a JITFunction
        return [kernel for kernel in kernels if kernel.arg_names != own]

    def preload(self, specialization_data: str) -> CompiledKernel:
        """Compile what a text of :func:`specialization_data` tells, or find it on disk, without launching.
        Of a launch with tuples, after such a launch or warm-up only. Raises :class:`SpecializationError` for
        the text of another kernel."""
        facts = json.loads(specialization_data)
        name = f"{self.__module__}.{self.__qualname__}"  # type: ignore[attr-defined]
        if facts["name"] != name:
            raise SpecializationError(f"Specialization data is for {facts['name']}, not for {name}")
        for apart in self._apart_kernels():
            if apart.arg_names == list(facts["signature"]):
                return apart.preload(specialization_data)
        constants = {name: _read(name, value) for name, value in facts["constants"].items()}
        key = Key(facts["target"], facts["signature"], constants, facts["options"])
        return self._variant_of(key, default_device())  # type: ignore[attr-defined]
