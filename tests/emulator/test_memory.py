"""ld, st and address spaces: widths, vectors, extension, generic addresses, parameters, and the two
faults.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import DeviceError, EmulatorError

from .harness import HEADER, pack, run

COPY = (
    HEADER.format(target="sm_90")
    + """
.visible .entry copy(.param .u64 src, .param .u64 dst) {{
  .reg .b64 %a<3>; .reg .b32 %t; {registers}
  mov.u32 %t, %tid.x;
  ld.param.u64 %a0, [src];
  ld.param.u64 %a1, [dst];
  mad.wide.u32 %a0, %t, {nbytes}, %a0;
  mad.wide.u32 %a1, %t, {nbytes}, %a1;
  {body}
  ret;
}}
"""
)

MOVES = [
    ("u8", 1, ".reg .b16 %v;", "%v"),
    ("b16", 2, ".reg .b16 %v;", "%v"),
    ("b32", 4, ".reg .b32 %v;", "%v"),
    ("f32", 4, ".reg .f32 %v;", "%v"),
    ("b64", 8, ".reg .b64 %v;", "%v"),
    ("f64", 8, ".reg .f64 %v;", "%v"),
    ("v2.u8", 2, ".reg .b16 %v<2>;", "{%v0, %v1}"),
    ("v4.u8", 4, ".reg .b16 %v<4>;", "{%v0, %v1, %v2, %v3}"),
    ("v2.b16", 4, ".reg .b16 %v<2>;", "{%v0, %v1}"),
    ("v4.b16", 8, ".reg .b16 %v<4>;", "{%v0, %v1, %v2, %v3}"),
    ("v2.b32", 8, ".reg .b32 %v<2>;", "{%v0, %v1}"),
    ("v4.b32", 16, ".reg .b32 %v<4>;", "{%v0, %v1, %v2, %v3}"),
    ("v2.b64", 16, ".reg .b64 %v<2>;", "{%v0, %v1}"),
    ("v2.f64", 16, ".reg .f64 %v<2>;", "{%v0, %v1}"),
    ("v4.f32", 16, ".reg .f32 %v<4>;", "{%v0, %v1, %v2, %v3}"),
]


@pytest.mark.parametrize("kind, nbytes, registers, operand", MOVES, ids=[move[0] for move in MOVES])
@pytest.mark.parametrize("threads", [32, 20])
def test_copies_of_every_shape(machine, kind, nbytes, registers, operand, threads):
    """Through global and shared memory and through the thread's own local memory, by state space and
    generically.
    """
    body = f""".shared .align 16 .b8 buffer[512]; .local .align 16 .b8 own[16]; .reg .b64 %g<4>; .reg .b32 %s;
    ld.global.{kind} {operand}, [%a0];
    mov.u32 %s, buffer; mad.lo.u32 %s, %t, {nbytes}, %s;
    st.shared.{kind} [%s], {operand};
    cvt.u64.u32 %g0, %s; cvta.shared.u64 %g0, %g0;
    ld.{kind} {operand}, [%g0];
    mov.u64 %g1, own; cvta.local.u64 %g2, %g1;
    st.{kind} [%g2], {operand};
    ld.local.{kind} {operand}, [%g1];
    st.global.{kind} [%a1], {operand};"""
    source = np.random.default_rng(nbytes).integers(0, 256, threads * nbytes, dtype=np.uint8)
    target = np.zeros_like(source)
    run(
        machine,
        COPY.format(registers=registers, nbytes=nbytes, body=body),
        "copy",
        1,
        threads,
        source,
        target,
    )
    np.testing.assert_array_equal(target, source)


@pytest.mark.parametrize(
    "kind, bits, dtype",
    [
        ("s8", 32, "i1"),
        ("u8", 32, "u1"),
        ("s16", 32, "i2"),
        ("u16", 32, "u2"),
        ("s32", 64, "i4"),
        ("u32", 64, "u4"),
        ("s8", 64, "i1"),
        ("s8", 16, "i1"),
    ],
)
def test_loads_extend_to_wider_registers(machine, kind, bits, dtype):
    """The value is sign- or zero-extended by the instruction's type; a store takes the low part."""
    size = np.dtype(dtype).itemsize
    ptx = (
        HEADER.format(target="sm_90")
        + f"""
    .visible .entry k(.param .u64 src, .param .u64 dst, .param .u64 low) {{
      .reg .b64 %a<4>; .reg .b32 %t; .reg .b{bits} %v;
      mov.u32 %t, %tid.x; ld.param.u64 %a0, [src]; ld.param.u64 %a1, [dst]; ld.param.u64 %a2, [low];
      mad.wide.u32 %a0, %t, {size}, %a0; mad.wide.u32 %a1, %t, {bits // 8}, %a1;
      mad.wide.u32 %a2, %t, {size}, %a2;
      ld.global.{kind} %v, [%a0]; st.global.b{bits} [%a1], %v; st.global.{kind} [%a2], %v; ret;
    }}"""
    )
    info = np.iinfo(dtype)
    source = np.random.default_rng(1).integers(info.min, info.max, 32, dtype=dtype)
    wide, low = np.zeros(32, f"{dtype[0]}{bits // 8}"), np.zeros_like(source)
    run(machine, ptx, "k", 1, 32, source, wide, low)
    np.testing.assert_array_equal(wide, source)
    np.testing.assert_array_equal(low, source)


