"""What the compiler says of decisions that cost speed: kind, reason, source line."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from pathlib import Path

import pytest

import ptxforge
import ptxforge.language as tl
from benchmarks.configurations import configurations
from benchmarks.dialects import load
from ptxforge import cli
from ptxforge.compiler import compile_function
from ptxforge.ir.core import Function
from ptxforge.ir.ops.dot import Dot
from ptxforge.ir.parser import parse_function
from ptxforge.ir.pressure import holders_at_the_peak
from ptxforge.passes.warpgroup_dots import why_not
from ptxforge.runtime import assembled, tools
from ptxforge.support.location import Location
from ptxforge.support.remarks import KINDS, Remark, Remarks

MATRICES = {"a": "*fp16:16", "b": "*fp16:16", "out": "*fp32:16", "k": "i32:16"}


def narrow(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + i)
    tl.store(out + i, values)


def product(a, b, out, k, PRECISION: tl.constexpr, PRINT: tl.constexpr):
    i = tl.arange(0, 32)
    total = tl.zeros((32, 32), tl.float32)
    for start in range(0, k, 32):
        x = tl.load(a + i[:, None] * k + start + i[None, :])
        y = tl.load(b + (start + i[:, None]) * 32 + i[None, :])
        if PRINT:
            tl.device_print("start", start)
        total = tl.dot(x, y, total, input_precision=PRECISION)
    tl.store(out + i[:, None] * 32 + i[None, :], total)


def line_of(kernel, text: str) -> int:
    lines, first = inspect.getsourcelines(kernel)
    return first + next(i for i, line in enumerate(lines) if text in line)


def remarks(kernel, signature, constants, **options):
    """What was left alone."""
    found = compile_function(kernel, signature, constants, "sm_80", **options).remarks
    return [remark for remark in found if remark.kind != "product"]


def test_a_narrow_access_names_its_line_and_what_helps():
    found = remarks(narrow, {"x": "*fp32", "out": "*fp32:16", "n": "i32"}, {"BLOCK": 1024})
    (only,) = [remark for remark in found if remark.location.line == line_of(narrow, "tl.load")]
    assert (only.kind, only.pass_name) == ("narrow-access", "vectorize_memory")
    assert "multiples of 4 bytes" in only.message and "tl.multiple_of" in only.message
    assert only.explain().splitlines()[1].endswith("values = tl.load(x + i)")


def test_wide_accesses_are_passed_over_in_silence():
    assert not remarks(narrow, {"x": "*fp32:16", "out": "*fp32:16", "n": "i32"}, {"BLOCK": 1024})


def test_a_loop_that_prints_is_not_pipelined():
    found = remarks(product, MATRICES, {"PRECISION": "tf32", "PRINT": True})
    (only,) = [remark for remark in found if remark.kind == "not-pipelined"]
    assert "holds 'print'" in only.message and only.pass_name == "schedule_loops"
    assert only.location.line == line_of(product, "for start")
    assert not remarks(product, MATRICES, {"PRECISION": "tf32", "PRINT": False})
    unasked = remarks(product, MATRICES, {"PRECISION": "tf32", "PRINT": True}, num_stages=1)
    assert not unasked, "who asks for one stage wants no pipeline"


def stopping(a, b, out, k, DEBUG: tl.constexpr):
    i = tl.arange(0, 32)
    total = tl.zeros((32, 32), tl.float32)
    for start in range(0, k, 32):
        if DEBUG and start > 64:
            break
        x = tl.load(a + i[:, None] * k + start + i[None, :])
        total = tl.dot(x, tl.load(b + (start + i[:, None]) * 32 + i[None, :]), total)
    tl.store(out + i[:, None] * 32 + i[None, :], total)


def test_a_loop_that_a_break_may_leave_is_not_pipelined():
    """Nor is it one if no break is reached."""
    (only,) = remarks(stopping, MATRICES, {"DEBUG": True})
    assert only.kind == "not-pipelined" and "how many steps it takes is not known" in only.message
    assert only.location.line == line_of(stopping, "for start")
    assert not remarks(stopping, MATRICES, {"DEBUG": False})
    assert not remarks(stopping, MATRICES, {"DEBUG": True}, num_stages=1)


def specialized(a, b, out, k):
    i = tl.arange(0, 32)
    total = tl.zeros((32, 32), tl.float32)
    for start in tl.range(0, k, 32, warp_specialize=True):
        x = tl.load(a + i[:, None] * k + start + i[None, :])
        total = tl.dot(x, tl.load(b + (start + i[:, None]) * 32 + i[None, :]), total)
    tl.store(out + i[:, None] * 32 + i[None, :], total)


def test_a_loop_that_asks_for_warps_for_its_loads():
    (only,) = remarks(specialized, MATRICES, {})
    assert only.kind == "not-specialized" and "TMA copies none of its tiles" in only.message
    assert only.location.line == line_of(specialized, "for start")


def test_a_product_without_tensor_cores():
    signature = MATRICES | {"a": "*fp32:16", "b": "*fp32:16"}
    found = remarks(product, signature, {"PRECISION": "ieee", "PRINT": False})
    (only,) = [remark for remark in found if remark.kind == "no-tensor-core"]
    assert "'ieee'" in only.message
    assert only.location.line == line_of(product, "tl.dot")


@pytest.mark.parametrize("name", ["f16-NN-128-256-64-w8-s3", "attention-128-128-64-w8-s2", "add-1024-w4"])
def test_nothing_to_say_of_the_benchmarks(name):
    (one,) = [c for c in configurations() if c.name == name]
    kernel = getattr(load("ptxforge"), one.kernel)
    found = compile_function(kernel, one.signature, one.constants, "sm_90a", **one.options).remarks
    assert not [remark for remark in found if remark.kind not in ("product", "persistent")]


def test_loads_of_a_pipelined_product_that_are_too_narrow_to_be_copied():
    (one,) = [c for c in configurations() if c.name == "f16-NN-odd-128-128-64-w8-s3"]
    made = compile_function(load("ptxforge").matmul, one.signature, one.constants, "sm_80", **one.options)
    found = [remark for remark in made.remarks if remark.kind == "not-pipelined"]
    assert len(found) == 2
    assert all("copies 2 bytes at once, 4 are needed" in remark.message for remark in found)


def prefetched(a, b, c, out, k, DEEP: tl.constexpr, TWICE: tl.constexpr, LATE: tl.constexpr):
    i, j = tl.arange(0, 64), tl.arange(0, DEEP)
    total = tl.zeros((64, 64), tl.float32)
    other = tl.zeros((64, 64), tl.float32)
    kept = tl.load(c + j[:, None] * 64 + i[None, :])
    for start in range(0, k, DEEP):
        x = tl.load(a + i[:, None] * k + start + j[None, :])
        y = tl.load(b + (start + j[:, None]) * 64 + i[None, :])
        total = tl.dot(x, kept if LATE else y, total)
        if TWICE:
            other = tl.dot(y, x, other)
    tl.store(out + i[:, None] * 64 + i[None, :], total + other)


@pytest.mark.parametrize(
    ("constants", "reason", "line"),
    [
        ({"TWICE": True, "DEEP": 64}, "the loop has 2 products", "for start"),
        ({"DEEP": 16}, "a slice is 16 deep, and the block only 16", "total = tl.dot"),
        ({"LATE": True}, "operand b does not come from copies that run ahead", "total = tl.dot"),
    ],
)
def test_a_pipelined_product_whose_operands_are_read_where_it_is_done(constants, reason, line):
    signature = MATRICES | {"c": "*fp16:16"}
    usual = {"DEEP": 32, "TWICE": False, "LATE": False}
    assert not remarks(prefetched, signature, usual), "this one has slices"
    (only,) = remarks(prefetched, signature, usual | constants)
    assert (only.kind, only.pass_name) == ("not-prefetched", "schedule_loops") and reason in only.message
    assert only.location.line == line_of(prefetched, line)


def flying(a, b, c, out, k, N: tl.constexpr, DEEP: tl.constexpr, HOW: tl.constexpr):
    i, j, n = tl.arange(0, 128), tl.arange(0, DEEP), tl.arange(0, N)
    total = tl.zeros((128, N), tl.float32)
    other = tl.zeros((128, N), tl.float32)
    kept = tl.load(c + i[:, None] * DEEP + j[None, :]) * 2
    for start in tl.range(0, k, DEEP, disallow_acc_multi_buffer=HOW == "forbidden"):
        x = tl.load(a + i[:, None] * k + start + j[None, :])
        y = tl.load(b + (start + j[:, None]) * N + n[None, :])
        if HOW == "gathered":
            x += tl.load(c + i[:, None] * start + (start * j)[None, :])
        if HOW == "two":
            other = tl.dot(x * 2, y, other)
        total = tl.dot(kept if HOW == "kept" else x, y, total)
        if HOW == "halved":
            total *= 0.5
    tl.store(out + i[:, None] * N + n[None, :], total + other)


@pytest.mark.parametrize(("constants", "reason", "line"), [
    ({"HOW": "halved"}, "does more with the sum than adding to it", "total = tl.dot"),
    ({"HOW": "kept"}, "its left operand, the same in all iterations, is computed", "total = tl.dot"),
    ({"HOW": "two"}, "one has a left operand in registers, and there are others", "for start"),
    ({"HOW": "gathered", "N": 256}, "of a thread's 255 with what is computed meanwhile", "total = tl.dot"),
    ({"HOW": "gathered", "DEEP": 16}, "16 elements along k make no 2 parts", "total = tl.dot"),
])  # fmt: skip
def test_a_sum_by_wgmma_that_ends_in_its_iteration(constants, reason, line):
    """Nothing is said where the author wants it so, or where another block multiplies meanwhile."""
    signature, usual = MATRICES | {"c": "*fp16:16"}, {"DEEP": 64, "N": 128, "HOW": ""}

    def ended(constants):
        made = compile_function(flying, signature, usual | constants, "sm_90a")
        return [remark for remark in made.remarks if remark.kind == "not-in-flight"]

    for fine in ("", "forbidden", "gathered"):
        assert not ended({"HOW": fine})
    (only,) = ended(constants)
    assert only.pass_name == "schedule_loops" and reason in only.message
    assert only.location.line == line_of(flying, line)


def calls(folder: Path):
    for path in folder.rglob("*.py"):
        yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def test_each_kind_of_remark_is_made_somewhere():
    """By ``….remarks.add(kind, …)`` in a pass, or ``Remark(pass, kind, …)`` of what is no pass."""
    made = set()
    for call in calls(Path(ptxforge.__file__).parent):
        where = ast.unparse(call.func)
        at = 0 if where.endswith("remarks.add") else 1 if where == "Remark" else None
        if at is not None and len(call.args) > at and isinstance(call.args[at], ast.Constant):
            made.add(call.args[at].value)
    assert made == set(KINDS)


def test_a_remark_is_made_once_and_its_kind_is_known():
    made = Remarks()
    made.pass_name = "licm"
    for _ in range(2):
        made.add("spills", "so", Location("k.py", 3, 4))
    assert list(made) == [Remark("licm", "spills", "so", Location("k.py", 3, 4))]
    assert str(next(iter(made))) == "k.py:3:5: spills: so [licm]"
    with pytest.raises(ValueError, match="'slow'"):
        made.add("slow", "so")


def test_a_copy_of_a_function_begins_without_remarks():
    function = Function("f")
    function.remarks.add("spills", "so")
    assert len(function.remarks) == 1 and not len(function.clone().remarks)


def test_who_holds_registers_where_most_are_taken():
    layout = "#blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
    tile, wide = f"tensor<512xf32, {layout}>", f"tensor<512xf64, {layout}>"
    function = parse_function(f"""
