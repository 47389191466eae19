"""Creation of tensors and movement of their elements.

In the gpu stage these operations relate the layouts of operand and result: ``infer`` gives the result's from
the operand's, ``operand_layout`` the other way round. The rules are those of seed 002 and stand in
``ptxforge.layouts.encodings``.
"""

from __future__ import annotations

import math

import numpy as np

from ptxforge.ir import definition as D
from ptxforge.ir import facts
from ptxforge.ir import types as T
from ptxforge.ir.core import Operation
from ptxforge.layouts import encodings, parts, scratch
from ptxforge.support.errors import VerificationError


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


@D.define("constant", cost=D.FREE, traits=[D.RELAYOUT, D.ADDRESSING, D.ORDERLESS, D.UNIFORM])
class Constant(Operation):
    """A constant scalar, or a tensor with one value everywhere. ``value`` is an int (two's complement for
    negative ones), float or bool; for an 8-bit or 16-bit float it is already rounded to the type."""

    value = D.attribute((int, float, bool))

    def evaluate(self):
        type = self.result.type
        element = T.element_type(type)
        return np.full(T.shape_of(type), self.value, dtype=element.numpy)[()]

    def axis_info(self, operands, nonnegative):
        return facts.constant_info(int(self.value), T.shape_of(self.result.type))

    def check(self):
        element = T.element_type(self.result.type)
        if not _is_value_of(self.value, element):
            raise VerificationError(f"{self.value!r} is not a constant of {element}")

    def is_nonnegative(self, known):
        return self.value >= 0


def _is_value_of(value: int | float | bool, element: T.Type) -> bool:
    if element is T.I1:
        return isinstance(value, bool)
    if element.is_float:
        return isinstance(value, float)
    return type(value) is int and -(1 << (element.bits - 1)) <= value < 1 << (element.bits - 1)


@D.define(
    "splat", shows_operand_types=True, cost=D.FREE, nonnegative_if=D.ALL,
    traits=[D.REARRANGING, D.RELAYOUT, D.ADDRESSING, D.ORDERLESS, D.UNIFORM],
)  # fmt: skip
class Splat(Operation):
    """A tensor with the scalar ``value`` everywhere."""

    value = D.operand(D.SCALAR)

    def evaluate(self, value):
        return np.full(self.result.type.shape, value)

    def axis_info(self, operands, nonnegative):
        (x,), shape = operands, self.result.type.shape
        return facts.AxisInfo((1,) * len(shape), x.divisibility * len(shape), shape, x.constant)

    def check(self):
        if T.element_type(self.result.type) is not self.value.type:
            raise VerificationError(f"'splat' of {self.value.type} cannot make {self.result.type}")


@D.define("make_range", cost=D.FREE, traits=[D.RELAYOUT, D.ADDRESSING, D.ORDERLESS])
class MakeRange(Operation):
    """The 1-D ``i32`` tensor ``start, start + 1, …, end - 1``."""

    start = D.attribute(int)
    end = D.attribute(int)

    def evaluate(self):
        return np.arange(self.start, self.end, dtype=np.int32)

    def axis_info(self, operands, nonnegative):
        return facts.AxisInfo((self.end - self.start,), (facts.power_of_two_in(self.start),), (1,))

    def check(self):
        if self.result.type.shape != (self.end - self.start,):
            raise VerificationError(
                f"'make_range' of {self.end - self.start} elements has type {self.result.type}"
            )

    def is_nonnegative(self, known):
        return self.start >= 0

    def limits(self, known):
        return self.start, self.end - 1


@D.define("rotated_range", cost=D.FREE, traits=[D.RELAYOUT, D.ADDRESSING])
class RotatedRange(Operation):
    """``make_range`` with every element moved down by ``shift`` places, and the first ones to the end:
    element ``p`` is ``start + (p + shift) mod (end - start)``. ``shift`` (``i32``) is at least 0 and less
    than ``granule``, a power of two: only in the last ``granule`` elements the values jump."""

    shift = D.operand(D.SCALAR)
    start = D.attribute(int)
    end = D.attribute(int)
    granule = D.attribute(int)

    def evaluate(self, shift):
        size = self.end - self.start
        return (self.start + (np.arange(size) + int(shift)) % size).astype(np.int32)

    def axis_info_within_vectors(self, operands, nonnegative):
        return facts.AxisInfo((self.granule,), (1,), (1,))

    def check(self):
        size = self.end - self.start
        if self.result.type.shape != (size,) or not _is_power_of_two(size):
            raise VerificationError(f"'rotated_range' of {size} elements has type {self.result.type}")
        if not _is_power_of_two(self.granule) or self.granule > size:
            raise VerificationError(f"'rotated_range' of {size} elements with a granule of {self.granule}")

    def is_nonnegative(self, known):
        return self.start >= 0


