"""Running a function: programs, blocks and operations."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from ptxforge.interpreter.address_space import AddressSpace
from ptxforge.interpreter.cluster import Meetings, do_ctas_meet
from ptxforge.interpreter.debugger import Debugger
from ptxforge.interpreter.registry import HANDLERS
from ptxforge.ir import types as T
from ptxforge.ir.core import Block, BlockArgument, Function, Operation, Value
from ptxforge.support import programs, tensor_map
from ptxforge.support.errors import ArgumentError, InterpreterError, LaunchInterrupt
from ptxforge.support.location import describe
from ptxforge.support.tensor_map import TensorMapRecipe

# One operation, made ready: what to call, the values to call it with, and where the results go.
_Step = tuple[Callable[..., Any], tuple[Value, ...], tuple[Value, ...], Operation]


def run(
    function: Function,
    grid: int | Sequence[int],
    arguments: Sequence[Any] | Mapping[str, Any],
    *,
    memory: AddressSpace | None = None,
    output: Callable[[str], None] = print,
    namespace: dict[str, Any] | None = None,
    time_limit: float = 0.0,
) -> None:
    """Execute every program of ``grid`` (up to three sizes), one after the other; of a kernel whose programs
    walk over tiles, half as many (``passes/persistent_programs.py``).

    ``arguments`` has a value for each parameter, by position or by name: a numpy array for a pointer (used in
    place) or an address that ``memory`` gave out, a number for a scalar. ``output`` gets each line that the
    kernel prints; ``namespace``, the globals of its source, is what a debugger sees beside its variables;
    ``time_limit`` is in seconds (0: none).

    Raises:
        ArgumentError: an argument does not fit its parameter.
        InterpreterError: the kernel touches memory that is not its own, fails an assertion, or the like; with
            the program and the source line.
    """
    grid = (grid,) if isinstance(grid, int) else tuple(grid)
    grid = grid + (1,) * (3 - len(grid))
    memory = AddressSpace() if memory is None else memory
    values = bind_arguments(function, arguments, memory, grid[0])
    if any(map(_is_hidden_count, function.arguments)):
        grid = programs.blocks(grid, -(-grid[0] // 2))
    memory.names = _names(values)
    plans: dict[Block, list[_Step]] = {}
    deadline = time.monotonic() + time_limit if time_limit else 0.0
    debugger = Debugger(namespace or {}, function.location.line if function.location else 1)
    with np.errstate(all="ignore"):
        ctas = function.attributes.get("planned_ctas", 1)
        for z, y, x in np.ndindex(*grid[::-1]):
            meetings = Meetings(ctas) if ctas > 1 and do_ctas_meet(function) else None

            def work(rank: int, index=(x, y, z), meetings=meetings) -> None:
                program = Program(function, memory, index, grid, output, plans)
                program.rank, program.meetings = rank, meetings
                program.debugger, program.deadline = debugger, deadline
                _run(program, values)

            if meetings is not None:
                meetings.run(work)
                continue
            for rank in range(ctas):
                work(rank)


def _run(program: Program, values: Mapping[Value, Any]) -> None:
    try:
        program.run(values)
    except (InterpreterError, IndexError) as fault:  # IndexError: a gather out of bounds
        raise InterpreterError(f"{fault}\n{program.place()}") from fault
    except KeyboardInterrupt:
        raise LaunchInterrupt(f"'{program.function.name}' was stopped {program.place()}") from None
    program.debugger.end_of_program()


def _names(values: Mapping[Value, Any]) -> dict[int, tuple[str, int]]:
    """What lies at which address: the name of the parameter, and the bytes of an element."""
    pointers = [p for p in values if isinstance(p.type, T.PointerType)]
    return {int(values[p]): (p.name, p.type.pointee.bytes) for p in pointers}


class Program:
    """One program: its index, its values, and its pending asynchronous copies."""

    debugger: Debugger | None = None
    deadline = 0.0
    """When it is stopped, by ``time.monotonic()``; 0 for never."""
    rank = 0
    """Which CTA of the program this is."""
    meetings: Meetings | None = None
    """Where its CTAs meet, if they do."""

    def __init__(
        self,
        function: Function,
        memory: AddressSpace,
        index: tuple[int, int, int],
        grid: tuple[int, int, int],
        output: Callable[[str], None] = print,
        plans: dict[Block, list[_Step]] | None = None,
    ):
        self.function, self.memory, self.index, self.grid, self.output = function, memory, index, grid, output
        self.values: dict[Value, Any] = {}
        self.plans = {} if plans is None else plans
        self.current: Operation | None = None
        # Asynchronous copies: those not committed yet, then committed groups, oldest first.
        self.open_group: list[Any] = []
        self.groups: list[Any] = []
        # mbarriers by the address of their memory.
        self.mbarriers: dict[int, Any] = {}
        # Whose turn it is, while groups of warps run different code.
        self.turns: Any = None
        # Stores by TMA whose sources may be read still (the source, and what it was), and those that have not
        # been written for sure; oldest first.
        self.stores: list[tuple[Any, Any]] = []
        self.landing: list[Callable[[], None]] = []

    def run(self, arguments: Mapping[Value, Any]) -> None:
        self.values.update(arguments)
        self.block(self.function.body, ())
        if self.stores:
            raise InterpreterError("the program ends while TMA still reads its shared memory")
        for land in self.landing:
            land()

    def block(self, block: Block, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Execute a block; gives the operands of its terminator."""
        if self.deadline and time.monotonic() > self.deadline:
            raise InterpreterError("limit: the launch takes more than its seconds (PTXFORGE_TIME_LIMIT)")
        values = self.values
        values.update(zip(block.arguments, arguments))
        for call, operands, results, op in self.plan(block):
            self.current = op
            found = call(self, *[values[v] for v in operands])
            if len(results) == 1:
                values[results[0]] = found
            elif results:
                values.update(zip(results, found, strict=True))
        return tuple(values[v] for v in block.last.operands)

    def plan(self, block: Block) -> list[_Step]:
        """The operations of a block, made ready."""
        found = self.plans.get(block)
        if found is None:
            found = self.plans[block] = [_step(op) for op in block.operations]
        return found

    def place(self) -> str:
        """Where the program is, for messages."""
        op = self.current
        if op is None:
            return f"at the beginning of program {self.index}"
        text = f"in '{op.name}' of program {self.index}"
        return text if op.location is None else f"{text}\n{describe(op.location)}"


