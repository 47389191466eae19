"""Tensor maps: what a TMA instruction needs to know of a tensor, and which bytes it moves.

`encode_tiled` takes the place of the driver's `cuTensorMapEncodeTiled`: the same parameters, the same
restrictions, 128 bytes. The bytes have a format of their own (NVIDIA's is not public); a kernel only passes
them on.

    >>> tensor_map = decode(encode_tiled("f32", 4096, (64, 32), (256,), (32, 8), swizzle=128))
    >>> tensor_map.shared_box, tensor_map.box_bytes
    ((32, 8), 1024)

Dimensions stand innermost first, as in CUDA. `strides` are in bytes and leave the innermost one out.

Tensor maps made and changed on the device: tensormap.replace, tensormap.cp_fenceproxy, and the fences
between.

A map in global memory that the kernel changes reaches TMA through a proxy of its own: who changed it releases
it (`cp_fenceproxy` does, or `fence.proxy.tensormap::generic.release`), and a thread of each CTA that uses it
acquires it (`fence.proxy.tensormap::generic.acquire`) afterwards. Checked mode reports what is missing.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from ptxforge.emulator.access import READ, WRITE, Locator
from ptxforge.emulator.findings import Site
from ptxforge.emulator.fragments import swizzle as swizzle_address
from ptxforge.emulator.memory import ORIGIN, TABLES
from ptxforge.emulator.parser import Immediate, Instruction, Memory
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter

ELEMENT_BYTES = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f64": 8,
                 "bf16": 2,
                 "f32.ftz": 4, "tf32": 4, "tf32.ftz": 4}  # fmt: skip
"""Element types in the order of CUtensorMapDataType, with their sizes."""

BYTES = 128
_MAGIC = b"PTXF"
_LAYOUT = struct.Struct(
    "<4sBBBBQ5I4Q5H5H"
)  # magic, type, rank, swizzle, fill; address; sizes, strides, box, steps
_NAMES = tuple(ELEMENT_BYTES)


class InvalidTensorMap(ValueError):
    """Parameters that the driver would refuse, or 128 bytes that are no tensor map."""


@attrs.frozen
class TensorMap:
    """A tensor in global memory with the box that one instruction moves."""

    kind: str
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes from one index to the next in dimensions 1 and up."""
    box: tuple[int, ...]
    steps: tuple[int, ...]
    """Element strides: a box takes every n-th element of a dimension (never of the innermost)."""
    swizzle: int
    fill_nan: bool

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.kind]

    @property
    def shared_box(self) -> tuple[int, ...]:
        """The box's elements in shared memory: where steps skip elements, fewer than `box`."""
        return tuple(-(-extent // step) for extent, step in zip(self.box, self.steps))

    @property
    def box_bytes(self) -> int:
        """What a load's mbarrier counts: the whole box, out-of-bounds elements included."""
        return self.element_bytes * int(np.prod(self.shared_box))


def encode_tiled(
    kind: str,
    address: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    steps: Sequence[int] | None = None,
    *,
    swizzle: int = 0,
    fill_nan: bool = False,
) -> np.ndarray:
    """128 bytes of a tensor map, 64-byte aligned as `__grid_constant__` parameters want. Raises
    `InvalidTensorMap`.
    """
    rank = len(sizes)
    steps = tuple(steps) if steps is not None else (1,) * rank
    tensor_map = TensorMap(
        kind, int(address), tuple(map(int, sizes)), tuple(map(int, strides)), tuple(map(int, box)),
        (1, *map(int, steps[1:])), swizzle, fill_nan,
    )  # fmt: skip
    _check(tensor_map, len(steps))

    def padded(values: Sequence[int], length: int) -> tuple[int, ...]:
        return (*values, *(0,) * (length - len(values)))

    packed = _LAYOUT.pack(
        _MAGIC, _NAMES.index(kind), rank, swizzle, fill_nan, tensor_map.address,
        *padded([s - 1 for s in tensor_map.sizes], 5), *padded(tensor_map.strides, 4),
        *padded(tensor_map.box, 5),
        *padded(tensor_map.steps, 5),
    )  # fmt: skip
    return np.frombuffer(packed.ljust(BYTES, b"\0"), np.uint8).copy()


def _check(m: TensorMap, step_count: int) -> None:
    """The restrictions of cuTensorMapEncodeTiled without interleave."""

    def require(condition: bool, text: str) -> None:
        if not condition:
            raise InvalidTensorMap(f"tensor map: {text}")

    require(m.kind in ELEMENT_BYTES, f"unknown element type {m.kind!r}")
    require(1 <= m.rank <= 5, "1 to 5 dimensions")
    require(len(m.strides) == m.rank - 1, "one stride per dimension but the innermost")
    require(len(m.box) == m.rank == step_count, "box and element strides have the tensor's rank")
    require(m.address % 16 == 0, "the address must be a multiple of 16")
    require(all(1 <= s <= 2**32 for s in m.sizes), "sizes lie between 1 and 2**32")
    require(all(s % 16 == 0 and 0 <= s < 2**40 for s in m.strides), "strides are multiples of 16 below 2**40")
    require(all(1 <= b <= 256 for b in m.box), f"box extents lie between 1 and 256, not {m.box}")
    require(all(1 <= s <= 8 for s in m.steps), "element strides lie between 1 and 8")
    require(m.swizzle in (0, 32, 64, 128), "swizzle is 0, 32, 64 or 128 bytes")
    inner = m.box[0] * m.element_bytes
    require(inner % 16 == 0, "the inner extent of the box must be a multiple of 16 bytes")
    require(
        not m.swizzle or inner <= m.swizzle,
        f"the inner extent of the box, {inner} bytes, must not exceed the swizzle's span of {m.swizzle}",
    )
    require(not m.fill_nan or m.kind in _FLOATS, "NaN fill is for floating-point types")


_FLOATS = {"f16", "bf16", "f32", "f64", "f32.ftz", "tf32", "tf32.ftz"}


_REPLACED = {
    "global_address": (5, 1), "rank": (2, 1), "elemtype": (1, 1), "swizzle_mode": (3, 1), "fill_mode": (4, 1),
    "interleave_layout": (0, 1), "global_dim": (6, 5), "global_stride": (11, 4), "box_dim": (15, 5),
    "element_stride": (20, 5),
}  # fmt: skip
"""Fields of `tensormap.replace` -> the first of their values in the layout, and how many there are."""
_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz",
)  # fmt: skip
"""Element types as `tensormap.replace` counts them (PTX ISA, "tensormap.replace")."""
_CHOICES = {"elemtype": len(_ELEMENTS), "swizzle_mode": 4, "fill_mode": 2, "interleave_layout": 1, "rank": 5}


def replaced(data: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The 128 bytes with one field changed as `tensormap.replace` does; `ordinal` is the dimension. Bytes
    that are no tensor map yet count as zeros. Raises `InvalidTensorMap` for a value that the field cannot
    have.
    """
    if data[:4] != _MAGIC:
        data = _MAGIC + bytes(BYTES - 4)
    entries = list(_LAYOUT.unpack_from(data))
    first, count = _REPLACED[field]
    if not 0 <= ordinal < count:
        raise InvalidTensorMap(f"tensor map: {field} has {count} entries, not one with number {ordinal}")
    if not 0 <= value < _CHOICES.get(field, 1 << 64):
        raise InvalidTensorMap(f"tensor map: {field} cannot be {value}")
    if field == "elemtype":
        value = _NAMES.index(_ELEMENTS[value])
    elif field == "swizzle_mode":
        value = (0, 32, 64, 128)[value]
    elif field == "rank":
        value += 1
    elif field == "global_dim":
        value = value - 1 & 0xFFFFFFFF
    elif field in ("box_dim", "element_stride"):
        value = min(value, 0xFFFF)
    if field != "interleave_layout":
        entries[first + ordinal] = value
    return _LAYOUT.pack(*entries).ljust(BYTES, b"\0")


def decode(data: np.ndarray) -> TensorMap:
    """128 bytes -> TensorMap. Raises `InvalidTensorMap` for other bytes, and for a map that was made on the
    device and is none that the driver would make."""
    raw = np.ascontiguousarray(data, np.uint8).tobytes()
    if len(raw) < BYTES or raw[:4] != _MAGIC:
        raise InvalidTensorMap(
            "these 128 bytes are no tensor map of ptxforge.emulator.tensormap.encode_tiled"
        )
    _, kind, rank, swizzle, fill, address, *rest = _LAYOUT.unpack_from(raw)
    sizes, strides, box, steps = rest[:5], rest[5:9], rest[9:14], rest[14:19]
    found = TensorMap(
        _NAMES[kind], address, tuple(s + 1 for s in sizes[:rank]), tuple(strides[: max(rank - 1, 0)]),
        tuple(box[:rank]), tuple(steps[:rank]), swizzle, bool(fill),
    )  # fmt: skip
    _check(found, len(found.steps))
    return found


STORE_UNIT = 16
"""Bytes that a store writes as a whole: one beyond the end of a row reaches to the next multiple of them
(measured on an H200)."""


def unit_bytes(m: TensorMap) -> int:
    """The widest unit in which boxes can be moved, which begin at multiples of 16 bytes: 16 bytes, or one
    element where rows end elsewhere.
    """
    return m.element_bytes if m.sizes[0] * m.element_bytes % 16 else 16


def global_units(m: TensorMap, coordinates: np.ndarray, unit: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Where the boxes at `coordinates` (Q, rank) lie: byte addresses (Q, E), and which are inside (None:
    all).

    E units of `unit` bytes in the order of shared memory, the innermost dimension fastest.
    """
    coordinates = np.asarray(coordinates, np.int64)
    strides = np.array((m.element_bytes, *m.strides), np.int64)
    address = m.address + (coordinates * strides).sum(axis=1)[:, None] + _relative_addresses(m, unit)
    last = coordinates + (np.array(m.shared_box) - 1) * np.array(m.steps)
    if (coordinates >= 0).all() and (last < np.array(m.sizes)).all():
        return address, None
    return address, _inside(m, coordinates, unit)


@functools.lru_cache(maxsize=256)
def _relative_addresses(m: TensorMap, unit: int) -> np.ndarray:
    """(E,): byte addresses of a box's units relative to its first element."""
    per_unit = unit // m.element_bytes
    address = np.arange(m.shared_box[0] // per_unit, dtype=np.int64) * unit
    for extent, step, stride in zip(m.shared_box[1:], m.steps[1:], m.strides):
        # Outer dimensions vary slowest: they come in front of what is there already.
        address = (np.arange(extent, dtype=np.int64)[:, None] * (step * stride) + address).reshape(-1)
    return address


def _inside(m: TensorMap, coordinates: np.ndarray, unit: int) -> np.ndarray:
    queries = coordinates.shape[0]
    per_unit = unit // m.element_bytes
    inside = np.ones((queries, 1), bool)
    for axis in range(m.rank):
        every = per_unit if axis == 0 else m.steps[axis]
        extent = m.shared_box[0] // per_unit if axis == 0 else m.shared_box[axis]
        index = coordinates[:, axis, None] + np.arange(extent) * every
        here = (index >= 0) & (index < m.sizes[axis])
        inside = (here[:, :, None] & inside[:, None, :]).reshape(queries, -1)
    return inside


def shared_units(m: TensorMap, address: np.ndarray, unit: int) -> np.ndarray:
    """Shared-memory byte addresses (Q, E) of the units of boxes that begin at `address` (Q,), swizzled."""
    linear = np.asarray(address, np.int64)[:, None] + np.arange(m.box_bytes // unit, dtype=np.int64) * unit
    return swizzle_address(linear, m.swizzle)


def fill_bits(m: TensorMap) -> int:
    """The bits of an out-of-bounds element: zero, or the type's canonical NaN."""
    if not m.fill_nan:
        return 0
    return {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}[m.element_bytes]


_WITH_ORDINAL = [field for field, (_, count) in _REPLACED.items() if count > 1]
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
    field = i.first_of(_REPLACED)
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
    locator = e.locator(memory, i.space, BYTES, WRITE, alignment=64)
    e.call(bind_replace, e.site, locator, field, ordinal, e.view(rest[0], "u" + str(int(kind[1:]) // 8)))


def _check_value(e: Emitter, field: str, value: int) -> None:
    """Constants that a field cannot have are errors when loaded, as ptxas has it."""
    try:
        replaced(bytes(BYTES), field, 0, value)
    except InvalidTensorMap as error:
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
            place = TABLES[1][index : index + BYTES]
            try:
                made = replaced(place.tobytes(), field, ordinal, int(values[lane]))
            except InvalidTensorMap as error:
                machine.report("trap", str(error), site, np.array([lane]))
                continue
            place[:] = np.frombuffer(made, np.uint8)
            if machine.memory.contains(index + ORIGIN, index + ORIGIN + BYTES):
                changed.change(index + ORIGIN, int(machine.cta_of_lane[lane]), released=False)

    return run


@instruction("tensormap.cp_fenceproxy", defines=0)
def emit_copy(e: Emitter, i: Instruction) -> None:
    """tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned [dst], [src],
    128."""
    if len(i.operands) != 3 or e.constant(i.operands[2]) != BYTES:
        raise e.error(f"the size must be {BYTES}")
    if not (i.has("global") and i.has("shared::cta") and i.has("release")):
        raise e.error("unknown form")
    target = e.locator(i.operands[0], "global", BYTES, WRITE)
    e.call(bind_copy, e.site, target, e.locator(i.operands[1], "shared", BYTES, READ))


def bind_copy(machine: Machine, site: Site, target: Locator, source: Locator) -> Callable:
    changed: ChangedMaps = machine.family_state(ChangedMaps)

    def run(mask: np.ndarray | None) -> None:
        active = np.ones(machine.lanes, bool) if mask is None else mask
        rows, partial = active.reshape(-1, 32), machine.partial_warps(active)
        if partial.any():
            lanes = np.flatnonzero(active & np.repeat(partial, 32))[:1]
            machine.report("barrier", "a warp instruction executed by part of a warp", site, lanes)
        first = np.zeros(machine.lanes, bool)
        first[np.flatnonzero(rows.any(axis=1)) * 32 + rows.argmax(axis=1)[rows.any(axis=1)]] = True
        copy(first)

    def copy(first: np.ndarray) -> None:
        """One lane of each warp does it for all."""
        found, lanes = source(first)
        lanes = machine.lanes_in(lanes)
        data = {
            lane: bytes(TABLES[1][i : i + BYTES]) for lane, i in zip(lanes.tolist(), found.tolist())
        }
        indices, lanes = target(first)
        lanes = machine.lanes_in(lanes)
        machine.changed = True
        for lane, index in zip(lanes.tolist(), indices.tolist()):
            if lane in data:
                TABLES[1][index : index + BYTES] = np.frombuffer(data[lane], np.uint8)
                changed.change(index + ORIGIN, int(machine.cta_of_lane[lane]), released=True)

    return run


@instruction("fence.proxy.tensormap::generic", defines=0)
def emit_fence(e: Emitter, i: Instruction) -> None:
    """fence.proxy.tensormap::generic.release.scope, and .acquire.scope [addr], 128."""
    if i.has("release"):
        e.call(bind_release)
        return
    memory = i.operands[0] if len(i.operands) == 2 else None
    if not isinstance(memory, Memory) or e.constant(i.operands[1]) != BYTES:
        raise e.error(f"an address and the size {BYTES} are expected")
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
