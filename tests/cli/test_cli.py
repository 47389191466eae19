"""The commands, as a user types them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ptxforge.cli import COMMANDS, main
from ptxforge.ir.parser import parse_function
from ptxforge.passes.pipeline import PIPELINE
from ptxforge.passes.properties import PROPERTIES
from ptxforge.runtime import tools
from ptxforge.support import settings

KERNELS = Path(__file__).parent / "kernels.py"
SIGNATURE = "*fp32:16,*fp32:16,i32"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """Commands change the process that they run in; these tests run many in one."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setenv("COLUMNS", "200")
    yield
    sys.modules.pop("kernels", None)


def compile_command(*more, kernel="copy", signature=SIGNATURE, constants="BLOCK=256"):
    return main(["compile", f"{KERNELS}:{kernel}", "--signature", signature, "--constants", constants, *more])


def test_without_a_command_the_commands_are_shown(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    shown = capsys.readouterr().out
    assert stop.value.code == 0 and all(name in shown and text in shown for name, text in COMMANDS.items())
    assert main([]) == 2
    assert capsys.readouterr().err == shown
    with pytest.raises(SystemExit) as stop:
        main(["banana"])
    assert stop.value.code == 2 and "invalid choice: 'banana'" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0 and f"usage: python -m ptxforge {name}" in capsys.readouterr().out


def test_demo(capsys):
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "ptxforge on emulator" in shown and shown.count(" right ") == 3 and "WRONG" not in shown
    for name in ("add", "softmax", "matmul"):
        assert name in shown


@pytest.mark.parametrize(
    ("signature", "constants"),
    [
        (SIGNATURE, "BLOCK=256"),
        ("x=*fp32:16,out=*fp32:16,n=i32", "BLOCK=256"),
        ("*fp32:16, *fp32:16", "BLOCK=256,n=1000"),
    ],
)
def test_compile(signature, constants, capsys):
    assert compile_command(signature=signature, constants=constants) == 0
    shown = capsys.readouterr().out
    assert ".visible .entry copy" in shown and ".target sm_90a" in shown


def test_compile_for_a_target_and_with_a_type_as_constant(capsys, assemble):
    assert (
        compile_command(
            "--target", "sm_80", constants="BLOCK=256,KIND=tl.float16", signature="*fp32:16,*fp16:16,i32"
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert ".target sm_80" in shown and "cvt.rn.f16" in shown
    assemble(shown)


@pytest.mark.parametrize(
    ("stage", "sign"), [("tile", "load"), ("gpu", "#blocked"), ("stages", "// after coalesce")]
)
def test_compile_to_ir(stage, sign, capsys):
    assert compile_command("--emit", stage) == 0
    shown = capsys.readouterr().out
    assert sign in shown
    if stage != "stages":
        assert parse_function(shown).name == "copy"


@pytest.mark.parametrize("disassembles", [True, False])
def test_compile_all(disassembles, capsys, monkeypatch):
    monkeypatch.setattr(tools, "can_disassemble", lambda: disassembles)
    monkeypatch.setattr(tools, "assemble", lambda ptx, target: b"")
    monkeypatch.setattr(tools, "disassemble", lambda cubin: "EXIT\n")
    assert compile_command("--emit", "all") == 0
    shown = capsys.readouterr().out.splitlines()
    wanted = ["// tile", "// gpu", "// ptx", *(["// sass"] if disassembles else [])]
    assert [line for line in shown if line in ("// tile", "// gpu", "// ptx", "// sass")] == wanted


@pytest.mark.parametrize(("text", "message"), [
    ("import nothing_there\n", ":1 cannot be executed: ModuleNotFoundError: No module named 'nothing_there'"),
    ("x = 1\ndef f(:\n", ":2 cannot be executed: SyntaxError: invalid syntax"),
    ("def f():\n    return 1 / 0\n\nf()\n", ":2 cannot be executed: ZeroDivisionError: division by zero"),
])  # fmt: skip
def test_compile_of_a_file_with_a_fault(text, message, tmp_path, capsys):
    file = tmp_path / "faulty.py"
    file.write_text(text)
    assert main(["compile", f"{file}:f"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {file}{message}") and shown.count("\n") == 1


def test_what_a_file_prints_is_no_code(tmp_path, capsys):
    file = tmp_path / "talks.py"
    file.write_text("import triton\nprint('hello')\n@triton.jit\ndef nothing():\n    pass\n")
    assert main(["compile", f"{file}:nothing", "--emit", "ptx"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(".version") and shown.err == "hello\n"


def test_compile_for_clusters(capsys, assemble):
    assert compile_command("--num-ctas", "2", "--target", "sm_90a") == 0
    ptx = capsys.readouterr().out
    assert ".reqnctapercluster 2, 1, 1" in ptx
    assemble(ptx)


def test_compile_to_machine_code(capsys, assemble):
    if not (tools.find("nvdisasm") or tools.find("cuobjdump")):
        assert compile_command("--emit", "sass") == 1
        assert "is not installed" in capsys.readouterr().err
        return
    assert compile_command("--emit", "sass") == 0
    assert "EXIT" in capsys.readouterr().out


def test_compile_finds_the_kernel_under_an_autotuner(capsys):
    assert compile_command(kernel="tuned", signature="*i32:16", constants="BLOCK=64") == 0
    assert ".visible .entry tuned" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "nowhere.py:f"], "'nowhere.py:f' is not FILE.py:FUNCTION with a file that exists"),
        (["compile", f"{KERNELS}:missing"], "has no function 'missing'"),
        (["compile", f"{KERNELS}:NOT_A_KERNEL"], "has no function 'NOT_A_KERNEL'"),
        (
            ["compile", f"{KERNELS}:copy", "--signature", "i32"],
            "the signature has 1 types for 3 parameters: x, out, n",
        ),
        (["compile", f"{KERNELS}:copy", "--constants", "BLOCK"], "'BLOCK' is not NAME=VALUE"),
        (["compile", f"{KERNELS}:copy", "--signature", SIGNATURE], "argument 'BLOCK': has neither a type"),
        (
            ["compile", f"{KERNELS}:copy", "--signature", "bloc=i32", "--constants", "n=1"],
            "argument 'bloc': 'copy' has no such",
        ),
        (
            [
                "compile",
                f"{KERNELS}:copy",
                "--signature",
                SIGNATURE,
                "--constants",
                "BLOCK=256",
                "--target",
                "sm_10",
            ],
            "unknown target",
        ),
        (["layout", "#banana<{}>", "4x4"], "banana"),
        (
            ["layout", "#shared<{vec = 2, perPhase = 1, maxPhase = 4, order = [1, 0]}>", "4by8"],
            "'4by8' is not a shape",
        ),
        (
            ["layout", "#shared<{vec = 2, perPhase = 1, maxPhase = 4, order = [1, 0]}>", "4x8", "--hw-view"],
            "maps memory",
        ),
        (["opt", "nowhere.tir"], "nowhere.tir"),
        (["run", "nowhere.py"], "there is no file nowhere.py"),
    ],
)
def test_errors_are_one_line_and_a_status(arguments, message, capsys):
    assert main(arguments) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and message in shown and "Traceback" not in shown


def test_opt_does_what_the_pipeline_did(tmp_path, capsys):
    compile_command("--emit", "tile")
    file = tmp_path / "copy.tir"
    file.write_text(capsys.readouterr().out)
    compile_command("--emit", "gpu")
    whole = capsys.readouterr().out
    gpu_passes = ",".join(row.name for row in PIPELINE if row.stage == "gpu")
    assert main(["opt", str(file), "--passes", gpu_passes]) == 0
    assert capsys.readouterr().out.strip() == whole.strip()
    assert main(["opt", str(file), "--passes", gpu_passes, "--each"]) == 0
    assert "// after coalesce" in capsys.readouterr().out
    assert main(["opt", str(file), "--passes", "banana"]) == 1
    assert "there is no pass 'banana'; there are" in capsys.readouterr().err


@pytest.mark.parametrize(("passes", "message"), [
    ("coalesce", "pass 'coalesce' requires 'layouts', which does not hold: a value of type tensor<256xi32> has no layout"),  # noqa: E501
    ("assign_layouts,insert_barriers", "pass 'insert_barriers' requires 'offsets', which does not hold"),
])  # fmt: skip
def test_opt_asks_for_what_a_pass_requires(passes, message, tmp_path, capsys):
    compile_command("--emit", "tile")
    file = tmp_path / "copy.tir"
    file.write_text(capsys.readouterr().out)
    assert main(["opt", str(file), "--passes", passes]) == 1
    assert message in capsys.readouterr().err


BLOCKED = "#blocked<{sizePerThread = [1, 2], threadsPerWarp = [2, 2], warpsPerCTA = [1, 1], order = [1, 0]}>"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ([], "[[T0:0, T0:1, T1:0, T1:1]\n[ T2:0, T2:1, T3:0, T3:1]]\n"),
        (
            ["--hw-view"],
            "Warp 0:\n  T0: (0,0), (0,1)\n  T1: (0,2), (0,3)\n  T2: (1,0), (1,1)\n  T3: (1,2), (1,3)\n",
        ),
        (["--threads"], "[ 0 0 1 1 ]\n[ 2 2 3 3 ]\n"),
    ],
)
def test_layout(option, text, capsys):
    assert main(["layout", BLOCKED, "2x4xf16", *option]) == 0
    assert capsys.readouterr().out == text


def test_layout_as_a_picture(tmp_path, capsys):
    assert main(["layout", BLOCKED, "2x4xf16", "--svg", str(tmp_path / "layout.svg")]) == 0
    assert (tmp_path / "layout.svg").read_text().startswith("<svg")


def test_layout_as_a_picture_beside_a_view(tmp_path, capsys):
    assert main(["layout", BLOCKED, "2x4xf16", "--hw-view"]) == 0
    view = capsys.readouterr().out
    assert main(["layout", BLOCKED, "2x4xf16", "--hw-view", "--svg", str(tmp_path / "layout.svg")]) == 0
    assert capsys.readouterr().out.endswith(view)
    assert (tmp_path / "layout.svg").read_text().startswith("<svg")


def test_passes(capsys):
    assert main(["passes"]) == 0
    shown = capsys.readouterr().out
    assert all(row.name in shown and row.why in shown for row in PIPELINE)
    assert all(f"{name}: {invariant.meaning}" in shown for name, invariant in PROPERTIES.items())


def test_passes_fit_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["passes"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 80 and all(any(row.name in line for line in shown) for row in PIPELINE)


def test_env(capsys, monkeypatch):
    monkeypatch.setenv("PTXFORGE_CHECK", "one")
    assert main(["env"]) == 0
    shown = capsys.readouterr().out
    assert all(setting.name in shown for setting in settings.ALL) and "emulator, sm_90a" in shown


def test_run(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import sys, triton\nprint(triton.__version__, sys.argv[1:], __name__)\n")
    assert main(["run", str(script), "--flag", "value"]) == 0
    assert capsys.readouterr().out == "3.6.0 ['--flag', 'value'] __main__\n"


def test_opt_of_a_file_that_is_no_text(tmp_path, capsys):
    file = tmp_path / "kernel.tir"
    file.write_bytes(b"func \xff\xfe")
    assert main(["opt", str(file)]) == 1
    shown = capsys.readouterr().err
    assert shown == f"error: {file} is no IR text: byte 5 is not UTF-8\n"


@pytest.mark.parametrize("view", ["", "--threads", "--hw-view", "--svg"])
def test_a_layout_too_large_to_draw(view, tmp_path, capsys):
    more = [view, str(tmp_path / "picture.svg")] if view == "--svg" else [view] if view else []
    assert main(["layout", BLOCKED, "1048576x1048576", *more]) == 1
    assert "a picture of 1099511627776 elements is too large" in capsys.readouterr().err
    assert main(["layout", BLOCKED, "1048576x1048576", "--bases"]) == 0


def test_a_layout_of_an_unknown_element_type(capsys):
    assert main(["layout", BLOCKED, "4x8xf99"]) == 1
    assert "'f99' is not an element type; there are bf16" in capsys.readouterr().err
    assert main(["layout", BLOCKED, "4x8xf16"]) == 0
