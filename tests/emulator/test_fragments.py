"""Fragments, descriptors and tensor maps against the PTX ISA's tables, written out element by element."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ptxforge.emulator import fragments, tensormap
from ptxforge.emulator.fragments import Shape

SHAPES = [
    ("m16n8k8", "f16"), ("m16n8k16", "f16"), ("m16n8k16", "bf16"), ("m16n8k4", "tf32"), ("m16n8k8", "tf32"),
    ("m16n8k16", "s8"), ("m16n8k32", "u8"), ("m16n8k32", "e4m3"), ("m16n8k64", "s4"), ("m8n8k16", "s8"),
    ("m8n8k4", "f64"), ("m16n8k8", "f64"), ("m16n8k16", "f64"), ("m16n8k256", "b1"), ("m8n8k128", "b1"),
]  # fmt: skip


def encode_descriptor(start: int, leading: int, stride: int, span: int, base_offset: int = 0) -> int:
    """The 64 bits of a descriptor, from byte addresses and offsets."""
    code = fragments.SWIZZLE_SPANS.index(span)
    return (start >> 4 & 0x3FFF) | (leading >> 4) << 16 | (stride >> 4) << 32 | base_offset << 49 | code << 62


def element_of(lane: int, register: int, index: int, e: int, row_tiles: int) -> tuple[int, int]:
    """Row and column of element `index` of a lane's register in A (or in the transpose of B)."""
    group, member = lane // 4, lane % 4
    row = group + 8 * (register % row_tiles)
    column = 4 * e * (register // row_tiles) + member * e + index
    return row, column


def encode(kind: str, values: np.ndarray) -> int:
    """Small non-negative integers as the bits of one register of `kind`."""
    if kind == "f64":
        return int(values.astype(np.float64).view(np.uint64)[0])
    if kind == "tf32":
        return int(values.astype(np.float32).view(np.uint32)[0])
    if kind == "f16":
        return int(values.astype(np.float16).view(np.uint32)[0])
    if kind == "bf16":
        halves = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return int(halves.view(np.uint32)[0])
    if kind in ("s8", "u8"):
        return int(values.astype(np.uint8).view(np.uint32)[0])
    if kind == "e4m3":
        table = fragments.FP8_TABLES["e4m3"][:127]
        return int(np.searchsorted(table, values).astype(np.uint8).view(np.uint32)[0])
    bits = fragments.ELEMENT_BITS[kind]
    return sum(int(v) << bits * i for i, v in enumerate(values))


@pytest.mark.parametrize("text, kind", SHAPES)
def test_mma_operands_unpack_to_matrices(text, kind):
    shape = Shape.parse(text)
    e = fragments.elements_per_register(kind)
    count_a, count_b, _ = fragments.register_counts(shape, kind, kind, "f64" if kind == "f64" else "f32")
    rng = np.random.default_rng(0)
    warps, limit = 2, 2 if kind == "b1" else 8
    for count, row_tiles, extent in ((count_a, shape.m // 8, shape.m), (count_b, 1, shape.n)):
        matrix = rng.integers(0, limit, (warps, extent, shape.k)).astype(np.float64)
        registers = [np.zeros(32 * warps, np.uint64 if kind == "f64" else np.uint32) for _ in range(count)]
        for warp, lane, r in itertools.product(range(warps), range(32), range(count)):
            places = [element_of(lane, r, i, e, row_tiles) for i in range(e)]
            registers[r][32 * warp + lane] = encode(kind, np.array([matrix[warp][p] for p in places]))
        got = fragments.unpack_words(fragments.pack_rows(registers, row_tiles), kind)
        assert np.array_equal(got, matrix)


def test_negative_integers_are_sign_extended():
    words = np.array([[0x80FF7F01]], np.uint32)
    assert fragments.unpack_words(words, "s8").tolist() == [[1, 127, -1, -128]]
    assert fragments.unpack_words(words, "u8").tolist() == [[1, 127, 255, 128]]
    assert fragments.unpack_words(words, "s4").tolist() == [[1, 0, -1, 7, -1, -1, 0, -8]]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count, transpose):
    matrices = np.random.default_rng(2).integers(0, 65536, (2, count, 8, 8), dtype=np.uint16)
    rows = matrices.reshape(2, count, 64).view(np.complex128).reshape(2, count, 8)
    registers = fragments.rows_to_registers(rows, transpose)
    for warp, i, lane, half in itertools.product(range(2), range(count), range(32), range(2)):
        row, column = lane // 4, 2 * (lane % 4) + half
        want = matrices[warp, i, column, row] if transpose else matrices[warp, i, row, column]
        assert (int(registers[i, warp, lane]) >> 16 * half) & 0xFFFF == want
    back = fragments.registers_to_rows([r.reshape(-1) for r in registers], transpose)
    assert np.array_equal(back.view(np.uint16).reshape(matrices.shape), matrices)


def test_movmatrix_transposes():
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    got = fragments.transpose_register(matrix.view(np.uint32).reshape(32))
    assert np.array_equal(got.view(np.uint16).reshape(8, 8), matrix.T)


def swizzled(address: int, span: int) -> int:
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[span]
    for bit in range(bits):
        address ^= ((address >> (7 + bit)) & 1) << (4 + bit)
    return address


@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_k_major_operands(span):
    """A tile of 16 rows whose row r, 16-byte unit u was placed by hand."""
    stride, leading = (256, 128) if span == 0 else (8 * span, 16)
    start = 2048 + (32 if span in (64, 128) else 0)
    bits = encode_descriptor(start, leading, stride, span)
    descriptor = fragments.decode_descriptor(np.array([bits, bits], np.uint64))
    got = fragments.operand_addresses(descriptor, 16)
    for row, unit in itertools.product(range(16), range(2)):
        if span == 0:
            linear = start + row // 8 * stride + row % 8 * 16 + unit * leading
        else:
            linear = start + row // 8 * stride + row % 8 * span + unit * 16
        assert (got[:, row, unit] == swizzled(linear, span)).all()


@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_mn_major_operands(span):
    columns, depth = 128, 16
    if span:
        stride, leading = 8 * span, 8 * span * (depth // 8)
    else:
        stride, leading = 128 * (depth // 8), 128
    bits = encode_descriptor(4096, leading, stride, span)
    got = fragments.transposed_operand_addresses(
        fragments.decode_descriptor(np.array([bits], np.uint64)), columns, depth
    )
    seen = set()
    for k, unit in itertools.product(range(depth), range(columns // 8)):
        if span:
            pattern, inside = divmod(unit * 16, span)
            linear = 4096 + pattern * leading + k // 8 * stride + k % 8 * span + inside
        else:
            linear = 4096 + unit * stride + k // 8 * leading + k % 8 * 16
        assert got[0, k, unit] == swizzled(linear, span)
        seen.add(int(got[0, k, unit]))
    assert seen == set(range(4096, 4096 + columns * depth * 2, 16))


def test_a_base_offset_shifts_the_swizzle_phase():
    assert fragments.swizzle(np.array(0x180), 128) == 0x180 ^ 0x30
    assert fragments.swizzle(np.array(0x180), 128, 3) == 0x180


# ------------------------------------------------------------------------------------------------------------
# Tensor maps
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_boxes_of_every_rank(rank):
    sizes, box = (8, 5, 4, 3, 3)[:rank], (8, 2, 3, 2, 2)[:rank]
    steps = (1, 2, 1, 1, 2)[:rank]
    strides, pitch = [], 32
    for size in sizes[1:]:
        strides.append(pitch)
        pitch *= size
    m = tensormap.decode(tensormap.encode_tiled("f32", 256, sizes, strides, box, steps))
    shared = tuple(-(-b // s) for b, s in zip(box, steps))
    assert (m.sizes, m.box, m.shared_box) == (sizes, box, shared)
    assert m.box_bytes == 4 * int(np.prod(shared))
    coordinates = np.array([[-1, 3, 2, -1, 1][:rank], [0] * rank])
    address, inside = tensormap.global_units(m, coordinates, 4)
    for q in range(2):
        for element, index in enumerate(itertools.product(*[range(s) for s in reversed(shared)])):
            place = [int(c) + i * s for c, i, s in zip(coordinates[q], reversed(index), steps)]
            expected = 256 + 4 * place[0] + sum(p * s for p, s in zip(place[1:], strides))
            assert address[q, element] == expected
            assert inside[q, element] == all(0 <= p < s for p, s in zip(place, sizes))


def test_wide_units_cover_the_same_bytes():
    m = tensormap.decode(tensormap.encode_tiled("f16", 0, (64, 8), (256,), (16, 4)))
    for corner in ([16, 2], [56, 6], [-8, -1]):
        coordinates = np.array([corner])
        assert tensormap.unit_bytes(m) == 16
        wide, wide_inside = tensormap.global_units(m, coordinates, 16)
        narrow, inside = tensormap.global_units(m, coordinates, 2)
        assert np.array_equal(np.repeat(wide[0], 8) + np.tile(np.arange(8) * 2, 8), narrow[0])
        assert (wide_inside is None) == (inside is None)
        assert inside is None or np.array_equal(np.repeat(wide_inside[0], 8), inside[0])
    ragged = tensormap.decode(tensormap.encode_tiled("f16", 0, (63, 8), (256,), (16, 4)))
    assert tensormap.unit_bytes(ragged) == 2


@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_boxes_are_swizzled_in_shared_memory(span):
    inner = (span or 64) // 2
    m = tensormap.decode(tensormap.encode_tiled("f16", 0, (1024, 64), (2048,), (inner, 16), swizzle=span))
    got = tensormap.shared_units(m, np.array([1024, 3072]), 2)
    for q, start in enumerate((1024, 3072)):
        for element in range(inner * 16):
            assert got[q, element] == swizzled(start + 2 * element, span)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("f32", 8, (8,), (), (8,)), "multiple of 16"),
        (("f32", 0, (8, 8), (40,), (8, 8)), "strides"),
        (("f32", 0, (8,), (), (300,)), "256"),
        (("f32", 0, (8,), (), (3,)), "inner extent"),
        (("f32", 0, (8,) * 6, (16,) * 5, (8,) * 6), "dimensions"),
        (("x3", 0, (8,), (), (8,)), "element type"),
    ],
)
def test_what_the_driver_refuses(arguments, message):
    with pytest.raises(tensormap.InvalidTensorMap, match=message):
        tensormap.encode_tiled(*arguments)


def test_swizzle_and_fill_restrictions():
    with pytest.raises(tensormap.InvalidTensorMap, match="swizzle's span"):
        tensormap.encode_tiled("f16", 0, (64, 8), (128,), (64, 8), swizzle=64)
    with pytest.raises(tensormap.InvalidTensorMap, match="NaN"):
        tensormap.encode_tiled("u32", 0, (64,), (), (64,), fill_nan=True)
    with pytest.raises(tensormap.InvalidTensorMap, match="no tensor map"):
        tensormap.decode(np.zeros(128, np.uint8))
    assert (
        tensormap.fill_bits(
            tensormap.decode(tensormap.encode_tiled("bf16", 0, (64,), (), (64,), fill_nan=True))
        )
        == 0x7FFF
    )
