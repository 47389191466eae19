"""``triton.knobs``: settings by group, each with its environment variable, and the hooks of the runtime.

A knob reads its variable until it is assigned, which sets the variable for child processes too; ``del`` goes
back to reading. ``with knobs.runtime.scope():`` undoes what was assigned inside. Programs derive groups of
their own.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import attrs

from ptxforge.runtime import autotune, hooks, options, store
from ptxforge.support.errors import DeviceError
from ptxforge.triton_compat.hooks import (
    Chain,
    CompileTimes,
    HookChain,
    LaunchChain,
    LoadChain,
    tell_of_compilation,
)

T = TypeVar("T")
_FALSE = ("", "0", "n", "no", "off", "false")


class Env:
    """Assigned to a knob, it means: read the environment again."""


env = Env()


def setenv(key: str, value: str | None) -> None:
    """Set a variable for this process and its children, or remove it; nothing while
    ``triton.knobs.propagate_env`` is false."""
    if not getattr(sys.modules.get("triton.knobs"), "propagate_env", True):
        return
    if value is None:
        os.environ.pop(key, None)
    else:
        os.environ[key] = value


def toenv(val: Any) -> tuple[str | None] | None:
    """The text that a variable gets for a value, in a tuple; ``None`` for a value that has none."""
    if val is None:
        return (None,)
    return (str(int(val)) if isinstance(val, bool) else str(val),) if isinstance(val, (str, int)) else None


class env_base(Generic[T]):  # noqa: N801 - Triton's names
    """One setting of a group: the environment variable ``key``, and ``default`` where that is unset."""

    def __init__(self, key: str, default: Any = None):
        self.key, self.default = key, default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: Any, owner: type | None = None) -> Any:
        if group is None:
            return self
        if self.name in group.__dict__:
            return self.assigned(group.__dict__[self.name])
        text = os.environ.get(self.key)
        if text is not None:
            return self.read(text)
        return self.default(group) if callable(self.default) else self.default

    def __set__(self, group: Any, value: Any) -> None:
        if isinstance(value, Env):
            group.__dict__.pop(self.name, None)
            return
        group.__dict__[self.name] = value
        text = toenv(value)
        if text is not None:
            setenv(self.key, *text)

    def __delete__(self, group: Any) -> None:
        group.__dict__.pop(self.name, None)

    def assigned(self, value: Any) -> Any:
        """What an assigned value reads as."""
        return value

    def read(self, text: str) -> Any:
        """The value that the variable's text means."""
        return text

    def transform(self, val: str) -> Any:
        """The same, under Triton's name."""
        return self.read(val)

    def get(self) -> Any:
        """What the variable says, whatever was assigned; the default where it is unset."""
        text = os.environ.get(self.key)
        if text is not None:
            return self.read(text)
        return self.default(None) if callable(self.default) else self.default


class env_str(env_base[str]):  # noqa: N801
    """A text."""


class env_opt_str(env_base[str | None]):  # noqa: N801
    """A text, or ``None``."""

    def __init__(self, key: str):
        super().__init__(key)


class env_str_callable_default(env_base[str]):  # noqa: N801
    """A text; where the variable is unset, what ``default_factory()`` gives."""

    def __init__(self, key: str, default_factory: Callable[[], str]):
        super().__init__(key, lambda group: default_factory())
        self.default_factory = default_factory


class env_bool(env_base[bool]):  # noqa: N801
    """On or off."""

    def __init__(self, key: str, default: bool | None = False):
        super().__init__(key, default)

    def read(self, text: str) -> bool:
        return text.strip().lower() not in _FALSE


class env_opt_bool(env_bool):  # noqa: N801
    """On, off, or ``None``."""

    def __init__(self, key: str):
        super().__init__(key, None)


class env_int(env_base[int]):  # noqa: N801
    """A whole number. Reading another text raises ``RuntimeError``."""

    def __init__(self, key: str, default: int = 0):
        super().__init__(key, default)

    def read(self, text: str) -> int:
        try:
            return int(text)
        except ValueError as error:
            raise RuntimeError(f"{self.key}={text} is not a whole number") from error


class env_class(env_base[type]):  # noqa: N801
    """A class, ``module:name`` in the variable, that descends from one called ``type``. Reading anything
    else raises ``RuntimeError``."""

    def __init__(self, key: str, type: str):
        super().__init__(key)
        self.type = type

    def read(self, text: str) -> type:
        module, colon, name = text.partition(":")
        if not colon:
            raise RuntimeError(f"{self.key}={text} is not of the form MODULE:CLASS")
        found = getattr(importlib.import_module(module), name)
        if self.type not in (base.__name__ for base in found.mro()):
            raise RuntimeError(f"{self.key}={text} is no {self.type}")
        return found


