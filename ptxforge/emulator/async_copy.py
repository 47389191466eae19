"""Asynchronous copies: cp.async, cp.async.bulk, and TMA (cp.async.bulk.tensor), with their reductions.

Everything lands late, with its operands captured at issue:

* cp.async reads global memory when it is issued and writes shared memory when its thread waits for the group.
* Bulk loads wait in a queue and land when a thread waits on their mbarrier (see `mbarrier`). A multicast load
is one for each CTA that it goes to.
* Bulk stores and reductions read shared memory and write global memory when their thread waits for the bulk
group. What
  nobody waits for lands when the CTAs are done, and is reported: hardware may free the shared memory before.

`machine.shared` addresses: "index" means a host address minus ORIGIN everywhere, as `Locator` gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import numpy as np

from ptxforge.emulator import tensormap
from ptxforge.emulator.access import READ, WRITE, Locator, gather, scatter
from ptxforge.emulator.async_work import (
    REDUCED_TYPES,
    REDUCTIONS,
    Groups,
    Multicast,
    SharedAddress,
    meet,
    reduce_into,
)
from ptxforge.emulator.findings import Site
from ptxforge.emulator.mbarrier import MBarriers
from ptxforge.emulator.memory import CODES, ORIGIN, TABLES
from ptxforge.emulator.numerics import NATURAL
from ptxforge.emulator.parser import Instruction, Memory, Register, Vector
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.tensormap import ChangedMaps, TensorMap
from ptxforge.emulator.translate import Emitter

# ------------------------------------------------------------------------------------------------------------
# cp.async
# ------------------------------------------------------------------------------------------------------------


class CopyGroups(Groups):
    """cp.async groups: agents are threads. Also the arrivals that mbarriers expect from copies."""

    def __init__(self, machine: Machine):
        super().__init__(machine.lanes)
        self.machine = machine
        self.arrivals: list[tuple[np.ndarray, np.ndarray, Site]] = []
        self.observers: list[object] = []
        """Checkers: `copy_issued(site, lanes, indices, nbytes)`, `copy_landed(...)`."""
        machine.family_state(MBarriers).sources.append(self._land_for_mbarriers)

    def reset(self) -> None:
        super().reset()
        self.arrivals.clear()

    def _land_for_mbarriers(self, slots: np.ndarray | None) -> bool:
        """Copies that announced themselves on a waited mbarrier land, and arrive."""
        state = self.machine.family_state(MBarriers)
        chosen = [slots is None or meet(entry[1], slots) for entry in self.arrivals]
        ready = [entry for entry, wanted in zip(self.arrivals, chosen) if wanted]
        self.arrivals = [entry for entry, wanted in zip(self.arrivals, chosen) if not wanted]
        for lanes, places, site in ready:
            agents = np.zeros(self.machine.lanes, bool)
            agents[lanes] = True
            self.wait(agents, 0, uncommitted=True)
            state.arrive(places, 1, site, lanes)
        return bool(ready)


@attrs.define
class _Copy:
    """One cp.async of some lanes: where to write what."""

    target: Locator
    groups: CopyGroups
    lanes: np.ndarray | None
    indices: np.ndarray
    values: np.ndarray
    nbytes: int

    def land(self, chosen: np.ndarray | None) -> None:
        lanes, indices, values = self.lanes, self.indices, self.values
        if chosen is not None:
            lanes = chosen if lanes is None else lanes[chosen]
            indices, values = indices[chosen], values[chosen]
        scatter(indices, self.nbytes, values)
        for observer in self.groups.observers:
            observer.copy_landed(self.target.site, lanes, indices, self.nbytes)
        for watcher in self.target.watchers:
            watcher.access(self.target, lanes, indices)


@instruction("cp.async.ca", "cp.async.cg", defines=0)
def emit_cp_async(e: Emitter, i: Instruction) -> None:
    """cp.async.ca/cg.shared.global [dst], [src], size{, src-size | ignore-src}{, cache-policy}."""
    nbytes = e.constant(i.operands[2]) if len(i.operands) > 2 else None
    if nbytes not in (4, 8, 16) or (i.has("cg") and nbytes != 16):
        raise e.error("a size of 4, 8 or 16 bytes is expected (16 for .cg)")
    rest = list(i.operands[3:])
    if i.has("L2::cache_hint"):
        rest = rest[:-1]
    size, ignored = None, None
    if rest and isinstance(rest[0], Register) and rest[0].bits == 1:
        ignored = rest[0]
    elif rest and e.constant(rest[0]) != nbytes:
        size = rest[0]
    e.call(
        bind_cp_async, e.locator(i.operands[0], "shared", nbytes, WRITE), e.locator(i.operands[1], "global",
        nbytes, READ),
        nbytes, None if size is None else e.view(size, "u4"), None if ignored is None else e.view(ignored,
        "?"),
        bool(ignored is not None and ignored.negated),
    )  # fmt: skip


def bind_cp_async(
    machine: Machine, target: Locator, source: Locator, nbytes: int, size: np.ndarray | None,
    ignored: np.ndarray | None,
    negated: bool,
) -> Callable:  # fmt: skip
    groups: CopyGroups = machine.family_state(CopyGroups)
    target.copies = True
    code = CODES[nbytes]

    def run(mask: np.ndarray | None) -> None:
        values = loaded(mask)
        indices, lanes = target(mask)
        for observer in groups.observers:
            observer.copy_issued(target.site, lanes, indices, nbytes)
        if lanes is not None:
            values = values[lanes]
        groups.issue(lanes, _Copy(target, groups, lanes, indices.copy(), values, nbytes))

    def loaded(mask: np.ndarray | None) -> np.ndarray:
        """What each lane copies: zeros beyond its source size."""
        whole = mask
        if ignored is not None:
            whole = ignored == negated if mask is None else mask & (ignored == negated)
        if size is not None and (size < nbytes).any():
            whole = size >= nbytes if mask is None else mask & (size >= nbytes)
        indices, lanes = source(whole)
        if lanes is None:
            return gather(indices, nbytes)
        values = np.zeros(machine.lanes, code)
        values[lanes] = gather(indices, nbytes)
        if size is not None:
            partial = (size < nbytes) & (size > 0)
            for lane in np.flatnonzero(partial if mask is None else partial & mask):
                _copy_part(machine, source, int(lane), int(size[lane]), values)
        return values

    return run


def _copy_part(machine: Machine, source: Locator, lane: int, count: int, values: np.ndarray) -> None:
    """A lane that copies fewer bytes than the instruction's size."""
    address = int(source.base[lane]) + source.offset
    if not machine.memory.contains(address, address + count):
        text = f"global read of {count} bytes: {machine.memory.describe(address)}"
        machine.report("out-of-bounds", text, source.site, np.array([lane]), np.array([address]))
        return
    values[lane : lane + 1].view(np.uint8)[:count] = TABLES[1][address - ORIGIN : address - ORIGIN + count]


