"""st.async and red.async: registers to the shared memory of a CTA of the cluster, announced on an mbarrier
there.

They are captured when issued and land when a thread waits on the mbarrier, as bulk loads do (`async_copy`).
Both are ordinary stores as far as proxies are concerned.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator.access import ATOMIC, Locator, scatter
from ptxforge.emulator.async_copy import BulkCopies, BulkWork
from ptxforge.emulator.bulk_targets import reduce_into, runs
from ptxforge.emulator.findings import Site
from ptxforge.emulator.mbarrier import MBarriers
from ptxforge.emulator.memory import ORIGIN, WINDOW_MASK
from ptxforge.emulator.parser import TYPE_BITS, Instruction, Memory, Vector
from ptxforge.emulator.program import SHARED_BASE
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter

_REDUCTIONS = {
    "u32": ("inc", "dec", "min", "max", "add"),
    "s32": ("min", "max", "add"),
    "b32": ("and", "or", "xor"),
    "u64": ("add",),
}


@instruction("st.async", "red.async", defines=0)
def emit_async_store(e: Emitter, i: Instruction) -> None:
    """st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.vec}.type [a], b, [mbar], and
    red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.op.type [a], b, [mbar].
    """
    target, value, barrier = i.operands
    kind, count = i.types[-1], i.vector_width
    if not isinstance(target, Memory) or not i.has("shared::cluster") or TYPE_BITS[kind] not in (32, 64):
        raise e.error("unknown form")
    reduction = _reduction(e, i, kind) if i.parts[0] == "red" else None
    size = TYPE_BITS[kind] // 8
    values = list(value.elements) if isinstance(value, Vector) else [value]
    if len(values) != count:
        raise e.error(f"{count} elements are expected")
    views = [e.view(element, f"u{size}") for element in values]
    barriers = e.locator(barrier, "shared", 8, ATOMIC)
    e.call(bind_async_store, e.site, *e.address(target), views, barriers, reduction)


def _reduction(e: Emitter, i: Instruction, kind: str) -> tuple[str, str]:
    name = i.first_of(_REDUCTIONS.get(kind, ()))
    if name is None:
        raise e.error("unknown reduction")
    return name, kind


def bind_async_store(
    machine: Machine,
    site: Site,
    target: np.ndarray,
    offset: int,
    values: list[np.ndarray],
    barrier: Locator,
    reduction: tuple[str, str] | None,
) -> Callable:
    bulk: BulkCopies = machine.family_state(BulkCopies)
    state: MBarriers = machine.family_state(MBarriers)
    size = values[0].itemsize
    total = size * len(values)

    def run(mask: np.ndarray | None) -> None:
        lanes = machine.lanes_in(mask)
        places, owners = machine.shared_places((target[lanes].astype(np.int64) & WINDOW_MASK) + offset, lanes)
        good = valid(lanes, places, owners)
        lanes, places, owners = lanes[good], places[good], owners[good]
        if not lanes.size:
            return
        announced = np.zeros(machine.lanes, np.int64)
        chosen = np.zeros(machine.lanes, bool)
        chosen[lanes] = True
        indices, located = barrier(chosen)
        announced[lanes if located is None else located] = state.slots(indices)
        apart = (owners - machine.rank_of_lane[lanes]) * machine.shared_stride
        first = places + machine.shared_base[lanes] - ORIGIN + apart
        issue(lanes, first, announced[lanes])

    def valid(lanes: np.ndarray, places: np.ndarray, owners: np.ndarray) -> np.ndarray:
        inside = (places >= SHARED_BASE) & (places + total <= SHARED_BASE + machine.shared_bytes)
        inside &= (owners >= 0) & (owners < machine.cluster_size)
        inside[inside] &= runs(machine, lanes[inside], owners[inside])
        if not inside.all():
            text = f"shared write of {total} bytes outside the CTAs of the cluster that run"
            machine.report("out-of-bounds", text, site, lanes[~inside], places[~inside])
        skewed = inside & (places % total != 0)
        if skewed.any():
            text = f"shared write of {total} bytes is not aligned to {total}"
            machine.report("misaligned", text, site, lanes[skewed], places[skewed])
        return inside & ~skewed

    def issue(lanes: np.ndarray, first: np.ndarray, slots: np.ndarray) -> None:
        units = first[:, None] + np.arange(0, total, size)
        data = np.stack([value[lanes] for value in values], axis=1)

        def move(_: np.ndarray | slice) -> None:
            if reduction is None:
                scatter(units, size, data)
                return
            for unit, value in zip(units, data):  # lanes may meet
                reduce_into(unit, value, reduction)

        BulkWork(
            bulk, site, lanes, units, size, move, slots, total, reduces=reduction is not None, generic=True
        ).issue()

    return run
