"""Random programs, launched as users launch them, mean the same to the interpreter and to the PTX under the
emulator: one kind of them in each module of ``KINDS``. ``PTXFORGE_FUZZ`` multiplies the number of programs;
to look at one: ``python -m tests.fuzz.test_launched KIND SEED``.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import attrs
import numpy as np
import pytest

import ptxforge
from ptxforge import frontend, interpreter
from ptxforge.compiler import compile_function
from ptxforge.emulator import EmulatorDevice
from ptxforge.ir.parser import parse_function
from ptxforge.runtime.loaded import LoadedKernel
from ptxforge.support.errors import ArgumentError, OutOfResourcesError
from tests.assembling import assemble_now
from tests.fuzz import corners, crossings, products
from tests.fuzz.draw import LaunchedProgram
from tests.fuzz.kinds import KINDS, load

TIMES = int(os.environ.get("PTXFORGE_FUZZ", "1"))
SHARD = 6


SHARDS = [(kind, shard) for kind, (_, count) in KINDS.items() for shard in range(count * TIMES // SHARD)]


@pytest.mark.parametrize("kind, shard", SHARDS)
def test_executors_agree(kind, shard, tmp_path, devices):
    gpus = [device for device in devices if device.name != "emulator"]
    for seed in range(shard * SHARD, (shard + 1) * SHARD):
        program = KINDS[kind][0](seed)
        try:
            check(program, load(program, tmp_path), gpus)
        except Exception as fault:
            pytest.fail(f"{kind} {seed}: {type(fault).__name__}: {fault}\n{program.source}")


@pytest.mark.parametrize("seed", [168, 353])
def test_operands_without_elements(seed, tmp_path):
    """There is no tensor map of an operand whose rows have no elements, and the kernel was compiled for
    one."""
    program = products.generate(seed)
    kernel = load(program, tmp_path)
    check(program, kernel)
    assert not program.has_steps and program.scalars["K"] == 0
    made = compile_function(kernel, program.signature, {}, target=program.target, **program.options)
    assert made.tensor_maps


def test_copies_that_run_ahead_of_a_point_do_not_wrap(tmp_path):
    """Rows lie where 32 bits end, so that the loop without a mask would begin there."""
    program = crossings.generate(103)
    assert program.scalars["S"] == 2**31 - 1
    check(program, load(program, tmp_path))


@pytest.mark.parametrize("shard", range(6 * TIMES))
def test_tensors_that_begin_and_advance_by_no_multiple_of_16_bytes(shard, tmp_path):
    """A launch says which argument a descriptor cannot be made of, or the kernel is right as it is."""
    refused = 0
    for seed in range(shard * SHARD, (shard + 1) * SHARD):
        program = corners.generate(seed)
        kernel = ptxforge.jit(load(program, tmp_path))
        chosen = [name for name in program.arrays if name.startswith("x")][seed % 2 :][:1]
        refused += _refused(program, kernel, chosen, program.scalars, chosen)
        bases = kernel.variants[-1].artifact.promises
        strides = [promise.entry for promise in bases if promise.dimension >= 0]
        for name in strides:
            changed = program.scalars | {name: program.scalars[name] + 1}
            assert _refused(program, kernel, [], changed, [name]), f"{seed}: {name}"
            refused += 1
    assert refused or shard >= 6, "no launch was refused"


@pytest.mark.parametrize("seed", [48, 78])
def test_a_base_of_no_multiple_of_16_bytes_in_a_loop(seed, tmp_path):
    """A descriptor that is made in a loop, which may not run at all: nobody asks, and threads copy."""
    program = corners.generate(seed)
    kernel = ptxforge.jit(load(program, tmp_path))
    chosen = [name for name in program.arrays if name.startswith("x")][:1]
    assert not _refused(program, kernel, chosen, program.scalars, chosen)


def _refused(program: LaunchedProgram, kernel, moved: list[str], scalars: dict, named: list[str]) -> bool:
    """Whether a launch with these scalars, and these arrays one element behind a multiple of 16 bytes, raises
    an error that names one of ``named``; one that does not gives what it should."""
    arrays = {name: array.copy() for name, array in program.arrays.items()}
    for name in moved:
        arrays[name] = np.concatenate([arrays[name][:1], arrays[name]])[1:]
    device = EmulatorDevice(check="all", target=program.target)
    with ptxforge.use_device(device):
        try:
            kernel[(program.grid,)](*arrays.values(), *scalars.values(), **program.options)
        except ArgumentError as error:
            assert error.argument in named, error
            return True
    function = frontend.build(kernel, program.signature, {}, target=program.target, **program.options)
    compare("emulated", interpret(function, program), arrays, program.tolerance)
    assert not device.findings, "\n".join(map(str, device.findings))
    return False


_ARITHMETIC = re.compile(
    r"^\s*(?:@!?%\w+\s+)?((?:wgmma|mma|fma|add|sub|mul|div|ex2|lg2|tanh|rcp|max|min)\.\S*(?:f16|f32|f64)\S*)",
    re.MULTILINE,
)


@pytest.mark.parametrize(
    "kind, seed", [*(("attentions", s) for s in (0, 3, 23)), *(("loops", s) for s in (3, 5, 15, 23))]
)
def test_tensor_maps_change_no_bit(kind, seed, tmp_path, devices):
    """Tiles by TMA, and by what threads copy, of numbers whose sums are rounded."""
    program = KINDS[kind][0](seed)
    random = np.random.default_rng(seed)
    arrays = {
        name: random.standard_normal(array.shape).astype(array.dtype)
        if name.startswith("x") and array.dtype.kind not in "biu" else array
        for name, array in program.arrays.items()
    }  # fmt: skip
    program = attrs.evolve(program, arrays=arrays)
    kernel = load(program, tmp_path)
    forms = [
        compile_function(kernel, program.signature, {}, program.target, tensor_maps=maps, **program.options)
        for maps in (True, False)
    ]
    assert ["cp.async.bulk.tensor" in form.ptx for form in forms] == [True, False], "take another seed"
    by_tma, by_copies = (Counter(_ARITHMETIC.findall(form.ptx)) for form in forms)
    assert by_tma == by_copies, "the sums are others: take another seed"
    for device in devices:
        if device.name == "emulator":
            device = EmulatorDevice(check="all", target=program.target)
        one, other = (launch(kernel, form, program, device) for form in forms)
        for name, array in one.items():
            assert array.tobytes() == other[name].tobytes(), f"array '{name}' on {device.name}"


DRAWN = {  # kind: feature: how the text looks, and in how many of 300 programs it is at least
    "loops": {
        "warps that copy": (r"warp_specialize=True", 50),
        "flattened tiles": (r"flatten=True", 30),
        "unrolled loops": (r"loop_unroll_factor=[23]", 10),
        "depths of their own": (r"num_stages=", 50),
        "no step": (r"range\(0, 0,", 5),
        "wide indices": (r"int64", 40),
        "tiles over each other": (r"p - y \+", 5),
        "loops in loops without products": (r"for s .*\n(        .*\n)*        for t ", 30),
        "a while": (r"while ", 20),
    },
    "places": {
        "quotients and remainders": (r" (//|%) ", 200),
        "masks": (r"mask=", 200),
        "atomics": (r"atomic_", 60),
        "tiles that change in place": (r"changed = tl\.load\(o", 60),
    },
    "values": {
        "8-bit floats": (r"float8", 10),
        "divisions": (r" // ", 60),
        "rounding towards zero": (r"'rtz'", 1),
        "bits of another type": (r"bitcast=True", 30),
        "reductions of several values": (r"= tl\.(reduce|associative_scan)\(\(", 60),
        "sorts": (r"tl\.(sort|topk)\(", 30),
        "functions that are not inlined": (r"far", 10),
        "packed elements": (r"inline_asm", 5),
    },
    "pointers": {
        "exchanged pointers": (r"(p\d+), (p\d+) = \2, \1", 100),
        "chosen pointers": (r"tl\.where\(.*p\d+, p\d+\)|p\d+ if .* else p\d+", 80),
        "pointers made of integers": (r"\.to\(p\d+\.dtype\)", 30),
        "results of atomics": (r"acc \+= .*tl\.atomic_", 60),
    },
    "products": {
        "4-bit operands": (r"tl\.join\(low", 4),
        "scales by group": (r" - 2\) \* l\d+", 10),
        "8-bit floats": (r"max_num_imprecise_acc", 15),
        "sums that begin with something": (r"acc = (tl\.load|\(i)", 50),
        "halves": (r"one, other = tl\.split", 20),
        "descriptor stores": (r"\.store\(\[", 20),
    },
    "attentions": {
        "two loops": (r"middle = ", 60),
        "pages": (r"page = tl\.load", 20),
        "several heads": (r"for head in", 20),
        "warps that copy": (r"warp_specialize=True", 60),
    },
    "corners": {
        "three dimensions and more": (r"load\(\[[^,\]]*,[^,\]]*,", 40),
        "block pointers": (r"make_block_ptr", 80),
        "products": (r"tl\.dot\(tl\.reshape", 60),
        "rows that are scattered": (r"\.scatter\(", 20),
        "boxes added to memory": (r"\.atomic_", 15),
    },
    "truths": {
        "several values combined": (r"= tl\.(reduce|associative_scan)\(\(", 60),
        "matrices in a scan": (r"twin_matrices", 10),
        "dimensions in the middle": (r"tl\.\w+\(\w+, 1[,)].*\n(.*\n)*.*\[None, :, None", 10),
        "indices of extrema": (r"tl\.arg(max|min)\(|return_indices", 20),
        "sorts": (r"tl\.(sort|topk)\(", 30),
        "one element": (r"tl\.arange\(0, 1\)", 60),
        "places far from their base": (r"\.to\(tl\.(int64|uint32)\) \+ (f\d+|\d+)", 60),
        "other of another type": (r"other=v\d+", 30),
        "loads in loops": (r"for k.*\n( .*\n)*?        .*tl\.load\(", 60),
        "promises": (r"tl\.(assume|multiple_of|max_contiguous|max_constancy)\(", 60),
        "pointers that are exchanged or chosen": (r"(p\d+), (p\d+) = \2, \1|tl\.where\(k\d+ % 3 == 1, x", 15),
        "a while": (r"while ", 8),
    },
    "crowds": {
        "results": (r"old_\d+ = tl\.atomic_", 100),
        "16-bit swaps": (r"tl\.int16\)\n.*atomic_cas", 3),
        "masks": (r"atomic_.*mask=", 60),
        "tickets": (r"drawn_\d+ = tl\.atomic_add", 60),
        "locks": (r"while tl\.atomic_cas", 30),
        "ordered accesses": (r"tl\.atomic_load", 30),
    },
    "echoes": {
        "two parameters that are one": (r"\(o0, o1", 100),
        "products of what is stored": (r"tl\.dot\(tl\.load\(.*o[01] \+", 40),
        "block pointers": (r"make_block_ptr", 30),
        "pipelines": (r"num_stages=", 50),
        "loops in loops": (r"^        for ", 20),
    },
    "roundings": {
        "numbers that algebra would drop": (r" [+*-] \(-?[01]\.0\)", 30),
        "choices by comparisons": (r"tl\.where\(~?\(?v\d+ [<>!=]", 100),
        "opposites": (r"~\(v", 60),
        "8-bit floats": (r"float8", 60),
        "rounding towards zero": (r"'rtz'", 15),
        "NaN that win": (r"PropagateNan", 60),
        "loops": (r"for ", 15),
    },
    "flows": {
        "early exits": (r" (break|continue)\n", 100),
        "returns from functions": (r"        return", 100),
        "values that change places": (r"(\w), (\w) = \2, \1", 100),
        "loops that are unrolled": (r"static_range", 30),
    },
}


@pytest.mark.parametrize("kind", DRAWN)
def test_the_generator_draws_everything(kind):
    sources = [KINDS[kind][0](seed).source for seed in range(300)]
    for name, (text, least) in DRAWN[kind].items():
        count = sum(bool(re.search(text, source, re.MULTILINE)) for source in sources)
        assert count >= least, f"{name}: {count} programs"


def check(program: LaunchedProgram, kernel, gpus: list = ()) -> None:
    """Compare all executors with the tile IR as the frontend made it."""
    function = frontend.build(kernel, program.signature, {}, target=program.target, **program.options)
    expected = interpret(function, program)
    if program.expected is not None:
        compare("interpreted", program.expected, expected)
    for maps in (True, False) if program.seed % 8 == 0 else (True,):
        made = functools.partial(compile_function, kernel, program.signature, {}, tensor_maps=maps)
        try:
            artifact = made(target=program.target, **program.options)
        except OutOfResourcesError:
            continue
        if program.seed % 3 == 0:
            assemble_now(artifact.ptx)
        if program.has_steps or not artifact.tensor_maps:
            found = interpret(parse_function(artifact.asm["gpu"]), program)
            compare(f"interpreted after the passes, tensor_maps={maps}", expected, found, program.tolerance)
        emulator = EmulatorDevice(check="all", target=program.target)
        emulated = launch(kernel, artifact, program, emulator)
        compare(f"emulated, tensor_maps={maps}", expected, emulated, program.tolerance)
        assert not emulator.findings, "\n".join(map(str, emulator.findings))
        for gpu in gpus:
            artifact = made(target=gpu.target, **program.options)
            compare(
                f"on {gpu.name}, tensor_maps={maps}",
                expected,
                launch(kernel, artifact, program, gpu),
                program.tolerance,
            )


def interpret(function, program: LaunchedProgram) -> dict[str, np.ndarray]:
    copies = {id(array): array.copy() for array in program.arrays.values()}
    arrays = {name: copies[id(array)] for name, array in program.arrays.items()}
    interpreter.run(function, program.grid, arrays | program.scalars)
    return arrays


def launch(kernel, artifact, program: LaunchedProgram, device) -> dict[str, np.ndarray]:
    """The arrays behind a launch of the artifact; of the kernel where the artifact wants maps of tensors that
    may have no size, of which there are none: then that has to find another variant."""
    copies = {id(array): ptxforge.to_device(array, device) for array in program.arrays.values()}
    placed = {name: copies[id(array)] for name, array in program.arrays.items()}
    launched, options = LoadedKernel(artifact), {}
    if artifact.tensor_maps and not program.has_steps:
        launched, options = ptxforge.jit(kernel), program.options
    with mock.patch.object(device, "multiprocessors", 2):
        launched[(program.grid,)](*placed.values(), *program.scalars.values(), **options)
    return {name: array.numpy() for name, array in placed.items()}


def compare(
    what: str, expected: dict[str, np.ndarray], found: dict[str, np.ndarray], tolerance: float = 0.0
) -> None:
    for name, array in expected.items():
        actual = found[name]
        if array.dtype.kind not in "biu":
            with np.errstate(invalid="ignore"):  # of NaN that signal
                array, actual = array.astype(np.float64), actual.astype(np.float64)
        message = f"array '{name}', {what}"
        if tolerance:
            np.testing.assert_allclose(actual, array, tolerance, tolerance, err_msg=message)
        else:
            np.testing.assert_array_equal(actual, array, err_msg=message)


if __name__ == "__main__":
    chosen = KINDS[sys.argv[1]][0](int(sys.argv[2]))
    print(chosen.source, chosen.options, chosen.scalars, chosen.grid, chosen.target, sep="\n")
    with tempfile.TemporaryDirectory() as place:
        check(chosen, load(chosen, Path(place)))
