"""Assertions and printing, by the functions that every CUDA driver provides: ``__assertfail`` and
``vprintf``."""

from __future__ import annotations

from ptxforge.codegen_ptx.lower.elementwise import sign_extended, zero_extended
from ptxforge.codegen_ptx.lower.floats import to_f32
from ptxforge.codegen_ptx.lower.indices import coordinate, linear_of, owner, replication
from ptxforge.codegen_ptx.lowering import Lowering, lowers
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.pointers import Pointer, whole
from ptxforge.codegen_ptx.ptx.registers import Register
from ptxforge.ir import types as T
from ptxforge.ir.core import Value
from ptxforge.ir.ops import debug as ops
from ptxforge.support.errors import CompilationError

_ASSERT_FAIL = """.extern .func __assertfail (
\t.param .b64 message, .param .b64 file, .param .b32 line, .param .b64 function, .param .b64 char_size
);"""
_VPRINTF = ".extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);"


def string_address(b: Builder, text: str) -> Register:
    """The generic address of a zero-terminated string in global memory."""
    data = text.encode() + b"\0"
    name = b.strings.setdefault(text, f"string_{len(b.strings)}")
    b.declarations[f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};"] = None
    address = b.pure(f"mov.b64 %s, {name};", "q")
    return b.pure("cvta.global.u64 %s, %s;", "q", address)


@lowers(ops.Assert)
def lower_assert(ctx: Lowering, op: ops.Assert) -> None:
    b = ctx.b
    holds = None
    for entry in dict.fromkeys(ctx.get(op.condition)):
        holds = b.both(holds, entry)
    if holds == 1:
        return
    b.declarations[_ASSERT_FAIL] = None
    location = op.location
    message = string_address(b, op.message)
    file = string_address(b, location.file if location else "unknown")
    function = string_address(b, (location.function if location else "") or ctx.function.name)
    end = b.label("assert_end")
    b.effect(f"bra {end};", guard=b.register(holds, "p"))
    b.effect("{ .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4; "
             "st.param.b64 [p0], %s; st.param.b64 [p1], %s; st.param.b32 [p2], %s; st.param.b64 [p3], %s; "
             "st.param.b64 [p4], 1; call.uni __assertfail, (p0, p1, p2, p3, p4); }",
             message, file, location.line if location else 0, function)
    # As CUDA's own assert: the driver ends the grid, and no trap stands behind the call.
    b.place(end)


@lowers(ops.Breakpoint)
def refuse_breakpoint(ctx: Lowering, op: ops.Breakpoint) -> None:
    """Raise :class:`CompilationError`: PTX has no way to a debugger in Python."""
    raise CompilationError(
        "breakpoint() stops a kernel in the interpreter only: neither a GPU nor the emulator can do that",
        op.location,
        hint="run the program with PTXFORGE_DEVICE=interpreter (and arrays of the host, or of "
        "ptxforge.to_device), or with ptxforge.use_device('interpreter')",
    )


@lowers(ops.Print)
def lower_print(ctx: Lowering, op: ops.Print) -> None:
    if not op.values:
        _print_line(ctx, f"pid (%u, %u, %u){op.prefix}\n", _programs(ctx), None)
    for index, value in enumerate(op.values):
        _print_value(ctx, op, index, value)


def _programs(ctx: Lowering) -> list[tuple[Register, int]]:
    return [(ctx.b.pure(f"mov.u32 %s, {ctx.program_register(axis)};", "r"), 4) for axis in range(3)]


def _print_value(ctx: Lowering, op: ops.Print, number: int, value: Value) -> None:
    """One line per element: program, index, prefix, value. Of a scalar, one per thread."""
    b, type = ctx.b, value.type
    element = T.element_type(type)
    entries = ctx.get(value)
    if isinstance(type, T.TensorType):
        layout = linear_of(type)
        copies, threads = replication(layout)
        dims = [coordinate(b, layout, d) for d in range(type.rank)]
    else:
        copies, threads, dims = 0, 0, []
    programs, signed = _programs(ctx), op.is_signed(number)
    index = ", ".join(f"%{width}u" for width in ops.index_widths(T.shape_of(type)))
    text = f"pid (%u, %u, %u) idx ({index}){op.label(number)}{_format(element, signed, op.hex)}\n"
    for register, entry in enumerate(entries):
        if register & copies:
            continue
        position = [(b.register(d[register]), 4) for d in dims]
        printed = _promoted(b, entry, element, signed and not op.hex)
        _print_line(ctx, text, programs + position + [printed], owner(b, threads))


def _format(element: T.Type, signed: bool, hexadecimal: bool) -> str:
    if isinstance(element, T.PointerType):
        return "%p"
    wide = "ll" if element.bits == 64 else ""
    if hexadecimal:
        return f"0x%0{max(1, element.bits // 4)}{wide}x"
    if element.is_float:
        return "%f"
    return f"%{wide}{'d' if signed else 'u'}"


def _promoted(b: Builder, x, element: T.Type, signed: bool) -> tuple[Register, int]:
    """The value as C passes it to a variadic function, and its bytes."""
    if isinstance(x, Pointer):
        return whole(b, x), 8
    if isinstance(element, T.PointerType) or element is T.I64:
        return b.register(x, "q"), 8
    if element is T.F64:
        return b.register(x, "d"), 8
    if element.is_float:
        return b.pure("cvt.f64.f32 %s, %s;", "d", b.register(to_f32(b, x, element), "f")), 8
    if element is T.I1:
        return b.pure("selp.b32 %s, 1, 0, %s;", "r", b.register(x, "p")), 4
    return b.register((sign_extended if signed else zero_extended)(b, x, element.bits)), 4


def _print_line(ctx: Lowering, text: str, arguments: list[tuple[Register, int]], predicate) -> None:
    b = ctx.b
    b.declarations[_VPRINTF] = None
    size = _buffer_size(arguments)
    end = b.label("print_end")
    format = string_address(b, text)
    b.local_bytes = max(b.local_bytes, size)
    buffer = b.pure("cvta.local.u64 %s, %s;", "q", b.pure("mov.b64 %s, print_buffer;", "q"))
    if predicate is not None:
        b.effect(f"@!%s bra {end};", predicate)
    place = 0
    for register, bytes_ in arguments:
        place = (place + bytes_ - 1) // bytes_ * bytes_
        b.effect(f"st.local.b{8 * bytes_} [print_buffer+{place}], %s;", register)
        place += bytes_
    b.effect(
        "{ .param .b64 p0; .param .b64 p1; .param .b32 r0; st.param.b64 [p0], %s; st.param.b64 [p1], %s; "
        "call.uni (r0), vprintf, (p0, p1); }",
        format,
        buffer,
    )
    b.place(end)


def _buffer_size(arguments: list[tuple[Register, int]]) -> int:
    place = 0
    for _, size in arguments:
        place = (place + size - 1) // size * size + size
    return max(8, place)
