"""Tensor maps that a kernel makes itself, of scalars that its launcher does not know.

    %w = map_workspace                                              once, at the beginning
    %t = local_alloc : memdesc<1xtensormap, …, mutable>

    %m = make_tensor_map %w, %t, %p, %rows, %stride {dtype = "float16", box = (128, 64), …}
    tensor_load %m, …

    release_workspace %w                                            at the end

A map lies in global memory, where TMA reads it: in a place of its block's own. Threads write it in shared
memory and publish it there; every ``make_tensor_map`` has one place, so that no copy that reads the last map
may be under way. The memory is the module's own, in records, one for each block that can run at once; a block
takes a free one, whoever launches the kernel, on whatever stream. ``place_maps`` gives maps their places:

    record:  0 (free) or 1 | zeros | map 0 | map 1 | …            128 bytes each
"""

from __future__ import annotations

from collections.abc import Sequence

from ptxforge.ir import definition as D
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Operation, Value
from ptxforge.layouts import boxes
from ptxforge.support import dtypes
from ptxforge.support.errors import VerificationError
from ptxforge.support.tensor_map import BYTES, PADDINGS, has_nan

_PLACE = D.Constraint("maps in memory", lambda t: isinstance(t, T.MemDescType) and t.element is T.TENSOR_MAP)


@D.define("map_workspace", effects=D.SIDE_EFFECT)
class MapWorkspace(Operation):
    """The address of global memory for the maps that the block makes, which no other block has until
    ``release_workspace``: one of so many ``records`` of ``record_bytes`` each, once maps have their places;
    then each has one of its own in the record, behind the flag."""

    records = D.attribute(int, 0)
    record_bytes = D.attribute(int, 0)

    infer = D.gives(T.I64)

    def check(self):
        users = self.result.users
        if not any(user.name == "release_workspace" for user in users):
            raise VerificationError("nothing gives the memory of 'map_workspace' back")
        if not self.record_bytes:
            return
        free = set(range(BYTES, self.record_bytes, BYTES)) if self.records > 0 else set()
        for place in (user.offset for user in users if user.name == "make_tensor_map"):
            if place not in free:
                raise VerificationError(
                    f"a map at {place} of a record of {self.record_bytes} bytes: places are multiples of "
                    f"{BYTES} in it, each for one map, and the first is the flag's"
                )
            free.remove(place)


@D.define("release_workspace", effects=D.SIDE_EFFECT)
class ReleaseWorkspace(Operation):
    """Other blocks may have the memory. No copy reads a map in it any more."""

    workspace = D.operand(D.SCALAR_INT)

    infer = D.gives()


@D.define("make_tensor_map", effects=D.SIDE_EFFECT)
class MakeTensorMap(Operation):
    """The map of a tensor at ``base``, by way of ``template``, a place in shared memory. The map lies
    ``offset`` bytes behind the beginning of the record.

    ``sizes`` has an entry for each dimension, outermost first: its size in elements, or 0 where an operand
    says it (``i32``; of a tensor with a size below 1 all is padding). The strides follow (``i64``, elements),
    of all but the last dimension. ``dtype``, ``box``, ``swizzle`` and ``padding`` are those of a
    :class:`~ptxforge.support.tensor_map.TensorMapRecipe`. (``map_workspace`` checks the places.)
    """

    workspace = D.operand(D.SCALAR_INT)
    template = D.operand(_PLACE)
    base = D.operand(D.POINTER)
    numbers = D.operands(D.SCALAR_INT)
    sizes = D.attribute(tuple)
    dtype = D.attribute(str)
    box = D.attribute(tuple)
    swizzle = D.attribute(int, 0)
    padding = D.attribute(str, "zero")
    offset = D.attribute(int, -1)

    infer = D.gives(T.TENSOR_MAP)

    @property
    def given_sizes(self) -> list[Value | int]:
        """A number or an operand for each dimension."""
        operands = iter(self.numbers)
        return [size or next(operands) for size in self.sizes]

    @property
    def strides(self) -> list[Value]:
        """Of all dimensions but the last."""
        return list(self.numbers[self.sizes.count(0) :])

    def check(self):
        wanted = [T.I32] * self.sizes.count(0) + [T.I64] * (len(self.sizes) - 1)
        if [value.type for value in self.numbers] != wanted or len(self.box) != len(self.sizes):
            raise VerificationError(f"'make_tensor_map' of sizes {self.sizes} needs {wanted}, and a box")
        dtype = dtypes.BY_NAME[self.dtype]
        if self.padding not in PADDINGS or (self.padding == "nan" and not has_nan(dtype)):
            raise VerificationError(f"no tensor map of {self.dtype} has the padding '{self.padding}'")


def check_boxes(
    op: Operation, map: Value, tile: T.MemDescType, box: Sequence[int], tile_dims: Sequence[int]
) -> None:
    """Raise :class:`VerificationError` unless ``tile`` lies in memory as copies of boxes under the swizzle of
    ``map`` leave it there: see :func:`ptxforge.layouts.boxes.lies_in_boxes`."""
    swizzle, bits = described(map)["swizzle"], tile.element.bits
    if not boxes.lies_in_boxes(tile.layout, tile.shape, bits, box, tile_dims, swizzle):
        raise VerificationError(
            f"'{op.name}': boxes of {list(box)} under a swizzle of {swizzle} bytes do not lie as {tile} says"
        )


def described(map: Value) -> dict:
    """What is said of a tensor map, ``dtype``, ``box`` and ``swizzle`` among it: the attributes of the
    kernel's parameter, or of the operation that makes the map."""
    return map.attributes if isinstance(map, BlockArgument) else map.defining_op.attributes
