"""The link between the language's functions and their meanings."""

from __future__ import annotations

import inspect

import pytest

import ptxforge.frontend.semantics  # noqa: F401  (fills the table)
from ptxforge.frontend.semantics.registry import SEMANTICS, implements


def parameters(fn) -> list[tuple]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(fn).parameters.values()]


@pytest.mark.parametrize("stub", SEMANTICS, ids=lambda stub: stub.__name__)
def test_a_meaning_takes_what_its_function_does(stub):
    _context, *own = parameters(SEMANTICS[stub])
    assert own == parameters(stub)


def test_a_function_has_one_meaning():
    stub = next(iter(SEMANTICS))
    with pytest.raises(TypeError, match="has two meanings"):
        implements(stub)(lambda ctx: None)
