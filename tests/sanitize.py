"""A kernel of every kind under NVIDIA's ``compute-sanitizer``, at small sizes: no torch, no pytest.

    python -m tests.sanitize                                     every tool, every kernel
    python -m tests.sanitize --tool racecheck attention sort     one tool, some kernels

Each tool runs in a process of its own, all at the same time. It launches one kernel after the other; where a
kernel breaks the context, a new process goes on behind it. Findings stand below the kernel's name; the exit
status is 1 if there are any. ``tests/test_sanitize.py`` launches the same kernels on the emulator.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import ml_dtypes
import numpy as np

import ptxforge
import ptxforge.language as tl
from benchmarks.dialects import load
from ptxforge.runtime.tensor_descriptor import TensorDescriptor
from tests.kernels import specialized

kernels = load("ptxforge")
TOOLS = {
    "memcheck": ("--leak-check", "no"),
    "racecheck": (),
    "synccheck": (),
    "initcheck": (),
}
"""What each is told beside its name."""
MOST_LINES = 24
"""Of what a tool says of one kernel."""
LOG2_E = 1.4426950408889634


@attrs.frozen
class Launch:
    """One launch: a kernel, its arguments (arrays of numpy and descriptors of such, which are put on the
    device), constants and options."""

    kernel: Callable
    grid: tuple[int, ...]
    arguments: list
    constants: dict
    options: dict = attrs.field(factory=dict)

    def on(self, device) -> None:
        """Run it there."""
        kept: list = []
        arguments = [_placed(argument, device, kept) for argument in self.arguments]
        ptxforge.compile(self.kernel)[self.grid](*arguments, **self.constants, **self.options)
        device.synchronize()


@attrs.frozen
class Addresses:
    """An array of the addresses of ``arrays``."""

    arrays: list[np.ndarray]


def _placed(value, device, kept: list):
    """An argument, on the device; ``kept`` holds what only addresses lead to."""
    if isinstance(value, Addresses):
        kept += (placed := [ptxforge.to_device(array, device) for array in value.arrays])
        value = np.array([array.data_ptr() for array in placed], np.int64)
    if isinstance(value, TensorDescriptor):
        return attrs.evolve(value, base=ptxforge.to_device(value.base, device))
    return ptxforge.to_device(value, device) if isinstance(value, np.ndarray) else value


def _numbers(*shape: int, dtype=np.float16) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 7 - 3).reshape(shape).astype(dtype)


# -- kernels -------------------------------------------------------------------------------------------------


@ptxforge.jit
def sorted_rows(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    tl.store(y + row + i, tl.sort(tl.load(x + row + i, mask=i < n, other=127)), mask=i < n)


@ptxforge.jit
def scanned_rows(x, y, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Both directions, along rows of a tile and across them."""
    at = tl.arange(0, ROWS)[:, None] * n + tl.arange(0, BLOCK)[None, :]
    tile = tl.load(x + at)
    tile = tl.cumsum(tile, 1) + tl.cumsum(tile, 0, reverse=True) + tl.cumprod(tl.minimum(tile, 1), 1)
    tl.store(y + at, tile)


