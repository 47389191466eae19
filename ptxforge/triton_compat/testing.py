"""``triton.testing``: measuring, comparing and plotting.

``triton._filecheck``: kernels of tests through the frontend.

What compares the text of Triton's IR with a pattern is refused: ptxforge's IR is another.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs
import numpy as np
from rich.console import Console
from rich.table import Table

from ptxforge.driver.cuda import CudaDevice, cuda_device
from ptxforge.runtime.timing import do_bench, do_bench_cudagraph
from ptxforge.runtime.variants import GPUTarget
from ptxforge.support import machine
from ptxforge.support.errors import DeviceError, PtxforgeError
from ptxforge.support.target import parse_target
from ptxforge.triton_compat import hooks
from ptxforge.triton_compat.compiler import ASTSource
from ptxforge.triton_compat.host import mangle_type

__all__ = [
    "Benchmark", "Mark", "assert_close", "cuda_graph_without_gc", "do_bench", "do_bench_cudagraph",
    "do_bench_cudagraph_proton", "do_bench_proton", "get_dram_gbps",
    "get_max_simd_tflops", "get_max_tensorcore_tflops", "nvsmi", "perf_report",
]  # fmt: skip

do_bench_proton, do_bench_cudagraph_proton = do_bench, do_bench_cudagraph  # which read the GPU's clock


def assert_close(
    x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = ""
) -> None:
    """Raise ``AssertionError`` unless ``x`` and ``y`` agree element by element (by default to 1e-2,
    absolute)."""
    actual, expected = _array(x), _array(y)
    atol, rtol = 1e-2 if atol is None else atol, 0.0 if rtol is None else rtol
    np.testing.assert_allclose(
        actual, expected, atol=_largest(atol), rtol=_largest(rtol), err_msg=err_msg, equal_nan=True
    )


def _largest(tolerance: Any) -> float:
    return float(tolerance(None)) if callable(tolerance) else float(tolerance)


def _array(value: Any) -> np.ndarray:
    """A tensor or array of any kind as f64 on the host."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    return np.asarray(value, np.float64)


def cuda_graph_without_gc(*args: Any, **kwargs: Any) -> Any:
    """``torch.cuda.graph``: the garbage collector unloads no kernel."""
    return importlib.import_module("torch").cuda.graph(*args, **kwargs)


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Integers that ``nvidia-smi`` reports of the first GPU."""
    query = f"--query-gpu={','.join(attrs)}"
    command = ["nvidia-smi", "-i", "0", query, "--format=csv,noheader,nounits"]
    return [int(text) for text in subprocess.check_output(command, text=True).strip().split(",")]


def _device(device: Any) -> CudaDevice:
    return cuda_device(getattr(device, "index", device) or 0)


def get_dram_gbps(device: Any = None) -> float:
    """Peak bandwidth of device memory in GB/s, from its clock and bus width."""
    gpu = _device(device)
    return gpu.attribute("MEMORY_CLOCK_RATE") * gpu.attribute("GLOBAL_MEMORY_BUS_WIDTH") * 2 / 1e6 / 8


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Peak TFLOP/s of the tensor cores on elements of ``dtype`` at ``clock_rate`` kHz."""
    gpu = _device(device)
    per_clock = _of_architecture(machine.TENSOR_OPERATIONS, gpu) * 16 // _bits(dtype)
    return gpu.multiprocessors * per_clock * clock_rate * 1e3 / 1e12


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: Any = None) -> float:
    """Peak TFLOP/s of ordinary arithmetic on f32, or f16 at twice its rate, at ``clock_rate`` kHz."""
    gpu = _device(device)
    per_clock = _of_architecture(machine.FLOAT_OPERATIONS, gpu) * (2 if _bits(dtype) == 16 else 1)
    return gpu.multiprocessors * per_clock * clock_rate * 1e3 / 1e12


def _of_architecture(table: dict[int, int], gpu: CudaDevice) -> int:
    sm = parse_target(gpu.target).sm
    if sm not in table:
        raise DeviceError(f"the peak rates of {gpu.target} are not known here")
    return table[sm]


def _bits(dtype: Any) -> int:
    size = getattr(dtype, "itemsize", None)
    return 8 * size if size is not None else dtype.primitive_bitwidth


@attrs.define
class Benchmark:
    """What :func:`perf_report` varies: ``x_names`` over ``x_vals``, one line of the table for each of
    ``line_vals``."""

    x_names: Sequence[str] = attrs.field(converter=list)
    x_vals: Sequence[Any] = attrs.field(converter=list)
    line_arg: str
    line_vals: Sequence[Any] = attrs.field(converter=list)
    line_names: Sequence[str] = attrs.field(converter=list)
    plot_name: str
    args: dict[str, Any] | None = attrs.field(default=None, converter=lambda given: dict(given or {}))
    xlabel: str = ""
    ylabel: str = ""
    x_log: bool = False
    y_log: bool = False
    styles: Any = None


