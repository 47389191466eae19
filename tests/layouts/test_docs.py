"""The examples in the documentation and in the docstrings are what the code prints."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import ptxforge.layouts

MODULES = [m.name for m in pkgutil.iter_modules(ptxforge.layouts.__path__)]
PAGE = Path(__file__).parents[2] / "docs" / "layouts.md"


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    assert doctest.testmod(importlib.import_module(f"ptxforge.layouts.{name}")).failed == 0


def test_page():
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.failed == 0 and result.attempted > 20
