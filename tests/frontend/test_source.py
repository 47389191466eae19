"""Reading a function's text, and the places that operations and errors carry."""

from __future__ import annotations

import linecache

import pytest

import ptxforge
import ptxforge.language as tl
from ptxforge.frontend import build
from ptxforge.frontend.source import source_function
from ptxforge.language.registry import library as jit
from ptxforge.support.errors import CompilationError


def at_top(out, n):
    tl.store(out, n + 1)


@jit
def inner(x):
    return x * 2


@jit
def middle(x):
    return inner(x) + 1


def chain(out, n):
    tl.store(out, middle(n))


def location_of(function, name: str):
    return next(op.location for op in function.walk() if op.name == name)


def built(fn, **signature):
    return build(fn, signature or {"out": "*i32", "n": "i32"}, {}, target="sm_90a")


def text_at(location) -> str:
    line = linecache.getline(location.file, location.line)
    return line[location.column : location.end_column]


def test_operations_know_their_expression():
    function = built(at_top)
    assert text_at(location_of(function, "addi")) == "n + 1"
    assert text_at(location_of(function, "store")) == "tl.store(out, n + 1)"
    assert location_of(function, "addi").function == "at_top"


def test_inlined_operations_know_the_calls_that_led_there():
    location = location_of(built(chain), "muli")
    assert [here.function for here in location.chain()] == ["inner", "middle", "chain"]
    assert [text_at(here) for here in location.chain()] == ["x * 2", "inner(x)", "middle(n)"]


def test_indented_functions_and_columns_in_characters():
    def kernel(out, n):  # the closing bracket stands left of the body
        text = """
    less indented than the code: äöü
"""  # noqa: F841
        größe = n * 2
        tl.store(out, größe + 1)  # noqa: E702

    function = built(kernel)
    assert text_at(location_of(function, "muli")) == "n * 2"
    assert text_at(location_of(function, "addi")) == "größe + 1"


@jit
@jit
def decorated(x):
    # a comment
    # further left
    return x + 1


def test_decorators_and_comments():
    tree = source_function(decorated.fn.fn).tree
    assert (tree.name, len(tree.body)) == ("decorated", 1)


def test_unicode_name_becomes_a_ptx_name():
    def größe(out, n):
        tl.store(out, n)

    assert built(größe).name == "gr_uf6_udfe"


def test_functions_from_text_need_an_entry_in_linecache():
    text = "def kernel(out, n):\n    tl.store(out, n * 7)\n"
    scope = {"tl": tl}
    exec(compile(text, "<kernel-1>", "exec"), scope)
    with pytest.raises(CompilationError, match="the source of 'kernel' is not available"):
        built(scope["kernel"])
    linecache.cache["<kernel-2>"] = (len(text), None, text.splitlines(True), "<kernel-2>")
    exec(compile(text, "<kernel-2>", "exec"), scope)
    assert text_at(location_of(built(scope["kernel"]), "muli")) == "n * 7"


def test_what_is_no_function():
    with pytest.raises(CompilationError, match="a kernel is a Python function, not a 'int'"):
        built(3)
    with pytest.raises(CompilationError, match="is a lambda"):
        built(lambda out, n: tl.store(out, n))


def test_parameters():
    def kernel(a, b: tl.constexpr, c=3, *, d: tl.constexpr = 4):
        pass

    names = [(p.name, p.is_constexpr, p.has_default) for p in source_function(kernel).parameters]
    assert names == [("a", False, False), ("b", True, False), ("c", False, True), ("d", True, True)]


@pytest.mark.parametrize(
    "signature, constants, message",
    [
        ({"out": "*i32"}, {}, "parameter 'n' of 'at_top' is missing in the signature or in constants"),
        ({"out": "*i32", "n": "i33"}, {}, "'i33', the type of 'n', is not a type"),
        ({"out": "*i32", "n": "ki32"}, {}, "only pointers are const"),
        ({"out": "*i32", "n": "i32", "m": "i32"}, {}, "'at_top' has no parameter 'm'"),
        ({"out": "*ki32", "n": "i32"}, {}, "is a tl.const pointer"),
    ],
)
def test_wrong_signatures(signature, constants, message):
    with pytest.raises(CompilationError, match=message):
        build(at_top, signature, constants, target="sm_90a")


def test_signature_types_and_attributes():
    function = build(
        at_top, {"out": "*i32:16", "n": "i32:8"}, {}, target="sm_80", num_warps=8, num_stages=2, maxnreg=64
    )
    assert [str(a.type) for a in function.arguments] == ["ptr<i32>", "i32"]
    assert [a.attributes for a in function.arguments] == [{"divisibility": 16}, {"divisibility": 8}]
    assert function.attributes == {
        "num_warps": 8,
        "num_stages": 2,
        "num_ctas": 1,
        "target": "sm_80",
        "maxnreg": 64,
    }


def test_a_constant_wins_over_the_signature():
    function = build(at_top, {"out": "*i32", "n": "i32"}, {"n": 1}, target="sm_90a")
    assert [a.name for a in function.arguments] == ["out"]


def pointer_to_pointers(table, out):
    tl.store(out, tl.load(tl.load(table + 1)))


def test_pointers_to_pointers():
    function = built(pointer_to_pointers, table="**fp32", out="*fp32")
    assert str(function.arguments[0].type) == "ptr<ptr<f32>>"


def test_the_end_of_a_kernel_belongs_to_its_last_statement():
    """In PTX, too, where an instruction of its own stands for it."""

    @ptxforge.jit
    def adds(x, count):
        for i in range(count):
            tl.atomic_add(x + i, 1)

    @ptxforge.jit
    def calls(x, count):
        adds(x, count)

    def end(kernel, **options):
        made = ptxforge.compile(
            kernel.fn, signature={"x": "*i32", "count": "i32"}, constants={}, target="sm_80", **options
        )
        lines = made.ptx[: made.ptx.index("\tret;")].splitlines()
        place = next((line for line in reversed(lines) if line.startswith("\t.loc ")), None)
        return place and int(place.split()[2]) - kernel.starting_line_number

    assert end(adds) == 2 and end(calls) == 2
    assert end(adds, line_info=False) is None