@D.define(
    "expand_dims", shows_operand_types=True, cost=D.FREE, nonnegative_if=D.ALL,
    traits=[D.REARRANGING, D.RELAYOUT, D.ADDRESSING],
)  # fmt: skip
class ExpandDims(Operation):
    """Insert a dimension of size 1 before ``axis``. The operand's layout is the slice of the result's."""

    x = D.operand(D.TENSOR)
    axis = D.attribute(int)

    @classmethod
    def infer(cls, operands, attributes):
        (x,), axis = operands, attributes["axis"]
        shape = x.shape[:axis] + (1,) + x.shape[axis:]
        layout = None if x.layout is None else encodings.infer_expand_dims(x.layout, axis, shape)
        return [x.with_shape(shape, layout)]

    def operand_layout(self, layout, index):
        return encodings.Slice(self.axis, layout)

    def result_layout(self, layout, index):
        # Any other layout than a slice would have a copy of this one as its parent: no gain.
        is_slice = isinstance(layout, encodings.Slice) and layout.dim == self.axis
        return layout.parent if is_slice else None

    def result_dim(self, index, dim):
        return dim + (dim >= self.axis)

    def evaluate(self, x):
        return np.expand_dims(x, self.axis)

    def axis_info(self, operands, nonnegative):
        return facts.expanded(operands[0], self.axis)


@D.define(
    "broadcast", shows_operand_types=True, cost=D.FREE, nonnegative_if=D.ALL,
    traits=[D.REARRANGING, D.RELAYOUT, D.ADDRESSING, D.KEEPS_PLACES],
)  # fmt: skip
class Broadcast(Operation):
    """Repeat dimensions of size 1 up to the result's shape; the layout stays."""

    x = D.operand(D.TENSOR)

    def evaluate(self, x):
        return np.broadcast_to(x, self.result.type.shape)

    def axis_info(self, operands, nonnegative):
        (x,), source, shape = operands, self.x.type.shape, self.result.type.shape
        constancy = [new if old == 1 else c for old, new, c in zip(source, shape, x.constancy)]
        return facts.AxisInfo(x.contiguity, x.divisibility, constancy, x.constant)

    def check(self):
        source, result = self.x.type, self.result.type
        fits = source.rank == result.rank and all(s in (1, r) for s, r in zip(source.shape, result.shape))
        if not fits or source.layout != result.layout or source.element is not result.element:
            raise VerificationError(f"'broadcast' cannot turn {source} into {result}")


@D.define(
    "reshape", shows_operand_types=True, cost=D.FREE, nonnegative_if=D.ALL, traits=[D.REARRANGING, D.RELAYOUT]
)
class Reshape(Operation):
    """The same elements in row-major order under another shape. With ``allow_reorder`` (``tl.view``,
    ``tl.ravel`` with reordering) any order of elements will do."""

    x = D.operand(D.TENSOR)
    allow_reorder = D.attribute(bool, False)

    def operand_layout(self, layout, index):
        return encodings.infer_reshape(layout, self.result.type.shape, self.x.type.shape)

    def result_layout(self, layout, index):
        return encodings.infer_reshape(layout, self.x.type.shape, self.result.type.shape)

    def evaluate(self, x):
        return np.reshape(x, self.result.type.shape)

    def axis_info(self, operands, nonnegative):
        (x,), source, result = operands, self.x.type.shape, self.result.type
        if x.constant is not None:
            return facts.constant_info(x.constant, result.shape)
        is_known = source and not self.allow_reorder
        return facts.reshaped(x, source, result) if is_known else facts.unknown(result)

    def check(self):
        if self.x.type.numel != self.result.type.numel or self.x.type.element is not self.result.type.element:
            raise VerificationError(f"'reshape' cannot turn {self.x.type} into {self.result.type}")


