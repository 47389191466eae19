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
        True, "barriers between the threads of a program are the compiler's",
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
    "triton._C.libtriton": NotThere(
        True, "there is no C++ behind ptxforge: no MLIR, no LLVM, and so no bindings of them"
    ),
    "triton.tools.experimental_descriptor": NotThere(
        True, "it gave way to triton.tools.tensor_descriptor in Triton 3.4", "triton.tools.tensor_descriptor"
    ),
}


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
