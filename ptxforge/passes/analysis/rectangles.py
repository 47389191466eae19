"""Loads that read a rectangle of a tensor: what a tensor map and one instruction of TMA can say.

    load (%a + (128·%pid + i0)·%stride + 64·%k + i1), mask i1 < %K - 64·%k

reads the box [128, 64] at row 128·pid and column 64·k of a tensor at ``%a`` with rows ``%stride`` apart and
``%K`` columns, beyond which the load gives zeros.

Rules
-----
BASE        A pointer parameter of the kernel.
BEGINNING   No coordinate is negative, but where a mask leaves out what is in front of the tensor
            (``beginnings``).
SPLIT       A mask that compares ``%i + i0`` with a size says that the box begins at row ``%i``. What that
            leaves of the address: each term is a product of kernel parameters, of other scalars, and of a
            number. The
            parameters (or the number, where rows are a known distance apart) say along which dimension of the
            tensor the term goes; what remains is a coordinate. Terms that go along neither rows nor columns
            (heads, batches) get dimensions of their own, up to five in all.
DROPPED     So do indices that a mask bounds alike for the whole tile (a box of one matrix of several).
ALIGNED     The pointer, the distances of rows and the first column of a tile are multiples of 16 bytes,
            whatever the scalars are.
BOUNDS      Masks compare an index of a row or column with a bound; the bound, counted from the tensor's
            beginning, must be made of kernel parameters alone: it is the tensor's size there. Without a mask
            there is no size. A lower bound must be the tensor's beginning. What masks leave out is zero.
PADDED      Or NaN, of floats that a tensor map has an element type for (8-bit ones come as bytes).
IN KERNEL   What is loaded through a descriptor may have any scalar as base, size and stride that the loop
            around the load does not compute: the kernel makes the map. Only where threads would copy less
            than 16 bytes at once (the last size is any number): else they are done sooner than a map.
PROMISED    Who makes a descriptor promises that rows begin at multiples of 16 bytes. So the rows of a tile
            are such a multiple apart, and as tiles begin at such a column, the tensor begins at one.
WRAPPED     Rows (or columns) modulo a size, ``i % M``, are those up to ``M`` and then some that nobody wants:
            they are read as zeros, if all that is computed from them ends in stores (or atomics) whose masks
            leave them out. A sum over them, say, would notice.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import REARRANGING
from ptxforge.ir.ops.arith import AndI, CmpI, MaxSI
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.control import Loop
from ptxforge.ir.ops.memory import InBounds, Load, Store
from ptxforge.ir.ops.tensor_store import StoreBox
from ptxforge.ir.rewriter import constant_everywhere
from ptxforge.passes.analysis.beginnings import parameters_to_ask
from ptxforge.passes.analysis.dropped_dimensions import dropped_dimensions
from ptxforge.passes.analysis.linear_forms import (
    Form,
    LinearForms,
    Monomial,
    NotLinear,
    Polynomial,
    Wrap,
    add,
    constant,
    multiply,
    share_of,
)
from ptxforge.passes.analysis.pipelined_loads import is_nan, is_zero
from ptxforge.support.worklist import each_once

UNBOUNDED = 1 << 31
"""A size that no coordinate reaches."""
MOST_DIMENSIONS = 5
ALIGNMENT = 16
"""Bytes."""


@attrs.frozen
class Dimension:
    """One dimension of the tensor. ``stride`` (elements) and ``size`` are polynomials of kernel parameters,
    of which a stride has one term; ``size`` is ``None`` where nothing bounds it. ``tile_dim`` is the
    dimension of the tile that lies along it, ``None`` for a box of one; ``coordinate`` is where the box
    begins."""

    stride: Polynomial
    coordinate: Polynomial
    size: Polynomial | None
    tile_dim: int | None


@attrs.frozen
class Rectangle:
    """What a load reads: what points at the tensor, and its dimensions, columns last. Where not all of this
    is made of parameters, the kernel makes the map itself (``in_kernel``). Outside of the tensor lies
    ``padding``, one of :data:`~ptxforge.support.tensor_map.PADDINGS`. Launches ask whether the parameters
    ``asked`` are not negative."""

    base: Value
    dimensions: tuple[Dimension, ...]
    in_kernel: bool = False
    padding: str = "zero"
    asked: tuple[Value, ...] = ()

    @property
    def scalars(self) -> list[Value]:
        """What the tensor map is made of."""
        sizes = [d.size or {} for d in self.dimensions]
        entries = [*sizes, *(d.stride for d in self.dimensions)]
        return [self.base, *(v for entry in entries for monomial in entry for v in monomial)]


class Rectangles:
    """The rectangles that the loads of a function read."""

    def __init__(self, function: Function):
        self.function = function
        self.forms = self._outside = LinearForms()
        self._inside = LinearForms(lambda pointer: _noted(pointer) % ALIGNMENT == 0)
        self.in_kernel = False  # whether the rectangle in question may be one of those
        self._asked: dict[Value, None] = {}  # what launches are to ask for it

    def of(self, load: Load) -> Rectangle:
        """Raises :class:`NotLinear`, with the reason, where a load reads no rectangle."""
        try:
            return self._of(load)
        except NotLinear:
            if not load.boxed or load.result.type.rank == 1 or _is_wide(load):
                raise
        self.in_kernel, self.forms = True, self._inside
        try:
            return self._of(load)
        finally:
            self.in_kernel, self.forms = False, self._outside

    def _of(self, load: Load) -> Rectangle:
        self._asked.clear()
        padding = self._padding(load)
        form, type = self.forms.of(load.pointer), load.result.type
        base = form.base
        if not (self.in_kernel or self._is_parameter(base)):
            raise NotLinear("the pointer is no parameter of the kernel")
        bounds = [] if load.mask is None else self._conditions(load.mask)
        if any(v.defining_op and v.defining_op.is_counted for monomial in form.start for v in monomial):
            raise NotLinear("the address depends on what a loop before has counted")
        for wrap in form.wraps:
            self._check_wrapped(load, wrap)
        start, dropped = self._dropped(form, bounds)
        dimensions = (*dropped, *self._dimensions(type, form._replace(start=start), bounds))
        if len(dimensions) > MOST_DIMENSIONS:
            raise NotLinear(f"a tensor of {len(dimensions)} dimensions")
        found = Rectangle(base, dimensions, self.in_kernel, padding, tuple(self._asked))
        if self.in_kernel:
            check_place(found, load)
        self._check_alignment(found, T.element_type(type).bytes)
        return found

    def _padding(self, load: Load) -> str:
        """See PADDED. Raises :class:`NotLinear`."""
        if load.other is None or is_zero(load.other):
            return "zero"
        if not is_nan(load.other):
            raise NotLinear("what the mask leaves out is neither zero nor NaN")
        if T.element_type(load.result.type).bits <= 8:
            raise NotLinear("what the mask leaves out is NaN, of floats of 8 bits")
        return "nan"

    def _check_alignment(self, found: Rectangle, size: int) -> None:
        """What tensor maps demand of the base and of strides must hold for all calls that the kernel is
        compiled for. (Of descriptors: see PROMISED. But launches say which parameters are aligned, and check
        nothing for a descriptor that is made in a loop or a branch.)"""
        if _noted(found.base) % ALIGNMENT and not (self.in_kernel and found.base.defining_op):
            raise NotLinear("the pointer is not known to be aligned to 16 bytes")
        for dimension in found.dimensions[:-1]:
            if self.in_kernel and dimension.tile_dim is not None:
                continue
            ((monomial, coefficient),) = dimension.stride.items()
            if coefficient * _divisor(monomial, self.forms) * size % ALIGNMENT:
                raise NotLinear("the distance of rows is not known to be a multiple of 16 bytes")

    # -- dimensions ----------------------------------------------------------------------------------------

    def _dimensions(self, type: T.TensorType, form: Form, bounds: list[Bound]) -> tuple[Dimension, ...]:
        if type.rank not in (1, 2):
            raise NotLinear(f"a tile of {type.rank} dimensions")
        columns = next((d for d, step in enumerate(form.steps) if step == {(): 1}), None)
        if columns is None:
            raise NotLinear("neighbours in the tile are no neighbours in memory")
        if type.rank == 1:
            return self._along_columns(type, form, bounds)
        stride = form.steps[1 - columns]
        if len(stride) != 1 or not (self.in_kernel or all(map(self._is_parameter, next(iter(stride))))):
            raise NotLinear("the distance of rows is no product of kernel parameters")
        by_masks = {dim: self._begun(dim, bounds) for dim in range(2)}
        rest = add(form.start, by_masks[columns], -1)
        groups = self._split(add(rest, multiply(by_masks[1 - columns], stride), -1), stride)
        size = T.element_type(type).bytes
        along_columns = add(groups.pop((), {}), by_masks[columns])
        check_first_column(along_columns, self.forms, size)
        if self.in_kernel and any(v.type is T.I64 for monomial in along_columns for v in monomial):
            raise NotLinear("a tile's first column may need more than 32 bits")
        rows = add(groups.pop(_ROWS, {}), by_masks[1 - columns])
        found = [self._dimension(columns, {(): 1}, along_columns, form, bounds),
                 self._dimension(1 - columns, stride, rows, form, bounds)]  # fmt: skip
        for key, coordinate in groups.items():
            self._check_beginning(coordinate)
            found.append(Dimension({key: 1}, coordinate, None, None))
        return tuple(reversed(found))

    def _dropped(self, form: Form, bounds: list[Bound]) -> tuple[Polynomial, list[Dimension]]:
        """See DROPPED: these dimensions, and what is left of where the tile begins."""
        conditions = [bound.room for bound in bounds if bound.dim is None]
        is_known = self._is_parameter if not self.in_kernel else lambda value: True
        start, dropped = dropped_dimensions(form.start, conditions, is_known)
        return start, [Dimension(d.stride, d.coordinate, self._size(d.size), None) for d in dropped]

    def _along_columns(self, type: T.TensorType, form: Form, bounds: list[Bound]) -> tuple[Dimension, ...]:
        """The dimensions of a vector: columns, and those of heads and batches."""
        begun = self._begun(0, bounds)
        groups = self._split(add(form.start, begun, -1), {})
        start = add(groups.pop((), {}), begun)
        check_first_column(start, self.forms, T.element_type(type).bytes)
        others = [Dimension({key: 1}, coordinate, None, None) for key, coordinate in groups.items()]
        return (*reversed(others), self._dimension(0, {(): 1}, start, form, bounds))

    def _begun(self, tile_dim: int, bounds: list[Bound]) -> Polynomial:
        """Where masks say that the box begins along a dimension: their lower bounds do, and the upper ones as
        far as the tensor's size is something else."""
        here = [bound for bound in bounds if bound.dim == tile_dim]
        starts = [bound.start for bound in here if bound.start is not None]
        if starts or not here:
            return starts[0] if starts else {}
        if self.in_kernel:  # what is taken from a size
            return {m: -c for m, c in here[0].room.items() if c < 0}
        return {m: -c for m, c in here[0].room.items() if not all(map(self._is_parameter, m))}

    def _is_parameter(self, value: Value | None) -> bool:
        return isinstance(value, BlockArgument) and value.block is self.function.body

    def _split(self, start: Polynomial, stride: Polynomial) -> dict[tuple, Polynomial]:
        """See SPLIT: coordinates by what the parameters of their terms are; ``()`` along columns, ``_ROWS``
        along rows, which are ``stride`` apart (nothing, where there are none)."""
        row_key, row_step = next(iter(stride.items()), (None, 1))
        groups: dict[tuple, Polynomial] = {}
        for monomial, coefficient in start.items():
            key = tuple(v for v in monomial if v in (row_key or ()) or self._is_parameter(v))
            rest = tuple(v for v in monomial if v not in key)
            rows = share_of(coefficient, row_step) if key == row_key else None
            if rows is not None and (rows.denominator == 1 or coefficient.denominator > 1):
                key, coefficient = _ROWS, rows
            groups[key] = add(groups.get(key, {}), {rest: coefficient})
        return groups

    def _dimension(
        self, tile_dim: int, stride: Polynomial, coordinate: Polynomial, form: Form, bounds: list[Bound]
    ) -> Dimension:
        """A dimension along which the tile lies."""
        sizes = [add(coordinate, b.room) for b in bounds if b.dim == tile_dim and b.room is not None]
        for wrap in form.wraps:
            if wrap.dim == tile_dim:
                sizes.append(wrap.bound)
                if wrap.start != coordinate:
                    raise NotLinear("rows are reduced modulo a size and moved after that")
        if not any(b.dim == tile_dim and b.start is not None for b in bounds):
            self._check_beginning(coordinate)
        if any(b.dim == tile_dim and b.start not in (None, coordinate) for b in bounds):
            raise NotLinear("a mask's lower bound is not the tensor's beginning")
        if any(size != sizes[0] for size in sizes):
            raise NotLinear("several bounds for one dimension")
        return Dimension(stride, coordinate, self._size(sizes[0]) if sizes else None, tile_dim)

    def _check_beginning(self, coordinate: Polynomial) -> None:
        """See BEGINNING."""
        asked = parameters_to_ask(coordinate, lambda value: self._is_parameter(value) and not self.in_kernel)
        if asked is None:
            raise NotLinear(
                "a tile may begin in front of the tensor's first row or column (tl.assume says of an index "
                "that it is not negative)"
            )
        self._asked |= dict.fromkeys(asked)

    def _size(self, given: Polynomial) -> Polynomial:
        """A size without ``max(…, 0)``: no tensor map has a size below 1, so that such a launch reads by
        pointers. Raises :class:`NotLinear` for what may be none."""
        size = self._unclamped(given)
        is_whole = all(coefficient.denominator == 1 for coefficient in size.values())
        is_launched = is_whole and all(self._is_parameter(v) for monomial in size for v in monomial)
        if not is_whole or not (is_launched or self.in_kernel):
            raise NotLinear("a mask's bound is not the same in the whole tensor")
        if not is_launched and any(v.type is T.I64 for monomial in size for v in monomial):
            raise NotLinear("a mask's bound may need more than 32 bits")
        return size

    def _unclamped(self, size: Polynomial) -> Polynomial:
        total: Polynomial = {}
        for monomial, coefficient in size.items():
            op = monomial[0].defining_op if len(monomial) == 1 else None
            is_clamp = isinstance(op, MaxSI) and is_zero(op.rhs)
            term = self.forms.scalar(op.lhs) if is_clamp else {monomial: 1}
            total = add(total, term, coefficient)
        return total

    # -- masks ---------------------------------------------------------------------------------------------

    def _conditions(self, mask: Value) -> list[Bound]:
        """The bounds that ``mask`` is the conjunction of."""
        op = mask.defining_op
        if constant_everywhere(mask) == 1:
            return []
        if type(op) in _CONDITIONS:
            return _CONDITIONS[type(op)](self, op)
        moves = op is not None and REARRANGING in op.traits
        inner = self._conditions(op.operands[0]) if moves else []
        found = [
            bound if bound.dim is None else attrs.evolve(bound, dim=op.result_dim(0, bound.dim))
            for bound in inner
        ]
        is_moved = all(new.dim is not None or old.dim is None for old, new in zip(inner, found, strict=True))
        if not (moves and is_moved):
            raise NotLinear("the mask is no bound of a row or column")
        return found

    def _both(self, op: AndI) -> list[Bound]:
        return [*self._conditions(op.lhs), *self._conditions(op.rhs)]

    def _in_bounds(self, op: InBounds) -> list[Bound]:
        start, size = (self.forms.scalar(v) for v in op.operands)
        if op.result.type.shape[0] == 1:
            return [Bound(None, add(size, start, -1)), Bound(None, add(start, constant(1)))]
        return [Bound(0, add(size, start, -1), start)]

    def _bound(self, op: CmpI) -> list[Bound]:
        if op.predicate not in _LESS:
            raise NotLinear("the mask is no bound of a row or column")
        first, extra = _LESS[op.predicate]
        small, large = self.forms.of(op.operands[first]), self.forms.of(op.operands[1 - first])
        if not any((*small.steps, *large.steps, *small.wraps, *large.wraps)):
            return [Bound(None, add(add(large.start, small.start, -1), constant(extra)))]
        is_lower = not any(small.steps)
        index, bound = (large, small) if is_lower else (small, large)
        dims = [d for d, step in enumerate(index.steps) if step]
        if len(dims) != 1 or index.steps[dims[0]] != {(): 1} or any(bound.steps) or index.wraps:
            raise NotLinear("the mask is no bound of a row or column")
        if is_lower:
            return [Bound(dims[0], None, add(add(index.start, bound.start, -1), constant(extra - 1)))]
        return [Bound(dims[0], add(add(bound.start, index.start, -1), constant(extra)))]

    # -- rows that wrap ------------------------------------------------------------------------------------

    def _check_wrapped(self, load: Load, wrap: Wrap) -> None:
        """See WRAPPED."""
        work = [(load.result, wrap.dim)]
        for value, dim in each_once(work):
            for user, index in value.uses:
                check = _STORES.get(type(user))
                if check is not None:
                    check(self, user, index, dim, wrap)
                else:
                    work += _followed(user, index, dim)

    def _check_store(self, store: Store | AtomicRMW, index: int, dim: int, wrap: Wrap) -> None:
        if index == 1 and store.mask is not None:
            room = add(wrap.bound, wrap.start, -1)
            if any(bound == Bound(dim, room) for bound in self._conditions(store.mask)):
                return
        raise NotLinear(_STORED_AGAIN)

    def _check_box(self, store: StoreBox, index: int, dim: int, wrap: Wrap) -> None:
        """A box leaves out what lies beyond the tensor's size."""
        sizes, box = store.map.attributes["shape"], store.map.attributes["box"]
        along = [len(box) - 1] if dim else [d for d, side in enumerate(box[:-1]) if side > 1]
        start = self.forms.scalar(store.coordinates[along[0]]) if len(along) == 1 else None
        if start != wrap.start or sizes[along[0]] != entry_of(wrap.bound):
            raise NotLinear(_STORED_AGAIN)


