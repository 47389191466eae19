"""Tensor maps made and changed on the device: tensormap.replace, tensormap.cp_fenceproxy, and the fences
between.

A map in global memory that the kernel changes reaches TMA through a proxy of its own: who changed it releases
it (`cp_fenceproxy` does, or `fence.proxy.tensormap::generic.release`), and a thread of each CTA that uses it
acquires it (`fence.proxy.tensormap::generic.acquire`) afterwards. Checked mode reports what is missing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxforge.emulator import tensormap
from ptxforge.emulator.access import READ, WRITE, Locator
from ptxforge.emulator.findings import Site
from ptxforge.emulator.memory import ORIGIN, TABLES
from ptxforge.emulator.parser import Immediate, Instruction, Memory
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import EXIT, Machine
from ptxforge.emulator.translate import Emitter

_WITH_ORDINAL = ("box_dim", "global_dim", "global_stride", "element_stride")
_FIELDS = (
    "global_address",
    "rank",
    "elemtype",
    "interleave_layout",
    "swizzle_mode",
    "fill_mode",
    *_WITH_ORDINAL,
)
_WIDE = ("global_address", "global_stride")


class ChangedMaps:
    """Which tensor maps in global memory a batch has changed, and who may use them."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.version: dict[int, int] = {}
        """Per address: how often the map there was changed."""
        self.unreleased: dict[int, int] = {}
        """Addresses that were changed and not released since, with the CTA that did it."""
        self.acquired: dict[tuple[int, int], int] = {}
        """(CTA, address) -> the version that was acquired."""

    def reset(self) -> None:
        self.version.clear()
        self.unreleased.clear()
        self.acquired.clear()

    def change(self, address: int, cta: int, released: bool) -> None:
        self.version[address] = self.version.get(address, 0) + 1
        self.unreleased.pop(address, None)
        if not released:
            self.unreleased[address] = cta

    def release(self, ctas: np.ndarray) -> None:
        fenced = set(ctas.tolist())
        self.unreleased = {address: cta for address, cta in self.unreleased.items() if cta not in fenced}

    def acquire(self, cta: int, address: int) -> None:
        self.acquired[cta, address] = self.version.get(address, 0)

    def used(self, site: Site, lanes: np.ndarray, address: int) -> None:
        """TMA reads the map at an address for some lanes."""
        if not self.version or not self.machine.watchers:
            return
        newest = self.version.get(address, 0)
        ctas = self.machine.cta_of_lane[lanes]
        stale = np.array([self.acquired.get((cta, address), 0) != newest for cta in ctas.tolist()], bool)
        missing = "release" if address in self.unreleased else "acquire"
        if missing == "release":
            stale[:] = True
        if stale.any():
            text = f"the tensor map was changed without fence.proxy.tensormap::generic.{missing} since"
            self.machine.report("proxy", text, site, lanes[stale], np.full(stale.sum(), address))


