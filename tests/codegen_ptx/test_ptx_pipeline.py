"""The second table: passes over instructions, and rules that are followed while operations are lowered."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxforge.__main__ import main
from ptxforge.codegen_ptx import PASS_NAMES, emit
from ptxforge.codegen_ptx.ptx.builder import Builder
from ptxforge.codegen_ptx.ptx.coalesce_copies import coalesce_copies, order_copies
from ptxforge.codegen_ptx.ptx.instruction import COPY, PURE, Instruction, form_of, text_of
from ptxforge.codegen_ptx.ptx.pipeline import NAMES, PASSES, RULES, check
from ptxforge.codegen_ptx.ptx.registers import Names, Register
from ptxforge.codegen_ptx.ptx.sink_rare import drop_dead
from ptxforge.ir.parser import parse_function
from ptxforge.ir.warps import WarpGroup
from ptxforge.passes import pipeline
from ptxforge.support.errors import InternalCompilerError
from ptxforge.support.target import parse_target
from tests.codegen_ptx.harness import Executor, launch
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
    launch(Executor.device("sm_80", "all"), ptx, function, arguments)
    return [a for a in arguments if isinstance(a, np.ndarray)]


@pytest.mark.parametrize("name", KERNELS)
def test_no_rule_and_no_pass_is_needed_to_be_right(name, monkeypatch):
    function = final(KERNELS[name])
    expected, texts = results(function, emit(function, TARGET)), {emit(function, TARGET)}
    for rule in [*RULES, *NAMES][1:]:
        texts.add(ptx := emit(function, TARGET, without={rule}))
        for found, wanted in zip(results(function, ptx), expected):
            np.testing.assert_array_equal(found, wanted, err_msg=rule)
    for last in PASS_NAMES[:2]:
        monkeypatch.setenv("PTXFORGE_STOP_AFTER", last)
        texts.add(ptx := emit(function, TARGET))
        for found, wanted in zip(results(function, ptx), expected):
            np.testing.assert_array_equal(found, wanted, err_msg=last)
    assert len(texts) > 1, "the rules change something"


def test_every_rule_says_why():
    named = set()
    for text in KERNELS.values():
        function = final(text)
        plain, ptx = emit(function, TARGET), emit(function, TARGET, why=True)
        assert re.sub("  // .*", "", ptx) == plain
        named |= set(re.findall(r"  // (\w+): ", ptx))
    assert named <= {*RULES, *NAMES, *(row.name for row in pipeline.PIPELINE)}
    assert named >= {"at_entry", "sink_rare", "coalesce_copies", "recompute_indices"}


def test_the_tables_give_reasons():
    assert all(len(why) > 20 for why in [*RULES.values(), *(row.why for row in PASSES)])
    assert len(NAMES) == len(set(NAMES))


def test_rows_are_timed_and_dumped(monkeypatch, capsys):
    function, timings = final(ROWS), {}
    monkeypatch.setenv("PTXFORGE_DUMP", "cse, drop_dead")
    emit(function, TARGET, timings=timings)
    assert tuple(timings) == NAMES and all(seconds >= 0 for seconds in timings.values())
    assert capsys.readouterr().err.startswith("// after drop_dead\n\t")


def test_instructions_are_dumped_after_lowering_and_every_row(monkeypatch, capsys):
    """The matmul has a loop: what it carries is one instruction until ``order_copies``."""
    function = final(MATMUL)
    monkeypatch.setenv("PTXFORGE_DUMP", "all")
    emit(function, TARGET)
    dumps = re.split(r"^// after (\w+)$", capsys.readouterr().err, flags=re.MULTILINE)[1:]
    assert tuple(dumps[::2]) == PASS_NAMES
    carried = ["\tcarry (%" in text for text in dumps[1::2]]
    assert carried == [n < PASS_NAMES.index("order_copies") for n in range(len(PASS_NAMES))]


def test_settings_know_both_tables(monkeypatch, tmp_path, capsys):
    path = tmp_path / "k.py"
    path.write_text("import ptxforge.language as tl\n\ndef k(x):\n    tl.store(x, tl.load(x) + 1.0)\n")
    arguments = ["compile", f"{path}:k", "--signature", "*fp32:16", "--target", "sm_80"]
    monkeypatch.setenv("PTXFORGE_DUMP", "cse,lowering,order_copies")
    assert main([*arguments, "--why"]) == 0
    shown = capsys.readouterr()
    assert all(f"// after {name}" in shown.err for name in ("cse", "lowering", "order_copies"))
    assert "  // at_entry: " in shown.out or ".visible .entry k(" in shown.out
    monkeypatch.setenv("PTXFORGE_DUMP", "drop_copy")
    assert main(arguments) != 0 and "drop_copy" in capsys.readouterr().err


ADD = "add.s32 %s, %s, %s;"
MOVE = "mov.b32 %s, %s;"


def registers(count: int) -> list[Register]:
    return [Register("r", number + 1) for number in range(count)]


def test_dead_instructions_go_with_what_only_they_need():
    x, y, z = registers(3)
    one, two = Instruction(ADD, (x, 1, 2), PURE), Instruction(ADD, (y, x, 2), PURE)
    kept, use = Instruction(ADD, (z, 1, 2), PURE), Instruction("st [%s+%s], 1;", (z, 0))
    assert drop_dead([one, two, kept, use], Builder(TARGET, WarpGroup(4))) == [kept, use]


def test_copies_onto_themselves_go_and_what_computes_them_stays():
    b = Builder(TARGET, WarpGroup(4))
    x, y, z = registers(3)
    b.aliases[x] = y
    made, copy = Instruction(ADD, (x, 1, 2), PURE), Instruction(MOVE, (y, x), COPY)
    other = Instruction(MOVE, (z, x), COPY)
    found = drop_dead(order_copies([made, copy, other], b), b)
    assert [(i.kind, i.operands) for i in found] == [(PURE, made.operands), (COPY, other.operands)]


def moves_of_loop(body: list[tuple], copies: dict[int, int]) -> list[tuple[int, int]]:
    """The moves, by numbers of registers, at the end of a loop. Registers 1 and 2 are made before it;
    ``body`` has the operands, by number, of additions in it; ``copies`` says what becomes what."""
    b = Builder(TARGET, WarpGroup(4))
    r = [None, b.new("r"), b.new("r")]
    top = b.place("$top")
    r += [b.new("r") for _ in range(3)]
    b.code += [Instruction(ADD, tuple(r[n] for n in numbers), PURE) for numbers in body]
    b.carry(top, [(r[destination], r[source]) for destination, source in copies.items()])
    code = order_copies(coalesce_copies(b.all_code(), b), b)
    return [tuple(x.number for x in i.operands) for i in code if i.kind is COPY]


def test_a_carried_value_is_computed_in_its_register():
    assert moves_of_loop([(3, 1, 2)], {1: 3}) == []


@pytest.mark.parametrize(("pending", "moves"), [(0, []), (1, [(1, 3)])])
def test_tensor_cores_read_registers_until_they_are_waited_for(pending, moves):
    """What the loop carries is a product's operand; the next one is computed behind a wait for the product,
    or behind one that leaves it under way."""
    b = Builder(TARGET, WarpGroup(4))
    old, other = b.new("r"), b.new("r")
    top = b.place("$top")
    new = b.new("r")
    b.code += [
        Instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%s}, {%s}, 0;", (other, old)),
        Instruction("wgmma.commit_group.sync.aligned;"),
        Instruction(f"wgmma.wait_group.sync.aligned {pending};"),
        Instruction(ADD, (new, 1, 2), PURE),
        Instruction("wgmma.wait_group.sync.aligned 0;"),
    ]
    b.carry(top, [(old, new)])
    code = order_copies(coalesce_copies(b.all_code(), b), b)
    assert [tuple(x.number for x in i.operands) for i in code if i.kind is COPY] == moves


def test_a_copy_stays_where_the_old_value_is_read_behind_the_new_one():
    assert moves_of_loop([(3, 1, 2), (4, 3, 1)], {1: 3}) == [(1, 3)]


def test_nothing_is_overwritten_that_a_copy_still_needs():
    assert moves_of_loop([(3, 1, 2), (4, 3, 1)], {1: 2, 2: 4}) == [(1, 2), (2, 4)]


def test_values_that_change_places_go_through_a_temporary():
    assert moves_of_loop([(3, 1, 2)], {1: 2, 2: 1}) == [(6, 1), (1, 2), (2, 6)]


def test_what_is_computed_at_the_entry_stays_there():
    """It is computed once, so it must not be computed in a register that a loop changes."""
    b = Builder(TARGET, WarpGroup(4))
    old = b.new("r")
    top = b.place("$top")
    with b.at_entry():
        found = b.pure("shr.u32 %s, %s, 1;", "r", b.pure("mov.u32 %s, %%tid.x;", "r"))
    b.effect("st.global.b32 [%s+%s], %s;", old, 0, found)
    b.carry(top, [(old, found)])
    coalesce_copies(b.all_code(), b)
    assert not b.aliases


def spoiled(spoil) -> tuple[list[Instruction], Builder]:
    """A few instructions that are right, but for what ``spoil(builder, code)`` does."""
    b = Builder(TARGET, 128)
    with b.at_entry():
        tid = b.pure("mov.u32 %s, %%tid.x;", "r")
    x = b.pure(ADD, "r", tid, 1)
    b.effect("st.global.b32 [%s+%s], %s;", b.pure("ld.param.u64 %s, [p];", "q"), 0, x)
    code = b.all_code()
    check(code, b, "lowering")
    spoil(b, code)
    return code, b


@pytest.mark.parametrize(
    "spoil, reason",
    [
        (lambda b, code: code.pop(1), "after drop_dead: nothing defines %r_2 before: <EFFECT st.global"),
        (lambda b, code: code.reverse(), "nothing defines %q_3 before"),
        (lambda b, code: code.insert(2, Instruction(MOVE, code[1].operands[:2], PURE)), "%r_2 is defined tw"),
        (lambda b, code: b.aliases.update({code[0].operands[0]: b.new("r")}), "%r_1 is computed at the entr"),
    ],
)
def test_wrong_instructions_are_noticed(spoil, reason):
    code, b = spoiled(spoil)
    with pytest.raises(InternalCompilerError) as found:
        check(code, b, "drop_dead")
    assert reason in str(found.value)


@pytest.mark.parametrize(
    "syntax, guarded, opcode, results",
    [
        ("add.s32 %s, %s, %s;", False, "add.s32", 1),
        ("mov.b32 {%s, %s}, %s;", False, "mov.b32", 2),
        ("elect.sync %s|%s, -1;", False, "elect.sync", 2),
        ("ld.global.v2.b32 {%s, %s}, [%s+%s];", False, "ld.global.v2.b32", 2),
        ("@%s ld.global.b32 %s, [%s+%s];", True, "ld.global.b32", 1),
        ("@%s st.global.v2.b32 [%s+%s], {%s, %s};", True, "st.global.v2.b32", 0),
        ("@!%s bra $end;", True, "bra", 0),
        ("bar.sync %s, %s;", False, "bar.sync", 0),
        ("mbarrier.try_wait.parity.shared::cta.b64 %s, [%s+%s], %s;", False,
         "mbarrier.try_wait.parity.shared::cta.b64", 1),
        ("mbarrier.arrive.shared::cta.b64 _, [%s+%s];", False, "mbarrier.arrive.shared::cta.b64", 0),
        ("%.0s%.0s{ call (%s), f, (%s); }", False, "{", 2),
    ],
)  # fmt: skip
def test_a_form_knows_its_results(syntax, guarded, opcode, results):
    form = form_of(syntax)
    assert (form.guarded, form.opcode, form.results) == (guarded, opcode, results)


@pytest.mark.parametrize(
    "syntax, addresses",
    [
        ("ld.global.v2.b32 {%s, %s}, [%s+%s];", (2,)),
        ("@%s cp.async.ca.shared.global [%s+%s], [%s+%s], 16;", (1, 3)),
        ("add.s32 %s, %s, %s;", ()),
        ("%.0s{ ld.global.b32 %s, [%s+%s]; }", (2,)),
    ],
)
def test_a_form_knows_its_addresses(syntax, addresses):
    assert form_of(syntax).addresses == addresses


def test_locations_are_told_where_they_change():
    x = Register("r", 1)
    code = [Instruction(ADD, (x, 1, 2), PURE, place) for place in ((1, 7, 3), (1, 7, 3), None, (1, 8, 1))]
    lines = text_of(code, Names({})).split("\n")
    assert [line for line in lines if ".loc" in line] == ["\t.loc 1 7 3", "\t.loc 1 8 1"]
    assert lines[0] == "\t.loc 1 7 3" and lines[4] == "\t.loc 1 8 1"
