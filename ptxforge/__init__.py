"""ptxforge: a tile-language GPU compiler in pure Python.

A kernel is a Python function over tiles (:mod:`ptxforge.language`); :func:`compile` makes it callable, on
CUDA when there is a GPU and else on the emulator. Names are loaded when first used, so that importing
ptxforge costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what type checkers and editors see; at run time __getattr__ loads the same names
    from ptxforge import debug, language, triton_compat
    from ptxforge.checking.session import CheckError, check
    from ptxforge.compiler import Artifact
    from ptxforge.driver.device_array import DeviceArray
    from ptxforge.runtime import hooks
    from ptxforge.runtime.arithmetic import cdiv, next_power_of_2
    from ptxforge.runtime.autotune import Config, autotune, pow2
    from ptxforge.runtime.devices import default_device, empty, to_device, use_device
    from ptxforge.runtime.findings import EmulatorWarning
    from ptxforge.runtime.heuristics import heuristics
    from ptxforge.runtime.jit import JITFunction, compile, jit
    from ptxforge.runtime.loaded import load
    from ptxforge.runtime.tensor_descriptor import TensorDescriptor
    from ptxforge.runtime.timing import do_bench, do_bench_cudagraph
    from ptxforge.runtime.variants import forbid_jit
    from ptxforge.support import errors
    from ptxforge.support.errors import PtxforgeError

__version__ = "0.1.0"

_HOME = {  # public name -> the module that defines it
    "Artifact": "ptxforge.compiler",
    "CheckError": "ptxforge.checking.session",
    "Config": "ptxforge.runtime.autotune",
    "DeviceArray": "ptxforge.runtime.devices",
    "EmulatorWarning": "ptxforge.runtime.findings",
    "JITFunction": "ptxforge.runtime.jit",
    "PtxforgeError": "ptxforge.support.errors",
    "TensorDescriptor": "ptxforge.runtime.tensor_descriptor",
    "autotune": "ptxforge.runtime.autotune",
    "check": "ptxforge.checking.session",
    "cdiv": "ptxforge.runtime.arithmetic",
    "compile": "ptxforge.runtime.jit",
    "default_device": "ptxforge.runtime.devices",
    "do_bench": "ptxforge.runtime.timing",
    "do_bench_cudagraph": "ptxforge.runtime.timing",
    "empty": "ptxforge.runtime.devices",
    "forbid_jit": "ptxforge.runtime.variants",
    "heuristics": "ptxforge.runtime.heuristics",
    "jit": "ptxforge.runtime.jit",
    "load": "ptxforge.runtime.loaded",
    "next_power_of_2": "ptxforge.runtime.arithmetic",
    "pow2": "ptxforge.runtime.config",
    "to_device": "ptxforge.runtime.devices",
    "use_device": "ptxforge.runtime.devices",
}
_MODULES = {  # public module -> where it stands
    "debug": "ptxforge.debug",
    "errors": "ptxforge.support.errors",
    "hooks": "ptxforge.runtime.hooks",
    "language": "ptxforge.language",
    "triton_compat": "ptxforge.triton_compat",
}

__all__ = [
    "Artifact", "CheckError", "Config", "DeviceArray", "EmulatorWarning", "JITFunction", "PtxforgeError",
    "TensorDescriptor", "__version__", "autotune", "cdiv", "check", "compile", "debug", "default_device",
    "do_bench", "do_bench_cudagraph", "empty", "errors", "forbid_jit", "heuristics", "hooks", "jit",
    "language", "load", "next_power_of_2", "pow2", "to_device", "triton_compat", "use_device",
]  # fmt: skip


if not TYPE_CHECKING:  # else every name would be right to a type checker

    def __getattr__(name: str) -> object:
        if name in _HOME:
            value = getattr(importlib.import_module(_HOME[name]), name)
        elif name in _MODULES:
            value = importlib.import_module(_MODULES[name])
        else:
            raise AttributeError(f"module 'ptxforge' has no attribute '{name}'")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
