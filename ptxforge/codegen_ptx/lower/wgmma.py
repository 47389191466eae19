"""Matrix products of warpgroups: ``wgmma``.

*Registers.* The accumulators of a flight are the same virtual registers from the first product to the wait:
every instruction reads and writes them in place, loops carry them without a copy. The assembler follows
accumulators through the program, and where something else defines or merges them while products may be under
way it makes every ``wgmma`` wait for itself (notes C7510 to C7517). So accumulators are
filled before the first product, also before the test whether a loop runs at all, and are copied only behind a
``dot_wait``.

*Descriptors.* The lower word is the address in units of 16 bytes, so a part of a tile is one addition away
from the tile's beginning; the upper word is a constant. What depends on the warpgroup is computed at the
kernel's entry. In a cluster a shared address has the CTA's rank in bits 24 and up, where a descriptor, in
units of 16 bytes, has its leading offset: they are masked out.

*Left operands* in registers are read until their product is finished. The assembler keeps them until then in
the instructions that follow in the same block; but where a product runs on into the next iteration of a loop,
ptxas 13.0 takes them for free behind the branch, and gives them to what is computed there in front of the
wait. With ``copies_left`` the product reads copies, which are made behind that wait under a predicate that
always holds: as far as the assembler knows, old values may be needed there. (A ``mov`` it would do without,
and then finds that registers of a product under way are written.)

*Order.* k outermost: two instructions of one accumulator do not follow each other where there are several.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ptxforge.codegen_ptx.lower.exchange import shared_base
from ptxforge.codegen_ptx.lower.indices import linear_of, register_constants, thread_xor
from ptxforge.codegen_ptx.lower.packing import pack, unpack
from ptxforge.codegen_ptx.lower.shared_tile import SharedTile
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.registers import Register, register_class
from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.ir.ops import warpgroup as ops
from ptxforge.layouts import wgmma
from ptxforge.layouts.encodings import Mma
from ptxforge.layouts.linear import LANE, WARP, LinearLayout
from ptxforge.layouts.mma_families import WGMMA, find_family

_ZEROS = {T.F32: "0f00000000", T.F16: 0, T.I32: 0}


@lowers(ops.DotBegin)
def begin(ctx: Lowering, op: ops.DotBegin) -> None:
    """The words that the accumulators begin with; the first product, or a loop, puts them into registers."""
    element, entries = op.value.type.element, ctx.get(op.value)
    if element is T.F16:
        entries = [pack(ctx.b, entries[i : i + 2], T.F16) for i in range(0, len(entries), 2)]
    ctx.set(op, list(entries))


@lowers(ops.DotWait)
def wait(ctx: Lowering, op: ops.DotWait) -> None:
    ctx.b.effect(f"wgmma.wait_group.sync.aligned {op.pending};")
    ctx.set(op, *(_elements(ctx, flight) for flight in op.landing))


def _elements(ctx: Lowering, flight: Value) -> list:
    """The entries of the tensor that a flight becomes."""
    words, b = ctx.get(flight), ctx.b
    if flight.type.tensor.element is not T.F16:
        return words
    return [x for word in words for x in unpack(b, b.register(word), T.F16)]


@lowers(ops.FenceAsync)
def fence(ctx: Lowering, op: ops.FenceAsync) -> None:
    ctx.b.effect("fence.proxy.async.shared::cta;")


@lowers(ops.DotAsync)
def start(ctx: Lowering, op: ops.DotAsync) -> None:
    b, total = ctx.b, op.c.type.tensor
    words, is_fresh = _accumulators(ctx, op)
    blocks = _blocks(linear_of(total), total.layout, 2 if total.element is T.F16 else 1)
    k_size = wgmma.K_BYTES * 8 // op.b.type.element.bits
    steps = range(0, op.b.type.shape[0], k_size)
    if isinstance(op.a.type, T.TensorType):
        left = _Registers(ctx, op)
        left.prepare(blocks, steps)
    else:
        left = _Tile(ctx, op.a, linear_of(total), 0)
    right = _Tile(ctx, op.b, linear_of(total), 1)
    template = _template(op, left, right, len(blocks[0].words))
    adds = b.pure("setp.ne.b32 %s, %s, 0;", "p", 1)
    replaces = b.pure("setp.ne.b32 %s, %s, 0;", "p", 0) if is_fresh else adds
    b.locate(op.location)
    b.effect("wgmma.fence.sync.aligned;")
    for k in steps:
        for block in blocks:
            sums = map(words.__getitem__, block.words)
            scale = replaces if k == 0 else adds
            b.effect(template, *sums, *left.part(block.row, k), *right.part(block.column, k), scale)
    b.effect("wgmma.commit_group.sync.aligned;")
    ctx.set(op, words)


def _accumulators(ctx: Lowering, op: ops.DotAsync) -> tuple[list[Register], bool]:
    """The registers that are added to, and whether they hold nothing yet."""
    begun, words = op.begin, ctx.get(op.c)
    if begun is None:
        return words, False
    b, element, is_zero = ctx.b, op.element, begun.is_zero
    kind = "r" if element is T.F16 else register_class(element)
    registers = b.several(kind * len(words))
    for register, word in zip(registers, words):
        b.copy(register, _ZEROS[element] if is_zero else word)
    return registers, is_zero


class _Block(NamedTuple):
    """One instruction's place in a warpgroup's tile, and the accumulators it adds to (of ``words``)."""

    row: int
    column: int
    words: tuple[int, ...]


@lru_cache(maxsize=64)
def _blocks(total: LinearLayout, layout: Mma, per_word: int) -> tuple[_Block, ...]:
    """A thread's words, by instruction: rows of 8 columns, each two neighbours in row 0 and two in row 8
    (PTX ISA, "wgmma.mma_async: Accumulator D")."""
    place = _places(total, layout)
    columns = wgmma.columns_of_instruction(layout)
    blocks = []
    for row, column in sorted(at for at in place if at[0] % 16 == 0 and at[1] % columns == 0):
        registers = [place[row + down, column + 8 * tile + i]
                     for tile in range(columns // 8) for down in (0, 8) for i in (0, 1)]  # fmt: skip
        blocks.append(_Block(row, column, tuple(r // per_word for r in registers[::per_word])))
    return tuple(blocks)


# -- operands --------------------------------------------------------------------------------------------


class _Tile:
    """An operand in shared memory."""

    def __init__(self, ctx: Lowering, value: Value, total: LinearLayout, dim: int):
        type: T.MemDescType = value.type
        tile: SharedTile = ctx.scalar(value)
        self.b: Builder = ctx.b
        self.is_of_cluster = ctx.function.attributes.get("num_ctas", 1) > 1
        self.plan = wgmma.operand(type.layout, tile.layout.out_shape, k_dim=1 - dim)
        origin = tile.layout.apply(offset=tile.origin)
        self.index, self.k = origin[dim], origin[1 - dim]
        self.upper = self.b.register(self.plan.upper_bits)
        self.start = self._start(tile, self._of_warpgroup(total, dim))

    def _of_warpgroup(self, total: LinearLayout, dim: int) -> tuple[int, ...]:
        """Bytes to the first row (column) of a thread's warpgroup, for each bit of the thread's number."""
        columns = [0] * len(total.columns_of(LANE))
        for number, column in enumerate(total.columns_of(WARP)):
            index = total.unflatten(column)[dim] if number >= 2 else 0
            columns.append(self.plan.offset(index, 0))
        return tuple(columns)

    def _start(self, tile: SharedTile, columns: tuple[int, ...]):
        """The lower word of the descriptor of the tile's beginning, as an affine value."""
        b = self.b
        root = b.add(shared_base(b), thread_xor(b, columns))
        if tile.dynamic is not None:
            root = b.add(root, tile.dynamic)
        units = b.pure("shr.u32 %s, %s, 4;", "r", b.register(root))
        if self.is_of_cluster:
            units = b.pure("and.b32 %s, %s, 0x3fff;", "r", units)
        return b.add(units, (tile.start >> 4) + self.plan.leading_bits)

    def part(self, index: int, k: int) -> tuple[Register, ...]:
        """The descriptor of what an instruction reads."""
        offset = self.plan.offset(self.index + index, self.k + k)
        lower = self.b.register(self.b.add(self.start, offset >> 4))
        return (self.b.pure("mov.b64 %s, {%s, %s};", "q", lower, self.upper),)

    slots = "%s"

    @property
    def is_transposed(self) -> bool:
        return self.plan.is_transposed


