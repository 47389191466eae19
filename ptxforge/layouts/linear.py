"""Linear layouts: where every element of a tile lives, as a matrix over GF(2).

*What a layout is.* A tile of 128 x 64 values is spread over the registers of the lanes of the warps of a
block. A layout answers "which element does register r of lane l of warp w hold?", or, for shared memory,
"which element lies at offset o?". Write all those numbers in binary. For every layout that GPUs use, each
bit of the answer is the XOR of some bits of the question: the layout is a linear map over the field of two
elements, {0, 1} with XOR as the sum. So it is known completely once we know where each single input bit
goes: the *bases*. The rest follows by XOR.

*A worked table.* A 4 x 4 tile, 2 registers per lane, 4 lanes, 2 warps. Register bit 0 goes to (0, 1), the
lane bits go to (0, 2) and (1, 0), the warp bit goes to (2, 0):

>>> layout = LinearLayout(
...     {"register": [(0, 1)], "lane": [(0, 2), (1, 0)], "warp": [(2, 0)]}, {"dim0": 4, "dim1": 4})
>>> for warp in range(2):
...     for lane in range(4):
...         held = [layout.apply(register=r, lane=lane, warp=warp) for r in range(2)]
...         print(f"warp {warp} lane {lane}:", *held)
warp 0 lane 0: (0, 0) (0, 1)
warp 0 lane 1: (0, 2) (0, 3)
warp 0 lane 2: (1, 0) (1, 1)
warp 0 lane 3: (1, 2) (1, 3)
warp 1 lane 0: (2, 0) (2, 1)
warp 1 lane 1: (2, 2) (2, 3)
warp 1 lane 2: (3, 0) (3, 1)
warp 1 lane 3: (3, 2) (3, 3)

Lane 3 = lane 1 ^ lane 2 holds (0, 2) ^ (1, 0) = (1, 2): the XOR of what its bits hold.

*What follows from that.* Every question that a compiler asks about layouts becomes a question about a
matrix with some fifteen columns:

- the inverse layout (which lane holds element (1, 2)?) is the inverse matrix;
- converting from A to B is the matrix B⁻¹A: where it is the identity nothing moves, where it maps
  registers to registers only, nothing leaves the thread, and so on (`conversion.py`);
- a zero or dependent column is replication: two places hold the same element (`free_variables`);
- a swizzle is a matrix with ones off the diagonal, bank conflicts are the dimension of an
  intersection (`swizzle.py`);
- the address of register r differs from that of register 0 by a constant (L(r, l, w) = L(r, 0, 0) ^
  L(0, l, w)): one address computation per thread, constants for the rest.

*Conventions.* Input and output dimensions have names and an order, their sizes are powers of two. The
first input dimension is the least significant part of a flat input index (register bits, then lane bits,
...); output coordinates are row-major, so the last output dimension is the least significant part of a
flat output index, as in numpy. Distributed layouts map ``register, lane, warp, block`` to ``dim0, dim1,
...``; shared layouts map ``offset, block`` to the same.

After Zhou et al., *Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2*, 2025.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from ptxforge.layouts import f2
from ptxforge.support.errors import IRError

REGISTER, LANE, WARP, BLOCK, OFFSET = "register", "lane", "warp", "block", "offset"

Bases = tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]


class LayoutError(IRError, ValueError):
    """A layout that cannot exist, or an operation that a layout does not admit."""


def dim_names(rank: int) -> tuple[str, ...]:
    """The names of a tensor's dimensions: ``dim0``, ``dim1``, ..."""
    return tuple(f"dim{d}" for d in range(rank))


def log2_exact(size: int, what: str = "size") -> int:
    """log2 of a power of two; raises :class:`LayoutError` for any other number."""
    if size < 1 or size & (size - 1):
        raise LayoutError(f"{what} must be a power of two, got {size}")
    return size.bit_length() - 1


