"""Text tests: a kernel, what is done with it, and what comes out, side by side in a ``.tir`` file.

    // An equal computation is done once.                 what the case shows
    // run: cse dce                                       passes, by name; or: ptx (the code that the whole
                                                          pipeline gives, with reasons); or: emit (without it)
    func @f(…) { … }
    // gives:
    func @f(…) { … }
    // remark: narrow-access: …                           what the passes told the user, if anything

Cases are separated by a line ``// ----``. ``target: sm_90a`` behind ``run: …;`` chooses the target (sm_80).
``pytest tests/tir --update-golden`` writes what comes out; read it then.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxforge.codegen_ptx import emit
from ptxforge.ir.parser import parse_function
from ptxforge.ir.printer import print_function
from ptxforge.ir.verifier import verify
from ptxforge.passes import pipeline
from ptxforge.support.target import parse_target

FOLDER = Path(__file__).parent
BETWEEN, GIVES = "// ----\n", "// gives:\n"
RUN = re.compile(r"^// run: ([\w ]+?)(?:; target: (\w+))?$", re.MULTILINE)
PASSES = {row.name: row.function for row in pipeline.PIPELINE}
FILES = sorted(FOLDER.glob("*.tir"))
CASES = [(path, number) for path in FILES for number in range(path.read_text().count(BETWEEN) + 1)]


def outcome(case: str) -> str:
    """What a case's kernel becomes, and the remarks."""
    given = case.partition(GIVES)[0]
    names, target = RUN.search(given).groups()
    machine, function = parse_target(target or "sm_80"), parse_function(given)
    if names in ("ptx", "emit"):
        if names == "ptx":
            pipeline.run(function, machine, verify=True)
        verify(function)
        ptx = emit(function, machine, why=True)
        text = "".join(f"// {line}".rstrip() + "\n" for line in ptx.splitlines()[3:])
    else:
        for name in names.split():
            PASSES[name](function, machine)
            verify(function)
        text = print_function(function)
        assert print_function(parse_function(text)) == text
    remarks = [f"// remark: {remark.kind}: {remark.message}\n" for remark in function.remarks]
    return text.rstrip("\n") + "\n" + "".join(remarks)


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


def test_every_case_has_a_caption_and_something_happens():
    for path, number in CASES:
        given, _, expected = path.read_text().split(BETWEEN)[number].partition(GIVES)
        assert given.startswith("// ") and not given.startswith("// run"), (path, number)
        assert expected, (path, number)
