"""A roofline estimate: the least time that a launch can take on a card, by what it moves (as the emulator
counts it, when the kernel runs on given arguments) and by what its products compute.

Each figure is work over a published peak, so that every one of them is a lower bound of the time, and the
largest is the bound. It says what to look at first, not how long the kernel takes.

Peaks: NVIDIA's data sheets of the named cards, dense figures, and the architecture white papers for what one
multiprocessor does per clock. Architectures without figures here have no roofline.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import attrs
import numpy as np

from ptxforge.compiler import Artifact
from ptxforge.ir.core import Function
from ptxforge.ir.ops import dot as ops
from ptxforge.layouts.encodings import Mma
from ptxforge.passes.analysis.reasons import why_no_tensor_core
from ptxforge.support import machine, programs, tensor_map
from ptxforge.support.errors import PtxforgeError
from ptxforge.support.location import Location
from ptxforge.support.target import Target

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
    params = _packed(device, artifact, arguments, grid[0])
    function = device.load_module(artifact.ptx).function(artifact.name)
    ctas = grid[0] * artifact.num_ctas, *grid[1:]
    function.launch(ctas, (artifact.threads, 1, 1), artifact.shared_bytes, 0, params)
    tensor, flops = _operations(device.last_report)
    size = sum(value.nbytes for value in arguments if isinstance(value, np.ndarray))
    return Counts(device.last_report, size, tensor, flops, tuple(device.findings))


def _packed(device: Any, artifact: Artifact, arguments: list, count: int) -> bytes:
    """The parameter buffer: each value at the next multiple of its size, tensor maps as the kernel's recipes
    make them of the others. ``count`` is what a persistent kernel is told: the number of programs."""
    recipes = {recipe.name: recipe for recipe in artifact.tensor_maps}
    hidden = tensor_map.TYPE, programs.TYPE
    named = [(name, kind) for name, kind in artifact.parameters if kind not in hidden]
    if len(arguments) != len(named):
        shown = ", ".join(f"{name}: {kind}" for name, kind in named)
        raise PtxforgeError(f"{len(arguments)} --arg are given, the kernel has {len(named)}: {shown}")
    values = {
        name: _bytes(device, value, name, kind)
        for value, (name, kind) in zip(arguments, named, strict=True)
    }  # fmt: skip
    values |= {name: struct.pack("<i", count) for name, kind in artifact.parameters if kind == programs.TYPE}
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


@attrs.frozen(slots=True)
class Product:
    """A ``dot`` of [``m``, ``k``] and [``k``, ``n``], ``batch`` times. ``unit`` is ``mma.sync``, ``wgmma`` or
    ``fma``; ``why`` and ``cure`` are empty for tensor cores."""

    location: Location | None
    m: int
    n: int
    k: int
    batch: int
    element: str
    accumulator: str
    unit: str
    why: str
    cure: str

    @property
    def flops(self) -> int:
        """Additions and multiplications of one execution by one program."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def intensity(self) -> float:
        """Operations per byte of both operands."""
        size = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}.get(self.element, 1)
        return self.flops / (self.batch * size * self.k * (self.m + self.n))


def products_of(function: Function) -> list[Product]:
    """The products, after tensor cores were given what they can do."""
    return [_product(op) for op in function.walk(ops.Product)]


def _product(op: ops.Product) -> Product:
    a, c = op.a.type, op.sums
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    unit = _unit(c.layout)
    why, cure = why_no_tensor_core(op) if unit == "fma" else ("", "")
    return Product(
        op.location, m, n, k, math.prod(c.shape[:-2]), str(a.element), str(c.element), unit, why, cure
    )


def _unit(layout: object) -> str:
    if not isinstance(layout, Mma):
        return "fma"
    return "wgmma" if layout.version[0] == 3 else "mma.sync"


ISSUE_PER_CLOCK = 4
"""Warp instructions that a multiprocessor issues per clock: one for each of its four parts."""