@instruction("tensormap.replace", defines=0)
def emit_replace(e: Emitter, i: Instruction) -> None:
    """tensormap.replace.tile.field{.ss}.b1024.type [addr], {ord,} new_val."""
    field = i.first_of(_FIELDS)
    kind = "b64" if field in _WIDE else "b32"
    if field is None or not i.has("tile") or not i.has("b1024") or i.parts[-1] != kind:
        raise e.error("unknown form")
    memory, *rest = i.operands
    ordinal = 0
    if field in _WITH_ORDINAL:
        ordinal = e.constant(rest.pop(0))
    if len(rest) != 1 or ordinal is None or not 0 <= ordinal < 5:
        raise e.error("a dimension from 0 to 4, where the field has them, and a value are expected")
    if field not in (*_WIDE, "rank", *_WITH_ORDINAL) and not isinstance(rest[0], Immediate):
        raise e.error("a constant is expected")
    if isinstance(rest[0], Immediate):
        _check_value(e, field, rest[0].value)
    locator = e.locator(memory, i.space, tensormap.BYTES, WRITE, alignment=64)
    e.call(bind_replace, e.site, locator, field, ordinal, e.view(rest[0], "u" + str(int(kind[1:]) // 8)))


def _check_value(e: Emitter, field: str, value: int) -> None:
    """Constants that a field cannot have are errors when loaded, as ptxas has it."""
    try:
        tensormap.replaced(bytes(tensormap.BYTES), field, 0, value)
    except tensormap.InvalidTensorMap as error:
        raise e.error(str(error)) from None


def bind_replace(
    machine: Machine, site: Site, locator: Locator, field: str, ordinal: int, values: np.ndarray
) -> Callable:
    changed: ChangedMaps = machine.family_state(ChangedMaps)

    def run(mask: np.ndarray | None) -> None:
        indices, lanes = locator(mask)
        lanes = machine.lanes_in(lanes)
        machine.changed = True
        for index, lane in zip(indices.tolist(), lanes.tolist()):
            place = TABLES[1][index : index + tensormap.BYTES]
            try:
                made = tensormap.replaced(place.tobytes(), field, ordinal, int(values[lane]))
            except tensormap.InvalidTensorMap as error:
                machine.report("trap", str(error), site, np.array([lane]))
                continue
            place[:] = np.frombuffer(made, np.uint8)
            if machine.memory.contains(index + ORIGIN, index + ORIGIN + tensormap.BYTES):
                changed.change(index + ORIGIN, int(machine.cta_of_lane[lane]), released=False)

    return run


@instruction("tensormap.cp_fenceproxy", defines=0)
def emit_copy(e: Emitter, i: Instruction) -> None:
    """tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [dst], [src],
    128."""
    if len(i.operands) != 3 or e.constant(i.operands[2]) != tensormap.BYTES:
        raise e.error(f"the size must be {tensormap.BYTES}")
    if not (i.has("global") and i.has("shared::cta") and i.has("release")):
        raise e.error("unknown form")
    target = e.locator(i.operands[0], "global", tensormap.BYTES, WRITE)
    e.call(bind_copy, e.site, target, e.locator(i.operands[1], "shared", tensormap.BYTES, READ))


def bind_copy(machine: Machine, site: Site, target: Locator, source: Locator) -> Callable:
    changed: ChangedMaps = machine.family_state(ChangedMaps)

    def run(mask: np.ndarray | None) -> None:
        active = np.ones(machine.lanes, bool) if mask is None else mask
        rows = active.reshape(-1, 32)
        absent = ~rows & (machine.pc != EXIT).reshape(rows.shape)
        partial = rows.any(axis=1) & absent.any(axis=1)
        if partial.any():
            lanes = np.flatnonzero(rows[partial].any(axis=0))[:1] + 32 * np.flatnonzero(partial)[0]
            machine.report("barrier", "a warp instruction executed by part of a warp", site, lanes)
        first = np.zeros(machine.lanes, bool)
        first[np.flatnonzero(rows.any(axis=1)) * 32 + rows.argmax(axis=1)[rows.any(axis=1)]] = True
        copy(first)

    def copy(first: np.ndarray) -> None:
        """One lane of each warp does it for all."""
        found, lanes = source(first)
        lanes = machine.lanes_in(lanes)
        data = {
            lane: bytes(TABLES[1][i : i + tensormap.BYTES]) for lane, i in zip(lanes.tolist(), found.tolist())
        }
        indices, lanes = target(first)
        lanes = machine.lanes_in(lanes)
        machine.changed = True
        for lane, index in zip(lanes.tolist(), indices.tolist()):
            if lane in data:
                TABLES[1][index : index + tensormap.BYTES] = np.frombuffer(data[lane], np.uint8)
                changed.change(index + ORIGIN, int(machine.cta_of_lane[lane]), released=True)

    return run


@instruction("fence.proxy.tensormap::generic", defines=0)
def emit_fence(e: Emitter, i: Instruction) -> None:
    """fence.proxy.tensormap::generic.release.scope, and .acquire.scope [addr], 128."""
    if i.has("release"):
        e.call(bind_release)
        return
    memory = i.operands[0] if len(i.operands) == 2 else None
    if not isinstance(memory, Memory) or e.constant(i.operands[1]) != tensormap.BYTES:
        raise e.error(f"an address and the size {tensormap.BYTES} are expected")
    e.call(bind_acquire, *e.address(memory))


def bind_release(machine: Machine) -> Callable:
    changed: ChangedMaps = machine.family_state(ChangedMaps)

    def run(mask: np.ndarray | None) -> None:
        changed.release(machine.cta_of_lane if mask is None else machine.cta_of_lane[mask])

    return run


def bind_acquire(machine: Machine, base: np.ndarray, offset: int) -> Callable:
    changed: ChangedMaps = machine.family_state(ChangedMaps)

    def run(mask: np.ndarray | None) -> None:
        lanes = machine.lanes_in(mask)
        places = set(
            zip(machine.cta_of_lane[lanes].tolist(), (base[lanes].astype(np.int64) + offset).tolist())
        )
        for cta, address in places:
            changed.acquire(cta, address)

    return run
