"""Variants that are made before they are launched: a declared set, in several processes at once; variants
under Triton's names, to look at, to clear, to make from a text, to make again; and warm-ups that are compiled
by an executor while the program goes on, Triton's ``AsyncCompileMode``:

    with AsyncCompileMode(ThreadPoolExecutor()):
        for block in blocks:
            kernel.warmup(np.float32, block, grid=(1,))      # submitted
        kernel[(1,)](x, blocks[0])                           # waits for this one alone

Threads take turns in the compiler, which is Python; ``kernel.precompile`` compiles in processes.
"""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs

from ptxforge.language.constexpr import unwrap
from ptxforge.language.types import dtype
from ptxforge.runtime import cache, compiling, hooks, options, slots
from ptxforge.runtime.devices import default_device
from ptxforge.runtime.variants import Key, forbid_jit
from ptxforge.support import dtypes
from ptxforge.support.container import described
from ptxforge.support.errors import ArgumentError, LaunchError, OutOfResourcesError, SpecializationError
from ptxforge.support.source_text import redefined, redefinition, remember

if TYPE_CHECKING:
    from ptxforge.compiler import Artifact
    from ptxforge.driver.protocol import Device
    from ptxforge.runtime.jit import JITFunction
    from ptxforge.runtime.variant import CompiledKernel


_WORTH_PROCESSES = 24
"""With fewer variants, new processes take longer to start than the work takes here."""

Facts = tuple[dict[str, Any], dict[str, bytes]]


def run(
    kernel: JITFunction, declared: Iterable[dict[str, Any]], executor: concurrent.futures.Executor | None
) -> list[CompiledKernel]:
    """What :meth:`JITFunction.precompile` does."""
    device = default_device()
    items = declared if isinstance(declared, Iterable) else [declared]
    keys = [key_of(kernel, item, device.target) for item in items]
    wanted = {key.identity(): key for key in keys}
    found = _made(kernel, wanted, executor, device)
    without = [
        attrs.evolve(key, options=key.options | {"tensor_maps": False})
        for key, variant in zip(wanted.values(), found, strict=True)
        if variant.artifact.tensor_maps
    ]
    others = _made(kernel, {key.identity(): key for key in without}, executor, device)
    with forbid_jit(False):
        for variant in found:
            variant.function_on(device)
        for variant in others:  # for arguments that make no tensor map
            with suppress(OutOfResourcesError):
                variant.function_on(device)
    kernel._globals[:] = kernel.dependencies.values
    return found


def _made(
    kernel: JITFunction, wanted: dict[tuple, Key], executor: Executor | None, device: Device
) -> list[CompiledKernel]:
    """The variants for keys by what tells them apart; what is not there yet is compiled."""
    missing = [key for identity, key in wanted.items() if identity not in kernel._compiled]
    for key, artifact in zip(missing, artifacts(kernel, missing, executor), strict=True):
        kernel._keep(key, artifact, device)
    return [kernel._compiled[identity] for identity in wanted]


def key_of(kernel: JITFunction, item: dict[str, Any], target: str) -> Key:
    """What one declared variant is compiled for. Raises :class:`ArgumentError` for an item that is none."""
    values, types, given = split(kernel, item)
    made = {p.name: compiling.specialize_type(p, values[p.name]) for p in kernel.params if p.name in values}
    complete = {p.name: types.get(p.name) or made[p.name].type for p in kernel.params}
    constants = {name: found.constant for name, found in made.items() if found.is_constant}
    chosen = options.parse(kernel._with_defaults(given), target)
    return Key(target, complete, constants, dict(chosen.compile))


def artifacts(
    kernel: JITFunction, keys: Sequence[Key], executor: concurrent.futures.Executor | None = None
) -> list[Artifact]:
    """The artifacts for ``keys``, in their order, compiled by ``executor``; without one, by new processes
    where that is worth it, else here. Raises the first error of a compilation."""
    with _workers(kernel, len(keys), executor) as workers, progress(kernel.__name__, len(keys)) as step:
        if workers is None:
            return [_stepped(step, compiling.artifact_of(kernel, key)) for key in keys]
        futures = [workers.submit(work, kernel, key) for key in keys]
        for future in concurrent.futures.as_completed(futures):
            future.result()  # the first error, as soon as it is known
            step()
        return [_artifact(kernel, key, future.result()) for key, future in zip(keys, futures, strict=True)]


def _stepped(step: Callable[[], None], made: Artifact) -> Artifact:
    step()
    return made


def work(kernel: JITFunction, key: Key) -> Facts:
    """What a worker does: an artifact as plain data, which is kept on disk there."""
    return described(compiling.artifact_of(kernel, key))


def _artifact(kernel: JITFunction, key: Key, facts: Facts) -> Artifact:
    made = cache.restore(*facts, lambda: compiling.compiled(kernel, key))
    made.constants.update(key.constants)
    return made


@contextmanager
def _workers(
    kernel: JITFunction, count: int, executor: concurrent.futures.Executor | None
) -> Iterator[concurrent.futures.Executor | None]:
    cores = os.cpu_count() or 1
    if executor is not None or count < _WORTH_PROCESSES or cores < 2 or not _travels(kernel):
        yield executor
        return
    spawning = multiprocessing.get_context("spawn")  # a forked process must not use the parent's CUDA context
    with concurrent.futures.ProcessPoolExecutor(min(cores, count), mp_context=spawning) as pool:
        yield pool


