"""How both operands of a dot come to ``wgmma``: from shared memory as they were loaded, stored there by the
threads that compute them, or through registers.

See MEMORY, LEFT and STORED of ``warpgroup_dots.py``.
"""

from __future__ import annotations

import math

import attrs

from ptxforge.ir import pressure
from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Value
from ptxforge.ir.definition import ELEMENTWISE
from ptxforge.ir.ops.control import loops_around
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.ops.memory import Load
from ptxforge.ir.ops.shared import LocalAlloc
from ptxforge.layouts import wgmma
from ptxforge.layouts.boxes import CHUNK_BYTES
from ptxforge.layouts.cta import permuted_order
from ptxforge.layouts.encodings import Blocked, Distributed, DotOperand, Mma, default_blocked
from ptxforge.layouts.panels import Panels
from ptxforge.passes.conversions import builder_after, convert_at_definition, converted
from ptxforge.passes.operand_tiles import (
    Tile,
    comes_from_dot,
    in_memory,
    kept_in_memory,
    loaded_tile,
    order_in_memory,
    transposed_in_memory,
)
from ptxforge.passes.split_products import is_zero, narrow_type, parts_of, terms_of
from ptxforge.support import machine
from ptxforge.support.target import Target

FLOATS_8 = (T.F8E4M3, T.F8E5M2)


