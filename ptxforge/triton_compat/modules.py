"""The table of modules that :func:`~ptxforge.triton_compat.install` registers, and where their contents come
from: each is a module under another name (:class:`Alias`). What of Triton there will not be is told with its
reason, at the import and at the use; ``docs/from-triton.md`` shows that table.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

from ptxforge import language
from ptxforge.language.constexpr import unwrap
from ptxforge.language.registry import ConstexprFunction, LibraryFunction, constexpr_function, is_builtin
from ptxforge.runtime import (
    arithmetic,
    autotune,
    heuristics,
    jit,
    precompile,
    ragged,
    specialize,
    tensor_descriptor,
    variant,
    variants,
)
from ptxforge.support import errors, settings
from ptxforge.support.not_there import NOT_THERE, inside
from ptxforge.triton_compat import (
    compiler,
    cublas,
    drivers,
    hooks,
    host,
    internal_testing,
    knobs,
    profiler,
    testing,
)

VERSION = settings.TRITON_VERSION.get()  # the release of Triton whose answers to probes are given
Source = types.ModuleType | Mapping[str, Any]


class Alias(types.ModuleType):
    """A module that takes each attribute from the first of its ``sources`` (modules or dictionaries) that has
    it.

    It has the ``__spec__``, ``__path__`` and ``__file__`` that ``importlib.util.find_spec`` and the import
    statement ask for. ``forget`` is called when the module is reloaded.
    """

    def __init__(self, name: str, sources: Sequence[Source], forget: Callable[[], None] | None = None):
        super().__init__(name, f"'{name}', provided by ptxforge")
        loader: Any = Present(self)
        self.__spec__ = importlib.machinery.ModuleSpec(name, loader, origin=__file__, is_package=True)
        self.__path__: list[str] = []  # a package without files: unknown submodules are not found
        self.__package__ = name
        self.__file__ = __file__
        self.__version__ = VERSION
        self._sources = tuple(sources)
        self._forget = forget
        self._taken: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for source in self._sources:
            found = source.get(name, self) if isinstance(source, Mapping) else getattr(source, name, self)
            if found is not self:
                setattr(self, name, found)
                self._taken.append(name)
                return found
        full = f"{self.__name__}.{name}"
        why = reason(full)
        raise AttributeError(f"ptxforge does not cover '{full}'" + (f": {why}" if why else ""))

    def _reload(self) -> None:
        """Take the attributes from the sources again."""
        if self._forget is not None:
            self._forget()
        for name in self._taken:
            self.__dict__.pop(name, None)
        self._taken.clear()

    def __dir__(self) -> list[str]:
        names = {
            name
            for source in self._sources
            for name in (source if isinstance(source, Mapping) else dir(source))
        }
        return sorted(name for name in names if not name.startswith("_"))


class Present:
    """The loader that an alias's description names: who makes a module of that gets the alias itself."""

    def __init__(self, alias: Alias):
        self.alias = alias

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Alias:
        """The alias."""
        return self.alias

    def exec_module(self, module: Alias) -> None:
        """Nothing: the alias has its names."""


class Reloads:
    """The finder and loader behind ``importlib.reload`` of an alias. Nothing else is found by it: an import
    finds modules in ``sys.modules``."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A new description of the alias ``target``; ``None`` for what is none."""
        if not isinstance(target, Alias):
            return None
        return importlib.machinery.ModuleSpec(name, loader=cls, origin=__file__, is_package=True)

    @staticmethod
    def create_module(spec: importlib.machinery.ModuleSpec) -> None:
        """Nothing: the module is there."""

    @staticmethod
    def exec_module(module: Alias) -> None:
        """What running the module's text again would do."""
        module._reload()


REFUSED = {name: entry.why for name, entry in NOT_THERE.items() if name.startswith("triton.")}
"""Modules of Triton and names in them that are not there, out of the list of all such names."""


def reason(name: str) -> str | None:
    """Why there is no module or name of that full name; ``None`` when it is not refused."""
    return _reason_of_module(name) or _reason_inside(name)