def _unknown(b: Builder) -> tuple[Register, Register]:
    """A register that is zero in every thread, and a predicate that holds, of which the assembler does not
    know it."""
    with b.at_entry():
        own = b.pure("mov.u32 %s, %%lanemask_eq;", "r")
        zero = b.pure("sub.s32 %s, %s, 1;", "r", b.pure("popc.b32 %s, %s;", "r", own))
        return zero, b.pure("setp.eq.s32 %s, %s, 0;", "p", zero)


class _Registers:
    """Operand A in registers."""

    slots = "{%s, %s, %s, %s}"
    is_transposed = False

    def __init__(self, ctx: Lowering, op: ops.DotAsync):
        self.b: Builder = ctx.b
        self.element = op.a.type.element
        self.entries, self.is_copied = ctx.get(op.a), op.copies_left
        self.place = _places(linear_of(op.a.type), op.a.type.layout.parent)
        self.found: dict[tuple[int, int], tuple[Register, ...]] = {}

    def prepare(self, blocks: tuple[_Block, ...], steps: range) -> None:
        """Pack all words, before the fence behind which the tensor cores read them."""
        for k in steps:
            for row in dict.fromkeys(block.row for block in blocks):
                self.found[row, k] = self._words(row, k)

    def _words(self, row: int, k: int) -> tuple[Register, ...]:
        """Rows 0 and 8 at k, then both half an instruction further on."""
        b, per_word = self.b, 32 // self.element.bits
        half = wgmma.K_BYTES * 4 // self.element.bits
        words = []
        for ahead in (0, half):
            for down in (0, 8):
                entries = [self.entries[self.place[row + down, k + ahead + i]] for i in range(per_word)]
                word = entries[0] if per_word == 1 else pack(b, entries, self.element)
                words.append(self._own(b.register(word, "f" if self.element is T.F32 else "r")))
        return tuple(words)

    def _own(self, word: Register) -> Register:
        """The register that the instruction reads: ``word``, or a copy, see *Left operands*."""
        if not self.is_copied:
            return word
        copy, b = self.b.new(word.kind), self.b
        zero, always = _unknown(b)
        b.effect("or.b32 %s, %s, %s;", copy, word, zero, guard=always)
        return copy

    def part(self, index: int, k: int) -> tuple[Register, ...]:
        return self.found[index, k]