@attrs.frozen
class Bound:
    """Of the index along ``dim`` of a tile: it is below ``room`` and at least ``-start``, where there are
    such. Of all elements alike, where there is no ``dim``: ``room`` is above 0."""

    dim: int | None
    room: Polynomial | None
    start: Polynomial | None = None


def _is_wide(load: Load) -> bool:
    """Whether threads copy the tile in pieces of 16 bytes."""
    return load.vector * T.element_type(load.result.type).bytes >= ALIGNMENT


def check_place(found: Rectangle, load: Load) -> None:
    """Raise :class:`NotLinear` if the loop around ``load`` computes what the tensor map is made of."""
    home, around = place_of(found)[0], load.parent
    while around is not home:
        if around.parent_op is None or isinstance(around.parent_op, Loop):
            return
        around = around.parent_op.parent
    raise NotLinear("its loop computes the pointer, the sizes or the distances of rows")


def place_of(found: Rectangle) -> tuple[Block, Operation | None]:
    """Where everything is there that the tensor map is made of: a block, and the operation in it that comes
    last (``None``: at its beginning)."""
    scalars = found.scalars
    home = max((v.owner_block for v in scalars), key=_depth)
    made = {v.defining_op for v in scalars if v.owner_block is home}
    last = None
    for op in home.operations:
        last = op if op in made else last
    return home, last