def _step(op: Operation) -> _Step:
    handler = HANDLERS.get(type(op))
    if handler is not None:
        return functools.partial(_handle, handler, op), op.operands, op.results, op
    if op.is_terminator:
        return _nothing, (), (), op
    if not hasattr(op, "evaluate"):
        raise InterpreterError(f"the interpreter has no meaning for '{op.name}'")
    if not op.operands:
        constant = op.evaluate()
        return (lambda program: constant), (), op.results, op
    return functools.partial(_evaluate, op.evaluate), op.operands, op.results, op


def _handle(handler: Callable, op: Operation, program: Program, *operands: Any) -> Any:
    return handler(program, op, *operands)


def _evaluate(evaluate: Callable, program: Program, *operands: Any) -> Any:
    return evaluate(*operands)


def _nothing(program: Program) -> None:
    return None


# -- arguments -----------------------------------------------------------------------------------------------


def bind_arguments(
    function: Function, arguments: Sequence[Any] | Mapping[str, Any], memory: AddressSpace, count: int = 1
) -> dict[Value, Any]:
    """The values of a function's parameters; arrays are registered in ``memory``. ``count`` is how many
    programs the caller asked for, which a persistent kernel is told.

    Raises :class:`ArgumentError` for an argument that does not fit.
    """
    counts = list(filter(_is_hidden_count, function.arguments))
    parameters = [p for p in function.arguments if p.type is not T.TENSOR_MAP and p not in counts]
    if isinstance(arguments, Mapping):
        missing = [p.name for p in parameters if p.name not in arguments]
        if missing:
            raise ArgumentError(f"'{function.name}' lacks arguments: {', '.join(missing)}")
        arguments = [arguments[p.name] for p in parameters]
    if len(arguments) != len(parameters):
        raise ArgumentError(
            f"'{function.name}' takes {len(parameters)} arguments, {len(arguments)} were given"
        )
    values = {p: _bind_one(p, given, memory) for p, given in zip(parameters, arguments)}
    by_name = {p.name: value for p, value in values.items()}
    maps = [p for p in function.arguments if p.type is T.TENSOR_MAP]
    values |= {p: to_scalar(count, p.type) for p in counts}
    return values | {p: _tensor_map(TensorMapRecipe(p.name, **p.attributes), by_name) for p in maps}


def _is_hidden_count(parameter: BlockArgument) -> bool:
    return bool(parameter.attributes.get("programs"))


@attrs.frozen
class TensorMap:
    """A tensor in memory: its address, and sizes and strides in elements, outermost dimension first;
    ``padding`` lies outside of it."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str = "zero"


def _tensor_map(recipe: TensorMapRecipe, values: Mapping[str, Any]) -> TensorMap:
    def number(name: str) -> int:
        return int(values[name])

    below = [name for name in recipe.nonnegative if number(name) < 0]
    if below:
        raise ArgumentError(
            "is negative, and the kernel was compiled to read by a tensor map from there on; "
            "tensor_maps=False compiles it for numbers of any sign",
            below[0],
        )
    shape, strides = (
        tuple(tensor_map.evaluate(entry, number) for entry in entries)
        for entries in (recipe.shape, recipe.strides)
    )
    return TensorMap(number(recipe.base), shape, strides, recipe.padding)


def _bind_one(parameter: BlockArgument, given: Any, memory: AddressSpace) -> Any:
    type = parameter.type
    if not isinstance(type, T.PointerType):
        return to_scalar(given, type)
    if isinstance(given, int):
        return np.int64(given)
    if not isinstance(given, np.ndarray):
        raise ArgumentError(f"expected a numpy array, got {given!r}", parameter.name)
    if given.dtype.itemsize != type.pointee.bytes:
        raise ArgumentError(f"array of {given.dtype} for a {type}", parameter.name)
    return np.int64(memory.register(given))


def to_scalar(value: Any, type: T.ScalarType) -> Any:
    """A Python or numpy number as the interpreter holds a value of ``type``; integers keep their low bits."""
    if type.is_float:
        return np.asarray(value, np.float64).astype(type.numpy)[()]
    if type is T.I1:
        return np.bool_(value)
    return np.array([int(value) & ((1 << type.bits) - 1)], np.dtype(f"u{type.bytes}")).view(type.numpy)[0]
