"""A kernel's function, signature and constants → IR."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ptxforge.frontend import control, loops, semantics, statements, while_loops
from ptxforge.frontend.context import Context
from ptxforge.frontend.expressions import static_object
from ptxforge.frontend.source import Parameter, SourceFunction, source_function
from ptxforge.frontend.values import TensorValue, ir_type
from ptxforge.frontend.visitor import Visitor
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function
from ptxforge.ir.ops.control import Return
from ptxforge.language import types as L
from ptxforge.support import dtypes
from ptxforge.support.errors import CompilationError, InternalCompilerError, PtxforgeError

__all__ = ["build", "control", "loops", "parse_type", "semantics", "statements", "while_loops"]

_TYPE = re.compile(r"(?P<stars>\**)(?P<const>k?)(?P<element>[a-z]\w*?)(?::(?P<divisibility>\d+))?")


def build(
    fn: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    target: str,
    num_warps: int = 4,
    num_stages: int = 3,
    num_ctas: int = 1,
    maxnreg: int | None = None,
    debug: bool = False,
) -> Function:
    """The tile IR of a kernel.

    ``fn`` is a Python function, or a jitted one. ``signature`` gives the type of each runtime parameter
    (``"*fp32:16"``), ``constants`` the value of each compile-time one; where both have a name, the constant
    wins. ``debug`` keeps device assertions.

    Raises:
        CompilationError: the source is wrong; with the line and a caret.
        InternalCompilerError: ptxforge is.
    """
    source = source_function(getattr(fn, "fn", fn))
    attributes: dict[str, Any] = {
        "num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, "target": target,
    }  # fmt: skip
    if maxnreg is not None:
        attributes["maxnreg"] = maxnreg
    function = Function(_symbol(source.name), attributes=attributes, location=source.header())
    ctx = Context(Builder(function.body, location=source.header()), target, debug)
    scope = _parameters(source, function, signature, constants)
    try:
        _build_body(Visitor(ctx, source, scope))
    except PtxforgeError:
        raise
    except RecursionError:
        raise CompilationError("the kernel is nested too deeply", source.header()) from None
    except Exception as error:  # anything else is a fault of the compiler; say where in the kernel
        raise InternalCompilerError(
            f"{type(error).__name__} while compiling '{source.name}' at {ctx.builder.location}: {error}"
        ) from error
    return function


def _build_body(visitor: Visitor) -> None:
    source, builder = visitor.source, visitor.ctx.builder
    visitor.execute(source.tree.body)
    builder.location = source.header()
    builder.create(Return)


def _symbol(name: str) -> str:
    """A name that PTX allows: other characters are spelled by their numbers."""
    return "".join(c if c.isascii() else f"_u{ord(c):x}" for c in name)


def _parameters(
    source: SourceFunction, function: Function, signature: Mapping[str, str], constants: Mapping[str, Any]
) -> dict[str, Any]:
    """Bind each parameter: to a constant, to an argument of the function, or to its default."""
    if source.variadic:
        raise CompilationError(
            f"a kernel has a fixed list of parameters, not *{source.variadic}", source.header()
        )
    known = {parameter.name for parameter in source.parameters}
    for name in (*signature, *constants):
        if name not in known:
            raise CompilationError(
                f"'{source.name}' has no parameter '{name}'",
                hint=f"its parameters are {', '.join(sorted(known))}",
            )
    scope = {}
    for parameter in source.parameters:
        scope[parameter.name] = _bind(source, function, parameter, signature, constants)
    return scope


def _bind(
    source: SourceFunction,
    function: Function,
    parameter: Parameter,
    signature: Mapping[str, str],
    constants: Mapping,
) -> Any:
    name = parameter.name
    if name in constants:
        return static_object(constants[name])
    type = signature.get(name, "constexpr")
    if type != "constexpr":
        if parameter.is_constexpr:
            raise CompilationError(
                f"parameter '{name}' of '{source.name}' is annotated tl.constexpr and needs a value in"
                " constants"
            )
        dtype, divisibility = parse_type(type, name)
        argument = function.body.add_argument(ir_type(dtype), hint=name)
        if divisibility > 1:
            argument.attributes["divisibility"] = divisibility
        return TensorValue(argument, dtype)
    if parameter.has_default:
        return static_object(parameter.default)
    where = "constants" if parameter.is_constexpr else "the signature or in constants"
    raise CompilationError(f"parameter '{name}' of '{source.name}' is missing in {where}", source.header())


def parse_type(text: str, name: str = "") -> tuple[L.dtype | L.pointer_type, int]:
    """A signature's type and divisibility: ``"*fp32:16"`` → (pointer to float32, 16). ``*k…`` points at
    constants.

    Raises :class:`CompilationError` for a text that is no type.
    """
    match = _TYPE.fullmatch(text)
    try:
        dtype: L.dtype | L.pointer_type = L.dtype(match["element"])
    except TypeError:
        known = ", ".join(d.short for d in dtypes.ALL)
        raise CompilationError(
            f"'{text}', the type of '{name}', is not a type",
            hint=f"write an element type ({known}) or *type, and :16",
        ) from None
    if match["const"] and not match["stars"]:
        raise CompilationError(
            f"'{text}', the type of '{name}', is not a type: only pointers are const (*k…)"
        )
    for depth in range(len(match["stars"])):
        dtype = L.pointer_type(dtype, const=bool(match["const"]) and depth == 0)
    return dtype, int(match["divisibility"] or 1)
