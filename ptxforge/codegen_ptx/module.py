"""The text of a PTX module around the instructions of its one kernel."""

from __future__ import annotations

from ptxforge.codegen_ptx.builder import Builder
from ptxforge.ir import types as T
from ptxforge.ir.core import BlockArgument, Function
from ptxforge.ir.ops.dot import Dot
from ptxforge.layouts.encodings import Mma

_PARAMETER_TYPES = {
    T.I1: "u8", T.I8: "u8", T.I16: "u16", T.I32: "u32", T.I64: "u64", T.F8E4M3: "u8", T.F8E5M2: "u8",
    T.F16: "b16", T.BF16: "b16", T.F32: "f32", T.F64: "f64",
}  # fmt: skip


def parameter_type(element: T.Type) -> str:
    """PTX's type of a kernel parameter."""
    return "u64" if isinstance(element, T.PointerType) else _PARAMETER_TYPES[element]


def parameter_name(argument: BlockArgument) -> str:
    """Parameters are named after the user's, with their index so that any two differ."""
    hint = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in argument.hint)
    return f"{hint or 'arg'}_{argument.index}"


def module_text(function: Function, builder: Builder, shared_bytes: int) -> str:
    """The whole module. Call when all instructions were emitted."""
    registers, body = builder.text()
    major, minor = builder.version
    lines = [f".version {major}.{minor}", f".target {builder.target}", ".address_size 64", ""]
    lines += [f'.file {number} "{_escape(name)}"' for name, number in builder.files.items()]
    lines += builder.declarations
    if shared_bytes:
        lines.append(".extern .shared .align 128 .b8 smem[];")
    if builder.local_bytes:
        registers.append(f"\t.local .align 8 .b8 print_buffer[{builder.local_bytes}];")
    lines += ["", *_header(function), "{", *registers, "", *body, "\tret;", "}", ""]
    return "\n".join(lines)


def _escape(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _header(function: Function) -> list[str]:
    parameters = [f"\t.param .{parameter_type(a.type)}{_pointer_facts(a)} {parameter_name(a)}"
                  for a in function.arguments]
    head = f".visible .entry {function.name}("
    lines = [head + ")"] if not parameters else [head, ",\n".join(parameters), ")"]
    lines.append(f".reqntid {32 * function.attributes['num_warps']}, 1, 1")
    if function.attributes.get("maxnreg"):
        lines.append(f".maxnreg {function.attributes['maxnreg']}")
    elif _uses_tensor_cores(function):
        lines.append(".minnctapersm 1")
    return lines


def _uses_tensor_cores(function: Function) -> bool:
    """Whether fragments of matrix products fill the registers. Left to itself, the assembler then saves some
    for blocks that the shared memory of a multiprocessor has no room for, at the expense of loads ahead of
    their use (attention on an H200, D = 128, 128x64 tiles in 8 warps: 171, not 204, and 22 % slower)."""
    return any(isinstance(op, Dot) and isinstance(op.result.type.layout, Mma) for op in function.walk())


def _pointer_facts(argument: BlockArgument) -> str:
    """``.ptr .global .align n``: what a pointer parameter points at."""
    if not isinstance(argument.type, T.PointerType):
        return ""
    align = argument.attributes.get("divisibility", 0)
    align = align & -align if isinstance(align, int) and align > 0 else argument.type.pointee.bytes
    return f" .ptr .global .align {min(max(align, 1), 128)}"
