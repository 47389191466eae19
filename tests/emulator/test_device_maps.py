"""Tensor maps that a kernel makes: each field, what TMA then does with them, and the fences between."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import pytest

from ptxforge.emulator import EmulatorDevice, tensormap
from ptxforge.support.errors import EmulatorError

from . import tma
from .foreign import _with_arrays
from .harness import HEADER, pack

ELEMENTS = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "f16": 6, "f32": 7, "f64": 9, "bf16": 10}
"""As `tensormap.replace` counts them."""

DTYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64,
          "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}  # fmt: skip
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
PUBLISH = (
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%work], [%m],"
    " 128;"
)
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%work], 128;"


def fields(
    kind: str, shape, strides, box, swizzle: int = 0, fill: int = 0, space: str = "shared::cta"
) -> str:
    """All fields, as one thread writes them; sizes and strides innermost first, strides in bytes."""
    where = "%work" if space == "global" else "%m"

    def put(field: str, value: object, *ordinal: int) -> str:
        bits = "b64" if field in ("global_address", "global_stride") else "b32"
        number = "".join(f"{n}, " for n in ordinal)
        register = {"b64": "%wide", "b32": "%narrow"}[bits]
        if field in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode"):
            load, register = "", value
        elif value == "%x":
            load, register = "", "%x"
        else:
            load = f"mov.{bits} {register}, {value}; "
        return f"{load}tensormap.replace.tile.{field}.{space}.b1024.{bits} [{where}], {number}{register};\n"

    text = put("global_address", "%x") + put("rank", len(shape) - 1) + put("elemtype", ELEMENTS[kind])
    text += put("interleave_layout", 0) + put("swizzle_mode", SWIZZLES[swizzle]) + put("fill_mode", fill)
    for d, (size, extent) in enumerate(zip(shape, box)):
        text += put("global_dim", size, d) + put("box_dim", extent, d) + put("element_stride", 1, d)
    return text + "".join(put("global_stride", stride, d) for d, stride in enumerate(strides))


def kernel(make: str, rank: int, nbytes: int, publish: str = PUBLISH, acquire: str = ACQUIRE) -> str:
    """One warp makes a map of `x` in shared memory, publishes it at `work`, and loads the box at c0, c1…"""
    coordinates = ", ".join(f"%c{axis}" for axis in range(rank))
    loads = "".join(f"ld.param.s32 %c{axis}, [c{axis}];" for axis in range(rank))
    corners = ", ".join(f".param .s32 c{axis}" for axis in range(5))
    return f"""{HEADER.format(target="sm_90a")}
.visible .entry k(.param .align 64 .b8 start[128], .param .u64 x, .param .u64 work, .param .u64 out,
  {corners})
{{
  .reg .b32 %t, %m, %bar, %tile, %narrow, %v, %a, %c<5>; .reg .b64 %x, %work, %out, %wide, %from, %to;
  .reg .pred %p<4>;
  .shared .align 128 .b8 map[128]; .shared .align 8 .b64 barrier;
  .shared .align 1024 .b8 tile[{max(nbytes, 128)}];
  mov.u32 %t, %tid.x; setp.eq.u32 %p0, %t, 0; mov.b32 %m, map; mov.b32 %bar, barrier; mov.b32 %tile, tile;
  ld.param.u64 %x, [x]; ld.param.u64 %work, [work]; ld.param.u64 %out, [out]; {loads}
  mad.lo.u32 %a, %t, 4, %m; mov.b64 %from, start; cvta.param.u64 %from, %from;
  mad.wide.u32 %from, %t, 4, %from;
  ld.b32 %v, [%from]; st.shared.b32 [%a], %v; @%p0 mbarrier.init.shared::cta.b64 [%bar], 1;
  bar.warp.sync -1;
  @!%p0 bra made;
{make}
made: bar.warp.sync -1;
  {publish}
  bar.sync 0;
  {acquire}
  @!%p0 bra wait;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {nbytes};
  cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%tile], [%work,
    {{{coordinates}}}], [%bar];
wait: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra wait;
  shl.b32 %a, %t, 2;
copy: setp.ge.u32 %p2, %a, {nbytes}; @%p2 bra done;
  add.u32 %narrow, %a, %tile; ld.shared.b32 %v, [%narrow]; cvt.u64.u32 %to, %a; add.u64 %to, %to, %out;
  st.global.b32 [%to], %v; add.u32 %a, %a, 128; bra copy;
done: ret;
}}
"""


def load(device, x: np.ndarray, text: str, box, corner, swizzle: int = 0, start=None) -> np.ndarray:
    """What the kernel's TMA brings. ``start(address of x)`` gives the bytes that the map begins with."""
    out, work = np.zeros(int(np.prod(box)), x.dtype), np.zeros(128, np.uint8)

    def launch(at: list[int]) -> None:
        first = bytes(128) if start is None else start(at[0])
        corners = [np.int32(v) for v in (*corner, *(0,) * (5 - len(corner)))]
        params = pack([first, *[np.uint64(address) for address in at], *corners])
        device.load_module(text).function("k").launch((1, 1, 1), (32, 1, 1), 0, 0, params)

    _with_arrays(device, [x, work, out], launch)
    return tma.unswizzled(out.view(np.uint8), swizzle).view(x.dtype)


