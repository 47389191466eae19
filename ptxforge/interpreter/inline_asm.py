"""Inline assembly, run by the emulator: one thread for each group of elements.

The text stands in a small kernel that reads the operands' registers from memory and writes the results'. It
means the same for whole tiles as long as it only speaks of its operands and of the program; what asks for the
thread, or talks to other threads, is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import numpy as np

from ptxforge.interpreter.address_space import AddressSpace
from ptxforge.interpreter.registry import interprets
from ptxforge.ir import types as T
from ptxforge.ir.ops.inline_asm import WIDTHS, InlineAsm, parse_constraints, parse_text, words_of
from ptxforge.support.errors import DeviceError, InterpreterError

_THREADS = 128
_OF_A_THREAD = re.compile(
    r"%(?:n?tid|laneid|n?warpid|lanemask\w*)\b"
    r"|(?<![\w.%$])(?:bar|barrier|shfl|vote|match|redux|activemask|elect|mma|wmma|wgmma|ldmatrix|stmatrix"
    r"|movmatrix|mbarrier|cp|setmaxnreg)\b[\w.:]*"
)
_OF_THE_PROGRAM = re.compile(r"%(n?)ctaid\.([xyz])")

_KERNEL = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry inline_asm(.param .b64 words, .param .b32 count) {{
.reg .pred outside;
.reg .b32 thread, block, group, threads;
.reg .b64 base, place, wide;
{registers}
mov.u32 thread, %tid.x;
mov.u32 block, %ctaid.x;
mov.u32 threads, %ntid.x;
mad.lo.s32 group, block, threads, thread;
ld.param.b32 threads, [count];
setp.ge.s32 outside, group, threads;
@outside ret;
ld.param.b64 base, [words];
mad.wide.s32 base, group, {row_bytes}, base;
{body}
ret;
}}
"""
_REGISTERS = {1: "pred", 16: "b16", 32: "b32", 64: "b64"}
_LOADS = {1: "setp.ne.u64 {0}, wide, 0;", 16: "cvt.u16.u64 {0}, wide;", 32: "cvt.u32.u64 {0}, wide;",
          64: "mov.b64 {0}, wide;"}  # fmt: skip
_STORES = {1: "selp.b64 wide, 1, 0, {0};", 16: "cvt.u64.u16 wide, {0};", 32: "cvt.u64.u32 wide, {0};",
           64: "mov.b64 wide, {0};"}  # fmt: skip


