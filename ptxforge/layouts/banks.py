"""Shared memory accesses: how registers group into vectors, and what the banks make of them.

Shared memory has 32 banks of 4 bytes: word w lies in bank w mod 32. One warp-wide access of up to 4 bytes per
lane is served at once; of 8 bytes in two steps of 16 lanes, of 16 bytes in four steps of 8 lanes. In each
step a bank delivers one word (to any number of lanes): lanes that want different words of one bank wait for
each other. The *degree* is how many words the busiest bank must deliver: 1 means no conflict.

(CUDA C++ Programming Guide, "Shared Memory" under compute capabilities 5.x to 9.x; the split of wide accesses
is what the profiler's wavefront counters show.)

With linear layouts no simulation is needed. The words that the lanes of a step reach form a linear subspace W
(shifted by a constant); their banks are W modulo 32, again a subspace. Every bank that is hit at all is hit
by the same number of words, 2 ** (dim W - dim (W mod 32)).

*How a warp that holds fragments of tensor cores stores them*: in vectors, line by line. A lane has two
neighbours of a row of the accumulator, four lanes are eight of them. Where a warp has a longer piece of each
row (``Mma.tiles_per_warp``) it can exchange elements until every lane has a vector and eight lanes a whole
line, without waiting for other warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from attrs import field, frozen

from ptxforge.layouts import f2
from ptxforge.layouts.encodings import WARP_SIZE, Distributed, Linear
from ptxforge.layouts.linear import BLOCK, LANE, OFFSET, REGISTER, WARP, LinearLayout, log2_exact
from ptxforge.support import machine


@lru_cache(maxsize=256)
def lines_in_warp(
    layout: Distributed, shape: Sequence[int], width: int, element_bytes: int
) -> Linear | None:
    """``layout`` on a tensor of ``shape`` after an exchange within each warp: a thread's first registers hold
    ``width`` neighbours along the last dimension, lanes side by side a line of the caches. ``None`` where
    a warp has less than half a line of a row, or copies of elements.

    >>> from ptxforge.layouts.encodings import Mma
    >>> mma = Mma((2, 0), (2, 2), (16, 8), tiles_per_warp=(1, 8))
    >>> [mma.linear((32, 128)).columns_of(name) for name in ("register", "lane")]
    [(1, 1024, 8, 16, 32), (2, 4, 128, 256, 512)]
    >>> found = lines_in_warp(mma, (32, 128), 8, 2).linear((32, 128))
    >>> [found.columns_of(name) for name in ("register", "lane")]
    [(1, 2, 4, 512, 1024), (8, 16, 32, 128, 256)]
    """
    linear = layout.linear(shape)
    held = linear.columns_of(REGISTER) + linear.columns_of(LANE)
    if 0 in held:
        return None
    together = 1
    while together < shape[-1] and together in held and together * element_bytes < machine.LINE_BYTES:
        together *= 2
    together = min(together, WARP_SIZE * width)
    if together * element_bytes < machine.LINE_BYTES // 2 or together <= width:
        return None
    columns = [1 << bit for bit in range(log2_exact(together))]
    vector, line = columns[: log2_exact(width)], columns[log2_exact(width) :]
    rows = sorted(column for column in held if column >= together)
    spare = log2_exact(WARP_SIZE) - len(line)
    bases = {
        REGISTER: vector + rows[spare:],
        LANE: line + rows[:spare],
        WARP: linear.columns_of(WARP),
        BLOCK: linear.columns_of(BLOCK),
    }
    counts = [(name, len(columns)) for name, columns in bases.items()]
    return Linear(LinearLayout.of_columns(counts, linear.out_dims, [c for b in bases.values() for c in b]))


def register_run(layout: Distributed, shape: tuple[int, ...]) -> tuple[int, int]:
    """(dimension, length) of the run of neighbouring elements that a thread's first registers hold, aligned
    to its length; length 1 when there is none."""
    linear = layout.linear(shape)
    columns = linear.columns_of(REGISTER)
    if not columns or not columns[0]:
        return len(shape) - 1, 1
    dim = next(d for d, v in enumerate(linear.unflatten(columns[0])) if v)
    return dim, linear.num_consecutive_in_out(f"dim{dim}")


ROW_BYTES = machine.BANKS * machine.BANK_BYTES  #: what all banks together deliver in one step


def element_bytes(element_bits: int) -> int:
    """Bytes that an element takes in shared memory: i1 takes a whole one."""
    return max(1, element_bits // 8)


def lanes_per_step(vector_bytes: int) -> int:
    """How many lanes are served together when each accesses ``vector_bytes``."""
    return min(32, ROW_BYTES // max(vector_bytes, machine.BANK_BYTES))


def conflict_degree(lane_columns: Sequence[int], vec: int, bytes_per_element: int) -> int:
    """Words per bank in the worst step of one warp-wide access.

    Args:
        lane_columns: offset, in elements, of each lane bit.
        vec: elements per lane.
        bytes_per_element: a power of two.

    >>> conflict_degree([1, 2, 4, 8, 16], 1, 4)       # a row of 32 words
    1
    >>> conflict_degree([32, 64, 128, 256, 512], 1, 4)  # a column of a 32-word wide tile
    32
    """
    shift = bytes_per_element.bit_length() - 1
    vector_bytes = vec * bytes_per_element
    lanes = lanes_per_step(vector_bytes).bit_length() - 1
    within = [1 << i for i in range(vector_bytes.bit_length() - 1)]
    addresses = [column << shift for column in lane_columns[:lanes]] + within
    words = [address // machine.BANK_BYTES for address in addresses]
    return 1 << (f2.rank(words) - f2.rank(word & 31 for word in words))


@frozen
class Access:
    """One vector: the registers, in memory order, and the offset (in elements) of its first element in the
    thread whose lane and warp are 0. In other threads it lies at that offset ^ the thread's own."""

    offset: int
    registers: tuple[int, ...]


