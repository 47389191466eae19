"""`wgmma`: asynchronous matrix products of warpgroups (128 threads), A from shared memory or registers, B
from shared.

Operands are captured in three steps. At `mma_async`: descriptors, the scale-d predicate, A's registers. At
`commit_group`: the shared memory that the descriptors name, all products of the group that accumulate into
the same registers gathered as one. At `wait_group`: the product is computed and added into D. So what is read
too early shows old accumulators, and what is overwritten before its commit shows as wrong data.

Products are exact in f32 and sums are f32 in the order of the BLAS, as in `mma`; integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from ptxforge.emulator.access import gather
from ptxforge.emulator.async_copy import number_of_groups
from ptxforge.emulator.async_work import Groups
from ptxforge.emulator.findings import Site
from ptxforge.emulator.fragments import (
    Descriptor,
    decode_descriptor,
    operand_addresses,
    transposed_operand_addresses,
    unpack_words,
    wgmma_register_a,
)
from ptxforge.emulator.memory import ORIGIN
from ptxforge.emulator.numerics import f16_to_f32
from ptxforge.emulator.parser import Immediate, Instruction, Register, Vector
from ptxforge.emulator.program import SHARED_BASE
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import EXIT, Machine
from ptxforge.emulator.translate import Emitter

ROWS = 64
THREADS = 128
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
_ACCUMULATORS = {"f16": ("f16", "f32"), "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32"), "bf16": ("f32",),
                 "tf32": ("f32",),
                 "s8": ("s32",), "u8": ("s32",), "b1": ("s32",)}  # fmt: skip


@attrs.frozen
class Form:
    """What the opcode and its immediates say."""

    columns: int
    depth: int
    d: str
    a: str
    b: str
    a_in_registers: bool
    negate: tuple[bool, bool]
    transposed: tuple[bool, bool]
    saturating: bool

    @property
    def mergeable(self) -> bool:
        """Whether products into the same accumulators may be summed before they are added: f16 rounds every
        time.
        """
        return self.d != "f16" and not self.saturating


class Wgmma:
    """The warpgroups of one machine: what they have issued, their groups (agents are warpgroups)."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.groups = Groups(max(1, machine.lanes // THREADS))
        self.issued: list[_Operation] = []
        self.observers: list[object] = []
        """Checkers: `products_read(site, lanes, indices, product)`, `products_landed(product, chosen)`."""

    def reset(self) -> None:
        self.groups.reset()
        self.issued.clear()


@attrs.define(eq=False)
class _Operation:
    """One `mma_async` of some warpgroups."""

    form: Form
    site: Site
    warpgroups: np.ndarray
    a: np.ndarray
    """Descriptors (G,) u64, or words (G, 64, 8) of A's registers."""
    b: np.ndarray
    scale: np.ndarray
    """(G,) bool: whether D is an input."""
    d: list[np.ndarray]