def _reason_of_module(name: str) -> str | None:
    """Why there is no such module."""
    known = (why for refused, why in REFUSED.items() if name == refused or name.startswith(f"{refused}."))
    return next(known, None)


def _reason_inside(name: str) -> str | None:
    """Why a module that is there lacks a name."""
    known = NOT_THERE.get(f"tl.{name.rpartition('.')[2]}") if name.startswith("triton.language.") else None
    return known.why if known else inside(name)


class Refusals:
    """The last of Python's finders: it says why a module that ptxforge refuses is not found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """``None``, as every finder that does not know a module. Raises ``ModuleNotFoundError`` with the
        reason for a refused one; callers that try an import compare its ``name``.

        ``from module import name`` asks for a module of that name at last, and goes on, without the reason,
        at a ``ModuleNotFoundError`` whose ``name`` is that: there it has none. A refused name that is no
        module raises ``ImportError``."""
        why = reason(name)
        if why is None:
            return None
        kind = ModuleNotFoundError if _reason_of_module(name) else ImportError
        told = None if _is_from_a_list(sys._getframe(1)) else name
        raise kind(f"ptxforge has no '{name}': {why}", name=told)


def _is_from_a_list(frame: FrameType | None) -> bool:
    """Whether the import that asks, in ``frame`` or a caller of it, is for a name of ``from … import``."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_code.co_name == "_handle_fromlist":
            return True
        frame = frame.f_back
    return False


@constexpr_function
def get_int_dtype(bitwidth: int, signed: bool) -> Any:
    """The integer type of that width."""
    return getattr(language, f"{'int' if signed else 'uint'}{bitwidth}")


@constexpr_function
def unwrap_if_constexpr(value: Any) -> Any:
    """The value inside a ``constexpr``."""
    return unwrap(value)


