"""What the emulator does not know is an error when the module is loaded, with its line, and the documentation
says so.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxforge.emulator import EmulatorDevice
from ptxforge.support.errors import EmulatorError

from .harness import HEADER

REGISTERS = """.reg .b32 %r<16>; .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .b16 %h<4>; .reg .pred %p;
.reg .b8 %b<2>; .shared .align 128 .b8 buffer[1024];"""

UNSUPPORTED = {
    "textures and surfaces": [
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [t, {%f4, %f5}];",
        "suld.b.1d.b32.trap {%r0}, [t, {%r1}];",
    ],
    "indirect and recursive calls": ["call (%r0), %rd0, (%r1), prototype;", "call again, ();"],
    "video instructions": ["vadd.s32.s32.s32 %r0, %r1, %r2;", "vset2.s32.s32.eq %r0, %r1, %r2, %r3;"],
    "`tcgen05`": ["tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;"],
    "`wmma`": ["wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0, %r1, %r2, %r3}, [%rd0];"],
    "sparse": [
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2, %r3},"
        " {%f0, %f1, %f2, %f3}, %r4, 0;",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r0, %r1}, {%r2, %r3},"
        " {%r4, %r5}, {%r0, %r1}, %r6, 0;",
    ],
    "block-scaled `mma`": [
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0"
        " {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3},"
        " %r6, {0, 0}, %r7, {0, 0};"
    ],
    "sparse `wgmma`": [
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd1, %r0, 0,"
        " 1, 1, 1, 0, 0;"
    ],
    "`mma.m8n8k4` of f16": [
        "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, %r7},"
        " {%r0, %r1, %r2, %r3};"
    ],
    "im2col and gather copies of tensors": [
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r0],"
        " [%rd0, {%r1, %r2, %r3}], [%r4], {%h0};",
        "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r0],"
        " [%rd0, {%r1, %r2, %r3, %r4, %r5}], [%r6];",
    ],
    "`alloca` and `stacksave`": ["alloca.u64 %rd0, 16;", "stacksave.u64 %rd0;"],
    "8-bit `ldmatrix` and `stmatrix`": [
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r2];",
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r2], {%r0};",
    ],
    "stochastic rounding": [
        "cvt.rs.f16x2.f32 %r0, %f0, %f1, %r1;",
        "cvt.rs.satfinite.e4m3x4.f32 %r0, {%f0, %f1, %f2, %f3}, %r1;",
    ],
    "any modifier": ["add.purple.s32 %r0, %r1, %r2;", "ld.global.L3::128B.b32 %r0, [%rd0];"],
}
INSTRUCTIONS = [(text, what) for what, texts in UNSUPPORTED.items() for text in texts]


@pytest.mark.parametrize("text, what", INSTRUCTIONS)
def test_refused_when_loaded(text, what):
    """Also where no thread comes to it."""
    module = (
        HEADER.format(target="sm_100a")
        + ".func again() { call again; ret; }\n.visible .entry k(.param .u64 t) {\n"
        + f"{REGISTERS}\nbra END;\n{text}\nEND: ret;\n}}\n"
    )
    line = module.splitlines().index(text.splitlines()[0]) + 1
    recursive = text.startswith("call again")
    with pytest.raises(EmulatorError, match=r"PTX line \d+: " if recursive else rf"PTX line {line}: "):
        EmulatorDevice().load_module(module)


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_the_documentation_lists_it(what):
    text = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text()
    paragraph = text[text.index("Not supported") :].split("\n\n")[0]
    assert what in re.sub(r"\s+", " ", paragraph)


def test_only_what_calls_add_is_limited(monkeypatch):
    """A kernel may be as long as it is; functions that call functions may not multiply without end."""
    monkeypatch.setattr("ptxforge.emulator.program._MAX_INLINED", 100)
    functions = ".func f0() { .reg .b32 %r; " + "mov.b32 %r, 1; " * 20 + "ret; }\n"
    functions += "".join(f".func f{i + 1}() {{ call f{i}; call f{i}; ret; }}\n" for i in range(3))
    module = HEADER.format(target="sm_90a") + functions + ".visible .entry k() { .reg .b32 %r; BODY ret; }\n"
    EmulatorDevice().load_module(module.replace("BODY", "mov.b32 %r, 1; " * 200 + "call f0;"))
    with pytest.raises(EmulatorError, match="k is too large after its device functions are inlined"):
        EmulatorDevice().load_module(module.replace("BODY", "call f3;"))
