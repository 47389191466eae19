"""Every public name of Triton 3.6 to 3.9 is there and takes the same arguments, or is refused with a reason.

``names_3_6.txt`` and what changed since (``names_3_7.txt`` …) are written by ``list_names.py``, which says
what stands in them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ptxforge import triton_compat
from ptxforge.frontend import expressions
from ptxforge.language.registry import MEMBERS
from ptxforge.support.not_there import NOT_THERE
from ptxforge.triton_compat.modules import MODULES, reason
from tests.triton_compat.list_names import WITHOUT_NAMES, assigned, function_of, read

LISTS = sorted(Path(__file__).parent.glob("names_*.txt"))
RELEASES = [path.stem.removeprefix("names_").replace("_", ".") for path in LISTS]

IN_KERNELS = {
    "tensor": {*MEMBERS, *expressions._PROPERTIES, "T"},
    "tensor_descriptor": {*expressions._DESCRIPTOR_PROPERTIES},
    "tensor_descriptor_base": {*expressions._DESCRIPTOR_PROPERTIES},
}
"""Members that the frontend knows, of classes that have no objects outside of kernels."""

OTHER_ARGUMENTS = {
    "ptxforge makes the objects, or programs raise its errors": """
        triton.compiler.compiler.CompiledKernel triton.compiler.errors.CompilationError
        triton.compiler.errors.CompileTimeAssertionFailure triton.compiler.errors.UnsupportedLanguageConstruct
        triton.runtime.errors.OutOfResources triton.runtime.errors.PTXASError
        triton.runtime.errors.AutotunerError triton.runtime.errors.InterpreterError
        triton.runtime.jit.JITCallable triton.runtime.jit.KernelParam
        triton.runtime._async_compile.FutureKernel
        triton.language.core.tensor triton.language.core.tensor_descriptor
        triton.language.core.tensor_descriptor_base triton.language.core.tensor_descriptor_type
        triton.language.core.tuple triton.language.core.range triton.language.core.static_range
        triton.language.core.condition triton.compiler.compiler.ASTSource.make_ir
        triton.backends.compiler.BaseBackend triton.runtime.jit.JITFunction
        triton.knobs.env_nvidia_tool.transform
    """,
    "these are names for annotations": """
        triton.knobs.BuildImpl triton.knobs.CompilationListener triton.knobs.InitHandleHook
        triton.knobs.JITHook triton.knobs.LaunchHook triton.knobs.PipelineStagesHook
        triton.knobs.AutotuneListener
    """,
    "what stands behind the stars is said": """
        triton.language.core.tensor_descriptor.gather triton.language.core.tensor_descriptor.scatter
        triton.language.core.tensor_descriptor_base.gather triton.language.core.tensor_descriptor_base.scatter
        triton.runtime.autotuner.Autotuner.run triton.runtime.autotuner.Heuristics.run
    """,
    "how a conversion is made is the compiler's": "triton.language.extra.cuda.utils.convert_custom_float8",
    "the parameters have the names of later releases": """
        triton.tools.ragged_tma.atomic_add_ragged triton.tools.ragged_tma.load_ragged
        triton.tools.ragged_tma.store_ragged triton.tools.ragged_tma.to_ragged_indices
    """,
}
DOCUMENT = Path(__file__).parents[2] / "docs" / "from-triton.md"
TOLD = {
    name
    for line in DOCUMENT.read_text().partition("\n## What there will not be")[2].splitlines()
    if re.match(r"\| `(?!triton)", line)
    for name in re.findall(r"`([\w.*]+)`", line.rpartition(" | ")[0])
}
"""What the document says that there is not, and why; ``C.*``: the members of ``C``."""

OTHER_DEFAULTS = {"out_dtype", "keep_dims", "address_space"}
"""Parameters of which releases have other defaults that mean the same: of tl.dot, tl.softmax, a pointer."""

OTHER = {name for names in OTHER_ARGUMENTS.values() for name in names.split()}


NAMES = {release: read(LISTS[: count + 1]) for count, release in enumerate(RELEASES)}


def listed(release: str) -> list[tuple[str, str, str]]:
    """``(module, name, parameters)``; a name without parameters has none in the list, or is no function."""
    parts = [(module, *line.partition("(")) for module, names in NAMES[release].items() for line in names]
    return sorted((module, name, bracket + rest) for module, name, bracket, rest in parts)


@pytest.fixture(scope="module")
def triton():
    if "triton" in sys.modules and not triton_compat.is_installed():
        pytest.skip("the real triton is imported in this process")
    triton_compat.install()
    yield importlib.import_module("triton")
    triton_compat.uninstall()


def is_refused(full: str) -> bool:
    parts = full.removeprefix("triton.").split(".")
    above = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return reason(full) is not None or not TOLD.isdisjoint(above | {f"{name}.*" for name in above})


def _found(module: str, name: str) -> tuple[bool, object]:
    """Whether the alias has a name, and what it is; ``None`` for what only objects of the class have."""
    here: object = importlib.import_module(module)
    for part in name.split("."):
        if hasattr(here, part):
            here = getattr(here, part)
            continue
        classes = here.__mro__ if inspect.isclass(here) else ()
        known = {attribute for cls in classes for attribute in assigned(cls)}
        return part in known | IN_KERNELS.get(getattr(here, "__name__", ""), set()), None
    return True, here


def test_the_lists():
    assert RELEASES == ["3.6", "3.7", "3.8", "3.9"]
    assert all(len(NAMES[release]) > 40 and len(listed(release)) > 1500 for release in RELEASES)


@pytest.mark.parametrize("release", RELEASES)
def test_modules(triton, release):
    missing = [name for name in NAMES[release] if name not in MODULES and not is_refused(name)]
    assert missing == []
    assert [name for name in WITHOUT_NAMES if not is_refused(name)] == []


@pytest.mark.parametrize("release", RELEASES)
def test_names(triton, release):
    missing = []
    for module, name, _ in listed(release):
        full = f"{module}.{name}"
        if is_refused(module) and module not in MODULES:
            continue
        if not _found(module, name)[0] and not is_refused(full):
            missing.append(full)
    assert missing == []


def test_what_is_refused_is_not_there(triton):
    """A name in the list of names that are not there, and there after all, would be told wrong."""
    full = {name for name in NOT_THERE if name.startswith("triton.")} | {f"triton.{name}" for name in TOLD}
    there = {
        f"{module}.{name}"
        for release in RELEASES
        for module, name, _ in listed(release)
        if module in MODULES and _found(module, name)[0]
    }
    assert full & there == set()


def _constant(node: ast.expr | None) -> object:
    """A default; ``...`` where it is no plain value."""
    try:
        return inspect.Parameter.empty if node is None else ast.literal_eval(node)
    except ValueError:
        return ...


def _wanted(parameters: str) -> tuple[list[tuple[str, object]], list[str], bool]:
    """``(name, default)`` of the positional parameters, the keyword ones, and whether ``*args`` is among
    them."""
    taken = ast.parse(f"def f{parameters}: pass").body[0].args  # type: ignore[attr-defined]
    defaults = [None] * (len(taken.args) - len(taken.defaults)) + taken.defaults
    positional = [(each.arg, _constant(node)) for each, node in zip(taken.args, defaults, strict=True)]
    return positional, [each.arg for each in taken.kwonlyargs], taken.vararg is not None


def _plain(value: object) -> object:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    return str(value) if type(value).__name__ == "dtype" else value


def signature(ours: Any) -> inspect.Signature:
    return inspect.signature(function_of(ours))


def difference(parameters: str, ours: Iterable[inspect.Parameter]) -> str:
    """What calls of a function with these parameters may do and ``ours`` does not take; empty for nothing."""
    positional, keywords, takes_more = _wanted(parameters)
    found = [each for each in ours if each.name not in ("self", "cls") and not each.name.startswith("_")]
    by_name = {each.name: each for each in found}
    stars = {each.kind for each in found}
    more, any_name = inspect.Parameter.VAR_POSITIONAL in stars, inspect.Parameter.VAR_KEYWORD in stars
    if takes_more and not more:
        return "takes no *args"
    for place, (name, default) in enumerate(positional):
        if more and (place >= len(found) or found[place].kind is not found[place].POSITIONAL_OR_KEYWORD):
            break
        if place >= len(found) or found[place].name != name or found[place].kind is found[place].KEYWORD_ONLY:
            return f"parameter {place} is not {name}"
        is_plain = default is not ... and default is not inspect.Parameter.empty
        if is_plain and name not in OTHER_DEFAULTS and _plain(found[place].default) != default:
            return f"{name} is {found[place].default!r} by default, not {default!r}"
    missing = [name for name in keywords if name not in by_name and not any_name]
    wanted = {name for name, _ in positional} | set(keywords)
    named = [each for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    needed = [each.name for each in named if each.default is each.empty and each.name not in wanted]
    return f"takes no {missing}" if missing else f"needs {needed}" if needed else ""


@pytest.mark.parametrize("release", RELEASES)
def test_parameters(triton, release):
    wrong = []
    for module, name, parameters in listed(release):
        full = f"{module}.{name}"
        if not parameters or module not in MODULES or full in OTHER or is_refused(full):
            continue
        there, ours = _found(module, name)
        if not there or ours is None:
            continue
        if "libdevice" in module:  # their names are arg0, arg1, …; ours are CUDA's
            same = len(signature(ours).parameters) == parameters.count("arg")
            if not same:
                wrong.append(full)
            continue
        try:
            text = difference(parameters, signature(ours).parameters.values())
        except (TypeError, ValueError):
            text = "cannot be called"
        if text:
            wrong.append(f"{full}{parameters}: {text}")
    assert wrong == []


@pytest.mark.parametrize("release", RELEASES)
def test_parameters_of_methods_of_tensors(release):
    wrong = []
    for module, name, parameters in listed(release):
        owner, _, member = name.partition(".")
        is_method = module == "triton.language.core" and owner == "tensor" and member in MEMBERS
        if is_method and parameters and member not in ("logical_and", "logical_or"):  # theirs is ``other``
            found = list(signature(MEMBERS[member]).parameters.values())
            is_named = parameters.startswith(f"({found[0].name}")  # as a function is, beside the methods
            text = difference(parameters, found if is_named else found[1:])
            if text:
                wrong.append(f"{member}{parameters}: {text}")
    assert wrong == []
