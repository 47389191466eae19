"""A grid's CTAs spread over processes.

Each process runs a contiguous part of the grid in its own copy of memory (``fork``). Afterwards it compares
every allocation with what it was before and writes the changed bytes to memory that all processes share; the
parent takes over the sum of the changes. That is right when no two CTAs write the same byte and none reads
what another wrote: kernels with atomics on global memory, or with volatile or acquiring accesses to it, are
not spread.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptxforge.emulator.findings import Findings
from ptxforge.emulator.memory import GlobalMemory
from ptxforge.emulator.program import Program
from ptxforge.support.errors import DeviceError

if TYPE_CHECKING:
    from ptxforge.emulator.launch import Kernel, Shape

_TALKING = {"volatile", "acquire", "relaxed", "release", "acq_rel", "mmio"}


def can_spread(program: Program) -> bool:
    """Whether the CTAs of the program are independent, as far as its instructions tell."""
    for block in program.blocks:
        for item in block.instructions:
            local = any(part.startswith("shared") for part in item.parts)
            if item.parts[0] in ("atom", "red") and not local or item.opcode.startswith("cp.reduce"):
                return False
            if item.parts[0] in ("ld", "st") and not local and _TALKING & set(item.parts):
                return False
    return hasattr(os, "fork")


def run_in_processes(
    kernel: Kernel, shape: Shape, params: bytes, findings: Findings, processes: int
) -> list[str]:
    """Like :meth:`Kernel.run` for the whole grid; returns what was printed, in the order of the CTAs."""
    clusters = shape.ctas // shape.cluster_size
    count = min(processes, clusters)
    bounds = [clusters * index // count * shape.cluster_size for index in range(count + 1)]
    merged = {start: _Merge(kernel.memory, start, nbytes) for start, nbytes in kernel.memory.allocations()}

    def part(first: int, last: int) -> tuple[list[str], Findings]:
        own = Findings()
        output = kernel.run_part(shape, params, own, first, last)
        for merge in merged.values():
            merge.publish()
        return output, own

    children = [_Child(part, first, last) for first, last in zip(bounds, bounds[1:])]
    results = [child.result() for child in children]
    for merge in merged.values():
        merge.take_over()
    for _, own in results:
        findings.include(own)
    return [text for output, _ in results for text in output]


_BLAS_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
)


def use_blas_threads(count: int) -> None:
    """How many threads numpy's products use from now on, where numpy is built on OpenBLAS: processes that
    each use all cores would only take turns.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8") as lines:
            libraries = {line.split(None, 5)[5].strip() for line in lines if "openblas" in line}
    except OSError:
        return
    for path in libraries:
        library = ctypes.CDLL(path)
        for name in _BLAS_SETTERS:
            if hasattr(library, name):
                getattr(library, name)(count)


class _Merge:
    """One allocation: its bytes now and before, and the shared copy that collects all processes' changes."""

    def __init__(self, memory: GlobalMemory, start: int, nbytes: int):
        self.mine = memory.array_at(start, nbytes)
        self.before = self.mine.copy()
        self.shared = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
        self.shared[:] = self.before

    def publish(self) -> None:
        """In a child: write what has changed."""
        changed = np.flatnonzero(self.mine != self.before)
        self.shared[changed] = self.mine[changed]

    def take_over(self) -> None:
        """In the parent."""
        changed = np.flatnonzero(self.shared != self.before)
        if changed.size:
            self.mine[changed] = self.shared[changed]


class _Child:
    """One forked process that calls ``work(first, last)`` and sends the result through a pipe."""

    def __init__(self, work: Callable, first: int, last: int):
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        os.close(self.reader)
        status = 1
        use_blas_threads(1)
        try:
            with os.fdopen(writer, "wb") as stream:
                try:
                    pickle.dump(work(first, last), stream)
                    status = 0
                except Exception as error:  # the parent raises it
                    pickle.dump(DeviceError(f"{type(error).__name__}: {error}"), stream)
        finally:
            os._exit(status)

    def result(self) -> tuple:
        """Wait for the process; raises what it raised."""
        with os.fdopen(self.reader, "rb") as stream:
            data = stream.read()
        os.waitpid(self.pid, 0)
        if not data:
            raise DeviceError("a process of the emulator died")
        found = pickle.loads(data)
        if isinstance(found, Exception):
            raise found
        return found
