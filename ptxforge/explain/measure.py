"""What the emulator counts when a kernel runs on given arguments."""

from __future__ import annotations

import re
from typing import Any

import attrs
import numpy as np

from ptxforge.compiler import Artifact
from ptxforge.support import tensor_map
from ptxforge.support.errors import PtxforgeError

_MMA = re.compile(r"\bm(\d+)n(\d+)k(\d+)\b")
_MMA_TYPES = re.compile(r"\.(f16|bf16|tf32|f64|s8|u8|e4m3|e5m2)\b")
_ELEMENT = {"tf32": "f32", "s8": "i8", "u8": "i8", "e4m3": "f8e4m3", "e5m2": "f8e5m2"}
WARPS_OF_WGMMA = 4


@attrs.frozen(slots=True)
class Counts:
    """One launch. ``report`` is the emulator's, by PTX line; ``arrays`` the bytes of all array arguments
    (what at least crosses the memory bus when each is touched once); ``tensor`` operations of tensor cores by
    element type, ``flops`` those of floats elsewhere; ``output`` what the kernel printed, ``findings`` what
    the emulator found wrong."""

    report: Any
    arrays: int
    tensor: dict[str, int]
    flops: int
    findings: tuple[Any, ...]


def run_counted(
    artifact: Artifact, arguments: list[np.ndarray | np.generic], grid: tuple[int, int, int]
) -> Counts:
    """Run the kernel's PTX in the emulator, all blocks under the checkers, and count.

    ``arguments`` are one for each of ``artifact.parameters``, of its size: arrays for pointers, numpy scalars
    else. Raises :class:`PtxforgeError` when they do not fit.
    """
    from ptxforge.emulator import EmulatorDevice  # static facts need no emulator

    device = EmulatorDevice(check="all", counters=True, target=artifact.target, raise_faults=False)
    params = _packed(device, artifact, arguments)
    function = device.load_module(artifact.ptx).function(artifact.name)
    ctas = grid[0] * artifact.num_ctas, *grid[1:]
    function.launch(ctas, (artifact.threads, 1, 1), artifact.shared_bytes, 0, params)
    tensor, flops = _operations(device.last_report)
    size = sum(value.nbytes for value in arguments if isinstance(value, np.ndarray))
    return Counts(device.last_report, size, tensor, flops, tuple(device.findings))


def _packed(device: Any, artifact: Artifact, arguments: list) -> bytes:
    """The parameter buffer: each value at the next multiple of its size, tensor maps as the kernel's recipes
    make them of the others."""
    recipes = {recipe.name: recipe for recipe in artifact.tensor_maps}
    named = [(name, kind) for name, kind in artifact.parameters if name not in recipes]
    if len(arguments) != len(named):
        shown = ", ".join(f"{name}: {kind}" for name, kind in named)
        raise PtxforgeError(f"{len(arguments)} --arg are given, the kernel has {len(named)}: {shown}")
    values = {
        name: _bytes(device, value, name, kind)
        for value, (name, kind) in zip(arguments, named, strict=True)
    }  # fmt: skip
    out = bytearray()
    for name, _ in artifact.parameters:
        if name in recipes:
            data = recipes[name].encode(device, lambda n: int.from_bytes(values[n], "little", signed=True))
            out += bytes(-len(out) % tensor_map.ALIGNMENT) + data
        else:
            out += bytes(-len(out) % len(values[name])) + values[name]
    return bytes(out)


def _bytes(device: Any, value: np.ndarray | np.generic, name: str, kind: str) -> bytes:
    """A parameter's bytes. Raises :class:`PtxforgeError` when the value does not fit."""
    is_array = isinstance(value, np.ndarray)
    if is_array != kind.startswith("*"):
        raise PtxforgeError(f"'{name}' is {kind}, its --arg is {'an array' if is_array else 'a number'}")
    data = np.uint64(device.register_host_array(value)).tobytes() if is_array else value.tobytes()
    expected = 8 if is_array else _bytes_of(kind)
    if len(data) != expected:
        raise PtxforgeError(f"'{name}' is {kind} ({expected} bytes), its --arg has {len(data)} bytes")
    return data


def _bytes_of(kind: str) -> int:
    digits = re.search(r"\d+", kind.partition(":")[0])
    return max(1, int(digits[0]) // 8)


def _operations(report: Any) -> tuple[dict[str, int], int]:
    """(operations of tensor cores by element type, floating-point operations of other instructions)."""
    tensor: dict[str, int] = {}
    flops = 0
    for line in report.lines:
        if not line.instructions:
            continue
        text = line.text.strip()
        shape = _MMA.search(text)
        if line.kind == "tensor" and shape:
            element = _operand_type(text)
            per = 2 * int(shape[1]) * int(shape[2]) * int(shape[3])
            done = line.instructions * per // (WARPS_OF_WGMMA if "wgmma" in text else 1)
            tensor[element] = tensor.get(element, 0) + done
        elif line.kind.endswith("arithmetic"):
            flops += line.thread_instructions * (2 if re.match(r"(@!?%\w+ )?fma", text) else 1)
    return tensor, flops


def _operand_type(text: str) -> str:
    """The element type of A: the second of ``.f32.f16.f16.f32``, and the second of wgmma's three."""
    types = _MMA_TYPES.findall(text.partition(";")[0].partition("{")[0].replace(".f32", ""))
    return _ELEMENT.get(types[0], types[0]) if types else "f16"