@attrs.define
class Operand:
    """How an operand comes to the products: as it was ``loaded``, or in memory for another reason; else, and
    all parts but the largest, ``stored``; else through registers."""

    index: int
    loaded: Tile | None = None
    stored: Store | None = None

    @property
    def is_in_memory(self) -> bool:
        return self.loaded is not None or self.stored is not None

    def stored_bytes(self, dot: Dot) -> int:
        """Of all parts that are stored."""
        value, parts = dot.operands[self.index], {pair[self.index] for pair in terms_of(dot)}
        count = len(parts) - (self.loaded is not None)
        return 0 if self.stored is None else count * value.type.numel * narrow_type(dot).bytes

    def place(self, b: Builder, dot: Dot, layout: Mma) -> list[Value]:
        """What the products take of each part, largest first."""
        value = dot.operands[self.index]
        if len(terms_of(dot)) == 1:
            return [self._place_part(b, value, layout, self.loaded)]
        bits = narrow_type(dot).bits
        threads = self.stored.threads if self.stored is not None else DotOperand(0, layout, 32 // bits)
        value = _in_layout(_behind_conversions(value), threads)
        parts = parts_of(builder_after(value), value, dot, as_read=True)
        return [self._place_part(b, part, layout, None if number else self.loaded)
                for number, part in enumerate(parts)]  # fmt: skip

    def _place_part(self, b: Builder, value: Value, layout: Mma, tile: Tile | None) -> Value:
        if tile is not None:
            return tile.allocate()
        if self.stored is not None:
            value = _in_layout(_behind_conversions(value), self.stored.threads)
            return Tile(value, [], self.stored.shared).allocate()
        operand = DotOperand(0, layout, 32 // value.type.element.bits)
        return converted(b, value, operand)


@attrs.frozen
class Store:
    """How threads put what they computed into shared memory: its layout there, and who stores what (``None``:
    those that have it, of what another product gave)."""

    shared: Panels
    threads: Blocked | None


def right_operand(dot: Dot, layout: Mma, num_warps: int, room: int, stores: bool) -> Operand | None:
    """See MEMORY and STORED; ``None`` where neither admits it."""
    is_split = len(terms_of(dot)) > 1
    loaded = None if is_narrowed(dot) else in_memory(dot.b, 0, layout)
    if loaded is not None and not is_split:
        return Operand(1, loaded)
    if loaded is None and not (stores and (is_split or loaded_tile(dot.b) is None)):
        return None
    if not pays(layout, dot.result.type.shape[1]):
        return None
    operand = Operand(1, loaded, _stored(dot, 1, layout, num_warps))
    return operand if operand.stored is not None and operand.stored_bytes(dot) <= room else None


def left_operand(dot: Dot, layout: Mma, num_warps: int, right: Operand, room: int) -> Operand | None:
    """See LEFT, KEPT, TRANSPOSED and STORED."""
    is_split = len(terms_of(dot)) > 1
    loaded = None if is_narrowed(dot) else in_memory(dot.a, 1, layout)
    if not is_split:
        loaded = loaded or kept_in_memory(dot) or transposed_in_memory(dot)
    operand = Operand(0, loaded)
    if loaded is not None and not is_split:
        return operand
    has_slices = is_added_up(dot)
    is_small = not has_slices and (not is_split or fits_registers(dot.a.type, dot, layout))
    gains = machine.STORES_LEFT_OPERANDS and not (is_split and is_small)  # what is split waits anyway
    if has_slices or (right.stored is not None and gains):
        stored = Operand(0, loaded, _stored(dot, 0, layout, num_warps))
        if stored.stored is not None and stored.stored_bytes(dot) + right.stored_bytes(dot) <= room:
            return stored
    return operand if is_small and (may_be_in_registers(dot.a) or loaded is not None) else None


def may_be_in_registers(value: Value) -> bool:
    """See LEFT."""
    return loaded_tile(value) is None or value.type.element.bits == 32


def pays(layout: Mma, columns: int) -> bool:
    """Whether a product with so many columns is worth the store of a right operand; see STORED."""
    least = machine.COLUMNS_WORTH_A_STORE * layout.warps_per_cta[1]
    return machine.STORES_RIGHT_OPERANDS and columns >= least


def fits_registers(left: T.TensorType, dot: Dot, layout: Mma) -> bool:
    """Whether threads can hold all parts of the ``left`` operand of ``dot`` beside its sums, and those of one
    step if they are added up outside of tensor cores."""
    warps = math.prod(layout.warps_per_cta)
    count = len({part for part, _ in terms_of(dot)})
    words = count * left.numel * narrow_type(dot).bytes // (4 * machine.WARP_SIZE * layout.warps_per_cta[0])
    words += (1 + (len(terms_of(dot)) > 1)) * dot.result.type.bytes // (4 * machine.WARP_SIZE * warps)
    return words + machine.REGISTERS_BESIDE_FLIGHTS <= pressure.room(machine.WARP_SIZE * warps)


def is_narrowed(dot: Dot) -> bool:
    """Whether what is multiplied is of another type than what is given."""
    return narrow_type(dot) is not dot.a.type.element


def room_for_stores(function: Function, dot: Dot, target: Target) -> int:
    """Bytes of shared memory beside the stages of all tiles that the innermost loop around ``dot`` loads, and
    beside what others have stored."""
    stored = (op for op in function.walk(LocalAlloc) if loaded_tile(op.value) is None)
    taken = sum(op.result.type.bytes for op in stored)
    for loop in loops_around(dot)[:1]:
        stages = max(1, getattr(loop, "num_stages", -1))
        if getattr(loop, "num_stages", -1) < 0:
            stages = function.attributes.get("num_stages", 3)
        tiles = (op.result.type for op in loop.walk(Load) if isinstance(op.result.type, T.TensorType))
        taken += stages * sum(type.bytes for type in tiles)
    return target.max_shared_bytes - taken


# -- what threads store ----------------------------------------------------------------------------------


def _stored(dot: Dot, index: int, layout: Mma, num_warps: int) -> Store | None:
    """See STORED."""
    value, k_dim = dot.operands[index], 1 - index
    shape, bits = value.type.shape, narrow_type(dot).bits
    in_memory = _order_behind(value)
    order = in_memory if bits == 16 else (k_dim, 1 - k_dim)
    columns = wgmma.ROWS if index == 0 else wgmma.columns_of_instruction(layout)
    shared = wgmma.panels_for_operand(shape, order, bits, k_dim, columns)
    if shared is None:
        return None
    if comes_from_dot(dot, index):
        return Store(shared, None)
    size = [1, 1]
    size[order[0]] = min(8 * CHUNK_BYTES // value.type.element.bits, shape[order[0]])
    return Store(shared, default_blocked(shape, num_warps, size_per_thread=size, order=in_memory))


def _order_behind(value: Value) -> tuple[int, ...]:
    """The dimensions of an operand, fastest first in memory, of the largest tile that it is computed from."""
    found: list[tuple[int, tuple[int, ...]]] = [(0, value.type.layout.order)]
    work = [(value, (0, 1))]
    seen = set()
    while work:
        value, dims = work.pop()
        op = value.defining_op
        if op is None or (value, dims) in seen or len(value.type.shape) != 2:
            continue
        seen.add((value, dims))
        if (tile := loaded_tile(value)) is not None:
            found.append((value.type.bytes, permuted_order(order_in_memory(*tile), dims)))
        elif op.is_transpose:
            work.append((op.x, tuple(op.order[d] for d in dims)))
        elif op.changes_layout or ELEMENTWISE in op.traits:
            work += [(v, dims) for v in op.operands if isinstance(v.type, T.TensorType)]
    return max(found, key=lambda pair: pair[0])[1]


def _in_layout(value: Value, layout: Distributed | None) -> Value:
    """``value`` in ``layout``, converted where it is computed, once for all dots."""
    if layout is None or value.type.layout == layout:
        return value
    there = (user for user in value.users if user.changes_layout and user.result.type.layout == layout)
    op = next(there, None)
    if op is None:
        return convert_at_definition(value, layout)
    if value.defining_op is not None:
        op.move_after(value.defining_op)  # it may stand behind those dots
    return op.result


def _behind_conversions(value: Value) -> Value:
    while value.defining_op is not None and value.defining_op.changes_layout:
        value = value.defining_op.operands[0]
    return value


# -- sums ------------------------------------------------------------------------------------------------


def is_added_up(dot: Dot) -> bool:
    """Whether sums are taken out of the tensor core: see IMPRECISE. (Not the only one.)"""
    k, most = dot.a.type.shape[1], dot.max_num_imprecise_acc
    return dot.a.type.element in FLOATS_8 and 0 < most <= k and not (most == k and is_zero(dot.c))