@attrs.frozen(slots=True)
class Card:
    """A card of an architecture. ``tensor`` are operations per clock and multiprocessor of tensor cores by
    element type (a multiply-add is two), ``fma`` those of f32 outside of them, ``bandwidth`` bytes per second
    of its memory, ``clock`` the boost clock in Hz that goes with the published peaks."""

    name: str
    multiprocessors: int
    clock: float
    bandwidth: float
    fma: int
    tensor: dict[str, int]

    def tensor_rate(self, element: str) -> float:
        """Operations per second of tensor cores on ``element``; 0 where they do not take it."""
        return self.tensor.get(element, 0) * self.multiprocessors * self.clock

    @property
    def balance(self) -> float:
        """Operations on f16 per byte of memory from which on tensor cores are the limit."""
        return self.tensor_rate("f16") / self.bandwidth


def _card(sm: int, name: str, multiprocessors: int, clock: float, bandwidth: float, f64: int = 0) -> Card:
    f16 = machine.TENSOR_OPERATIONS[sm]
    rates = {"f16": f16, "bf16": f16, "f32": f16 // 2, "i8": 2 * f16} | ({"f64": f64} if f64 else {})
    if Target(sm).has_fp8_mma:
        rates |= {"f8e4m3": 2 * f16, "f8e5m2": 2 * f16}
    return Card(name, multiprocessors, clock, bandwidth, machine.FLOAT_OPERATIONS[sm], rates)


_CARDS = {
    80: _card(80, "A100 SXM 80 GB", 108, 1.41e9, 2.039e12, f64=128),
    86: _card(86, "A10", 72, 1.695e9, 0.6e12),
    89: _card(89, "L40S", 142, 2.52e9, 0.864e12),
    90: _card(90, "H200 SXM", 132, 1.83e9, 4.8e12, f64=256),
}


def card_of(target: Target) -> Card | None:
    """The card that stands for ``target`` in rooflines; ``None`` where there are no figures."""
    return _CARDS.get(target.sm)


@attrs.frozen(slots=True)
class Bound:
    """``seconds`` that ``work`` of ``unit`` take at least on one part of the machine."""

    part: str
    work: float
    unit: str
    seconds: float


@attrs.frozen(slots=True)
class Roofline:
    """The bounds of one launch on ``card``, the longest first. ``tensor_share`` is the largest part of the
    time that tensor cores can be busy in (0 where they have nothing to do)."""

    card: Card
    bounds: tuple[Bound, ...]

    @property
    def seconds(self) -> float:
        """The least time of the launch."""
        return self.bounds[0].seconds

    @property
    def limiter(self) -> str:
        """The part of the machine that takes longest."""
        return self.bounds[0].part

    @property
    def tensor_share(self) -> float:
        """See the class."""
        busy = [bound.seconds for bound in self.bounds if bound.part == "tensor cores"]
        return busy[0] / self.seconds if busy else 0.0


def roofline(counts: Counts, card: Card, blocks: int) -> Roofline:
    """The bounds of a launch of ``blocks`` blocks.

    A launch with fewer blocks than the card has multiprocessors leaves some without work: what one
    multiprocessor does counts for as many as have a block.
    """
    total = counts.report.total
    busy = max(1, min(blocks, card.multiprocessors))
    per_second = busy * card.clock
    tensor = sum(
        work / (card.tensor[kind] * per_second) for kind, work in counts.tensor.items() if kind in card.tensor
    )
    bounds = [
        Bound("memory", counts.arrays, "bytes, every array once", counts.arrays / card.bandwidth),
        Bound("tensor cores", sum(counts.tensor.values()), "operations", tensor),
        Bound("f32 arithmetic", counts.flops, "operations", counts.flops / (card.fma * per_second)),
        Bound("shared memory", total.shared_wavefronts, "wavefronts", total.shared_wavefronts / per_second),
        Bound("issue", total.instructions, "warp instructions",
              total.instructions / (ISSUE_PER_CLOCK * per_second)),
    ]  # fmt: skip
    done = [bound for bound in bounds if bound.seconds]
    return Roofline(card, tuple(sorted(done, key=lambda bound: -bound.seconds)))
