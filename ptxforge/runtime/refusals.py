"""Errors of calls and launches, in the kernel's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxforge.runtime.launcher import PreparedLaunch, normalize_grid
from ptxforge.runtime.options import explain_binding
from ptxforge.runtime.plans import MISSING
from ptxforge.runtime.specialize import Parameter, Specialization
from ptxforge.runtime.variant import CompiledKernel
from ptxforge.support.errors import ArgumentError, DeviceError

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
