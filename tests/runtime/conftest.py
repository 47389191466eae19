"""A compiler that always makes the same, hand-written, vector sum: the runtime is tested by itself."""

from __future__ import annotations

import numpy as np
import pytest

import ptxforge
from ptxforge import compiler
from ptxforge.compiler import Artifact, Assembly
from ptxforge.runtime.jit import jit
from tests.driver.fake_driver import Nothing, install

BLOCK = 128
ADD_PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 out, .param .u32 n)
.maxntid 128, 1, 1
{
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r2, 128, %r3;
    setp.lt.u32 %p1, %r4, %r1;
    mul.wide.u32 %rd4, %r4, 4;
    add.u64 %rd5, %rd1, %rd4;
    add.u64 %rd6, %rd2, %rd4;
    add.u64 %rd7, %rd3, %rd4;
    @%p1 ld.global.f32 %f1, [%rd5];
    @%p1 ld.global.f32 %f2, [%rd6];
    add.f32 %f3, %f1, %f2;
    @%p1 st.global.f32 [%rd7], %f3;
    ret;
}
"""


def add(x, y, out, n):
    """The function that stands for the hand-written kernel; its body is never compiled."""


@pytest.fixture
def compiled(monkeypatch) -> list[dict]:
    """Replaces the compiler; lists what it was asked for: signature, constants, target, options."""
    requests: list[dict] = []

    def compile_function(fn, signature, constants, target, symbol="", **options):
        requests.append(
            {"signature": signature, "constants": constants, "target": target, "options": options}
        )
        parameters = tuple((name, kind) for name, kind in signature.items() if name not in constants)
        return Artifact(
            name="add", ptx=ADD_PTX, target=target, num_warps=options["num_warps"],
            num_stages=options["num_stages"], num_ctas=options["num_ctas"], shared_bytes=0,
            parameters=parameters, signature=signature, constants=constants,
            options=options, timings={}, asm=Assembly({"tile": "tile", "gpu": "gpu", "ptx": ADD_PTX}),
            stages=[("frontend", "tile")],
        )  # fmt: skip

    monkeypatch.setattr(compiler, "compile_function", compile_function)
    return requests


@pytest.fixture
def kernel(compiled):
    """The vector sum, ready to launch: ``kernel[(cdiv(n, BLOCK),)](x, y, out, n)``. ``n`` is not
    specialised."""
    return jit(add, do_not_specialize=["n"])


@pytest.fixture
def arrays(monkeypatch):
    """Three on a GPU whose driver does nothing."""
    monkeypatch.setenv("PTXFORGE_DEVICE", "cuda")
    install(monkeypatch, Nothing())
    return [ptxforge.empty(1000, np.float32) for _ in range(3)]