func @f(%n: i32, %x: f32) attributes {{num_warps = 4}} {{
  %zero = constant {{value = 0}} : i32
  %one = constant {{value = 1}} : i32
  %a = splat %x : (f32) -> {tile}
  %kept = sin %a : {tile}
  %gone = extf %kept : ({tile}) -> {wide}
  %small = truncf %gone : ({wide}) -> {tile}
  %sum = for %i = %zero to %n step %one iter_args(%acc = %small) : {tile} {{
    %next = addf %acc, %kept : {tile}
    yield %next
  }}
  %out = addf %sum, %kept : {tile}
  return
}}
""")
    held = [(holder.value.hint, holder.registers) for holder in holders_at_the_peak(function)]
    assert held[0] == ("gone", 8) and ("kept", 4) in held and sum(n for _, n in held) == 12


def test_the_command_line_says_what_spills(tmp_path, capsys):
    if tools.find("ptxas") is None:
        pytest.skip("ptxas is not installed")
    source = tmp_path / "kernels.py"
    text = f"import ptxforge\nimport ptxforge.language as tl\n\n\n@ptxforge.jit\n{inspect.getsource(product)}"
    source.write_text(text.replace("32", "64").replace("float64", "float32"))
    arguments = ["compile", f"{source}:product", "--signature", "*fp16:16,*fp16:16,*fp32:16,i32:16"]
    arguments += ["--constants", "PRECISION=tf32,PRINT=False", "--num-warps", "1", "--target", "sm_80"]
    assert cli.main([*arguments, "--remarks", "--maxnreg", "64"]) == 0
    said = capsys.readouterr().out
    assert "spills" in said and "(f32 [64, 64], 128)" in said and "a0_1 (f16 [64, 16], 16)" in said, said
    assert cli.main([*arguments, "--remarks"]) == 0
    assert "spills" not in capsys.readouterr().out


def test_an_artifact_tells_what_spills_when_it_is_asked(monkeypatch):
    """The assembler runs once, and not before; artifacts go from process to process without it."""
    if tools.find("ptxas") is None:
        pytest.skip("ptxas is not installed")
    asked, real = [], assembled.assembled
    monkeypatch.setattr(assembled, "assembled", lambda artifact: asked.append(artifact) or real(artifact))
    kernel = ptxforge.jit(spilling)
    made = kernel.compile({"x": "*fp32:16", "out": "*fp32:16"}, num_warps=1, maxnreg=32, target="sm_80")
    again = pickle.loads(pickle.dumps(made))
    assert not asked and not made.decisions
    (only,) = made.remarks
    assert only.kind == "spills" and only.pass_name == "ptxas" and "(f32 [2048], 64)" in only.message
    assert made.remarks == (only,) and asked == [made]
    assert again.remarks == (only,)


def spilling(x, out):
    i = tl.arange(0, 2048)
    values = tl.load(x + i)
    tl.store(out + i, values / tl.sum(values))


WIDE = """import ptxforge
import ptxforge.language as tl


