"""The language is documented: every name says what it takes, what it gives and how exact it is."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ptxforge.language as tl
from ptxforge.language import math, registry
from ptxforge.language.extra import cuda, libdevice

SHORT = 20
"""What says less than this many characters says nothing."""
ROUNDING = r"ulp|[Ee]xact|rounded|relative error"
INTEGERS = {"umulhi"}


def public(module: Any) -> dict[str, Any]:
    """The documented names of a module: not its submodules, nor constants, whose prose stands beside them."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and not isinstance(value, (tl.dtype, tl.pointer_type, int))
    }


NAMES = {f"tl.{name}": value for name, value in public(tl).items()}
NAMES |= {f"tl.math.{f.__name__}": f for f in vars(math).values() if registry.is_builtin(f)}
NAMES |= {f"x.{name}": value for name, value in registry.MEMBERS.items()}
NAMES |= {f"cuda.{name}": getattr(cuda, name) for name in cuda.__all__ if name != "libdevice"}
NAMES |= {f"libdevice.{name}": getattr(libdevice, name) for name in libdevice.__all__}


def parameters_of(function: Callable) -> list[str]:
    return list(inspect.signature(getattr(function, "fn", function)).parameters)


def lacking(value: Any) -> list[str]:
    """What the documentation of a name does not say."""
    text = inspect.getdoc(value) or ""
    problems = [] if len(text) >= SHORT else ["what it is"]
    if registry.is_builtin(value) or isinstance(value, registry.LibraryFunction):
        code = " ".join(re.findall(r"``(.+?)``", text, re.DOTALL))
        problems += [f"parameter '{p}'" for p in parameters_of(value) if not re.search(rf"\b{p}\b", code)]
    elif inspect.isclass(value) and value.__module__ == "ptxforge.language.core":
        problems += [f"parameter '{p}'" for p in parameters_of(value) if f"``{p}``" not in text]
    return problems


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_says_what_it_takes(name):
    assert not lacking(NAMES[name]), f"{name} does not say: {', '.join(lacking(NAMES[name]))}"


@pytest.mark.parametrize("name", sorted(name for name in NAMES if name.startswith("tl.math.")))
def test_functions_of_floats_say_how_exact_they_are(name):
    if name.rpartition(".")[2] not in INTEGERS:
        assert re.search(ROUNDING, inspect.getdoc(NAMES[name]))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_examples_are_python(name):
    lines = (inspect.getdoc(NAMES[name]) or "").splitlines()
    ast.parse(textwrap.dedent("\n".join(line for line in lines if line.startswith("    ") or not line)))


def test_the_rules_can_fail():
    @registry.builtin
    def half(x, rounding=None):
        """Half of ``x``: exact but for subnormal numbers."""

    @registry.library
    def twice(x):
        return x + x

    assert lacking(half) == ["parameter 'rounding'"]
    assert lacking(twice) == ["what it is", "parameter 'x'"]


def test_modules_say_what_is_an_error():
    """What is refused by all functions of a family stands at its head; the rest with the function."""
    families = map(inspect.getmodule, (tl.sum, tl.reshape, tl.atomic_add, tl.add))
    for module in (math, libdevice, cuda, tl.core, *families):
        assert "error" in module.__doc__, module.__name__


# -- docs/language.md --------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs/language.md").read_text()


def test_the_page_lists_every_name():
    rows = re.search(r"\| family \| names \|\n(.*?)\n\n", PAGE, re.DOTALL)[1]
    listed = [name for cell in re.findall(r"`([^`]*)`", rows) for name in cell.split()]
    extra = {"tl.math", "tan", "tanh", "pow", "trunc", "rint"}
    wanted = {name for name, value in vars(tl).items() if name[0] != "_" and not inspect.ismodule(value)}
    assert set(listed) - extra == wanted
    assert len(listed) == len(set(listed))


def test_the_example_on_the_page(tmp_path):
    source = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    path = tmp_path / "page.py"
    path.write_text(f"import ptxforge\nimport ptxforge.language as tl\n\n{source}")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    signature = {"a": "*u8", "b": "*u8", "a_scale": "*u8", "b_scale": "*u8", "c": "*fp32", "K": "i32:16"}
    constants = {"M": 64, "N": 64, "BLOCK_K": 64}
    assert "mma.sync" in names["mxfp4_matmul"].compile(signature, constants, target="sm_80").asm["ptx"]
