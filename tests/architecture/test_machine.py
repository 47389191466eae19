"""Numbers that tune the compiler stand in ``support/machine.py``, each once, with a sentence and its unit."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.trees import tree_of

ROOT = Path(__file__).parents[2] / "ptxforge"
MACHINE = ROOT / "support" / "machine.py"
UNITS = (
    "byte", "register", "thread", "instruction", "cycle", "issue slot", "word", "bank", "access", "latenc",
    "barrier", "sector", "multiply-add", "vector", "comparison", "lane", "sum", "load", "run",
)  # fmt: skip

ELSEWHERE = {
    "codegen_ptx/lower/arith.py": (
        "_FAR",
        "how far a constant may be from a root without a wrap: arithmetic",
    ),
    "codegen_ptx/lower/exchange.py": ("FULL_WARP", "a mask of lanes, part of an instruction's text"),
    "codegen_ptx/lower/math.py": ("_FIRST", "bits of floats"),
    "codegen_ptx/lower/reals.py": ("TO_WHOLE", "bits of floats"),
    "codegen_ptx/lower/tensor_map.py": ("_ZEROS", "where zeros lie in a record"),
    "codegen_ptx/lower/trigonometry.py": (
        "_LIMIT _WORDS",
        "the range of an algorithm, and the digits of 2/pi that it needs",
    ),
    "codegen_ptx/lower/truth_values.py": ("_ONES", "four bytes of 1"),
    "layouts/mma_atoms.py": ("ROW_BYTES", "rows of ldmatrix, as the instruction has them"),
    "layouts/panels.py": ("ATOM_ROWS", "what the hardware permutes"),
    "layouts/product_steps.py": ("VECTOR", "the shape of a layout"),
    "layouts/show.py": ("LARGEST_PICTURE NOTEBOOK_CELLS", "the size of pictures"),
    "layouts/wgmma.py": (
        "WARPS ROWS K_BYTES MAX_COLUMNS",
        "the shape of an instruction",
    ),
    "passes/allocate_shared.py": ("EVER", "a time after everything else"),
    "passes/analysis/axis_info.py": ("_MAX_ROUNDS", "rounds after which an analysis gives up"),
    "passes/analysis/cta_dimensions.py": ("_LEAST_OF_A_PRODUCT", "the shape of the smallest product"),
    "passes/analysis/rectangles.py": (
        "UNBOUNDED MOST_DIMENSIONS ALIGNMENT",
        "what a tensor map can describe, as the driver says",
    ),
    "passes/analysis/crossings.py": ("_FEW _MAX_DEPTH", "how far an analysis looks"),
    "passes/analysis/sign.py": ("_MAX_DEPTH _SHORT", "how deep an analysis looks"),
    "passes/choose_sequences.py": ("_LARGE", "a float that hides denormal ones in a sum"),
    "passes/insert_barriers.py": ("MOST_GROUPS", "how much an analysis tells apart"),
    "passes/multicast_loads.py": ("LEAST_ROWS", "the rows of a swizzle"),
    "passes/plan_ctas.py": ("_MOST_TWINS", "how many copies an analysis makes"),
    "passes/rematerialization.py": ("_MAX_DEPTH", "how deep a search goes"),
    "passes/use_limits.py": ("PROGRAMS", "how many programs an analysis looks at"),
    "passes/tensor_loads.py": ("MOST_ROWS", "what a tensor map can describe, as the driver says"),
}
"""Files with numbers of their own at module level, their names, and what they are: parts of algorithms,
shapes that the hardware gives, and bounds on how far an analysis looks. None says what pays."""


def numbers(path: Path) -> list[str]:
    """The names of a module's constants that are numbers, or made of numbers alone."""
    found = []
    for node in tree_of(path).body:
        value = getattr(node, "value", None) if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if value is not None and _is_number(value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found.append(ast.unparse(target))
    return found


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    return isinstance(node, ast.BinOp) and _is_number(node.left) and _is_number(node.right)


def test_the_code_generator_has_no_thresholds():
    """What a number decides, a pass decides: lowering finds it written on the operation."""
    folder, found = ROOT / "codegen_ptx" / "lower", set()
    for path in folder.glob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module == "ptxforge.support":
                found |= {(path.name, alias.name) for alias in node.names if alias.name == "machine"}
            elif isinstance(node, ast.ImportFrom) and node.module == "ptxforge.support.machine":
                found |= {(path.name, alias.name) for alias in node.names}
    assert found == {("partition.py", "WARP_SIZE")}


def test_no_tuning_elsewhere():
    folders = [ROOT / name for name in ("passes", "codegen_ptx", "layouts")]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    have = {str(path.relative_to(ROOT)): numbers(path) for path in files}
    found = {name: " ".join(names) for name, names in have.items() if names}
    assert found == {name: names for name, (names, _) in ELSEWHERE.items()}, (
        "what tunes the compiler stands in support/machine.py; say here what others are"
    )


def test_each_has_a_sentence_and_a_unit():
    body = tree_of(MACHINE).body
    names = [ast.unparse(node.targets[0]) for node in body if isinstance(node, ast.Assign)]
    assert len(set(names)) == len(names) > 30
    for node, after in zip(body, [*body[1:], None]):
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            assert isinstance(after, ast.Expr), f"{name} has no sentence"
            text = after.value.value
            assert any(unit in text.lower() for unit in UNITS), f"{name}: of what?"


def test_each_is_used():
    texts = [path.read_text() for path in ROOT.rglob("*.py") if path != MACHINE]
    for node in tree_of(MACHINE).body:
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            used = (f"machine.{name}", f"machine import {name}")
            assert any(word in text for text in texts for word in used), f"nobody uses {name}"
