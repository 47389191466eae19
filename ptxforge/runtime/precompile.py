"""Compiling a declared set of variants, in several processes at once."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ptxforge.runtime import ahead, cache, compiling, options, packing
from ptxforge.runtime.devices import default_device
from ptxforge.runtime.variants import Key, forbid_jit
from ptxforge.support import dtypes
from ptxforge.support.artifact_facts import described
from ptxforge.support.errors import ArgumentError, LaunchError

if TYPE_CHECKING:
    from ptxforge.compiler import Artifact
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
    keys = [key_of(kernel, item, device.target) for item in declared]
    wanted = {key.identity(): key for key in keys}
    missing = [key for identity, key in wanted.items() if identity not in kernel._compiled]
    for key, artifact in zip(missing, artifacts(kernel, missing, executor), strict=True):
        kernel._keep(key, artifact, device)
    found = [kernel._compiled[identity] for identity in wanted]
    with forbid_jit(False):
        for variant in found:
            variant.function_on(device)
    kernel._globals[:] = kernel.dependencies.values
    return found


def key_of(kernel: JITFunction, item: dict[str, Any], target: str) -> Key:
    """What one declared variant is compiled for. Raises :class:`ArgumentError` for an item that is none."""
    values, types, given = split(kernel, item)
    made = {p.name: ahead.specialize_type(p, values[p.name]) for p in kernel.params if p.name in values}
    complete = {p.name: types.get(p.name) or made[p.name].type for p in kernel.params}
    constants = {name: found.constant for name, found in made.items() if found.is_constant}
    chosen = options.parse(kernel._with_defaults(given))
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
        packing.code_of(kind)
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
