"""The loop expander keeps a loop's meaning for every legal schedule and any number of iterations."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge import interpreter
from ptxforge.ir.builder import Builder
from ptxforge.ir.ops.control import For, If
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.expand_loops import expand_loops
from ptxforge.support.errors import IRError
from ptxforge.support.target import parse_target

# Sums x[i] * (i + 1) with a walking pointer; also carries the value of the iteration before and counts.
LOOP = """
func @walk(%x: ptr<f32>, %out: ptr<f32>, %n: i32) {
  %c0 = constant {value = 0} : i32
  %c1 = constant {value = 1} : i32
  %range = make_range {start = 0, end = 4} : tensor<4xi32>
  %zero = constant {value = 0.0} : tensor<4xf32>
  %true = constant {value = true} : tensor<4xi1>
  %pr, %accr, %beforer, %countr = for %i = %c0 to %n step %c1 iter_args(%p = %x, %acc = %zero, %before = %zero, %count = %c0) : ptr<f32>, tensor<4xf32>, tensor<4xf32>, i32 {
    %base = splat %p : (ptr<f32>) -> tensor<4xptr<f32>>
    %pointers = addptr %base, %range : tensor<4xptr<f32>>
    %value = load %pointers, %true : (tensor<4xptr<f32>>, tensor<4xi1>) -> tensor<4xf32>
    %i1 = addi %i, %c1 : i32
    %weight = sitofp %i1 : (i32) -> f32
    %weights = splat %weight : (f32) -> tensor<4xf32>
    %product = mulf %value, %weights : tensor<4xf32>
    %sum = addf %product, %before : tensor<4xf32>
    %total = addf %acc, %sum : tensor<4xf32>
    %next = addptr %p, %c1 : ptr<f32>
    %counted = addi %count, %i : i32
    yield %next, %total, %value, %counted
  }
  %countf = sitofp %countr : (i32) -> f32
  %counts = splat %countf : (f32) -> tensor<4xf32>
  %result = addf %accr, %counts : tensor<4xf32>
  %both = addf %result, %beforer : tensor<4xf32>
  %outs = splat %out : (ptr<f32>) -> tensor<4xptr<f32>>
  %where = addptr %outs, %range : tensor<4xptr<f32>>
  store %where, %both : (tensor<4xptr<f32>>, tensor<4xf32>)
  return
}
"""  # noqa: E501


def _run(function, n: int) -> np.ndarray:
    x = np.arange(1, n + 4, dtype=np.float32)
    out = np.zeros(4, np.float32)
    interpreter.run(function, 1, [x, out, n])
    return out


def _scheduled(stages: dict[str, int], text: str = LOOP, **attributes):
    """LOOP with operations (by the name of their result) in the given stages, all others in the last; late
    stages have their turn first. ``attributes`` of the loop."""
    function = parse_function(text)
    loop = next(op for op in function.walk() if isinstance(op, For))
    loop.last_stage = max(stages.values())
    loop.attributes.update(attributes)
    for op in loop.body.operations:
        if not op.is_terminator:
            at = stages.get(op.results[0].hint, loop.last_stage)
            op.attributes.update(stage=at, turn=loop.last_stage - at)
    return function, loop


def _expanded(stages: dict[str, int], text: str = LOOP, **attributes):
    """The same, expanded, from text."""
    function = parse_function(print_function(_scheduled(stages, text, **attributes)[0]))
    verify(function)
    assert expand_loops(function, SM_80)
    verify(function)
    return function


SM_80 = parse_target("sm_80")
AHEAD = ["base", "pointers", "value", "next"]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("distance", [1, 2, 3, 7])
@pytest.mark.parametrize(
    "ahead", [AHEAD, [*AHEAD, "counted"], [*AHEAD, "i1", "weight"]], ids=["load", "count", "weight"]
)
def test_meaning_is_kept(n, distance, ahead):
    stages = {name: 0 for name in ahead} | {"total": distance}
    np.testing.assert_array_equal(_run(_expanded(stages), n), _run(parse_function(LOOP), n))


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_what_is_carried_may_be_used_a_stage_earlier_behind_it(n, distance):
    """The sum of this iteration's ``total`` is made in the last stage; ``value`` of the next one loads in the
    stage before, from where the pointer that the last stage advances stands then."""
    stages = {name: distance - 1 for name in ("base", "pointers", "value")} | {"next": distance}
    np.testing.assert_array_equal(_run(_expanded(stages), n), _run(parse_function(LOOP), n))


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("distance", [1, 2, 3])
@pytest.mark.parametrize(
    "ahead", [AHEAD, [*AHEAD, "counted"], [*AHEAD, "i1", "weight"]], ids=["load", "count", "weight"]
)
def test_a_peeled_loop_has_its_last_step_behind_it(n, distance, ahead, step):
    """No load of an iteration that does not exist is left there."""
    text = LOOP.replace("to %n step %c1", "to %n step %step").replace(
        "  %range", f"  %step = constant {{value = {step}}} : i32\n  %range", 1
    )
    stages = {name: 0 for name in ahead} | {"total": distance}
    peeled = _expanded(stages, text, peeled=True)
    np.testing.assert_array_equal(_run(peeled, n), _run(parse_function(text), n))
    (loop,) = (op for op in peeled.walk() if isinstance(op, For))
    assert isinstance(loop.parent_op, If)
    places = [op.parent for op in peeled.walk() if isinstance(op, Load)]
    assert places == [loop.parent] * distance + [loop.body]


def test_not_in_front_of_it():
    """Behind means in the order of a step, and one stage is as far as it goes."""
    with pytest.raises(IRError, match="'splat' is scheduled before what it uses"):
        _expanded({"base": 0, "pointers": 0, "value": 0, "next": 2})
    function, loop = _scheduled({"base": 0, "pointers": 0, "value": 0, "total": 1})
    for op in loop.body.operations:
        op.attributes["turn"] = 0
    with pytest.raises(IRError, match="'splat' is scheduled before what it uses"):
        expand_loops(function, SM_80)


@pytest.mark.parametrize("missing", ["stage", "turn"])
def test_every_operation_needs_its_stage_and_its_turn(missing):
    function, loop = _scheduled({"base": 0, "total": 1})
    loop.body.first.attributes.pop(missing)
    with pytest.raises(IRError, match="'splat' in a scheduled loop has no stage or no turn"):
        expand_loops(function, SM_80)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_three_stages(n):
    stages = {
        "base": 0,
        "pointers": 0,
        "next": 0,
        "value": 1,
        "i1": 2,
        "weight": 2,
        "weights": 2,
        "product": 2,
        "total": 4,
    }
    np.testing.assert_array_equal(_run(_expanded(stages), n), _run(parse_function(LOOP), n))


def test_use_before_definition_is_refused():
    with pytest.raises(IRError, match="'mulf' is scheduled before what it uses"):
        _expanded({"product": 0, "total": 1})


def test_a_write_ahead_of_its_iteration_is_refused():
    function, loop = _scheduled(dict.fromkeys(AHEAD, 0) | {"total": 1})
    value = next(op for op in loop.body.operations if op.results and op.results[0].hint == "value")
    written = Builder.after(value).create(Store, value.pointer, value.result)
    written.attributes.update(stage=0, turn=1)
    with pytest.raises(IRError, match="'store' is in stage 0 of 1: it would write for iterations past"):
        expand_loops(function, SM_80)


def test_masked_prologue_reads_nothing_beyond_the_end():
    """With more stages than iterations, loads of iterations that do not exist are masked off (the interpreter
    would report an access outside the array)."""
    assert _run(_expanded({name: 0 for name in AHEAD} | {"total": 7}), 1)[0] == 1 + 1 * 1


