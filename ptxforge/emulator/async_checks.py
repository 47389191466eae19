"""Faults of asynchronous work: data touched before it was waited for, missing proxy fences, accumulators read
too early.

The checker keeps a byte per four bytes of shared memory, `flight`: bits for what is under way there. A
cp.async or a bulk load writes it, a bulk store or a wgmma reads it; an ordinary access that conflicts with
them is a finding at that access.

Races are found by `checks.Checker`, to which this one adds what the asynchronous operations do:

* A bulk copy is an access of its issuing thread, at its issue, on both sides.
* A wgmma reads shared memory; two warps of its warpgroup stand for all. The waiting of any one thread of the
  warpgroup ends its reads: until then `flight` guards them, then `ProductReads`.
* An mbarrier carries clocks: from those who arrive, and from the issuer of a bulk load that completes on it,
  to those whose wait succeeds.

The async proxy (bulk stores, wgmma) sees an ordinary store only behind a `fence.proxy.async`: of the storing
thread after the store, or of another thread that the store happened before. A cp.async writes through the
generic proxy too, but shipped compilers read its data with wgmma after the wait alone: a fence missing there
is a finding of its own kind, `copy-proxy`.

Accumulators of a wgmma belong to the hardware until `wait_group`. Registers have no shadow; whether an
instruction touches them earlier is decided once per program by data flow over its blocks
(`stale_accumulators`).
"""

from __future__ import annotations

import numpy as np

from ptxforge.emulator.access import ATOMIC, READ, WRITE, Locator
from ptxforge.emulator.async_copy import BulkCopies, BulkWork, CopyGroups
from ptxforge.emulator.checks import Checker, RemoteAccess
from ptxforge.emulator.findings import Site
from ptxforge.emulator.mbarrier import MBarriers
from ptxforge.emulator.memory import ORIGIN, THREAD_BITS, address_of
from ptxforge.emulator.program import SHARED_BASE, Program
from ptxforge.emulator.registers import stale_accumulators
from ptxforge.emulator.state import Machine
from ptxforge.emulator.wgmma import THREADS, Wgmma

GRANULE = 4
COPY, LOAD, STORE, PRODUCT, LOADED, COPIED = 1, 2, 4, 8, 16, 32
_WRITES = COPY | LOAD
_ANY = COPY | LOAD | STORE | PRODUCT

_EXPLANATIONS = {
    COPY: "a cp.async to this address was not waited for",
    LOAD: "a bulk load to this address is under way: its mbarrier phase was not waited for",
    STORE: "a bulk store still reads this address: its bulk group was not waited for",
    PRODUCT: "a wgmma still reads this address: its group was not waited for",
}


def uses_async(program: Program) -> bool:
    """Whether the program has work that this checker looks after."""
    return any(item.opcode.startswith(("cp.async", "cp.reduce", "st.async", "red.async", "wgmma", "mbarrier"))
               for block in program.blocks for item in block.instructions)  # fmt: skip


