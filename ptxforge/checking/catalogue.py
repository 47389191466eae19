"""What can be found in a kernel: how bad it is, what it means, what to do.

docs/debugging.md has one entry for each.
"""

from __future__ import annotations

import attrs

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)  # the worst first


@attrs.frozen(slots=True)
class Entry:
    """One kind of finding: its severity, the reason why it is wrong, and the cure."""

    severity: str
    reason: str
    cure: str


CATALOGUE: dict[str, Entry] = {
    "out-of-bounds": Entry(
        ERROR,
        "the address lies outside every array that the kernel was given; a GPU stops with an error, or reads "
        "and overwrites what lies there",
        "mask the access with the array's size, or correct the grid, the strides or the offsets",
    ),
    "misaligned": Entry(
        ERROR,
        "the address is no multiple of the access's size; a GPU stops with an error",
        "pass an array whose address is aligned, and promise with multiple_of only what is true",
    ),
    "race": Entry(
        ERROR,
        "two threads of one program touch the same memory, one of them writes, and no barrier orders them: "
        "the result depends on which comes first",
        "put tl.debug_barrier() between the two accesses, or use an atomic operation for both",
    ),
    "uninitialised": Entry(
        ERROR,
        "memory is read that nothing has written, so that the value is whatever was there before",
        "write it first: look for a missing store, or a mask that is wider at the load than at the store",
    ),
    "barrier": Entry(
        ERROR,
        "some threads of the program reach a barrier, or a warp's exchange, that others do not",
        "move the barrier out of the branch",
    ),
    "global-race": Entry(
        ERROR,
        "two programs touch the same memory, one of them writes, and nothing orders them: programs run in "
        "any order and at the same time",
        "let each program own what it writes, use atomics for both accesses, or split the kernel into two "
        "launches",
    ),
    "async": Entry(
        ERROR,
        "an asynchronous copy or product is still under way when its data is touched",
        "wait for its group or its mbarrier first",
    ),
    "proxy": Entry(
        ERROR,
        "a bulk copy or wgmma reads through the async proxy what an ordinary store wrote, with no "
        "fence.proxy.async between",
        "let the storing threads execute the fence before the barrier",
    ),
    "copy-proxy": Entry(
        WARNING,
        "a bulk copy or wgmma reads what a cp.async wrote, with no fence.proxy.async between; PTX asks for "
        "it, shipped compilers leave it out",
        "let the copying threads wait and execute the fence before the barrier",
    ),
    "cluster": Entry(
        ERROR,
        "shared memory of another CTA of the cluster is accessed before it is known to run, or when it may "
        "have ended",
        "put a barrier of the cluster before the first such access and after the last",
    ),
    "register": Entry(
        ERROR,
        "an address or a branch depends on a register that no path has written",
        "correct the PTX or the inline assembly that reads it",
    ),
    "deadlock": Entry(
        ERROR,
        "threads wait for something that can never happen; a GPU hangs",
        "look for a barrier in a branch, a lock that is not released, or a flag that nobody sets",
    ),
    "livelock": Entry(
        ERROR,
        "threads go on and on without any change that another thread could see; a GPU hangs",
        "look for a loop whose condition never becomes false, or a lock that is never free",
    ),
    "limit": Entry(
        ERROR,
        "the launch was stopped because it exceeded its limit of steps or seconds",
        "look for a loop that does not end, use a smaller grid, or raise the limit (PTXFORGE_STEP_LIMIT, "
        "PTXFORGE_TIME_LIMIT)",
    ),
    "trap": Entry(ERROR, "the kernel executed trap", "find out what it guards"),
    "assert": Entry(ERROR, "a device_assert failed", "look at the values that its condition compares"),
    "overflow": Entry(
        ERROR,
        "the offset is computed in 32 bits and wraps around before it is added to a pointer: the access goes "
        "somewhere else",
        "compute it in 64 bits: tl.program_id(0).to(tl.int64), or pass the stride as a 64-bit integer",
    ),
    "promise": Entry(
        ERROR,
        "what the kernel promises with multiple_of, max_contiguous, max_constancy or assume is not true, and "
        "the compiler relies on it",
        "correct the promise, or the arguments",
    ),
    "non-finite": Entry(
        WARNING,
        "an operation makes a NaN or an infinity of finite inputs",
        "look at the inputs: a division by zero, the logarithm of a negative number, exp of a large one "
        "(take the maximum off first), or a sum that leaves the range of its type",
    ),
    "order": Entry(
        WARNING,
        "the result depends on the order in which programs run by more than rounding explains",
        "let each program own what it writes; atomics that add floats differ by rounding only",
    ),
    "unused-mask": Entry(
        NOTE,
        "the mask was true for every element of every program that ran",
        "it costs instructions; with a size that is always a multiple of the block, leave it out",
    ),
    "false-mask": Entry(
        NOTE,
        "the mask was false for every element of every program that ran: the access never happens",
        "look whether the condition is what you meant",
    ),
}


def rank(severity: str) -> int:
    """0 for the worst severity."""
    return SEVERITIES.index(severity)
