"""Benchmarks of kernels without tensor cores: what is measured, at what size, in what unit.

A :class:`Case` makes its data on the GPU with torch, launches the kernel of either dialect with each of a few
configurations (the best counts, for both compilers alike) and knows torch's own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch


@attrs.frozen
class Case:
    """One benchmark. ``work`` is bytes moved (unit GB/s) or floating-point operations
    (unit TFLOP/s) of one run."""

    name: str
    unit: str
    work: float
    make: Callable[[], dict[str, Any]]
    launch: Callable[[Any, dict[str, Any], dict[str, Any]], None]
    configurations: list[dict[str, Any]]
    torch: Callable[[dict[str, Any]], Any]
    check: Callable[[dict[str, Any]], tuple[Any, Any]]
    tolerance: float
    in_graph: bool = False
    """Launches follow each other in a CUDA graph, the L2 cache warm; else it is flushed before each."""
    clean_cache: bool = False
    """What flushes the L2 cache is read again before each launch, so that nothing in it waits to be written:
    for kernels that take about as long as writing it."""


def _block(columns: int) -> int:
    return 1 << (columns - 1).bit_length()


def random_tensor(*shape: int, dtype: Any) -> Any:
    """Normally distributed numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def empty_tensor(*shape: int, dtype: Any = torch.float32) -> Any:
    """Memory on the GPU."""
    return torch.empty(*shape, device="cuda", dtype=dtype)


