"""Instruction forms are taken from texts, compared with the list and reported (``tests/forms.py``)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge import codegen_ptx
from ptxforge.compiler import compile_function
from ptxforge.driver.cuda import CudaModule
from tests import forms

WAITS = "mbarrier.try_wait.parity.shared::cta.b64"
TYPES = "wgmma.mma_async.sync.aligned.m64nNk16.f32.f16.f16 {N}"
WIDTH = "wgmma.mma_async.sync.aligned.m64n16k16 {8}"


@pytest.mark.parametrize("text, expected", [
    ("@%p1 ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%q0+16];", {"ld.global.v4.b32 {4}, [_]"}),
    ("ld.global.v2.b32 {%r0, %r1}, [%q0+-16];    // why: a;", {"ld.global.v2.b32 {2}, [_]"}),
    ("@!%p2 bra.uni $end;\n$end:\n    ret;", {"bra.uni _", "ret"}),
    (f"{WAITS} %p3, [%r0+8], %r1;", {f"{WAITS} _, [_], _"}),
    (".loc 1 2 3\n.reg .b32 %r<4>;", set()),
    ("mov.u32 %r0, %ctaid.x;", {"mov.u32 _, %ctaid.x"}),
    ("bar.sync 0; bar.sync 1, 128;", {"bar.sync _", "bar.sync _, _"}),
    ("add.rn.f32 %f1, %f2, 0f3F800000;\nselp.f32 %f1, 1.0, %f2, !%p1;",
     {"add.rn.f32 _, _, _", "selp.f32 _, _, _, _"}),
    ("mov.u32 %r1, smem;\nmov.b64 %q1, {%r1, -2};", {"mov.u32 _, _", "mov.b64 _, {2}"}),
    ("cp.async.ca.shared.global [%r1+1024], [%q1], 8, %r2;", {"cp.async.ca.shared.global [_], [_], 8, _"}),
    ("cp.async.ca.shared.global [%r1], [%q1+-8], 4, 0;", {"cp.async.ca.shared.global [_], [_], 4, _"}),
    ("cp.async.wait_group 2;", {"cp.async.wait_group _"}),
    ("{ .param .b64 p0; st.param.b64 [p0], %d1; call (r0), reduce_pi, (p0); ld.param.b32 %r1, [r0+8]; }",
     {"st.param.b64 [_], _", "call (_), _, (_)", "ld.param.b32 _, [_]"}),
    (f"{WIDTH.split()[0]}.f32.f16.f16 {{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}}, %q1, %q2, %p1, 1, 1, 0, 1;",
     {f"{TYPES}, _, _, _, 1, 1, 0, 1", f"{WIDTH}, _"}),
    (f"{WIDTH.split()[0]}.f32.f16.f16 {{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}}, {{%r1, %r2, %r3, %r4}}, "
     "%q2, %p1, 1, 1, 0;", {f"{TYPES}, {{4}}, _, _, 1, 1, 0", f"{WIDTH}, {{4}}"}),
])  # fmt: skip
def test_forms_of_a_text(text, expected):
    assert forms.forms_of(text) == expected


@pytest.fixture
def file(tmp_path):
    """What a session writes."""
    path = tmp_path / "session.txt"
    path.write_text("")
    return path


@pytest.fixture
def watching(tmp_path, monkeypatch, file):
    """``watching(*forms)``: a session beside the tests' own one, with a list of its own."""

    def start(*lines: str) -> forms.Session:
        monkeypatch.setattr(forms, "LIST", tmp_path / "forms.txt")
        forms.LIST.write_text("".join(line + "\n" for line in lines))
        monkeypatch.setattr(codegen_ptx, "module_text", codegen_ptx.module_text)
        monkeypatch.setattr(CudaModule, "function", CudaModule.function)
        session = forms.Session(file)
        session.watch()
        return session

    return start


@ptxforge.jit
def add(x):
    tl.store(x, tl.load(x) + 1)


@ptxforge.jit
def add_by_hand(x):
    y = tl.inline_asm_elementwise("{ .reg .b32 a; brev.b32 a, $1; popc.b32 $0, a; }", "=r,r", [tl.load(x)],
                                  tl.int32, True, 1)  # fmt: skip
    tl.store(x, y + tl.extra.cuda.globaltimer().to(tl.int32))


def compiled(kernel, target: str) -> set[str]:
    return forms.forms_of(compile_function(kernel, {"x": "*i32"}, {}, target=target).ptx)


