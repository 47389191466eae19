"""What only the tile program shows: offsets that wrap around, false promises, NaNs that are born, idle masks.

A launch's first programs, its last and some between are interpreted before the launch, on copies of the
arrays, operation by operation. Beside an integer that has wrapped around in 32 bits its exact value is kept,
through arithmetic and through broadcasts, until it becomes part of an address: when an element that the mask
lets through is accessed at another address than the exact one, the operation that wrapped first is at fault.
(An offset may wrap where nobody uses it.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ptxforge import frontend
from ptxforge.checking.issues import Issue, Place
from ptxforge.interpreter.address_space import AddressSpace
from ptxforge.interpreter.execute import Program, bind_arguments
from ptxforge.ir import types as T
from ptxforge.ir.core import Block, Function, Operation
from ptxforge.ir.definition import REARRANGING, MemoryAccess
from ptxforge.ir.ops.arith import AddI, MulI, ShlI, SubI
from ptxforge.ir.ops.cast import ExtSI
from ptxforge.ir.ops.debug import Assume, Breakpoint, Print
from ptxforge.ir.ops.memory import AddPtr
from ptxforge.runtime.findings import Launch
from ptxforge.support.errors import PtxforgeError

MOST_PROGRAMS = 32
"""Programs of a launch that are interpreted."""

_MOST_SECONDS = 10.0
"""Time for one variant of a kernel, in all its launches together."""

_MOST_OPERATIONS = 100_000
"""Operations of one program after which it is left alone: it may wait for another program."""


_FAULTS = (PtxforgeError, ArithmeticError, LookupError, TypeError, ValueError)
"""What a kernel, or an argument, that is wrong makes numpy and the interpreter raise."""


class _TooLong(Exception):
    """A program was left alone."""


class Tiles:
    """Interprets launches and collects what it sees in ``report``; masks are judged at the end."""

    def __init__(self, add: Callable[[Issue], None], non_finite: bool = False):
        self.add, self.non_finite = add, non_finite
        self.masks: dict[tuple[str, Place], list[bool]] = {}
        """(kernel, place of an access) -> whether its mask was true, and false, for some element."""
        self._functions: dict[int, tuple[Any, Function | None]] = {}
        self._spent: dict[int, float] = {}

    def look(self, launch: Launch) -> None:
        """Interpret some programs of a launch that is about to begin."""
        function = self._function(launch)
        spent = self._spent.get(id(launch.variant), 0.0)
        if function is None or spent > _MOST_SECONDS:
            return
        start = time.monotonic()
        self._interpret(launch, function)
        self._spent[id(launch.variant)] = spent + time.monotonic() - start

    def _interpret(self, launch: Launch, function: Function) -> None:
        memory = AddressSpace()
        try:
            values = bind_arguments(function, _copies(launch), memory)
        except _FAULTS:
            return  # an argument that the interpreter does not take
        plans: dict[Block, list] = {}
        with np.errstate(all="ignore"):
            for index in _chosen(launch.grid):
                program = _Watched(self, launch, function, memory, index, plans)
                try:
                    program.run(values)
                except (*_FAULTS, _TooLong):
                    continue  # the emulator runs it as well, and says what is wrong

    def _function(self, launch: Launch) -> Function | None:
        """The kernel as the frontend makes it; ``None`` when the interpreter cannot have it."""
        known = self._functions.get(id(launch.variant))
        if known is None:
            made, artifact = None, launch.variant.artifact
            options = {name: value for name, value in artifact.options.items() if name in _FRONTEND_OPTIONS}
            try:
                made = frontend.build(
                    launch.variant.src,
                    artifact.signature,
                    artifact.constants,
                    target=artifact.target,
                    **options,
                )
            except PtxforgeError:
                made = None
            known = self._functions[id(launch.variant)] = launch.variant, made
        return known[1]

    def finish(self) -> None:
        """All launches are done: add notes for masks that were all the same."""
        for (kernel, place), (true, false) in self.masks.items():
            if true != false:
                kind, text = ("unused-mask", "true") if true else ("false-mask", "false")
                self.add(Issue(kernel, kind, f"the mask was {text} for every element", place))
        self.masks.clear()


_FRONTEND_OPTIONS = ("num_warps", "num_stages", "num_ctas", "debug")


def _copies(launch: Launch) -> dict[str, Any]:
    """The arguments by name; arrays as copies of what the device sees."""
    found = dict(launch.values)
    memory = launch.device.memory
    for argument in launch.arguments:
        data = memory.array_at(argument.address, argument.nbytes).copy()
        found[argument.name] = data.view(f"u{argument.itemsize}")
    return found


def _chosen(grid: Sequence[int]) -> list[tuple[int, int, int]]:
    """The first and the last program and some between, in order."""
    count = grid[0] * grid[1] * grid[2]
    numbers = np.unique(np.linspace(0, count - 1, min(count, MOST_PROGRAMS)).astype(int)).tolist()
    return [(n % grid[0], n // grid[0] % grid[1], n // (grid[0] * grid[1])) for n in numbers]


class _Watched(Program):
    """A program whose operations are looked at."""

    def __init__(
        self,
        tiles: Tiles,
        launch: Launch,
        function: Function,
        memory: AddressSpace,
        index: tuple[int, int, int],
        plans: dict[Block, list],
    ):
        super().__init__(function, memory, index, launch.grid, lambda text: None, plans)
        self.tiles, self.kernel = tiles, launch.variant.name
        self.exact: dict[int, tuple[Any, np.ndarray, Operation]] = {}
        """By the id of a value that has wrapped: itself, what it should be, the operation that wrapped."""
        self.left = _MOST_OPERATIONS

    def block(self, block: Block, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """As the interpreter's, looking at each operation."""
        values = self.values
        values.update(zip(block.arguments, arguments))
        plan = self.plan(block)
        self.left -= len(plan)
        if self.left < 0:
            raise _TooLong
        for call, operands, results, op in plan:
            self.current = op
            inputs = [values[v] for v in operands]
            instead = _INSTEAD.get(type(op))
            if instead is not None:
                instead(self, op, inputs)
                continue
            if isinstance(op, MemoryAccess):
                self.look_at_access(op, dict(zip(operands, inputs, strict=False)), inputs)
            found = call(self, *inputs)
            if len(results) == 1:
                values[results[0]] = found
                if not op.regions:
                    self.look_at_result(op, inputs, found)
            elif results:
                values.update(zip(results, found, strict=True))
        return tuple(values[v] for v in block.last.operands)

    # ---- results -------------------------------------------------------------------------------------------
    def look_at_result(self, op: Operation, inputs: list, found: Any) -> None:
        """Follow wrapped integers, check promises, and see NaNs being born."""
        follow = _FOLLOWED.get(type(op))
        if follow is not None:
            follow(self, op, inputs, found)
        elif len(inputs) == 1 and id(inputs[0]) in self.exact and REARRANGING in op.traits:
            _, exact, origin = self.exact[id(inputs[0])]
            self.remember(found, op.evaluate(exact), origin)
        if op.attributes:
            self.check_promises(op, np.asarray(found))
        if self.tiles.non_finite and inputs and not op.get_effects().reads:
            self.look_for_non_finite(op, inputs, found)

    def remember(self, found: Any, exact: np.ndarray, origin: Operation) -> None:
        """``found`` should be ``exact``."""
        self.exact[id(found)] = found, exact, origin

    def follow_arithmetic(self, op: Operation, inputs: list, found: Any) -> None:
        """Keep the exact value of a 32-bit result that wraps, or of what is computed from one."""
        known = [self.exact.get(id(value)) for value in inputs]
        if np.asarray(found).dtype.itemsize != 4:
            return
        exact, origin = _EXACT[type(op)](*_exact_inputs(inputs, known)), _origin(known)
        if origin is not None or np.any(exact != found):
            self.remember(found, exact, origin or op)

    def follow_pointer(self, op: AddPtr, inputs: list, found: Any) -> None:
        """Keep the exact address that an offset which has wrapped should lead to."""
        known = [self.exact.get(id(value)) for value in inputs]
        origin = _origin(known)
        if origin is not None:
            base, offset = _exact_inputs(inputs, known)
            self.remember(found, base + offset * T.element_type(op.pointer.type).pointee.bytes, origin)

    def follow_extension(self, op: ExtSI, inputs: list, found: Any) -> None:
        """Keep the exact value of what has wrapped before it became wider."""
        known = self.exact.get(id(inputs[0]))
        if known is not None:
            self.remember(found, known[1], known[2])

    # ---- accesses ------------------------------------------------------------------------------------------
    def look_at_access(self, op: Operation, by_value: dict, inputs: list) -> None:
        """Whether an element that the mask lets through lies where it should; what the mask is."""
        mask = getattr(op, "mask", None)
        active = np.True_ if mask is None else np.asarray(by_value[mask])
        place = place_of(op)
        if mask is not None and place is not None:
            seen = self.tiles.masks.setdefault((self.kernel, place), [False, False])
            seen[0] |= bool(active.any())
            seen[1] |= not active.all()
        wrapped = self.exact.get(id(inputs[0]))
        if wrapped is None:
            return
        pointer, exact, origin = wrapped
        wrong = np.broadcast_to((pointer != exact) & active, np.shape(pointer))
        if wrong.any():
            first = tuple(map(int, np.argwhere(np.atleast_1d(wrong))[0]))
            text = f"the offset of an element that is accessed wraps around in 32 bits, at index {first}"
            self.report("overflow", text, origin, place, int(np.count_nonzero(wrong)))

    # ---- promises and NaNs ---------------------------------------------------------------------------------
    def check_promises(self, op: Operation, value: np.ndarray) -> None:
        """Check what the user has promised about a result."""
        if value.dtype.kind not in "iu" or isinstance(T.element_type(op.result.type), T.PointerType):
            return
        contiguity = op.attributes.get("contiguity")
        for name, (asked, holds) in _PROMISES.items():
            numbers = op.attributes.get(name)
            if numbers is not None:
                good = holds(value, numbers, contiguity)
                self.check_promise(op, good, f"what {asked}(…, {list(numbers)}) promises does not hold")

    def check_assumption(self, op: Assume, inputs: list) -> None:
        """Check what ``assume`` promises."""
        self.check_promise(op, np.all(inputs[0]), "what assume promises does not hold")

    def check_promise(self, op: Operation, holds: Any, text: str) -> None:
        """Report a promise that is false."""
        if not holds:
            self.report("promise", text, op)

    def look_for_non_finite(self, op: Operation, inputs: list, found: Any) -> None:
        """Report a NaN or an infinity whose inputs were finite."""
        floats = [np.asarray(value) for value in inputs if np.asarray(value).dtype.kind not in "biu"]
        result = np.asarray(found)
        if not floats or result.dtype.kind in "biu":
            return
        born = ~np.isfinite(result.astype(np.float64))
        if born.any() and all(np.isfinite(value.astype(np.float64)).all() for value in floats):
            what = "NaN" if np.isnan(result.astype(np.float64)).any() else "an infinity"
            self.report("non-finite", f"'{op.name}' makes {what} of finite inputs", op, None, int(born.sum()))

    def report(self, kind: str, text: str, op: Operation, other: Place | None = None, count: int = 1) -> None:
        """Add an issue at an operation of this program."""
        self.tiles.add(Issue(self.kernel, kind, text, place_of(op), other, program=self.index, count=count))


