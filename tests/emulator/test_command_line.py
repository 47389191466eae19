"""``python -m ptxforge.emulator``: results, findings and exit statuses."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ptxforge.emulator.__main__ import main, parse_argument

from .harness import FIXTURES, HEADER

REDUCTION = str(FIXTURES / "reduction.ptx")

SCALE = (
    HEADER.format(target="sm_90")
    + """
.visible .entry scale(.param .u64 x, .param .u64 y, .param .f32 by, .param .u32 n) {
  .reg .b64 %a<2>; .reg .b32 %r<4>; .reg .f32 %f<3>; .reg .pred %p;
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;
  ld.param.u32 %r3, [n]; setp.ge.u32 %p, %r0, %r3; @%p ret;
  ld.param.u64 %a0, [x]; ld.param.u64 %a1, [y]; mad.wide.u32 %a0, %r0, 4, %a0; mad.wide.u32 %a1, %r0, 4, %a1;
  ld.global.f32 %f0, [%a0]; ld.param.f32 %f1, [by]; mul.f32 %f2, %f0, %f1; st.global.f32 [%a1], %f2; ret;
}
"""
)


@pytest.fixture
def scale(tmp_path):
    path = tmp_path / "scale.ptx"
    path.write_text(SCALE)
    return path


def call(path, *more: str) -> int:
    return main([str(path), "--entry", "scale", "--grid", "4", "--block", "32", *more])


def test_runs_and_saves(scale, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32))
    status = call(
        scale,
        "--arg",
        f"@{tmp_path / 'x.npy'}",
        "--arg",
        "f32[10x10]",
        "--arg",
        "f32:0.5",
        "--arg",
        "i32:100",
        "--save",
        f"1={tmp_path / 'y.npy'}",
        "--check",
        "all",
    )
    assert status == 0 and capsys.readouterr().err == ""
    np.testing.assert_array_equal(
        np.load(tmp_path / "y.npy"), np.arange(100, dtype=np.float32).reshape(10, 10) / 2
    )


def test_findings_go_to_stderr(scale, capsys):
    status = call(
        scale, "--arg", "f32[100]:arange", "--arg", "f32[99]", "--arg", "f32:0.5", "--arg", "u32:100"
    )
    lines = capsys.readouterr().err.splitlines()
    assert status == 1 and len(lines) == 1
    assert lines[0].startswith(
        "out-of-bounds: global write of 4 bytes: just past the end of the 396-byte allocation; "
        "CTA (3, 0, 0)"
    )


def test_counters_are_printed(scale, capsys):
    status = call(
        scale,
        "--arg",
        "f32[128]:ones",
        "--arg",
        "f32[128]",
        "--arg",
        "f32:2",
        "--arg",
        "i32:128",
        "--counters",
    )
    assert status == 0
    text = capsys.readouterr().out
    assert "sectors/req" in text and "occupancy: 32 CTAs" in text


def test_array_that_cannot_be_saved_is_status_2(scale, tmp_path, capsys):
    arguments = ["--arg", "f32[128]", "--arg", "f32[128]", "--arg", "f32:2", "--arg", "i32:100"]
    assert call(scale, *arguments, "--save", f"1={tmp_path}/nowhere/y.npy") == 2
    assert "cannot write" in capsys.readouterr().err


GOOD = ["--arg", "f32[128]", "--arg", "f32[128]", "--arg", "f32:2", "--arg", "i32:128"]


@pytest.mark.parametrize(
    "more, message",
    [
        (["--arg", "q7:1"], "cannot read the argument 'q7:1'"),
        (["--arg", "i32:x"], "is no int32"),
        (["--arg", "f32[3]:purple"], "filled with"),
        (["--arg", "@nowhere.npy"], "nowhere.npy"),
        (["--save", "0=x.npy"], "no array"),
        (["--save", "x"], "INDEX=FILE"),
        (["--arg", "f32[4]"], "1 arguments are given, the kernel has 4: x, y, by, n"),
        ([*GOOD, "--arg", "i32:7"], "5 arguments are given, the kernel has 4"),
        ([*GOOD[:-1], "i64:7"], "argument 3 has 8 bytes, the parameter n has 4"),
        ([*GOOD, "--block", "0"], "must be positive"),
        (["--block", "3;4"], "the size '3;4'"),
        (["--entry", "other"], "no kernel other"),
        ([*GOOD, "--shared", "999999"], "shared memory"),
        (["--shared", "-5"], "not negative"),
    ],
)
def test_bad_usage_is_status_2(scale, capsys, more, message):
    assert call(scale, *more) == 2
    assert message in capsys.readouterr().err


def test_unknown_instruction_is_status_2(scale, capsys):
    scale.write_text(SCALE.replace("mul.f32", "mumble.f32"))
    assert call(scale) == 2
    assert "PTX line 10: unknown instruction mumble.f32" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, message",
    [
        ("mul.purple.f32", "PTX line 10: unknown instruction mul.purple.f32: mul has no modifier .purple"),
        ("mul.s32", "PTX line 10: mul.s32: .lo, .hi or .wide is expected"),
        ("mul.rn.tf32", "PTX line 10: mul.rn.tf32: there is no such operation"),
    ],
)
def test_unknown_modifiers_are_status_2_and_named_once(scale, capsys, text, message):
    scale.write_text(SCALE.replace("mul.f32", text))
    assert call(scale, *GOOD) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_missing_option_is_status_2(scale, capsys):
    with pytest.raises(SystemExit) as stop:
        main([str(scale), "--entry", "scale"])
    assert stop.value.code == 2 and "--grid" in capsys.readouterr().err


def test_as_a_program(tmp_path):
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "ptxforge.emulator",
            REDUCTION,
            "--entry",
            "reduce_max",
            "--grid",
            "2",
            "--block",
            "64",
            "--shared",
            "256",
            "--arg",
            "i32[100]:arange",
            "--arg",
            "i32[1]",
            "--arg",
            "i32:100",
            "--save",
            f"1={tmp_path / 'm.npy'}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 0 and found.stderr == ""
    assert np.load(tmp_path / "m.npy").tolist() == [99]


@pytest.mark.parametrize(
    "text, dtype, shape",
    [
        ("i8:-3", "int8", ()),
        ("u64:0xffffffffffffffff", "uint64", ()),
        ("bf16:1.5", "bfloat16", ()),
        ("f16[3]", "float16", (3,)),
        ("f8e4m3[2x2]:ones", "float8_e4m3fn", (2, 2)),
        ("f32[4x5x6]:randn", "float32", (4, 5, 6)),
        ("i32[9]:randint", "int32", (9,)),
    ],
)
def test_arguments(text, dtype, shape):
    value = parse_argument(text)
    assert value.dtype.name == dtype and value.shape == shape


@pytest.mark.parametrize("text", ["f32[3x5]:arange", "i8[7]:ones", "f16[1000]:randn"])
def test_arrays_lie_as_on_a_gpu(text, tmp_path):
    """At multiples of 256 bytes: otherwise a row of 128 bytes is counted as five sectors, now and then."""
    made = parse_argument(text)
    np.save(tmp_path / "a.npy", made)
    loaded = parse_argument(f"@{tmp_path / 'a.npy'}")
    np.testing.assert_array_equal(made, loaded)
    assert made.ctypes.data % 256 == loaded.ctypes.data % 256 == 0 and made.any()