@instruction("cp.async.commit_group", defines=0)
def emit_commit(e: Emitter, i: Instruction) -> None:
    e.call(lambda machine: machine.family_state(CopyGroups).commit)


@instruction("cp.async.wait_group", "cp.async.wait_all", defines=0)
def emit_wait(e: Emitter, i: Instruction) -> None:
    everything = i.has("wait_all")
    pending = 0 if everything else number_of_groups(e, i)
    wait = {"pending": pending, "uncommitted": everything}
    e.call(lambda machine: partial(machine.family_state(CopyGroups).wait, **wait))


def number_of_groups(e: Emitter, i: Instruction) -> int:
    """How many groups a wait leaves under way."""
    pending = e.constant(i.operands[0])
    if pending is None:
        raise e.error("the number of groups must be a constant")
    return pending


@instruction("cp.async.mbarrier.arrive", defines=0)
def emit_copy_arrives(e: Emitter, i: Instruction) -> None:
    e.call(bind_copy_arrives, e.site, e.locator(i.operands[0], i.space, 8, "atomic"), i.has("noinc"))


def bind_copy_arrives(machine: Machine, site: Site, locator: Locator, noinc: bool) -> Callable:
    groups: CopyGroups = machine.family_state(CopyGroups)
    state: MBarriers = machine.family_state(MBarriers)

    def run(mask: np.ndarray | None) -> None:
        indices, lanes = locator(mask)
        lanes = machine.lanes_in(lanes)
        lanes, slots = state.in_shared(site, lanes, state.slots(indices))
        if not noinc:
            np.add.at(state.pending, slots, 1)
        groups.arrivals.append((lanes, slots, site))

    return run


