"""With ``num_ctas`` a program is a cluster of CTAs: what each of them computes.

    %i = make_range {start = 0, end = 128} : tensor<128xi32>                   (before; num_ctas = 2)
    %p = addptr %pointers, %i : tensor<128xptr<f32>>
    store %p, %x : (tensor<128xptr<f32>>, tensor<128xf32>)

    %rank = get_cta_rank {parts = 2} : i32                                      (after)
    %start = muli %rank, 64 : i32
    %i = addi (make_range {start = 0, end = 64}), (splat %start) : tensor<64xi32>
    %p = addptr %pointers, %i : tensor<64xptr<f32>>
    store %p, %x : (tensor<64xptr<f32>>, tensor<64xf32>)

Tensors are cut along some of their dimensions, and each CTA holds its part of every tensor that has such a
dimension; what has none is the same in all CTAs. (In the words of the layouts, ``CTASplitNum`` is the number
of parts along a cut dimension and 1 along others.) From here on a function describes one CTA: layouts, shared
memory and barriers are a CTA's own.

DIMENSIONS  Operations tie dimensions of operands and results together (``analysis/cta_dimensions.py``), and
            those that are tied together are cut together. The inner dimension of a product is not cut, nor
            the axis of a flip, nor what is gathered from, nor are those of an operation that this pass does
            not know.
CHOICE      The cluster is given out in factors of 2, each to the dimension that most of what is stored has
            (of what is loaded, where that has none), then to the longest; to one that is reduced or scanned
            only where there is no other. A part of a product keeps 16 rows and columns.
REDUCED     Along the axis of a reduction each CTA combines its part, and then they combine what they have
            (``reduce_ctas``). So do counts of a histogram. Along that of a scan each scans its part, and puts
            in front of it what the CTAs before it have (``scan {ranks}``).
ONCE        What lacks a cut dimension is stored, asserted and printed by the first CTA along it alone; so are
            relaxed atomics whose results nobody needs.
SHARED      Other atomics, and volatile loads, that lack a cut dimension are done by the first CTA, and all
            get its result. All CTAs meet before it does what is to release what they have stored.
MEETINGS    ``tl.debug_barrier`` is a barrier of all CTAs. There is another one where a CTA may read or write
            what another one has written (``analysis/cta_conflicts.py``).
ALONE       Where no dimension can be cut, or something is for a whole program (printing a tensor, assembly
            with effects), the first CTA runs the program and the others have nothing to do: a remark says
            why.
"""

from __future__ import annotations

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Block, Function, Operation, Region, Value
from ptxforge.ir.definition import ADDRESSING, MemoryAccess
from ptxforge.ir.ops.arith import AddI, AndI, CmpI, MulI, OrI
from ptxforge.ir.ops.atomic import AtomicRMW
from ptxforge.ir.ops.control import If, Yield
from ptxforge.ir.ops.debug import Assert, Print
from ptxforge.ir.ops.memory import Barrier, GetCtaRank, Store
from ptxforge.ir.ops.reduce import Reduce, ReduceCtas, Scan
from ptxforge.ir.ops.shape import Histogram, MakeRange, Splat
from ptxforge.passes.analysis.assumptions import weaken_hints
from ptxforge.passes.analysis.cta_conflicts import Meetings, conflicts
from ptxforge.passes.analysis.cta_dimensions import Dimension, Dimensions, tensors
from ptxforge.support.target import Target

_MOST_TWINS = 2000


def plan_ctas(function: Function, target: Target) -> bool:
    """Give the CTAs of a cluster their parts."""
    ctas = function.attributes.get("num_ctas", 1)
    if ctas == 1 or "planned_ctas" in function.attributes:
        return False
    function.attributes["planned_ctas"] = ctas
    reason = _why_alone(function)
    if not reason:
        places = {op: op.pointer for op in function.walk(MemoryAccess)}
        _separate_indices(function)
        dimensions = Dimensions(function, places)
        plan = _Plan(function, dimensions, dimensions.choose(ctas))
        reason = plan.why_not(places)
    if reason:
        text = f"the first of the {ctas} CTAs of a cluster does all the work: {reason}"
        function.remarks.add("one-cta-works", text, function.location)
        _leave_to_the_first(function, ctas)
    else:
        _Cutter(plan).cut()
    return True