def test_parameters_constants_and_globals(machine):
    """Scalars, a struct by value, `.const` data with offsets, a global that points to another global."""
    ptx = (
        HEADER.format(target="sm_90")
        + """
    .const .align 4 .b32 table[4] = {10, 20, 0x30, -1};
    .global .align 4 .f32 scale[2] = {0f40000000, 3.0};
    .global .align 8 .u64 where = generic(scale);
    .visible .entry k(.param .b8 flag, .param .f32 x, .param .align 8 .b8 pair[16], .param .u64 out) {
      .reg .b64 %a<4>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .f64 %d; .reg .b16 %h;
      ld.param.u64 %a0, [out];
      ld.param.s8 %r0, [flag]; st.global.b32 [%a0], %r0;
      ld.param.f32 %f0, [x]; ld.param.u32 %r1, [pair]; ld.param.f64 %d, [pair+8]; cvt.rn.f32.f64 %f1, %d;
      st.global.f32 [%a0+4], %f0; st.global.u32 [%a0+8], %r1; st.global.f32 [%a0+12], %f1;
      ld.const.u32 %r2, [table+8]; ld.const.s32 %r3, [table+12]; st.global.v2.b32 [%a0+16], {%r2, %r3};
      ld.global.u64 %a1, [where]; ld.f32 %f2, [%a1+4]; ld.global.f32 %f3, [scale];
      st.global.v2.f32 [%a0+24], {%f2, %f3};
      ret;
    }"""
    )
    out = np.zeros(8, np.float32)
    pair = np.uint32(77).tobytes() + bytes(4) + np.float64(0.25).tobytes()
    device = machine
    address = device.allocate(out.nbytes)
    params = (
        np.int8(-5).tobytes() + bytes(3) + np.float32(1.5).tobytes() + pair + np.uint64(address).tobytes()
    )
    device.load_module(ptx).function("k").launch((1, 1, 1), (1, 1, 1), 0, 0, params)
    device.copy_to_host(out, address)
    words = out.view(np.int32)
    assert words[0] == -5 and out[1] == 1.5 and words[2] == 77 and out[3] == 0.25
    assert words[4] == 0x30 and words[5] == -1 and out[6] == 3.0 and out[7] == 2.0


def test_dynamic_shared_memory_starts_after_the_static(machine):
    ptx = (
        HEADER.format(target="sm_90")
        + """
    .extern .shared .align 16 .b8 dynamic[];
    .visible .entry k(.param .u64 out) {
      .shared .align 4 .b8 fixed[20]; .reg .b64 %a; .reg .b32 %r<6>;
      ld.param.u64 %a, [out]; mov.u32 %r0, fixed; mov.u32 %r1, dynamic; sub.u32 %r2, %r1, %r0;
      mov.u32 %r3, %dynamic_smem_size; mov.u32 %r4, %tid.x; mad.lo.u32 %r5, %r4, 4, %r1;
      st.shared.u32 [%r5], %r4;
      ld.shared.u32 %r5, [%r5]; mad.wide.u32 %a, %r4, 4, %a; st.global.u32 [%a+8], %r5;
      setp.eq.u32 %p, %r4, 0; @%p st.global.v2.u32 [%a], {%r2, %r3}; ret;
    }""".replace(".reg .b64 %a;", ".reg .b64 %a; .reg .pred %p;")
    )
    out = np.zeros(18, np.uint32)
    run(machine, ptx, "k", 1, 16, out, shared=64)
    assert out[0] == 32 and out[1] == 64
    np.testing.assert_array_equal(out[2:], np.arange(16))


