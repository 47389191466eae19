"""Text tests: a kernel, what is done with it, and what comes out, side by side in a ``.tir`` file.

    // An equal computation is done once.                 what the case shows
    // run: cse dce                                       passes, by name; or: ptx (the code that the whole
                                                          pipeline gives, with reasons); or: emit (without it)
    func @f(…) { … }
    // gives:
    func @f(…) { … }
    // remark: narrow-access: …                           what the passes told the user, if anything

Cases are separated by a line ``// ----``. ``target: sm_90a`` behind ``run: …;`` chooses the target (sm_80).
With ``row: sink_rare`` behind ``run: ptx;`` or ``run: emit;`` the instructions come out as that row of the
code generator's table gets and leaves them.
``pytest tests/tir --update-golden`` writes what comes out; read it then.
"""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch

import pytest

from ptxforge.codegen_ptx import emit
from ptxforge.codegen_ptx.ptx import pipeline as ptx_pipeline
from ptxforge.codegen_ptx.ptx.pipeline import LOWERING
from ptxforge.ir.core import Function
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.passes import pipeline
from ptxforge.support.target import Target, parse_target

FOLDER = Path(__file__).parent
BETWEEN, GIVES = "// ----\n", "// gives:\n"
RUN = re.compile(r"^// run: ([\w ]+?)(?:; row: (\w+))?(?:; target: (\w+))?$", re.MULTILINE)
PASSES = {row.name: row.function for row in pipeline.PIPELINE}
ROWS = [LOWERING, *(row.name for row in ptx_pipeline.PASSES)]
ELSEWHERE = {
    "persistent_programs": "kernels/test_made_persistent.py",
    "stage_boxes": "kernels/test_tensor_stores.py",
    "version_loops": "kernels/test_versioned_loops.py",
}
"""Passes without a case whose tests are named after kernels."""
FILES = sorted(FOLDER.glob("*.tir"))
CASES = [(path, number) for path in FILES for number in range(path.read_text().count(BETWEEN) + 1)]


def outcome(case: str) -> str:
    """What a case's kernel becomes, and the remarks."""
    given = case.partition(GIVES)[0]
    names, row, target = RUN.search(given).groups()
    machine, function = parse_target(target or "sm_80"), parse_function(given)
    if names in ("ptx", "emit"):
        if names == "ptx":
            pipeline.run(function, machine, verify=True)
        verify(function)
        lines = around(row, function, machine) if row else emit(function, machine, why=True).splitlines()[3:]
        text = "".join(f"// {line}".rstrip() + "\n" for line in lines)
    else:
        for name in names.split():
            PASSES[name](function, machine)
            verify(function)
        text = print_function(function)
        assert print_function(parse_function(text)) == text
    remarks = [f"// remark: {remark.kind}: {remark.message}\n" for remark in function.remarks]
    return text.rstrip("\n") + "\n" + "".join(remarks)


def around(row: str, function: Function, target: Target) -> list[str]:
    """The instructions as the row before ``row`` leaves them, and as ``row`` does."""
    before = ROWS[ROWS.index(row) - 1]
    shown = {"PTXFORGE_DUMP": f"{before},{row}", "PTXFORGE_VERIFY": "1"}
    with patch.dict(os.environ, shown), redirect_stderr(io.StringIO()) as said:
        emit(function, target)
    return said.getvalue().splitlines()


@pytest.mark.parametrize(("path", "number"), CASES, ids=[f"{path.stem}-{number}" for path, number in CASES])
def test_case(path, number, request):
    cases = path.read_text().split(BETWEEN)
    given, _, expected = cases[number].partition(GIVES)
    found = outcome(given)
    if request.config.getoption("--update-golden"):
        cases[number] = f"{given}{GIVES}{found}"
        path.write_text(BETWEEN.join(cases))
        return
    assert found == expected, f"{path.name}, case {number}: read the difference, then --update-golden"


def test_every_row_of_the_code_generator_changes_something_in_a_case():
    text = BETWEEN.join(path.read_text() for path in FILES)
    for row in ROWS[1:]:
        both = rf"^// // after \w+\n((?:// .*\n)*?)// // after {row}\n((?:// .*\n)*?)(?=// ----|\Z)"
        shown = re.findall(both, text, re.MULTILINE)
        assert any(before != after for before, after in shown), f"no case shows what '{row}' does"


def test_every_pass_has_cases_here_or_a_file_of_tests():
    runs = re.findall(r"^// run: ([\w ]+)", "".join(path.read_text() for path in FILES), re.MULTILINE)
    files = {path.stem.removeprefix("test_") for path in FOLDER.parent.rglob("test_*.py")}
    without = PASSES.keys() - {name for run in runs for name in run.split()} - files
    assert without == ELSEWHERE.keys()
    for file in ELSEWHERE.values():
        assert (FOLDER.parent / file).exists()


def test_every_case_has_a_caption_and_something_happens():
    for path, number in CASES:
        given, _, expected = path.read_text().split(BETWEEN)[number].partition(GIVES)
        assert given.startswith("// ") and not given.startswith("// run"), (path, number)
        assert expected, (path, number)