_EXACT: dict[type[Operation], Callable] = {
    AddI: np.add, SubI: np.subtract, MulI: np.multiply, ShlI: lambda x, y: x << np.minimum(y, 62)
}  # fmt: skip
_FOLLOWED: dict[type[Operation], Callable] = dict.fromkeys(_EXACT, _Watched.follow_arithmetic) | {
    AddPtr: _Watched.follow_pointer, ExtSI: _Watched.follow_extension,
}  # fmt: skip
_INSTEAD: dict[type[Operation], Callable] = {
    Assume: _Watched.check_assumption, Print: lambda *_: None, Breakpoint: lambda *_: None,
}  # fmt: skip
"""What is done instead of executing an operation: nobody is to see that the program runs."""


def _origin(known: list) -> Operation | None:
    """The operation that wrapped first, of those that the operands come from."""
    return next((entry[2] for entry in known if entry is not None), None)


def _exact_inputs(inputs: list, known: list) -> list[np.ndarray]:
    """Operands as they should be: exact where that is known, else as they are, in 64 bits."""
    pairs = zip(inputs, known, strict=True)
    return [np.asarray(value).astype(np.int64) if entry is None else entry[1] for value, entry in pairs]


def _blocks(value: np.ndarray, numbers: Sequence[int]):
    """For each dimension of a tensor its values in blocks ``(…, blocks, number)`` along it."""
    if value.ndim != len(numbers):
        return
    for axis, number in enumerate(numbers):
        moved = np.moveaxis(value, axis, -1)
        size = min(number, moved.shape[-1])
        if size and moved.shape[-1] % size == 0:
            yield moved.reshape(*moved.shape[:-1], -1, size).astype(np.int64)


def _divides(value: np.ndarray, numbers: Sequence[int], contiguity: Sequence[int] | None) -> bool:
    """Of a scalar itself, of a tensor the first element of each contiguous block along a dimension."""
    if value.ndim == 0:
        return int(value) % numbers[0] == 0
    starts = _blocks(value, contiguity or value.shape)
    return all(not (blocks[..., 0] % number).any() for blocks, number in zip(starts, numbers, strict=False))


def _counts_up(value: np.ndarray, numbers: Sequence[int], contiguity: Any) -> bool:
    return all((np.diff(blocks, axis=-1) == 1).all() for blocks in _blocks(value, numbers))


def _is_constant(value: np.ndarray, numbers: Sequence[int], contiguity: Any) -> bool:
    return all((np.diff(blocks, axis=-1) == 0).all() for blocks in _blocks(value, numbers))


_PROMISES = {
    "divisibility": ("multiple_of", _divides),
    "contiguity": ("max_contiguous", _counts_up),
    "constancy": ("max_constancy", _is_constant),
}
"""Attribute of an operation -> the function of the language that sets it, and what it means."""


def place_of(op: Operation) -> Place | None:
    """The source line of an operation."""
    where = op.location
    return None if where is None else Place(where.file, where.line, where.column + 1)
