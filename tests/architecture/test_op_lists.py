"""What is known of an operation stands in its definition: no module has a list of operations of its own.

A table whose keys are operations and whose values are functions dispatches; so do decorators. Any other
collection of three or more operations at module level is a list that somebody who adds an operation would
have to know of; so is a ladder of ``isinstance``. What is left stands here, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry
from ptxforge.ir.definition import REGISTRY

ROOT = Path(__file__).parents[2] / "ptxforge"
FOLDERS = ("passes", "codegen_ptx", "explain", "ir", "frontend", "interpreter")
NAMES = {kind.__name__ for kind in REGISTRY.values()}

LEFT: dict[str, str] = {}

ASKED = {
    "passes/accelerate_matmul.py": (3, "products, and the loads that their operands come from"),
    "passes/allocate_shared.py": (1, "tensor maps in the making, whose memory nothing else may use"),
    "passes/analysis/assumptions.py": (2, "comparisons as kernels' authors write promises"),
    "passes/analysis/pipelined_loads.py": (3, "loads become copies: no other access would mean the same"),
    "passes/analysis/rectangles.py": (1, "a size that is not below 0"),
    "passes/chained_products.py": (4, "matches one product whose result is another's operand"),
    "passes/contract_products.py": (1, "matches products of floats that are added"),
    "passes/flatten_loops.py": (1, "a barrier of the loop inside, which waits for nothing outside of it"),
    "passes/interleave_products.py": (4, "deals out copies and reads between products"),
    "passes/lower_bounds.py": (1, "a number that was 32 bits wide"),
    "passes/lower_descriptors.py": (1, "a box of which dimensions of size 1 are dropped"),
    "passes/optimize_dot_operands.py": (6, "matches what stands between a load and a product"),
    "passes/optimize_thread_locality.py": (3, "matches sums of rows that a loop adds up"),
    "passes/overlap_products.py": (1, "waits change places with copies and barriers"),
    "passes/predication.py": (3, "matches masks that compare with one bound"),
    "passes/prefetch.py": (3, "matches the reads of a product's operands"),
    "passes/rematerialization.py": (1, "what a load costs depends on its layout"),
    "passes/reorder_instructions.py": (1, "an address that depends on the program's index"),
    "passes/rotate_ranges.py": (5, "matches sums of ranges and row starts"),
    "passes/scale_indices.py": (2, "what makes the next slot, and what it chooses"),
    "passes/specialize_warps.py": (11, "parts a loop's copies, and their waits, from all else in it"),
    "passes/staggered_products.py": (3, "matches products, their tiles, and the copies of these"),
    "passes/tensor_stores.py": (2, "assembly by the user may touch any memory; which atomics order memory"),
    "passes/warpgroup_dots.py": (1, "matches how operands of products were loaded"),
}
"""Which modules ask whether an operation is of one class, how often, and why; no other does. To ask what an
operation *does* (effects, traits, cost, layouts, control flow, facts) needs no class: ``ir/interfaces.py``.
To go through all operations of a class (``function.walk(For)``) is what a pass is about."""
REGISTERS = ("on", "_rule", "lowers", "interprets", "implements")
"""Decorators that put a function into a table by the operations that it is about."""


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


def questions(tree: ast.AST, names: Collection[str], rules: Collection[str]) -> Iterator[ast.Call]:
    """The calls of ``isinstance`` and ``has`` that ask for an operation, by its name or by one of ``names``,
    but in functions that a table dispatches to, the ``rules`` among them."""
    for node in ast.iter_child_nodes(tree):
        decorators = getattr(node, "decorator_list", [])
        is_registered = any(last_name(getattr(d, "func", d)) in REGISTERS for d in decorators)
        if is_registered or getattr(node, "name", None) in rules:
            continue
        if isinstance(node, ast.Call) and last_name(node.func) in ("isinstance", "has"):
            if node.args and asks_for_op(node.args[-1], names):
                yield node
        yield from questions(node, names, rules)


def asked_in(path: Path) -> list[ast.Call]:
    """The questions of a module, those by a name for several operations among them."""
    tree = ast.parse(path.read_text())
    tuples = {
        last_name(node.targets[0])
        for node in tree.body
        if isinstance(node, ast.Assign) and any(map(is_op, getattr(node.value, "elts", ())))
    }
    tables = [node.value for node in tree.body if isinstance(getattr(node, "value", None), ast.Dict)]
    rules = {
        last_name(rule)
        for table in tables
        if any(kind is not None and is_op(kind) for kind in table.keys)
        for rule in table.values
    }
    return list(questions(tree, tuples, rules))


def asks_for_op(kinds: ast.expr, names: Collection[str]) -> bool:
    parts = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
    return any(is_op(part) or isinstance(part, ast.Name) and part.id in names for part in parts)


def last_name(node: ast.expr) -> str:
    return ast.unparse(node).split(".")[-1]


def is_op(node: ast.expr) -> bool:
    text = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
    return text.split(".")[-1] in NAMES and not text.startswith("ast.")


def test_no_module_lists_operations():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {f"{path.relative_to(ROOT)}: {name}" for path in paths for name in op_lists(path)}
    assert not found - LEFT.keys(), "say it in the operations' definitions (traits, effects, cost, …)"
    assert not LEFT.keys() - found, "these are gone: take them out of the list"


def test_modules_ask_what_operations_do_and_seldom_which_they_are():
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            number = len(asked_in(path)) if path.parent.name != "ops" else 0
            if number:
                found[path.relative_to(ROOT).as_posix()] = number
    too_many = {name: n for name, n in found.items() if n > ASKED.get(name, (0, ""))[0]}
    assert not too_many, "ask by effects, traits or interfaces of the definition; or let a table dispatch"
    assert not ASKED.keys() - found, "these ask no more: take them out of the list"
    assert len(ASKED) + len(LEFT) <= 24


def test_the_check_itself(tmp_path):
    module = tmp_path / "m.py"
    module.write_text("A = (arith.AddI, MulI, Load)\nB = {AddI: f, MulI: f, Load: f}\nC = [AddI, MulI]\n")
    assert op_lists(module) == ["A"]
    module.write_text(
        "@RULES.on(AddI)\ndef f(op):\n  return isinstance(op.lhs, MulI)\nBOTH = (Load, Store)\n"
        "def g(op):\n  return isinstance(op, Loop), isinstance(op, (str, ops.Load)), isinstance(op, ast.If)\n"
        "def h(block):\n  return [block.has(Dot), isinstance(block.first, BOTH), block.walk(Dot)]\n"
    )
    assert list(map(ast.unparse, asked_in(module))) == [
        "isinstance(op, (str, ops.Load))", "block.has(Dot)", "isinstance(block.first, BOTH)"
    ]  # fmt: skip


def test_tables_of_facts_are_on_the_definitions():
    """Every operation has a cost, and says of integers when they are not negative."""
    assert {kind.cost for kind in REGISTRY.values()} == {"free", "cheap", "expensive"}
    assert {kind.nonnegative_if for kind in REGISTRY.values()} == {"", "always", "all", "any", "first"}