def _separate_indices(function: Function) -> None:
    """Indices and constants of its own for every use: rows and columns may be counted alike and yet be cut
    differently. (What stays alike is merged again.)"""
    left, indices = _MOST_TWINS, set()
    for op in function.walk():
        if _is_index(op) and indices.issuperset(v for v in op.operands if isinstance(v.type, T.TensorType)):
            indices.add(op.result)
    for op in reversed(function.walk()):
        if indices.isdisjoint(op.results):
            continue
        for user, index in list(op.result.uses)[1:]:
            if not left:
                return
            left -= 1
            twin = Builder.at(op).create(
                type(op), *op.operands, result_types=[op.result.type], **dict(op.attributes)
            )
            user.set_operand(index, twin.result)


def _is_index(op: Operation) -> bool:
    """Whether it makes a tensor out of ranges and scalars, if its operands are such tensors."""
    if len(op.results) != 1 or not isinstance(op.result.type, T.TensorType) or op.regions:
        return False
    return ADDRESSING in op.traits and op.get_effects().is_pure


# ---- whether ---------------------------------------------------------------------------------------------
def _why_alone(function: Function) -> str:
    """What forbids that CTAs share the program, whatever is cut; empty if nothing does."""
    known: set[Operation] = set(function.walk((MemoryAccess, Barrier, Assert)))
    for op in function.walk(Print):
        if not any(isinstance(value.type, T.TensorType) for value in op.values):
            known.add(op)
    for op in function.walk():
        effects = op.get_effects()
        if op in known:
            continue
        if effects.other or effects.touches("global"):
            return f"'{op.name}' is for a whole program"
    return ""


class _Plan:
    """What becomes of a function's operations with these cuts."""

    def __init__(self, function: Function, dimensions: Dimensions, cuts: dict[Dimension, int]):
        self.function, self.dimensions, self.cuts = function, dimensions, cuts
        axes = [(op, (op.inputs[0], op.axis)) for op in function.walk(Reduce)]
        axes += [(op, (op.x, 0)) for op in function.walk(Histogram)]
        self.reduced = self._of_cut_dimensions(axes)
        """Reductions along a cut dimension, and which it is."""
        self.scanned = self._of_cut_dimensions(
            [(op, (op.inputs[0], op.axis)) for op in function.walk(Scan)]
        )
        """Scans along one."""
        lacking = {op: dimensions.missing(op.pointer, cuts) for op in function.walk(MemoryAccess)}
        self.shared = [op for op, missing in lacking.items() if missing and _is_shared(op)]
        """See SHARED."""
        lacking |= {op: dimensions.missing(op.condition, cuts) for op in function.walk(Assert)}
        lacking |= {op: list(cuts) for op in function.walk(Print)}
        self.lacking = lacking
        """Which cut dimensions operations lack: along these, all CTAs would do the same."""
        self.meetings: Meetings | None = None

    def _of_cut_dimensions(
        self, axes: list[tuple[Operation, Dimension]]
    ) -> list[tuple[Operation, Dimension]]:
        found = [(op, self.dimensions.of(axis)) for op, axis in axes]
        return [(op, name) for op, name in found if name in self.cuts]

    def why_not(self, places: dict[MemoryAccess, Value]) -> str:
        """What forbids these cuts; empty if nothing does. ``places`` has the pointers of all accesses, as the
        program computes them."""
        if not self.cuts:
            return "no dimension of what it stores can be cut"
        for op in self.shared:
            if op.is_used and isinstance(T.element_type(op.result.type), T.PointerType):
                return f"'{op.name}' of a pointer is done once for the whole program"
        after: set[Operation] = {op for op, _ in self.reduced + self.scanned}
        after.update(self.function.walk(Barrier))
        after.update(op for op in self.shared if op.is_used or _has_sem(op, "acquire"))
        before = {op for op in self.shared if _has_sem(op, "release")}
        pairs = conflicts(places, self.dimensions, self.cuts)
        self.meetings = Meetings(self.function, pairs, before, after)
        return ""


