"""How matrices lie in registers and in shared memory: mma and wgmma fragments, ldmatrix, wgmma descriptors.

One picture explains every fragment of `mma.sync`. A 32-bit register of a warp is an 8 x 4 grid of lanes (lane
= 4 * group + member), and each lane holds `e` neighbouring elements: the register is a *core tile* of 8 rows
and 4e columns (64-bit registers hold one f64: e = 1).

    A (M x K)   core tiles with rows along M; registers run down the M/8 tiles first, then along K
    B (K x N)   one core tile per 4e of K; its rows run along N (so a lane's elements are neighbours in K)
    C, D        core tiles of 8 x 8: a lane has two neighbouring columns, in two registers, or in one as an
    f16 pair

`W` below is a number of warps; registers are contiguous arrays of one u32 (or u64) per lane, 32 * W of them.
Everything here is a pure function of arrays: no memory, no masks. Source: the PTX ISA's figures of the matrix
fragments and the matrix descriptor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ptxforge.emulator.numerics import FP8_TABLES, f16_to_f32

# ------------------------------------------------------------------------------------------------------------
# mma.sync
# ------------------------------------------------------------------------------------------------------------

ELEMENT_BITS = {"f64": 64, "tf32": 32, "f32": 32, "s32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8,
                "s8": 8,
                "u8": 8, "s4": 4, "u4": 4, "b1": 1}  # fmt: skip


class Shape(NamedTuple):
    """The shape of one mma: C (m x n) += A (m x k) B (k x n)."""

    m: int
    n: int
    k: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """`Shape.parse("m16n8k16")`. Raises ValueError for other text."""
        m, rest = text.removeprefix("m").split("n")
        n, k = rest.split("k")
        return cls(int(m), int(n), int(k))


def elements_per_register(kind: str) -> int:
    """e: elements of a type in one register of a lane (an f64 takes a register of 64 bits)."""
    return 1 if kind == "f64" else 32 // ELEMENT_BITS[kind]


def register_counts(shape: Shape, a_kind: str, b_kind: str, d_kind: str) -> tuple[int, int, int]:
    """Registers of A, B and of C or D."""
    a = shape.m * shape.k // (32 * elements_per_register(a_kind))
    b = shape.n * shape.k // (32 * elements_per_register(b_kind))
    return a, b, shape.m * shape.n // (32 * elements_per_register(d_kind))


def pack_rows(registers: Sequence[np.ndarray], row_tiles: int) -> np.ndarray:
    """The registers of A, with ``row_tiles`` core tiles along M, or of B's transpose, with one -> raw words
    (W, rows, words of K), each word holding e elements.
    """
    warps = registers[0].size // 32
    steps = len(registers) // row_tiles
    out = np.empty((warps, 8 * row_tiles, 4 * steps), registers[0].dtype)
    tiles = out.reshape(warps, row_tiles, 8, steps, 4)
    for index, register in enumerate(registers):
        step, row = divmod(index, row_tiles)
        tiles[:, row, :, step] = register.reshape(warps, 8, 4)
    return out


def unpack_words(words: np.ndarray, kind: str) -> np.ndarray:
    """Raw words (..., w) -> the elements (..., w * e) as numbers in which mma may be computed exactly.

    f16, bf16, tf32 and fp8 become f32;
    s8, u8, s4, u4 and b1 become f32 as well (small integers are exact there); f64
    stays.
    """
    if kind == "f64":
        return words.view(np.float64)
    if kind == "tf32":
        # The tensor core reads the upper 19 bits.
        return (words & np.uint32(0xFFFFE000)).view(np.float32)
    if kind == "f16":
        return f16_to_f32(words.view(np.float16))
    if kind == "bf16":
        # Both halves of a word are bf16: the upper one needs a mask, the lower a shift.
        out = np.empty((*words.shape, 2), np.uint32)
        np.left_shift(words, np.uint32(16), out=out[..., 0])
        np.bitwise_and(words, np.uint32(0xFFFF0000), out=out[..., 1])
        return out.reshape(*words.shape[:-1], -1).view(np.float32)
    if kind in FP8_TABLES:
        return FP8_TABLES[kind].take(words.view(np.uint8))
    if kind in ("s8", "u8"):
        return words.view(np.int8 if kind == "s8" else np.uint8).astype(np.float32)
    if kind == "b1":
        return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(np.float32)
    return _nibbles(words, signed=kind == "s4")


def _nibbles(words: np.ndarray, signed: bool) -> np.ndarray:
    octets = words.view(np.uint8)
    pair = np.stack([octets & np.uint8(15), octets >> np.uint8(4)], axis=-1)
    if signed:
        pair = (pair.astype(np.int8) ^ np.int8(8)) - np.int8(8)
    return pair.reshape(*octets.shape[:-1], -1).astype(np.float32)


# ------------------------------------------------------------------------------------------------------------
# ldmatrix, stmatrix, movmatrix: 8 x 8 matrices of 16-bit elements
# ------------------------------------------------------------------------------------------------------------


def rows_to_registers(rows: np.ndarray, transpose: bool) -> np.ndarray:
    """Rows of 16 bytes, (W, n, 8) as complex128 -> n registers, (n, W, 32) u32. Matrix i's rows become
    register i.
    """
    warps, count, _ = rows.shape
    if not transpose:
        words = rows.view(np.uint32).reshape(warps, count, 32)
        return words.transpose(1, 0, 2)
    halves = rows.view(np.uint16).reshape(warps, count, 8, 8).transpose(1, 0, 3, 2)
    return np.ascontiguousarray(halves).view(np.uint32).reshape(count, warps, 32)


def registers_to_rows(registers: Sequence[np.ndarray], transpose: bool) -> np.ndarray:
    """n registers of 32 * W lanes -> rows of 16 bytes, (W, n, 8) complex128: the inverse of
    `rows_to_registers`.
    """
    words = np.stack([np.ascontiguousarray(r, np.uint32).reshape(-1, 32) for r in registers], axis=1)
    warps, count, _ = words.shape
    halves = words.view(np.uint16).reshape(warps, count, 8, 8)
    if transpose:
        halves = np.ascontiguousarray(halves.transpose(0, 1, 3, 2))
    return halves.reshape(warps, count, 64).view(np.complex128).reshape(warps, count, 8)


def transpose_register(register: np.ndarray) -> np.ndarray:
    """`movmatrix.sync.aligned.m8n8.trans.b16`: one register's 8 x 8 matrix transposed."""
    halves = np.ascontiguousarray(register, np.uint32).view(np.uint16).reshape(-1, 8, 8)
    return np.ascontiguousarray(halves.transpose(0, 2, 1)).view(np.uint32).reshape(register.shape)


