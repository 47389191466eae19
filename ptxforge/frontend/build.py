"""A kernel's function, signature and constants → IR."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ptxforge.frontend import control, loops, semantics, statements
from ptxforge.frontend.context import Context
from ptxforge.frontend.expressions import static_object
from ptxforge.frontend.semantics.registry import ArgumentProblem
from ptxforge.frontend.source import Parameter, SourceFunction, source_function
from ptxforge.frontend.values import Descriptor, TensorValue, ir_type
from ptxforge.frontend.visitor import Visitor
from ptxforge.ir import types as T
from ptxforge.ir.builder import Builder
from ptxforge.ir.core import Function, Value
from ptxforge.ir.ops.control import Return
from ptxforge.language import types as L
from ptxforge.language.descriptor import tensor_descriptor_type
from ptxforge.support import descriptor, dtypes
from ptxforge.support.errors import CompilationError, InternalCompilerError, PtxforgeError

__all__ = ["build", "control", "loops", "parse_type", "semantics", "statements"]

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
    enable_fp_fusion: bool = True,
    sanitize_overflow: bool = True,
    enable_reflect_ftz: bool = True,
    steps: bool = False,
) -> Function:
    """The tile IR of a kernel.

    ``fn`` is a Python function, or a jitted one. ``signature`` gives the type of each runtime parameter
    (``"*fp32:16"``; ``"i64:1"`` is an integer that is 1), ``constants`` the value of each compile-time one;
    where both have a name, the constant wins. ``debug`` keeps device assertions, and with
    ``sanitize_overflow`` adds some against overflow; without ``enable_fp_fusion`` products and sums are
    rounded each, without ``enable_reflect_ftz`` powers of two may be denormal; ``steps`` has a debugger told
    of every statement.

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
    if not enable_fp_fusion:
        attributes["enable_fp_fusion"] = False
    function = Function(_symbol(source.name), attributes=attributes, location=source.header())
    builder = Builder(function.body, location=source.header())
    checks_overflow = debug and sanitize_overflow
    ctx = Context(
        builder, target, debug, checks_overflow=checks_overflow, keeps_denormals=not enable_reflect_ftz,
        num_warps=num_warps, steps=steps,
    )  # fmt: skip
    structure = getattr(fn, "__ptxforge_structure__", {})
    scope = _parameters(source, function, signature, constants, structure)
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
    builder.location = visitor.locate(source.tree.body[-1])
    builder.create(Return)


def _symbol(name: str) -> str:
    """A name that PTX allows: other characters are spelled by their numbers."""
    return "".join(c if c.isascii() else f"_u{ord(c):x}" for c in name)


def _parameters(
    source: SourceFunction, function: Function, signature: Mapping[str, str], constants: Mapping[str, Any],
    structure: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Bind each parameter: to a constant, to an argument of the function, or to its default. ``structure``
    tells which are tuples, and what the parameters of their elements are called."""
    if source.variadic and source.variadic not in structure:
        raise CompilationError(
            f"only a launch says how many parameters *{source.variadic} stands for", source.header()
        )
    declared = {parameter.name: parameter for parameter in source.parameters}
    known = {name for name in declared if name not in structure}
    known |= {name for nested in structure.values() for name in _names(nested)}
    for name in (*signature, *constants):
        if name not in known:
            raise CompilationError(
                f"'{source.name}' has no parameter '{name}'",
                hint=f"its parameters are {', '.join(sorted(known))}",
            )

    def bound(name: str) -> Any:
        parameter = declared.get(name) or Parameter(name, name in constants)
        return _bind(source, function, parameter, signature, constants)

    names = [*declared, *([source.variadic] if source.variadic else [])]
    return {name: _assembled(structure.get(name, name), bound) for name in names}


def _names(part: Any) -> list[str]:
    """The parameters that a tuple is made of."""
    return [part] if isinstance(part, str) else [name for item in part.parts for name in _names(item)]


def _assembled(part: Any, bound: Callable[[str], Any]) -> Any:
    """The value of a parameter, or a tuple of the values of those that it was taken apart into."""
    if isinstance(part, str):
        return bound(part)
    items = [_assembled(item, bound) for item in part.parts]
    return part.kind(*items) if hasattr(part.kind, "_fields") else tuple(items)


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
        if descriptor.is_descriptor(type):
            return _descriptor(function, type, name)
        return _argument(function, type, name)
    if parameter.has_default:
        return static_object(parameter.default)
    where = "constants" if parameter.is_constexpr else "the signature or in constants"
    raise CompilationError(f"parameter '{name}' of '{source.name}' is missing in {where}", source.header())


def _argument(function: Function, type: str, name: str) -> TensorValue:
    dtype, divisibility = parse_type(type, name)
    argument = function.add_parameter(ir_type(dtype), name)
    if divisibility == 1:
        return TensorValue(_one(function, argument.type), dtype)
    if divisibility > 1:
        argument.attributes["divisibility"] = divisibility
    return TensorValue(argument, dtype)


def _one(function: Function, type: T.Type) -> Value:
    return Builder(function.body).constant(1, type)


def _descriptor(function: Function, type: str, name: str) -> Descriptor:
    """A descriptor of the parameters that stand for it."""
    try:
        found = descriptor.parse(type)
        semantics.descriptor.check_box(found.box, L.of(found.dtype))
    except ValueError as error:
        raise CompilationError(str(error), hint=f"that is the type of '{name}'") from None
    except ArgumentProblem as problem:
        raise CompilationError(f"'{type}', the type of '{name}', cannot be: {problem.message}") from None
    base, *numbers = [_argument(function, kind, part) for part, kind in found.parameters(name)]
    rank = len(found.box)
    one = TensorValue(_one(function, T.I64), L.int64)
    kind = tensor_descriptor_type(L.block_type(L.of(found.dtype), found.box), found.padding)
    return Descriptor(base, tuple(numbers[:rank]), (*numbers[rank:], one), kind)


def parse_type(text: str, name: str = "") -> tuple[L.dtype | L.pointer_type, int]:
    """A signature's type and divisibility: ``"*fp32:16"`` → (pointer to float32, 16), or 0 where it says
    nothing of that. Of an integer, 1 says that it is 1. ``*k…`` points at constants.

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
    divisibility = int(match["divisibility"] or 0)
    if divisibility == 1 and not (isinstance(dtype, L.dtype) and dtype.is_int()):
        raise CompilationError(f"'{text}', the type of '{name}', is not a type: only integers are 1 (i32:1)")
    return dtype, divisibility
