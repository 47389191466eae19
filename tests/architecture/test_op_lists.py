"""What is known of an operation stands in its definition: no module has a list of operations of its own.

A table whose keys are operations and whose values are functions dispatches; so do decorators. Any other
collection of three or more operations at module level is a list that somebody who adds an operation would
have to know of; so is a ladder of ``isinstance``. What is left stands here, with the reason.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from ptxforge.ir import ops as _ops  # noqa: F401 - fills the registry
from ptxforge.ir.definition import REGISTRY

ROOT = Path(__file__).parents[2] / "ptxforge"
FOLDERS = ("passes", "codegen_ptx", "explain", "ir", "frontend", "interpreter")
NAMES = {kind.__name__ for kind in REGISTRY.values()}

LEFT: dict[str, str] = {}

ASKED = {
    "passes/accelerate_matmul.py": (14, "products, what makes their operands, and the casts between them"),
    "passes/allocate_shared.py": (14, "buffers, and the conversions whose scratch passes in parts"),
    "passes/analysis/assumptions.py": (5, "comparisons and remainders as kernels' authors write promises"),
    "passes/analysis/axis_info.py": (4, "the bounds of loops, and divisors that are constants"),
    "passes/analysis/rectangles.py": (22, "matches what addresses of rectangles are made of, term by term"),
    "passes/analysis/within_vectors.py": (6, "matches masks: comparisons, their conjunctions, their copies"),
    "passes/analysis/*": (34, "loads of a loop, buffers, linear sums: what each analysis is about"),
    "passes/chained_products.py": (11, "matches one product whose result is another's operand"),
    "passes/insert_barriers.py": (22, "one transfer function for each kind of access to shared memory"),
    "passes/layout_propagation.py": (4, "anchors, and the conversions that go"),
    "passes/optimize_dot_operands.py": (17, "matches what stands between a load and a product"),
    "passes/pipeline_loops.py": (22, "makes and finds loads, copies and waits of a loop"),
    "passes/prefetch.py": (11, "matches a product and the reads of its operands"),
    "passes/rematerialization.py": (16, "loads, conversions and stores have costs and moves of their own"),
    "passes/reduce_data_duplication.py": (12, "matches products and what their operands are read from"),
    "passes/reorder_instructions.py": (13, "matches conversions, reads and products that change places"),
    "passes/rotate_ranges.py": (10, "matches sums of ranges and row starts"),
    "passes/scale_indices.py": (9, "matches the index of a ring of buffers"),
    "passes/staggered_products.py": (17, "matches products, their tiles, and the copies of these"),
    "passes/rings.py": (18, "makes and finds the buffers and barriers of a ring"),
    "passes/*": (76, "the operations that a pass is named after: loops, bounds, descriptors, products"),
    "codegen_ptx/*": (30, "what stands around an operation while it is lowered: loops, products, stores"),
    "explain/*": (20, "tells users of loads, loops, products and buffers by these names"),
    "frontend/*": (10, "values that a name may stand for: constants, returns"),
    "ir/*": (8, "the builder's and the rewriter's constants, the verifier's terminators"),
}
"""Which modules may ask whether an operation is of one class, how often, and why. The first pattern that fits
a module counts; all modules that one fits share its number. To ask what an operation *does* (effects, traits,
cost, layouts, control flow) needs no class."""
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


def questions(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls of ``isinstance`` that ask for an operation, but in functions that a table dispatches to."""
    for node in ast.iter_child_nodes(tree):
        decorators = getattr(node, "decorator_list", [])
        if any(last_name(getattr(d, "func", d)) in REGISTERS for d in decorators):
            continue
        if isinstance(node, ast.Call) and last_name(node.func) == "isinstance" and asks_for_op(node.args[1]):
            yield node
        yield from questions(node)


def asks_for_op(kinds: ast.expr) -> bool:
    return any(map(is_op, kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]))


def last_name(node: ast.expr) -> str:
    return ast.unparse(node).split(".")[-1]


def is_op(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node).split(".")[-1] in NAMES


def test_no_module_lists_operations():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {f"{path.relative_to(ROOT)}: {name}" for path in paths for name in op_lists(path)}
    assert not found - LEFT.keys(), "say it in the operations' definitions (traits, effects, cost, …)"
    assert not LEFT.keys() - found, "these are gone: take them out of the list"


def test_modules_ask_what_operations_do_and_seldom_which_they_are():
    counts: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            pattern = next((p for p in ASKED if fnmatch(name, p)), name)
            counts[pattern] += sum(1 for _ in questions(ast.parse(path.read_text())))
    too_many = {p: n for p, n in counts.items() if n > ASKED.get(p, (0, ""))[0]}
    assert not too_many, "ask by effects, traits or interfaces of the definition; or let a table dispatch"
    assert len(ASKED) + len(LEFT) <= 30


def test_the_check_itself(tmp_path):
    module = tmp_path / "m.py"
    module.write_text("A = (arith.AddI, MulI, Load)\nB = {AddI: f, MulI: f, Load: f}\nC = [AddI, MulI]\n")
    assert op_lists(module) == ["A"]
    module.write_text(
        "@RULES.on(AddI)\ndef f(op):\n  return isinstance(op.lhs, MulI)\n"
        "def g(op):\n  return isinstance(op, Loop) or isinstance(op, (str, ops.Load))\n"
    )
    (found,) = questions(ast.parse(module.read_text()))
    assert ast.unparse(found) == "isinstance(op, (str, ops.Load))"


def test_tables_of_facts_are_on_the_definitions():
    """Every operation has a cost, and says of integers when they are not negative."""
    assert {kind.cost for kind in REGISTRY.values()} == {"free", "cheap", "expensive"}
    assert {kind.nonnegative_if for kind in REGISTRY.values()} == {"", "always", "all", "any", "first"}
