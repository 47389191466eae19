"""``triton._filecheck``: kernels of tests through the frontend.

What compares the text of Triton's IR with a pattern is refused: ptxforge's IR is another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ptxforge.runtime.metadata import GPUTarget
from ptxforge.support.errors import PtxforgeError
from ptxforge.triton_compat import accesses
from ptxforge.triton_compat.compiler import ASTSource
from ptxforge.triton_compat.host import mangle_type

stub_target = GPUTarget("cuda", 90, 32)


class MatchError(ValueError):
    """A text does not match."""


def run_parser(
    kernel_fn: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    target: GPUTarget = stub_target,
) -> accesses.Module:
    """Compile a kernel for these arguments. Raises :class:`CompilationError`."""
    bound = kernel_fn.signature.bind_partial(*args, **{
        name: value for name, value in (kwargs or {}).items() if name in kernel_fn.arg_names
    })  # fmt: skip
    bound.apply_defaults()
    constant = {parameter.name for parameter in kernel_fn.params if parameter.is_constexpr}
    kinds = {
        name: "constexpr" if name in constant else mangle_type(value)
        for name, value in bound.arguments.items()
    }
    constants = {name: bound.arguments[name] for name, kind in kinds.items() if kind == "constexpr"}
    return ASTSource(kernel_fn, kinds, constants).make_ir(target, None, None, None, None)


def run_filecheck(name: str, module_str: str, check_template: str) -> NoReturn:
    """Refused with a :class:`PtxforgeError`."""
    raise PtxforgeError("FileCheck's patterns are about the text of Triton's IR; ptxforge's IR is another")


def run_filecheck_test(kernel_fn: Any) -> NoReturn:
    """Refused with a :class:`PtxforgeError`."""
    run_filecheck(kernel_fn.__name__, "", "")


def filecheck_test(fn: Any) -> Callable[[], None]:
    """A test of a kernel's IR, refused when it runs."""

    @functools.wraps(fn)
    def test_fn() -> None:
        run_filecheck_test(fn)

    return test_fn
