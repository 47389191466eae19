"""From a kernel and what it is compiled for to an artifact, out of the disk cache, else by compiling; and
from its PTX onto a device, by way of the machine code that an earlier process made of it.

The driver's assembler takes tens of milliseconds for a matrix product, again in every process, so what it
makes is kept on disk. The rule of which assembler works is in docs/caching.md: for a kernel that is loaded it
is the driver's own, which knows the very GPU that is there, unless ``PTXFORGE_ASSEMBLER`` names another; what
a newer one made and this driver refuses is made again by the driver, once.

The driver gives machine code away through its linker only, which heeds no ``setmaxnreg``
(:func:`~ptxforge.driver.jit.is_whole_program`). A text with these goes to the driver as it is, which keeps
the machine code itself, in its own cache; an empty entry in ours tells that it was there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from ptxforge import compiler
from ptxforge.compiler import Artifact
from ptxforge.driver.arrays import from_torch_dtype
from ptxforge.driver.device_array import element_type
from ptxforge.driver.jit import is_whole_program
from ptxforge.driver.protocol import Device, Module
from ptxforge.language.constexpr import unwrap
from ptxforge.language.types import dtype
from ptxforge.runtime import cache, devices, options, store, tools, variants
from ptxforge.runtime.assembled import remarks_of_assembler
from ptxforge.runtime.cache import FunctionPlace
from ptxforge.runtime.hooks import Compilation
from ptxforge.runtime.specialize import Parameter, Specialization, plain_scalar, pointer_to, specialize
from ptxforge.runtime.variants import Key
from ptxforge.support import settings
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import ArgumentError, DeviceError, PtxforgeError
from ptxforge.support.tracebacks import short

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction


def complete_signature(
    kernel: JITFunction, signature: dict[str, str], constants: dict[str, Any]
) -> dict[str, str]:
    """A type for every parameter, constants included. Raises :class:`ArgumentError` for one that has
    none."""
    for option, given in (("signature", signature), ("constants", constants)):
        if not isinstance(given, Mapping):
            raise ArgumentError(f"is a dictionary by parameter, not {given!r}", option)
    for name in (*signature, *constants):
        if name not in kernel.arg_names:
            near = options.nearest(str(name), kernel.arg_names)
            raise ArgumentError(f"'{kernel.__name__}' has no such parameter{near}", str(name))
    for name, kind in signature.items():
        if not isinstance(kind, str):
            raise ArgumentError(f"its type is a text such as '*fp32:16', not {kind!r}", name)
    for name, value in constants.items():
        constants[name] = plain_scalar(unwrap(value))
    complete = {}
    for parameter in kernel.params:
        name = parameter.name
        if parameter.variadic:
            raise ArgumentError("only a launch says how many arguments it stands for", f"*{name}")
        if name not in signature and name not in constants and parameter.has_default:
            constants[name] = parameter.default
        if name in constants or signature.get(name) == "constexpr":
            complete[name] = "constexpr"
        elif name in signature:
            complete[name] = signature[name]
        else:
            raise ArgumentError("has neither a type in the signature nor a constant", name)
        if complete[name] == "constexpr" and name not in constants:
            raise ArgumentError("is a constant without a value; give it in constants", name)
    return complete


def specialize_type(parameter: Parameter, value: Any) -> Specialization:
    """As for a launch; an element type stands for an array of it."""
    short = _pointee(value)
    if parameter.constexpr or short is None:
        return specialize(parameter, value)
    return Specialization(pointer_to(parameter, short, is_aligned=True))


def _pointee(value: Any) -> str | None:
    """The short name of an element type given as a type, ``None`` for anything else."""
    if isinstance(value, (DType, dtype)):
        return element_type(value).short
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return from_torch_dtype(value).short
    return (
        element_type(value).short
        if isinstance(value, type) or type(value).__name__.endswith("DType")
        else None
    )


log = logging.getLogger("ptxforge.cache")


def load_module(device: Device, ptx: str, kernel: str, target: str, given: bytes | None = None) -> Module:
    """The module of ``ptx`` on a device; machine code that is ``given`` is tried first. Raises
    :class:`DeviceError` with the assembler's log when the text is refused."""
    if not hasattr(device, "load_machine_code"):
        return device.load_module(ptx)
    if given is not None:
        try:
            return device.load_machine_code(given, ptx)
        except DeviceError as error:
            log.warning(
                "the machine code that came with '%s' is refused, assembling its PTX: %s", kernel, error
            )
    chosen = settings.ASSEMBLER.get() or "driver"
    if store.folder() is None and chosen == "driver":
        variants.check_assembling(kernel)
        cache.counters.assembled += 1
        return device.load_module(ptx)
    architecture = device.architecture if chosen == "driver" else target
    version = device.assembler if chosen == "driver" else tools.assembler_version(chosen)
    entry = cache.machine_name(ptx, architecture, version), architecture, version
    found = cache.load_machine_code(entry[0])
    if is_whole_program(ptx) and chosen != "ptxas":
        return _loaded_whole(device, ptx, kernel, found, entry)
    if found is not None:
        try:
            module = device.load_machine_code(found[0], ptx)
        except DeviceError as error:
            log.warning("the machine code of '%s' on disk is refused, assembling it again: %s", kernel, error)
        else:
            cache.counters.loaded += 1
            module.log = found[1]
            return module
    return _assembled(device, ptx, kernel, target, chosen, entry)


