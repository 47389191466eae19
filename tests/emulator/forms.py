"""One-instruction kernels for warp-level instructions: fragments as registers, one array element per lane.

The same PTX and inputs run on every device of a test. Matrices are small integers times powers of two, or
random floats with a stated bound.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np

from ptxforge.emulator.fragments import ELEMENT_BITS, Shape

from .harness import lanes

STORAGE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64,
           "s8": np.int8, "u8": np.uint8,
           "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "f32": np.float32,
           "s32": np.int32}  # fmt: skip


def random_matrix(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values that the type holds, as f64."""
    if kind in ("s8", "u8"):
        return rng.integers(-128 if kind == "s8" else 0, 128 if kind == "s8" else 256, shape).astype(
            np.float64
        )
    if kind in ("s4", "u4"):
        return rng.integers(-8 if kind == "s4" else 0, 8 if kind == "s4" else 16, shape).astype(np.float64)
    if kind == "b1":
        return rng.integers(0, 2, shape).astype(np.float64)
    values = rng.standard_normal(shape)
    if kind == "tf32":
        return (
            (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000))
            .view(np.float32)
            .astype(np.float64)
        )
    return values.astype(STORAGE[kind]).astype(np.float64)


def bits_of(values: np.ndarray, kind: str) -> np.ndarray:
    """(..., e) numbers -> (...,) registers: u32, or u64 for f64."""
    if kind == "f64":
        return np.ascontiguousarray(values[..., 0]).view(np.uint64)
    if kind in ("s4", "u4", "b1"):
        width = ELEMENT_BITS[kind]
        codes = values.astype(np.int64) & ((1 << width) - 1)
        shifts = np.arange(values.shape[-1]) * width
        return (codes << shifts).sum(axis=-1).astype(np.uint32)
    return np.ascontiguousarray(values.astype(STORAGE[kind])).view(np.uint32)[..., 0]


def operand_registers(matrix: np.ndarray, kind: str, row_tiles: int) -> list[np.ndarray]:
    """(W, rows, K) -> registers of 32 * W lanes, by the PTX ISA's figures: lane = 4 * group + member."""
    e = 1 if kind == "f64" else 32 // ELEMENT_BITS[kind]
    warps, _, depth = matrix.shape
    registers = []
    for step, tile in itertools.product(range(depth // (4 * e)), range(row_tiles)):
        block = matrix[:, 8 * tile : 8 * tile + 8, 4 * e * step : 4 * e * (step + 1)]
        registers.append(bits_of(block.reshape(warps, 8, 4, e), kind).reshape(-1))
    return registers


def accumulator_registers(matrix: np.ndarray, kind: str) -> list[np.ndarray]:
    """(W, M, 8) -> registers of C or D."""
    warps, rows, _ = matrix.shape
    registers = []
    for tile in range(rows // 8):
        block = matrix[:, 8 * tile : 8 * tile + 8].reshape(warps, 8, 4, 2)
        if kind == "f16":
            registers.append(bits_of(block, "f16").reshape(-1))
        else:
            registers += [bits_of(block[..., i : i + 1], kind).reshape(-1) for i in range(2)]
    return registers


def accumulator_matrix(registers: list[np.ndarray], kind: str, rows: int) -> np.ndarray:
    """The inverse of `accumulator_registers`, as f64."""
    warps = registers[0].size // 32
    out = np.zeros((warps, rows // 8, 8, 4, 2))
    for index, register in enumerate(registers):
        if kind == "f16":
            out[:, index] = register.view(np.float16).reshape(warps, 8, 4, 2)
        else:
            out[:, index // 2, :, :, index % 2] = register.view(STORAGE[kind]).reshape(warps, 8, 4)
    return out.reshape(warps, rows, 8)


def run_mma(
    device, opcode: str, shape: Shape, kinds: tuple[str, str, str], a, b, c, target: str
) -> np.ndarray:
    """D (W, M, 8) of one mma per warp. `kinds`: D, A, B; a (W, M, K), b (W, K, 8), c (W, M, 8) in f64."""
    d_kind, a_kind, b_kind = kinds
    sources = [
        *operand_registers(a, a_kind, shape.m // 8),
        *operand_registers(np.ascontiguousarray(b.transpose(0, 2, 1)), b_kind, 1),
        *accumulator_registers(c, d_kind),
    ]
    wide = a_kind == "f64"
    register = "f64" if wide else "b32"
    counts = [shape.m // 8 * (len(operand_registers(a, a_kind, shape.m // 8)) // (shape.m // 8)),
              len(operand_registers(np.ascontiguousarray(b.transpose(0, 2, 1)), b_kind, 1))]  # fmt: skip
    d_count = len(sources) - sum(counts)
    names = [f"%i{n}" for n in range(len(sources))]
    groups = [names[: counts[0]], names[counts[0] : sum(counts)], names[sum(counts) :]]
    lists = ", ".join("{" + ", ".join(group) + "}" for group in groups)
    c_kind = "f32" if d_kind == "f32" else "b32"
    registers = "" if wide else f".reg .{c_kind} %d<{d_count}>; .reg .{c_kind} %c<{d_count}>;"
    if wide:
        text = f"{opcode} {{{', '.join(f'%o{n}' for n in range(d_count))}}}, {lists};"
    else:
        moves_in = "".join(f"mov.b32 %c{n}, {name};" for n, name in enumerate(groups[2]))
        moves_out = "".join(f"mov.b32 %o{n}, %d{n};" for n in range(d_count))
        lists = ", ".join(
            "{" + ", ".join(group) + "}" for group in (*groups[:2], [f"%c{n}" for n in range(d_count)])
        )
        text = f"{moves_in} {opcode} {{{', '.join(f'%d{n}' for n in range(d_count))}}}, {lists}; {moves_out}"
    dtype = np.uint64 if wide else np.uint32
    out = lanes(
        device, text, sources, [register] * len(sources), [(register, dtype)] * d_count, registers, target
    )
    return accumulator_matrix(out, d_kind, shape.m)
