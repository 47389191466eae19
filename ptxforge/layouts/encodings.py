"""The named encodings: each is a constructor of a linear layout for a given tensor shape.

============  ================================================================================  ==========
class         says                                                                              maps from
============  ================================================================================  ==========
Blocked       each thread owns a small block; threads tile a warp, warps tile the CTA           registers
Slice         the parent's tensor with dimension ``dim`` squeezed out (before an expand_dims)    registers
Mma           accumulator of a tensor core instruction (PTX ISA, "Matrix Fragments")            registers
DotOperand    operand A or B of a ``dot`` whose result has the parent encoding                  registers
Linear        any linear layout, spelled out                                                    registers
Shared        a tile in shared memory, rows swizzled (``shared.py``)                             offsets
Panels        a tile in shared memory as ``wgmma`` and TMA have it (``panels.py``)               offsets
============  ================================================================================  ==========

Distributed encodings map (register, lane, warp, block) to (dim0, dim1, ...), shared ones (offset, block).

Two rules make an encoding fit any shape. Where its tile is smaller than the tensor, the tile repeats in
registers, fastest dimension of ``order`` first. Where the tile exceeds the tensor, it wraps: the surplus
bits map to zero, so several lanes or warps hold the same element (registers too in the fragments of tensor
cores, where the instruction wants them; blocked layouts leave a thread's own copies out).

>>> layout = Blocked((1, 4), (4, 8), (1, 1), (1, 0))
>>> print(layout)
#blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [1, 1], order = [1, 0]}>
>>> print(layout.linear((8, 32)).sublayout(["register", "lane"], ["dim0", "dim1"]))
{register = [[0, 1], [0, 2], [4, 0]], lane = [[0, 4], [0, 8], [0, 16], [1, 0], [2, 0]]} -> dim0 = 8, dim1 = 32
>>> print(layout.linear((4, 16)).sublayout(["register", "lane"], ["dim0", "dim1"]))
{register = [[0, 1], [0, 2]], lane = [[0, 4], [0, 8], [0, 0], [1, 0], [2, 0]]} -> dim0 = 4, dim1 = 16
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod

from attrs import field, frozen

from ptxforge.layouts.cta import (
    CTALayout,
    Shape,
    check_order,
    check_powers,
    cta_field,
    ints,
    names_in_order,
    order_without,
    permuted_order,
    row_major,
)
from ptxforge.layouts.linear import (
    BLOCK,
    LANE,
    REGISTER,
    WARP,
    LayoutError,
    LinearLayout,
    dim_names,
    log2_exact,
)
from ptxforge.layouts.scratch import broadcast_nd, clip, fit, identity_nd, mma_tile, permute_bits, repeat
from ptxforge.support.interned import Interned
from ptxforge.support.machine import WARP_SIZE

# -- the encodings -------------------------------------------------------------------------------------


class Encoding(Interned):
    """Base of all encodings: immutable values with a linear layout for each shape they are asked about."""

    __slots__ = ()

    name: str = ""
    rank: int
    order: tuple[int, ...]

    def linear(self, shape: Sequence[int]) -> LinearLayout:
        """The linear layout of a tensor of ``shape`` (powers of two) under this encoding; cached.

        Raises:
            LayoutError: for a shape of another rank, or with a size that is no power of two.
        """
        return _linear(self, tuple(shape))

    def build(self, shape: Shape) -> LinearLayout:
        """What :meth:`linear` caches."""
        raise NotImplementedError

    def fields(self) -> list[tuple[str, object]]:
        """Pairs of (field name in the text syntax, value): int, bool, list of ints or another encoding."""
        raise NotImplementedError

    def text(self, aliases: Mapping[Encoding, str] | None = None) -> str:
        """The text syntax; ``aliases`` maps nested encodings to names such as ``#mma``."""
        body = ", ".join(f"{key} = {_text_of(value, aliases)}" for key, value in self.fields())
        return f"#{self.name}<{{{body}}}>"

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """For notebooks: the text and, where there is one, a picture of the smallest tensor that shows all of
        the encoding."""
        show = importlib.import_module("ptxforge.layouts.show")  # which stands on this module
        return show.notebook(self)


class Distributed(Encoding):
    """Base of the encodings whose elements live in registers."""

    __slots__ = ()

    warps_per_cta: tuple[int, ...]

    @property
    def num_warps(self) -> int:
        """Warps of the CTA that the encoding covers (those that hold copies included)."""
        return prod(self.warps_per_cta)


