"""The hooks of ``triton.knobs.runtime``, tied to those of ptxforge; and which arguments a kernel reads and
writes, told in the form of Triton's IR bindings.

torch.compile must know what a user's kernel changes. It asks Triton for the kernel's IR and walks it; of all
operations it looks for loads and stores, and from which parameters their addresses come. ptxforge knows the
answer (:attr:`Artifact.written`), so the module given here is a summary: one function, in which every
parameter that is an array is loaded from, and every one that the kernel may write is stored to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ptxforge.runtime import hooks
from ptxforge.runtime.precompile import specialization_data


class HookChain:
    """Functions that are called one after the other; ``reversed`` calls the last one first. False while it
    is empty."""

    def __init__(self, reversed: bool = False):
        self.calls: list[Callable[..., Any]] = []
        self.reversed = reversed

    def add(self, func: Callable[..., Any]) -> None:
        """Call it too, unless it is called already."""
        if func not in self.calls:
            self.calls.append(func)

    def remove(self, func: Callable[..., Any]) -> None:
        """Call it no longer."""
        if func in self.calls:
            self.calls.remove(func)

    def set(self, function: Callable[..., Any] | None) -> None:
        """Call it alone, or nothing."""
        for known in list(self.calls):
            self.remove(known)
        if isinstance(function, HookChain):
            for called in function.calls:
                self.add(called)
        elif function is not None:
            self.add(function)

    def __bool__(self) -> bool:
        return bool(self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        for function in self.calls[::-1] if self.reversed else list(self.calls):
            function(*args, **kwargs)


class LazyDict:
    """``data`` and what functions add when :meth:`get` asks for it: metadata that nobody may need."""

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.extras: list[tuple[Callable[..., dict[str, Any]], tuple]] = []

    def add(self, func: Callable[..., dict[str, Any]], args: tuple) -> None:
        """Have :meth:`get` add the items of ``func(*args)``."""
        self.extras.append((func, args))

    def get(self) -> dict[str, Any]:
        """All items."""
        for func, args in self.extras:
            self.data = self.data | func(*args)
        self.extras.clear()
        return self.data


class LaunchMetadata(LazyDict):
    """What a launch hook gets: ``get()`` tells the kernel's name, its function, the stream, and what the
    kernel's own ``launch_metadata`` says."""

    def __init__(self, launch: hooks.Launch):
        super().__init__({"name": launch.name, "function": launch.variant.function, "stream": launch.stream})
        self.add(lambda: launch.metadata, ())


class _KnownChain(HookChain):
    """In a list of ptxforge's own hooks, as ``entry``, while it is not empty: nobody pays for it else."""

    def __init__(self, before: bool, known: list, entry: Any):
        super().__init__(reversed=not before)
        self._known, self._entry = known, entry

    def add(self, func: Callable[..., Any]) -> None:
        """Call it too, unless it is called already."""
        super().add(func)
        if self._entry not in self._known:
            self._known.append(self._entry)

    def remove(self, func: Callable[..., Any]) -> None:
        """Call it no longer."""
        super().remove(func)
        if not self.calls and self._entry in self._known:
            self._known.remove(self._entry)


class LaunchChain(_KnownChain):
    """Called around every launch, with :class:`LaunchMetadata`."""

    def __init__(self, before: bool):
        tell = lambda launch: self(LaunchMetadata(launch))  # noqa: E731 - one function for either end
        entry = hooks.Hook(enter=tell) if before else hooks.Hook(exit=tell)
        super().__init__(before, hooks.LAUNCH, entry)


class LoadChain(_KnownChain):
    """Called before or after a kernel is loaded, with ``module``, ``function``, ``name``, ``metadata_group``
    (empty: there are no files behind a kernel) and ``hash``."""

    def __init__(self, before: bool):
        super().__init__(before, hooks.LOAD, self._tell)
        self._before = before

    def _tell(self, variant: Any, function: Any) -> None:
        if self._before == (function is None):
            self(function, function, variant.name, {}, variant.hash)


@attrs.frozen
class CompileTimes:
    """Microseconds that a new kernel took: up to the compiler, by stage, and to store it."""

    ir_initialization: int
    lowering_stages: list[tuple[str, int]]
    store_results: int

    @property
    def total_lowering(self) -> int:
        """All stages together; 0 for a kernel that was found on disk."""
        return sum(took for _, took in self.lowering_stages)

    @property
    def total(self) -> int:
        """Everything."""
        return self.ir_initialization + self.total_lowering + self.store_results


@attrs.frozen
class KernelInfo:
    """The kernel, as the hooks of compilation get it."""

    module: str
    name: str
    jit_function: Any


