"""Boxes that are stored by TMA get their place in shared memory, and the waits for their copies.

    for %tile … {                                                      (before)
      store_box %c_map, %c, %x, %row, %column }

    %buffer = local_alloc : memdesc<128x128xf16, …, mutable>           (after)
    %none = no_work {queue = "bulk"}
    %last = for %tile … iter_args(%copied = %none) {
      store_wait %copied {pending = 0, landed = true}
      local_store %x, %buffer
      %copy = tensor_store %c_map, %c, %buffer, %row, %column
      yield %copy }
    store_wait %last {pending = 0}

Rules
-----
PLACE       A buffer for each store, in the panels that TMA and ``stmatrix`` want, allocated where the store
            is, or before the outermost loop or branch around it: copies of one iteration run on into the
            next.
ROOM        Where the buffers of loops and branches do not fit beside all others, or would cost a block on the
            multiprocessor, tiles go in parts, through two buffers (or one) of a panel each. If these do not
            fit, a tile's buffer lives from its store to the end of the copy, which is waited for at once;
            such memory serves others in between.
READ        A buffer is written again only when the last copy has read it: in a loop, the first store of an
            iteration waits for all copies of the last one.
SOON        That wait stands where all threads meet soon after, if they do in the iteration: before a tile
            that is stored for products, or in front of a barrier. So no other barrier is needed for it.
LANDED      Copies are in no order. Where two may write the same element (the next iteration's; others whose
            boxes are not provably apart), the later one is started when the earlier one has landed.
            Reductions of one kind need no order.
END         The kernel ends when all copies have read their buffers.
TOKENS      Loops and branches carry the token of each buffer's last copy to where it is waited for: in the
            next iteration, and in the end.
"""

from __future__ import annotations

import attrs

from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Operation, Value
from ptxforge.ir.definition import ALLOCATES, MEETING, STORES
from ptxforge.ir.ops.arith import AddI
from ptxforge.ir.ops.control import Loop, ancestors, loops_around
from ptxforge.ir.ops.convert_layout import unconverted
from ptxforge.ir.ops.shared import LocalAlloc, LocalStore
from ptxforge.ir.ops.tensor_store import NoWork, StoreBox, StoreWait, TensorStore
from ptxforge.layouts.banks import offsets_of
from ptxforge.layouts.linear import LANE, WARP
from ptxforge.layouts.panels import MAX_ALIGNMENT, Panels
from ptxforge.layouts.shared import Shared
from ptxforge.passes.analysis.linear_forms import LinearForms, add
from ptxforge.passes.analysis.spare_memory import spare_shared_bytes
from ptxforge.support.target import Target


@attrs.define(eq=False)
class _Store:
    """A store, what stands in the function's body around it (``None``: nothing), and its loop."""

    op: StoreBox
    around: Operation | None
    loop: Operation | None
    copied: list[_Carried] = attrs.Factory(list)
    """The tokens of its buffers, where loops and branches carry them."""


@attrs.frozen
class _Carried:
    """A token of the last copy, as ``seen`` by a block; the ``ends`` of this block and those around it, each
    with the place at which it hands it on, and the result that it becomes."""

    seen: Value
    ends: list[tuple[Operation, int, Value]]

    def hand_on(self, token: Value) -> Value:
        """Let ``token`` be that of the last copy at the end of the block; what it is behind everything."""
        for end, place, result in reversed(self.ends):
            end.set_operand(place, token)
            token = result
        return token


def stage_boxes(function: Function, target: Target) -> bool:
    """Replace every ``store_box``."""
    stores = [_found(op) for op in function.walk(StoreBox)]
    if not stores:
        return False
    waits = [_wait_before(store, stores[:i], stores) for i, store in enumerate(stores)]
    places = _places(function, stores, target)
    _carry_tokens(stores, places)
    waited = [_waited_for(store, stores) for store in stores]
    lasting = [token for each in zip(stores, places, waits, waited) for token in _stage(*each)]
    Builder.at(function.body.terminator).create(StoreWait, *lasting)
    return True


def _found(op: StoreBox) -> _Store:
    around, loops = list(ancestors(op)), loops_around(op)
    return _Store(op, around[-1] if around else None, loops[-1] if loops else None)


def _wait_before(store: _Store, earlier: list[_Store], stores: list[_Store]) -> dict | None:
    """The attributes of the wait in front of a store; ``None`` if it needs none."""
    op, forms = store.op, LinearForms()
    again = store.loop is not None
    is_first = again and not any(other.op.parent is op.parent for other in earlier)
    landed = any(_may_meet(op, other.op, forms) for other in earlier if again or other.loop is None)
    if is_first:
        landed |= any(_is_ordered(op, other.op) for other in stores if other.loop is not None)
    return {"landed": landed} if is_first or landed else None


def _is_ordered(one: StoreBox, other: StoreBox) -> bool:
    """Whether the order of two copies matters if they write the same elements of one tensor."""
    return one.pointer is other.pointer and not (one.kind and one.kind == other.kind)


def _may_meet(one: StoreBox, other: StoreBox, forms: LinearForms) -> bool:
    if not _is_ordered(one, other):
        return False
    if one.parent is not other.parent or len(one.coordinates) != len(other.coordinates):
        return True
    box = list(one.map.attributes["box"])
    box[-1] = one.value.type.shape[1]
    for side, first, second in zip(box, one.coordinates, other.coordinates):
        apart = add(forms.scalar(first), forms.scalar(second), -1)
        if set(apart) == {()} and abs(apart[()]) >= side:
            return False
    return True


# -- places ----------------------------------------------------------------------------------------------


