"""The benchmarks' kernels, compiled once for all tests of a process that look at them."""

from __future__ import annotations

import functools
from typing import NamedTuple

from benchmarks.configurations import configurations
from benchmarks.dialects import load
from ptxforge.compiler import compile_function

kernels = load("ptxforge")
BY_NAME = {one.name: one for one in configurations()}


class Compiled(NamedTuple):
    """What a launch needs: an artifact without its IR, of which there would be a lot."""

    name: str
    ptx: str
    parameters: tuple[tuple[str, str], ...]
    num_warps: int
    shared_bytes: int


@functools.cache
def compiled(name: str, target: str) -> Compiled:
    """The kernel of the configuration of that name. Raises what compiling raises."""
    one = BY_NAME[name]
    made = compile_function(getattr(kernels, one.kernel), one.signature, one.constants, target, **one.options)
    return Compiled(made.name, made.ptx, made.parameters, made.num_warps, made.shared_bytes)