@ptxforge.jit
def counted(x, y, old, BLOCK: tl.constexpr):
    """A histogram of a tile, atomics with and without a result, one that swaps."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i) + 3
    tl.atomic_add(y + tl.arange(0, 8), tl.histogram(value, 8))
    tl.store(old + i, tl.atomic_max(y + 8 + value, i))
    tl.atomic_cas(y + 16, 0, 1)


@ptxforge.jit
def gathered(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tile = tl.load(x + i[:, None] * BLOCK + i[None, :])
    picked = tl.gather(tile, tl.broadcast_to((BLOCK - 1 - i)[:, None], (BLOCK, BLOCK)), 0)
    tl.store(y + i[:, None] * BLOCK + i[None, :], tl.trans(picked) + tl.reshape(tile, (BLOCK, BLOCK)))


@ptxforge.jit
def ragged_groups(x, y, out, starts, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Products through tensor maps that the kernel makes of sizes in memory; results by such, too."""
    g, column = tl.program_id(0), tl.program_id(1) * BN
    begin, end, depth = tl.load(starts + g), tl.load(starts + g + 1), tl.load(starts + 3)
    left = tl.make_tensor_descriptor(x + begin * K, [end - begin, depth], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(y + g * N * K, [N, depth], [K, 1], [BN, BK])
    result = tl.make_tensor_descriptor(out + begin * N, [end - begin, N], [N, 1], [BM, BN])
    for row in range(0, end - begin, BM):
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            acc = tl.dot(left.load([row, k * BK]), right.load([column, k * BK]).T, acc)
        result.store([row, column], acc.to(tl.float16))


@ptxforge.jit
def added_boxes(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Tiles that TMA stores, and adds to what is there."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [BM, BN])
    stored = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    tile = source.load([row, column])
    stored.atomic_add([row, column], tile)


WIDE = (128, 256, 64)
SMALL = (64, 64, 32)


# -- launches ------------------------------------------------------------------------------------------------


def _product(m: int, n: int, k: int, block: tuple[int, int, int], kernel=None, grid=None, dtype=np.float16,
             layout: str = "NN", **options) -> Launch:  # fmt: skip
    a, b, c = _numbers(m, k, dtype=dtype), _numbers(k * n, dtype=dtype), np.zeros((m, n), np.float16)
    strides = (n, 1) if layout == "NN" else (1, k)
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), block))
    constants |= {"GROUP_M": 2, "PRECISION": "tf32", "EVEN_K": k % block[2] == 0}
    grid = grid or (-(-m // block[0]) * -(-n // block[1]),)
    arguments = [a, b, c, m, n, k, k, 1, *strides, n, 1]
    return Launch(kernel or kernels.matmul, grid, arguments, constants, options)


def _masked_product() -> Launch:
    m, n, k = 128, 256, 256
    kept, c = np.arange(k, dtype=np.uint8) % 3, np.zeros((m, n), np.float16)
    arguments = [_numbers(m, k), _numbers(k, n), kept, c]
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), WIDE)) | {"GROUP_M": 1}
    return Launch(kernels.matmul_kept, (1,), [*arguments, m, n, k, k, n, n], constants, {"num_warps": 8})


def _integer_product() -> Launch:
    m, n, k = 128, 128, 128
    arguments = [_numbers(m, k, dtype=np.int8), _numbers(n, k, dtype=np.int8), np.zeros((m, n), np.int32)]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2}
    return Launch(kernels.matmul_int8, (4,), [*arguments, m, n, k, k, 1, 1, k, n, 1], constants)


def _descriptors() -> Launch:
    of = TensorDescriptor.from_tensor
    operands = [of(_numbers(200, 96), [64, 32]), of(_numbers(144, 96), [64, 32])]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2}
    result = of(np.zeros((200, 144), np.float16), [64, 64])
    return Launch(kernels.matmul_descriptors, (3,), [*operands, result, 200, 144, 96], constants)


def _specialized(kernel, block: tuple[int, int, int] = SMALL, warp_copies: bool = True, **options) -> Launch:
    a, b, c = _numbers(256, 192), _numbers(192, 128), np.zeros((256, 128), np.float32)
    constants = dict(zip(("BM", "BN", "BK"), block)) | {"WS": warp_copies}
    if kernel is specialized.product:
        return Launch(kernel, (4, 2), [a, b, c, 256, 128, 192], constants)
    constants |= {"PROGRAMS": 1, "FLATTEN": True, "INNER": False, "TRIANGLE": False}
    tiles = 256 * 128 // (block[0] * block[1])
    return Launch(kernel, (1,), [a, b, c, 256, 128, 192, tiles], constants, options)