# ---- faults ------------------------------------------------------------------------------------------------
FAULT = (
    HEADER.format(target="sm_90")
    + """
.file 1 "kernel.py"
.visible .entry k(.param .u64 x, .param .u64 out) {{
  .shared .align 16 .b8 buffer[256]; .reg .b64 %a<3>; .reg .b32 %t; .reg .f32 %v; .reg .b32 %s;
  mov.u32 %t, %tid.x; ld.param.u64 %a0, [x]; ld.param.u64 %a1, [out]; mad.wide.u32 %a0, %t, 4, %a0;
  mad.wide.u32 %a1, %t, 4, %a1; shl.b32 %s, %t, 2; mov.f32 %v, 0f00000000;
  .loc 1 42 0
  {access}
  .loc 1 43 0
  st.global.f32 [%a1], %v;
  ret;
}}
"""
)


def launch(device, access: str, threads: int = 32):
    x, out = np.ones(threads, np.float32), np.zeros(threads, np.float32)
    run(device, FAULT.format(access=access), "k", 1, threads, x, out)
    return x, out


@pytest.mark.parametrize(
    "access, kind, thread, count",
    [
        ("ld.global.f32 %v, [%a0+4];", "out-of-bounds", 31, 1),
        ("ld.global.f32 %v, [%a0+-8];", "out-of-bounds", 0, 2),
        ("st.global.f32 [%a0+16], %v;", "out-of-bounds", 28, 4),
        ("ld.global.f32 %v, [%a0+2];", "misaligned", 0, 31),
        ("ld.shared.f32 %v, [%s];", "out-of-bounds", 0, 32),
        (
            "{ .reg .b32 %q; mov.u32 %q, buffer; add.u32 %q, %q, %s; ld.shared.f32 %v, [%q+256]; }",
            "out-of-bounds",
            0,
            32,
        ),
        ("{ .reg .b32 %q; mov.u32 %q, buffer; ld.shared.f32 %v, [%q+1]; }", "misaligned", 0, 32),
        ("atom.global.add.f32 %v, [%a0+124], %v;", "out-of-bounds", 1, 31),
        ("ld.f32 %v, [%a0+4];", "out-of-bounds", 31, 1),
    ],
)
def test_fault_names_thread_and_source_line(access, kind, thread, count):
    device = EmulatorDevice(raise_faults=False)
    _, out = launch(device, access)
    finding = next(f for f in device.findings if f.kind == kind)
    assert finding.thread == (thread, 0, 0) and finding.cta == (0, 0, 0) and finding.count == count
    assert finding.source.file == "kernel.py" and finding.source.line == 42
    assert finding.line == FAULT.format(access=access).splitlines().index("  " + access) + 1
    with pytest.raises(DeviceError, match=f"kernel.py:42: {kind}"):
        launch(EmulatorDevice(), access)


def test_lanes_without_a_fault_go_on():
    device = EmulatorDevice(raise_faults=False)
    _, out = launch(device, "ld.global.f32 %v, [%a0+4];")
    np.testing.assert_array_equal(out, [1] * 31 + [0])


@pytest.mark.parametrize("address", [0, 8, 2**47, 2**63 - 4, 2**63, 2**64 - 4, (1 << 56) + 8, (3 << 56)])
@pytest.mark.parametrize("space", ["global.", ""])
def test_wild_addresses_are_out_of_bounds(address, space):
    device = EmulatorDevice(raise_faults=False)
    launch(device, f"mov.u64 %a0, {address}; ld.{space}f32 %v, [%a0];")
    assert {finding.kind for finding in device.findings} == {"out-of-bounds"}


