"""The table of modules that :func:`~ptxforge.triton_compat.install` registers, and where their contents come
from."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from ptxforge import language
from ptxforge.language.registry import ConstexprFunction, constexpr_function
from ptxforge.runtime import (
    arithmetic,
    asynchronous,
    autotune,
    heuristics,
    jit,
    metadata,
    ragged,
    specialize,
    tensor_descriptor,
    variant,
)
from ptxforge.support import errors
from ptxforge.triton_compat import (
    accesses,
    backend,
    compiler,
    cublas,
    disasm,
    drivers,
    extensions,
    filecheck,
    files,
    host,
    internal_testing,
    knobs,
    language_names,
    mxfp,
    profiler,
    target_info,
    testing,
    viewer,
)
from ptxforge.triton_compat.alias import VERSION, Source

_ERRORS = {
    "TritonError": errors.PtxforgeError,
    "CompilationError": errors.CompilationError,
    "CompileTimeAssertionFailure": errors.CompileTimeAssertionError,
    "UnsupportedLanguageConstruct": errors.UnsupportedSyntaxError,
    "OutOfResources": errors.OutOfResourcesError,
    "PTXASError": errors.DeviceError,
    "AutotunerError": errors.AutotunerError,
    "InterpreterError": errors.EmulatorError,
}
_JIT = {
    "JITFunction": jit.JITFunction,
    "KernelInterface": jit.KernelInterface,
    "jit": jit.jit,
    "ConstexprFunction": ConstexprFunction,
    "KernelParam": specialize.Parameter,
    "constexpr_function": constexpr_function,
    "aggregate": language.aggregate,
    "aggregate_replace": language.aggregate_replace,
    "reinterpret": host.reinterpret,
    "TensorWrapper": host.TensorWrapper,
    "MockTensor": host.MockTensor,
    "AsyncCompileMode": asynchronous.AsyncCompileMode,
    "FutureKernel": asynchronous.FutureKernel,
}
_TUNING = {
    "Autotuner": autotune.Autotuner,
    "Config": autotune.Config,
    "Heuristics": heuristics.Heuristics,
    "autotune": autotune.autotune,
    "heuristics": heuristics.heuristics,
}
_DRIVER = {"driver": drivers.driver}
_BACKENDS = {
    "backends": drivers.Backends(),
    "BaseBackend": backend.BaseBackend,
    "DriverBase": drivers.Driver,
    "GPUTarget": metadata.GPUTarget,
}
_COMPILER = {
    "ASTSource": compiler.ASTSource,
    "IRSource": compiler.IRSource,
    "CompiledKernel": variant.CompiledKernel,
    "GPUTarget": metadata.GPUTarget,
    "compile": compiler.compile,
    "make_backend": backend.make_backend,
    "triton_key": compiler.triton_key,
}
_CACHE = {"triton_key": compiler.triton_key, "_base32": compiler.base32, "knobs": knobs}
_SPECIALIZE = {"native_specialize_impl": host.native_specialize_impl, "mangle_type": host.mangle_type}
_TOP = {
    "cdiv": arithmetic.cdiv,
    "next_power_of_2": arithmetic.next_power_of_2,
    "set_allocator": host.set_allocator,
    "must_use_result": host.must_use_result,
    "compile": compiler.compile,
    "CompiledKernel": variant.CompiledKernel,
    "__version__": VERSION,
}


def _language(*path: str) -> list[Source]:
    """A submodule of the language first, where there is one, then the whole language."""
    found: list[Source] = []
    here: object = language
    for name in path:
        here = getattr(here, name, None)
    if isinstance(here, ModuleType) and here is not language:
        found.append(here)
    return [*found, language]


MODULES: dict[str, Sequence[Source]] = {
    "triton": [_TOP, _JIT, _TUNING, _ERRORS],
    "triton.language": [language],
    "triton.language.core": [language_names.CORE, *_language("core")],
    "triton.language.math": _language("math"),
    "triton.language.standard": _language("standard"),
    "triton.language.target_info": [target_info],
    "triton.knobs": [knobs],
    "triton._C": [{}],
    "triton._C.libtriton": [_SPECIALIZE],
    "triton._C.libtriton.nvidia": [{}],
    "triton._C.libtriton.nvidia.cublas": [cublas],
    "triton._filecheck": [filecheck],
    "triton._C.libtriton.ir": [{"context": accesses.Context, "load_dialects": accesses.load_dialects}],
    "triton._utils": [
        {"find_paths_if": accesses.find_paths_if, "get_iterable_path": accesses.get_iterable_path}
    ],
    "triton.runtime": [_JIT, _TUNING, _ERRORS],
    "triton.runtime.jit": [_JIT, _SPECIALIZE],
    "triton.runtime.cache": [_CACHE, files],
    "triton.runtime.build": [extensions],
    "triton.runtime._allocation": [
        {"NullAllocator": host.NullAllocator, "set_allocator": host.set_allocator}
    ],
    "triton.runtime.driver": [_DRIVER],
    "triton.runtime.interpreter": [{"InterpretedFunction": host.InterpretedFunction}],
    "triton.runtime.autotuner": [_TUNING, _ERRORS],
    "triton.runtime.errors": [_ERRORS],
    "triton.testing": [testing],
    "triton.compiler": [_COMPILER, _ERRORS],
    "triton.compiler.compiler": [_COMPILER],
    "triton.compiler.errors": [_ERRORS],
    "triton.backends": [_BACKENDS],
    "triton.backends.compiler": [_BACKENDS],
    "triton.backends.driver": [_BACKENDS],
    "triton.profiler": [profiler],
    "triton.profiler.viewer": [viewer],
    "triton._internal_testing": [internal_testing, internal_testing.OTHER_VENDORS],
    "triton.runtime._async_compile": [_JIT],
    "triton.tools": [{}],
    "triton.tools.disasm": [disasm],
    "triton.tools.mxfp": [mxfp],
    "triton.tools.tensor_descriptor": [{"TensorDescriptor": tensor_descriptor.TensorDescriptor}],
    "triton.tools.ragged_tma": [ragged],
}
if hasattr(language, "random"):
    MODULES["triton.language.random"] = _language("random")
if hasattr(language, "extra"):
    MODULES |= {
        "triton.language.extra": _language("extra")[:1],
        "triton.language.extra.libdevice": _language("extra", "libdevice")[:1],
        "triton.language.extra.cuda": _language("extra", "cuda")[:1],
        "triton.language.extra.cuda.libdevice": _language("extra", "libdevice")[:1],
    }

OBJECTS: dict[str, object] = {"triton.runtime.driver": drivers.driver}
"""Attributes of packages that are objects, although a module of the name can be imported, too."""