@attrs.frozen
class _Place:
    """``count`` buffers of ``type``, allocated before ``anchor``, which live for as long as all copies
    (``lasts``) or only for that of their tile."""

    type: T.MemDescType
    count: int
    anchor: Operation
    lasts: bool = True


def _places(function: Function, stores: list[_Store], target: Target) -> list[_Place]:
    """See PLACE and ROOM."""
    room = spare_shared_bytes(function, target) - MAX_ALIGNMENT * len(stores)
    whole = [_buffer_type(store.op) for store in stores]
    inside = [i for i, store in enumerate(stores) if store.around is not None]
    places = [_Place(type, 1, store.around or store.op) for type, store in zip(whole, stores)]
    for count in (2, 1, 0):
        if sum(places[i].count * places[i].type.bytes for i in inside) <= room:
            break
        for i in inside:
            panel = _panel_type(stores[i].op, whole[i])
            at_once = _Place(whole[i], 1, stores[i].op, lasts=False)
            parts = _Place(panel, min(count, whole[i].numel // panel.numel), stores[i].around)
            places[i] = parts if count else at_once
    return places


def least_bytes(function: Function) -> int:
    """Bytes without which nothing is stored by TMA while a ring of tiles is there: a panel of each tile that
    can go in parts, others whole."""
    return sum(_panel_type(op, _buffer_type(op)).bytes for op in function.walk(StoreBox))


def _buffer_type(op: StoreBox) -> T.MemDescType:
    type, swizzle = op.value.type, op.map.attributes["swizzle"]
    layout = Panels(swizzle, type.element.bits, (1, 0)) if swizzle else Shared(1, 1, 1, (1, 0))
    return T.MemDescType(type.shape, type.element, layout, mutable=True)


def _panel_type(op: StoreBox, whole: T.MemDescType) -> T.MemDescType:
    """A panel of the tile, if each thread's elements lie in the same places of all panels; else all of it."""
    shape = whole.shape[0], op.map.attributes["box"][-1]
    panel = T.MemDescType(shape, whole.element, whole.layout, mutable=True)
    value = unconverted(op.value).type
    offsets = offsets_of(value.layout.linear(value.shape), whole.layout.linear(whole.shape))
    threads = offsets.columns_of(LANE) + offsets.columns_of(WARP)
    return panel if all(column < panel.numel for column in threads) else whole


# -- tokens ----------------------------------------------------------------------------------------------


def _carry_tokens(stores: list[_Store], places: list[_Place]) -> None:
    """See TOKENS."""
    none = None
    for store, place in zip(stores, places):
        if store.around is not None and place.lasts:
            none = none or Builder.at(place.anchor).value(NoWork, queue=STORES)
            store.copied = [_carry(store.op, none) for _ in range(place.count)]


def _carry(op: StoreBox, token: Value) -> _Carried:
    """Carry ``token``, from outside of everything, through all loops and branches around ``op``."""
    ends = []
    for nested in reversed([op, *ancestors(op)][:-1]):
        around, block = nested.parent_op, nested.parent
        if isinstance(around, Loop):
            around.add_carried(token, "copied")
            token = block.arguments[-1]
        else:
            for end in (region.block.last for region in around.regions):
                end.set_operands((*end.operands, token))
            around.add_result(token.type)
        ends.append((block.last, len(block.last.operands) - 1, around.results[-1]))
    return _Carried(token, ends)


def _waited_for(store: _Store, stores: list[_Store]) -> list[Value]:
    """The tokens that a wait in front of ``store`` names: the first one of a block waits for all of it."""
    together = [other for other in stores if other.op.parent is store.op.parent]
    named = together if store is together[0] else [store]
    return [carried.seen for other in named for carried in other.copied]


# -- rewriting -------------------------------------------------------------------------------------------


def _place_of_wait(op: StoreBox) -> Operation:
    """See SOON."""
    here = op.previous
    while here is not None and not here.regions and here.effects.starts != STORES:
        if MEETING in here.traits or (ALLOCATES in here.traits and here.operands):
            return here
        here = here.previous
    return op


def _stage(store: _Store, place: _Place, wait: dict | None, waited: list[Value]) -> list[Value]:
    """Replace one store; gives the tokens of its copies that are to be waited for in the end. The wait in
    front of it names those ``waited`` for."""
    op, value, stored = store.op, unconverted(store.op.value), store.op.value
    outside, b = Builder.at(place.anchor), Builder.at(op)
    buffers = [outside.create(LocalAlloc, result_types=[place.type]).result for _ in range(place.count)]
    if wait is not None and (wait["landed"] or place.lasts):
        Builder.at(_place_of_wait(op)).create(StoreWait, *waited, **wait)
    parts = value.type.numel // place.type.numel
    width = op.map.attributes["box"][-1]
    copies: list[Value] = []
    for part in range(parts):
        buffer = buffers[part % place.count]
        if part >= place.count:
            b.create(StoreWait, copies[part - place.count], pending=place.count - 1)
        b.create(LocalStore, value, buffer, part=part)
        *outer, column = op.coordinates
        if part:
            column = b.value(AddI, column, b.constant(part * width, column.type))
        copy = b.create(TensorStore, op.map, op.pointer, buffer, *outer, column, kind=op.kind)
        copies.append(copy.result)
    last = copies[-place.count :]
    if not place.lasts:
        b.create(StoreWait, *last)
    op.erase()
    if stored is not value and not stored.uses:
        stored.defining_op.erase()
    if not place.lasts:
        return []
    return [carried.hand_on(copy) for carried, copy in zip(store.copied, last)] or last
