"""What a report says of kernels whose properties are known."""

from __future__ import annotations

import doctest
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from ptxforge.cli import main
from ptxforge.cli.source import load_kernel
from ptxforge.explain import resources, roofline
from ptxforge.explain import trace as trace_module
from ptxforge.explain.report import explain
from ptxforge.explain.resources import read_sass
from ptxforge.explain.roofline import run_counted
from ptxforge.explain.trace import ptx_lines, trace
from ptxforge.layouts import show
from ptxforge.runtime import tools
from ptxforge.runtime.assembled import Resources, read_log
from ptxforge.support.errors import PtxforgeError
from ptxforge.support.target import _ARCHITECTURES, Occupancy, parse_target

HERE = Path(__file__).parent
KERNELS = HERE / "kernels.py"
PRODUCT = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "N": "i32:16", "K": "i32:16"}


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("kernels", None)


def traced(name, signature, constants, target="sm_80", **options):
    return trace(load_kernel(f"{KERNELS}:{name}"), signature, constants, target, **options)


def row(text):
    """The number of the line of the kernels' file that has ``text``."""
    lines = KERNELS.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def advice(report, kind):
    return [
        (a.severity, a.location.line if a.location else None, a.what) for a in report.advice if a.kind == kind
    ]


# -- the trace -------------------------------------------------------------------------------------------


def test_the_trace_is_the_compilation():
    found = traced("product", PRODUCT, {"BLOCK": 64})
    stages = found.artifact.stages
    assert [stage.name for stage in found.stages] == [name for name, _ in stages]
    for stage, (_, text) in zip(found.stages, stages, strict=True):
        assert [line.text for line in stage.lines] == text.splitlines()
    assert "\n".join(line.text for line in found.ptx) == found.artifact.ptx.rstrip("\n")
    assert all(stage.why for stage in found.stages)


def test_lines_know_their_source():
    found = traced("product", PRODUCT, {"BLOCK": 64})
    for lines, sign in ((found.stages[-1].lines, " dot "), (found.ptx, "mma.sync")):
        places = {place for line in lines if sign in line.text for place in line.places}
        assert places == {(str(KERNELS), row("total = tl.dot"))}
    halved = [line for line in found.stages[-1].lines if "mulf" in line.text]
    assert halved[0].places == ((str(KERNELS), row("x * 0.5")), (str(KERNELS), row("halved(total)")))
    head = next(line for line in found.stages[-1].lines if "= for " in line.text)
    assert head.places == ((str(KERNELS), row("for step in range(0, K, 32)")),)


def test_doctests():
    for module in (trace_module, resources, show):
        result = doctest.testmod(module)
        assert result.attempted and not result.failed


# -- facts and advice ------------------------------------------------------------------------------------


def test_wide_accesses_and_pipelined_loops_need_no_advice():
    report = explain(traced("product", PRODUCT, {"BLOCK": 64}))
    loads = [a for a in report.trace.accesses if a.kind == "load"]
    assert [(a.array, a.bytes, a.sectors == a.best, a.why) for a in loads] == [
        ("a", 16, True, ""),
        ("b", 16, True, ""),
    ]
    (loop,) = report.trace.loops
    assert (loop.ahead, loop.loads, loop.reasons) == (2, 2, [])
    (dot,) = report.trace.products
    assert (dot.m, dot.n, dot.k, dot.unit, dot.flops) == (64, 64, 32, "mma.sync", 2 * 64 * 64 * 32)
    assert not [a for a in report.advice if a.kind in ("access", "sectors", "pipeline", "tensor cores")]


def test_a_strided_load_is_narrow_and_scattered():
    report = explain(
        traced("strided", {"x": "*fp32:16", "out": "*fp32:16", "stride": "i32"}, {"BLOCK": 1024})
    )
    (found,) = advice(report, "access")
    assert found[:2] == ("warning", row("tl.load(x + i * stride)"))
    assert "the load of 'x' moves 4 bytes at once (up to 32 sectors per request, 4 would do)" in found[2]
    assert "not known to be consecutive" in found[2]


@pytest.mark.parametrize(("columns", "what"), [
    ("i32", "16 bytes at once where the kernel finds that it may, else 4: where its rows begin is not known"),
    ("i32:16", None),
])  # fmt: skip
def test_a_row_of_unknown_length_is_guarded(columns, what):
    report = explain(
        traced("softmax", {"x": "*fp32:16", "out": "*fp32:16", "columns": columns}, {"BLOCK": 1024})
    )
    found = advice(report, "access")
    assert [severity for severity, _, _ in found] == ([] if what is None else ["note", "note"])
    assert all(what in text for _, _, text in found)
    assert not advice(report, "sectors")


