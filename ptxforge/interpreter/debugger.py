"""What tells authors of a program's values: assertions, printing, and ``breakpoint()``, which is Python's
debugger at the kernel's line.

Before each statement of a kernel that has a ``breakpoint()`` the frontend puts an operation that names the
variables and takes their values. From the newest one of each function that is being executed frames are made
that look like the kernel's own: their file, line and name are the kernel's, their locals numpy arrays. pdb
works in them as ever, except that its stepping commands do not have Python's tracing stop at the next line:
they are remembered, and decide where the interpreter calls the debugger again.
"""

from __future__ import annotations

import ast
import bdb
import functools
import os
import pdb
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import numpy as np

import ptxforge
from ptxforge.interpreter.address_space import AddressSpace
from ptxforge.interpreter.registry import interprets
from ptxforge.ir.ops.debug import Assert, Assume, Breakpoint, Print, index_widths
from ptxforge.support.errors import InterpreterError, PtxforgeError
from ptxforge.support.location import Location

_STOP = "__ptxforge_stop__"
_OURS = (str(Path(ptxforge.__file__).parent), "<ptxforge")
"""How the files of frames begin that no user wants to see."""
_OPTIMIZED = 0x1 | 0x2
"""Flags of a function's code, whose locals are no dictionary: ``CO_OPTIMIZED`` and ``CO_NEWLOCALS``."""


@interprets(Breakpoint)
def breakpoint_(program, op, *values):
    program.debugger.reach(program, op, values)


class Quit(PtxforgeError, bdb.BdbQuit):
    """``quit`` in the debugger of a kernel."""


class Debugger:
    """What the programs of one launch have told, and the debugger that they stop in.

    ``namespace`` holds the kernel's globals, ``first_line`` where its ``def`` is.
    """

    def __init__(self, namespace: dict[str, Any], first_line: int):
        self.namespace, self.first_line = namespace, first_line
        self.scopes: list[dict[str, Any]] = []
        """The variables of the functions being executed, outermost first."""

    @functools.cached_property
    def pdb(self) -> KernelPdb:
        """Python's debugger, made where the first program stops."""
        return KernelPdb()

    def reach(self, program: Any, op: Breakpoint, values: Sequence[Any]) -> None:
        """A program has come to ``op``."""
        places = op.location.chain()[::-1]
        outer = self.scopes[: len(places) - 1]
        unknown = [{} for _ in range(len(places) - 1 - len(outer))]
        self.scopes = [*outer, *unknown, _variables(op, values, program.memory)]
        hook = _foreign_hook()
        if hook is not None:
            if op.stops:
                self._enter(places, self.scopes, hook)
        elif op.stops and os.environ.get("PYTHONBREAKPOINT") != "0" or self._has_stepped_to(places):
            self.pdb.title = f"program {program.index} of {program.grid}"
            stop = functools.partial(self.pdb.stop, len(places), op.stops)
            self._enter(places, self.scopes, stop)

    def _has_stepped_to(self, places: list[Location]) -> bool:
        return "pdb" in self.__dict__ and self.pdb.wants(len(places), places[-1].file, places[-1].line)

    def end_of_program(self) -> None:
        """Stepping ends with a program; the next one runs up to a ``breakpoint()``."""
        self.scopes.clear()
        if "pdb" in self.__dict__:
            self.pdb.set_continue()

    def _enter(self, places: list[Location], scopes: list[dict], call: Callable[[], Any]) -> None:
        """Call a function from frames that stand at ``places``, outermost first."""
        inner = functools.partial(self._enter, places[1:], scopes[1:], call) if places[1:] else call
        first = self.first_line if len(places) == len(self.scopes) else places[0].line
        exec(_code(places[0], min(first, places[0].line)), self.namespace | {_STOP: inner}, scopes[0])


def _foreign_hook() -> Callable[[], Any] | None:
    """What ``breakpoint()`` calls, where that is not Python's own debugger: an IDE's, pytest's, IPython's."""
    if sys.breakpointhook is not sys.__breakpointhook__:
        return sys.breakpointhook
    chosen = os.environ.get("PYTHONBREAKPOINT") or "pdb.set_trace"
    return None if chosen in ("0", "pdb.set_trace") else sys.__breakpointhook__


@functools.lru_cache(maxsize=1024)
def _code(place: Location, first_line: int) -> CodeType:
    """Code that calls ``_STOP`` at a line of a function that begins at ``first_line``."""
    function = ast.FunctionDef(
        name=place.function or "kernel",
        args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=[ast.Expr(ast.Call(ast.Name(_STOP, ast.Load()), [], []))],
        decorator_list=[],
    )
    for node in ast.walk(function):
        line = first_line if node is function else place.line
        node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = line, line, 0, 0
    module = compile(ast.Module([function], []), place.file, "exec")
    code = next(constant for constant in module.co_consts if isinstance(constant, CodeType))
    return code.replace(co_flags=code.co_flags & ~_OPTIMIZED)


# -- values ------------------------------------------------------------------------------------------------


class Pointers:
    """Pointers as the debugger shows them: ``addresses``, and which elements of an argument those are."""

    def __init__(self, addresses: np.ndarray, type: str, memory: AddressSpace):
        self.addresses, self.type, self._memory = addresses, type, memory
        self.shape = np.shape(addresses)

    def __repr__(self) -> str:
        place = self._memory.array_at(int(np.min(self.addresses))) if np.size(self.addresses) else None
        if place is None:
            return f"<pointers{self.type.removeprefix('pointer')}: {self.addresses!r}>"
        name, start, itemsize = place
        index = (self.addresses - start) // itemsize
        return f"<pointers{self.type.removeprefix('pointer')}: {name} + {index!r}>"