@D.define(
    "trans", shows_operand_types=True, cost=D.FREE, nonnegative_if=D.ALL, traits=[D.REARRANGING, D.RELAYOUT]
)
class Trans(Operation):
    """Permute dimensions: dimension ``i`` of the result is dimension ``order[i]`` of ``x``."""

    is_transpose = True

    x = D.operand(D.TENSOR)
    order = D.attribute(tuple)

    @classmethod
    def infer(cls, operands, attributes):
        (x,), order = operands, attributes["order"]
        layout = None if x.layout is None else encodings.infer_trans(x.layout, order, x.shape)
        return [x.with_shape(tuple(x.shape[d] for d in order), layout)]

    def operand_layout(self, layout, index):
        inverse = tuple(int(i) for i in np.argsort(self.order))
        return encodings.infer_trans(layout, inverse, self.result.type.shape)

    def result_layout(self, layout, index):
        return encodings.infer_trans(layout, self.order, self.x.type.shape)

    def result_dim(self, index, dim):
        return self.order.index(dim)

    def evaluate(self, x):
        return np.transpose(x, self.order)

    def axis_info(self, operands, nonnegative):
        (x,) = operands
        fields = [[field[d] for d in self.order] for field in (x.contiguity, x.divisibility, x.constancy)]
        return facts.AxisInfo(*fields, x.constant)


@D.define("join", shows_operand_types=True, cost=D.FREE, traits=[D.RELAYOUT], nonnegative_if=D.ALL)
class Join(Operation):
    """Two tensors side by side along a new last dimension of size 2."""

    lhs = D.operand(D.TENSOR)
    rhs = D.operand(D.TENSOR)

    @classmethod
    def infer(cls, operands, attributes):
        x = operands[0]
        layout = None if x.layout is None else encodings.infer_join(x.layout, x.shape)
        return [x.with_shape(x.shape + (2,), layout)]

    def operand_layout(self, layout, index):
        shape = self.result.type.shape
        half = encodings.infer_split(layout, shape)
        # A pair must be a thread's neighbours: no layout of the halves gives another order of registers.
        joined = encodings.infer_join(half, self.lhs.type.shape)
        return half if joined.linear(shape) == layout.linear(shape) else None

    def result_layout(self, layout, index):
        return encodings.infer_join(layout, self.lhs.type.shape)

    def evaluate(self, x, y):
        return np.stack([x, y], axis=-1)


@D.define("split", shows_operand_types=True, cost=D.FREE, traits=[D.RELAYOUT])
class Split(Operation):
    """The two halves of a tensor whose last dimension is 2; results ``(x[..., 0], x[..., 1])``."""

    x = D.operand(D.TENSOR)

    @classmethod
    def infer(cls, operands, attributes):
        x = operands[0]
        layout = None if x.layout is None else encodings.infer_split(x.layout, x.shape)
        half = x.with_shape(x.shape[:-1], layout)
        return [half, half]

    def operand_layout(self, layout, index):
        return encodings.infer_join(layout, self.results[0].type.shape)

    def result_layout(self, layout, index):
        return encodings.infer_split(layout, self.x.type.shape)

    def evaluate(self, x):
        return x[..., 0], x[..., 1]


@D.define(
    "extract_slice", shows_operand_types=True, cost=D.FREE, nonnegative_if=D.ALL, traits=[D.REARRANGING]
)
class ExtractSlice(Operation):
    """The part of a tensor that begins at constant ``offsets``, multiples of its size, and has the result's
    shape. Each thread takes what it holds: both layouts give its elements to the same threads."""

    x = D.operand(D.TENSOR)
    offsets = D.attribute(tuple)

    def evaluate(self, x):
        return x[tuple(slice(o, o + n) for o, n in zip(self.offsets, self.result.type.shape, strict=True))]

    def check(self):
        whole, part = self.x.type, self.result.type
        fits = whole.element is part.element and len(self.offsets) == len(whole.shape) == len(part.shape)
        if not fits or any(o % p or o + p > w for o, p, w in zip(self.offsets, part.shape, whole.shape)):
            raise VerificationError(f"'extract_slice' cannot cut {part} from {whole}")
        if whole.layout is not None and self.registers is None:
            raise VerificationError(f"'extract_slice': threads do not hold {part} of {whole}")

    @property
    def registers(self) -> tuple[int, ...] | None:
        """For every register of the result that of ``x``; ``None`` where it is another thread's."""
        whole, part = (type.layout.linear(type.shape) for type in (self.x.type, self.result.type))
        return parts.registers_of_part(whole, part, tuple(self.offsets))


