"""Reductions and scans over one axis of one or more tensors.

The region combines two elements: for ``n`` operands it has ``2·n`` scalar arguments (first the left ones,
then the right ones) and yields ``n`` scalars. It must be associative; a reduction may also take elements in
any order (``kind`` names the frequent ones, so that passes and codegen need not look into the region).

    %m = reduce %x {axis = 1} : (tensor<4x8xf32>) -> tensor<4xf32> {
      (%a: f32, %b: f32):
      %c = maxnumf %a, %b : f32
      yield %c
    }
"""

from __future__ import annotations

from math import prod

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.ir.ops.arith import Comparison, Select
from ptxforge.ir.warps import check_ranks
from ptxforge.layouts import encodings, scratch
from ptxforge.layouts.linear import LinearLayout
from ptxforge.support.errors import VerificationError
from ptxforge.support.worklist import each_once


class Associative(Operation):
    """An operation with operands of one shape and layout, and a combining region."""

    inputs = D.operands(D.NUMBER_OR_POINTER)
    combine = D.region()

    def check(self):
        if not self.inputs:
            raise VerificationError(f"'{self.name}' needs an operand")
        first = self.inputs[0].type
        if any(T.like(v.type, T.I1) != T.like(first, T.I1) for v in self.inputs):
            raise VerificationError(f"operands of '{self.name}' must have one shape and layout")
        elements = [T.element_type(v.type) for v in self.inputs]
        if [a.type for a in self.combine.arguments] != elements * 2:
            raise VerificationError(f"'{self.name}' region must take the operands' elements twice")
        if [v.type for v in self.combine.last.operands] != elements:
            raise VerificationError(f"'{self.name}' region must yield the operands' elements")

    @property
    def combined_by(self) -> Operation | None:
        """The region's operation when it is a single one of two arguments, else ``None``."""
        block = self.combine
        first = block.first
        if (
            len(self.inputs) != 1
            or first is None
            or first.next is not block.last
            or not block.last.is_terminator
        ):
            return None
        a, b = block.arguments
        uses_both = len(first.operands) == 2 and set(first.operands) == {a, b} and not first.regions
        return first if uses_both and block.last.operands == first.results else None

    @property
    def leaves_ties(self) -> bool:
        """Whether it takes either of two elements by a comparison of them alone: of equal ones the left one,
        or the right one."""
        taken = [value.defining_op for value in self.combine.terminator.values]
        conditions = [op.condition.defining_op for op in taken if isinstance(op, Select)]
        return any(isinstance(op, Comparison) for op in conditions)

    @property
    def combine_name(self) -> str:
        """The name of what it is :attr:`combined_by` (``addf``), else ``""``."""
        op = self.combined_by
        return "" if op is None else op.name


class Combining(Associative):
    """What reductions and scans share: tensors, and an axis."""

    inputs = D.operands(D.TENSOR)
    axis = D.attribute(int)
    decides: tuple[str, ...] = ()
    """Attributes that decide in which order it combines."""

    def check(self):
        super().check()
        if not 0 <= self.axis < self.inputs[0].type.rank:
            raise VerificationError(f"'{self.name}' along axis {self.axis} of {self.inputs[0].type}")

    def limits(self, known):
        return self.limits_of(0, known)

    def limits_of(self, index, known):
        """Of whatever is combined on the way, too: of what is chosen among elements, and of sums."""
        found, by = known(self.inputs[index]), self.combined_by
        if found is None or self._chooses(index):
            return found
        is_sum = by is not None and [sign for _, sign in by.addends] == [1, 1]
        if not is_sum or T.element_type(by.result.type).is_float or self.attributes.get("ranks"):
            return None
        most = self.inputs[0].type.shape[self.axis]
        return min(found[0], most * found[0]), max(found[1], most * found[1])

    def _chooses(self, index: int) -> bool:
        """Whether result number ``index`` is always an element of its operand."""
        block, count = self.combine, len(self.inputs)
        either = block.arguments[index], block.arguments[index + count]
        work = [block.last.operands[index]]
        for value in each_once(work):
            among = value.defining_op.alternatives if value.defining_op is not None else ()
            if value not in either and not among:
                return False
            work += among
        return True

    @property
    def _distribution(self) -> tuple:
        """Where the elements are, the axis, and how many bits each operand's have."""
        type = self.inputs[0].type
        return type.layout.linear(type.shape), self.axis, [v.type.element.bits for v in self.inputs]

    def order_of_sums(self):
        """Extent and element types, what is combined, which coordinate along the axis each bit of register,
        lane and warp moves, and what was chosen for it."""
        type, axis = self.inputs[0].type, self.axis
        linear = type.layout.linear(type.shape)
        bits = tuple(
            (name, tuple(step for bit in range(count) if (step := _step(linear, name, bit, axis))))
            for name, _ in linear.in_items()
            if (count := linear.in_bits(name))
        )
        chosen = tuple((name, getattr(self, name)) for name in self.decides)
        return self.name, _elements(self), self.combine_name, type.shape[axis], bits, chosen


