"""The text of a PTX module around the instructions of its one kernel."""

from __future__ import annotations

from ptxforge.codegen_ptx.ptx import pipeline
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function
from ptxforge.ir.definition import ALLOCATES
from ptxforge.ir.warps import threads_of
from ptxforge.layouts.panels import MAX_ALIGNMENT, Panels
from ptxforge.support import machine, tensor_map
from ptxforge.support.location import escaped

_PARAMETER_TYPES = {
    T.I1: "u8", T.I8: "u8", T.I16: "u16", T.I32: "u32", T.I64: "u64", T.F8E4M3: "u8", T.F8E5M2: "u8",
    T.F16: "b16", T.BF16: "b16", T.F32: "f32", T.F64: "f64",
}  # fmt: skip


def parameter_type(element: T.Type) -> str:
    """PTX's type of a kernel parameter."""
    return "u64" if isinstance(element, T.PointerType) else _PARAMETER_TYPES[element]


def parameter_name(argument: BlockArgument) -> str:
    """Parameters are named after the user's, with their index so that any two differ."""
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in argument.name)
    return f"{name or 'arg'}_{argument.index}"


def module_text(
    function: Function, builder: Builder, shared_bytes: int, why: bool = False,
    timings: dict[str, float] | None = None,
) -> str:  # fmt: skip
    """The whole module. Call when all instructions were emitted; ``why`` and ``timings`` as for ``emit``."""
    registers, body = pipeline.run(builder, why, timings)
    major, minor = builder.version
    lines = [f".version {major}.{minor}", f".target {builder.target}", ".address_size 64", ""]
    lines += [f'.file {number} "{escaped(name)}"' for name, number in builder.files.items()]
    lines += builder.declarations
    if shared_bytes:
        alignment = MAX_ALIGNMENT if _has_panels(function) else machine.BUFFER_ALIGNMENT
        lines.append(f".extern .shared .align {alignment} .b8 smem[];")
    if builder.local_bytes:
        registers.append(f"\t.local .align 8 .b8 print_buffer[{builder.local_bytes}];")
    lines += ["", *_header(function), "{", *registers, "", *([body] if body else [])]
    return "\n".join([*lines, *_end(function, builder, body), "}", ""])


def _end(function: Function, builder: Builder, body: str) -> list[str]:
    """``ret``, which belongs to the kernel's last statement, as in Python."""
    terminator = function.body.terminator
    place = terminator and terminator.location
    number = builder.files.get(place.file) if place else None
    line = f"\t.loc {number} {place.line} {place.column + 1}" if number else ""
    last = body[max(body.rfind("\t.loc "), 0) :].partition("\n")[0]
    return ["\tret;"] if line in ("", last) else [line, "\tret;"]


def _header(function: Function) -> list[str]:
    parameters = [f"\t.param {_declaration(argument)}" for argument in function.arguments]
    head = f".visible .entry {function.name}("
    lines = [head + ")"] if not parameters else [head, ",\n".join(parameters), ")"]
    lines.append(f".reqntid {threads_of(function)}, 1, 1")
    if (ctas := function.attributes.get("num_ctas", 1)) > 1:
        lines += [".explicitcluster", f".reqnctapercluster {ctas}, 1, 1"]
    if function.attributes.get("maxnreg"):
        lines.append(f".maxnreg {function.attributes['maxnreg']}")
    elif function.attributes.get("min_blocks"):
        lines.append(f".minnctapersm {function.attributes['min_blocks']}")
    return lines


def _has_panels(function: Function) -> bool:
    """Whether tiles lie in panels, whose places depend on the addresses where they begin."""
    return any(ALLOCATES in op.traits and isinstance(op.result.type.layout, Panels)
               for op in function.walk())


def _declaration(argument: BlockArgument) -> str:
    name = parameter_name(argument)
    if argument.type is T.TENSOR_MAP:
        return f".align {tensor_map.ALIGNMENT} .b8 {name}[{tensor_map.BYTES}]"
    return f".{parameter_type(argument.type)}{_pointer_facts(argument)} {name}"


def _pointer_facts(argument: BlockArgument) -> str:
    """``.ptr .global .align n``: what a pointer parameter points at."""
    if not isinstance(argument.type, T.PointerType):
        return ""
    align = argument.attributes.get("divisibility", 0)
    align = align & -align if isinstance(align, int) and align > 0 else argument.type.pointee.bytes
    return f" .ptr .global .align {min(max(align, 1), 128)}"