def _loaded_whole(
    device: Device, ptx: str, kernel: str, found: tuple[bytes, str] | None, entry: tuple[str, str, str]
) -> Module:
    """The module of a text that the driver assembles, or finds in its own cache."""
    if found is not None:
        cache.counters.loaded += 1
        module = device.load_module(ptx)
        module.log = module.log or found[1]
        return module
    variants.check_assembling(kernel)
    cache.counters.assembled += 1
    module = device.load_module(ptx)
    name, architecture, version = entry
    cache.store_machine_code(name, b"", kernel, architecture, version, _notes(module.log))
    return module


def _notes(log: str) -> str:
    """What is worth keeping of an assembler's log."""
    return "\n".join(tools.serialized_products(log))


def _assembled(
    device: Device, ptx: str, kernel: str, target: str, chosen: str, entry: tuple[str, str, str]
) -> Module:
    variants.check_assembling(kernel)
    cache.counters.assembled += 1
    logs = [""]
    try:
        cubin = device.cubin(ptx, logs) if chosen == "driver" else tools.assemble_with(chosen, ptx, target)
        module = device.load_machine_code(cubin, ptx)
    except DeviceError as error:
        module = device.load_module(ptx)  # the driver's short way has the last word, and its own error
        log.warning("the machine code of '%s' cannot be kept: %s", kernel, error)
        return module
    module.log = logs[-1]
    name, architecture, version = entry
    cache.store_machine_code(name, cubin, kernel, architecture, version, _notes(module.log))
    return module


def machine_code(ptx: str, kernel: str, target: str) -> bytes:
    """As :func:`tools.machine_code`, out of the disk cache when it was assembled before; ``kernel`` is the
    entry's name for readers."""
    if store.folder() is None:
        return tools.machine_code(ptx, target)
    version = tools.assembler_version(tools.assembler_for(ptx))
    name = cache.machine_name(ptx, target, version)
    found = cache.load_machine_code(name)
    if found and found[0]:
        cache.counters.loaded += 1
        return found[0]
    cubin = tools.machine_code(ptx, target)
    cache.counters.assembled += 1
    cache.store_machine_code(name, cubin, kernel, target, version)
    return cubin


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
        found.assembled = remarks_of_assembler
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
        settings.warn_of_unknown()
        try:
            made = compiler.compile_function(
            kernel,
            key.signature,
            key.constants,
            key.target,
            symbol=kernel.symbol(key.signature, key.constants),
            **key.options,
        )
        except PtxforgeError as error:
            raise short(error)  # noqa: B904 - `short` decides about the cause
    made.assembled = remarks_of_assembler
    return made
