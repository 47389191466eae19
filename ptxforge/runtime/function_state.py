"""What programs that rewrite Triton's kernels read and set on a jitted function.

PyTorch's Inductor compiles a kernel in a worker, takes the Python function away (``fn``, ``__globals__``,
``used_global_vals``, ``repr``, ``_hash_lock``) and sends the rest to the process that launches. Without its
function a kernel travels by value: names, parameters, source. With it, it travels by name
(:mod:`ptxforge.runtime.pickling`).
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from ptxforge.runtime.preloading import Compiled
from ptxforge.support.errors import ArgumentError
from ptxforge.support.source_text import source_text

_TRAVELS = (
    "arg_names", "params", "src", "_cache_key", "__name__", "__qualname__", "__module__", "__doc__", "debug",
    "noinline", "version", "repr", "do_not_specialize", "do_not_specialize_on_alignment", "_options",
    "_shared_names",
)  # fmt: skip
_STAYS = {
    "fn": None, "__globals__": None, "used_global_vals": None, "_hash_lock": None, "launch_metadata": None,
}  # fmt: skip


def default_repr(kernel: Any) -> str:
    """The name of a kernel's specialisations, unless ``repr=`` says otherwise; of what a ``repr=`` gets, too,
    and nothing for ``None``: packages put names together."""
    return "" if kernel is None else getattr(kernel, "__name__", "") or kernel.name


class Specialized(NamedTuple):
    """What ``repr=`` is called with: the kernel's ``name`` and what one variant of it is compiled for."""

    name: str
    constants: dict[str, Any]
    signature: dict[str, str]
    fn: Any


class FunctionState:
    """The part of a jitted function that others read and replace."""

    fn: Callable[..., Any] | None
    arg_names: list[str]

    def _set_state(self, fn: Callable[..., Any]) -> None:
        self.__dict__["__globals__"] = fn.__globals__
        self.used_global_vals: dict[Any, Any] | None = {}
        self._hash_lock: Any = threading.RLock()
        self._cache_key = ""

    @property
    def constexprs(self) -> list[int]:
        """Positions of the parameters that are compiled in."""
        return [parameter.index for parameter in self.params if parameter.constexpr]

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The Python function's."""
        return inspect.signature(self.fn)

    def get_capture_scope(self) -> dict[str, Any]:
        """What the function can read from outside, by name: its globals, and the variables around it."""
        return self.fn.__globals__ | inspect.getclosurevars(self.fn).nonlocals

    @functools.cached_property
    def starting_line_number(self) -> int:
        """The line of ``def`` or of its first decorator."""
        return self.fn.__code__.co_firstlineno

    @functools.cached_property
    def raw_src(self) -> list[str]:
        """The lines of the source as they stand in the file, decorators included."""
        return source_text(self.fn).own_lines()

    def symbol(self, signature: dict[str, str], constants: dict[str, Any]) -> str:
        """The name of a variant in PTX that ``repr=`` asks for, with ``_`` in place of what a name there
        cannot have; empty for the kernel's own. ``repr`` gets the types as Triton spells them.

        Raises :class:`ArgumentError` for one that holds no name.
        """
        if self.repr is default_repr or self.is_bare():
            return ""
        types = {parameter: kind.partition(":")[0] for parameter, kind in signature.items()}
        name = str(self.repr(Specialized(self.__name__, dict(constants), types, self)))
        if not name or name[0].isdigit():
            raise ArgumentError(f"gives {name!r}, which cannot be the name of a kernel in PTX", "repr")
        return re.sub(r"[^\w$]", "_", name, flags=re.ASCII)

    def settle(self) -> None:
        """Find out what travels, which needs the Python function."""
        self.params, self.src, self.cache_key  # noqa: B018

    def is_bare(self) -> bool:
        """Whether the Python function was taken away."""
        return self.fn is None

    def bare_state(self) -> dict[str, Any]:
        """What travels of a function that was taken away."""
        return {name: self.__dict__[name] for name in _TRAVELS if name in self.__dict__}


def restored(kind: type, state: dict[str, Any]) -> Any:
    """A bare function of class ``kind`` with that state."""
    function = kind.__new__(kind)
    empty: dict[str, Any] = {
        "variants": [],
        "pre_run_hooks": [],
        "_plans": {},
        "_prepared": [],
        "_compiled": Compiled(function),
        "_globals": [],
    }
    function.__dict__.update(_STAYS | empty | state)
    return function