def _travels(kernel: JITFunction) -> bool:
    try:
        pickle.dumps(kernel)
    except (LaunchError, pickle.PicklingError):
        return False
    return True


@contextmanager
def progress(name: str, count: int) -> Iterator[Callable[[], None]]:
    """A line on the terminal that each call of the result moves; none where nobody looks."""
    if not shows_progress():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"compiling {name}", total=count)
        yield lambda: bar.advance(task)


def shows_progress() -> bool:
    """Whether somebody is looking: standard error is a terminal, and this is no CI."""
    return sys.stderr.isatty() and not os.environ.get("CI")


def _checked(kind: str, name: str) -> str:
    """A signature type. Raises :class:`ArgumentError` for text that is none."""
    try:
        slots.code_of(kind)
        if kind.startswith("*"):
            dtypes.parse(kind.lstrip("*k").partition(":")[0])
    except (ArgumentError, KeyError):
        raise ArgumentError(f"'{kind}' is not a type of a kernel's parameter", name) from None
    return kind


def split(kernel: JITFunction, declared: Any) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """One item of :meth:`JITFunction.precompile` as values by parameter, types by parameter, and options.

    Raises :class:`ArgumentError` for an item that is no dictionary and for a parameter that it leaves out.
    """
    if not isinstance(declared, dict):
        raise ArgumentError(
            "a variant is declared by a dictionary of parameters and options, such as "
            f"{{'x': '*fp32:16', 'BLOCK': 128, 'num_warps': 4}}, not by {declared!r}"
        )
    values, types = {}, {}
    for parameter in kernel.params:
        name = parameter.name
        if name not in declared and not parameter.has_default:
            raise ArgumentError("has neither a type nor a value in the declared variant", name)
        value = declared.get(name, parameter.default)
        if isinstance(value, str) and not parameter.constexpr:
            types[name] = _checked(value, name)
        else:
            values[name] = value
    return values, types, {name: value for name, value in declared.items() if name not in kernel.arg_names}


class FutureKernel:
    """A kernel that an executor compiles; who asks for the result first makes it a variant of the kernel.
    Reading an attribute of the compiled kernel asks, too."""

    def __init__(self, future: Future, keep: Callable[[Artifact], CompiledKernel]):
        self._future, self._keep = future, keep

    def result(self, ignore_errors: bool = False) -> Any:
        """The compiled kernel. Raises what compiling raised, or is ``None`` then."""
        if ignore_errors and self._future.exception() is not None:
            return None
        return self._keep(self._future.result())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.result(), name)


class AsyncCompileMode:
    """Inside a ``with`` block of it, ``warmup`` submits to ``executor``, each variant once. Its end waits for
    all and raises the first error, unless ``ignore_errors``."""

    def __init__(self, executor: Executor, ignore_errors: bool = False):
        self.executor, self.ignore_errors = executor, ignore_errors
        self._submitted: dict[tuple, FutureKernel] = {}
        self._token: Token | None = None

    def __enter__(self) -> AsyncCompileMode:
        self._token = _active.set(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._token is not None:
            _active.reset(self._token)
        if error is None:
            for kernel in self._submitted.values():
                kernel.result(self.ignore_errors)

    def submit(self, kernel: JITFunction, key: Key, device: Device) -> FutureKernel:
        """Have a variant compiled, unless that is under way."""
        name = (id(kernel), key.identity())
        if name not in self._submitted:
            future = self.executor.submit(compiling.artifact_of, kernel, key)
            keep = lambda artifact: kernel._variant_of(key, device, made=artifact)  # noqa: E731 - one call
            self._submitted[name] = FutureKernel(future, keep)
        return self._submitted[name]

    def wait(self, kernel: JITFunction, key: Key) -> CompiledKernel | None:
        """The variant, where it was submitted."""
        found = self._submitted.get((id(kernel), key.identity()))
        return None if found is None else found.result()


_active: ContextVar[AsyncCompileMode | None] = ContextVar("ptxforge_async_compile", default=None)


def active() -> AsyncCompileMode | None:
    """The innermost mode that this thread is in."""
    return _active.get()


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

    def preload(self, specialization_data: str) -> CompiledKernel | None:
        """Compile what a text of :func:`specialization_data` tells, or find it on disk, without launching.
        Of a launch with tuples, after such a launch or warm-up only. ``None`` where a hook declines. Raises
        :class:`SpecializationError` for the text of another kernel."""
        facts = json.loads(specialization_data)
        name = f"{self.__module__}.{self.__qualname__}"  # type: ignore[attr-defined]
        if facts["name"] != name:
            raise SpecializationError(f"Specialization data is for {facts['name']}, not for {name}")
        for apart in self._apart_kernels():
            if apart.arg_names == list(facts["signature"]):
                return apart.preload(specialization_data)
        constants = {name: _read(name, value) for name, value in facts["constants"].items()}
        key = Key(facts["target"], facts["signature"], constants, facts["options"])
        with suppress(hooks.DeclinedError):
            return self._variant_of(key, default_device())  # type: ignore[attr-defined]
        return None