def test_one_narrow_instruction_is_only_noted():
    report = explain(traced("strided", {"x": "*fp32:16", "out": "*fp32:16", "stride": "i32"}, {"BLOCK": 256}))
    assert [severity for severity, _, _ in advice(report, "access")] == ["note"]


def test_a_small_block_is_replicated():
    report = explain(traced("strided", {"x": "*fp32:16", "out": "*fp32:16", "stride": "i32"}, {"BLOCK": 32}))
    ((severity, line, what),) = advice(report, "replicated")
    assert severity == "note" and line == row("tl.load(x + i * stride)")
    assert "done by 4 threads for each element" in what


@pytest.mark.parametrize(("constants", "options", "why"), [
    ({"FILL": 1.0}, {}, "the load of 'a' does not run ahead: its mask leaves out something else than zero"),
    ({}, {"num_stages": 1}, "its loads do not run ahead: num_stages is 1"),
])  # fmt: skip
def test_why_a_loop_is_not_pipelined(constants, options, why):
    report = explain(traced("product", PRODUCT, {"BLOCK": 64, **constants}, **options))
    assert [(severity, what) for severity, _, what in advice(report, "pipeline")] == [("warning", why)]


def test_a_loop_that_stores_is_not_pipelined():
    report = explain(traced("scatter", {"x": "*fp32:16", "out": "*fp32:16", "n": "i32:16"}, {"BLOCK": 128}))
    ((severity, line, what),) = advice(report, "pipeline")
    assert (severity, line) == ("note", row("for step in range(0, n, BLOCK)"))
    assert what == f"its loads do not run ahead: line {line + 1} writes memory that they might read"


def test_a_product_that_misses_the_tensor_cores():
    f32 = PRODUCT | {"a": "*fp32:16", "b": "*fp32:16"}
    report = explain(traced("product", f32, {"BLOCK": 32, "PRECISION": "ieee"}))
    ((severity, line, what),) = advice(report, "tensor cores")
    assert severity == "warning" and line == row("total = tl.dot") and "input_precision 'ieee'" in what
    assert report.trace.products[0].unit == "fma"


# -- resources -------------------------------------------------------------------------------------------

PTXAS = """ptxas info    : Compiling entry function 'f' for 'sm_80'
ptxas info    : Function properties for f
    48 bytes stack frame, 96 bytes spill stores, 104 bytes spill loads
ptxas info    : Used 255 registers, 400 bytes cmem[0]
"""


def test_spills_are_advice():
    assert read_log(PTXAS) == Resources(255, 200, 48, "ptxas")
    found = traced("softmax", {"x": "*fp32", "out": "*fp32", "columns": "i32"}, {"BLOCK": 64})
    report = explain(found)
    texts = [a.what for a in trace_advice(found, read_log(PTXAS))]
    assert "registers do not suffice: 200 bytes of code move spilled ones" in texts
    assert not advice(report, "spills")


def trace_advice(found, resources):
    from ptxforge.explain.report import advice_for

    return advice_for(found, resources, found.target.occupancy(
        found.artifact.threads, resources.registers, found.artifact.shared_bytes))


def test_registers_without_ptxas_are_an_estimate(monkeypatch):
    monkeypatch.setattr(tools, "find", lambda name: None)
    report = explain(traced("softmax", {"x": "*fp32", "out": "*fp32", "columns": "i32"}, {"BLOCK": 1024}))
    assert report.resources.by == "estimate" and 8 <= report.resources.registers <= 64
    assert "spills are not known" in str(report)


@pytest.mark.parametrize(("registers", "warps", "shared", "expected"), [
    (32, 4, 0, (16, 64, 64, {"threads": 16, "blocks": 32, "registers": 16, "shared memory": 164})),
    (255, 8, 0, (1, 8, 64, {"threads": 8, "blocks": 32, "registers": 1, "shared memory": 164})),
    (32, 4, 80 << 10, (2, 8, 64, {"threads": 16, "blocks": 32, "registers": 16, "shared memory": 2})),
])  # fmt: skip
def test_occupancy(registers, warps, shared, expected):
    assert parse_target("sm_80").occupancy(32 * warps, registers, shared) == Occupancy(*expected)