class Mark:
    """A function to be measured over one or more :class:`Benchmark`; ``run`` prints the tables."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]):
        functools.update_wrapper(self, fn)
        self.fn, self.benchmarks = fn, benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> list[dict[str, Any]]:
        """Measure everything. Each row of the result has the x values and, by line name, the figure.

        With ``save_path`` a CSV and a JSON file are written there for each benchmark, and a PNG where
        matplotlib is installed.
        """
        listed = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else list(self.benchmarks)
        tables = [(bench, self._rows(bench, kwargs)) for bench in listed]
        for bench, rows in tables:
            if print_data or show_plots:
                _print(bench, rows)
            if save_path:
                _save(bench, rows, Path(save_path))
        return tables[0][1] if len(tables) == 1 else [rows for _, rows in tables]

    def _rows(self, bench: Benchmark, kwargs: dict[str, Any]) -> list[dict[str, Any]]:
        rows = []
        for x in bench.x_vals:
            values = x if isinstance(x, (tuple, list)) else [x] * len(bench.x_names)
            row = dict(zip(bench.x_names, values, strict=True))
            for value, name in zip(bench.line_vals, bench.line_names, strict=True):
                made = self.fn(
                    **dict(zip(bench.x_names, values, strict=True)),
                    **{bench.line_arg: value},
                    **bench.args,
                    **kwargs,
                )
                row[name] = made[0] if isinstance(made, (tuple, list)) else made
            rows.append(row)
        return rows


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: the function is called for each point of the benchmarks; see :class:`Mark`."""
    return lambda fn: Mark(fn, benchmarks)


def _print(bench: Benchmark, rows: list[dict[str, Any]]) -> None:
    table = Table(title=bench.plot_name)
    for name in (*bench.x_names, *bench.line_names):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *(f"{value:.6g}" if isinstance(value, (int, float)) else str(value) for value in row.values())
        )
    Console().print(table)


def _save(bench: Benchmark, rows: list[dict[str, Any]], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [",".join((*bench.x_names, *bench.line_names))]
    lines += [",".join(map(str, row.values())) for row in rows]
    (folder / f"{bench.plot_name}.csv").write_text("\n".join(lines) + "\n")
    facts = {"name": bench.plot_name, "x": bench.x_names, "lines": bench.line_names, "rows": rows}
    (folder / f"{bench.plot_name}.json").write_text(json.dumps(facts, indent=1, default=str) + "\n")
    if importlib.util.find_spec("matplotlib") is not None:
        _plot(bench, rows, folder / f"{bench.plot_name}.png")


def _plot(bench: Benchmark, rows: list[dict[str, Any]], path: Path) -> None:
    """One line for each of the benchmark's, over its first x."""
    figure = importlib.import_module("matplotlib.figure").Figure()
    axes = figure.add_subplot()
    places = [row[bench.x_names[0]] for row in rows]
    for name in bench.line_names:
        axes.plot(places, [row[name] for row in rows], label=name, marker=".")
    axes.set(xlabel=bench.xlabel or bench.x_names[0], ylabel=bench.ylabel, title=bench.plot_name)
    axes.set_xscale("log" if bench.x_log else "linear")
    axes.set_yscale("log" if bench.y_log else "linear")
    axes.legend()
    figure.savefig(path)


stub_target = GPUTarget("cuda", 90, 32)


class MatchError(ValueError):
    """A text does not match."""


def _constants(kind: Any, value: Any, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The constants of an argument, by their path."""
    if isinstance(kind, tuple):
        for index, (inner, part) in enumerate(zip(kind, value, strict=True)):
            yield from _constants(inner, part, (*path, index))
    elif kind == "constexpr":
        yield path, value


def run_parser(
    kernel_fn: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    target: GPUTarget = stub_target,
) -> hooks.Module:
    """Compile a kernel for these arguments. Raises :class:`CompilationError`."""
    bound = kernel_fn.signature.bind_partial(*args, **{
        name: value for name, value in (kwargs or {}).items() if name in kernel_fn.arg_names
    })  # fmt: skip
    bound.apply_defaults()
    constant = {parameter.name for parameter in kernel_fn.params if parameter.is_constexpr}
    kinds = {
        name: "constexpr" if name in constant else mangle_type(value)
        for name, value in bound.arguments.items()
    }
    constants = {
        path: value
        for index, name in enumerate(kernel_fn.arg_names)
        if name in kinds
        for path, value in _constants(kinds[name], bound.arguments[name], (index,))
    }
    return ASTSource(kernel_fn, kinds, constants).make_ir(target, None, None, None, None)


def run_filecheck(name: str, module_str: str, check_template: str) -> NoReturn:
    """Refused with a :class:`PtxforgeError`."""
    raise PtxforgeError("FileCheck's patterns are about the text of Triton's IR; ptxforge's IR is another")


def run_filecheck_test(kernel_fn: Any) -> NoReturn:
    """Refused with a :class:`PtxforgeError`."""
    run_filecheck(kernel_fn.__name__, "", "")


def filecheck_test(fn: Any) -> Callable[[], None]:
    """A test of a kernel's IR, refused when it runs."""

    @functools.wraps(fn)
    def test_fn() -> None:
        run_filecheck_test(fn)

    return test_fn