def tell_of_compilation(told: hooks.Compilation, runtime: Any, compilation: Any) -> None:
    """Call ``jit_cache_hook`` before, which declines by anything true, ``jit_post_compile_hook`` and the
    ``listener`` after."""
    hook = runtime.jit_cache_hook if told.variant is None else runtime.jit_post_compile_hook
    answer = hook(**_facts(told)) if hook is not None else None
    if told.variant is None and answer:
        told.declined = True
    if told.variant is not None and compilation.listener is not None:
        compilation.listener(
            src=told.kernel, metadata=told.variant.metadata._asdict(), metadata_group={}, times=_times(told),
            cache_hit=told.found,
        )  # fmt: skip


def _times(told: hooks.Compilation) -> CompileTimes:
    took = {name: max(1, round(1e6 * seconds)) for name, seconds in told.seconds.items()}
    stages = [("ptx", took["compile"])] if "compile" in took else []
    return CompileTimes(took.get("look up", 1), stages, took.get("store", 0))


def _facts(told: hooks.Compilation) -> dict[str, Any]:
    kernel, key = told.kernel, told.key
    info = KernelInfo(kernel.__module__, kernel.__qualname__, kernel)
    types = ", ".join(f"{name}: {kind}" for name, kind in key.signature.items())
    options = ", ".join(f"{name}={value}" for name, value in key.options.items())
    compiled = {
        "key": key.identity(), "signature": key.signature, "constants": key.constants,
        "constexprs": key.constants, "target": key.target, "is_warmup": not told.at_launch,
        "extern_libs": (), "specialization_data": specialization_data(kernel, key), **key.options,
    }  # fmt: skip
    return {
        "key": str(key.identity()), "repr": f"{kernel.__name__}[{options}]({types})", "fn": info,
        "compile": compiled, "is_manual_warmup": not told.at_launch, "already_compiled": False,
    }  # fmt: skip


class Chain:
    """An attribute that is a chain of hooks; assigning a function replaces what is in it, ``None`` empties
    it."""

    def __init__(self, chain: HookChain):
        self._chain = chain

    def __get__(self, group: Any, owner: type | None = None) -> HookChain:
        return self._chain

    def __set__(self, group: Any, function: Any) -> None:
        self._chain.set(function)


_numbers = itertools.count(1)


class Described:
    """Anything in Triton's IR: ``id()`` is its own number, ``get_x()`` what it has as ``x``; where that is a
    list, ``get_x(index)`` a member and ``get_num_xs()`` their number."""

    def __init__(self, **held: Any):
        number = next(_numbers)
        self.id = lambda: number
        for name, value in held.items():
            if isinstance(value, list):
                setattr(self, f"get_num_{name}s", value.__len__)
                setattr(self, f"get_{name}", value.__getitem__)
            else:
                setattr(self, f"get_{name}", lambda value=value: value)


def _operation(name: str, block: Described | None, operands=(), results=(), regions=()) -> Described:
    held = {"operand": [*operands], "result": [*results], "region": [*regions]}
    return Described(name=name, block=block, **held)


class Module:
    """The summary of a kernel called ``name`` whose parameters are ``parameters``: reads through ``read``,
    writes through ``written``."""

    def __init__(self, name: str, parameters: Sequence[str], read: Sequence[str], written: Sequence[str]):
        region = Described()
        body = Described(argument=[Described() for _ in parameters], parent=region)
        places = {parameter: body.get_argument(index) for index, parameter in enumerate(parameters)}
        loads = [_operation("tt.load", body, [places[name]], [Described()]) for name in read]
        stores = [_operation("tt.store", body, [places[name]]) for name in written]
        function = _operation("tt.func", None, regions=[region])
        function.get_str_attr = lambda attribute: name  # "sym_name"
        self._operations = [*loads, *stores, _operation("tt.return", body), function]

    def verify(self) -> bool:
        """It is well formed."""
        return True

    def walk(self, visit: Callable[[Described], None]) -> None:
        """Call ``visit`` with each operation, what is inside first."""
        for operation in self._operations:
            visit(operation)


class Context:
    """What Triton keeps types in. There is nothing to keep."""


def load_dialects(context: Context) -> None:
    """Nothing to load."""


def find_paths_if(values: Sequence[Any], accepts: Callable[[tuple, Any], bool]) -> list[tuple[int, ...]]:
    """The paths of the leaves of nested tuples and lists that ``accepts(path, leaf)``."""
    found: list[tuple[int, ...]] = []

    def look(path: tuple[int, ...], value: Any) -> None:
        if isinstance(value, (tuple, list)):
            for index, part in enumerate(value):
                look((*path, index), part)
        elif accepts(path, value):
            found.append(path)

    look((), list(values))
    return found


def get_iterable_path(values: Any, path: tuple[int, ...]) -> Any:
    """What lies at a path."""
    for index in path:
        values = values[index]
    return values
