"""What is known of an operation stands in its definition: no module has a list of operations of its own.

A table whose keys are operations and whose values are functions dispatches; so do decorators. Any other
collection of three or more operations at module level is a list that somebody who adds an operation would
have to know of. Those that are left stand here, with the reason.
"""

from __future__ import annotations

import ast
from pathlib import Path

from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry
from ptxforge.ir.definition import REGISTRY

ROOT = Path(__file__).parents[2] / "ptxforge"
FOLDERS = ("passes", "codegen_ptx", "explain", "ir", "frontend", "interpreter")
NAMES = {kind.__name__ for kind in REGISTRY.values()}

LEFT = {
    "codegen_ptx/lowering.py: DEFERRABLE": "what may be queued between products: goes with the queue",
    "codegen_ptx/rematerialize.py: _CHEAP": "what code generation computes again: goes with its own passes",
    "codegen_ptx/walking.py: _ACCESSES": "accesses to which pointers walk: goes with those passes",
    "codegen_ptx/walking.py: _REARRANGE": "shapes of pointers that it can follow: the same",
    "passes/flatten_loops.py: _OF_THE_PIPELINE": "operations that the pipeliner makes: one pass in two files",
    "passes/pipeline_loops.py: _PRODUCTS": "the three parts of one product",
    "passes/rematerialization.py: _COMPUTABLE": "through what layouts are pushed: wants a transfer on ops",
    "passes/rotate_ranges.py: _ORDERLESS": "what commutes with a rotation: nobody else asks",
}


def op_lists(path: Path) -> list[str]:
    """The names of a module's collections of three or more operations that are no dispatch tables."""
    found = []
    for node in ast.parse(path.read_text()).body:
        value = getattr(node, "value", None) if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if value is None or isinstance(value, ast.Dict):
            continue
        for inner in ast.walk(value):
            elements = inner.elts if isinstance(inner, (ast.Tuple, ast.List, ast.Set)) else ()
            if sum(map(is_op, elements)) >= 3:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found.append(ast.unparse(target))
                break
    return found


def is_op(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node).split(".")[-1] in NAMES


def test_no_module_lists_operations():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {f"{path.relative_to(ROOT)}: {name}" for path in paths for name in op_lists(path)}
    assert not found - LEFT.keys(), "say it in the operations' definitions (traits, effects, cost, …)"
    assert not LEFT.keys() - found, "these are gone: take them out of the list"
    assert len(LEFT) <= 30


def test_the_check_itself(tmp_path):
    module = tmp_path / "m.py"
    module.write_text("A = (arith.AddI, MulI, Load)\nB = {AddI: f, MulI: f, Load: f}\nC = [AddI, MulI]\n")
    assert op_lists(module) == ["A"]


def test_tables_of_facts_are_on_the_definitions():
    """Every operation has a cost, and says of integers when they are not negative."""
    assert {kind.cost for kind in REGISTRY.values()} == {"free", "cheap", "expensive"}
    assert {kind.nonnegative_if for kind in REGISTRY.values()} == {"", "always", "all", "any", "first"}
