"""mma.sync, ldmatrix, stmatrix and movmatrix, on every device.

Bounds for sums of products, relative to the sum of absolute products: PTX leaves order and rounding open, and
hardware truncates partial sums. 2**-20 for f32 accumulators of 16-bit types and tf32, 2**-12 for fp8 (Hopper
keeps fewer bits), 2**-10 for f16 accumulators, 2**-50 for f64; integers are exact.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator.fragments import Shape

from .forms import random_matrix, run_mma
from .harness import lanes, run

F16 = [("m16n8k8", "f32"), ("m16n8k16", "f32"), ("m16n8k8", "f16"), ("m16n8k16", "f16")]
FORMS = [
    *[(f"mma.sync.aligned.{shape}.row.col.{d}.f16.f16.{d}", shape, (d, "f16", "f16"), "sm_80") for shape,
    d in F16],
    *[(f"mma.sync.aligned.{shape}.row.col.f32.bf16.bf16.f32", shape, ("f32", "bf16", "bf16"), "sm_80")
      for shape in ("m16n8k8", "m16n8k16")],
    *[(f"mma.sync.aligned.{shape}.row.col.f32.tf32.tf32.f32", shape, ("f32", "tf32", "tf32"), "sm_80")
      for shape in ("m16n8k4", "m16n8k8")],
    *[(f"mma.sync.aligned.{shape}.row.col.satfinite.s32.{a}.{b}.s32", shape, ("s32", a, b), "sm_80")
      for shape in ("m8n8k16", "m16n8k16", "m16n8k32") for a in ("s8", "u8") for b in ("s8", "u8")],
    *[(f"mma.sync.aligned.{shape}.row.col.s32.{a}.s4.s32", shape, ("s32", a, "s4"), "sm_80")
      for shape in ("m8n8k32", "m16n8k32", "m16n8k64") for a in ("s4", "u4")],
    *[(f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.and.popc", shape, ("s32", "b1", "b1"), "sm_80")
      for shape in ("m8n8k128", "m16n8k128", "m16n8k256")],
    *[(f"mma.sync.aligned.m16n8k32.row.col.{d}.{a}.{b}.{d}", "m16n8k32", (d, a, b), "sm_89")
      for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2") for d in ("f32", "f16")],
    ("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e5m2.f32", "m16n8k16", ("f32", "e4m3", "e5m2"), "sm_89"),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "m8n8k4", ("f64", "f64", "f64"), "sm_80"),
    *[(f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64", shape, ("f64", "f64", "f64"), "sm_90")
      for shape in ("m16n8k4", "m16n8k8", "m16n8k16")],
]  # fmt: skip


def bound(kinds: tuple[str, str, str]) -> float:
    d, a, _ = kinds
    if d == "s32":
        return 0.0
    if d == "f16":
        return 2.0**-10
    return {"f64": 2.0**-50, "e4m3": 2.0**-12, "e5m2": 2.0**-12}.get(a, 2.0**-20)


@pytest.mark.parametrize("opcode, text, kinds, target", FORMS, ids=[form[0] for form in FORMS])
def test_every_form_of_mma(machine, opcode, text, kinds, target):
    shape = Shape.parse(text)
    rng = np.random.default_rng(0)
    a = random_matrix(rng, kinds[1], (2, shape.m, shape.k))
    b = random_matrix(rng, kinds[2], (2, shape.k, shape.n))
    c = (
        random_matrix(rng, kinds[0], (2, shape.m, shape.n))
        if kinds[0] != "s32"
        else rng.integers(-99, 99, (2, shape.m, 8)) * 1.0
    )
    got = run_mma(machine, opcode, shape, kinds, a, b, c, target)
    want = a @ b + c
    allowed = bound(kinds) * (np.abs(a) @ np.abs(b) + np.abs(c))
    assert (np.abs(got - want) <= allowed).all(), np.abs(got - want).max()


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
def test_xor_popc(shape):
    from ptxforge.emulator import EmulatorDevice  # sm_90 has no .xor: the emulator alone

    rng = np.random.default_rng(1)
    size = Shape.parse(shape)
    a, b = random_matrix(rng, "b1", (1, size.m, size.k)), random_matrix(rng, "b1", (1, size.k, size.n))
    c = np.arange(size.m * 8.0).reshape(1, size.m, 8)
    opcode = f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.xor.popc"
    got = run_mma(EmulatorDevice(), opcode, size, ("s32", "b1", "b1"), a, b, c, "sm_80")
    want = np.abs(a[:, :, :, None] - b[:, None]).sum(axis=2) + c
    assert np.array_equal(got, want)


def test_saturation_of_integer_accumulators(machine):
    shape = Shape(16, 8, 32)
    a, b = np.full((1, 16, 32), 127.0), np.full((1, 32, 8), 127.0)
    c = np.full((1, 16, 8), 2.0**31 - 10)
    kinds = ("s32", "s8", "s8")
    clamped = run_mma(
        machine, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", shape, kinds, a, b, c, "sm_80"
    )
    wrapped = run_mma(
        machine, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", shape, kinds, a, b, c, "sm_80"
    )
    assert (clamped == 2**31 - 1).all()
    assert (wrapped == 127 * 127 * 32 + 2**31 - 10 - 2**32).all()


# ------------------------------------------------------------------------------------------------------------
# Groups of mma: whatever the emulator merges must equal the instructions one by one
# ------------------------------------------------------------------------------------------------------------

_TILED = """
mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
mov.f32 %f4, %f0; mov.f32 %f5, %f0; mov.f32 %f6, %f0; mov.f32 %f7, %f0;
"""
_MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def _sixteen_bit(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    return [rng.standard_normal((64, 2)).astype(np.float16).view(np.uint32)[:, 0] for _ in range(count)]


def _one(device, a: list[np.ndarray], b: list[np.ndarray], c: list[np.ndarray]) -> list[np.ndarray]:
    """One mma alone: the reference for groups."""
    text = f"{_MMA} {{%o0, %o1, %o2, %o3}}, {{%i0, %i1, %i2, %i3}}, {{%i4, %i5}}, {{%i6, %i7, %i8, %i9}};"
    return lanes(device, text, [*a, *b, *c], ["b32"] * 6 + ["f32"] * 4, [("f32", np.float32)] * 4)


def test_an_outer_product_with_a_chain(machine):
    """Two A fragments times two B fragments over two k-steps, as a tiled kernel has them."""
    rng = np.random.default_rng(2)
    a = [[_sixteen_bit(rng, 4) for _ in range(2)] for _ in range(2)]  # [row][k]
    b = [[_sixteen_bit(rng, 2) for _ in range(2)] for _ in range(2)]  # [column][k]
    flat = [r for row in a for step in row for r in step] + [
        r for column in b for step in column for r in step
    ]
    names = [f"%i{n}" for n in range(len(flat))]
    a_names = [[names[8 * i + 4 * k : 8 * i + 4 * k + 4] for k in range(2)] for i in range(2)]
    b_names = [[names[16 + 4 * j + 2 * k : 16 + 4 * j + 2 * k + 2] for k in range(2)] for j in range(2)]
    text = "".join(f"mov.f32 %o{n}, 0f00000000;" for n in range(16))
    for k in range(2):
        for i in range(2):
            for j in range(2):
                d = ", ".join(f"%o{4 * (2 * i + j) + n}" for n in range(4))
                left, right = ", ".join(a_names[i][k]), ", ".join(b_names[j][k])
                text += f"{_MMA} {{{d}}}, {{{left}}}, {{{right}}}, {{{d}}};\n"
    got = lanes(machine, text, flat, ["b32"] * len(flat), [("f32", np.float32)] * 16)
    for i in range(2):
        for j in range(2):
            d = [np.zeros(64, np.float32)] * 4
            for k in range(2):
                d = _one(machine, a[i][k], b[j][k], d)
            for n in range(4):
                np.testing.assert_allclose(got[4 * (2 * i + j) + n], d[n], rtol=1e-5, atol=1e-5)


def test_a_chain_whose_middle_is_read(machine):
    rng = np.random.default_rng(3)
    a, b, c = (
        _sixteen_bit(rng, 4),
        _sixteen_bit(rng, 2),
        [rng.standard_normal(64).astype(np.float32) for _ in range(4)],
    )
    text = (
        f"{_MMA} {{%o0, %o1, %o2, %o3}}, {{%i0, %i1, %i2, %i3}}, {{%i4, %i5}}, {{%i6, %i7, %i8, %i9}};\n"
        f"{_MMA} {{%o4, %o5, %o6, %o7}}, {{%i0, %i1, %i2, %i3}}, {{%i4, %i5}}, {{%o0, %o1, %o2, %o3}};"
    )
    got = lanes(machine, text, [*a, *b, *c], ["b32"] * 6 + ["f32"] * 4, [("f32", np.float32)] * 8)
    first = _one(machine, a, b, c)
    second = _one(machine, a, b, first)
    for n in range(4):
        np.testing.assert_allclose(got[n], first[n], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got[4 + n], second[n], rtol=1e-5, atol=1e-5)


def test_a_product_feeds_the_next_one_s_operand(machine):
    """An f16 accumulator is an A operand of the next mma: nothing may be merged over it."""
    rng = np.random.default_rng(4)
    a, b = _sixteen_bit(rng, 4), _sixteen_bit(rng, 2)
    half = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
    zero = "mov.b32 %t0, 0;"
    text = (
        f"{zero} {half} {{%o0, %o1}}, {{%i0, %i1, %i2, %i3}}, {{%i4, %i5}}, {{%t0, %t0}};\n"
        f"{half} {{%o2, %o3}}, {{%o0, %o1, %o0, %o1}}, {{%i4, %i5}}, {{%t0, %t0}};"
    )
    got = lanes(machine, text, [*a, *b], ["b32"] * 6, [("b32", np.uint32)] * 4, ".reg .b32 %t0;")
    single = f"{zero} {half} {{%o0, %o1}}, {{%i0, %i1, %i2, %i3}}, {{%i4, %i5}}, {{%t0, %t0}};"
    first = lanes(machine, single, [*a, *b], ["b32"] * 6, [("b32", np.uint32)] * 2, ".reg .b32 %t0;")
    second = lanes(machine, single, [first[0], first[1], first[0], first[1], *b], ["b32"] * 6, [("b32",
                   np.uint32)] * 2,
                   ".reg .b32 %t0;")  # fmt: skip
    for mine, theirs in zip(got, [*first, *second]):
        np.testing.assert_allclose(
            mine.view(np.float16).astype(float), theirs.view(np.float16).astype(float), rtol=2e-2, atol=2e-2
        )


def test_only_some_warps_take_part(machine):
    rng = np.random.default_rng(5)
    a, b, c = (
        _sixteen_bit(rng, 4),
        _sixteen_bit(rng, 2),
        [rng.standard_normal(64).astype(np.float32) for _ in range(4)],
    )
    text = (
        "mov.f32 %o0, %i6; mov.f32 %o1, %i7; mov.f32 %o2, %i8; mov.f32 %o3, %i9; setp.lt.u32 %p, %t, 32; "
        "@%p bra skip;\n"
        f"{_MMA} {{%o0, %o1, %o2, %o3}}, {{%i0, %i1, %i2, %i3}}, {{%i4, %i5}}, {{%i6, %i7, %i8, %i9}};\nskip:"
    )
    got = lanes(
        machine, text, [*a, *b, *c], ["b32"] * 6 + ["f32"] * 4, [("f32", np.float32)] * 4, ".reg .pred %p;"
    )
    want = _one(machine, a, b, c)
    for n in range(4):
        assert np.array_equal(got[n][:32], c[n][:32])
        np.testing.assert_allclose(got[n][32:], want[n][32:], rtol=1e-6, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------
# Matrices in shared memory
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(machine, count, transpose):
    rng = np.random.default_rng(6)
    words = [rng.integers(0, 2**32, 32, dtype=np.uint32) for _ in range(4)]
    fill = "".join(f"st.shared.b32 [%s+{128 * n}], %i{n};" for n in range(4))
    targets = ", ".join(f"%o{n}" for n in range(count))
    # Row addresses in reverse order, so that they matter.
    text = (
        f"shl.b32 %s, %t, 2; mov.b32 %b, buf; add.u32 %s, %s, %b; {fill} bar.warp.sync -1;"
        f"sub.u32 %s, 31, %t; shl.b32 %s, %s, 4; add.u32 %s, %s, %b;"
        f"ldmatrix.sync.aligned.m8n8.x{count}{transpose}.shared.b16 {{{targets}}}, [%s];"
    )
    registers = ".shared .align 16 .b8 buf[512]; .reg .b32 %s, %b;"
    got = lanes(machine, text, words, ["b32"] * 4, [("b32", np.uint32)] * count, registers)
    rows = np.concatenate(words).view(np.uint16).reshape(32, 8)[::-1]
    for n in range(count):
        matrix = rows[8 * n : 8 * n + 8]
        matrix = matrix.T if transpose else matrix
        assert np.array_equal(got[n].view(np.uint16).reshape(8, 8), matrix)


@pytest.mark.parametrize("transpose", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix(machine, count, transpose):
    rng = np.random.default_rng(7)
    words = [rng.integers(0, 2**32, 32, dtype=np.uint32) for _ in range(count)]
    sources = ", ".join(f"%i{n}" for n in range(count))
    loads = "".join(f"ld.shared.b32 %o{n}, [%s+{128 * n}];" for n in range(4))
    text = (
        f"shl.b32 %s, %t, 4; mov.b32 %b, buf; add.u32 %r, %s, %b; mov.b32 %z, 0; "
        f"st.shared.v4.b32 [%r], {{%z, %z, %z, %z}};"
        f"bar.warp.sync -1; stmatrix.sync.aligned.m8n8.x{count}{transpose}.shared.b16 [%r], {{{sources}}};"
        f"bar.warp.sync -1; shl.b32 %s, %t, 2; add.u32 %s, %s, %b; {loads}"
    )
    registers = ".shared .align 16 .b8 buf[512]; .reg .b32 %s, %b, %r, %z;"
    got = lanes(machine, text, words, ["b32"] * count, [("b32", np.uint32)] * 4, registers, "sm_90")
    for n in range(4):
        want = words[n].view(np.uint16).reshape(8, 8) if n < count else np.zeros((8, 8), np.uint16)
        assert np.array_equal(got[n].view(np.uint16).reshape(8, 8), want.T if transpose else want)


def test_movmatrix(machine):
    words = np.random.default_rng(8).integers(0, 2**32, 64, dtype=np.uint32)
    text = "movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;"
    (got,) = lanes(machine, text, [words], ["b32"], [("b32", np.uint32)])
    want = words.view(np.uint16).reshape(2, 8, 8).transpose(0, 2, 1)
    assert np.array_equal(got.view(np.uint16).reshape(2, 8, 8), want)


def test_ldmatrix_reads_generic_addresses(machine):
    words = np.arange(32, dtype=np.uint32)
    text = (
        "shl.b32 %s, %t, 2; mov.b32 %b, buf; add.u32 %s, %s, %b; st.shared.b32 [%s], %i0; bar.warp.sync -1;"
        "and.b32 %s, %t, 7; shl.b32 %s, %s, 4; add.u32 %s, %s, %b; cvt.u64.u32 %g, %s; "
        "cvta.shared.u64 %g, %g;"
        "ldmatrix.sync.aligned.m8n8.x1.b16 {%o0}, [%g];"
    )
    registers = ".shared .align 16 .b8 buf[128]; .reg .b32 %s, %b; .reg .b64 %g;"
    (got,) = lanes(machine, text, [words], ["b32"], [("b32", np.uint32)], registers)
    assert np.array_equal(got, words)


def test_a_part_of_a_warp_is_reported(checked):
    ptx = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) {
  .reg .b32 %r<4>; .reg .pred %p;
  mov.u32 %r0, %tid.x; setp.lt.u32 %p, %r0, 16; @%p bra done;
  movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;
done: ret;
}
"""
    run(checked, ptx, "k", 1, 32, np.zeros(1, np.uint32))
    assert [finding.kind for finding in checked.findings] == ["barrier"]
    assert "movmatrix" in checked.findings[0].instruction