def clean(device: EmulatorDevice) -> None:
    assert not device.findings, "\n".join(map(str, device.findings))


@pytest.mark.parametrize("kind", ELEMENTS)
def test_a_map_made_of_nothing(machine, checked, kind):
    dtype = np.dtype(DTYPES[kind])
    x = np.random.default_rng(0).integers(0, 100, (9, 64)).astype(dtype)
    box = (32, 4)
    text = kernel(fields(kind, (64, 9), x.strides[:1], box), 2, 128 * dtype.itemsize)
    want = tma.box_of(x, [16, 6], box, (1, 1)).reshape(-1)
    for device in (machine, checked):
        assert np.array_equal(load(device, x, text, box, [16, 6]), want)
    clean(checked)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_maps_of_every_rank(machine, checked, rank):
    shape = (2, 3, 4, 7, 48)[-rank:]
    x = np.arange(1, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    box = (16, 4, 2, 2, 2)[:rank]
    corner = [12, 4, -1, 1, 1][:rank]
    text = kernel(fields("f32", shape[::-1], x.strides[-2::-1], box), rank, 4 * int(np.prod(box)))
    want = tma.box_of(x, corner, box, (1,) * rank).reshape(-1)
    for device in (machine, checked):
        assert np.array_equal(load(device, x, text, box, corner), want)
    clean(checked)


@pytest.mark.parametrize("span", [32, 64, 128])
def test_swizzles(machine, checked, span):
    box = (span // 2, 16)
    x = np.random.default_rng(2).integers(0, 100, (20, 256)).astype(np.float16)
    text = kernel(fields("f16", (256, 20), (512,), box, swizzle=span), 2, 16 * span)
    want = tma.box_of(x, [16, 7], box, (1, 1)).reshape(-1)
    for device in (machine, checked):
        assert np.array_equal(load(device, x, text, box, [16, 7], span), want)
    clean(checked)


def test_nan_fill(machine):
    x = np.ones((4, 16), np.float32)
    text = kernel(fields("f32", (16, 4), (64,), (16, 4), fill=1), 2, 256)
    got = load(machine, x, text, (16, 4), [8, 2])
    assert np.array_equal(got, tma.box_of(x, [8, 2], (16, 4), (1, 1), np.nan).reshape(-1), equal_nan=True)


def test_a_map_of_the_host_with_one_field_changed(machine, checked):
    """The address moves by eight rows; what the host wrote of the rest stays."""
    x = np.arange(20 * 32, dtype=np.float32).reshape(20, 32)
    make = (
        "add.u64 %x, %x, 1024; tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%m], %x;\n"
        "mov.b32 %narrow, 12; tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%m], 1, %narrow;"
    )
    text = kernel(make, 2, 32 * 8 * 4)
    want = tma.box_of(x[8:], [0, 6], (32, 8), (1, 1)).reshape(-1)
    for device in (machine, checked):
        start = partial(tma.encode, device, "f32", sizes=(32, 20), strides=(128,), box=(32, 8))
        assert np.array_equal(load(device, x, text, (32, 8), [0, 6], start=start), want)
    clean(checked)


def test_a_map_changed_in_global_memory(machine, checked):
    """Without shared memory: one thread writes the fields, releases, and the CTA acquires."""
    x = np.arange(9 * 64, dtype=np.float32).reshape(9, 64)
    make = fields("f32", (64, 9), (256,), (32, 4), space="global")
    text = kernel(make + "fence.proxy.tensormap::generic.release.gpu;", 2, 512, publish="")
    want = tma.box_of(x, [16, 6], (32, 4), (1, 1)).reshape(-1)
    for device in (machine, checked):
        assert np.array_equal(load(device, x, text, (32, 4), [16, 6]), want)
    clean(checked)


@pytest.mark.parametrize("space, publish, release, acquire, missing", [
    ("shared::cta", PUBLISH, "", "", "acquire"),
    ("global", "", "fence.proxy.tensormap::generic.release.gpu;", "", "acquire"),
    ("global", "", "", ACQUIRE, "release"),
])  # fmt: skip
def test_missing_fences(checked, space, publish, release, acquire, missing):
    x = np.zeros((9, 64), np.float32)
    make = fields("f32", (64, 9), (256,), (32, 4), space=space) + release
    load(checked, x, kernel(make, 2, 512, publish, acquire), (32, 4), [0, 0])
    found = [finding.message for finding in checked.findings if finding.kind == "proxy"]
    assert found and all(missing in message for message in found)


@pytest.mark.parametrize(
    "before, after, message",
    [
        ("32; tensormap.replace.tile.box_dim", "300; tensormap.replace.tile.box_dim", "box extents"),
        ("mov.b64 %wide, 256", "mov.b64 %wide, 260", "multiples of 16"),
    ],
)  # fmt: skip
def test_maps_that_cannot_be(checked, before, after, message):
    x = np.zeros((9, 64), np.float32)
    text = kernel(fields("f32", (64, 9), (256,), (32, 4)), 2, 512)
    assert before in text
    load(checked, x, text.replace(before, after), (32, 4), [0, 0])
    assert any(message in finding.message for finding in checked.findings)


@pytest.mark.parametrize(
    "text",
    [
        "tensormap.replace.tile.global_address.shared::cta.b1024.b32 [%m], %narrow;",
        "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%m], 5, %narrow;",
        "tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%m], %narrow;",
        "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%m], 1, %narrow;",
        "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%m], 63;",
        PUBLISH.replace(" 128;", " 64;"),
        ACQUIRE.replace(", 128", ""),
    ],
)
def test_unknown_forms_are_refused_when_loaded(text):
    with pytest.raises(EmulatorError, match="PTX line"):
        EmulatorDevice().load_module(kernel(text, 2, 512))


def test_fields_are_those_of_the_host():
    """Field by field to the bytes that the encoder makes."""
    data = bytes(128)
    for field, ordinal, value in [
        ("global_address", 0, 4096), ("rank", 0, 1), ("elemtype", 0, 10), ("swizzle_mode", 0, 2),
        ("fill_mode", 0, 1), ("global_dim", 0, 64), ("global_dim", 1, 9), ("global_stride", 0, 128),
        ("box_dim", 0, 32), ("box_dim", 1, 4), ("element_stride", 0, 1), ("element_stride", 1, 2),
    ]:  # fmt: skip
        data = tensormap.replaced(data, field, ordinal, value)
    host = tensormap.encode_tiled("bf16", 4096, (64, 9), (128,), (32, 4), (1, 2), swizzle=64, fill_nan=True)
    assert data == host.tobytes()
