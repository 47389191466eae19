"""Tensor descriptors, and the boxes of a tensor that they load and store.

A descriptor stands for a tensor in memory and for the shape of a box of it. ``offsets`` (``i32``, one per
dimension) say where a box begins: anywhere, also outside. Elements outside of the tensor are not touched;
a load gives the padding of the descriptor's type for them.

``lower_descriptors`` makes ordinary pointers and masks of these operations.
"""

from __future__ import annotations

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation, Value
from ptxforge.ir.ops.memory import EVICTION, LOAD_CACHE, STORE_CACHE
from ptxforge.support.errors import VerificationError

REDUCTIONS = ("add", "fadd", "max", "min", "umax", "umin", "and", "or", "xor", "fmax", "fmin")


@D.define("make_descriptor", removed_by="lower_descriptors", shows_operand_types=True)
class MakeDescriptor(Operation):
    """A descriptor of the tensor at ``base``: first its ``sizes`` (``i32``), then its strides (``i64``, in
    elements), one of each per dimension. ``base`` is aligned to 16 bytes, the last stride is the constant 1,
    and the others are multiples of 16 bytes."""

    base = D.operand(D.POINTER)
    numbers = D.operands(D.SCALAR_INT)

    def check(self):
        type = self.result.type
        if not isinstance(type, T.DescriptorType) or self.base.type is not T.PointerType(type.element):
            raise VerificationError(f"'make_descriptor' of {self.base.type} cannot make {type}")
        wanted = [T.I32] * len(type.shape) + [T.I64] * len(type.shape)
        if [value.type for value in self.numbers] != wanted:
            raise VerificationError(
                f"'make_descriptor' of {type} needs as many sizes (i32) and strides (i64)"
            )

    @property
    def sizes(self) -> list[Value]:
        return list(self.numbers[: len(self.numbers) // 2])

    @property
    def strides(self) -> list[Value]:
        return list(self.numbers[len(self.numbers) // 2 :])


def _check_offsets(op: Operation) -> None:
    count = len(op.descriptor.type.shape)
    if [value.type for value in op.offsets] != [T.I32] * count:
        raise VerificationError(f"'{op.name}' through {op.descriptor.type} needs {count} offsets of i32")


def _check_value(op: Operation, shape: tuple[int, ...]) -> None:
    wanted = T.TensorType(shape, op.descriptor.type.element, T.layout_of(op.value.type))
    if op.value.type is not wanted:
        raise VerificationError(f"'{op.name}' of {op.value.type} through {op.descriptor.type}")


@D.define("descriptor_load", effects=D.READS_GLOBAL, removed_by="lower_descriptors", shows_operand_types=True)
class DescriptorLoad(Operation):
    """The box that begins at ``offsets``."""

    descriptor = D.operand(D.DESCRIPTOR)
    offsets = D.operands(D.SCALAR_INT)
    cache = D.attribute(LOAD_CACHE, "")
    eviction = D.attribute(EVICTION, "")

    @classmethod
    def infer(cls, operands, attributes):
        return [operands[0].box]

    def check(self):
        _check_offsets(self)


@D.define(
    "descriptor_store", effects=D.WRITES_GLOBAL, removed_by="lower_descriptors", shows_operand_types=True
)
class DescriptorStore(Operation):
    """Write ``value`` to the box that begins at ``offsets``."""

    descriptor = D.operand(D.DESCRIPTOR)
    value = D.operand(D.TENSOR)
    offsets = D.operands(D.SCALAR_INT)
    cache = D.attribute(STORE_CACHE, "")
    eviction = D.attribute(EVICTION, "")

    infer = D.gives()

    def check(self):
        _check_offsets(self)
        _check_value(self, self.descriptor.type.shape)


@D.define(
    "descriptor_reduce",
    effects=D.READS_WRITES_GLOBAL,
    removed_by="lower_descriptors",
    shows_operand_types=True,
)
class DescriptorReduce(Operation):
    """Replace each element of the box that begins at ``offsets`` by ``kind(old, value)``, atomically and
    without an order. Kinds are those of ``atomic_rmw``."""

    descriptor = D.operand(D.DESCRIPTOR)
    value = D.operand(D.TENSOR)
    offsets = D.operands(D.SCALAR_INT)
    kind = D.attribute(REDUCTIONS)

    infer = D.gives()

    def check(self):
        _check_offsets(self)
        _check_value(self, self.descriptor.type.shape)


def _check_rows(op: Operation) -> None:
    shape = op.descriptor.type.shape
    if len(shape) != 2 or shape[0] != 1:
        raise VerificationError(
            f"'{op.name}' needs a descriptor of boxes of one row, not {op.descriptor.type}"
        )
    if op.rows.type.rank != 1 or op.rows.type.element is not T.I32:
        raise VerificationError(f"'{op.name}' needs a 1-D tensor of i32 as rows, not {op.rows.type}")


@D.define(
    "descriptor_gather", effects=D.READS_GLOBAL, removed_by="lower_descriptors", shows_operand_types=True
)
class DescriptorGather(Operation):
    """The boxes of one row each at ``rows``, all from ``column`` on: a tensor of as many rows."""

    descriptor = D.operand(D.DESCRIPTOR)
    rows = D.operand(D.INT_TENSOR)
    column = D.operand(D.SCALAR_INT)

    @classmethod
    def infer(cls, operands, attributes):
        box, rows = operands[0].box, operands[1]
        return [box.with_shape((rows.shape[0], box.shape[-1]))]

    def check(self):
        _check_rows(self)


@D.define(
    "descriptor_scatter", effects=D.WRITES_GLOBAL, removed_by="lower_descriptors", shows_operand_types=True
)
class DescriptorScatter(Operation):
    """Write the rows of ``value`` to the rows ``rows`` of the tensor, from ``column`` on. Of equal rows any
    one wins."""

    descriptor = D.operand(D.DESCRIPTOR)
    value = D.operand(D.TENSOR)
    rows = D.operand(D.INT_TENSOR)
    column = D.operand(D.SCALAR_INT)

    infer = D.gives()

    def check(self):
        _check_rows(self)
        _check_value(self, (self.rows.type.shape[0], self.descriptor.type.shape[1]))