def _depth(block: Block) -> int:
    depth = 0
    while block.parent_op is not None:
        block, depth = block.parent_op.parent, depth + 1
    return depth


def check_first_column(column: Polynomial, forms: LinearForms, size: int) -> None:
    """Raise :class:`NotLinear` unless boxes of elements of ``size`` bytes that begin at ``column`` begin at
    multiples of 16 bytes, whatever the scalars are: TMA moves no others (they are an illegal instruction)."""
    if not is_aligned(column, forms, size):
        raise NotLinear("a tile's first column may be at any address")


def is_aligned(elements: Polynomial, forms: LinearForms, size: int) -> bool:
    """Whether so many elements of ``size`` bytes are a multiple of 16 bytes, whatever the scalars are."""
    return not any(c * _divisor(monomial, forms) * size % ALIGNMENT for monomial, c in elements.items())


def entry_of(polynomial: Polynomial | None) -> int | str:
    """A polynomial of kernel parameters as a tensor map's recipe has it."""
    if polynomial is None:
        return UNBOUNDED
    if set(polynomial) <= {()}:
        return polynomial.get((), 0)
    terms = sorted(
        "*".join([*([str(c)] if c != 1 or not monomial else []), *sorted(v.name for v in monomial)])
        for monomial, c in polynomial.items()
    )
    return " + ".join(terms)