def test_every_target_has_limits_that_agree():
    for target in (parse_target(f"sm_{sm}") for sm in _ARCHITECTURES):
        assert target.max_threads_per_block <= target.threads_per_multiprocessor
        assert target.threads_per_multiprocessor % (32 * target.blocks_per_multiprocessor) == 0
        assert target.max_shared_bytes + 1024 == target.shared_bytes_per_multiprocessor


def test_peaks_are_those_of_the_data_sheets():
    """TFLOP/s of f16 on tensor cores and of f32 without: dense, at the boost clock."""
    published = {80: (312, 19.5), 86: (125, 31.2), 89: (362, 91.6), 90: (989, 67)}
    for sm, (tensor, fma) in published.items():
        card = roofline.card_of(parse_target(f"sm_{sm}"))
        assert card.tensor_rate("f16") == pytest.approx(tensor * 1e12, rel=0.02)
        assert card.fma * card.multiprocessors * card.clock == pytest.approx(fma * 1e12, rel=0.09)
    assert roofline.card_of(parse_target("sm_120")) is None


# -- counters --------------------------------------------------------------------------------------------


def counted_product():
    found = traced("product", PRODUCT, {"BLOCK": 64})
    a, b, c = np.ones((64, 128), np.float16), np.ones((128, 64), np.float16), np.zeros((64, 64), np.float32)
    return found, run_counted(found.artifact, [a, b, c, np.int32(64), np.int32(128)], (1, 1, 1)), c


def test_counting_runs_the_kernel():
    found, counts, c = counted_product()
    assert (c == 64).all() and counts.findings == ()
    assert counts.tensor == {"f16": 2 * 64 * 64 * 128}
    assert counts.arrays == 2 * (64 * 128) * 2 + 64 * 64 * 4
    assert counts.flops == 64 * 64  # halved


def test_tiles_by_tma_for_wgmma():
    """The kernel has parameters of its own then, which counting makes as a launch does."""
    found = traced("product", PRODUCT, {"BLOCK": 64}, "sm_90a")
    (loop,), (dot,) = found.loops, found.products
    assert (loop.ahead, loop.loads, loop.by, loop.reasons) == (2, 2, "TMA", [])
    assert (dot.unit, dot.m, dot.n, dot.k, dot.accumulator) == ("wgmma", 64, 64, 32, "f32")
    a, b, c = np.ones((64, 128), np.float16), np.ones((128, 64), np.float16), np.zeros((64, 64), np.float32)
    counts = run_counted(found.artifact, [a, b, c, np.int32(64), np.int32(128)], (1, 1, 1))
    barriers = [area for area in explain(found).areas if area.what == "mbarriers"]
    assert [area.size % 8 for area in barriers] == [0] and barriers[0].size > 8
    assert (c == 64).all() and counts.findings == () and counts.tensor == {"f16": 2 * 64 * 64 * 128}
    assert "2 of 2 loads run ahead, by TMA in 3 stages" in str(explain(found, counts))


def test_the_roofline_is_the_longest_of_its_bounds():
    found, counts, _ = counted_product()
    estimate = explain(found, counts).roofline
    times = {bound.part: bound.seconds for bound in estimate.bounds}
    assert estimate.seconds == max(times.values()) == times[estimate.limiter]
    card = estimate.card
    assert times["memory"] == pytest.approx(counts.arrays / card.bandwidth)
    assert times["tensor cores"] == pytest.approx(counts.tensor["f16"] / 2048 / card.clock)
    assert 0 < estimate.tensor_share < 1


def test_arguments_must_fit():
    found = traced("softmax", {"x": "*fp32", "out": "*fp32", "columns": "i32"}, {"BLOCK": 64})
    x = np.zeros(64, np.float32)
    for arguments, message in [
        ([x, x], "2 --arg are given, the kernel has 3: x: \\*fp32, out: \\*fp32, columns: i32"),
        ([x, np.int32(3), np.int32(3)], "'out' is \\*fp32, its --arg is a number"),
        ([x, x, np.int64(3)], "'columns' is i32 \\(4 bytes\\), its --arg has 8 bytes"),
    ]:
        with pytest.raises(PtxforgeError, match=message):
            run_counted(found.artifact, arguments, (1, 1, 1))


# -- machine code ----------------------------------------------------------------------------------------

