"""Small kernels in the gpu stage: build them, assemble them for several targets, run them on the emulator
and, with ``--device cuda``, once more on a GPU."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from ptxforge.codegen_ptx import emit
from ptxforge.driver.cuda import CudaDevice
from ptxforge.emulator import EmulatorDevice
from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Value
from ptxforge.ir.ops import arith, control, memory, shape
from ptxforge.ir.warps import threads_of
from ptxforge.layouts.encodings import Blocked, Slice
from ptxforge.passes.advise_assembler import advise_assembler
from ptxforge.passes.choose_sequences import choose_sequences
from ptxforge.passes.properties import is_memory_access, most_in_a_vector
from ptxforge.support.target import parse_target
from tests.assembling import assemble_later

TARGETS = ("sm_80", "sm_90a", "sm_120")


class Executor:
    """Where kernels run, and the target that they are made for unless a test asks for one; ``conftest.py``
    says."""

    gpu: CudaDevice | None = None
    target = "sm_90a"

    @classmethod
    def device(cls, target: str, check: str) -> EmulatorDevice | CudaDevice:
        """A device for code of this target: the emulator where the GPU is older."""
        fits = cls.gpu is not None and parse_target(target).sm <= parse_target(cls.gpu.target).sm
        return cls.gpu if fits else EmulatorDevice(check=check, target=target)


def assemble(ptx: str) -> None:
    """``ptxas`` must accept the text, where there is one."""
    assemble_later(ptx, "-O0")


class Kernel:
    """A function under construction. Parameters are pointers to arrays, then scalars."""

    def __init__(self, *types: T.Type, num_warps: int = 4, shared_bytes: int = 0):
        attributes = {"num_warps": num_warps, "shared_bytes": shared_bytes}
        self.function = Function("kernel", types, attributes)
        self.num_warps = num_warps
        for argument in self.function.arguments:
            argument.name = f"a{argument.index}"
            if isinstance(argument.type, T.PointerType):
                argument.attributes["divisibility"] = 16
        self.b = Builder(self.function.body)

    def indices(self, shape_: tuple[int, ...], layout) -> Value:
        """The row-major index of every element."""
        total = None
        stride = 1
        for dim in reversed(range(len(shape_))):
            part = self.coordinate(shape_, dim, layout)
            if stride > 1:
                part = self.b.value(arith.MulI, part, self.b.constant(stride, part.type))
            total = part if total is None else self.b.value(arith.AddI, part, total)
            stride *= shape_[dim]
        return total

    def coordinate(self, shape_: tuple[int, ...], dim: int, layout) -> Value:
        """The coordinate along ``dim`` of every element of a tensor."""
        chain = []
        here = layout
        for d in reversed([d for d in range(len(shape_)) if d != dim]):
            chain.append((d, here))
            here = Slice(d, here)
        value = self.b.value(
            shape.MakeRange, type=T.TensorType((shape_[dim],), T.I32, here), start=0, end=shape_[dim]
        )
        for d, parent in reversed(chain):
            sizes = list(value.type.shape)
            sizes.insert(d, 1)
            value = self.b.value(
                shape.ExpandDims, value, type=T.TensorType(tuple(sizes), T.I32, parent), axis=d
            )
        if value.type.shape != shape_:
            value = self.b.value(shape.Broadcast, value, type=T.TensorType(shape_, T.I32, layout))
        return value

    def splat(self, value: Value, shape_: tuple[int, ...], layout) -> Value:
        return self.b.value(shape.Splat, value, type=T.TensorType(shape_, value.type, layout))

    def pointers(self, argument: int, shape_: tuple[int, ...], layout) -> Value:
        base = self.splat(self.function.arguments[argument], shape_, layout)
        return self.b.value(memory.AddPtr, base, self.indices(shape_, layout))

    def load(self, argument: int, shape_: tuple[int, ...], layout, vector: int = 1) -> Value:
        return self.b.value(memory.Load, self.pointers(argument, shape_, layout), vector=vector)

    def store(self, argument: int, value: Value, vector: int = 1) -> None:
        places = self.pointers(argument, value.type.shape, value.type.layout)
        self.b.create(memory.Store, places, value, vector=vector)

    def store_scalar(self, argument: int, value: Value) -> None:
        self.b.create(memory.Store, self.function.arguments[argument], value)

    def ptx(self, target: str = "sm_90a") -> str:
        if self.function.body.terminator is None:
            self.b.create(control.Return)
        function, machine = self.function.clone(), parse_target(target)
        for op in filter(is_memory_access, function.walk()):
            op.vector = min(op.vector, most_in_a_vector(op, machine))
        for decide in (choose_sequences, advise_assembler):
            decide(function, machine)
        return emit(function, machine)

    def run(
        self,
        *arguments,
        grid: int = 1,
        target: str | None = None,
        check: str = "all",
        everywhere: bool = True,
        targets: tuple[str, ...] | None = None,
    ) -> None:
        """Assemble for all targets (on the emulator's turn) and run, arrays in place."""
        texts = {}
        if everywhere and Executor.gpu is None:
            texts = {other: self.ptx(other) for other in targets or TARGETS}
            for text in texts.values():
                assemble(text)
        if target is None:
            target = Executor.target
            if targets and parse_target(target).sm < parse_target(targets[0]).sm:
                target = targets[0]  # the oldest that has what the test is about
        ptx = texts.get(target) or self.ptx(target)
        launch(Executor.device(target, check), ptx, self.function, arguments, grid)


def launch(device, ptx: str, function: Function, arguments, grid: int = 1) -> None:
    """Run a function's code on a device, arrays in place. There must be no finding."""
    shape_ = (grid, 1, 1), (threads_of(function), 1, 1), function.attributes.get("shared_bytes", 0)
    kernel = device.load_module(ptx).function(function.name)
    if isinstance(device, EmulatorDevice):
        kernel.launch(*shape_, 0, pack_parameters(device.register_host_array, function, arguments))
        assert not device.findings, device.findings
        return
    addresses = {}

    def place(array: np.ndarray) -> int:
        addresses[id(array)] = device.allocate(array.nbytes)
        device.copy_to_device(addresses[id(array)], array)
        return addresses[id(array)]

    kernel.launch(*shape_, 0, pack_parameters(place, function, arguments))
    device.synchronize()
    for array in (x for x in arguments if isinstance(x, np.ndarray)):
        device.copy_to_host(array, addresses[id(array)])
        device.free(addresses[id(array)])


_FORMATS = {"i1": "B", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "f32": "f", "f64": "d", "f16": "e"}


def pack_parameters(place: Callable[[np.ndarray], int], function: Function, arguments) -> bytes:
    """Arguments in PTX's parameter layout, each at its natural alignment; ``place`` tells an array's
    address."""
    packed = b""
    for parameter, argument in zip(function.arguments, arguments, strict=True):
        if isinstance(argument, np.ndarray):
            data = struct.pack("<Q", place(argument))
        else:
            data = struct.pack("<" + _FORMATS[str(parameter.type)], argument)
        packed += b"\0" * (-len(packed) % len(data)) + data
    return packed


def blocked(*size: int, threads: tuple[int, ...] = (32,), warps: tuple[int, ...] = (4,)) -> Blocked:
    """A blocked layout with the last dimension fastest."""
    return Blocked(size, threads, warps, tuple(range(len(size) - 1, -1, -1)))


def pointer(element: T.Type) -> T.PointerType:
    return T.PointerType(element)
