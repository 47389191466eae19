"""Persistent products whose tiles two groups of warps take in turns: what they compute, on every executor and
in the interpreter after the passes, which kernels are made so, and what finds the faults they could have."""

from __future__ import annotations

import copy
import re
from unittest import mock

import numpy as np
import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import interpreter
from ptxforge.codegen_ptx.lower import convert_layout
from ptxforge.compiler import Artifact, compile_function, compile_ir
from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.ops.mbarrier import BarrierArrive, BarrierWait
from ptxforge.ir.ops.partition import GetConsumerGroup, Partition
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.runtime.loaded import LoadedKernel
from ptxforge.support import programs
from ptxforge.support.errors import EmulatorError, InterpreterError
from tests.kernels import specialized
from tests.kernels.persistent import compiled, problem, product

SQUARE = {"BM": 128, "BN": 128, "BK": 64}
SHAPES = [(176, 400, 176), (128, 128, 64), (256, 256, 16), (256, 384, 704), (128, 640, 320)]


def tiles(m: int, n: int) -> int:
    return -(-m // 128) * -(-n // 128)


def in_turns(num_stages: int = 4, **options) -> Artifact:
    return compiled(**{"blocks": SQUARE, "num_warps": 4, "num_stages": num_stages} | options)


def takes_turns(artifact: Artifact) -> bool:
    return "consumer_groups = 2" in artifact.asm["gpu"]


# -- meaning ----------------------------------------------------------------------------------------------


CASES = [*((shape, 5) for shape in SHAPES), (SHAPES[0], 4), (SHAPES[3], 6)]


@pytest.mark.parametrize(("shape", "stages"), CASES, ids=str)
def test_product(few, execute, shape, stages):
    """Tiles beyond the edges, one tile for two multiprocessors, an odd number of tiles, more and fewer steps
    than buffers."""
    arguments, expected = problem(*shape)
    constants = SQUARE | {"GROUP": 2, "KIND": ""}
    for (out,) in execute(product, (tiles(*shape[:2]),), arguments, constants, outputs=[2], num_warps=4,
                          num_stages=stages):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


def test_a_product_without_steps(few, execute):
    arguments, _ = problem(256, 384, 16)
    arguments[6] = 0
    expected = np.broadcast_to(arguments[3].astype(np.float16), (1, 256, 384))
    constants = SQUARE | {"GROUP": 2, "KIND": ""}
    for (out,) in execute(product, (6,), arguments, constants, outputs=[2], num_warps=4, num_stages=5):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("blocks", [
    {"BM": 64, "BN": 256, "BK": 64}, {"BM": 64, "BN": 128, "BK": 128}], ids=str)  # fmt: skip
def test_other_tiles(few, execute, blocks):
    arguments, expected = problem(192, 528, 336)
    grid = (3 * -(-528 // blocks["BN"]),)
    for (out,) in execute(product, grid, arguments, blocks | {"GROUP": 2, "KIND": ""}, outputs=[2],
                          num_warps=4, num_stages=4):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("stages", [4, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_interpreter_after_the_passes(shape, stages):
    """It runs all three groups of warps, and reports where they wait for each other for ever."""
    arguments, expected = problem(*shape)
    interpreter.run(parse_function(in_turns(stages).asm["gpu"]), tiles(*shape[:2]), arguments)
    np.testing.assert_array_equal(arguments[2], expected)


WALKING = SQUARE | {"PROGRAMS": 2, "FLATTEN": True, "WS": True, "INNER": False, "TRIANGLE": False}


@pytest.mark.parametrize("shape", [(384, 256, 192), (112, 144, 64)], ids=str)
def test_a_loop_over_tiles_that_asks_for_warps_that_copy(execute, shape):
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = rng.integers(-3, 4, (m, k)).astype(np.float16), rng.integers(-3, 4, (k, n)).astype(np.float16)
    arguments = [a, b, np.zeros((m, n), np.float32), m, n, k, tiles(m, n)]
    for (out,) in execute(specialized.walking, (2,), arguments, WALKING, outputs=[2], num_warps=4,
                          num_stages=4):  # fmt: skip
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b)


def test_sizes_that_make_no_tensor_map(execute):
    """Without steps there is no tensor to copy from: another variant of the kernel runs, without TMA."""
    arguments = [np.ones((112, 1), np.float16), np.ones((1, 144), np.float16)]
    arguments += [np.ones((112, 144), np.float32), 112, 144, 0, tiles(112, 144)]
    for (out,) in execute(specialized.walking, (2,), arguments, WALKING, outputs=[2], num_warps=4,
                          num_stages=4):  # fmt: skip
        np.testing.assert_array_equal(out, 0)


@ptxforge.jit
def onto_each_other(a, b, c, d, flag, far, tiles, K: tl.constexpr, ADDS: tl.constexpr):
    """c = aᵢ b of the last tile; with ADDS c += aᵢ b, tile after tile, where ``flag`` says that c and not d
    is what is added to."""
    i, k = tl.arange(0, 128), tl.arange(0, 64)
    at = i[:, None] * 128 + i[None, :]
    before = c if flag > 0 else d
    for tile in tl.range(0, tiles, warp_specialize=True):
        acc = tl.zeros((128, 128), tl.float32)
        for start in range(0, K, 64):
            x = tl.load(a + (tile * 128 + i)[:, None] * K + (start + k)[None, :])
            acc = tl.dot(x, tl.load(b + (start + k)[:, None] * 128 + i[None, :]), acc)
        if ADDS:
            tl.store(c + at + tile * far, acc + tl.load(before + at))
        else:
            tl.store(c + at, acc)


@pytest.mark.parametrize("adds", [False, True])
def test_tiles_that_meet_stay_in_their_order(execute, adds):
    """All are stored in one place; nobody knows which of two pointers is read through."""
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((512, 128), (128, 128)))
    parts = [part.astype(np.float32) @ b for part in np.split(a, 4)]
    expected = sum(parts) if adds else parts[-1]
    arguments = [a, b, *np.zeros((2, 128, 128), np.float32), 3, 0, 4]
    for (out,) in execute(onto_each_other, (1,), arguments, {"K": 128, "ADDS": adds}, outputs=[2],
                          num_warps=4, num_stages=4):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


@ptxforge.jit
def one_tile(a, b, c, tile, rows, K: tl.constexpr):
    i, k = tl.arange(0, 128), tl.arange(0, 64)
    acc = tl.zeros((128, 128), tl.float32)
    for start in range(0, K, 64):
        x = tl.load(a + (tile * 128 + i)[:, None] * K + (start + k)[None, :])
        acc = tl.dot(x, tl.load(b + (start + k)[:, None] * 128 + i[None, :]), acc)
    tl.store(c + (tile * rows + i)[:, None] * 128 + i[None, :], acc.to(tl.float16))


@ptxforge.jit
def partly_over_each_other(a, b, c, tiles, rows, K: tl.constexpr, WALKS: tl.constexpr):
    """c = aᵢ b, each stored ``rows`` rows below the last one; a program for each, or all in one."""
    if WALKS:
        for tile in tl.range(0, tiles, warp_specialize=True):
            one_tile(a, b, c, tile, rows, K)
    else:
        one_tile(a, b, c, tl.program_id(0), rows, K)


@pytest.mark.parametrize("walks, rows", [(True, 16), (True, 128), (False, 128)])
@pytest.mark.parametrize("depth", [128, 192, 320])
def test_depths_that_are_known(execute, few, depth, walks, rows):
    """Fewer steps than buffers, or more; in a loop over tiles these may lie over each other."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((512, depth), (depth, 128)))
    expected = np.zeros((512, 128), np.float16)
    for tile, part in enumerate(np.split(a, 4)):
        expected[tile * rows : tile * rows + 128] = part.astype(np.float32) @ b
    arguments = [a, b, np.zeros((512, 128), np.float16), 4, rows]
    signature = dict.fromkeys("abc", "*fp16:16") | {"tiles": "i32", "rows": "i32:16"}
    constants = {"K": depth, "WALKS": walks}
    options = {"num_warps": 4, "num_stages": 4}
    made = compile_function(partly_over_each_other, signature, constants, target="sm_90a", **options)
    assert takes_turns(made)
    for (out,) in execute(partly_over_each_other, (1 if walks else 4,), arguments, constants, outputs=[2],
                          **options):  # fmt: skip
        np.testing.assert_array_equal(out, expected)


# -- what was made ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [4, 5, 6])
def test_what_each_group_does(assemble, stages):
    """One text for both groups of consumers, none of which copies; no spills, nothing serialised."""
    artifact = in_turns(stages)
    assert takes_turns(artifact) and artifact.shared_bytes <= 227 << 10
    assert any("in turns" in remark.message for remark in artifact.remarks)
    assemble(artifact.ptx)
    main, others = artifact.ptx.split("$extra_warps_", 2)[1:]
    assert "cp.async.bulk.tensor" in others and "wgmma" not in others
    assert "cp.async.bulk.tensor" not in main and main.count("wgmma.mma_async") == 8
    assert len(re.findall(r"bar\.sync %r\d+, 128;", artifact.ptx)) == artifact.ptx.count("bar.sync") - 4
    (asks,) = parse_function(artifact.asm["gpu"]).walk(GetConsumerGroup)
    assert isinstance(asks.parent.parent_op, Partition)


def why_not(artifact: Artifact) -> list[str]:
    """What is said of loops over tiles that are not dealt out."""
    return [remark.message for remark in artifact.remarks if remark.kind == "not-dealt-out"]


@pytest.mark.parametrize(("options", "reason"), [
    ({"num_stages": 3}, ""), ({"num_warps": 8, "blocks": SQUARE | {"BN": 256}}, ""),
    ({"persistent": False}, ""), ({"tensor_maps": False}, ""), ({"kind": "atomic"}, ""),
    ({"kind": "twice"}, ""), ({"target": "sm_90"}, ""),
    ({"out": "fp32", "num_stages": 6}, "two exchanges of results have no room"),
], ids=str)  # fmt: skip
def test_others_stay(options, reason):
    """Two blocks on a multiprocessor, too many warps, one tile a program, no room for two results. Of what
    nobody asked for, and is no persistent loop of four warps, nothing is said."""
    artifact = in_turns(**options)
    assert not takes_turns(artifact)
    assert [reason in message for message in why_not(artifact)] == [True] * bool(reason)


@pytest.mark.parametrize(("constants", "options", "reason"), [
    ({"TRIANGLE": True}, {}, "equally many steps is not known"), ({"WS": False}, {}, ""),
    ({"BM": 64, "BN": 64, "BK": 32}, {}, "a second block has room"),
    ({}, {"tensor_maps": False}, "TMA does not copy"), ({}, {"num_ctas": 2}, "the program is a cluster"),
    ({}, {"num_warps": 8}, "a group has 4 warps, this program 8"),
], ids=str)  # fmt: skip
def test_other_loops_stay(constants, options, reason):
    """Tiles of different depths, nothing asked for, room for a second block, no tensor maps, other CTAs."""
    artifact = specialized.compiled(specialized.walking, WALKING | constants, **{"num_stages": 4} | options)
    assert not takes_turns(artifact)
    assert [reason in message for message in why_not(artifact)] == [True] * bool(reason)


@ptxforge.jit
def to_and_fro(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a's columns @ b's first rows, which every other step reads again."""
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True):
        row, column, at = tile // tl.cdiv(N, BN) * BM, tile % tl.cdiv(N, BN) * BN, 0
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            acc = tl.dot(a.load([row, start]), b.load([at, column]), acc)
            at = at ^ BK
        i, j = row + tl.arange(0, BM), column + tl.arange(0, BN)
        tl.store(c + i[:, None] * N + j[None, :], acc.to(tl.float16))


def test_a_place_that_steps_carry_is_no_place_that_a_producer_knows():
    """It would count its steps from another number on."""
    signature = {"a": "tensordesc<fp16[128,64]>:16", "b": "tensordesc<fp16[64,128]>:16", "c": "*fp16:16"}
    signature |= dict.fromkeys("MNK", "i32:16")
    options = {"target": "sm_90a", "num_warps": 4, "num_stages": 4}
    artifact = ptxforge.compile(to_and_fro, signature=signature, constants=SQUARE, **options)
    (reason,) = why_not(artifact)
    assert "carried from step to step" in reason and not takes_turns(artifact)
    assert specialized.partitions(artifact), "one group of warps has a producer"


def test_the_schedule_says_who_takes_turns():
    """Nothing behind it decides."""
    stages = dict(in_turns().stages)
    assert "consumer_groups = 2" in stages["schedule_loops"]
    assert "consumer_groups" not in stages["reorder_instructions"]


def test_a_loop_that_is_dealt_out_has_no_reason():
    artifact = specialized.compiled(specialized.walking, WALKING, num_stages=4)
    assert takes_turns(artifact) and not why_not(artifact)


# -- faults -----------------------------------------------------------------------------------------------


class Run:
    """A kernel of which each of two groups takes three tiles, changed by ``change``."""

    shape = (384, 256, 576)

    def __init__(self, change=lambda function: None):
        self.artifact = in_turns(line_info=False)
        function = parse_function(self.artifact.asm["gpu"])
        change(function)
        self.text = print_function(function)

    def interpreted(self) -> bool:
        arguments, expected = problem(*self.shape)
        with mock.patch.object(programs, "blocks", lambda grid, most: (1, *grid[1:])):
            interpreter.run(parse_function(self.text), 6, arguments)
        return np.array_equal(arguments[2], expected)

    def emulated(self, emulator) -> bool:
        artifact = copy.copy(self.artifact)
        artifact.ptx = compile_ir(self.text, "sm_90a").ptx
        arguments, expected = problem(*self.shape)
        emulator.multiprocessors = 1
        placed = [ptxforge.to_device(x, emulator) for x in arguments[:4]]
        LoadedKernel(artifact)[(6,)](*placed, *arguments[4:])
        return np.array_equal(placed[2].numpy(), expected)


def nth(kind, number: int, function):
    (partition,) = function.walk(Partition)
    return list(partition.consumers.walk(kind))[number]


def erase(kind, number: int):
    return lambda function: nth(kind, number, function).erase()


def too_early(function) -> None:
    """Release a tile that products still read, and nothing behind the loop."""
    inside, _, behind = (nth(BarrierArrive, number, function) for number in range(3))
    wait = nth(BarrierWait, 1, function)
    inside.barrier.defining_op.set_operand(1, wait.barrier.defining_op.operands[1])
    inside.erase_operand(1)
    behind.erase()


def same_place(function) -> None:
    """Read on where this group stopped, not behind the tile of the other one."""
    (partition,) = function.walk(Partition)
    loop = next(op for op in partition.consumers.operations if op.regions)
    inner = next(op for op in loop.body.operations if op.regions)
    loop.body.terminator.set_operands([*inner.results[:2], loop.body.terminator.operands[2]])


def not_awaited(function) -> None:
    """Wait for no tile."""
    wait = nth(BarrierWait, 1, function)
    never = Builder.at(wait).constant(False, T.I1)
    wait.set_operands([*wait.operands, never])


# What the interpreter says ("": its results are wrong, None: it runs groups in an order in which all is
# well), and what the emulator says.
FAULTS = {
    "tiles are not released": (erase(BarrierArrive, 0), "never ends", "deadlock"),
    "the last tile is not released": (erase(BarrierArrive, 2), "never ends", "deadlock"),
    "nobody waits for a turn": (erase(BarrierWait, 0), "never ends", "more arrivals|deadlock"),
    "a tile is not waited for": (not_awaited, "never ends|second arrival", "was not waited for"),
    "tiles are released too early": (too_early, None, "under way|still read|overwrit"),
    "the other group's tile is read": (same_place, "never ends", "was not waited for|deadlock"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault, emulator):
    change, interpreted, emulated = FAULTS[fault]
    run = Run(change)
    if interpreted == "":
        assert not run.interpreted()
    elif interpreted is not None:
        with pytest.raises(InterpreterError, match=interpreted):
            run.interpreted()
    with pytest.raises((AssertionError, EmulatorError), match=emulated):
        run.emulated(emulator)


def test_without_a_fault(emulator):
    run = Run()
    assert run.interpreted() and run.emulated(emulator)


def test_scratch_that_both_groups_use_is_found(emulator, monkeypatch):
    monkeypatch.setattr(convert_layout, "_scratch_of_group", lambda ctx, op: None)
    with pytest.raises(AssertionError, match="race"):
        Run().emulated(emulator)