@D.define("cat", shows_operand_types=True)
class Cat(Operation):
    """Two 1-D tensors one after the other; elements may come in any order (``tl.cat(can_reorder=True)``)."""

    lhs = D.operand(D.TENSOR)
    rhs = D.operand(D.TENSOR)

    @classmethod
    def infer(cls, operands, attributes):
        x = operands[0]
        shape = (2 * x.shape[0],) + x.shape[1:]
        layout = None if x.layout is None else encodings.infer_cat(x.layout, x.shape)
        return [x.with_shape(shape, layout)]

    def evaluate(self, x, y):
        return np.concatenate([x, y])


@D.define("gather", traits=[D.PARTIAL, D.RELAYOUT], shows_operand_types=True)
class Gather(Operation):
    """``result[…, i, …] = source[…, index[…, i, …], …]`` along ``axis``. Indices must be inside.
    Lowered through shared memory; ``source`` and ``index`` may have different layouts."""

    source = D.operand(D.TENSOR)
    index = D.operand(D.INT_TENSOR)
    axis = D.attribute(int)
    scratch_offset = D.attribute(int, -1)

    @classmethod
    def infer(cls, operands, attributes):
        source, index = operands
        return [index.with_element(source.element)]

    def operand_layout(self, layout, index):
        return layout if index == 1 else None

    result_layout = operand_layout

    def takes_any_layout(self, index):
        return index == 0

    def scratch_bytes(self, num_warps):
        return scratch.gather_scratch_bytes(self.source.type.shape, self.source.type.element.bits)

    def evaluate(self, source, index):
        return np.take_along_axis(source, index.astype(np.int64), axis=self.axis)


@D.define("flip", traits=[D.RELAYOUT], nonnegative_if=D.ALL)
class Flip(Operation):
    """The elements of ``x`` along ``axis`` in opposite order. Threads of a warp exchange them by shuffles,
    warps through shared memory."""

    x = D.operand(D.TENSOR)
    axis = D.attribute(int)
    scratch_offset = D.attribute(int, -1)

    @classmethod
    def infer(cls, operands, attributes):
        return operands

    def operand_layout(self, layout, index):
        return layout

    result_layout = operand_layout

    def scratch_bytes(self, num_warps):
        type = self.x.type
        return scratch.flip_scratch_bytes(type.layout.linear(type.shape), self.axis, type.element.bits)

    def evaluate(self, x):
        return np.flip(x, self.axis)


@D.define("histogram", shows_operand_types=True)
class Histogram(Operation):
    """Counts of ``x``'s values 0 … bins-1 in an ``i32`` tensor of ``bins`` elements; with ``mask`` only where
    it holds. Values outside are the caller's fault and are not counted. Lowered to shared-memory atomics."""

    x = D.operand(D.INT_TENSOR)
    mask = D.operand(D.BOOL, optional=True)
    scratch_offset = D.attribute(int, -1)

    def scratch_bytes(self, num_warps):
        return scratch.histogram_scratch_bytes(self.result.type.numel)

    def evaluate(self, x, mask=None):
        bins = self.result.type.numel
        values = as_unsigned_index(x)
        keep = values < bins
        if mask is not None:
            keep &= mask
        return np.bincount(values[keep], minlength=bins).astype(np.int32)


def as_unsigned_index(x: np.ndarray) -> np.ndarray:
    """Integers as non-negative 64-bit numbers (negative ones become huge)."""
    unsigned = x.view(np.dtype(f"u{x.dtype.itemsize}")).astype(np.uint64)
    return np.minimum(unsigned, np.uint64(2**63 - 1)).astype(np.int64)


def check_tile_shape(shape: tuple[int, ...]) -> None:
    """Every dimension a power of two, at most 2**20 elements (Triton's limits)."""
    if not all(_is_power_of_two(d) for d in shape) or math.prod(shape) > 1 << 20:
        raise VerificationError(
            f"tile shape {list(shape)}: dimensions must be powers of two, at most 2**20 elements"
        )