class LinearLayout:
    """A GF(2)-linear map from named input dimensions to named output dimensions.

    Immutable, hashable, compared by structure (bases, names, sizes and their order).

    Args:
        bases: per input dimension, in order, the output coordinates of each of its bits, lowest first.
        out_dims: per output dimension, in order, its size. Every size is a power of two and every
            coordinate is below its dimension's size.

    Raises:
        LayoutError: for sizes that are no powers of two, or coordinates that do not fit.

    >>> LinearLayout({"offset": [(1,), (3,)]}, {"dim0": 4}).apply(offset=3)
    (2,)
    """

    __slots__ = ("in_dims", "out_dims", "columns", "_in_bits", "_hash", "_bases")

    in_dims: tuple[str, ...]
    out_dims: tuple[tuple[str, int], ...]
    columns: tuple[int, ...]  #: flat (row-major) output of every input bit, first input dimension first

    def __init__(
        self,
        bases: Mapping[str, Sequence[Sequence[int]]] | Iterable[tuple[str, Sequence[Sequence[int]]]],
        out_dims: Mapping[str, int] | Iterable[tuple[str, int]],
    ):
        in_items = tuple(bases.items() if isinstance(bases, Mapping) else bases)
        outs = tuple((name, int(size)) for name, size in (
            out_dims.items() if isinstance(out_dims, Mapping) else out_dims))
        bits = [log2_exact(size, f"size of {name}") for name, size in outs]
        columns = []
        for name, vectors in in_items:
            for vector in vectors:
                columns.append(_pack_checked(name, tuple(vector), outs, bits))
        _check_names([name for name, _ in in_items], "input")
        _check_names([name for name, _ in outs], "output")
        names, counts = [n for n, _ in in_items], [len(v) for _, v in in_items]
        self._set(tuple(names), tuple(counts), outs, tuple(columns))

    def _set(self, in_dims, in_bits, out_dims, columns) -> None:
        self.in_dims, self._in_bits, self.out_dims, self.columns = in_dims, in_bits, out_dims, columns
        self._hash = hash((in_dims, in_bits, out_dims, columns))
        self._bases = None

    @classmethod
    def of_columns(
        cls, in_bits: Iterable[tuple[str, int]], out_dims: Iterable[tuple[str, int]], columns: Iterable[int]
    ) -> LinearLayout:
        """The layout with flat output ``columns``; ``in_bits`` says how many belong to each input
        dimension. No checks: for code that computed the columns from layouts that were checked."""
        self = object.__new__(cls)
        in_bits = tuple(in_bits)
        self._set(tuple(n for n, _ in in_bits), tuple(b for _, b in in_bits), tuple(out_dims), tuple(columns))
        return self

    # -- makers ----------------------------------------------------------------------------------------

    @classmethod
    def identity(cls, size: int, in_dim: str, out_dim: str) -> LinearLayout:
        """``in_dim`` of ``size`` to ``out_dim`` of the same size, unchanged."""
        bits = log2_exact(size)
        return cls.of_columns([(in_dim, bits)], [(out_dim, size)], [1 << i for i in range(bits)])

    @classmethod
    def zeros(cls, size: int, in_dim: str, out_dim: str, out_size: int = 1) -> LinearLayout:
        """``in_dim`` of ``size``, every value of which maps to 0: replication."""
        log2_exact(out_size)
        return cls.of_columns([(in_dim, log2_exact(size))], [(out_dim, out_size)], [0] * log2_exact(size))

    @classmethod
    def empty(cls, in_dims: Iterable[str] = (), out_dims: Iterable[str] = ()) -> LinearLayout:
        """All dimensions of size 1: the neutral element of ``*``."""
        return cls.of_columns([(d, 0) for d in in_dims], [(d, 1) for d in out_dims], ())

    # -- shape -----------------------------------------------------------------------------------------

    @property
    def bases(self) -> Bases:
        """Per input dimension the output coordinates of each of its bits."""
        if self._bases is None:
            unpacked = [self.unflatten(c) for c in self.columns]
            self._bases = tuple(
                (name, tuple(unpacked[start:stop])) for name, start, stop in self._spans())
        return self._bases

    @property
    def in_bits_total(self) -> int:
        """Bits of all input dimensions together: the number of columns."""
        return len(self.columns)

    @property
    def out_bits_total(self) -> int:
        """Bits of all output dimensions together: the number of rows."""
        return sum(size.bit_length() - 1 for _, size in self.out_dims)

    @property
    def out_names(self) -> tuple[str, ...]:
        """Names of the output dimensions, the slowest first."""
        return tuple(name for name, _ in self.out_dims)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Sizes of the output dimensions, the slowest first."""
        return tuple(size for _, size in self.out_dims)

    def in_bits(self, name: str) -> int:
        """How many bits input dimension ``name`` has; 0 for one that the layout does not have."""
        return self._in_bits[self.in_dims.index(name)] if name in self.in_dims else 0

    def in_size(self, name: str) -> int:
        """Size of input dimension ``name``; 1 for one that the layout does not have."""
        return 1 << self.in_bits(name)

    def out_size(self, name: str) -> int:
        """Size of output dimension ``name``. Raises :class:`LayoutError` when there is none."""
        for out_name, size in self.out_dims:
            if out_name == name:
                return size
        raise LayoutError(f"no output dimension {name!r} in {self}")

    def in_items(self) -> tuple[tuple[str, int], ...]:
        """Pairs (input dimension, number of bits)."""
        return tuple(zip(self.in_dims, self._in_bits))

    def columns_of(self, name: str) -> tuple[int, ...]:
        """The flat output of each bit of input dimension ``name``; empty when there is no such dimension."""
        for in_name, start, stop in self._spans():
            if in_name == name:
                return self.columns[start:stop]
        return ()

    def _spans(self):
        start = 0
        for name, bits in zip(self.in_dims, self._in_bits):
            yield name, start, start + bits
            start += bits

    # -- evaluation ------------------------------------------------------------------------------------

    def flat_index(self, **ins: int) -> int:
        """The flat input index of the given coordinates; those not given are 0.

        Raises :class:`LayoutError` for an input dimension that the layout does not have.
        """
        index = shift = 0
        for name, bits in zip(self.in_dims, self._in_bits):
            index |= ins.pop(name, 0) << shift
            shift += bits
        if ins:
            raise LayoutError(f"no input dimension {next(iter(ins))!r} in {self}")
        return index

    def apply_flat(self, **ins: int) -> int:
        """The flat (row-major) output of one input."""
        return f2.multiply(self.columns, self.flat_index(**ins))

    def apply(self, **ins: int) -> tuple[int, ...]:
        """The output coordinates of one input; input dimensions not given are 0."""
        return self.unflatten(self.apply_flat(**ins))

    def table(self) -> np.ndarray:
        """The flat output of every input: int64 array of shape (..., lane, register), i.e. the last input
        dimension is the first axis."""
        values = np.zeros(1, np.int64)
        for column in self.columns:
            values = np.concatenate([values, values ^ column])
        return values.reshape(tuple(1 << b for b in reversed(self._in_bits)))

    def unflatten(self, flat: int) -> tuple[int, ...]:
        """Flat row-major output index to coordinates."""
        return tuple(_unpack(flat, self.out_dims))

    def flatten(self, coordinates: Sequence[int]) -> int:
        """Coordinates to flat row-major output index."""
        return _pack(coordinates, self.out_dims)

    # -- algebra ---------------------------------------------------------------------------------------

    def compose(self, outer: LinearLayout) -> LinearLayout:
        """x ↦ outer(self(x)). Output dimensions of ``self`` feed the input dimensions of the same name.

        Raises:
            LayoutError: when a name is missing in ``outer`` or too small there.
        """
        by_bit: list[int] = []
        for name, size in reversed(self.out_dims):
            columns = outer.columns_of(name)
            bits = size.bit_length() - 1
            if len(columns) < bits or name not in outer.in_dims:
                raise LayoutError(f"cannot compose: {name!r} of size {size} does not fit {outer}")
            by_bit.extend(columns[:bits])
        return LinearLayout.of_columns(
            self.in_items(), outer.out_dims, [f2.multiply(by_bit, c) for c in self.columns])

    def invert(self) -> LinearLayout:
        """The inverse of a bijective layout: element coordinates to register, lane, ...

        Raises:
            LayoutError: when the layout is not bijective.
        """
        if not (self.is_injective and self.is_surjective):
            raise LayoutError(f"not invertible: {self}")
        return self.left_inverse()

    def left_inverse(self) -> LinearLayout:
        """A layout M from outputs to inputs with M(self(x)) = x for an injective layout; for a surjective one
        self(M(y)) = y, taking the representative whose free inputs are zero.

        Raises:
            LayoutError: when the layout is neither injective nor surjective.
        """
        span = f2.Span(self.columns)
        bits = self.out_bits_total
        if span.rank == bits:
            solutions = [span.express(1 << i) for i in range(bits)]
        elif span.rank == len(self.columns):
            solutions = _inverse_on_image(self.columns, bits)
        else:
            raise LayoutError(f"neither injective nor surjective: {self}")
        return _of_solutions(self.out_dims, self.in_items(), solutions)

    def __mul__(self, outer: LinearLayout) -> LinearLayout:
        """The product: ``self`` is repeated as ``outer`` says.

        Where both have an input (or output) dimension, the bits of ``outer`` come above those of ``self``.

        >>> (LinearLayout.identity(4, "register", "dim0") * LinearLayout.identity(2, "lane", "dim0")).bases
        (('register', ((1,), (2,))), ('lane', ((4,),)))
        """
        if self._absorbs(outer):
            return self
        names = list(self.out_names) + [n for n in outer.out_names if n not in self.out_names]
        mine, theirs = dict(self.out_dims), dict(outer.out_dims)
        outs = tuple((n, mine.get(n, 1) * theirs.get(n, 1)) for n in names)
        low = _place_columns(self, outs, {})
        high = _place_columns(outer, outs, {n: mine.get(n, 1).bit_length() - 1 for n in names})
        columns: list[int] = []
        in_bits = []
        for name in [*self.in_dims, *(n for n in outer.in_dims if n not in self.in_dims)]:
            part = low.get(name, []) + high.get(name, [])
            in_bits.append((name, len(part)))
            columns += part
        return LinearLayout.of_columns(in_bits, outs, columns)

    def _absorbs(self, outer: LinearLayout) -> bool:
        """Whether a product with ``outer`` changes nothing, not even names: most factors of an encoding."""
        if outer.columns or any(name not in self.in_dims for name in outer.in_dims):
            return False
        names = self.out_names
        return all(size == 1 and name in names for name, size in outer.out_dims)

    # -- views -----------------------------------------------------------------------------------------

    def sublayout(self, ins: Sequence[str], outs: Sequence[str]) -> LinearLayout:
        """The rows and columns of the named dimensions only, in the given order."""
        sizes = dict(self.out_dims)
        new_outs = tuple((n, sizes[n]) for n in outs)
        moved = _moved_bits(self.out_dims, new_outs, {})
        columns = [f2.multiply(moved, column) for name in ins for column in self.columns_of(name)]
        return LinearLayout.of_columns([(n, self.in_bits(n)) for n in ins], new_outs, columns)

    def transpose_outs(self, names: Sequence[str]) -> LinearLayout:
        """The same map with its output dimensions listed in another order.

        Raises :class:`LayoutError` for names that are no permutation.
        """
        if sorted(names) != sorted(self.out_names):
            raise LayoutError(f"{list(names)} is no permutation of {list(self.out_names)}")
        return self.sublayout(self.in_dims, names)

    def transpose_ins(self, names: Sequence[str]) -> LinearLayout:
        """The same map with its input dimensions listed in another order.

        Raises :class:`LayoutError` for names that are no permutation.
        """
        if sorted(names) != sorted(self.in_dims):
            raise LayoutError(f"{list(names)} is no permutation of {list(self.in_dims)}")
        return self.sublayout(names, self.out_names)

    def reshape_outs(self, out_dims: Mapping[str, int] | Iterable[tuple[str, int]]) -> LinearLayout:
        """The same flat row-major outputs under other dimensions of the same total size.

        Raises :class:`LayoutError` for another total size.
        """
        outs = tuple(out_dims.items() if isinstance(out_dims, Mapping) else out_dims)
        if sum(log2_exact(size) for _, size in outs) != self.out_bits_total:
            raise LayoutError(f"cannot reshape {self.out_dims} to {outs}")
        return LinearLayout.of_columns(self.in_items(), outs, self.columns)

    def rename(self, names: Mapping[str, str]) -> LinearLayout:
        """The same map with input and output dimensions renamed; names not mentioned stay."""
        return LinearLayout.of_columns(
            [(names.get(n, n), b) for n, b in self.in_items()],
            [(names.get(n, n), s) for n, s in self.out_dims], self.columns)

    def without_zero_columns(self, in_dim: str) -> LinearLayout:
        """The layout with the bits of ``in_dim`` that change nothing left out."""
        items, columns = [], []
        for name, start, stop in self._spans():
            part = self.columns[start:stop]
            if name == in_dim:
                part = tuple(c for c in part if c)
            items.append((name, len(part)))
            columns += part
        return LinearLayout.of_columns(items, self.out_dims, columns)

    # -- questions -------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """The dimension of the image: log2 of the number of distinct outputs."""
        return _rank(self.columns)

    @property
    def is_injective(self) -> bool:
        """Whether no two inputs share an output (no replication)."""
        return self.rank == len(self.columns)

    @property
    def is_surjective(self) -> bool:
        """Whether every output is reached."""
        return self.rank == self.out_bits_total

    @property
    def is_permutation(self) -> bool:
        """Whether every column is zero or a single bit, and no two nonzero columns are equal: a layout
        without XOR, as all blocked and mma layouts are."""
        nonzero = [c for c in self.columns if c]
        return all(c & (c - 1) == 0 for c in nonzero) and len(set(nonzero)) == len(nonzero)

    def free_variables(self) -> dict[str, int]:
        """Per input dimension the mask of bits whose column depends on earlier ones (zero columns first of
        all): replication. Inputs whose free bits are all zero reach every output exactly once, so they
        are the ones that store to memory or join an atomic.

        >>> LinearLayout({"register": [(1,)], "lane": [(0,), (2,)]}, {"dim0": 4}).free_variables()
        {'register': 0, 'lane': 1}
        """
        span = f2.Span()
        masks = {}
        for name, start, stop in self._spans():
            masks[name] = sum(
                1 << bit for bit, column in enumerate(self.columns[start:stop]) if span.add(column))
        return masks

    def num_consecutive_in_out(self, out_dim: str | None = None) -> int:
        """The largest 2ᵏ such that inputs 0 .. 2ᵏ-1 of the first input dimension (registers, offsets) reach
        consecutive outputs that start at a multiple of 2ᵏ, for any values of the other inputs.

        Counted along ``out_dim``; without it along the flat row-major output, so that whole rows may
        join. This bounds the width of a vector access.

        >>> LinearLayout({"register": [(0, 1), (0, 2)], "lane": [(0, 4)]}, {"dim0": 1, "dim1": 8}
        ...              ).num_consecutive_in_out()
        4
        """
        shift, bits = self._position_of(out_dim)
        first = self.columns[:self._in_bits[0]] if self._in_bits else ()
        count = 0
        while count < min(bits, len(first)) and first[count] == 1 << (shift + count):
            count += 1
        while count and not self._low_bits_free(shift, count):
            count -= 1
        return 1 << count

    def _position_of(self, out_dim: str | None) -> tuple[int, int]:
        """Where the bits of an output dimension stand in a flat output: (shift, number of bits)."""
        if out_dim is None:
            return 0, self.out_bits_total
        shift = 0
        for name, size in reversed(self.out_dims):
            if name == out_dim:
                return shift, size.bit_length() - 1
            shift += size.bit_length() - 1
        raise LayoutError(f"no output dimension {out_dim!r} in {self}")

    def _low_bits_free(self, shift: int, count: int) -> bool:
        """Whether only the first ``count`` columns touch output bits shift .. shift+count."""
        mask = ((1 << count) - 1) << shift
        return not any(c & mask for c in self.columns[count:])

    # -- identity --------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, LinearLayout):
            return NotImplemented
        return (self._hash == other._hash and self.columns == other.columns and self.in_dims == other.in_dims
                and self._in_bits == other._in_bits and self.out_dims == other.out_dims)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self):
        return _rebuild, (self.in_items(), self.out_dims, self.columns)

    def __repr__(self) -> str:
        return f"LinearLayout({dict(self.bases)!r}, {dict(self.out_dims)!r})"

    def __str__(self) -> str:
        """``{register = [[0, 1]], lane = [[0, 2], [1, 0]]} -> dim0 = 4, dim1 = 4``"""
        ins = ", ".join(f"{name} = {[list(v) for v in vectors]}" for name, vectors in self.bases)
        return f"{{{ins}}} -> " + ", ".join(f"{name} = {size}" for name, size in self.out_dims)


@lru_cache(maxsize=4096)
def register_constants(layout: LinearLayout) -> tuple[int, ...]:
    """The flat (row-major) element index of every register of lane 0 of warp 0."""
    values = [0]
    for column in layout.columns_of(REGISTER):
        values += [v ^ column for v in values]
    return tuple(values)


def _rebuild(in_bits, out_dims, columns) -> LinearLayout:
    return LinearLayout.of_columns(in_bits, out_dims, columns)


@lru_cache(maxsize=4096)
def _rank(columns: tuple[int, ...]) -> int:
    return f2.rank(columns)


def _check_names(names: list[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise LayoutError(f"{what} dimension {name!r} appears twice")


def _pack(coordinates: Sequence[int], out_dims) -> int:
    flat = 0
    for value, (_, size) in zip(coordinates, out_dims):
        flat = flat << (size.bit_length() - 1) | value
    return flat


def _pack_checked(in_dim: str, vector: tuple[int, ...], out_dims, bits: Sequence[int]) -> int:
    if len(vector) != len(bits):
        raise LayoutError(f"a basis of {in_dim!r} has {len(vector)} coordinates, expected {len(bits)}")
    for value, (name, size) in zip(vector, out_dims):
        if not 0 <= value < size:
            raise LayoutError(
                f"basis {list(vector)} of {in_dim!r}: {value} does not fit {name!r} of size {size}")
    return _pack(vector, out_dims)


def _unpack(flat, dims) -> list:
    """Row-major flat index (int or array) to coordinates."""
    coordinates = []
    for _, size in reversed(dims):
        coordinates.append(flat & (size - 1))
        flat = flat >> (size.bit_length() - 1)
    return coordinates[::-1]


def _place_columns(layout: LinearLayout, outs, shifts: Mapping[str, int]) -> dict[str, list[int]]:
    """The columns of ``layout`` per input dimension, with each output coordinate shifted left by
    ``shifts`` and packed for the output dimensions ``outs``."""
    moved = _moved_bits(layout.out_dims, outs, shifts)
    return {name: [f2.multiply(moved, column) for column in layout.columns[first:last]]
            for name, first, last in layout._spans()}


def _moved_bits(old, new, shifts: Mapping[str, int]) -> list[int]:
    """For each bit of a flat output of the dimensions ``old``, the bit of a flat output of ``new`` that it
    becomes, shifted inside its dimension by ``shifts``; 0 for dimensions that ``new`` does not have."""
    position = {}
    start = 0
    for name, size in reversed(new):
        position[name] = start + shifts.get(name, 0)
        start += size.bit_length() - 1
    moved: list[int] = []
    for name, size in reversed(old):
        bits = size.bit_length() - 1
        at = position.get(name)
        moved += [0] * bits if at is None else [1 << (at + i) for i in range(bits)]
    return moved


def _inverse_on_image(columns: Sequence[int], bits: int) -> list[int]:
    """The inverse of an injective matrix on its image, zero on a complement made of unit vectors."""
    square = [*columns, *f2.complete(columns, bits)]
    mask = (1 << len(columns)) - 1
    return [x & mask for x in f2.invert(square, bits)]


def _of_solutions(out_dims, in_items, solutions: Sequence[int]) -> LinearLayout:
    """The layout from ``out_dims`` back to ``in_items``; solution i is the flat input of flat output bit
    i."""
    by_name = {}
    start = 0
    for name, size in reversed(out_dims):
        bits = size.bit_length() - 1
        by_name[name] = solutions[start:start + bits]
        start += bits
    ordered = [x for name, _ in out_dims for x in by_name[name]]
    return _layout_of_flat_inputs([(n, s.bit_length() - 1) for n, s in out_dims], in_items, ordered)


def _layout_of_flat_inputs(in_bits, targets, solutions: Sequence[int]) -> LinearLayout:
    """A layout whose outputs are the input dimensions ``targets`` of another one; each solution is a flat
    input index (first dimension least significant), while outputs are packed row-major."""
    outs = tuple((name, 1 << bits) for name, bits in targets)
    columns = []
    for x in solutions:
        flat = 0
        for _, bits in targets:
            flat = flat << bits | (x & ((1 << bits) - 1))
            x >>= bits
        columns.append(flat)
    return LinearLayout.of_columns(in_bits, outs, columns)