@lru_cache(maxsize=64)
def _places(layout: LinearLayout, mma: Mma) -> dict[tuple[int, int], int]:
    """The register that holds an element (the first one), by its place, of a group's first thread; rows as
    instructions count them."""
    found: dict[tuple[int, int], int] = {}
    for register, flat in enumerate(register_constants(layout)):
        row, column = layout.unflatten(flat)
        found.setdefault((mma.as_counted(0, row), column), register)
    return found


def _template(op: ops.DotAsync, left, right, words: int) -> str:
    """The instruction with a slot per register."""
    types = [str(element) for element in (op.a.type.element, op.b.type.element, op.element)]
    family = find_family(WGMMA, *types)
    columns = wgmma.columns_of_instruction(op.c.type.tensor.layout)
    shape = f"m64n{columns}k{family.k}"
    sums = "{" + ", ".join(["%s"] * words) + "}"
    first, second, total = family.kinds(*types, op.a_unsigned, op.b_unsigned)
    signs = "" if op.element is T.I32 else ", 1, 1"
    turns = ""
    if family.bits == 16:
        turned = [right] if isinstance(left, _Registers) else [left, right]
        turns = "".join(f", {int(operand.is_transposed)}" for operand in turned)
    return (
        f"wgmma.mma_async.sync.aligned.{shape}.{total}.{first}.{second} "
        f"{sums}, {left.slots}, {right.slots}, %s{signs}{turns};"
    )