_CONDITIONS: dict[type[Operation], Callable[[Rectangles, Operation], list[Bound]]] = {
    AndI: Rectangles._both,
    InBounds: Rectangles._in_bounds,
    CmpI: Rectangles._bound,
}
_STORES: dict[type[Operation], Callable[..., None]] = {
    Store: Rectangles._check_store,
    AtomicRMW: Rectangles._check_store,
    StoreBox: Rectangles._check_box,
}
_STORED_AGAIN = "rows beyond the end are read again, and what becomes of them is stored"
_ROWS = ("rows",)
_LESS = {"slt": (0, 0), "sle": (0, 1), "sgt": (1, 0), "sge": (1, 1)}
"""Predicate: which operand is the smaller one, and 1 if they may be equal."""


def _divisor(monomial: Monomial, forms: LinearForms) -> int:
    """A number that divides a product of scalars."""
    return math.prod(_divides(value, forms) for value in monomial)


def _noted(value: Value) -> int:
    """What the user, or who launches, promises to divide a scalar."""
    if isinstance(value, BlockArgument):
        return value.attributes.get("divisibility", 1) if value.block.parent_op is None else 1
    return value.defining_op.attributes.get("divisibility", (1,))[0]


def _divides(value: Value, forms: LinearForms) -> int:
    if not isinstance(value, BlockArgument):
        return _noted(value)
    loop = value.block.parent_op
    if not value.block.parent_op:
        return value.attributes.get("divisibility", 1)
    if not loop.is_counted or value.index:
        return 1
    terms = [item for bound in (loop.lower, loop.step) for item in forms.scalar(bound).items()]
    numbers = [c * _divisor(monomial, forms) for monomial, c in terms]
    return math.gcd(*map(int, numbers)) or 1 if all(n.denominator == 1 for n in numbers) else 1


def _followed(user: Operation, index: int, dim: int) -> list[tuple[Value, int]]:
    """What is computed from row ``dim`` of operand ``index``, and where that row is in it."""
    there, effects = user.result_dim(index, dim), user.get_effects()
    is_seen = effects.keeps_turn or "global" in effects.writes
    if there is not None and not is_seen:
        return [(result, there) for result in user.results]
    target = user.passes_to(index)
    if target is not None and target.op.is_counted:
        return [(name, dim) for name in target.op.carried_names(target.index)]
    raise NotLinear(f"rows beyond the end are read again, and reach '{user.name}'")
