"""No operation without its prose, its meaning, its road to PTX, and its tests."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from ptxforge.codegen_ptx.lowering import LOWERINGS
from ptxforge.interpreter import HANDLERS
from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry
from ptxforge.ir.definition import REGISTRY
from ptxforge.passes.pipeline import PIPELINE

TESTS = Path(__file__).parents[1]
NAMES = sorted(REGISTRY)


@pytest.mark.parametrize("name", NAMES)
def test_has_prose(name):
    text = REGISTRY[name].__doc__
    assert len(text.split()) >= 2 and text.strip().endswith((".", ")")), text


@pytest.mark.parametrize("name", NAMES)
def test_has_a_meaning(name):
    kind = REGISTRY[name]
    ways = [hasattr(kind, "evaluate"), kind in HANDLERS, "terminator" in kind.traits]
    assert sum(ways) == 1, (
        f"'{name}': evaluate, an interpreter's handler, or a terminator; exactly one of them"
    )


@pytest.mark.parametrize("name", NAMES)
def test_has_a_lowering_or_a_pass_that_removes_it(name):
    kind = REGISTRY[name]
    remover = kind.definition.removed_by
    if remover:
        assert remover in [row.name for row in PIPELINE], f"no pass '{remover}' in the pipeline"
    else:
        assert kind in LOWERINGS, f"'{name}' has no lowering"


@pytest.mark.parametrize("name", NAMES)
def test_infers_its_results_or_checks_them(name):
    kind = REGISTRY[name]
    structural = ("constant", "splat", "make_range", "histogram", "local_alloc", "memdesc_trans", "bitcast")
    assert hasattr(kind, "infer") or hasattr(kind, "check") or name in structural, name


@pytest.mark.parametrize("name", NAMES)
def test_is_tested(name):
    """By its class in ``tests/ops``, or by its name in the IR text of some test."""
    cls = REGISTRY[name].__name__
    used = re.compile(rf"\b{cls}\(|[.\[ ]{cls}[,:)\]]|(?<![\w.]){name} [%{{]|^ *{name}$", re.MULTILINE)
    if not any(used.search(text) for text in texts_of_tests() if cls in text or name in text):
        pytest.fail(f"no test mentions '{name}'")


@functools.cache
def texts_of_tests() -> list[str]:
    return [path.read_text() for path in TESTS.rglob("*.py")]
