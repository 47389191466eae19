"""Names that people look for and do not find, each with the reason: errors and the documentation tell them
from here.

A name is written as people import it: ``tl.map_elementwise``, ``triton.experimental.gluon``. An entry stands
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


_BY_HAND = (
    "it places layouts, shared memory and barriers of one architecture by hand, which the compiler does"
)
_TENSOR_MEMORY = "Blackwell's tensor memory and its instructions are not used; its GPUs run mma.sync"

NOT_THERE: dict[str, NotThere] = {
    "tl.map_elementwise": NotThere(
        False,
        "functions of single elements are not called",
        "arithmetic on blocks, tl.where, or tl.inline_asm_elementwise",
    ),
    "tl.atomic_load": NotThere(
        False,
        "there are no loads with an order of memory",
        "tl.atomic_add(pointer, 0), or tl.load(…, volatile=True)",
    ),
    "tl.atomic_store": NotThere(
        False, "there are no stores with an order of memory", "tl.atomic_xchg(pointer, value)"
    ),
    "tl.atomic_poll": NotThere(False, "nothing waits in one operation", "a while loop around tl.atomic_cas"),
    "tl.target_info": NotThere(
        False, "a kernel does not ask what it is compiled for", "a constexpr parameter"
    ),
    "tl.slice": NotThere(
        True,
        "a part of a block may lie in any thread",
        "load the part, or tl.gather, tl.split and tl.reshape",
    ),
    "tl.async_task": NotThere(
        True, "warps are given their work by the compiler", "tl.range(…, num_stages=…)"
    ),
    "tl._experimental_make_tensor_descriptor": NotThere(
        True, "Triton took it back", "tl.make_tensor_descriptor"
    ),
    "tl._experimental_descriptor_load": NotThere(True, "Triton took it back", "descriptor.load"),
    "tl._experimental_descriptor_store": NotThere(True, "Triton took it back", "descriptor.store"),
    "tl.extra.tlx": NotThere(True, _BY_HAND),
    "tl.extra.hip": NotThere(True, "ptxforge makes PTX, for NVIDIA's GPUs"),
    "tcgen05": NotThere(False, _TENSOR_MEMORY),
    "gluon": NotThere(True, f"Gluon: {_BY_HAND}", "the same kernel with tl"),
}


def reason(name: str) -> NotThere | None:
    """Why there is no ``name``; ``None`` where nothing is known of it.

    >>> str(reason("tl.atomic_store"))
    'not yet: there are no stores with an order of memory; instead: tl.atomic_xchg(pointer, value)'
    >>> reason("tl.extra.hip.libdevice") is NOT_THERE["tl.extra.hip"], reason("tl.lode")
    (True, None)
    """
    while name:
        if name in NOT_THERE:
            return NOT_THERE[name]
        name = name.rpartition(".")[0]
    return None
