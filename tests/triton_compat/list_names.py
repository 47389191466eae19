"""What names a package ``triton`` has, and what its functions take: one line per name.

    cd tests/triton_compat
    PYTHONPATH=<where Triton is> python list_names.py > names_3_6.txt
    PYTHONPATH=<where Triton is> python list_names.py names_3_6.txt > names_3_7.txt

A line is a name, ``Class.member``, or either with its parameters. A line in brackets is a module. Modules of
other vendors and of Gluon are left out, and what a module imports from another; what packages import stands
there. Beside the lists of earlier releases, in their order, only what changed is listed: ``+ name`` and
``- name``, modules too.
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import pkgutil
import sys
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LEFT_OUT = (
    "triton.experimental", "triton.backends.amd", "triton.language.extra.hip", "triton.instrumentation",
    "triton.tools.triton_to_gluon_translat", "triton.profiler.hooks.instrumentation",
)  # fmt: skip

WITHOUT_NAMES = (
    "triton.backends.nvidia", "triton.compiler.code_generator", "triton.compiler.make_launcher",
    "triton.language.semantic", "triton.profiler.context", "triton.profiler.flags", "triton.profiler.hooks",
    "triton.profiler.language", "triton.profiler.mode", "triton.profiler.specs", "triton.profiler.state",
    "triton.runtime.interpreter", "triton.tools.build_extern", "triton.tools.compile", "triton.tools.link",
)  # fmt: skip
"""Modules that ptxforge refuses as a whole."""


LEFT_OVER = ("TYPE_CHECKING", "annotations", "is_pkg", "module_name", "modules")
"""Names that imports and loops leave behind."""


def modules() -> Iterator[types.ModuleType]:
    """Every public module of the package ``triton``, and the package itself."""
    package = importlib.import_module("triton")
    yield package
    for found in pkgutil.walk_packages(package.__path__, "triton.", onerror=lambda name: None):
        is_private = any(part.startswith("_") for part in found.name.split("."))
        if not is_private and not found.name.startswith(LEFT_OUT):
            yield importlib.import_module(found.name)


def function_of(value: Any) -> Any:
    """The Python function in a kernel or a function for compile-time values."""
    while not isinstance(value, (types.FunctionType, type)) and hasattr(value, "fn"):
        value = value.fn
    return value


def _default(value: Any) -> str:
    """A default as it is written: ``…`` where it is no plain value."""
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if type(value).__name__ == "dtype":
        return repr(str(value))
    is_plain = value is None or isinstance(value, (bool, int, float, str, tuple, list, dict))
    return repr(value) if is_plain and not isinstance(value, enum.Enum) else "..."


def parameters(value: Any) -> str:
    """``(x, dim=None, *rest)``; parameters that begin with an underscore are the compiler's. Empty for what
    cannot be called."""
    try:
        found = inspect.signature(function_of(value)).parameters.values()
    except (TypeError, ValueError):
        return ""
    texts: list[str] = []
    for each in found:
        if each.name.startswith("_") or each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not any(text.startswith("*") for text in texts):
            texts.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f"={_default(each.default)}"
        texts.append(f"{stars}{each.name}{default}")
    return f"({', '.join(texts)})"


def _is_function(value: Any) -> bool:
    return inspect.isroutine(function_of(value))


@functools.cache
def assigned(cls: type) -> set[str]:
    """The attributes that a class's methods give ``self``, and those that it annotates."""
    names = set(cls.__dict__.get("__annotations__", {}))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return names
    for node in ast.walk(tree):
        is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if is_own and node.value.id == "self" and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return names


def _members(cls: type) -> dict[str, str]:
    """The public members of a class and of its ancestors in the package, with their parameters."""
    found: dict[str, str] = {}
    if getattr(cls, "_is_protocol", False) or issubclass(cls, dict):
        return found
    for owner in cls.__mro__:
        if owner.__module__.partition(".")[0] != "triton":
            continue
        for name, value in vars(owner).items():
            if not name.startswith("_"):
                value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
                found.setdefault(name, parameters(value) if _is_function(value) else "")
        for name in assigned(owner):
            if not name.startswith("_"):
                found.setdefault(name, "")
    return found


def _belongs(name: str, value: Any, module: types.ModuleType) -> bool:
    """Whether a name is the module's own."""
    if name.startswith("_") or isinstance(value, (types.ModuleType, typing.TypeVar)):
        return False
    home = getattr(value, "__module__", None)
    if not isinstance(home, str):
        return name not in LEFT_OVER
    if home.partition(".")[0] != "triton":
        return False
    if not (inspect.isclass(value) or _is_function(value)):
        return True
    is_package = hasattr(module, "__path__")
    return home == module.__name__ or (is_package and home.partition(".")[0] == "triton")


def lines(module: types.ModuleType) -> Iterator[str]:
    """The lines of one module."""
    for name, value in sorted(vars(module).items()):
        if not _belongs(name, value, module):
            continue
        if not inspect.isclass(value):
            yield name + (parameters(value) if _is_function(value) else "")
            continue
        made = value.__init__ is not object.__init__ and not issubclass(value, (enum.Enum, dict))
        yield name + (parameters(value) if made and value.__module__ == module.__name__ else "")
        if value.__module__ == module.__name__:
            for member, taken in sorted(_members(value).items()):
                yield f"{name}.{member}{taken}"


def listed() -> dict[str, set[str]]:
    """The lines of every module."""
    return {
        module.__name__: set() if module.__name__.startswith(WITHOUT_NAMES) else set(lines(module))
        for module in modules()
    }


def read(paths: Iterable[Path]) -> dict[str, set[str]]:
    """The lines of every module of a release: its list, behind those of the releases before it."""
    found: dict[str, set[str]] = {}
    for path in paths:
        module = ""
        for line in filter(None, path.read_text().splitlines()):
            sign, text = (line[0], line[2:]) if line[:2] in ("+ ", "- ") else ("+", line)
            if not text.startswith("["):
                (found[module].add if sign == "+" else found[module].remove)(text)
            elif sign == "+":
                module = text[1:-1]
                found.setdefault(module, set())
            else:
                del found[text[1:-1]]
    return found


def main(before: list[str]) -> None:
    """Print the list, or what changed since the releases whose lists are given."""
    now, known = listed(), read(map(Path, before))
    for module in sorted(known.keys() - now.keys()):
        print(f"- [{module}]")
    for module, names in now.items():
        gone, new = known.get(module, set()) - names, names - known.get(module, set())
        if not before:
            print(f"[{module}]", *sorted(names), sep="\n")
        elif gone or new or module not in known:
            print(f"[{module}]", *(f"- {name}" for name in sorted(gone)), sep="\n")
            print("".join(f"+ {name}\n" for name in sorted(new)), end="")


if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    main(sys.argv[1:])
