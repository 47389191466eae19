"""``triton.knobs``: settings by group, each with its environment variable, and the hooks of the runtime.

A knob reads its variable until it is assigned, which sets the variable for child processes too; ``del`` goes
back to reading. ``with knobs.runtime.scope():`` undoes what was assigned inside.
"""

from __future__ import annotations

import os
from typing import Any

from ptxforge.runtime import hooks, options, store
from ptxforge.triton_compat.hooks import (
    Chain,
    CompileTimes,
    HookChain,
    LaunchChain,
    LoadChain,
    tell_of_compilation,
)
from ptxforge.triton_compat.knob_types import (
    Env,
    NvidiaTool,
    base_knobs,
    env,
    env_base,
    env_bool,
    env_class,
    env_int,
    env_nvidia_tool,
    env_opt_bool,
    env_opt_str,
    env_str,
    setenv,
)

__all__ = [
    "CompileTimes", "Env", "HookChain", "LaunchChain", "NvidiaTool", "amd", "autotuning", "base_knobs",
    "build", "cache", "compilation", "env", "env_base", "env_bool", "env_class", "env_int", "env_nvidia_tool",
    "env_opt_bool", "env_opt_str", "env_str", "language", "nvidia", "propagate_env", "proton", "redis",
    "refresh_knobs", "runtime", "setenv",
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
    """How kernels are compiled."""

    override = env_bool("TRITON_KERNEL_OVERRIDE")
    dump_ir = env_bool("TRITON_KERNEL_DUMP")
    store_binary_only = env_bool("TRITON_STORE_BINARY_ONLY")
    always_compile = env_bool("TRITON_ALWAYS_COMPILE")
    use_ir_loc = env_opt_str("USE_IR_LOC")
    enable_asan = env_bool("TRITON_ENABLE_ASAN")
    disable_line_info = env_bool("TRITON_DISABLE_LINE_INFO")
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


class nvidia_knobs(base_knobs):  # noqa: N801
    """Tools and libraries of CUDA."""

    cuobjdump = env_nvidia_tool("cuobjdump")
    nvdisasm = env_nvidia_tool("nvdisasm")
    ptxas = env_nvidia_tool("ptxas")
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


class proton_knobs(base_knobs):  # noqa: N801
    """The profiler."""

    disable = env_bool("TRITON_PROTON_DISABLE")


build, redis, cache, compilation = build_knobs(), redis_knobs(), cache_knobs(), compilation_knobs()
autotuning, runtime, language, nvidia = autotuning_knobs(), runtime_knobs(), language_knobs(), nvidia_knobs()
amd, proton = amd_knobs(), proton_knobs()


def refresh_knobs() -> None:
    """Nothing to do: every knob reads its variable whenever it is asked."""


options.fuses_by_default = lambda: language.default_fp_fusion
options.tells_lines_by_default = lambda: not compilation.disable_line_info
store.elsewhere = lambda: cache.__dict__.get("dir")
hooks.COMPILE.append(lambda told: tell_of_compilation(told, runtime, compilation))
