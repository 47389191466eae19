"""What definitions say of effects, for every operation that there is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry
from ptxforge.ir.definition import READS_SHARED, REGISTRY, Effects, Operation

INSTANCES = {  # of the operations whose effects depend on attributes: the attributes
    "load": [{"volatile": False}, {"volatile": True}],
    "inline_asm": [{"pure": True}, {"pure": False}],
    "scan": [{"ranks": 0}, {"ranks": 1}],
    "store_box": [{"kind": ""}, {"kind": "fadd"}],
}
EFFECTS = {
    (name, *attributes.values()): kind.get_effects(SimpleNamespace(effects=kind.effects, **attributes))
    for name, kind in REGISTRY.items()
    for attributes in INSTANCES.get(name, [{}])
}
MAY_WAIT = {("load", True), ("inline_asm", False), ("atomic_rmw",), ("atomic_cas",)}
SEEN = {
    ("assert",), ("print",), ("breakpoint",), ("barrier",), ("partition",), ("reduce_ctas",), ("scan", 1),
    ("fence_async",), ("recompute",),
    ("barrier_init",), ("barrier_inval",), ("barrier_arrive",), ("descriptor_reduce",), ("store_box", "fadd"),
    ("map_workspace",), ("release_workspace",), ("make_tensor_map",),
}  # fmt: skip


def test_whose_effects_depend_on_attributes():
    own = {name for name, kind in REGISTRY.items() if kind.get_effects is not Operation.get_effects}
    assert own == {*INSTANCES}


def test_equal_effects_are_one_object():
    assert Effects(reads=frozenset({"shared"})) is READS_SHARED
    assert Effects(reads=frozenset({"shared"}), other=True) is not READS_SHARED


def test_what_may_wait_for_other_programs():
    """A new operation that orders execution, or reads what others write meanwhile, belongs into a list."""
    assert {key for key, effects in EFFECTS.items() if effects.may_wait} == MAY_WAIT


def test_what_keeps_its_turn():
    assert {key for key, effects in EFFECTS.items() if effects.keeps_turn} == MAY_WAIT | SEEN


@pytest.mark.parametrize("key", EFFECTS, ids=str)
def test_what_may_wait_stays_where_it_is(key):
    """No pass may remove it, repeat it, or take it for work of a queue, which waits for itself."""
    effects = EFFECTS[key]
    if effects.may_wait:
        assert effects.other and not effects.queue and not effects.is_removable and effects.keeps_turn
    assert effects.may_wait or not (effects.is_atomic and effects.other)
    assert effects.may_wait or not (effects.other and effects.reads == {"global"} and not effects.writes)


def test_queued_work_has_no_turn():
    copies = Effects(reads=frozenset({"global"}), writes=frozenset({"shared"}), other=True, starts="cp.async")
    assert not copies.keeps_turn and not copies.may_wait