def _is_shared(op: MemoryAccess) -> bool:
    """Whether what an access gives, or what others learn by it, is for all CTAs that would do it."""
    effects = op.get_effects()
    return effects.may_wait and not (effects.is_atomic and op.is_silent)


def _has_sem(op: MemoryAccess, half: str) -> bool:
    """Whether an access is an ``acquire``, or a ``release``."""
    return getattr(op, "sem", "relaxed") in (half, "acq_rel")


def _leave_to_the_first(function: Function, ctas: int) -> None:
    """Run the program where the rank is 0."""
    end = function.body.last
    work = [op for op in function.body.operations if op is not end]
    builder = Builder.at(end)
    builder.location = function.location
    rank = builder.value(GetCtaRank, parts=ctas)
    first = builder.value(CmpI, rank, builder.constant(0, T.I32), predicate="eq")
    regions = [Region(Block()), Region(Block())]
    builder.create(If, first, result_types=[], regions=regions)
    for op in work:
        op.remove()
        regions[0].block.append(op)
    for region in regions:
        with builder.inside(region.block):
            builder.create(Yield)


# ---- cutting ---------------------------------------------------------------------------------------------
class _Cutter:
    """Makes every tensor the part of one CTA."""

    def __init__(self, plan: _Plan):
        self.plan, self.dimensions, self.cuts = plan, plan.dimensions, plan.cuts
        builder = Builder.at(plan.function.body.first)
        self.places: dict[Dimension, Value] = {}
        """Per cut dimension: which part is this CTA's."""
        first = 0
        for name, parts in self.cuts.items():
            self.places[name] = builder.value(GetCtaRank, parts=parts, first=first)
            first += parts.bit_length() - 1

    def cut(self) -> None:
        function = self.plan.function
        parts = {value: self._parts(value) for value in tensors(function)}
        ranges = function.walk(MakeRange)
        # Looked up while operands are those whose dimensions are known.
        places = {op: self.places.get(self.dimensions.of((op.result, 0))) for op in ranges}
        for value, cut in parts.items():
            if max(cut) > 1:
                value.type = value.type.with_shape(
                    tuple(extent // part for extent, part in zip(value.type.shape, cut)), None
                )
                weaken_hints(value, cut)
        for op, place in places.items():
            if place is not None:
                self._move_range(op, place)
        for op, name in self.plan.scanned:
            op.attributes["ranks"] = self._ranks([name])
        for op, name in self.plan.reduced:
            self._combine(op, list(op.results), [name], op.regions[0].block if op.regions else None)
        self._meet()
        for op, names in self.plan.lacking.items():
            do_once = _Cutter._share if op in self.plan.shared else _ONCE.get(type(op))
            if names and do_once is not None:
                do_once(self, op, names)

    def _parts(self, value: Value) -> tuple[int, ...]:
        return tuple(self.cuts.get(self.dimensions.of((value, d)), 1) for d in range(value.type.rank))

    def _ranks(self, names: list[Dimension]) -> int:
        """The bits of ranks that count the parts of these dimensions."""
        return sum(self.places[name].defining_op.rank_bits for name in names)

    def _move_range(self, op: MakeRange, place: Value) -> None:
        """The CTA's part of a range."""
        length = op.result.type.shape[0]
        builder = Builder.at(op)
        part = builder.value(MakeRange, type=op.result.type, start=op.start, end=op.start + length)
        offset = builder.value(MulI, place, builder.constant(length, T.I32))
        moved = builder.value(AddI, part, builder.value(Splat, offset, type=op.result.type))
        moved.hint = op.result.hint
        op.result.replace_all_uses_with(moved)
        op.erase()

    def _combine(
        self, op: Operation, values: list[Value], names: list[Dimension], combine: Block | None
    ) -> None:
        """Behind ``op``, let all CTAs along these dimensions combine what they have of its results."""
        region = Region(_addition() if combine is None else combine.clone({}))
        made = Builder.after(op).create(
            ReduceCtas, *values, result_types=[value.type for value in values], regions=[region],
            ranks=self._ranks(names), location=op.location,
        )  # fmt: skip
        for own, result in zip(values, made.results):
            result.hint = own.hint
            own.replace_all_uses_with(result, unless=lambda user: user is made)

    def _meet(self) -> None:
        """See MEETINGS."""
        for op in self.plan.function.walk(Barrier):
            op.attributes["of_cluster"] = True
        for op in self.plan.meetings.added:
            Builder.at(op).create(Barrier, of_cluster=True)

    # -- what is not done by all CTAs ----------------------------------------------------------------------

    def _store_once(self, op: Store | AtomicRMW, names: list[Dimension]) -> None:
        """See ONCE."""
        builder = Builder.at(op)
        only = _like(builder, self._is_first(builder, names), op.pointer)
        mask = only if op.mask is None else builder.value(AndI, op.mask, only)
        op.set_operands((op.pointer, op.value, mask))

    def _assert_once(self, op: Assert, names: list[Dimension]) -> None:
        builder = Builder.at(op)
        others = self._is_first(builder, names, "ne")
        op.set_operands((builder.value(OrI, op.condition, _like(builder, others, op.condition)),))

    def _is_first(self, builder: Builder, names: list[Dimension], predicate: str = "eq") -> Value:
        """Whether this CTA is the first one along these dimensions (``ne``: is not)."""
        zero = builder.constant(0, T.I32)
        parts = [builder.value(CmpI, self.places[name], zero, predicate=predicate) for name in names]
        found = parts[0]
        for part in parts[1:]:
            found = builder.value(AndI if predicate == "eq" else OrI, found, part)
        return found

    def _share(self, op: MemoryAccess, names: list[Dimension]) -> None:
        """See SHARED."""
        if _has_sem(op, "release"):
            Builder.at(op).create(Barrier, of_cluster=True)
        is_used = op.is_used
        found = self._by_the_first(op, names)
        if is_used:
            value = found.result
            first = Block((T.element_type(value.type),) * 2)
            Builder(first).create(Yield, first.arguments[0])
            self._combine(found, [value], names, first)
        elif _has_sem(op, "acquire"):
            Builder.after(found).create(Barrier, of_cluster=True)

    def _by_the_first(self, op: Operation, names: list[Dimension]) -> Operation:
        """An ``if`` that leaves ``op`` to the first CTA along these dimensions. It gives what ``op`` gives;
        elsewhere zero."""
        builder = Builder.at(op)
        first = self._is_first(builder, names)
        used = list(op.results) if op.is_used else []
        regions = [Region(Block()), Region(Block())]
        made = builder.create(If, first, result_types=[value.type for value in used], regions=regions)
        for own, result in zip(used, made.results):
            result.hint = own.hint
            own.replace_all_uses_with(result)
        op.remove()
        regions[0].block.append(op)
        with builder.inside(regions[0].block):
            builder.create(Yield, *used)
        with builder.inside(regions[1].block):
            builder.create(Yield, *[builder.constant(_zero(value.type), value.type) for value in used])
        return made


_ONCE = {
    Store: _Cutter._store_once, AtomicRMW: _Cutter._store_once, Assert: _Cutter._assert_once,
    Print: _Cutter._by_the_first,
}  # fmt: skip
"""See ONCE; what is not here may be done by all."""


def _zero(type: T.Type) -> int | float:
    return 0.0 if T.element_type(type).is_float else 0


def _like(builder: Builder, condition: Value, value: Value) -> Value:
    """A scalar condition for every element of ``value``."""
    if not isinstance(value.type, T.TensorType):
        return condition
    return builder.value(Splat, condition, type=value.type.with_element(T.I1))


def _addition() -> Block:
    """The region of a reduction that adds integers."""
    block = Block((T.I32, T.I32))
    builder = Builder(block)
    builder.create(Yield, builder.value(AddI, *block.arguments))
    return block
