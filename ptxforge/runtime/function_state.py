"""What programs that rewrite Triton's kernels read and set on a jitted function, and how one travels.

PyTorch's Inductor compiles a kernel in a worker, takes the Python function away (``fn``, ``__globals__``,
``used_global_vals``, ``repr``, ``_hash_lock``) and sends the rest to the process that launches. Without its
function a kernel travels by value: names, parameters, source. With it, it travels by name,
as functions do.

A kernel is what compiled code and loaded modules hang on, so a copy of it would be another kernel with
nothing compiled: ``copy`` and ``deepcopy`` give the kernel itself, and ``pickle`` writes the module and the
qualified name under which the other process finds it. What stands under that name may be the kernel, an
autotuner or heuristics around it, or the plain function that it was made of.

A kernel of a script is in the module ``__main__``. ``multiprocessing`` runs the script again in each process
that it spawns, under the same name; in the worker of any other pool the script's file is run here, once, as
``__mp_main__`` (so that ``if __name__ == "__main__"`` keeps its main part out).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import runpy
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from ptxforge.runtime.precompile import Compiled
from ptxforge.support.errors import ArgumentError, LaunchError
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

    @staticmethod
    def is_gluon() -> bool:
        """Whether it is written in Gluon: never."""
        return False

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


class TravelsByName:
    """A kernel: copies are the kernel itself, and a pickle names it."""

    def __copy__(self) -> TravelsByName:
        return self

    def __deepcopy__(self, memo: dict) -> TravelsByName:
        return self

    def __reduce__(self) -> tuple:
        return reduced(self)


def reduced(kernel: Any, remake: Callable | None = None, options: dict[str, Any] | None = None) -> tuple:
    """What ``__reduce__`` returns for ``kernel``.

    ``remake(function, **options)`` makes a kernel of the plain function that may stand under its name.
    Raises :class:`LaunchError` with the kernel's name when it cannot be found by that.
    """
    module, name = kernel.__module__, kernel.__qualname__
    script = getattr(sys.modules.get("__main__"), "__file__", None) if module == "__main__" else None
    found = _lookup(sys.modules.get(module), name)
    depth = 0
    while found is not None and found is not kernel:
        if remake is not None and found is _innermost(kernel):
            return _remade, (module, name, script, remake, options or {})
        found, depth = getattr(found, "fn", None), depth + 1
    if found is None:
        raise LaunchError(
            f"the kernel '{module}.{name}' cannot be pickled: another process would not find it under that "
            "name; define it at the top of a module, under the name of its function"
        )
    return _found, (module, name, script, depth)


def _innermost(kernel: Any) -> Any:
    while not isinstance(kernel, types.FunctionType) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel


def _lookup(module: Any, qualified_name: str) -> Any:
    found = module
    for name in qualified_name.split("."):
        found = getattr(found, name, None)
    return found


def _found(module: str, name: str, script: str | None, depth: int) -> Any:
    """The kernel below ``depth`` wrappers of what has that name in this process."""
    found = _object(module, name, script)
    for _ in range(depth):
        found = getattr(found, "fn", None)
    if found is None:
        raise LaunchError(
            f"the kernel '{module}.{name}' is another thing in this process: unwrapping it fails"
        )
    return found


def _remade(module: str, name: str, script: str | None, remake: Callable, options: dict[str, Any]) -> Any:
    key = (module, name, repr(options))
    if key not in _remade_kernels:
        _remade_kernels[key] = remake(_object(module, name, script), **options)
    return _remade_kernels[key]


_remade_kernels: dict[tuple, Any] = {}
"""One kernel for all that arrive under a name, so that it is compiled once."""


def _object(module: str, name: str, script: str | None) -> Any:
    found = _lookup(importlib.import_module(module), name)
    if found is None and script is not None:
        found = _lookup(_script(script), name)
    if found is None:
        raise LaunchError(f"the kernel '{module}.{name}' does not exist in this process")
    return found


@functools.cache
def _script(path: str) -> types.SimpleNamespace:
    """The names that a script defines, its main part left out."""
    return types.SimpleNamespace(**runpy.run_path(path, run_name="__mp_main__"))