@interprets(InlineAsm)
def run_inline_asm(program, op, *operands):
    found = _OF_A_THREAD.search(op.text)
    if found:
        raise InterpreterError(
            f"inline assembly with '{found[0]}' means nothing without threads: run the kernel on the emulator"
            " or a GPU"
        )
    shape = np.shape(operands[0]) if operands else ()
    count = int(np.prod(shape, dtype=int))
    table = np.zeros((-(-count // op.pack), _register_count(op)), np.uint64)
    constants = _fill(program, op, operands, table)
    _launch(_kernel_text(program, op, constants), program.memory, table)
    results = tuple(array.reshape(-1)[:count].reshape(shape)[()] for array in _results(program, op, table))
    return results[0] if len(results) == 1 else results


def _register_count(op: InlineAsm) -> int:
    constraints = parse_constraints(op.constraints)
    return len(constraints.results) + len(constraints.inputs)


# -- elements and registers ------------------------------------------------------------------------------


def _fill(program, op: InlineAsm, operands: tuple, table: np.ndarray) -> dict[int, int]:
    """Write what the inputs' registers hold into the table, a row for each group of elements. Gives the
    numbers that stand in the text itself, by operand."""
    constraints = parse_constraints(op.constraints)
    types = [T.element_type(v.type) for v in op.operands]
    columns = [_columns(program, np.asarray(x), t, op.pack) for x, t in zip(operands, types)]
    constants = {}
    place = len(constraints.results)
    for letter, (index, share) in zip(constraints.inputs, words_of(types, op.pack), strict=True):
        part, columns[index] = columns[index][:, :share], columns[index][:, share:]
        if letter not in WIDTHS:
            constants[place] = int(np.ascontiguousarray(part).view(f"i{part.itemsize}")[0, 0])
        for i in range(share):
            table[:, place] |= part[:, i].astype(np.uint64) << np.uint64(8 * part.itemsize * i)
        place += 1
    return constants


def _columns(program, array: np.ndarray, element: T.Type, pack: int) -> np.ndarray:
    """The bits of the elements, a row per group; the last one again where a group is not full."""
    flat = np.ascontiguousarray(array.reshape(-1))
    if isinstance(element, T.PointerType):
        flat = program.memory.to_host(flat)
    flat = np.concatenate([flat, np.repeat(flat[-1:], -len(flat) % pack)])
    return flat.view(f"u{flat.dtype.itemsize}").reshape(-1, pack)


def _results(program, op: InlineAsm, table: np.ndarray) -> Iterator[np.ndarray]:
    """The elements of each result, a row per group."""
    types = [T.element_type(v.type) for v in op.results]
    parts: list[list[np.ndarray]] = [[] for _ in types]
    for place, (index, share) in enumerate(words_of(types, op.pack)):
        bits = 8 * types[index].bytes
        parts[index] += [
            (table[:, place] >> np.uint64(bits * i)).astype(f"u{bits // 8}") for i in range(share)
        ]
    for element, columns in zip(types, parts):
        array = np.stack(columns, axis=-1)
        if isinstance(element, T.PointerType):
            yield program.memory.from_host(array.view(np.int64))
        elif element is T.I1:
            yield (array & 1).astype(np.bool_)
        else:
            yield array.view(element.numpy)


# -- the kernel ------------------------------------------------------------------------------------------


def _kernel_text(program, op: InlineAsm, constants: dict[int, int]) -> str:
    """A kernel that runs the text once for each row of the table."""
    constraints = parse_constraints(op.constraints)
    widths = [WIDTHS.get(letter, 64) for letter in (*constraints.results, *constraints.inputs)]
    results = len(constraints.results)
    names = [f"asm_operand_{i}" for i in range(len(widths))]
    registers = [f".reg .{_REGISTERS[width]} {name};" for width, name in zip(widths, names)]
    loads = [
        f"ld.global.b64 wide, [base+{8 * i}];\n{_LOADS[widths[i]].format(names[i])}"
        for i in range(results, len(widths))
    ]
    for index, result in enumerate(constraints.tied):
        if result is not None:
            loads.append(f"mov.{_REGISTERS[widths[result]]} {names[result]}, {names[results + index]};")
            names[results + index] = names[result]
    stores = [
        f"{_STORES[widths[i]].format(names[i])}\nst.global.b64 [base+{8 * i}], wide;" for i in range(results)
    ]
    names = [str(constants.get(i, name)) for i, name in enumerate(names)]
    pieces = [names[p] if isinstance(p, int) else p for p in parse_text(op.text)]
    here = {"": program.index, "n": program.grid}
    text = _OF_THE_PROGRAM.sub(lambda m: str(here[m[1]]["xyz".index(m[2])]), "".join(pieces))
    return _KERNEL.format(
        registers="\n".join(registers),
        row_bytes=8 * len(widths),
        body="\n".join([*loads, "{", text, "}", *stores]),
    )


def _launch(text: str, memory: AddressSpace, table: np.ndarray) -> None:
    """Run the kernel over the table and the memory of the program, in place."""
    from ptxforge.emulator import EmulatorDevice

    device = EmulatorDevice()
    for segment in memory.segments:
        device.register_host_array(segment.data)
    address = device.register_host_array(table)
    rows = len(table)
    try:
        kernel = device.load_module(text).function("inline_asm")
        blocks = -(-rows // _THREADS)
        kernel.launch((blocks, 1, 1), (min(rows, _THREADS), 1, 1), 0, 0, struct.pack("<QI", address, rows))
    except DeviceError as error:
        raise InterpreterError(f"inline assembly: {error}") from error
