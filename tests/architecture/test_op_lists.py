"""What is known of an operation stands in its definition: no module has a list of operations of its own.

A table whose keys are operations and whose values are functions dispatches; so do decorators. Any other
collection of three or more operations (classes, or names as in IR text) is a list that somebody who adds an
operation would have to know of; so is a ladder of questions which operation something is: ``isinstance``,
``type(op) is``, ``op.name ==``, ``case``. What is left stands here, with the reason.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry
from ptxforge.ir.definition import REGISTRY
from tests.architecture.trees import tree_of

ROOT = Path(__file__).parents[2] / "ptxforge"
NO_IR = ("emulator", "language", "driver", "support")
"""Folders that know nothing of operations (``test_floors.py``); words of PTX and of the language stand there,
of which some are names of operations, too."""
NAMES = {kind.__name__ for kind in REGISTRY.values()}

LEFT = {
    "codegen_ptx/lower": (6, "words of PTX, and tables of numbers, by which a family's instructions differ"),
}
"""Folders in which there are lists, how many, and why."""

ASKED = {
    "frontend/context.py": (1, "values of float8e4b15 are bytes, which may be chosen from"),
    "ir/rewriter.py": (3, "what folding takes, and makes, are constants"),
    "passes/accelerate_matmul.py": (3, "products, and the loads that their operands come from"),
    "passes/analysis/assumptions.py": (2, "comparisons as kernels' authors write promises"),
    "passes/analysis/crossings.py": (2, "indices as masks compare them: ranges and their multiples"),
    "passes/analysis/flights.py": (2, "views of one of several buffers, and of parts of a tile"),
    "passes/analysis/pipelined_loads.py": (3, "loads become copies: no other access would mean the same"),
    "passes/analysis/rectangles.py": (1, "a size that is not below 0"),
    "passes/chained_products.py": (3, "matches one product whose result is another's operand"),
    "passes/contract_products.py": (1, "matches products of floats that are added"),
    "passes/interleave_products.py": (4, "deals out copies and reads between products"),
    "passes/lower_bounds.py": (1, "a number that was 32 bits wide"),
    "passes/lower_descriptors.py": (1, "a box of which dimensions of size 1 are dropped"),
    "passes/operand_tiles.py": (1, "matches how operands of products were loaded"),
    "passes/optimize_dot_operands.py": (6, "matches what stands between a load and a product"),
    "passes/optimize_thread_locality.py": (3, "matches sums of rows that a loop adds up"),
    "passes/peel_loops.py": (1, "matches branches on a comparison of the loop's counter"),
    "passes/predication.py": (3, "matches masks that compare with one bound"),
    "passes/rematerialization.py": (1, "what a load costs depends on its layout"),
    "passes/reorder_broadcast.py": (2, "matches what is broadcast"),
    "passes/reorder_instructions.py": (3, "matches a product's operands; the program's index in an address"),
    "passes/rotate_ranges.py": (5, "matches sums of ranges and row starts"),
    "passes/rules/arith.py": (2, "matches a division of the program's index"),
    "passes/sliced_products.py": (1, "a tensor that is the same along k"),
    "passes/specialize_warps.py": (10, "parts a loop's copies, and their waits, from all else in it"),
    "passes/split_loops.py": (2, "what a selection's condition is joined of, and its comparisons"),
    "passes/staggered_products.py": (1, "reads of what copies bring, which move with their wait"),
    "passes/tensor_stores.py": (1, "assembly by the user may touch any memory"),
    "runtime/interpreted.py": (1, "a kernel with a breakpoint is made again, to stop at each statement"),
}
"""Which modules ask whether an operation is of one class, how often, and why; no other does. To ask what an
operation *does* (effects, traits, cost, layouts, control flow, facts) needs no class: ``ir/interfaces.py``.
To go through all operations of a class (``function.walk(For)``) is what a pass is about."""
REGISTERS = ("on", "_rule", "lowers", "interprets", "implements")
"""Decorators that put a function into a table by the operations that it is about."""
COLLECTIONS = (ast.Tuple, ast.List, ast.Set)


def modules() -> Iterator[Path]:
    """All that may know of operations but their definitions."""
    for path in sorted(ROOT.rglob("*.py")):
        folder = path.relative_to(ROOT).parts[0]
        if folder not in NO_IR and path.parent.name != "ops":
            yield path


def assignments(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """All names that are given a value anywhere, and the values."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield last_name(target), node.value


