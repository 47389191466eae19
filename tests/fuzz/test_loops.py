"""Random loops of products mean the same to the interpreter and to the PTX under the emulator, launched as
users launch it. ``PTXFORGE_FUZZ`` multiplies the number of programs; to look at one: ``python -m
tests.fuzz.test_loops SEED``.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import ptxforge
from ptxforge import frontend, interpreter
from ptxforge.compiler import compile_function
from ptxforge.emulator import EmulatorDevice
from ptxforge.ir.parser import parse_function
from ptxforge.runtime.loaded import LoadedKernel
from ptxforge.support.errors import OutOfResourcesError
from tests.conftest import assemble_once
from tests.fuzz.loops import LoopProgram, generate

PROGRAMS = 48 * int(os.environ.get("PTXFORGE_FUZZ", "1"))
SHARD = 6
HEADER = "import ptxforge\nimport ptxforge.language as tl\n"


@pytest.mark.parametrize("shard", range(PROGRAMS // SHARD))
def test_executors_agree(shard, tmp_path, devices):
    gpus = [device for device in devices if device.name != "emulator"]
    for seed in range(shard * SHARD, (shard + 1) * SHARD):
        program = generate(seed)
        try:
            check(program, load(program, tmp_path), gpus)
        except Exception as fault:
            pytest.fail(f"seed {seed}: {type(fault).__name__}: {fault}\n{program.source}")


DRAWN = {  # feature: how the text looks, and in how many of 600 programs it is at least
    "warps that copy": (r"warp_specialize=True", 100),
    "flattened tiles": (r"flatten=True", 60),
    "unrolled loops": (r"loop_unroll_factor=[23]", 20),
    "depths of their own": (r"num_stages=", 100),
    "no step": (r"range\(0, 0,", 10),
    "wide indices": (r"int64", 80),
    "tiles over each other": (r"p - y \+", 10),
    "loops in loops without products": (r"for s .*\n(        .*\n)*        for t ", 60),
    "a while": (r"while ", 40),
}


def test_the_generator_draws_everything():
    sources = [generate(seed).source for seed in range(600)]
    for name, (text, least) in DRAWN.items():
        count = sum(bool(re.search(text, source)) for source in sources)
        assert count >= least, f"{name}: {count} programs"


def load(program: LoopProgram, folder: Path):
    """The kernel as a function, from a file, as the frontend wants to see its source."""
    path = folder / f"{program.name}.py"
    path.write_text(f"{HEADER}\n\n{program.source}\n")
    names = {"__name__": path.stem}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names[program.name]


def check(program: LoopProgram, kernel, gpus: list = ()) -> None:
    """Compare all executors with the tile IR as the frontend made it."""
    function = frontend.build(kernel, program.signature, {}, target=program.target, **program.options)
    expected = interpret(function, program)
    for maps in (True, False) if program.seed % 8 == 0 else (program.has_steps,):
        made = functools.partial(compile_function, kernel, program.signature, {}, tensor_maps=maps)
        try:
            artifact = made(target=program.target, **program.options)
        except OutOfResourcesError:
            continue
        if program.seed % 3 == 0:
            assemble_once(artifact.ptx)
        if not program.has_steps and artifact.tensor_maps:
            continue  # nothing is no tensor
        found = interpret(parse_function(artifact.asm["gpu"]), program)
        compare(f"interpreted after the passes, tensor_maps={maps}", expected, found)
        emulator = EmulatorDevice(check="all", target=program.target)
        compare(f"emulated, tensor_maps={maps}", expected, launch(artifact, program, emulator))
        assert not emulator.findings, "\n".join(map(str, emulator.findings))
        for gpu in gpus:
            artifact = made(target=gpu.target, **program.options)
            compare(f"on {gpu.name}, tensor_maps={maps}", expected, launch(artifact, program, gpu))


def interpret(function, program: LoopProgram) -> dict[str, np.ndarray]:
    arrays = {name: array.copy() for name, array in program.arrays.items()}
    interpreter.run(function, program.grid, arrays | program.scalars)
    return arrays


def launch(artifact, program: LoopProgram, device) -> dict[str, np.ndarray]:
    placed = {name: ptxforge.to_device(array, device) for name, array in program.arrays.items()}
    with mock.patch.object(device, "multiprocessors", 2):
        LoadedKernel(artifact)[(program.grid,)](*placed.values(), *program.scalars.values())
    return {name: array.numpy() for name, array in placed.items()}


def compare(what: str, expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=f"array '{name}', {what}")


if __name__ == "__main__":
    chosen = generate(int(sys.argv[1]))
    print(chosen.source, chosen.options, chosen.scalars, chosen.grid, chosen.target, sep="\n")
    with tempfile.TemporaryDirectory() as place:
        check(chosen, load(chosen, Path(place)))