# ------------------------------------------------------------------------------------------------------------
# Bulk copies: the queue of loads, the groups of stores
# ------------------------------------------------------------------------------------------------------------


class BulkCopies:
    """Loads under way (they land on mbarriers) and the bulk groups of stores (agents are threads)."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.loads: list[BulkWork] = []
        self.stores = Groups(machine.lanes)
        self.observers: list[object] = []
        """Checkers: `bulk_issued(work, store)` and `bulk_landed(work, store, chosen)`."""
        machine.family_state(MBarriers).sources.append(self._land_loads)
        machine.finish_hooks.append(self.finish)

    def reset(self) -> None:
        """Drop loads that nobody waited for. Stores have landed in `finish`."""
        self.loads.clear()
        self.stores.reset()

    def _land_loads(self, slots: np.ndarray | None) -> bool:
        ready = [load for load in self.loads if slots is None or meet(load.slots, slots)]
        if ready:
            self.loads = [load for load in self.loads if load not in ready]
            for load in ready:
                load.land()
        return bool(ready)

    def finish(self) -> None:
        """The CTAs are done: stores that nobody waited for land, and are reported."""
        for record in self.stores.records:
            text = "this bulk copy reads shared memory, and the CTA ends without waiting for it"
            self.machine.report("async", text, record.work.site, record.work.lanes)
        self.stores.wait(None, 0, uncommitted=True)


@attrs.define(eq=False)
class BulkWork:
    """One bulk copy of some lanes. `move(chosen)` does it for the chosen ones (positions in `lanes`)."""

    bulk: BulkCopies
    site: Site
    lanes: np.ndarray
    units: np.ndarray
    """(Q, E) indices of the units of shared memory that are written or read."""
    unit: int
    move: Callable[[np.ndarray | slice], None]
    slots: np.ndarray | None = None
    """Loads: the mbarriers that announce them,"""
    nbytes: np.ndarray | int = 0
    """and what each counts."""
    remote: np.ndarray | None = None
    """(Q, E) indices of the units of global memory on the other side; None when that is shared memory, or
    when another part of a multicast copy stands for it,"""
    inside: np.ndarray | None = None
    """which of them are in the tensor (None: all),"""
    reduces: bool = False
    """and whether they are changed atomically."""
    generic: bool = False
    """Whether it goes through the generic proxy, as ordinary stores do."""
    clock: np.ndarray | None = None
    """For checkers: what was known where the copy was issued."""

    def issue(self) -> None:
        store = self.slots is None
        for observer in self.bulk.observers:
            observer.bulk_issued(self, store)
        if store:
            self.bulk.stores.issue(self.lanes, self)
        else:
            self.bulk.loads.append(self)

    def land(self, chosen: np.ndarray | None = None) -> None:
        store = self.slots is None
        which = slice(None) if chosen is None else chosen
        self.move(which)
        for observer in self.bulk.observers:
            observer.bulk_landed(self, store, which)
        if not store:
            self.bulk.machine.family_state(MBarriers).complete(self.slots, self.nbytes)


def _mask(e: Emitter, i: Instruction, position: int) -> object:
    """For :meth:`Emitter.call`: the operand that names the CTAs of a multicast copy."""
    return e.view(i.operands[position], "u2") if i.has("multicast::cluster") else None


@instruction("cp.async.bulk.commit_group", defines=0)
def emit_bulk_commit(e: Emitter, i: Instruction) -> None:
    e.call(lambda machine: machine.family_state(BulkCopies).stores.commit)


@instruction("cp.async.bulk.wait_group", defines=0)
def emit_bulk_wait(e: Emitter, i: Instruction) -> None:
    """With .read only the reading of shared memory is waited for; here both happen at once."""
    pending = number_of_groups(e, i)
    e.call(lambda machine: partial(machine.family_state(BulkCopies).stores.wait, pending=pending))


@instruction("cp.async.bulk.prefetch", "cp.async.bulk.prefetch.tensor", defines=0)
def emit_prefetch(e: Emitter, i: Instruction) -> None:
    """A hint."""


# ------------------------------------------------------------------------------------------------------------
# cp.async.bulk without a tensor map
# ------------------------------------------------------------------------------------------------------------


@instruction("cp.async.bulk", "cp.reduce.async.bulk", defines=0)
def emit_bulk(e: Emitter, i: Instruction) -> None:
    """[dst], [src], size, [mbar] towards shared memory; [dst], [src], size towards global memory."""
    spaces = [part.partition("::")[0] for part in i.parts if part.partition("::")[0] in ("shared", "global")]
    if len(spaces) != 2 or i.has("cp_mask"):
        raise e.error("unknown form")
    reduction = _reduction(e, i)
    addresses = (*e.address(i.operands[0]), *e.address(i.operands[1]), e.view(i.operands[2], "u4"))
    if spaces[0] == "global":
        e.call(bind_bulk_store, e.site, *addresses, reduction)
        return
    barrier = e.locator(i.operands[3], "shared", 8, "atomic")
    e.call(bind_bulk_load, e.site, *addresses, barrier, spaces[1], reduction, _mask(e, i, 4))


def _reduction(e: Emitter, i: Instruction) -> tuple[str, str] | None:
    """(operation, type) of a reduction."""
    if i.parts[1] != "reduce":
        return None
    name = i.first_of(REDUCTIONS)
    if name is None:
        raise e.error("unknown reduction")
    return name, i.first_of(REDUCED_TYPES, "")


def bind_bulk_load(
    machine: Machine, site: Site, target: np.ndarray, target_offset: int, source: np.ndarray,
    source_offset: int,
    size: np.ndarray, barrier: Locator, space: str, reduction: tuple[str, str] | None,
    masks: np.ndarray | None,
) -> Callable:  # fmt: skip
    bulk: BulkCopies = machine.family_state(BulkCopies)
    state: MBarriers = machine.family_state(MBarriers)
    shared = SharedAddress(machine, site, target, target_offset, barrier.reaches_cluster)
    multicast = Multicast(machine, site, masks)
    other = SharedAddress(machine, site, source, source_offset)

    def run(mask: np.ndarray | None) -> None:
        lanes = machine.lanes_in(mask)
        count = size[lanes].astype(np.int64)
        low = shared(lanes)
        good = shared.valid(low, low + count, lanes, 16)
        if space == "shared":
            start = other(lanes)
            good &= other.valid(start, start + count, lanes, 16)
            start = other.host(start, lanes)
        else:
            start = source[lanes].astype(np.int64) + source_offset
            good &= _valid_global(machine, site, start, count, lanes)
            start = start - ORIGIN
        for lane in range(lanes.size):
            if good[lane]:
                issue(lanes[lane : lane + 1], low[lane], start[lane], int(count[lane]))

    def issue(lane: np.ndarray, low: int, start: int, count: int) -> None:
        own = np.zeros(machine.lanes, bool)
        own[lane] = True
        announced, here = barrier(own)[0].copy(), shared.host(np.array([low]), lane)
        remote = None if space == "shared" else start + np.arange(0, count, 16)[None, :]
        for rank, _ in multicast(lane):
            to = int(multicast.moved(rank, here)[0])
            units = to + np.arange(0, count, 16)[None, :]
            slots = state.slots(multicast.moved(rank, announced))

            def move(_: np.ndarray | slice, to: int = to) -> None:
                data = TABLES[1][start : start + count].copy()
                _store_bytes(to, data, reduction)

            BulkWork(bulk, site, lane, units, 16, move, slots, count, remote).issue()
            remote = None  # global memory is read once

    return run


def _valid_global(
    machine: Machine, site: Site, start: np.ndarray, count: np.ndarray, lanes: np.ndarray
) -> np.ndarray:
    good = np.array([machine.memory.contains(int(s), int(s + n)) for s, n in zip(start, count)], bool)
    if not good.all():
        bad = int(np.flatnonzero(~good)[0])
        text = f"bulk copy of {count[bad]} bytes: {machine.memory.describe(int(start[bad]))}"
        machine.report("out-of-bounds", text, site, lanes[~good], start[~good])
    skewed = good & ((start % 16 != 0) | (count % 16 != 0))
    if skewed.any():
        text = "address and size of a bulk copy must be multiples of 16"
        machine.report("misaligned", text, site, lanes[skewed], start[skewed])
    return good & ~skewed


def _store_bytes(index: int, data: np.ndarray, reduction: tuple[str, str] | None) -> None:
    if reduction is None:
        TABLES[1][index : index + data.size] = data
        return
    size = NATURAL[reduction[1]].itemsize
    indices = index + np.arange(0, data.size, size)
    reduce_into(indices, data.view(f"u{size}"), reduction)


def bind_bulk_store(
    machine: Machine, site: Site, target: np.ndarray, target_offset: int, source: np.ndarray,
    source_offset: int,
    size: np.ndarray, reduction: tuple[str, str] | None,
) -> Callable:  # fmt: skip
    bulk: BulkCopies = machine.family_state(BulkCopies)
    shared = SharedAddress(machine, site, source, source_offset)

    def run(mask: np.ndarray | None) -> None:
        lanes = machine.lanes_in(mask)
        count = size[lanes].astype(np.int64)
        low = shared(lanes)
        to = target[lanes].astype(np.int64) + target_offset
        good = shared.valid(low, low + count, lanes, 16) & _valid_global(machine, site, to, count, lanes)
        host = shared.host(low, lanes)
        for lane in np.flatnonzero(good):
            issue(lanes[lane : lane + 1], int(host[lane]), int(to[lane]) - ORIGIN, int(count[lane]))

    def issue(lane: np.ndarray, start: int, to: int, count: int) -> None:
        units = start + np.arange(0, count, 16)[None, :]

        def move(_: np.ndarray | slice) -> None:
            machine.changed = True
            _store_bytes(to, TABLES[1][start : start + count].copy(), reduction)

        remote = to + np.arange(0, count, 16)[None, :]
        BulkWork(bulk, site, lane, units, 16, move, remote=remote, reduces=reduction is not None).issue()

    return run


# ------------------------------------------------------------------------------------------------------------
# TMA: cp.async.bulk.tensor
# ------------------------------------------------------------------------------------------------------------


@instruction("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", defines=0)
def emit_tensor(e: Emitter, i: Instruction) -> None:
    rank = int(i.first_of(("1d", "2d", "3d", "4d", "5d"), "0")[0])
    if not rank or any(part.startswith("im2col") or part.startswith("tile::") for part in i.parts):
        raise e.error("only 1 to 5 dimensions in .tile mode are implemented")
    towards_global = i.has("bulk_group")
    first, second, *barriers = [operand for operand in i.operands if isinstance(operand, Memory)]
    with_map, other = (first, second) if towards_global else (second, first)
    is_vector = len(with_map.extra) == 1 and isinstance(with_map.extra[0], Vector)
    coordinates = with_map.extra[0] if is_vector else Vector(tuple(with_map.extra))
    if len(coordinates.elements) != rank:
        raise e.error(f"{rank} coordinates expected")
    arguments = (*e.address(with_map), e.view(coordinates, "i4"), *e.address(other))
    if towards_global:
        reduction = None if i.parts[1] != "reduce" else i.first_of(REDUCTIONS, "")
        e.call(bind_tensor_store, e.site, *arguments, reduction)
        return
    barrier = e.locator(barriers[0], "shared", 8, "atomic")
    e.call(bind_tensor_load, e.site, *arguments, barrier, _mask(e, i, 3))


class _Maps:
    """Reads and decodes tensor maps in memory; the same bytes are decoded once."""

    def __init__(self, machine: Machine, site: Site, base: np.ndarray, offset: int):
        self.machine, self.site, self.base, self.offset = machine, site, base, offset
        self.decoded: dict[bytes, TensorMap] = {}
        self.changed: ChangedMaps = machine.family_state(ChangedMaps)

    def __call__(self, lanes: np.ndarray) -> list[tuple[TensorMap, np.ndarray]]:
        """Tensor maps with the lanes (positions in `lanes`) that use them."""
        addresses = self.base[lanes].astype(np.int64) + self.offset
        found = []
        for address in np.unique(addresses).tolist():
            users = np.flatnonzero(addresses == address)
            tensor_map = self._read(address, lanes[users])
            if tensor_map is not None:
                found.append((tensor_map, users))
        return found

    def _read(self, address: int, lanes: np.ndarray) -> TensorMap | None:
        memory = self.machine.memory
        if address % 64 or not memory.contains(address, address + tensormap.BYTES):
            self.machine.report("misaligned" if address % 64 else "out-of-bounds",
                                "no tensor map at this address",
                                self.site, lanes, np.full(lanes.size, address))  # fmt: skip
            return None
        self.changed.used(self.site, lanes, address)
        raw = TABLES[1][address - ORIGIN : address - ORIGIN + tensormap.BYTES].tobytes()
        if raw not in self.decoded:
            try:
                self.decoded[raw] = tensormap.decode(np.frombuffer(raw, np.uint8))
            except tensormap.InvalidTensorMap as error:
                self.machine.report("trap", str(error), self.site, lanes, np.full(lanes.size, address))
                return None
        return self.decoded[raw]


@attrs.define
class _Boxes:
    """Boxes of one tensor map: indices in global memory (Q, E), which are inside, indices in shared memory
    (Q, E).
    """

    tensor_map: TensorMap
    lanes: np.ndarray
    remote: np.ndarray
    inside: np.ndarray | None
    local: np.ndarray
    unit: int


class _Tensor:
    """What loads and stores share: operands of some lanes -> boxes, checked."""

    def __init__(self, machine: Machine, site: Site, map_base: np.ndarray, map_offset: int, coordinates: list,
                 shared: np.ndarray, shared_offset: int, reaches_cluster: bool = False,
                 stores: bool = False):  # fmt: skip
        self.machine, self.site, self.coordinates, self.stores = machine, site, coordinates, stores
        self.maps = _Maps(machine, site, map_base, map_offset)
        self.shared = SharedAddress(machine, site, shared, shared_offset, reaches_cluster)

    def boxes(self, lanes: np.ndarray) -> list[_Boxes]:
        found = []
        for tensor_map, users in self.maps(lanes):
            if tensor_map.rank != len(self.coordinates):
                wanted = len(self.coordinates)
                text = f"a tensor map of {tensor_map.rank} dimensions used with {wanted} coordinates"
                self.machine.report("trap", text, self.site, lanes[users])
                continue
            boxes = self._boxes(tensor_map, lanes[users])
            if boxes is not None:
                found.append(boxes)
        return found

    def _boxes(self, m: TensorMap, lanes: np.ndarray) -> _Boxes | None:
        low = self.shared(lanes)
        good = self.shared.valid(low, low + m.box_bytes, lanes, 128)
        good &= self._aligned(m, lanes)
        if self.stores:
            good &= self._begins_inside(lanes)
        lanes, low = lanes[good], low[good]
        if not lanes.size:
            return None
        corner = np.stack([register[lanes].astype(np.int64) for register in self.coordinates], axis=1)
        unit = tensormap.STORE_UNIT if self.stores else tensormap.unit_bytes(m)
        remote, inside = tensormap.global_units(m, corner, unit)
        if not self._allocated(remote, inside, unit, lanes):
            return None
        local = self.shared.host(tensormap.shared_units(m, low, unit), lanes)
        return _Boxes(m, lanes, remote - ORIGIN, inside, local, unit)

    def _aligned(self, m: TensorMap, lanes: np.ndarray) -> np.ndarray:
        """Which lanes' boxes begin at a multiple of 16 bytes in their rows. A GPU takes others for an illegal
        instruction, loads and stores alike."""
        first = self.coordinates[0][lanes].astype(np.int64)
        skewed = first * m.element_bytes % 16 != 0
        if skewed.any():
            where = f"the innermost coordinate {first[skewed][0]} of {m.element_bytes}-byte elements"
            self.machine.report("misaligned", f"{where} is no multiple of 16 bytes", self.site, lanes[skewed])
        return ~skewed

    def _begins_inside(self, lanes: np.ndarray) -> np.ndarray:
        """Which lanes' boxes have no negative coordinate. A GPU takes stores and reductions of others for an
        illegal instruction (CUDA programming guide, tensor memory accelerator)."""
        corners = np.stack([register[lanes].astype(np.int64) for register in self.coordinates])
        lowest = corners.min(axis=0)
        if (lowest < 0).any():
            where = f"the coordinate {lowest[lowest < 0][0]} lies in front of the tensor"
            self.machine.report("out-of-bounds", f"{where}; no store may begin there", self.site,
                                lanes[lowest < 0])  # fmt: skip
        return lowest >= 0

    def _allocated(
        self, remote: np.ndarray, inside: np.ndarray | None, unit: int, lanes: np.ndarray
    ) -> bool:
        touched = remote if inside is None else remote[inside]
        if not touched.size:
            return True
        low, high = int(touched.min()), int(touched.max()) + unit
        if self.machine.memory.contains(low, high):
            return True
        text = f"the tensor map reaches outside memory: {self.machine.memory.describe(low)}"
        self.machine.report("out-of-bounds", text, self.site, lanes, np.full(lanes.size, low))
        return False


def bind_tensor_load(
    machine: Machine, site: Site, map_base: np.ndarray, map_offset: int, coordinates: list,
    shared: np.ndarray,
    shared_offset: int, barrier: Locator, masks: np.ndarray | None,
) -> Callable:  # fmt: skip
    bulk: BulkCopies = machine.family_state(BulkCopies)
    state: MBarriers = machine.family_state(MBarriers)
    tensor = _Tensor(
        machine, site, map_base, map_offset, coordinates, shared, shared_offset, barrier.reaches_cluster
    )
    multicast = Multicast(machine, site, masks)

    def run(mask: np.ndarray | None) -> None:
        lanes = machine.lanes_in(mask)
        every = np.zeros(machine.lanes, np.int64)
        indices, located = barrier(mask)
        every[lanes if located is None else located] = indices
        for boxes in tensor.boxes(lanes):
            issue(boxes, every[boxes.lanes])

    def issue(boxes: _Boxes, announced: np.ndarray) -> None:
        first = True
        for rank, rows in multicast(boxes.lanes):
            part = boxes if rank is None else _part(boxes, rows, multicast.moved(rank, boxes.local[rows]))
            slots = state.slots(multicast.moved(rank, announced[rows]))
            nbytes = np.full(rows.size, part.tensor_map.box_bytes)
            move = lambda _, part=part: _load(part)  # noqa: E731
            remote, inside = (part.remote, part.inside) if first else (None, None)
            BulkWork(
                bulk, site, part.lanes, part.local, part.unit, move, slots, nbytes, remote, inside
            ).issue()
            first = False

    return run


def _part(boxes: _Boxes, rows: np.ndarray, local: np.ndarray) -> _Boxes:
    """Some of the boxes, at other places of shared memory."""
    inside = None if boxes.inside is None else boxes.inside[rows]
    return _Boxes(boxes.tensor_map, boxes.lanes[rows], boxes.remote[rows], inside, local, boxes.unit)


def _load(boxes: _Boxes) -> None:
    """Move the boxes into shared memory, with the fill for elements outside the tensor."""
    if boxes.inside is None:
        scatter(boxes.local, boxes.unit, gather(boxes.remote, boxes.unit))
        return
    values = np.empty(boxes.local.shape, CODES[boxes.unit])
    size = boxes.tensor_map.element_bytes
    fill = tensormap.fill_bits(boxes.tensor_map).to_bytes(size, "little") * (boxes.unit // size)
    values[...] = np.frombuffer(fill, values.dtype)[0]
    values[boxes.inside] = gather(boxes.remote[boxes.inside], boxes.unit)
    scatter(boxes.local, boxes.unit, values)


def bind_tensor_store(
    machine: Machine, site: Site, map_base: np.ndarray, map_offset: int, coordinates: list,
    shared: np.ndarray,
    shared_offset: int, reduction: str | None,
) -> Callable:  # fmt: skip
    bulk: BulkCopies = machine.family_state(BulkCopies)
    tensor = _Tensor(machine, site, map_base, map_offset, coordinates, shared, shared_offset, stores=True)

    def run(mask: np.ndarray | None) -> None:
        for boxes in tensor.boxes(machine.lanes_in(mask)):
            move = _reducer(boxes, reduction, machine) if reduction else _storer(boxes, machine)
            BulkWork(
                bulk, site, boxes.lanes, boxes.local, boxes.unit, move,
                remote=boxes.remote, inside=boxes.inside, reduces=reduction is not None,
            ).issue()  # fmt: skip

    return run


def _storer(boxes: _Boxes, machine: Machine) -> Callable[[np.ndarray | slice], None]:
    def move(chosen: np.ndarray | slice) -> None:
        machine.changed = True
        remote, values = boxes.remote[chosen], gather(boxes.local[chosen], boxes.unit)
        if boxes.inside is not None:
            inside = boxes.inside[chosen]
            remote, values = remote[inside], values[inside]
        scatter(remote, boxes.unit, values)

    return move


def _reducer(boxes: _Boxes, name: str, machine: Machine) -> Callable[[np.ndarray], None]:
    kind = {"u8": "", "u16": "", "f32.ftz": "f32", "tf32": "f32", "tf32.ftz": "f32"}.get(
        boxes.tensor_map.kind, boxes.tensor_map.kind
    )
    size = boxes.tensor_map.element_bytes

    def move(chosen: np.ndarray | slice) -> None:
        machine.changed = True
        for box in np.arange(boxes.lanes.size)[chosen]:
            remote, values = boxes.remote[box], gather(boxes.local[box], boxes.unit)
            if boxes.inside is not None:
                remote, values = remote[boxes.inside[box]], values[boxes.inside[box]]
            elements = (remote[:, None] + np.arange(0, boxes.unit, size)).reshape(-1)
            reduce_into(elements, np.ascontiguousarray(values).view(f"u{size}"), (name, kind))

    return move
