"""What the code of the tensor core kernels must not do: spill, meet bank conflicts, or send through shared
memory in a loop what can stay in registers. The configurations are among those that the benchmarks measure.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.assembly import spilled_bytes
from tests.kernels.tensor_core import Configuration, kernels, loops, matmul


def attention(depth, tile, num_warps, num_stages, causal=False) -> Configuration:
    rows, columns = tile
    length = 2 * rows
    q, k, v, out = (np.zeros((1, 1, length, depth), np.float16) for _ in range(4))
    arguments = {"q": q, "k": k, "v": v, "out": out, "scale": 0.1, "heads": 16, "length": length}
    arguments |= {"stride_b": 16 * length * depth, "stride_h": length * depth, "stride_l": depth}
    constants = {"BLOCK_M": rows, "BLOCK_N": columns, "D": depth, "CAUSAL": causal}
    instructions = 2 * (rows // 16) * (columns // 8) * (depth // 16) // num_warps
    copies = 2 * columns * depth * 2 // (16 * 32 * num_warps)
    loops = 2 if causal else 1
    return Configuration(
        kernels.attention, arguments, constants, num_warps, num_stages, instructions, copies, loops
    )


CONFIGURATIONS = {
    "f16-NN-128x256x64": matmul(np.float16, (128, 256, 64), 8, 3, "NN", 16),
    "f16-NT-128x256x64": matmul(np.float16, (128, 256, 64), 8, 3, "NT", 16),
    "f16-NN-128x128x32": matmul(np.float16, (128, 128, 32), 4, 4, "NN", 16),
    "f16-TN-128x128x32": matmul(np.float16, (128, 128, 32), 4, 4, "TN", 16),
    "f16-TT-128x128x32": matmul(np.float16, (128, 128, 32), 4, 4, "TT", 16),
    "f16-NN-16x64x128": matmul(np.float16, (16, 64, 128), 4, 4, "NN", 16),
    "bf16-NN-128x256x64": matmul(ml_dtypes.bfloat16, (128, 256, 64), 8, 3, "NN", 16),
    "tf32-NN-128x256x32": matmul(np.float32, (128, 256, 32), 8, 3, "NN", 8),
    "tf32-NN-128x128x32": matmul(np.float32, (128, 128, 32), 4, 3, "NN", 8),
    "tf32-NT-128x128x32": matmul(np.float32, (128, 128, 32), 4, 3, "NT", 8),
    "tf32-TN-128x128x32": matmul(np.float32, (128, 128, 32), 4, 3, "TN", 8),
    "tf32-TT-128x128x32": matmul(np.float32, (128, 128, 32), 4, 3, "TT", 8),
    "i8-NN-128x256x128": matmul(np.int8, (128, 256, 128), 8, 3, "NN", 32),
    "i8-NT-128x256x128": matmul(np.int8, (128, 256, 128), 8, 3, "NT", 32),
    "i8-TN-128x128x64": matmul(np.int8, (128, 128, 64), 4, 3, "TN", 32),
    "i8-TT-128x128x64": matmul(np.int8, (128, 128, 64), 4, 3, "TT", 32),
    "e4m3-NN-128x128x64": matmul(ml_dtypes.float8_e4m3fn, (128, 128, 64), 8, 3, "NN", 32),
    "e4m3-NT-128x128x64": matmul(ml_dtypes.float8_e4m3fn, (128, 128, 64), 8, 3, "NT", 32),
    "e4m3-TN-128x128x64": matmul(ml_dtypes.float8_e4m3fn, (128, 128, 64), 8, 3, "TN", 32),
    "e4m3-TT-128x128x64": matmul(ml_dtypes.float8_e4m3fn, (128, 128, 64), 8, 3, "TT", 32),
    "attention-128": attention(128, (128, 64), 8, 2),
    "attention-128-causal": attention(128, (128, 32), 8, 3, causal=True),
    "attention-64": attention(64, (128, 64), 4, 2),
    "attention-64-causal": attention(64, (64, 64), 4, 3, causal=True),
}
WORDS_ACROSS = {"tf32-NN": {"v2"}, "tf32-TN": {"v2", "b32"}, "tf32-TT": {"v2"}, "ieee-NN": {"v4"}}
"""``ldmatrix`` transposes no 32-bit elements: those that lie across are read in pairs (on the left) or one by
one (on the right), as the instructions want them in registers."""


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def launched(request):
    """(name, configuration, the emulator after a launch, PTX)."""
    configuration = CONFIGURATIONS[request.param]
    return request.param, configuration, *configuration.launch()


def test_nothing_spills(launched, tmp_path):
    assert spilled_bytes(launched[3], tmp_path) == 0


def test_there_are_no_bank_conflicts(launched):
    report = launched[2].last_report
    assert report.total.shared_requests > 0
    assert {line.text: line.bank_conflicts for line in report.lines if line.bank_conflicts} == {}


def test_the_loop_holds_nothing_but_its_work(launched):
    """Copies of 16 bytes, reads of fragments, products, one wait and one barrier."""
    name, configuration, _, ptx = launched
    bodies = loops(ptx)
    assert len(bodies) == configuration.loops
    for body in bodies:
        assert body.count("mma.sync") == configuration.mma
        assert body.count("cp.async.cg.shared.global") == configuration.copies
        assert body.count("cp.async.wait_group") == body.count("bar.sync") == 1
        assert "st.shared" not in body and "ld.global" not in body and "cp.async.ca" not in body
        assert set(re.findall(r"ld\.shared\.(v?\w+)", body)) == WORDS_ACROSS.get(name[:7], set())
        assert ("ldmatrix" in body) == (bool(configuration.mma) and not name.startswith("tf32-TN"))


def test_results_leave_in_wide_stores(launched):
    name, _, _, ptx = launched
    widths = re.findall(r"st\.global\.(?:\w+\.)*?(?:v(\d)\.)?b(\d+)", ptx)
    widths = {int(v or 1) * int(bits) // 8 for v, bits in widths}
    assert widths == {16}, name


def test_nothing_of_the_thread_waits_in_registers_for_the_loop_to_end(launched):
    """What is needed after the loop and follows from the thread's number is computed after it."""
    lines = launched[3].splitlines()
    labels = [i for i, line in enumerate(lines) if line.startswith("$for_") and "end" not in line]
    ends = [i for i, line in enumerate(lines) if re.search(r"bra(\.uni)? \$for_\d+;", line)]
    of_thread: set[str] = set()
    for line in lines[: labels[0]]:
        written, *read = registers_of(line) or [""]
        if "%tid.x" in line or of_thread.intersection(read):
            of_thread.add(written)
    in_loops = {r for a, b in zip(labels, ends) for line in lines[a:b] for r in registers_of(line)}
    behind: set[str] = set()
    for line in lines[ends[-1] + 1 :]:
        behind.update(registers_of(line))
    # The thread's number itself is where all else comes from.
    assert len((of_thread & behind) - in_loops) <= 1


def registers_of(line: str) -> list[str]:
    """The registers of an instruction, the written one first."""
    return re.findall(r"%[a-z]+\d+", line) if line.startswith("\t") and not line.startswith("\t.") else []
