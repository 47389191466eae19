"""A pipelined load becomes a copy by TMA: parameters, coordinates, barriers.

    %x = load %p                                     (before: in a pipelined loop, of a rectangle)
    … local_alloc %x …

    %t = barrier_expect %bar_in {bytes = 16384}      (after; stage 0)
    tensor_load %map, %t, %buffer_in, %row, %column
    …
    %w = barrier_wait %bar_out, %phase               (stage 2)
    … memdesc_index %buffers, %out, %w …

The kernel gets a parameter ``%map`` that no caller passes: its attributes tell the launcher how to make it
from the others (``support/tensor_map.py``). One thread asks for a tile with one instruction for each panel,
and no thread computes addresses.

Rules
-----
TILES       that only ``wgmma`` reads, in the order and with the swizzle that it wants; or threads, which make
            its left operand of them, where a swizzle of TMA keeps their reads apart (``ring_layouts.py``).
VECTORS     that are loaded beside such tiles and do not say where others are: a box of one row, without a
            swizzle, which threads read.
BOXES       that are loaded through a descriptor in a loop without products, which stores such boxes itself
            or of whose tile a thread would copy less than
            :data:`~ptxforge.support.machine.THREADS_COPY_BOXES_FROM` bytes at once: rows behind each other,
            without a swizzle, which threads read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, UNORDERED
from ptxforge.ir.ops.arith import AddI, MulI, ShrSI
from ptxforge.ir.ops.cast import ExtSI, TruncI
from ptxforge.ir.ops.control import loops_around
from ptxforge.ir.ops.mbarrier import TensorLoad
from ptxforge.ir.ops.memory import Barrier, Load
from ptxforge.ir.ops.shared import LocalAlloc, MemDescIndex
from ptxforge.ir.ops.tensor_map import MakeTensorMap, MapWorkspace, ReleaseWorkspace
from ptxforge.layouts.boxes import CHUNK_BYTES
from ptxforge.layouts.linear import log2_exact
from ptxforge.layouts.panels import Panels
from ptxforge.layouts.shared import InSharedMemory, Shared
from ptxforge.passes.analysis.linear_forms import NotLinear, Polynomial
from ptxforge.passes.analysis.rectangles import Rectangle, Rectangles, entry_of, place_of
from ptxforge.passes.analysis.roots import root_of
from ptxforge.passes.ring_layouts import is_box_for_threads, layout_of_boxes
from ptxforge.support import dtypes
from ptxforge.support.worklist import each_once

MOST_ROWS = 256
"""Of a box along each dimension."""
BARRIER = Shared(1, 1, 1, (0,))


class TensorLoads:
    """Which loads of a function TMA can do, and how."""

    def __init__(self, function: Function):
        self.function = function
        self.rectangles = Rectangles(function)
        # What each load reads, or why TMA cannot copy it; before any loop changes, on whose values this is
        # built.
        self.found: dict[Load, Rectangle | NotLinear] = {}
        self.made: list[tuple[Rectangle, MakeTensorMap]] = []

    def survey(self, loads: Iterable[Load]) -> None:
        """Decide on ``loads``, tiles before vectors; on none where there may be no tensor maps."""
        if not self.function.attributes.get("tensor_maps"):
            return
        new = [load for load in loads if load not in self.found]
        for load in sorted(new, key=is_vector):
            try:
                self.found[load] = self._rectangle(load)
            except NotLinear as why:
                self.found[load] = why

    def remark(self, loads: Iterable[Load]) -> None:
        """Say why tiles for ``wgmma`` are copied by threads. How wide these would read no longer matters for
        the others."""
        for load in loads:
            why = self.found.get(load)
            if isinstance(why, Rectangle):
                self.function.remarks.withdraw("narrow-access", load.location)
            layouts = [user.result.type.layout for user in load.result.users if ALLOCATES in user.traits]
            if isinstance(why, NotLinear) and any(isinstance(layout, Panels) for layout in layouts):
                text = f"threads copy this tile, not TMA: {why}"
                self.function.remarks.add("not-by-tma", text, load.location)

    def rectangle(self, load: Load) -> Rectangle | None:
        """What ``load`` reads, if TMA can copy it to where its users want it."""
        found = self.found.get(load)
        return found if isinstance(found, Rectangle) else None

    def _rectangle(self, load: Load) -> Rectangle:
        """Raises :class:`NotLinear`."""
        if is_box_for_threads(load):
            return self._box(load)
        if is_vector(load):
            return self._vector(load)
        layout = layout_of_boxes(load)
        if layout is None:
            raise NotLinear("its tile is not only for the tensor cores")
        found = self.rectangles.of(load)
        self._check_writes(load, found)
        type = load.result.type
        if type.shape[layout.order[1]] > MOST_ROWS:
            raise NotLinear(f"a tile of more than {MOST_ROWS} rows")
        if found.dimensions[-1].tile_dim != layout.order[0]:
            raise NotLinear("the tile lies in shared memory in another order")
        if T.element_type(type) is T.I1:
            raise NotLinear("a tile of i1")
        return found

    def _box(self, load: Load) -> Rectangle:
        """See BOXES. Raises :class:`NotLinear`."""
        if self.function.attributes.get("num_ctas", 1) > 1:
            raise NotLinear("several CTAs load parts of the tile")
        type, found = load.result.type, self.rectangles.of(load)
        self._check_writes(load, found)
        if max(type.shape) > MOST_ROWS:
            raise NotLinear("a tile that is longer than a box")
        columns = type.layout.order[0]
        if found.dimensions[-1].tile_dim != columns:
            raise NotLinear("the tile lies in shared memory in another order")
        if type.shape[columns] * type.element.bytes % CHUNK_BYTES:
            raise NotLinear("rows of a tile of less than 16 bytes")
        return found

    def _vector(self, load: Load) -> Rectangle:
        """See VECTORS. Raises :class:`NotLinear`."""
        type = load.result.type
        if not any(isinstance(self.found.get(other), Rectangle) for other in load.parent.of(Load)):
            raise NotLinear("a vector beside no tile that TMA copies")
        if _reaches_a_load(load.result):
            raise NotLinear("a vector that says where others are loaded")
        if type.shape[0] > MOST_ROWS or type.bytes % CHUNK_BYTES:
            raise NotLinear("a vector of no multiple of 16 bytes, or longer than a box")
        if type.element is T.I1 or not isinstance(type.element, T.ScalarType):
            raise NotLinear(f"a vector of {type.element}")
        found = self.rectangles.of(load)
        self._check_writes(load, found)
        return found

    def _check_writes(self, load: Load, found: Rectangle) -> None:
        """TMA reads through another proxy than stores and atomics write, and runs ahead of what waits for
        others: what this kernel writes, or has waited for, is not surely seen."""
        operations = self.function.walk()
        for op in self.function.acting():
            is_write = "global" in op.get_effects().writes
            if is_write and not self._is_elsewhere(op, found.base):
                raise NotLinear("the kernel writes through the same pointer, or one that is loaded")
            may_wait = _may_wait(op, load)
            if not (is_write or may_wait):
                continue
            if operations.index(op) > operations.index(load) and not _share_a_loop(op, load):
                continue
            if may_wait:
                raise NotLinear(f"'{op.name}' before it may say that others have written the tensor")
            if self.function.walk(Barrier):
                raise NotLinear("a barrier may say that the kernel has written the tensor")

    def _is_elsewhere(self, op: Operation, read: Value) -> bool:
        """Whether ``op`` writes to other memory than a pointer leads to."""
        pointer = getattr(op, "pointer", None)
        return pointer is not None and self._are_apart(pointer, read)

    def _are_apart(self, written: Value, read: Value) -> bool:
        """Whether a pointer that is written through leads to other memory than one that is read through.
        Other parameters do; so do two pointers that are loaded, unless a barrier orders what is done."""
        roots = root_of(written), root_of(read)
        if None not in roots:
            return roots[0] is not roots[1]
        if roots != (None, None):
            return roots[0] is not None
        base = self.rectangles.forms.of(written).base
        return base not in (None, read) and not self.function.walk(Barrier)

    def map_of(self, load: Load, rectangle: Rectangle, layout: InSharedMemory, sharers: int) -> Value:
        """The tensor map of what ``load`` reads, of which each of the ``sharers`` copies a box: a parameter
        of the kernel, or one that is made here."""
        type = load.result.type
        is_in_panels = isinstance(layout, Panels)
        span, swizzle = (layout.width, layout.swizzle) if is_in_panels else (type.shape[layout.order[0]], 0)
        box = [1 if d.tile_dim is None else type.shape[d.tile_dim] for d in rectangle.dimensions]
        box[-1] = min(box[-1], span)
        if sharers > 1:
            tile_dims = [d.tile_dim for d in rectangle.dimensions]
            box[tile_dims.index(layout.order[1])] //= sharers
        dtype = dtypes.BY_IR[type.element.name].name
        if rectangle.in_kernel:
            described = {"dtype": dtype, "box": tuple(box), "swizzle": swizzle, "padding": rectangle.padding}
            return self._made_here(rectangle, described)
        attributes = {
            "dtype": dtype, "base": rectangle.base.name,
            "shape": tuple(entry_of(d.size) for d in rectangle.dimensions),
            "strides": tuple(entry_of(d.stride) for d in rectangle.dimensions),
            "box": tuple(box), "swizzle": swizzle,
        } | ({"padding": rectangle.padding} if rectangle.padding != "zero" else {})  # fmt: skip
        return map_parameter(self.function, attributes, [value.name for value in rectangle.asked])

    def _made_here(self, rectangle: Rectangle, attributes: dict) -> Value:
        """The map, made where everything is there that it is made of."""
        for other, op in self.made:
            if _same_tensor(rectangle, other) and attributes.items() <= op.attributes.items():
                return op.result
        workspace, template = self._workspace()
        home, last = place_of(rectangle)
        if last is None and home is self.function.body:  # of parameters alone
            last = workspace.defining_op
        b = Recorder(Builder(home, home.first if last is None else last.next, home.first.location))
        sizes, numbers = [], []
        for size in (d.size for d in rectangle.dimensions):
            number = entry_of(size) if size is None or set(size) <= {()} else 0
            sizes.append(number)
            numbers += [] if number else [b.polynomial(size)]
        numbers += [b.polynomial(d.stride, T.I64) for d in rectangle.dimensions[:-1]]
        op = b.create(
            MakeTensorMap, workspace, template, rectangle.base, *numbers, sizes=tuple(sizes), **attributes
        )
        self.made.append((rectangle, op))
        return op.result

    def _workspace(self) -> tuple[Value, Value]:
        """Global memory for the maps that the kernel makes, and shared memory where it makes them."""
        if self.made:
            return self.made[0][1].workspace, self.made[0][1].template
        body = self.function.body
        b = Builder.at(body.first)
        type = T.MemDescType((1,), T.TENSOR_MAP, BARRIER, mutable=True)
        template = b.create(LocalAlloc, result_types=[type]).result
        workspace = b.create(MapWorkspace).result
        Builder.at(body.terminator).create(ReleaseWorkspace, workspace)
        return workspace, template

    def start(
        self, load: Load, rectangle: Rectangle, layout: InSharedMemory, buffer: Value, phase: Value,
        multicast: int,
    ) -> list[Operation]:  # fmt: skip
        """The operations that start the copy, which completes in ``phase``, before ``load``, in order; CTAs
        whose ranks differ in the bits of ``multicast`` do it together."""
        b = Recorder(Builder.at(load))
        coordinates = [b.polynomial(d.coordinate) for d in rectangle.dimensions]
        tile_dims = tuple(-1 if d.tile_dim is None else d.tile_dim for d in rectangle.dimensions)
        map = self.map_of(load, rectangle, layout, 1 << multicast.bit_count())
        shared = {"multicast": multicast} if multicast else {}
        b.create(TensorLoad, map, phase, buffer, *coordinates, tile_dims=tile_dims, **shared)
        return b.made


def is_vector(load: Load) -> bool:
    """Whether ``load`` has one dimension."""
    return isinstance(load.result.type, T.TensorType) and load.result.type.rank == 1


def _may_wait(op: Operation, load: Load) -> bool:
    """Whether a program may learn by ``op`` what others have done: by the result of an atomic or of a
    volatile load, or by assembly that acts. (Without operands it knows no memory: it may wait for the kernel
    before this one, whose writes TMA sees, if nothing copies ahead of it.)"""
    effects = op.get_effects()
    if not effects.may_wait:
        return False
    if "global" in effects.reads:
        return op.is_used
    return bool(op.operands) or _share_a_loop(op, load)


def _reaches_a_load(value: Value) -> bool:
    """Whether a load of the same iteration needs ``value``."""
    work = [value]
    for here in each_once(work):
        users = [user for user in here.users if UNORDERED not in user.traits]
        if any("global" in user.get_effects().reads for user in users):
            return True
        work += (result for user in users for result in user.results)
    return False


def _same_tensor(one: Rectangle, other: Rectangle) -> bool:
    """Whether two rectangles lie in one tensor."""
    first, second = ([(d.size, d.stride) for d in each.dimensions] for each in (one, other))
    return one.base is other.base and first == second


def _share_a_loop(one: Operation, other: Operation) -> bool:
    return any(loop in loops_around(other) for loop in loops_around(one))


def map_parameter(function: Function, attributes: dict, asked: Iterable[str] = ()) -> BlockArgument:
    """The kernel's parameter with these ``attributes``, which describe a tensor; a new one if it has none.
    Launches take it only where no parameter that is ``asked`` for is negative."""
    found = next((x for x in function.arguments if _describes(x, attributes)), None)
    if found is None:
        found = _new_map(function, attributes)
    names = dict.fromkeys((*found.attributes.get("nonnegative", ()), *asked))
    found.attributes = attributes | ({"nonnegative": tuple(names)} if names else {})
    return found


def _describes(argument: BlockArgument, attributes: dict) -> bool:
    if argument.type is not T.TENSOR_MAP:
        return False
    return {key: x for key, x in argument.attributes.items() if key != "nonnegative"} == attributes


def _new_map(function: Function, attributes: dict) -> BlockArgument:
    taken, name = function.arguments, f"{attributes['base']}_map"
    if any(other.name == name for other in taken):
        name += str(len(taken))
    argument = function.add_parameter(T.TENSOR_MAP, name)
    argument.attributes = attributes
    return argument


class Recorder:
    """A builder that remembers what it made, and writes polynomials as scalars."""

    def __init__(self, builder: Builder):
        self.builder = builder
        self.made: list[Operation] = []

    def create(self, kind: type[Operation], *operands: Value, **attributes) -> Operation:
        op = self.builder.create(kind, *operands, **attributes)
        self.made.append(op)
        return op

    def polynomial(self, p: Polynomial, type: T.ScalarType = T.I32) -> Value:
        parts = math.lcm(*(coefficient.denominator for coefficient in p.values()))
        if parts > 1:  # the sum is a multiple of it
            whole = self.polynomial({monomial: int(c * parts) for monomial, c in p.items()}, type)
            return self.create(ShrSI, whole, self._constant(log2_exact(parts), type)).result
        total = None
        for monomial, coefficient in p.items():
            term = self._product(monomial, coefficient, type)
            total = term if total is None else self.create(AddI, total, term).result
        return self._constant(0, type) if total is None else total

    def _product(self, monomial: tuple[Value, ...], coefficient: int, type: T.ScalarType) -> Value:
        factors = [self._cast(v, type) for v in monomial]
        if coefficient != 1 or not factors:
            factors.append(self._constant(coefficient, type))
        product = factors[0]
        for factor in factors[1:]:
            product = self.create(MulI, product, factor).result
        return product

    def _constant(self, value: int, type: T.ScalarType) -> Value:
        made = self.builder.constant(value, type)
        self.made.append(made.defining_op)
        return made

    def _cast(self, value: Value, type: T.ScalarType) -> Value:
        """A scalar of this type; an index fits in 32 bits."""
        if value.type is type:
            return value
        kind = TruncI if value.type.bits > type.bits else ExtSI
        op = self.builder.create(kind, value, result_types=[type])
        self.made.append(op)
        return op.result


def ring_of_barriers(loop: Operation, count: int) -> Value:
    """Memory for ``count`` mbarriers, before ``loop``."""
    type = T.MemDescType((count, 1), T.MBARRIER, BARRIER, mutable=True)
    return Builder.at(loop).create(LocalAlloc, result_types=[type]).result


def pick(b: Builder, ring: Value, index: Value, *token: Value) -> Operation:
    """One buffer, or one barrier, of a ring; with the ``token`` of a wait, to read what came."""
    return b.create(MemDescIndex, ring, index, *token)
