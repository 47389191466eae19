"""`mma.sync`: many warp-level products become few batched matrix products.

The translator hands over a run of mma instructions that nothing else reads from or writes to in between. In
such a run a tiled matrix product shows as a full grid: every row fragment (A) with every column fragment (B),
chained along K through the accumulators. `plan` finds these grids again from the register names; each becomes
one `np.matmul` of (W, m * I, k * S) with (W, k * S, n * J), W warps at once.

Getting fragments in and out of matrices costs more than the product, so it moves 16 bytes at a time: the four
lanes of a group hold 16 neighbouring bytes of one register, and a register of all warps is a (W, 8) array of
such chunks. For the accumulators the columns of B are permuted so that the chunk's four values are neighbours
in the product as well.

Accuracy: products are exact in f32 (or f64), sums are f32 in the order of the BLAS. Hardware aligns and
truncates partial sums in ways that differ per generation; PTX leaves order and rounding open. Integers are
exact. An f16 accumulator is rounded after every mma, as PTX says, so chains are not merged then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from ptxforge.emulator.findings import Site
from ptxforge.emulator.fragments import ELEMENT_BITS, Shape, register_counts, unpack_words
from ptxforge.emulator.numerics import f16_to_f32
from ptxforge.emulator.parser import Instruction, Vector
from ptxforge.emulator.program import Program
from ptxforge.emulator.registry import instruction
from ptxforge.emulator.state import Machine
from ptxforge.emulator.translate import Emitter

_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"), "bf16": ("m16n8k8", "m16n8k16"), "tf32": ("m16n8k4", "m16n8k8"),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"), "u8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "s4": ("m8n8k32", "m16n8k32", "m16n8k64"), "u4": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "e4m3": ("m16n8k16", "m16n8k32"), "e5m2": ("m16n8k16", "m16n8k32"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"), "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}  # fmt: skip
_EXACT_F32_DEPTH = 256
"""Longest K for which a sum of products of bytes is exact in f32 (255 * 255 * 256 < 2**24)."""

Names = tuple[str, ...]


@attrs.frozen
class Form:
    """What the opcode says: shape, the types of D, A, B, C, and how the product is taken."""

    shape: Shape
    d: str
    a: str
    b: str
    c: str
    xor: bool
    saturating: bool

    @property
    def integer(self) -> bool:
        return self.d == "s32"

    @property
    def packed(self) -> bool:
        """Whether accumulators are pairs of f16."""
        return self.d == "f16"


@attrs.define
class Member:
    """One mma instruction: register names and how to get at the arrays."""

    a: Names
    b: Names
    c: Names
    d: Names
    operands: tuple
    """D, A, B, C as parsed."""


@attrs.define
class Chain:
    """Mma instructions that accumulate into each other: operands A and B in order, the first C and the last
    D.
    """

    steps: list[Member]

    @property
    def rows(self) -> tuple[Names, ...]:
        return tuple(step.a for step in self.steps)

    @property
    def columns(self) -> tuple[Names, ...]:
        return tuple(step.b for step in self.steps)


@instruction("mma", grouped=True)
def emit_mma(e: Emitter, items: list[Instruction]) -> None:
    form = parse_form(e, items[0])
    members = [_member(e, item, form) for item in items]
    bits = "u8" if form.a == "f64" else "u4"
    for grid in plan(members, e.program, form):
        rows = [[e.view(operand, bits) for operand in row] for row in grid.rows]
        columns = [[e.view(operand, bits) for operand in column] for column in grid.columns]
        accumulators = [[(e.view(c, bits), e.view(d, bits)) for c, d in row] for row in grid.accumulators]
        e.call(bind_product, e.site, form, rows, columns, accumulators)


def parse_form(e: Emitter, item: Instruction) -> Form:
    """The opcode's form. Raises the emitter's error for one that is not implemented."""
    parts = item.parts
    if "sync" not in parts or "aligned" not in parts or "row" not in parts or "col" not in parts:
        raise e.error("only mma.sync.aligned with .row.col is implemented")
    shape = next((part for part in parts if part[0] == "m" and part[1:2].isdigit()), "")
    kinds = [part for part in parts if part in ELEMENT_BITS]
    if len(kinds) != 4 or shape not in _SHAPES.get(kinds[1], ()):
        raise e.error("unknown shape or types")
    d, a, b, c = kinds
    accumulators = {"f64": ("f64",), "s8": ("s32",), "u8": ("s32",), "s4": ("s32",), "u4": ("s32",),
                    "b1": ("s32",),
                    "tf32": ("f32",), "bf16": ("f32",)}.get(a, ("f32", "f16"))  # fmt: skip
    if d not in accumulators or c != d or ELEMENT_BITS[a] != ELEMENT_BITS[b]:
        raise e.error("these types do not go together")
    if a == "b1" and "popc" not in parts:
        raise e.error("a .b1 product needs .xor.popc or .and.popc")
    return Form(Shape.parse(shape), d, a, b, c, "xor" in parts, "satfinite" in parts)


def _member(e: Emitter, item: Instruction, form: Form) -> Member:
    if len(item.operands) != 4:
        raise e.error("four operands expected")
    counts = register_counts(form.shape, form.a, form.b, form.d)
    d, a, b, c = (
        operand.elements if isinstance(operand, Vector) else (operand,) for operand in item.operands
    )
    if (len(a), len(b), len(d), len(c)) != (*counts, counts[2]):
        raise e.error(f"A, B, D take {counts} registers")
    return Member(_names(a), _names(b), _names(c), _names(d), (d, a, b, c))


def _names(elements: tuple) -> Names:
    """Names that tell operands apart; literals by their text."""
    return tuple(getattr(element, "name", repr(element)) for element in elements)


# ------------------------------------------------------------------------------------------------------------
# From a run of instructions to grids
# ------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Grid:
    """A full outer product: rows x columns x steps, as parsed operands in the order of fragments.pack_rows.
    """

    rows: list[list]
    columns: list[list]
    accumulators: list[list[tuple[Vector, Vector]]]


def plan(members: Sequence[Member], program: Program, form: Form) -> list[Grid]:
    """Grids that together do what the members do one after another."""
    grids = []
    for run in _independent_runs(members, program, form):
        grids.extend(_grids(run))
    return grids


def _independent_runs(members: Sequence[Member], program: Program, form: Form) -> list[list[Chain]]:
    """Runs of chains that depend on each other in no other way than along a chain."""
    runs: list[list[Chain]] = []
    by_result: dict[Names, Chain] = {}
    written: set[str] = set()
    read: set[str] = set()
    for member in members:
        chain = by_result.get(member.c)
        extends = chain is not None and not form.packed and _only_feeds(chain.steps[-1], member, program)
        if extends:
            touched = (set(member.a + member.b) & written) | (set(member.d) - set(member.c)) & (
                written | read
            )
        else:
            touched = (set(member.a + member.b + member.c) & written) | set(member.d) & (written | read)
        if not runs or touched:
            runs.append([])
            by_result, written, read, extends = {}, set(), set(), False
        if extends:
            del by_result[member.c]
            chain.steps.append(member)
        else:
            chain = Chain([member])
            runs[-1].append(chain)
            read.update(set(member.c) - set(member.d))
        by_result[member.d] = chain
        written.update(member.d)
        read.update(member.a + member.b)
    return runs


def _only_feeds(before: Member, after: Member, program: Program) -> bool:
    """Whether nobody but `after` sees what `before` leaves in its accumulators."""
    if after.d == before.d:
        return True
    counts = program.read_counts
    return all(counts.get(name, 0) == 1 for name in before.d)


def _grids(chains: list[Chain]) -> list[Grid]:
    by_row: dict[tuple, dict[tuple, Chain]] = {}
    leftovers = []
    for chain in chains:
        row = by_row.setdefault(chain.rows, {})
        if chain.columns in row:
            leftovers.append(chain)
        else:
            row[chain.columns] = chain
    by_columns: dict[tuple, list[dict[tuple, Chain]]] = {}
    for row in by_row.values():
        by_columns.setdefault(tuple(sorted(row)), []).append(row)
    grids = [_grid(rows, columns) for columns, rows in by_columns.items()]
    return grids + [_grid([{chain.columns: chain}], (chain.columns,)) for chain in leftovers]


def _grid(rows: list[dict[tuple, Chain]], columns: tuple) -> Grid:
    first = rows[0]
    return Grid(
        [[register for step in row[columns[0]].steps for register in step.operands[1]] for row in rows],
        [[register for step in first[column].steps for register in step.operands[2]] for column in columns],
        [
            [(Vector(row[c].steps[0].operands[3]), Vector(row[c].steps[-1].operands[0])) for c in columns]
            for row in rows
        ],
    )


# ------------------------------------------------------------------------------------------------------------
# Running a grid
# ------------------------------------------------------------------------------------------------------------


def whole_warps(machine: Machine, mask: np.ndarray | None, site: Site) -> np.ndarray | None:
    """Indices of the warps that take part in an `.aligned` instruction; None for all.

    A warp of which a part is missing is reported; it takes part as a whole.
    """
    if mask is None:
        return None
    count = np.count_nonzero(mask.reshape(-1, 32), axis=1)
    active = np.flatnonzero(count)
    if (count[active] != 32).any():
        lanes = np.flatnonzero(mask & np.repeat(machine.partial_warps(mask), 32))
        machine.report("barrier", "only a part of the warp executes this .aligned instruction", site, lanes)
    return active if active.size < machine.warps else None


def bind_product(
    machine: Machine, site: Site, form: Form, rows: list, columns: list, accumulators: list
) -> Callable:
    return _Product(machine, site, form, rows, columns, accumulators).run


def _chunks(register: np.ndarray) -> np.ndarray:
    """A register of all warps as (W, 8) chunks of four lanes: 16 bytes each, or (W, 8, 4) of 8-byte
    registers.
    """
    if register.itemsize == 4:
        return register.view(np.complex128).reshape(-1, 8)
    return register.reshape(-1, 8, 4)


class _Product:
    """One grid on one machine."""

    def __init__(
        self, machine: Machine, site: Site, form: Form, rows: list, columns: list, accumulators: list
    ):
        self.machine, self.site, self.form = machine, site, form
        shape = form.shape
        self.tiles = shape.m // 8
        self.rows, self.columns = len(rows), len(columns)
        self.a = self._operand(rows, self.tiles)
        self.b = self._operand(columns, 1)
        self.accumulators = accumulators
        self.depth = shape.k * (len(columns[0]) // (register_counts(shape, form.a, form.b, form.d)[1]))
        wide = form.a == "f64" or (form.integer and self.depth > _EXACT_F32_DEPTH)
        self.dtype = np.dtype(np.float64 if wide else np.float32)

    def _operand(self, registers: list, tiles: int) -> tuple[np.ndarray, list]:
        """A buffer of words (W, count, tiles, 8, steps, 4), and pairs (a view of it, a register's chunks)."""
        first = registers[0][0]
        steps = len(registers[0]) // tiles
        buffer = np.empty((self.machine.warps, len(registers), tiles, 8, steps, 4), first.dtype)
        target = buffer.view(np.complex128)[..., 0] if first.itemsize == 4 else buffer
        copies = []
        for i, fragment in enumerate(registers):
            for index, register in enumerate(fragment):
                step, tile = divmod(index, tiles)
                copies.append((target[:, i, tile, :, step], _chunks(register)))
        return buffer, copies

    def run(self, mask: np.ndarray | None) -> None:
        active = whole_warps(self.machine, mask, self.site)
        if active is not None and not active.size:
            return
        a, b = self._matrix(self.a, self.form.a, active), self._matrix(self.b, self.form.b, active)
        product = np.matmul(a, self._by_depth(b))
        if self.form.a == "b1" and self.form.xor:
            # popc(a ^ b) = popc(a) + popc(b) - 2 popc(a & b)
            ones = b.sum(axis=2, dtype=self.dtype)
            if not self.form.packed:
                ones = ones.reshape(-1, self.columns, 4, 2).transpose(0, 3, 1, 2).reshape(ones.shape)
            product = a.sum(axis=2, dtype=self.dtype)[:, :, None] + ones[:, None, :] - 2 * product
        if self.form.packed:
            self._store_pairs(product, active)
        else:
            self._store(product, active)

    def _matrix(self, operand: tuple[np.ndarray, list], kind: str, active: np.ndarray | None) -> np.ndarray:
        """Numbers (W, rows, K)."""
        buffer, copies = operand
        if active is None:
            for target, chunks in copies:
                target[...] = chunks
        else:
            buffer = buffer[: active.size]
            for target, chunks in copies:
                target[: active.size] = chunks[active]
        warps, count, tiles, _, steps, _ = buffer.shape
        words = buffer.reshape(warps, count * tiles * 8, steps * 4)
        return unpack_words(words, kind).astype(self.dtype, copy=False)

    def _by_depth(self, b: np.ndarray) -> np.ndarray:
        """(W, N, K) -> contiguous (W, K, N): a transposed operand would halve the speed of the product.

        For unpacked accumulators the columns are put in the order (column in pair, fragment, lane of group).
        """
        warps, _, depth = b.shape
        if self.form.packed:
            return np.ascontiguousarray(b.transpose(0, 2, 1))
        out = np.empty((warps, depth, 2, self.columns, 4), self.dtype)
        out[...] = b.reshape(warps, self.columns, 4, 2, depth).transpose(0, 4, 3, 1, 2)
        return out.reshape(warps, depth, -1)

    def _store(self, product: np.ndarray, active: np.ndarray | None) -> None:
        kind = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[self.form.d]
        if self.form.integer:
            product = product.astype(np.int64).astype(np.int32)
        product = product.astype(kind, copy=False)
        warps = product.shape[0]
        tiles = product.reshape(warps, self.rows, self.tiles, 8, 2, self.columns, 4)
        source = tiles.view(np.complex128)[..., 0] if product.itemsize == 4 else tiles
        chunk = np.empty((warps, 8, 4), kind)
        target = chunk.view(np.complex128)[..., 0] if product.itemsize == 4 else chunk
        flat = chunk.reshape(-1)
        for i, row in enumerate(self.accumulators):
            for j, (c, d) in enumerate(row):
                for index in range(len(d)):
                    target[...] = source[:, i, index // 2, :, index % 2, j]
                    self._accumulate(c[index].view(kind), flat, d[index].view(kind), active)

    def _accumulate(self, c: np.ndarray, value: np.ndarray, d: np.ndarray, active: np.ndarray | None) -> None:
        if active is None and not self.form.saturating:
            np.add(c, value, out=d)
            return
        before = c if active is None else c.reshape(-1, 32)[active].reshape(-1)
        if self.form.saturating and self.form.integer:
            limits = np.iinfo(np.int32)
            total = np.clip(before.astype(np.int64) + value, limits.min, limits.max)
        else:
            total = before + value
        if active is None:
            d[...] = total
        else:
            d.reshape(-1, 32)[active] = total.reshape(-1, 32)

    def _store_pairs(self, product: np.ndarray, active: np.ndarray | None) -> None:
        warps = product.shape[0]
        tiles = product.reshape(warps, self.rows, self.tiles, 8, self.columns, 4, 2)
        for i, row in enumerate(self.accumulators):
            for j, (c, d) in enumerate(row):
                for index in range(len(d)):
                    before = c[index].reshape(-1, 32)
                    before = before if active is None else before[active]
                    total = (
                        f16_to_f32(before.view(np.float16)).reshape(warps, 8, 4, 2) + tiles[:, i, index, :, j]
                    )
                    pairs = total.astype(np.float16).view(np.uint32).reshape(warps, 32)
                    target = d[index].reshape(-1, 32)
                    if active is None:
                        target[...] = pairs
                    else:
                        target[active] = pairs