def warpgroups_of(machine: Machine, mask: np.ndarray | None, site: Site) -> np.ndarray:
    """Indices of the warpgroups that take part; reports one of which a part is missing."""
    if mask is None:
        return np.arange(machine.lanes // THREADS)
    counts = np.count_nonzero(mask.reshape(-1, THREADS), axis=1)
    active = np.flatnonzero(counts)
    present = np.count_nonzero((machine.pc != EXIT).reshape(-1, THREADS), axis=1)
    partial = (counts > 0) & (counts < present)
    if machine.padding is not None:
        partial |= (counts > 0) & machine.padding.reshape(-1, THREADS).any(axis=1)
    if partial.any():
        lanes = np.flatnonzero(mask & np.repeat(partial, THREADS))
        machine.report(
            "barrier", "only a part of the warpgroup executes this .aligned instruction", site, lanes
        )
    return active


@instruction("wgmma.mma_async", defines=1)
def emit_mma_async(e: Emitter, i: Instruction) -> None:
    d, a, b, scale, *immediates = i.operands
    form = parse_form(e, i, d, a, immediates)
    a_view = e.view(a, "u4" if form.a_in_registers else "u8")
    if isinstance(scale, Immediate):
        scale_view, fixed = None, bool(scale.value)
    elif isinstance(scale, Register):
        scale_view, fixed = e.view(scale, "?"), scale.negated
    else:
        raise e.error("scale-d must be a predicate")
    e.call(bind_mma_async, e.site, form, e.view(d, "u4"), a_view, e.view(b, "u8"), scale_view, fixed)


def parse_form(e: Emitter, i: Instruction, d: object, a: object, immediates: list) -> Form:
    shape = next((part for part in i.parts if part.startswith("m64n")), "m64n0k0")
    columns, depth = (int(text) for text in shape[4:].split("k"))
    kinds = [part for part in i.parts if part in _DEPTHS or part in ("f32", "s32")]
    if len(kinds) != 3 or kinds[0] not in _ACCUMULATORS.get(kinds[1], ()) or _DEPTHS.get(kinds[2]) != depth:
        raise e.error("unknown shape or types")
    if columns % 8 or not 8 <= columns <= 256 or i.has("sp"):
        raise e.error("N must be a multiple of 8 up to 256, and sparsity is not implemented")
    values = [e.constant(operand) for operand in immediates]
    in_registers = isinstance(a, Vector)
    integer = kinds[0] == "s32"
    negate = (False, False) if integer or len(values) < 2 else (values[0] == -1, values[1] == -1)
    transposes = [] if integer else values[2:]
    if in_registers:
        transposes = [0, *transposes]
    transposed = (bool(transposes[0]), bool(transposes[1])) if len(transposes) == 2 else (False, False)
    count = columns // 4 if kinds[0] == "f16" else columns // 2
    if not isinstance(d, Vector) or len(d.elements) != count or (in_registers and len(a.elements) != 4):
        raise e.error(f"{count} registers of D and 4 of A are expected")
    return Form(columns, depth, *kinds, in_registers, negate, transposed, i.has("satfinite"))


def bind_mma_async(
    machine: Machine, site: Site, form: Form, d: list, a: object, b: np.ndarray, scale: np.ndarray | None,
    fixed: bool,
) -> Callable:  # fmt: skip
    state: Wgmma = machine.family_state(Wgmma)

    def run(mask: np.ndarray | None) -> None:
        groups = warpgroups_of(machine, mask, site)
        if not groups.size:
            return
        first = groups * THREADS
        if form.a_in_registers:
            operand = wgmma_register_a(a).reshape(-1, ROWS, 8)[groups]
        else:
            operand = a[first]
        wanted = np.full(groups.size, fixed) if scale is None else scale[first] != fixed
        state.issued.append(_Operation(form, site, groups, operand, b[first], wanted, d))

    return run


@instruction("wgmma.fence", defines=0)
def emit_fence(e: Emitter, i: Instruction) -> None:
    """Orders register accesses; here they are in order. The checkers want to see it."""
    e.call(bind_fence, e.site)


def bind_fence(machine: Machine, site: Site) -> Callable:
    state: Wgmma = machine.family_state(Wgmma)

    def run(mask: np.ndarray | None) -> None:
        groups = warpgroups_of(machine, mask, site)
        for observer in state.observers:
            observer.fenced(groups)

    return run


@instruction("wgmma.commit_group", defines=0)
def emit_commit(e: Emitter, i: Instruction) -> None:
    e.call(bind_commit, e.site)


def bind_commit(machine: Machine, site: Site) -> Callable:
    state: Wgmma = machine.family_state(Wgmma)

    def run(mask: np.ndarray | None) -> None:
        groups = warpgroups_of(machine, mask, site)
        committed, others, chosen = [], [], set(groups.tolist())
        for operation in state.issued:
            (committed if chosen.issuperset(operation.warpgroups.tolist()) else others).append(operation)
        for run_of in _mergeable_runs(committed):
            product = _Product(machine, state, run_of)
            state.groups.issue(product.warpgroups, product)
        state.issued = others
        state.groups.commit(None if groups.size * THREADS == machine.lanes else groups)

    return run


@instruction("wgmma.wait_group", defines=0)
def emit_wait(e: Emitter, i: Instruction) -> None:
    e.call(bind_wait, e.site, number_of_groups(e, i))


def bind_wait(machine: Machine, site: Site, pending: int) -> Callable:
    state: Wgmma = machine.family_state(Wgmma)

    def run(mask: np.ndarray | None) -> None:
        groups = warpgroups_of(machine, mask, site)
        agents = None
        if groups.size * THREADS != machine.lanes:
            agents = np.zeros(state.groups.commits.size, bool)
            agents[groups] = True
        state.groups.wait(agents, pending)

    return run


def _mergeable_runs(operations: list[_Operation]) -> list[list[_Operation]]:
    """Operations of one group that accumulate into the same registers, together; order among accumulators
    kept.
    """
    runs: list[list[_Operation]] = []
    newest: dict[int, list[_Operation]] = {}
    for operation in operations:
        key = id(operation.d[0])
        run = newest.get(key)
        if run is not None and _continues(run[-1], operation):
            run.append(operation)
            continue
        newest[key] = [operation]
        runs.append(newest[key])
    return runs


def _continues(before: _Operation, after: _Operation) -> bool:
    same = all(x is y for x, y in zip(before.d, after.d)) and len(before.d) == len(after.d)
    return (same and before.form == after.form and after.form.mergeable and bool(after.scale.all())
            and np.array_equal(before.warpgroups, after.warpgroups))  # fmt: skip


class _Product:
    """Products that accumulate into the same registers: operands gathered at construction, D changed by
    `land`.
    """

    def __init__(self, machine: Machine, state: Wgmma, operations: list[_Operation]):
        self.machine, self.state, self.operations = machine, state, operations
        self.reading: list[np.ndarray] = []  # for checkers
        first = operations[0]
        self.form, self.warpgroups, self.d, self.scale = first.form, first.warpgroups, first.d, first.scale
        form = self.form
        a = [
            self._registers(op) if form.a_in_registers else self._shared(op, op.a, ROWS, form.a, 0)
            for op in operations
        ]
        b = [self._shared(op, op.b, form.columns, form.b, 1) for op in operations]
        self.a = a[0] if len(a) == 1 else np.concatenate(a, axis=2)
        self.b = b[0] if len(b) == 1 else np.concatenate(b, axis=1)

    def _registers(self, operation: _Operation) -> np.ndarray:
        """(G, 64, K)"""
        values = unpack_words(np.ascontiguousarray(operation.a), self.form.a)
        return -values if self.form.negate[0] else values

    def _shared(
        self, operation: _Operation, bits: np.ndarray, extent: int, kind: str, which: int
    ) -> np.ndarray:
        """A as (G, 64, K) or B as (G, K, N) with the columns of N in the order that `_store` wants."""
        form = self.form
        descriptor = decode_descriptor(bits)
        if form.transposed[which]:
            addresses = transposed_operand_addresses(descriptor, extent, form.depth)
        else:
            addresses = operand_addresses(descriptor, extent)
        values = unpack_words(self._read(operation, descriptor, addresses).view(np.uint32), kind)
        if form.negate[which]:
            values = -values
        by_depth = form.transposed[which]
        if which == 0:
            return values.transpose(0, 2, 1) if by_depth else values
        if form.d == "f16":
            return np.ascontiguousarray(values if by_depth else values.transpose(0, 2, 1))
        groups, depth = values.shape[0], values.shape[1 if by_depth else 2]
        out = np.empty((groups, depth, 2, extent // 8, 4), values.dtype)
        if by_depth:
            out[...] = values.reshape(groups, depth, extent // 8, 4, 2).transpose(0, 1, 4, 2, 3)
        else:
            out[...] = values.reshape(groups, extent // 8, 4, 2, depth).transpose(0, 4, 3, 1, 2)
        return out.reshape(groups, depth, extent)

    def _read(self, operation: _Operation, descriptor: Descriptor, addresses: np.ndarray) -> np.ndarray:
        """16-byte units (G, rows, units) at shared addresses; descriptors hold 18 bits of an address."""
        machine = self.machine
        end = SHARED_BASE + machine.shared_bytes
        outside = (addresses < SHARED_BASE) | (addresses + 16 > end)
        lanes = operation.warpgroups * THREADS
        if outside.any():
            bad = outside.reshape(lanes.size, -1).any(axis=1)
            size = machine.shared_bytes
            text = f"the matrix descriptor reaches outside the CTA's {size} bytes of shared memory"
            machine.report("out-of-bounds", text, operation.site, lanes[bad], descriptor.start[bad])
            addresses = np.clip(addresses, SHARED_BASE, end - 16)
        indices = addresses + (machine.shared_base[lanes] - ORIGIN)[:, None, None]
        for observer in self.state.observers:
            observer.products_read(operation.site, lanes, indices, self)
        return gather(indices, 16)

    def land(self, chosen: np.ndarray | None) -> None:
        a, b, groups, scale = self.a, self.b, self.warpgroups, self.scale
        if chosen is not None:
            a, b, groups, scale = a[chosen], b[chosen], groups[chosen], scale[chosen]
        if self.form.d == "s32" and a.shape[2] > 256:
            a, b = a.astype(np.float64), b.astype(np.float64)
        product = np.matmul(a, b)
        every = groups.size * THREADS == self.machine.lanes
        if self.form.d == "f16":
            self._store_pairs(product, groups, scale)
        else:
            self._store(product, None if every else groups, scale)
        for observer in self.state.observers:
            observer.products_landed(self, chosen)

    def _store(self, product: np.ndarray, groups: np.ndarray | None, scale: np.ndarray) -> None:
        """Add into D's registers, 16 bytes (four lanes) at a time; see `mma` for the order of columns."""
        kind = np.int32 if self.form.d == "s32" else np.float32
        if kind is np.int32:
            product = product.astype(np.int64).astype(np.int32)
        count, tiles = product.shape[0], self.form.columns // 8
        source = product.reshape(count, 4, 2, 8, 2, tiles, 4).view(np.complex128)[..., 0]
        chunk = np.empty((count, THREADS), kind)
        target = chunk.view(np.complex128).reshape(count, 4, 8)
        accumulate, replace = bool(scale.all()), not scale.any()
        for index, register in enumerate(self.d):
            tile, rest = divmod(index, 4)
            target[...] = source[:, :, rest // 2, :, rest % 2, tile]
            whole = register.view(kind).reshape(-1, THREADS)
            if groups is None and accumulate and not self.form.saturating:
                np.add(whole, chunk, out=whole)
                continue
            before = whole if groups is None else whole[groups]
            value = self._sum(before, chunk, scale, replace)
            if groups is None:
                whole[...] = value
            else:
                whole[groups] = value

    def _sum(self, before: np.ndarray, value: np.ndarray, scale: np.ndarray, replace: bool) -> np.ndarray:
        if replace:
            return value
        before = np.where(scale[:, None], before, before.dtype.type(0))
        if not self.form.saturating:
            return before + value
        limits = np.iinfo(np.int32)
        return np.clip(before.astype(np.int64) + value, limits.min, limits.max)

    def _store_pairs(self, product: np.ndarray, groups: np.ndarray, scale: np.ndarray) -> None:
        count, tiles = product.shape[0], self.form.columns // 8
        source = product.reshape(count, 4, 2, 8, tiles, 4, 2)
        for index, register in enumerate(self.d):
            tile, half = divmod(index, 2)
            whole = register.reshape(-1, THREADS)
            before = f16_to_f32(whole[groups].view(np.float16)).reshape(count, 4, 8, 4, 2)
            before = np.where(scale[:, None, None, None, None], before, np.float32(0))
            pairs = (before + source[:, :, half, :, tile]).astype(np.float16)
            whole[groups] = pairs.reshape(count, 2 * THREADS).view(np.uint32)