SASS = """.text.f:
        //## File "/k.py", line 4
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        //## File "/k.py", line 7
        /*0010*/              @!P0 BRA `(.L_x_0) ;
"""


def test_machine_code_knows_its_source():
    assert [(line.text.strip(), line.places) for line in read_sass(SASS)] == [
        ("LDC R1, c[0x0][0x28] ;", (("/k.py", 4),)),
        (".L_x_0:", ()),
        ("@!P0 BRA `(.L_x_0) ;", (("/k.py", 7),)),
    ]  # fmt: skip


def test_lines_of_ptx_in_front_of_the_first_place_have_none():
    lines = ptx_lines('.file 1 "k.py"\n\tmov.u32 %r0, 1;\n\t.loc 1 9 3\n\tadd.s32 %r1, %r0, 1;\n}')
    assert [line.places for line in lines] == [(), (), (("k.py", 9),), (("k.py", 9),), ()]


# -- the command -----------------------------------------------------------------------------------------


def command(*more, kernel="softmax", constants="BLOCK=1024", target="sm_80"):
    return main(["explain", f"{KERNELS}:{kernel}", "--constants", constants, "--target", target, *more])


def test_the_text_is_golden(capsys, monkeypatch, request):
    """Without ptxas, whose numbers change with its version."""
    monkeypatch.setattr(tools, "find", lambda name: None)
    run = ["--grid", "4", "--arg", "f32[4x1000]:randn", "--arg", "f32[4x1000]", "--arg", "i32:1000"]
    assert command(*run) == 0
    shown = masked(capsys.readouterr().out)
    golden = HERE / "golden" / "softmax.txt"
    if request.config.getoption("--update-golden"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(shown)
    assert shown == golden.read_text()


def masked(text):
    """The text without what any change of the code generator changes: counts, and the widths of columns."""
    lines, section = [], ""
    for line in text.splitlines():
        section = line.split()[0] if line[:1].isalpha() else section
        if section in ("counted", "roofline:", "shared") or "registers a thread" in line:
            places, numbers = re.findall(r"\S+\.py:\d+", line), re.sub(r"[\d,.]*\d", "#", line)
            line = re.sub(" +", " ", re.sub(r"\S+\.py:#", places[0] if places else "", numbers))
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def test_json(capsys):
    assert command("--signature", "*fp32:16,*fp32:16,i32", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kernel"], found["target"], found["counters"]) == ("softmax", "sm_80", None)
    assert {(a["severity"], a["kind"]) for a in found["advice"]} == {("note", "access")}


def test_arguments_mean_what_they_mean_at_a_launch(capsys):
    """A stride of 1 is compiled in, and the access is wide; a stride of 2 is not."""
    seen = []
    for stride in (1, 2):
        run = ["--grid", "1", "--arg", "f32[256]:randn", "--arg", "f32[128]", "--arg", f"i32:{stride}"]
        assert command(*run, "--json", kernel="strided", constants="BLOCK=128") == 0
        found = json.loads(capsys.readouterr().out)
        seen.append((found["constants"].get("stride"), found["signature"]["stride"], len(found["advice"])))
        assert found["findings"] == [] and found["counters"]
    assert seen[0][:2] == ("1", "constexpr") and seen[1][:2] == (None, "i32") and seen[0][2] < seen[1][2]


def test_findings_make_the_exit_status(capsys):
    run = ["--grid", "2", "--arg", "i32[64]", "--arg", "i32:64"]
    assert command(*run, kernel="beyond", constants="BLOCK=64") == 1
    shown = capsys.readouterr().out
    assert re.search(rf"kernels.py:{row('tl.store(x + i, i)')}: out-of-bounds", shown)


@pytest.mark.parametrize(("more", "message"), [
    (["--grid", "2"], "--grid and --arg belong together"),
    (["--arg", "i32:3"], "--grid and --arg belong together"),
    (["--arg", "i77:3", "--grid", "1"], "cannot read the argument 'i77:3'"),
    (["--arg", "f32[4]", "--arg", "f32[4]", "--arg", "i32:3", "--grid", "x"], "cannot read the size 'x'"),
    (["--arg", "i32:3", "--grid", "1"], "1 --arg are given for 3 parameters: x, out, columns"),
    ([], "the signature has 0 types for 3 parameters"),
])  # fmt: skip
def test_what_is_wrong_is_said(more, message, capsys):
    assert command(*more) == 1
    assert message in capsys.readouterr().err
