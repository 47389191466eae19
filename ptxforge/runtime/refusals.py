"""Errors of calls and launches, in the kernel's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxforge.language.constexpr import unwrap
from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid
from ptxforge.runtime.options import explain_binding
from ptxforge.runtime.plans import MISSING
from ptxforge.runtime.specialize import Parameter, Specialization
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.support.errors import ArgumentError, ChangedGlobalError, CompilationError, DeviceError

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction


def of_binding(kernel: JITFunction, error: TypeError, args: tuple, kwargs: dict[str, Any]) -> Exception:
    """The error of a call that does not bind."""
    wrong = explain_binding(kernel.params, kernel.__name__, args, kwargs)
    return ArgumentError(wrong) if wrong is not None else error


def of_arguments(kernel: JITFunction, bound: tuple, rest: tuple, given: dict[str, Any]) -> ArgumentError:
    """The error of a call with too few arguments (``bound`` has ``MISSING`` in their places) or with more,
    which are ``rest``."""
    names = kernel.arg_names
    named = {name: value for name, value in zip(names, bound, strict=True) if value is not MISSING}
    positional = (*bound, *rest) if rest else ()
    return ArgumentError(explain_binding(kernel.params, kernel.__name__, positional, named | given))


_COMPILED_IN: dict[tuple[str, str], tuple[str, Any]] = {}
"""By module and name of a global: the first kernel that was compiled with it, and the value there."""


def note_globals(kernel: JITFunction) -> None:
    """Remember the globals that a kernel was compiled with, for :func:`of_compilation`; those of a namespace
    that has no name (``exec``) are nobody else's."""
    for scope, name, value in kernel.dependencies.values:
        if isinstance(scope, dict) and "__name__" in scope:
            _COMPILED_IN.setdefault((scope["__name__"], name), (kernel.__name__, value))


def of_compilation(kernel: JITFunction, error: CompilationError) -> Exception:
    """``error``, or where its reason is that a global is no constant any more, which says so, in that
    place."""
    for scope, name, now in kernel.dependencies.values:
        is_reason = error.message.startswith(f"the global variable '{name}' cannot be read")
        if not is_reason or not isinstance(scope, dict):
            continue
        first, value = _COMPILED_IN.get((scope.get("__name__"), name), ("", now))
        if value != now:
            _, _, place = str(error).partition("\n")
            return ChangedGlobalError(
                f"the global variable '{name}' was {value!r} when '{first}' was compiled, and in "
                f"'{kernel.__name__}' it is {now!r}, which is not a compile-time constant\n{place}"
            )
    return error


def of_global(kernel: str, name: str, value: Any, now: Any) -> ChangedGlobalError:
    """The error of a global that had another ``value`` when ``kernel`` was compiled."""
    return ChangedGlobalError(
        f"the global variable '{name}' was {unwrap(value)!r} when '{kernel}' was compiled "
        f"and is {unwrap(now)!r} now; pass it as an argument"
    )


def check_writable(
    parameters: tuple[Parameter, ...], made: list[Specialization], variant: CompiledKernel
) -> None:
    """Raise :class:`ArgumentError` when the kernel may write to an array that is read-only."""
    for parameter, specialization in zip(parameters, made, strict=True):
        if specialization.readonly and parameter.name in variant.artifact.written:
            raise ArgumentError(
                "is a read-only array, and the kernel may store to it; pass a copy that can be written",
                parameter.name,
            )


def check_hashes(
    parameters: tuple[Parameter, ...], made: list[Specialization], given: dict[str, Any]
) -> None:
    """Raise :class:`ArgumentError` for a constant or an option that cannot be the key of a variant."""
    constants = {p.name: s.constant for p, s in zip(parameters, made, strict=True)}
    for name, value in (constants | given).items():
        try:
            hash(value)
        except TypeError:
            kind = type(value).__name__
            raise ArgumentError(f"a '{kind}' cannot be compiled in: it has no hash", name) from None


def of_launch(
    parameters: tuple[Parameter, ...], error: Exception, prepared: PreparedLaunch, values: tuple, grid: Any
) -> Exception:
    """The error of a launch that failed, naming the argument that does not fit. Raises
    :class:`LaunchError` when the grid cannot be."""
    normalize_grid(grid)
    if isinstance(error, DeviceError):
        return error
    types = dict(prepared.variant.artifact.parameters)
    for parameter in parameters:
        value = values[parameter.index]
        if types.get(parameter.name) == "fp32" and isinstance(value, float) and abs(value) > 3.4028235e38:
            return ArgumentError(f"{value!r} does not fit in fp32", parameter.name)
    return ArgumentError(f"an argument does not fit in its parameter's type ({error})")
