"""From a kernel and what it is compiled for to an artifact: out of the disk cache, else by compiling."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import attrs

from ptxforge import compiler
from ptxforge.compiler import Artifact
from ptxforge.driver.protocol import Device
from ptxforge.runtime import cache, devices, variants
from ptxforge.runtime.hooks import Compilation
from ptxforge.runtime.places import FunctionPlace
from ptxforge.runtime.tracebacks import short
from ptxforge.runtime.variants import Key
from ptxforge.support import settings
from ptxforge.support.errors import PtxforgeError

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction

_one_at_a_time = threading.RLock()
"""Two threads that compile at once would only take turns, under the interpreter's lock."""


def for_device(key: Key, device: Device | None) -> Key:
    """The key of a variant on a device: the interpreter's are kernels of another kind."""
    if not hasattr(device, "load_kernel"):
        return key
    return attrs.evolve(key, options=key.options | {"interpreted": True})


def artifact_of(
    kernel: JITFunction, key: Key, at_launch: bool = False, told: Compilation | None = None
) -> Artifact:
    """The artifact for ``key``; how it was made is noted in ``told``. Raises :class:`JITForbiddenError` when
    it has to be compiled ``at_launch`` and must not be."""
    settings.warn_of_unknown()
    if key.options.get("interpreted"):
        return devices.device("interpreter").compile(kernel, key)
    start = time.perf_counter()
    told = told or Compilation(kernel, key, at_launch)
    looks = bool(settings.STOP_AFTER.get() or settings.DUMP.get())
    kept = cache.folder() is not None and not looks
    name = _name(kernel, key) if kept else ""
    places = _places(kernel, key) if kept else ()
    found = cache.load(name, lambda: compiled(kernel, key), places) if kept else None
    told.found, looked = found is not None, time.perf_counter()
    told.seconds["look up"] = looked - start
    if found is not None:
        found.constants.update(key.constants)
        variants.note(kernel.__name__, key, kernel.variants, time.perf_counter() - start, "found on disk")
        return found
    if at_launch:
        variants.check_allowed(kernel.__name__, key, kernel.variants)
    made = compiled(kernel, key)
    told.seconds["compile"] = time.perf_counter() - looked
    if kept:
        cache.store_artifact(name, made, places)
        told.seconds["store"] = time.perf_counter() - looked - told.seconds["compile"]
    variants.note(kernel.__name__, key, kernel.variants, time.perf_counter() - start, "compiled")
    return made


def _name(kernel: JITFunction, key: Key) -> str:
    symbol = kernel.symbol(key.signature, key.constants)
    text = kernel.dependencies.text + (f"\n# called {symbol}" if symbol else "")
    return cache.key(text, key.signature, key.constants, key.target, key.options)


def _places(kernel: JITFunction, key: Key) -> list[FunctionPlace]:
    """Where all functions stand that the code is made of, those that are constants included."""
    constants = [getattr(value, "dependencies", None) for _, value in sorted(key.constants.items())]
    given = [dependencies.places for dependencies in constants if dependencies is not None]
    return [place for places in (kernel.dependencies.places, *given) for place in places]


def compiled(kernel: JITFunction, key: Key) -> Artifact:
    """Compile, whatever is on disk. Raises :class:`CompilationError` for a kernel that is wrong."""
    with _one_at_a_time:
        cache.counters.compiled += 1
        try:
            return compiler.compile_function(
            kernel,
            key.signature,
            key.constants,
            key.target,
            symbol=kernel.symbol(key.signature, key.constants),
            **key.options,
        )
        except PtxforgeError as error:
            raise short(error)  # noqa: B904 - `short` decides about the cause