@D.define("reduce", traits=[D.RELAYOUT, D.ORDERLESS], shows_operand_types=True)
class Reduce(Combining):
    """Combine all elements along ``axis``; the results lack that dimension (1-D operands give scalars).
    Results have the slice layout of the operands'. Across warps it needs ``scratch_offset`` in shared
    memory. In which order elements are combined is not said; with ``contracted_sums`` they are products that
    are added without being rounded, in so many sums side by side. ``by_lanes`` (``choose_sequences``): of the
    partial results of warps each lane takes one, and a second butterfly combines them; else every thread
    reads all it needs, or, ``dealt_out`` (``choose_sequences``; with ``rows_of_warps``), each thread combines
    a share of them for all. In scratch memory the partial results of one warp lie side by side with
    ``rows_of_warps`` (``choose_sequences``), else those of one result by all warps. ``agreed``
    (``choose_sequences``): lanes that a butterfly may leave with different elements, of equal ones say, take
    what the first of them has."""

    contracted_sums = D.attribute(int, 0)
    by_lanes = D.attribute(bool, False)
    dealt_out = D.attribute(bool, False)
    rows_of_warps = D.attribute(bool, False)
    agreed = D.attribute(bool, False)
    scratch_offset = D.attribute(int, -1)
    decides = ("contracted_sums", "by_lanes")

    @classmethod
    def infer(cls, operands, attributes):
        axis = attributes["axis"]
        return [_without_axis(t, axis) for t in operands]

    def operand_layout(self, layout, index):
        return layout.parent if isinstance(layout, encodings.Slice) and layout.dim == self.axis else None

    def result_layout(self, layout, index):
        return encodings.Slice(self.axis, layout) if layout.rank > 1 else None

    def scratch_bytes(self, num_warps):
        return scratch.reduce_scratch_bytes(*self._distribution)

    def result_dim(self, index, dim):
        return None if dim == self.axis else dim - (dim > self.axis)


@D.define("scan", effects=D.SIDE_EFFECT, traits=[D.KEEPS_PLACES], shows_operand_types=True)
class Scan(Combining):
    """Inclusive prefix combination along ``axis``; with ``reverse`` from the end.
    Results are like the operands. So many lane bits as ``lanes_at_once`` says, behind the lowest register
    bits, are scanned at once (``choose_sequences``), all others one by one. ``by_lanes``: of the totals of
    warps each of these lanes takes one, and scans them as well; else every thread reads all and combines them
    one by one. With ``ranks`` the operands go on, along the axis, in the CTAs whose ranks differ in these
    bits alone: as ``reduce_ctas``, they exchange their totals and wait for each other twice."""

    reverse = D.attribute(bool, False)
    ranks = D.attribute(int, 0)
    lanes_at_once = D.attribute(int, 0)
    by_lanes = D.attribute(bool, False)
    scratch_offset = D.attribute(int, -1)
    decides = ("reverse", "ranks", "lanes_at_once", "by_lanes")

    @classmethod
    def infer(cls, operands, attributes):
        return list(operands)

    def check(self):
        super().check()
        if self.ranks:
            check_ranks(self, (self.ranks,), "ranks")

    def get_effects(self):
        return D.SIDE_EFFECT if self.ranks else D.PURE

    def scratch_bytes(self, num_warps):
        own = scratch.scan_scratch_bytes(*self._distribution)
        return own + scratch.totals_bytes(*self._distribution) if self.ranks else own


@D.define("reduce_ctas", effects=D.SIDE_EFFECT, traits=[D.KEEPS_PLACES], shows_operand_types=True)
class ReduceCtas(Associative):
    """Combine what the CTAs have whose ranks differ in the bits ``ranks`` alone, element by element, in the
    order of these: all of them get the same. They exchange it through each other's shared memory, and wait
    for each other twice."""

    ranks = D.attribute(int)
    scratch_offset = D.attribute(int, -1)

    @classmethod
    def infer(cls, operands, attributes):
        return list(operands)

    def check(self):
        super().check()
        check_ranks(self, (self.ranks,), "ranks")

    def scratch_bytes(self, num_warps):
        count = prod(T.shape_of(self.inputs[0].type))
        return scratch.exchange_bytes(count, [T.element_type(v.type).bits for v in self.inputs])

    def order_of_sums(self):
        return self.name, _elements(self), self.combine_name, self.ranks


def _elements(op: Associative) -> tuple[str, ...]:
    return tuple(str(T.element_type(value.type)) for value in op.inputs)


def _step(linear: LinearLayout, name: str, bit: int, axis: int) -> int:
    """How far ``bit`` of an input moves along ``axis``."""
    others = {other: 0 for other, _ in linear.in_items()}
    return linear.apply(**others | {name: 1 << bit})[axis]


def _without_axis(type: T.TensorType, axis: int) -> T.Type:
    shape = type.shape[:axis] + type.shape[axis + 1 :]
    if not shape:
        return type.element
    layout = None if type.layout is None else encodings.Slice(axis, type.layout)
    return T.TensorType(shape, type.element, layout)