class AsyncChecker:
    """A watcher of shared memory; see the module's essay."""

    def __init__(self, machine: Machine, races: Checker):
        self.machine, self.races = machine, races
        self.origin = address_of(machine.shared) - ORIGIN
        self.flight = np.zeros(machine.shared.size // GRANULE, np.uint8)
        self.covered = np.zeros((machine.clusters, machine.warps_per_cluster), np.int64)
        """Per cluster and warp: the newest tick whose stores a proxy fence of whatever thread has covered."""
        self.fenced_at = np.zeros(machine.lanes, np.int64)
        """Per lane: the tick of its newest proxy fence."""
        self.clocks = _Clocks(machine, races)
        self.product_reads = ProductReads(machine, races)
        self.stale = stale_accumulators(machine.program)
        races.forget_hooks.append(self._forget)
        machine.family_state(CopyGroups).observers.append(self)
        machine.family_state(BulkCopies).observers.append(self)
        machine.family_state(Wgmma).observers.append(self)
        machine.family_state(MBarriers).observers.append(self.clocks)

    def start(self) -> None:
        """A batch begins."""
        self.flight.fill(0)
        self.covered.fill(0)
        self.fenced_at.fill(0)
        self.clocks.start()
        self.product_reads.start()
        for site, message in self.stale:
            self.machine.report("async", message, site, np.zeros(1, np.int64))

    def _forget(self) -> None:
        """Ticks start again at 2, and everything so far counts as ordered."""
        self.covered.fill(1)
        self.fenced_at.fill(1)
        self.clocks.start()

    def finish(self) -> None:
        """A batch has ended."""

    def watches(self, space: str, kind: str) -> bool:
        return space in ("shared", "generic")

    # ---- ordinary accesses ---------------------------------------------------------------------------------
    def access(self, locator: Locator, lanes: np.ndarray | None, indices: np.ndarray) -> None:
        if locator.copies:
            return
        if locator.space == "generic":
            lanes, indices = self._shared_ones(lanes, indices)
        places = (indices - self.origin) >> 2
        self._check(locator.site, lanes, places, locator.nbytes, _WRITES if locator.kind == READ else _ANY)
        if locator.kind == WRITE:
            self._change(places, locator.nbytes, 0xFF ^ (LOADED | COPIED), 0)
            self.product_reads.written(locator.site, lanes, indices, locator.nbytes)

    def _shared_ones(self, lanes: np.ndarray | None, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of generic addresses those that lie in shared memory."""
        chosen = (indices >= self.origin) & (indices < self.origin + self.flight.size * GRANULE)
        every = self.machine.lanes_in(lanes)
        return every[chosen], indices[chosen]

    def _check(
        self, site: Site, lanes: np.ndarray | None, places: np.ndarray, nbytes: int, conflicts: int
    ) -> None:
        """Report accesses of `nbytes` at granules `places` (one per lane) that meet work under way."""
        found = self._bits(places, nbytes) & conflicts
        if not found.any():
            return
        bad = np.flatnonzero(found)
        kind = int(found[bad[0]]) & -int(found[bad[0]])
        who = bad if lanes is None else lanes[bad]
        other = self._issuer(kind, int(places[bad[0]]), nbytes)
        message = _EXPLANATIONS[kind] + (f"; issued at {other}" if other else "")
        addresses = self._addresses(places[bad], who)
        self.machine.findings.add(self.machine, "async", message, site, who, addresses, other)

    def _issuer(self, kind: int, place: int, nbytes: int) -> Site | None:
        """The instruction that started the work of a kind that is under way at an access's granules."""
        machine, granules = self.machine, np.arange(max(1, nbytes // GRANULE)) + place
        units: list[tuple[Site, np.ndarray, int]] = []
        if kind in (LOAD, STORE):
            bulk: BulkCopies = machine.family_state(BulkCopies)
            works = bulk.loads if kind == LOAD else [record.work for record in bulk.stores.records]
            units = [(work.site, (work.units - self.origin) >> 2, work.unit) for work in works]
        elif kind == COPY:
            copies = [record.work for record in machine.family_state(CopyGroups).records]
            units = [(copy.target.site, (copy.indices - self.origin) >> 2, copy.nbytes) for copy in copies]
        else:
            products = [record.work for record in machine.family_state(Wgmma).groups.records]
            units = [(one.operations[0].site, places, 16) for one in products for places in one.reading]
        for site, first, size in units:
            if np.isin(granules, first.reshape(-1, 1) + np.arange(size // GRANULE)).any():
                return site
        return None

    def _addresses(self, places: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Shared addresses of granules, as the kernel sees them."""
        return places * GRANULE % self.machine.shared_stride + SHARED_BASE

    def _bits(self, places: np.ndarray, nbytes: int) -> np.ndarray:
        """The `flight` bits of accesses of `nbytes`, or-ed over their granules."""
        if nbytes <= GRANULE:
            return self.flight.take(places)
        if nbytes > 16:
            return self._bits(places, 16) | self._bits(places + 4, nbytes - 16)
        width = nbytes // GRANULE
        words = self.flight.view(f"u{width}").take(places >> (width.bit_length() - 1))
        while width > 1:
            width //= 2
            words = words | words >> words.dtype.type(8 * width)
        return words.astype(np.uint8)

    def _change(self, places: np.ndarray, nbytes: int, keep: int, add: int) -> None:
        """flight = flight & keep | add for accesses of `nbytes`. Widths as in `_bits`."""
        if nbytes > 16:
            self._change(places, 16, keep, add)
            self._change(places + 4, nbytes - 16, keep, add)
            return
        width = max(1, nbytes // GRANULE)
        view = self.flight.view(f"u{width}")
        where = places >> (width.bit_length() - 1)
        spread = view.dtype.type(int.from_bytes(b"\x01" * width, "little"))
        view[where] = view[where] & view.dtype.type(keep) * spread | view.dtype.type(add) * spread

    # ---- proxy fences --------------------------------------------------------------------------------------
    def fence(self, mask: np.ndarray | None, parts: tuple[str, ...]) -> None:
        """Any `fence`; those of the async proxy cover what happened before them."""
        if "mbarrier_init" in parts:
            self.clocks.publish(mask)
        if "proxy" not in parts or not any(part.startswith("async") for part in parts):
            return
        seen = self.races.seen
        self.fenced_at[slice(None) if mask is None else mask] = self.races.now - 1
        if mask is None:
            np.maximum(self.covered, seen.max(axis=1), out=self.covered)
            return
        warps = np.nonzero(mask.reshape(self.machine.clusters, -1, 32).any(axis=2))
        np.maximum.at(self.covered, warps[0], seen[warps])

    def _check_fences(self, site: Site, lanes: np.ndarray, indices: np.ndarray, unit: int) -> None:
        """Report ordinary stores that the async proxy reads without a proxy fence between."""
        where = self.races.granules(indices, unit)
        records = self.races.writer.take(where) & np.uint32(0x7FFFFFFF)
        if int(records.max(initial=0)) >> THREAD_BITS <= max(
            int(self.fenced_at.min()), int(self.covered.min())
        ):
            return  # every thread has fenced since
        records = records.astype(np.int64)
        ticks, threads = records >> THREAD_BITS, records & ((1 << THREAD_BITS) - 1)
        cluster = self.machine.cluster_of_lane[lanes][:, None]
        fenced = self.fenced_at[cluster * self.machine.threads_per_cluster + threads]
        covered = np.maximum(fenced, self.covered[cluster, threads // 32])
        bad = ((ticks > covered) & (records != 0)).any(axis=1)
        if not bad.any():
            return
        rows = np.flatnonzero(bad)
        places = (indices[rows] - self.origin) >> 2
        origin = self._origin_of(places, unit)
        for kind, writer, chosen in (
            ("proxy", "an ordinary store", origin == 0),
            ("copy-proxy", "a cp.async", origin == COPIED),
        ):
            if not chosen.any():
                continue
            text = f"the async proxy reads what {writer} wrote, without fence.proxy.async between"
            who = lanes[rows[chosen]]
            self.machine.report(kind, text, site, who, self._addresses(places[chosen], who))

    def _origin_of(self, places: np.ndarray, unit: int) -> np.ndarray:
        """Who wrote units of `unit` bytes: LOADED when a bulk load wrote any of it, else 0 when an ordinary
        store did, else COPIED.
        """
        loaded = (self._bits(places, unit) & LOADED) != 0
        copied = np.ones(places.shape, bool)
        for granule in range(max(1, unit // GRANULE)):
            copied &= (self.flight.take(places + granule) & COPIED) != 0
        return np.where(loaded, LOADED, np.where(copied, COPIED, 0))

    # ---- cp.async ------------------------------------------------------------------------------------------
    def copy_issued(self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int) -> None:
        places = (indices - self.origin) >> 2
        self._check(site, lanes, places, nbytes, _ANY)
        self._change(places, nbytes, 0xFF, COPY)
        self.product_reads.written(site, lanes, indices, nbytes)

    def copy_landed(self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int) -> None:
        self._change((indices - self.origin) >> 2, nbytes, 0xFF ^ (COPY | LOADED), COPIED)

    # ---- bulk copies ---------------------------------------------------------------------------------------
    def bulk_issued(self, work: BulkWork, store: bool) -> None:
        """Lanes start a bulk copy of units of shared memory."""
        lanes, units = np.repeat(work.lanes, work.units.shape[1]), work.units.reshape(-1)
        places = (units - self.origin) >> 2
        conflicts = _WRITES if store else _ANY ^ LOAD if work.generic and work.reduces else _ANY
        self._check(work.site, lanes, places, work.unit, conflicts)
        if store:
            self._check_fences(work.site, lanes, units, work.unit)
            self.races.read(work.site, lanes, units, work.unit)
        else:
            self.races.write(work.site, lanes, units, work.unit, atomic=work.generic and work.reduces)
            self.product_reads.written(work.site, lanes, units, work.unit)
            work.clock = self.clocks.of_lanes(work.lanes)
        self._change(places, work.unit, 0xFF, STORE if store else LOAD)
        self._remote(work, store)

    def _remote(self, work: BulkWork, store: bool) -> None:
        """The global side of a bulk copy: accesses of its issuing threads."""
        if work.remote is None or self.races.world is None:
            return
        remote = work.remote.reshape(work.lanes.size, -1)
        lanes = np.repeat(work.lanes, remote.shape[1])
        chosen = slice(None) if work.inside is None else work.inside.reshape(-1)
        indices, lanes = remote.reshape(-1)[chosen], lanes[chosen]
        if indices.size:
            kind = ATOMIC if work.reduces else WRITE if store else READ
            self.races.world.access(self.races, RemoteAccess(work.site, kind, work.unit), lanes, indices)

    def bulk_landed(self, work: BulkWork, store: bool, chosen: np.ndarray | slice) -> None:
        places = (work.units[chosen].reshape(-1) - self.origin) >> 2
        ended = STORE if store else LOAD | COPIED | LOADED
        self._change(places, work.unit, 0xFF ^ ended, 0 if store or work.generic else LOADED)
        if not store:
            self.clocks.join(work.slots, work.clock)

    # ---- wgmma ---------------------------------------------------------------------------------------------
    def fenced(self, groups: np.ndarray) -> None:
        """`wgmma.fence` orders registers; shared memory needs the proxy fence."""

    def products_read(self, site: Site, lanes: np.ndarray, indices: np.ndarray, product: object) -> None:
        """A group was committed that reads 16-byte units (G, rows, units); it lands later."""
        units = indices.reshape(-1)
        places = (units - self.origin) >> 2
        first = np.repeat(lanes, indices[0].size)
        self._check(site, first, places, 16, _WRITES)
        self._check_fences(site, first, units, 16)
        self.races.inspect(site, first, units, 16)
        self.races.inspect(site, first + (THREADS - 32), units, 16)
        self._change(places, 16, 0xFF, PRODUCT)
        product.reading.append(places)

    def products_landed(self, product: object, chosen: np.ndarray | None) -> None:
        """Of the product's warpgroups, all or the ``chosen``."""
        site, groups = product.operations[0].site, product.warpgroups
        for places in product.reading:
            self._change(places, 16, 0xFF ^ PRODUCT, 0)
            rows = places.reshape(groups.size, -1)
            these = slice(None) if chosen is None else chosen
            self.product_reads.landed(site, groups[these], rows[these])


class _Clocks:
    """Clocks of `checks.Checker` (ticks per warp of the CTA) that mbarriers carry from arrivals to waits."""

    def __init__(self, machine: Machine, races: Checker):
        self.machine, self.races = machine, races
        self.row = np.full(machine.shared.size // 8, -1, np.int64)
        self.born = np.zeros(machine.shared.size // 8, np.int64)
        """Per slot: tick and thread of its initialisation, as a record of `checks.Checker`."""
        self.published = np.zeros(machine.shared.size // 8, bool)
        """Per slot: its initialisation lies before a `fence.mbarrier_init` of the same thread."""
        self.carried = np.zeros((0, machine.warps_per_cluster), np.int64)

    def start(self) -> None:
        self.row.fill(-1)
        self.born.fill(0)
        self.published.fill(False)
        self.carried = self.carried[:0]

    def of_lanes(self, lanes: np.ndarray) -> np.ndarray:
        """(lanes, warps): what somebody will have seen who has seen all that these lanes did."""
        cluster, warp = self._warps(lanes)
        clock = self.races.seen[cluster, warp]
        clock[np.arange(lanes.size), warp] = self.races.now - 1
        return clock

    def _warps(self, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The clusters of lanes, and their warps within those."""
        return self.machine.cluster_of_lane[lanes], self.races.warp[lanes]

    def join(self, slots: np.ndarray, clocks: np.ndarray) -> None:
        rows = self._rows(slots)
        np.maximum.at(self.carried, rows, clocks)

    def _rows(self, slots: np.ndarray) -> np.ndarray:
        fresh = np.unique(slots[self.row[slots] < 0])
        if fresh.size:
            self.row[fresh] = len(self.carried) + np.arange(fresh.size)
            self.carried = np.concatenate(
                [self.carried, np.zeros((fresh.size, self.carried.shape[1]), np.int64)]
            )
        return self.row[slots]

    def _one_per_warp(self, lanes: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, first = np.unique(lanes // 32 * self.row.size + slots, return_index=True)
        return lanes[first], slots[first]

    def initialised(self, lanes: np.ndarray, slots: np.ndarray) -> None:
        self.published[slots] = False
        self.born[slots] = (self.races.now - 1 << THREAD_BITS) | self.machine.thread_in_cluster[lanes]

    def publish(self, mask: np.ndarray | None) -> None:
        """Threads execute `fence.mbarrier_init`: their initialisations no longer are plain stores."""
        slots = np.flatnonzero(self.born)
        clusters = slots * 8 // (self.machine.shared_stride * self.machine.cluster_size)
        owners = clusters * self.machine.threads_per_cluster + self.born[slots] % (1 << THREAD_BITS)
        slots = slots if mask is None else slots[mask[owners]]
        self.published[slots] = True
        self.races.forgive(slots * 8, 8)

    def used(self, site: Site, lanes: np.ndarray, slots: np.ndarray) -> None:
        """Report lanes that use an mbarrier with nothing between them and its initialisation by another
        thread.
        """
        ticks, threads = self.born[slots] >> THREAD_BITS, self.born[slots] & ((1 << THREAD_BITS) - 1)
        cluster, warp = self._warps(lanes)
        seen = self.races.seen[cluster, warp, threads // 32]
        known = self.races.initialisations[cluster, warp, threads // 32]
        seen = np.where(self.published[slots], np.maximum(seen, known), seen)
        bad = (ticks > seen) & (threads != self.machine.thread_in_cluster[lanes])
        if bad.any():
            text = "the mbarrier is used without a barrier after its initialisation by another thread"
            self.machine.report("race", text, site, lanes[bad])

    def arrived(self, lanes: np.ndarray, slots: np.ndarray) -> None:
        lanes, slots = self._one_per_warp(lanes, slots)
        self.join(slots, self.of_lanes(lanes))

    def waited(self, lanes: np.ndarray, slots: np.ndarray) -> None:
        lanes, slots = self._one_per_warp(lanes, slots)
        rows = self._rows(slots)
        np.maximum.at(self.races.seen, self._warps(lanes), self.carried[rows])


_UNIT, _WARPS = 16, THREADS // 32


class ProductReads:
    """Per unit of 16 bytes of shared memory and warpgroup of its CTA: when that last finished reading it for
    a wgmma.

    While a product is under way, `AsyncChecker.flight` guards its operands. Behind a wait for it, one thing
    is left to see: whether who writes there next has heard of the wait of *any* warp of the warpgroup,
    through a barrier or an mbarrier. (In other warpgroups and CTAs; the warpgroup itself has waited.)
    """

    def __init__(self, machine: Machine, races: Checker):
        self.machine, self.races = machine, races
        self.origin = address_of(machine.shared) - ORIGIN
        groups = machine.warps_per_cta // _WARPS if machine.warps_per_cluster > _WARPS else 0
        self.ended = np.zeros((groups, machine.shared.size // _UNIT if groups else 0), np.int32)
        races.forget_hooks.append(self.start)

    def start(self) -> None:
        """A batch begins, or ticks start again: everything so far counts as ordered."""
        self.ended.fill(0)

    def landed(self, site: Site, warpgroups: np.ndarray, granules: np.ndarray) -> None:
        """Products of warpgroups of the machine have finished; ``granules`` (of 4 bytes) are a row for
        each."""
        if not self.ended.size:
            return
        tick = self.races.tick(site)
        for group in range(len(self.ended)):
            rows = granules[warpgroups % len(self.ended) == group]
            self.ended[group, rows.reshape(-1) >> 2] = tick

    def written(self, site: Site, lanes: np.ndarray | None, indices: np.ndarray, nbytes: int) -> None:
        """Lanes write units of ``nbytes`` at host indices now."""
        if not self.ended.size:
            return
        lanes = self.machine.lanes_in(lanes)
        for offset in range(0, max(nbytes, 1), _UNIT):
            units = indices - self.origin + offset >> 4
            for group, ended in enumerate(self.ended):
                ticks = ended[units]
                if int(ticks.max(initial=0)) > self.races.floor:
                    self._check(site, lanes, units, ticks, group)

    def _check(
        self, site: Site, lanes: np.ndarray, units: np.ndarray, ticks: np.ndarray, group: int
    ) -> None:
        machine = self.machine
        rank = units * _UNIT // machine.shared_stride % machine.cluster_size
        first = rank * machine.warps_per_cta + group * _WARPS
        clock = self.races.seen[machine.cluster_of_lane[lanes], self.races.warp[lanes]]
        known = np.take_along_axis(clock, first[:, None] + np.arange(_WARPS), axis=1).max(axis=1)
        bad = (ticks > known) & (self.races.warp[lanes] // _WARPS != first // _WARPS)
        if bad.any():
            other = self.races.sites[int(ticks[bad][0])]
            text = f"shared write of what is read by a wgmma at {other}, with nothing to order them"
            machine.report("race", text, site, lanes[bad])