# ------------------------------------------------------------------------------------------------------------
# wgmma: warpgroups of four warps, each with 16 of the 64 rows
# ------------------------------------------------------------------------------------------------------------


def wgmma_register_a(registers: Sequence[np.ndarray]) -> np.ndarray:
    """A in registers (four u32 per lane, as of m16n8k16) -> raw words (G, 64, 8)."""
    words = pack_rows(registers, 2)
    return words.reshape(-1, 64, words.shape[-1])


SWIZZLE_SPANS = (0, 128, 64, 32)  # the descriptor's code -> bytes
_PHASES = {0: 0, 32: 1, 64: 3, 128: 7}


def swizzle(address: np.ndarray, span: int, base_offset: np.ndarray | int = 0) -> np.ndarray:
    """A shared-memory byte address swizzled: bits 4-6 are xored with bits 7-9, as many as `span` (0, 32, 64,
    128) has.

    `base_offset` is subtracted from bits 7-9 before: it is for patterns that do not start at a multiple of
    1024 bytes.
    """
    if span == 0:
        return address
    phase = ((address >> 7) - base_offset) & _PHASES[span]
    return address ^ (phase << 4)


class Descriptor(NamedTuple):
    """wgmma's matrix descriptors decoded: bytes, one per warpgroup; one swizzle for all."""

    start: np.ndarray
    leading: np.ndarray
    stride: np.ndarray
    base_offset: np.ndarray
    span: int


def decode_descriptor(bits: np.ndarray) -> Descriptor:
    """(G,) u64 -> Descriptor. Raises ValueError where the warpgroups' swizzles differ."""
    bits = np.asarray(bits, np.uint64)

    def field(low: int, width: int) -> np.ndarray:
        return ((bits >> np.uint64(low)) & np.uint64((1 << width) - 1)).astype(np.int64)

    codes = field(62, 2)
    if (codes != codes.flat[0]).any():
        raise ValueError("one wgmma with descriptors of different swizzles")
    return Descriptor(
        field(0, 14) << 4, field(16, 14) << 4, field(32, 14) << 4, field(49, 3), SWIZZLE_SPANS[codes.flat[0]]
    )


def operand_addresses(descriptor: Descriptor, rows: int) -> np.ndarray:
    """K-major operand: byte addresses (G, rows, 2) of its 16-byte units.

    Eight rows make a group, the groups are `stride` apart. In a group a row takes `span` bytes;
    without swizzle the
    group is made of core matrices (8 rows of 16 bytes, packed), `leading` apart along K.
    """
    row = np.arange(rows, dtype=np.int64)[:, None]
    unit = np.arange(2, dtype=np.int64)[None, :]
    stride = descriptor.stride[:, None, None]
    if descriptor.span:
        linear = row % 8 * descriptor.span + row // 8 * stride + unit * 16
    else:
        linear = row % 8 * 16 + row // 8 * stride + unit * descriptor.leading[:, None, None]
    return _located(descriptor, linear)


def transposed_operand_addresses(descriptor: Descriptor, columns: int, depth: int) -> np.ndarray:
    """MN-major operand of 16-bit elements: addresses (G, depth, columns / 8) of units of eight elements along
    M or N.

    A unit row of `span` bytes runs along M or N; eight of them (along K) make a pattern;
    patterns are `stride` apart
    along K and `leading` apart along M or N. Without swizzle the two offsets change their roles.
    """
    k = np.arange(depth, dtype=np.int64)[:, None]
    unit = np.arange(columns // 8, dtype=np.int64)[None, :]
    stride, leading = descriptor.stride[:, None, None], descriptor.leading[:, None, None]
    if descriptor.span:
        per_row = descriptor.span // 16
        linear = unit % per_row * 16 + unit // per_row * leading + k % 8 * descriptor.span + k // 8 * stride
    else:
        linear = unit * stride + k % 8 * 16 + k // 8 * leading
    return _located(descriptor, linear)


def _located(descriptor: Descriptor, linear: np.ndarray) -> np.ndarray:
    address = descriptor.start[:, None, None] + linear
    return swizzle(address, descriptor.span, descriptor.base_offset[:, None, None])