def dispatches(value: ast.expr) -> bool:
    """Whether it is a table from operations to functions."""
    if not isinstance(value, ast.Dict):
        return False
    return all(isinstance(v, (ast.Name, ast.Attribute, ast.Lambda)) for v in value.values)


def members(value: ast.expr) -> list[ast.expr]:
    """Elements of a collection, keys of a table that does not dispatch, words of ``"a b c".split()``."""
    if isinstance(value, ast.Call) and last_name(value.func) == "split":
        text = getattr(value.func, "value", None)
        return [ast.Constant(word) for word in text.value.split()] if isinstance(text, ast.Constant) else []
    if isinstance(value, ast.Dict) and not dispatches(value):
        return [key for key in value.keys if key is not None]
    return value.elts if isinstance(value, COLLECTIONS) else []


def op_lists(path: Path) -> list[str]:
    """The names of a module's and its classes' collections of three or more operations."""
    tree = tree_of(path)
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    return [
        name
        for body in bodies
        for node in body
        for name, value in assignments(node)
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if any(sum(map(is_op, members(inner))) >= 3 or sum(map(is_op_name, members(inner))) >= 3
               for inner in ast.walk(value))
    ]  # fmt: skip


class Names(NamedTuple):
    """A module's names: of operations and collections of them, of classes of values, and of the functions in
    tables."""

    kinds: Collection[str]
    classes: Collection[str]
    rules: Collection[str]


def questions(tree: ast.AST, names: Names) -> Iterator[ast.AST]:
    """What asks which operation something is, by its class or its name in IR text, but in functions that a
    table dispatches to."""
    for node in ast.iter_child_nodes(tree):
        decorators = getattr(node, "decorator_list", [])
        is_registered = any(last_name(getattr(d, "func", d)) in REGISTERS for d in decorators)
        if is_registered or getattr(node, "name", None) in names.rules:
            continue
        if asks(node, names):
            yield node
        yield from questions(node, names)


def asks(node: ast.AST, names: Names) -> bool:
    if isinstance(node, ast.MatchClass):
        return is_op(node.cls)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if any(map(is_op, sides)):
            return True
        by_name = any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides)
        by_class = is_class(node.left) or isinstance(node.left, ast.Name) and node.left.id in names.classes
        return (by_name or by_class) and any(names_op(side, names, by_name) for side in sides)
    if not isinstance(node, ast.Call) or not node.args:
        return False
    called = last_name(node.func)
    if called in ("startswith", "endswith", "removeprefix") and last_name(node.func.value) == "name":
        parts = [part.value for part in alternatives(node.args[0]) if isinstance(part, ast.Constant)]
        return any(name.startswith(part) or name.endswith(part) for name in REGISTRY for part in parts)
    return called in ("isinstance", "issubclass", "has") and names_op(node.args[-1], names)


def is_class(node: ast.expr) -> bool:
    """Whether it is the class of a value."""
    is_type = isinstance(node, ast.Call) and last_name(node.func) == "type"
    return is_type or last_name(node) == "__class__"


def names_op(kinds: ast.expr, names: Names, by_name: bool = False) -> bool:
    return any(
        is_op(part) or isinstance(part, ast.Name) and part.id in names.kinds or (by_name and is_op_name(part))
        for part in alternatives(kinds)
    )


def alternatives(kinds: ast.expr) -> list[ast.expr]:
    return kinds.elts if isinstance(kinds, COLLECTIONS) else [kinds]


