"""Kernels around kernels, and those that compute constants from the arguments of each launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ptxforge.compiler import Assembly
from ptxforge.runtime.config import check_kinds
from ptxforge.runtime.function_state import TravelsByName
from ptxforge.runtime.jit import JITFunction, KernelInterface
from ptxforge.support import markup
from ptxforge.support.errors import ArgumentError


class Wrapper(TravelsByName, KernelInterface):
    """A kernel around a kernel: an autotuner or heuristics, in either order. ``fn`` is the inner one."""

    def __init__(self, fn: KernelInterface):
        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.arg_names = fn.arg_names

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.base_fn.__module__}.{self.base_fn.__qualname__}>"

    def _repr_html_(self) -> str:
        """For notebooks: the kernel at the bottom."""
        return markup.table([("kernel", repr(self))]) + self.base_fn._repr_html_()

    @property
    def base_fn(self) -> JITFunction:
        """The jitted function at the bottom."""
        return self.fn.base_fn if isinstance(self.fn, Wrapper) else self.fn

    def named(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name."""
        return dict(zip(self.arg_names, args, strict=False)) | kwargs

    @property
    def asm(self) -> Assembly:
        """The texts of the newest variant."""
        return self.base_fn.asm

    @property
    def variants(self) -> list:
        """What was compiled, oldest first."""
        return self.base_fn.variants


def names_of(kernel: Any, decorator: str) -> list[str]:
    """The parameters of what a decorator stands above. Raises :class:`ArgumentError` when that is no
    kernel."""
    if not hasattr(kernel, "arg_names"):
        name = getattr(kernel, "__name__", repr(kernel))
        raise ArgumentError(f"'{name}' is no kernel: @ptxforge.{decorator} stands above @ptxforge.jit")
    return kernel.arg_names


class Heuristics(Wrapper):
    """A kernel with some arguments computed from the others; made by :func:`heuristics`."""

    def __init__(self, fn: KernelInterface, arg_names: list[str], values: dict[str, Callable[[dict], Any]]):
        super().__init__(fn)
        self.arg_names = list(arg_names)
        self.values = values
        check_kinds(Mapping, heuristics=values)
        check_kinds(Callable, **{f"the heuristic of '{name}'": value for name, value in values.items()})

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Compute the values, in order, and launch."""
        return self.fn.run(*args, grid=grid, warmup=warmup, **self._complete(args, kwargs))

    def bind(self, grid: Any, *args: Any, **kwargs: Any) -> Any:
        """A launch with its arguments fixed; the values are computed once."""
        return self.fn.bind(grid, *args, **self._complete(args, kwargs))

    def warmup(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        """Compile without launching."""
        return self.fn.warmup(*args, grid=grid, **self._complete(args, kwargs))

    def _complete(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        for name, value in self.values.items():
            kwargs[name] = value(self.named(args, kwargs))
        return kwargs


def heuristics(values: dict[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Compute arguments from the others at each launch.

    ``@heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})`` above ``@jit``. Each function gets
    a dictionary of the arguments by name, those computed before it included.
    """

    def decorate(fn: KernelInterface) -> Heuristics:
        return Heuristics(fn, names_of(fn, "heuristics"), values)

    return decorate