@lru_cache(maxsize=8192)
def _linear(encoding: Encoding, shape: Shape) -> LinearLayout:
    if len(shape) != encoding.rank:
        raise LayoutError(
            f"{encoding} has rank {encoding.rank}, the shape {list(shape)} has rank {len(shape)}")
    for size in shape:
        log2_exact(size, "a tensor's size")
    return encoding.build(shape)


def _text_of(value, aliases) -> str:
    if isinstance(value, Encoding):
        return (aliases or {}).get(value) or value.text(aliases)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_text_of(v, aliases) for v in value) + "]"
    return str(value)


@frozen(eq=False, str=False)
class Blocked(Distributed):
    """Each thread owns ``size_per_thread`` neighbouring elements, the lanes of a warp tile
    ``threads_per_warp`` such blocks, the warps ``warps_per_cta`` such tiles; ``order`` lists the fastest
    dimension first, for all three."""

    name = "blocked"

    size_per_thread: tuple[int, ...] = field(converter=ints, validator=check_powers)
    threads_per_warp: tuple[int, ...] = field(converter=ints, validator=check_powers)
    warps_per_cta: tuple[int, ...] = field(converter=ints, validator=check_powers)
    order: tuple[int, ...] = field(converter=ints, validator=check_order)
    cta: CTALayout = cta_field()

    def __attrs_post_init__(self):
        lengths = {len(self.size_per_thread), len(self.threads_per_warp), len(self.warps_per_cta), self.rank,
                   len(self.cta.cta_order)}
        if len(lengths) > 1:
            raise LayoutError(f"fields of different lengths in {self}")

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.order)

    @property
    def tile(self) -> Shape:
        """The shape that one pass of all threads of a CTA covers."""
        sizes = zip(self.size_per_thread, self.threads_per_warp, self.warps_per_cta)
        return tuple(s * t * w for s, t, w in sizes)

    def build(self, shape: Shape) -> LinearLayout:
        tile = identity_nd(REGISTER, self.size_per_thread, self.order)
        tile *= identity_nd(LANE, self.threads_per_warp, self.order)
        tile *= identity_nd(WARP, self.warps_per_cta, self.order)
        # A thread has no use for a second copy of its own element.
        return fit(tile, self.cta, shape, REGISTER).without_zero_columns(REGISTER)

    def fields(self):
        return [("sizePerThread", self.size_per_thread), ("threadsPerWarp", self.threads_per_warp),
                ("warpsPerCTA", self.warps_per_cta), ("order", self.order), *self.cta.fields()]


@frozen(eq=False, str=False)
class Slice(Distributed):
    """The encoding of a tensor that lacks dimension ``dim`` of its ``parent``: all places that differ along
    ``dim`` only hold the same element. Adding the dimension back (expand_dims) moves no data."""

    name = "slice"

    dim: int
    parent: Distributed

    def __attrs_post_init__(self):
        if not isinstance(self.parent, Distributed):
            raise LayoutError(f"the parent of a slice must be a distributed encoding, got {self.parent}")
        if not 0 <= self.dim < self.parent.rank or self.parent.rank < 2:
            raise LayoutError(f"cannot slice dimension {self.dim} out of {self.parent}")

    @property
    def rank(self) -> int:
        """One less than the parent has."""
        return self.parent.rank - 1

    @property
    def order(self) -> tuple[int, ...]:
        """The parent's, without the dimension."""
        return order_without(self.parent.order, self.dim)

    @property
    def cta(self) -> CTALayout:
        """The parent's, without the dimension."""
        return self.parent.cta.without(self.dim)

    @property
    def warps_per_cta(self) -> tuple[int, ...]:
        """The parent's, the dimension included: its warps hold copies."""
        return self.parent.warps_per_cta

    def build(self, shape: Shape) -> LinearLayout:
        wide = self.parent.linear((*shape[:self.dim], 1, *shape[self.dim:]))
        names = wide.out_names
        kept = wide.sublayout(wide.in_dims, names[:self.dim] + names[self.dim + 1:])
        # Registers that the missing dimension had told apart would be copies of each other.
        kept = kept.without_zero_columns(REGISTER)
        return kept.rename({old: new for old, new in zip(kept.out_names, dim_names(self.rank))})

    def fields(self):
        return [("dim", self.dim), ("parent", self.parent)]


