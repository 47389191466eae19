"""The loop expander keeps a loop's meaning for every legal schedule and any number of iterations."""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge import interpreter
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Value
from ptxforge.ir.ops.arith import AndI
from ptxforge.ir.ops.control import For
from ptxforge.ir.ops.memory import Load, Store
from ptxforge.ir.ops.shape import Splat
from ptxforge.ir.parser import parse_function
from ptxforge.ir.verifier import verify
from ptxforge.passes.expand_loop import Schedule, expand_loop

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


def _mask_loads(op, flag: Value, builder) -> None:
    if isinstance(op, Load):
        condition = builder.value(Splat, flag, type=op.mask.type)
        op.set_operand(1, builder.value(AndI, op.mask, condition))


def _run(function, n: int) -> np.ndarray:
    x = np.arange(1, n + 4, dtype=np.float32)
    out = np.zeros(4, np.float32)
    interpreter.run(function, 1, [x, out, n])
    return out


def _expanded(stages: dict[str, int]):
    """LOOP with operations (by the name of their result) in the given stages; all others in the last."""
    function = parse_function(LOOP)
    loop = next(op for op in function.walk() if isinstance(op, For))
    last = max(stages.values())
    body = [op for op in loop.body.operations if not op.is_terminator]
    stage = {op: stages.get(op.results[0].hint, last) for op in body}
    order = sorted(body, key=lambda op: -stage[op])
    expand_loop(loop, Schedule(order, stage), _mask_loads)
    verify(function)
    return function


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


def test_not_in_front_of_it():
    """Behind means in the order of a step, and one stage is as far as it goes."""
    with pytest.raises(ValueError, match="'splat' is scheduled before what it uses"):
        _expanded({"base": 0, "pointers": 0, "value": 0, "next": 2})
    function = parse_function(LOOP)
    loop = next(op for op in function.walk() if isinstance(op, For))
    body = [op for op in loop.body.operations if not op.is_terminator]
    stage = {op: 0 if op.results[0].hint in ("base", "pointers", "value") else 1 for op in body}
    with pytest.raises(ValueError, match="'splat' is scheduled before what it uses"):
        expand_loop(loop, Schedule(body, stage), _mask_loads)


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
    with pytest.raises(ValueError, match="'mulf' is scheduled before what it uses"):
        _expanded({"product": 0, "total": 1})


def test_a_write_ahead_of_its_iteration_is_refused():
    function = parse_function(LOOP)
    loop = next(op for op in function.walk() if isinstance(op, For))
    value = next(op for op in loop.body.operations if op.results and op.results[0].hint == "value")
    written = Builder.after(value).create(Store, value.pointer, value.result)
    body = [op for op in loop.body.operations if not op.is_terminator]
    ahead = {*(op for op in body if op.results and op.results[0].hint in AHEAD), written}
    stage = {op: 0 if op in ahead else 1 for op in body}
    with pytest.raises(ValueError, match="'store' is in stage 0 of 1: it would write for iterations past"):
        expand_loop(loop, Schedule(sorted(body, key=lambda op: -stage[op]), stage), _mask_loads)


def test_masked_prologue_reads_nothing_beyond_the_end():
    """With more stages than iterations, loads of iterations that do not exist are masked off (the interpreter
    would report an access outside the array)."""
    assert _run(_expanded({name: 0 for name in AHEAD} | {"total": 7}), 1)[0] == 1 + 1 * 1