@frozen(cache_hash=True)
class SharedAccess:
    """How a distributed tensor is read from, or written to, a place in shared memory.

    ``layout`` maps (register, lane, warp) to the offset in elements. ``accesses`` hold every element of the
    thread once; registers that only repeat an element are left out, ``representative`` maps each register to
    the one that stands for it. ``free_lanes`` and ``free_warps`` are the bits of lane and warp that do not
    change what a thread holds: a store need only be done where they are 0.
    """

    layout: LinearLayout
    vec: int
    bytes_per_element: int
    accesses: tuple[Access, ...]
    representative: tuple[int, ...]
    free_lanes: int
    free_warps: int
    degree: int = field()

    @property
    def thread(self) -> LinearLayout:
        """The thread's own part of the offset: (lane, warp) to offset, in elements."""
        return self.layout.sublayout([LANE, WARP], [OFFSET])

    @property
    def thread_bits(self) -> int:
        """The offset bits that lanes and warps touch. An access's constant may be *added* to the thread's
        offset where it avoids these bits, and must be XORed in where it does not."""
        bits = 0
        for name in (LANE, WARP):
            for column in self.layout.columns_of(name):
                bits |= column
        return bits

    def copies(self) -> dict[int, list[int]]:
        """By representative, all registers that hold the same element."""
        found: dict[int, list[int]] = {}
        for register, source in enumerate(self.representative):
            found.setdefault(source, []).append(register)
        return found

    @property
    def wavefronts(self) -> int:
        """Steps that the shared memory needs for all of a warp's accesses: the cost of this access."""
        steps = max(1, self.vec * self.bytes_per_element // machine.BANK_BYTES)
        return len(self.accesses) * steps * self.degree


@lru_cache(maxsize=4096)
def shared_access(layout: LinearLayout, element_bits: int, max_vec: int = 1 << 30) -> SharedAccess:
    """The widest vectors for ``layout``: (register, lane, warp) to offset, in elements.

    Args:
        layout: its only output dimension is ``offset``.
        element_bits: size of an element.
        max_vec: an upper limit in elements, e.g. from an alignment.
    """
    size = element_bytes(element_bits)
    registers = layout.columns_of(REGISTER)
    vec = _vector_width(layout, min(max_vec, machine.VECTOR_BYTES // size or 1))
    offsets = [0]
    for column in registers:
        offsets += [offset ^ column for offset in offsets]
    first: dict[int, int] = {}
    representative = tuple(first.setdefault(offset, register) for register, offset in enumerate(offsets))
    groups: dict[int, list[int]] = {}
    for offset in first:
        groups.setdefault(offset & -vec, []).append(offset)
    accesses = tuple(
        Access(base, tuple(first[offset] for offset in sorted(group))) for base, group in groups.items())
    free = layout.free_variables()
    degree = conflict_degree(layout.columns_of(LANE), vec, size)
    free_lanes, free_warps = free.get(LANE, 0), free.get(WARP, 0)
    return SharedAccess(layout, vec, size, accesses, representative, free_lanes, free_warps, degree)


def _vector_width(layout: LinearLayout, limit: int) -> int:
    """The most elements that are neighbours in memory, aligned, and held by one thread."""
    span = f2.Span(layout.columns_of(REGISTER))
    threads = layout.columns_of(LANE) + layout.columns_of(WARP)
    vec = 1
    while vec < limit and span.contains(vec) and not any(column & vec for column in threads):
        vec <<= 1
    return vec


def offsets_of(distributed: LinearLayout, shared: LinearLayout) -> LinearLayout:
    """(register, lane, warp) to offset: where in shared memory each register's element lies.

    Both are linear layouts of the same tensor in one CTA; the shared one reaches every element.
    """
    inverse = shared.sublayout([OFFSET], shared.out_names).left_inverse()
    local = distributed.sublayout([REGISTER, LANE, WARP], distributed.out_names)
    return local.compose(inverse)
