"""The second table: passes over instructions, and rules that are followed while operations are lowered."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxforge.__main__ import main
from ptxforge.codegen_ptx import emit
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.drop import drop_copies, drop_dead, drop_locations
from ptxforge.codegen_ptx.ptx.instruction import COPY, EFFECT, LOCATION
from ptxforge.codegen_ptx.ptx.pipeline import NAMES, PASSES, RULES
from ptxforge.emulator import EmulatorDevice
from ptxforge.ir.parser import parse_function
from ptxforge.passes import pipeline
from ptxforge.support.target import parse_target
from tests.codegen_ptx.harness import pack_parameters
from tests.passes.kernels import MATMUL

TARGET = parse_target("sm_80")
ROWS = """
func @rows(%x: ptr<f16> {divisibility = 16}, %out: ptr<f16> {divisibility = 16}, %n: i32)
    attributes {num_warps = 4} {
  %i = make_range {start = 0, end = 1024} : tensor<1024xi32>
  %ns = splat %n : (i32) -> tensor<1024xi32>
  %m = cmpi %i, %ns {predicate = "slt"} : tensor<1024xi1>
  %xs = splat %x : (ptr<f16>) -> tensor<1024xptr<f16>>
  %p = addptr %xs, %i : tensor<1024xptr<f16>>
  %v = load %p, %m : (tensor<1024xptr<f16>>, tensor<1024xi1>) -> tensor<1024xf16>
  %s = addf %v, %v : tensor<1024xf16>
  %outs = splat %out : (ptr<f16>) -> tensor<1024xptr<f16>>
  %q = addptr %outs, %i : tensor<1024xptr<f16>>
  store %q, %s, %m : (tensor<1024xptr<f16>>, tensor<1024xf16>, tensor<1024xi1>)
  return
}
"""
KERNELS = {"rows": ROWS, "matmul": MATMUL}


def final(text: str):
    """The function after all passes over the IR."""
    function = parse_function(text)
    pipeline.run(function, TARGET)
    return function


def results(function, ptx: str) -> list[np.ndarray]:
    """What the kernel leaves in its arrays."""
    rng = np.random.default_rng(0)
    arguments = []
    for argument in function.arguments:
        pointee = getattr(argument.type, "pointee", None)
        arguments.append(64 if pointee is None else rng.integers(-4, 5, 1 << 14).astype(pointee.numpy))
    device = EmulatorDevice(check="all", target="sm_80")
    kernel = device.load_module(ptx).function(function.name)
    buffers = pack_parameters(device, function, arguments)
    kernel.launch((1, 1, 1), (128, 1, 1), function.attributes["shared_bytes"], 0, buffers)
    return [a for a in arguments if isinstance(a, np.ndarray)]


@pytest.mark.parametrize("name", KERNELS)
def test_no_rule_and_no_pass_is_needed_to_be_right(name, monkeypatch):
    function = final(KERNELS[name])
    expected, texts = results(function, emit(function, TARGET)), {emit(function, TARGET)}
    for rule in [*RULES, *NAMES][1:]:
        texts.add(ptx := emit(function, TARGET, without={rule}))
        for found, wanted in zip(results(function, ptx), expected):
            np.testing.assert_array_equal(found, wanted, err_msg=rule)
    monkeypatch.setenv("PTXFORGE_STOP_AFTER", NAMES[0])
    for found, wanted in zip(results(function, emit(function, TARGET)), expected):
        np.testing.assert_array_equal(found, wanted)
    assert len(texts) > 1, "the rules change something"


def test_every_rule_says_why():
    named = set()
    for text in KERNELS.values():
        function = final(text)
        plain, ptx = emit(function, TARGET), emit(function, TARGET, why=True)
        assert re.sub("  // .*", "", ptx) == plain
        named |= set(re.findall(r"  // (\w+): ", ptx))
    assert named <= {*RULES, *NAMES}
    assert named >= {"at_entry", "sink_rare", "coalesce_copies"}


def test_the_tables_give_reasons():
    assert all(len(why) > 20 for why in [*RULES.values(), *(row.why for row in PASSES)])
    assert len(NAMES) == len(set(NAMES))


def test_rows_are_timed_and_dumped(monkeypatch, capsys):
    function, timings = final(ROWS), {}
    monkeypatch.setenv("PTXFORGE_DUMP", "cse, drop_dead")
    emit(function, TARGET, timings=timings)
    assert tuple(timings) == NAMES and all(seconds >= 0 for seconds in timings.values())
    assert capsys.readouterr().err.startswith("// after drop_dead\n\t")


def test_settings_know_both_tables(monkeypatch, tmp_path, capsys):
    path = tmp_path / "k.py"
    path.write_text("import ptxforge.language as tl\n\ndef k(x):\n    tl.store(x, tl.load(x) + 1.0)\n")
    arguments = ["compile", f"{path}:k", "--signature", "*fp32:16", "--target", "sm_80"]
    monkeypatch.setenv("PTXFORGE_DUMP", "cse,drop_copies")
    assert main([*arguments, "--why"]) == 0
    shown = capsys.readouterr()
    assert "// after cse" in shown.err and "// after drop_copies" in shown.err
    assert "  // at_entry: " in shown.out or ".visible .entry k(" in shown.out
    monkeypatch.setenv("PTXFORGE_DUMP", "drop_copy")
    assert main(arguments) != 0 and "drop_copy" in capsys.readouterr().err


ADD = "add.s32 %s, %s, %s;"


def test_dead_instructions_go_with_what_only_they_need():
    one, two, kept = (ADD, ("%r_1", 1, 2), 1), (ADD, ("%r_2", "%r_1", 2), 1), (ADD, ("%r_3", 1, 2), 1)
    use = ("st %s;", ("%r_3",), EFFECT)
    assert drop_dead([one, two, kept, use], Builder(TARGET, 128)) == [kept, use]


def test_copies_onto_themselves_go_after_what_computes_them_was_kept():
    b = Builder(TARGET, 128)
    b.alias("%r_1", "%r_2")
    made, copy = (ADD, ("%r_1", 1, 2), 1), ("mov.b32 %s, %s;", ("%r_2", "%r_1"), COPY)
    other = ("mov.b32 %s, %s;", ("%r_4", "%r_1"), COPY)
    assert drop_copies(drop_dead([made, copy, other], b), b) == [made, other]


def test_locations_of_nothing_go():
    first, second = (".loc 1 1 1", (), LOCATION), (".loc 1 2 1", (), LOCATION)
    use = ("st %s;", (1,), EFFECT)
    assert drop_locations([first, second, use, first], Builder(TARGET, 128)) == [second, use]
