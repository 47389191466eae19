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


class LaunchMetadata:
    """What a launch hook gets: ``get()`` tells the kernel's name, its function, the stream, and what the
    kernel's own ``launch_metadata`` says."""

    def __init__(self, launch: hooks.Launch):
        self._launch = launch

    def get(self) -> dict[str, Any]:
        """All facts by name."""
        launch = self._launch
        facts = {"name": launch.name, "function": launch.variant.function, "stream": launch.stream}
        return facts | launch.metadata

    @property
    def data(self) -> dict[str, Any]:
        """The same."""
        return self.get()


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


class LaunchChain(HookChain):
    """Called around every launch, with :class:`LaunchMetadata`. ptxforge knows of it only while it is not
    empty, so that launches pay for hooks only then."""

    def __init__(self, before: bool):
        super().__init__(reversed=not before)
        tell = lambda launch: self(LaunchMetadata(launch))  # noqa: E731 - one function for either end
        self._hook = hooks.Hook(enter=tell) if before else hooks.Hook(exit=tell)

    def add(self, function: Callable[..., Any]) -> None:
        """Call it too, unless it is called already."""
        super().add(function)
        if self._hook not in hooks.LAUNCH:
            hooks.LAUNCH.append(self._hook)

    def remove(self, function: Callable[..., Any]) -> None:
        """Call it no longer."""
        super().remove(function)
        if not self.calls:
            self._hook.remove()


class LoadChain(HookChain):
    """Called before or after a kernel is loaded, with ``module``, ``function``, ``name``, ``metadata_group``
    (empty: there are no files behind a kernel) and ``hash``."""

    def __init__(self, before: bool):
        super().__init__(reversed=not before)
        self._before = before

    def add(self, function: Callable[..., Any]) -> None:
        """Call it too, unless it is called already."""
        super().add(function)
        if self._tell not in hooks.LOAD:
            hooks.LOAD.append(self._tell)

    def remove(self, function: Callable[..., Any]) -> None:
        """Call it no longer."""
        super().remove(function)
        if not self.calls and self._tell in hooks.LOAD:
            hooks.LOAD.remove(self._tell)

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
    """Call ``jit_cache_hook`` before, ``jit_post_compile_hook`` and the ``listener`` after."""
    hook = runtime.jit_cache_hook if told.variant is None else runtime.jit_post_compile_hook
    if hook is not None:
        hook(**_facts(told))
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


class Numbered:
    """Anything with an identity: a value, a block, a region."""

    def __init__(self) -> None:
        self._id = next(_numbers)

    def id(self) -> int:
        """A number that nothing else has."""
        return self._id


class Block(Numbered):
    """A block with ``count`` arguments, the only one of its region."""

    def __init__(self, count: int):
        super().__init__()
        self._arguments = [Numbered() for _ in range(count)]
        self._region = Numbered()

    def get_num_arguments(self) -> int:
        return len(self._arguments)

    def get_argument(self, index: int) -> Numbered:
        return self._arguments[index]

    def get_parent(self) -> Numbered:
        return self._region


class Operation:
    """An operation of a block, by Triton's name for it."""

    def __init__(
        self,
        name: str,
        block: Block | None,
        operands: Sequence[Numbered] = (),
        results: Sequence[Numbered] = (),
        regions: Sequence[Numbered] = (),
        symbol: str = "",
    ):
        self._name, self._block, self._symbol = name, block, symbol
        self._operands, self._results, self._regions = operands, results, regions

    def get_name(self) -> str:
        return self._name

    def get_block(self) -> Block | None:
        return self._block

    def get_num_operands(self) -> int:
        return len(self._operands)

    def get_operand(self, index: int) -> Numbered:
        return self._operands[index]

    def get_num_results(self) -> int:
        return len(self._results)

    def get_result(self, index: int) -> Numbered:
        return self._results[index]

    def get_num_regions(self) -> int:
        return len(self._regions)

    def get_region(self, index: int) -> Numbered:
        return self._regions[index]

    def get_str_attr(self, name: str) -> str:
        """``sym_name``: the function's name."""
        return self._symbol


class Module:
    """The summary of a kernel called ``name`` whose parameters are ``parameters``: reads through ``read``,
    writes through ``written``."""

    def __init__(self, name: str, parameters: Sequence[str], read: Sequence[str], written: Sequence[str]):
        body = Block(len(parameters))
        places = {parameter: body.get_argument(index) for index, parameter in enumerate(parameters)}
        loads = [Operation("tt.load", body, [places[name]], [Numbered()]) for name in read]
        stores = [Operation("tt.store", body, [places[name]]) for name in written]
        function = Operation("tt.func", None, regions=[body.get_parent()], symbol=name)
        self._operations = [*loads, *stores, Operation("tt.return", body), function]

    def verify(self) -> bool:
        """It is well formed."""
        return True

    def walk(self, visit: Callable[[Operation], None]) -> None:
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