@ptxforge.jit
def wide(a, b, c, K, M: tl.constexpr, N: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, 64)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, 64):
        x = tl.load(a + i[:, None] * K + start + k[None, :])
        acc = tl.dot(x, tl.load(b + (start + k)[:, None] * N + j[None, :]), acc)
    tl.store(c + i[:, None] * N + j[None, :], acc.to(tl.float16))
"""


def test_the_command_line_says_that_products_are_serialized(tmp_path, capsys):
    """256 sums a thread leave wgmma no registers."""
    if tools.find("ptxas") is None:
        pytest.skip("ptxas is not installed")
    source = tmp_path / "kernels.py"
    source.write_text(WIDE)
    arguments = ["compile", f"{source}:wide", "--signature", "*fp16:16,*fp16:16,*fp16:16,i32:16", "--remarks",
                 "--target", "sm_90a", "--constants", "M=128,N=256"]  # fmt: skip
    assert cli.main([*arguments, "--num-warps", "4"]) == 0
    said = capsys.readouterr().out
    assert f"{source}:11:" in said and "serialized: each product waits" in said and "register" in said, said
    assert cli.main([*arguments, "--num-warps", "8"]) == 0
    assert "serialized" not in capsys.readouterr().out


def test_the_command_line_prints_them(tmp_path, capsys):
    source = tmp_path / "kernels.py"
    text = f"import ptxforge\nimport ptxforge.language as tl\n\n\n@ptxforge.jit\n{inspect.getsource(narrow)}"
    source.write_text(text)
    types = ["--signature", "*fp32,*fp32:16,i32", "--constants", "BLOCK=1024"]
    assert cli.main(["compile", f"{source}:narrow", *types, "--remarks"]) == 0
    said = capsys.readouterr().out
    assert f"{source}:8:" in said and "narrow-access" in said and "^" in said


# -- why not Hopper's units --------------------------------------------------------------------------------


def tile(a, b, c, K, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KIND: tl.constexpr,
         WS: tl.constexpr):  # fmt: skip
    """A tile of a @ b; variants are told by KIND."""
    i = tl.program_id(1 if KIND == "second axis" else 0) * BM + tl.arange(0, BM)
    j, k = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    if KIND == "count":
        i += tl.num_programs(0) * 16
    if KIND == "atomic":
        tl.atomic_add(c, 1.0)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=WS):
        rows = i * i if KIND == "squares" else i
        x = tl.load(a + rows[:, None] * K + (start + k)[None, :])
        if KIND == "turned":
            y = tl.load(b + (start + k)[None, :] + j[:, None] * K).T
        else:
            y = tl.load(b + (start + k)[:, None] * N + j[None, :])
        if KIND in ("left", "both"):
            x += 1
        if KIND in ("right", "both"):
            y += 1
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * N + j[None, :], acc.to(c.dtype.element_ty))


def batch(a, b, c, KIND: tl.constexpr):
    i, j = tl.arange(0, 64), tl.arange(0, 32)
    one = tl.arange(0, 2)[:, None, None]
    x = tl.load(a + one * 2048 + i[None, :, None] * 32 + j[None, None, :])
    y = tl.load(b + one * 2048 + j[None, :, None] * 64 + i[None, None, :])
    tl.store(c + one * 4096 + i[None, :, None] * 64 + i[None, None, :], tl.dot(x, y))


def chain(a, b, c, KIND: tl.constexpr):
    """(a @ b + 1) @ (b + 1), or with ``first`` (a @ (b + 1) + 1) @ b."""
    i, j = tl.arange(0, 64), tl.arange(0, 64)
    x = tl.load(a + i[:, None] * 64 + j[None, :])
    y = tl.load(b + i[:, None] * 64 + j[None, :])
    first = (tl.dot(x, y + 1 if KIND == "first" else y) + 1).to(tl.float16)
    tl.store(c + i[:, None] * 64 + j[None, :], tl.dot(first, y if KIND == "first" else y + 1))


def precise(a, b, c, KIND: tl.constexpr):
    i = tl.arange(0, 64)
    at = i[:, None] * 64 + i[None, :]
    if KIND == "f64":
        tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), out_dtype=tl.float64))
    else:
        tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision=KIND))


SQUARE = {"BM": 64, "BN": 64, "BK": 64, "KIND": "", "WS": False}
LARGE = SQUARE | {"BM": 128, "BN": 256}
HALVES, WORDS, BYTES = "*fp16:16", "*fp32:16", "*fp8e5:16"
HOPPER = [  # kernel, constants, options, elements
    *((tile, SQUARE | {"WS": ws}, {"num_warps": warps}, HALVES) for warps in (1, 2) for ws in (False, True)),
    *((tile, SQUARE | {"BM": 32, "BN": 32, "WS": ws}, {}, HALVES) for ws in (False, True)),
    (tile, SQUARE | {"BN": 8}, {}, HALVES),
    (tile, SQUARE | {"BN": 16}, {"num_warps": 8}, HALVES),
    (tile, SQUARE | {"KIND": "turned"}, {}, BYTES),
    (tile, SQUARE, {}, BYTES),
    (tile, SQUARE | {"KIND": "both"}, {}, HALVES),
    (tile, SQUARE | {"KIND": "right", "BN": 32}, {}, HALVES),
    (tile, SQUARE | {"KIND": "right"}, {}, HALVES),
    (tile, SQUARE | {"KIND": "left"}, {}, HALVES),
    (chain, {"KIND": ""}, {}, HALVES),
    (chain, {"KIND": "first"}, {}, HALVES),
    (chain, {"KIND": ""}, {"num_warps": 8}, HALVES),
    (batch, {"KIND": ""}, {}, HALVES),
    *((precise, {"KIND": kind}, {}, WORDS) for kind in ("tf32x3", "bf16x3", "ieee", "tf32")),
    (precise, {"KIND": "f64"}, {}, "*fp64:16"),
    (tile, LARGE, {"num_warps": 8, "num_stages": 3}, HALVES),
    (tile, LARGE, {"num_warps": 8, "num_stages": 4}, HALVES),
    (tile, LARGE, {"num_warps": 8, "num_stages": 1}, HALVES),
    (tile, LARGE | {"WS": True}, {"num_warps": 8, "num_stages": 1}, HALVES),
    (tile, LARGE, {"num_warps": 8, "num_stages": 3, "persistent": False}, HALVES),
    (tile, LARGE, {"num_warps": 8, "num_stages": 3, "num_ctas": 2}, HALVES),
    *((tile, LARGE | {"KIND": kind}, {"num_warps": 8}, HALVES)
      for kind in ("atomic", "count", "second axis", "squares")),
    (tile, LARGE | {"WS": True}, {"num_warps": 8, "num_stages": 3}, HALVES),
    (tile, LARGE | {"WS": True}, {"num_warps": 8, "tensor_maps": False}, HALVES),
    (tile, LARGE | {"WS": True, "BM": 256}, {"num_warps": 16, "num_stages": 2}, HALVES),
    (tile, LARGE | {"WS": True, "BM": 256}, {"num_warps": 32, "num_stages": 2}, HALVES),
]  # fmt: skip


def test_why_hopper_has_no_part_in_it(golden):
    """Not wgmma, not TMA, no warps of their own for copies, no programs that walk over tiles."""
    said = []
    for kernel, constants, options, kind in HOPPER:
        out = kind if "64" in kind or "WS" in constants and constants["WS"] else WORDS
        sizes = {"K": "i32:16", "N": "i32:16"} if kernel is tile else {}
        signature = {"a": kind, "b": kind, "c": out} | sizes
        made = compile_function(kernel, signature, constants, "sm_90a", **options)
        chosen = {name: value for name, value in constants.items() if value} | options
        said.append(f"== {kernel.__name__} of {kind[1:-3]} {chosen}")
        said += [f"{r.kind}: {r.message}" for r in made.remarks if r.kind != "narrow-access"]
    text = re.sub(r"in line \d+", "in line …", "\n".join([*said, ""]))
    golden(Path(__file__).parent / "golden" / "hopper_remarks.txt", text)


def test_a_product_that_is_not_deep_enough():
    """The language has no such product, IR may."""
    function = parse_function("""
func @f() attributes {num_warps = 4} {
  %a = constant {value = 0.0} : tensor<64x8xf16>
  %b = constant {value = 0.0} : tensor<8x64xf16>
  %c = constant {value = 0.0} : tensor<64x64xf32>
  %d = dot %a, %b, %c : (tensor<64x8xf16>, tensor<8x64xf16>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return
}
""")
    (dot,) = function.walk(Dot)
    assert why_not(dot, 4, False) == "it has 16 bytes along k, wgmma takes 32; use a larger block along k"