def _variables(op: Breakpoint, values: Sequence[Any], memory: AddressSpace) -> dict[str, Any]:
    """What the names mean: numpy arrays and numbers, which cannot be written to."""
    tree: dict[str, Any] = {}
    for constant in op.constants:
        path, _, text = constant.partition(" = ")
        _put(tree, path, ast.literal_eval(text) if text not in ("inf", "-inf", "nan") else float(text))
    for path, kind, value in zip(op.names, op.types, values, strict=True):
        _put(tree, path, _shown(value, kind, memory))
    return {name: _grown(part) for name, part in tree.items()}


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for name in above:
        tree = tree.setdefault(name, {})
    tree[last] = value


def _grown(part: Any) -> Any:
    """A tuple, or an object with fields, of the values in a tree."""
    if not isinstance(part, dict):
        return part
    parts = {name: _grown(inner) for name, inner in part.items()}
    if all(name.isdigit() for name in parts):
        return tuple(parts[name] for name in sorted(parts, key=int))
    return SimpleNamespace(**parts)


def _shown(value: Any, kind: str, memory: AddressSpace) -> Any:
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    if kind.startswith("pointer"):
        return Pointers(value, kind, memory)
    if kind.startswith("uint"):
        return value.view(f"u{value.dtype.itemsize}")
    return value


# -- pdb ---------------------------------------------------------------------------------------------------


class KernelPdb(pdb.Pdb):
    """pdb whose stepping commands are the interpreter's."""

    def __init__(self) -> None:
        super().__init__(nosigint=True)
        self.reset()
        self.title = ""
        self._go: tuple[str, int, int] | None = None
        """The last stepping command, the depth of calls and the line that it was given at."""
        self._depth, self._has_stepped = 0, False

    def stop(self, depth: int, always: bool) -> None:
        """Talk to the user; called from the frame to stand in. Raises :class:`Quit` for ``quit``."""
        frame = sys._getframe(1)
        if not (always or self._has_stepped or self.break_here(frame)):
            return
        self._depth, self._go = depth, None
        self.message(f"[{self.title}]")
        self.interaction(frame, None)
        if self.quitting:
            raise Quit(f"{self.title} was left by 'quit'")

    def wants(self, depth: int, file: str, line: int) -> bool:
        """Whether to stop before a statement: because of a stepping command, or perhaps of a breakpoint."""
        self._has_stepped = self._steps_to(depth, line)
        return self._has_stepped or line in self.breaks.get(self.canonic(file), ())

    def _steps_to(self, depth: int, line: int) -> bool:
        if self._go is None:
            return False
        kind, at_depth, at_line = self._go
        if kind == "step":
            return True
        if kind == "return":
            return depth < at_depth
        return depth < at_depth or depth == at_depth and (kind == "next" or line >= at_line)

    def get_stack(self, f: FrameType | None, t: Any) -> tuple[list[tuple[FrameType, int]], int]:
        """Without ptxforge's own frames."""
        stack, _ = super().get_stack(f, t)
        shown = [entry for entry in stack if not entry[0].f_code.co_filename.startswith(_OURS)]
        return shown, max(0, len(shown) - 1)

    def set_step(self) -> None:
        """Stop at the next statement, in whatever function."""
        self._go = "step", self._depth, 0

    def set_next(self, frame: FrameType) -> None:
        """Stop at the next statement of this function or of a caller."""
        self._go = "next", self._depth, 0

    def set_return(self, frame: FrameType) -> None:
        """Stop at the caller's next statement."""
        self._go = "return", self._depth, 0

    def set_until(self, frame: FrameType, lineno: int | None = None) -> None:
        """Stop at a line from ``lineno`` on (the next one), or in a caller."""
        self._go = "until", self._depth, frame.f_lineno + 1 if lineno is None else lineno

    def set_continue(self) -> None:
        """Go on to a ``breakpoint()`` or a breakpoint."""
        self._go = None

    def set_quit(self) -> None:
        """End the launch."""
        self.quitting = True


@interprets(Assert)
def run_assert(program, op, condition):
    _require(condition, f"assertion failed: {op.message}" if op.message else "assertion failed")


@interprets(Assume)
def assume(program, op, condition):
    _require(condition, "what the kernel assumes does not hold")


def _require(condition, message: str) -> None:
    condition = np.asarray(condition)
    if not condition.all():
        place = np.argwhere(~np.atleast_1d(condition))[0]
        raise InterpreterError(
            message if condition.ndim == 0 else f"{message}, at index {tuple(map(int, place))}"
        )


@interprets(Print)
def run_print(program, op, *values):
    program_text = ", ".join(str(i) for i in program.index)
    if not values:
        program.output(f"pid ({program_text}){op.prefix}")
    for number, value in enumerate(values):
        widths = index_widths(np.shape(value))
        for place in np.ndindex(np.shape(value)):
            index = ", ".join(f"{i:{width}}" for i, width in zip(place, widths))
            element = _text(np.asarray(value)[place], op.is_signed(number), op.hex)
            program.output(f"pid ({program_text}) idx ({index}){op.label(number)}{element}")


def _text(value, signed: bool, hexadecimal: bool) -> str:
    if hexadecimal and value.dtype != np.bool_:
        size = value.dtype.itemsize
        return f"0x{int(value.view(np.dtype(f'u{size}'))):0{2 * size}x}"
    if value.dtype.kind == "i" and not signed:
        return str(value.view(np.dtype(f"u{value.dtype.itemsize}")))
    return str(value)
