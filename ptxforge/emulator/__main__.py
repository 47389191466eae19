"""Run a kernel of a PTX file: ``python -m ptxforge.emulator kernel.ptx --entry NAME --grid X[,Y,Z] --block
X[,Y,Z] ...``.

Findings go to stderr, one a line, and make the exit status 1; bad usage and PTX that cannot be loaded make it
2.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import numpy as np

from ptxforge.emulator.device import CHECKS, EmulatorDevice, EmulatorModule
from ptxforge.emulator.memory import aligned_zeros
from ptxforge.emulator.parser import Variable
from ptxforge.support import dtypes
from ptxforge.support.errors import DeviceError

_TYPES = {d.short if d.is_int else d.ir: d.numpy for d in dtypes.ALL if not d.is_bool}
_ARGUMENT = re.compile(
    r"(?P<type>\w+)(?:\[(?P<shape>\d+(?:x\d+)*)\](?::(?P<fill>\w+))?|:(?P<value>[^\[\]]+))"
)
_SEED = 0
_ALIGNMENT = 256
"""Of arrays: CUDA C++ Programming Guide, "Device Memory Accesses"."""


class UsageError(Exception):
    """The command line is wrong; the message says how."""


def parse_argument(text: str) -> np.ndarray | np.generic:
    """``i32:5``, ``f32[64x64]:randn`` or ``@file.npy`` as the value that the kernel gets."""
    if text.startswith("@"):
        try:
            return _aligned(np.load(text[1:]))
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {text[1:]}: {error}") from error
    match = _ARGUMENT.fullmatch(text)
    if not match or match["type"] not in _TYPES:
        raise UsageError(
            f"cannot read the argument '{text}': it is i32:5, f32[1024], f32[64x64]:randn or @file.npy, "
            f"with a type of {', '.join(_TYPES)}"
        )
    dtype = _TYPES[match["type"]]
    if match["value"] is not None:
        return _scalar(match["value"], dtype, text)
    shape = tuple(int(size) for size in match["shape"].split("x"))
    return _aligned(_filled(shape, match["fill"] or "zeros", text).astype(dtype))


def _aligned(values: np.ndarray) -> np.ndarray:
    """A copy in C order where a GPU's allocator would put it: which sectors accesses touch depends on it."""
    memory = aligned_zeros(values.nbytes, _ALIGNMENT).view(values.dtype).reshape(values.shape)
    memory[...] = values
    return memory


def _scalar(value: str, dtype: np.dtype, text: str) -> np.generic:
    try:
        number = int(value, 0) if dtype.kind in "iu" else float(value)
        return np.array(number).astype(dtype)[()] if dtype.kind not in "iu" else np.array(number, dtype)[()]
    except (ValueError, OverflowError) as error:
        raise UsageError(f"the argument '{text}' is no {dtype.name}") from error


def _filled(shape: tuple[int, ...], fill: str, text: str) -> np.ndarray:
    rng = np.random.default_rng(_SEED)
    makers = {
        "zeros": lambda: np.zeros(shape),
        "ones": lambda: np.ones(shape),
        "randn": lambda: rng.standard_normal(shape),
        "arange": lambda: np.arange(int(np.prod(shape))).reshape(shape),
        "randint": lambda: rng.integers(0, 100, shape),
    }
    if fill not in makers:
        raise UsageError(f"cannot read the argument '{text}': an array is filled with {', '.join(makers)}")
    return makers[fill]()


def parse_size(text: str) -> tuple[int, int, int]:
    """``X[,Y,Z]``."""
    match = re.fullmatch(r"(\d+)(?:,(\d+))?(?:,(\d+))?", text)
    if not match:
        raise UsageError(f"cannot read the size '{text}': it is X, X,Y or X,Y,Z")
    return tuple(int(part) if part else 1 for part in match.groups())


def parse_save(text: str, arguments: list) -> tuple[np.ndarray, str]:
    """``INDEX=FILE.npy`` -> the array argument and the file."""
    index, equals, file = text.partition("=")
    if not equals or not index.isdigit() or not file:
        raise UsageError(f"cannot read '--save {text}': it is INDEX=FILE.npy")
    if int(index) >= len(arguments) or not isinstance(arguments[int(index)], np.ndarray):
        raise UsageError(f"'--save {text}': argument {index} is no array")
    return arguments[int(index)], file


def pack(device: EmulatorDevice, arguments: list, parameters: list[tuple[int, Variable]]) -> bytes:
    """The parameter buffer: each value at the offset of its parameter, arrays by address. Raises
    :class:`UsageError` unless the kernel has just these parameters.
    """
    if len(arguments) != len(parameters):
        names = ", ".join(variable.name for _, variable in parameters) or "none"
        raise UsageError(f"{len(arguments)} arguments are given, the kernel has {len(parameters)}: {names}")
    out = bytearray()
    for index, (value, (offset, variable)) in enumerate(zip(arguments, parameters)):
        is_array = isinstance(value, np.ndarray)
        data = np.uint64(device.register_host_array(value)).tobytes() if is_array else value.tobytes()
        if len(data) != variable.nbytes:
            raise UsageError(
                f"argument {index} has {len(data)} bytes, the parameter {variable.name} has {variable.nbytes}"
            )
        out += bytes(offset - len(out)) + data
    return bytes(out)


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ptxforge.emulator", description="Run a kernel of a PTX file on the CPU."
    )
    parser.add_argument("file", help="the PTX file")
    parser.add_argument("--entry", required=True, metavar="NAME", help="the kernel's name")
    parser.add_argument("--grid", required=True, metavar="X[,Y,Z]")
    parser.add_argument("--block", required=True, metavar="X[,Y,Z]")
    parser.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory")
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="VALUE",
        help="i32:5, f32:0.5, f32[1024] (zeros), f32[64x64]:randn|ones|arange|randint, @file.npy",
    )
    parser.add_argument(
        "--save",
        action="append",
        default=[],
        metavar="INDEX=FILE.npy",
        help="write an array argument after the run",
    )
    parser.add_argument(
        "--check", choices=CHECKS, default="one", help="which CTAs run under the checkers (default: one)"
    )
    parser.add_argument("--counters", action="store_true", help="print what the kernel executed and moved")
    return parser


def load(device: EmulatorDevice, file: str) -> EmulatorModule:
    try:
        return device.load_module(Path(file).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error


def run(options: argparse.Namespace) -> int:
    """The exit status: 0, or 1 with findings. Raises :class:`UsageError` and ``DeviceError``."""
    arguments = [parse_argument(text) for text in options.arg]
    saves = [parse_save(text, arguments) for text in options.save]
    if options.shared < 0:
        raise UsageError(f"'--shared {options.shared}': a number of bytes is not negative")
    grid, block = parse_size(options.grid), parse_size(options.block)
    device = EmulatorDevice(check=options.check, counters=options.counters, raise_faults=False)
    function = load(device, options.file).function(options.entry)
    parameters = list(function.translation.program.params.values())
    function.launch(grid, block, options.shared, 0, pack(device, arguments, parameters))
    for array, file in saves:
        try:
            np.save(file, array)
        except OSError as error:
            raise UsageError(f"cannot write '--save {file}': {error}") from error
    if options.counters:
        print(device.last_report)
    for finding in device.findings:
        print(finding, file=sys.stderr)
    return 1 if device.findings else 0


def main(arguments: list[str] | None = None) -> int:
    options = command_line().parse_args(arguments)
    try:
        return run(options)
    except (UsageError, DeviceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
