"""``triton.knobs``: settings by group, each with its environment variable, and the hooks of the runtime.

A knob reads its variable until it is assigned; ``del`` goes back to that. ``with knobs.runtime.scope():``
undoes what was assigned inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ptxforge.triton_compat.hooks import Chain, HookChain, LaunchChain

T = TypeVar("T")
_FALSE = ("", "0", "n", "no", "off", "false")


class Knob(Generic[T]):
    """One setting of a group: ``variable`` and how its text is read; ``default`` where it is unset."""

    def __init__(self, variable: str, default: T, read: Callable[[str], T] = str):
        self.variable, self.default, self.read = variable, default, read

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, group: Any, owner: type | None = None) -> Any:
        if group is None:
            return self
        if self.name in group.__dict__:
            return group.__dict__[self.name]
        text = os.environ.get(self.variable)
        return self.default if text is None else self.read(text)

    def __set__(self, group: Any, value: Any) -> None:
        group.__dict__[self.name] = value

    def __delete__(self, group: Any) -> None:
        group.__dict__.pop(self.name, None)


def _flag(text: str) -> bool:
    return text.strip().lower() not in _FALSE


def switch(variable: str, default: bool = False) -> Any:
    """A knob that is on or off."""
    return Knob(variable, default, _flag)


def text(variable: str, default: str | None = None) -> Any:
    """A knob that is a text, or ``None``."""
    return Knob(variable, default)


class Group:
    """Knobs that belong together."""

    @property
    def knobs(self) -> dict[str, Any]:
        """The values in force by name."""
        return {
            name: getattr(self, name) for name, held in vars(type(self)).items() if isinstance(held, Knob)
        }

    def copy(self) -> Group:
        """A group with the same values, independent of this one."""
        other = type(self)()
        other.__dict__.update(self.__dict__)
        return other

    def reset(self) -> Group:
        """Forget what was assigned; hooks stay."""
        for name in self.knobs:
            self.__dict__.pop(name, None)
        return self

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Undo what is assigned inside, and what is done to the group's environment variables."""
        before = dict(self.__dict__)
        variables = [held.variable for held in vars(type(self)).values() if isinstance(held, Knob)]
        environment = {name: os.environ.get(name) for name in variables}
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)
            for name, value in environment.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


class _Build(Group):
    cc = text("CC")
    cudacrt_path = text("TRITON_CUDACRT_PATH")
    cudart_path = text("TRITON_CUDART_PATH")


class _Cache(Group):
    home_dir = text("TRITON_HOME", str(Path.home()))
    dump_dir = text("TRITON_DUMP_DIR")
    override_dir = text("TRITON_OVERRIDE_DIR")
    dir = Knob("TRITON_CACHE_DIR", str(Path.home() / ".triton" / "cache"))


class _Compilation(Group):
    override = switch("TRITON_KERNEL_OVERRIDE")
    dump_ir = switch("TRITON_KERNEL_DUMP")
    store_binary_only = switch("TRITON_STORE_BINARY_ONLY")
    always_compile = switch("TRITON_ALWAYS_COMPILE")
    use_ir_loc = text("USE_IR_LOC")
    enable_asan = switch("TRITON_ENABLE_ASAN")
    disable_line_info = switch("TRITON_DISABLE_LINE_INFO")
    front_end_debugging = switch("TRITON_FRONT_END_DEBUGGING")
    allow_non_constexpr_globals = switch("TRITON_ALLOW_NON_CONSTEXPR_GLOBALS")
    instrumentation_mode = text("TRITON_INSTRUMENTATION_MODE", "")
    listener: Any = None


class _Autotuning(Group):
    cache = switch("TRITON_CACHE_AUTOTUNING")
    print = switch("TRITON_PRINT_AUTOTUNING")
    warmup = Knob("TRITON_AUTOTUNING_WARMUP", 25, int)
    rep = Knob("TRITON_AUTOTUNING_REP", 100, int)


class _Runtime(Group):
    interpret = switch("TRITON_INTERPRET")
    debug = switch("TRITON_DEBUG")
    sanitize_overflow = switch("TRITON_SANITIZE_OVERFLOW", True)
    override_arch = text("TRITON_OVERRIDE_ARCH")
    jit_cache_hook: Any = None
    jit_post_compile_hook: Any = None
    kernel_load_start_hook = Chain(HookChain())
    kernel_load_end_hook = Chain(HookChain(reversed=True))
    launch_enter_hook = Chain(LaunchChain(before=True))
    launch_exit_hook = Chain(LaunchChain(before=False))
    add_stages_inspection_hook: Any = None


class _Language(Group):
    fp32_default = text("TRITON_F32_DEFAULT")
    default_fp_fusion = switch("TRITON_DEFAULT_FP_FUSION", True)


class _Nvidia(Group):
    cuobjdump = text("TRITON_CUOBJDUMP_PATH")
    nvdisasm = text("TRITON_NVDISASM_PATH")
    ptxas = text("TRITON_PTXAS_PATH")
    dump_nvptx = switch("NVPTX_ENABLE_DUMP")
    disable_ptxas_opt = switch("DISABLE_PTXAS_OPT")
    ptxas_options = text("PTXAS_OPTIONS")
    mock_ptx_version = text("TRITON_MOCK_PTX_VERSION")
    dump_ptxas_log = switch("TRITON_DUMP_PTXAS_LOG")
    libdevice_path = text("TRITON_LIBDEVICE_PATH")
    libcuda_path = text("TRITON_LIBCUDA_PATH")


class _Proton(Group):
    disable = switch("TRITON_PROTON_DISABLE")


build, cache, compilation, autotuning = _Build(), _Cache(), _Compilation(), _Autotuning()
runtime, language, nvidia, proton = _Runtime(), _Language(), _Nvidia(), _Proton()