@frozen(eq=False, str=False)
class Mma(Distributed):
    """The accumulator of tensor core instructions, C and D of ``instr_shape`` = (…, m, n[, k]) each.

    Version (2, 0) is ``mma.sync`` (Ampere on): m16n8, or m8n8 for f64. Version (3, 0) is ``wgmma`` (Hopper):
    16 rows per warp, n columns, and four warps along m make one instruction. Fragments after PTX ISA 9.0,
    section 9.7.14.5, "Matrix Fragments for mma.m16n8k16 with floating point type" (accumulators): lane
    4g + t holds (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).

    ``interleave`` = (i, j) deals rows and columns out to the instructions of a warp in another way: instead
    of 8 neighbours an instruction takes every j-th column (and every i-th row), so that the columns of B
    (rows of A) that a lane holds are neighbours in runs of j (i). What lies along n (m) in memory can then
    be read in vectors, whatever its width; instructions notice nothing, as long as A, B and C agree. Under
    version 3, where A is in registers, (4, 1) deals out a warp's rows: its lanes have four neighbours, and
    four others 16 rows further on. What lies along m in the panels of TMA is then read without conflicts.

    ``tiles_per_warp`` = (i, j): a warp's first i · j instructions cover neighbouring rows and columns, before
    the next warp's begin. (Else warps take turns, instruction by instruction.)
    """

    name = "mma"

    version: tuple[int, int] = field(converter=ints, default=(2, 0))
    warps_per_cta: tuple[int, ...] = field(converter=ints, validator=check_powers, default=(4, 1))
    instr_shape: tuple[int, ...] = field(converter=ints, default=(16, 8))
    cta: CTALayout = cta_field()
    interleave: tuple[int, ...] = field(converter=ints, validator=check_powers, default=(1, 1))
    tiles_per_warp: tuple[int, ...] = field(converter=ints, validator=check_powers, default=(1, 1))

    def __attrs_post_init__(self):
        if self.version[0] not in (2, 3):
            raise LayoutError(
                f"mma version {self.version[0]} is not supported, only 2 (mma.sync) and 3 (wgmma)")
        if len(self.instr_shape) < self.rank or any(s < 8 for s in self._atom[-2:]):
            raise LayoutError(f"instrShape {list(self.instr_shape)} does not fit warpsPerCTA "
                              f"{list(self.warps_per_cta)}")
        if len(self.interleave) != 2 or (self.version[0] == 3 and self.interleave not in ((1, 1), (4, 1))):
            raise LayoutError(f"interleave {list(self.interleave)} is not for mma version {self.version[0]}")
        if len(self.tiles_per_warp) != 2 or (
            self.has_tiles_per_warp and (self.version[0] == 3 or self.is_interleaved)
        ):
            raise LayoutError(f"tilesPerWarp {list(self.tiles_per_warp)} is not for mma version 3 "
                              "or an interleaved layout")

    @property
    def is_interleaved(self) -> bool:
        """Whether rows or columns are dealt out in another way than eight neighbours at a time."""
        return self.interleave != (1, 1)

    @property
    def has_tiles_per_warp(self) -> bool:
        """Whether some instructions of a warp cover neighbouring elements."""
        return self.tiles_per_warp != (1, 1)

    @property
    def rank(self) -> int:
        """Number of dimensions: 2, or 3 with a batch."""
        return len(self.warps_per_cta)

    @property
    def order(self) -> tuple[int, ...]:
        """Row-major: the last dimension is fastest."""
        return row_major(self.rank)

    @property
    def warp_order(self) -> tuple[int, ...]:
        """wgmma numbers its four warps along m, mma.sync leaves the choice to us: rows of warps."""
        if self.version[0] == 2:
            return row_major(self.rank)
        return (self.rank - 2, self.rank - 1, *row_major(self.rank - 2))

    @property
    def _atom(self) -> Shape:
        """The part of the result that one warp holds of one instruction: (1, ..., m, n)."""
        shape = self.instr_shape[:2] if self.version[0] == 3 else self.instr_shape
        return (1,) * (self.rank - len(shape)) + tuple(shape[:self.rank])

    @property
    def tile(self) -> Shape:
        """The shape that one instruction of every warp covers."""
        return tuple(a * w for a, w in zip(self._atom, self.warps_per_cta))

    def build(self, shape: Shape) -> LinearLayout:
        order = self.order
        tile = mma_tile(self._atom, 2, order, order)
        tile *= self.repeated_in_warp(range(self.rank - 2, self.rank))
        tile *= identity_nd(WARP, self.warps_per_cta, self.warp_order)
        tile = self.interleaved(tile, (self.rank - 2, self.rank - 1))
        return fit(tile, self.cta, shape, REGISTER)

    def repeated_in_warp(self, dims: Iterable[int]) -> LinearLayout:
        """The ``tiles_per_warp`` along ``dims``, in registers."""
        tiles = (1,) * (self.rank - 2) + self.tiles_per_warp
        return identity_nd(REGISTER, [n if d in dims else 1 for d, n in enumerate(tiles)], self.order)

    def interleaved(self, tile: LinearLayout, dims: Iterable[int]) -> LinearLayout:
        """``tile``, which holds one instruction of every warp, with rows and columns dealt out as
        ``interleave`` says: repeated in registers for as many instructions as that takes."""
        if not self.is_interleaved:
            return tile
        for d in dims:
            places = _instruction_places(self, d)
            name = f"dim{d}"
            tile *= LinearLayout.identity((1 << len(places)) // tile.out_size(name), REGISTER, name)
            tile = permute_bits(tile, name, places)
        return tile

    def as_counted(self, d: int, index: int) -> int:
        """The row (or column) ``index`` of the tensor as instructions count: without ``interleave``."""
        if not self.is_interleaved:
            return index
        places = _instruction_places(self, d)
        rest = index >> len(places) << len(places)
        return rest | sum((index >> place & 1) << i for i, place in enumerate(places))

    def fields(self):
        interleave = [("interleave", self.interleave)] if self.is_interleaved else []
        tiles = [("tilesPerWarp", self.tiles_per_warp)] if self.has_tiles_per_warp else []
        return [("versionMajor", self.version[0]), ("versionMinor", self.version[1]),
                ("warpsPerCTA", self.warps_per_cta), *self.cta.fields(), ("instrShape", self.instr_shape),
                *interleave, *tiles]


@lru_cache(maxsize=256)
def _instruction_places(mma: Mma, d: int) -> tuple[int, ...]:
    """For each bit of a row or column as instructions count, low ones first (those of lanes, of a lane's
    registers, of warps, of further instructions): which bit of the tensor's row or column it is."""
    run = log2_exact(mma.interleave[d - mma.rank])
    halves = log2_exact(mma._atom[d] // 8)
    warps = log2_exact(mma.warps_per_cta[d])
    if mma.version[0] == 3:
        places = range(3 + halves + warps)
        return (0, 1, 4, 2, 3, *places[5:]) if run else tuple(places)
    lanes = range(run, run + 3)
    registers = [r if r < run else 3 + r for r in range(halves)]
    first_warp = 3 + max(run, halves)
    return (*lanes, *registers, *range(first_warp, first_warp + warps), *range(halves, run))


@frozen(eq=False, str=False)
class DotOperand(Distributed):
    """Operand A (``op_idx`` 0) or B (``op_idx`` 1) of a ``dot`` whose result is encoded as ``parent``.

    Under an :class:`Mma` parent, ``k_width`` is the number of consecutive elements along k that fill one
    32-bit register (2 for f16, 4 for 8-bit, 1 for tf32 and f64); a larger one permutes k, equally in A and
    B, so that a lane's elements are contiguous in memory. 0 stands for 2. Under a :class:`Blocked` parent
    (FMA) each thread holds all of k and ``k_width`` is 0.
    """

    name = "dot_op"

    op_idx: int
    parent: Distributed
    k_width: int = 0

    def __attrs_post_init__(self):
        if self.op_idx not in (0, 1):
            raise LayoutError(f"opIdx must be 0 (A) or 1 (B), got {self.op_idx}")
        if not isinstance(self.parent, Mma | Blocked):
            raise LayoutError(f"the parent of a dot operand must be mma or blocked, got {self.parent}")
        if self.k_width:
            log2_exact(self.k_width, "kWidth")

    @property
    def rank(self) -> int:
        """The parent's number of dimensions."""
        return self.parent.rank

    @property
    def k_dim(self) -> int:
        """The dimension that is summed over: the last of A, the last but one of B."""
        return self.rank - 1 - self.op_idx

    @property
    def order(self) -> tuple[int, ...]:
        """Under mma, k is fastest; under blocked the parent's order."""
        if isinstance(self.parent, Blocked):
            return self.parent.order
        free = 2 * self.rank - 3 - self.k_dim
        return (self.k_dim, free, *row_major(self.rank - 2))

    @property
    def warps_per_cta(self) -> tuple[int, ...]:
        """The parent's warps along each dimension; along k all hold the same."""
        return self.parent.warps_per_cta

    @property
    def cta(self) -> CTALayout:
        """CTAs split along m and n only: along k each holds everything."""
        cta = self.parent.cta
        split = tuple(1 if d == self.k_dim else s for d, s in enumerate(cta.cta_split_num))
        return cta if split == cta.cta_split_num else CTALayout(cta.ctas_per_cga, split, cta.cta_order)

    def build(self, shape: Shape) -> LinearLayout:
        build = self._build_mma if isinstance(self.parent, Mma) else self._build_fma
        return fit(build(shape), self.cta, shape, REGISTER)

    @property
    def depth_of_instruction(self) -> int:
        """Elements along k of one instruction of tensor cores: four lanes have ``k_width`` each, twice if the
        instruction has 16 rows (m8n8k4, of f64, has 8)."""
        return (self.k_width or 2) * (8 if self.parent._atom[-2] >= 16 else 4)

    def _build_mma(self, shape: Shape) -> LinearLayout:
        k_width = self.k_width or 2
        atom = list(self.parent._atom)
        if self.parent.version[0] == 3 and self.op_idx == 1:
            raise LayoutError("operand B of wgmma lives in shared memory")
        atom[self.k_dim] = self.depth_of_instruction
        tile = mma_tile(atom, k_width, self.order, self.order)
        free = [2 * self.rank - 3 - self.k_dim]
        tile *= self.parent.repeated_in_warp(free)
        tile *= broadcast_nd(WARP, self.parent.warps_per_cta, self.parent.warp_order, self.k_dim)
        return self.parent.interleaved(tile, free)

    def _build_fma(self, shape: Shape) -> LinearLayout:
        parent = self.parent
        size = [shape[d] if d == self.k_dim else s for d, s in enumerate(parent.size_per_thread)]
        tile = identity_nd(REGISTER, size, parent.order)
        tile *= broadcast_nd(LANE, parent.threads_per_warp, parent.order, self.k_dim)
        return tile * broadcast_nd(WARP, parent.warps_per_cta, parent.order, self.k_dim)

    def fields(self):
        width = [("kWidth", self.k_width)] if self.k_width else []
        return [("opIdx", self.op_idx), ("parent", self.parent), *width]


@frozen(eq=False, str=False)
class Linear(Distributed):
    """A distributed encoding spelled out: ``layout`` maps register, lane, warp, block to dim0, dim1, ...

    On a larger tensor it repeats in registers, on a smaller one it wraps, as the other encodings do.
    """

    name = "linear"

    layout: LinearLayout

    def __attrs_post_init__(self):
        layout = self.layout
        if layout.in_dims != (REGISTER, LANE, WARP, BLOCK):
            raise LayoutError(f"expected inputs register, lane, warp, block, got {list(layout.in_dims)}")
        if layout.out_names != dim_names(self.rank):
            raise LayoutError(f"expected outputs dim0, dim1, ..., got {list(layout.out_names)}")
        if layout.in_size(LANE) != WARP_SIZE:
            raise LayoutError(f"expected {WARP_SIZE} lanes, got {layout.in_size(LANE)}")
        if not layout.is_surjective:
            raise LayoutError(f"some elements have no place in {layout}")

    @property
    def rank(self) -> int:
        """Number of the map's output dimensions."""
        return len(self.layout.out_dims)

    @property
    def order(self) -> tuple[int, ...]:
        """Dimensions by where they first appear: in registers, then lanes, then warps."""
        return order_of(self.layout)

    @property
    def cta(self) -> CTALayout:
        """How the CTAs of the map share a tensor. Raises :class:`LayoutError` when some hold copies."""
        split = [1] * self.rank
        for column in self.layout.columns_of(BLOCK):
            for d, value in enumerate(self.layout.unflatten(column)):
                split[d] <<= bool(value)
        if prod(split) != self.layout.in_size(BLOCK):
            raise LayoutError(f"{self} has no CTA layout: some CTAs hold copies")
        return CTALayout(split, split, self.order)

    @property
    def warps_per_cta(self) -> tuple[int, ...]:
        """All warps, counted along dimension 0: only their product means something here."""
        return (self.layout.in_size(WARP),) + (1,) * (self.rank - 1)

    def build(self, shape: Shape) -> LinearLayout:
        layout = self.layout
        if layout.out_shape == shape:
            return layout
        layout = layout.transpose_outs(names_in_order(self.order))
        return repeat(clip(layout, shape), shape, REGISTER).transpose_outs(dim_names(self.rank))

    def fields(self):
        return list(self.layout.bases)


def order_of(layout: LinearLayout) -> tuple[int, ...]:
    """The dimensions of a layout, fastest first: by the lowest bit in which each one appears (registers
    come before lanes, lanes before warps); dimensions that do not appear come last, last one first."""
    rank = len(layout.out_dims)
    found: list[int] = []
    for column in layout.columns:
        for d, value in enumerate(layout.unflatten(column)):
            if value and d not in found:
                found.append(d)
    return (*found, *(d for d in row_major(rank) if d not in found))


# -- questions -----------------------------------------------------------------------------------------


def elements_per_thread(layout: Distributed, shape: Sequence[int]) -> int:
    """Registers (one element each, copies included) that a thread holds of a tensor of ``shape``."""
    return layout.linear(shape).in_size(REGISTER)


def unique_elements_per_thread(layout: Distributed, shape: Sequence[int]) -> int:
    """Distinct elements that a thread holds."""
    return _unique_registers(layout.linear(shape))


@lru_cache(maxsize=4096)
def _unique_registers(linear: LinearLayout) -> int:
    return 1 << linear.sublayout([REGISTER], linear.out_names).rank


# -- the default encoding ------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _default_blocked(shape, num_warps, threads_per_warp, size_per_thread, order) -> Blocked:
    rank = len(shape)
    threads, in_warps = [1] * rank, [1] * rank
    lanes_left, warps_left, threads_left = threads_per_warp, num_warps, threads_per_warp * num_warps
    for d in order[:-1]:
        wanted = min(threads_left, max(1, shape[d] // size_per_thread[d]))
        threads[d] = min(wanted, lanes_left)
        in_warps[d] = min(max(1, wanted // threads[d]), warps_left)
        lanes_left //= threads[d]
        warps_left //= in_warps[d]
        threads_left //= wanted
    threads[order[-1]] = lanes_left
    in_warps[order[-1]] = warps_left
    return Blocked(size_per_thread, threads, in_warps, order)


def default_blocked(
    shape: Sequence[int], num_warps: int, threads_per_warp: int = WARP_SIZE,
    size_per_thread: Sequence[int] | None = None, order: Sequence[int] | None = None,
) -> Blocked:
    """The encoding that a tensor gets before anything is known about its use.

    From the fastest dimension on, each takes as many threads as it has blocks of ``size_per_thread``
    (default 1 per dimension), lanes before warps; the slowest dimension takes what is left.

    >>> print(default_blocked((2, 32), num_warps=4))
    #blocked<{sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1], order = [1, 0]}>
    """
    rank = len(shape)
    size = tuple(size_per_thread) if size_per_thread is not None else (1,) * rank
    fastest_first = tuple(order) if order is not None else row_major(rank)
    return _default_blocked(tuple(shape), num_warps, threads_per_warp, size, fastest_first)


def blocked_for_dot(shape: Sequence[int], num_warps: int, threads_per_warp: int = WARP_SIZE) -> Blocked:
    """The result encoding of a ``dot`` on ordinary FMA units: 4 x 4 elements per thread where each thread
    gets at least 16 anyway, else 2 x 2 where it gets at least 4: squares keep the loads per product low."""
    per_thread = prod(shape) // (num_warps * threads_per_warp)
    side = 4 if per_thread >= 16 else 2 if per_thread >= 4 else 1
    size = (1,) * (len(shape) - 2) + (min(side, shape[-2]), min(side, shape[-1]))
    return default_blocked(shape, num_warps, threads_per_warp, size)


# -- rules of the shape operations ---------------------------------------------------------------------
#
# infer_X gives the encoding of the result such that no thread has to give an element to another: the
# operand's registers are the result's, in the order that the two linear maps say. Blocked stays blocked.


def blocked_for_expand_dims(source: Blocked, axis: int) -> Blocked:
    """The encoding that ``expand_dims`` of a tensor in a default encoding results in: 1 inserted everywhere,
    the order ascending. The operand is first converted to ``Slice(axis, result)``."""
    rank = source.rank + 1
    return Blocked(_insert(source.size_per_thread, axis, 1), _insert(source.threads_per_warp, axis, 1),
                   _insert(source.warps_per_cta, axis, 1), tuple(range(rank)))


def infer_expand_dims(source: Distributed, axis: int, shape: Sequence[int]) -> Distributed:
    """Encoding of ``expand_dims(x, axis)`` with the result's ``shape``: a slice along ``axis`` becomes its
    parent."""
    if isinstance(source, Slice) and source.dim == axis:
        return source.parent
    if not isinstance(source, Blocked):
        narrow = (*shape[:axis], *shape[axis + 1:])
        return infer_reshape(source, narrow, shape)
    order = (*(d + (d >= axis) for d in source.order), axis)
    return Blocked(_insert(source.size_per_thread, axis, 1), _insert(source.threads_per_warp, axis, 1),
                   _insert(source.warps_per_cta, axis, 1), order, _cta_insert(source.cta, axis))


def infer_trans(source: Distributed, order: Sequence[int], shape: Sequence[int]) -> Distributed:
    """Encoding of ``trans(x, order)`` where x has ``shape``: dimension i of the result is ``order[i]`` of x.

    >>> print(infer_trans(Blocked((1, 4), (2, 16), (4, 1), (1, 0)), (1, 0), (64, 64)))
    #blocked<{sizePerThread = [4, 1], threadsPerWarp = [16, 2], warpsPerCTA = [1, 4], order = [0, 1]}>
    """
    order = tuple(order)
    if order == tuple(range(len(order))):
        return source
    if isinstance(source, Blocked):
        return Blocked(*(tuple(v[d] for d in order) for v in (
            source.size_per_thread, source.threads_per_warp, source.warps_per_cta)),
            permuted_order(source.order, order), source.cta.permuted(order))
    return _linear_trans(source, order, tuple(shape))


@lru_cache(maxsize=1024)
def _linear_trans(source: Distributed, order: tuple[int, ...], shape: Shape) -> Distributed:
    layout = source.linear(shape).transpose_outs([f"dim{d}" for d in order])
    return simplified(layout.rename({f"dim{d}": f"dim{i}" for i, d in enumerate(order)}))


@lru_cache(maxsize=1024)
def _reshape(source: Distributed, from_shape: Shape, to_shape: Shape) -> Distributed:
    layout = source.linear(from_shape).reshape_outs(zip(dim_names(len(to_shape)), to_shape))
    return simplified(layout)


def infer_reshape(source: Distributed, from_shape: Sequence[int], to_shape: Sequence[int]) -> Distributed:
    """Encoding of ``reshape`` (row-major order of elements) from one shape to another: no data move.

    >>> print(infer_reshape(Blocked((4,), (32,), (4,), (0,)), (512,), (4, 128)))
    #blocked<{sizePerThread = [1, 4], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1], order = [1, 0]}>
    """
    from_shape, to_shape = tuple(from_shape), tuple(to_shape)
    return source if from_shape == to_shape else _reshape(source, from_shape, to_shape)


def infer_join(source: Distributed, shape: Sequence[int]) -> Distributed:
    """Encoding of ``join(x, y)``, both of ``shape``: the new last dimension (of size 2) lies in a thread's
    first register bit."""
    if isinstance(source, Blocked):
        rank = source.rank
        return Blocked((*source.size_per_thread, 2), (*source.threads_per_warp, 1),
                       (*source.warps_per_cta, 1), (rank, *source.order), _cta_insert(source.cta, rank))
    return _linear_join(source, tuple(shape))


@lru_cache(maxsize=256)
def _linear_join(source: Distributed, shape: Shape) -> Distributed:
    rank = len(shape)
    pair = LinearLayout.identity(2, REGISTER, f"dim{rank}")
    joined = pair * source.linear(shape)
    return simplified(joined.transpose_outs(dim_names(rank + 1)).transpose_ins((REGISTER, LANE, WARP, BLOCK)))


def infer_split(source: Distributed, shape: Sequence[int]) -> Distributed:
    """Encoding of the halves of ``split(x)``, x of ``shape`` with a last dimension of 2.

    Raises:
        LayoutError: when the two halves of a pair are not in the same thread; convert x to
            ``infer_join(...)`` of the wanted result first.
    """
    if isinstance(source, Blocked) and _last(source) == (2, 1, 1):
        return Blocked(source.size_per_thread[:-1], source.threads_per_warp[:-1], source.warps_per_cta[:-1],
                       order_without(source.order, source.rank - 1), source.cta.without(source.rank - 1))
    return _linear_split(source, tuple(shape))


def _last(source: Blocked) -> tuple[int, int, int]:
    return source.size_per_thread[-1], source.threads_per_warp[-1], source.warps_per_cta[-1]


@lru_cache(maxsize=256)
def _linear_split(source: Distributed, shape: Shape) -> Distributed:
    layout = source.linear(shape)
    if shape[-1] != 2 or 1 not in layout.columns_of(REGISTER) or sum(c & 1 for c in layout.columns) != 1:
        raise LayoutError(f"the halves of each pair are in different threads: {source} on {list(shape)}")
    half = layout.sublayout(layout.in_dims, layout.out_names[:-1])
    position = layout.columns_of(REGISTER).index(1)
    columns = half.columns[:position] + half.columns[position + 1:]
    bits = [(name, count - (name == REGISTER)) for name, count in half.in_items()]
    return simplified(LinearLayout.of_columns(bits, half.out_dims, columns))


def infer_cat(source: Distributed, shape: Sequence[int]) -> Blocked:
    """Encoding of ``cat(x, y)``, both of ``shape``, along dimension 0: the default one of the result, with
    its fastest dimension's elements per thread raised to hold all that both operands' threads held."""
    wide = (2 * shape[0], *shape[1:])
    result = default_blocked(wide, source.num_warps)
    held = 2 * elements_per_thread(source, shape)
    size = list(result.size_per_thread)
    size[result.order[0]] *= max(1, held // elements_per_thread(result, wide))
    return Blocked(size, result.threads_per_warp, result.warps_per_cta, result.order)


def _insert(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index:])


def _cta_insert(cta: CTALayout, axis: int) -> CTALayout:
    if cta.is_default:
        return CTALayout.default(len(cta.cta_order) + 1)
    order = (*(d + (d >= axis) for d in cta.cta_order), axis)
    return CTALayout(_insert(cta.ctas_per_cga, axis, 1), _insert(cta.cta_split_num, axis, 1), order)


# -- from a linear layout back to a name ---------------------------------------------------------------


def simplified(layout: LinearLayout) -> Distributed:
    """A :class:`Blocked` encoding that has exactly this linear layout on its own shape, or else
    :class:`Linear`."""
    return as_blocked(layout) or Linear(layout)


@lru_cache(maxsize=1024)
def as_blocked(layout: LinearLayout) -> Blocked | None:
    """The blocked encoding with this linear layout on its own shape, if there is one (single CTA only)."""
    if not layout.is_permutation or layout.in_bits(BLOCK):
        return None
    rank = len(layout.out_dims)
    for order in dict.fromkeys((order_of(layout), _thread_order(layout), row_major(rank))):
        candidate = _blocked_candidate(layout, order)
        if candidate.linear(layout.out_shape) == layout:
            return candidate
    return None


def _thread_order(layout: LinearLayout) -> tuple[int, ...]:
    """The dimensions in the order in which lanes, then warps, then registers count through them."""
    return order_of(layout.transpose_ins((LANE, WARP, REGISTER, BLOCK)))


def _blocked_candidate(layout: LinearLayout, order: tuple[int, ...]) -> Blocked:
    """What the fields would be; the caller checks. Zero bits (copies) count for the dimension before them."""
    rank = len(order)
    counts = {LANE: [1] * rank, WARP: [1] * rank}
    for name, sizes in counts.items():
        d = order[-1] if not any(layout.columns_of(name)) else order[0]
        for column in layout.columns_of(name):
            if column:
                d = next(i for i, v in enumerate(layout.unflatten(column)) if v)
            sizes[d] <<= 1
    size = [1] * rank
    for d in range(rank):
        registers = set(layout.sublayout([REGISTER], [f"dim{d}"]).columns)
        while size[d] in registers:
            size[d] <<= 1
    return Blocked(size, counts[LANE], counts[WARP], order)
