"""Every exception that ptxforge raises on purpose.

They are one tree, so that ``except ptxforge.PtxforgeError`` catches all of it. :class:`CompilationError` is
about a kernel's source, :class:`LaunchError` about a launch, :class:`DeviceError` and
:class:`InterpreterError` about what a kernel does, :class:`IRError` about IR.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import ClassVar

from ptxforge.support.location import Location, describe


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint with the known word that is most like a misspelt one, or ``""``."""
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean '{close[0]}'?" if close else ""


class PtxforgeError(Exception):
    """Base of all errors of ptxforge."""

    also: ClassVar[Callable[[PtxforgeError, str], str] | None] = None
    """What the text becomes under the alias ``triton``."""

    def __str__(self) -> str:
        text, also = self._text(), PtxforgeError.also
        return text if also is None else also(self, text)

    def _text(self) -> str:
        return super().__str__()

    @property
    def error_message(self) -> str:
        """The text (Triton's name)."""
        return str(self)


class CompilationError(PtxforgeError):
    """The kernel's source is wrong.

    ``message`` says what, ``hint`` what to do, ``location`` where. The text shows the source line with a
    caret and, for an inlined function, the calls that led there. A location can be filled in later by
    :meth:`at`, by code that knows it.
    """

    def __init__(self, message: str, location: Location | None = None, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint

    @property
    def error_message(self) -> str:
        """What is wrong, without the place (Triton's name)."""
        also = PtxforgeError.also
        return self.message if also is None else also(PtxforgeError(self.message), self.message)

    def at(self, location: Location | None) -> CompilationError:
        """This error with ``location`` filled in, unless it has one already."""
        if self.location is None:
            self.location = location
        return self

    def _text(self) -> str:
        parts = [self.message]
        if self.location is not None:
            parts.append(describe(self.location))
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


class UnsupportedSyntaxError(CompilationError):
    """Python syntax that has no meaning inside a kernel."""


class TypeMismatchError(CompilationError, TypeError):
    """Operand types or shapes that do not fit together."""


class CompileTimeAssertionError(CompilationError):
    """``tl.static_assert`` did not hold."""


class LaunchError(PtxforgeError):
    """A kernel was launched in a way that cannot work."""


class ArgumentError(LaunchError, TypeError):
    """An argument cannot be passed to the kernel. ``argument`` is the parameter's name."""

    def __init__(self, message: str, argument: str = ""):
        super().__init__(f"argument '{argument}': {message}" if argument else message)
        self.argument = argument


class ValueArgumentError(ArgumentError, ValueError, AssertionError):
    """An argument is of the right type and has a value that cannot be."""


class ElementTypeError(CompilationError, ArgumentError):
    """No kernel can be compiled for arrays of this element type."""

    def __init__(self, message: str, argument: str = ""):
        CompilationError.__init__(self, f"argument '{argument}': {message}" if argument else message)
        self.argument = argument


class PlacementError(ArgumentError, ValueError):
    """An array lies where the kernel cannot reach it: on the host, or on another device."""


class IntegerRangeError(ArgumentError, OverflowError):
    """An integer does not fit in 64 bits."""


class NoLaunchError(LaunchError, RuntimeError):
    """A kernel was called where it can only be launched."""


class ChangedGlobalError(LaunchError, RuntimeError):
    """A global that was compiled in has another value now."""


class SpecializationError(LaunchError, RuntimeError):
    """Specialization data is that of another kernel."""


class ForeignFunctionError(LaunchError, RuntimeError):
    """A compile-time function calls what may change without a change of its text."""


class JITForbiddenError(LaunchError):
    """A launch would have to compile or assemble, and ``PTXFORGE_JIT=forbid`` or ``forbid_jit`` says no."""


class OutOfResourcesError(LaunchError):
    """More of ``resource`` is ``required`` than the ``limit`` of the device;
    ``users`` lists what takes it."""

    def __init__(self, resource: str, required: int, limit: int, users: str = "", hint: str = ""):
        self.resource, self.required, self.limit = resource, required, limit
        text = f"out of resource: {resource}: {required} required, {limit} available"
        super().__init__("\n".join(part for part in (text, users, f"hint: {hint}" if hint else "") if part))

    @property
    def name(self) -> str:
        """The resource (Triton's name)."""
        return self.resource


class DeviceError(PtxforgeError):
    """The driver, its JIT or the emulator reports a failure. ``log`` holds the JIT's own text, if any."""

    def __init__(self, message: str, log: str = ""):
        super().__init__(f"{message}\n{log}".rstrip())
        self.log = log


class OtherVariantError(DeviceError):
    """A launch is not for the variant of a kernel that it was to be, but for one that is compiled with the
    ``option``, a name and a value."""

    option: tuple[str, bool]


class EmulatorError(DeviceError):
    """PTX that the emulator cannot load (unknown instruction, bad syntax) or that misbehaves when run."""


class InterpreterError(PtxforgeError):
    """A kernel misbehaves when the interpreter runs it: an access outside its arrays, a failed assertion."""


class AutotunerError(PtxforgeError):
    """No configuration of an autotuned kernel works, or its configurations contradict the call."""


class SettingError(PtxforgeError, ValueError):
    """An environment variable of ptxforge has a value that it cannot have; the message names it."""


class IRError(PtxforgeError):
    """Malformed IR."""


class ParseError(IRError):
    """IR, layout or signature text that cannot be read; says line and column of that text."""

    def __init__(self, message: str, line: int = 0, column: int = 0, source: str = ""):
        self.line, self.column = line, column
        text = f"{line}:{column}: {message}" if line else message
        rows = source.splitlines()
        if 1 <= line <= len(rows):
            text += f"\n{rows[line - 1]}\n{' ' * (column - 1)}^"
        super().__init__(text)


class VerificationError(IRError):
    """An invariant of the IR does not hold; the message cites the invariant's number."""


class LaunchInterrupt(KeyboardInterrupt):
    """Ctrl-C during a launch on the emulator or in the interpreter; says in which kernel, line and programs
    it came."""


class InternalCompilerError(PtxforgeError):
    """A fault of ptxforge itself. The message holds the IR with a note at the guilty operation."""