def _add() -> Case:
    n = 1 << 27

    def launch(kernels, data, config):
        grid = (-(-n // config["BLOCK"]),)
        kernels.add[grid](
            data["x"], data["y"], data["out"], n, BLOCK=config["BLOCK"], num_warps=config["num_warps"]
        )

    return Case(
        "add f32 2^27", "GB/s", 3 * 4 * n,
        lambda: {"x": random_tensor(n, dtype=torch.float32), "y": random_tensor(n, dtype=torch.float32),
                 "out": empty_tensor(n)},
        launch, [{"BLOCK": b, "num_warps": w} for b, w in ((1024, 4), (1024, 8), (2048, 8), (4096, 8))],
        lambda d: torch.add(d["x"], d["y"], out=d["out"]), lambda d: (d["out"], d["x"] + d["y"]), 0.0,
    )  # fmt: skip


def _softmax(rows: int, columns: int, dtype: Any, label: str) -> Case:
    def launch(kernels, data, config):
        sizes = {"BLOCK": _block(columns), **config}
        kernel, programs = kernels.softmax, rows
        if "ROWS" in config:
            kernel, programs = kernels.softmax_rows, rows // config["ROWS"]
        kernel[(programs,)](data["out"], data["x"], columns, columns, **sizes)

    configs = [{"num_warps": w} for w in (1, 2, 4, 8, 16)]
    configs += [{"ROWS": r, "num_warps": w} for r, w in ((2, 4), (2, 8), (4, 8), (4, 16)) if rows % r == 0]
    return Case(
        f"softmax {label} {rows}x{columns}", "GB/s", 2 * rows * columns * dtype.itemsize,
        lambda: {"x": random_tensor(rows, columns, dtype=dtype),
                 "out": empty_tensor(rows, columns, dtype=dtype)},
        launch, configs,
        lambda d: torch.softmax(d["x"], 1), lambda d: (d["out"], torch.softmax(d["x"].float(), 1)),
        1e-5 if dtype == torch.float32 else 1e-2,
    )  # fmt: skip


def _layer_norm(rows: int, columns: int, dtype: Any, label: str) -> Case:
    def launch(kernels, data, config):
        kernels.layer_norm[(rows,)](
            data["out"], data["x"], data["weight"], data["bias"], columns, columns, 1e-5,
            BLOCK=_block(columns), num_warps=config["num_warps"],
        )  # fmt: skip

    def reference(d):
        return torch.nn.functional.layer_norm(d["x"], (columns,), d["weight"], d["bias"], 1e-5)

    return Case(
        f"layer norm {label} {rows}x{columns}", "GB/s", 2 * rows * columns * dtype.itemsize,
        lambda: {"x": random_tensor(rows, columns, dtype=dtype),
                 "weight": random_tensor(columns, dtype=dtype), "bias": random_tensor(columns, dtype=dtype),
                 "out": empty_tensor(rows, columns, dtype=dtype)},
        launch, [{"num_warps": w} for w in (1, 2, 4, 8, 16)], reference,
        lambda d: (d["out"], reference(d).float()),
        1e-4 if dtype == torch.float32 else 4e-2,
    )  # fmt: skip


def _transpose(dtype: Any, label: str) -> Case:
    size = 8192

    def launch(kernels, data, config):
        m, n = config["BLOCK_M"], config["BLOCK_N"]
        kernels.transpose[(size // m, size // n)](
            data["out"], data["x"], size, size, BLOCK_M=m, BLOCK_N=n, num_warps=config["num_warps"]
        )

    return Case(
        f"transpose {label} {size}x{size}", "GB/s", 2 * size * size * dtype.itemsize,
        lambda: {"x": random_tensor(size, size, dtype=dtype), "out": empty_tensor(size, size, dtype=dtype)},
        launch, [{"BLOCK_M": m, "BLOCK_N": n, "num_warps": w} for m, n, w in
                 ((32, 32, 4), (64, 64, 4), (64, 64, 8), (128, 64, 8), (64, 128, 8), (128, 128, 8))],
        lambda d: d["x"].t().contiguous(), lambda d: (d["out"], d["x"].t()), 0.0,
    )  # fmt: skip


def _column_sum() -> Case:
    rows, columns = 32768, 4096

    def launch(kernels, data, config):
        m, n = config["BLOCK_M"], config["BLOCK_N"]
        kernels.column_sum[(columns // n,)](
            data["out"], data["x"], rows, columns, BLOCK_M=m, BLOCK_N=n, num_warps=config["num_warps"]
        )

    return Case(
        f"column sum f16 {rows}x{columns}", "GB/s", 2 * rows * columns,
        lambda: {"x": random_tensor(rows, columns, dtype=torch.float16), "out": empty_tensor(columns)},
        launch, [{"BLOCK_M": m, "BLOCK_N": n, "num_warps": w} for m, n, w in
                 ((128, 32, 8), (256, 32, 8), (512, 32, 16), (512, 32, 32), (256, 32, 32), (64, 64, 8),
                  (256, 64, 16), (128, 32, 4))],
        lambda d: torch.sum(d["x"], 0, dtype=torch.float32), lambda d: (d["out"], d["x"].float().sum(0)),
        2e-2,
    )  # fmt: skip


def _cumsum() -> Case:
    rows, columns = 32768, 2048

    def launch(kernels, data, config):
        kernels.cumsum[(rows,)](
            data["out"], data["x"], columns, BLOCK=_block(columns), num_warps=config["num_warps"]
        )

    return Case(
        f"cumsum f32 {rows}x{columns}", "GB/s", 2 * 4 * rows * columns,
        lambda: {"x": random_tensor(rows, columns, dtype=torch.float32), "out": empty_tensor(rows, columns)},
        launch, [{"num_warps": w} for w in (1, 2, 4, 8)],
        lambda d: torch.cumsum(d["x"], 1), lambda d: (d["out"], torch.cumsum(d["x"].double(), 1).float()),
        1e-3,
    )  # fmt: skip


def cases() -> list[Case]:
    """Every case, in the order of the report."""
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
    return [
        _add(),
        _softmax(65536, 1024, f32, "f32"),
        _softmax(4096, 16384, f32, "f32"),
        _softmax(16384, 4096, f16, "f16"),
        _softmax(85926, 781, bf16, "bf16"),
        _layer_norm(16384, 4096, bf16, "bf16"),
        _layer_norm(65536, 1024, f16, "f16"),
        _layer_norm(8192, 8192, f32, "f32"),
        _transpose(f32, "f32"),
        _transpose(f16, "f16"),
        _column_sum(),
        _cumsum(),
    ]