def test_views_of_one_buffer_can_be_used_together():
    device = EmulatorDevice()
    whole = np.zeros(64, np.float32)
    views = [whole, whole[8:40], whole[:16]]
    assert [device.register_host_array(view) - whole.ctypes.data for view in views] == [0, 32, 0]
    assert device.memory.allocations() == [(whole.ctypes.data, 256)]
    device.memory.unregister(whole.ctypes.data)
    device.memory.unregister(whole.ctypes.data)
    assert device.memory.allocations() == [(whole.ctypes.data + 32, 128)]


def test_freed_memory_is_out_of_bounds():
    device = EmulatorDevice()
    address = device.allocate(128)
    kernel = device.load_module(FAULT.format(access="ld.global.f32 %v, [%a0];")).function("k")
    out = np.zeros(32, np.float32)
    params = pack([np.uint64(address), np.uint64(device.register_host_array(out))])
    kernel.launch((1, 1, 1), (32, 1, 1), 0, 0, params)
    device.free(address)
    with pytest.raises(DeviceError, match="out-of-bounds"):
        kernel.launch((1, 1, 1), (32, 1, 1), 0, 0, params)


@pytest.mark.parametrize(
    "text, message",
    [
        ("frobnicate.b32 %t, %t;", "unknown instruction frobnicate.b32"),
        ("add.f16x7 %t, %t, %t;", "add.f16x7"),
        ("mov.u32 %t, nowhere;", "unknown symbol nowhere"),
        ("mov.u32 %t, %nothing.x;", "cannot read the operand"),
        ("bra elsewhere;", "no label elsewhere"),
        ("add.u32 %t, %t;", "add.u32"),
        ("ld.global.b64 %t, [%a0];", "register"),
    ],
)
def test_what_cannot_run_is_an_error_at_load_time(text, message):
    ptx = FAULT.format(access=text)
    line = ptx.splitlines().index("  " + text) + 1
    with pytest.raises(EmulatorError, match=f"PTX line {line}: .*{message}"):
        EmulatorDevice().load_module(ptx)


BULK_ZEROS = """
.visible .entry k(.param .u64 out, .param .u64 size) {{
.shared .align 16 .b8 buffer[2048]; .reg .b64 %a, %size; .reg .b32 %t, %s, %v; .reg .pred %p;
mov.u32 %t, %tid.x; ld.param.u64 %a, [out]; ld.param.u64 %size, [size]; mad.wide.u32 %a, %t, 4, %a;
mov.u32 %s, buffer; mad.lo.u32 %s, %t, 4, %s; st.shared.b32 [%s], %t; bar.sync 0;
setp.eq.u32 %p, %t, 3; mov.u32 %v, buffer;
@%p st.bulk.weak.shared::cta [%v+16], {size}, 0;
{sync}
ld.shared.b32 %v, [%s]; st.global.b32 [%a], %v; ret; }}
"""


@pytest.mark.parametrize("size, nbytes", [("%size", 64), ("40", 40), ("%size", 0)])
def test_bulk_stores_write_zeros(checked, size, nbytes):
    """An instruction of sm_100: the emulator alone."""
    out = np.full(64, -1, np.int32)
    text = HEADER.format(target="sm_100a") + BULK_ZEROS.format(size=size, sync="bar.sync 0;")
    run(checked, text, "k", 1, 64, out, np.uint64(nbytes))
    want = np.arange(64, dtype=np.int32)
    want[4 : 4 + nbytes // 4] = 0
    np.testing.assert_array_equal(out, want)
    assert not checked.findings


@pytest.mark.parametrize(
    "size, sync, kind",
    [("64", "", "race"), ("4096", "bar.sync 0;", "out-of-bounds"), ("12", "bar.sync 0;", "misaligned")],
)
def test_bulk_stores_are_checked(checked, size, sync, kind):
    text = HEADER.format(target="sm_100a") + BULK_ZEROS.format(size=size, sync=sync)
    run(checked, text, "k", 1, 64, np.zeros(64, np.int32), np.uint64(0))
    (finding,) = checked.findings
    assert finding.kind == kind and finding.thread == ((4, 0, 0) if kind == "race" else (3, 0, 0))
