"""What users of ptxforge call from Python is documented, and says what it raises."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

import ptxforge
from ptxforge import debug, driver, layouts, runtime, support

SHORT = 10
"""What says less than this many characters says nothing."""


def modules() -> Iterator[Any]:
    yield debug
    yield importlib.import_module("ptxforge.compiler")
    for package in (driver, layouts, runtime, support):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A function or class, and what is public in the class itself."""
    yield name, value
    if not inspect.isclass(value):
        return
    for member, held in vars(value).items():
        is_member = callable(held) or isinstance(held, (property, classmethod, staticmethod))
        if is_member and not member.startswith("_"):
            yield f"{name}.{member}", getattr(value, member)


def functions() -> dict[str, Any]:
    """Public functions, classes, methods and properties, by name; those of a module stand in it."""
    found = {}
    for module in modules():
        for name, value in vars(module).items():
            is_own = getattr(value, "__module__", None) == module.__name__
            if is_own and not name.startswith("_") and (inspect.isclass(value) or inspect.isroutine(value)):
                found |= members(f"{module.__name__}.{name}", value)
    names = [name for name in ptxforge.__all__ if name != "__version__"]
    return found | {f"ptxforge.{name}": getattr(ptxforge, name) for name in names}


FUNCTIONS = functions()


def documentation(value: Any) -> str:
    """Its own docstring, or that of the method which it overrides."""
    return inspect.getdoc(value) or ""


def raises(value: Any) -> bool:
    """Whether the function's own text raises an error: not one that it passes on, nor NotImplementedError."""
    value = getattr(value, "fget", value)
    if not (inspect.isfunction(value) or inspect.ismethod(value)):
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(value))))
    except OSError:  # made by a decorator: there is no text
        return False
    errors = [ast.unparse(node.exc) for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]
    return any(not error.startswith("NotImplementedError") for error in errors)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_public_names_are_documented(name):
    text = documentation(FUNCTIONS[name])
    assert len(text) >= SHORT, f"{name} has no docstring"
    if raises(FUNCTIONS[name]):
        assert "raise" in text.lower(), f"{name} does not say what it raises"


def test_the_rules_can_fail():
    class Thing:
        @property
        def size(self):
            return 1

        def grow(self):
            """Make it larger."""
            raise ValueError("no")

    found = dict(members("Thing", Thing))
    assert not documentation(found["Thing.size"])
    assert raises(found["Thing.grow"]) and "raise" not in documentation(found["Thing.grow"])
    assert len(FUNCTIONS) > 200
