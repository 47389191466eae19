"""Random kernels mean the same to the interpreter, before and after the passes, and to the PTX under the
emulator and, with ``--device cuda``, on a GPU.

The tile IR as the frontend made it, interpreted, is what the others are compared with. ``PTXFORGE_FUZZ``
multiplies the number of programs. To look at one: ``python -m tests.fuzz.test_programs SEED``.
What the generator draws is tested, too: a feature that no program has is not tested by any.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import ptxforge
from ptxforge import codegen_ptx, frontend, interpreter
from ptxforge.emulator import EmulatorDevice
from ptxforge.ir import types as T
from ptxforge.ir.core import Function
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.ir.warps import threads_of
from ptxforge.passes import pipeline
from ptxforge.support import tensor_map
from ptxforge.support.programs import blocks
from ptxforge.support.target import parse_target
from ptxforge.support.tensor_map import TensorMapRecipe
from tests.assembling import assemble_now
from tests.fuzz.generate import Program, generate
from tests.fuzz.kinds import load_programs as load
from tests.fuzz.kinds import options_of

PROGRAMS = 2000 * int(os.environ.get("PTXFORGE_FUZZ", "1"))
"""Seeds 0 … PROGRAMS - 1 are tried."""
SHARD = 25
MULTIPROCESSORS = 2
"""Blocks of programs that the compiler makes walk over tiles."""


@pytest.mark.parametrize("shard", range(PROGRAMS // SHARD))
def test_executors_agree(shard, tmp_path, devices):
    gpus = [device for device in devices if device.name != "emulator"]
    programs = [generate(seed) for seed in range(shard * SHARD, (shard + 1) * SHARD)]
    kernels = load(programs, tmp_path)
    for program in programs:
        try:
            check(program, kernels[program.name], gpus)
        except Exception as fault:
            pytest.fail(f"seed {program.seed}: {type(fault).__name__}: {fault}\n{program.source}")


DRAWN = {  # feature: how its text looks, and in how many of the programs it is at least
    "a product of matrices": (r"tl\.dot\(", 200),
    "a product in microscaling formats": (r"tl\.dot_scaled\(", 30),
    "a pipelined loop of products": (r"for .* tl\.range\(.*\):\n(        .*\n)*?        .* = tl\.dot\(", 80),
    "a pipelined loop within another": (r"^    (for|if) .*:\n(        .*\n)*?        for .*tl\.range", 30),
    "products of batches": (r"tl\.sum\(tl\.dot\(", 15),
    "a product of rows that an index names": (r"tl\.dot\(tl\.load\(", 10),
    "a chain of products": (r"(\w+) = tl\.dot\((.*\n)*?.*tl\.dot\(", 80),
    "several products for warpgroups": (
        r"^    for .*:\n(        .*\n)*?        (h\d+) = tl\.dot\((.*\n)*?        [hv]\d+ = tl\.dot\(.*\2", 12
    ),
    "accumulators that are exchanged": (r"^        +(\w+), (\w+) = \2, \1$", 60),
    "products in branches of loops": (
        r"^    (for|while) .*:\n(        .*\n)*?        +if .*:\n(            .*\n)*?.*tl\.dot\(", 60
    ),
    "a stream of loads": (r"for .*num_stages=.*:\n(        .*\n)*?        l\d+ = tl\.load\(", 200),
    "a stream that stores": (r"for .*num_stages=.*:\n(        .*\n)*?        tl\.store\(", 60),
    "a pipeline of its own depth": (r"num_stages=", 300),
    "a loop that may not run": (r"range\(s\)|range\(0, s|range\(0, 0", 300),
    "a while loop": (r"while ", 200),
    "a branch": (r"^    if ", 100),
    "an atomic": (r"tl\.atomic_", 80),
    "a block pointer": (r"tl\.make_block_ptr\(", 150),
    "a tensor descriptor": (r"tl\.make_tensor_descriptor\(", 150),
    "a product that walks over tiles": (r"for \w+ in tl\.range\(pid, ", 80),
    "a product of boxes": (r"= tl\.dot\(.*(boundary_check|\.load\()", 30),
    "a box that is stored": (r"make_(block_ptr|tensor_descriptor)\(o", 60),
    "inline assembly": (r"tl\.inline_asm_elementwise\(", 300),
    "a loop that is left early": (r"^ +(break|continue)$", 300),
    "a return from a loop": (r"search\(", 150),
    "a tuple that a loop carries": (r"(t\d+) = \(\1\[1\]\[0\] \+ k", 150),
    "a part of a block": (r"\w+\[[\d:-]*:[\d:-]*\]$", 150),
    "a function on elements": (r"tl\.map_elementwise\(", 150),
    "a scan": (r"tl\.(cumsum|associative_scan)\(", 200),
    "a reduction": (r"tl\.(sum|max|min|reduce|argmax|argmin)\(", 500),
}


def test_the_generator_draws_everything():
    sources = [generate(seed).source for seed in range(2000)]
    for name, (text, least) in DRAWN.items():
        count = sum(bool(re.search(text, source, re.MULTILINE)) for source in sources)
        assert count >= least, f"{name}: {count} programs"


@pytest.mark.parametrize("seed", [2653, 8823])
def test_programs_that_failed_once(seed, tmp_path):
    """Copies by threads beside multicast ones, of which nothing kept them waiting; a product of a value with
    its own transpose, which a store has in another layout behind it."""
    program = generate(seed)
    assert "tl.dot" in program.source
    check(program, load([program], tmp_path)[program.name])


def test_the_programs_are_the_same_everywhere():
    """A seed that failed once can be looked at again."""
    one, other = generate(7), generate(7)
    assert one.source == other.source
    assert all((one.arrays[name] == other.arrays[name]).all() for name in one.arrays)


def check(program: Program, kernel, gpus: list = ()) -> None:
    target, options = options_of(program)
    function = frontend.build(kernel, program.signature, {}, target=str(target), **options)
    function.attributes["tensor_maps"] = function.attributes["persistent"] = target.has_wgmma
    verify(function)
    expected = interpret(function, program)
    pipeline.run(function, target, verify=True)
    text = print_function(function)
    assert print_function(parse_function(text)) == text
    compare(program, "interpreted after the passes", expected, interpret(function, program))
    ptx = codegen_ptx.emit(function, target)
    if program.seed % 41 == 0:
        assemble_now(ptx)
    emulator = EmulatorDevice(check="all")
    compare(program, "emulated", expected, launch(emulator, function, ptx, program))
    assert not emulator.findings, "\n".join(map(str, emulator.findings))
    for gpu in gpus:
        if target.sm <= parse_target(gpu.target).sm:
            compare(program, f"on {gpu.name}", expected, launch(gpu, function, ptx, program))


def interpret(function: Function, program: Program) -> dict[str, np.ndarray]:
    arrays = {name: array.copy() for name, array in program.arrays.items()}
    interpreter.run(function, program.grid, arrays | program.scalars)
    return arrays


def launch(device, function: Function, ptx: str, program: Program) -> dict[str, np.ndarray]:
    """The arrays behind a launch of the PTX."""
    placed = {name: ptxforge.to_device(array, device) for name, array in program.arrays.items()}
    addresses = {name: array.data_ptr() for name, array in placed.items()}
    parameters, grid = b"", (program.grid, 1, 1)
    for argument in function.arguments:
        if argument.type is T.TENSOR_MAP:
            recipe = TensorMapRecipe(argument.name, **argument.attributes)
            parameters += b"\0" * (-len(parameters) % tensor_map.ALIGNMENT)
            parameters += recipe.encode(device, (addresses | program.scalars).__getitem__)
        elif argument.name in addresses:
            parameters += b"\0" * (-len(parameters) % 8) + struct.pack("<Q", addresses[argument.name])
        elif argument.attributes.get("programs"):
            parameters += struct.pack("<i", program.grid)
            grid = blocks(grid, MULTIPROCESSORS)
        else:
            parameters += struct.pack("<i", program.scalars[argument.name])
    kernel = device.load_module(ptx).function(function.name)
    shape = (grid[0] * function.attributes["num_ctas"], 1, 1), (threads_of(function), 1, 1)
    kernel.launch(*shape, function.attributes.get("shared_bytes", 0), 0, parameters)
    return {name: array.numpy() for name, array in placed.items()}


def compare(
    program: Program, what: str, expected: dict[str, np.ndarray], actual: dict[str, np.ndarray]
) -> None:
    for name, array in expected.items():
        tolerance = 2e-3 if name in program.inexact else 0.0
        np.testing.assert_allclose(
            actual[name].astype(np.float64), array.astype(np.float64), rtol=tolerance, atol=tolerance,
            err_msg=f"array '{name}', {what}")  # fmt: skip


if __name__ == "__main__":
    chosen = generate(int(sys.argv[1]))
    print(chosen.source)
    with tempfile.TemporaryDirectory() as place:
        check(chosen, load([chosen], Path(place))[chosen.name])
