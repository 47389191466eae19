"""ptxforge: a tile-language GPU compiler in pure Python.

A kernel is a Python function over tiles (:mod:`ptxforge.language`); :func:`compile` makes it callable, on
CUDA when there is a GPU and else on the emulator. Names are loaded when first used, so that importing
ptxforge costs almost nothing.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_HOME = {  # public name -> the module that defines it
    "Artifact": "ptxforge.compiler",
    "Config": "ptxforge.runtime.autotune",
    "DeviceArray": "ptxforge.driver.device_array",
    "JITFunction": "ptxforge.runtime.jit",
    "PtxforgeError": "ptxforge.support.errors",
    "autotune": "ptxforge.runtime.autotune",
    "cdiv": "ptxforge.runtime.arithmetic",
    "compile": "ptxforge.runtime.jit",
    "default_device": "ptxforge.runtime.devices",
    "do_bench": "ptxforge.runtime.timing",
    "empty": "ptxforge.runtime.devices",
    "heuristics": "ptxforge.runtime.heuristics",
    "jit": "ptxforge.runtime.jit",
    "next_power_of_2": "ptxforge.runtime.arithmetic",
    "to_device": "ptxforge.runtime.devices",
    "use_device": "ptxforge.runtime.devices",
}
_MODULES = ("debug", "errors", "language", "triton_compat")

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name == "errors":
        value = importlib.import_module("ptxforge.support.errors")
    elif name in _MODULES:
        value = importlib.import_module(f"ptxforge.{name}")
    else:
        raise AttributeError(f"module 'ptxforge' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
