"""Names of ``triton.language`` below its public ones that generated kernels use."""

from __future__ import annotations

from typing import Any

from ptxforge import language
from ptxforge.language.constexpr import unwrap
from ptxforge.language.registry import constexpr_function


@constexpr_function
def get_int_dtype(bitwidth: int, signed: bool) -> Any:
    """The integer type of that width."""
    return getattr(language, f"{'int' if signed else 'uint'}{bitwidth}")


@constexpr_function
def unwrap_if_constexpr(value: Any) -> Any:
    """The value inside a ``constexpr``."""
    return unwrap(value)


CORE = {
    "get_int_dtype": get_int_dtype,
    "_unwrap_if_constexpr": unwrap_if_constexpr,
    "_aggregate": language.aggregate,
}