CORE = {
    "get_int_dtype": get_int_dtype,
    "_unwrap_if_constexpr": unwrap_if_constexpr,
    "_aggregate": language.aggregate,
    "is_builtin": is_builtin,
    "must_use_result": host.must_use_result,
    "tensor_descriptor_base_type": language.tensor_descriptor_type,
    "base_type": language.dtype | language.pointer_type | language.block_type | language.tuple_type
    | language.constexpr_type | language.tensor_descriptor_type,
    "base_value": language.tensor | language.constexpr | language.tensor_descriptor | language.tuple,
}


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
    "JITCallable": jit.JITFunction | ConstexprFunction | LibraryFunction,
    "AsyncCompileMode": precompile.AsyncCompileMode,
    "FutureKernel": precompile.FutureKernel,
}
_TUNING = {
    "Autotuner": autotune.Autotuner,
    "Config": autotune.Config,
    "Heuristics": heuristics.Heuristics,
    "autotune": autotune.autotune,
    "heuristics": heuristics.heuristics,
}
_ACTIVE = {"driver": drivers.driver}
_DRIVER = _ACTIVE | {
    "DriverBase": drivers.Driver,
    "DriverConfig": drivers.DriverConfig,
    "backends": drivers.Backends(),
}
_BACKENDS = {
    "backends": drivers.Backends(),
    "BaseBackend": drivers.BaseBackend,
    "DriverBase": drivers.Driver,
    "GPUDriver": drivers.Driver,
    "GPUTarget": variants.GPUTarget,
}
_COMPILER = {
    "ASTSource": compiler.ASTSource,
    "IRSource": compiler.IRSource,
    "CompiledKernel": variant.CompiledKernel,
    "GPUTarget": variants.GPUTarget,
    "compile": compiler.compile,
    "make_backend": drivers.make_backend,
    "triton_key": compiler.triton_key,
    "LazyDict": hooks.LazyDict,
    "max_shared_mem": drivers.max_shared_mem,
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


def _names(module: ModuleType, names: str) -> dict[str, Any]:
    """Those of a module that stands for several of Triton's."""
    return {name: getattr(module, name) for name in names.split()}


def _without(module: ModuleType, others: Mapping[str, Any]) -> dict[str, Any]:
    """The names of a module without those that belong to another one of Triton's."""
    return {name: value for name, value in vars(module).items() if name not in others}


_TARGET_INFO = _names(
    host, "current_target is_cuda cuda_capability_geq is_hip is_hip_cdna3 is_hip_cdna4 is_hip_gfx1250"
)
_FILES = _names(
    host,
    "CacheManager FileCacheManager RemoteCacheBackend"
    " get_cache_manager get_override_manager get_dump_manager",
)
_BUILD = _names(compiler, "platform_key compile_module_from_src _build _load")
_DISASM = _names(compiler, "path_to_cuobjdump path_to_nvdisasm get_sass extract")
_FILECHECK = _names(
    testing, "stub_target MatchError run_parser run_filecheck run_filecheck_test filecheck_test"
)
_DATA = _names(profiler, "get")
_VIEWER = _names(profiler, "Tree parse format_tree print_tree main")
_MXFP = _names(internal_testing, "MXFP4Tensor MXScaleTensor fp8e8m0_to_float32")


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
    "triton.language.core": [CORE, *_language("core")],
    "triton.language.math": _language("math"),
    "triton.language.standard": _language("standard"),
    "triton.language.target_info": [_TARGET_INFO, _ACTIVE],
    "triton.knobs": [knobs],
    "triton._C": [{}],
    "triton._C.libtriton": [_SPECIALIZE],
    "triton._C.libtriton.nvidia": [{}],
    "triton._C.libtriton.nvidia.cublas": [cublas],
    "triton._filecheck": [_FILECHECK],
    "triton._C.libtriton.ir": [{"context": hooks.Context, "load_dialects": hooks.load_dialects}],
    "triton._utils": [{"find_paths_if": hooks.find_paths_if, "get_iterable_path": hooks.get_iterable_path}],
    "triton.runtime": [_JIT, _TUNING, _ERRORS, _names(host, "RemoteCacheBackend")],
    "triton.runtime.jit": [_JIT, _SPECIALIZE, _ACTIVE],
    "triton.runtime.cache": [_CACHE, _FILES],
    "triton.runtime.build": [_BUILD],
    "triton.runtime._allocation": [
        {"NullAllocator": host.NullAllocator, "set_allocator": host.set_allocator}
    ],
    "triton.runtime.driver": [_DRIVER],
    "triton.runtime.interpreter": [{"InterpretedFunction": host.InterpretedFunction}],
    "triton.runtime.autotuner": [_TUNING, _ERRORS, _ACTIVE],
    "triton.runtime.errors": [_ERRORS],
    "triton.testing": [_without(testing, _FILECHECK)],
    "triton.compiler": [_COMPILER, _ERRORS],
    "triton.compiler.compiler": [_COMPILER, _DRIVER],
    "triton.compiler.errors": [_ERRORS],
    "triton.errors": [_ERRORS],
    "triton.backends": [_BACKENDS],
    "triton.backends.compiler": [_BACKENDS],
    "triton.backends.driver": [_BACKENDS],
    "triton.profiler": [_without(profiler, _VIEWER | _DATA | {"hooks": "a module of ours"})],
    "triton.profiler.data": [_DATA],
    "triton.profiler.viewer": [_VIEWER],
    "triton.profiler.profile": [
        _names(profiler, "start activate deactivate finalize profile DEFAULT_PROFILE_NAME")
    ],
    "triton.profiler.scope": [_names(profiler, "scope cpu_timed_scope enter_scope exit_scope")],
    "triton._internal_testing": [_without(internal_testing, _MXFP), internal_testing.OTHER_VENDORS],
    "triton.runtime._async_compile": [_JIT],
    "triton.tools": [{}],
    "triton.tools.disasm": [_DISASM],
    "triton.tools.mxfp": [_MXFP],
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
        "triton.language.extra.cuda.gdc": _language("extra", "cuda")[:1],
        "triton.language.extra.cuda.utils": _language("extra", "cuda")[:1],
        "triton.language.extra.cuda.libdevice": _language("extra", "libdevice")[:1],
    }

OBJECTS: dict[str, object] = {
    "triton.runtime.driver": drivers.driver,
    "triton.profiler.profile": profiler.profile,
    "triton.profiler.scope": profiler.scope,
}
"""Attributes of packages that are objects, although a module of the name can be imported, too."""
