"""Kernels with products, one block of each on an emulator that counts, and the loops of their PTX."""

from __future__ import annotations

import re

import attrs
import ml_dtypes
import numpy as np

import ptxforge
from benchmarks.dialects import load
from ptxforge.emulator import EmulatorDevice

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


def loops(ptx: str) -> list[str]:
    """The text of each loop, from its label to the branch back."""
    found = re.findall(r"^(\$for_\d+):\n(.*?)^\s*@?\S*\s*bra(?:\.uni)? \1;", ptx, re.MULTILINE | re.DOTALL)
    return [text for _, text in found]


def body_of(ptx: str) -> str:
    """What stands between the label of the only loop and the branch back to it."""
    label = re.search(r"^(\$for_\d+):", ptx, re.MULTILINE)
    return ptx[label.end() : ptx.index(f"{label[1]};", label.end())]


def events(loop: str) -> str:
    """Products started (S), waits for them (W and how many may be unfinished), barriers (B), copies (C), and
    exponentials (E)."""
    kinds = {"wgmma.commit": "S", "wgmma.wait": "W", "bar.sync": "B", "cp.async.bulk": "C", "ex2": "E"}
    found = []
    for line in loop.splitlines():
        text = re.sub(r"^\s*(@!?%\w+\s+)?", "", line)
        kind = next((kinds[start] for start in kinds if text.startswith(start)), None)
        if kind == "W":
            kind += text.split()[1].rstrip(";")
        if kind is not None and not (kind in "EC" and found and found[-1] == kind):
            found.append(kind)
    return " ".join(found)