@attrs.frozen
class NvidiaTool:
    """A program of CUDA's toolkit: where it is, and its release."""

    path: str
    version: str

    @classmethod
    def from_path(cls, path: str) -> NvidiaTool | None:
        """The tool at a path; ``None`` when nothing there tells its release."""
        try:
            told = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        except OSError:
            return None
        release = re.search(r"release (\d+\.\d+)", told)
        return cls(path, release.group(1)) if release else None


class env_nvidia_tool(env_base[NvidiaTool]):  # noqa: N801
    """A tool: the variable's path, else the one on ``PATH``. Reading it where there is none raises
    :class:`DeviceError`."""

    def __init__(self, binary: str):
        self.binary = binary
        super().__init__(f"TRITON_{binary.upper().replace('-', '_')}_PATH", lambda group: self.read(""))

    def assigned(self, value: str) -> NvidiaTool:
        return self.read(value)

    def read(self, text: str) -> NvidiaTool:
        for path in filter(None, (text, shutil.which(self.binary))):
            tool = NvidiaTool.from_path(path)
            if tool is not None:
                return tool
        raise DeviceError(f"{self.binary} was not found")


class base_knobs:  # noqa: N801
    """Knobs that belong together."""

    @property
    def knob_descriptors(self) -> dict[str, env_base]:
        """The knobs by name."""
        return {name: held for name, held in vars(type(self)).items() if isinstance(held, env_base)}

    @property
    def knobs(self) -> dict[str, Any]:
        """The values in force by name; ``None`` for a tool that is not installed."""
        return {name: _value(lambda name=name: getattr(self, name)) for name in self.knob_descriptors}

    def copy(self) -> base_knobs:
        """A group with the same values, independent of this one."""
        other = type(self)()
        other.__dict__.update(self.__dict__)
        return other

    def reset(self) -> base_knobs:
        """Forget what was assigned; hooks stay."""
        for name in self.knob_descriptors:
            self.__dict__.pop(name, None)
        return self

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Undo what is assigned inside, and what is done to the group's environment variables."""
        before = dict(self.__dict__)
        environment = {held.key: os.environ.get(held.key) for held in self.knob_descriptors.values()}
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)
            for key, value in environment.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


