"""Launching PTX from tests: arguments are numpy arrays (in and out) and numpy scalars, on any device."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FIXTURES = Path(__file__).parent / "fixtures"

HEADER = ".version 8.7\n.target {target}\n.address_size 64\n"


def fixture(name: str) -> str:
    """The text of a committed PTX file."""
    return (FIXTURES / f"{name}.ptx").read_text()


def pack(values: list) -> bytes:
    """The parameter buffer: every value at its natural alignment."""
    out = bytearray()
    for value in values:
        data = value if isinstance(value, bytes) else np.asarray(value).tobytes()
        alignment = min(len(data), 8) if not isinstance(value, bytes) else 64
        out += bytes(-len(out) % alignment) + data
    return bytes(out)


def run(device, ptx: str, name: str, grid, block, *arguments, shared: int = 0) -> None:
    """Launch on ``device``; array arguments are copied there and back, so they hold the results
    afterwards.
    """
    grid, block = (tuple(np.atleast_1d(size).tolist()) for size in (grid, block))
    grid, block = (size + (1,) * (3 - len(size)) for size in (grid, block))
    addresses, values = {}, []
    for position, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray) and argument.ndim:
            address = addresses[position] = device.allocate(argument.nbytes)
            device.copy_to_device(address, argument)
            values.append(np.uint64(address))
        else:
            values.append(argument)
    try:
        device.load_module(ptx).function(name).launch(grid, block, shared, 0, pack(values))
        device.synchronize()
    finally:
        for position, address in addresses.items():
            device.copy_to_host(arguments[position], address)
            device.free(address)


def per_lane(
    instructions: str,
    inputs: list[tuple[str, int]],
    outputs: list[tuple[str, int]],
    registers: str = "",
    target: str = "sm_90",
) -> str:
    """A kernel ``k`` that loads ``%i0, %i1...`` per lane from arrays, runs ``instructions``, stores
    ``%o0...``.

    ``inputs`` and ``outputs`` are (register type, bytes per element). Parameters: the input arrays, then the
    outputs.
    """
    names = [f"i{n}" for n in range(len(inputs))] + [f"o{n}" for n in range(len(outputs))]
    params = ", ".join(f".param .u64 p_{name}" for name in names)
    lines = [
        HEADER.format(target=target),
        f".visible .entry k({params})\n{{",
        ".reg .b64 %a<2>; .reg .b32 %t;",
        *(f".reg .{kind} %{name};" for name, (kind, _) in zip(names, inputs + outputs)),
        registers,
        "mov.u32 %t, %tid.x;",
    ]
    for number, (kind, size) in enumerate(inputs):
        lines += _address(f"i{number}", size) + [_move("ld", kind, size, f"i{number}")]
    lines.append(instructions)
    for number, (kind, size) in enumerate(outputs):
        lines += _address(f"o{number}", size) + [_move("st", kind, size, f"o{number}")]
    return "\n".join([*lines, "ret;\n}\n"])


def diverging(instructions: str) -> str:
    """The same instructions, executed by odd and by even lanes apart, and predicated on the way."""
    return f"""{{ .reg .b32 %odd; .reg .pred %isodd; and.b32 %odd, %t, 1; setp.ne.u32 %isodd, %odd, 0;
    @%isodd bra ODD; {instructions} bra END;
    ODD: {instructions}
    END: mov.u32 %odd, 0; }}"""


def _address(name: str, size: int) -> list[str]:
    return [f"ld.param.u64 %a0, [p_{name}];", f"mad.wide.u32 %a0, %t, {size}, %a0;"]


def _move(opcode: str, kind: str, size: int, name: str) -> str:
    if kind == "pred":
        if opcode == "ld":
            return f"{{ .reg .b16 %q; ld.global.u8 %q, [%a0]; setp.ne.u16 %{name}, %q, 0; }}"
        return f"{{ .reg .b16 %q; selp.u16 %q, 1, 0, %{name}; st.global.u8 [%a0], %q; }}"
    operands = f"%{name}, [%a0]" if opcode == "ld" else f"[%a0], %{name}"
    return f"{opcode}.global.b{8 * size} {operands};"


def lanes(
    device,
    instructions: str,
    inputs: list[np.ndarray],
    kinds: list[str],
    outputs: list[tuple[str, str]],
    registers: str = "",
    target: str = "sm_90",
) -> list[np.ndarray]:
    """Run ``instructions`` once per element. ``kinds`` are the inputs' register types, ``outputs`` (type,
    dtype).
    """
    count = len(inputs[0])
    results = [np.zeros(count, dtype) for _, dtype in outputs]
    ptx = per_lane(
        instructions,
        [(kind, array.itemsize) for kind, array in zip(kinds, inputs)],
        [(kind, result.itemsize) for (kind, _), result in zip(outputs, results)],
        registers,
        target,
    )
    block = min(count, 256)
    if count % block:
        raise ValueError("the number of elements must be a multiple of the block size")
    for start in range(0, count, block):
        parts = [array[start : start + block].copy() for array in inputs]
        made = [result[start : start + block] for result in results]
        run(device, ptx, "k", 1, block, *parts, *made)
    return results
