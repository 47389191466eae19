"""What the code of the tensor core kernels must not do: spill, meet bank conflicts, or send through shared
memory in a loop what can stay in registers. The configurations are among those that the benchmarks measure.
"""

from __future__ import annotations

import re

import attrs
import ml_dtypes
import numpy as np
import pytest

import ptxforge
from benchmarks.dialects import load
from ptxforge.emulator import EmulatorDevice
from tests.kernels.assembly import spilled_bytes

kernels = load("ptxforge")


@attrs.frozen(eq=False)
class Configuration:
    """A kernel, what it is launched with, and what one pass through its loop takes of a warp: ``mma``
    instructions, and 16-byte copies."""

    kernel: ptxforge.JITFunction
    arguments: dict[str, object]
    constants: dict[str, object]
    num_warps: int
    num_stages: int
    mma: int
    copies: int
    loops: int = 1
    target: str = "sm_80"

    def launch(self) -> tuple[EmulatorDevice, str]:
        """One block on an emulator that counts; and the PTX."""
        device = EmulatorDevice(target=self.target, counters=True)
        arguments = {
            name: ptxforge.to_device(value, device) if isinstance(value, np.ndarray) else value
            for name, value in self.arguments.items()
        }
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        compiled = self.kernel[1, 1](**arguments, **self.constants, **options)
        return device, compiled.asm["ptx"]


def matmul(dtype, tile, num_warps, num_stages, layout, depth, precision="tf32") -> Configuration:
    """A product of one tile; ``layout`` says which of A and B are transposed (T) in memory, ``depth`` is the
    extent of one ``mma`` along k (0: the product is not done by one, and ``copies`` mean nothing)."""
    m, n, block_k = tile
    k = 2 * block_k
    a, b = np.zeros((m, k), dtype), np.zeros((k, n), dtype)
    whole, fp8 = dtype is np.int8, dtype is ml_dtypes.float8_e4m3fn
    result = np.int32 if whole else np.float32 if fp8 else dtype
    arguments = {"a": a, "b": b, "c": np.zeros((m, n), result), "M": m, "N": n, "K": k}
    am, ak = (k, 1) if layout[0] == "N" else (1, m)
    bk, bn = (n, 1) if layout[1] == "N" else (1, k)
    arguments |= {"stride_am": am, "stride_ak": ak, "stride_bk": bk, "stride_bn": bn}
    arguments |= {"stride_cm": n, "stride_cn": 1}
    constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": block_k, "GROUP_M": 8}
    constants |= {} if whole else {"PRECISION": precision}
    instructions = m // 16 * (n // 8) * (block_k // depth) // num_warps if depth else 0
    copies = (m + n) * block_k * a.itemsize // (16 * 32 * num_warps)
    kernel = kernels.matmul_int8 if whole else kernels.matmul
    target = "sm_89" if fp8 else "sm_80"
    return Configuration(
        kernel, arguments, constants, num_warps, num_stages, instructions, copies, target=target
    )


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


def loops(ptx: str) -> list[str]:
    """The text of each loop, from its label to the branch back."""
    found = re.findall(r"^(\$for_\d+):\n(.*?)^\s*@?\S*\s*bra(?:\.uni)? \1;", ptx, re.MULTILINE | re.DOTALL)
    return [text for _, text in found]


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
