"""wgmma on every device: types, shapes, swizzles, majors, A in registers; and what checked mode says of
misuse.

The images of the operands in shared memory are made here element by element from the PTX ISA's layouts.
Bounds as in test_mma, relative to the sum of absolute products.
"""

from __future__ import annotations

import numpy as np
import pytest

from .foreign import _with_arrays
from .forms import STORAGE, operand_registers, random_matrix
from .harness import HEADER, pack

DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
A_BYTES, B_BYTES = (
    8192,
    32768,
)  # of shared memory: 64 and at most 256 rows of 128 bytes; together below 48 KiB


def swizzled(address: int, span: int) -> int:
    for bit in range({0: 0, 32: 1, 64: 2, 128: 3}[span]):
        address ^= ((address >> (7 + bit)) & 1) << (4 + bit)
    return address


def stored(matrix: np.ndarray, kind: str) -> np.ndarray:
    """(rows, K) numbers -> (rows, 32) bytes: one instruction's K is 32 bytes in every type."""
    if kind == "b1":
        return np.packbits(matrix.astype(np.uint8), axis=1, bitorder="little")
    return np.ascontiguousarray(matrix.astype(STORAGE[kind])).view(np.uint8)


def k_major(matrix: np.ndarray, kind: str, span: int) -> tuple[np.ndarray, int, int]:
    """The image of (rows, K) and its leading and stride byte offsets."""
    raw = stored(matrix, kind)
    image = np.zeros(B_BYTES, np.uint8)
    stride, leading = (256, 128) if span == 0 else (8 * span, 16)
    for row in range(raw.shape[0]):
        for unit in range(2):
            if span == 0:
                at = row // 8 * stride + row % 8 * 16 + unit * leading
            else:
                at = swizzled(row // 8 * stride + row % 8 * span + unit * 16, span)
            image[at : at + 16] = raw[row, 16 * unit : 16 * unit + 16]
    return image, leading, stride


def mn_major(matrix: np.ndarray, kind: str, span: int) -> tuple[np.ndarray, int, int]:
    """The image of (rows, K) with the rows' index running fastest: 16-bit types."""
    raw = np.ascontiguousarray(matrix.T.astype(STORAGE[kind])).view(np.uint8)  # (K, 2 * rows)
    image = np.zeros(B_BYTES, np.uint8)
    depth, width = raw.shape
    stride, leading = (256, 128) if span == 0 else (8 * span, 16 * span)
    for k in range(depth):
        for unit in range(width // 16):
            if span == 0:
                at = unit * stride + k // 8 * leading + k % 8 * 16
            else:
                pattern, inside = divmod(16 * unit, span)
                at = swizzled(pattern * leading + k // 8 * stride + k % 8 * span + inside, span)
            image[at : at + 16] = raw[k, 16 * unit : 16 * unit + 16]
    return image, leading, stride


def descriptor(offset: int, leading: int, stride: int, span: int) -> int:
    """Without the start address, which the kernel adds."""
    return (
        (offset >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | {0: 0, 128: 1, 64: 2, 32: 3}[span] << 62
    )


def kernel(
    opcode: str, count: int, wide: bool, operands: str, *, before: str, after: str, a_registers: int = 0
) -> str:
    kind = "f32" if wide else "b32"
    d = "{" + ", ".join(f"%d{n}" for n in range(count)) + "}"
    loads = "".join(f"ld.global.b32 %d{n}, [%rd9+{512 * n}];" for n in range(count))
    stores = "".join(f"st.global.b32 [%rd9+{512 * n}], %d{n};" for n in range(count))
    a_loads = "".join(f"ld.global.b32 %a{n}, [%rd8+{512 * n}];" for n in range(a_registers))
    return f"""{HEADER.format(target="sm_90a")}
.visible .entry k(.param .u64 image, .param .u64 d, .param .u64 a, .param .u64 desc_a, .param .u64 desc_b)
{{
  .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .pred %p<4>; .reg .{kind} %d<{count}>; .reg .b32 %a<4>;
  .shared .align 1024 .b8 tile[{A_BYTES + B_BYTES}];
  mov.u32 %r0, %tid.x; mov.b32 %r1, tile;
  ld.param.u64 %rd0, [image]; ld.param.u64 %rd1, [d]; ld.param.u64 %rd2, [a]; ld.param.u64 %rd3, [desc_a];
  ld.param.u64 %rd4, [desc_b];
  mul.wide.u32 %rd9, %r0, 4; add.u64 %rd8, %rd9, %rd2; add.u64 %rd9, %rd9, %rd1;
  {loads} {a_loads}
  shl.b32 %r2, %r0, 4;
copy:
  setp.ge.u32 %p1, %r2, {A_BYTES + B_BYTES}; @%p1 bra copied;
  cvt.u64.u32 %rd5, %r2; add.u64 %rd5, %rd5, %rd0; ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd5];
  add.u32 %r3, %r2, %r1; st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}};
  add.u32 %r2, %r2, 2048; bra copy;
copied:
  {before}
  shr.u32 %r8, %r1, 4; cvt.u64.u32 %rd6, %r8; add.u64 %rd3, %rd3, %rd6; add.u64 %rd4, %rd4, %rd6;
  {operands.format(op=f"{opcode} {d}")}
  {after}
  {stores}
  ret;
}}
"""


SYNC = "fence.proxy.async; bar.sync 0;"
WAIT = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


def d_registers(matrix: np.ndarray, kind: str) -> np.ndarray:
    """(64, N) -> (registers, 128) u32, by the PTX ISA's figure of D."""
    columns = matrix.shape[1]
    per_thread = np.empty((128, columns // 2))
    for i in range(columns // 2):
        thread = np.arange(128)
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
        per_thread[:, i] = matrix[row, 8 * (i // 4) + 2 * (thread % 4) + i % 2]
    values = np.ascontiguousarray(per_thread.astype(STORAGE[kind]))
    return np.ascontiguousarray(values.view(np.uint32).T)


def matrix_of(registers: np.ndarray, kind: str, columns: int) -> np.ndarray:
    per_thread = np.ascontiguousarray(registers.T).view(STORAGE[kind]).astype(np.float64)
    matrix = np.empty((64, columns))
    for i in range(columns // 2):
        thread = np.arange(128)
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
        matrix[row, 8 * (i // 4) + 2 * (thread % 4) + i % 2] = per_thread[:, i]
    return matrix


def in_a_cluster(ptx: str, rank: int, masks: bool) -> str:
    """The kernel in clusters of four CTAs, of which one does something."""
    alone = f"mov.u32 %r9, %cluster_ctarank; setp.ne.u32 %p3, %r9, {rank}; @%p3 ret;\n  mov.u32 %r0, %tid.x;"
    ptx = ptx.replace("desc_b)\n{", "desc_b) .reqnctapercluster 4\n{").replace("mov.u32 %r0, %tid.x;", alone)
    mask = "and.b32 %r8, %r8, 0x3fff;" if masks else ""
    return ptx.replace("shr.u32 %r8, %r1, 4;", f"shr.u32 %r8, %r1, 4; {mask}")


def run_wgmma(
    device, kinds: tuple[str, str, str], columns: int, *, spans=(128, 128), transposed=(False, False),
    scale="1", signs=(1, 1),
    in_registers=False, suffix="", before="wgmma.fence.sync.aligned;", after=WAIT, sync=SYNC, limit=None,
    repeat=1, rank=None, masks=True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """(D, A B, |A| |B|) of one wgmma on random operands; D starts as random C, which is added to A B where
    scale says so. With a `rank`, by that CTA of a cluster of four; it `masks` what descriptors have no room
    for.
    """
    d_kind, a_kind, b_kind = kinds
    rng = np.random.default_rng(0)
    depth = DEPTH[a_kind]
    a, b = random_matrix(rng, a_kind, (64, depth)), random_matrix(rng, b_kind, (columns, depth))
    c = (
        rng.integers(-8, 8, (64, columns)).astype(np.float64)
        if limit is None
        else np.full((64, columns), limit)
    )
    layout = [mn_major if t else k_major for t in transposed]
    image_a, *offsets_a = layout[0](a, a_kind, spans[0])
    image_b, *offsets_b = layout[1](b, b_kind, spans[1])
    desc = [descriptor(0, *offsets_a, spans[0]), descriptor(A_BYTES, *offsets_b, spans[1])]
    d = d_registers(c, d_kind)
    fragments = np.array(
        operand_registers(a.reshape(4, 16, depth), a_kind, 2) if in_registers else [np.zeros(128)] * 4,
        np.uint32,
    )
    opcode = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}{suffix}.{d_kind}.{a_kind}.{b_kind}"
    if suffix == ".and.popc":
        opcode = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.s32.b1.b1.and.popc"
    if suffix == ".satfinite":
        opcode = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.satfinite.{d_kind}.{a_kind}.{b_kind}"
    sixteen = a_kind in ("f16", "bf16")
    immediates = "" if d_kind == "s32" else f", {signs[0]}, {signs[1]}"
    if sixteen:
        immediates += (
            f", {int(transposed[1])}" if in_registers else f", {int(transposed[0])}, {int(transposed[1])}"
        )
    source = "{%a0, %a1, %a2, %a3}" if in_registers else "%rd3"
    predicate = f"setp.ne.b32 %p2, {scale}, 0;"
    operation = (
        f"{predicate} {before} "
        + f"{{op}}, {source}, %rd4, %p2{immediates};".replace("{%a", "{{%a").replace("3}", "3}}") * repeat
    )
    ptx = kernel(
        opcode, d.shape[0], d_kind == "f32", operation, before=sync, after=after, a_registers=4 * in_registers
    )
    if rank is not None:
        ptx = in_a_cluster(ptx, rank, masks)
    assert not image_a[A_BYTES:].any()
    image = np.concatenate([image_a[:A_BYTES], image_b])

    def launch(at: list[int]) -> None:
        params = pack([np.uint64(v) for v in (*at, *desc)])
        grid = (1 if rank is None else 4, 1, 1)
        device.load_module(ptx).function("k").launch(grid, (128, 1, 1), 0, 0, params)

    _with_arrays(device, [image, d, fragments], launch)
    product = signs[0] * signs[1] * repeat * a @ b.T
    if scale != "0":
        product = product + c
    return matrix_of(d, d_kind, columns), product, repeat * np.abs(a) @ np.abs(b).T + np.abs(c)


def assert_close(device, kinds, columns, **options) -> None:
    got, want, size = run_wgmma(device, kinds, columns, **options)
    d, a, _ = kinds
    bound = 0.0 if d == "s32" else 2.0**-10 if d == "f16" else 2.0**-12 if a in ("e4m3", "e5m2") else 2.0**-20
    assert (np.abs(got - want) <= bound * size).all(), np.abs(got - want).max()


TYPES = [
    ("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"), ("f32",
    "e4m3", "e4m3"),
    ("f32", "e5m2", "e4m3"), ("f16", "e4m3", "e5m2"), ("s32", "s8", "s8"), ("s32", "u8", "s8"), ("s32", "u8",
    "u8"),
]  # fmt: skip


@pytest.mark.parametrize("in_registers", [False, True], ids=["shared", "registers"])
@pytest.mark.parametrize("kinds", TYPES, ids=".".join)
def test_types(machine, kinds, in_registers):
    assert_close(machine, kinds, 32, in_registers=in_registers)


def test_bits(machine):
    assert_close(machine, ("s32", "b1", "b1"), 16, suffix=".and.popc")


@pytest.mark.parametrize("columns", [8, 24, 64, 96, 128, 256])
def test_widths(machine, columns):
    assert_close(machine, ("f32", "f16", "f16"), columns)


@pytest.mark.parametrize("span_b", [0, 32, 64, 128])
@pytest.mark.parametrize("span_a", [0, 32, 64, 128])
def test_swizzles(machine, span_a, span_b):
    assert_close(machine, ("f32", "f16", "f16"), 32, spans=(span_a, span_b))


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("transposed", [(True, False), (False, True), (True, True)], ids=["A", "B", "AB"])
def test_mn_major_operands(machine, transposed, span):
    assert_close(machine, ("f32", "bf16", "bf16"), 64, spans=(span, span), transposed=transposed)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_ctas_of_a_cluster(machine, rank):
    """Shared addresses have the rank in bits 24 and up, descriptors have no room for it."""
    assert_close(machine, ("f32", "f16", "f16"), 128, transposed=(False, True), rank=rank)


@pytest.mark.parametrize("rank, spoiled", [(0, False), (1, True), (2, True)])
def test_a_rank_in_the_descriptor_is_another_distance_of_panels(machine, rank, spoiled):
    got, want, size = run_wgmma(
        machine, ("f32", "f16", "f16"), 128, transposed=(False, True), rank=rank, masks=False
    )
    assert (np.abs(got - want) > 2.0**-20 * size).any() == spoiled


def test_mn_major_b_with_a_in_registers(machine):
    assert_close(machine, ("f32", "f16", "f16"), 128, transposed=(False, True), in_registers=True)


@pytest.mark.parametrize(
    "options", [{"scale": "0"}, {"signs": (-1, 1)}, {"signs": (1, -1)}, {"signs": (-1, -1)}, {"repeat": 3}]
)
def test_scales_signs_and_chains(machine, options):
    assert_close(machine, ("f32", "f16", "f16"), 16, **options)
    assert_close(machine, ("f16", "f16", "f16"), 16, **options)


def test_saturation(machine):
    got, _, _ = run_wgmma(machine, ("s32", "u8", "u8"), 8, suffix=".satfinite", limit=2.0**31 - 10)
    assert (got == 2**31 - 1).all()


# ------------------------------------------------------------------------------------------------------------
# Misuse
# ------------------------------------------------------------------------------------------------------------

F16 = ("f32", "f16", "f16")


def kinds_found(device) -> set[str]:
    return {finding.kind for finding in device.findings}


def test_a_proper_wgmma_is_clean(checked):
    run_wgmma(checked, F16, 16)
    assert not checked.findings, "\n".join(map(str, checked.findings))


def test_accumulators_come_at_the_wait(checked):
    got, _, _ = run_wgmma(checked, F16, 16, after="wgmma.commit_group.sync.aligned;")
    assert np.array_equal(got, np.rint(got))  # still C, which is integral
    assert kinds_found(checked) == {"async"}
    assert any(
        "accumulator" in finding.message and "st.global" in finding.instruction
        for finding in checked.findings
    )


def test_a_loose_wait(checked):
    run_wgmma(checked, F16, 16, after="wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;")
    assert kinds_found(checked) == {"async"}


def test_a_store_under_a_product_names_the_product(checked):
    after = "wgmma.commit_group.sync.aligned; st.shared.b32 [1024], 0; wgmma.wait_group.sync.aligned 0;"
    run_wgmma(checked, F16, 16, after=after)
    (finding,) = [one for one in checked.findings if one.kind == "async"]
    assert "a wgmma still reads this address" in finding.message and "; issued at PTX line" in finding.message
    assert finding.address == 1024


def test_a_missing_proxy_fence(checked):
    run_wgmma(checked, F16, 16, sync="bar.sync 0;")
    assert kinds_found(checked) == {"proxy"}


def test_a_missing_barrier(checked):
    run_wgmma(checked, F16, 16, sync="fence.proxy.async;")
    assert "race" in kinds_found(checked)


def test_a_missing_wgmma_fence(checked):
    run_wgmma(checked, F16, 16, before="")
    assert any("wgmma.fence" in finding.message for finding in checked.findings)


def test_operands_overwritten_before_the_wait(checked):
    run_wgmma(
        checked,
        F16,
        16,
        after="wgmma.commit_group.sync.aligned; st.shared.b32 [%r1], %r0; wgmma.wait_group.sync.aligned 0;",
    )
    assert any("wgmma still reads" in finding.message for finding in checked.findings)


def test_a_registers_overwritten_before_the_wait(checked):
    after = "wgmma.commit_group.sync.aligned; mov.b32 %a0, 0; wgmma.wait_group.sync.aligned 0;"
    run_wgmma(checked, F16, 16, in_registers=True, after=after)
    assert any("operand of a wgmma" in finding.message for finding in checked.findings)
