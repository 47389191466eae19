"""What a ``memdesc`` names: which part of a buffer in shared memory, and how threads meet it there."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.definition import SAME_MEMORY
from ptxforge.layouts.banks import SharedAccess, offsets_of, shared_access
from ptxforge.layouts.encodings import DotOperand, Mma
from ptxforge.layouts.linear import REGISTER, LinearLayout
from ptxforge.layouts.mma_atoms import LdMatrix, StMatrix, plan_ldmatrix, plan_stmatrix


class View(NamedTuple):
    """``layout`` maps offsets to the coordinates of a whole buffer; ``origin`` is the offset, in elements, of
    the first element that is seen (XORed: cuts are aligned)."""

    layout: LinearLayout
    origin: int = 0

    def cut(self, offsets: tuple[int, ...]) -> View:
        """The part that begins at ``offsets``."""
        return View(self.layout, self.origin ^ _start_of(self.layout, offsets))

    def transposed(self, order: tuple[int, ...]) -> View:
        """The same with dimensions permuted."""
        moved = self.layout.transpose_outs([f"dim{d}" for d in order])
        return View(moved.rename({f"dim{d}": f"dim{i}" for i, d in enumerate(order)}), self.origin)


@lru_cache(maxsize=2048)
def _start_of(layout: LinearLayout, offsets: tuple[int, ...]) -> int:
    """Where in memory the element at ``offsets`` lies."""
    return layout.left_inverse().apply_flat(**dict(zip(layout.out_names, offsets)))


def view_of(memory: Value) -> View:
    """What a memdesc shows of its buffer (of one of several buffers, if the type numbers them)."""
    op = memory.defining_op
    if op is not None and SAME_MEMORY in op.traits:
        return op.view(view_of(op.operands[0]))
    type: T.MemDescType = memory.type
    return View(type.layout.linear(type.shape[-type.layout.rank :]))


def memory_of(view: Value) -> Operation | None:
    """The operation that makes the memory which views show: an allocation; None if control flow passes it
    on."""
    op = view.defining_op
    while op is not None and SAME_MEMORY in op.traits:
        op = op.operands[0].defining_op
    return op


def access_of(tensor: T.TensorType, view: View, max_vector: int = 1 << 30) -> SharedAccess:
    """How a distributed tensor meets a view. Vectors do not cross the start of a cut."""
    if view.origin:
        max_vector = min(max_vector, view.origin & -view.origin)
    bits = 8 if tensor.element is T.I1 else tensor.element.bits
    return _access_of(tensor.layout.linear(tensor.shape), view.layout, bits, max_vector)


@lru_cache(maxsize=2048)
def _access_of(distributed: LinearLayout, shared: LinearLayout, bits: int, max_vector: int) -> SharedAccess:
    return shared_access(offsets_of(distributed, shared), bits, max_vector)


def plan_of_copy(tensor: T.TensorType, view: View, vector: int) -> SharedAccess:
    """How threads copy a tensor from global memory, where as many registers as ``vector`` says hold
    neighbours: these in their order alone make an instruction, also where others are neighbours in the
    view."""
    return access_of(tensor, view, _width_in_order(tensor.layout.linear(tensor.shape), view.layout, vector))


@lru_cache(maxsize=2048)
def _width_in_order(distributed: LinearLayout, shared: LinearLayout, vector: int) -> int:
    """How many registers of so many, from the first one on, are neighbours in shared memory."""
    width = 1
    for column in offsets_of(distributed, shared).columns_of(REGISTER):
        if width >= vector or column != width:
            break
        width *= 2
    return width


def plan_of_store(tensor: T.TensorType, view: View, part: int) -> StMatrix | SharedAccess:
    """How threads write a tensor, or parts of so many elements of it: accumulators of ``wgmma`` by
    ``stmatrix``, if it can and shared memory takes no more steps."""
    access, layout = access_of(tensor, view), tensor.layout
    if isinstance(layout, Mma) and layout.version[0] == 3 and not view.origin * tensor.element.bits % 128:
        plan = plan_stmatrix(access.layout, tensor.element.bits, part)
        if plan is not None and plan.wavefronts <= access.wavefronts:
            return plan
    return access


def matrices_of(tensor: T.TensorType, view: View) -> LdMatrix | None:
    """How ``ldmatrix`` reads an operand of tensor cores, where it can."""
    layout = tensor.layout
    if not (isinstance(layout, DotOperand) and isinstance(layout.parent, Mma)):
        return None
    if tensor.element is T.I1 or view.origin * tensor.element.bits % 128:
        return None
    registers = layout.linear(tensor.shape)
    return plan_ldmatrix(registers, view.layout, tensor.element.bits, late=_later_along_k(registers, layout))


def _later_along_k(registers: LinearLayout, layout: DotOperand) -> list[int]:
    """The bits of a register's number that lead to another instruction along k:
    it is done after all of this k's."""
    columns = (registers.unflatten(column) for column in registers.columns_of(REGISTER))
    return [bit for bit, at in enumerate(columns) if at[layout.k_dim] >= layout.depth_of_instruction]