def _value(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DeviceError:
        return None


BuildImpl = CompilationListener = InitHandleHook = JITHook = LaunchHook = PipelineStagesHook = Callable
AutotuneListener, JITHookCompileInfo = Callable, dict
"""Names for annotations: hooks are whatever can be called so."""

__all__ = [
    "AutotuneListener",
    "BuildImpl", "CompilationListener", "CompileTimes", "Env", "HookChain", "InitHandleHook", "JITHook",
    "JITHookCompileInfo", "LaunchChain", "LaunchHook", "NvidiaTool", "PipelineStagesHook", "amd",
    "autotuning", "base_knobs", "build", "cache", "compilation", "env", "env_base", "env_bool",
    "env_class", "env_int", "env_nvidia_tool", "env_opt_bool", "env_opt_str", "env_str",
    "env_str_callable_default", "language", "nvidia", "propagate_env", "proton", "redis",
    "refresh_knobs", "runtime", "setenv", "toenv",
]  # fmt: skip

propagate_env = True


class build_knobs(base_knobs):  # noqa: N801 - Triton's names
    """How C is compiled."""

    cc = env_opt_str("CC")
    cudacrt_path = env_opt_str("TRITON_CUDACRT_PATH")
    cudart_path = env_opt_str("TRITON_CUDART_PATH")
    impl: Any = None

    @property
    def backend_dirs(self) -> set[str]:
        """Folders with headers of CUDA."""
        return {path for path in (self.cudacrt_path, self.cudart_path) if path is not None}


class redis_knobs(base_knobs):  # noqa: N801
    """A remote cache."""

    key_format = env_str("TRITON_REDIS_KEY_FORMAT", "triton:{key}:{filename}")
    host = env_str("TRITON_REDIS_HOST", "localhost")
    port = env_int("TRITON_REDIS_PORT", 6379)


class cache_knobs(base_knobs):  # noqa: N801
    """Where files go. While ``dir`` is assigned, ptxforge's own disk cache is there, too."""

    home_dir = env_str("TRITON_HOME", os.path.expanduser("~/"))
    dump_dir = env_str("TRITON_DUMP_DIR", lambda group: group.get_triton_dir("dump"))
    override_dir = env_str("TRITON_OVERRIDE_DIR", lambda group: group.get_triton_dir("override"))
    dir = env_str("TRITON_CACHE_DIR", lambda group: group.get_triton_dir("cache"))
    manager_class = env_class("TRITON_CACHE_MANAGER", "CacheManager")
    remote_manager_class = env_class("TRITON_REMOTE_CACHE_BACKEND", "RemoteCacheBackend")

    def get_triton_dir(self, dirname: str) -> str:
        """A folder below the home folder."""
        return os.path.join(self.home_dir, ".triton", dirname)


class compilation_knobs(base_knobs):  # noqa: N801
    """How kernels are compiled. ``dump_ir`` writes the texts of each new kernel below ``cache.dump_dir``."""

    override = env_bool("TRITON_KERNEL_OVERRIDE")
    dump_ir = env_bool("TRITON_KERNEL_DUMP")
    store_binary_only = env_bool("TRITON_STORE_BINARY_ONLY")
    always_compile = env_bool("TRITON_ALWAYS_COMPILE")
    use_ir_loc = env_opt_str("USE_IR_LOC")
    enable_asan = env_bool("TRITON_ENABLE_ASAN")
    disable_line_info = env_bool("TRITON_DISABLE_LINE_INFO")
    dump_ir_extract_di_local_variables = env_bool("LLVM_EXTRACT_DI_LOCAL_VARIABLES")
    front_end_debugging = env_bool("TRITON_FRONT_END_DEBUGGING")
    allow_non_constexpr_globals = env_bool("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS")
    instrumentation_mode = env_str("TRITON_INSTRUMENTATION_MODE", "")
    listener: Any = None


class autotuning_knobs(base_knobs):  # noqa: N801
    """How configurations are measured."""

    cache = env_bool("TRITON_CACHE_AUTOTUNING")
    print = env_bool("TRITON_PRINT_AUTOTUNING")
    warmup = env_int("TRITON_AUTOTUNING_WARMUP", 25)
    rep = env_int("TRITON_AUTOTUNING_REP", 100)
    listener: Any = None


class runtime_knobs(base_knobs):  # noqa: N801
    """Hooks. ``jit_cache_hook`` is called before a kernel is compiled or found on disk,
    ``jit_post_compile_hook`` after it."""

    interpret = env_bool("TRITON_INTERPRET")
    debug = env_bool("TRITON_DEBUG")
    sanitize_overflow = env_bool("TRITON_SANITIZE_OVERFLOW", True)
    override_arch = env_opt_str("TRITON_OVERRIDE_ARCH")
    jit_cache_hook: Any = None
    jit_post_compile_hook: Any = None
    kernel_load_start_hook = Chain(LoadChain(before=True))
    kernel_load_end_hook = Chain(LoadChain(before=False))
    launch_enter_hook = Chain(LaunchChain(before=True))
    launch_exit_hook = Chain(LaunchChain(before=False))
    add_stages_inspection_hook: Any = None


class language_knobs(base_knobs):  # noqa: N801
    """Defaults of the language."""

    fp32_default = env_opt_str("TRITON_F32_DEFAULT")
    default_fp_fusion = env_bool("TRITON_DEFAULT_FP_FUSION", True)
    force_disable_fp_fusion = env_bool("TRITON_FORCE_DISABLE_FP_FUSION")

    def fp_fusion_enabled(self, requested: bool | None) -> bool:
        """Whether products and sums are fused where a launch says this."""
        wanted = self.default_fp_fusion if requested is None else requested
        return wanted and not self.force_disable_fp_fusion


class nvidia_knobs(base_knobs):  # noqa: N801
    """Tools and libraries of CUDA."""

    cuobjdump = env_nvidia_tool("cuobjdump")
    nvdisasm = env_nvidia_tool("nvdisasm")
    ptxas = env_nvidia_tool("ptxas")
    ptxas_blackwell = env_nvidia_tool("ptxas-blackwell")
    dump_nvptx = env_bool("NVPTX_ENABLE_DUMP")
    disable_ptxas_opt = env_bool("DISABLE_PTXAS_OPT")
    ptxas_options = env_opt_str("PTXAS_OPTIONS")
    mock_ptx_version = env_opt_str("TRITON_MOCK_PTX_VERSION")
    dump_ptxas_log = env_bool("TRITON_DUMP_PTXAS_LOG")
    libdevice_path = env_opt_str("TRITON_LIBDEVICE_PATH")
    libcuda_path = env_opt_str("TRITON_LIBCUDA_PATH")


class amd_knobs(base_knobs):  # noqa: N801
    """Settings of another vendor's backend: kept, and without effect here."""

    use_buffer_ops = env_bool("AMDGCN_USE_BUFFER_OPS", True)
    use_buffer_atomics = env_bool("AMDGCN_USE_BUFFER_ATOMICS", True)
    dump_amdgcn = env_bool("AMDGCN_ENABLE_DUMP")
    libhip_path = env_opt_str("TRITON_LIBHIP_PATH")
    use_block_pingpong = env_opt_bool("TRITON_HIP_USE_BLOCK_PINGPONG")
    use_in_thread_transpose = env_opt_bool("TRITON_HIP_USE_IN_THREAD_TRANSPOSE")
    use_async_copy = env_bool("TRITON_HIP_USE_ASYNC_COPY")
    scalarize_packed_fops = env_bool("AMDGCN_SCALARIZE_PACKED_FOPS")
    buffer_ops_analyze_small_tensor_range = env_bool("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE")


class proton_knobs(base_knobs):  # noqa: N801
    """The profiler."""

    disable = env_bool("TRITON_PROTON_DISABLE")
    enable_nvtx = env_bool("TRITON_ENABLE_NVTX", True)
    cupti_lib_dir = env_opt_str("TRITON_CUPTI_LIB_PATH")


build, redis, cache, compilation = build_knobs(), redis_knobs(), cache_knobs(), compilation_knobs()
autotuning, runtime, language, nvidia = autotuning_knobs(), runtime_knobs(), language_knobs(), nvidia_knobs()
amd, proton = amd_knobs(), proton_knobs()


def refresh_knobs() -> None:
    """Nothing to do: every knob reads its variable whenever it is asked."""



IDLE: dict[base_knobs, dict[str, str]] = {
    compilation: {
        "override": "triton.compile() takes files of IR",
        "store_binary_only": "the disk cache holds PTX and machine code alone",
        "always_compile": "PTXFORGE_CACHE_DIR=off has every process compile",
        "use_ir_loc": "line numbers are those of the source",
        "enable_asan": "PTXFORGE_CHECK=all has the emulator check every access",
        "dump_ir_extract_di_local_variables": "there is no LLVM",
        "front_end_debugging": "PTXFORGE_TRACEBACK=full shows ptxforge's own frames",
        "allow_non_constexpr_globals": "globals that kernels read must not change",
        "instrumentation_mode": "PTXFORGE_CHECK=all has the emulator check every access",
    },
    runtime: {"override_arch": "triton.compile() takes a target"},
    autotuning: dict.fromkeys(("warmup", "rep"), "autotune() takes the times to measure for"),
    language: {"fp32_default": "tl.dot takes input_precision"},
    nvidia: {
        "dump_nvptx": "TRITON_KERNEL_DUMP=1 writes files",
        "disable_ptxas_opt": "the assembler optimizes",
        "ptxas_options": "the assembler has no more options",
        "mock_ptx_version": "the text asks for the version that it needs",
        "dump_ptxas_log": "kernel.n_regs and kernel.n_spills tell what the assembler made",
    },
}
"""What is known and changes nothing, by group and name, each with what there is instead, or why."""
_told: set[str] = set()


def warn_of_idle() -> None:
    """Warn, once for each, of what was set and changes nothing."""
    for group, names in IDLE.items():
        for name, why in names.items():
            key = group.knob_descriptors[name].key
            is_set = key in os.environ or name in group.__dict__
            if is_set and key not in _told and getattr(group, name):
                _told.add(key)
                warnings.warn(f"{key} (triton.knobs) has no effect in ptxforge: {why}", stacklevel=2)


options.debugs = lambda: runtime.debug
options.fuses = language.fp_fusion_enabled
autotune.keeps_results = lambda: autotuning.cache
_printed = autotune.prints_results
autotune.prints_results = lambda: autotuning.print or _printed()
options.tells_lines_by_default = lambda: not compilation.disable_line_info
store.elsewhere = lambda: cache.__dict__.get("dir")
hooks.COMPILE.append(lambda told: warn_of_idle())
hooks.COMPILE.append(lambda told: tell_of_compilation(told, runtime, compilation))
hooks.TUNE.append(lambda **told: autotuning.listener and autotuning.listener(**told))