def _attention(depth: int, block: tuple[int, int], causal: bool, **options) -> Launch:
    length = 256
    q, k, v = (_numbers(1, 2, length, depth) for _ in range(3))
    sizes = [LOG2_E * depth**-0.5, 2, length, 2 * length * depth, length * depth, depth]
    constants = {"BLOCK_M": block[0], "BLOCK_N": block[1], "D": depth, "CAUSAL": causal}
    grid = (length // block[0], 2)
    return Launch(kernels.attention, grid, [q, k, v, np.zeros_like(q), *sizes], constants, options)


def _gradients(name: str, depth: int, block: int, step: int, causal: bool, **options) -> Launch:
    length = 256
    inputs = [_numbers(1, 2, length, depth) for _ in range(4)]
    inputs += [_numbers(2, length, dtype=np.float32) for _ in range(2)]
    results = [np.zeros((1, 2, length, depth), np.float16) for _ in range(2 if name == "columns" else 1)]
    sizes = [1.0, LOG2_E, 2, length, 2 * length * depth, length * depth, depth]
    names = ("BLOCK_N", "STEP_M") if name == "columns" else ("BLOCK_M", "STEP_N")
    constants = dict(zip(names, (block, step))) | {"D": depth, "CAUSAL": causal}
    kernel = getattr(kernels, f"attention_{name}")
    return Launch(kernel, (length // block, 2), [*inputs, *results, *sizes], constants, options)


def _all_gradients(depth: int, block: int, step: int, **options) -> Launch:
    """Those of keys, values and queries in one kernel."""
    length = 256
    inputs = [_numbers(1, 2, length, depth) for _ in range(4)]
    inputs += [_numbers(2, length, dtype=np.float32) for _ in range(2)]
    sums = TensorDescriptor.from_tensor(np.zeros((2 * length, depth), np.float32), [step, depth])
    results = [sums, *(np.zeros((1, 2, length, depth), np.float16) for _ in range(2))]
    sizes = [1.0, LOG2_E, 2, length, 2 * length * depth, length * depth, depth]
    constants = {"BLOCK_N": block, "STEP_M": step, "D": depth}
    constants |= {"CAUSAL": True, "STAGES": 2, "SPECIALIZED": True}
    arguments = [*inputs, *results, *sizes]
    return Launch(kernels.attention_gradients, (length // block, 2), arguments, constants, options)


def _grouped() -> Launch:
    sizes = ((64, 128, 96), (128, 64, 32), (64, 64, 128))
    a, b, c = (Addresses([_numbers(size[i], size[j]) for size in sizes]) for i, j in ((0, 2), (2, 1), (0, 1)))
    strides = np.array([(k, n, n) for m, n, k in sizes], np.int32)
    constants = {"PROGRAMS": 3, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    return Launch(kernels.grouped_matmul, (3,), [a, b, c, np.array(sizes, np.int32), strides, 3], constants)


def _ragged() -> Launch:
    starts = np.array([0, 70, 200, 60], np.int32)
    arguments = [_numbers(200, 64), _numbers(2, 128, 64), np.zeros((200, 128), np.float16), starts, 128, 64]
    return Launch(ragged_groups, (2, 2), arguments, {"BM": 64, "BN": 64, "BK": 32})


def _weights() -> Launch:
    m, n, k = 128, 128, 128
    arguments = [_numbers(m, k), _numbers(n, k, dtype=np.int8), _numbers(n, dtype=np.float32)]
    arguments += [np.zeros((m, n), np.float16), m, n, k, k, 1, 1, k, n, 1]
    constants = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 2}
    return Launch(kernels.matmul_weights, (4,), arguments, constants)


def _split() -> Launch:
    m, n, k = 16, 128, 256
    arguments = [_numbers(m, k), _numbers(k, n), np.zeros((m, n), np.float32), m, n, k, k, 1, n, 1, n, 1]
    constants = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 32, "SPLIT_K": 2}
    return Launch(kernels.matmul_split_k, (2, 2), arguments, constants)


def _rows(kernel, columns: int, *rest, **options) -> Launch:
    x = _numbers(3, columns, dtype=np.float32)
    block = {"BLOCK": 1 << (columns - 1).bit_length()}
    return Launch(kernel, (3,), [np.zeros_like(x), x, *rest], block, options)


def _layer_norm() -> Launch:
    columns = 1000
    weights = [_numbers(columns, dtype=np.float32) for _ in range(2)]
    return _rows(kernels.layer_norm, columns, *weights, columns, columns, 1e-5)


def _integers(kernel, *rest, rows: int, columns: int, more: int = 1, **constants) -> Launch:
    x = _numbers(rows, columns, dtype=np.int32)
    return Launch(kernel, (more,), [x, np.zeros_like(x), *rest], constants)


LAUNCHES: dict[str, Callable[[], Launch]] = {
    "softmax": lambda: _rows(kernels.softmax, 1000, 1000, 1000),
    "layer norm": _layer_norm,
    "transpose": lambda: Launch(
        kernels.transpose, (4, 2), [np.zeros((100, 120), np.float32), _numbers(120, 100, dtype=np.float32),
                                    120, 100], {"BLOCK_M": 32, "BLOCK_N": 64}),
    "scan": lambda: _integers(scanned_rows, 128, rows=16, columns=128, ROWS=16, BLOCK=128),
    "long scan": lambda: _rows(kernels.cumsum, 2000, 2000),
    "sort": lambda: _integers(sorted_rows, 500, rows=3, columns=500, more=3, BLOCK=512),
    "gather": lambda: _integers(gathered, rows=64, columns=64, BLOCK=64),
    "atomics": lambda: _integers(
        counted, np.zeros((2, 256), np.int32), rows=2, columns=256, more=2, BLOCK=256),
    "product made persistent": lambda: _product(300, 512, 192, WIDE, num_warps=8, num_stages=3),
    "persistent product": lambda: _product(
        200, 136, 96, SMALL, kernels.matmul_persistent, (3,), layout="NT"),
    "product by cp.async": lambda: _product(200, 136, 96, SMALL, tensor_maps=False, num_stages=3),
    "product of unaligned rows": lambda: _product(70, 67, 45, SMALL),
    "product of rows loaded ahead": lambda: _product(200, 133, 165, (128, 128, 32), num_warps=4),
    "product of masked columns": _masked_product,
    "product by mma.sync": lambda: _product(40, 40, 64, (16, 32, 32)),
    "product of fp8": lambda: _product(
        128, 128, 128, (64, 64, 64), dtype=ml_dtypes.float8_e4m3fn, layout="NT"),
    "product of tf32": lambda: _product(128, 128, 96, (64, 64, 32), dtype=np.float32, layout="NT"),
    "product of tf32 across k": lambda: _product(256, 128, 96, (128, 64, 32), dtype=np.float32, num_warps=8),
    "product of int8": _integer_product,
    "product of widened weights": _weights,
    "product with a warp that copies": lambda: _specialized(specialized.product),
    "tiles with a warp that copies": lambda: _specialized(specialized.walking),
    "tiles dealt out to two groups": lambda: _specialized(
        specialized.walking, (128, 64, 128), num_warps=4, num_stages=4),
    "product by descriptors": _descriptors,
    "split product": _split,
    "grouped product": _grouped,
    "maps made in the kernel": _ragged,
    "boxes added by TMA": lambda: Launch(
        added_boxes, (2, 2), [_numbers(100, 128, dtype=np.float32), _numbers(100, 128, dtype=np.float32),
                              100, 128], {"BM": 64, "BN": 64}),
    "attention": lambda: _attention(64, (128, 64), False, num_warps=8, num_stages=3),
    "attention of four warps": lambda: _attention(64, (64, 64), True, num_warps=4, num_stages=2),
    "attention with a warp that copies": lambda: _attention(128, (128, 128), True, num_warps=8, num_stages=2),
    "attention by cp.async": lambda: _attention(64, (64, 64), False, num_warps=4, tensor_maps=False),
    "gradients of keys": lambda: _gradients("columns", 64, 64, 64, True, num_warps=4, num_stages=3),
    "gradients of queries": lambda: _gradients("rows", 128, 128, 64, True, num_warps=8, num_stages=2),
    "gradients in one kernel": lambda: _all_gradients(64, 128, 64, num_warps=8),
    "softmax by a cluster": lambda: _rows(kernels.softmax, 1000, 1000, 1000, num_ctas=4),
    "product by a cluster": lambda: _product(128, 256, 192, (128, 128, 64), num_ctas=2),
    "tiles by a cluster": lambda: _specialized(
        specialized.walking, (64, 128, 32), False, num_warps=4, num_ctas=2),
    "attention by a cluster": lambda: _attention(64, (128, 64), True, num_warps=4, num_ctas=2),
}  # fmt: skip


# -- running -------------------------------------------------------------------------------------------------


def launch(names: list[str]) -> None:
    """Run them on the GPU, each behind a line that says so."""
    from ptxforge.driver.cuda import cuda_device

    device = cuda_device(0)
    for name in names:
        print(f"\n@@ {name}", flush=True)
        LAUNCHES[name]().on(device)
        print("\n@@ done", flush=True)


def findings(text: str) -> dict[str, list[str]]:
    """What a tool has printed between the lines of :func:`launch`, by the name of the kernel; the last one's
    ends with ``unfinished`` if its launch has not."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("@@ "):
            name = name if line == "@@ done" else line[3:]
            found.setdefault(name, [])
        elif name and line.startswith("=========") and line.strip("= "):
            found[name].append(line.strip("= "))
    ends, begins = text.count("\n@@ done"), len(found)
    if name and ends < begins:
        last = [line for line in text.splitlines() if line.strip()][-1]
        found[name].append(f"unfinished: {last[:200]}")
    return found


def under(tool: str, names: list[str], seconds: float) -> Iterator[tuple[str, list[str]]]:
    """Each kernel's name with what the tool says of it, in ``seconds`` altogether."""
    left, end = list(names), time.monotonic() + seconds
    while left and time.monotonic() < end:
        command = ["compute-sanitizer", "--tool", tool, *TOOLS[tool], "--print-limit", "300", sys.executable,
                   "-m", "tests.sanitize", "--launch", *left]  # fmt: skip
        environment = os.environ | {"PTXFORGE_CACHE_DIR": "off", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
            cwd=Path(__file__).parents[1], start_new_session=True,
        )  # fmt: skip
        try:
            text, _ = process.communicate(timeout=end - time.monotonic())
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the tool and what it runs
            text, _ = process.communicate()
        found = findings(text)
        if not found:
            yield left[0], [f"unfinished: {text.strip()[-300:]}"]
            return
        yield from found.items()
        left = left[len(found) :]
    yield from ((name, ["not run: the time is over"]) for name in left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="kernel", help=", ".join(LAUNCHES))
    parser.add_argument("--tool", choices=TOOLS, action="append", help="one of them; again for another")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long a tool may take")
    parser.add_argument("--launch", action="store_true", help="only launch them, in this process")
    options = parser.parse_args()
    names = options.names or list(LAUNCHES)
    if options.launch:
        launch(names)
        return 0
    if shutil.which("compute-sanitizer") is None:
        parser.error("compute-sanitizer is not installed; it comes with CUDA's toolkit")
    tools = options.tool or list(TOOLS)
    with ThreadPoolExecutor() as pool:
        runs = pool.map(lambda tool: list(under(tool, names, options.seconds)), tools)
    bad = 0
    for tool, found in zip(tools, runs):
        clean = [name for name, lines in found if not any(map(is_finding, lines))]
        print(f"{tool}: {len(clean)} of {len(names)} kernels clean")
        for name, lines in found:
            if name not in clean:
                bad += 1
                print(f"  {name}", *lines[:MOST_LINES], sep="\n      ")
    return int(bad > 0)


def is_finding(line: str) -> bool:
    """Whether a line is more than a heading or a summary without errors."""
    return not re.match(r"COMPUTE-SANITIZER|ERROR SUMMARY: 0|RACECHECK SUMMARY: 0|Target|$", line)


if __name__ == "__main__":
    sys.exit(main())
