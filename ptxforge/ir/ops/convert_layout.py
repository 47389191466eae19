"""Change of a tensor's layout."""

from __future__ import annotations

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.layouts import conversion
from ptxforge.support import machine
from ptxforge.support.errors import VerificationError


@D.define(
    "convert_layout", shows_operand_types=True, nonnegative_if=D.ALL,
    traits=[D.ANY_LAYOUT, D.KEEPS_PLACES, D.REARRANGING],
)  # fmt: skip
class ConvertLayout(Operation):
    """The same tensor distributed otherwise. How (registers, shuffles, shared memory) follows from the two
    layouts by ``ptxforge.layouts.conversion``; when through shared memory, ``scratch_offset`` says where.
    When it passes in parts, each that many bytes behind the last one, ``scratch_pitch`` says how many;
    without, all use the same place. With ``meets_before`` the threads of each warp meet first: some of them
    may still read what the warp exchanged the last time. ``with_store``: the store that the result is for
    does the conversion, part by part (``interleave_products`` decides).
    ``scratch_limit`` is how many bytes it stays below where its layouts let it pass in parts."""

    x = D.operand(D.TENSOR)
    scratch_offset = D.attribute(int, -1)
    scratch_pitch = D.attribute(int, 0)
    meets_before = D.attribute(bool, False)
    with_store = D.attribute(bool, False)
    scratch_limit = D.attribute(int, machine.CONVERSION_SCRATCH)

    changes_layout = True

    def evaluate(self, x):
        return x

    def axis_info(self, operands, nonnegative):
        return operands[0]

    def check(self):
        source, result = self.x.type, self.result.type
        if source.shape != result.shape or source.element is not result.element:
            raise VerificationError(f"'convert_layout' cannot turn {source} into {result}")
        if (source.layout is None) != (result.layout is None):
            raise VerificationError("'convert_layout' needs two layouts")

    @property
    def plan(self) -> conversion.Plan:
        """How the conversion will be done."""
        type = self.x.type
        return conversion.plan_conversion(
            type.layout, self.result.type.layout, type.shape, type.element.bits, self.scratch_limit
        )

    @property
    def scratch_parts(self):
        plan = self.plan
        return 1 << plan.repetition_bits if isinstance(plan, conversion.SharedMemory) else 1

    @property
    def scratch_is_warp_local(self):
        plan = self.plan
        return isinstance(plan, conversion.SharedMemory) and plan.warp_local

    def scratch_bytes(self, num_warps):
        plan = self.plan
        if not isinstance(plan, conversion.SharedMemory):
            return 0
        return plan.scratch_bytes + self.scratch_pitch * (self.scratch_parts - 1)

    @property
    def element(self) -> T.Type:
        return self.x.type.element


def unconverted(value: Value) -> Value:
    """``value`` in the layout that it had before it was converted, if it was."""
    op = value.defining_op
    return op.x if isinstance(op, ConvertLayout) else value