def asked_in(path: Path) -> list[ast.AST]:
    """The questions of a module, those by a name for several operations among them."""
    tree = tree_of(path)
    values = list(assignments(tree))
    kinds = {
        name
        for name, value in values
        for inner in ast.walk(value)
        if is_op(value) or any(is_op(part) or is_op_name(part) for part in members(inner))
    }
    classes = {name for name, value in values if is_class(value)}
    rules = {
        last_name(rule)
        for _, value in values
        if isinstance(value, ast.Dict) and dispatches(value)
        if any(key is not None and is_op(key) for key in value.keys)
        for rule in value.values
    }
    return list(questions(tree, Names(kinds, classes, rules)))


def last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def is_op(node: ast.expr) -> bool:
    is_of_python = isinstance(node, ast.Attribute) and last_name(node.value) == "ast"
    return last_name(node) in NAMES and not is_of_python


def is_op_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in REGISTRY


def test_no_module_lists_operations():
    found: Counter[str] = Counter()
    for path in modules():
        place = path.relative_to(ROOT)
        known = next((key for key in LEFT if place.is_relative_to(key)), place.as_posix())
        found[known] += len(op_lists(path))
    assert +found == {key: number for key, (number, _) in LEFT.items()}, (
        "say it in the operations' definitions (traits, effects, cost, …)"
    )


def test_modules_ask_what_operations_do_and_seldom_which_they_are():
    found = {path.relative_to(ROOT).as_posix(): len(asked_in(path)) for path in modules()}
    asked = {name: number for name, number in found.items() if number}
    assert asked == {name: number for name, (number, _) in ASKED.items()}, (
        "ask by effects, traits or interfaces of the definition; or let a table dispatch"
    )
    assert len(ASKED) + len(LEFT) <= 30


def test_lists_are_found(tmp_path):
    module = tmp_path / "m.py"
    module.write_text(
        "A = (arith.AddI, MulI, Load)\nB = {AddI: f, MulI: a.g, Load: lambda: 0}\nC = [AddI, MulI]\n"
        "D = {AddI: 'add', MulI: 'mul', Load: 'ld'}\nE = frozenset('addi muli load'.split())\n"
        "F = {'addi': 0, 'muli': 1, 'load': 2}\nclass G:\n  H = frozenset([AddI, MulI, Load])\n"
        "def f():\n  I = AddI, MulI, Load\n"
    )
    assert op_lists(module) == ["A", "D", "E", "F", "H"]


def test_questions_are_found(tmp_path):
    module = tmp_path / "m.py"
    module.write_text(
        "@RULES.on(AddI)\ndef f(op):\n  return isinstance(op.lhs, MulI)\nBOTH = (Load, Store)\n"
        "def g(op):\n  return isinstance(op, Loop), isinstance(op, (str, ops.Load)), isinstance(op, ast.If)\n"
        "def h(block):\n  return [block.has(Dot), isinstance(block.first, BOTH), block.walk(Dot)]\n"
        "def i(op):\n  kinds = {Load}\n  return type(op) is Load, type(op) in kinds, op.name != 'load'\n"
        "def j(op):\n  return op.name in ('load', 'x'), op.name.startswith('atomic_'), op.kind == 'load'\n"
    "def m(op):\n  kind = type(op)\n  return kind is Load, kind in BOTH, op in BOTH\n"
        "def k(op):\n  match op:\n    case Load(): pass\n"
        "RULES = {AddI: l}\ndef l(op):\n  return type(op) in RULES and type(op) is AddI\n"
    )
    assert list(map(ast.unparse, asked_in(module))) == [
        "isinstance(op, (str, ops.Load))", "block.has(Dot)", "isinstance(block.first, BOTH)",
        "type(op) is Load", "type(op) in kinds", "op.name != 'load'", "op.name in ('load', 'x')",
        "op.name.startswith('atomic_')", "kind is Load", "kind in BOTH", "Load()",
    ]  # fmt: skip


def test_tables_of_facts_are_on_the_definitions():
    """Every operation has a cost, and says of integers when they are not negative."""
    assert {kind.cost for kind in REGISTRY.values()} == {"free", "cheap", "expensive"}
    assert {kind.nonnegative_if for kind in REGISTRY.values()} == {"", "always", "all", "any", "first"}