def test_a_form_that_is_not_listed_fails_the_test_that_makes_it(watching, request):
    wanted = compiled(add, "sm_80")
    session = watching(*wanted - {"add.s32 _, _, _"})
    compiled(add, "sm_80")
    with pytest.raises(AssertionError, match=r"add\.s32 _, _, _    for sm_80, by .*") as failure:
        session.check(True, update=False)
    assert request.node.nodeid in str(failure.value) and "ret" not in str(failure.value)
    session.check(True, update=False)  # the next test has not made it
    compiled(add, "sm_90a")
    session.check(False, update=True)
    assert "add.s32 _, _, _" not in forms.listed()


def test_an_update_lists_forms_in_order(watching):
    wanted = compiled(add, "sm_80")
    session = watching("zzz", "aaa  # no GPU can")
    compiled(add, "sm_80")
    session.check(True, update=True)
    compiled(add, "sm_90a")
    session.check(True, update=False)
    assert forms.LIST.read_text().splitlines() == sorted(["zzz", "aaa  # no GPU can", *wanted])


def test_forms_of_newer_targets_are_excused_until_older_ones_have_them(watching):
    session = watching()
    compiled(add, "sm_120")
    session.check(True, update=True)
    assert set(forms.listed().values()) == {"for sm_120"}
    compiled(add, "sm_90a")
    with pytest.raises(AssertionError, match="for sm_90a"):
        session.check(True, update=False)
    forms.add([(form, "sm_90a") for form in forms.listed()])
    assert set(forms.listed().values()) == {""}


def test_inline_assembly_of_users_stays_out(watching):
    session = watching()
    assert {"brev.b32 _, _", "popc.b32 _, _"} < compiled(add_by_hand, "sm_80")
    session.check(True, update=True)
    found = forms.listed().keys()
    assert "mov.u64 _, %globaltimer" in found and "add.s32 _, _, _" in found
    assert not {form for form in found if form.startswith(("brev", "popc"))}


def test_sessions_share_a_file(watching, file):
    watching("ret", "bra.uni _", "trap", "exit  # nothing has it")
    one, other = forms.Session(file), forms.Session(file)
    one.ran("    ret;")
    other.ran("    ret;\n    bra.uni $end;")
    said, left = forms.report(file.read_text())
    assert said == ["4 forms: 2 ran, 1 are excused, 1 did not run", "excused: exit    nothing has it"]
    assert left == ["not run: trap    by no test of this session"]
    file.write_text(file.read_text() + "made\ttrap\tsm_80\ttests/a.py::test\n")
    assert forms.report(file.read_text())[1] == ["not run: trap    by tests/a.py::test, for sm_80"]
    file.write_text(file.read_text() + "made\tbrkpt\tsm_80\ttests/a.py::test\n")
    assert forms.report(file.read_text())[1][0] == "not run: brkpt    by tests/a.py::test, for sm_80"


def test_all_tests_are_watched(request):
    assert "forms_are_listed" in request.fixturenames
    assert codegen_ptx.module_text.__wrapped__ and CudaModule.function.__wrapped__


ANY = "ANY"  # what formatted literals insert
CODE_GENERATOR = Path(codegen_ptx.__file__).parent


def literals(path: Path) -> Iterator[str]:
    """The string literals of a file, but for docstrings."""
    tree = ast.parse(path.read_text())
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in formatted:
        yield "".join(part.value if isinstance(part, ast.Constant) else ANY for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def unlisted(path: Path, names: set[str]) -> list[str]:
    """The instructions of a file's templates of which the list has no form."""
    texts = (re.sub("(?<![@!])%s", " %r0 ", text).replace("%s", "%r0") for text in literals(path))
    found = {form.split()[0] for text in texts for form in forms.forms_of(text)}
    patterns = {name: re.escape(name).replace(ANY, r"[\w.:]*") for name in found if "." in name}
    return [f"{path.name}: {name.replace(ANY, '…')}" for name, pattern in patterns.items()
            if not any(re.fullmatch(pattern, known) for known in names)]  # fmt: skip


def test_the_code_generator_has_no_instruction_that_no_test_emits(tmp_path):
    """What stands in its source as a template has a form in the list."""
    names = {form.split()[0] for form in forms.listed()}
    paths = sorted(CODE_GENERATOR.rglob("*.py"))
    assert sum(len(set(literals(path))) for path in paths) > 500
    assert not [name for path in paths for name in unlisted(path, names)]
    wrong = tmp_path / "wrong.py"
    wrong.write_text("b.pure('add.s99 %s, %s;')\nb.effect(f'@%s st.{space}.v9.b{bits} [%s], %s;')\n'a; b'\n")
    assert sorted(unlisted(wrong, names)) == ["wrong.py: add.s99", "wrong.py: st.….v9.b…"]
