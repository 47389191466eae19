"""What compiling ahead of a launch needs: complete signatures, and element types that stand for arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptxforge.driver.arrays import from_torch_dtype
from ptxforge.driver.device_array import element_type
from ptxforge.language.types import dtype
from ptxforge.runtime import options
from ptxforge.runtime.specialize import Parameter, Specialization, pointer_to, specialize
from ptxforge.support.dtypes import DType
from ptxforge.support.errors import ArgumentError

if TYPE_CHECKING:
    from ptxforge.runtime.jit import JITFunction


def complete_signature(
    kernel: JITFunction, signature: dict[str, str], constants: dict[str, Any]
) -> dict[str, str]:
    """A type for every parameter, constants included. Raises :class:`ArgumentError` for one that has
    none."""
    for name in (*signature, *constants):
        if name not in kernel.arg_names:
            raise ArgumentError(
                f"'{kernel.__name__}' has no such parameter{options.nearest(name, kernel.arg_names)}", name
            )
    complete = {}
    for parameter in kernel.params:
        name = parameter.name
        if parameter.variadic:
            raise ArgumentError("only a launch says how many arguments it stands for", f"*{name}")
        if name not in signature and name not in constants and parameter.has_default:
            constants[name] = parameter.default
        if name in constants or signature.get(name) == "constexpr":
            complete[name] = "constexpr"
        elif name in signature:
            complete[name] = signature[name]
        else:
            raise ArgumentError("has neither a type in the signature nor a constant", name)
        if complete[name] == "constexpr" and name not in constants:
            raise ArgumentError("is a constant without a value; give it in constants", name)
    return complete


def specialize_type(parameter: Parameter, value: Any) -> Specialization:
    """As for a launch; an element type stands for an array of it."""
    short = _pointee(value)
    if parameter.constexpr or short is None:
        return specialize(parameter, value)
    return Specialization(pointer_to(parameter, short, is_aligned=True))


def _pointee(value: Any) -> str | None:
    """The short name of an element type given as a type, ``None`` for anything else."""
    if isinstance(value, (DType, dtype)):
        return element_type(value).short
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return from_torch_dtype(value).short
    return (
        element_type(value).short
        if isinstance(value, type) or type(value).__name__.endswith("DType")
        else None
    )
