"""Names that people look for and do not find, each with the reason: errors and the documentation tell them
from here.

A name is written as people import it: ``tl.target_info``, ``triton.experimental``. An entry stands
for all names below it.
"""

from __future__ import annotations

import attrs


@attrs.frozen(slots=True)
class NotThere:
    """Why there is no such name. ``never``: there will not be; else there may be one day. ``instead`` says
    what does the same, where something does."""

    never: bool
    why: str
    instead: str = ""

    def __str__(self) -> str:
        instead = f"; instead: {self.instead}" if self.instead else ""
        return f"{'never' if self.never else 'not yet'}: {self.why}{instead}"


NOT_THERE: dict[str, NotThere] = {
    "tl.target_info": NotThere(
        False, "a kernel does not ask what it is compiled for", "a constexpr parameter"
    ),
    "tl.slice": NotThere(
        True, "slices are written as Python writes them", "x[:, None], or x[8:16] with compile-time bounds"
    ),
    "tl.async_task": NotThere(
        True, "warps are given their work by the compiler", "tl.range(…, num_stages=…)"
    ),
    "tl.gluon": NotThere(
        True, "layouts and shared memory by hand are Gluon's; ptxforge finds them", "the same in blocks"
    ),
    "tl.tcgen05": NotThere(
        False, "there are no instructions of Blackwell's tensor memory here", "tl.dot, by mma.sync"
    ),
    "tl.syncthreads": NotThere(
        True,
        "barriers between the threads of a program are the compiler's",
        "tl.debug_barrier() where elements talk through global memory",
    ),
    "tl.thread_id": NotThere(
        True, "a program is written for blocks, and threads are the compiler's", "tl.arange(0, BLOCK)"
    ),
    "tl.shared_memory": NotThere(True, "what lies in shared memory, and where, is the compiler's choice"),
    "tl._experimental_make_tensor_descriptor": NotThere(
        True, "Triton took it back", "tl.make_tensor_descriptor"
    ),
    "tl._experimental_descriptor_load": NotThere(True, "Triton took it back", "descriptor.load"),
    "tl._experimental_descriptor_store": NotThere(True, "Triton took it back", "descriptor.store"),
    "triton.experimental": NotThere(
        True,
        "Gluon writes the layouts and the memory of one architecture by hand; ptxforge finds them for each",
        "the same kernel in the language of blocks",
    ),
    "triton.language.extra.hip": NotThere(
        True, "ptxforge makes PTX, for NVIDIA's GPUs; there is nothing for AMD's"
    ),
    "triton.language.extra.tlx": NotThere(
        True, "TLX is an extension of another fork, with barriers and buffers by hand"
    ),
    "triton.language.extra.tcgen05": NotThere(
        False, "there are no instructions of Blackwell's tensor memory here", "tl.dot, by mma.sync"
    ),
    "triton.language.semantic": NotThere(
        True, "it builds Triton's IR; ptxforge's has no builder that Python code calls"
    ),
    "triton.compiler.code_generator": NotThere(True, "it turns Python into Triton's IR, which is not made"),
    "triton.compiler.make_launcher": NotThere(True, "launches need no C that is compiled for a kernel"),
    "triton.backends.nvidia": NotThere(
        True,
        "ptxforge stands in the place of Triton's backend for NVIDIA's GPUs",
        "triton.runtime.driver.active, for the device's facts",
    ),
    "triton.runtime.interpreter": NotThere(
        True, "there is no such interpreter", "PTXFORGE_DEVICE=emulator or PTXFORGE_DEVICE=interpreter"
    ),
    "triton.tools.build_extern": NotThere(True, "no library of bitcode is linked into kernels"),
    "triton.tools.compile": NotThere(
        True,
        "kernels are compiled ahead of time to PTX and machine code, without a launcher in C",
        "python -m ptxforge compile",
    ),
    "triton.tools.link": NotThere(True, "there is no launcher in C to link"),
    **dict.fromkeys(
        ("triton.profiler.context", "triton.profiler.flags", "triton.profiler.metric"),
        NotThere(True, "the profiler's own state"),
    ),
    "triton.profiler.hooks": NotThere(True, "the profiler's own state", "triton.knobs.runtime"),
    "triton.profiler.language": NotThere(
        False, "the profiler looks at launches, not into kernels", "globaltimer() of tl.extra.cuda"
    ),
    "triton.profiler.mode": NotThere(False, "the profiler has one mode: launches timed one by one"),
    "triton.profiler.specs": NotThere(
        False, "the profiler knows no peak rates of GPUs", "python -m ptxforge explain"
    ),
    "triton.profiler.state": NotThere(
        False, "the profiler has scopes, and no state of the whole program", "triton.profiler.scope"
    ),
    "triton._C.libtriton": NotThere(
        True, "there is no C++ behind ptxforge: no MLIR, no LLVM, and so no bindings of them"
    ),
    "triton.tools.gsan": NotThere(
        True, "it sees what two kernels' threads do to one place", "python -m ptxforge check"
    ),
    "triton.tools.experimental_descriptor": NotThere(
        True, "it gave way to triton.tools.tensor_descriptor in Triton 3.4", "triton.tools.tensor_descriptor"
    ),
}


INSIDES = {
    "max() and min() in kernels are Python's": """
        triton.language.core.builtin_max triton.language.core.builtin_min
    """,
    "no library of bitcode is linked; tl.extra.libdevice has CUDA's functions": """
        triton.language.core.dispatch triton.language.core.extern triton.language.core.extern_elementwise
    """,
    "python -m ptxforge check": "triton.testing.cuda_memcheck",
}
"""Names inside of Triton's modules that people may look for, by the reason why they are not there; the others
stand with theirs in docs/from-triton.md."""


def inside(name: str) -> str | None:
    """Why a module of Triton's lacks a name; ``None`` when that is not told."""
    return next((why for why, names in INSIDES.items() if name in names.split()), None)


def reason(name: str) -> NotThere | None:
    """Why there is no ``name``; ``None`` where nothing is known of it.

    >>> str(reason("tl.target_info"))
    'not yet: a kernel does not ask what it is compiled for; instead: a constexpr parameter'
    >>> reason("triton._C.libtriton.ir") is NOT_THERE["triton._C.libtriton"], reason("tl.lode")
    (True, None)
    """
    while name:
        if name in NOT_THERE:
            return NOT_THERE[name]
        name = name.rpartition(".")[0]
    return None
