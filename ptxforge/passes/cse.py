"""Equal computations are done once.

    %a = addi %x, %y : i32                                                (before)
    %b = addi %y, %x : i32
    %c = muli %a, %b : i32

    %a = addi %x, %y : i32                                                (after)
    %c = muli %a, %a : i32

SCOPE       A value of an enclosing block stands for an equal one in a nested block, not the other way round.
EQUAL       Same operation, operands (in any order if it commutes), attributes and result types; regions (of a
            reduction) that are equal up to the names of their own values. Hints of the two are put together.
READS       Equal loads are merged when nothing was written to that memory, nor anything ordered, between
            them.
CARRIED     Two carried values of a loop are merged when they start equal and, as long as they are equal, are
            passed on equal by its regions (compared through their pure operations).
SETTLED     Done again at once, it finds nothing: what is merged is known to all that comes behind it, and
            carried values are compared once more where something in a loop's body was merged.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.ir.definition import COMMUTATIVE, HINTS, PURE, Effects
from ptxforge.ir.ops.control import Loop, Structured
from ptxforge.support.target import Target

_SPACES = ("global", "shared")


def cse(function: Function, target: Target) -> bool:
    """Number values block by block, from the outside in."""
    return _Numbering().block(function.body, {})


class _Numbering:
    def __init__(self) -> None:
        # How often each memory was written so far: equal numbers mean unchanged contents.
        self.writes: Counter[str] = Counter()

    def block(self, block: Block, known: dict[Any, Operation]) -> bool:
        changed = False
        for op in block.operations:
            if op.regions and isinstance(op, Loop):
                changed |= _merge_carried(op)
            effects = op.get_effects()
            key = self._key(op, effects)
            earlier = known.setdefault(key, op) if key is not None else op
            if earlier is not op:
                _replace(op, earlier)
                changed = True
                continue
            while op.regions and self._regions(op, known):
                changed = True
                if not isinstance(op, Loop) or not _merge_carried(op):  # what its body computes alike by now
                    break
            if effects is not PURE:
                self._note_writes(effects)
        return changed

    def _regions(self, op: Operation, known: dict[Any, Operation]) -> bool:
        """What a loop's body writes counts as written before it, too: the previous iteration did so."""
        if not isinstance(op, Structured):
            return False
        for inner in [inner for region in op.regions for inner in region.block.acting()]:
            self._note_writes(inner.get_effects())
        changed = False
        for region in op.regions:
            changed |= self.block(region.block, dict(known))
        return changed

    def _note_writes(self, effects: Effects) -> None:
        for space in _SPACES if effects.other else effects.writes:
            self.writes[space] += 1

    def _key(self, op: Operation, effects: Effects) -> Any:
        """What is equal for equal operations; ``None`` when the operation must stay."""
        if not op.results or (op.regions and isinstance(op, Structured)):
            return None
        if effects is PURE:
            return _shape_of(op, None)
        if effects.other or effects.writes:
            return None
        memory = tuple((space, self.writes[space]) for space in sorted(effects.reads))
        return memory, _shape_of(op, None)


def _shape_of(op: Operation, local: dict[Value, int] | None) -> Any:
    """An operation as a hashable term; ``local`` numbers the values of the regions that it is in."""
    operands = tuple([local.get(v, v) for v in op.operands]) if local else op.operands
    if COMMUTATIVE in op.traits:
        operands = tuple(sorted(operands, key=_place if local else id))
    types = op.results[0].type if len(op.results) == 1 else tuple([r.type for r in op.results])
    attributes = _attributes(op) if op.attributes else ()
    if not op.regions:
        return op.__class__, operands, types, attributes
    regions = tuple([_region_shape(region.block, local or {}) for region in op.regions])
    return op.__class__, operands, types, attributes, regions


def _place(operand: Value | int) -> int:
    return operand if isinstance(operand, int) else id(operand)


def _region_shape(block: Block, local: dict[Value, int]) -> Any:
    local = dict(local)
    for argument in block.arguments:
        local[argument] = -1 - len(local)
    shapes = []
    for op in block.operations:
        shapes.append(_shape_of(op, local))
        for result in op.results:
            local[result] = -1 - len(local)
    return tuple(a.type for a in block.arguments), tuple(shapes)


def _attributes(op: Operation) -> tuple:
    """Attributes that differ from their defaults, without hints; values with their types (1, 1.0 and True
    differ)."""
    fields = op.definition.attribute_fields
    found = []
    for key, value in op.attributes.items():
        if key in HINTS or (key in fields and fields[key].default == value):
            continue
        found.append((key, type(value), repr(value) if isinstance(value, float) else value))
    if len(found) > 1:
        found.sort(key=itemgetter(0))
    return tuple(found)


def _replace(op: Operation, earlier: Operation) -> None:
    if earlier.parent is op.parent:
        for key in HINTS & op.attributes.keys():
            earlier.attributes.setdefault(key, op.attributes[key])
    op.replace_with(earlier.results)


# -- carried values ------------------------------------------------------------------------------------------


def _merge_carried(loop: Loop) -> bool:
    """Merge carried values that go through equal values (CARRIED): as long as one that was merged makes
    others alike."""
    changed = False
    while _merge_alike(loop):
        changed = True
    return changed


def _merge_alike(loop: Loop) -> bool:
    initial = loop.operands[loop.first_initial :]
    changed = False
    for later in range(len(initial) - 1, 0, -1):
        for earlier in range(later):
            if initial[earlier] is initial[later] and _go_alike(loop, earlier, later):
                for old, new in zip(loop.carried_names(later), loop.carried_names(earlier)):
                    old.replace_all_uses_with(new)
                loop.erase_carried(later)
                changed = True
                break
    return changed


def _go_alike(loop: Loop, earlier: int, later: int) -> bool:
    """Whether every region passes the two on equal, given that it gets them equal."""
    names = zip(loop.carried_names(earlier), loop.carried_names(later))
    passed_on = zip(loop.carried_sources(earlier)[1:], loop.carried_sources(later)[1:])
    return all(
        _equal(a, b, {argument: other}, region.block)
        for (a, b), (argument, other), region in zip(passed_on, names, loop.regions)
    )


def _equal(a: Value, b: Value, assumed: dict[Value, Value], body: Block) -> bool:
    """Whether two values are equal if those in ``assumed`` are, through pure operations of ``body``."""
    if a is b or assumed.get(a) is b:
        return True
    one, other = a.defining_op, b.defining_op
    if isinstance(a, BlockArgument) or isinstance(b, BlockArgument) or one.__class__ is not other.__class__:
        return False
    if one.parent is not body or other.parent is not body or not one.get_effects().is_pure or one.regions:
        return False
    if a.type is not b.type or a.index != b.index or _attributes(one) != _attributes(other):
        return False
    if len(one.operands) != len(other.operands):
        return False
    alike = all(_equal(x, y, assumed, body) for x, y in zip(one.operands, other.operands))
    if alike:
        assumed[a] = b
    return alike
